#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# stalls.sh [SECONDS [LIMIT_MS]] - how long writes wait beside edits and programs that drop pages
#
# SECONDS (3) with one of these programs and with two.  All is to be written; with LIMIT_MS no write
# may take longer.  Prints the latencies.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program tests/stress/stalls
source_in_memory
seconds=${1:-3}
limit_ms=${2:-}
# shellcheck disable=SC2119 # without options
make_fs

for evictors in 1 2; do
    # shellcheck disable=SC2119 # without options
    mount_varjfs
    status=0
    # shellcheck disable=SC2154 # tap.sh sets builddir
    "$builddir/tests/stress/stalls" "$MNT" "$seconds" $evictors ${limit_ms:+"$limit_ms"} >"$T/out" 2>&1 || status=$?
    is "$evictors drop pages: all is written${limit_ms:+, nothing in more than $limit_ms ms}" $status 0
    note "$(cat "$T/out")"
    umount_varjfs
    fsck_clean "$evictors drop pages"
done
tap_done
