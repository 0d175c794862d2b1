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

# A bug that the harness does not find in one of some recordings is a failure.  The same daemon
# without it: see short.sh and sqlite.sh, whose hook alone can find that a transaction is missing.
tries=5
[ $# -gt 0 ] || set -- late-flush nosync no-rename-rule no-error sync-again no-fsync \
    log-unsynced log-id remap-unflushed erase-unsynced

# SEED: with the planted bug; true when exactly it was found.
by_states()
{
    local status=0
    crash_workload "$workload" --seed "$1" --ops 60
    crash_cut ${crash_cut_options[@]+"${crash_cut_options[@]}"} --states 600 --seed "$1" || status=$?
    note "$(cat "$T/states")"
    [ "$status $(grep -c '^violation:' "$T/states")" = "1 1" ]
}

by_hook()
{
    VARJFS_MODEL_SEED=$1 VARJFS_MOUNT_OPTIONS="${VARJFS_MOUNT_OPTIONS:-} -o commit=3600" \
        "$srcdir/tests/crash/sqlite.sh" 3 20 wal+full >"$T/sqlite" 2>&1
    note "$(grep -A 3 '^# violation' "$T/sqlite" | head -n 4)"
    [ "$(grep '^not ok' "$T/sqlite" | sed 's/^not ok [0-9]*//')" = " - sqlite: power cuts" ] &&
        grep -q 'AssertionError: commit .* is lost' "$T/sqlite"
}

for bug; do
    export VARJFS_PLANTED=$bug
    how=by_states
    unset CRASH_REDO CRASH_MOUNT_EVERY
    case $bug in
    # With a log a flush succeeds where one of the two files takes it.
    no-error) workload=metafault CRASH_REDO=0 ;;
    sync-again) workload=storefault ;;
    log-id) workload=remounts ;;
    remap-unflushed) workload=fragments ;;
    erase-unsynced)
        workload=erase
        export CRASH_MOUNT_EVERY=1000000 # it is seen without
        ;;
    no-fsync)
        how=by_hook
        python3 -c "import sqlite3" 2>/dev/null || { skip "$bug: found" "needs Python's sqlite3" && continue; }
        ;;
    *) workload=editors ;;
    esac
    found=no
    for ((try = 0; try < tries; try++)); do
        if $how $((seed + try)); then
            found=yes
            break
        fi
    done
    is "$bug: found" $found yes
done
tap_done
