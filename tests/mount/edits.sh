#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# The edit ioctls through the mount, with default objects and with small ones.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3
for objects in 256K 4K; do
    make_fs -f -o "objects=$objects"
    mount_varjfs
    status=0
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    python3 "$srcdir/tests/mount/edits.py" "$MNT" "$@" || status=$?
    is "edits.py, objects=$objects: exit status" $status 0
    umount_varjfs
    fsck_clean "objects=$objects"
done
tap_done
