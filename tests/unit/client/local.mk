# SPDX-License-Identifier: LGPL-3.0-or-later
# libvarjfs, compiled into the tests so that sanitizers see it and its allocations can fail.
# What is on the other side speaks frames of the room rpc.

UNIT_TESTS += tests/unit/client/test-batch
tests_unit_client_test_batch_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-batch.c
tests_unit_client_test_batch_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/client/test-items
tests_unit_client_test_items_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-items.c
tests_unit_client_test_items_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/client/test-semantics
tests_unit_client_test_semantics_SOURCES = $(varjfs_sources) \
	tests/unit/client/test-semantics.c
tests_unit_client_test_semantics_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/client/test-hostile
tests_unit_client_test_hostile_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-hostile.c
tests_unit_client_test_hostile_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

# Also beside varjfsd of this build.
UNIT_TESTS += tests/unit/client/test-start
tests_unit_client_test_start_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-start.c
tests_unit_client_test_start_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
tests_unit_client_test_start_CPPFLAGS = $(AM_CPPFLAGS) \
	-DVARJFS_SBINDIR='"$(abs_top_builddir)"'
EXTRA_tests_unit_client_test_start_DEPENDENCIES = varjfsd mkfs.varjfs

UNIT_TESTS += tests/unit/client/test-memory
tests_unit_client_test_memory_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-memory.c
tests_unit_client_test_memory_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
tests_unit_client_test_memory_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=free \
	-Wl,--wrap=socket,--wrap=pipe2,--wrap=open64,--wrap=posix_spawnp

LIB_TESTS += tests/unit/client/library.sh
