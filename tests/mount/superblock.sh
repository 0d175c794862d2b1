#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# superblock.sh - varjfs.conf damaged or gone: what is said, and that fsck.varjfs brings it back; likewise data.mdb

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program mkfs.varjfs fsck.varjfs varjfsctl tests/mount/reseal
requires command python3 flock
[ "$(id -u)" = 0 ] || skip_all "varjfsctl checkpoint is root's"

CONF=$SOURCE/varjfs.conf
META=$SOURCE/meta/data.mdb

# says WORDS: on stdout or stderr of the last status_of
says()
{
    if grep -qF -- "$1" "$T/out" "$T/err"; then
        pass "it says \"$1\""
    else
        fail "it says \"$1\"" "$(cat "$T/out" "$T/err")"
    fi
}

# The names in SOURCE but those that a mount leaves.
names()
{
    (cd "$SOURCE" && find . -mindepth 1 -maxdepth 1 ! -name varjfs.clean ! -name varjfs.inuse | sort | tr '\n' ' ')
}

whole()
{
    is "$1: it is what it was" "$(cmp "$CONF" "$T/conf" && echo same)" same
    is "$1: fsck.varjfs -n finds nothing" "$(status_of fsck.varjfs -n "$SOURCE")" 0
    mount_varjfs
    is "$1: the file is there" "$(cat "$MNT/file")" content
    umount_varjfs
    rm -f "$CONF".damaged-*
}

# lost WHAT WHERE: fsck.varjfs -n and the mount say so, -y takes the copy from WHERE
lost()
{
    local what=$1 where=$2 before
    before=$(names)
    is "$what: the mount fails" "$(status_of try_mount_varjfs)" 1
    check "$what: and says how to go on" grep -q "varjfs.conf.*fsck.varjfs -y looks for a copy" "$T/varjfs.log"
    is "$what: fsck.varjfs -n" "$(status_of fsck.varjfs -n "$SOURCE")" 4
    says "\"fsck.varjfs -y\" puts the copy that is in $where in its place"
    is "$what: which changes nothing" "$(names)" "$before"
    is "$what: mkfs.varjfs destroys nothing" "$(status_of mkfs.varjfs "$SOURCE")" 1
    is "$what: fsck.varjfs -y" "$(status_of fsck.varjfs -y "$SOURCE")" 1
    says "varjfs.conf is the copy that was in $where"
}

make_fs -o label=precious,objects=64K
cp "$CONF" "$T/conf"
mount_varjfs
echo content >"$MNT/file"
varjfsctl checkpoint "$MNT" >/dev/null
umount_varjfs
checkpoint=$(cd "$SOURCE/checkpoints" && echo 2*)

# ---- from the metadata

rm "$CONF"
lost "gone" "the metadata"
is "nothing is kept beside it" "$(find "$SOURCE" -name '*.damaged-*')" ""
whole "gone"

sed -i 's/^label = precious/label = previous/' "$CONF"
cp "$CONF" "$T/edited"
lost "edited" "the metadata"
says 'varjfs.conf: line 4 is "label = previous" and should be "label = precious"'
is "what was there is kept" "$(cmp "$T/edited" "$CONF".damaged-* && echo same)" same
whole "edited"

: >"$CONF"
lost "empty" "the metadata"
whole "empty"

head -c 20000 /dev/urandom >"$CONF"
lost "noise that is too long" "the metadata"
whole "noise that is too long"

sed -i 's/^format = 2$/format = 3/' "$CONF"
lost "a digit of the format" "the metadata"
whole "a digit of the format"

# Each bit: none of them may make it another volume, nor one of a newer version.
python3 - "$CONF" "$T/bits" <<'PYTHON'
import os, random, sys
text = open(sys.argv[1], "rb").read()
seed = int(os.environ.get("VARJFS_MODEL_SEED") or random.randrange(1 << 30))
print("# seed", seed, file=sys.stderr)
r = random.Random(seed)
os.mkdir(sys.argv[2])
for n in range(40):
    at = r.randrange(len(text) * 8)
    b = bytearray(text)
    b[at // 8] ^= 1 << at % 8
    open(f"{sys.argv[2]}/{at}", "wb").write(b)
PYTHON
bad=0
for bits in "$T/bits"/*; do
    cp "$bits" "$CONF"
    if [ "$(status_of fsck.varjfs -y "$SOURCE")" != 1 ] || ! cmp -s "$CONF" "$T/conf"; then
        bad=$((bad + 1))
        note "bit ${bits##*/}: $(cat "$T/out" "$T/err")"
        cp "$T/conf" "$CONF"
    fi
    rm -f "$CONF".damaged-*
done
is "a wrong bit, anywhere" $bad 0
whole "a wrong bit"

# A newer format is none of our business.
python3 - "$T/conf" "$CONF" <<'PYTHON'
import sys
open(sys.argv[2], "wb").write(open(sys.argv[1], "rb").read().replace(b"format = 2\n", b"format = 3\nshape = round\n"))
PYTHON
cp "$CONF" "$T/newer"
is "a newer format is left alone" "$(status_of fsck.varjfs -y "$SOURCE"; cmp "$CONF" "$T/newer" && echo same)" "8
same"
cp "$T/conf" "$CONF"

# ---- repaired by another process meanwhile

# It watches the directory; fsck.varjfs looks at a volume in a child.
waits_for_lock()
{
    local child

    child=$(cat "/proc/$late/task/$late/children") && [ -n "$child" ] || return 1
    readlink "/proc/${child% }/fd/"* | grep -q inotify
}

