# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# crash.sh - behind tests/lib/mount.sh, for tests that cut the power:
#
#   requires_crash                     skip where nothing can be recorded
#   crash_make [MKFS-OPTION...]        an empty SOURCE in memory and its log; mkfs.varjfs, recorded
#   crash_mount [MOUNT-OPTION...]      varjfs $SOURCE $MNT, recorded
#   crash_umount                       returns when the daemon has ended
#   crash_mark TEXT                    a line in the log, in the order of what happens
#   crash_workload NAME OPTION...      makes, mounts, runs one of workload.c, unmounts; results.
#                                      False: skipped, for want of space
#   crash_replays NAME                 one result: the log makes the very tree that SOURCE is
#   crash_states NAME [OPTION...]      one result: no state that a power cut may leave is wrong;
#                                      OPTIONs as "check states --help" says
#   crash_cut [OPTION...]              the same without a result: the status, and $T/states
#   crash_remount_command              print a command that unmounts and mounts, recorded
#
# The log is $crash_log.  CRASH_STORE=SPEC: workloads have that store.  CRASH_DAEMON=PROGRAM mounts with another program than varjfs.
# CRASH_FIRST=yes ends with the first violation.

crash_library=${builddir:-${VARJFS_BUILDDIR:-.}}/tests/crash/.libs/librecord.so
crash_check=${builddir:-${VARJFS_BUILDDIR:-.}}/tests/crash/check
crash_log=
crash_mount_options=()
crash_fail=0 # one of so many writes of the metadata fails (record.c)
crash_cut_options=()

requires_crash()
{
    requires root
    requires_fuse
    requires program varjfs mkfs.varjfs varjfsctl
    [ -e "$crash_library" ] || skip_all "tests/crash does not record on this machine"
}

# crash_exec=exec: in place of the shell.  The runtime of a sanitizer wants to be loaded before all others.
crash_run()
{
    local program sanitizer
    program=$(type -P "$1") || return 127
    sanitizer=$(ldd "$program" 2>/dev/null | awk '/lib[at]san\.so/ { print $3 }')
    LD_PRELOAD="$sanitizer $crash_library" VJ_RECORD_LOG="$crash_log" \
        VJ_RECORD_BELOW="$SOURCE" VJ_RECORD_FAIL="$crash_fail" ${crash_exec:-} "$@"
}

# CRASH_KEEP=DIR: the logs stay there.
crash_remove()
{
    [ -n "${crash_dir:-}" ] || return 0
    if [ -n "${CRASH_KEEP:-}" ]; then
        mkdir -p "$CRASH_KEEP"
        mv "$crash_log" "$CRASH_KEEP/$(basename "$crash_dir").log"
    fi
    rm -rf "$crash_dir"
}
at_exit crash_remove

# For a log, a source and some states with much metadata; and a checkpoint leaves 5 % of a device free.
crash_has_room()
{
    local size avail
    read -r size avail < <(stat -f -c '%b*%S %a*%S' "$1" 2>/dev/null) || return 1
    ((avail > (1 << 30) + size / 20))
}

# In memory; in the test's directory where that has room and memory has not.
crash_make()
{
    local memory=/dev/shm
    crash_remove
    crash_has_room $memory || ! crash_has_room "$T" || memory=
    crash_dir=$(mktemp -d "${memory:-$T}/varjfs-crash.XXXXXX" 2>/dev/null || mktemp -d "$T/crash.XXXXXX") || exit 99
    SOURCE=$crash_dir/source
    crash_log=$crash_dir/log
    mkdir "$SOURCE"
    crash_run mkfs.varjfs "$@" "$SOURCE" >"$T/mkfs.log" 2>&1 || {
        fail "mkfs.varjfs $* $SOURCE" "$(cat "$T/mkfs.log")"
        exit 1
    }
    crash_mark begin
}

crash_mount()
{
    crash_mount_options=("$@")
    # For the while, the name of the program is this function.
    varjfs()
    {
        unset -f varjfs
        crash_run "${CRASH_DAEMON:-varjfs}" "$@"
    }
    mount_varjfs "$@"
    unset -f varjfs
}

