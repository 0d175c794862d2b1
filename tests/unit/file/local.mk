# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room file.  Two lines for each tests/unit/file/test-thing.c:
#   UNIT_TESTS += tests/unit/file/test-thing
#   tests_unit_file_test_thing_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

object_fixture = tests/unit/file/object-fixture.c tests/unit/file/object-fixture.h

UNIT_TESTS += tests/unit/file/test-object
tests_unit_file_test_object_SOURCES = tests/unit/file/test-object.c $(object_fixture)
tests_unit_file_test_object_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

# An engine in memory, for any unit test of this room.
check_LTLIBRARIES += tests/unit/file/libmem-meta.la
tests_unit_file_libmem_meta_la_SOURCES = \
	tests/unit/file/mem-meta.c \
	tests/unit/file/mem-meta.h

UNIT_TESTS += tests/unit/file/test-map
tests_unit_file_test_map_LDADD = tests/unit/file/libmem-meta.la $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-map-model
tests_unit_file_test_map_model_LDADD = tests/unit/file/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-map-damage
tests_unit_file_test_map_damage_LDADD = tests/unit/file/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-map-format
tests_unit_file_test_map_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_map_format_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-object-reap
tests_unit_file_test_object_reap_SOURCES = tests/unit/file/test-object-reap.c $(object_fixture)
tests_unit_file_test_object_reap_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-object-lease
tests_unit_file_test_object_lease_SOURCES = tests/unit/file/test-object-lease.c $(object_fixture)
tests_unit_file_test_object_lease_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-object-read
tests_unit_file_test_object_read_SOURCES = tests/unit/file/test-object-read.c $(object_fixture)
tests_unit_file_test_object_read_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-object-damage
tests_unit_file_test_object_damage_SOURCES = tests/unit/file/test-object-damage.c $(object_fixture)
tests_unit_file_test_object_damage_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-file
tests_unit_file_test_file_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-write-back
tests_unit_file_test_write_back_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-object-format
tests_unit_file_test_object_format_SOURCES = tests/unit/file/test-object-format.c $(object_fixture)
tests_unit_file_test_object_format_LDADD = $(LDADD_file) $(CMOCKA_LIBS)
tests_unit_file_test_object_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'

UNIT_TESTS += tests/unit/file/test-object-threads
tests_unit_file_test_object_threads_SOURCES = tests/unit/file/test-object-threads.c $(object_fixture)
tests_unit_file_test_object_threads_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-check
tests_unit_file_test_check_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-checkpoint
tests_unit_file_test_checkpoint_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_checkpoint_LDADD = tests/unit/file/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-scrub-record
tests_unit_file_test_scrub_record_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_scrub_record_LDADD = tests/unit/file/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-object-encoded
tests_unit_file_test_object_encoded_SOURCES = tests/unit/file/test-object-encoded.c $(object_fixture)
tests_unit_file_test_object_encoded_LDADD = $(LDADD_file) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-object-codec
tests_unit_file_test_object_codec_SOURCES = tests/unit/file/test-object-codec.c $(object_fixture)
tests_unit_file_test_object_codec_LDADD = $(LDADD_file) $(CMOCKA_LIBS)
tests_unit_file_test_object_codec_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=vj_codec_by_id


UNIT_TESTS += tests/unit/file/test-inode-format
tests_unit_file_test_inode_format_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_inode_format_LDADD = tests/unit/file/libmem-meta.la $(LDADD_file) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/file/test-superblock
tests_unit_file_test_superblock_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_file_test_superblock_LDADD = tests/unit/file/libmem-meta.la $(LDADD_file) \
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
