# SPDX-License-Identifier: LGPL-3.0-or-later
# Room volume: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/volume/libvj-volume.la
src_volume_libvj_volume_la_LIBADD =
src_volume_libvj_volume_la_SOURCES = \
	src/volume/checkpoint-file.c \
	src/volume/checkpoint-format.h \
	src/volume/checkpoint-private.h \
	src/volume/checkpoint.c \
	src/volume/examine.c \
	src/volume/figures.c \
	src/volume/flusher.c \
	src/volume/healer.c \
	src/volume/in-use.c \
	src/volume/make.c \
	src/volume/needs.c \
	src/volume/nodes.c \
	src/volume/orphan.c \
	src/volume/place-make.c \
	src/volume/place-private.h \
	src/volume/place.c \
	src/volume/restore.c \
	src/volume/scrub-format.h \
	src/volume/scrub-record.c \
	src/volume/sessions.c \
	src/volume/source-lock.c \
	src/volume/superblock-copy.c \
	src/volume/superblock.c \
	src/volume/tend.c \
	src/volume/volume-file-make.c \
	src/volume/volume-file-renew.c \
	src/volume/volume-file.c \
	src/volume/volume-private.h \
	src/volume/volume-record.c \
	src/volume/volume.c \
	src/volume/volume.h \
	src/volume/wait-released.c
