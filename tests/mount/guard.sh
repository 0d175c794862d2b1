#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# A killed daemon leaves nobody waiting, and the guard that sees to it leaves nothing behind.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3
[ -d /sys/fs/fuse/connections/ ] || skip_all "there is no fusectl"
# shellcheck disable=SC2119 # without options
make_fs
mkdir "$T/hold"
export VJ_HOLD=$T/hold

# Processes whose parent is $1 and whose name is the guard's.
guard_of()
{
    local p
    cat "/proc/$1/task/"*/children | tr ' ' '\n' | while IFS= read -r p; do
        [ -z "$p" ] || [ "$(cat "/proc/$p/comm")" != varjfs-guard ] || echo "$p"
    done
}

mount_varjfs
daemon=$(daemon_pid)
guard=$(guard_of "$daemon")
check "there is a guard" [ -n "$guard" ]
[ -e "/sys/fs/fuse/connections/$(stat -c %d "$MNT")/abort" ] || skip_all "fusectl is not mounted"
is "it holds two pipes, a signal and the way to end the connection" \
    "$(readlink "/proc/$guard/fd/"* | sed 's/:.*//; s|/[0-9]*/|/N/|' | xargs)" \
    "pipe pipe anon_inode /sys/fs/fuse/connections/N/abort"
is "it is in nobody's way" "$(readlink "/proc/$guard/cwd")" /

# What the daemon has of seccomp; a build with a sanitizer has nothing.
seccomp_of()
{
    awk '/^Seccomp:/ { print $2 }' "/proc/$1/status"
}
filter=$(seccomp_of "$daemon")
if [ "$filter" != 2 ]; then
    skip "it has a filter of system calls" "neither has the daemon"
elif [ "$(id -u)" = 0 ]; then
    is "it has a filter of system calls" "$(seccomp_of "$guard") $(awk '/^NoNewPrivs:/ { print $2 }' "/proc/$guard/status")" "2 1"
else
    is "it has no filter, as it is to run fusermount3" "$(seccomp_of "$guard")" 0
fi

# Whoever speaks in the daemon's name does not get it to end other connections, or to mount again.
asked()
{
    python3 - "$guard" "$@" <<'END'
import os, struct, sys
to = os.open("/proc/%s/fd/0" % sys.argv[1], os.O_WRONLY)
answers = os.open("/proc/%s/fd/1" % sys.argv[1], os.O_RDONLY)
os.write(to, struct.pack("iI", int(sys.argv[2]), int(sys.argv[3])))
print(os.strerror(struct.unpack_from("i", os.read(answers, 4096))[0]))
END
}
# shellcheck disable=SC2119 # without options
MNT=$T/mnt2 SOURCE=$T/two make_fs
MNT=$T/mnt2 SOURCE=$T/two mount_varjfs
is "it takes no other connection" "$(asked 2 "$(stat -c %d "$T/mnt2")")" "Operation not permitted"
is "nor the same again" "$(asked 2 "$(stat -c %d "$MNT")")" "Operation not permitted"
is "nor another mount" "$(asked 0 0)" "Operation not permitted"
is "what it watches is as it was" "$(readlink "/proc/$guard/fd/3" | sed 's|/[0-9]*/|/N/|')" \
    "/sys/fs/fuse/connections/N/abort"
MNT=$T/mnt2 SOURCE=$T/two umount_varjfs

umount_varjfs
check "it ends with the daemon" process_gone "$guard"

# Somebody else has mounted, and hands over the connection: the guard needs no privileges at all.
if [ "$(id -u)" = 0 ]; then
    exec 6<>/dev/fuse
    mount -i -t fuse.varjfs "$SOURCE" "$MNT" -o fd=6,rootmode=40000,user_id=0,group_id=0
    check "a connection of somebody else" varjfs "$SOURCE" /dev/fd/6
    exec 6>&-
    guard=$(guard_of "$(MNT=/dev/fd/6 daemon_pid)")
    check "it is served" touch "$MNT/file"
    is "its guard has no privileges" \
        "$(awk '/^(CapEff|CapPrm|NoNewPrivs):/ { print $2 }' "/proc/$guard/status" | xargs)" \
        "0000000000000000 0000000000000000 1"
    is "nor all system calls" "$(seccomp_of "$guard")" "$filter"
    check "it watches" [ -e "/proc/$guard/fd/3" ]
    check "unmounted" unmount "$MNT"
    check "its guard ends" wait_for 60 process_gone "$guard"
else
    skip "a connection of somebody else" "needs root"
fi

# For debuggers: no filter, neither there nor here.
mount_varjfs -o sandbox=off
daemon=$(daemon_pid)
is "sandbox=off: no filters" "$(seccomp_of "$daemon") $(seccomp_of "$(guard_of "$daemon")")" "0 0"
umount_varjfs

# More than once: where the daemon's threads are at that moment differs.
for round in 1 2 3; do
    VARJFS_TEST_DELAY="hold=$VJ_HOLD" mount_varjfs
    daemon=$(daemon_pid)
    guard=$(guard_of "$daemon")
    # The mapped page is lost, which close(2) reports.
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    is "kill $round: all users come back" \
        "$(timeout --kill-after=5 100 python3 "$srcdir/tests/mount/guard.py" "$MNT/file" "$daemon" 2>&1 |
            sed 's/ECONNABORTED/ENOTCONN/' | xargs)" \
        "close: EIO edit: ENOTCONN open: ENOTCONN read: ENOTCONN write: ENOTCONN"
    check "kill $round: the daemon is gone" wait_for 20 process_gone "$daemon"
    check "kill $round: the guard too" wait_for 20 process_gone "$guard"
    check "kill $round: plain umount" unmount "$MNT"
    mount_varjfs
    check "kill $round: mounts again" touch "$MNT/file"
    umount_varjfs
    fsck_clean "kill $round"
done

# A guard that is late does not end the connection that has got the number since.
mount_varjfs
daemon=$(daemon_pid)
guard=$(guard_of "$daemon")
device=$(stat -c %d "$MNT")
kill -STOP "$guard"
kill -KILL "$daemon"
check "nobody waits: it ends without the guard" wait_for 20 process_gone "$daemon"
unmount "$MNT"
mount_varjfs
note "device $device, then $(stat -c %d "$MNT")"
kill -CONT "$guard"
check "the late guard ends" wait_for 20 process_gone "$guard"
check "the new mount lives" touch "$MNT/new"
umount_varjfs

# Without it, somebody is told.
if can_own_namespace; then
    cat >"$T/in-namespace" <<-END
	umount -i /sys/fs/fuse/connections || exit 1
	varjfs "$SOURCE" "$MNT" -o log="$T/log" || exit 2
	touch "$MNT/without" || exit 3
	umount -i "$MNT" || exit 4
	END
    check "a mount where fusectl is not" "$T/own-namespace" sh "$T/in-namespace"
    is "is told of in the log, once" "$(grep -c 'umount -f may be needed' "$T/log")" 1
else
    skip "a mount where fusectl is not" "needs root and unshare"
fi
tap_done
