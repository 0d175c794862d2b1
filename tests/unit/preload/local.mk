# SPDX-License-Identifier: LGPL-3.0-or-later
# librwrite, compiled into the tests so that sanitizers see it.  test-rwrite runs on any file
# system (tests/mount/rwrite.sh runs it on varjfs); test-by-ioctl brings a varjfs of its own.

LIB_TESTS += tests/unit/preload/library.sh

UNIT_TESTS += tests/unit/preload/test-rwrite
tests_unit_preload_test_rwrite_SOURCES = $(rwrite_sources) \
	tests/unit/preload/rwrite-fixture.h \
	tests/unit/preload/test-rwrite.c
tests_unit_preload_test_rwrite_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/unit/preload/test-by-ioctl
tests_unit_preload_test_by_ioctl_SOURCES = $(rwrite_sources) \
	tests/unit/preload/rwrite-fixture.h \
	tests/unit/preload/test-by-ioctl.c
tests_unit_preload_test_by_ioctl_LDADD = $(LDADD_base) $(CMOCKA_LIBS)
tests_unit_preload_test_by_ioctl_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=fallocate64,--wrap=fstat64,--wrap=fstatfs64,--wrap=ioctl,--wrap=process_vm_readv,--wrap=pwrite64 \
	-Wl,--wrap=pwritev64v2,--wrap=vj_next_fallocate64,--wrap=ftruncate64,--wrap=lseek64 \
	-Wl,--wrap=clock_gettime,--wrap=nanosleep
