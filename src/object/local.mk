# SPDX-License-Identifier: LGPL-3.0-or-later
# Room object: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/object/libvj-object.la
src_object_libvj_object_la_LIBADD =
src_object_libvj_object_la_SOURCES = \
	src/object/by-node.c \
	src/object/dead.c \
	src/object/epoch.c \
	src/object/form.c \
	src/object/form.h \
	src/object/heal.c \
	src/object/id-block.c \
	src/object/object-cache.c \
	src/object/object-check.c \
	src/object/object-check.h \
	src/object/object-format.h \
	src/object/object-load.c \
	src/object/object-private.h \
	src/object/object-read.c \
	src/object/object-record.c \
	src/object/object-refs.c \
	src/object/object-store.c \
	src/object/object.h \
	src/object/objects.c \
	src/object/reap.c \
	src/object/record-codec.c \
	src/object/stored-form.c \
	src/object/stored-form.h \
	src/object/transform.c \
	src/object/unreferenced-put.c \
	src/object/verified.c
