# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# What the scripts share; read by them, not run.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# A new machine may not have made the locale that the caller's settings name.
export LC_ALL=C.UTF-8
# shellcheck disable=SC2034 # for the scripts that read this
jobs=${VARJFS_JOBS:-$(nproc)}

say()
{
    echo "${0##*/}: $*" >&2
}

die()
{
    say "$*"
    exit 1
}

# Run a command with its output in a file; show the end of it if the command fails.
quietly()
{
    local log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null && return 0
    echo "--- $*" >&2
    if grep -nE "error|Error|undefined reference" "$log" >/dev/null; then
        grep -E -A 3 "error|Error|undefined reference" "$log" | head -n 40 >&2
    else
        tail -n 25 "$log" >&2
    fi
    echo "--- all of it: $log" >&2
    return 1
}

# A minimal system (a chroot, a container) may come without /proc, /sys and /dev/fuse.
mounted_here=()
make_proc_usable()
{
    [ "$(id -u)" = 0 ] || return 0
    if [ ! -e /proc/self/mountinfo ] && mount -t proc proc /proc 2>/dev/null; then
        mounted_here+=(/proc)
        say "mounted /proc, which was missing"
    fi
    # Where connections of FUSE can be aborted.
    if [ ! -d /sys/fs ] && mount -t sysfs sysfs /sys 2>/dev/null; then
        mounted_here=(/sys "${mounted_here[@]}")
        say "mounted /sys, which was missing"
    fi
    return 0
}

release_proc()
{
    local m
    for m in "${mounted_here[@]}"; do
        [ "$m" != /sys ] || umount -i /sys/fs/fuse/connections 2>/dev/null
        umount -i "$m" 2>/dev/null || umount -i -l "$m"
    done
}

# Prints why mounting cannot work; nothing if it can.
make_fuse_usable()
{
    local capabilities
    if [ ! -e /dev/fuse ]; then
        [ "$(id -u)" = 0 ] || { echo "there is no /dev/fuse and only root can make it" && return; }
        modprobe fuse 2>/dev/null || true
        [ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229 2>/dev/null ||
            { echo "/dev/fuse cannot be made here" && return; }
    fi
    (: <>/dev/fuse) 2>/dev/null || { echo "/dev/fuse cannot be opened" && return; }
    [ -e /proc/self/mountinfo ] || { echo "/proc is not mounted" && return; }
    if [ "$(id -u)" = 0 ]; then
        capabilities=$(awk '/^CapEff:/ { print $2 }' /proc/self/status)
        [ $((0x$capabilities >> 21 & 1)) = 1 ] || echo "root may not mount here"
    else
        command -v fusermount3 >/dev/null || echo "fusermount3 is not installed"
    fi
}

# mount points at or below a directory, deepest first
mounts_below()
{
    awk -v dir="$1" '{ p = $5; gsub(/\\040/, " ", p) }
        p == dir || index(p, dir "/") == 1 { print p }' /proc/self/mountinfo 2>/dev/null | tac
}

unmount_below()
{
    local m
    mounts_below "$1" | while IFS= read -r m; do
        timeout 60 umount -i "$m" 2>/dev/null || timeout 60 fusermount3 -u "$m" 2>/dev/null ||
            timeout 20 umount -i -f "$m" 2>/dev/null || umount -i -l "$m" 2>/dev/null || fusermount3 -uz "$m" 2>/dev/null || true
    done
}

generate_configure()
{
    local log
    [ "$top/configure" -nt "$top/configure.ac" ] && [ -e "$top/Makefile.in" ] && return 0
    log=$(mktemp)
    say "autoreconf"
    (cd "$top" && quietly "$log" autoreconf -fi) || return 1
    rm -f "$log"
}

# configure_build DIR [CONFIGURE-ARGUMENT...]: configure DIR unless that was done with the same
# arguments.
configure_build()
{
    local dir=$1
    shift
    generate_configure || return 1
    mkdir -p "$dir"
    if [ ! -e "$dir/config.status" ] || [ "$(cat "$dir/.configured" 2>/dev/null)" != "$*" ]; then
        rm -f "$dir/.configured"
        (cd "$dir" && quietly configure.out "$top/configure" "$@") || return 1
        echo "$*" >"$dir/.configured"
    fi
}
