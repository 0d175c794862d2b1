# SPDX-License-Identifier: LGPL-3.0-or-later
# Daemons in network namespaces (tests/lib/cluster.sh): CLUSTER_TESTS += tests/cluster/thing.sh.  They need root.

CLUSTER_TESTS += \
	tests/cluster/lose-two.sh \
	tests/cluster/meta-killed.sh \
	tests/cluster/model.sh \
	tests/cluster/nodes-change.sh \
	tests/cluster/nodes-fail.sh \
	tests/cluster/posix.sh \
	tests/cluster/programs.sh \
	tests/cluster/rot.sh \
	tests/cluster/start.sh
