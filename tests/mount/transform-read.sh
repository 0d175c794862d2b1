#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What reading a part of an encoded object costs, by the daemon's own counters: a 4 KiB read
# from an object of several MiB decodes at most two blocks and gets less than 150 KiB from the
# store, wherever it is, through the page cache and past it; reading all decodes nothing twice.
# Then damage, and a transformation that only a later version knows: EIO there, and there alone.

# shellcheck disable=SC2119 # without options
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3
requires command setfattr

# shellcheck disable=SC2154 # tap.sh sets builddir
plant=$builddir/tests/mount/plant-codec
[ -x "$plant" ] || skip_all "$plant is not built (make check TESTS=)"
transforms=
for name in xor rle lz4 zstd; do # the last one is what damage is tried with
    if "$plant" --id $name >"$T/id"; then
        transforms="$transforms $name"
    else
        note "$name is not in this build"
    fi
done

cat >"$T/reads.py" <<'EOF'
import mmap, os, random, subprocess, sys

mnt, t, what = sys.argv[1:4]
PATH = mnt + "/d/file"
expected = open(t + "/expected", "rb").read()

def counters():
    text = subprocess.run(["varjfsctl", "stats", mnt], check=True, capture_output=True, text=True).stdout
    return {f[0]: int(f[1]) for f in (l.split() for l in text.splitlines()) if len(f) > 1 and f[1].isdigit()}

def extents():
    text = subprocess.run(["varjfsctl", "map", PATH], check=True, capture_output=True, text=True).stdout
    return [(int(f[0]), int(f[1]), f[7]) for f in (l.split() for l in text.splitlines()[1:]) if f[2] == "object"]

def result(name, good, why=""):
    print(("ok " if good else "not ok ") + name, why)

