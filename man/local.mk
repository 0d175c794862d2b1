# SPDX-License-Identifier: LGPL-3.0-or-later
# Manual pages are POD: man/varjfs.8.pod becomes man/varjfs.8.  Add the
# finished name below, one a line.

man_pages =
man_pages += man/fsck.varjfs.8
man_pages += man/mkfs.varjfs.8
man_pages += man/mount.fuse.varjfs.8
man_pages += man/rpwrite.2
man_pages += man/rwrite.2
man_pages += man/umount.fuse.varjfs.8
man_pages += man/varjfs-bench.1
man_pages += man/varjfs-format.5
man_pages += man/varjfs-ioctl.2
man_pages += man/varjfs-meta-lmdb.7
man_pages += man/varjfs-meta-memory.7
man_pages += man/varjfs-meta-remote.7
man_pages += man/varjfs-preload.7
man_pages += man/varjfs-protocol.7
man_pages += man/varjfs-security.7
man_pages += man/varjfs-store-null.7
man_pages += man/varjfs-store-posix.7
man_pages += man/varjfs-store-remote.7
man_pages += man/varjfs-transform.7
man_pages += man/varjfs.8
man_pages += man/varjfsctl.1
man_pages += man/varjfsd.8
man_pages += man/varjfsd.conf.5

if HAVE_POD2MAN
man_MANS = $(man_pages)
CLEANFILES += $(man_MANS)
endif

pod_to_man = name=`basename $@`; $(MKDIR_P) $(@D) && $(POD2MAN) \
	--name="`echo "$${name%.*}" | tr a-z A-Z`" --section="$${name\#\#*.}" \
	--center='varjfs manual' --release='varjfs $(VERSION)' --utf8 $< $@.tmp && mv $@.tmp $@

man/%: man/%.pod
	$(AM_V_GEN)$(pod_to_man)
