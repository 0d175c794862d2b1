#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# A volume file: what is taken for one, who may have written it, and what of it is said by name.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program fsck.varjfs

# refused NAME STATUS PATTERN COMMAND [ARG...]: in one line, which has PATTERN
refused()
{
    local name=$1 wanted=$2 pattern=$3
    shift 3
    is "$name: status" "$(status_of "$@")" "$wanted"
    is "$name: one line" "$(wc -l <"$T/err")" 1
    check "$name: it says why" grep -e "$pattern" "$T/err"
}

# A right superblock, of drivers that keep files.
# shellcheck disable=SC2119 # without options
make_fs
mkdir -p "$MNT"
file=$T/volume.conf
cp "$SOURCE/varjfs.conf" "$file"
chmod 600 "$file"

# ---- what is one

refused "drivers that keep files" 1 "needs a directory" varjfs "$file" "$MNT"
refused "fsck of such" 8 "needs a directory" fsck.varjfs "$file"
for mode in 620 602 666; do
    chmod $mode "$file"
    refused "mode $mode" 1 "others may write it (mode 0$mode)" varjfs "$file" "$MNT"
    refused "mode $mode, fsck" 8 "others may write it" fsck.varjfs "$file"
done
chmod 600 "$file"
sed 's/^seed = ./seed = g/' "$file" >"$T/damaged.conf"
refused "a damaged one" 1 "^varjfs: $T/damaged.conf: its checksum is wrong" varjfs "$T/damaged.conf" "$MNT"
refused "fsck of a damaged one" 4 "$T/damaged.conf: its checksum is wrong" fsck.varjfs -n "$T/damaged.conf"
{ cat "$file"; head -c 20000 /dev/zero; } >"$T/large.conf"
refused "a large one" 1 "large.conf is too large" varjfs "$T/large.conf" "$MNT"
{ cat "$file"; head -c 200 /dev/zero; } >"$T/binary.conf"
refused "one that is no text" 1 "binary.conf: it is not text" varjfs "$T/binary.conf" "$MNT"
: >"$T/empty.conf"
refused "an empty one" 1 "empty.conf: it has no line" varjfs "$T/empty.conf" "$MNT"
mkfifo "$T/fifo"
refused "a fifo" 1 "fifo is neither a directory nor a volume file" varjfs "$T/fifo" "$MNT"
refused "a device" 1 "/dev/zero is neither a directory nor a volume file" varjfs /dev/zero "$MNT"
ln -s "$file" "$T/link.conf"
refused "by a link" 1 "needs a directory" varjfs "$T/link.conf" "$MNT"
is "nothing was mounted" "$(is_mounted "$MNT"; echo $?)" 1

# ---- what does not go with one

refused "--restore" 8 "is a volume file: its metadata are elsewhere" fsck.varjfs --restore "$file"
is "fsck -p does not look" "$(status_of fsck.varjfs -p "$file")" 0
check "and says so" grep "its metadata are elsewhere" "$T/out"

# ---- mkfs.varjfs

refused "mkfs: a file, and drivers that keep files" 1 "is no directory, and lmdb keeps files in one" \
    mkfs.varjfs "$file"
refused "mkfs -f: likewise" 1 "is no directory" mkfs.varjfs -f "$file"
is "it stays" "$(cmp "$file" "$SOURCE/varjfs.conf"; echo $?)" 0
tap_done
