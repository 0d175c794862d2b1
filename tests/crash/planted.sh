#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# planted.sh [BUG...] - daemons with a bug each (planted/planted.c): the harness finds it
#
# VARJFS_MODEL_SEED=N gives the seed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/crash/crash.sh"

requires_crash
seed=${VARJFS_MODEL_SEED:-$RANDOM$RANDOM}
note "seed $seed"
# shellcheck disable=SC2154 # tap.sh sets builddir
export CRASH_DAEMON=$builddir/tests/crash/planted/varjfs

# A bug that the harness does not find is a failure.  The same daemon without it: see short.sh.
[ $# -gt 0 ] || set -- late-flush nosync no-rename-rule
for bug; do
    export VARJFS_PLANTED=$bug
    crash_workload editors --seed "$seed" --ops 60
    status=0
    crash_cut --states 600 --seed "$seed" --first || status=$?
    note "$(cat "$T/states")"
    is "$bug: found" "$status $(grep -c '^violation:' "$T/states")" "1 1"
done
tap_done
