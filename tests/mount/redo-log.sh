#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# A damaged redo log: the mount refuses, fsck.varjfs says what it is, keeps it, and brings back all
# that stood before the damage.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program mkfs.varjfs fsck.varjfs
requires command python3

FILES=8

# Where the records of the round that has most begin, one a line; the others are left from the mount
# before, whose log had another id.
records()
{
    python3 - "$SOURCE/meta/redo.log" <<'PY'
import sys
log = open(sys.argv[1], "rb").read()
rounds = {}
for at in range(4096, len(log), 4096):
    if log[at:at + 4] == b"VRR1" and int.from_bytes(log[at + 16:at + 24], "little") == at:
        rounds.setdefault(log[at + 8:at + 16], []).append(at)
print(*max(rounds.values(), key=len), sep="\n")
PY
}

flip()
{
    python3 - "$SOURCE/meta/redo.log" "$1" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    byte = f.read(1)[0]
    f.seek(-1, 1)
    f.write(bytes([byte ^ 4]))
PY
}

bring_back()
{
    rm -rf "$SOURCE"
    cp -a "$T/kept" "$SOURCE"
}

# Files that are whole: 1 to $1, and "before".
files_up_to()
{
    local i
    cmp -s "$T/before" "$MNT/before" || return 1
    for i in $(seq "$1"); do
        [ "$(cat "$MNT/$i")" = "content $i" ] || return 1
    done
    [ "$(find "$MNT" -name '[0-9]*' | wc -l)" = "$1" ]
}

refused()
{
    is "$1: the mount refuses" "$(status_of try_mount_varjfs)" 1
    is "$1: in one line" "$(wc -l <"$T/varjfs.log")" 1
    check "$1: that says where to look" grep -q 'fsck\.varjfs' "$T/varjfs.log"
    is "$1: fsck.varjfs -n says so" "$(status_of fsck.varjfs -n "$SOURCE")" 4
    check "$1: and names the log" grep -q 'redo\.log' "$T/out"
    is "$1: fsck.varjfs -y repairs" "$(status_of fsck.varjfs -y "$SOURCE")" 1
}

kept_logs()
{
    find "$SOURCE/meta" -name 'redo.log.damaged-*' | wc -l
}

make_fs -o "meta=lmdb:redo=256K\\,commit=3600" # nothing moves out of the log by itself
mount_varjfs
seq 5000 >"$T/before"
cp "$T/before" "$MNT/before"
umount_varjfs
mount_varjfs -o commit=3600 # and nothing is written back that nobody waits for
for i in $(seq $FILES); do
    echo "content $i" >"$MNT/$i"
    sync "$MNT/$i" "$MNT"
done
kill_varjfs
cp -a "$SOURCE" "$T/kept"
mapfile -t places < <(records)
check "each sync wrote a record" test "${#places[@]}" -ge $FILES

mount_varjfs
check "nothing is lost without damage" files_up_to $FILES
umount_varjfs

bring_back
flip 20
refused "its head"
is "its head: the log is kept" "$(kept_logs)" 1
fsck_clean "its head: afterwards"
mount_varjfs
check "its head: the records are there all the same" files_up_to $FILES
umount_varjfs

bring_back
flip $((places[${#places[@]} / 2] + 70))
refused "a record in the middle"
is "a record in the middle: the log is kept" "$(kept_logs)" 1
fsck_clean "a record in the middle: afterwards"
mount_varjfs
check "a record in the middle: what was there before is" cmp "$T/before" "$MNT/before"
count=$(find "$MNT" -name '[0-9]*' | wc -l)
check "a record in the middle: some are there, and some are not" \
    test "$count" -gt 0 -a "$count" -lt $FILES
check "a record in the middle: the first of them, whole" files_up_to "$count"
umount_varjfs

bring_back
flip $((places[-1] + 70))
is "the last record: fsck.varjfs -n goes on" "$(status_of fsck.varjfs -n "$SOURCE")" 0
check "the last record: it says where it stands" grep -q "the last record, at byte ${places[-1]}, is there in part" "$T/err"
mount_varjfs -o log="$T/daemon.log"
check "the last record: the mount goes on, and says the same" grep -q "the last record, at byte ${places[-1]}, is there in part" "$T/varjfs.log" "$T/daemon.log"
count=$(find "$MNT" -name '[0-9]*' | wc -l)
check "the last record: all before it are there" test "$count" -ge $((FILES - 1))
check "the last record: and whole" files_up_to "$count"
umount_varjfs

bring_back
mv "$SOURCE/meta/redo.log" "$T/away"
refused "no log"
fsck_clean "no log: afterwards"
mount_varjfs
check "no log: what was there before it is" files_up_to 0
umount_varjfs
tap_done
