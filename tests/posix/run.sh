#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# run.sh [--user NAME|all] [--jobs N] [DIR [TOPIC...]]
#
# Runs the POSIX checks in DIR (the current directory), on whatever file system that is: as the
# caller, as the ordinary user NAME, or with "all" as root and as an ordinary user.  Prints TAP.
# Needs the program tests/posix/suite of a build tree (make check TESTS= builds it).

set -u

usage()
{
    echo "usage: run.sh [--user NAME|all] [--jobs N] [DIR [TOPIC...]]"
}

user=
jobs=2
while [ $# -gt 0 ]; do
    case $1 in
    --user) user=${2:-} && shift 2 ;;
    --jobs) jobs=${2:-} && shift 2 ;;
    --help) usage && exit 0 ;;
    --*) usage >&2 && exit 2 ;;
    *) break ;;
    esac
done
dir=${1:-.}
[ $# = 0 ] || shift

here=$(cd "$(dirname "$0")" && pwd)
suite=
for build in "${VARJFS_BUILDDIR:-}" . "$here/../../build" "$here/../.."; do
    if [ -n "$build" ] && [ -x "$build/tests/posix/suite" ]; then
        suite=$build/tests/posix/suite
        break
    fi
done
if [ -z "$suite" ]; then
    echo "run.sh: no tests/posix/suite: run 'make check TESTS=' in the build tree" >&2
    exit 2
fi

# An ordinary user works in a directory of his own, so DIR may belong to anybody.
run_as()
{
    local who=$1 work status=0
    shift
    if [ -z "$who" ]; then
        "$suite" -j "$jobs" "$dir" "$@"
        return
    fi
    work=$(mktemp -d "$dir/posix.XXXXXX") || return 2
    chmod 755 "$work"
    chown "$who" "$work" || return 2
    "$suite" -j "$jobs" -u "$who" "$work" "$@" || status=$?
    rmdir "$work" || status=1
    return $status
}

if [ "$user" != all ]; then
    run_as "$user" "$@"
    exit
fi
if [ "$(id -u)" != 0 ]; then
    echo "run.sh: --user all needs root" >&2
    exit 2
fi
status=0
run_as "" "$@" || status=$?
# The second plan would be one too many; the lines stand for themselves.
run_as nobody "$@" || status=$?
exit $status
