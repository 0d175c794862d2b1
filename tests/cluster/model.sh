#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# The model test over a cluster: tests/model/mount.sh, "long" likewise; three nodes, two replicas.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/cluster.sh"

requires_cluster
requires program tests/model/mount-model
cluster_dir memory
cluster up 3
cluster umount
over_cluster model "$srcdir/tests/model/mount.sh" "$@"
cluster_fsck "at the end"
tap_done
