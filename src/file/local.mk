# SPDX-License-Identifier: LGPL-3.0-or-later
# Room file: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/file/libvj-file.la
src_file_libvj_file_la_LIBADD =
src_file_libvj_file_la_SOURCES = \
	src/file/append-private.h \
	src/file/append.c \
	src/file/budget-private.h \
	src/file/budget.c \
	src/file/change.c \
	src/file/committed-private.h \
	src/file/committed.c \
	src/file/content-claim.c \
	src/file/file-private.h \
	src/file/file.c \
	src/file/file.h \
	src/file/fragment-plan.c \
	src/file/fragment-private.h \
	src/file/fragment-use.c \
	src/file/fragment.c \
	src/file/hold.c \
	src/file/inline.c \
	src/file/ino-block.c \
	src/file/inode-format.h \
	src/file/inode.c \
	src/file/old-map.c \
	src/file/orphan-record.c \
	src/file/pieces-private.h \
	src/file/pieces.c \
	src/file/put-queue.c \
	src/file/read-ahead.c \
	src/file/read.c \
	src/file/records.h \
	src/file/recode.c \
	src/file/recut.c \
	src/file/remap-plan.c \
	src/file/remap-private.h \
	src/file/remap.c \
	src/file/reserve.c \
	src/file/resolve.c \
	src/file/round.c \
	src/file/runs.c \
	src/file/settings.c \
	src/file/slab-private.h \
	src/file/slab.c \
	src/file/space-private.h \
	src/file/space.c \
	src/file/steps.c \
	src/file/table.c \
	src/file/table.h \
	src/file/write-back-private.h \
	src/file/write-back.c
