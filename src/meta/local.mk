# SPDX-License-Identifier: LGPL-3.0-or-later
# Room meta: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/meta/libvj-meta.la
src_meta_libvj_meta_la_LIBADD = $(LMDB_LIBS)
src_meta_libvj_meta_la_SOURCES = \
	src/meta/drivers.c \
	src/meta/lmdb-compact.c \
	src/meta/lmdb-format.h \
	src/meta/lmdb-image.c \
	src/meta/lmdb-lock.c \
	src/meta/lmdb-move.c \
	src/meta/lmdb-page-format.h \
	src/meta/lmdb-private.h \
	src/meta/lmdb-redo.c \
	src/meta/lmdb-renew.c \
	src/meta/lmdb-reopen.c \
	src/meta/lmdb-space.c \
	src/meta/lmdb-txn.c \
	src/meta/lmdb-walk.c \
	src/meta/lmdb-walk.h \
	src/meta/lmdb.c \
	src/meta/meta-private.h \
	src/meta/meta.c \
	src/meta/meta.h \
	src/meta/overlay-private.h \
	src/meta/overlay.c \
	src/meta/redo-format.h \
	src/meta/redo-private.h \
	src/meta/redo.c \
	src/meta/wrap-fault.c \
	src/meta/wrap-stats.c
