# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# remount.sh - behind mount.sh, for tests that run mount-model:
#
#   run_model NAME [MKFS-OPTION...] -- OPTION...        one result
#   run_model_killed NAME [MKFS-OPTION...] -- OPTION... the same, with a dead daemon each round
#
# mount-model runs $T/remount between its rounds: a script of its own, because it has no shell.

# Between rounds: unmounts or clears the dead mount away, checks, mounts.
model_remount()
{
    local pid
    pid=$(cat "$T/pid")
    if [ "${1:-}" = killed ]; then
        clear_mount "$MNT"
    else
        unmount "$MNT" || return 1
    fi
    wait_for 60 process_gone "$pid" || {
        echo "remount: the daemon $pid is still there" >&2
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
    [ -s "$T/pid" ]
}

write_remount()
{
    {
        echo '#!/bin/bash'
        declare -p MNT SOURCE T PATH
        declare -f clear_mount unmount wait_for process_gone daemon_pid model_remount
        # shellcheck disable=SC2016 # for the script
        echo 'model_remount "$@"'
    } >"$T/remount"
    chmod +x "$T/remount"
}

# run_model_with REMOUNT-COMMAND NAME [MKFS-OPTION...] -- OPTION...
run_model_with()
{
    local command=$1 name=$2 status=0 options=()
    shift 2
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    # shellcheck disable=SC2154 # tap.sh sets tap_count and builddir
    choose_source "${memory_dir:-$T}/source.$tap_count"
    make_fs ${options[@]+"${options[@]}"}
    mount_varjfs
    daemon_pid >"$T/pid"
    write_remount
    mkdir "$MNT/model"
    # shellcheck disable=SC2154 # the same
    "$builddir/tests/model/mount-model" --dir "$MNT/model" --remount "$command" \
        ${VARJFS_MODEL_SEED:+--seed "$VARJFS_MODEL_SEED"} "$@" >"$T/out" 2>&1 || status=$?
    note "$(sed 's/^# //' "$T/out" | tail -60)"
    is "$name" $status 0
    umount_varjfs
    fsck_clean "$name"
}

run_model()
{
    run_model_with "$T/remount" "$@"
}

run_model_killed()
{
    run_model_with "$T/remount killed" "$@" --pid-file "$T/pid"
}
