#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# A volume file from mkfs to umount, over nodes on this machine: two that are asked over unix sockets, and one
# over TCP with a key.  Who else may use the volume, what a mount survives, what a failed mkfs leaves.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires command setpriv flock python3
requires_fuse
requires program varjfsd fsck.varjfs umount.fuse.varjfs varjfsctl

# ---- nodes

# node_begin NAME LISTEN [LINE...]: a node that has a volume "lab", with LINEs in its section
node_begin()
{
    local name=$1 listen=$2
    shift 2
    mkdir -p "$T/$name.d"
    {
        printf '[node]\n%s\nlog = %s\n[volume lab]\ndirectory = %s\n' "$listen" "$T/$name.log" "$T/$name.d"
        printf '%s\n' "$@"
    } >"$T/$name.conf"
    node_start "$name"
}

node_start()
{
    varjfsd -c "$T/$1.conf" >>"$T/$1.out" 2>&1 &
    echo $! >"$T/$1.pid"
    wait_for 20 node_listens "$1" || {
        fail "node $1 listens" "$(cat "$T/$1.out" "$T/$1.log" 2>/dev/null)"
        exit 1
    }
}

# By a connection: the file of a socket may be one of a node that was killed.
node_listens()
{
    python3 - "$(sed -n 's/^listen[a-z_]* = //p' "$T/$1.conf")" <<'END' 2>/dev/null
import socket, sys
at = sys.argv[1]
if at.startswith("unix:"):
    s = socket.socket(socket.AF_UNIX)
    s.connect(at[5:])
else:
    host, port = at.rsplit(":", 1)
    socket.create_connection((host, int(port)), 5)
END
}

# node_stop NAME [SIGNAL]
node_stop()
{
    kill "-${2:-TERM}" "$(cat "$T/$1.pid")"
    wait_for 40 process_gone "$(cat "$T/$1.pid")" || {
        fail "node $1 ends" "$(cat "$T/$1.log")"
        exit 1
    }
}

