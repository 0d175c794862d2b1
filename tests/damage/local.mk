# SPDX-License-Identifier: LGPL-3.0-or-later
# Damage of each class of stored byte: README.md.

TEST_HELPERS += tests/damage/sweep
FAULT_TESTS += tests/damage/sweep tests/damage/mount.sh tests/damage/pages.sh
tests_damage_sweep_SOURCES = \
	tests/damage/compare.c \
	tests/damage/record.c \
	tests/damage/stored.c \
	tests/damage/sweep.c \
	tests/damage/sweep.h \
	tests/damage/tree.c \
	tests/damage/view.c
tests_damage_sweep_LDADD = $(LDADD_fsck)

TEST_HELPERS += tests/damage/killed tests/damage/fsck-killed
FAULT_TESTS += tests/damage/killed
tests_damage_killed_SOURCES = \
	tests/damage/compare.c \
	tests/damage/killed.c \
	tests/damage/record.c \
	tests/damage/stored.c \
	tests/damage/sweep.h \
	tests/damage/tree.c \
	tests/damage/view.c
tests_damage_killed_LDADD = $(LDADD_fsck)

# fsck.varjfs, killed at a call of its own.
tests_damage_fsck_killed_SOURCES = src/cmd/fsck.c tests/damage/kill-call.c
tests_damage_fsck_killed_LDADD = src/cmd/libvj-cmd.la $(LDADD_fsck)
tests_damage_fsck_killed_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=vj_meta_run,--wrap=vj_meta_flush,--wrap=vj_store_remove \
	-Wl,--wrap=vj_store_flush,--wrap=vj_store_flush_removes,--wrap=renameat \
	-Wl,--wrap=unlinkat,--wrap=mkdirat,--wrap=fsync
