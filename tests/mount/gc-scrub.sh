#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# varjfsctl gc and scrub on a file system in use: what they remove, find and name, and that
# they touch nothing that is live while others write.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3
[ "$(id -u)" = 0 ] || skip_all "gc and scrub are for root"

objects()
{
    find "$SOURCE/objects" -type f ! -name format | wc -l
}

make_fs -o objects=64K
mount_varjfs
mkdir "$MNT/dir"
head -c 3000000 /dev/urandom >"$T/reference"
cat "$T/reference" >"$MNT/dir/file"
cat "$T/reference" >"$MNT/other"
varjfsctl sync "$MNT"
# What was written back amid the writing, and replaced, goes first.
varjfsctl gc "$MNT" >/dev/null
live=$(objects)
is "nothing to remove" "$(varjfsctl gc --json "$MNT")" \
    "{\"examined_objects\": $live, \"removed_objects\": 0, \"removed_bytes\": 0}"

# ---- bytes in the store that no record names

unnamed()
{
    local from
    from=$(find "$SOURCE/objects" -type f ! -name format | head -1)
    cp "$from" "${from%.*}.$1"
}
umount_varjfs
unnamed 0123456789abcdef
unnamed 0000000000000001
is "two are there that belong to nothing" "$(objects)" $((live + 2))
mount_varjfs
is "gc" "$(status_of varjfsctl gc "$MNT")" 0
is "it says what it removed" "$(grep -c ": removed 2 of $((live + 4)) objects, " "$T/out")" 1
is "they are gone" "$(objects)" "$live"
check "the others are there" cmp "$T/reference" "$MNT/dir/file"
rm "$MNT/dir/file" "$MNT/other"
is "gc waits for what is being removed" "$(status_of varjfsctl gc "$MNT"; objects)" "0
0"

# ---- beside writers

cat >"$T/writers.py" <<'EOF'
import os, random, sys, threading
mnt, seed = sys.argv[1], int(sys.argv[2])
failed = []

def work(n):
    r = random.Random(seed * 100 + n)
    for i in range(25):
        data = r.randbytes(r.randrange(1, 400000))
        path = "%s/w%d-%d" % (mnt, n, i % 4)
        with open(path, "wb") as f:
            f.write(data)
            if i % 3 == 0:
                os.fsync(f.fileno())
        with open(path, "rb") as f:
            if f.read() != data:
                failed.append(path)
    for i in range(4):
        os.sync()

threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
sys.exit(1 if failed else 0)
EOF
note "seed $$"
python3 "$T/writers.py" "$MNT" $$ &
writers=$!
rounds=0
gc_failed=0
while kill -0 "$writers" 2>/dev/null; do
    varjfsctl gc "$MNT" >/dev/null || gc_failed=1
    rounds=$((rounds + 1))
done
wait "$writers"
is "writers beside gc read what they wrote" $? 0
is "gc never failed in $rounds rounds" "$gc_failed" 0
is "scrub finds nothing wrong" "$(status_of varjfsctl scrub --rate=0 "$MNT")" 0
umount_varjfs
fsck_clean "after gc beside writers"

# ---- scrub

mount_varjfs
rm "$MNT"/w*
cat "$T/reference" >"$MNT/dir/file"
cp "$MNT/dir/file" "$MNT/dir/shared"
echo small >"$MNT/small"
varjfsctl sync "$MNT"
varjfsctl map "$MNT/dir/file" | awk '$3 == "object"' >"$T/map"
python3 - "$(find "$SOURCE/objects" -name "$(awk 'NR == 3 { print $4 }' "$T/map").*")" <<'EOF'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(5000)
    byte = f.read(1)
    f.seek(5000)
    f.write(bytes([byte[0] ^ 1]))
EOF
is "scrub says that something is wrong" "$(status_of varjfsctl scrub --rate=0 "$MNT")" 1
at=$(awk 'NR == 3 { print $1 " to " $1 + $2 - 1 }' "$T/map")
for name in dir/file dir/shared; do
    is "it names $name" "$(grep -c "^$MNT/$name: bytes $at are in object .* damaged$" "$T/out")" 1
done
is "and no other" "$(grep -c ': bytes ' "$T/out")" 2
check "JSON" python3 - "$MNT" <<'EOF'
import json, subprocess, sys
p = subprocess.run(["varjfsctl", "scrub", "--json", "--rate=1G", sys.argv[1]], stdout=subprocess.PIPE)
d = json.loads(p.stdout)
assert p.returncode == 1 and d["damaged_objects"] == 1 and d["bytes"] > 2900000, d
assert {e["file"].rsplit("/", 1)[1] for e in d["damaged"]} == {"file", "shared"}, d
EOF
cat "$T/reference" >"$MNT/afresh"
varjfsctl sync "$MNT"
umount_varjfs
mount_varjfs
check "equal content was stored afresh" cmp "$T/reference" "$MNT/afresh"

# ---- a store that does not answer says nothing of what it has

umount_varjfs
export VARJFS_TEST_WRAP_STORE=fault:kinds=get,every=1,times=0,errno=ETIMEDOUT,if=$T/away
mount_varjfs
unset VARJFS_TEST_WRAP_STORE
before=$(objects)
: >"$T/away"
is "a store that is away: scrub fails" "$(status_of varjfsctl scrub "$MNT")" 1
is "and finds nothing" "$(grep -c damaged "$T/out")" 0
rm "$T/away"
cat "$T/reference" >"$MNT/again"
varjfsctl sync "$MNT"
is "what it has is still shared" "$(objects)" "$before"

# ---- who may, and where

is "no mount" "$(status_of varjfsctl gc "$T")" 1
is "a rate that is none" "$(status_of varjfsctl scrub --rate=fast "$MNT")" 2
if command -v setpriv >/dev/null; then
    umount_varjfs
    chmod 755 "$T"
    mount_varjfs -o allow_other
    is "others may not" \
        "$(status_of setpriv --reuid=65534 --regid=65534 --clear-groups varjfsctl gc "$MNT")" 1
    is "and are told so" "$(grep -c 'Operation not permitted' "$T/err")" 1
fi
tap_done
