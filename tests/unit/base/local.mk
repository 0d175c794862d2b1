# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room base.  Two lines for each tests/unit/base/test-thing.c:
#   UNIT_TESTS += tests/unit/base/test-thing
#   tests_unit_base_test_thing_LDADD = $(LDADD_base) $(CMOCKA_LIBS)
# --wrap hands the system calls of the code under test to the test.

UNIT_TESTS += tests/unit/base/test-buf
tests_unit_base_test_buf_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-bytes
tests_unit_base_test_bytes_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-call-stats
tests_unit_base_test_call_stats_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-cancel
tests_unit_base_test_cancel_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-clock
tests_unit_base_test_clock_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-digest
tests_unit_base_test_digest_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-error
tests_unit_base_test_error_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-fd
tests_unit_base_test_fd_LDADD = $(LDADD_base) $(CMOCKA_LIBS)
tests_unit_base_test_fd_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=pread64,--wrap=pwritev64,--wrap=write,--wrap=fsync,--wrap=renameat

UNIT_TESTS += tests/unit/base/test-lock
tests_unit_base_test_lock_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-log
tests_unit_base_test_log_LDADD = $(LDADD_base) $(CMOCKA_LIBS)
tests_unit_base_test_log_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=write

UNIT_TESTS += tests/unit/base/test-memory
tests_unit_base_test_memory_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-opts
tests_unit_base_test_opts_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-random
tests_unit_base_test_random_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/base/test-sandbox
tests_unit_base_test_sandbox_LDADD = $(LDADD_base) $(CMOCKA_LIBS)
