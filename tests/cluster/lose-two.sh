#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# lose-two.sh [long] - one node dies, data is written and fsynced, a second one dies, the first comes back with
# an empty disk: every fsynced byte reads
#
# 64 MiB; the long form 1 GiB, on disk.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
mib=64 place=memory
if [ "${1:-}" = long ]; then
    mib=1024 place=disk
fi
cluster_dir $place
cluster up 3

# Random, so that nothing of it is stored once; known by its seed, so that it needs no second copy.
content()
{
    openssl enc -aes-128-ctr -K "$(printf '%032x' "$1")" -iv 0 -in /dev/zero 2>/dev/null | head -c $((mib << 20))
}

sum()
{
    sha256sum | cut -d ' ' -f 1
}

for pair in "2 3" "3 2"; do
    a=${pair% *} b=${pair#* }
    file=$MNT/file-$a
    cluster kill "$a"
    check "written and fsynced without node $a" dd of="$file" bs=1M conv=fsync status=none < <(content "$a")
    cluster kill "$b"
    cluster wipe "$a"
    cluster start "$a"
    is "node $b dead, node $a empty: every byte" "$(sum <"$file")" "$(content "$a" | sum)"
    # Nothing of it from the memory of this mount.
    cluster umount
    cluster mount
    is "the same after a remount" "$(sum <"$file")" "$(content "$a" | sum)"
    check "writing goes on" dd if=/dev/urandom of="$MNT/more-$a" bs=64K count=16 conv=fsync status=none
    cluster start "$b"
    cluster_healed 300 "all replicas are there again"
done
for i in 2 3; do
    cluster kill $i
    cluster umount
    cluster mount
    for a in 2 3; do
        is "healed: without node $i, file $a" "$(sum <"$MNT/file-$a")" "$(content $a | sum)"
    done
    cluster start $i
done
cluster umount
cluster_fsck "at the end"
tap_done
