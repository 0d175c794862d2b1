#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# nodes-fail.sh [ROUNDS] - object nodes die, stop or lose their link under fio and edits
#
# In each round one random object node gets SIGKILL (sometimes with its disk lost), SIGSTOP or a link that is down;
# the load goes on; then the node is as before and the round ends when all replicas are there again.  No call at
# the mount may fail, nothing that was fsynced may be lost, and in the end everything reads without any one of the
# object nodes.  Default 4 rounds; 50 are the long form.  VARJFS_CLUSTER_SEED=N gives the same order of faults.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
requires command python3 fio
rounds=${1:-4}
seed=${VARJFS_CLUSTER_SEED:-$RANDOM}
note "seed $seed"
RANDOM=$seed
cluster_dir memory
cluster up 3
mkdir "$MNT/load" "$MNT/fio"

load_start "$seed"

# One verified run after the other until it is to stop.
fio_runs()
{
    local run=0
    while [ ! -e "$T/stop" ]; do
        run=$((run + 1))
        fio --name=load --directory="$MNT/fio" --size=24m --rw=randwrite --bsrange=4k-128k --bs_unaligned=0 \
            --blockalign=4k --ioengine=psync --fsync=16 --numjobs=2 --thread=1 --verify=crc32c --verify_fatal=1 \
            --verify_state_save=0 --allow_file_create=1 --randseed=$((seed + run)) --group_reporting >"$T/fio.out" 2>&1 || return 1
        echo $run >"$T/fio.runs"
    done
}
fio_runs &
fio_loop=$!

wait_for 60 load_has 20 || fail "the load begins"
for ((round = 1; round <= rounds; round++)); do
    node=$((2 + RANDOM % 2))
    case $((RANDOM % 4)) in
    0) fault="kill" ;;
    1) fault="stop" ;;
    2) fault="cut" ;;
    3) fault="wipe" ;;
    esac
    case $fault in
    wipe)
        cluster kill $node
        cluster wipe $node
        ;;
    *) cluster "$fault" $node ;;
    esac
    wait_for 120 load_has $(($(load_count) + 10 + RANDOM % 30)) || fail "round $round, $fault $node: the load goes on"
    case $fault in
    kill | wipe) cluster start $node ;;
    stop) cluster cont $node ;;
    cut) cluster heal $node ;;
    esac
    cluster_healed 300 "round $round, $fault $node: healed" || break
    kill -0 "$load" 2>/dev/null || break
    kill -0 $fio_loop 2>/dev/null || break
done
touch "$T/stop"
status=0
wait "$load" || status=$?
is "no call of the edits failed" $status 0 || note "$(tail -n 40 "$T/load.log")"
note "$(tail -n 1 "$T/load.log")"
status=0
wait $fio_loop || status=$?
is "fio wrote and verified" $status 0 || note "$(tail -n 20 "$T/fio.out")"
note "runs of fio: $(cat "$T/fio.runs" 2>/dev/null)"
cluster_healed 300 "healed after the last write"
for node in 2 3; do
    cluster umount
    cluster kill $node
    cluster mount
    load_verify "without node $node: all that was fsynced"
    cluster start $node
done
cluster_healed 300 "all nodes are back"
# What was removed while a node was away goes from it, too.
check "what the nodes kept of removed objects is removed" varjfsctl node repair "$MNT"
cluster umount
cluster_fsck "at the end"
tap_done
