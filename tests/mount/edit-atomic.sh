#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# An edit of up to 8 MiB happens entirely or not at all: between any two requests (readers with
# O_DIRECT of one request each), and across SIGKILL of the daemon.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
# shellcheck disable=SC2154 # tap.sh sets builddir
program=$builddir/tests/mount/edit-atomic
[ -x "$program" ] || skip_all "needs tests/mount/edit-atomic"

seed=$((RANDOM * 32768 + RANDOM))
note "seed $seed"
make_fs -o objects=64K
mount_varjfs

# ---- readers beside a writer

"$program" init "$MNT/file" $seed
"$program" edit "$MNT/file" $seed 700 &
writer=$!
"$program" read "$MNT/file" $seed 700 >"$T/read1" 2>"$T/err1" &
reader1=$!
"$program" read "$MNT/file" $seed 700 >"$T/read2" 2>"$T/err2" &
reader2=$!
wait $writer
is "the writer succeeds" $? 0
wait $reader1
is "the first reader sees whole edits" $? 0
wait $reader2
is "the second reader sees whole edits" $? 0
note "$(cat "$T/read1" "$T/read2" "$T/err1" "$T/err2")"
states=$(sort -n "$T/read1" | head -1)
check "they ran at the same time" test "${states%% *}" -gt 10
check "a buffered reader agrees afterwards" "$program" check "$MNT/file" $seed

# ---- the daemon dies

enough_edits()
{
    [ "$(wc -l <"$T/edits")" -ge "$1" ]
}

for round in 1 2 3 4 5; do
    : >"$T/edits"
    "$program" edit "$MNT/file" $seed 0 >"$T/edits" 2>"$T/err" &
    writer=$!
    edits=$((RANDOM % 120 + 1))
    wait_for 30 enough_edits $edits || fail "round $round: the writer works"
    kill_varjfs
    wait $writer
    mount_varjfs
    check "round $round: after $edits edits and SIGKILL the file is whole" \
        "$program" check "$MNT/file" $seed
done

umount_varjfs
fsck_clean "after all that"

tap_done
