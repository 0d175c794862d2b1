#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# attributes.sh [SECONDS [SEED]] - stat(2) beside edits shows none of the attributes of before them
#
# Twice SECONDS (2): as it is, and with answers held up, so that edits overtake them.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program tests/stress/attributes
source_in_memory
seconds=${1:-2}
seed=${2:-$RANDOM}
# shellcheck disable=SC2119 # without options
make_fs

look()
{
    local status=0
    VARJFS_TEST_DELAY=$2 mount_varjfs
    # shellcheck disable=SC2154 # tap.sh sets builddir
    "$builddir/tests/stress/attributes" "$MNT" "$seconds" "$seed" >"$T/out" 2>&1 || status=$?
    note "seed $seed: $(tail -n 1 "$T/out")"
    is "$1: status" $status 0 || note "$(head -n 20 "$T/out")"
    umount_varjfs
}

look "edits, looks and changes" ""
look "slow answers" "attr_reply=2"
fsck_clean "afterwards"
tap_done
