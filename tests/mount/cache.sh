#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# The page-cache rules (src/front/README.md), with requests held up in the daemon.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires command python3
# shellcheck disable=SC2119 # without options
make_fs

mkdir "$T/hold"
export VJ_HOLD=$T/hold
# shellcheck disable=SC2154 # tap.sh sets builddir
export VJ_DIRECT_WRITE=$builddir/tests/mount/direct-write

# rules GROUP DELAYS [OPTION...]: the tests of cache.py whose names begin with GROUP
rules()
{
    local status=0
    VARJFS_TEST_DELAY=$2 mount_varjfs "${@:3}"
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    timeout --kill-after=10 120 python3 "$srcdir/tests/mount/cache.py" "$MNT" "$1_" || status=$?
    is "cache.py $1: exit status" $status 0
    umount_varjfs
}

rules plain ""
rules few threads=4
# Whatever the machine is busy with, a WRITE waits for its invalidation.
rules held "hold=$T/hold"
# Where nothing is written back by itself.
export VJ_TRACE=$T/varjfs.log
VARJFS_TRACE=front rules told "hold=$T/hold" -o commit=3600
# As where pages come faster than they go.
VARJFS_TRACE=front rules beside "hold=$T/hold,tries=0" -o commit=3600
unset VJ_TRACE

mount_varjfs
seq 1 20000 >"$MNT/marked"
touch -m -d @1094861636 "$MNT/marked"
umount_varjfs
VJ_DATABASE=$SOURCE/meta/data.mdb
export VJ_DATABASE
# The record is in the database, and in no memory of the daemon.
rules marked "hold=$T/hold" -o commit=3600,noatime

# ---- SIGTERM

VARJFS_TEST_DELAY="hold=$T/hold" mount_varjfs
VJ_DAEMON=$(daemon_pid)
export VJ_DAEMON
status=0
timeout --kill-after=10 120 python3 "$srcdir/tests/mount/cache.py" "$MNT" end_ || status=$?
is "cache.py end: exit status" $status 0
check "the daemon has ended" process_gone "$VJ_DAEMON"
fsck_clean "after the races"
tap_done
