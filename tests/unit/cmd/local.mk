# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room cmd.  Two lines for each tests/unit/cmd/test-thing.c:
#   UNIT_TESTS += tests/unit/cmd/test-thing
#   tests_unit_cmd_test_thing_LDADD = $(LDADD_cmd) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/cmd/test-confine
tests_unit_cmd_test_confine_LDADD = $(LDADD_cmd) $(CMOCKA_LIBS)
