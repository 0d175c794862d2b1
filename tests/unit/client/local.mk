# SPDX-License-Identifier: LGPL-3.0-or-later
# libvarjfs, compiled into the tests so that sanitizers see it and its allocations can fail.
# What is on the other side speaks frames of the room rpc.

UNIT_TESTS += tests/unit/client/test-batch
tests_unit_client_test_batch_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/fake-tls.h \
	tests/unit/client/test-batch.c
tests_unit_client_test_batch_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/client/test-area
tests_unit_client_test_area_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-area.c
tests_unit_client_test_area_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/client/test-mailbox
tests_unit_client_test_mailbox_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-mailbox.c
tests_unit_client_test_mailbox_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/client/test-copy
tests_unit_client_test_copy_SOURCES = $(varjfs_sources) tests/unit/client/test-copy.c
tests_unit_client_test_copy_LDADD = $(LDADD_base) $(CLIENT_TLS_LIBS) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/client/test-gather
tests_unit_client_test_gather_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-gather.c
tests_unit_client_test_gather_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/client/test-items
tests_unit_client_test_items_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/test-items.c
tests_unit_client_test_items_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

if CLIENT_TLS
UNIT_TESTS += tests/unit/client/test-batch-tls
tests_unit_client_test_batch_tls_SOURCES = $(tests_unit_client_test_batch_SOURCES)
tests_unit_client_test_batch_tls_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
tests_unit_client_test_batch_tls_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_TLS
endif

UNIT_TESTS += tests/unit/client/test-semantics
tests_unit_client_test_semantics_SOURCES = $(varjfs_sources) \
	tests/unit/client/test-semantics.c
tests_unit_client_test_semantics_LDADD = $(LDADD_base) $(CLIENT_TLS_LIBS) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/client/test-hostile
tests_unit_client_test_hostile_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/fake-tls.h \
	tests/unit/client/test-hostile.c
tests_unit_client_test_hostile_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

if CLIENT_TLS
UNIT_TESTS += tests/unit/client/test-hostile-tls
tests_unit_client_test_hostile_tls_SOURCES = $(tests_unit_client_test_hostile_SOURCES)
tests_unit_client_test_hostile_tls_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
tests_unit_client_test_hostile_tls_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_TLS
endif

# Also beside varjfsd of this build.
UNIT_TESTS += tests/unit/client/test-start
tests_unit_client_test_start_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/fake-tls.h \
	tests/unit/client/test-start.c
tests_unit_client_test_start_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
tests_unit_client_test_start_CPPFLAGS = $(AM_CPPFLAGS) \
	-DVARJFS_SBINDIR='"$(abs_top_builddir)"'
EXTRA_tests_unit_client_test_start_DEPENDENCIES = varjfsd mkfs.varjfs

UNIT_TESTS += tests/unit/client/test-memory
tests_unit_client_test_memory_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/fake-tls.h \
	tests/unit/client/test-memory.c
tests_unit_client_test_memory_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
tests_unit_client_test_memory_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=free \
	-Wl,--wrap=socket,--wrap=pipe2,--wrap=open64,--wrap=posix_spawnp

if CLIENT_TLS
# Without allocations of OpenSSL's own, which another test lets fail.
UNIT_TESTS += tests/unit/client/test-memory-tls
tests_unit_client_test_memory_tls_SOURCES = $(tests_unit_client_test_memory_SOURCES)
tests_unit_client_test_memory_tls_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
tests_unit_client_test_memory_tls_LDFLAGS = $(tests_unit_client_test_memory_LDFLAGS)
tests_unit_client_test_memory_tls_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_TLS
endif

if CLIENT_TLS
UNIT_TESTS += tests/unit/client/test-tls
tests_unit_client_test_tls_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/fake-tls.h \
	tests/unit/client/test-tls.c
tests_unit_client_test_tls_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)
endif

UNIT_TESTS += tests/unit/client/test-conf
tests_unit_client_test_conf_SOURCES = $(varjfs_sources) \
	tests/unit/client/fake-daemon.h \
	tests/unit/client/fake-tls.h \
	tests/unit/client/test-conf.c
tests_unit_client_test_conf_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

LIB_TESTS += tests/unit/client/library.sh
