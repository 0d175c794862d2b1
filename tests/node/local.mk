# SPDX-License-Identifier: LGPL-3.0-or-later
# A node among hostile peers.

tests_node_attacker = \
	tests/lib/rpc-frames.c tests/lib/rpc-frames.h \
	tests/node/honest.c tests/node/honest.h \
	tests/node/raw.c tests/node/raw.h \
	tests/node/report.c tests/node/report.h

TEST_HELPERS += tests/node/hostile
tests_node_hostile_SOURCES = tests/node/hostile.c $(tests_node_attacker)
tests_node_hostile_LDADD = $(LDADD_rpc)

TEST_HELPERS += tests/node/hostile-tls
tests_node_hostile_tls_SOURCES = tests/node/hostile-tls.c $(tests_node_attacker)
tests_node_hostile_tls_LDADD = $(LDADD_rpc)

PROGRAM_TESTS += tests/node/hostile.sh

# A client that was written from the page alone.
PROGRAM_TESTS += tests/node/page.sh
# Credentials that are refused are said at once.
PROGRAM_TESTS += tests/node/wrong-key.sh

# A client that remembers what was acknowledged, and what the daemon does about signals, kills and full
# disks.
TEST_HELPERS += tests/node/load
tests_node_load_LDADD = $(LDADD_rpc)

MOUNT_TESTS += tests/node/daemon.sh
MOUNT_TESTS += tests/node/drain.sh
FAULT_TESTS += tests/node/full.sh
FAULT_TESTS += tests/node/kill.sh
