# SPDX-License-Identifier: LGPL-3.0-or-later
# The POSIX suite: one program, one source file a topic; run.sh runs it on any directory.

TEST_HELPERS += tests/posix/suite
tests_posix_suite_SOURCES = \
	tests/posix/main.c \
	tests/posix/posix.c \
	tests/posix/access.c \
	tests/posix/acl.c \
	tests/posix/append.c \
	tests/posix/chmod.c \
	tests/posix/chown.c \
	tests/posix/exec.c \
	tests/posix/flags.c \
	tests/posix/flock.c \
	tests/posix/handle.c \
	tests/posix/io.c \
	tests/posix/ipc.c \
	tests/posix/link.c \
	tests/posix/make.c \
	tests/posix/mmap.c \
	tests/posix/names.c \
	tests/posix/open.c \
	tests/posix/path.c \
	tests/posix/privileges.c \
	tests/posix/readdir.c \
	tests/posix/readonly.c \
	tests/posix/rename.c \
	tests/posix/setid.c \
	tests/posix/sparse.c \
	tests/posix/statvfs.c \
	tests/posix/statx.c \
	tests/posix/sticky.c \
	tests/posix/symlink.c \
	tests/posix/times.c \
	tests/posix/tmpfile.c \
	tests/posix/truncate.c \
	tests/posix/utimens.c \
	tests/posix/xattr.c
tests_posix_suite_LDADD =
