# SPDX-License-Identifier: LGPL-3.0-or-later
# Unit tests of room volume; most have fsck look at their volume.  Two lines for each tests/unit/volume/test-thing.c:
#   UNIT_TESTS += tests/unit/volume/test-thing
#   tests_unit_volume_test_thing_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-file
tests_unit_volume_test_file_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-ino-block
tests_unit_volume_test_ino_block_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-write-back
tests_unit_volume_test_write_back_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-flusher
tests_unit_volume_test_flusher_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-checkpoint
tests_unit_volume_test_checkpoint_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_volume_test_checkpoint_LDADD = tests/lib/libmem-meta.la $(LDADD_fsck) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-scrub-record
tests_unit_volume_test_scrub_record_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_volume_test_scrub_record_LDADD = tests/lib/libmem-meta.la $(LDADD_fsck) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-superblock
tests_unit_volume_test_superblock_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_unit_volume_test_superblock_LDADD = tests/lib/libmem-meta.la $(LDADD_fsck) \
	$(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-small
tests_unit_volume_test_small_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-recode
tests_unit_volume_test_recode_SOURCES = \
	tests/unit/volume/settings-fixture.c \
	tests/unit/volume/settings-fixture.h \
	tests/unit/volume/test-recode.c
tests_unit_volume_test_recode_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-transform
tests_unit_volume_test_transform_SOURCES = \
	tests/unit/volume/settings-fixture.c \
	tests/unit/volume/settings-fixture.h \
	tests/unit/volume/test-transform.c
tests_unit_volume_test_transform_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-read-ahead
tests_unit_volume_test_read_ahead_SOURCES = \
	tests/unit/volume/settings-fixture.c \
	tests/unit/volume/settings-fixture.h \
	tests/unit/volume/test-read-ahead.c
tests_unit_volume_test_read_ahead_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-orphan
tests_unit_volume_test_orphan_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-fragment
tests_unit_volume_test_fragment_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-committed
tests_unit_volume_test_committed_SOURCES = \
	tests/unit/volume/settings-fixture.c \
	tests/unit/volume/settings-fixture.h \
	tests/unit/volume/test-committed.c
tests_unit_volume_test_committed_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-resolve
tests_unit_volume_test_resolve_SOURCES = \
	tests/unit/volume/settings-fixture.c \
	tests/unit/volume/settings-fixture.h \
	tests/unit/volume/test-resolve.c
tests_unit_volume_test_resolve_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)
tests_unit_volume_test_resolve_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=vj_meta_begin

UNIT_TESTS += tests/unit/volume/test-place
tests_unit_volume_test_place_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-codec-context
tests_unit_volume_test_codec_context_SOURCES = \
	tests/unit/volume/settings-fixture.c \
	tests/unit/volume/settings-fixture.h \
	tests/unit/volume/test-codec-context.c \
	$(context_codec)
tests_unit_volume_test_codec_context_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)
tests_unit_volume_test_codec_context_LDFLAGS = $(context_codec_ldflags)

UNIT_TESTS += tests/unit/volume/test-sessions
tests_unit_volume_test_sessions_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)
tests_unit_volume_test_sessions_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=vj_meta_run \
	-Wl,--wrap=vj_content_claim

UNIT_TESTS += tests/unit/volume/test-volume-file
tests_unit_volume_test_volume_file_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/volume/test-edit-cost
tests_unit_volume_test_edit_cost_SOURCES = \
	tests/unit/volume/settings-fixture.c \
	tests/unit/volume/settings-fixture.h \
	tests/unit/volume/test-edit-cost.c
tests_unit_volume_test_edit_cost_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)
