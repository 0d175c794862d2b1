/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mem-meta.h - a metadata engine in memory for unit tests and fuzzers
 *
 * One thread; a write transaction is alone (no reader beside it), abort takes back what
 * it did.  Slices that get, next and prev return are freed at the next put, del or end of
 * the transaction, so a test under AddressSanitizer finds whoever keeps one for longer.
 * Close it with vj_meta_close.
 */
#ifndef VJ_TESTS_UNIT_FILE_MEM_META_H
#define VJ_TESTS_UNIT_FILE_MEM_META_H

#include "meta/meta.h"

VjMeta *mem_meta_new(void);

/* Calls since the last reset, of transactions that were aborted too. */
void mem_meta_counts(VjMeta *m, VjMetaStats *out);
void mem_meta_reset_counts(VjMeta *m);

/* Keys in a space now. */
size_t mem_meta_size(VjMeta *m, VjSpace space);

/* The n-th get, put or del from now on (1: the next) fails with @error, once; 0: none. */
void mem_meta_fail(VjMeta *m, uint64_t nth, int error);

/* Equal for two engines, or two moments, with the same keys and values in @space. */
uint64_t mem_meta_fingerprint(VjMeta *m, VjSpace space);

#endif
