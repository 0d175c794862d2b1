# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# hang.sh - mount.sh, and a store or an engine that does not answer for a while
#
#   hold=$T/hold                      calls of a wrapper with hold=$hold wait as long as it is locked
#   answers_stop NAME                 one result: it is; what is started from here on has to have 9<&-
#   answers_go_on
#   ended PID                         a child that was killed is gone, without what the shell says of it

. "$(dirname "${BASH_SOURCE[0]}")/mount.sh"

hold=$T/hold
: >"$hold"
# The daemon's sandbox lets it open what lies in this directory.
export VARJFS_TEST_DELAY="hold=$T"

answers_stop()
{
    exec 9<"$hold"
    check "$1: no answer comes" flock -x -n 9
}

answers_go_on()
{
    exec 9<&-
}

ended()
{
    process_gone "$1" && wait "$1" 2>/dev/null
    process_gone "$1"
}
