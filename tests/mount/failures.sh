#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Each way in which a mount can fail, for real: status, and exactly one line "varjfs: what: why".

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program tests/mount/reseal
# shellcheck disable=SC2154 # tap.sh sets builddir
reseal=$builddir/tests/mount/reseal

# fails NAME STATUS TEXT COMMAND...: TEXT is a regular expression for all behind "varjfs: ".
fails()
{
    local name=$1 wanted=$2 text=$3 status=0
    shift 3
    timeout 120 "$@" >"$T/out" 2>"$T/err" </dev/null || status=$?
    if [ $status = "$wanted" ] && [ "$(wc -l <"$T/err")" = 1 ] && [ ! -s "$T/out" ] &&
        grep -qE "^varjfs: $text\$" "$T/err"; then
        pass "$name"
    else
        fail "$name" "status $status, expected $wanted: $text
$(cat "$T/out" "$T/err")"
    fi
    [ $status != 0 ] || ! is_mounted "$MNT" || umount_varjfs
}
mount_fails()
{
    local name=$1 text=$2
    shift 2
    fails "$name" 1 "$text" varjfs "$SOURCE" "$MNT" "$@"
}
usage_fails()
{
    local name=$1 text=$2
    shift 2
    fails "$name" 2 "$text \\(varjfs --help shows the usage\\)" varjfs "$@"
}
new_source()
{
    rm -rf "$SOURCE"
    # shellcheck disable=SC2119 # without options
    make_fs
}
edit_conf()
{
    sed -i "$1" "$SOURCE/varjfs.conf"
    "$reseal" "$SOURCE/varjfs.conf"
}

mkdir "$MNT"
new_source
mkfs.varjfs "$T/other" || exit 1

# ---- the command line

usage_fails "no arguments" "SOURCE and MOUNTPOINT: missing"
usage_fails "one argument" "MOUNTPOINT: missing" "$SOURCE"
usage_fails "three arguments" "$T: one argument too many" "$SOURCE" "$MNT" "$T"
usage_fails "an unknown switch" "-x: unknown option" -x "$SOURCE" "$MNT"
usage_fails "-o without options" "-o: options are missing" "$SOURCE" "$MNT" -o
usage_fails "an unknown option" '-o: .*sparkling.*' "$SOURCE" "$MNT" -o sparkling
usage_fails "a value for a flag" '-o: .*allow_other.*' "$SOURCE" "$MNT" -o allow_other=maybe
usage_fails "a bad size" '-o: .*cache.*lots.* is not a size.*' "$SOURCE" "$MNT" -o cache=lots
usage_fails "a size that is too small" '-o: .*dirty.*below the least.*' "$SOURCE" "$MNT" -o dirty=1M
usage_fails "a number that is too large" '-o: .*workers.*above the most.*' "$SOURCE" "$MNT" -o workers=1000
usage_fails "an unknown choice" '-o: .*sandbox.*is not one of auto\|off' "$SOURCE" "$MNT" -o sandbox=perhaps
usage_fails "an unknown transformation" '-o: .*rot13.*' "$SOURCE" "$MNT" -o transform=rot13
mount_fails "log= in a directory that is missing" "log $T/none/log: cannot open: No such file or directory" \
    -o "log=$T/none/log"

# ---- where from, where to

touch "$T/file"
fails "SOURCE is missing" 1 "$T/none: No such file or directory" varjfs "$T/none" "$MNT"
fails "SOURCE is a file" 1 "$T/file: it has no line \"format\"" varjfs "$T/file" "$MNT"
fails "SOURCE is no file system" 1 "$MNT holds no varjfs file system \\(no varjfs.conf\\)" varjfs "$MNT" "$MNT"
fails "MOUNTPOINT is missing" 1 "$T/none: No such file or directory" varjfs "$SOURCE" "$T/none"
fails "MOUNTPOINT is a file" 1 "$T/file: Not a directory" varjfs "$SOURCE" "$T/file"
mkdir "$T/mnt2"
mount_varjfs
fails "SOURCE is mounted" 1 "$SOURCE is in use by another varjfs process" varjfs "$SOURCE" "$T/mnt2"
umount_varjfs

