#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# mount.sh [long] - random edits of files through a mount by several processes
#
# The files change their transformation meanwhile and are recoded.
# The short form is a tenth of the long one.  Seeds are random and printed;
# VARJFS_MODEL_SEED=N gives all runs the same.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/model/remount.sh"

requires_fuse
requires program tests/model/mount-model
source_in_memory
scale=1
[ "${1:-}" != long ] && [ -z "${VARJFS_MODEL_LONG:-}" ] || scale=10

run_model "small objects, three processes" -o objects=1K -- --ops $((7000 * scale)) \
    --rounds $((3 * scale)) --size 1048576
run_model "default objects, two processes" -- --ops $((3000 * scale)) \
    --rounds $((2 * scale)) --processes 2 --size 8388608
tap_done
