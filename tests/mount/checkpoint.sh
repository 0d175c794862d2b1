#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Checkpoints: when they are made, that they go, and that what they bring back is whole.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program mkfs.varjfs fsck.varjfs varjfsctl
[ "$(id -u)" = 0 ] || skip_all "varjfsctl checkpoint is root's"

META="$SOURCE/meta/data.mdb"

checkpoints()
{
    find "$SOURCE/checkpoints" -type f -name '2*Z' -printf '%f\n' 2>/dev/null | sort
}

# The first pages of the metadata become noise: nothing in them can be read.
wreck()
{
    dd if=/dev/urandom of="$META" bs=4096 count=8 conv=notrunc status=none
}

# Everything that can be read in a tree, and for the rest that it cannot.
sums()
{
    (cd "$1" && find . -type f ! -path './lost+found/*' -printf '%P\n' | sort |
        while IFS= read -r f; do
            if sum=$(sha256sum 2>/dev/null <"$f"); then
                echo "$f ${sum%% *}"
            else
                echo "$f cannot be read"
            fi
        done)
}

make_fs -o objects=16K
mount_varjfs
mkdir "$MNT/dir"
for i in 1 2 3 4; do
    head -c 300000 /dev/urandom >"$MNT/dir/large$i"
    echo "small $i" >"$MNT/small$i"
done
is "none while it is young" "$(checkpoints)" ""
umount_varjfs
first=$(checkpoints)
is "the end of the first mount makes one" "$(wc -w <<<"$first")" 1
mount_varjfs
echo more >"$MNT/more"
umount_varjfs
is "the next one does not: it is a day young" "$(checkpoints)" "$first"
mount_varjfs
is "on demand" "$(status_of varjfsctl checkpoint "$MNT")" 0
is "there are two" "$(checkpoints | wc -l)" 2
is "and again" "$(status_of varjfsctl checkpoint --json "$MNT")" 0
is "there are two still" "$(checkpoints | wc -l)" 2
check_fails "the oldest is gone" test -e "$SOURCE/checkpoints/$first"
sums "$MNT" >"$T/at-checkpoint"
newest=$(checkpoints | tail -1)

# Changed since: what stays, what is written anew, what is new, what goes.
head -c 100000 /dev/urandom >"$MNT/dir/large2"
rm "$MNT/dir/large3"
head -c 200000 /dev/urandom >"$MNT/new"
varjfsctl sync "$MNT"
varjfsctl gc "$MNT" >"$T/gc.log"
umount_varjfs
is "before the damage" "$(status_of fsck.varjfs -n "$SOURCE")" 0

# One that fails before it changes anything leaves the volume as it is.
is "a restore without room" "$(status_of bash -c "ulimit -f 100 && exec fsck.varjfs --restore '$SOURCE'")" 8
is "it is as it was" "$(status_of fsck.varjfs -n "$SOURCE")" 0
check "and can be mounted" try_mount_varjfs
umount_varjfs

wreck
is "the mount refuses" "$(status_of try_mount_varjfs)" 1
is "fsck.varjfs finds it" "$(status_of fsck.varjfs -y "$SOURCE")" 4
check "and says how to go on" grep -q "fsck.varjfs --restore" "$T/out"
check "and from what" grep -q "^  $newest, [0-9]* KiB$" "$T/out"
is "a checkpoint that is none" "$(status_of fsck.varjfs --restore --checkpoint=x "$SOURCE")" 8
is "a checkpoint without a restore" "$(status_of fsck.varjfs --checkpoint=x "$SOURCE")" 2

is "the restore" "$(status_of fsck.varjfs --restore "$SOURCE")" 1
cp "$T/out" "$T/restore.log"
check "says which one" grep -q "checkpoint $newest; what was there is meta/data.mdb.damaged-" \
    "$T/restore.log"
check "names what was written anew" grep -q "/dir/large2" "$T/restore.log"
check "names what was removed" grep -q "/dir/large3" "$T/restore.log"
check_fails "and nothing else" grep -q "/dir/large[14]\|/small\|/more" "$T/restore.log"
is "the damaged file is kept" "$(find "$SOURCE/meta" -name 'data.mdb.damaged-*' | wc -l)" 1
check_fails "it is over" test -e "$SOURCE/varjfs.restoring"
check "nothing is wrong but leftovers" test "$(status_of fsck.varjfs -y "$SOURCE")" -le 1
is "then it is clean" "$(status_of fsck.varjfs -n "$SOURCE")" 0

