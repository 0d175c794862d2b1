# SPDX-License-Identifier: LGPL-3.0-or-later
# librwrite.so: loaded into other people's processes, so no GLib, no sanitizers, nothing of src/.

lib_LTLIBRARIES += librwrite.la
rwrite_sources = \
	lib/preload/by-ioctl.c \
	lib/preload/by-tail.c \
	lib/preload/copy-in.c \
	lib/preload/next.c \
	lib/preload/next.h \
	lib/preload/rwrite-private.h \
	lib/preload/rwrite.c
librwrite_la_SOURCES = $(rwrite_sources) \
	lib/preload/detect.c \
	lib/preload/fallocate.c \
	lib/preload/shift.c \
	lib/preload/shift.h
librwrite_la_CPPFLAGS = -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I$(top_srcdir)/include
librwrite_la_CFLAGS = -std=gnu11 -pthread -fexceptions -fvisibility=hidden $(WARN_CFLAGS)
librwrite_la_LDFLAGS = -pthread -version-info 1:0:1 \
	-Wl,--version-script=$(top_srcdir)/lib/preload/rwrite.map
EXTRA_librwrite_la_DEPENDENCIES = lib/preload/rwrite.map

pkgconfig_DATA = lib/preload/rwrite.pc
