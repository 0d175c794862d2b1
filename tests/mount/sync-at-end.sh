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
# Without other processes, of which a loaded machine starts few in the time of the delay.
reaper_syncs()
{
    local comm name
    for comm in /proc/"$server"/task/*/comm; do
        read -r name <"$comm"
        [ "$name" = vj-reaper ] || continue
        read -r name <"${comm%/comm}/wchan"
        [[ $name != *nanosleep* ]] || return 0
    done 2>/dev/null
    return 1
}

# They write and sync when nobody holds the fifo open for writing any more.
start_syncers()
{
    local i
    rm -f "$T/start" "$T/ready"
    mkfifo "$T/start"
    exec 6<>"$T/start"
    syncers=
    for i in {1..8}; do
        python3 -c "import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(1, b'ready\\n')
sys.stdin.read()
os.write(fd, b'new')
os.fsync(fd)" "$MNT/$i" <"$T/start" 6>&- >>"$T/ready" 2>"$T/err.$i" &
        syncers+=" $!"
    done
}

all_ready()
{
    [ "$(grep -c ready "$T/ready")" = 8 ]
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
        timeout 60 umount -i -f "$MNT" 2>"$T/umount.log"
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
    server=$(daemon_pid)
    head -c 1000000 /dev/urandom >"$MNT/removed"
    for i in {1..8}; do
        echo "old" >"$MNT/$i"
    done
    check "$1: all is durable" wait_for 60 quiet
    start_syncers
    check "$1: there are those who will sync" wait_for 60 all_ready
    delay_set_ms "$control" 4000
    rm "$MNT/removed"
    check "$1: the thread that removes objects syncs" wait_for 60 reaper_syncs
    exec 6>&-
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
