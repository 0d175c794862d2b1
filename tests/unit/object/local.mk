# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room object.  Two lines for each tests/unit/object/test-thing.c:
#   UNIT_TESTS += tests/unit/object/test-thing
#   tests_unit_object_test_thing_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

object_fixture = tests/unit/object/object-fixture.c tests/unit/object/object-fixture.h

UNIT_TESTS += tests/unit/object/test-object
tests_unit_object_test_object_SOURCES = tests/unit/object/test-object.c $(object_fixture)
tests_unit_object_test_object_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-reap
tests_unit_object_test_object_reap_SOURCES = tests/unit/object/test-object-reap.c $(object_fixture)
tests_unit_object_test_object_reap_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-id-block
tests_unit_object_test_object_id_block_SOURCES = tests/unit/object/test-object-id-block.c $(object_fixture)
tests_unit_object_test_object_id_block_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-read
tests_unit_object_test_object_read_SOURCES = tests/unit/object/test-object-read.c $(object_fixture)
tests_unit_object_test_object_read_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-damage
tests_unit_object_test_object_damage_SOURCES = tests/unit/object/test-object-damage.c $(object_fixture)
tests_unit_object_test_object_damage_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-heal
tests_unit_object_test_object_heal_SOURCES = tests/unit/object/test-object-heal.c $(object_fixture)
tests_unit_object_test_object_heal_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-format
tests_unit_object_test_object_format_SOURCES = tests/unit/object/test-object-format.c $(object_fixture)
tests_unit_object_test_object_format_LDADD = $(LDADD_object) $(CMOCKA_LIBS)
tests_unit_object_test_object_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'

UNIT_TESTS += tests/unit/object/test-object-threads
tests_unit_object_test_object_threads_SOURCES = tests/unit/object/test-object-threads.c $(object_fixture)
tests_unit_object_test_object_threads_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-encoded
tests_unit_object_test_object_encoded_SOURCES = tests/unit/object/test-object-encoded.c $(object_fixture)
tests_unit_object_test_object_encoded_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-codec
tests_unit_object_test_object_codec_SOURCES = tests/unit/object/test-object-codec.c $(object_fixture)
tests_unit_object_test_object_codec_LDADD = $(LDADD_object) $(CMOCKA_LIBS)
tests_unit_object_test_object_codec_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=vj_codec_by_id

UNIT_TESTS += tests/unit/object/test-object-ahead
tests_unit_object_test_object_ahead_SOURCES = tests/unit/object/test-object-ahead.c $(object_fixture)
tests_unit_object_test_object_ahead_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

session_fixture = tests/unit/object/session-fixture.c tests/unit/object/session-fixture.h \
	$(object_fixture)

UNIT_TESTS += tests/unit/object/test-object-sessions
tests_unit_object_test_object_sessions_SOURCES = tests/unit/object/test-object-sessions.c $(session_fixture)
tests_unit_object_test_object_sessions_LDADD = $(LDADD_object) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/object/test-object-sessions-random
tests_unit_object_test_object_sessions_random_SOURCES = tests/unit/object/test-object-sessions-random.c $(session_fixture)
tests_unit_object_test_object_sessions_random_LDADD = $(LDADD_object) $(CMOCKA_LIBS)
