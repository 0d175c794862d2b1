# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room map.  Two lines for each tests/unit/map/test-thing.c:
#   UNIT_TESTS += tests/unit/map/test-thing
#   tests_unit_map_test_thing_LDADD = $(LDADD_map) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/map/test-map
tests_unit_map_test_map_LDADD = tests/lib/libmem-meta.la $(LDADD_map) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/map/test-map-model
tests_unit_map_test_map_model_LDADD = tests/lib/libmem-meta.la $(LDADD_map) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/map/test-map-damage
tests_unit_map_test_map_damage_LDADD = tests/lib/libmem-meta.la $(LDADD_map) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/map/test-map-format
tests_unit_map_test_map_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_map_test_map_format_LDADD = $(LDADD_map) $(CMOCKA_LIBS)
