#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Content that the nodes have does not go there once more; but what a node has is not believed without a look.
#
# VARJFS_TEST_MEGABYTES=N writes so much (64).

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/nodes.sh"

requires command python3
requires_fuse
requires program varjfsd fsck.varjfs varjfsctl

SOURCE=$T/volume.conf
megabytes=${VARJFS_TEST_MEGABYTES:-64}
one_percent=$((megabytes * 10000))
head -c $((megabytes * 1000000)) /dev/urandom >"$T/data"

# write_known FILE NAME: one result, that hardly anything was sent
write_known()
{
    local sent
    figures_begin
    cp "$T/data" "$MNT/$1"
    check "$2: sync" varjfsctl sync "$MNT"
    sent=$(($(figure_grew store_sent_bytes) + $(figure_grew meta_sent_bytes)))
    note "$2: $sent bytes sent for $megabytes MB; in the index $(figure_grew dedup_index_hits), beside $(figure_grew dedup_fast_hits), verified $(figure_grew objects_verified), requests $(figure_grew store_requests) and $(figure_grew meta_requests)"
    check "$2: at most one percent is sent" test "$sent" -le "$one_percent"
    is "$2: no object is put" "$(figure_grew objects_put)" 0
}

for node in keys one two; do
    node_begin $node
done
for replicas in 1 2; do
    rm -rf "$SOURCE"
    make_fs -f -o "meta=remote:$(nodes_at keys):insecure,store=remote:$(nodes_at one two):replicas=$replicas,insecure"
    mount_varjfs
    figures_begin
    cp "$T/data" "$MNT/first"
    check "$replicas: the first time: sync" varjfsctl sync "$MNT"
    check "$replicas: it is sent" test "$(figure_grew store_sent_bytes)" -gt $((replicas * megabytes * 1000000))
    write_known second "$replicas: once more"
    remount_varjfs
    write_known third "$replicas: after a remount"
    check "$replicas: answers are short too" test "$(figure store_received_bytes)" -lt $((2 * one_percent))
    write_known first "$replicas: over the first file"
    check "$replicas: it reads so" cmp "$T/data" "$MNT/third"

    # ---- a node whose copies are damaged

    umount_varjfs
    node_stop one
    node_stop two
    python3 - "$T"/one.d "$T"/two.d <<'END'
import os, sys
# All replicas of every other object, by what stands behind the directories of the nodes.
names = {}
for top in sys.argv[1:]:
    for d, _, files in os.walk(top):
        for f in files:
            if "objects" in d and f != "format":
                names.setdefault(f, []).append(os.path.join(d, f))
for n, name in enumerate(sorted(names)):
    for path in names[name] if n % 2 == 0 else ():
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) // 2)
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 0x20]))
END
    node_start one
    node_start two
    mount_varjfs -o "log=$T/daemon.log"
    figures_begin
    cp "$T/data" "$MNT/fourth"
    check "$replicas: damaged: sync" varjfsctl sync "$MNT"
    note "damaged: $(figure_grew store_sent_bytes) bytes sent; put $(figure_grew objects_put), shared $(figure_grew dedup_index_hits)"
    check "$replicas: what is damaged is put again" test "$(figure_grew objects_put)" -gt 10
    check "$replicas: what is not is shared" test "$(figure_grew dedup_index_hits)" -gt 10
    check "$replicas: the daemon says so" grep -q "damaged; equal content is stored afresh" "$T/daemon.log"
    check "$replicas: the new file reads right" cmp "$T/data" "$MNT/fourth"
    remount_varjfs
    check "$replicas: also after a remount" cmp "$T/data" "$MNT/fourth"
    check_fails "$replicas: the old one cannot be read" cp "$MNT/third" "$T/third"
    rm "$MNT"/first "$MNT"/second "$MNT"/third
    check "$replicas: gc" varjfsctl gc "$MNT"
    check "$replicas: nothing damaged is left" varjfsctl scrub "$MNT"
    umount_varjfs
    fsck_clean "$replicas"
done
tap_done
