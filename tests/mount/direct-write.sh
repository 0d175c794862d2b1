#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# An asynchronous direct write beside readers of the same bytes leaves no old page (src/front/README.md, rule 8).
#
#   direct-write.sh [ROUNDS]           4000 writes
#   direct-write.sh ROUNDS DIR...      the same in these directories, without varjfs: figures alone

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

# shellcheck disable=SC2154 # tap.sh sets builddir
program=$builddir/tests/mount/direct-write
[ -x "$program" ] || skip_all "needs tests/mount/direct-write"
rounds=${1:-4000}

if [ $# -gt 1 ]; then
    for dir in "${@:2}"; do
        note "$dir: $("$program" rounds "$dir" "$rounds" 2>&1)"
    done
    pass "figures"
    tap_done
    exit
fi

requires_fuse
source_in_memory
# shellcheck disable=SC2119 # without options
make_fs
mount_varjfs
is "two readers beside" "$("$program" rounds "$MNT" "$rounds" 2>&1)" "$rounds writes, old pages after 0"
umount_varjfs
fsck_clean "afterwards"
tap_done
