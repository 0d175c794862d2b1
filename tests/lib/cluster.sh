# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# cluster.sh - mount.sh, and what tests over a cluster of scripts/cluster need:
#
#   . "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"
#   requires_cluster                  skips the test where namespaces cannot be made
#   cluster_dir memory|disk           $CLUSTER, where it will be: in memory if possible, or below $T
#   cluster VERB [ARG...]             scripts/cluster --dir $CLUSTER VERB ARG...; ends the test if it fails
#   try_cluster VERB [ARG...]         the same, for checks
#   cluster_fsck NAME                 one result: fsck.varjfs -n of the unmounted volume finds nothing
#   cluster_healed SECONDS NAME       one result: all nodes are live, and a pass over all objects finds none that
#                                     lacks a replica
#   load_start SEED                   tests/cluster/load.py begins in $MNT/load, as process $load; it ends when
#                                     $T/stop is there, and speaks into $T/load.log
#   load_count, load_has COUNT        files that it has fsynced or removed; whether they are so many, or it has ended
#   load_verify NAME                  one result: what it has fsynced is there
#   over_cluster NAME COMMAND [ARG...]   runs a test of another directory over it: its results, as ours
#
# MNT is the mount and VOLUME the volume file of it.  What the cluster has begun is ended on every exit.

. "$(dirname "${BASH_SOURCE[0]}")/mount.sh"

CLUSTER=
VOLUME=

requires_cluster()
{
    requires root
    requires command ip tc nsenter
    requires program varjfsd varjfsctl
    requires_fuse
    ip netns add "varjfs-probe-$$" 2>/dev/null || skip_all "network namespaces cannot be made here"
    if ! ip -n "varjfs-probe-$$" link add eth0 type veth peer name eth1 2>/dev/null ||
        ! ip -n "varjfs-probe-$$" link add bridge type bridge 2>/dev/null; then
        ip netns delete "varjfs-probe-$$"
        skip_all "this kernel has no veth or no bridge"
    fi
    ip netns delete "varjfs-probe-$$"
}

cluster_cleanup()
{
    cd / || true
    [ ! -e "$CLUSTER/settings" ] || try_cluster down --destroy >"$T/down.log" 2>&1 ||
        note "cluster down: $(cat "$T/down.log")"
}

cluster_dir()
{
    CLUSTER=$T/cluster
    if [ "$1" = memory ] && [ -w /dev/shm ] && [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
        memory_dir=$(mktemp -d /dev/shm/varjfs-test.XXXXXX) || exit 99
        at_exit remove_memory_dir
        CLUSTER=$memory_dir/cluster
    fi
    MNT=$CLUSTER/mnt
    VOLUME=$CLUSTER/lab.conf
    SOURCE=$VOLUME
    at_exit cluster_cleanup
}

try_cluster()
{
    # shellcheck disable=SC2154 # tap.sh sets srcdir and builddir
    VARJFS_BUILDDIR=$builddir "$srcdir/scripts/cluster" --dir "$CLUSTER" "$@"
}

cluster()
{
    try_cluster "$@" >"$T/cluster.log" 2>&1 || {
        fail "scripts/cluster $*" "$(cat "$T/cluster.log")
$(tail -n 3 "$CLUSTER"/node*/log 2>/dev/null)"
        exit 1
    }
}

cluster_fsck()
{
    local status=0 out
    out=$(try_cluster run fsck.varjfs -n "$VOLUME" 2>&1) || status=$?
    is "$1: fsck status" "$status" 0 || note "$out"
}

# It heals what it finds; so the next one finds nothing.
nothing_to_heal()
{
    [ "$(varjfsctl node status "$MNT" | grep -c ' state=live ')" = "$(cat "$CLUSTER"/node*/pid | wc -l)" ] || return 1
    varjfsctl node repair "$MNT" >"$T/repair.log" 2>&1 && grep -q 'healed 0$' "$T/repair.log"
}

cluster_healed()
{
    if wait_for "$1" nothing_to_heal; then
        pass "$2"
    else
        fail "$2" "$(cat "$T/repair.log")
$(varjfsctl node status "$MNT")"
    fi
}

load=

load_start()
{
    mkdir -p "$MNT/load"
    : >"$T/record"
    python3 "$srcdir/tests/cluster/load.py" run "$MNT/load" "$T/record" "$T/stop" 3 "$1" >"$T/load.log" 2>&1 &
    load=$!
}

load_count()
{
    wc -l <"$T/record"
}

load_has()
{
    [ "$(load_count)" -ge "$1" ] || ! kill -0 "$load" 2>/dev/null
}

load_verify()
{
    check "$1" python3 "$srcdir/tests/cluster/load.py" verify "$MNT/load" "$T/record"
}

# The results of another test, which is well-formed TAP, become some of this one's.
over_cluster()
{
    local name=$1 status=0 line
    shift
    VARJFS_TEST_CLUSTER=$CLUSTER try_cluster run "$@" >"$T/over.log" 2>&1 </dev/null || status=$?
    if [ $status = 77 ]; then
        skip "$name" "$(sed -n 's/^1\.\.0 # SKIP //p' "$T/over.log")"
        return
    fi
    while IFS= read -r line; do
        case $line in
        "ok "*) pass "$name: ${line#* - }" ;;
        "not ok "*) fail "$name: ${line#* - }" ;;
        1..*) ;;
        *) printf '%s\n' "${line/#\# /#   }" ;;
        esac
    done <"$T/over.log"
    is "$name: exit status" $status 0
}
