# SPDX-License-Identifier: LGPL-3.0-or-later
# Room file: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/file/libvj-file.la
src_file_libvj_file_la_LIBADD =
src_file_libvj_file_la_SOURCES = \
	src/file/budget-private.h \
	src/file/budget.c \
	src/file/change.c \
	src/file/check.c \
	src/file/checkpoint-file.c \
	src/file/checkpoint-format.h \
	src/file/checkpoint-private.h \
	src/file/checkpoint.c \
	src/file/file.c \
	src/file/file.h \
	src/file/flusher.c \
	src/file/fragment-plan.c \
	src/file/fragment.c \
	src/file/hold.c \
	src/file/in-use.c \
	src/file/inline.c \
	src/file/inode-format.h \
	src/file/inode.c \
	src/file/make.c \
	src/file/old-map.c \
	src/file/orphan.c \
	src/file/pieces-private.h \
	src/file/pieces.c \
	src/file/put-queue.c \
	src/file/read-ahead.c \
	src/file/read.c \
	src/file/recode.c \
	src/file/record-codec.c \
	src/file/recut.c \
	src/file/remap-plan.c \
	src/file/remap.c \
	src/file/repair-content.c \
	src/file/repair-map.c \
	src/file/repair-map.h \
	src/file/repair-objects.c \
	src/file/repair-private.h \
	src/file/repair-records.c \
	src/file/repair-salvage.c \
	src/file/repair.c \
	src/file/repair.h \
	src/file/resolve.c \
	src/file/restore.c \
	src/file/runs.c \
	src/file/scrub-format.h \
	src/file/scrub-record.c \
	src/file/settings.c \
	src/file/source-lock-private.h \
	src/file/source-lock.c \
	src/file/space.c \
	src/file/superblock-copy.c \
	src/file/superblock.c \
	src/file/tend.c \
	src/file/turn.c \
	src/file/volume-private.h \
	src/file/volume-record.c \
	src/file/volume.c \
	src/file/write-back-private.h \
	src/file/write-back.c
