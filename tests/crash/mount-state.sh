#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# mount-state.sh - a hook of "check states --tree": the state through the programs that users have
#
# fsck.varjfs -n, varjfs, a comparison with what the checker read, gc, umount, fsck.varjfs -n.

set -u
state=$VJ_CRASH_STATE
mnt=$(dirname "$state")/mnt
status=0

complain()
{
    echo "mount-state: $*" >&2
    status=1
}

checked()
{
    local out
    out=$(fsck.varjfs -n "$state" 2>&1) || complain "fsck.varjfs -n $1: status $?: $out"
}

mkdir "$mnt" || exit 1
checked "before the mount"
varjfs -f "$state" "$mnt" >&2 &
for ((i = 0; i < 600; i++)); do
    mountpoint -q "$mnt" && break
    sleep 0.1
done
diff -r "$VJ_CRASH_TREE" "$mnt" >&2 || complain "the mount shows something else"
varjfsctl gc "$mnt" >/dev/null || complain "gc: status $?"
(echo more >"$mnt/more" && sync "$mnt/more" && rm "$mnt/more") || complain "it cannot be written to"
for ((i = 0; i < 600; i++)); do
    umount "$mnt" 2>/dev/null && break
    sleep 0.1
done
wait $! || complain "the daemon's status: $?"
checked "after it"
exit $status
