#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# mount(8) and umount(8) as people type them, where the helpers are installed: options that mount(8)
# drops, remount, fstab, and an umount that returns when SOURCE is free.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires command mount umount findmnt flock mountpoint unshare
can_own_namespace || skip_all "needs a mount namespace"

# as_typed NAME <COMMANDS: with $SOURCE, $MNT, $T and the functions below
as_typed()
{
    cat >"$T/commands"
    check "$1" as_installed bash -e "$T/prelude" "$T/commands"
}

cat >"$T/prelude" <<END
SOURCE='$SOURCE' MNT='$MNT' T='$T' builddir='$builddir'
PATH=$builddir:\$PATH
set -eu
trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT
options() { findmnt -no VFS-OPTIONS "\$MNT"; }
END
cat >>"$T/prelude" <<'END'
has() { case ,$(options), in *,"$1",*) ;; *) echo "no $1: $(options)" && exit 1 ;; esac }
has_not() { case ,$(options), in *,"$1",*) echo "$1: $(options)" && exit 1 ;; esac }
fails() { ! "$@" 2>/dev/null || { echo "succeeded: $*" && exit 1; } }
is_free() { flock -n "$SOURCE" true || { echo "SOURCE is in use" && exit 1; } }
is_used() { ! flock -n "$SOURCE" true || { echo "SOURCE is free" && exit 1; } }
device_works() { rm -f "$MNT/null" && mknod "$MNT/null" c 1 3 && echo x >"$MNT/null"; }
no_device_works() { rm -f "$MNT/null" && mknod "$MNT/null" c 1 3 && fails sh -c 'echo x >"$1"' sh "$MNT/null"; }
until_unlisted() { for _ in $(seq 500); do grep -q x-varjfs /run/mount/utab || return 0; sleep 0.02; done; cat /run/mount/utab; exit 1; }
content() { head -c 20000000 /dev/urandom >"$MNT/file"; }
fstab() { echo "$SOURCE $MNT fuse.varjfs $1 0 0" >"$T/fstab"; }
# holder COMMAND: a process in a mount namespace of its own, which runs COMMAND when "let_holder_go" lets it.
# Both ends of "go" are open here, and "there" ends with the holder: if it dies, nobody waits for it.
holder()
{
    mkfifo "$T/go" "$T/there"
    exec 7<>"$T/go"
    rm "$T/go"
    unshare -m --propagation private bash -c "echo; exec >&2; read -r <&7; $1" holder "$T/" >"$T/there" &
    holder=$!
    read -r <"$T/there"
    rm "$T/there"
}
let_holder_go() { echo >&7; exec 7>&-; }
. "$1"
END

# shellcheck disable=SC2119 # without options
make_fs
mkdir -p "$MNT"

# ---- suid and dev

as_typed "-o suid,dev" <<'END'
mount -t fuse.varjfs -o suid,dev "$SOURCE" "$MNT"
has_not nosuid; has_not nodev; device_works
cp "$(command -v id)" "$MNT/id" && chown nobody "$MNT/id" && chmod 4755 "$MNT/id"
[ "$("$MNT/id" -un)" = nobody ]
rm "$MNT/id"
umount "$MNT"
END
as_typed "defaults are mount(8)'s: suid and dev" <<'END'
mount -t fuse.varjfs "$SOURCE" "$MNT"
has_not nosuid; has_not nodev; device_works
umount "$MNT"
END
as_typed "-o nosuid,nodev" <<'END'
mount -t fuse.varjfs -o nosuid,nodev,noexec "$SOURCE" "$MNT"
has nosuid; has nodev; has noexec; no_device_works
umount "$MNT"
mount -t fuse.varjfs -o nosuid "$SOURCE" "$MNT"
has nosuid; has_not nodev; device_works
umount "$MNT"
END
as_typed "fstab" <<'END'
for options in defaults suid,dev defaults,suid,dev,noatime,nofail,_netdev,x-test.option user,suid,dev,exec; do
    fstab $options
    mount -T "$T/fstab" "$MNT"
    has_not nosuid; has_not nodev; device_works
    umount "$MNT"
