# SPDX-License-Identifier: LGPL-3.0-or-later
# Room base: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/base/libvj-base.la
src_base_libvj_base_la_LIBADD = $(GLIB_LIBS) $(CRYPTO_LIBS) $(XXHASH_LIBS) $(BLAKE3_LIBS)
src_base_libvj_base_la_SOURCES = \
	src/base/base.h \
	src/base/buf.c \
	src/base/buf.h \
	src/base/bytes.c \
	src/base/bytes.h \
	src/base/call-stats.c \
	src/base/call-stats.h \
	src/base/cancel.c \
	src/base/cancel.h \
	src/base/check.h \
	src/base/checked.h \
	src/base/clock.c \
	src/base/clock.h \
	src/base/digest-avx2.c \
	src/base/digest-private.h \
	src/base/digest.c \
	src/base/digest.h \
	src/base/error.c \
	src/base/error.h \
	src/base/fd.c \
	src/base/fd.h \
	src/base/lock.c \
	src/base/lock.h \
	src/base/log.c \
	src/base/log.h \
	src/base/memory.c \
	src/base/memory.h \
	src/base/needs.h \
	src/base/opts.c \
	src/base/opts.h \
	src/base/random.c \
	src/base/random.h \
	src/base/sandbox.c \
	src/base/sandbox.h \
	src/base/shared.c \
	src/base/shared.h \
	src/base/trace.c \
	src/base/uuid.c \
	src/base/uuid.h
