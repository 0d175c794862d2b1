#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# meta-killed.sh [ROUNDS] - kill -9 of the node with the metadata while the mount flushes
#
# The load fsyncs all the time.  After each kill the node starts again and the mount goes on without an error.
# In the end the mount's daemon is killed, too: what it had fsynced is there after the next mount.
# Default 5 rounds; 30 are the long form.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
requires command python3
rounds=${1:-5}
seed=${VARJFS_CLUSTER_SEED:-$RANDOM}
note "seed $seed"
RANDOM=$seed
cluster_dir memory
cluster up 3
mkdir "$MNT/load"
check "the directory" varjfsctl sync "$MNT"
load_start "$seed"

wait_for 60 load_has 20 || fail "the load begins"
for ((round = 1; round <= rounds; round++)); do
    cluster kill 1
    cluster start 1
    if wait_for 120 load_has $(($(load_count) + 5 + RANDOM % 40)) && kill -0 "$load" 2>/dev/null; then
        pass "round $round: the mount goes on"
    else
        fail "round $round: the mount goes on" "$(tail -n 20 "$T/load.log")"
        break
    fi
done
cluster kill 1
kill_varjfs
touch "$T/stop"
wait "$load"
note "$(grep -v Traceback "$T/load.log" | tail -n 1)"
# The last kill is meant to give the load errors; before it there must be none.
cluster start 1
cluster_fsck "with the mount and the metadata killed"
cluster mount
load_verify "all that was fsynced"
# Node 1 has objects, too: what was removed while it was away goes from it.
check "what the nodes kept of removed objects is removed" varjfsctl node repair "$MNT"
cluster umount
cluster_fsck "at the end"
tap_done