done
for options in nosuid,nodev user users,exec owner; do
    fstab $options
    mount -T "$T/fstab" -a
    has nosuid; has nodev; no_device_works
    umount "$MNT"
done
END
as_typed "varjfs itself: nosuid and nodev unless it is told" <<'END'
varjfs "$SOURCE" "$MNT"
has nosuid; has nodev; no_device_works
umount "$MNT"
varjfs "$SOURCE" "$MNT" -o suid,dev
has_not nosuid; has_not nodev; device_works
umount "$MNT"
END
as_typed "where others may write to SOURCE: neither" <<'END'
chown nobody "$SOURCE/objects"
mount -t fuse.varjfs -o suid,dev "$SOURCE" "$MNT"
has nosuid; has nodev
umount "$MNT"
chown root "$SOURCE/objects"
END

# ---- remount

as_typed "remount keeps what it is not asked for" <<'END'
varjfs "$SOURCE" "$MNT" -o noatime,noexec
mount -o remount,ro "$MNT"
for flag in ro nosuid nodev noexec noatime; do has $flag; done
fails touch "$MNT/new"
mount -o remount,rw "$MNT"
for flag in rw nosuid nodev noexec noatime; do has $flag; done
touch "$MNT/new"
fstab defaults
mount -T "$T/fstab" -o remount,ro "$MNT"
for flag in ro nosuid nodev noexec noatime; do has $flag; done
mount -T "$T/fstab" -o remount,rw "$MNT"
for flag in rw nosuid nodev noexec noatime; do has $flag; done
varjfs "$SOURCE" "$MNT" -o remount,ro
for flag in ro nosuid nodev noexec noatime; do has $flag; done
varjfs "$SOURCE" "$MNT" -o remount,exec
for flag in ro nosuid nodev noatime; do has $flag; done
has_not noexec
varjfs "$SOURCE" "$MNT" -o remount,rw
umount "$MNT"
END
as_typed "remount takes away and sets what it is asked for" <<'END'
varjfs "$SOURCE" "$MNT" -o noatime
mount -o remount,suid "$MNT"
has_not nosuid; has nodev; has noatime
mount -o remount,dev,atime "$MNT"
has_not nodev; has_not noatime; device_works
mount -o remount,nosuid,noexec "$MNT"
has nosuid; has noexec; has_not nodev
mount -o remount,ro "$MNT"
has ro; has nosuid; has noexec; has_not nodev
varjfs "$SOURCE" "$MNT" -o remount,rw,suid,exec,nodev
has rw; has nodev; has_not nosuid; has_not noexec
umount "$MNT"
END
as_typed "remount of what is no varjfs is refused" <<'END'
mkdir -p "$T/tmpfs" && mount -t tmpfs none "$T/tmpfs"
fails varjfs "$SOURCE" "$T/tmpfs" -o remount,ro
touch "$T/tmpfs/file"
fails varjfs "$SOURCE" "$MNT" -o remount,ro
umount "$T/tmpfs"
END

# ---- umount waits

as_typed "umount returns when SOURCE is free" <<'END'
for how in 'mount -t fuse.varjfs' varjfs; do
    for spelled in "$MNT" "$MNT/" "$T/link-to-T/mnt" link-to-mnt; do
        $how "$SOURCE" "$MNT"
        content
        ln -sfn "$T" "$T/link-to-T"; ln -sfn "$MNT" "$T/link-to-mnt"
        (cd "$T" && umount "$spelled")
        is_free
        fails mountpoint -q "$MNT"
        fails grep x-varjfs /run/mount/utab
    done
