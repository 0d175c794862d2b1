#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# fallocate(2) with INSERT_RANGE and COLLAPSE_RANGE under LD_PRELOAD=librwrite.so: its rules,
# the programs that call it, and random calls beside a byte array and beside ext4.
#
#   fallocate-shim.sh [CALLS]     random calls in each of the two comparisons (default 1000)

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3 fallocate
# shellcheck disable=SC2154 # tap.sh sets builddir and srcdir
shim=$builddir/.libs/librwrite.so
[ -e "$shim" ] || skip_all "librwrite.so is not built"
calls=${1:-1000}

with_shim()
{
    LD_PRELOAD=$shim "$@"
}

make_fs -o objects=16K
mount_varjfs

status=0
# shellcheck disable=SC2154 # tap.sh sets srcdir
with_shim python3 "$srcdir/tests/mount/fallocate.py" "$MNT" "$T" || status=$?
is "fallocate.py: exit status" $status 0

# util-linux
printf 'one three' >"$MNT/file"
check_fails "without the library the kernel refuses" fallocate -i -o 4 -l 4 "$MNT/file"
check "fallocate -i at a byte" with_shim fallocate -i -o 4 -l 4 "$MNT/file"
is "four zeros stand there" "$(tr '\0' . <"$MNT/file")" "one ....three"
printf 'two ' | dd of="$MNT/file" bs=1 seek=4 conv=notrunc status=none
check "fallocate -c at a byte" with_shim fallocate -c -o 0 -l 4 "$MNT/file"
is "the first word is gone" "$(cat "$MNT/file")" "two three"
check_fails "fallocate -c up to the end of the file" with_shim fallocate -c -o 1 -l 8 "$MNT/file"

if command -v xfs_io >/dev/null; then
    printf 'one three' >"$MNT/file"
    check "xfs_io finsert" with_shim xfs_io -c 'finsert 4 4' "$MNT/file"
    check "xfs_io fcollapse" with_shim xfs_io -c 'fcollapse 0 3' "$MNT/file"
    is "what the two leave" "$(tr '\0' . <"$MNT/file")" " ....three"
else
    skip "xfs_io finsert and fcollapse" "xfs_io is not installed"
fi

seed=${VARJFS_MODEL_SEED:-$((RANDOM * 32768 + RANDOM))}
note "seed $seed"
mkdir "$MNT/bytes" "$MNT/blocks"
check "$calls random calls, any bytes" \
    with_shim python3 "$srcdir/tests/model/fallocate-model.py" "$MNT/bytes" "$seed" "$calls"

# ext4's own fallocate, on what it can: whole blocks.
ext4_mount()
{
    truncate -s 32M "$T/ext4.img" && mkfs.ext4 -q -b 4096 "$T/ext4.img" &&
        mkdir "$T/ext4" && mount -o loop "$T/ext4.img" "$T/ext4"
}
if ! command -v mkfs.ext4 >/dev/null || [ "$(id -u)" != 0 ]; then
    skip "$calls random calls beside ext4" "needs root and mkfs.ext4"
elif ! ext4_mount >"$T/ext4.log" 2>&1; then
    skip "$calls random calls beside ext4" "no ext4 on a loop device: $(tail -n 1 "$T/ext4.log")"
else
    check "$calls random calls beside ext4, whole blocks" \
        with_shim python3 "$srcdir/tests/model/fallocate-model.py" "$MNT/blocks" "$seed" "$calls" "$T/ext4"
    umount -i "$T/ext4"
fi

umount_varjfs
fsck_clean "after all of it"
tap_done
