#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Mounting and its end: options, failures, a second mount, signals, umount that waits.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
# shellcheck disable=SC2119 # without options
make_fs

# One line on stderr, the given status, nothing mounted.
refused()
{
    local name=$1 status=0 lines
    shift
    "$@" >"$T/out" 2>"$T/err" || status=$?
    lines=$(wc -l <"$T/err")
    if [ $status != 0 ] && [ "$lines" = 1 ] && grep -q "^varjfs: " "$T/err"; then
        pass "$name"
    else
        fail "$name" "status $status, $lines lines: $(cat "$T/err")"
    fi
}

mkdir -p "$MNT"
refused "no SOURCE" varjfs "$T/nothing" "$MNT"
refused "SOURCE without a file system" varjfs "$T" "$MNT"
refused "no MOUNTPOINT" varjfs "$SOURCE" "$T/nothing"
touch "$T/file"
refused "MOUNTPOINT is a file" varjfs "$SOURCE" "$T/file"

usage()
{
    local name=$1 status=0
    shift
    "$@" >"$T/out" 2>"$T/err" || status=$?
    is "$name: status" $status 2
}
usage "nothing said" varjfs
usage "one argument" varjfs "$SOURCE"
usage "three arguments" varjfs "$SOURCE" "$MNT" "$T"
usage "an unknown option" varjfs "$SOURCE" "$MNT" -x
usage "an unknown mount option" varjfs "$SOURCE" "$MNT" -o sparkling
usage "a size that is none" varjfs "$SOURCE" "$MNT" -o cache=lots
usage "a transformation that does not exist" varjfs "$SOURCE" "$MNT" -o transform=rot13
usage "a safety that does not exist" varjfs "$SOURCE" "$MNT" -o safety=disk
is "nothing was mounted" "$(mount_points_below "$T")" ""
check "--help" varjfs --help
check "--version" varjfs --version

mount_varjfs -o rw,dev,suid,noatime,x-systemd.automount,_netdev,user,nofail,commit=2,cache=8M
is "the device is SOURCE" "$(findmnt -no SOURCE "$MNT")" "$SOURCE"
is "the type is fuse.varjfs" "$(findmnt -no FSTYPE "$MNT")" fuse.varjfs
case ,$(findmnt -no OPTIONS "$MNT"), in
*,noatime,*default_permissions*) pass "noatime and default_permissions are in force" ;;
*) fail "noatime and default_permissions are in force" "$(findmnt -no OPTIONS "$MNT")" ;;
esac
mkdir "$T/second"
before=$SECONDS
refused "a second mount of the same SOURCE" varjfs "$SOURCE" "$T/second"
check "it is refused at once" [ $((SECONDS - before)) -lt 10 ]
echo one >"$MNT/file"

if [ "$(id -u)" = 0 ]; then
    check "remount,ro" mount -i -o remount,ro "$MNT"
    check_fails "no writing then" touch "$MNT/file"
    check "varjfs -o remount,rw, as mount(8) calls it" varjfs "$SOURCE" "$MNT" -o "remount,$(awk -v dir="$MNT" '$2 == dir { print $4 }' /proc/self/mounts |
            sed 's/^ro,/rw,/')"
    check "writing again" touch "$MNT/file"
    check "umount.fuse.varjfs" umount.fuse.varjfs "$MNT"
    check "SOURCE is free when it returns" flock -n "$SOURCE" true
    is "it unmounted" "$(mount_points_below "$T")" ""
else
    umount_varjfs
fi

exec 8>"$T/held"
flock 8
mount_varjfs
exec 8>&-
check "the daemon keeps no descriptor of its caller" flock -n "$T/held" true
umount_varjfs

mount_varjfs -o ro
is "what was written is there" "$(cat "$MNT/file")" one
check_fails "ro: no change" touch "$MNT/file"
check_fails "ro: no new file" touch "$MNT/new"
umount_varjfs

# A mount that comes while the last daemon still writes waits for it.
mount_varjfs
head -c 30000000 /dev/urandom >"$MNT/big"
sum=$(md5sum <"$MNT/big")
pids=$(daemon_pid)
unmount "$MNT"
mount_varjfs
is "a mount right after umount" "$(md5sum <"$MNT/big")" "$sum"
for p in $pids; do
    check "the daemon before ends" wait_for 20 process_gone "$p"
done

for signal in TERM INT HUP; do
    echo "before $signal" >"$MNT/$signal"
    exec 7<"$MNT/$signal"
    p=$(daemon_pid)
    python3 - "$MNT/mapped" $signal <<-'END'
	import mmap, os, sys
	fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
	os.ftruncate(fd, 4096)
	m = mmap.mmap(fd, 4096)
	m[:5] = b"%-5s" % sys.argv[2].encode()
	END
    kill -$signal "$p"
    check "SIG$signal: the daemon ends, though a file is open" wait_for 20 process_gone "$p"
    is "SIG$signal: nothing is mounted" "$(mount_points_below "$T")" ""
    exec 7<&-
    mount_varjfs
    is "SIG$signal: what was written is there" "$(cat "$MNT/$signal")" "before $signal"
    is "SIG$signal: what was stored in a mapping too" "$(head -c 4 "$MNT/mapped" | tr -d ' ')" \
        $signal
done

