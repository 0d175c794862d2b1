# SPDX-License-Identifier: LGPL-3.0-or-later
# Room rpc: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/rpc/libvj-rpc.la
src_rpc_libvj_rpc_la_LIBADD = $(EVENT_LIBS) $(SSL_LIBS)
src_rpc_libvj_rpc_la_SOURCES = \
	src/rpc/address-private.h \
	src/rpc/address.c \
	src/rpc/call.c \
	src/rpc/certificates.c \
	src/rpc/certificates.h \
	src/rpc/client-private.h \
	src/rpc/client.c \
	src/rpc/connection-private.h \
	src/rpc/connection.c \
	src/rpc/credentials-private.h \
	src/rpc/credentials.c \
	src/rpc/frame-format.c \
	src/rpc/frame-format.h \
	src/rpc/key-file.c \
	src/rpc/loop-private.h \
	src/rpc/loop.c \
	src/rpc/mailbox-private.h \
	src/rpc/mailbox.c \
	src/rpc/messages.c \
	src/rpc/messages.h \
	src/rpc/peer.c \
	src/rpc/pipes.c \
	src/rpc/pipes-private.h \
	src/rpc/request.c \
	src/rpc/rpc.h \
	src/rpc/server-private.h \
	src/rpc/server.c \
	src/rpc/stream-private.h \
	src/rpc/stream.c \
	src/rpc/tls.c
