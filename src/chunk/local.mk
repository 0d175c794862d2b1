# SPDX-License-Identifier: LGPL-3.0-or-later
# Room chunk: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/chunk/libvj-chunk.la
src_chunk_libvj_chunk_la_LIBADD =
src_chunk_libvj_chunk_la_SOURCES = \
	src/chunk/algorithms.c \
	src/chunk/chunk-private.h \
	src/chunk/chunk.c \
	src/chunk/chunk.h \
	src/chunk/code.c \
	src/chunk/gear-x86.c \
	src/chunk/gear.c \
	src/chunk/mincdc-x86.c \
	src/chunk/mincdc.c \
	src/chunk/rabin.c \
	src/chunk/seed.c \
	src/chunk/sizes.c
