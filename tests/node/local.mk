# SPDX-License-Identifier: LGPL-3.0-or-later
# A node among hostile peers.

TEST_HELPERS += tests/node/hostile
tests_node_hostile_SOURCES = \
	tests/lib/rpc-frames.c tests/lib/rpc-frames.h \
	tests/node/honest.c tests/node/honest.h \
	tests/node/hostile.c \
	tests/node/raw.c tests/node/raw.h
tests_node_hostile_LDADD = $(LDADD_rpc)
