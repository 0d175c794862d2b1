# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room node.  Two lines for each tests/unit/node/test-thing.c:
#   UNIT_TESTS += tests/unit/node/test-thing
#   tests_unit_node_test_thing_LDADD = $(LDADD_node) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/node/test-conf
tests_unit_node_test_conf_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_node_test_conf_LDADD = $(LDADD_node) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/node/test-node
tests_unit_node_test_node_LDADD = $(LDADD_node) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/node/test-place
tests_unit_node_test_place_LDADD = $(LDADD_node) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/node/test-programs
tests_unit_node_test_programs_LDADD = $(LDADD_node) $(CMOCKA_LIBS)