# Asked of the log, because it is cheap.
crash_daemon_gone()
{
    process_gone "$("$crash_check" pid "$crash_log")"
}

crash_take_down()
{
    wait_for 60 unmount "$MNT" 2>"$T/umount.log" && wait_for 60 crash_daemon_gone
}

crash_umount()
{
    crash_take_down || {
        fail "umount $MNT" "$(sort -u "$T/umount.log")"
        exit 1
    }
}

crash_mark()
{
    "$crash_check" mark "$crash_log" "$1"
}

crash_remount_command()
{
    {
        echo '#!/bin/bash'
        declare -p MNT SOURCE T PATH crash_log crash_library crash_check crash_mount_options crash_fail
        echo "CRASH_DAEMON=${CRASH_DAEMON:-varjfs}"
        declare -f unmount wait_for process_gone crash_daemon_gone crash_take_down crash_run
        cat <<'END'
crash_take_down || exit 1
crash_run "$CRASH_DAEMON" "$SOURCE" "$MNT" "${crash_mount_options[@]}"
END
    } >"$T/remount"
    chmod 755 "$T/remount"
    echo "$T/remount"
}

crash_replays()
{
    local replayed=$crash_dir/replayed
    mkdir "$replayed"
    # shellcheck disable=SC2016 # the inner shell expands them
    check "$1: the log makes what SOURCE is" bash -c '
        set -e
        "$1" replay "$2" "$3"
        cmp <(cd "$3" && find . -printf "%y %p\n" | sort) <(cd "$4" && find . -printf "%y %p\n" | sort)
        diff -r --no-dereference "$3" "$4"' - \
        "$crash_check" "$crash_log" "$replayed" "$SOURCE"
    rm -rf "$replayed"
}

crash_cut()
{
    mkdir -p "$crash_dir/states"
    "$crash_check" states "$crash_log" --dir "$crash_dir/states" ${CRASH_FIRST:+--first} "$@" >"$T/states" 2>&1
}

crash_states()
{
    local name=$1 status=0
    shift
    crash_cut ${crash_cut_options[@]+"${crash_cut_options[@]}"} "$@" || status=$?
    note "$(cat "$T/states")"
    is "$name: power cuts" $status 0
}

crash_workload()
{
    local name=$1 options=() shrink=0 store=${CRASH_STORE:-} erase=
    shift
    crash_fail=0
    crash_cut_options=()
    case $name in
    commits) options=(-o commit=3600) ;; # nothing is flushed that nobody asked for
    fragments) options=(-o fragments=64K) ;; # they become objects all the time
    compact) crash_cut_options=(--near data.mdb.new) ;;
    shrink)
        shrink=1 # after a second; the others are not disturbed by it
        crash_cut_options=(--near data.mdb.copy)
        ;;
    erase)
        erase='\,erase=1' store=${store:-posix}
        [[ $store == *:* ]] && store+=\\,erase=yes || store+=:erase=yes
        crash_cut_options=(--near data.mdb.old --hook "$srcdir/tests/crash/erase-state.sh")
        ;;
    checkpoint)
        options=(-o checkpoint=1) # one at each unmount, and when a second has passed
        crash_cut_options=(--near new --restore-every 5)
        ;;
    metafault | storefault) crash_cut_options=(--near '!fault') ;;
    esac
    # With a small reserve, which each state has to set aside anew.
    crash_make -o "${store:+store=$store,}objects=1K,meta=lmdb:reserve=1M\\,shrink=$shrink$erase\\,redo=${CRASH_REDO:-256K}"
    case $name in
    compact | shrink | checkpoint)
        crash_has_room "$crash_dir" || { skip "$name" "needs 1 GiB, and 5 %, of free space" && return 1; }
        ;;
    esac
    case $name in
    metafault) crash_fail=13 ;;
    storefault) crash_fail=5:store ;;
    esac
    crash_mount ${options[@]+"${options[@]}"}
    check "$name" "${builddir:-${VARJFS_BUILDDIR:-.}}/tests/crash/workload" "$name" --dir "$MNT" \
        --source "$SOURCE" --log "$crash_log" --remount "$(crash_remount_command)" "$@"
    crash_umount
    crash_replays "$name"
    note "$("$crash_check" count "$crash_log")"
}
