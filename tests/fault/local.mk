# SPDX-License-Identifier: LGPL-3.0-or-later
# Tests that fail the N-th call: FAULT_TESTS += tests/fault/thing.sh, or a program:
#   TEST_HELPERS += tests/fault/test-thing
#   FAULT_TESTS += tests/fault/test-thing
#   tests_fault_test_thing_LDADD = $(LDADD_fsck)

TEST_HELPERS += tests/fault/test-store-calls
FAULT_TESTS += tests/fault/test-store-calls
tests_fault_test_store_calls_LDADD = $(LDADD_store)
tests_fault_test_store_calls_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=openat64,--wrap=pread64,--wrap=pwritev64,--wrap=mkdirat,--wrap=unlinkat \
	-Wl,--wrap=sync_file_range,--wrap=fdatasync,--wrap=fsync,--wrap=syncfs,--wrap=fstat64,--wrap=fstatat64 \
	-Wl,--wrap=fstatvfs64,--wrap=fdopendir,--wrap=readdir64,--wrap=close

TEST_HELPERS += tests/fault/test-volume-store
FAULT_TESTS += tests/fault/test-volume-store
tests_fault_test_volume_store_LDADD = $(LDADD_fsck)

TEST_HELPERS += tests/fault/sweep
tests_fault_sweep_SOURCES = \
	tests/fault/sweep.c \
	tests/fault/sweep.h \
	tests/fault/sweep-faults.c \
	tests/fault/sweep-ops.c \
	tests/fault/sweep-work.c \
	tests/fault/sweep-world.c \
	tests/fault/sweep-world.h
tests_fault_sweep_LDADD = $(LDADD_fsck)
FAULT_TESTS += tests/fault/sweep.sh

FAULT_TESTS += tests/fault/full-disk.sh
FAULT_TESTS += tests/fault/full-rounds.sh
FAULT_TESTS += tests/fault/eio-windows.sh
if HAVE_CMOCKA
TEST_HELPERS += tests/fault/test-hostile-records
FAULT_TESTS += tests/fault/test-hostile-records
tests_fault_test_hostile_records_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

TEST_HELPERS += tests/fault/test-repair
FAULT_TESTS += tests/fault/test-repair
tests_fault_test_repair_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

TEST_HELPERS += tests/fault/test-objects
FAULT_TESTS += tests/fault/test-objects
tests_fault_test_objects_SOURCES = tests/fault/test-objects.c $(object_fixture)
tests_fault_test_objects_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

TEST_HELPERS += tests/fault/test-objects-kill
FAULT_TESTS += tests/fault/test-objects-kill
tests_fault_test_objects_kill_SOURCES = tests/fault/test-objects-kill.c $(object_fixture)
tests_fault_test_objects_kill_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

TEST_HELPERS += tests/fault/test-objects-session
FAULT_TESTS += tests/fault/test-objects-session
tests_fault_test_objects_session_SOURCES = tests/fault/test-objects-session.c $(session_fixture)
tests_fault_test_objects_session_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)
endif

FAULT_TESTS += tests/fault/kill-daemon.sh
FAULT_TESTS += tests/fault/kill-load.sh
FAULT_TESTS += tests/fault/kill-sqlite.sh
