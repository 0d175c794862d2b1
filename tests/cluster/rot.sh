#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# rot.sh - bytes change on the disk of one node, and the other replicas are good
#
# Nothing that reads may take that for the loss of an object: not a read-only mount, not fsck.varjfs, not a scrub,
# which besides mends what it finds, also of the replica that no read asks for.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
requires command md5sum
cluster_dir memory
cluster up 3
for i in 1 2 3 4 5 6; do
    head -c 2000000 /dev/urandom >"$MNT/f$i"
done
varjfsctl sync "$MNT" || fail "sync"
(cd "$MNT" && md5sum f*) >"$T/sums"

# Four bytes of each object of node 2 are others.
damage()
{
    local file
    while IFS= read -r file; do
        printf '%s' "$1" | dd of="$file" bs=1 seek=5000 conv=notrunc status=none || return 1
    done < <(find "$CLUSTER/node2/data/objects" -mindepth 2 -type f -size +8k)
}

same()
{
    (cd "$MNT" && md5sum --quiet -c "$T/sums")
}

cluster umount
check "bytes of one node change" damage ABCD
cluster_fsck "one replica is damaged"
cluster --options ro mount
check "read-only: all reads" same
cluster umount
cluster mount
check "scrub finds each object whole" varjfsctl scrub --rate=0 "$MNT"
check "after it: all reads" same
cluster_healed 60 "healed"
cluster umount
cluster kill 3
cluster mount
check "scrub has mended node 2: all reads without node 3" same
cluster start 3
cluster umount
cluster_fsck "at the end"
tap_done
