#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# overlayfs with its upper directory on varjfs: the same work on an overlay whose upper directory is on
# tmpfs shows the same tree, the kernel falls back nowhere, and the changes outlive remounts and a kill.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires root
requires_fuse
requires command setfattr getfattr python3 setpriv unshare
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null
grep -qw overlay /proc/filesystems || skip_all "this kernel has no overlayfs"
chmod 755 "$T"

# What lies below: on neither of the two.
lower=$T/lower
mkdir -p "$lower"/{kept,gone,replaced,moved,deep/er/est}
for d in kept gone replaced moved deep/er/est; do
    echo "in $d" >"$lower/$d/file"
    head -c 200000 /dev/urandom >"$lower/$d/big"
done
for f in removed renamed chmodded appended truncated target linked; do
    echo "$f" >"$lower/$f"
done
ln "$lower/linked" "$lower/linked-too"
ln -s kept/file "$lower/symlink"
setfattr -n user.colour -v red "$lower/kept/file" 2>/dev/null

# DIR NAME OPTIONS: an overlay at $T/NAME whose upper directory is in DIR.
mount_overlay()
{
    mkdir -p "$1/up" "$1/work" "$T/$2"
    mount -t overlay "$2" -o "lowerdir=$lower,upperdir=$1/up,workdir=$1/work,$3" "$T/$2"
}

# Everything in the overlay DIR that a program can see and that does not depend on the upper directory.
facts()
{
    (cd "$1" && find . \( -type d -printf '%p %M %U %G\n' \) -o -printf '%p %M %U %G %s %n %l\n' |
        LC_ALL=C sort && find . -type f -exec md5sum {} + | LC_ALL=C sort -k 2 &&
        getfattr -R -P -d -m '^user\.' . 2>/dev/null)
}

work()
{
    (
        cd "$1" || exit 1
        echo new >created
        rm removed
        rm -r gone
        rm -r replaced
        mkdir replaced
        echo other >replaced/file
        mv renamed renamed-to
        mv moved moved-to
        mv deep/er deep-er
        mv target replaced/target
        echo over >created-2
        mv created-2 kept/file
        chmod 600 chmodded
        echo more >>appended
        truncate -s 3 truncated
        echo through >>linked
        mkdir made
        mkdir made/again
        rmdir made/again
        rm -r deep-er/est
        ln created linked-3
        setfattr -n user.shape -v round kept/big
        python3 - <<'PY'
import errno, os
here = os.open(".", os.O_RDONLY)
try:
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
except OSError as e:  # older libfuse
    if e.errno != errno.EOPNOTSUPP:
        raise
    fd = os.open("from-tmpfile", os.O_CREAT | os.O_RDWR, 0o640)
else:
    os.link(f"/proc/self/fd/{fd}", "from-tmpfile", src_dir_fd=here)
os.write(fd, b"without a name")
os.fsync(fd)
os.fsync(here)
PY
    ) 2>&1
}

# Since $said was counted.  Without O_TMPFILE, which older libfuse lacks, it works all the same.
kernel_says()
{
    dmesg 2>/dev/null | sed -n 's/.*\(overlayfs: .*\)/\1/p' | tail -n "+$((said + 1))" |
        grep -v 'does not support tmpfile'
}

control=$T/control
mkdir "$control"
mount -t tmpfs -o size=64M none "$control" || skip_all "a tmpfs cannot be mounted"
mount_overlay "$control" on-tmpfs redirect_dir=on 2>"$T/why" ||
    skip_all "no overlay can be mounted here: $(cat "$T/why")"
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs -o allow_other,suid,dev

said=$(dmesg 2>/dev/null | grep -c 'overlayfs: ')
if ! mount_overlay "$MNT/a" on-varjfs redirect_dir=on 2>"$T/why"; then
    kernel_says >"$T/said"
    ! grep -q 'not supported as upperdir' "$T/said" ||
        skip_all "this kernel takes no FUSE mount as upper directory"
    fail "an overlay is mounted" "$(cat "$T/why" "$T/said")"
    tap_done
fi
is "what the kernel says of the upper directory" "$(kernel_says)" ""

is "the work on tmpfs" "$(work "$T/on-tmpfs")" ""
is "the work on varjfs" "$(work "$T/on-varjfs")" ""
facts "$T/on-tmpfs" >"$T/wanted"
same()
{
    facts "$T/on-varjfs" >"$T/got"
    check "$1: the same tree" diff "$T/wanted" "$T/got"
}
same "at once"
is "a whiteout" "$(stat -c '%F %t,%T %a' "$MNT/a/up/removed")" "character special file 0,0 0"
is "a whiteout of a directory" "$(stat -c '%F %t,%T' "$MNT/a/up/gone")" "character special file 0,0"
is "a whiteout that a rename left" "$(stat -c '%F %t,%T' "$MNT/a/up/renamed")" "character special file 0,0"
is "an opaque directory" \
    "$(getfattr --only-values -n trusted.overlay.opaque "$MNT/a/up/replaced" 2>/dev/null)" y
