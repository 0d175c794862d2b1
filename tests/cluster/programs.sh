#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
#
# programs.sh [--long] [NAME...] - programs of the world over a cluster: tests/programs, three nodes, two replicas
#
# Default: git, sqlite, tar, fio; "all" for all of them.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
long=()
if [ "${1:-}" = --long ]; then
    long=(--long)
    shift
fi
[ $# -gt 0 ] || set -- git sqlite tar fio
if [ "$1" = all ]; then
    shift
    for file in "$srcdir"/tests/programs/*.sh; do
        file=${file##*/}
        set -- "$@" "${file%.sh}"
    done
fi
cluster_dir memory
cluster up 3
cluster umount
for name; do
    over_cluster "$name" "$srcdir/tests/programs/$name.sh" ${long[@]+"${long[@]}"}
    cluster_fsck "$name"
done
tap_done
