#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# load.sh [SECONDS [OPTION...]] - many users of the same files and names (README.md)
#
# Without SECONDS: the planted faults, each of which must be found.  A run without one is a command and
# not part of "make check": every few minutes of it meet a limit of doc/page-cache.md.  OPTIONs are
# those of tests/stress/load.  Seeds are random and printed; VARJFS_MODEL_SEED=N repeats one.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program tests/stress/load
source_in_memory
# shellcheck disable=SC2154 # tap.sh sets builddir
load=$builddir/tests/stress/load
runs=0

# run NAME STATUS OPTION...: a directory of its own each time
run()
{
    local name=$1 wanted=$2 status=0
    shift 2
    runs=$((runs + 1))
    "$load" --dir "$MNT/load$runs" ${VARJFS_MODEL_SEED:+--seed "$VARJFS_MODEL_SEED"} "$@" \
        >"$T/out" 2>&1 || status=$?
    # A planted fault need not be told at length.
    if [ "$wanted" = 0 ]; then
        note "$(head -c 200000 "$T/out" | sed 's/^# //')"
        is "$name" $status 0
    else
        note "$(head -2 "$T/out" | cut -c 1-200 | sed 's/^# //')"
        is "$name: found" "$status $(grep -c -m 1 'no order explains' "$T/out")" "$wanted 1"
    fi
    if [ $status = 3 ]; then
        # Who hangs cannot be waited for.
        exit 1
    fi
}

make_fs -o objects=1K
mount_varjfs
if [ -n "${1:-}" ]; then
    seconds=$1
    shift
    run "$seconds seconds without a difference" 0 --seconds "$seconds" "$@"
else
    # Until it is found: the time is for a machine that does many other things, too.
    run "an edit that is two" 1 --seconds 120 --no-kill --mix edits --plant torn
    run "a read that is stale" 1 --seconds 120 --no-kill --mix edits --plant stale
    run "a write that returns early" 1 --seconds 120 --no-kill --mix writes --plant early
    run "a write that is lost" 1 --seconds 120 --no-kill --mix writes --plant lost
    run "a rename that leaves a gap" 1 --seconds 120 --no-kill --plant absent
fi
umount_varjfs
fsck_clean "after the load"
tap_done
