#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# A file system whose objects are on a device: made, used, filled, killed; whose device it is; and
# that root's daemon uses no device for another user.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires root
requires command losetup setpriv python3

source_in_memory
device=
drop_device()
{
    [ -z "$device" ] || losetup --detach "$device"
    device=
}
at_exit drop_device
truncate -s 96M "$T/disk"
device=$(losetup --find --show "$T/disk") || skip_all "there are no loop devices here"

check "mkfs on a device" make_fs -o "store=block:$device"
mount_varjfs
check "files are written" dd if=/dev/urandom of="$MNT/one" bs=1M count=20 conv=fsync status=none
cp "$MNT/one" "$T/one"
cp -r "$srcdir/src" "$MNT/src"
check "all is synced" varjfsctl sync "$MNT"
is "no object is a file" "$(find "$SOURCE" -type f -size +1024k -path '*objects*' | wc -l)" 0
check_fails "a second file system does not get the device" mkfs.varjfs -o "store=block:$device" "$T/two"
kill_varjfs
fsck_clean "killed"
mount_varjfs
check "what was synced is there after kill -9" cmp "$T/one" "$MNT/one"
check "and a tree" diff -rq "$srcdir/src" "$MNT/src"

# It is full before it is lost.
check_fails "more than there is" dd if=/dev/urandom of="$MNT/two" bs=1M count=100 conv=fsync status=none
rm "$MNT/two"
check "sync of a full device" varjfsctl sync "$MNT"
space_is_back()
{
    [ "$(df -k --output=avail "$MNT" | tail -1)" -gt 50000 ]
}
check "space comes back" wait_for 20 space_is_back
check "and is written again" dd if=/dev/urandom of="$MNT/three" bs=1M count=40 conv=fsync status=none
cp "$MNT/three" "$T/three"
umount_varjfs
mount_varjfs
check "as it was after a mount" cmp "$T/three" "$MNT/three"
umount_varjfs
fsck_clean "filled and emptied"

# As udev does, which looks at what was written.
flock --shared "$device" sleep 1 &
looks=$!
check "who looks at the device for a moment is waited for" try_mount_varjfs
wait "$looks"
umount_varjfs

# Others.
check_fails "mkfs refuses a device that has objects" mkfs.varjfs -o "store=block:$device" "$T/three-source"
# shellcheck disable=SC2154 # check_fails sets it
has_reason()
{
    mkfs.varjfs -o "store=block:$device" "$T/four-source" 2>&1 | grep -q "holds objects of the volume"
}
check "and says whose they are" has_reason
dd if=/dev/zero of="$device" bs=4096 count=1 conv=notrunc status=none
mount_varjfs
check "a lost first superblock is nothing" cmp "$T/three" "$MNT/three"
umount_varjfs
is "it has been written anew" "$(head -c 8 "$device")" varjfsBK

# Whoever writes SOURCE chooses the device: root's daemon opens his own alone.
chown -R 70001 "$SOURCE"
check_fails "root's device is not opened for another user" try_mount_varjfs
check_fails "nor looked at by fsck" fsck.varjfs -n "$SOURCE"
chown -R 0 "$SOURCE"
mount_varjfs
check "for root it is" cmp "$T/three" "$MNT/three"
umount_varjfs

# A copy of SOURCE has the same device; the one that is mounted first has it alone.
cp -a "$SOURCE" "$T/copy"
SOURCE=$T/copy mount_varjfs
check "a copy is mounted" cmp "$T/three" "$MNT/three"
rm "$MNT/three"
dd if=/dev/urandom of="$MNT/of-the-copy" bs=1M count=75 conv=fsync status=none
kill_varjfs
check_fails "then the original is refused" try_mount_varjfs
check "with the reason" grep -q "used with another copy of these metadata" "$T/varjfs.log"
check_fails "also to be read" try_mount_varjfs -o ro
check_fails "also by fsck" fsck.varjfs -n "$SOURCE"
SOURCE=$T/copy mount_varjfs
check "the copy goes on, killed or not" test -s "$MNT/of-the-copy"
umount_varjfs
cp -a "$T/copy" "$T/copy2"
fsck.varjfs -y "$SOURCE" >"$T/fsck.log" 2>&1
is "a repair of the original takes the device" "$(grep -c "another copy of the metadata has used it" "$T/fsck.log")" 1
check "and says what is lost" grep -q three "$T/fsck.log"
fsck_clean "taken over"
mount_varjfs
check "what was not overwritten is there" diff -rq "$srcdir/src" "$MNT/src"
cp "$T/three" "$MNT/three"
umount_varjfs
rm -r "$T/copy"
original=$SOURCE
SOURCE=$T/copy2
check_fails "then the copy is refused" try_mount_varjfs
SOURCE=$original
mount_varjfs
check "the original is as it was" cmp "$T/three" "$MNT/three"
umount_varjfs

# It becomes longer, and shorter.
blocks_of_df()
{
    df -k --output=size "$MNT" | tail -1
}
truncate -s 160M "$T/disk"
losetup --set-capacity "$device"
mount_varjfs
is "what the device has gained is used" "$(($(blocks_of_df) > 150000))" 1
check "to its end" dd if=/dev/urandom of="$MNT/four" bs=1M count=70 conv=fsync status=none
check "beside what was there" cmp "$T/three" "$MNT/three"
umount_varjfs
fsck_clean "longer than before"
mount_varjfs
store_says()
{
    varjfsctl store status --json "$MNT" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}
is "store status: driver" "$(store_says store)" block
is "store status: kind" "$(store_says kind)" device
is "store status: size" "$(store_says size_bytes)" $((160 << 20))
is "there is nothing to gain" "$(varjfsctl store grow --json "$MNT")" '{"gained_bytes": 0}'
truncate -s 224M "$T/disk"
losetup --set-capacity "$device"
is "what it gains while mounted is used" "$(varjfsctl store grow --json "$MNT")" "{\"gained_bytes\": $((64 << 20))}"
is "store status: size after that" "$(store_says size_bytes)" $((224 << 20))
check "to its end" dd if=/dev/urandom of="$MNT/five" bs=1M count=60 conv=fsync status=none
cp "$MNT/five" "$T/five"
kill_varjfs
mount_varjfs
check "after a kill too" cmp "$T/five" "$MNT/five"
check "beside what was there" cmp "$T/three" "$MNT/three"
umount_varjfs
fsck_clean "grown while it was mounted"
drop_device
device=$(losetup --find --show --sizelimit 67108864 "$T/disk")
if grep -q "block:$device" "$SOURCE/varjfs.conf"; then
    check_fails "a device that has become shorter is refused" try_mount_varjfs
else
    skip "a device that has become shorter is refused" "the loop device has another name now"
fi
tap_done
