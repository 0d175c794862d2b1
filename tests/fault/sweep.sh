#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# The short form of tests/fault/sweep: one number for each third pair of workload and kind.  README.md has the long ones.
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"
requires program tests/fault/sweep
status=0
"$builddir/tests/fault/sweep" --points 1 --part 0/3 --seed "${VARJFS_MODEL_SEED:-1}" || status=$?
tap_ended=yes
exit $status
