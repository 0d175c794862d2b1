#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# kill-daemon.sh [KILLS] - kill -9 of the daemon in the middle of random edits
#
# After each kill: fsck finds nothing, the source mounts without repair, and every file is in
# a state that it had between its last fsync and the kill.  KILLS: 5, and 50 for the long
# form.  VARJFS_MODEL_SEED=N gives the seed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/model/remount.sh"

requires_fuse
requires program tests/model/mount-model
kills=${1:-5}
[ -z "${VARJFS_MODEL_LONG:-}" ] || kills=50

# ops: half of the operations that the first process does before a kill, times everything.
small=$(((kills + 1) / 2))
large=$((kills - small))
run_model_killed "$small kills, small objects" -o objects=1K -- --rounds $small \
    --ops $((small * 900)) --size 131072
run_model_killed "$large kills, default objects" -- --rounds $large \
    --ops $((large * 600)) --processes 2 --size 1048576
tap_done
