# SPDX-License-Identifier: LGPL-3.0-or-later
# What a released version wrote stays readable, and what was built against it keeps running.

UNIT_TESTS += tests/compat/test-ioctl-abi
tests_compat_test_ioctl_abi_LDADD = $(LDADD_base) $(CMOCKA_LIBS)

UNIT_TESTS += tests/compat/test-codec
tests_compat_test_codec_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_compat_test_codec_LDADD = $(LDADD_codec) $(CMOCKA_LIBS)

TEST_HELPERS += tests/compat/make-volume
tests_compat_make_volume_SOURCES = tests/compat/make-volume.c \
	tests/compat/volume-content.c tests/compat/volume-content.h
tests_compat_make_volume_LDADD = $(LDADD_fsck)

UNIT_TESTS += tests/compat/test-volume
tests_compat_test_volume_SOURCES = tests/compat/test-volume.c \
	tests/compat/volume-content.c tests/compat/volume-content.h
tests_compat_test_volume_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_compat_test_volume_LDADD = $(LDADD_fsck) $(CMOCKA_LIBS)

MOUNT_TESTS += tests/compat/mount-volume.sh tests/compat/mount-log-volume.sh

UNIT_TESTS += tests/compat/test-protocol
tests_compat_test_protocol_SOURCES = tests/compat/test-protocol.c \
	tests/lib/rpc-frames.c tests/lib/rpc-frames.h \
	tests/lib/rpc-recode.c tests/lib/rpc-recode.h
tests_compat_test_protocol_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_compat_test_protocol_LDADD = $(LDADD_rpc) $(CMOCKA_LIBS)

UNIT_TESTS += tests/compat/test-client-protocol
tests_compat_test_client_protocol_SOURCES = $(varjfs_sources) \
	tests/compat/test-client-protocol.c \
	tests/unit/client/fake-daemon.h tests/unit/clients/request.h
tests_compat_test_client_protocol_CPPFLAGS = $(AM_CPPFLAGS) -DTOP_SRCDIR='"$(abs_top_srcdir)"'
tests_compat_test_client_protocol_LDADD = $(LDADD_fsck) $(LDADD_clients) $(LDADD_rpc) $(CMOCKA_LIBS)
