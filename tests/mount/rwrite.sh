#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# rwrite(2) on varjfs: the program that is run on other file systems runs on a mount, with
# large and small objects, and fsck finds nothing afterwards.  Linked with librwrite.so and
# preloaded it is the same code; one call through the shared library shows that it is found.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
# shellcheck disable=SC2154 # tap.sh sets builddir
program=$builddir/tests/unit/preload/test-rwrite
[ -x "$program" ] || skip_all "needs tests/unit/preload/test-rwrite (cmocka)"

run_on_mount()
{
    VARJFS_TEST_DIR=$MNT RWRITE_STRICT=1 VARJFS_TEST_SEED=$1 \
        VARJFS_TEST_CALLS=${VARJFS_TEST_CALLS:-3000} "$program"
}

for objects in 256K 4K; do
    seed=$((RANDOM * 32768 + RANDOM))
    note "objects=$objects seed $seed"
    SOURCE=$T/source-$objects
    make_fs -o "objects=$objects"
    mount_varjfs
    check "everything that rwrite(2) says, objects=$objects" run_on_mount $seed
    umount_varjfs
    fsck_clean "objects=$objects"
done

# The mount refuses writes: the error is that of write(2).
SOURCE=$T/source-4K
mount_varjfs
echo data >"$MNT/file"
remount_varjfs -o ro
insert_x()
{
    printf x | varjfsctl insert "$1" 0
}
check_fails "an edit on a read-only mount fails" insert_x "$MNT/file"
is "the file is as it was" "$(cat "$MNT/file")" data

tap_done
