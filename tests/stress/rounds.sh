#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# rounds.sh [SECONDS [OPTION...]] - a few concurrent operations on one small file (README.md)
#
# Without SECONDS: a file system of the kernel's own as the control, and varjfs, for seconds each.
# OPTIONs are those of tests/stress/rounds.  Seeds are random and printed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program tests/stress/rounds
source_in_memory
# shellcheck disable=SC2154 # tap.sh sets builddir
rounds=$builddir/tests/stress/rounds

# run NAME DIR OPTION...
run()
{
    local name=$1 status=0
    mkdir -p "$2"
    "$rounds" --dir "$2" "${@:3}" >"$T/out" 2>&1 || status=$?
    note "$(head -c 200000 "$T/out" | sed 's/^# //')"
    is "$name: violations" $status 0
    if [ $status = 3 ]; then
        # Who hangs cannot be waited for.
        exit 1
    fi
}

make_fs -o objects=1K
exact=()
VARJFS_TRACE=front mount_varjfs
umount_varjfs
case $(grep -o "a direct read is one request: .*" "$T/varjfs.log") in
*yes) exact=(--exact-reads) ;;
*no) note "direct reads of several requests: the kernel or libfuse is too old" ;;
*) fail "the daemon says whether a direct read is one request" "$(cat "$T/varjfs.log")" ;;
esac
mount_varjfs
if [ -n "${1:-}" ]; then
    seconds=$1
    shift
    run "$seconds seconds" "$MNT/rounds" "${exact[@]}" --seconds "$seconds" "$@"
else
    run "the control: a file system in the kernel" "${memory_dir:-$T}/control" --seconds 2 --no-edits
    # Stores through mappings: on any FUSE file system the kernel loses some (README.md).
    run "varjfs" "$MNT/rounds" "${exact[@]}" --seconds 6 --ops=-store
    # Between the two calls of an edit there is time to store into pages.
    umount_varjfs
    export VARJFS_TEST_DELAY=flushed=1
    mount_varjfs
    run "pages that come between two calls" "$MNT/rounds" "${exact[@]}" --seconds 5 --most 2 --ops=delete,replace,store
fi
umount_varjfs
fsck_clean "after the rounds"
tap_done
