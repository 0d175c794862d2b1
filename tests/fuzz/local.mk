# SPDX-License-Identifier: LGPL-3.0-or-later
# Decoders on hostile bytes: one function LLVMFuzzerTestOneInput in each
# tests/fuzz/fuzz-thing.c, inputs kept in tests/fuzz/corpus/thing.  "make check" replays the
# corpus and mutations of it (replay.c).  To search:
#   scripts/fuzz thing
# Four lines for each target:
#   FUZZ_TARGETS += tests/fuzz/fuzz-thing
#   tests_fuzz_fuzz_thing_SOURCES = tests/fuzz/fuzz-thing.c $(FUZZ_MAIN)
#   tests_fuzz_fuzz_thing_LDADD = $(LDADD_room)
#   tests_fuzz_fuzz_thing_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS =
if FUZZERS
FUZZ_MAIN =
noinst_PROGRAMS += $(FUZZ_TARGETS)
else
FUZZ_MAIN = tests/fuzz/replay.c
TEST_HELPERS += $(FUZZ_TARGETS)
FUZZ_TESTS += $(FUZZ_TARGETS)
endif

FUZZ_TARGETS += tests/fuzz/fuzz-codec
tests_fuzz_fuzz_codec_SOURCES = tests/fuzz/fuzz-codec.c $(FUZZ_MAIN)
tests_fuzz_fuzz_codec_LDADD = $(LDADD_codec)
tests_fuzz_fuzz_codec_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-opts
tests_fuzz_fuzz_opts_SOURCES = tests/fuzz/fuzz-opts.c $(FUZZ_MAIN)
tests_fuzz_fuzz_opts_LDADD = $(LDADD_base)
tests_fuzz_fuzz_opts_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-reader
tests_fuzz_fuzz_reader_SOURCES = tests/fuzz/fuzz-reader.c $(FUZZ_MAIN)
tests_fuzz_fuzz_reader_LDADD = $(LDADD_base)
tests_fuzz_fuzz_reader_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-map-node
tests_fuzz_fuzz_map_node_SOURCES = tests/fuzz/fuzz-map-node.c $(FUZZ_MAIN)
tests_fuzz_fuzz_map_node_LDADD = $(LDADD_volume)
tests_fuzz_fuzz_map_node_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-object
tests_fuzz_fuzz_object_SOURCES = tests/fuzz/fuzz-object.c $(FUZZ_MAIN)
tests_fuzz_fuzz_object_LDADD = $(LDADD_volume)
tests_fuzz_fuzz_object_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-superblock
tests_fuzz_fuzz_superblock_SOURCES = tests/fuzz/fuzz-superblock.c $(FUZZ_MAIN)
tests_fuzz_fuzz_superblock_LDADD = $(LDADD_volume)
tests_fuzz_fuzz_superblock_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-records
tests_fuzz_fuzz_records_SOURCES = tests/fuzz/fuzz-records.c $(FUZZ_MAIN)
tests_fuzz_fuzz_records_LDADD = $(LDADD_fsck)
tests_fuzz_fuzz_records_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-chunker
tests_fuzz_fuzz_chunker_SOURCES = tests/fuzz/fuzz-chunker.c $(FUZZ_MAIN)
tests_fuzz_fuzz_chunker_LDADD = $(LDADD_chunk)
tests_fuzz_fuzz_chunker_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-block
tests_fuzz_fuzz_block_SOURCES = tests/fuzz/fuzz-block.c $(FUZZ_MAIN)
tests_fuzz_fuzz_block_LDADD = $(LDADD_store)
tests_fuzz_fuzz_block_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-posix-names
tests_fuzz_fuzz_posix_names_SOURCES = tests/fuzz/fuzz-posix-names.c $(FUZZ_MAIN)
tests_fuzz_fuzz_posix_names_LDADD = $(LDADD_store)
tests_fuzz_fuzz_posix_names_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-values
tests_fuzz_fuzz_values_SOURCES = tests/fuzz/fuzz-values.c $(FUZZ_MAIN)
tests_fuzz_fuzz_values_LDADD = tests/lib/libmem-meta.la $(LDADD_volume)
tests_fuzz_fuzz_values_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-proc
tests_fuzz_fuzz_proc_SOURCES = tests/fuzz/fuzz-proc.c $(FUZZ_MAIN)
tests_fuzz_fuzz_proc_LDADD = $(LDADD_fsck)
tests_fuzz_fuzz_proc_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-ctl
tests_fuzz_fuzz_ctl_SOURCES = tests/fuzz/fuzz-ctl.c src/cmd/ctl-client.c src/cmd/ctl-config.c \
	src/cmd/ctl-edit.c src/cmd/ctl-json.c src/cmd/ctl-keygen.c src/cmd/ctl-node.c \
	src/cmd/ctl-recode.c src/cmd/ctl-statistics.c src/cmd/ctl-store.c src/cmd/ctl-tend.c \
	src/cmd/ctl-top.c $(rwrite_sources) $(FUZZ_MAIN)
