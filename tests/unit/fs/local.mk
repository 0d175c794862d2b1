# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room fs; their fixture also has fsck look at each volume.  Two lines for each tests/unit/fs/test-thing.c:
#   UNIT_TESTS += tests/unit/fs/test-thing
#   tests_unit_fs_test_thing_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fs/test-atime
tests_unit_fs_test_atime_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fs/test-flags
tests_unit_fs_test_flags_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fs/test-fs-format
tests_unit_fs_test_fs_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_fs_test_fs_format_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)
UNIT_TESTS += tests/unit/fs/test-fs
tests_unit_fs_test_fs_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fs/test-round-trips
tests_unit_fs_test_round_trips_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fs/test-safety
tests_unit_fs_test_safety_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fs/test-settings
tests_unit_fs_test_settings_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fs/test-sessions
tests_unit_fs_test_sessions_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fs/test-utimens
tests_unit_fs_test_utimens_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)
tests_unit_fs_test_utimens_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=vj_fs_run
