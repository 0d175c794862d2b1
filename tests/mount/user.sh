#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# An ordinary user: mounting through fusermount3 and by fstab, unmounting, what is refused, whose
# the files are, a killed daemon.  Root runs it as nobody, in a mount namespace of its own in which
# that user may open /dev/fuse.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires command fusermount3 setpriv ldd
requires_fuse
requires program umount.fuse.varjfs varjfsd

if [ "$(id -u)" = 0 ] && [ -z "${VARJFS_USER_TEST:-}" ]; then
    unshare -m --propagation private true 2>/dev/null || skip_all "needs unshare -m"
    getent passwd nobody >/dev/null || skip_all "there is no user nobody"
    rm -rf "$T"
    VARJFS_USER_TEST=yes exec unshare -m --propagation private bash "$0" "$@"
fi
[ -z "${VARJFS_USER_TEST:-}" ] || forget_other_mounts

# ---- a user, and programs that he may run

bin=$T/bin
if [ "$(id -u)" = 0 ]; then
    user=nobody
    mkdir -p "$bin/lib"
    chmod 755 "$T" "$bin" "$bin/lib"
    # shellcheck disable=SC2154 # tap.sh sets builddir
    for p in varjfs mkfs.varjfs fsck.varjfs umount.fuse.varjfs varjfsctl varjfsd; do
        cp "$builddir/$p" "$bin/"
        # Libraries in a private prefix may be root's alone.
        ldd "$bin/$p" | awk '$3 ~ "^/" { print $3 }' | while IFS= read -r library; do
            setpriv --reuid nobody --regid nogroup --clear-groups test -r "$library" ||
                cp -L "$library" "$bin/lib/"
        done
    done
    chmod -R a+rX "$bin"
    as_user()
    {
        setpriv --reuid nobody --regid nogroup --clear-groups \
            env PATH="$bin:/usr/bin:/bin:/usr/sbin:/sbin" LD_LIBRARY_PATH="$bin/lib" HOME="$T/home" "$@"
    }
    mkdir "$T/home"
    chown nobody "$T/home"
    if ! { mknod -m 666 "$T/fuse" c 10 229 && mount --bind "$T/fuse" /dev/fuse; } 2>/dev/null; then
        note "/dev/fuse stays as it is"
    fi
else
    user=$(id -un)
    as_user()
    {
        "$@"
    }
    mkdir "$T/home"
fi
as_user sh -c ': <>/dev/fuse' 2>/dev/null || skip_all "/dev/fuse cannot be opened by $user"
as_user varjfs --version >/dev/null 2>&1 || skip_all "$user cannot run the programs of the build tree"
SOURCE=$T/home/source
MNT=$T/home/mnt
as_user mkdir "$MNT"

refused()
{
    local name=$1 text=$2 status=0
    shift 2
    as_user timeout 60 "$@" >"$T/out" 2>"$T/err" </dev/null || status=$?
    if [ $status != 0 ] && [ $status -lt 124 ] && [ "$(wc -l <"$T/err")" = 1 ] &&
        grep -q "^[a-z.]*varjfs: .*$text" "$T/err"; then
        pass "$name"
    else
        fail "$name" "status $status: $(cat "$T/err")"
    fi
}
mounted()
{
    is_mounted "$MNT"
}
not_mounted()
{
    ! is_mounted "$MNT"
}

# ---- mount, use, unmount

