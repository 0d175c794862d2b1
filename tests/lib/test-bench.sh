#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# scripts/bench: the form of its figures, reports, --compare and plots.  Nothing is measured.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

requires command python3
status=0
# shellcheck disable=SC2154 # tap.sh sets srcdir
PYTHONDONTWRITEBYTECODE=1 python3 "$srcdir/tests/lib/test-bench.py" "$T" >"$T/out" 2>&1 || status=$?
is "test-bench.py: exit status" $status 0
note "$(cat "$T/out")"
tap_done
