#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# Callers in user namespaces: whoever makes one has all capabilities there, and none here.  What a
# change of content takes away goes, trusted attributes stay hidden, and a caller whom the daemon
# cannot look up has no privileges.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires command python3 setpriv unshare nsenter setfattr setfacl getfacl
# shellcheck disable=SC2154 # tap.sh sets builddir
library=$builddir/.libs/librwrite.so
requires program .libs/librwrite.so

user()
{
    # Programs in root's own directories are root's alone.
    setpriv --reuid=70001 --regid=70001 --clear-groups env PATH=/usr/bin:/bin "$@"
}

# With a mapping of one user, which needs no helper.
contained()
{
    user unshare -U --map-root-user "$@"
}

contained true 2>/dev/null || skip_all "users may not make user namespaces here"
chmod 755 "$T"
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other,suid
head -c 8000 /dev/urandom >"$T/content"
cp "$T/content" "$MNT/other"
chmod 644 "$MNT/other"
# shellcheck disable=SC2154 # tap.sh sets srcdir
cp "$srcdir/tests/mount/namespaces.py" "$T/change.py"
cp "$library" "$T/"
chmod 755 "$T/librwrite.so"
export LIBRARY=$T/librwrite.so OTHER=$MNT/other

# changed MODE GROUP WHO OPERATION: the mode of such a file of root's after the change.
changed()
{
    local file=$MNT/file
    rm -f "$file"
    cp "$T/content" "$file"
    chgrp "$2" "$file"
    chmod "$1" "$file"
    if "$3" python3 "$T/change.py" "$4" "$file" >"$T/why" 2>&1; then
        stat -c %a "$file"
    else
        tail -n 1 "$T/why"
    fi
}

root()
{
    "$@"
}

operations=$(python3 "$T/change.py")
check "there are operations" test "$(wc -w <<<"$operations")" -gt 5
for operation in $operations; do
    is "$operation: a user takes set-id bits away" "$(changed 6777 70010 user "$operation")" 777
    is "$operation: so does root of a user namespace" "$(changed 6777 70010 contained "$operation")" 777
    is "$operation: root does not" "$(changed 6777 70010 root "$operation")" 6777
done
for operation in write truncate ftruncate open-trunc rpwrite-insert rpwrite-delete; do
    is "$operation: set-group-ID that nobody executes, of a group of others" \
        "$(changed 2767 70010 contained "$operation")" 767
    is "$operation: with set-user-ID beside it" "$(changed 6767 70010 contained "$operation")" 767
    is "$operation: of the caller's group" "$(changed 2767 70001 contained "$operation")" 2767
done

# ---- owners and modes

cp "$T/content" "$MNT/own"
chown 70001:70001 "$MNT/own"
chmod 6767 "$MNT/own"
contained chown 0:0 "$MNT/own"
is "chown takes set-user-ID away" "$(stat -c %a:%u "$MNT/own")" 2767:70001
chgrp 70010 "$MNT/own"
chmod 2767 "$MNT/own"
contained setfacl -m u:0:rwx "$MNT/own"
is "setfacl takes the set-group-ID of another group away" "$(stat -c %a "$MNT/own")" 777

# Root maps two groups into the namespace: what belongs to them is in the hands of root there.
touch "$T/there"
chmod 666 "$T/there"
user unshare -U sh -c "echo \$\$ >'$T/there'; exec sleep 1000" &
wait_for 10 test -s "$T/there"
sleeper=$(cat "$T/there")
at_exit kill "$sleeper"
echo "0 70001 1" >"/proc/$sleeper/uid_map"
printf '0 70001 1\n1 70010 1\n' >"$T/map"
cat "$T/map" >"/proc/$sleeper/gid_map" # by one write(2)
inside()
{
    nsenter -t "$sleeper" -U -S 0 -G 0 setpriv --clear-groups "$@"
}
is "the mapping" "$(inside sh -c 'id -u; id -g' | tr '\n' ' ')" "0 0 "
chmod 767 "$MNT/own"
inside chmod 2767 "$MNT/own"
is "chmod g+s by a root who has the group" "$(stat -c %a "$MNT/own")" 2767
chgrp 70011 "$MNT/own"
chmod 767 "$MNT/own"
inside chmod 2767 "$MNT/own"
is "chmod g+s by one who has not" "$(stat -c %a "$MNT/own")" 767

# ---- trusted attributes

names()
{
    "$@" python3 -c 'import os, sys; print(*sorted(os.listxattr(sys.argv[1])))' "$MNT/other"
}
setfattr -n trusted.secret -v 1 "$MNT/other"
setfattr -n user.open -v 1 "$MNT/other"
chmod 666 "$MNT/other"
is "root sees trusted attributes" "$(names root)" "trusted.secret user.open"
is "a user does not" "$(names user)" user.open
is "nor does root of a user namespace" "$(names contained)" user.open
check_fails "who cannot read one" contained getfattr -n trusted.secret "$MNT/other"
check_fails "nor set one" contained setfattr -n trusted.more -v 1 "$MNT/other"
check "but set others" contained setfattr -n user.more -v 1 "$MNT/other"

# ---- what is for root

collects()
{
    "$@" python3 -c '
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
version = fcntl.ioctl(fd, 0x9604)
try:
    fcntl.ioctl(fd, 0xC0C09607, struct.pack("II184x", version, 1))
except PermissionError:
    print("EPERM")' "$MNT/other"
}
is "root may collect garbage" "$(collects root 2>&1)" ""
is "root of a user namespace may not" "$(collects contained 2>&1)" EPERM

# ---- a caller whom the daemon has no number for

umount_varjfs
unshare -p -f varjfs -f "$SOURCE" "$MNT" -o allow_other,suid >"$T/log" 2>&1 &
wait_for 30 is_mounted "$MNT"
is "root outside the daemon's process namespace: an edit" "$(changed 4777 70010 root rpwrite-insert)" 777
is "and a write, of which the kernel says who makes it" "$(changed 4777 70010 root write)" 4777
is "trusted attributes stay hidden" "$(names root)" "user.more user.open"

umount_varjfs

tap_done
