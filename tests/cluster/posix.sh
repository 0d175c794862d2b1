#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# The POSIX suite over a cluster of three nodes with two replicas: tests/mount/posix-suite.sh [TOPIC...]

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
requires program tests/posix/suite
cluster_dir memory
cluster up 3
cluster umount
over_cluster posix "$srcdir/tests/mount/posix-suite.sh" "$@"
cluster_fsck "at the end"
tap_done
