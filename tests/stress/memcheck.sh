#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# memcheck.sh - a mount whose daemon runs under a checker: VARJFS_TEST_WRAPPER, a command to
# put in front of it (scripts/test valgrind sets it)
#
# Without the sandbox: valgrind makes calls of its own, which the guard may not make.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

[ -n "${VARJFS_TEST_WRAPPER:-}" ] || skip_all "needs VARJFS_TEST_WRAPPER"
requires_fuse
requires program tests/stress/load
source_in_memory
make_fs -o objects=4K
mkdir "$MNT"

# shellcheck disable=SC2086,SC2154 # a command with arguments; tap.sh sets builddir
$VARJFS_TEST_WRAPPER "$builddir/varjfs" -f "$SOURCE" "$MNT" -o sandbox=off >"$T/daemon" 2>&1 &
daemon=$!
wait_for 120 is_mounted "$MNT" || fail "the daemon starts" "$(cat "$T/daemon")"

mkdir "$MNT/d"
for transform in none xor rle lz4 zstd; do
    varjfs_file=$MNT/d/$transform
    : >"$varjfs_file"
    setfattr -n user.varjfs.transform -v "$transform" "$varjfs_file" 2>"$T/err" || continue
    seq 100000 >>"$varjfs_file"
    echo "in between" | varjfsctl insert "$varjfs_file" 12345
    varjfsctl delete "$varjfs_file" 12345 11
    seq 100000 | cmp - "$varjfs_file" || fail "$transform: what was written is read"
    varjfsctl recode "$varjfs_file" >"$T/out" 2>&1 || fail "$transform: recode" "$(cat "$T/out")"
    cp "$varjfs_file" "$varjfs_file.copy"
done
check "varjfsctl gc" varjfsctl gc "$MNT"
check "varjfsctl scrub" varjfsctl scrub "$MNT"
check "varjfsctl stats" varjfsctl stats "$MNT"
"$builddir/tests/stress/load" --dir "$MNT/load" --seconds 30 --processes 2 --files 3 >"$T/out" 2>&1
is "the load finds no difference" $? 0
note "$(head -c 20000 "$T/out" | sed 's/^# //')"
rm -rf "$MNT/load" "$MNT/d"
check "umount" unmount "$MNT"
wait $daemon
is "the daemon ends, and the checker has nothing to say" $? 0
note "$(tail -n 100 "$T/daemon")"
# shellcheck disable=SC2086 # as above
$VARJFS_TEST_WRAPPER "$builddir/fsck.varjfs" --sandbox=off -n "$SOURCE" >"$T/out" 2>&1
is "fsck.varjfs -n" $? 0
note "$(tail -n 100 "$T/out")"
tap_done
