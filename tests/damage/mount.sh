#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# mount.sh [COUNT [SEED]] - the damage sweep through real mounts and the real fsck.varjfs
#
# With arguments: each class of damage, so many positions of each.  Without: some classes.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires root
requires program tests/damage/sweep
requires program varjfs
requires program fsck.varjfs
if [ $# -gt 0 ]; then
    set -- -n "$1" -s "${2:-1}"
else
    set -- -n 1 -e 19 -s 5
fi
# shellcheck disable=SC2154 # tap.sh sets builddir
exec "$builddir/tests/damage/sweep" -m "$builddir" "$@"
