#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# fsck.varjfs -y through a mount: lost and damaged objects, what no record names in the store, what a
# crash left; everything else can be read as before, and a second run finds nothing.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3

object_of()
{
    find "$SOURCE/objects" -name "$(awk -v n="$2" 'NR == n { print $4 }' "$T/$1.map").*"
}

# unreadable FILE REFERENCE [OFFSET:LENGTH...]: what can be read is as in the reference, and the
# ranges alone (with the pages that they touch) cannot.
unreadable()
{
    python3 - "$@" <<'PY'
import errno, os, sys
want = open(sys.argv[2], "rb").read()
ranges = [tuple(map(int, r.split(":"))) for r in sys.argv[3:]]
fd = os.open(sys.argv[1], os.O_RDONLY)
assert os.fstat(fd).st_size == len(want), "the size is another"
for at in range(0, len(want), 512):
    n = min(512, len(want) - at)
    try:
        assert os.pread(fd, n, at) == want[at:at + n], "other bytes at %d" % at
        assert not any(o <= at and at + n <= o + l for o, l in ranges), "%d is not lost" % at
    except OSError as e:
        assert e.errno == errno.EIO, e
        assert any(o // 4096 * 4096 <= at < o + l + 4096 for o, l in ranges), "%d is lost" % at
PY
}

make_fs -o objects=64K
mount_varjfs
mkdir "$MNT/a" "$MNT/a/b"
head -c 2000000 /dev/urandom >"$T/reference"
head -c 2000000 /dev/urandom >"$T/other"
cat "$T/reference" >"$MNT/a/b/file"
cat "$T/other" >"$MNT/other"
echo short >"$MNT/a/short"
ln "$MNT/a/b/file" "$MNT/second name"
varjfsctl sync "$MNT"
varjfsctl map "$MNT/a/b/file" | awk '$3 == "object"' >"$T/file.map"
varjfsctl map "$MNT/other" | awk '$3 == "object"' >"$T/other.map"
umount_varjfs

# ---- a lost object, a damaged one, and one too many

lost=$(awk 'NR == 2 { print $1 ":" $2 }' "$T/file.map")
flipped=$(awk 'NR == 5 { print $1 + 8192 ":4096" }' "$T/file.map")
rm "$(object_of file 2)"
python3 - "$(object_of file 5)" <<'EOF'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(9000)
    byte = f.read(1)
    f.seek(9000)
    f.write(bytes([byte[0] ^ 0x10]))
EOF
cp "$(object_of file 7)" "$(object_of file 7 | sed 's/\.[0-9a-f]*$/.0123456789abcdef/')"

is "-n finds them" "$(status_of fsck.varjfs -n "$SOURCE")" 4
cp -r "$SOURCE" "$T/before"
is "with both names of the file" \
    "$(grep -c '^inode [0-9]* (/second name, /a/b/file): its bytes .* are in object' "$T/out")" 2
is "-n has changed nothing" \
    "$(status_of fsck.varjfs -n "$SOURCE"; diff -r --no-dereference "$T/before" "$SOURCE" && echo same)" "4
same"
is "-y corrects" "$(status_of fsck.varjfs -y "$SOURCE")" 1
is "it says what it did" "$(grep -c '; repaired$' "$T/out")" 3
is "-n finds nothing" "$(status_of fsck.varjfs -n "$SOURCE")" 0
is "but tells what is lost, by name" \
    "$(grep -c '^inode [0-9]* (/second name, /a/b/file): its bytes ' "$T/out")" 2
is "-y has nothing to do" "$(status_of fsck.varjfs -y "$SOURCE")" 0
mount_varjfs
check "what is lost cannot be read, the rest is right" \
    unreadable "$MNT/a/b/file" "$T/reference" "$lost" "$flipped"
check "another file is whole" unreadable "$MNT/other" "$T/other"
cat "$T/reference" >"$MNT/again"
check "equal content is stored afresh" cmp "$T/reference" "$MNT/again"
check "and durable" varjfsctl sync "$MNT"
umount_varjfs
fsck_clean "the new file is sound"
mount_varjfs
check "it can be read after a mount" cmp "$T/reference" "$MNT/again"
rm "$MNT/a/b/file" "$MNT/second name"
check "the damaged file can be removed" varjfsctl sync "$MNT"
umount_varjfs
is "nothing is told any more" "$(status_of fsck.varjfs -y "$SOURCE"; grep -c ' lost' "$T/out")" "0
0"

# ---- what is put back is whole again

rm "$(object_of other 3)"
is "a lost object is marked" "$(status_of fsck.varjfs -y "$SOURCE")" 1
was=$(find "$T/before/objects" -name "$(awk 'NR == 3 { print $4 }' "$T/other.map").*")
cp "$was" "$SOURCE/objects${was#"$T/before/objects"}"
is "put back it is found to be whole" \
    "$(status_of fsck.varjfs -n "$SOURCE"; grep -c ': 1 objects are .* and are whole' "$T/out")" "0
1"
is "and is so for the file system too" "$(status_of fsck.varjfs -y "$SOURCE")" 1
fsck_clean "afterwards"
mount_varjfs
check "its file is whole" cmp "$T/other" "$MNT/other"

# ---- what a crash leaves is finished

exec 7>"$MNT/unlinked"
head -c 500000 /dev/urandom >&7
varjfsctl sync "$MNT"
rm "$MNT/unlinked"
varjfsctl sync "$MNT"
is "a mounted file system is refused" "$(status_of fsck.varjfs -y "$SOURCE")" 8
kill_varjfs
exec 7>&-
is "an orphan is no problem" "$(status_of fsck.varjfs -n "$SOURCE")" 0
is "-n says that it waits" "$(grep -c 'the next mount will finish' "$T/out")" 1
is "-y finishes it" "$(status_of fsck.varjfs -y "$SOURCE")" 0
is "and says so" "$(grep -c 'were finished$' "$T/out")" 1
is "nothing waits" "$(status_of fsck.varjfs -n "$SOURCE"; grep -c 'will finish' "$T/out")" "0
0"

tap_done
