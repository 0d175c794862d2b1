#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# memory.sh [FILES] - the daemon keeps within its budgets, and does not wait for itself
#
# FILES files (short form: 12000; an acceptance run: 1000000) are made, read and removed; the
# most RssAnon of the daemon is compared with the sum of its budgets.  Then mappings that are
# larger than the budgets are written, with sync(1) beside; in the long form on a SOURCE on a
# disk and in a control group with a limit, where there may be one.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"

requires_fuse
requires program tests/stress/memory
source_in_memory
# shellcheck disable=SC2154 # tap.sh sets builddir
memory=$builddir/tests/stress/memory
files=${1:-12000}
cache=16
dirty=32
# The metadata's changes (overlay=64M), what LMDB dirties while it moves them (as much again),
# stages of edits that are under way (front: none here), stacks, code and what malloc keeps.
overlay=64
rest=128

make_fs -o objects=16K
mount_varjfs -o cache=${cache}M,dirty=${dirty}M

# ---- files

figures=$("$memory" files "$MNT" "$files" 4 "$(daemon_pid)" 2>"$T/err") ||
    fail "files are made, read and removed" "$(cat "$T/err")"
read -r most first last <<<"$figures"
budget=$((cache + dirty + 2 * overlay + rest))
note "$files files: RssAnon $((most / 1024)) MiB at most, $((first / 1024)) before, $((last / 1024)) at the end"
note "budgets: cache $cache + dirty $dirty + overlay $overlay, moved $overlay + rest $rest = $budget MiB"
check "RssAnon stays within the budgets" test "$most" -le $((budget * 1024))

# ---- mappings

group=
leave_group()
{
    # It goes when nobody is in it.
    [ -z "$group" ] || wait_for 10 rmdir "$group"
}

# limit MIB: a group of its own for the daemon and for what this shell starts from then on
limit()
{
    local own
    if own=$(awk -F: '$1 == 0 { print $3 }' /proc/self/cgroup) && [ -e /sys/fs/cgroup/cgroup.controllers ] &&
        mkdir "/sys/fs/cgroup$own/varjfs-test.$$" 2>/dev/null; then
        group=/sys/fs/cgroup$own/varjfs-test.$$
        at_exit leave_group
        echo $(($1 << 20)) 2>/dev/null >"$group/memory.max" || return 1
    elif own=$(awk -F: '$2 == "memory" { print $3 }' /proc/self/cgroup) &&
        mkdir "/sys/fs/cgroup/memory$own/varjfs-test.$$" 2>/dev/null; then
        group=/sys/fs/cgroup/memory$own/varjfs-test.$$
        at_exit leave_group
        echo $(($1 << 20)) 2>/dev/null >"$group/memory.limit_in_bytes" || return 1
    else
        return 1
    fi
    daemon_pid >"$T/pid"
    while read -r pid; do
        echo "$pid" >"$group/cgroup.procs" || return 1
    done <"$T/pid"
}

umount_varjfs
bytes=$((64 << 20))
seconds=2
if [ "$files" -ge 1000000 ]; then
    # What the daemon writes into a file system in memory would count, and could not be had back.
    SOURCE=$T/source
    make_fs -o objects=16K
    bytes=$((256 << 20))
    seconds=120
fi
mount_varjfs -o cache=${cache}M,dirty=${dirty}M
# More than the daemon may need, so that nobody is killed; the mappings are twice that.
if [ "$files" -ge 1000000 ] && limit 400 2>/dev/null; then
    note "the daemon and the writers may have 400 MiB together"
fi
sync_all()
{
    local i
    for ((i = 0; i < 5; i++)); do
        sync || return 1
    done
}
(
    [ -z "$group" ] || sh -c 'echo $PPID' >"$group/cgroup.procs"
    exec timeout --kill-after=20 $((seconds + 400)) "$memory" maps "$MNT" $bytes 3 $seconds
) >"$T/maps" 2>&1 &
writers=$!
check "sync(1) returns beside it" sync_all
wait $writers
is "mappings larger than the budgets are written and read back" $? 0
note "$(cat "$T/maps")"
if [ -n "$group" ]; then
    note "the group had at most $(cat "$group"/memory.peak "$group"/memory.max_usage_in_bytes 2>/dev/null | awk '{ print int($1 / 1048576) }') MiB"
fi
umount_varjfs
fsck_clean "after that"
tap_done
