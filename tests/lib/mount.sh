# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# mount.sh - tap.sh, and what tests through a real mount need:
#
#   . "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
#   requires_fuse
#   source_in_memory                  SOURCE lies on a file system in memory, where there is one
#   choose_source PATH                SOURCE=PATH, but for a cluster (below)
#   make_fs [-o KEY=VALUE,...]        mkfs.varjfs $SOURCE
#   mount_varjfs [OPTION...]          varjfs $SOURCE $MNT OPTION...
#   umount_varjfs                     returns when the daemon has ended
#   remount_varjfs [OPTION...]        the two above
#   daemon_pid                        process that serves $MNT
#   kill_varjfs                       kill -9, and the dead mount is taken away
#   mount_users                       who keeps $MNT busy: processes, and what of theirs
#   fsck_clean NAME                   one result: fsck.varjfs -n $SOURCE finds nothing
#   requires_program_option PROGRAM WORD   skip the test unless --help mentions WORD
#   can_own_namespace                 whether the next two work here
#   $T/own-namespace COMMAND [ARG...] in a mount namespace of its own
#   as_installed COMMAND [ARG...]     in one where mount(8) and umount(8) find the helpers of the
#                                     build tree, and with a /run of its own; what it leaves
#                                     mounted is taken down
#   forget_other_mounts               in a mount namespace that the test has made
#
# Tests unmount by umount -i, which runs no helper: one may be installed here, of another build.
#
# SOURCE and MNT default to $T/source and $T/mnt; set them in front of a call for a second file
# system: SOURCE=$T/two MNT=$T/mnt2 mount_varjfs.  Whatever is mounted or running below $T at
# the end is taken down, whichever way the test ends.  VARJFS_MOUNT_OPTIONS (as "-o busy_poll=0")
# is added to each mount, so that one suite can be run in several configurations.
#
# VARJFS_TEST_CLUSTER=DIR: tests of one file system at a time work on a cluster instead, which
# scripts/cluster --dir DIR has up and which is not mounted: SOURCE is its volume file, and make_fs
# makes its volume anew.  Such a test runs below "scripts/cluster --dir DIR run", from where its
# programs reach the nodes; tests/cluster has examples.

. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

SOURCE=${VARJFS_TEST_CLUSTER:+$VARJFS_TEST_CLUSTER/lab.conf}
SOURCE=${SOURCE:-$T/source}
MNT=$T/mnt

# By the newer calls of the kernel, which mount(8) of Debian 13 makes, no FUSE file system can be remounted: the
# options that it has already count as changes.  varjfs -o remount, which mount(8) runs otherwise, calls mount(2).
export LIBMOUNT_FORCE_MOUNT2=always

# Field 5 of mountinfo writes a space as \040.
mount_points_below()
{
    awk -v dir="$1" '{ p = $5; gsub(/\\040/, " ", p) }
        p == dir || index(p, dir "/") == 1 { print p }' /proc/self/mountinfo | tac
}

is_mounted()
{
    awk -v dir="$1" '{ p = $5; gsub(/\\040/, " ", p) } p == dir { found = 1 }
        END { exit !found }' /proc/self/mountinfo
}

unmount()
{
    if [ "$(id -u)" = 0 ]; then
        umount -i "$@"
    else
        fusermount3 -u "$@"
    fi
}

# Processes of the daemon whose arguments name MNT.
daemon_pid()
{
    local p
    grep -lsx varjfs /proc/[0-9]*/comm | while IFS= read -r p; do
        p=${p%/comm}
        if tr '\0' '\n' <"$p/cmdline" | grep -xF -- "$MNT" >/dev/null; then
            echo "${p#/proc/}"
        fi
    done 2>/dev/null
}

# A zombie has ended; only its parent has not looked yet.  But the first thread of a process
# is one as soon as it has ended, and the others may still have files open.
process_gone()
{
    local state
    [ -e "/proc/$1/stat" ] || return 0
    state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)
    set -- "/proc/$1/task"/*
    [ "$state" = Z ] && [ $# = 1 ]
}

# The pattern comes from a file so that grep does not find itself.
processes_below()
{
    printf '%s/\n' "$1" >"$1/pattern"
    # shellcheck disable=SC2062 # the glob names files
    (cd / && grep -laFs -f /dev/stdin /proc/[0-9]*/cmdline) <"$1/pattern" | sed 's|/proc/\([0-9]*\)/.*|\1|'
}

