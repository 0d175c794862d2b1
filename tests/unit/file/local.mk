# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room file.  Two lines for each tests/unit/file/test-thing.c:
#   UNIT_TESTS += tests/unit/file/test-thing
#   tests_unit_file_test_thing_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-inode-format
tests_unit_file_test_inode_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_inode_format_LDADD = tests/lib/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-append
tests_unit_file_test_append_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-budget
tests_unit_file_test_budget_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-slab
tests_unit_file_test_slab_LDADD = $(LDADD_file) $(CMOCKA_LIBS)
