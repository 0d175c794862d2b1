#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# kill.sh [ROUNDS] - kill -9 of varjfsd in the middle of puts and applies
#
# What was acknowledged as durable is there when it serves again.

. "$(dirname "$0")/daemon-lib.sh"

requires program varjfsd tests/node/load
rounds=${1:-5}

# shellcheck disable=SC2119 # further lines are optional
daemon_conf
daemon_volume load "$T/volume"
: >"$T/record"
for ((round = 1; round <= rounds; round++)); do
    daemon_start
    before=$(lines "$T/record")
    load run >"$T/run" 2>&1 &
    runner=$!
    if ! wait_for 60 has_lines $((before + 40 + RANDOM % 100)); then
        fail "round $round: there is a load" "$(cat "$T/run" "$T/log")"
    fi
    daemon_kill
    wait "$runner"
    daemon_start
    check "round $round: $(lines "$T/record") objects and keys, all there" load verify
    daemon_stop
    is "round $round: it ends in order" "$status" 0
done
tap_done
