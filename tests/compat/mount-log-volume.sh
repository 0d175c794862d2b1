#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# The volume of volume-log-v2.tar.gz (made once by make-log-image.sh) through today's daemon: its
# last changes are in the redo log alone, small ones in fragments, its objects were cut by gear.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires root # its files are root's
requires command tar gzip

IMAGE="${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/compat/volume-log-v2.tar.gz"

unpack()
{
    rm -rf "$SOURCE"
    mkdir "$SOURCE"
    tar -xzf "$IMAGE" -C "$SOURCE"
}

# What was done to seq's output, in the order in which it was done.
seq 20000 | head -c 50000 >"$T/a"
printf 'written over' >>"$T/a"
seq 20000 | tail -c +50013 >>"$T/a"
{ head -c 5000 "$T/a"; seq 500; tail -c +5001 "$T/a"; } >"$T/b"
{ head -c 70000 "$T/b"; tail -c +70778 "$T/b"; } >"$T/base"
{ seq 300; seq 24000; } >"$T/xor"
seq 1000 >"$T/renamed"

everything_is_there()
{
    check "$1: an overwrite, an insertion and a deletion" cmp "$MNT/base" "$T/base"
    check "$1: an insertion into a file that is stored as xor" cmp "$MNT/xor" "$T/xor"
    check "$1: a file that was made and renamed" cmp "$MNT/d/renamed" "$T/renamed"
    is "$1: nothing else" "$(cd "$MNT" && find . -mindepth 1 | sort | tr '\n' ' ')" \
        "./base ./d ./d/renamed ./xor "
}

unpack
cp "$SOURCE/meta/redo.log" "$T/log"
fsck_clean "as it is kept"
check "which leaves the log as it is" cmp "$SOURCE/meta/redo.log" "$T/log"
mount_varjfs -o ro # fragments stay what they are
everything_is_there "read-only"
varjfsctl map "$MNT/base" >"$T/map"
check "its fragments are seen" grep -q fragment "$T/map"
umount_varjfs
mount_varjfs
everything_is_there "after recovery"
# shellcheck disable=SC2119 # no options
remount_varjfs
everything_is_there "after an unmount"
check "a new file" cp "$MNT/base" "$MNT/copy"
check "is the same" cmp "$T/base" "$MNT/copy"
umount_varjfs
fsck_clean "after today's changes"

unpack
check "fsck.varjfs -y takes what the log holds" fsck.varjfs -y "$SOURCE"
rm -f "$SOURCE/meta/redo.log"
fsck_clean "and needs it no more"
mount_varjfs
everything_is_there "after fsck.varjfs -y"
umount_varjfs
tap_done