tests_fuzz_fuzz_ctl_LDADD = src/cmd/libvj-cmd.la $(LDADD_node) lib/client/libvj-client.la
tests_fuzz_fuzz_ctl_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-options
tests_fuzz_fuzz_options_SOURCES = tests/fuzz/fuzz-options.c $(FUZZ_MAIN)
tests_fuzz_fuzz_options_LDADD = tests/lib/libmem-meta.la $(LDADD_cmd)
tests_fuzz_fuzz_options_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-fs
tests_fuzz_fuzz_fs_SOURCES = tests/fuzz/fuzz-fs.c $(FUZZ_MAIN)
tests_fuzz_fuzz_fs_LDADD = $(LDADD_fsck)
tests_fuzz_fuzz_fs_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-ioctl
tests_fuzz_fuzz_ioctl_SOURCES = tests/fuzz/fuzz-ioctl.c $(FUZZ_MAIN)
tests_fuzz_fuzz_ioctl_LDADD = $(LDADD_front)
# It has functions of libfuse of its own; those of a static libfuse come second then.
tests_fuzz_fuzz_ioctl_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS) -Wl,-z,muldefs

FUZZ_TARGETS += tests/fuzz/fuzz-stored
tests_fuzz_fuzz_stored_SOURCES = tests/fuzz/fuzz-stored.c $(FUZZ_MAIN)
tests_fuzz_fuzz_stored_LDADD = tests/lib/libmem-meta.la $(LDADD_volume)
tests_fuzz_fuzz_stored_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-repair
tests_fuzz_fuzz_repair_SOURCES = tests/fuzz/fuzz-repair.c $(FUZZ_MAIN)
tests_fuzz_fuzz_repair_LDADD = $(LDADD_fsck)
tests_fuzz_fuzz_repair_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-lmdb
tests_fuzz_fuzz_lmdb_SOURCES = tests/fuzz/fuzz-lmdb.c $(FUZZ_MAIN)
tests_fuzz_fuzz_lmdb_LDADD = $(LDADD_fsck)
tests_fuzz_fuzz_lmdb_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-checkpoint
tests_fuzz_fuzz_checkpoint_SOURCES = tests/fuzz/fuzz-checkpoint.c $(FUZZ_MAIN)
tests_fuzz_fuzz_checkpoint_LDADD = $(LDADD_fsck)
tests_fuzz_fuzz_checkpoint_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-redo
tests_fuzz_fuzz_redo_SOURCES = tests/fuzz/fuzz-redo.c $(FUZZ_MAIN)
tests_fuzz_fuzz_redo_LDADD = $(LDADD_meta)
tests_fuzz_fuzz_redo_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-rpc-frame
tests_fuzz_fuzz_rpc_frame_SOURCES = tests/fuzz/fuzz-rpc-frame.c \
	tests/lib/rpc-recode.c tests/lib/rpc-recode.h $(FUZZ_MAIN)
tests_fuzz_fuzz_rpc_frame_LDADD = $(LDADD_rpc)
tests_fuzz_fuzz_rpc_frame_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-rpc-stream
tests_fuzz_fuzz_rpc_stream_SOURCES = tests/fuzz/fuzz-rpc-stream.c \
	tests/lib/rpc-frames.c tests/lib/rpc-frames.h \
	tests/lib/rpc-recode.c tests/lib/rpc-recode.h $(FUZZ_MAIN)
tests_fuzz_fuzz_rpc_stream_LDADD = $(LDADD_node)
tests_fuzz_fuzz_rpc_stream_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)

FUZZ_TARGETS += tests/fuzz/fuzz-client
tests_fuzz_fuzz_client_SOURCES = tests/fuzz/fuzz-client.c $(varjfs_sources) $(FUZZ_MAIN)
tests_fuzz_fuzz_client_LDADD = $(LDADD_rpc)
tests_fuzz_fuzz_client_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_CFLAGS)
