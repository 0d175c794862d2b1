#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# Whoever is killed in fsync while a thread of the store's own syncs for all may be forgotten by the kernel, but not
# by that thread: the mount ends when that has answered, well, and everything is there.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/lib/delay.sh"
requires_fuse
requires command python3
control=$T/control

quiet()
{
    varjfsctl sync "$MNT" && [ "$(delay_word "$control" 7)" = 0 ]
}

# The thread that removes objects sleeps in a sync that is delayed, and in nothing else.
reaper_syncs()
{
    local comm
    for comm in /proc/"$(daemon_pid)"/task/*/comm; do
        [ "$(cat "$comm")" = vj-reaper ] && grep -q nanosleep "${comm%/comm}/wchan" && return 0
    done
    return 1
}

all_in_fsync()
{
    [ "$(grep -c 'durable: by a request thread' "$T/trace")" = 8 ]
}

end_by()
{
    case $1 in
    kill)
        # shellcheck disable=SC2086 # numbers
        kill -KILL $syncers
        check "kill: umount" wait_for 20 unmount "$MNT"
        ;;
    force)
        timeout 60 umount -f "$MNT" 2>"$T/umount.log"
        is_mounted "$MNT" && check "force: plain umount" wait_for 20 unmount "$MNT"
        ;;
    esac
}

crowd() # HOW
{
    local i
    rm -f "$control"
    VARJFS_TRACE=front delay_run "$control" varjfs -f "$SOURCE" "$MNT" 2>"$T/trace" &
    daemon=$!
    check "$1: mount" wait_for 60 is_mounted "$MNT"
    head -c 1000000 /dev/urandom >"$MNT/removed"
    for i in {1..8}; do
        echo "old" >"$MNT/$i"
    done
    check "$1: all is durable" wait_for 60 quiet
    delay_set_ms "$control" 4000
    rm "$MNT/removed"
    check "$1: the thread that removes objects syncs" wait_for 60 reaper_syncs
    syncers=
    for i in {1..8}; do
        python3 -c "import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b'new')
os.fsync(fd)" "$MNT/$i" 2>"$T/err.$i" &
        syncers+=" $!"
    done
    check "$1: others leave it to that" wait_for 60 all_in_fsync
    check "$1: which is not over" reaper_syncs
    head -c 100000 /dev/urandom >"$T/copy"
    cp "$T/copy" "$MNT/of-$1"
    end_by "$1"
    delay_set_ms "$control" 0
    # shellcheck disable=SC2086 # numbers
    wait $syncers 2>/dev/null
    wait "$daemon"
    is "$1: the daemon's status" "$?" 0
    fsck_clean "$1"
    mount_varjfs
    check "$1: what nobody synchronised" cmp "$T/copy" "$MNT/of-$1"
    is "$1: what they synchronised" "$(cat "$MNT"/[1-8] | sort -u)" new
    umount_varjfs
}

mkdir -p "$MNT"
# shellcheck disable=SC2119 # without options
make_fs
crowd kill
[ "$(id -u)" != 0 ] || crowd force
tap_done
