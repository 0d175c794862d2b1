#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# usage: full-rounds.sh [ROUNDS [SEED [BELOW...]]]
#
# A device is filled and emptied so many times, on tmpfs, and on ext4, XFS and btrfs on a loop device; the daemon is
# killed, or the power is cut, while it is full (tests/fault/full-rounds.py says what is asked).
# By itself three rounds of each.  Long form: full-rounds.sh 100.
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
requires_fuse
requires root
requires command python3
rounds=${1:-3}
seed=${2:-${VARJFS_MODEL_SEED:-$RANDOM}}
shift "$(($# < 2 ? $# : 2))"
[ $# -gt 0 ] || set -- tmpfs ext4 xfs btrfs
note "rounds $rounds, seed $seed"

rounds_python()
{
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    python3 "$srcdir/tests/fault/full-rounds.py" "$T/device" "$1" "$MNT" "$below" "$rounds" "$seed" "${options[@]}" \
        >"$T/table" || {
        cat "$T/table"
        return 1
    }
}

# KIB: another file takes what is more than that.
leave()
{
    local free
    free=$(df -k --output=avail "$T/device" | tail -1)
    [ "$free" -le "$1" ] || fallocate -l $(((free - $1) * 1024)) "$T/device/filler"
}

# IMAGE: of the file system that is mounted on $T/device.
on_device()
{
    SOURCE=$T/device/source
    make_fs -o objects=16K
    mkdir -p "$MNT"
    leave 36000
    check "$below" rounds_python "$1"
    note "$(tail -n 1 "$T/table")"
    ! is_mounted "$MNT" || clear_mount "$MNT"
    umount "$T/device"
}

# SIZE MKFS...: on a loop device, where there is one.
on_loop()
{
    local size=$1
    shift
    truncate -s "$size" "$T/image"
    if ! command -v "$1" >/dev/null || ! "$@" "$T/image" >"$T/mkfs-loop.log" 2>&1 ||
        ! mount -o "loop${options[*]/#/,}" "$T/image" "$T/device" 2>/dev/null; then
        skip "$below" "cannot be made and mounted here"
        return
    fi
    on_device "$T/image"
    rm "$T/image"
}

mkdir "$T/device"
for below; do
    options=()
    case $below in
    tmpfs)
        if mount -t tmpfs -o size=48M none "$T/device" 2>/dev/null; then
            on_device -
        else
            skip tmpfs "cannot be mounted here"
        fi
        ;;
    ext4) on_loop 96M mkfs.ext4 -q -N 12000 ;;
    xfs)
        # The copy comes when the other may not be gone: the kernel takes it out of each mount namespace in turn.
        options=(nouuid)
        on_loop 300M mkfs.xfs -q
        ;;
    btrfs)
        # Else it discards in the background, and the image is never at rest.
        options=(nodiscard)
        on_loop 256M mkfs.btrfs -q
        ;;
    *) fail "a file system that this test knows" "$below" ;;
    esac
done
tap_done
