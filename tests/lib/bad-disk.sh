# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# bad-disk.sh - a disk whose writes fail, for tests that have read mount.sh:
#
#   bad_disk_start MIB       $T/bad/disk and $T/bad/control (tests/lib/bad-disk.c); $T/device is made
#   bad_disk_mkfs FS         makes a file system of that kind on it
#   bad_disk_stop            everything that is on it is unmounted, and it goes
#
# The first two fail where it cannot be done here, and $bad_disk_why says why.  On every exit of the test all
# of it is taken away, also where the disk does not answer any more.

bad_disk_pid=
bad_disk_why=

# shellcheck disable=SC2154 # tap.sh sets builddir
bad_disk_start()
{
    mkdir -p "$T/bad" "$T/bad-state" "$T/device" "$MNT"
    "$builddir/tests/lib/bad-disk" "$T/bad-state" "$1" "$T/bad" >"$T/bad-disk.log" 2>&1 &
    bad_disk_pid=$!
    wait_for 20 is_mounted "$T/bad" || {
        bad_disk_why="bad-disk does not start: $(cat "$T/bad-disk.log")"
        return 1
    }
    bad_disk_why="there are no loop devices over FUSE files here"
    losetup --detach "$(losetup --find --show "$T/bad/disk" 2>/dev/null)" 2>/dev/null || return 1
    wait_for 20 bad_disk_is_free
}

bad_disk_loops()
{
    losetup --noheadings --output NAME --associated "$T/bad/disk" 2>/dev/null
}

bad_disk_is_free()
{
    [ -z "$(bad_disk_loops)" ]
}

# shellcheck disable=SC2034 # the test reads bad_disk_why
bad_disk_mkfs()
{
    local fs=$1 loop
    local -A options=([ext4]="-q -F -E nodiscard,lazy_itable_init=0" [xfs]="-q -f -K" [btrfs]="-q -f -K")
    bad_disk_why="there is no mkfs.$fs"
    command -v "mkfs.$fs" >/dev/null || return 1
    loop=$(losetup --find --show "$T/bad/disk") || return 1
    # shellcheck disable=SC2086 # a list of options
    "mkfs.$fs" ${options[$fs]} "$loop" >"$T/mkfs-below.log" 2>&1 && mount -t "$fs" "$loop" "$T/device" 2>"$T/mount-below.log" &&
        umount "$T/device"
    local status=$?
    bad_disk_why="$fs cannot be made and mounted here: $(cat "$T/mkfs-below.log" "$T/mount-below.log" 2>/dev/null)"
    losetup --detach "$loop"
    wait_for 20 bad_disk_is_free
    return $status
}

bad_disk_stop()
{
    local m loop
    [ -n "$bad_disk_pid" ] || return 0
    # What is on it waits for nothing any more.
    timeout 20 tee "$T/bad/control" <<<cut >/dev/null 2>&1
    while IFS= read -r m; do
        [ "$m" = "$T/bad" ] || timeout 30 umount -i "$m" 2>/dev/null || clear_mount "$m"
    done < <(mount_points_below "$T")
    for loop in $(bad_disk_loops); do
        losetup --detach "$loop"
    done
    wait_for 20 bad_disk_is_free || note "a loop device over $T/bad/disk stays"
    timeout 20 umount -i "$T/bad" 2>/dev/null || clear_mount "$T/bad"
    kill -KILL "$bad_disk_pid" 2>/dev/null
    wait "$bad_disk_pid" 2>/dev/null
    bad_disk_pid=
    rm -rf "$T/bad-state"
}
at_exit bad_disk_stop
