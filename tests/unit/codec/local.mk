# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room codec.  Two lines for each tests/unit/codec/test-thing.c:
#   UNIT_TESTS += tests/unit/codec/test-thing
#   tests_unit_codec_test_thing_LDADD = $(LDADD_codec) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/codec/test-codec
tests_unit_codec_test_codec_LDADD = $(LDADD_codec) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/codec/test-levels
tests_unit_codec_test_levels_LDADD = $(LDADD_codec) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/codec/test-rle
tests_unit_codec_test_rle_LDADD = $(LDADD_codec) $(CMOCKA_LIBS)
