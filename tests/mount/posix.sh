#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Each operation through the mount, then what fsck and a second mount say of it.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs
status=0
# shellcheck disable=SC2154 # tap.sh sets srcdir
python3 "$srcdir/tests/mount/posix.py" "$MNT" "$@" || status=$?
is "posix.py: exit status" $status 0
mkdir "$MNT/kept"
echo content >"$MNT/kept/file"
# shellcheck disable=SC2119 # without options
remount_varjfs
is "a file after a remount" "$(cat "$MNT/kept/file")" content
umount_varjfs
fsck_clean "after everything"
tap_done