check "mkfs.varjfs" as_user mkfs.varjfs "$SOURCE"
is "SOURCE is his alone" "$(stat -c '%U %a' "$SOURCE")" "$user 700"
check "varjfs SOURCE MOUNTPOINT" as_user varjfs "$SOURCE" "$MNT" -o "log=$T/home/log"
check "it is mounted" mounted
case ,$(awk -v dir="$MNT" '$5 == dir { print $6 }' /proc/self/mountinfo), in
*,nosuid,*nodev,*) pass "nosuid and nodev are in force" ;;
*) fail "nosuid and nodev are in force" "$(grep "$MNT" /proc/self/mountinfo)" ;;
esac
check "a file" as_user sh -c "echo text >'$MNT/file'"
is "is his" "$(as_user stat -c %U "$MNT/file")" "$user"
check_fails "and cannot be given away" as_user chown 0 "$MNT/file"
check_fails "no device nodes" as_user mknod "$MNT/null" c 1 3
check "a set-user-ID bit is kept" as_user sh -c "cp /bin/true '$MNT/true' && chmod 4755 '$MNT/true'"
is "as an attribute" "$(as_user stat -c %a "$MNT/true")" 4755
if [ "$(id -u)" = 0 ]; then
    check_fails "root stays outside without allow_other" ls "$MNT"
    daemon=$(daemon_pid)
    is "the daemon has no new privileges" \
        "$(awk '/^(NoNewPrivs|CapEff):/ { print $2 }' "/proc/$daemon/status" | xargs)" "0000000000000000 1"
fi
check "varjfsctl gc, as the one who mounted" as_user varjfsctl gc "$MNT"
check "varjfsctl scrub" as_user varjfsctl scrub "$MNT"
check "fusermount3 -u" wait_for 20 as_user fusermount3 -u "$MNT"
check "SOURCE becomes free" as_user flock -w 60 "$SOURCE" true
check "mounts again" as_user varjfs "$SOURCE" "$MNT"
is "the file is there" "$(as_user cat "$MNT/file")" text
check "umount.fuse.varjfs" wait_for 20 as_user umount.fuse.varjfs "$MNT"
check "SOURCE is free when it returns" as_user flock -n "$SOURCE" true
refused "nothing to unmount is one line" "not found" umount.fuse.varjfs "$MNT"
check "-o suid,dev is not believed" as_user varjfs "$SOURCE" "$MNT" -o "suid,dev,log=$T/home/log"
case ,$(awk -v dir="$MNT" '$5 == dir { print $6 }' /proc/self/mountinfo), in
*,nosuid,*nodev,*) pass "nosuid and nodev stay in force" ;;
*) fail "nosuid and nodev stay in force" "$(grep "$MNT" /proc/self/mountinfo)" ;;
esac
is "and that is told once" "$(grep -c 'unsafe option suid ignored; .*dev ignored' "$T/home/log")" 1

# ---- the end of a daemon

for signal in TERM INT; do
    daemon=$(daemon_pid)
    check "SIG$signal" as_user kill -$signal "$daemon"
    check "SIG$signal: the daemon ends" wait_for 60 process_gone "$daemon"
    check "SIG$signal: nothing is mounted" not_mounted
    check "SIG$signal: mounts again" as_user varjfs "$SOURCE" "$MNT"
done
# The guard has something to trace here, and must not write it where its answers go.
check "unmounted, for a trace" wait_for 20 as_user fusermount3 -u "$MNT"
check "SOURCE becomes free, for a trace" as_user flock -w 60 "$SOURCE" true
as_user env VARJFS_TRACE=front varjfs "$SOURCE" "$MNT" 2>"$T/home/trace"
is "mounts again, with VARJFS_TRACE" $? 0
daemon=$(daemon_pid)
check "SIGKILL" as_user kill -KILL "$daemon"
check "SIGKILL: the daemon ends" wait_for 60 process_gone "$daemon"
check_fails "SIGKILL: an error, nobody waits" as_user timeout 60 stat "$MNT/file"
check "SIGKILL: fusermount3 -u" wait_for 20 as_user fusermount3 -u "$MNT"
check "SIGKILL: mounts again" as_user varjfs "$SOURCE" "$MNT" -o auto_unmount
is "SIGKILL: the file is there" "$(as_user cat "$MNT/file")" text
daemon=$(daemon_pid)
as_user kill -KILL "$daemon"
check "auto_unmount: a killed daemon's mount goes away" wait_for 60 not_mounted

