#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# compare.sh [ext4|xfs|tmpfs] [TOPIC...]
#
# Runs the checks as root and as an ordinary user on varjfs and on another file system (a loop
# image of its own; ext4 unless said otherwise), and lists the checks whose results differ. README.md
# explains each.  1: a check fails on varjfs.  POSIX_ENTRIES=1000000 makes the large directory
# that large.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

other=${1:-ext4}
[ $# = 0 ] || shift
requires root
requires_fuse
requires program tests/posix/suite
case $other in
ext4 | xfs) requires command "mkfs.$other" ;;
tmpfs) ;;
*)
    echo "usage: compare.sh [ext4|xfs|tmpfs] [TOPIC...]" >&2
    # shellcheck disable=SC2034 # tap.sh looks at it
    tap_ended=yes
    exit 2
    ;;
esac
chmod 755 "$T"

mount_other()
{
    mkdir "$T/other"
    if [ "$other" = tmpfs ]; then
        mount -t tmpfs -o size=2G none "$T/other"
        return
    fi
    truncate -s 2G "$T/image"
    "mkfs.$other" -q "$T/image" && mount -o loop "$T/image" "$T/other"
}

# NAME DIR: the results are in $T/NAME, the names of failures and of skipped checks beside it.
run_on()
{
    local name=$1 dir=$2 who
    shift 2
    for who in root nobody; do
        # shellcheck disable=SC2154 # tap.sh sets srcdir
        "$srcdir/tests/posix/run.sh" --user "$who" "$dir" "$@" |
            sed "s/^\(not ok\|ok\) - /&($who) /" >>"$T/$name"
        note "$name $(tail -n 1 "$T/$name")"
    done
    sed -n 's/^not ok - //p' "$T/$name" | sort >"$T/$name.failed"
    sed -n 's/^ok - \(.*\) # SKIP .*/\1/p' "$T/$name" | sort >"$T/$name.skipped"
}

export POSIX_OWN_DEVICE=1
mkdir "$T/device"
mount -t tmpfs -o size=2G none "$T/device" || skip_all "a tmpfs cannot be mounted"
SOURCE=$T/device/source
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other,suid,dev
mount_other || skip_all "no $other here"
run_on varjfs "$MNT" "$@"
run_on "$other" "$T/other" "$@"
is "failures on varjfs" "$(cat "$T/varjfs.failed")" ""
difference()
{
    note "$1"
    sed 's/^/#   /' "$2"
}
comm -23 "$T/$other.failed" "$T/varjfs.failed" >"$T/list"
difference "fails on $other alone: $(wc -l <"$T/list")" "$T/list"
comm -13 "$T/$other.skipped" "$T/varjfs.skipped" >"$T/list"
difference "cannot be checked on varjfs alone: $(wc -l <"$T/list")" "$T/list"
comm -23 "$T/$other.skipped" "$T/varjfs.skipped" >"$T/list"
difference "cannot be checked on $other alone: $(wc -l <"$T/list")" "$T/list"
umount_varjfs
umount -i "$T/other"
tap_done
