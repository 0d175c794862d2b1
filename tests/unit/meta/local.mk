# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room meta.  Two lines for each tests/unit/meta/test-thing.c:
#   UNIT_TESTS += tests/unit/meta/test-thing
#   tests_unit_meta_test_thing_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/meta/test-device
tests_unit_meta_test_device_LDADD = $(LDADD_meta) $(LMDB_LIBS) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-flush
tests_unit_meta_test_flush_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-item-cache
tests_unit_meta_test_item_cache_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-lease
tests_unit_meta_test_lease_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-leased
tests_unit_meta_test_leased_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-open
tests_unit_meta_test_open_LDADD = $(LDADD_meta) $(LMDB_LIBS) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-outcome
tests_unit_meta_test_outcome_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-overlay
tests_unit_meta_test_overlay_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-redo
tests_unit_meta_test_redo_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-redo-format
tests_unit_meta_test_redo_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_meta_test_redo_format_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-remote-answers
tests_unit_meta_test_remote_answers_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-remote
tests_unit_meta_test_remote_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-rewrite
tests_unit_meta_test_rewrite_LDADD = $(LDADD_meta) $(LMDB_LIBS) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-send
tests_unit_meta_test_send_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-session
tests_unit_meta_test_session_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-session-format
tests_unit_meta_test_session_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_meta_test_session_format_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-shared
tests_unit_meta_test_shared_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-space
tests_unit_meta_test_space_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-walk
tests_unit_meta_test_walk_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/meta/test-wrappers
tests_unit_meta_test_wrappers_LDADD = $(LDADD_meta) $(CMOCKA_LIBS)
