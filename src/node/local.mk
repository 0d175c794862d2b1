# SPDX-License-Identifier: LGPL-3.0-or-later
# Room node: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/node/libvj-node.la
src_node_libvj_node_la_LIBADD =
src_node_libvj_node_la_SOURCES = \
	src/node/area.c \
	src/node/conf.c \
	src/node/conf.h \
	src/node/form.c \
	src/node/form.h \
	src/node/keys.c \
	src/node/node-private.h \
	src/node/node.c \
	src/node/node.h \
	src/node/notify.c \
	src/node/notify.h \
	src/node/objects.c \
	src/node/place.c \
	src/node/programs.c \
	src/node/stats.c
