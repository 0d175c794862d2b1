#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# delay.sh and latency-probe, with each other: a probe on a slow device must see it.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"
. "$srcdir/tests/lib/delay.sh"

requires program tests/lib/latency-probe
probe=$builddir/tests/lib/latency-probe
mkdir "$T/dir"

# figure NAME LINE: the number behind NAME=
figure()
{
    sed -n "s/.* $1=\([0-9]*\).*/\1/p" <<<"$2"
}

at_least()
{
    [ "$1" -ge "$2" ] || {
        echo "$1 is less than $2"
        return 1
    }
}

line=$("$probe" -n 20 create "$T/dir")
is "create counts" "$(figure count "$line")" 20
is "create takes its files away" "$(ls "$T/dir")" ""
is "stat counts" "$(figure count "$("$probe" -n 30 -j 2 stat "$T")")" 60

line=$(VJ_TEST_SYNC_DELAY_MS=30 delay_run "$T/control" "$probe" -n 2 -j 3 -s 100 fsync "$T/f")
is "fsync counts in all processes" "$(figure count "$line")" 6
check "the probe sees the delay" at_least "$(figure p50_us "$line")" 30000
is "each fsync is one sync" "$(delay_syncs "$T/control")" 6
is "they are fsyncs" "$(delay_word "$T/control" 1)" 6
is "each process appends" "$(stat -c %s "$T/f.2")" 200
check_fails "a limit is held" delay_run "$T/control" "$probe" -n 1 -m 10 fsync "$T/f"

delay_set_ms "$T/control" 0
check "the delay can be turned off" test "$(delay_word "$T/control" 8)" = 0
delay_set_ms "$T/control" 300
is "the delay can be set" "$(delay_word "$T/control" 8)" 300
line=$(delay_run "$T/control" "$probe" -n 1 fsync "$T/f")
check "and the next process has it" at_least "$(figure max_us "$line")" 300000

# A process that runs: with 1000 times 200 ms it would take minutes.
syncs_passed()
{
    [ "$(delay_syncs "$T/control")" -gt "$1" ]
}
delay_set_ms "$T/control" 200
syncs=$(delay_syncs "$T/control")
delay_run "$T/control" "$probe" -n 1000 fsync "$T/f" >"$T/out" &
check "a sync passes" wait_for 20 syncs_passed "$syncs"
delay_set_ms "$T/control" 0
wait
is "a running process follows" "$(figure count "$(cat "$T/out")")" 1000

head -c 100000 /dev/zero >"$T/dir/file"
delay_set_bps "$T/control" 1000000
line=$(VJ_TEST_WRITE_PREFIX=$T/dir delay_run "$T/control" "$probe" -n 10 -s 10000 write "$T/dir/file")
check "writes below the prefix are slow" at_least "$(figure p50_us "$line")" 10000
is "slow bytes are counted" "$(delay_word "$T/control" 10)" 100000
VJ_TEST_WRITE_PREFIX=$T/dir delay_run "$T/control" "$probe" -n 10 append "$T/elsewhere" >/dev/null
is "others are not" "$(delay_word "$T/control" 10)" 100000

check_fails "an operation that fails is a failure" "$probe" -n 5 stat "$T/missing"
check_fails "insert elsewhere than on varjfs is a failure" "$probe" -n 5 insert "$T/dir/file"
check_fails "usage" "$probe" -n 5 dance "$T"
check_fails "a relative control file is refused" delay_run control true
tap_done
