#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Lost and damaged objects: their bytes are EIO, all others can be read, and the file can be
# edited and made durable as any other; new bytes in place of the damaged ones mend it.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3

make_fs -o objects=64K
mount_varjfs
head -c 3000000 /dev/urandom >"$T/reference"
cat "$T/reference" >"$MNT/edited"
cat "$T/reference" >"$MNT/shortened"
cat "$T/reference" >"$MNT/small"
varjfsctl sync "$MNT"
# offset and length of the objects
varjfsctl map "$MNT/edited" | awk '$3 == "object" { print $1, $2, $4 }' >"$T/map"
umount_varjfs

object_file()
{
    find "$SOURCE/objects" -name "$(awk -v n="$1" 'NR == n { print $3 }' "$T/map").*"
}

rm "$(object_file 2)"
python3 - "$(object_file 12)" <<'EOF'
import os, sys
with open(sys.argv[1], "r+b") as f:
    f.seek(9000)
    byte = f.read(1)
    f.seek(9000)
    f.write(bytes([byte[0] ^ 1]))
EOF
mount_varjfs -o "log=$T/log"

cat >"$T/damage.py" <<'EOF'
import errno, os, sys
mnt, t = sys.argv[1], sys.argv[2]
reference = open(t + "/reference", "rb").read()
extents = [tuple(map(int, l.split()[:2])) for l in open(t + "/map")]
lost = extents[1]
flipped = (extents[11][0] + 8192, 4096)
failed = 0

def result(name, good, why=""):
    print(("ok " if good else "not ok ") + name, why)

def read_all(path):
    """Content in 512-byte steps; None where it is EIO, other errors by name."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    size = os.fstat(fd).st_size
    content, at = [], 0
    import mmap
    buf = mmap.mmap(-1, 4096)
    while at < size:
        try:
            n = os.preadv(fd, [buf], at)
            content += list(buf[:n])
        except OSError as e:
            n = min(4096, size - at)
            content += [None if e.errno == errno.EIO else e.errno] * n
        at += n
    os.close(fd)
    return content

def compare(name, path, model):
    got = read_all(path)
    wrong = [i for i in range(len(model)) if i >= len(got) or
             (got[i] != model[i] and got[i] is not None) or
             (got[i] is None and None not in model[i // 4096 * 4096:i // 4096 * 4096 + 4096])]
    result(name, len(got) == len(model) and not wrong, "%d bytes, first wrong %s" % (len(got), wrong[:1]))

def model_of():
    m = list(reference)
    m[lost[0]:lost[0] + lost[1]] = [None] * lost[1]
    m[flipped[0]:flipped[0] + flipped[1]] = [None] * flipped[1]
    return m

def sync(name, fd):
    try:
        os.fsync(fd)
        result(name, True)
    except OSError as e:
        result(name, False, str(e))

if sys.argv[3] == "before":
    for name in "edited", "shortened", "small":
        compare(name + " is EIO where it is damaged, and there alone", mnt + "/" + name, model_of())
else:
    m = model_of()
    fd = os.open(mnt + "/edited", os.O_RDWR)
    middle = lost[0] + lost[1] // 2
    os.system("printf 0123456789 | varjfsctl insert %s/edited %d" % (mnt, middle))
    m[middle:middle] = list(b"0123456789")
    sync("fsync of an insert into the lost object", fd)
    compare("the insert is there", mnt + "/edited", m)
    os.system("varjfsctl delete %s/edited %d 100000" % (mnt, flipped[0] + 10 + 50))
    at = flipped[0] + 10 + 50
    del m[at:at + 100000]
    os.pwrite(fd, b"x" * 100000, len(m) - 50000)
    m[len(m) - 50000:] = [ord("x")] * 100000
    sync("fsync of other edits", fd)
    compare("they are there", mnt + "/edited", m)
    os.pwrite(fd, reference[lost[0]:middle] + b"0123456789" + reference[middle:lost[0] + lost[1]], lost[0])
    m[lost[0]:lost[0] + lost[1] + 10] = reference[lost[0]:middle] + b"0123456789" + reference[middle:lost[0] + lost[1]]
    sync("fsync of new bytes for the lost ones", fd)
    compare("they can be read", mnt + "/edited", m)
    for name, size in ("shortened", lost[0] + 30000), ("small", lost[0] + 2000):
        path = mnt + "/" + name
        fd = os.open(path, os.O_RDWR)
        if name == "small":  # a file that would be inline
            os.system("varjfsctl delete %s 0 %d" % (path, lost[0]))
            size -= lost[0]
        os.ftruncate(fd, size)
        sync("fsync of " + name, fd)
        m = model_of()[lost[0] if name == "small" else 0:][:size]
        compare(name + " is shorter", path, m)
EOF

# Each line that it prints is a result; what does not begin with "ok" is one that failed.
results()
{
    local line status=0
    python3 "$T/damage.py" "$MNT" "$T" "$1" >"$T/results" 2>&1 || status=$?
    while IFS= read -r line; do
        case $line in
        ok\ *) pass "${line#ok }" ;;
        *) fail "${line#not ok }" ;;
        esac
    done <"$T/results"
    is "$1: it ran to its end" $status 0
}

# Before more of them come than are logged.
lost=$(awk 'NR == 2 { print $1 }' "$T/map")
flipped=$(awk 'NR == 12 { print $1 }' "$T/map")
check_fails "a lost object" dd if="$MNT/edited" of=/dev/null bs=1 count=1 skip="$lost" status=none
check_fails "a damaged one" dd if="$MNT/small" of=/dev/null bs=1 count=1 skip=$((flipped + 9000)) status=none
check "the log names inode, path, object and cause" grep -q \
    "inode [0-9]* (/edited): object [0-9]*: not in the store; the file cannot be read at byte $lost\$" "$T/log"
# Names are looked for from time to time, and not each line is logged.
small_is_named()
{
    dd if="$MNT/small" of=/dev/null bs=1 count=1 skip=$((flipped + 9000)) status=none 2>/dev/null
    grep -q "inode [0-9]* (/small): object [0-9]*: a block at stored byte 8192 is not what was stored; the file cannot be read at byte " \
        "$T/log"
}
check "of both" wait_for 60 small_is_named
results before
results after
check "everything else becomes durable" varjfsctl sync "$MNT"
umount_varjfs
tap_done
