# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room fsck.  Two lines for each tests/unit/fsck/test-thing.c:
#   UNIT_TESTS += tests/unit/fsck/test-thing
#   tests_unit_fsck_test_thing_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fsck/test-contents
tests_unit_fsck_test_contents_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fsck/test-names
tests_unit_fsck_test_names_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fsck/test-store-keys
tests_unit_fsck_test_store_keys_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/fsck/test-repair-foreign
tests_unit_fsck_test_repair_foreign_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)
