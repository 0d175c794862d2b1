# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room front.  Two lines for each tests/unit/front/test-thing.c:
#   UNIT_TESTS += tests/unit/front/test-thing
#   tests_unit_front_test_thing_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-busiest
tests_unit_front_test_busiest_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-coherence
tests_unit_front_test_coherence_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-dir-streams
tests_unit_front_test_dir_streams_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-guard-calls
tests_unit_front_test_guard_calls_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-invalidate
tests_unit_front_test_invalidate_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-lookup-count
tests_unit_front_test_lookup_count_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-mounter
tests_unit_front_test_mounter_LDADD = $(LDADD_front) $(CMOCKA_LIBS)
tests_unit_front_test_mounter_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=statx,--wrap=mount,--wrap=umount2

UNIT_TESTS += tests/unit/front/test-stage
tests_unit_front_test_stage_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-ranges
tests_unit_front_test_ranges_LDADD = $(LDADD_front) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/front/test-thread-time
tests_unit_front_test_thread_time_LDADD = $(LDADD_front) $(CMOCKA_LIBS)