done
END
as_typed "and keeps the lines of others in /run/mount/utab" <<'END'
mkdir -p "$T/other" && mount -t tmpfs -o x-other none "$T/other"
fstab noauto,x-mine,_netdev
mount -T "$T/fstab" "$MNT"
findmnt -m -no OPTIONS "$MNT" | grep -q x-mine
findmnt -m -no OPTIONS "$MNT" | grep -q _netdev
fails sh -c 'findmnt -m -no OPTIONS "$1" | grep x-varjfs' sh "$MNT"
content
umount "$MNT"
is_free
fails grep x-mine /run/mount/utab
until_unlisted # umount(8) removes one line of the two
findmnt -m -no OPTIONS "$T/other" | grep -q x-other
mkdir -p "$T/white space\\" && varjfs "$SOURCE" "$T/white space\\"
head -c 20000000 /dev/urandom >"$T/white space\\/file"
umount "$T/white space\\"
is_free
fails grep x-varjfs /run/mount/utab
umount "$T/other"
END
as_typed "umount(2) and a killed daemon leave no line behind" <<'END'
mount -t fuse.varjfs "$SOURCE" "$MNT"
grep -q x-varjfs /run/mount/utab
python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).umount2(sys.argv[1].encode(), 0))' "$MNT"
until_unlisted
mount -t fuse.varjfs "$SOURCE" "$MNT"
kill -KILL "$(grep -lx varjfs /proc/[0-9]*/comm | while IFS=/ read -r _ _ p _; do
    grep -qsF "$SOURCE" "/proc/$p/cmdline" && echo "$p"; done)"
until_unlisted
umount "$MNT"
is_free
END
as_typed "a lock that somebody keeps does not keep a mount" <<'END'
mkdir -p /run/mount
exec 9>/run/mount/utab.lock
flock 9
varjfs "$SOURCE" "$MNT" -o log="$T/log" 9>&-
grep -q 'umount(8) will not wait' "$T/log"
umount -i "$MNT" 9>&-  &
flock -u 9
wait $!
END

# ---- where it stays mounted in another namespace

as_typed "a copy in another mount namespace: umount says who has it" <<'END'
mount -t fuse.varjfs "$SOURCE" "$MNT"
mount --make-private "$MNT"
holder :
echo before >"$MNT/file"
status=0
umount "$MNT" 2>"$T/err" || status=$?
[ $status != 0 ]
grep -q "unmounted, but it stays mounted in another mount namespace, which process $holder (.*) has" "$T/err"
is_used
fails mountpoint -q "$MNT"
[ "$(cat "/proc/$holder/root$MNT/file")" = before ]
# A new mount waits for the daemon, which ends when the holder has gone.
let_holder_go
wait $holder
mount -t fuse.varjfs "$SOURCE" "$MNT"
[ "$(cat "$MNT/file")" = before ]
umount "$MNT"
is_free
END
as_typed "one that ends meanwhile is waited for" <<'END'
mount -t fuse.varjfs "$SOURCE" "$MNT"
mount --make-private "$MNT"
holder 'exec sleep 1'
let_holder_go
umount "$MNT"
is_free
wait
END

# ---- a store that hangs

export VARJFS_TEST_WRAP_STORE="fault:kinds=put+flush,hold=$T/hold" VARJFS_TEST_DELAY="hold=$T"
: >"$T/hold"
as_typed "umount -f of a store that hangs comes back" <<'END'
mount -t fuse.varjfs "$SOURCE" "$MNT"
exec 8<"$T/hold"
flock -x 8
content 8<&-
status=0
timeout 60 umount -f "$MNT" 2>"$T/err" 8<&- || status=$?
[ $status != 0 ] && [ $status != 124 ]
grep -q 'unmounted, but its daemon is still at work' "$T/err"
is_used
exec 8<&-
mount -t fuse.varjfs "$SOURCE" "$MNT"
umount "$MNT"
is_free
END
unset VARJFS_TEST_WRAP_STORE VARJFS_TEST_DELAY
fsck_clean "afterwards"
tap_done
