# SPDX-License-Identifier: LGPL-3.0-or-later
# A node among hostile peers.

TEST_HELPERS += tests/node/hostile
tests_node_hostile_SOURCES = \
	tests/lib/rpc-frames.c tests/lib/rpc-frames.h \
	tests/node/honest.c tests/node/honest.h \
	tests/node/hostile.c \
	tests/node/raw.c tests/node/raw.h
tests_node_hostile_LDADD = $(LDADD_rpc)

# A client that remembers what was acknowledged, and what the daemon does about signals, kills and full
# disks.
TEST_HELPERS += tests/node/load
tests_node_load_LDADD = $(LDADD_rpc)

MOUNT_TESTS += tests/node/daemon.sh
MOUNT_TESTS += tests/node/drain.sh
FAULT_TESTS += tests/node/full.sh
FAULT_TESTS += tests/node/kill.sh
