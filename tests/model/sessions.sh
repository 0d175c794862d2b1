#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# sessions.sh [long] - sessions of one volume at random, at the same time, and their crashes
#
# The short form is a tenth of the long one.  Seeds are random and printed;
# VARJFS_MODEL_SEED=N gives all runs the same, which repeats what each session does, but not how they meet.
# VARJFS_MODEL_PART=N: an N-th of the operations; VARJFS_TEST_WRAPPER, a command, stands in front of the program.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires program tests/model/sessions
scale=1
part=${VARJFS_MODEL_PART:-1}
[ "${1:-}" != long ] && [ -z "${VARJFS_MODEL_LONG:-}" ] || scale=10

# sessions NAME OPTION...
sessions()
{
    local name=$1 status=0
    shift
    # shellcheck disable=SC2086,SC2154 # a command with arguments; tap.sh sets builddir
    ${VARJFS_TEST_WRAPPER:-} "$builddir/tests/model/sessions" --dir "$T" ${VARJFS_MODEL_SEED:+--seed "$VARJFS_MODEL_SEED"} \
        "$@" >"$T/out" 2>&1 || status=$?
    # What dead sessions say of themselves is left out where all went well.
    [ $status -ne 0 ] || sed -i '/^varjfs: /d; /^sessions: check: /d' "$T/out"
    note "$(sed 's/^# //' "$T/out" | tail -60)"
    is "$name" $status 0
}

sessions "three sessions" --ops $((100000 * scale / part)) --rounds $((4 * scale))
sessions "all of them far away" --ops $((40000 * scale / part)) --rounds $((4 * scale)) --far 1
sessions "five sessions, a crash in 60 operations" --ops $((20000 * scale / part)) --rounds $((4 * scale)) \
    --sessions 5 --crashes 60
sessions "objects in files" --ops $((20000 * scale / part)) --rounds $((2 * scale)) --store posix
sessions "no crashes, large files" --ops $((20000 * scale / part)) --rounds $((2 * scale)) --crashes 0 --size 1000000
tap_done
