# SPDX-License-Identifier: LGPL-3.0-or-later
# Power cuts: a recorder, the states that it allows, and what has to hold in each (README.md).

# Runs in other programs, as tests/lib/libdelay.c: no GLib, no sanitizers, and no
# _FILE_OFFSET_BITS, which would rename the calls that it replaces.
if HAVE_RECORDER
check_LTLIBRARIES += tests/crash/librecord.la
tests_crash_librecord_la_SOURCES = tests/crash/record.c tests/crash/record.h
tests_crash_librecord_la_CPPFLAGS = -D_GNU_SOURCE
tests_crash_librecord_la_CFLAGS = -std=gnu11 -pthread $(WARN_CFLAGS)
tests_crash_librecord_la_LDFLAGS = -pthread -module -avoid-version -rpath /nowhere

TEST_HELPERS += tests/crash/check
tests_crash_check_SOURCES = \
	tests/crash/check.c \
	tests/crash/disk.c \
	tests/crash/disk.h \
	tests/crash/examine.c \
	tests/crash/examine.h \
	tests/crash/history.c \
	tests/crash/history.h \
	tests/crash/record.h
tests_crash_check_LDADD = $(LDADD_fsck)

TEST_HELPERS += tests/crash/workload
tests_crash_workload_SOURCES = \
	tests/crash/record.h \
	tests/crash/stream.c \
	tests/crash/stream.h \
	tests/crash/workload.c \
	tests/model/shadow.c \
	tests/model/shadow.h
tests_crash_workload_LDADD = librwrite.la $(LDADD_base)

# The daemon with a bug in it.
TEST_HELPERS += tests/crash/planted/varjfs
tests_crash_planted_varjfs_SOURCES = src/cmd/varjfs.c tests/crash/planted/planted.c
tests_crash_planted_varjfs_LDADD = $(LDADD_cmd)
tests_crash_planted_varjfs_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=vj_store_flush,--wrap=vj_meta_flush,--wrap=vj_file_commit \
	-Wl,--wrap=vj_meta_flush_join,--wrap=vj_fs_sync_join \
	-Wl,--wrap=mdb_env_open,--wrap=vj_fs_sync,--wrap=fdatasync,--wrap=syncfs \
	-Wl,--wrap=vj_redo_append,--wrap=vj_redo_begin,--wrap=vj_random_bytes,--wrap=vj_fd_overwrite

CRASH_TESTS += tests/crash/node.sh
CRASH_TESTS += tests/crash/planted.sh
CRASH_TESTS += tests/crash/short.sh
CRASH_TESTS += tests/crash/sqlite.sh
endif
