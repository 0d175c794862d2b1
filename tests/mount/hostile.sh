#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# What somebody else prepared: a SOURCE with links, fifos and devices where files belong, names
# and options that look like something else, a mount table that names any directory.  Nothing
# outside is read, written or waited for; each refusal is one line.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program fsck.varjfs umount.fuse.varjfs mount.fuse.varjfs

# The command fails, in time, with one line on standard error that begins with its name.
refused()
{
    local name=$1 status=0 lines
    shift
    timeout 60 "$@" >"$T/out" 2>"$T/err" </dev/null || status=$?
    lines=$(wc -l <"$T/err")
    if [ $status != 0 ] && [ $status != 124 ] && [ $status -lt 126 ] && [ "$lines" = 1 ] &&
        grep -q "^[a-z.]*varjfs: " "$T/err"; then
        pass "$name"
    else
        fail "$name" "status $status, $lines lines: $(cat "$T/err")"
    fi
}

victim_is_untouched()
{
    is "$1: a file outside is as it was" "$(stat -c '%s %a' "$T/victim") $(cat "$T/victim")" "7 600 secret"
}

new_source()
{
    rm -rf "$SOURCE"
    # shellcheck disable=SC2119 # without options
    make_fs
}

printf 'secret\n' >"$T/victim"
chmod 600 "$T/victim"
mkdir "$MNT"

# ---- names inside SOURCE

for what in meta/data.mdb varjfs.conf objects/format; do
    for kind in link fifo directory; do
        new_source
        rm -f "$SOURCE/$what"
        case $kind in
        link) ln -s "$T/victim" "$SOURCE/$what" ;;
        fifo) mkfifo "$SOURCE/$what" ;;
        directory) mkdir "$SOURCE/$what" ;;
        esac
        refused "$what is a $kind: mount" varjfs "$SOURCE" "$MNT"
        refused "$what is a $kind: mount -o ro" varjfs "$SOURCE" "$MNT" -o ro
        refused "$what is a $kind: fsck -n" fsck.varjfs -n "$SOURCE"
        refused "$what is a $kind: mkfs" mkfs.varjfs "$SOURCE"
    done
    victim_is_untouched "$what is a link"
done
for what in meta objects; do
    new_source
    mkdir "$T/elsewhere"
    mv "$SOURCE/$what" "$T/elsewhere"
    ln -s "$T/elsewhere/$what" "$SOURCE/$what"
    refused "$what is a link: mount" varjfs "$SOURCE" "$MNT"
    refused "$what is a link: fsck -y" fsck.varjfs -y "$SOURCE"
    refused "$what is a link: mkfs -f" mkfs.varjfs -f "$SOURCE"
    check "$what is a link: what it leads to is still there" \
        [ -n "$(find "$T/elsewhere/$what" -type f)" ]
    rm -rf "$T/elsewhere"
done
is "nothing was mounted" "$(mount_points_below "$T")" ""

# LMDB opens what this name leads to: it leads to memory of the process, or away.
for name in lmdb/lock.mdb lmdb/data.mdb lock.mdb; do
    for kind in link fifo file; do
        new_source
        rm -f "$SOURCE/meta/$name"
        case $kind in
        link) ln -s "$T/victim" "$SOURCE/meta/$name" ;;
        fifo) mkfifo "$SOURCE/meta/$name" ;;
        file) printf 'no table of readers' >"$SOURCE/meta/$name" ;;
        esac
        check "meta/$name is a $kind: fsck -n" fsck.varjfs -n "$SOURCE"
        mount_varjfs
        check "meta/$name is a $kind: it is mounted and takes a file" sh -c "echo x >'$MNT/x' && sync '$MNT/x'"
        umount_varjfs
        is "meta/$name is a $kind: what is there then" \
            "$(cd "$SOURCE/meta" && find . \( -name lock.mdb -o -path './lmdb/*' \) -printf '%p %l\n' | sort)" \
            "./lmdb/data.mdb ../data.mdb
./lmdb/lock.mdb /proc/self/fd/200"
    done
    victim_is_untouched "meta/$name is a link"
done
for kind in link file; do
    new_source
    rm -r "$SOURCE/meta/lmdb"
    mkdir "$T/elsewhere"
    case $kind in
    link) ln -s "$T/elsewhere" "$SOURCE/meta/lmdb" ;;
    file) touch "$SOURCE/meta/lmdb" ;;
    esac
    refused "meta/lmdb is a $kind: mount" varjfs "$SOURCE" "$MNT"
    is "meta/lmdb is a $kind: nothing was made elsewhere" "$(ls "$T/elsewhere")" ""
    rmdir "$T/elsewhere"
done
new_source
rm "$SOURCE/meta/lmdb/lock.mdb"
mkdir "$SOURCE/meta/lmdb/lock.mdb"
refused "meta/lmdb/lock.mdb is a directory: mount" varjfs "$SOURCE" "$MNT"

