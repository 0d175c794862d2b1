# SPDX-License-Identifier: LGPL-3.0-or-later
# libvarjfs.so: loaded into other people's processes, so no GLib, no sanitizers, nothing of src/.

lib_LTLIBRARIES += libvarjfs.la
varjfs_sources = \
	lib/client/area.c \
	lib/client/batch.c \
	lib/client/client-private.h \
	lib/client/conf.c \
	lib/client/connection.c \
	lib/client/copy.c \
	lib/client/daemon.c \
	lib/client/deferred.c \
	lib/client/error.c \
	lib/client/frame.c \
	lib/client/frame.h \
	lib/client/hello.c \
	lib/client/iterate.c \
	lib/client/mailbox.c \
	lib/client/namespace.c \
	lib/client/op-item.c \
	lib/client/op-kv.c \
	lib/client/op-object.c \
	lib/client/semantics.c \
	lib/client/shared.c \
	lib/client/socket.c \
	lib/client/tls.c \
	lib/client/tls.h
# The objects, for the library, varjfsctl and varjfs-bench.
noinst_LTLIBRARIES += lib/client/libvj-client.la
lib_client_libvj_client_la_SOURCES = $(varjfs_sources)
lib_client_libvj_client_la_CPPFLAGS = -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DVARJFS_VERSION='"$(VERSION)"' \
	-DVARJFS_SBINDIR='"$(sbindir)"' \
	-I$(top_srcdir)/include $(XXHASH_CFLAGS) $(CLIENT_TLS_CPPFLAGS)
lib_client_libvj_client_la_CFLAGS = -std=gnu11 -pthread -fexceptions -fvisibility=hidden $(WARN_CFLAGS)
lib_client_libvj_client_la_LDFLAGS =
lib_client_libvj_client_la_LIBADD = $(CLIENT_TLS_LIBS)

libvarjfs_la_SOURCES =
libvarjfs_la_LIBADD = lib/client/libvj-client.la
libvarjfs_la_CFLAGS = $(lib_client_libvj_client_la_CFLAGS)
libvarjfs_la_LDFLAGS = -pthread -version-info 0:0:0 \
	-Wl,--version-script=$(top_srcdir)/lib/client/varjfs.map
EXTRA_libvarjfs_la_DEPENDENCIES = lib/client/varjfs.map

pkgconfig_DATA += lib/client/varjfs.pc

bin_PROGRAMS += varjfs-bench
varjfs_bench_SOURCES = lib/client/varjfs-bench.c
varjfs_bench_CPPFLAGS = -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I$(top_srcdir)/include
varjfs_bench_CFLAGS = -std=gnu11 -pthread $(WARN_CFLAGS)
varjfs_bench_LDFLAGS = -pthread
varjfs_bench_LDADD = lib/client/libvj-client.la
