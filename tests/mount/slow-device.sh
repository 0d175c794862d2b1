#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# What need not wait for the device does not: names, attributes and edits of other files go on while a device
# sync is under way, and overlapping fsyncs share syncs.  Asserted by counting syncs, not by time.
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/lib/delay.sh"
requires_fuse
probe=$builddir/tests/lib/latency-probe
[ -x "$probe" ] || skip_all "needs tests/lib/latency-probe"
control=$T/control
# shellcheck disable=SC2119 # no options
make_fs
VJ_TEST_SYNC_DELAY_MS=0 delay_mount "$control"
dd if=/dev/urandom of="$MNT/big" bs=64K count=16 status=none
echo data >"$MNT/other"
sync "$MNT/big"

under_way()
{
    [ "$(delay_word "$control" 7)" -gt 0 ]
}

quiet()
{
    varjfsctl sync "$MNT" && ! under_way
}

# A device sync of 30 s is under way: none ends while the operations below run.  Those that
# began before the delay was set have ended.
check "the device is quiet" wait_for 20 quiet
delay_set_ms "$control" 30000
(echo more >>"$MNT/big" && sync "$MNT/big") &
syncer=$!
check "a device sync begins" wait_for 20 under_way
before=$(delay_syncs "$control")
check "200 files are made meanwhile" "$probe" -n 200 create "$MNT"
check "500 stats are answered meanwhile" "$probe" -n 500 stat "$MNT/big"
# Not into the file that is synced: the kernel holds its lock until FSYNC is answered, and an edit takes that.
check "200 inserts into another file" "$probe" -n 200 insert "$MNT/other"
check "names move, directories come and go" bash -c \
    "cd '$MNT' && mkdir a && echo x >a/x && mv a/x a/y && rm a/y && rmdir a"
is "no device sync ended meanwhile" "$(delay_syncs "$control")" "$before"
delay_set_ms "$control" 0
# The delay that has begun is not cut short; the daemon is let go by ending it.
check "the sync is still under way" kill -0 $syncer
kill_varjfs
wait $syncer 2>/dev/null
mount_varjfs
fsck_after()
{
    umount_varjfs
    fsck_clean "$1"
}
fsck_after "after the daemon was killed in a device sync"

# 32 processes fsync in turn with a device that takes 200 ms: they share.
rm -f "$control"
VJ_TEST_SYNC_DELAY_MS=0 delay_mount "$control"
delay_set_files_only "$control" 1
delay_set_ms "$control" 200
before=$(($(delay_word "$control" 1) + $(delay_word "$control" 2)))
check "32 processes make 8 fsyncs each" "$probe" -n 8 -j 32 fsync "$MNT/f"
after=$(($(delay_word "$control" 1) + $(delay_word "$control" 2)))
delay_set_ms "$control" 0
note "256 fsyncs, $((after - before)) calls of fsync and fdatasync below"
check "at least 4 fsyncs share one below" [ $((after - before)) -le 64 ]
fsck_after "after the storm"
tap_done
