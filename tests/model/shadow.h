/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shadow.h - what a file ought to hold: a plain byte array, and the data to fill it with
 *
 * Shared by the model tests in process and through a mount.  Threads: one at a time.
 */
#ifndef VJ_TEST_MODEL_SHADOW_H
#define VJ_TEST_MODEL_SHADOW_H

#include "base/base.h"

typedef struct Shadow {
    uint8_t *bytes;
    size_t len, cap; /* bytes */
} Shadow;

void shadow_clear(Shadow *s);

/* As vj_file_replace: clipped at the end, a hole before an offset beyond it. */
void shadow_replace(Shadow *s, size_t offset, size_t old_len, const void *src,
                    size_t len);
void shadow_write(Shadow *s, size_t offset, const void *src, size_t len);
void shadow_truncate(Shadow *s, size_t len);
/* Zeroes; @grow: also beyond the end. */
void shadow_punch(Shadow *s, size_t offset, size_t len, bool grow);

/* The first difference, or @len. */
size_t shadow_difference(const uint8_t *a, const uint8_t *b, size_t len);

/*
 * Bytes of many kinds: random, constant, periodic, zeroes, and slices of one pool, so
 * that equal content turns up in several places and files.
 */
#define DATA_POOL_BYTES ((size_t)1 << 20)
typedef struct DataPool {
    uint8_t bytes[DATA_POOL_BYTES];
} DataPool;

void data_pool_init(DataPool *pool, uint64_t seed);
void data_fill(const DataPool *pool, VjRng *rng, uint8_t *dst, size_t len);

/* Mostly small, sometimes up to @most (> 0). */
size_t data_length(VjRng *rng, size_t most);

#endif
