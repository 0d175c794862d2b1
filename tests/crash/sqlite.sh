#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# sqlite.sh [COMMITS [STATES [MODE...]]] - sqlite at work in several journal modes, and the power cut
#
# In each state each database opens, integrity_check finds nothing, no transaction is there in part, and
# all commits that had returned are there (tests/programs/sqlite.py: what FULL loses in mode delete).
# COMMITS: of each of the two writers of a database.  MODE: of sqlite.py.  VARJFS_MODEL_SEED=N gives the seed of the cuts.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/crash/crash.sh"

requires_crash
requires command python3
requires python-module sqlite3
commits=${1:-3}
states=${2:-6}
seed=${VARJFS_MODEL_SEED:-$RANDOM$RANDOM}
note "seed $seed"
modes="delete delete+full wal+full"
[ $# = 0 ] || modes="$modes truncate+full persist+full wal+mmap"
[ $# -lt 3 ] || modes=${*:3}
sqlite="python3 $srcdir/tests/programs/sqlite.py"

# For each state: the databases whose making was durable before the cut.
cat >"$T/hook" <<'END'
#!/bin/bash
status=0
for mode in $modes; do
    grep -qx "!$mode made" "$VJ_CRASH_MARKS" || continue
    sed -n "s/^!$mode \([0-9]* [0-9]*\)\$/\1/p" "$VJ_CRASH_MARKS" >"$VJ_CRASH_TREE/ledger"
    grep '^1 ' "$VJ_CRASH_TREE/ledger" >"$VJ_CRASH_TREE/ledger-1"
    grep '^2 ' "$VJ_CRASH_TREE/ledger" >"$VJ_CRASH_TREE/ledger-2"
    # shellcheck disable=SC2086 # a command with its words
    $sqlite check "$VJ_CRASH_TREE/$mode.db" "$mode" "$VJ_CRASH_TREE/ledger-1" "$VJ_CRASH_TREE/ledger-2" \
        >"$VJ_CRASH_TREE/out" 2>&1 || {
        echo "$mode: $(tail -n 1 "$VJ_CRASH_TREE/out")" >&2
        status=1
    }
done
exit $status
END
chmod +x "$T/hook"
export modes sqlite

crash_make -o objects=4K
crash_mount
for mode in $modes; do
    # shellcheck disable=SC2086 # the same
    check "$mode: a database" $sqlite create "$MNT/$mode.db" "$mode"
    check "$mode: is durable" varjfsctl sync "$MNT"
    crash_mark "!$mode made"
done
pids=()
for writer in 1 2; do
    for mode in $modes; do
        # shellcheck disable=SC2086 # the same
        SQLITE_MARK="$crash_check mark $crash_log" $sqlite write "$MNT/$mode.db" "$mode" $writer "$commits" \
            2>"$T/errors-$mode-$writer" &
        pids+=($!)
    done
done
failed=
for pid in "${pids[@]}"; do
    wait "$pid" || failed+=" $?"
done
is "every writer ends well" "$failed" "" || note "$(cat "$T"/errors-*)"
crash_umount
crash_replays "sqlite"
note "$("$crash_check" count "$crash_log")"
crash_states "sqlite" --states "$states" --seed "$seed" --tree --hook "$T/hook"
tap_done
