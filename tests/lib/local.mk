# SPDX-License-Identifier: LGPL-3.0-or-later
# What tests share.  run-test starts each one; tap.sh and mount.sh and hang.sh are read by shell tests.

# A slow device for one process, by LD_PRELOAD (tests/lib/.libs/libdelay.so; delay.sh knows).  It
# runs in other programs: no GLib, no sanitizers, no _FILE_OFFSET_BITS, which would rename
# the calls that it replaces.
check_LTLIBRARIES += tests/lib/libdelay.la
tests_lib_libdelay_la_SOURCES = tests/lib/libdelay.c
tests_lib_libdelay_la_LIBADD = -ldl
tests_lib_libdelay_la_CPPFLAGS = -D_GNU_SOURCE
tests_lib_libdelay_la_CFLAGS = -std=gnu11 -pthread $(WARN_CFLAGS)
tests_lib_libdelay_la_LDFLAGS = -pthread -module -avoid-version -rpath /nowhere

UNIT_TESTS += tests/lib/test-delay
tests_lib_test_delay_LDADD = $(LDADD_base) $(CMOCKA_LIBS)
EXTRA_tests_lib_test_delay_DEPENDENCIES = tests/lib/libdelay.la

# Repeats create, stat, insert, … and prints p50, p99 and max.
TEST_HELPERS += tests/lib/latency-probe
tests_lib_latency_probe_LDADD = $(LDADD_base)

LIB_TESTS += tests/lib/test-tools.sh
LIB_TESTS += tests/lib/test-harness.sh
LIB_TESTS += tests/lib/test-bench.sh

# A disk whose writes fail, and whose power goes, when a test says so: for a loop device.
TEST_HELPERS += tests/lib/bad-disk
tests_lib_bad_disk_LDADD = $(FUSE3_LIBS)

# An engine in memory, for unit tests and fuzzers.
check_LTLIBRARIES += tests/lib/libmem-meta.la
tests_lib_libmem_meta_la_SOURCES = \
	tests/lib/mem-meta.c \
	tests/lib/mem-meta.h

# Object nodes in the process of the test.
check_LTLIBRARIES += tests/lib/libnode-model.la
tests_lib_libnode_model_la_SOURCES = \
	tests/lib/node-model.c \
	tests/lib/node-model.h

# Codecs that use the context, in the table of the program that has both.
context_codec = tests/lib/context-codec.c tests/lib/context-codec.h
context_codec_ldflags = $(AM_LDFLAGS) -Wl,--wrap=vj_codec_table