nodes_end()
{
    local p
    for p in "$T"/*.pid; do
        [ ! -e "$p" ] || kill -KILL "$(cat "$p")" 2>/dev/null
    done
    wait
}
at_exit nodes_end

# refused NAME STATUS PATTERN COMMAND [ARG...]: in one line, which has PATTERN
refused()
{
    local name=$1 wanted=$2 pattern=$3
    shift 3
    is "$name: status" "$(status_of "$@")" "$wanted"
    check "$name: it says why" grep -e "$pattern" "$T/err" || note "$(cat "$T/err")"
}

a=unix:$T/a.sock b=unix:$T/b.sock
node_begin a "listen_insecure = $a"
node_begin b "listen_insecure = $b"
mkdir "$T/etc" "$MNT"
SOURCE=$T/etc/lab.conf
both=meta=remote:$a:insecure,volume=lab,store=remote:$a,$b:replicas=2,insecure,volume=lab

# ---- mkfs.varjfs

# Commas of a spec as they are; and as in a line of another option's value.
is "mkfs" "$(status_of mkfs.varjfs -o "$both,label=one" "$SOURCE")" 0
is "its mode, and nothing beside it" "$(stat -c %a "$SOURCE"; ls -A "$T/etc")" "600
lab.conf"
is "the specs" "$(sed -n 's/^\(meta\|store\|label\) = //p' "$SOURCE")" "one
remote:$a,$b:replicas=2,insecure,volume=lab
remote:$a:insecure,volume=lab"
fsck_clean "a new volume"
refused "mkfs again" 1 "is a volume file already; -f" mkfs.varjfs -o "$both" "$SOURCE"
refused "mkfs by another name" 1 "" mkfs.varjfs -o "$both" "$T/etc/two.conf"
is "nothing is left of that" "$(ls -A "$T/etc")" lab.conf
fsck_clean "the volume is as it was"
old=$(grep ^uuid "$SOURCE")
escaped=${both//,/\\,}
is "mkfs -f, with escapes, in two -o" "$(status_of mkfs.varjfs -f -o "${escaped%%\\,store*}" \
    -o "store${escaped##*\\,store}" "$SOURCE")" 0
is "it is another volume" "$([ "$(grep ^uuid "$SOURCE")" = "$old" ]; echo $?)" 1
fsck_clean "it is empty"

# ---- a mount

cp -p "$SOURCE" "$T/copy.conf"
mount_varjfs -o lease=3
is "the device is the volume file" "$(findmnt -no SOURCE "$MNT")" "$SOURCE"
is "df names it too" "$(df --output=source "$MNT" | tail -n 1)" "$SOURCE"
head -c 3000000 /dev/urandom >"$T/data"
cp "$T/data" "$MNT/data" && cp "$T/data" "$MNT/copy" && mkdir "$MNT/dir" && echo small >"$MNT/dir/small"
check "sync" varjfsctl sync "$MNT"
# shellcheck disable=SC2016 # for that shell
check "stats" sh -c 'varjfsctl stats "$1" | grep "^store_puts .*[1-9]"' sh "$MNT"
is "objects are at both nodes" "$(for n in a b; do [ -n "$(find "$T/$n.d" -path '*objects*' -type f -size +60k)" ]; echo $?; done)" "0
0"
refused "a second mount of the file" 1 "in use by another varjfs process" varjfs "$SOURCE" "$T/etc"
refused "fsck of it" 8 "in use by another varjfs process" fsck.varjfs "$SOURCE"
refused "mkfs of it, by force" 1 "in use by another varjfs process" mkfs.varjfs -f -o "$both" "$SOURCE"
# shellcheck disable=SC2119 # a name of its own
refused "a mount by a copy: the holder's name" 1 "in use by varjfs\\[$(daemon_pid)\\] on $(hostname), " varjfs "$T/copy.conf" "$T/etc"
refused "fsck by a copy" 8 "in use by varjfs\\[$(daemon_pid)\\] on $(hostname), " fsck.varjfs "$T/copy.conf"
if [ "$(id -u)" = 0 ]; then
    check "remount,ro" varjfs -o remount,ro "$SOURCE" "$MNT"
    refused "no writing then" 1 "Read-only" touch "$MNT/new"
    check "remount,rw" varjfs -o remount,rw "$SOURCE" "$MNT"
    check "writing again" touch "$MNT/new"
fi
check "umount" umount.fuse.varjfs "$MNT"
check "it returns when the file is free" flock -n "$SOURCE" true
fsck_clean "after umount"
is "fsck -y" "$(status_of fsck.varjfs -y "$SOURCE")" 0
mount_varjfs
check "the content is there" cmp "$T/data" "$MNT/data"
check "of the copy too" cmp "$T/data" "$MNT/copy"
is "small files" "$(cat "$MNT/dir/small")" small

# ---- nodes that go, and a daemon that is killed

node_stop a
echo while >"$MNT/while" &
writer=$!
node_start a
check "a call waits for the node" wait $writer
check "a node was started again" varjfsctl sync "$MNT"
node_stop a KILL
node_start a
echo after >"$MNT/after"
check "a node was killed" varjfsctl sync "$MNT"
node_stop b KILL
echo without >"$MNT/without" && cp "$T/data" "$MNT/data2"
check "one of two replicas is away" varjfsctl sync "$MNT"
node_start b
kill_varjfs
mount_varjfs
is "what was durable is there" "$(cat "$MNT/while" "$MNT/after" "$MNT/without")" "while
after
without"
check "content too" cmp "$T/data" "$MNT/data2"
umount_varjfs
fsck_clean "after a daemon that was killed"
is "fsck -p does not look" "$(status_of fsck.varjfs -p "$SOURCE"; grep -c elsewhere "$T/out")" "0
1"

# ---- options

refused "lease=1" 2 "lease" varjfs -o lease=1 "$SOURCE" "$MNT"
mount_varjfs -o ro
check "read only" cmp "$T/data" "$MNT/data"
refused "no writing" 1 "Read-only" touch "$MNT/new"
umount_varjfs

# ---- a mkfs that fails

node_stop b
node_stop a
rm -rf "$T/a.d" "$T/b.d"
mkdir "$T/b.d"
mkdir "$T/a.d"
other=$T/etc/other.conf
short=${both//volume=lab/volume=lab,timeout=1}
refused "no node is there" 1 "no answer" mkfs.varjfs -o "$short" "$other"
is "it leaves nothing" "$(ls -A "$T/etc")" lab.conf
node_start a
refused "one of two nodes is there" 1 "." mkfs.varjfs -o "$short" "$other"
check "it says what stays" grep "other.conf.making stays" "$T/err"
is "no volume file" "$(ls -A "$T/etc")" "lab.conf
other.conf.making"
uuid=$(grep ^uuid "$T/etc/other.conf.making")
node_start b
is "the next one takes the places without -f" "$(status_of mkfs.varjfs -o "$both" "$other")" 0
is "with the same uuid" "$(grep ^uuid "$other")" "$uuid"
is "nothing else stays" "$(ls -A "$T/etc")" "lab.conf
other.conf"
refused "the old volume file" 1 "." varjfs "$SOURCE" "$MNT"
SOURCE=$other
mount_varjfs
cp "$T/data" "$MNT/data"
umount_varjfs
fsck_clean "the new one"

# ---- one of the two drivers here

node_stop a
node_stop b
rm -rf "$T/a.d" "$T/b.d"
mkdir "$T/b.d" "$T/a.d"
node_start a
node_start b
SOURCE=$T/objects-elsewhere
check "objects elsewhere, metadata here" mkfs.varjfs -o "store=remote:$a:insecure,volume=lab" "$SOURCE"
mount_varjfs
cp "$T/data" "$MNT/data"
# shellcheck disable=SC2119 # without options
remount_varjfs
check "their content" cmp "$T/data" "$MNT/data"
check "their node gets a second one beside it" varjfsctl node add "$MNT" "$b"
check "varjfs.conf has it" grep -q "^store = remote:$a,$b:" "$SOURCE/varjfs.conf"
check "a node is drained" varjfsctl node drain "$MNT" "$a"
check "and removed" varjfsctl node remove "$MNT" "$a"
node_stop a
check "the content without it" cmp "$T/data" "$MNT/data"
# shellcheck disable=SC2119 # without options
remount_varjfs
check "the content without it, mounted again" cmp "$T/data" "$MNT/data"
umount_varjfs
fsck_clean "their fsck"
node_stop b
rm -rf "$T/a.d" "$T/b.d"
mkdir "$T/b.d" "$T/a.d"
node_start a
node_start b
SOURCE=$T/metadata-elsewhere
check "metadata elsewhere, objects here" mkfs.varjfs -o "meta=remote:$b:insecure,volume=lab" "$SOURCE"
mount_varjfs
cp "$T/data" "$MNT/data"
# shellcheck disable=SC2119 # without options
remount_varjfs
check "the content" cmp "$T/data" "$MNT/data"
umount_varjfs
fsck_clean "the fsck"

# ---- a key, over TCP

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
check "a key" varjfsctl keygen "$T/etc/lab.key"
node_begin c "listen = 127.0.0.1:$port" "key = $T/etc/lab.key"
SOURCE=$T/etc/secret.conf
at=localhost:$port:key=lab.key,volume=lab,timeout=3
cd "$T" || exit 1
check "mkfs, from another directory" mkfs.varjfs -o "meta=remote:$at,store=remote:$at" etc/secret.conf
mount_varjfs
cp "$T/data" "$MNT/data"
node_stop c
node_start c
echo again >"$MNT/again"
check "the name is looked up again, in the sandbox" varjfsctl sync "$MNT"
umount_varjfs
fsck_clean "with a key"
cp "$T/etc/lab.key" "$T/key"
for mode in 640 604 660; do
    chmod $mode "$T/etc/lab.key"
    refused "a key with mode $mode" 1 "lab.key: has mode 0$mode" varjfs "$SOURCE" "$MNT"
done
chmod 600 "$T/etc/lab.key"
rm "$T/etc/lab.key"
refused "no key" 1 "lab.key" varjfs "$SOURCE" "$MNT"
varjfsctl keygen "$T/etc/lab.key"
refused "a wrong key" 1 "." varjfs "$SOURCE" "$MNT"
mv "$T/key" "$T/etc/lab.key"
ln -s "$SOURCE" "$T/link.conf"
SOURCE=$T/link.conf
mount_varjfs
check "by a link the key is beside the file" cmp "$T/data" "$MNT/data"
umount_varjfs

# ---- mount(8), fstab and umount(8)

node_stop c
SOURCE=$T/etc/lab.conf
rm "$SOURCE"
check "a volume for mount(8)" mkfs.varjfs -f -o "$both" "$SOURCE"
if can_own_namespace; then
    cat >"$T/commands" <<-END
	set -eu
	PATH=$builddir:\$PATH
	cd '$T/etc'
	mount -t fuse.varjfs lab.conf '$MNT'
	[ "\$(findmnt -no SOURCE '$MNT')" = '$SOURCE' ]
	cp '$T/data' '$MNT/data'
	mount -o remount,ro '$MNT'
	! touch '$MNT/no' 2>/dev/null
	umount '$MNT'
	flock -n '$SOURCE' true
	echo '$SOURCE $MNT fuse.varjfs defaults,_netdev,lease=10 0 0' >'$T/fstab'
	mount -T '$T/fstab' '$MNT'
	cmp '$T/data' '$MNT/data'
	umount '$MNT'
	flock -n '$SOURCE' true
	mount -T '$T/fstab' -a
	findmnt -no VFS-OPTIONS '$MNT' | grep -v nosuid
	umount '$MNT'
	chown nobody '$SOURCE'
	mount -t fuse.varjfs '$SOURCE' '$MNT'
	findmnt -no VFS-OPTIONS '$MNT' | grep nosuid,nodev
	umount '$MNT'
	END
    check "as people type it" as_installed bash -e "$T/commands"
else
    skip "as people type it" "needs root and a mount namespace"
fi

tap_done
