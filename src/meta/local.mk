# SPDX-License-Identifier: LGPL-3.0-or-later
# Room meta: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/meta/libvj-meta.la
src_meta_libvj_meta_la_LIBADD = $(LMDB_LIBS)
src_meta_libvj_meta_la_SOURCES = \
	src/meta/applier.c \
	src/meta/claim.c \
	src/meta/drivers.c \
	src/meta/engine.c \
	src/meta/engine.h \
	src/meta/events.c \
	src/meta/far-view.c \
	src/meta/fence.c \
	src/meta/flush.c \
	src/meta/send.c \
	src/meta/generation.c \
	src/meta/holder.c \
	src/meta/item-cache-private.h \
	src/meta/item-cache.c \
	src/meta/lease.c \
	src/meta/leased-private.h \
	src/meta/leased.c \
	src/meta/listing.c \
	src/meta/lmdb-apply.c \
	src/meta/lmdb-compact.c \
	src/meta/lmdb-env.c \
	src/meta/lmdb-format.h \
	src/meta/lmdb-image.c \
	src/meta/lmdb-lock.c \
	src/meta/lmdb-log.c \
	src/meta/lmdb-page-format.h \
	src/meta/lmdb-private.h \
	src/meta/lmdb-renew.c \
	src/meta/lmdb-reopen.c \
	src/meta/lmdb-snapshot.c \
	src/meta/lmdb-space.c \
	src/meta/lmdb-walk.c \
	src/meta/lmdb-walk.h \
	src/meta/lmdb.c \
	src/meta/memory.c \
	src/meta/meta-private.h \
	src/meta/meta.c \
	src/meta/meta.h \
	src/meta/overlay-private.h \
	src/meta/overlay.c \
	src/meta/read-set-private.h \
	src/meta/read-set.c \
	src/meta/recent-changes-private.h \
	src/meta/recent-changes.c \
	src/meta/redo-format.h \
	src/meta/redo-private.h \
	src/meta/redo-replay.c \
	src/meta/redo-write.c \
	src/meta/redo.c \
	src/meta/remote-open.c \
	src/meta/remote-private.h \
	src/meta/remote.c \
	src/meta/run.c \
	src/meta/session-format.c \
	src/meta/session-format.h \
	src/meta/session-join-private.h \
	src/meta/session-join.c \
	src/meta/session-number.c \
	src/meta/session-private.h \
	src/meta/session-record.c \
	src/meta/session.c \
	src/meta/session.h \
	src/meta/shared-join.c \
	src/meta/shared-private.h \
	src/meta/shared.c \
	src/meta/txn.c \
	src/meta/view.c \
	src/meta/wrap-crash.c \
	src/meta/wrap-fault.c \
	src/meta/wrap-latency.c \
	src/meta/wrap-stats.c