# ---- the superblock

edit_conf 's/^format = .*/format = 99/'
mount_fails "a newer format" "$SOURCE/varjfs.conf: format 99 is newer than this program, which knows format 2"
edit_conf 's/^format = .*/format = 1/'
mount_fails "an older format" "$SOURCE/varjfs.conf: format 1 was never released: copy the files, with the development version that made it, to a volume of format 2"
new_source
sed -i 's/^format = .*/format = 98/' "$SOURCE/varjfs.conf"
mount_fails "a digit of the format" "$SOURCE/varjfs.conf: its format line is damaged; fsck.varjfs -y looks for a copy of it"
new_source
sed -i 's/^label = .*/label = x/' "$SOURCE/varjfs.conf"
mount_fails "an edited superblock" "$SOURCE/varjfs.conf: its checksum is wrong: it was damaged or edited; fsck.varjfs -y looks for a copy of it"
: >"$SOURCE/varjfs.conf"
mount_fails "an empty superblock" "$SOURCE/varjfs.conf: it has no line \"format\"; fsck.varjfs -y looks for a copy of it"
head -c 3000 /dev/zero >"$SOURCE/varjfs.conf"
mount_fails "a superblock of zeroes" "$SOURCE/varjfs.conf: it is not text; fsck.varjfs -y looks for a copy of it"
head -c 3000000 /dev/zero | tr '\0' x >"$SOURCE/varjfs.conf"
mount_fails "a superblock that is too long" "$SOURCE/varjfs.conf: longer than [0-9]+ bytes; fsck.varjfs -y looks for a copy of it"
new_source
edit_conf 's/^hash = .*/hash = md5/'
mount_fails "an unknown digest" "$SOURCE/varjfs.conf: unknown digest \"md5\"; fsck.varjfs -y looks for a copy of it"
if mkfs.varjfs -o hash=blake3 "$T/blake3" 2>"$T/err"; then
    skip "a digest that is not built in" "all are built in"
else
    edit_conf 's/^hash = .*/hash = blake3/'
    mount_fails "a digest that is not built in" "$SOURCE/varjfs.conf: its digest blake3 is not built into this program"
fi
new_source
edit_conf 's/^chunker = .*/chunker = fastcdc/'
mount_fails "a chunker that is not built in" "$SOURCE/varjfs.conf: its chunker fastcdc is not built into this program"
new_source
edit_conf 's/^transform = .*/transform = rot13/'
mount_fails "a transformation that is not built in" "$SOURCE/varjfs.conf: .*rot13.*"
new_source
edit_conf '/^seed = /a tiers = 2'
mount_fails "a key of a newer version" "$SOURCE/varjfs.conf: \"tiers\" is of a newer version than this program"
new_source
edit_conf 's/^store = .*/store = floppy/'
mount_fails "an unknown store" ".*floppy.*"
new_source
edit_conf 's/^meta = .*/meta = cards/'
mount_fails "an unknown metadata engine" ".*cards.*"

# ---- metadata and objects

