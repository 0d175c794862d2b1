# SPDX-License-Identifier: LGPL-3.0-or-later
# Room front: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/front/libvj-front.la
src_front_libvj_front_la_LIBADD = $(FUSE3_LIBS)
src_front_libvj_front_la_SOURCES = \
	src/front/busiest.c \
	src/front/coherence-private.h \
	src/front/coherence.c \
	src/front/count-private.h \
	src/front/count.c \
	src/front/delay.c \
	src/front/dir-streams.c \
	src/front/dying.c \
	src/front/edit.c \
	src/front/front-private.h \
	src/front/front.c \
	src/front/front.h \
	src/front/guard-calls.c \
	src/front/guard-private.h \
	src/front/guard.c \
	src/front/interrupt.c \
	src/front/invalidate.c \
	src/front/lookup-count.c \
	src/front/mounter.c \
	src/front/ops-dir.c \
	src/front/ops-flags.c \
	src/front/ops-io.c \
	src/front/ops-ioctl.c \
	src/front/ops.c \
	src/front/ranges.c \
	src/front/receive.c \
	src/front/request.c \
	src/front/serve-private.h \
	src/front/serve.c \
	src/front/stage.c \
	src/front/thread-time.c \
	src/front/utab.c \
	src/front/wait-private.h
