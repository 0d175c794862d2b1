# SPDX-License-Identifier: LGPL-3.0-or-later
# Programs that scripts/bench.d/NAME runs; "make" builds them, "make check" does not run them.
#   noinst_PROGRAMS += tests/bench/bench-thing
#   tests_bench_bench_thing_LDADD = $(LDADD_fsck)
# They print figures as figure.h has them.

noinst_PROGRAMS += tests/bench/bench-chunk
tests_bench_bench_chunk_LDADD = $(LDADD_chunk) -lm
noinst_PROGRAMS += tests/bench/bench-meta
tests_bench_bench_meta_LDADD = $(LDADD_meta)
noinst_PROGRAMS += tests/bench/bench-insert
tests_bench_bench_insert_LDADD = librwrite.la

noinst_PROGRAMS += tests/bench/bench-block
tests_bench_bench_block_LDADD = $(LDADD_store)

noinst_PROGRAMS += tests/bench/bench-store
tests_bench_bench_store_LDADD = $(LDADD_store)

noinst_PROGRAMS += tests/bench/bench-index
tests_bench_bench_index_LDADD = $(LDADD_volume)
# One round of one kind of work on any file system; no room of varjfs is in it.
noinst_PROGRAMS += tests/bench/bench-io
tests_bench_bench_io_LDADD = librwrite.la
noinst_PROGRAMS += tests/bench/bench-flush
tests_bench_bench_flush_LDADD = $(LDADD_meta)
noinst_PROGRAMS += tests/bench/bench-rpc
tests_bench_bench_rpc_LDADD = $(LDADD_rpc)

noinst_PROGRAMS += tests/bench/bench-tls
tests_bench_bench_tls_LDADD = $(LDADD_rpc)

noinst_PROGRAMS += tests/bench/bench-nodes
tests_bench_bench_nodes_LDADD = $(LDADD_object)

# Loaded with any connector; no room of varjfs is in it.
if HAVE_HDF5
noinst_PROGRAMS += tests/bench/bench-hdf5
tests_bench_bench_hdf5_CPPFLAGS = -D_GNU_SOURCE $(HDF5_CFLAGS)
tests_bench_bench_hdf5_LDADD = $(HDF5_LIBS)
endif
