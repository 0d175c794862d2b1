#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# run.sh [--states N] [--workload NAME]... [--seed S] [--jobs J] - many power cuts, and a table
#
# N states in all (20000), spread over the workloads (all of them).  Each workload is recorded anew
# for every 250 of its states, with seeds S, S+1, ....  One state of 100 also goes through
# fsck.varjfs, varjfs and umount (mount-state.sh).  J states at a time (2).  Ends with a line for
# each workload: states, violations, the first seed, records.  CRASH_KEEP=DIR keeps the logs.

states=20000 seed=$RANDOM$RANDOM jobs=2 workloads=()
while [ $# -gt 0 ]; do
    case $1 in
    --states) states=$2 ;;
    --workload) workloads+=("$2") ;;
    --seed) seed=$2 ;;
    --jobs) jobs=$2 ;;
    *)
        sed -n 's/^# \{0,1\}//; 4,10p' "$0" >&2
        exit 2
        ;;
    esac
    shift 2
done
set --

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/crash/crash.sh"

requires_crash
[ ${#workloads[@]} -gt 0 ] ||
    workloads=(edits fragments editors small commits recode gc orphans remounts mixed compact shrink erase checkpoint metafault \
        storefault)
each=$(((states + ${#workloads[@]} - 1) / ${#workloads[@]}))
declare -A made violations records
started=$SECONDS

ops_of()
{
    case $1 in
    orphans) echo 10 ;;
    commits) echo 1300 ;;
    small) echo 500 ;;
    mixed) echo 240 ;;
    compact | shrink) echo 60 ;;
    *) echo 120 ;;
    esac
}

value_of()
{
    tail -1 "$T/states" | sed -n "s/.*\<$1 \([0-9]*\).*/\1/p"
}

for ((from = 0; from < each; from += 250)); do
    count=$((each - from < 250 ? each - from : 250))
    for name in "${workloads[@]}"; do
        round=$((seed + from / 250))
        crash_workload "$name" --seed "$round" --ops "$(ops_of "$name")" || continue
        hook=(--tree --hook "$srcdir/tests/crash/mount-state.sh" --hook-every 100)
        [ "$name" != erase ] || hook=() # its own
        crash_states "$name, seed $round" --states $count --seed "$round" --jobs "$jobs" \
            ${hook[@]+"${hook[@]}"}
        made[$name]=$((${made[$name]:-0} + $(value_of states)))
        violations[$name]=$((${violations[$name]:-0} + $(value_of violations)))
        records[$name]=$((${records[$name]:-0} + $(value_of records)))
    done
done

note "$(
    printf '%-10s %8s %10s %10s %10s\n' workload states violations seed records
    all=0 wrong=0
    for name in "${workloads[@]}"; do
        printf '%-10s %8d %10d %10d %10d\n' "$name" "${made[$name]:-0}" "${violations[$name]:-0}" \
            "$seed" "${records[$name]:-0}"
        all=$((all + ${made[$name]:-0})) wrong=$((wrong + ${violations[$name]:-0}))
    done
    printf '%-10s %8d %10d %10s in %d s\n' all $all $wrong '' $((SECONDS - started))
)"
tap_done