def places():
    """Of pages within one object, far from each other: no readahead joins them."""
    random.seed(20261120)
    far = [at for at in range(0, len(expected), 1 << 18)]
    inside = []
    for at, length, codec in extents():
        inside += [p for p in far if at < p and p + (1 << 18) < at + length]
    return [p + random.randrange(0, 1 << 17) // 4096 * 4096 for p in random.sample(inside, 10)]

def small_reads(direct, at_borders):
    """The worst 4 KiB read: blocks decoded, bytes from the store; and whether all were right."""
    fd = os.open(PATH, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    buf = mmap.mmap(-1, 4096)
    blocks = got = 0
    right = True
    for at in [e[0] // 4096 * 4096 for e in extents()[1:]] if at_borders else places():
        before = counters()
        n = os.preadv(fd, [buf], at)
        after = counters()
        blocks = max(blocks, after["decoded_blocks"] - before["decoded_blocks"])
        got = max(got, after["store_get_bytes"] - before["store_get_bytes"])
        right = right and n == 4096 and buf[:] == expected[at:at + 4096]
    os.close(fd)
    return blocks, got, right

if what == "write":
    with open(PATH, "wb") as f:
        f.write(expected)
        os.fsync(f.fileno())
    own = [e for e in extents() if e[2] == sys.argv[4]]
    result("objects of several MiB, stored as %s" % sys.argv[4],
           own == extents() and max(length for at, length, codec in own) >= 4 << 20, str(extents()))
elif what in ("direct", "buffered"):
    blocks, got, right = small_reads(what == "direct", False)
    result("%s reads of 4 KiB find their bytes" % what, right)
    result("a %s read of 4 KiB decodes 2 blocks at most" % what, 1 <= blocks <= 2, "%d" % blocks)
    result("a %s read of 4 KiB gets less than 150 KiB" % what, 0 < got < 150 << 10, "%d" % got)
    # Of two objects: the end of one, which may be a block of a few bytes, and the next's first.
    blocks, got, right = small_reads(what == "direct", True)
    result("so do %s reads at the border of two objects" % what,
           right and blocks <= 3 + 3 * (what == "buffered") and 0 < got < 300 << 10, "%d %d" % (blocks, got))
elif what == "all":
    before = counters()
    right = open(PATH, "rb").read() == expected
    after = counters()
    result("reading all finds all", right)
    decoded = after["decoded_bytes"] - before["decoded_bytes"]
    got = after["store_get_bytes"] - before["store_get_bytes"]
    result("reading all decodes little twice", decoded <= 1.5 * len(expected), "%d of %d" % (decoded, len(expected)))
    result("reading all gets little twice", got <= 1.6 * len(expected), "%d" % got)
elif what == "where-eio":
    # Prints the ranges that cannot be read, in steps of 4 KiB.
    fd = os.open(PATH, os.O_RDONLY | os.O_DIRECT)
    buf = mmap.mmap(-1, 4096)
    bad = []
    for at in range(0, len(expected), 4096):
        try:
            n = os.preadv(fd, [buf], at)
            if buf[:n] != expected[at:at + n]:
                print("wrong bytes at %d" % at)
        except OSError as e:
            bad.append((at, e.errno))
    print("%d from %d to %d %s" % (len(bad), bad[0][0], bad[-1][0], sorted(set(e for at, e in bad))) if bad else "none")
EOF

# Words and runs of all lengths, so that every transformation saves something.
python3 - "$T/expected" <<'EOF'
import random, sys
random.seed(20261120)
words = [b"object ", b"block ", b"keeps ", b"\n" * 9, b"content ", b" " * 17, b"store ", b"\0" * 40]
with open(sys.argv[1], "wb") as f:
    left = 16 << 20
    while left > 0:
        part = b"".join(random.choice(words) + bytes([random.randrange(256)]) * (random.random() < .2)
                        for _ in range(1000))[:left]
        f.write(part)
        left -= len(part)
EOF

results()
{
    local line label=$1 status=0
    shift
    python3 "$T/reads.py" "$MNT" "$T" "$@" >"$T/results" 2>&1 || status=$?
    while IFS= read -r line; do
        case $line in
        ok\ *) pass "$label: ${line#ok }" ;;
        *) fail "$label: ${line#not ok }" ;;
        esac
    done <"$T/results"
    is "$label: $1: it ran to its end" $status 0
}

for transform in $transforms; do
    rm -rf "$SOURCE"
    make_fs -o objects=8M
    mount_varjfs
    mkdir "$MNT/d"
    setfattr -n user.varjfs.transform -v "$transform" "$MNT/d"
    results "$transform" write "$transform"
    for how in direct buffered all; do
        remount_varjfs # empty caches, the kernel's and the daemon's
        results "$transform" $how
    done
    umount_varjfs
done

# One damaged byte in the stored form of the last transformation's largest object.
mount_varjfs -o "log=$T/log"
# shellcheck disable=SC2046 # three words: offset, length, object
set -- $(varjfsctl map "$MNT/d/file" | awk '$3 == "object" && $2 > most { most = $2; line = $1 " " $2 " " $4 } END { print line }')
umount_varjfs
stored=$(find "$SOURCE/objects" -name "$3.*")
python3 - "$stored" <<'EOF'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(100000)
    byte = f.read(1)
    f.seek(100000)
    f.write(bytes([byte[0] ^ 1]))
EOF
mount_varjfs -o "log=$T/log"
# A read of 4 KiB that touches a block of 64 KiB fails: 16 of them, or 17.
bad=$(python3 "$T/reads.py" "$MNT" "$T" where-eio)
check "a damaged block is EIO for its 64 KiB alone ($bad)" \
    grep -qE '^(16|17) from [0-9]+ to [0-9]+ \[5\]$' <<<"$bad"
check "the log names the object and the place" \
    grep -q "object $((16#$3)): a block at stored byte [0-9]* is not what was stored" "$T/log"
umount_varjfs
python3 - "$stored" <<'EOF'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(100000)
    byte = f.read(1)
    f.seek(100000)
    f.write(bytes([byte[0] ^ 1]))
EOF

# The same object, of a transformation that nobody knows yet.
check "a record of a later version is planted" "$plant" "$SOURCE" "$((16#$3))" 77
: >"$T/log"
mount_varjfs -o "log=$T/log"
bad=$(python3 "$T/reads.py" "$MNT" "$T" where-eio)
first=$(($1 / 4096 * 4096))
last=$((($1 + $2 - 1) / 4096 * 4096))
is "an unknown transformation is EIO, and the rest is readable" "${bad#* }" "from $first to $last [5]"
check "the log names the object and the transformation" \
    grep -q "object $((16#$3)): transformation 77 (unknown) is not in this build" "$T/log"
check "the log is not flooded" test "$(grep -c 'is not in this build' "$T/log")" -lt 200
cp "$T/expected" "$MNT/new"
check "other files are written and read" cmp "$T/expected" "$MNT/new"
umount_varjfs
out=$(fsck.varjfs -n "$SOURCE")
is "fsck finds what it cannot read" "$?" 4
check "fsck names the transformation" grep -q "transformation 77 (unknown), which is not in this build" <<<"$out"
check "the record is as it was" "$plant" "$SOURCE" "$((16#$3))" "$("$plant" --id "$transform")"
fsck_clean "nothing else had changed"
mount_varjfs
check "all of it is there" cmp "$T/expected" "$MNT/d/file"
umount_varjfs
tap_done
