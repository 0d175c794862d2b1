#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# An edit is staged by one call and carried out by the next: what others do in between, calls that
# the kernel refuses, and who may keep how many staged.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires command python3
requires program .libs/librwrite.so tests/mount/edit-signals
# shellcheck disable=SC2154 # tap.sh sets builddir
export LIBRARY=$builddir/.libs/librwrite.so
chmod 755 "$T"
# shellcheck disable=SC2119 # without options
make_fs

# calls GROUP: the tests of two-calls.py whose names begin with GROUP
calls()
{
    local status=0
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    timeout --kill-after=10 120 python3 "$srcdir/tests/mount/two-calls.py" "$MNT" "$1_" || status=$?
    is "two-calls.py $1: exit status" $status 0
}

mount_varjfs -o allow_other
calls seen
status=0
timeout 60 "$builddir/tests/mount/edit-signals" "$MNT/signals" 2 >"$T/out" 2>&1 || status=$?
note "$(head -n 20 "$T/out")"
is "edits of a signal handler beside those of the program: exit status" $status 0
umount_varjfs
fsck_clean "afterwards"

# ---- a daemon that cannot name its callers

unshare --pid --fork --kill-child varjfs -f "$SOURCE" "$MNT" >"$T/varjfs.log" 2>&1 &
starter=$!
wait_for 60 is_mounted "$MNT" || fail "a mount from another pid namespace" "$(cat "$T/varjfs.log")"
namespace=$(readlink "/proc/$(daemon_pid)/ns/pid")
check "the daemon's pid namespace is another" \
    test -n "$namespace" -a "$namespace" != "$(readlink /proc/self/ns/pid)"
calls unnamed
umount_varjfs
status=0
wait $starter || status=$?
is "the daemon's exit status" $status 0
fsck_clean "after edits of callers without a name"
tap_done
