#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# drain.sh - SIGTERM under load: what is in flight is answered, and what was answered is there

. "$(dirname "$0")/daemon-lib.sh"

requires program varjfsd tests/node/load
daemon_conf "drain = 60"
daemon_volume load "$T/volume"
for signal in TERM INT; do
    : >"$T/record"
    # Each call of the store takes so long that some are in flight at any time.
    VARJFS_TEST_WRAP_STORE=latency:us=50000 daemon_start
    load run >"$T/run" 2>&1 &
    runner=$!
    wait_for 60 has_lines 20 || fail "there is a load" "$(cat "$T/run" "$T/log")"
    kill -$signal "$daemon"
    daemon_wait
    wait "$runner"
    is "SIG$signal: it ends in order" "$status" 0
    is "SIG$signal: nothing was given up" "$(grep -c "not answered" "$T/log")" 0
    is "SIG$signal: the clients hear that it leaves" \
        "$(grep -vcE "shutdown|not connected|Connection reset" "$T/run")" 0 || note "$(cat "$T/run")"
    daemon_start
    check "SIG$signal: $(lines "$T/record") objects and keys, all there" load verify
    daemon_stop
    rm -rf "$T/volume"
    mkdir "$T/volume"
done
tap_done