# ---- names and options on command lines

new_source
line=$'first\nvarjfs: forged: line'
refused "a line break in SOURCE" varjfs "$T/$line" "$MNT"
refused "a line break in MOUNTPOINT" varjfs "$SOURCE" "$T/$line"
refused "a line break in an option" varjfs "$SOURCE" "$MNT" -o "$line"
refused "a line break in a value" varjfs "$SOURCE" "$MNT" -o "log=$T/$line/log"
refused "a line break in SOURCE: fsck" fsck.varjfs -n "$T/$line"
refused "a line break in MOUNTPOINT: umount" umount.fuse.varjfs "$T/$line"

cd "$T" || exit 1
odd="$T/a, b=c\\d e\"f'g\$(touch ran)\`touch ran\`"$'\n-o suid\tx'
mkdir "$odd"
SOURCE=$odd/source
# shellcheck disable=SC2119 # without options
make_fs
mkdir "$odd/mnt"
check "an odd SOURCE and MOUNTPOINT" varjfs "$SOURCE" "$odd/mnt"
touch "$odd/mnt/file"
case ,$(findmnt -nro OPTIONS -M "$odd/mnt"), in
*,suid,*) fail "no option comes out of a name" ;;
*) pass "no option comes out of a name" ;;
esac
is "the device is SOURCE" "$(python3 - "$odd/mnt" <<'END'
import re, sys
for line in open("/proc/self/mountinfo"):
    fields = line.split(" ")
    plain = lambda t: re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), t)
    if plain(fields[4]) == sys.argv[1]:
        print(plain(fields[fields.index("-") + 2]))
END
)" "$SOURCE"
check "umount.fuse.varjfs takes it down" umount.fuse.varjfs "$odd/mnt"
check "and has waited" flock -n "$SOURCE" true
check "nothing ran" [ ! -e "$T/ran" ]
SOURCE=$T/source

mkdir ./-o ./-osuid
cp -a "$SOURCE/." ./-o
# shellcheck disable=SC2154 # tap.sh sets builddir
sed "s|exec \"[^\"]*/varjfs\"|exec \"$builddir/varjfs\"|" "$builddir/mount.fuse.varjfs" >"$T/helper"
check "the helper: names that begin with a dash" sh "$T/helper" -o -osuid -o rw,noatime
check "they are mounted" is_mounted "$T/-osuid"
cd / || exit 1
unmount "$T/-osuid"
refused "the helper: options are one word" sh "$T/helper" "$SOURCE" "$MNT" -o "rw,x y;touch ran"
check "nothing ran by the helper" [ ! -e "$T/ran" ]

# ---- the log

ln -s "$T/victim" "$T/log-link"
mkfifo "$T/log-fifo"
for kind in link fifo; do
    refused "log= is a $kind" varjfs "$SOURCE" "$MNT" -o "log=$T/log-$kind"
done
refused "log= is a directory" varjfs "$SOURCE" "$MNT" -o "log=$T"
refused "log= is a directory with a slash" varjfs "$SOURCE" "$MNT" -o "log=$T/"
victim_is_untouched "log= is a link"

# A line in varjfs.conf, and nobody could mount any more.
new_source
mkdir "$T/dir"
ln -s "$SOURCE" "$T/source-link"
ln -s "$SOURCE/meta" "$T/dir/meta-link"
ln "$SOURCE/varjfs.conf" "$T/conf-link"
find "$SOURCE" -type f -exec sha256sum {} + | sort >"$T/sums"
for file in "$SOURCE/varjfs.conf" "$SOURCE/meta/data.mdb" "$SOURCE/new" "$SOURCE/objects/new" \
    "$T/source-link/varjfs.conf" "$T/dir/meta-link/new" "$T/dir/meta-link/../varjfs.conf" \
    "$T/dir/../source/new" "$T/conf-link"; do
    refused "log=${file#"$T/"} is refused" varjfs "$SOURCE" "$MNT" -o "log=$file"
    check "log=${file#"$T/"}: it is said why" grep -q "log .*: cannot open: it .*file system" "$T/err"
done
is "nothing was written there" "$(find "$SOURCE" -type f -exec sha256sum {} + | sort)" "$(cat "$T/sums")"
check "log= beside SOURCE is taken" varjfs "$SOURCE" "$MNT" -o "log=$T/source-log"
unmount "$MNT"
wait_for 60 flock -n "$SOURCE" true
rm "$T/conf-link"
if can_own_namespace; then
    # shellcheck disable=SC2016 # the other shell's arguments
    refused "log= in a bind mount of a part of SOURCE" \
        "$T/own-namespace" sh -c 'mount --bind "$1/objects" "$2" && exec varjfs "$1" "$3" -o "log=$2/new"' \
        sh "$SOURCE" "$T/dir" "$MNT"
