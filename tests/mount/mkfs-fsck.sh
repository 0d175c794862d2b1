#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# mkfs.varjfs and fsck.varjfs: what they accept, refuse, find and return.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires program mkfs.varjfs fsck.varjfs

# One byte in the middle of a file becomes another one.
damage()
{
    python3 - "$1" <<'EOF'
import os, sys
with open(sys.argv[1], "r+b") as f:
    f.seek(os.path.getsize(sys.argv[1]) // 2)
    byte = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([byte[0] ^ 1]))
EOF
}

# ---- mkfs.varjfs

is "a new directory" "$(status_of mkfs.varjfs "$T/new")" 0
is "it holds the superblock" "$(ls "$T/new/varjfs.conf")" "$T/new/varjfs.conf"
is "it is clean" "$(status_of fsck.varjfs -n "$T/new")" 0
is "a second time is refused" "$(status_of mkfs.varjfs "$T/new")" 1
is "in one line" "$(wc -l <"$T/err")" 1
is "with -f it is not" "$(status_of mkfs.varjfs -f "$T/new")" 0
mkdir "$T/empty"
is "an empty directory" "$(status_of mkfs.varjfs "$T/empty")" 0
mkdir "$T/foreign"
echo precious >"$T/foreign/file"
is "foreign files are refused" "$(status_of mkfs.varjfs "$T/foreign")" 1
is "nothing was made there" "$(find "$T/foreign" -mindepth 1)" \
    "$T/foreign/file"
is "with -f they stay" "$(status_of mkfs.varjfs --force "$T/foreign"; cat "$T/foreign/file")" "0
precious"
mkdir "$T/rest"
mkfs.varjfs "$T/rest"
mv "$T/rest/varjfs.conf" "$T/conf"
is "a file system without its superblock is refused" "$(status_of mkfs.varjfs "$T/rest")" 1
mv "$T/conf" "$T/rest/varjfs.conf"
is "and still whole" "$(status_of fsck.varjfs -n "$T/rest")" 0
mkdir -p "$T/others/objects"
echo precious >"$T/others/objects/file"
is "foreign files under our names are refused" \
    "$(status_of mkfs.varjfs "$T/others"; cat "$T/others/objects/file")" "1
precious"
is "SOURCE is a file" "$(status_of mkfs.varjfs "$T/foreign/file")" 1
is "the directory above is missing" "$(status_of mkfs.varjfs "$T/none/new")" 1

is "options" "$(status_of mkfs.varjfs -o label=one,hash=sha1 -o objects=64K "$T/options")" 0
is "the label is kept" "$(grep -c '^label = one$' "$T/options/varjfs.conf")" 1
is "the digest is kept" "$(grep -c '^hash = sha1$' "$T/options/varjfs.conf")" 1
is "the sizes are kept" "$(grep -c '^objects = .*:65536:' "$T/options/varjfs.conf")" 1
is "rabin" "$(status_of mkfs.varjfs -o chunker=rabin,objects=4K:64K:256K "$T/rabin")" 0
is "gear" "$(status_of mkfs.varjfs -o chunker=gear "$T/gear"; grep -E '^(chunker|objects) ' "$T/gear/varjfs.conf")" "0
chunker = gear
objects = 65536:262144:1048576"
is "a mean that gear does not take" "$(status_of mkfs.varjfs -o chunker=gear,objects=300K "$T/gear3")" 2

is "switches behind the operand" "$(status_of mkfs.varjfs "$T/new" -f -o label=x)" 0
is "letters together, the value at its letter" \
    "$(status_of mkfs.varjfs -folabel=two "$T/new"; grep -c '^label = two$' "$T/new/varjfs.conf")" "0
1"
cd "$T" || exit 1
is "-- ends the switches" "$(status_of mkfs.varjfs -- -odd; ls -d ./-odd)" "0
./-odd"
is "no SOURCE" "$(status_of mkfs.varjfs)" 2
is "two SOURCEs" "$(status_of mkfs.varjfs "$T/a" "$T/b")" 2
is "an unknown switch" "$(status_of mkfs.varjfs -z "$T/a")" 2
is "an unknown option" "$(status_of mkfs.varjfs -o colour=red "$T/a")" 2
is "an unknown choice" "$(status_of mkfs.varjfs -o hash=md5 "$T/a")" 2
is "sizes out of range" "$(status_of mkfs.varjfs -o objects=1 "$T/a")" 2
is "an unknown store" "$(status_of mkfs.varjfs -o store=floppy "$T/a")" 2
is "-o without its value" "$(status_of mkfs.varjfs -o)" 2
is "wrong usage makes nothing" "$([ -e "$T/a/varjfs.conf" ]; echo $?)" 1

# ---- fsck.varjfs

is "fsck: no file system" "$(status_of fsck.varjfs -n "$T/a")" 8
is "fsck: -y has nothing to do" "$(status_of fsck.varjfs -y "$T/new")" 0
is "fsck: no SOURCE" "$(status_of fsck.varjfs -n)" 2
is "fsck: an unknown switch" "$(status_of fsck.varjfs --colour "$T/new")" 2
# fsck.varjfs -y has closed it in order.
for switches in -a -p "-a -n"; do
    # shellcheck disable=SC2086 # several
    is "fsck $switches of what was closed in order" "$(status_of fsck.varjfs $switches "$T/new"; cat "$T/out")" "0
