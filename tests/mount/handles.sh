#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Handles of name_to_handle_at(2) open what they name after the kernel has forgotten it and after a
# remount, and never anything else: what a server that exports the mount relies on.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires program tests/mount/handle
# shellcheck disable=SC2119 # without options
make_fs
# shellcheck disable=SC2119 # without options
mount_varjfs
# shellcheck disable=SC2154 # tap.sh sets builddir
handle=$builddir/tests/mount/handle

# Names and inodes that nobody uses; where nobody may, the remounts below do as much.
forget()
{
    echo 2 >/proc/sys/vm/drop_caches 2>/dev/null || note "caches cannot be dropped here"
}

stale()
{
    local status=0
    "$handle" cat "$MNT" "$2" >/dev/null 2>&1 || status=$?
    is "$1: stale" "$status" 3
}

mkdir -p "$MNT/a/b/c/d"
echo content >"$MNT/a/b/c/d/file"
ln -s where "$MNT/a/link"
echo gone >"$MNT/a/gone"
echo held >"$MNT/held"
mkdir "$MNT/a/empty"
file=$("$handle" get "$MNT/a/b/c/d/file")
deep=$("$handle" get "$MNT/a/b/c/d")
link=$("$handle" get "$MNT/a/link")
gone=$("$handle" get "$MNT/a/gone")
empty=$("$handle" get "$MNT/a/empty")
held=$("$handle" get "$MNT/held")
root=$("$handle" get "$MNT")

opens()
{
    is "$1: a file" "$("$handle" cat "$MNT" "$file")" content
    is "$1: a directory, with its path" "$("$handle" path "$MNT" "$deep")" "$MNT/$2"
    is "$1: a symlink" "$("$handle" link "$MNT" "$link")" where
    is "$1: the root" "$("$handle" path "$MNT" "$root")" "$MNT"
}

opens "at once" a/b/c/d
forget
opens "forgotten" a/b/c/d
# shellcheck disable=SC2119 # without options
remount_varjfs
opens "remounted" a/b/c/d
mv "$MNT/a/b/c" "$MNT/moved"
forget
opens "moved" moved/d
# shellcheck disable=SC2119 # without options
remount_varjfs
rm "$MNT/a/gone"
rmdir "$MNT/a/empty"
stale "a removed file" "$gone"
stale "a removed directory" "$empty"
exec 5<"$MNT/held"
rm "$MNT/held"
is "removed, and held open" "$("$handle" cat "$MNT" "$held")" held
exec 5<&-
held_is_gone()
{
    ! "$handle" cat "$MNT" "$held" >/dev/null 2>&1
}
wait_for 20 held_is_gone
stale "removed and closed" "$held"
# shellcheck disable=SC2119 # without options
remount_varjfs
stale "a removed file, remounted" "$gone"
stale "held then, remounted" "$held"
# A number is never used again, so no file that is made later answers for one that is gone.
for i in $(seq 300); do
    echo "$i" >"$MNT/new$i"
    [ "$("$handle" get "$MNT/new$i")" != "$gone" ] || fail "file $i has the handle of a removed one"
done
stale "300 files later" "$gone"
kill_varjfs
# shellcheck disable=SC2119 # without options
mount_varjfs
stale "after a kill" "$gone"
sync_handle=$("$handle" get "$MNT/moved/d/file")
is "after a kill: the same handle" "$sync_handle" "$file"
opens "after a kill" moved/d
umount_varjfs
fsck_clean "after everything"
tap_done