is "a redirected directory" \
    "$(getfattr --only-values -n trusted.overlay.redirect "$MNT/a/up/deep-er" 2>/dev/null)" /deep/er

# ---- remounts of both, and a kill

umount -i "$T/on-varjfs"
mount_overlay "$MNT/a" on-varjfs redirect_dir=on
same "the overlay mounted again"
umount -i "$T/on-varjfs"
remount_varjfs -o allow_other,suid,dev
mount_overlay "$MNT/a" on-varjfs redirect_dir=on
same "varjfs mounted again"
echo last >"$T/on-varjfs/last"
rm "$T/on-varjfs/truncated"
mv "$T/on-varjfs/appended" "$T/on-varjfs/appended-2"
varjfsctl sync "$MNT"
umount -i -l "$T/on-varjfs"
kill_varjfs
mount_varjfs -o allow_other,suid,dev
mount_overlay "$MNT/a" on-varjfs redirect_dir=on
rm "$T/on-tmpfs/truncated"
echo last >"$T/on-tmpfs/last"
mv "$T/on-tmpfs/appended" "$T/on-tmpfs/appended-2"
facts "$T/on-tmpfs" >"$T/wanted"
same "after a kill"
umount -i "$T/on-varjfs" "$T/on-tmpfs"

# ---- everything that overlayfs can use

said=$(dmesg 2>/dev/null | grep -c 'overlayfs: ')
options=redirect_dir=on,index=on,metacopy=on
check "index and metacopy" mount_overlay "$MNT/b" all "$options"
is "what the kernel says of them" "$(kernel_says)" ""
echo through >>"$T/all/linked"
is "a copied file keeps its other name" "$(cat "$T/all/linked-too")" "linked
through"
chown 70001 "$T/all/kept/big"
check "a change of attributes copies no data" \
    getfattr -n trusted.overlay.metacopy "$MNT/b/up/kept/big"
is "and the data is that below" "$(md5sum <"$T/all/kept/big")" "$(md5sum <"$lower/kept/big")"
echo more >>"$T/all/kept/big"
is "until it is written" "$(head -c 200000 "$T/all/kept/big" | md5sum)" "$(md5sum <"$lower/kept/big")"
check_fails "then it is all there" getfattr -n trusted.overlay.metacopy "$MNT/b/up/kept/big"
umount -i "$T/all"
check "index and metacopy, mounted again" mount_overlay "$MNT/b" all "$options"
is "the two names" "$(cat "$T/all/linked-too")" "linked
through"
umount -i "$T/all"
said=$(dmesg 2>/dev/null | grep -c 'overlayfs: ')
check "nfs_export" mount_overlay "$MNT/c" exported index=on,nfs_export=on
is "what the kernel says of it" "$(kernel_says)" ""
rm "$T/exported/removed"
umount -i "$T/exported"

# ---- an ordinary user in a user namespace

mkdir "$MNT/user" "$T/by-user"
chown -R 70001:70001 "$MNT/user"
cat >"$T/as-user" <<'EOF'
set -e
mkdir "$1/up" "$1/work"
mount -t overlay user -o "userxattr,lowerdir=$2,upperdir=$1/up,workdir=$1/work" "$3"
rm "$3/removed"
rm -r "$3/replaced"
mkdir "$3/replaced"
echo again >"$3/kept/new"
[ ! -e "$3/removed" ] && [ -z "$(ls "$3/replaced")" ]
EOF
chmod -R a+rwX "$lower"
chown -R 70001:70001 "$lower"
in_namespace()
{
    setpriv --reuid=70001 --regid=70001 --clear-groups unshare -Urm \
        sh "$T/as-user" "$MNT/user" "$lower" "$T/by-user"
}
if setpriv --reuid=70001 --regid=70001 --clear-groups unshare -Urm true 2>/dev/null; then
    chown 70001:70001 "$T/by-user"
    check "an overlay of an ordinary user" in_namespace
    is "his whiteout" "$(stat -c '%F %t,%T %u' "$MNT/user/up/removed")" "character special file 0,0 70001"
    is "his opaque directory" \
        "$(getfattr --only-values -n user.overlay.opaque "$MNT/user/up/replaced" 2>/dev/null)" y
else
    skip "an overlay of an ordinary user" "there are no user namespaces for him"
fi

umount -i "$control"
umount_varjfs
fsck_clean "after everything"
tap_done
