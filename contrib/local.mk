# SPDX-License-Identifier: LGPL-3.0-or-later
# For operators: completion in bash, and examples of fstab and systemd.

completiondir = $(datadir)/bash-completion/completions
dist_completion_DATA = \
	contrib/completions/fsck.varjfs \
	contrib/completions/mkfs.varjfs \
	contrib/completions/varjfs \
	contrib/completions/varjfsctl \
	contrib/completions/varjfsd

dist_doc_DATA = \
	contrib/fstab.example \
	contrib/srv-varjfs.mount \
	contrib/varjfs-scrub@.service \
	contrib/varjfs-scrub@.timer \
	contrib/varjfsd.conf.example \
	contrib/varjfsd.service
