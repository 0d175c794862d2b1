#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# chattr(1) and lsattr(1): what they show and set, what the flags keep out besides system calls (edits,
# mapped pages), and that they outlive remounts and a kill.  Call by call: tests/posix/flags.c.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires command chattr lsattr python3 rsync tar setpriv
requires program varjfsctl
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other,suid,dev
chmod 755 "$T"
cd "$MNT" || exit 1

user()
{
    setpriv --reuid=70001 --regid=70001 --clear-groups "$@"
}

# Letters alone, of files and directories.
flags()
{
    lsattr -d "$1" | sed 's/ .*//; s/-//g'
}

# ---- what is shown and set

echo content >file
is "a new file" "$(flags file)" ""
for flag in i a d A; do
    check "chattr +$flag" chattr "+$flag" file
    is "lsattr after +$flag" "$(flags file)" "$flag"
    chattr "-$flag" file
done
check "several" chattr =iadA file
is "lsattr shows them" "$(flags file)" iadA
chattr -iadA file
for flag in c C S T j s u; do
    check_fails "chattr +$flag" chattr "+$flag" file
done
check_fails "chattr -p" chattr -p 7 file
is "nothing of it stays" "$(flags file)" ""
touch mine
chown 70001 mine
check "an owner: chattr +dA" user chattr +dA mine
check_fails "an owner: chattr +i" user chattr +i mine
check_fails "an owner: chattr +a" user chattr +a mine
check_fails "another's file" user chattr +d file
check_fails "root without the capability" setpriv --bounding-set -linux_immutable chattr +i file
is "what they set" "$(flags mine) $(flags file)" "dA "

# ---- edits

printf '0123456789' >edited
chattr +i edited
insert()
{
    echo x | varjfsctl insert "$@"
}
replace()
{
    echo x | varjfsctl replace "$@"
}
check_fails "insert into an immutable file" insert edited 3
check_fails "insert at its end" insert edited 10
check_fails "delete from an immutable file" varjfsctl delete edited 3 2
check_fails "replace in an immutable file" replace edited 3 2
is "nothing happened" "$(cat edited)" 0123456789
chattr -i +a edited
check_fails "insert into an append-only file" insert edited 3
check_fails "delete from an append-only file" varjfsctl delete edited 3 2
check "append" sh -c 'printf abc >>edited'
is "appended" "$(cat edited)" 0123456789abc
cat >"$T/edits.py" <<'PY'
import ctypes, errno, os, subprocess, sys
lib = ctypes.CDLL(sys.argv[1], use_errno=True)
lib.rwrite.argtypes = lib.rpwrite.argtypes = None
size = ctypes.c_size_t

def rpwrite(fd, data, offset, old):
    r = lib.rpwrite(fd, data, size(len(data)), ctypes.c_int64(offset), size(old))
    return r if r >= 0 else errno.errorcode[ctypes.get_errno()]

def rwrite(fd, data, old):
    r = lib.rwrite(fd, data, size(len(data)), size(old))
    return r if r >= 0 else errno.errorcode[ctypes.get_errno()]

log = os.open("edited", os.O_RDWR | os.O_APPEND)
print("in an append-only file", rpwrite(log, b"in", 3, 0), rpwrite(log, b"", 3, 2), rpwrite(log, b"x", 12, 1))
print("at its end", rwrite(log, b"de", 0))
subprocess.run(["chattr", "-a", "edited"], check=True)
print("when it is none", rpwrite(log, b"IN", 3, 0))
subprocess.run(["chattr", "+i", "edited"], check=True)
print("in an open immutable file", rpwrite(log, b"in", 3, 0), rpwrite(log, b"", 3, 2), rwrite(log, b"f", 0))
PY
# shellcheck disable=SC2154 # tap.sh sets builddir
is "edits by librwrite" "$(python3 "$T/edits.py" "$builddir/.libs/librwrite.so")" \
    "in an append-only file EPERM EPERM EPERM
at its end 2
when it is none 2
in an open immutable file EPERM EPERM EPERM"
is "what they left" "$(cat edited)" 012IN3456789abcde

# ---- pages

# A page of the name is stored into before the flag comes and after it.
cat >"$T/pages.py" <<'PY'
import mmap, os, subprocess, sys
flag, how = sys.argv[1], os.O_RDWR | (os.O_APPEND if sys.argv[2] == "append" else 0)
with open("mapped", "wb") as f:
    f.write(b"." * 8192)
