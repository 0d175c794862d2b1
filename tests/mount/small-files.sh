#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Files of up to 4096 bytes: no objects, and one page of the metadata each.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires command python3
requires_fuse

files=1000

counter()
{
    varjfsctl stats --json "$MNT" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

# write_files BYTES: $files files of their own content
write_files()
{
    python3 - "$MNT/$1" "$1" $files <<'END'
import os, random, sys
directory, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
noise = random.Random(size)
os.mkdir(directory)
for i in range(count):
    with open(f"{directory}/{i}", "wb") as f:
        f.write(noise.randbytes(size))
END
}

compare_files()
{
    python3 - "$MNT/$1" "$1" $files <<'END'
import random, sys
directory, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
noise = random.Random(size)
for i in range(count):
    with open(f"{directory}/{i}", "rb") as f:
        if f.read() != noise.randbytes(size):
            sys.exit(f"{directory}/{i} differs")
END
}

objects()
{
    find "$SOURCE/objects" -type f -size +0 | wc -l
}

# The pages that are in use, and nothing else: the checkpoint that was made last.
metadata_kib()
{
    du -sk "$SOURCE"/checkpoints/2* | tail -n 1 | cut -f1
}

# shellcheck disable=SC2119 # no options
make_fs
mount_varjfs
before=$(counter objects_put) files_before=$(objects)
for size in 4048 4096; do
    check "$files files of $size bytes" write_files $size
    check "which are synced" varjfsctl sync "$MNT"
done
is "no object was put" "$(counter objects_put)" "$before"
is "none is in the store" "$(objects)" "$files_before"
umount_varjfs
both=$(metadata_kib)
note "metadata of $((2 * files)) files: $both KiB"
check "each takes one page, and what inode and names need" test "$both" -lt $((2 * files * 5))
mount_varjfs
for size in 4048 4096; do
    check "the bytes of $size are right" compare_files $size
done
umount_varjfs
mount_varjfs -o commit=3600
# shellcheck disable=SC2154 # tap.sh sets srcdir
PYTHONDONTWRITEBYTECODE=1 check "transactions" python3 "$srcdir/tests/mount/small-files.py" make "$MNT"
umount_varjfs
mount_varjfs
PYTHONDONTWRITEBYTECODE=1 check "transactions of a listing" python3 "$srcdir/tests/mount/small-files.py" list "$MNT"
is "one byte more" "$(write_files 4097 && varjfsctl sync "$MNT" && echo $(($(counter objects_put))))" $files
umount_varjfs
fsck_clean "all is in order"
tap_done
