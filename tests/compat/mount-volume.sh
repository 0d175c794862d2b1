#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# The volume of format 2 (volume-v2.tar.gz) through today's daemon and the kernel.
# test-volume compares all of it; here is what a user sees.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires root # directories of mode 0700 that are root's
requires command tar gzip sha256sum

mkdir "$SOURCE"
tar -xzf "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/compat/volume-v2.tar.gz" \
    -C "$SOURCE"
fsck_clean "as it is kept"

sums()
{
    (cd "$MNT" && find . -type f ! -size +1G -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) |
        sha256sum | cut -d' ' -f1
}

everything_is_there()
{
    is "$1: files" "$(find "$MNT" -mindepth 1 -printf . | wc -c)" 241
    is "$1: contents" "$(sums)" \
        d25b3dc02330ed3b966fedc6cb5c862660ab3377f59b25643f5847482af0e3da
    is "$1: a symlink" "$(readlink "$MNT/symlink")" d/e/../e
    is "$1: the longest symlink" "$(readlink "$MNT/symlink-long" | tr -d '\n' | wc -c)" 4095
    is "$1: a sparse file" "$(stat -c %s "$MNT/sparse")" 1099511634476
    is "$1: its end" "$(tail -c 2500 "$MNT/sparse" | sha256sum | cut -c1-16)" f133d9c766badcdd
    is "$1: links" "$(stat -c %h "$MNT/d/link-2")" 3
    is "$1: attributes" "$(stat -c '%a %u %g %Y' "$MNT/attributes")" \
        "6751 1234567 7654321 32503680000"
    is "$1: a device" "$(stat -c '%F %t:%T' "$MNT/block")" "block special file 103:fffff"
    is "$1: many names" "$(find "$MNT/many" -mindepth 1 -printf '%f\n' | tail -n 2 | tr '\n' ' ')" "299 last "
}

mount_varjfs -o ro
everything_is_there "read-only"
umount_varjfs
mount_varjfs
everything_is_there "after recovery"
check "a new file" cp "$MNT/large" "$MNT/copy"
check "is the same" cmp "$MNT/large" "$MNT/copy"
umount_varjfs
fsck_clean "after today's changes"
tap_done
