# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# tap.sh - read by every shell test (bash):
#
#   . "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/tap.sh"
#   requires command python3
#   check "a name" COMMAND [ARG...]        one result: ok if the command succeeds
#   is "a name" "$got" "$expected"         one result: ok if the two are equal
#   pass "a name"; fail "a name" [why]     one result
#   skip "a name" why                      one result, not tested
#   skip_all why                           ends the test: exit 77
#   note text...                           a comment in the output
#   at_exit COMMAND [ARG...]               run on every exit, last added first
#   wait_for SECONDS COMMAND [ARG...]      until the command succeeds; fails after 3 x SECONDS
#   tap_done                               must be the last line
#
# $T is the test's own directory; it is removed at the end.  $builddir and $srcdir are the
# trees; the programs of the build tree come first in PATH.  A test that ends before tap_done
# has failed, whatever it printed.

set -u

srcdir=${VARJFS_SRCDIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
builddir=${VARJFS_BUILDDIR:-}
if [ -z "$builddir" ]; then
    for tap_dir in "$PWD" "$srcdir/build" "$srcdir"; do
        if [ -e "$tap_dir/config.status" ]; then
            builddir=$tap_dir
            break
        fi
    done
fi
PATH=$builddir:$PATH
export LC_ALL=C.UTF-8

tap_count=0
tap_failed=0
tap_ended=
tap_exit_commands=()
tap_shell=$BASHPID

T=$(mktemp -d "${TMPDIR:-/tmp}/varjfs-test.XXXXXX") || exit 99

note()
{
    printf '%s\n' "$*" | sed 's/^/# /'
}

pass()
{
    tap_count=$((tap_count + 1))
    printf 'ok %d - %s\n' "$tap_count" "$1"
}

fail()
{
    tap_count=$((tap_count + 1))
    tap_failed=$((tap_failed + 1))
    printf 'not ok %d - %s\n' "$tap_count" "$1"
    [ $# -lt 2 ] || note "$2"
    return 1
}

skip()
{
    tap_count=$((tap_count + 1))
    printf 'ok %d - %s # SKIP %s\n' "$tap_count" "$1" "$2"
}

skip_all()
{
    if [ "$tap_count" -gt 0 ]; then
        fail "skip_all comes before the first result" "$1"
        exit 1
    fi
    printf '1..0 # SKIP %s\n' "$1"
    tap_ended=yes
    exit 77
}

# out=OUTPUT, by way of a file: a process that the command left behind would keep a pipe open for ever.  The
# command runs in a command substitution, where "wait" still knows how the jobs of the test ended.
output_of()
{
    local status=0 file=$T/.output.$BASHPID
    out=$(exec >"$file" 2>&1 && "$@") || status=$?
    out=$(<"$file")
    rm -f "$file"
    return $status
}

# status_of COMMAND [ARG...]: prints its exit status; what it says is in $T/out and $T/err
status_of()
{
    local status=0
    "$@" >"$T/out" 2>"$T/err" </dev/null || status=$?
    echo $status
}

check()
{
    local name=$1 status=0 out
    shift
    output_of "$@" || status=$?
    if [ $status = 0 ]; then
        pass "$name"
    else
        fail "$name" "status $status: $*
$out"
    fi
}

# The command must fail, and not by a signal.
check_fails()
{
    local name=$1 status=0 out
    shift
    output_of "$@" || status=$?
    if [ $status != 0 ] && [ $status -lt 126 ]; then
        pass "$name"
    else
        fail "$name" "status $status: $*
$out"
    fi
}

is()
{
    if [ "$2" = "$3" ]; then
        pass "$1"
    else
        fail "$1" "got:      $2
expected: $3"
    fi
}

at_exit()
{
    tap_exit_commands+=("$(printf '%q ' "$@")")
}

tap_at_exit()
{
    local status=$? i
    [ "$BASHPID" = "$tap_shell" ] || return
    trap - EXIT
    for ((i = ${#tap_exit_commands[@]} - 1; i >= 0; i--)); do
        eval "${tap_exit_commands[i]}"
    done
    rm -rf "$T"
    if [ -z "$tap_ended" ]; then
        fail "the test came to its end" "it ended with status $status before tap_done"
        printf '1..%d\n' "$tap_count"
        [ $status != 0 ] || status=1
    fi
    exit $status
}
trap tap_at_exit EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# SECONDS are those of a quiet machine.  Only a test that fails takes them all, so a loaded machine
# may take three times as long.
wait_for()
{
    local end=$((SECONDS + 3 * $1 + 1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}

# requires command NAME... | program NAME... (of the build tree) | root | python-module NAME |
# codec NAME... (that a build may lack)
requires()
{
    local what=$1 name
    shift
    case $what in
    command)
        for name; do
            command -v "$name" >/dev/null || skip_all "needs the command $name"
        done
        ;;
    codec)
        for name; do
            ! "$builddir/mkfs.varjfs" --help | grep -q "not in this build:.*$name" ||
                skip_all "$name is not in this build"
        done
        ;;
    program)
        for name; do
            [ -x "$builddir/$name" ] || skip_all "needs $name in the build tree"
        done
        ;;
    root)
        [ "$(id -u)" = 0 ] && return
        [ "${VARJFS_TEST_ROOT:-}" != require ] || exit 99
        skip_all "needs root"
        ;;
    python-module)
        for name; do
            python3 -c "import $name" 2>/dev/null || skip_all "needs the Python module $name"
        done
        ;;
    *)
        fail "requires: unknown: $what"
        exit 1
        ;;
    esac
}

tap_done()
{
    tap_ended=yes
    if [ "$tap_count" = 0 ]; then
        fail "the test printed a result"
    fi
    printf '1..%d\n' "$tap_count"
    [ "$tap_failed" = 0 ] || exit 1
    exit 0
}
