#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# processes.sh [ROUNDS] - several processes work in one HDF5 file at the same time, and one of them is killed
#
# Where mpiexec is there, once more as the ranks of an MPI program: none of them uses MPI itself, as HDF5 without its
# parallel feature has no collective calls.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/hdf5/hdf5.sh"

processes=$builddir/tests/hdf5/processes
of=5

at_once() # FILE DEAD
{
    local file=$1 dead=$2 i step pids='' failed=0
    for ((i = 0; i < of; i++)); do
        step=work
        [ "$i" != "$dead" ] || step=die
        ours "$processes" "$file" "$step" "$i" "$of" >"$T/won-$i" 2>"$T/err-$i" &
        pids+=" $!"
    done
    i=0
    for pid in $pids; do
        if ! wait "$pid" && [ "$i" != "$dead" ]; then
            failed=1
            note "$i: $(head -n 5 "$T/err-$i")"
        fi
        i=$((i + 1))
    done
    return "$failed"
}

won()
{
    cat "$T"/won-* | awk '{ n += $1 } END { print n + 0 }'
}

for ((round = 1; round <= ${1:-2}; round++)); do
    check "round $round: a file" ours "$processes" "f-$round" make 0 "$of"
    check "round $round: $of processes write it at once" at_once "f-$round" $of
    is "round $round: each name that all of them wanted was made once" "$(won)" 10
    check "round $round: all of it is there" ours "$processes" "f-$round" check $of $of
    check "round $round: another file" ours "$processes" "g-$round" make 0 "$of"
    check "round $round: of $of processes one is killed" at_once "g-$round" 2
    check "round $round: what the others did is there, and what it had flushed" ours "$processes" "g-$round" check 2 $of
done

if command -v mpiexec >/dev/null; then
    check "a file for ranks" ours "$processes" "m" make 0 "$of"
    check "$of ranks write it at once" ours mpiexec -n $of sh -c \
        "exec '$processes' m work \"\${PMI_RANK:-\$OMPI_COMM_WORLD_RANK}\" $of"
    check "all of it is there" ours "$processes" "m" check $of $of
fi

tap_done
