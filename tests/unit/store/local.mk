# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room store.  Two lines for each tests/unit/store/test-thing.c:
#   UNIT_TESTS += tests/unit/store/test-thing
#   tests_unit_store_test_thing_LDADD = $(LDADD_store) $(CMOCKA_LIBS)
# --wrap hands the system calls of the code under test to the test.

UNIT_TESTS += tests/unit/store/test-fd-cache
tests_unit_store_test_fd_cache_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-block
tests_unit_store_test_block_LDADD = $(LDADD_store) $(CMOCKA_LIBS)
tests_unit_store_test_block_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=fdatasync,--wrap=io_submit,--wrap=fallocate64

UNIT_TESTS += tests/unit/store/test-block-keys
tests_unit_store_test_block_keys_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-posix-format
tests_unit_store_test_posix_format_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-posix-sync
tests_unit_store_test_posix_sync_LDADD = $(LDADD_store) $(CMOCKA_LIBS)
tests_unit_store_test_posix_sync_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=close

UNIT_TESTS += tests/unit/store/test-memory
tests_unit_store_test_memory_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-open
tests_unit_store_test_open_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-posix
tests_unit_store_test_posix_LDADD = $(LDADD_store) $(CMOCKA_LIBS)
tests_unit_store_test_posix_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=fdatasync

UNIT_TESTS += tests/unit/store/test-wrap
tests_unit_store_test_wrap_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-io
tests_unit_store_test_io_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-shared
tests_unit_store_test_shared_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-posix-named
tests_unit_store_test_posix_named_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-remote-answers
tests_unit_store_test_remote_answers_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-placement
tests_unit_store_test_placement_LDADD = $(LDADD_store) -lm $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-remote
tests_unit_store_test_remote_LDADD = tests/lib/libnode-model.la $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-remote-spec
tests_unit_store_test_remote_spec_LDADD = $(LDADD_store) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/store/test-remote-simulation
tests_unit_store_test_remote_simulation_LDADD = tests/lib/libnode-model.la $(LDADD_store) \
	$(CMOCKA_LIBS)
