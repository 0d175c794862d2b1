#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# chroot.sh [--suite SUITE] [--base FILE] [STAGE...] - varjfs in a Debian that was made a minute ago
#
#   install      one user builds, root installs, a third user and root mount, for two prefixes
#   packages     scripts/debian-packages; its packages installed, used and purged in another new Debian
#   quickstart   scripts/quickstart
#   test=STAGE   scripts/test STAGE
#
# Without STAGE: install and packages.  As root, with debootstrap and network; SUITE: of Debian (this
# machine's by itself).  --base keeps what debootstrap makes in the tar archive FILE, and takes it from
# there the next time.  Each stage begins with a new root directory below TMPDIR (3 GB); what a step
# mounts there is in a mount namespace that ends with the step, and so do its processes.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires root
requires command chroot debootstrap git unshare

# shellcheck disable=SC1091 # the system's own file
own_suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
suite=$own_suite
base=$T/base.tar
while [ $# -gt 0 ]; do
    case $1 in
    --suite) suite=$2 && shift 2 ;;
    --base) base=$(realpath -m "$2") && shift 2 ;;
    *) break ;;
    esac
done
stages=${*:-install packages}

# shellcheck disable=SC2016 # apt expands these
archive=$(apt-get indextargets --format '$(REPO_URI)|$(RELEASE)' 'Created-By: Packages' |
    awk -F'|' -v r="$own_suite" '$2 == r { print $1; exit }')
[ -n "$archive" ] || skip_all "apt knows no archive for this release"

# step NAME COMMAND...: one result; the end of the output where it fails, all of it with VARJFS_VERBOSE.
step()
{
    local name=$1 started=$SECONDS status=0
    shift
    if [ -n "${VARJFS_VERBOSE:-}" ]; then
        "$@" 2>&1 | tee "$T/log" | sed -u 's/^/# /'
        status=${PIPESTATUS[0]}
    else
        "$@" >"$T/log" 2>&1 || status=$?
    fi
    if [ "$status" = 0 ]; then
        pass "$name"
    else
        fail "$name" "status $status
$(tail -n 40 "$T/log")"
    fi
    note "$((SECONDS - started)) s"
    return "$status"
}

make_base()
{
    [ ! -e "$base" ] || return 0
    debootstrap --variant=minbase "$suite" "$T/base" "$archive" &&
        tar -C "$T/base" --numeric-owner -cpf "$base.new" . && mv "$base.new" "$base" &&
        rm -rf "$T/base"
}

