# SPDX-License-Identifier: LGPL-3.0-or-later
# Room codec: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/codec/libvj-codec.la
src_codec_libvj_codec_la_LIBADD = $(LZ4_LIBS) $(ZSTD_LIBS)
src_codec_libvj_codec_la_SOURCES = \
	src/codec/codec-private.h \
	src/codec/codec.c \
	src/codec/codec.h \
	src/codec/drivers.c \
	src/codec/none.c \
	src/codec/rle.c \
	src/codec/xor.c

if HAVE_LZ4
src_codec_libvj_codec_la_SOURCES += src/codec/lz4.c
endif
if HAVE_ZSTD
src_codec_libvj_codec_la_SOURCES += src/codec/zstd.c
endif
