/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * chunk-private.h - what the algorithms of this room share
 *
 * Threads, locks: as chunk.h says.
 */
#ifndef VJ_CHUNK_CHUNK_PRIVATE_H
#define VJ_CHUNK_CHUNK_PRIVATE_H

#include "chunk/chunk.h"

struct VjChunker {
    const VjChunkerOps *ops;
    VjChunkSizes sizes;
    uint64_t seed;
    uint64_t
        fed_bytes; /* of the chunk under way, before the present scan(); the wrapper's */
    max_align_t state[]; /* the algorithm's: ops->state_size bytes */
};

/* One row of the table in algorithms.c: an algorithm and which sizes users may ask for.
 */
typedef struct VjChunkAlgorithm {
    const VjChunkerOps *ops;
    VjChunkSizes fallback; /* when nobody says anything */
    bool takes_min_max;    /* "MIN:AVG:MAX" is allowed */
    const char *avg_rule;  /* what init() asks of AVG besides the limits; NULL: nothing */
    /* min and max for AVG alone, which lies within the limits. */
    VjChunkSizes (*from_avg)(uint32_t avg_bytes);
} VjChunkAlgorithm;

/* The row of @ops, which is in the table. */
const VjChunkAlgorithm *vj_chunk_algorithm(const VjChunkerOps *ops);

/* Ordered and within the limits of chunk.h. */
bool vj_chunk_sizes_allowed(VjChunkSizes sizes);

/* splitmix64: the next number of the sequence whose state is @x, at first the seed.
 * Frozen on disk, like all that is derived from a seed. */
uint64_t vj_chunk_seed_next(uint64_t *x);

extern const VjChunkerOps vj_chunk_mincdc;
VjChunkSizes vj_chunk_mincdc_from_avg(uint32_t avg_bytes);

extern const VjChunkerOps vj_chunk_rabin;
VjChunkSizes vj_chunk_rabin_from_avg(uint32_t avg_bytes);

#endif
