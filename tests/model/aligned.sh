#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# aligned.sh [long] - random edits through a mount whose store wants blocks and keeps keys
#
# The driver "aligned" aborts the daemon when buffer or offset of a request is no multiple of 4 KiB,
# and an object whose keys were not committed with its record is gone at the next mount.  After
# each round, half of them ended by kill -9: fsck finds nothing, and each file is as it was.
# VARJFS_MODEL_SEED=N gives the seed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/model/remount.sh"

requires_fuse
requires program tests/model/mount-model
source_in_memory
scale=1
[ "${1:-}" != long ] && [ -z "${VARJFS_MODEL_LONG:-}" ] || scale=10

run_model "clean ends" -o objects=1K,store=aligned:size=256M -- --ops $((2000 * scale)) \
    --rounds $((3 * scale)) --size 1048576
run_model_killed "kills" -o objects=1K,store=aligned:size=256M -- --rounds $((3 * scale)) \
    --ops $((2700 * scale)) --size 131072

# What is deleted gives its blocks back: more is written than the store has.
SOURCE=$T/source.full
make_fs -o store=aligned:size=64M
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
