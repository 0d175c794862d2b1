# SPDX-License-Identifier: LGPL-3.0-or-later
# Room store: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/store/libvj-store.la
src_store_libvj_store_la_LIBADD = $(AIO_LIBS)
src_store_libvj_store_la_SOURCES = \
	src/store/align.c \
	src/store/block-flush.c \
	src/store/block-format.c \
	src/store/block-format.h \
	src/store/block-private.h \
	src/store/block-put.c \
	src/store/block-space.c \
	src/store/block-space.h \
	src/store/block-super.c \
	src/store/block-table.c \
	src/store/block-table.h \
	src/store/block.c \
	src/store/bounce.c \
	src/store/drivers.c \
	src/store/erase.c \
	src/store/erase.h \
	src/store/fd-cache.c \
	src/store/fd-cache.h \
	src/store/io.c \
	src/store/memory.c \
	src/store/null.c \
	src/store/posix-format.c \
	src/store/posix-format.h \
	src/store/posix-private.h \
	src/store/posix-sync.c \
	src/store/posix-sync.h \
	src/store/placement.c \
	src/store/placement.h \
	src/store/posix.c \
	src/store/remote-change.c \
	src/store/remote-durable.c \
	src/store/remote-flush.c \
	src/store/remote-form.c \
	src/store/remote-format.h \
	src/store/remote-get.c \
	src/store/remote-heal.c \
	src/store/remote-list.c \
	src/store/remote-node.c \
	src/store/remote-op.c \
	src/store/remote-suspect.c \
	src/store/remote-private.h \
	src/store/remote-put.c \
	src/store/remote-remove.c \
	src/store/remote-spec.c \
	src/store/remote-state.c \
	src/store/remote.c \
	src/store/space.c \
	src/store/store-private.h \
	src/store/store.c \
	src/store/store.h \
	src/store/wrap-fault.c \
	src/store/wrap-latency.c \
	src/store/wrap-stats.c
