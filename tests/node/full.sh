#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# full.sh - a node whose disk is full: no space is all that a client hears, deleting works, and it goes on

. "$(dirname "$0")/daemon-lib.sh"

requires root
requires program varjfsd tests/node/load
mkdir "$T/disk"
mount -t tmpfs -o size=96M,mode=700 varjfs-node-full "$T/disk" || skip_all "no tmpfs can be mounted"
at_exit umount "$T/disk"
# Before the tmpfs is unmounted the daemon has to be gone.
at_exit daemon_cleanup

# shellcheck disable=SC2119 # further lines are optional
daemon_conf
daemon_volume load "$T/disk/volume"
: >"$T/record"
daemon_start
for round in 1 2 3; do
    load run >"$T/run" 2>&1
    is "round $round: objects and keys end with no space" "$(sort -u "$T/run")" \
        "keys No space left on device
objects No space left on device"
    check "round $round: all that was acknowledged is there" load verify
    check "round $round: half of it is deleted" load delete
    check "round $round: the rest is there" load verify
    load run 20 >"$T/run" 2>&1
    is "round $round: then there is space" "$(sort -u "$T/run")" "keys done
objects done"
done
load run >"$T/run" 2>&1
daemon_kill
daemon_start
check "after kill -9 on a full disk all is there" load verify
check "and can be deleted" load delete
daemon_stop
is "it ends in order" "$status" 0
tap_done
