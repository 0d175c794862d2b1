#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# kill-load.sh [KILLS] - kill -9 of the daemon while fio writes and files are edited
#
# mount-model edits, renames, copies and synchronises files at random and kills the daemon somewhere; fio
# appends checked blocks beside it, by O_DSYNC, fsync and O_DIRECT, and a third process has files open
# and mapped.  After each kill: every call on the dead mount ends with an error that says so, plain
# umount works, fsck.varjfs -n finds nothing, the next mount needs no repair, all that was
# synchronised is there, and each file is in a state that it had between its last fsync and the kill.
# VARJFS_MODEL_SEED=N gives the model's seed.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
# shellcheck disable=SC2154 # tap.sh sets srcdir
. "$srcdir/tests/model/remount.sh"

requires_fuse
requires program tests/model/mount-model
requires command python3 fio
requires python-module mmap
kills=${1:-3}

# Beside the model, from now until the daemon is dead.  It is no child of whoever waits for it.
load_start()
{
    local pid
    pid=$(daemon_pid)
    echo $(($(cat "$T/round") + 1)) >"$T/round"
    rm -f "$T/load.status"
    : >"$T/load.log"
    (
        python3 "$srcdir/tests/fault/kill-load.py" run "$MNT/load" "$(cat "$T/round")" "$pid" "$T/record"
        echo $? >"$T/load.status"
    ) >>"$T/load.log" 2>&1 </dev/null &
    wait_for 60 grep -qx "at work" "$T/load.log" || {
        echo "remount: the load does not begin" >&2
        cat "$T/load.log" >&2
        return 1
    }
}

load_ended()
{
    if ! wait_for 150 [ -s "$T/load.status" ] || [ "$(cat "$T/load.status")" != 0 ]; then
        echo "remount: the load beside the model: status $(cat "$T/load.status")" >&2
        cat "$T/load.log" >&2
        return 1
    fi
}

# Run by mount-model in each round, when the daemon is dead and its own files are closed.
load_remount()
{
    local pid
    pid=$(cat "$T/pid")
    load_ended || return 1
    wait_for 60 process_gone "$pid" || {
        echo "remount: the daemon $pid is still there" >&2
        return 1
    }
    wait_for 20 unmount "$MNT" 2>"$T/umount.log" || {
        echo "remount: plain umount of the dead mount: $(sort -u "$T/umount.log")" >&2
        mount_users >&2
        return 1
    }
    fsck.varjfs -n "$SOURCE" >"$T/fsck.log" 2>&1 || {
        echo "remount: fsck.varjfs: status $?" >&2
        head -50 "$T/fsck.log" >&2
        return 1
    }
    # shellcheck disable=SC2086 # a list of options
    varjfs "$SOURCE" "$MNT" ${VARJFS_MOUNT_OPTIONS:-} || return 1
    daemon_pid >"$T/pid"
    python3 "$srcdir/tests/fault/kill-load.py" verify "$MNT/load" "$(cat "$T/round")" "$(cat "$T/pid")" "$T/record" \
        >>"$T/verified" 2>&1 || {
        echo "remount: what fio wrote" >&2
        cat "$T/verified" >&2
        return 1
    }
    [ "$(cat "$T/round")" -ge "$rounds" ] || load_start
}

# NAME ROUNDS [MKFS-OPTION...]
run_load()
{
    local name=$1 rounds=$2 status=0
    shift 2
    # shellcheck disable=SC2154 # tap.sh sets builddir
    SOURCE=$T/source.$tap_count
    make_fs "$@"
    mount_varjfs
    daemon_pid >"$T/pid"
    mkdir "$MNT/model" "$MNT/load"
    check "$name: directories" varjfsctl sync "$MNT"
    {
        echo '#!/bin/bash'
        declare -p MNT SOURCE T PATH srcdir rounds
        declare -f load_start load_ended load_remount unmount mount_users wait_for process_gone daemon_pid
        # shellcheck disable=SC2016 # for the script
        echo 'load_remount "$@"'
    } >"$T/remount"
    chmod +x "$T/remount"
    echo 0 >"$T/round"
    : >"$T/verified"
    load_start || exit 1
    "$builddir/tests/model/mount-model" --dir "$MNT/model" --remount "$T/remount" --pid-file "$T/pid" \
        --rounds "$rounds" --processes 2 --ops $((rounds * 800)) \
        ${VARJFS_MODEL_SEED:+--seed "$VARJFS_MODEL_SEED"} >"$T/out" 2>&1 || status=$?
    note "$(sed 's/^# //' "$T/out" | tail -60)"
    note "$(awk '{ n++; kib += $1 } END { print n " kills, " kib " KiB of fio were durable before them" }' "$T/verified")"
    is "$name" $status 0
    is "$name: kills" "$(wc -l <"$T/verified")" "$rounds"
    umount_varjfs
    fsck_clean "$name"
}

small=$(((kills + 1) / 2))
run_load "$small kills, small objects" $small -o objects=2K
[ $((kills - small)) = 0 ] || run_load "$((kills - small)) kills, default objects" $((kills - small))
tap_done
