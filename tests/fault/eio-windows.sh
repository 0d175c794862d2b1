#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# usage: eio-windows.sh [WINDOWS [SEED [FS...]]]
#
# Writes of the device below SOURCE fail for a while, then it is well again: whatever an fsync that said 0 promised is
# there after an unmount, after a power cut, after both, and every volume mounts (tests/fault/eio-windows.py says how).
# By itself a few windows on ext4.  Long form: eio-windows.sh 200 1 ext4 xfs btrfs.

# In a mount namespace of its own: one that somebody else makes meanwhile would keep the device in use.
if [ "$(id -u)" = 0 ] && [ -z "${VARJFS_OWN_MOUNTS:-}" ] && unshare --mount true 2>/dev/null; then
    VARJFS_OWN_MOUNTS=yes exec unshare --mount --propagation private -- "$BASH" "$0" "$@"
fi
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/lib/bad-disk.sh"
requires_fuse
requires root
requires program tests/lib/bad-disk
requires command python3 losetup pgrep
windows=${1:-7}
seed=${2:-${VARJFS_MODEL_SEED:-$RANDOM}}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- ext4
note "windows $windows, seed $seed"

# In the background, so that a signal to the test need not wait for it.
work=
end_work()
{
    [ -z "$work" ] || kill -KILL "$work" 2>/dev/null
}
at_exit end_work

for fs; do
    bad_disk_start 512 || skip_all "$bad_disk_why"
    if bad_disk_mkfs "$fs"; then
        status=0
        python3 "$srcdir/tests/fault/eio-windows.py" "$T" "$T/device" "$T/device/source" "$MNT" "$fs" "$windows" \
            "$seed" >"$T/rounds" 2>&1 &
        work=$!
        wait $work || status=$?
        work=
        is "$fs: $windows windows" $status 0
        note "$(if [ $status = 0 ]; then tail -n 1 "$T/rounds"; else tail -n 200 "$T/rounds"; fi)"
    else
        skip "$fs: $windows windows" "$bad_disk_why"
    fi
    bad_disk_stop
done
tap_done
