#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Large files with holes that programs use as disks: ext4 in a file, mounted by a loop device, and
# qemu-img's conversions with and without the page cache.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
PATH=$PATH:/usr/sbin:/sbin
command -v mke2fs >/dev/null || command -v qemu-img >/dev/null || skip_all "needs mke2fs or qemu-img"
program_begin "$@"
cd "$W" || exit 1
size=64M
[ -z "$long" ] || size=2G

if command -v mke2fs >/dev/null; then
    mkdir "$T/content"
    for i in 1 2 3 4; do
        head -c $((i * 700000)) /dev/urandom >"$T/content/file$i"
    done
    truncate -s $size disk
    check "mke2fs -d" mke2fs -q -t ext4 -F -d "$T/content" disk
    check "e2fsck" e2fsck -f -n disk
    check "holes stay holes" [ "$(du -k disk | cut -f1)" -lt "$(($(du -k --apparent-size disk | cut -f1) / 2))" ]
    mkdir "$T/loop"
    if [ "$(id -u)" = 0 ] && mount -o loop disk "$T/loop" 2>"$T/out"; then
        check "what the image has" diff -r --exclude=lost+found "$T/content" "$T/loop"
        check "files through the loop device" bash -c "cp -a '$T/content' '$T/loop/more' && sync -f '$T/loop' &&
            rm '$T/loop/file2' && fstrim '$T/loop' 2>/dev/null; true"
        check "umount of the loop device" umount -i "$T/loop"
        check "e2fsck afterwards" e2fsck -f -n disk
        check "a mount of it again" mount -o loop,ro disk "$T/loop"
        check "what is in it" diff -r "$T/content" "$T/loop/more"
        check "umount" umount -i "$T/loop"
    else
        skip "a loop device" "$(head -n 1 "$T/out" 2>/dev/null || echo "needs root")"
    fi
    rm disk
fi

if command -v qemu-img >/dev/null; then
    truncate -s $size raw
    for i in 1 5 9 30; do
        head -c 1000000 /dev/urandom | dd of=raw bs=1M seek=$i conv=notrunc status=none
    done
    for cache in writeback none directsync unsafe; do
        check "convert to qcow2, cache $cache" qemu-img convert -f raw -O qcow2 -t $cache -T $cache raw disk.qcow2
        check "check" qemu-img check -q disk.qcow2
        check "compare" qemu-img compare -q -T $cache raw disk.qcow2
        check "convert back" qemu-img convert -f qcow2 -O raw -W -m 8 -t $cache disk.qcow2 back
        check "the same" cmp raw back
        check "holes stay holes" [ "$(du -k back | cut -f1)" -lt 20000 ]
        rm disk.qcow2 back
    done
    check "a compressed image" qemu-img convert -c -f raw -O qcow2 raw small.qcow2
    check "compare with it" qemu-img compare -q raw small.qcow2
    check "a snapshot" qemu-img snapshot -c one small.qcow2
    check "an overlay" qemu-img create -q -f qcow2 -b small.qcow2 -F qcow2 overlay.qcow2
    check "resize" qemu-img resize -q overlay.qcow2 +100M
    check "commit" qemu-img commit -q overlay.qcow2
    check "check afterwards" qemu-img check -q small.qcow2
    check "preallocation=falloc" qemu-img create -q -f qcow2 -o preallocation=falloc full.qcow2 8M
    check "bench, writes without the page cache" qemu-img bench -f raw -w -c 500 -d 8 -s 8192 -t none raw
else
    skip "qemu-img" "needs qemu-img"
fi
cd / || exit 1
program_end
