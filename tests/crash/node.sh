#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# node.sh [STATES [COUNT]] - the power is cut at a node: what it has acknowledged as durable, objects and keys, is there
#
# COUNT objects (keys) by each of the threads of tests/node/load are put (applied), half of them deleted, and more put;
# STATES states that a power cut may leave of the directory are served by varjfsd (20 and 12).

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/crash/crash.sh"

requires_crash
requires program varjfsd tests/node/load
states=${1:-20} count=${2:-12}
seed=${VARJFS_MODEL_SEED:-$RANDOM$RANDOM}
note "seed $seed"

crash_dir=$(mktemp -d /dev/shm/varjfs-crash.XXXXXX 2>/dev/null || mktemp -d "$T/crash.XXXXXX") || exit 99
SOURCE=$crash_dir/source
crash_log=$crash_dir/log
mkdir "$SOURCE"
socket=$T/socket
printf '%s\n' "[node]" "listen_insecure = unix:$socket" "[volume load]" "directory = $SOURCE" \
    "meta = lmdb:reserve=1M,redo=256K" >"$T/varjfsd.conf"

node_end()
{
    [ -z "${node:-}" ] || kill -KILL "$node" 2>/dev/null
}
at_exit node_end

node_serves()
{
    varjfsd -c "$T/varjfsd.conf" --stats=json >"$T/stats" 2>"$T/stats.err" || process_gone "$node"
}

node_begin()
{
    # In its place: so the process is the daemon.
    (
        crash_exec="exec"
        crash_run varjfsd -c "$T/varjfsd.conf"
    ) >>"$T/node.log" 2>&1 </dev/null &
    node=$!
    if ! wait_for 20 node_serves || process_gone "$node"; then
        fail "the node serves" "$(cat "$T/node.log")"
        exit 1
    fi
}

node_stop()
{
    kill -TERM "$node"
    wait "$node"
    is "$1: its status" $? 0
    node=
}

# What was acknowledged gets into the log after that: so behind all that made it durable.
marks()
{
    local line
    while IFS= read -r line; do
        crash_mark "!$line"
    done
}

# load_and_mark NAME [COUNT]: "load run", each line of its record as a mark
load_and_mark()
{
    local load
    : >"$T/record"
    "$builddir/tests/node/load" run "unix:$socket" "$T/record" "$2" >"$T/load.log" 2>&1 &
    load=$!
    tail -n +1 -f --pid=$load "$T/record" | marks
    wait $load
    is "$1" "$(sort -u "$T/load.log")" "keys done
objects done"
}

node_begin
load_and_mark "objects and keys are put for a start" 1
crash_mark begin
load_and_mark "objects and keys are put" "$count"
node_stop "the node ends"
node_begin
load_and_mark "more are put after a start" "$count"
kill -KILL "$node"
wait "$node" 2>/dev/null
node_begin
load_and_mark "and after a kill" "$count"
node_stop "the node ends again"
crash_replays "the node"
note "$("$crash_check" count "$crash_log")"

# shellcheck disable=SC2016 # the hook expands them
{
    printf '#!/bin/bash\nexec >&2\nbuilddir=%q\nPATH=%q\n' "$builddir" "$PATH"
    cat <<'END'
d=$(dirname "$VJ_CRASH_STATE")
sed -n 's/^!//p' "$VJ_CRASH_MARKS" >"$d/record"
[ -s "$d/record" ] || { echo "nothing was acknowledged"; exit 1; }
printf '%s\n' "[node]" "listen_insecure = unix:$d/socket" "[volume load]" "directory = $VJ_CRASH_STATE" \
    "meta = lmdb:reserve=1M,redo=256K" >"$d/conf"
varjfsd -c "$d/conf" >"$d/node.log" 2>&1 </dev/null &
node=$!
trap 'kill -KILL $node 2>/dev/null; cat "$d/node.log"' EXIT
for ((i = 0; ; i++)); do
    varjfsd -c "$d/conf" --stats=json >"$d/stats" 2>&1 && break
    kill -0 $node 2>/dev/null || { echo "the node ended"; exit 1; }
    [ $i -lt 400 ] || { echo "the node does not serve"; exit 1; }
    sleep 0.05
done
"$builddir/tests/node/load" verify "unix:$d/socket" "$d/record" || exit 1
rm -f "$d/more"
"$builddir/tests/node/load" run "unix:$d/socket" "$d/more" 2 | sort -u >"$d/said"
[ "$(cat "$d/said")" = "keys done
objects done" ] || { cat "$d/said"; exit 1; }
"$builddir/tests/node/load" verify "unix:$d/socket" "$d/more" || exit 1
"$builddir/tests/node/load" verify "unix:$d/socket" "$d/record" || exit 1
kill -TERM $node
wait $node || { echo "the node's status: $?"; exit 1; }
END
} >"$T/hook"
chmod 755 "$T/hook"
crash_states "a node" --bare --states "$states" --seed "$seed" --hook "$T/hook"
tap_done