mount_varjfs
sums "$MNT" >"$T/restored"
sed 's#^\(dir/large[23]\) .*#\1 cannot be read#' "$T/at-checkpoint" >"$T/expected"
is "what it was, or an error" "$(cat "$T/restored")" "$(cat "$T/expected")"
# Equal content is stored afresh: the index knows nothing of what is gone.
for i in 1 2 3 4; do
    head -c 300000 /dev/urandom >"$T/again$i"
    cp "$T/again$i" "$MNT/dir/large$i"
    cp "$T/again$i" "$MNT/dir/copy$i"
done
umount_varjfs
mount_varjfs
for i in 1 2 3 4; do
    check "written anew, number $i" cmp -s "$T/again$i" "$MNT/dir/large$i"
    check "and its copy" cmp -s "$T/again$i" "$MNT/dir/copy$i"
done
umount_varjfs
is "clean after all that" "$(status_of fsck.varjfs -n "$SOURCE")" 0

# A restore that was cut off is begun again; a damaged checkpoint is passed over.
touch "$SOURCE/varjfs.restoring"
is "a cut-off restore keeps mounts out" "$(status_of try_mount_varjfs)" 1
check "and says so" grep -q "a restore of its metadata was cut off" "$T/varjfs.log"
mapfile -t names < <(checkpoints)
printf 'x' | dd of="$SOURCE/checkpoints/${names[1]}" bs=1 seek=5000 conv=notrunc status=none
is "the damaged one is named" \
    "$(status_of fsck.varjfs --restore "--checkpoint=${names[1]}" "$SOURCE")" 8
is "the older one is taken" "$(status_of fsck.varjfs --restore "$SOURCE")" 1
check "and told" grep -q "checkpoint ${names[0]};" "$T/out"
check "leftovers go" test "$(status_of fsck.varjfs -y "$SOURCE")" -le 1
is "clean again" "$(status_of fsck.varjfs -n "$SOURCE")" 0

# Cut off when the checkpoint was in place: what was there is kept once, and stays what it was.
# shellcheck disable=SC2046 # names without spaces
rm -f $(find "$SOURCE/meta" -name 'data.mdb.damaged-*')
dd if=/dev/urandom of="$SOURCE/meta/data.mdb" bs=4096 seek=2 count=20 conv=notrunc status=none
cp "$SOURCE/meta/data.mdb" "$T/damaged"
mv "$SOURCE/objects/format" "$T/format"
is "a restore that does not end" "$(status_of fsck.varjfs --restore "$SOURCE")" 8
mv "$T/format" "$SOURCE/objects/format"
check "is marked" [ -e "$SOURCE/varjfs.restoring" ]
kept=$(find "$SOURCE/meta" -name 'data.mdb.damaged-*' -printf '%f')
is "the next one ends" "$(status_of fsck.varjfs --restore "$SOURCE")" 1
if [ "$(stat -c %W "$SOURCE/meta/data.mdb")" -gt 0 ] 2>/dev/null; then
    check "names what the first one kept" grep -q "what was there is meta/$kept\$" "$T/out"
    is "that alone is kept" "$(find "$SOURCE/meta" -name 'data.mdb.damaged-*' -printf '%f')" "$kept"
else
    skip "the first one is kept alone" "this file system does not tell when a file was made"
fi
check "and is what it was" cmp "$SOURCE/meta/$kept" "$T/damaged"
check "it is over then" [ ! -e "$SOURCE/varjfs.restoring" ]
# Metadata that somebody put there meanwhile are not half a restore.
cp "$SOURCE/meta/data.mdb" "$T/good"
printf "%s" "$kept 1-1.000000000" >"$SOURCE/varjfs.restoring"
before=$(find "$SOURCE/meta" -name 'data.mdb.damaged-*' | wc -l)
is "others' metadata are kept" "$(status_of fsck.varjfs --restore "$SOURCE"; find "$SOURCE/meta" -name 'data.mdb.damaged-*' | wc -l)" "1
$((before + 1))"
check "leftovers go again" test "$(status_of fsck.varjfs -y "$SOURCE")" -le 1

# In the background, and never.
rm -r "$SOURCE/checkpoints"
mount_varjfs -o checkpoint=1
some() { [ "$(checkpoints | wc -l)" -ge 1 ]; }
check "made while it is mounted" wait_for 60 some
umount_varjfs
rm -r "$SOURCE/checkpoints"
mount_varjfs -o checkpoint=0
umount_varjfs
is "never" "$(checkpoints)" ""
is "mkfs.varjfs takes it all away" "$(status_of mkfs.varjfs -f "$SOURCE"; ls "$SOURCE")" "0
meta
objects
varjfs.conf"

tap_done