# as-typed.sh has more of it.
if can_own_namespace; then
    umount_varjfs
    cat >"$T/in-namespace" <<-END
	echo "$SOURCE $MNT fuse.varjfs rw,noatime,nofail,_netdev,x-test.option 0 0" >"$T/fstab"
	mount -T "$T/fstab" -a || exit 2
	findmnt -no OPTIONS "$MNT" | grep -q noatime || exit 3
	mknod "$MNT/null" c 1 3 && echo x >"$MNT/null" || exit 4
	mount -o remount,ro "$MNT" || exit 5
	! touch "$MNT/new" 2>/dev/null || exit 6
	mount -o remount,rw "$MNT" && touch "$MNT/new" || exit 7
	umount "$MNT" || exit 8
	END
    check "fstab, remount and umount by mount(8)" as_installed sh "$T/in-namespace"
    mount_varjfs
else
    skip "fstab, remount and umount by mount(8)" "needs root and a mount namespace"
fi

# A relative path of a log is one from where varjfs was started.
umount_varjfs
cd "$T" || exit 1
VARJFS_TEST_DELAY=fsync=1 mount_varjfs -o log=relative.log
cd / || exit 1
check "the log is where it was asked for" grep -q "fsync=1" "$T/relative.log"

# libfuse reads this variable; with its rings an edit could end in a wait that nothing ends.
umount_varjfs
if grep -qs Y /sys/module/fuse/parameters/enable_uring; then
    FUSE_URING_ENABLE=1 mount_varjfs -o sandbox=off
    is "no rings, whatever the environment says" \
        "$(cat "/proc/$(daemon_pid)/task/"*/comm | grep -c '^fuse-ring')" 0
else
    # shellcheck disable=SC2119 # without options
    mount_varjfs
    skip "no rings, whatever the environment says" "the kernel has none"
fi

# A limit of the shell on address space is lifted; sanitizers need more from the start.
umount_varjfs
big_is_whole()
{
    [ "$(md5sum <"$MNT/big")" = "$sum" ]
}
read_at_once()
{
    local p pids=()
    while [ ${#pids[@]} -lt 12 ]; do
        big_is_whole &
        pids+=($!)
    done
    for p in "${pids[@]}"; do
        wait "$p" || return 1
    done
}
if (ulimit -S -v 3000000 && varjfs --version) >"$T/out" 2>&1; then
    (
        ulimit -S -v 3000000
        mount_varjfs
    )
    check "ulimit -v: many read at once" read_at_once
    check "ulimit -v: a copy" cp "$MNT/big" "$MNT/big.copy"
    is "ulimit -v: what was copied" "$(md5sum <"$MNT/big.copy")" "$sum"
    umount_varjfs
else
    skip "ulimit -v" "this build needs more address space by itself"
fi

# In the foreground it tells its end by its status.
varjfs -f "$SOURCE" "$MNT" 2>"$T/log" &
p=$!
wait_for 20 is_mounted "$MNT"
echo fg >"$MNT/fg"
kill -TERM $p
status=0
wait $p || status=$?
is "status after SIGTERM in the foreground" $status 0
fsck_clean "at the end"

# What an unlinked file held is dropped when its last user goes, or by the next mount.
mount_varjfs
head -c 3000000 /dev/urandom >"$MNT/gone"
sync "$MNT/gone"
exec 7<"$MNT/gone"
rm "$MNT/gone"
is "an unlinked file that is open" "$(wc -c <&7)" 3000000
exec 7<&-
umount_varjfs
fsck_clean "after an unlinked file was closed"
mount_varjfs
head -c 3000000 /dev/urandom >"$MNT/gone"
sync "$MNT/gone"
exec 7<"$MNT/gone"
rm "$MNT/gone"
varjfsctl sync "$MNT"
kill_varjfs
exec 7<&-
mount_varjfs
umount_varjfs
fsck_clean "after a crash with an unlinked file"
is "its objects are gone" "$(fsck.varjfs -n "$SOURCE" 2>&1 | grep -c orphan)" 0

# "ulimit -f" of the shell that mounts is not the limit of those who write.
limited_mount()
{
    (ulimit -S -f 100 && try_mount_varjfs)
}
check "a mount by a shell with a file size limit" limited_mount
head -c 3000000 /dev/urandom >"$T/large"
check "objects larger than that" sh -c "cat '$T/large' >'$MNT/large' && sync '$MNT/large'"
check "they are there" cmp "$T/large" "$MNT/large"
umount_varjfs
fsck_clean "after a file size limit"

# Request threads that end while they are still being made are joined all the same.
VARJFS_TEST_DELAY=idle=1 mount_varjfs
come_and_go()
{
    python3 - "$MNT/busy" <<-END
	import os, sys
	begin, end = os.pipe()
	children = []
	for job in range(4):
	    children.append(os.fork())
	    if children[-1] == 0:
	        os.close(end)
	        os.read(begin, 1)
	        for i in range(300):
	            fd = os.open(f"{sys.argv[1]}.{job}.{i}", os.O_CREAT | os.O_WRONLY)
	            os.write(fd, bytes(4096))
	            os.close(fd)
	        os._exit(0)
	os.close(end)
	sys.exit(max(os.waitpid(child, 0)[1] for child in children) != 0)
	END
}
check "request threads that come and go" come_and_go
is "all files are there" "$(find "$MNT" -name 'busy.*' | wc -l)" 1200
umount_varjfs
tap_done