fi

# ---- what the other programs give up before they look

new_source
mkfifo "$T/release"
flock "$SOURCE" sh -c ": >'$T/locked'; read -r word <'$T/release'" &
wait_for 60 [ -e "$T/locked" ]
fsck.varjfs -n "$SOURCE" >"$T/out" 2>&1 &
checker=$!
child_of()
{
    tr -d ' ' <"/proc/$checker/task/$checker/children"
}
# shellcheck disable=SC2317 # called by wait_for
is_confined()
{
    grep -q '^NoNewPrivs:.*1$' "/proc/$(child_of)/status"
}
wait_for 60 is_confined
# DAC_OVERRIDE, DAC_READ_SEARCH and FOWNER, of those that we have: a container may lack some.
kept=$(printf '%016x' $((0x$(awk '/^CapPrm:/ { print $2 }' /proc/self/status) & 0xe)))
is "fsck.varjfs has no privileges but those for other users' files" \
    "$(awk '/^(CapEff|CapPrm|NoNewPrivs):/ { print $2 }' "/proc/$(child_of)/status" | xargs)" "$kept $kept 1"
if grep -q '^Seccomp:.*2' "/proc/$(child_of)/status"; then
    pass "and not all system calls"
else
    skip "and not all system calls" "not in a build with a sanitizer"
fi
echo go >"$T/release"
status=0
wait "$checker" || status=$?
is "and does its work" "$status" 0
if [ "$(id -u)" = 0 ]; then
    # What it may not read it would take for lost: it looks at more than the owners of the first levels.
    mount_varjfs
    head -c 300000 /dev/urandom >"$MNT/large"
    umount_varjfs
    find "$SOURCE/objects" -name '*.*' -type f -exec chown 65534 {} + -exec chmod 600 {} +
    check "an object that is another user's is whole for root" fsck.varjfs -y "$SOURCE"
    check "mkfs.varjfs makes a file system" mkfs.varjfs "$T/foreign"
    mkdir -p "$T/foreign/objects/00/00"
    touch "$T/foreign/objects/00/00/file"
    chown 65534 "$T/foreign/objects/00/00"
    chmod 700 "$T/foreign/objects/00/00"
    check "and removes what is another user's" mkfs.varjfs -f "$T/foreign"
fi
check "without it as well" fsck.varjfs --sandbox=off -n "$SOURCE"
check_fails "fsck.varjfs --sandbox: a wrong word" fsck.varjfs --sandbox=on -n "$SOURCE"
check_fails "mkfs.varjfs --sandbox: a wrong word" mkfs.varjfs --sandbox=on "$T/none"
check_fails "nothing was made then" [ -e "$T/none" ]
if command -v strace >/dev/null && strace -o "$T/strace" true 2>/dev/null; then
    check "mkfs.varjfs makes one" strace -f -o "$T/strace" mkfs.varjfs "$T/made"
    is "it gives up privileges before it looks" \
        "$(grep -oE 'PR_SET_NO_NEW_PRIVS|flock\(' "$T/strace" | head -n 1)" PR_SET_NO_NEW_PRIVS
    check "mkfs.varjfs --sandbox=off does not" strace -f -o "$T/strace" mkfs.varjfs --sandbox=off "$T/made2"
    check_fails "it keeps them" grep -q PR_SET_NO_NEW_PRIVS "$T/strace"
else
    skip "mkfs.varjfs gives up privileges" "there is no strace that works"
fi

# ---- a mount table that others wrote

# umount -a runs umount.fuse.varjfs as root for a mount whose user chose type and device.
released()
{
    local name=$1 status=0
    timeout 60 umount.fuse.varjfs "$MNT" >"$T/out" 2>&1 || status=$?
    is "$name: it ends" "$((status < 2))" 1
    is "$name: it is unmounted" "$(mount_points_below "$T")" ""
}
pretend()
{
    exec 6<>/dev/fuse
    mount -i -t fuse.varjfs "$1" "$MNT" -o fd=6,rootmode=40000,user_id=0,group_id=0
    exec 6>&-
}
if [ "$(id -u)" = 0 ]; then
    mkdir "$T/theirs"
    if pretend "$T/theirs" 2>"$T/err"; then
        released "a device that is any directory"
        is "nothing was made there" "$(ls -A "$T/theirs")" ""
        mkfifo "$T/theirs/varjfs.lock"
        pretend "$T/theirs"
        released "a device with a fifo for a lock"
        rm "$T/theirs/varjfs.lock"
        ln -s "$T/victim" "$T/theirs/varjfs.lock"
        pretend "$T/theirs"
        released "a device with a link for a lock"
    else
        skip "a mount table that others wrote" "$(cat "$T/err")"
    fi
fi
victim_is_untouched "at the end"
tap_done
