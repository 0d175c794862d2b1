# SPDX-License-Identifier: LGPL-3.0-or-later
# Seeded random edits against a plain byte array: MODEL_TESTS += tests/model/thing.sh, or a program:
#   TEST_HELPERS += tests/model/test-thing
#   MODEL_TESTS += tests/model/test-thing
#   tests_model_test_thing_LDADD = $(LDADD_fsck)

TEST_HELPERS += tests/model/model
tests_model_model_SOURCES = \
	tests/model/common.c \
	tests/model/common.h \
	tests/model/history.c \
	tests/model/model.c \
	tests/model/model.h \
	tests/model/ops.c \
	tests/model/settings.c \
	tests/model/shadow.c \
	tests/model/shadow.h
tests_model_model_LDADD = $(LDADD_fsck)
MODEL_TESTS += tests/model/in-process.sh

TEST_HELPERS += tests/model/million
tests_model_million_SOURCES = \
	tests/model/common.c \
	tests/model/common.h \
	tests/model/million.c \
	tests/model/shadow.c \
	tests/model/shadow.h
tests_model_million_LDADD = $(LDADD_fsck)
MODEL_TESTS += tests/model/million

TEST_HELPERS += tests/model/objects
tests_model_objects_SOURCES = \
	tests/model/common.c \
	tests/model/common.h \
	tests/model/objects.c \
	tests/model/shadow.c \
	tests/model/shadow.h
tests_model_objects_LDADD = $(LDADD_fsck)
MODEL_TESTS += tests/model/objects

TEST_HELPERS += tests/model/mount-model
tests_model_mount_model_SOURCES = \
	tests/model/common.c \
	tests/model/common.h \
	tests/model/mount-history.c \
	tests/model/mount-model.c \
	tests/model/mount-model.h \
	tests/model/mount-ops.c \
	tests/model/shadow.c \
	tests/model/shadow.h
tests_model_mount_model_LDADD = librwrite.la $(LDADD_base)
MODEL_TESTS += tests/model/mount.sh
MODEL_TESTS += tests/model/block.sh

TEST_HELPERS += tests/model/sessions
tests_model_sessions_SOURCES = \
	tests/model/common.c \
	tests/model/common.h \
	tests/model/sessions.c \
	tests/model/sessions.h \
	tests/model/sessions-contents.c \
	tests/model/sessions-crash.c \
	tests/model/sessions-names.c \
	tests/model/shadow.c \
	tests/model/shadow.h
tests_model_sessions_LDADD = $(LDADD_fsck)
MODEL_TESTS += tests/model/sessions.sh
