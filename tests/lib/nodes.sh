# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# nodes.sh - mount.sh, and nodes of varjfsd at unix sockets for volumes of the test
#
#   . "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/nodes.sh"
#   node_begin NAME [LINE...]   a node with an empty volume "default", in $T/NAME.d unless NODE_DIR says where; LINEs
#                               go into the section of the volume
#   node_start NAME             starts it again
#   node_stop NAME [SIGNAL]     TERM unless SIGNAL says otherwise; returns when it has ended
#   node_pid NAME
#   nodes_at NAME...            the list of nodes for a spec
#   node_objects NAME           files of its objects
#   node_figure NAME FIGURE     of its statistics: of the node, as sent_bytes_total, or of an operation, as put.op_requests_total
#   figure NAME                 of varjfsctl stats $MNT
#   figures_begin, figure_grew NAME   all of them, and how much one has grown since

. "$(dirname "${BASH_SOURCE[0]}")/mount.sh"

node_pid()
{
    cat "$T/$1.pid"
}

node_serves()
{
    varjfsd -c "$T/$1.conf" --stats=json >"$T/$1.stats" 2>"$T/$1.stats.err" || process_gone "$(node_pid "$1")"
}

node_start()
{
    varjfsd -c "$T/$1.conf" >>"$T/$1.out" 2>&1 </dev/null &
    echo $! >"$T/$1.pid"
    if ! wait_for 20 node_serves "$1" || process_gone "$(node_pid "$1")"; then
        fail "node $1 serves" "$(cat "$T/$1.out" "$T/$1.log" 2>/dev/null)"
        exit 1
    fi
}

node_begin()
{
    local name=$1 dir=${NODE_DIR:-$T/$1.d}
    shift
    mkdir -p "$dir"
    printf '%s\n' "[node]" "listen_insecure = unix:$T/$name.sock" "log = $T/$name.log" \
        "[volume default]" "directory = $dir" "$@" >"$T/$name.conf"
    node_start "$name"
}

node_stop()
{
    local pid
    pid=$(node_pid "$1")
    kill "-${2:-TERM}" "$pid"
    wait_for 60 process_gone "$pid" || {
        fail "node $1 ends" "$(cat "$T/$1.log")"
        exit 1
    }
}

nodes_end()
{
    local p
    for p in "$T"/*.pid; do
        [ ! -e "$p" ] || kill -KILL "$(cat "$p")" 2>/dev/null
    done
}
at_exit nodes_end

nodes_at()
{
    local name list=
    for name in "$@"; do
        list=$list${list:+,}unix:$T/$name.sock
    done
    echo "$list"
}

node_objects()
{
    find "${NODE_DIR:-$T/$1.d}" -path '*objects*' -type f ! -name format
}

node_figure()
{
    varjfsd -c "$T/$1.conf" --stats=json | python3 -c '
import json, sys
at = json.load(sys.stdin)
op, dot, name = sys.argv[1].rpartition(".")
print(at["operations"][op][name] if dot else at["node"][name])' "$2"
}

# figures_of FILE NAME
figures_of()
{
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$@"
}

figure()
{
    varjfsctl stats --json "$MNT" >"$T/figures.now"
    figures_of "$T/figures.now" "$1"
}

figures_begin()
{
    varjfsctl stats --json "$MNT" >"$T/figures"
}

figure_grew()
{
    echo $(($(figure "$1") - $(figures_of "$T/figures" "$1")))
}
