# SPDX-License-Identifier: LGPL-3.0-or-later
# Manual pages are POD: man/varjfs.8.pod becomes man/varjfs.8.  Add the
# finished name below, one a line.

man_pages =
man_pages += man/fsck.varjfs.8
man_pages += man/libvarjfs.3
man_pages += man/mkfs.varjfs.8
man_pages += man/mount.fuse.varjfs.8
man_pages += man/rpwrite.2
man_pages += man/rwrite.2
man_pages += man/umount.fuse.varjfs.8
man_pages += man/varjfs-bench.1
man_pages += man/varjfs-client.conf.5
man_pages += man/varjfs-format.5
man_pages += man/varjfs-ioctl.2
man_pages += man/varjfs-meta-lmdb.7
man_pages += man/varjfs-meta-memory.7
man_pages += man/varjfs-meta-remote.7
man_pages += man/varjfs-preload.7
man_pages += man/varjfs-protocol.7
man_pages += man/varjfs-security.7
man_pages += man/varjfs-semantics.7
man_pages += man/varjfs-store-block.7
man_pages += man/varjfs-store-null.7
man_pages += man/varjfs-store-posix.7
man_pages += man/varjfs-store-remote.7
man_pages += man/varjfs-transform.7
man_pages += man/varjfs.8
man_pages += man/varjfs_batch.3
man_pages += man/varjfs_item.3
man_pages += man/varjfs_iterate.3
man_pages += man/varjfs_kv.3
man_pages += man/varjfs_namespace_delete.3
man_pages += man/varjfs_object.3
man_pages += man/varjfs_open.3
man_pages += man/varjfsctl.1
man_pages += man/varjfsd.8
man_pages += man/varjfsd.conf.5

if HAVE_HDF5
man_pages += man/varjfs-hdf5.7
endif

# Functions that stand in the page of another name: its NAME section has them all.
man_functions = varjfs_close varjfs_sync varjfs_statistics varjfs_open_error varjfs_strerror varjfs_version varjfs_config_each \
	varjfs_semantics_template varjfs_semantics_check \
	varjfs_batch_new varjfs_batch_free varjfs_batch_execute varjfs_batch_submit \
	varjfs_batch_wait varjfs_batch_cancel varjfs_batch_test varjfs_descriptor \
	varjfs_object_create varjfs_object_delete varjfs_object_status varjfs_object_read \
	varjfs_object_write varjfs_object_rwrite varjfs_object_resize varjfs_object_rename \
	varjfs_item_create varjfs_attribute_put varjfs_attribute_get varjfs_attribute_delete \
	varjfs_kv_put varjfs_kv_get varjfs_kv_delete \
	varjfs_object_iterate varjfs_kv_iterate varjfs_attribute_iterate varjfs_item_iterate varjfs_iterator_next varjfs_iterator_free
man_links = $(man_functions:%=man/%.3)

if HAVE_POD2MAN
man_MANS = $(man_pages) $(man_links)
CLEANFILES += $(man_MANS)
endif

pod_to_man = name=`basename $@`; $(MKDIR_P) $(@D) && $(POD2MAN) \
	--name="`echo "$${name%.*}" | tr a-z A-Z`" --section="$${name\#\#*.}" \
	--center='varjfs manual' --release='varjfs $(VERSION)' --utf8 $< $@.tmp && mv $@.tmp $@

man/%: man/%.pod
	$(AM_V_GEN)$(pod_to_man)

# One line, "so" of roff, which names the page.
$(man_links): man/local.mk
	$(AM_V_GEN)$(MKDIR_P) $(@D) && name=`basename $@ .3` && \
	    page=`cd $(srcdir)/man && awk '/^=head1 NAME/ { on = 1; next } /^=head1/ { on = 0 } \
	        on && (index($$0, name ",") || index($$0, name " -")) { sub(/\.pod$$/, "", FILENAME); print FILENAME }' \
	        name=$$name libvarjfs.3.pod varjfs_*.3.pod varjfs-semantics.7.pod` && \
	    test -n "$$page" && echo ".so man$${page##*.}/$$page" >$@
