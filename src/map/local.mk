# SPDX-License-Identifier: LGPL-3.0-or-later
# Room map: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/map/libvj-map.la
src_map_libvj_map_la_LIBADD =
src_map_libvj_map_la_SOURCES = \
	src/map/map-balance.c \
	src/map/map-check.c \
	src/map/map-cursor.c \
	src/map/map-edit.c \
	src/map/map-format.c \
	src/map/map-format.h \
	src/map/map-node.c \
	src/map/map-private.h \
	src/map/map.c \
	src/map/map.h
