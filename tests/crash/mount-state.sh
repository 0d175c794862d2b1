#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# mount-state.sh - a hook of "check states --tree": the state through the programs that users have
#
# fsck.varjfs -n, varjfs, a comparison with what the checker read, gc, umount, fsck.varjfs -n.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/crash/hook.sh"

write_more()
{
    echo more >"$mnt/more" && sync "$mnt/more" && rm "$mnt/more"
}

mkdir "$mnt" || exit 1
check "fsck.varjfs -n before the mount" fsck.varjfs -n "$state"
varjfs -f "$state" "$mnt" &
daemon=$!
check "it is mounted" wait_for 60 is_up_or_over
check "the mount shows what the checker read" diff -r "$VJ_CRASH_TREE" "$mnt"
check "gc" varjfsctl gc "$mnt"
check "it can be written to" write_more
check "umount" wait_for 60 is_down
wait $daemon
is "the daemon's status" $? 0
check "fsck.varjfs -n after it" fsck.varjfs -n "$state"
tap_done
