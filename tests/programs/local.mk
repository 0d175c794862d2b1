# SPDX-License-Identifier: LGPL-3.0-or-later
# Programs of the world, at work in a mount; scripts/programs runs them all.

PROGRAM_TESTS += \
	tests/programs/compile.sh \
	tests/programs/debootstrap.sh \
	tests/programs/editors.sh \
	tests/programs/fio.sh \
	tests/programs/git.sh \
	tests/programs/images.sh \
	tests/programs/postgresql.sh \
	tests/programs/python.sh \
	tests/programs/rsync.sh \
	tests/programs/sqlite.sh \
	tests/programs/tar.sh
