#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Mount options that say what programs may do: ro, remount, nosuid, nodev, noexec.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires program tests/posix/suite
requires command setpriv
# shellcheck disable=SC2154 # tap.sh sets builddir
suite=$builddir/tests/posix/suite
chmod 755 "$T"

read_only_checks()
{
    "$suite" -R "$MNT" >"$T/lines" 2>&1 || {
        grep -A1 "^not ok" "$T/lines" | head -n 40
        return 1
    }
}

writes()
{
    echo text >"$MNT/new" && rm "$MNT/new"
}

as_user()
{
    setpriv --reuid 70001 --regid 70001 --clear-groups "$@"
}

# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other,suid,dev
check "a tree to look at" "$suite" -p "$MNT"
cp /usr/bin/id "$MNT/id"
chmod 4755 "$MNT/id"
chown 70002 "$MNT/id"
chmod 4755 "$MNT/id"
cp /bin/true "$MNT/true"
mknod -m 666 "$MNT/null" c 1 3

note "suid, dev, exec"
is "a set-user-ID program" "$(as_user "$MNT/id" -u)" 70002
check "a device" as_user sh -c "echo x >'$MNT/null'"
check "remount,nosuid" mount -i -o remount,nosuid,dev "$MNT"
is "a set-user-ID program with nosuid" "$(as_user "$MNT/id" -u)" 70001
check "remount,nodev" mount -i -o remount,nodev,suid "$MNT"
check_fails "a device with nodev" as_user sh -c "echo x >'$MNT/null'"
is "its owner sees what it is" "$(stat -c %t:%T "$MNT/null")" 1:3
check "remount,noexec" mount -i -o remount,noexec "$MNT"
check "a program with noexec" sh -c "! '$MNT/true' 2>/dev/null"
check "remount,exec,suid,dev" mount -i -o remount,exec,suid,dev "$MNT"
check "a program" "$MNT/true"
is "a set-user-ID program again" "$(as_user "$MNT/id" -u)" 70002

note "remount,ro and rw"
exec 9>"$MNT/open"
check_fails "remount,ro with a file open for writing" mount -i -o remount,ro "$MNT"
check "and writing goes on" writes
exec 9>&-
check "remount,ro" mount -i -o remount,ro "$MNT"
check "what may and what may not" read_only_checks
note "$(tail -n 1 "$T/lines")"
check_fails "writing" writes
check "remount,rw" mount -i -o remount,rw "$MNT"
check "writing" writes
umount_varjfs

note "mounted with ro"
mount_varjfs -o allow_other,suid,dev,ro
check "what may and what may not" read_only_checks
check_fails "writing" writes
is "a set-user-ID program" "$(as_user "$MNT/id" -u)" 70002
is "df" "$(df --output=target "$MNT" | tail -n 1)" "$MNT"
umount_varjfs

note "mounted without suid and dev, as for ordinary users"
mount_varjfs -o allow_other,nosuid,nodev
is "a set-user-ID program" "$(as_user "$MNT/id" -u)" 70001
check_fails "a device" as_user sh -c "echo x >'$MNT/null'"
umount_varjfs
fsck_clean "after everything"
tap_done