# ---- what is refused

refused "allow_other" "cannot mount: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf" \
    varjfs "$SOURCE" "$MNT" -o allow_other
as_user mkdir "$T/home/other"
refused "a mount point that is somebody else's" "cannot mount: .*no write access" varjfs "$SOURCE" /usr
if [ "$(id -u)" = 0 ]; then
    make_it_roots()
    {
        chown -R 0:0 "$SOURCE" && chmod 700 "$SOURCE"
    }
    make_it_roots
    refused "somebody else's SOURCE" "Permission denied" varjfs "$SOURCE" "$MNT"
    refused "somebody else's SOURCE: fsck" "Permission denied" fsck.varjfs -n "$SOURCE"
    chown -R nobody "$SOURCE"

    # What root wrote there is served by its numbers; the kernel decides by them.
    check "root mounts a user's SOURCE" varjfs "$SOURCE" "$MNT" -o "suid,dev,log=$T/root.log"
    check "it is told that suid and dev do not hold there" \
        grep -q "others than root may write there: mounted nosuid,nodev" "$T/root.log"
    check "root makes files of several users" \
        sh -c "head -c 300000 /dev/urandom >'$MNT/large' && echo secret >'$MNT/roots' && chmod 600 '$MNT/roots' && mkdir -m 1777 '$MNT/tmp' &&
            echo theirs >'$MNT/tmp/theirs' && chown daemon '$MNT/tmp/theirs' && chmod 644 '$MNT/tmp/theirs' &&
            mknod -m 666 '$MNT/null' c 1 3"
    check_fails "a device does not work there" sh -c "echo x >'$MNT/null'"
    unmount "$MNT"
    wait_for 60 flock -n "$SOURCE" true
    is "new objects are root's, whose the rest is" "$(find "$SOURCE" -maxdepth 0 -printf %u)" nobody
    refused "its owner cannot verify what root made" "/objects/.* belongs to another user, .*: chown -R" fsck.varjfs -n "$SOURCE"
    refused "nor repair it" "/objects/.* belongs to another user, .*: chown -R" fsck.varjfs -y "$SOURCE"
    mkdir -m 777 "$T/home/second" && as_user mkfs.varjfs "$T/home/second/source" &&
        varjfs "$T/home/second/source" "$MNT" && head -c 300000 /dev/urandom >"$MNT/large" && unmount "$MNT"
    wait_for 60 flock -n "$T/home/second/source" true
    refused "nor serve what root made alone" "/objects/.* belongs to another user, .*: chown -R" \
        varjfs "$T/home/second/source" "$MNT"
    # The owner takes his SOURCE over, as an administrator would.
    chown -R nobody "$SOURCE"
    check "its owner mounts it" as_user varjfs "$SOURCE" "$MNT"
    check_fails "another user's file is protected by its mode" as_user cat "$MNT/roots"
    is "one that all may read is read" "$(as_user cat "$MNT/tmp/theirs")" theirs
    check_fails "and not removed from a sticky directory" as_user rm -f "$MNT/tmp/theirs"
    is "owners are shown as they were stored" "$(as_user stat -c '%U %t:%T' "$MNT/null")" "root 1:3"
    check "unmounted" wait_for 20 as_user umount.fuse.varjfs "$MNT"
fi

# ---- more privileges than the caller

if [ "$(id -u)" = 0 ]; then
    for p in varjfs umount.fuse.varjfs mkfs.varjfs fsck.varjfs varjfsctl; do
        cp "$builddir/$p" "$bin/set-id"
        chmod 4755 "$bin/set-id"
        # A library that only root may read cannot be loaded then; nor is its place searched.
        status=0
        as_user "$bin/set-id" --version >"$T/out" 2>&1 || status=$?
        if grep -q "shared librar" "$T/out"; then
            skip "$p refuses to be set-user-ID" "its libraries are not where such programs look"
        else
            is "$p refuses to be set-user-ID" "$status $(grep -c 'it must not be installed set-user-ID' "$T/out")" "1 1"
        fi
    done