$T/new: clean"
done
is "fsck -p -f looks" "$(status_of fsck.varjfs -pf "$T/new"; grep -c ' inodes, ' "$T/out")" "0
1"
is "fsck -p -y" "$(status_of fsck.varjfs -p -y "$T/new")" 2
mv "$T/new/varjfs.clean" "$T/new/varjfs.inuse"
mv "$T/new/objects/format" "$T/format"
is "fsck -a: what it cannot look at" "$(status_of fsck.varjfs -a "$T/new")" 8
mv "$T/format" "$T/new/objects/format"
is "fsck -a after a crash" "$(status_of fsck.varjfs -a "$T/new")" 0
mv "$T/new/varjfs.inuse" "$T/new/varjfs.clean"
printf '%s %s fuse.varjfs defaults 0 2\n' "$T/new" "$T/mnt" >"$T/fstab"
if command -v fsck >/dev/null; then
    is "fsck -A -a with a pass number in fstab" "$(FSTAB_FILE=$T/fstab status_of fsck -A -a)" 0
fi
damage "$T/options/varjfs.conf"
is "fsck: a damaged superblock" "$(status_of fsck.varjfs -n "$T/options")" 4

requires command python3
# shellcheck disable=SC2154 # tap.sh sets builddir
if [ ! -x "$builddir/varjfs" ] || [ ! -e /dev/fuse ]; then
    note "the rest needs a mount"
    tap_done
fi
make_fs -o objects=64K
mount_varjfs
mkdir "$MNT/sub" "$MNT/directory"
mkdir "$MNT/directory/deep"
head -c 300000 /dev/urandom >"$MNT/sub/file"
# Written back first, the copy shares its objects whatever the flusher does meanwhile.
sync "$MNT/sub/file"
cp "$MNT/sub/file" "$MNT/directory/deep/equal"
echo small >"$MNT/directory/small"
is "fsck: a mounted file system is refused" "$(status_of fsck.varjfs -n "$SOURCE")" 8
is "mkfs: likewise, also with -f" "$(status_of mkfs.varjfs -f "$SOURCE")" 1
check "the mount is unharmed" test "$(stat -c %s "$MNT/sub/file")" = 300000
# What was written back amid the writing, and replaced, goes: the object below is to be the file's.
varjfsctl gc "$MNT" >/dev/null
umount_varjfs
is "fsck: clean" "$(status_of fsck.varjfs -n "$SOURCE")" 0
is "fsck: it says what it saw" "$(grep -c ': 7 inodes, 6 names, ' "$T/out")" 1
is "fsck: without a switch too" "$(status_of fsck.varjfs "$SOURCE")" 0

object=$(find "$SOURCE/objects" -type f -size +2k ! -name '*.conf' | sort | head -1)
cp "$object" "$T/object"
damage "$object"
is "fsck: a flipped bit in an object" "$(status_of fsck.varjfs -n "$SOURCE")" 4
is "fsck: in one line" "$(grep -c '^object ' "$T/out")" 1
is "fsck: with the name of the file" "$(grep -c '^inode [0-9]* (/sub/file): its bytes ' "$T/out")" 1
is "fsck: of every file that has the object" \
    "$(grep -c '^inode [0-9]* (/directory/deep/equal): its bytes ' "$T/out")" 1
is "fsck: and of no other" "$(grep -c '^inode ' "$T/out")" 2
is "fsck: --quick does not read data" "$(status_of fsck.varjfs --quick "$SOURCE")" 0
rm "$object"
is "fsck: a missing object" "$(status_of fsck.varjfs --quick "$SOURCE")" 4
cp "$T/object" "$object"
is "fsck: put back it is clean" "$(status_of fsck.varjfs -n "$SOURCE")" 0

# Damage that LMDB itself does not survive is a finding all the same.
cp "$SOURCE/meta/data.mdb" "$T/data.mdb"
truncate -s 8192 "$SOURCE/meta/data.mdb"
is "fsck: metadata that are cut off" "$(status_of fsck.varjfs -n "$SOURCE")" 4
check_fails "no mount then" try_mount_varjfs
is "nothing was put in place of the end" "$(stat -c %s "$SOURCE/meta/data.mdb")" 8192
python3 - "$T/data.mdb" "$SOURCE/meta/data.mdb" <<'EOF'
import random, sys
b = bytearray(open(sys.argv[1], "rb").read())
used = [i for i in range(8192, len(b), 4096) if any(b[i:i + 4096])]
r = random.Random(1)
for i in used:
    b[i + 16:i + 64] = r.randbytes(48)
open(sys.argv[2], "wb").write(b)
EOF
is "fsck: pages of nonsense" "$(status_of fsck.varjfs -n "$SOURCE")" 4
cp "$T/data.mdb" "$SOURCE/meta/data.mdb"
is "fsck: put back it is clean" "$(status_of fsck.varjfs -n "$SOURCE")" 0

tap_done
