#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# usage: full-disk.sh [POINTS [SEED]]
#
# The device below is full at every point of a workload (tests/fault/full-disk.py says how, and what is asked): a
# tmpfs, and ext4, XFS and btrfs on a loop device.  By itself two points of each way on tmpfs.  Long form: full-disk.sh 104.
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
requires_fuse
requires root
requires command python3
points=${1:-2}
seed=${2:-${VARJFS_MODEL_SEED:-1}}
note "points $points, seed $seed"

# NAME WAY...: sweeps the file system that is mounted on $T/device.
sweep()
{
    local name=$1
    shift
    SOURCE=$T/device/source
    make_fs -o objects=4K
    mkdir -p "$MNT"
    check "$name" sweep_python "$name" "$@"
    note "$(cat "$T/table")"
    ! is_mounted "$MNT" || umount_varjfs
    fsck_clean "$name"
    umount -i "$T/device"
}

sweep_python()
{
    local name=$1
    shift
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    python3 "$srcdir/tests/fault/full-disk.py" "$T/device" "$MNT" "$name" "$points" "$seed" "$@" >"$T/table" || {
        cat "$T/table"
        return 1
    }
}

mkdir "$T/device"
mount -t tmpfs -o size=40M,nr_inodes=3000 none "$T/device" || skip_all "a tmpfs cannot be mounted"
sweep tmpfs outside rest inside limit inodes

# NAME SIZE MKFS...: on a loop device, where there is one.
loop()
{
    local name=$1 size=$2
    shift 2
    truncate -s "$size" "$T/image"
    if ! command -v "$1" >/dev/null || ! "$@" "$T/image" >"$T/mkfs-loop.log" 2>&1 ||
        ! mount -o loop "$T/image" "$T/device" 2>/dev/null; then
        skip "$name" "cannot be made and mounted here"
        return
    fi
    sweep "$name" "${ways[@]}"
    rm "$T/image"
}

[ "$points" -ge 4 ] || tap_done
ways=(outside rest inside inodes)
loop ext4 48M mkfs.ext4 -q -N 12000
ways=(outside rest inside)
loop xfs 300M mkfs.xfs -q
loop btrfs 256M mkfs.btrfs -q
tap_done
