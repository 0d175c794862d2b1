# SPDX-License-Identifier: LGPL-3.0-or-later
# Room clients: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/clients/libvj-clients.la
src_clients_libvj_clients_la_LIBADD =
src_clients_libvj_clients_la_SOURCES = \
	src/clients/batch.c \
	src/clients/clients-private.h \
	src/clients/clients.c \
	src/clients/clients.h \
	src/clients/empty.c \
	src/clients/fields.c \
	src/clients/fields.h \
	src/clients/items.c \
	src/clients/iterate.c \
	src/clients/keys.c \
	src/clients/objects.c \
	src/clients/open.c \
	src/clients/transaction.c
