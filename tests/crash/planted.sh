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
export CRASH_DAEMON=$builddir/tests/crash/planted/varjfs CRASH_FIRST=yes

# A bug that the harness does not find is a failure.  The same daemon without it: see short.sh and
# sqlite.sh, whose hook alone can find that a transaction is missing.
[ $# -gt 0 ] || set -- late-flush nosync no-rename-rule no-error sync-again no-fsync
for bug; do
    export VARJFS_PLANTED=$bug
    if [ "$bug" = no-fsync ]; then
        python3 -c "import sqlite3" 2>/dev/null || { skip "$bug: found" "needs Python's sqlite3" && continue; }
        VARJFS_MODEL_SEED=$seed VARJFS_MOUNT_OPTIONS="${VARJFS_MOUNT_OPTIONS:-} -o commit=3600" \
            "$srcdir/tests/crash/sqlite.sh" 3 20 wal+full >"$T/sqlite" 2>&1
        note "$(grep -A 3 '^# violation' "$T/sqlite" | head -n 4)"
        is "$bug: found by the hook alone" "$(grep '^not ok' "$T/sqlite" | sed 's/^not ok [0-9]*//')
$(grep -c 'AssertionError: commit .* is lost' "$T/sqlite" | sed 's/^[1-9].*/lost/')" " - sqlite: power cuts
lost"
        continue
    fi
    case $bug in
    no-error) workload=metafault ;;
    sync-again) workload=storefault ;;
    *) workload=editors ;;
    esac
    crash_workload $workload --seed "$seed" --ops 60
    status=0
    crash_cut --states 600 --seed "$seed" || status=$?
    note "$(cat "$T/states")"
    is "$bug: found" "$status $(grep -c '^violation:' "$T/states")" "1 1"
done
tap_done