new_root() # DIR
{
    mkdir "$1" && tar -C "$1" --numeric-owner -xpf "$base" &&
        cp /etc/resolv.conf /etc/hosts "$1/etc/" || return 1
    cp /etc/apt/apt.conf.d/*proxy* "$1/etc/apt/apt.conf.d/" 2>/dev/null
    # What an installed Debian has, and debootstrap alone does not make.
    ln -s ../proc/self/mounts "$1/etc/mtab" && mknod -m 666 "$1/dev/fuse" c 10 229 && chroot "$1" useradd -m -s /bin/bash builder &&
        chroot "$1" useradd -m -s /bin/bash someone
}

# The files of this clone that git knows, as they stand, in the home directory of a user.
copy_tree() # ROOT USER
{
    local to=$1/home/$2/varjfs
    mkdir "$to" && (cd "$srcdir" && git ls-files -z --cached --others --exclude-standard |
        tar --null --files-from - --ignore-failed-read -cf -) | tar -C "$to" -xf - &&
        chroot "$1" chown -R "$2:" "/home/$2"
}

# inside ROOT USER [UNSHARE-OPTION...] <SCRIPT: a system of its own that ends with the script, which has to
# be a file: a shell that reads it from its stdin would share that with its commands.
# ROOT becomes the root of the mount namespace: with chroot(2) alone nobody may make a user namespace or
# make mounts private, and what enters another mount namespace finds itself in the host's files.
inside()
{
    local root=$1 user=$2
    shift 2
    cat >"$root/var/tmp/script"
    # shellcheck disable=SC2016 # the shell inside expands it
    unshare --mount --pid --fork --kill-child "$@" bash -c '
        mount --bind "$1" "$1" && cd "$1" &&
        mount -t proc proc proc && mount -t sysfs sysfs sys && mount -t tmpfs tmpfs run &&
        mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts &&
        { [ -e dev/ptmx ] || ln -s pts/ptmx dev/ptmx; } &&
        mount -t tmpfs -o mode=1777 tmpfs dev/shm &&
        if pivot_root . mnt 2>/dev/null; then umount -l /mnt; fi &&
        exec chroot . su - "$2" -c "DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 bash -euxo pipefail /var/tmp/script </dev/null"' \
        inside "$root" "$user"
}

# ---- One builds, another installs, a third mounts -----------------------------------------------

# What users do with a file system, and root.  PATH and the rest are those of a login.
use_as_someone()
{
    inside "$1" root <<'END'
su - someone -c 'bash -euxo pipefail' <<'USER'
PATH=$PATH:/opt/varjfs/bin:/opt/varjfs/sbin:/usr/sbin:/sbin
mkfs.varjfs store
mkdir -p mnt
varjfs store mnt
head -c 5M /dev/urandom >data
cp data mnt/data
echo 'in the middle' | varjfsctl insert mnt/data 1000001
{ head -c 1000001 data; echo 'in the middle'; tail -c +1000002 data; } | cmp - mnt/data
varjfsctl delete mnt/data 1000001 14
cmp data mnt/data
varjfsctl sync mnt
varjfsctl df mnt
fusermount3 -u mnt
fsck.varjfs -n store
varjfs store mnt
cmp data mnt/data
umount.fuse.varjfs mnt
fsck.varjfs -n store
USER
mkdir -p /mnt/third
mount -t fuse.varjfs -o allow_other /home/someone/store /mnt/third
cmp /home/someone/data /mnt/third/data
umount /mnt/third
echo '/home/someone/store /mnt/third fuse.varjfs defaults 0 0' >>/etc/fstab
mount /mnt/third
echo more >>/mnt/third/data
umount /mnt/third
sed -i '/fuse.varjfs/d' /etc/fstab
PATH=$PATH:/opt/varjfs/sbin
fsck.varjfs -n /home/someone/store
rm -rf /home/someone/store /home/someone/mnt /home/someone/data /mnt/third
END
}

# librwrite from a program that was compiled and linked against what is installed.
use_library()
{
    inside "$1" someone <<'END'
export PKG_CONFIG_PATH=/opt/varjfs/lib/pkgconfig LD_LIBRARY_PATH=/opt/varjfs/lib
PATH=$PATH:/opt/varjfs/bin:/opt/varjfs/sbin:/usr/sbin:/sbin
cat >edit.c <<'PROGRAM'
#include <fcntl.h>
#include <stdio.h>
#include <varjfs/rwrite.h>
int main(int argc, char **argv)
{
    int fd = open(argv[argc - 1], O_RDWR);
    if (fd < 0 || rpwrite(fd, "and ", 4, 4, 0) != 4) {
        perror(argv[argc - 1]);
        return 1;
    }
    return 0;
}
PROGRAM
gcc -D_FILE_OFFSET_BITS=64 -Wall -Werror $(pkg-config --cflags rwrite) edit.c -o edit $(pkg-config --libs rwrite)
mkfs.varjfs store
mkdir -p mnt
varjfs store mnt
echo 'one two' >mnt/text
./edit mnt/text
[ "$(cat mnt/text)" = 'one and two' ]
LD_PRELOAD=librwrite.so.0 fallocate -c -o 0 -l 4 mnt/text
[ "$(cat mnt/text)" = 'and two' ]
umount.fuse.varjfs mnt
echo 'one two' >text
./edit text
[ "$(cat text)" = 'one and two' ]
rm -rf edit edit.c store mnt text
END
}

# Programs and all they load belong to root, and nobody else may write them or a directory above.
owned_by_root()
{
    inside "$1" root <<'END'
for p in $(ls /usr/bin/varjfs* /usr/sbin/*.varjfs /usr/lib/*/librwrite.so.* /usr/lib/librwrite.so.* \
    /opt/varjfs/bin/* /opt/varjfs/sbin/* /opt/varjfs/lib/*.so* 2>/dev/null); do
    echo "$p"
    # Scripts load nothing.
    if [ "$(head -c 4 "$p" | tail -c 3)" = ELF ]; then
        ldd "$p" >/tmp/ldd
        awk '/not found/ { print $1 } / => \// { print $3 }' /tmp/ldd
    fi
done >/tmp/found
sort -u /tmp/found >/tmp/loaded
grep -q varjfs /tmp/loaded
while read -r f; do
    f=$(realpath -e "$f")
    while [ "$f" != / ]; do
        [ -z "$(find "$f" -maxdepth 0 \( ! -user root -o -perm /022 \))" ]
        f=$(dirname "$f")
    done
done </tmp/loaded
rm /tmp/loaded /tmp/found /tmp/ldd
END
}

list_files() # ROOT
{
    (cd "$1" && find . -xdev \( -path ./var/cache -o -path ./var/log -o -path ./var/lib/apt -o -path ./var/lib/dpkg \
        -o -path ./var/tmp -o -path ./home -o -path ./tmp -o -path ./root \) -prune -o -print | sort)
}

# Directories that were there or not are of no account to "make uninstall".
left_behind()
{
    local f
    comm -13 "$T/before" "$T/after" | while read -r f; do
        [ -d "$1/$f" ] || echo "$f"
    done
}

stage_install()
{
    local root=$T/install prefix options
    step "a new $suite" new_root "$root" && copy_tree "$root" builder || return
    step "root installs the packages that are needed" inside "$root" root <<'END' || return
cd /home/builder/varjfs
VARJFS_DEPS=/var/tmp/deps scripts/install-deps --build
END
    rm -rf "$root/var/tmp/deps"
    list_files "$root" >"$T/before"
    for prefix in /usr /opt/varjfs; do
        # mount(8) looks for its helpers in /sbin.
        options="--prefix=$prefix"
        [ "$prefix" = /usr ] || options+=" --with-mount-helper-dir=/sbin"
        step "a user builds for $prefix" inside "$root" builder <<END || return
cd varjfs
deps=\$(scripts/install-deps)
[ -e configure ] || autoreconf -fi
mkdir -p build
cd build
../configure $options --with-prefix-deps="\$deps"
make -j$(nproc)
END
        step "root installs" inside "$root" root <<'END' || return
make -C /home/builder/varjfs/build install
ldconfig
END
        mv "$root/home/builder" "$root/home/elsewhere"
        step "what runs belongs to root alone" owned_by_root "$root"
        step "a third user and root use it, the builder's files are gone" use_as_someone "$root"
        step "a program with librwrite" use_library "$root"
        mv "$root/home/elsewhere" "$root/home/builder"
        step "root uninstalls" inside "$root" root <<'END'
make -C /home/builder/varjfs/build uninstall
ldconfig
rm -rf /opt/varjfs
END
        list_files "$root" >"$T/after"
        check "there is a list of files" test -s "$T/after"
        is "no file is left" "$(left_behind "$root")" ""
    done
}

# ---- Debian packages ----------------------------------------------------------------------------

stage_packages()
{
    local root=$T/packages
    step "a new $suite" new_root "$root" && copy_tree "$root" builder || return
    step "build dependencies" inside "$root" root <<'END' || return
apt-get update -q
apt-get install -q -y --no-install-recommends build-essential lintian
apt-get build-dep -q -y --no-install-recommends /home/builder/varjfs
END
    step "scripts/debian-packages, without network" inside "$root" builder --net <<'END' || return
cd varjfs
scripts/debian-packages ../packages
END
    grep -E "^(debian-packages|W|I|N): |flavour" "$T/log" | sed -u 's/^/# /'
    use_packages "$root/home/builder/packages"
}

use_packages() # DIRECTORY
{
    local clean=$T/clean
    step "another new $suite" new_root "$clean" || return
    cp "$1"/*.deb "$clean/tmp/"
    step "a compiler there" inside "$clean" root <<'END' || return
apt-get update -q
apt-get install -q -y --no-install-recommends gcc libc6-dev pkg-config
END
    list_files "$clean" >"$T/before"
    step "apt-get install" inside "$clean" root <<'END' || return
apt-get install -q -y --no-install-recommends /tmp/{varjfs,librwrite0,librwrite-dev}_*.deb
[ -x /sbin/mount.fuse.varjfs ] && [ -x /sbin/umount.fuse.varjfs ]
dpkg --verify varjfs librwrite0 librwrite-dev
END
    step "what runs belongs to root alone" owned_by_root "$clean"
    step "a user and root use it" use_as_someone "$clean"
    step "a program with librwrite" use_library "$clean"
    step "apt-get purge" inside "$clean" root <<'END'
apt-get purge -q -y varjfs librwrite0 librwrite-dev
apt-get purge -q -y --auto-remove
dpkg --audit
END
    list_files "$clean" >"$T/after"
    is "nothing is left" "$(diff "$T/before" "$T/after")" ""
}

# ---- The scripts that set up a machine by themselves --------------------------------------------

stage_quickstart()
{
    local root=$T/quickstart
    step "a new $suite" new_root "$root" && copy_tree "$root" builder || return
    step "scripts/quickstart" inside "$root" root <<'END' || return
cd /home/builder/varjfs
chown -R root: .
scripts/quickstart
[ "$(findmnt -n -o FSTYPE mnt)" = fuse.varjfs ]
scripts/quickstart
umount mnt
build/fsck.varjfs -n mnt.varjfs
END
}

stage_test() # STAGE-OF-SCRIPTS-TEST
{
    local root=$T/test-$1 status
    step "a new $suite" new_root "$root" && copy_tree "$root" builder || return
    step "scripts/test $1" inside "$root" root <<END
cd /home/builder/varjfs
chown -R root: .
scripts/test $1
END
    status=$?
    note "$(tail -n 1 "$T/log")"
    [ -z "${VARJFS_CHROOT_LOGS:-}" ] || {
        cp "$T/log" "$VARJFS_CHROOT_LOGS/test-$1.log"
        tar -C "$root/home/builder/varjfs" -cf "$VARJFS_CHROOT_LOGS/test-$1.tar" --exclude='*.o' build-test
    }
    return $status
}

step "debootstrap of $suite" make_base || exit 1
for stage in $stages; do
    note "---- $stage"
    case $stage in
    install | packages | quickstart) stage_"$stage" ;;
    test=*) stage_test "${stage#test=}" ;;
    *) fail "no such stage: $stage" ;;
    esac
    rm -rf "${T:?}/${stage/=/-}" "$T/clean"
done
tap_done
