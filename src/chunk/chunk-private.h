/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * chunk-private.h - what the algorithms of this room share
 *
 * Threads, locks: as chunk.h says.
 */
#ifndef VJ_CHUNK_CHUNK_PRIVATE_H
#define VJ_CHUNK_CHUNK_PRIVATE_H

#include "chunk/chunk.h"

/* Vector instructions that an algorithm may use; the cuts are the same with all. */
typedef enum VjChunkCode {
    VJ_CHUNK_CODE_PLAIN,
    VJ_CHUNK_CODE_AVX2,
    VJ_CHUNK_CODE_AVX512, /* F and BW */
    VJ_CHUNK_CODE_COUNT,
} VjChunkCode;

struct VjChunker {
    const VjChunkerOps *ops;
    VjChunkSizes sizes;
    uint64_t seed;
    VjChunkCode code; /* vj_chunk_code_best(), unless a test says less */
    /* Of the chunk under way, before the present scan(); the wrapper's. */
    uint64_t fed_bytes;
    max_align_t state[]; /* the algorithm's: ops->state_size bytes */
};

/* One row of the table in algorithms.c: an algorithm and which sizes users may ask for.
 */
typedef struct VjChunkAlgorithm {
    const VjChunkerOps *ops;
    VjChunkSizes fallback; /* where the user names no size */
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

/* The most that this processor and its system can do. */
VjChunkCode vj_chunk_code_best(void);

const char *vj_chunk_code_name(VjChunkCode code);

/* For tests and measurements: @code is at most vj_chunk_code_best().  At a chunk's
 * start. */
void vj_chunker_use(VjChunker *c, VjChunkCode code);

/* What mincdc takes from the seed. */
typedef struct VjMincdcKey {
    uint32_t xor_word, mul_late, mul_early;
} VjMincdcKey;

extern const VjChunkerOps vj_chunk_mincdc;
VjChunkSizes vj_chunk_mincdc_from_avg(uint32_t avg_bytes);

/* The low 16 bits of gear's table: entry [0][b & 15] ^ entry [1][b >> 4] for a byte b. */
typedef struct VjGearNibbles {
    uint8_t low_byte[2][16], high_byte[2][16];
} VjGearNibbles;

extern const VjChunkerOps vj_chunk_gear;
VjChunkSizes vj_chunk_gear_from_avg(uint32_t avg_bytes);

extern const VjChunkerOps vj_chunk_rabin;
VjChunkSizes vj_chunk_rabin_from_avg(uint32_t avg_bytes);

/* ---- vector code ------------------------------------------------------------------- */

#define VJ_CHUNK_MINCDC_BLOCK 256u

#ifdef __x86_64__
#define VJ_CHUNK_X86 1

/* How far ahead vector code asks for memory: bytes that no cache holds come half as fast
 * or slower without.  doc/measured/chunk.md. */
#define VJ_CHUNK_AHEAD_BYTES 2048

/*
 * How many of the @count windows that begin at @p stand before the first block of
 * VJ_CHUNK_MINCDC_BLOCK of them that has a hash below @best_hash, or before what is less
 * than a block.  Reads @count + 15 bytes.
 */
uint32_t vj_chunk_mincdc_skip_avx2(const VjMincdcKey *k, const uint8_t *p, uint32_t count,
                                   uint32_t best_hash);
uint32_t vj_chunk_mincdc_skip_avx512(const VjMincdcKey *k, const uint8_t *p,
                                     uint32_t count, uint32_t best_hash);

/*
 * How many of the @count bytes at @p stand before the first behind which the low 16 bits
 * of gear's hash are zero where @mask is not, or before what is less than a vector.  At
 * least 64 more bytes stand before @p.
 */
size_t vj_chunk_gear_skip_avx2(const VjGearNibbles *n, const uint8_t *p, size_t count,
                               uint16_t mask);
size_t vj_chunk_gear_skip_avx512(const VjGearNibbles *n, const uint8_t *p, size_t count,
                                 uint16_t mask);
#endif

#endif
