# SPDX-License-Identifier: LGPL-3.0-or-later
# Tests through a real mount: MOUNT_TESTS += tests/mount/thing.sh; a C program that one needs:
#   TEST_HELPERS += tests/mount/thing
#   tests_mount_thing_LDADD =

MOUNT_TESTS += \
	tests/mount/as-typed.sh \
	tests/mount/attributes.sh \
	tests/mount/bench-real.sh \
	tests/mount/block-device.sh \
	tests/mount/busy-poll.sh \
	tests/mount/cache.sh \
	tests/mount/chattr.sh \
	tests/mount/checkpoint.sh \
	tests/mount/damage.sh \
	tests/mount/edits.sh \
	tests/mount/gc-scrub.sh \
	tests/mount/keygen.sh \
	tests/mount/known-content.sh \
	tests/mount/lifecycle.sh \
	tests/mount/fsck-repair.sh \
	tests/mount/guard.sh \
	tests/mount/handles.sh \
	tests/mount/full.sh \
	tests/mount/hostile-calls.sh \
	tests/mount/hostile.sh \
	tests/mount/meta-damage.sh \
	tests/mount/meta-node.sh \
	tests/mount/mkfs-failures.sh \
	tests/mount/mkfs-fsck.sh \
	tests/mount/modes.sh \
	tests/mount/namespaces.sh \
	tests/mount/neighbours.sh \
	tests/mount/node-faults.sh \
	tests/mount/one-daemon.sh \
	tests/mount/operators.sh \
	tests/mount/overlay.sh \
	tests/mount/posix.sh \
	tests/mount/posix-options.sh \
	tests/mount/posix-suite.sh \
	tests/mount/redo-log.sh \
	tests/mount/round-trips.sh \
	tests/mount/request-counts.sh \
	tests/mount/rwrite.sh \
	tests/mount/safety.sh \
	tests/mount/scrub-resume.sh \
	tests/mount/settings-log.sh \
	tests/mount/shrink.sh \
	tests/mount/small-files.sh \
	tests/mount/space-tools.sh \
	tests/mount/store-timeout.sh \
	tests/mount/superblock.sh \
	tests/mount/top.sh \
	tests/mount/transform-read.sh \
	tests/mount/transform.sh \
	tests/mount/two-calls.sh \
	tests/mount/user.sh \
	tests/mount/varjfsctl.sh \
	tests/mount/volume-elsewhere.sh \
	tests/mount/volume-file.sh \
	tests/mount/warm-trees.sh

TEST_HELPERS += tests/mount/edit-atomic
tests_mount_edit_atomic_SOURCES = $(rwrite_sources) tests/mount/edit-atomic.c
tests_mount_edit_atomic_LDADD = $(LDADD_base)
MOUNT_TESTS += tests/mount/edit-atomic.sh
MOUNT_TESTS += tests/mount/detect-shim.sh
MOUNT_TESTS += tests/mount/examples.sh
MOUNT_TESTS += tests/mount/fallocate-shim.sh
MOUNT_TESTS += tests/mount/hanging-engine.sh
MOUNT_TESTS += tests/mount/hanging-store.sh
MOUNT_TESTS += tests/mount/killed-callers.sh
MOUNT_TESTS += tests/mount/slow-device.sh
MOUNT_TESTS += tests/mount/sync-at-end.sh
MOUNT_TESTS += tests/mount/thread-shortage.sh
MOUNT_TESTS += tests/mount/write-back-errors.sh
MOUNT_TESTS += tests/mount/full-at-umount.sh

TEST_HELPERS += tests/mount/direct-write
tests_mount_direct_write_LDADD = $(LDADD_base)
MOUNT_TESTS += tests/mount/direct-write.sh

TEST_HELPERS += tests/mount/plant-codec
tests_mount_plant_codec_LDADD = $(LDADD_volume) $(CMOCKA_LIBS)

TEST_HELPERS += tests/mount/reseal
tests_mount_reseal_LDADD = $(LDADD_base)
MOUNT_TESTS += tests/mount/failures.sh

TEST_HELPERS += tests/mount/handle
tests_mount_handle_LDADD =

TEST_HELPERS += tests/mount/edit-signals
tests_mount_edit_signals_SOURCES = $(rwrite_sources) tests/mount/edit-signals.c
tests_mount_edit_signals_LDADD =