fd = os.open("mapped", how)
m = mmap.mmap(fd, 8192)
m[0:6] = b"before"
m[4096:4102] = b"before"
subprocess.run(["chattr", "+" + flag, "mapped"], check=True)
m[10:15] = b"after"
m[4106:4111] = b"after"
try:
    m.flush()
    print("msync succeeded")
except OSError:
    print("msync failed")
m.close()
os.close(fd)
PY
shown()
{
    local how
    for how in '' ,direct; do
        dd if=mapped bs=4096 iflag=fullblock"$how" status=none | tr -d '.'
        echo
    done
}
is "stores into an immutable file" "$(python3 "$T/pages.py" i plain)" "msync failed"
is "what was stored before is there, and no more" "$(shown)" "beforebefore
beforebefore"
chattr -i mapped
is "stores into an append-only file" "$(python3 "$T/pages.py" a append)" "msync failed"
is "likewise" "$(shown)" "beforebefore
beforebefore"
chattr -a mapped
# What is in the cache after a write that was refused.
python3 - <<'PY'
import os, subprocess
fd = os.open("cached", os.O_CREAT | os.O_RDWR)
os.write(fd, b"." * 10000)
os.pread(fd, 10000, 0)
subprocess.run(["chattr", "+i", "cached"], check=True)
for offset, size in ((0, 5), (5000, 5000), (9999, 8000)):
    try:
        os.pwrite(fd, b"x" * size, offset)
    except PermissionError:
        pass
PY
is "a refused write leaves nothing in the cache" "$(tr -d . <cached | wc -c) $(stat -c %s cached)" "0 10000"

# ---- trees

mkdir -p tree/sub tree/frozen
echo a >tree/sub/a
echo b >tree/frozen/b
chattr +dA tree
mkdir tree/sub2
echo c >tree/sub2/c
is "what is made below" "$(flags tree/sub2) $(flags tree/sub2/c)" "dA dA"
chattr +i tree/frozen tree/frozen/b
chattr +a tree/sub/a
is "chattr -R stops at nothing" "$(chattr -R +d tree/sub 2>&1; flags tree/sub/a)" ad
check "cp -a" cp -a tree copied
check "rsync -aHAX" rsync -aHAX tree/ synced/
check "tar" sh -c 'mkdir unpacked && tar -C tree --acls --xattrs -cf - . | tar -C unpacked --acls --xattrs -xpf -'
for copy in copied synced unpacked; do
    check "$copy: the same content" diff -r tree "$copy"
    is "$copy: no flags" "$(lsattr -R "$copy" | grep '^-[^ ]*[a-zA-Z][^ ]* ')" ""
done
check_fails "rm -r stops" rm -r tree
is "at what is protected" "$(cat tree/frozen/b tree/sub/a)" "b
a"
mkdir tree/sub2
echo c >tree/sub2/c

# ---- remount, kill, read only

lsattr -R tree edited cached | LC_ALL=C sort >"$T/wanted"
same()
{
    lsattr -R tree edited cached 2>&1 | LC_ALL=C sort >"$T/got"
    check "$1: the same flags" diff "$T/wanted" "$T/got"
    check_fails "$1: an immutable file" rm -f tree/frozen/b
    check_fails "$1: an append-only file" truncate -s 0 tree/sub/a
}
again()
{
    cd "$MNT" || exit 1
    same "$1"
    cd "$T" || exit 1
}
cd "$T" || exit 1
remount_varjfs -o allow_other,suid,dev
again "after a remount"
chattr +a "$MNT/tree/sub2/c"
varjfsctl sync "$MNT"
kill_varjfs
fsck_clean "after a kill"
mount_varjfs -o allow_other,suid,dev
is "after a kill: what was set last" "$(flags "$MNT/tree/sub2/c")" adA
chattr -a "$MNT/tree/sub2/c"
again "after a kill"
umount_varjfs
mount_varjfs -o ro
check_fails "on a read-only mount" chattr -i "$MNT/tree/frozen"
is "it shows them" "$(flags "$MNT/tree/frozen")" i
umount_varjfs
mount_varjfs
chattr -R -ia "$MNT/tree" "$MNT/edited" "$MNT/cached"
check "without flags all can go" rm -r "$MNT/tree" "$MNT/edited" "$MNT/cached"
umount_varjfs
fsck_clean "after everything"
tap_done
