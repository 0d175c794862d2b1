# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room file.  Two lines for each tests/unit/file/test-thing.c:
#   UNIT_TESTS += tests/unit/file/test-thing
#   tests_unit_file_test_thing_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-file
tests_unit_file_test_file_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-write-back
tests_unit_file_test_write_back_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-check
tests_unit_file_test_check_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-checkpoint
tests_unit_file_test_checkpoint_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_checkpoint_LDADD = tests/lib/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-scrub-record
tests_unit_file_test_scrub_record_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_scrub_record_LDADD = tests/lib/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-inode-format
tests_unit_file_test_inode_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_inode_format_LDADD = tests/lib/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-superblock
tests_unit_file_test_superblock_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_superblock_LDADD = tests/lib/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-fragment
tests_unit_file_test_fragment_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-small
tests_unit_file_test_small_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-recode
tests_unit_file_test_recode_SOURCES = \
	tests/unit/file/settings-fixture.c \
	tests/unit/file/settings-fixture.h \
	tests/unit/file/test-recode.c
tests_unit_file_test_recode_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-transform
tests_unit_file_test_transform_SOURCES = \
	tests/unit/file/settings-fixture.c \
	tests/unit/file/settings-fixture.h \
	tests/unit/file/test-transform.c
tests_unit_file_test_transform_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-read-ahead
tests_unit_file_test_read_ahead_SOURCES = \
	tests/unit/file/settings-fixture.c \
	tests/unit/file/settings-fixture.h \
	tests/unit/file/test-read-ahead.c
tests_unit_file_test_read_ahead_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-orphan
tests_unit_file_test_orphan_LDADD = $(LDADD_file) $(CMOCKA_LIBS)