status=0
: >"$CONF"
exec 8<"$SOURCE"
flock 8
fsck.varjfs -y "$SOURCE" >"$T/out" 2>"$T/err" 8<&- &
late=$!
check "fsck.varjfs -y waits for the lock" wait_for 20 waits_for_lock
cp "$T/conf" "$CONF"
exec 8<&-
wait $late || status=$?
is "it finds nothing to repair" $status 0
check_fails "and puts nothing aside" ls "$CONF".damaged-*

# ---- after a crash, when the last changes are in the log

mount_varjfs
kill_varjfs
rm "$CONF"
lost "gone after a crash" "the metadata"
whole "gone after a crash"

# ---- from a checkpoint

cp -a "$SOURCE" "$T/saved"
cp "$META" "$T/data.mdb"
dd if=/dev/urandom of="$META" bs=4096 count=8 conv=notrunc status=none
rm "$CONF"
is "gone, and the metadata are noise" "$(status_of fsck.varjfs -n "$SOURCE")" 4
says "no copy of varjfs.conf is in the metadata: "
says "puts the copy that is in checkpoint $checkpoint in its place"
is "-y brings it back and tells of the metadata" "$(status_of fsck.varjfs -y "$SOURCE")" 4
says "fsck.varjfs --restore"
rm "$CONF"
is "--restore brings both back" "$(status_of fsck.varjfs --restore "$SOURCE")" 1
says "varjfs.conf is the copy that was in checkpoint $checkpoint; repaired"
whole "from a checkpoint"
rm -rf "$SOURCE"
cp -a "$T/saved" "$SOURCE"

rm "$CONF" "$META"
is "gone, and data.mdb too" "$(status_of fsck.varjfs --restore "$SOURCE")" 1
whole "both from a checkpoint"
rm -rf "$SOURCE"
cp -a "$T/saved" "$SOURCE"

rm -r "$CONF" "$META" "$SOURCE/checkpoints"
is "nothing to restore it from" "$(status_of fsck.varjfs -y "$SOURCE")" 8
rm -rf "$SOURCE"
cp -a "$T/saved" "$SOURCE"
rm -r "$SOURCE/checkpoints"
dd if=/dev/urandom of="$META" bs=4096 count=8 conv=notrunc status=none
echo damaged >"$CONF"
is "damaged, and nothing to restore it from" "$(status_of fsck.varjfs -y "$SOURCE")" 4
says "it has to come from a backup"
is "it stays as it is" "$(cat "$CONF")" damaged
rm -rf "$SOURCE"
cp -a "$T/saved" "$SOURCE"

# ---- copies of another volume

SOURCE=$T/other make_fs -o label=other
SOURCE=$T/other MNT=$T/mnt2 mount_varjfs
varjfsctl checkpoint "$T/mnt2" >/dev/null
SOURCE=$T/other MNT=$T/mnt2 umount_varjfs
rm "$CONF"
mv "$SOURCE/meta" "$T/meta"
cp -a "$T/other/meta" "$SOURCE/meta"
is "the metadata of another volume" "$(status_of fsck.varjfs -y "$SOURCE")" 4
says "no copy of varjfs.conf is in the metadata: "
says "these objects belong to the volume "
check "the copy in the checkpoint is taken" cmp "$CONF" "$T/conf"
rm -r "$SOURCE/meta"
mv "$T/meta" "$SOURCE/meta"
whole "with its own metadata again"

# ---- copies are made true

rm -rf "$SOURCE/checkpoints"
sed -i 's/^label = precious/label = renamed/' "$CONF"
# shellcheck disable=SC2154 # tap.sh sets builddir
"$builddir/tests/mount/reseal" "$CONF"
mount_varjfs
is "another label" "$(grep -c '^label = renamed$' "$CONF")" 1
umount_varjfs
cp "$CONF" "$T/conf"
rm "$CONF"
lost "gone after a change" "the metadata"
whole "gone after a change"
for checkpoint in "$SOURCE"/checkpoints/2*; do :; done
rm "$CONF"
mv "$META" "$T/data.mdb"
is "the checkpoint has the change" "$(status_of fsck.varjfs --restore "$SOURCE")" 1
whole "from the checkpoint after a change"

# ---- data.mdb

rm "$META"
before=$(find "$SOURCE/meta" | sort)
for mode in "" -oro -ocheck=never -oro,check=never; do
    # shellcheck disable=SC2086 # none, or one
    is "data.mdb is missing: no mount ($mode)" "$(status_of try_mount_varjfs $mode)" 1
    check "it is named, and what to do" \
        grep -q "$META is missing: fsck.varjfs --restore puts the newest checkpoint in its place" "$T/varjfs.log"
done
for switch in -n -y --quick; do
    is "fsck.varjfs $switch" "$(status_of fsck.varjfs $switch "$SOURCE")" 4
    says "meta/data.mdb: it is missing"
    says "\"fsck.varjfs --restore\" takes back the newest of these checkpoints"
done
is "none is made" "$(find "$SOURCE/meta" | sort)" "$before"
: >"$META"
is "an empty one: no mount" "$(status_of try_mount_varjfs -o check=never)" 1
is "fsck.varjfs -y" "$(status_of fsck.varjfs -y "$SOURCE")" 4
is "nothing is written into it" "$(stat -c %s "$META")" 0
rm "$META"
is "it comes back" "$(status_of fsck.varjfs --restore "$SOURCE")" 1
whole "data.mdb from the checkpoint"
rm -r "$SOURCE/meta"
is "meta is missing: no mount" "$(status_of try_mount_varjfs)" 1
check "what to do" grep -q "$SOURCE/meta is missing: fsck.varjfs --restore" "$T/varjfs.log"
is "it comes back, too" "$(status_of fsck.varjfs --restore "$SOURCE")" 1
whole "meta from the checkpoint"

tap_done
