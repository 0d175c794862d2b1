# SPDX-License-Identifier: LGPL-3.0-or-later
# Room fs: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/fs/libvj-fs.la
src_fs_libvj_fs_la_LIBADD =
src_fs_libvj_fs_la_SOURCES = \
	src/fs/acl.c \
	src/fs/after.c \
	src/fs/append.c \
	src/fs/atime.c \
	src/fs/attr.c \
	src/fs/caller.c \
	src/fs/dir.c \
	src/fs/elsewhere.c \
	src/fs/expect.c \
	src/fs/flags.c \
	src/fs/fs-format.c \
	src/fs/fs-format.h \
	src/fs/fs-private.h \
	src/fs/fs.c \
	src/fs/fs.h \
	src/fs/io.c \
	src/fs/make.c \
	src/fs/names.c \
	src/fs/path.c \
	src/fs/privileges.c \
	src/fs/records.h \
	src/fs/rename.c \
	src/fs/run.c \
	src/fs/settings.c \
	src/fs/text.c \
	src/fs/xattr-record.c \
	src/fs/xattr.c