fi

# ---- a volume file, and a node of his own

mkdir "$T/home/node"
printf '[node]\nlisten_insecure = unix:%s\nlog = stderr\n[volume lab]\ndirectory = %s\n' \
    "$T/home/socket" "$T/home/node" >"$T/home/node.conf"
[ "$(id -u)" != 0 ] || chown -R nobody "$T/home/node" "$T/home/node.conf"
as_user varjfsd -c "$T/home/node.conf" >"$T/node.log" 2>&1 &
wait_for 20 test -S "$T/home/socket"
at=remote:unix:$T/home/socket:insecure,volume=lab
check "mkfs.varjfs VOLUME.conf" as_user mkfs.varjfs -o "meta=$at,store=$at" "$T/home/lab.conf"
is "it is his alone" "$(stat -c '%U %a' "$T/home/lab.conf")" "$user 600"
check "varjfs VOLUME.conf" as_user varjfs "$T/home/lab.conf" "$MNT"
check "a file with objects" as_user sh -c "head -c 1000000 /dev/urandom >'$MNT/file' && cp '$MNT/file' '$T/home/'"
check "umount" as_user umount.fuse.varjfs "$MNT"
check "mount again" as_user varjfs "$T/home/lab.conf" "$MNT"
check "its content" as_user cmp "$MNT/file" "$T/home/file"
check "umount again" as_user umount.fuse.varjfs "$MNT"
check "fsck of it" as_user fsck.varjfs "$T/home/lab.conf"

# ---- mount(8) and fstab

if [ "$(id -u)" = 0 ]; then
    cp "$builddir/mount.fuse.varjfs" "$T/helper"
    sed "s|exec \"[^\"]*/varjfs\"|exec env LD_LIBRARY_PATH=$bin/lib \"$bin/varjfs\"|" "$T/helper" >"$bin/mount.fuse.varjfs"
    cat >"$bin/umount.wrapper" <<-END
	#!/bin/sh
	exec env LD_LIBRARY_PATH=$bin/lib "$bin/umount.fuse.varjfs" "\$@"
	END
    chmod 755 "$bin/mount.fuse.varjfs" "$bin/umount.wrapper"
    echo "$SOURCE $MNT fuse.varjfs user,noauto,log=$T/home/fstab.log 0 0" >"$T/fstab"
    chmod 644 "$T/fstab"
    sbin=$(readlink -f /sbin)
    mkdir "$T/sbin"
    if mount --bind "$T/fstab" /etc/fstab 2>/dev/null && cp -a "$sbin/." "$T/sbin/" &&
        cp "$bin/mount.fuse.varjfs" "$T/sbin/mount.fuse.varjfs" &&
        cp "$bin/umount.wrapper" "$T/sbin/umount.fuse.varjfs" && chmod 755 "$T/sbin" &&
        mount --bind "$T/sbin" "$sbin"; then
        check "mount MOUNTPOINT, with user in fstab" as_user mount "$MNT"
        check "it is mounted by him" as_user touch "$MNT/by-fstab"
        if grep -q '^Seccomp:.*2' "/proc/$(daemon_pid)/status"; then
            is "another process of his may not look into it" "$(stat -c %U "/proc/$(daemon_pid)/status")" root
        else
            skip "another process of his may not look into it" "not in a build with a sanitizer"
        fi
        is "and runs as him" "$(awk '/^Uid:/ { print $2 }' "/proc/$(daemon_pid)/status")" "$(id -u nobody)"
        check "umount MOUNTPOINT" wait_for 20 as_user umount "$MNT"
        check "nothing is mounted then" not_mounted
    else
        skip "mount(8) with user in fstab" "nothing can be bound over /etc/fstab and $sbin here"
    fi
fi
check "fsck" as_user fsck.varjfs -n "$SOURCE"
tap_done
