# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# daemon-lib.sh - tap.sh, and a varjfsd of the test's own
#
#   daemon_conf [LINE...]     $conf with [node] and LINEs; a volume is added by daemon_volume
#   daemon_volume NAME DIRECTORY [LINE...]
#   daemon_start              $daemon, the process; it serves when this returns
#   daemon_stop               SIGTERM; its status is $status
#   daemon_kill               kill -9
#   load VERB [COUNT]         tests/node/load VERB with the daemon and $T/record

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

daemon=
conf=$T/varjfsd.conf
socket=$T/socket

daemon_conf()
{
    printf '%s\n' "[node]" "listen_insecure = unix:$socket" "log = $T/log" "$@" >"$conf"
}

daemon_volume()
{
    mkdir -p "$2"
    printf '%s\n' "[volume $1]" "directory = $2" "${@:3}" >>"$conf"
}

daemon_serves()
{
    varjfsd -c "$conf" --stats=json >"$T/stats" 2>"$T/stats.err" || ! kill -0 "$daemon" 2>/dev/null
}

daemon_cleanup()
{
    [ -z "$daemon" ] || kill -KILL "$daemon" 2>/dev/null
}
at_exit daemon_cleanup

daemon_start()
{
    varjfsd -c "$conf" >>"$T/output" 2>&1 </dev/null &
    daemon=$!
    if ! wait_for 20 daemon_serves || ! kill -0 "$daemon" 2>/dev/null; then
        fail "varjfsd serves" "$(cat "$T/output" "$T/log")"
        exit 1
    fi
}

daemon_wait()
{
    status=0
    wait "$daemon" 2>/dev/null || status=$?
    daemon=
}

daemon_stop()
{
    kill -TERM "$daemon"
    daemon_wait
}

daemon_kill()
{
    kill -KILL "$daemon"
    daemon_wait
}

load()
{
    # shellcheck disable=SC2154 # tap.sh sets builddir
    "$builddir/tests/node/load" "$1" "unix:$socket" "$T/record" "${@:2}"
}

lines()
{
    wc -l <"$1"
}

has_lines()
{
    [ "$(lines "$T/record" 2>/dev/null || echo 0)" -ge "$1" ]
}
