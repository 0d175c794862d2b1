# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# hook.sh - what hooks of "check states" have in common: the state is mounted by a daemon that is their child

exec >&2 # what a hook says belongs to the state
. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

state=$VJ_CRASH_STATE
mnt=$(dirname "$state")/mnt
daemon=

# A zombie has ended; who waits for it takes the status.
daemon_has_ended()
{
    [ "$(sed 's/.*) //; s/ .*//' "/proc/$daemon/stat" 2>/dev/null)" = Z ] || ! [ -e "/proc/$daemon" ]
}

is_up_or_over()
{
    mountpoint -q "$mnt" || daemon_has_ended
}

is_down()
{
    umount -i "$mnt" 2>/dev/null || ! mountpoint -q "$mnt"
}
