#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Access control lists, extended attributes and file capabilities with the programs that people use,
# across copies, remounts, a kill and a full device.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires command getfacl setfacl getfattr setfattr setcap getcap rsync tar python3 setpriv
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other,suid,dev
chmod 755 "$T"

user()
{
    setpriv --reuid=70001 --regid=70001 --clear-groups "$@"
}

# Everything that a tree's attributes say, without its place.
facts()
{
    local name
    (cd "$1" && find . | LC_ALL=C sort | while read -r name; do
        find "$name" -maxdepth 0 -printf '%p %m %U %G %s %l\n'
        [ -L "$name" ] || getfacl -n -p "$name"
        # Long values as their checksums.
        getfattr -h -d -m - "$name" | while read -r value; do
            [ ${#value} -lt 200 ] || value="${value%%=*} $(md5sum <<<"$value")"
            printf '%s\n' "$value"
        done
    done)
}

# ---- a tree with a bit of everything, and its copies

mkdir "$MNT/tree"
cd "$MNT/tree" || exit 1
setfacl -d -m u:70001:rwx,g:70010:rx,m::rwx,o::- .
mkdir sub
(umask 077 && echo inherited >sub/inherited && mkdir sub/deeper)
echo plain >plain
setfacl -b -k plain
setfacl -m u:70002:rw,g:70010:- plain
chmod 640 plain
mkfifo fifo
setfacl -m u:70002:r fifo
ln -s plain link
cp /bin/true program
setcap cap_net_raw+ep program
chown -R 70001:70010 sub
chmod g+s sub
setfattr -n user.colour -v red plain
setfattr -n trusted.origin -v here plain
setfattr -n trusted.link -v yes -h link
setfattr -n user.dir -v "$(printf 'x%.0s' {1..3000})" sub
head -c 65536 /dev/urandom >"$T/big"
python3 -c 'import os, sys; os.setxattr("sub/inherited", "user.big", open(sys.argv[1], "rb").read())' "$T/big"
cd "$T" || exit 1

is "what umask 077 makes below a default list" "$(stat -c %a "$MNT/tree/sub/inherited")" 660
is "its list" "$(getfacl -c -n -p "$MNT/tree/sub/inherited" | sed 's/#.*//; s/[[:space:]]*$//' | tr '\n' ' ')" \
    "user::rw- user:70001:rwx group::r-x group:70010:r-x mask::rw- other::---  "
facts "$MNT/tree" >"$T/wanted"
cp -a "$MNT/tree" "$MNT/copied"
facts "$MNT/copied" >"$T/got"
check "cp -a" diff "$T/wanted" "$T/got"
rsync -aHAX "$MNT/tree/" "$MNT/synced/"
facts "$MNT/synced" >"$T/got"
check "rsync -aHAX" diff "$T/wanted" "$T/got"
is "rsync finds nothing more to do" "$(rsync -aHAXi "$MNT/tree/" "$MNT/synced/")" ""
tar -C "$MNT/tree" --acls --xattrs --xattrs-include='*' -cf "$T/tree.tar" .
mkdir "$MNT/unpacked"
tar -C "$MNT/unpacked" --acls --xattrs --xattrs-include='*' -xpf "$T/tree.tar"
facts "$MNT/unpacked" >"$T/got"
check "tar --acls --xattrs" diff "$T/wanted" "$T/got"
getfacl -R -p "$MNT/tree" >"$T/saved"
setfacl -R -b "$MNT/tree"
is "setfacl -R -b leaves nothing" "$(getfacl -R -s -p "$MNT/tree")" ""
setfacl --restore="$T/saved"
facts "$MNT/tree" >"$T/got"
check "setfacl --restore" diff "$T/wanted" "$T/got"

# ---- who is let in

check_fails "nobody else reads" user cat "$MNT/tree/plain"
check "a named user reads" user cat "$MNT/tree/sub/inherited"
chmod g=- "$MNT/tree/sub/inherited"
chown 0 "$MNT/tree/sub/inherited"
check_fails "the mask closes" user cat "$MNT/tree/sub/inherited"
setfacl -m m::rwx "$MNT/tree/sub/inherited"
check "and opens" user cat "$MNT/tree/sub/inherited"
chmod g=rw "$MNT/tree/sub/inherited"
chown 70001 "$MNT/tree/sub/inherited"
user getfattr -d -m - "$MNT/tree/plain" >"$T/got" 2>&1
check_fails "trusted attributes are not shown to users" grep trusted "$T/got"

# ---- remount, kill

facts "$MNT/tree" >"$T/wanted"
remount_varjfs -o allow_other,suid,dev
facts "$MNT/tree" >"$T/got"
check "after a remount" diff "$T/wanted" "$T/got"
check "a value of 64 KiB after a remount" python3 -c '
import os, sys
assert os.getxattr(sys.argv[1], "user.big") == open(sys.argv[2], "rb").read()' "$MNT/tree/sub/inherited" "$T/big"
setfacl -m u:70009:rwx "$MNT/tree/plain"
setfattr -n user.last -v "before the kill" "$MNT/tree/plain"
varjfsctl sync "$MNT"
facts "$MNT/tree" >"$T/wanted"
kill_varjfs
mount_varjfs -o allow_other,suid,dev
facts "$MNT/tree" >"$T/got"
check "after a kill" diff "$T/wanted" "$T/got"

# ---- what an edit takes away

cd "$MNT/tree" || exit 1
check "a capability that works" ./program
setcap cap_net_raw+ep program
is "getcap" "$(getcap program)" "program cap_net_raw=ep"
echo hello | varjfsctl insert program 100
is "an insert by root takes the capability" "$(getcap program)" ""
setcap cap_net_raw+ep program
varjfsctl delete program 100 6
is "a deletion too" "$(getcap program)" ""
check "and the program is whole again" cmp program /bin/true
chmod 6777 program
echo hello | varjfsctl insert program 100
is "root's insert keeps set-id bits" "$(stat -c %a program)" 6777
chmod 777 "$MNT/tree"
# shellcheck disable=SC2154 # tap.sh sets builddir
echo hello | user "$builddir/varjfsctl" insert program 100
is "a user's insert takes them" "$(stat -c %a program)" 777
cd "$T" || exit 1

# ---- limits

touch "$MNT/limits"
python3 - "$MNT/limits" >"$T/acl" <<'END'
import sys
for i in range(507):
    print(f"u:{80000 + i}:rwx")
END
check "a list of 511 entries" setfacl -M "$T/acl" "$MNT/limits"
check_fails "one more is refused" setfacl -m u:90000:r "$MNT/limits"
is "and nothing changes" "$(getfacl -c -p -n "$MNT/limits" 2>/dev/null | grep -c .)" 511
check "names of 64 KiB together, then too many" python3 - "$MNT/tree/plain" <<'END'
import errno, os, sys
p = sys.argv[1]
for n in os.listxattr(p):
    if n.startswith("user."):
        os.removexattr(p, n)
left = 65536 - sum(len(n) + 1 for n in os.listxattr(p))
i = 0
while left > 0:
    n = "user.%04d" % i
    n += "n" * (min(255, left - 1) - len(n))
    if 0 < left - len(n) - 1 < 20:
        n = n[:-20]
    os.setxattr(p, n, b"%d" % i)
    left -= len(n) + 1
    i += 1
names = os.listxattr(p)
assert len([n for n in names if n.startswith("user.")]) == i, (len(names), i)
os.setxattr(p, "user.x", b"")
try:
    os.listxattr(p)
    raise AssertionError("a list of more than 64 KiB")
except OSError as e:
    assert e.errno == errno.E2BIG, e
assert os.getxattr(p, "user.0000" + "n" * 246) == b"0"
os.removexattr(p, "user.x")
assert os.listxattr(p) == names
for n in names:
    os.removexattr(p, n)
END
umount_varjfs
fsck_clean "after everything"

# ---- a full device

mkdir "$T/device"
mount -t tmpfs -o size=64m tmpfs "$T/device"
# shellcheck disable=SC2119 # without options
SOURCE=$T/device/source make_fs
# shellcheck disable=SC2119 # without options
SOURCE=$T/device/source mount_varjfs
check "attributes fill the device, and nothing is half done" python3 - "$MNT" <<'END'
import errno, os, struct, sys
mnt = sys.argv[1]
value = os.urandom(65536)
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in [
    (1, 7, 2**32 - 1), (2, 5, 70001), (4, 5, 2**32 - 1), (16, 7, 2**32 - 1), (32, 0, 2**32 - 1)])
made, full = [], False
for f in range(400):
    p = f"{mnt}/f{f}"
    try:
        os.close(os.open(p, os.O_CREAT | os.O_WRONLY, 0o640))
        made.append(p)
        for i in range(8):
            os.setxattr(p, f"user.{i}", value)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        full = True
        break
assert full, "400 times 512 KiB fit into 64 MiB"
p = made[-1]
for n in os.listxattr(p):
    assert os.getxattr(p, n) == value
refused = 0
for p in made:
    before = os.stat(p).st_mode
    try:
        os.setxattr(p, "system.posix_acl_access", acl)
        assert os.stat(p).st_mode & 0o777 == 0o770
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        assert os.stat(p).st_mode == before
        refused += 1
print(len(made), "files,", refused, "lists refused")
for p in made:
    for n in os.listxattr(p):
        os.removexattr(p, n)
    os.unlink(p)
END
check "names and attributes can be made again" python3 - "$MNT" <<'END'
import errno, os, sys, time
p = sys.argv[1] + "/again"
end = time.monotonic() + 30
while True:
    try:
        os.close(os.open(p, os.O_CREAT | os.O_WRONLY))
        for i in range(20):
            os.setxattr(p, f"user.{i}", b"x" * 65536)
        break
    except OSError as e:
        assert e.errno == errno.ENOSPC and time.monotonic() < end, e
        time.sleep(0.05)
END
# shellcheck disable=SC2119 # without options
SOURCE=$T/device/source remount_varjfs
check "after a remount too" touch "$MNT/later"
umount_varjfs
SOURCE=$T/device/source fsck_clean "the full device"
umount -i "$T/device"
tap_done
