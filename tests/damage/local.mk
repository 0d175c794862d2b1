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
tests_damage_sweep_LDADD = $(LDADD_fs)
