# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room chunk.  Two lines for each tests/unit/chunk/test-thing.c:
#   UNIT_TESTS += tests/unit/chunk/test-thing
#   tests_unit_chunk_test_thing_LDADD = $(LDADD_chunk) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/chunk/test-code
tests_unit_chunk_test_code_SOURCES = \
	tests/unit/chunk/naive.h \
	tests/unit/chunk/test-code.c
tests_unit_chunk_test_code_LDADD = $(LDADD_chunk) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/chunk/test-gear
tests_unit_chunk_test_gear_SOURCES = \
	tests/unit/chunk/naive.h \
	tests/unit/chunk/test-gear.c
tests_unit_chunk_test_gear_LDADD = $(LDADD_chunk) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/chunk/test-mincdc
tests_unit_chunk_test_mincdc_SOURCES = \
	tests/unit/chunk/naive.h \
	tests/unit/chunk/test-mincdc.c
tests_unit_chunk_test_mincdc_LDADD = $(LDADD_chunk) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/chunk/test-rabin
tests_unit_chunk_test_rabin_LDADD = $(LDADD_chunk) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/chunk/test-sizes
tests_unit_chunk_test_sizes_LDADD = $(LDADD_chunk) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/chunk/test-golden
tests_unit_chunk_test_golden_SOURCES = \
	tests/unit/chunk/golden-cuts.h \
	tests/unit/chunk/test-golden.c
tests_unit_chunk_test_golden_LDADD = $(LDADD_chunk) $(CMOCKA_LIBS)
