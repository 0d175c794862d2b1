# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# client.sh - tap.sh, and programs that use libvarjfs of the build tree, its Python module too
#
#   daemon_of DIR                   the processes that serve DIR, or begin or end to
#   kill_daemon DIR                 kill -9
#   stop_daemon DIR                 ends it as SIGTERM does, and waits for that

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"

export VARJFS_LIBRARY=$builddir/.libs/libvarjfs.so.0
export PYTHONPATH=$srcdir/lib/python PYTHONDONTWRITEBYTECODE=1

daemon_of()
{
    pgrep -f -x "(.*/)?varjfsd -d --source $1"
}

kill_daemon()
{
    pkill -KILL -f -x "(.*/)?varjfsd -d --source $1"
}

no_daemon()
{
    ! daemon_of "$1" >/dev/null
}

stop_daemon()
{
    pkill -f -x "(.*/)?varjfsd -d --source $1"
    wait_for 20 no_daemon "$1"
}

client_cleanup()
{
    # Those of this test alone: they serve directories below $T.
    pkill -KILL -f -- "varjfsd -d --source $T/"
    return 0
}
at_exit client_cleanup
