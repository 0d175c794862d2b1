# SPDX-License-Identifier: LGPL-3.0-or-later
# Room fsck: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/fsck/libvj-fsck.la
src_fsck_libvj_fsck_la_LIBADD =
src_fsck_libvj_fsck_la_SOURCES = \
	src/fsck/check-contents.c \
	src/fsck/check-names.c \
	src/fsck/check-private.h \
	src/fsck/check-trees.c \
	src/fsck/fsck.h \
	src/fsck/repair-content.c \
	src/fsck/repair-entries.c \
	src/fsck/repair-inline.c \
	src/fsck/repair-map-private.h \
	src/fsck/repair-map.c \
	src/fsck/repair-names-private.h \
	src/fsck/repair-names.c \
	src/fsck/repair-needs.c \
	src/fsck/repair-objects.c \
	src/fsck/repair-private.h \
	src/fsck/repair-records.c \
	src/fsck/repair-salvage.c \
	src/fsck/repair.c