# What stays of a mount whose daemon is dead or does not answer.  -f ends all requests, also
# where it then says that the mount is busy.
clear_mount()
{
    timeout 20 umount -i -f "$1" 2>/dev/null || umount -i -l "$1" 2>/dev/null ||
        fusermount3 -uz "$1" 2>/dev/null || true
}

mount_cleanup()
{
    local m p
    cd / || true
    while IFS= read -r m; do
        if [ "$(id -u)" = 0 ]; then
            timeout 60 umount -i "$m" 2>/dev/null || clear_mount "$m"
        else
            timeout 60 fusermount3 -u "$m" 2>/dev/null || clear_mount "$m"
        fi
    done < <(mount_points_below "$T")
    for p in $(processes_below "$T"); do
        wait_for 10 process_gone "$p" || kill -KILL "$p" 2>/dev/null
    done
}
at_exit mount_cleanup

requires_fuse()
{
    local capabilities
    requires program varjfs mkfs.varjfs
    if [ "$(id -u)" = 0 ]; then
        [ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229 2>/dev/null
        # Where a test finds the switch that aborts a connection; systemd mounts it too.
        if [ -d /sys/fs/fuse/connections ] && ! is_mounted /sys/fs/fuse/connections; then
            mount -t fusectl none /sys/fs/fuse/connections 2>/dev/null
        fi
        capabilities=$(awk '/^CapEff:/ { print $2 }' /proc/self/status)
        [ $((0x$capabilities >> 21 & 1)) = 1 ] || skip_all "root may not mount here"
    else
        command -v fusermount3 >/dev/null || skip_all "needs fusermount3 or root"
    fi
    [ -e /dev/fuse ] || skip_all "there is no /dev/fuse"
    (: <>/dev/fuse) 2>/dev/null || skip_all "/dev/fuse cannot be opened"
}

requires_program_option()
{
    "$1" --help 2>&1 | grep -F -- "$2" >/dev/null || skip_all "this $1 has no $2"
}

# For tests with thousands of syncs.  What is below it goes when its users are gone.
remove_memory_dir()
{
    mount_cleanup
    rm -rf "$memory_dir"
}

choose_source()
{
    [ -n "${VARJFS_TEST_CLUSTER:-}" ] || SOURCE=$1
}

source_in_memory()
{
    if [ -z "${VARJFS_TEST_CLUSTER:-}" ] && [ -w /dev/shm ] && [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
        memory_dir=$(mktemp -d /dev/shm/varjfs-test.XXXXXX) || exit 99
        at_exit remove_memory_dir
        SOURCE=$memory_dir/source
    fi
}

make_fs()
{
    local command=(mkfs.varjfs "$@" "$SOURCE")
    if [ -n "${VARJFS_TEST_CLUSTER:-}" ]; then
        # shellcheck disable=SC2154 # tap.sh sets srcdir
        command=("$srcdir/scripts/cluster" --dir "$VARJFS_TEST_CLUSTER" mkfs "$@")
    fi
    "${command[@]}" >"$T/mkfs.log" 2>&1 || {
        fail "mkfs.varjfs $* $SOURCE" "$(cat "$T/mkfs.log")"
        exit 1
    }
}

# Returns the daemon's status: 0 means that the mount is usable.  What it prints is in
# $T/varjfs.log.
try_mount_varjfs()
{
    mkdir -p "$MNT"
    # shellcheck disable=SC2086 # a list of options
    varjfs "$SOURCE" "$MNT" "$@" ${VARJFS_MOUNT_OPTIONS:-} >"$T/varjfs.log" 2>&1
}

mount_varjfs()
{
    try_mount_varjfs "$@" || {
        fail "varjfs $SOURCE $MNT $*" "$(cat "$T/varjfs.log")"
        exit 1
    }
    is_mounted "$MNT" || {
        fail "varjfs returns when $MNT is mounted" "$(cat "$T/varjfs.log")"
        exit 1
    }
}

# Looks at the names in links alone: the file system itself may be dead.
mount_users()
{
    find /proc/[0-9]*/fd /proc/[0-9]*/map_files /proc/[0-9]*/{cwd,root,exe} -maxdepth 1 \
        \( -lname "$MNT" -o -lname "$MNT/*" \) -printf '%p: %l\n' 2>/dev/null | head -n 20
    echo "$(grep -lF " $MNT " /proc/[0-9]*/mountinfo 2>/dev/null | sed 's/[^0-9]//g' | xargs -I{} readlink /proc/{}/ns/mnt 2>/dev/null | sort -u | wc -l) mount namespaces have it"
}

umount_varjfs()
{
    local pids p
    pids=$(daemon_pid)
    # Whoever looks at all mounts, as df(1) does, or at a process that had files open in this one,
    # keeps it busy for a moment.
    wait_for 20 unmount "$MNT" 2>"$T/umount.log" || {
        fail "umount $MNT" "$(sort -u "$T/umount.log")
$(mount_users)"
        exit 1
    }
    for p in $pids; do
        wait_for "${VARJFS_UMOUNT_SECONDS:-60}" process_gone "$p" || {
            fail "the daemon ends after umount" "process $p
$(mount_users)"
            exit 1
        }
    done
}

remount_varjfs()
{
    umount_varjfs
    mount_varjfs "$@"
}

kill_varjfs()
{
    local p
    for p in $(daemon_pid); do
        kill -KILL "$p"
        wait_for 20 process_gone "$p" || {
            fail "the daemon dies of SIGKILL" "process $p"
            exit 1
        }
    done
    clear_mount "$MNT"
}

fsck_clean()
{
    local status=0 out
    out=$(fsck.varjfs -n "$SOURCE" 2>&1) || status=$?
    is "$1: fsck status" "$status" 0 || note "$out"
}

# A new mount namespace has copies of what other tests have mounted, which keep their daemons.
forget_other_mounts()
{
    local m
    awk -v dir="$T/" '/ - fuse(\.[^ ]*)? / { p = $5; gsub(/\\040/, " ", p)
        if (index(p, dir) != 1) print p }' /proc/self/mountinfo | tac | while IFS= read -r m; do
        umount -i -l "$m" 2>/dev/null
    done
}

# Makes the script.
can_own_namespace()
{
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || return 1
    {
        # shellcheck disable=SC2016 # for the script
        printf '#!/bin/bash\n[ -n "${OWN_NAMESPACE:-}" ] || OWN_NAMESPACE=yes exec unshare -m "$0" "$@"\n'
        declare -p T
        declare -f forget_other_mounts
        # shellcheck disable=SC2016 # for the script
        printf 'forget_other_mounts\nunset OWN_NAMESPACE\nexec "$@"\n'
    } >"$T/own-namespace"
    chmod +x "$T/own-namespace"
}

# /sbin becomes a directory of links, where the helpers are ours.
as_installed()
{
    local status=0
    mkdir -p "$T/sbin" "$T/real-sbin"
    # shellcheck disable=SC2154 # tap.sh sets srcdir and builddir
    sed "s|@bindir@|$builddir|" "$srcdir/src/cmd/mount.fuse.varjfs.in" >"$T/mount.fuse.varjfs"
    printf '#!/bin/sh\nexec "%s/umount.fuse.varjfs" "$@"\n' "$builddir" >"$T/umount.fuse.varjfs"
    chmod +x "$T/mount.fuse.varjfs" "$T/umount.fuse.varjfs"
    cat >"$T/as-installed" <<-'END'
	T=$1
	sbin=$(readlink -f /sbin)
	shift
	mount -i --bind "$sbin" "$T/real-sbin" && mount -i -t tmpfs -o size=4M none "$T/sbin" &&
	    ln -s "$T/real-sbin"/* "$T/sbin/" && rm -f "$T/sbin/mount.fuse.varjfs" "$T/sbin/umount.fuse.varjfs" &&
	    cp "$T/mount.fuse.varjfs" "$T/umount.fuse.varjfs" "$T/sbin/" &&
	    mount -i --bind "$T/sbin" "$sbin" && mount -i -t tmpfs -o size=4M,mode=755 none /run || exit 99
	"$@"
	status=$?
	awk -v dir="$T/" '/ - fuse.varjfs / { p = $5; gsub(/\\040/, " ", p); if (index(p, dir) == 1) print p }' \
	    /proc/self/mountinfo | tac | while IFS= read -r m; do
	    timeout 60 umount -i "$m" || umount -i -l "$m"
	done
	exit $status
	END
    "$T/own-namespace" bash "$T/as-installed" "$T" "$@" || status=$?
    return $status
}