new_source
rm -r "$SOURCE/meta"
mount_fails "no metadata" "$SOURCE/meta is missing: fsck.varjfs --restore puts the newest checkpoint in its place"
new_source
rm "$SOURCE/meta/data.mdb"
mount_fails "no metadata file" "$SOURCE/meta/data.mdb is missing: fsck.varjfs --restore puts the newest checkpoint in its place"
new_source
size=$(stat -c %s "$SOURCE/meta/data.mdb")
head -c "$size" /dev/zero | tr '\0' x >"$SOURCE/meta/data.mdb"
mount_fails "metadata that are none" "$SOURCE: the metadata are damaged \\(.*\\); see fsck.varjfs\\(8\\)"
new_source
truncate -s 4096 "$SOURCE/meta/data.mdb"
mount_fails "metadata without their end" "$SOURCE: the metadata are damaged \\(.* ends .*\\); see fsck.varjfs\\(8\\)"
new_source
cp "$T/other/meta/data.mdb" "$SOURCE/meta/data.mdb"
mount_fails "another file system's metadata" ".*$SOURCE/meta.*"
new_source
rm -r "$SOURCE/objects"
mount_fails "no objects" "$SOURCE/objects: No such file or directory"
new_source
rm "$SOURCE/objects/format"
mount_fails "objects that are none" ".*$SOURCE/objects holds no objects of ours: it has no file \"format\""
new_source
cp "$T/other/objects/format" "$SOURCE/objects/format"
mount_fails "another file system's objects" \
    ".*$SOURCE/objects: these objects belong to the volume [0-9a-f-]+, not to [0-9a-f-]+"

# ---- what root can arrange in a mount namespace of its own

if can_own_namespace; then
    new_source
    # in-namespace ARRANGEMENT COMMAND...
    cat >"$T/in-namespace" <<-'END'
	eval "$1" >/dev/null 2>&1 || { echo 'cannot arrange it'; exit 99; }
	shift
	exec "$@"
	END
    in_namespace="$T/own-namespace sh $T/in-namespace"
    # shellcheck disable=SC2086 # a command and its words
    fails "/dev/fuse may not be opened" 1 \
        "/dev/fuse: Permission denied \\(whoever mounts has to read and write it\\)" \
        $in_namespace "mount -t tmpfs -o nodev none '$T/mnt2' && mknod '$T/mnt2/fuse' c 10 229 &&
            mount --bind '$T/mnt2/fuse' /dev/fuse && mount -o remount,bind,nodev /dev/fuse" \
        varjfs "$SOURCE" "$MNT"
    # shellcheck disable=SC2086 # a command and its words
    fails "there is no /dev/fuse" 1 \
        "/dev/fuse: No such file or directory \\(the kernel has no FUSE here: modprobe fuse\\)" \
        $in_namespace "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3" varjfs "$SOURCE" "$MNT"
    # shellcheck disable=SC2086 # a command and its words
    fails "SOURCE cannot be written" 1 "$SOURCE.*: Read-only file system" \
        $in_namespace "mount --bind '$SOURCE' '$SOURCE' && mount -o remount,bind,ro '$SOURCE'" \
        varjfs "$SOURCE" "$MNT"
    # shellcheck disable=SC2086 # a command and its words
    fails "nor can that of somebody else" 1 "$SOURCE.*: Read-only file system" \
        $in_namespace "chown -R nobody '$SOURCE' && mount --bind '$SOURCE' '$SOURCE' && mount -o remount,bind,ro '$SOURCE'" \
        varjfs "$SOURCE" "$MNT"
    chown -R 0 "$SOURCE"
    cat >"$T/full" <<-END
	mount -t tmpfs -o size=40M none "$T/mnt2" && cp -a "$SOURCE" "$T/mnt2/" || exit 99
	head -c 60000000 /dev/zero >"$T/mnt2/fill" 2>"$T/fill.err"
	varjfs "$T/mnt2/source" "$MNT"
	status=\$?
	# What cannot be set aside need not keep it from being mounted.
	[ \$status != 0 ] || { touch "$MNT/file" 2>"$T/touch.err"; umount -i "$MNT"; }
	exit \$status
	END
    status=0
    timeout 120 "$T/own-namespace" sh "$T/full" >"$T/out" 2>"$T/err" || status=$?
    is "no space: it mounts, or says so in one line" \
        "$([ $status = 0 ] || { [ $status = 1 ] && [ "$(grep -c '^varjfs: .*No space left' "$T/err")" = "$(wc -l <"$T/err")" ]; } &&
            echo yes)" yes
fi
new_source
check "after all that: it mounts" try_mount_varjfs
umount_varjfs
tap_done
