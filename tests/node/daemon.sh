#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# daemon.sh - varjfsd as an operator sees it: mistakes, the background, SIGHUP, statistics, the service manager

. "$(dirname "$0")/daemon-lib.sh"

requires command python3
requires program varjfsd varjfsctl tests/node/load

# ---- mistakes -------------------------------------------------------------------------------

daemon_conf "colour = red"
is "a mistake ends it" "$(status_of varjfsd -c "$conf")" 1
is "with one line that names file and line" "$(sed 's/: known are.*//' "$T/err")" \
    "varjfsd: $conf:4: unknown option \"colour\""
is "--check finds it too" "$(status_of varjfsd -c "$conf" --check)" 1
# shellcheck disable=SC2119 # further lines are optional
daemon_conf
printf '[volume load]\ndirectory = %s/nothing\n' "$T" >>"$conf"
is "a directory that is not there" "$(status_of varjfsd -c "$conf") $(cat "$T/err")" \
    "1 varjfsd: $conf:4: volume load: $T/nothing: No such file or directory"
is "without -c" "$(status_of varjfsd)" 2
is "--stats of no daemon" "$(status_of varjfsd -c "$conf" --stats=json)" 1

# ---- SIGHUP ---------------------------------------------------------------------------------

log_has()
{
    grep -q "$1" "$T/log"
}

daemon_conf "below = $T/volumes"
mkdir "$T/volumes"
daemon_volume other "$T/volumes/other"
is "--check is content" "$(status_of varjfsd -c "$conf" --check)" 0
daemon_start
daemon_volume load "$T/volumes/load"
kill -HUP "$daemon"
check "SIGHUP is logged" wait_for 20 log_has "read again: 2 volumes"
load run 3 >"$T/run" 2>&1
is "a volume that was added is served" "$(sort -u "$T/run" | xargs)" "keys done objects done"
check "what was put is there" load verify
check "statistics are JSON" python3 - "$conf" <<'PY'
import json
import subprocess
import sys

stats = json.loads(subprocess.check_output(["varjfsd", "-c", sys.argv[1], "--stats=json"]))
volumes = {v["volume"]: v for v in stats["volumes"]}
assert sorted(volumes) == ["load", "other"], volumes
assert volumes["load"]["volume_puts_total"] == 9, volumes["load"]
assert volumes["load"]["volume_commits_total"] >= 3, volumes["load"]
assert stats["operations"]["put"]["op_requests_total"] == 9, stats
assert stats["node"]["requests_total"] >= 12, stats["node"]
PY
check "and text for Prometheus, each name in one group" python3 - "$conf" <<'PY'
import re
import subprocess
import sys

text = subprocess.check_output(["varjfsd", "-c", sys.argv[1], "--stats=prometheus"], text=True)
done, current = set(), None
for line in text.splitlines():
    if line.startswith("# TYPE "):
        current = line.split()[2]
        assert current not in done, line
        done.add(current)
    elif not line.startswith("#"):
        found = re.fullmatch(r"(\w+)(?:\{(?:op|volume)=\"[\w.-]+\"\})? \d+", line)
        assert found and found[1] == current, line
assert 'varjfsd_volume_puts_total{volume="load"} 9' in text
PY

cp "$conf" "$T/good.conf"
mkdir "$T/elsewhere"
printf '[volume far]\ndirectory = %s/elsewhere\n' "$T" >>"$conf"
printf '\nnonsense\n' >>"$conf"
kill -HUP "$daemon"
check "a mistake is logged" wait_for 20 log_has "nonsense\|key = value"
check "and it goes on as before" load verify
cp "$T/good.conf" "$conf"
sed -i 's/^log = .*/&\nworkers = 3/' "$conf"
kill -HUP "$daemon"
check "what takes a restart is named" wait_for 20 log_has "workers has changed"
sed -i '/^\[volume load\]/,$d' "$conf"
kill -HUP "$daemon"
check "a volume is taken away" wait_for 20 log_has "read again: 1 volumes"
check_fails "and is not served any more" timeout 60 "$builddir/tests/node/load" verify "unix:$socket" "$T/record"
daemon_stop
is "it ends in order" "$status" 0

# ---- in the background, with keys -----------------------------------------------------------

varjfsctl keygen "$T/operator.key" >"$T/out" || fail "a key is made"
{
    echo "[node]"
    echo "listen = unix:$T/tls"
    echo "log = $T/log"
    echo "key = operator.key"
} >"$conf"
daemon_volume load "$T/volumes/load" "key = load.key"
varjfsctl keygen "$T/load.key" >"$T/out" || fail "a key is made"
is "-d returns when it serves" "$(status_of varjfsd -c "$conf" -d)" 0
daemon=$(sed -n 's/.*varjfsd\[\([0-9]*\)\]: info: varjfsd [0-9.]* serves.*/\1/p' "$T/log" | tail -n 1)
check "who has the key of [node] sees all volumes" sh -c "varjfsd -c '$conf' --stats=json | grep -q '\"volume\":\"load\"'"
sed '/^key = operator/d' "$conf" >"$T/nokey.conf"
check_fails "who has none sees nothing" varjfsd -c "$T/nokey.conf" --stats=json

is_gone()
{
    ! kill -0 "$daemon" 2>/dev/null
}

is "another process does not get the socket" "$(status_of varjfsd -c "$conf" -d)" 1
kill -TERM "$daemon"
check "SIGTERM ends it" wait_for 20 is_gone
daemon=

# ---- the service manager --------------------------------------------------------------------

# shellcheck disable=SC2119 # further lines are optional
daemon_conf
daemon_volume load "$T/volumes/load"
check "it says when it is ready, reloads and stops" python3 - "$conf" "$T/notify" <<'PY'
import os
import signal
import socket
import subprocess
import sys

s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[2])
s.settimeout(60)
daemon = subprocess.Popen(["varjfsd", "-c", sys.argv[1]], env=dict(os.environ, NOTIFY_SOCKET=sys.argv[2]))
try:
    assert s.recv(100) == b"READY=1"
    daemon.send_signal(signal.SIGHUP)
    assert s.recv(100) == b"RELOADING=1"
    assert s.recv(100) == b"READY=1"
    daemon.send_signal(signal.SIGTERM)
    assert s.recv(100) == b"STOPPING=1"
    assert daemon.wait(60) == 0
finally:
    daemon.kill()
PY
tap_done
