#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# block.sh [long] - random edits through a mount whose objects are in blocks of one file
#
# Once through the page cache, and once past it: then a buffer or offset that is no multiple of
# 4 KiB aborts the daemon.  An object whose keys were not committed with its record is gone at the
# next mount.  After each round, half of them ended by kill -9: fsck finds nothing, and each file is
# as it was.
# VARJFS_MODEL_SEED=N gives the seed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/model/remount.sh"

requires_fuse
requires program tests/model/mount-model
source_in_memory
scale=1
[ "${1:-}" != long ] && [ -z "${VARJFS_MODEL_LONG:-}" ] || scale=10

for direct in no yes; do
    run_model "direct=$direct, clean ends" -o objects=1K,store=block:direct=$direct -- \
        --ops $((2000 * scale)) --rounds $((3 * scale)) --size 1048576
    run_model_killed "direct=$direct, kills" -o objects=1K,store=block:direct=$direct -- \
        --rounds $((3 * scale)) --ops $((2700 * scale)) --size 131072
done

# What is deleted gives its blocks back: more is written than the store has.
SOURCE=$T/source.full
make_fs -o store=block:size=64M
mount_varjfs
for round in 1 2 3 4; do
    check "round $round: written" \
        dd if=/dev/urandom of="$MNT/file" bs=1M count=20 conv=fsync status=none
    cp "$MNT/file" "$T/copy"
    umount_varjfs
    mount_varjfs
    check "round $round: the same content" cmp "$MNT/file" "$T/copy"
    rm "$MNT/file"
    check "round $round: gc" varjfsctl gc "$MNT"
done
umount_varjfs
fsck_clean "blocks that were used again"
tap_done
