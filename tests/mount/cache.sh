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

# rules GROUP DELAYS [OPTION...]: the tests of cache.py whose names begin with GROUP
rules()
{
    local status=0
    VARJFS_TEST_DELAY=$2 mount_varjfs "${@:3}"
    # shellcheck disable=SC2154 # tap.sh sets srcdir
    timeout --kill-after=10 300 python3 "$srcdir/tests/mount/cache.py" "$MNT" "$1_" || status=$?
    is "cache.py $1: exit status" $status 0
    umount_varjfs
}

rules plain ""
rules few threads=4
# Whatever the machine is busy with, a WRITE waits for its invalidation.
rules held "hold=$T/hold,quiet=600000"
# Where nothing is written back by itself.
export VJ_TRACE=$T/varjfs.log
VARJFS_TRACE=front rules told "hold=$T/hold" -o commit=3600
fsck_clean "after the races"
tap_done
