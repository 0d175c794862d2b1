#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# erase-state.sh - a hook of "check states" for the workload erase
#
# What was overwritten before the cut is in no file of the state, and an old data.mdb that had gone does not come
# back with it.  What was removed for good before it is in
# none after the next mount, which overwrites it and the log when it ends: of one state of CRASH_MOUNT_EVERY (3).

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/crash/hook.sh"

# last WORD: the number behind it in the last mark
last()
{
    sed -n "s/^!$1 //p" "$VJ_CRASH_MARKS" | tail -n 1
}

# found_of TO [GREP-OPTION...]: files with what was removed in rounds 1 to TO
found_of()
{
    local to=$1 i
    shift
    for ((i = 1; i <= to; i++)); do
        grep -rlaF "$@" "nobody is to find number $i again" "$state"
    done
}

removed=$(last removed) erased=$(last erased)
is "files with what was overwritten before the cut" "$(found_of "${erased:-0}" --exclude=redo.log)" ""
if [ "$(grep -x '[-+]data.mdb.old' "$VJ_CRASH_MARKS" | tail -n 1)" = -data.mdb.old ]; then
    is "the old file, that had gone before the cut" "$(grep -rlaF "nobody is to find" --include=data.mdb.old "$state")" ""
fi
if [ "${removed:-0}" -gt 0 ] && [ $(($(wc -l <"$VJ_CRASH_MARKS") % ${CRASH_MOUNT_EVERY:-3})) = 0 ]; then
    mkdir "$mnt" || exit 1
    varjfs -f "$state" "$mnt" &
    daemon=$!
    check "it is mounted" wait_for 60 is_up_or_over
    check "gc" varjfsctl gc "$mnt"
    check "umount" wait_for 60 is_down
    wait $daemon
    is "the daemon's status" $? 0
    is "files with what was removed before the cut" "$(found_of "$removed")" ""
fi
tap_done
