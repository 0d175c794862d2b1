#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# page.sh - a client that was written from varjfs-protocol(7) alone, at a varjfsd (page-client.py)

. "$(dirname "$0")/daemon-lib.sh"

requires command python3
requires program varjfsd
requires program mkfs.varjfs
python3 -c 'import ctypes; ctypes.CDLL("libxxhash.so.0")' 2>/dev/null || skip_all "no libxxhash.so.0 for Python"

daemon_conf "connection_memory = 40M"
daemon_volume home "$T/home"
"$builddir/mkfs.varjfs" "$T/programs" >/dev/null
daemon_volume programs "$T/programs" "roles = client"
daemon_start
python3 "$srcdir/tests/node/page-client.py" "$socket" >"$T/results" 2>&1
came_to=$?
while IFS= read -r line; do
    case $line in
    "ok "*) pass "${line#* - }" ;;
    "not ok "*) fail "${line#* - }" || true ;;
    1..*) ;;
    *) note "${line#\# }" ;;
    esac
done <"$T/results"
is "the client came to its end" "$came_to $(grep -c '^1\.\.' "$T/results")" "0 1"
daemon_stop
is "and the node ends in order" "$status" 0

tap_done
