# SPDX-License-Identifier: LGPL-3.0-or-later
# Room cmd: add each source and header below, one a line, in order of names.

noinst_LTLIBRARIES += src/cmd/libvj-cmd.la
src_cmd_libvj_cmd_la_LIBADD =
src_cmd_libvj_cmd_la_SOURCES = \
	src/cmd/cmd.c \
	src/cmd/cmd.h \
	src/cmd/confine.c \
	src/cmd/confine.h \
	src/cmd/mount-table.c \
	src/cmd/mount-table.h \
	src/cmd/owners.c \
	src/cmd/owners.h \
	src/cmd/transforms.c

# The programs, by the names users type (build/varjfs and so on).
bin_PROGRAMS += varjfs varjfsctl
sbin_PROGRAMS += mkfs.varjfs fsck.varjfs

varjfs_SOURCES = src/cmd/varjfs.c
varjfs_LDADD = $(LDADD_cmd)

# With librwrite's code inside: it runs before and after the library is installed.
varjfsctl_SOURCES = $(rwrite_sources) \
	src/cmd/ctl-calls.c \
	src/cmd/ctl-calls.h \
	src/cmd/ctl-client.c \
	src/cmd/ctl-config.c \
	src/cmd/ctl-edit.c \
	src/cmd/ctl-json.c \
	src/cmd/ctl-keygen.c \
	src/cmd/ctl-node.c \
	src/cmd/ctl-open.c \
	src/cmd/ctl-recode.c \
	src/cmd/ctl-scrub.c \
	src/cmd/ctl-show.c \
	src/cmd/ctl-statistics.c \
	src/cmd/ctl-stats.c \
	src/cmd/ctl-store.c \
	src/cmd/ctl-tend.c \
	src/cmd/ctl-top.c \
	src/cmd/ctl.c \
	src/cmd/ctl.h
varjfsctl_LDADD = src/cmd/libvj-cmd.la $(LDADD_node) lib/client/libvj-client.la

mkfs_varjfs_SOURCES = src/cmd/mkfs.c
mkfs_varjfs_LDADD = src/cmd/libvj-cmd.la $(LDADD_volume)

fsck_varjfs_SOURCES = src/cmd/fsck.c
fsck_varjfs_LDADD = src/cmd/libvj-cmd.la $(LDADD_fsck)

sbin_PROGRAMS += varjfsd
varjfsd_SOURCES = \
	src/cmd/varjfsd-confine.c \
	src/cmd/varjfsd-stats.c \
	src/cmd/varjfsd.c \
	src/cmd/varjfsd.h
varjfsd_LDADD = src/cmd/libvj-cmd.la $(LDADD_node)

# What mount(8) and umount(8) run for the type fuse.varjfs.
mounthelper_PROGRAMS = umount.fuse.varjfs
umount_fuse_varjfs_SOURCES = src/cmd/umount.c
umount_fuse_varjfs_LDADD = $(LDADD_cmd)

mounthelper_SCRIPTS += mount.fuse.varjfs
CLEANFILES += mount.fuse.varjfs
mount.fuse.varjfs: src/cmd/mount.fuse.varjfs.in Makefile
	$(AM_V_GEN)sed 's|[@]bindir[@]|$(bindir)|' $(srcdir)/src/cmd/mount.fuse.varjfs.in >$@.tmp && \
	    chmod +x $@.tmp && mv $@.tmp $@
