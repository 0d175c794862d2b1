#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# A system to live in: programs of this machine in a chroot in the mount; in the long form Debian by
# debootstrap, with apt, dpkg, perl and a user of its own at work in it.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/program.sh"
requires root
requires command chroot ldd
PATH=$PATH:/usr/sbin:/sbin
program_begin "$@"

# The programs and what they are linked with; the file system must allow exec, suid and devices.
small=$W/small
copied()
{
    local p f
    mkdir -p "$small"/{dev,tmp,proc,etc}
    ln -s usr/bin "$small/bin" && mkdir -p "$small/usr/bin"
    for p in bash ls cat head wc id env mkdir rm sleep stat tr perl; do
        p=$(readlink -f "$(type -P $p)")
        cp --parents -L "$p" "$small" || return 1
        for f in $(ldd "$p" | grep -o '/[^ ]*'); do
            [ -e "$small$f" ] || cp --parents -L "$f" "$small" || return 1
        done
    done
    # Where a program stands at another path than its name says.
    for p in bash ls cat head wc id env mkdir rm sleep stat tr perl; do
        [ -e "$small/usr/bin/$p" ] || ln -s "$(readlink -f "$(type -P $p)")" "$small/usr/bin/$p" || return 1
    done
    ln -s bash "$small/usr/bin/sh"
    mknod -m 666 "$small/dev/null" c 1 3 && mknod -m 666 "$small/dev/zero" c 1 5
}
check "programs and their libraries" copied
# shellcheck disable=SC2016 # the shell inside expands it
is "a shell in the chroot" "$(LC_ALL=C chroot "$small" /bin/bash -c 'echo $((6 * 7)); ls / | tr "\n" " "')" \
    "42
bin dev etc lib lib64 proc tmp usr "
is "device nodes work" "$(LC_ALL=C chroot "$small" /bin/bash -c 'echo lost >/dev/null; head -c 3 /dev/zero | wc -c')" 3
cp "$small/usr/bin/id" "$small/usr/bin/id-of-another"
chown 4321 "$small/usr/bin/id-of-another"
chmod 4755 "$small/usr/bin/id-of-another"
is "a set-user-ID program" "$(chroot --userspec=65534:65534 "$small" /usr/bin/id-of-another -u)" 4321
is "perl without its modules" "$(LC_ALL=C chroot "$small" /usr/bin/perl -e 'print 2 ** 10')" 1024
check_fails "an ordinary user may not write there" chroot --userspec=65534:65534 "$small" /bin/bash -c ': >/etc/x'
check "and may where all may" bash -c "chmod 1777 '$small/tmp' && chroot --userspec=65534:65534 '$small' /bin/bash -c ': >/tmp/x'"
is "the owner" "$(stat -c %u:%g "$small/tmp/x")" 65534:65534

# The archive that apt uses here.
# shellcheck disable=SC1091 # the system's own file
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# shellcheck disable=SC2016 # apt expands these
archive=$(apt-get indextargets --format '$(REPO_URI)|$(RELEASE)' 'Created-By: Packages' 2>/dev/null |
    awk -F'|' -v r="$suite" '$2 == r { print $1; exit }')
why=
if [ -z "$long" ]; then
    why="in the long form"
elif ! command -v debootstrap >/dev/null; then
    why="needs debootstrap"
elif [ -z "$suite" ] || [ -z "$archive" ]; then
    why="apt knows no archive for this release"
fi

within()
{
    chroot "$W/debian" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "$@"
}

if [ -n "$why" ]; then
    skip "debootstrap" "$why"
else
    started=$SECONDS
    check "debootstrap of $suite" debootstrap --variant=minbase "$suite" "$W/debian" "$archive"
    note "$((SECONDS - started)) s"
    # shellcheck disable=SC2016 # the shell inside expands it
    is "the system inside" "$(within sh -c '. /etc/os-release && echo $VERSION_CODENAME')" "$suite"
    check "dpkg --audit" within dpkg --audit
    check "dpkg --verify finds each file as it was packed" [ -z "$(within dpkg --verify 2>&1)" ]
    check "perl's arithmetic" within perl -MPOSIX -e 'exit(floor(3.7) == 3 ? 0 : 1)'
    check "useradd" within useradd -m -s /bin/bash someone
    is "su" "$(within su - someone -c 'id -un && touch mine && stat -c %U mine')" "someone
someone"
    cp /etc/apt/apt.conf.d/*proxy* "$W/debian/etc/apt/apt.conf.d/" 2>/dev/null
    cp /etc/resolv.conf /etc/hosts "$W/debian/etc/"
    mount -t proc proc "$W/debian/proc" && at_exit umount -i "$W/debian/proc"
    check "apt-get update" within apt-get update
    check "apt-get install" within apt-get install -y --no-install-recommends make gcc libc6-dev git sqlite3
    check "dpkg --verify afterwards" [ -z "$(within dpkg --verify 2>&1)" ]
    within tee /tmp/hello.c >/dev/null <<-'END'
	#include <stdio.h>
	int main(void) { puts("hello from inside"); return 0; }
	END
    check "its compiler" within make -C /tmp hello
    is "what it made runs" "$(within /tmp/hello)" "hello from inside"
    check "git inside" within bash -c "cd /tmp && git init -q r && cd r && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m x && git fsck --strict"
    check "apt-get purge" within apt-get purge -y --auto-remove git
    check "apt-get reinstall" within apt-get install -y --reinstall coreutils
    check "dpkg --audit at the end" within dpkg --audit
    umount -i "$W/debian/proc"
fi
remounted "with a system in it"
# shellcheck disable=SC2016 # the shell inside expands it
is "a shell in the chroot after a remount" "$(LC_ALL=C chroot "$small" /bin/bash -c 'echo $((6 * 7))')" 42
[ -n "$why" ] || is "the system after a remount" "$(within dpkg --verify 2>&1)" ""
check "rm -rf" rm -rf "$W/small" "$W/debian"
program_end
