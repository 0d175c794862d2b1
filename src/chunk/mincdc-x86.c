/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mincdc-x86.c - which windows need not be tried one by one, for AVX2 and AVX-512
 *
 * Vector code only says that no window of a block has a hash below the smallest one so
 * far; a block that has one is left to mincdc.c, which is so the only code that says
 * where a cut is.  It happens about ln(blocks) times a chunk.
 *
 * A vector holds every fourth window as 32-bit lanes; four of them, moved by one byte
 * each, are all.  The unit 8 bytes behind a window's is that of two lanes on.  AVX2 loads
 * each of the eight vectors that this takes (bytes 0 to 3 and 4 to 7 of a unit); AVX-512
 * loads each byte once and shifts: a load of 64 bytes that is not aligned lies in two
 * cache lines, and eight of them waited for memory at a third of the rate.
 */
#include "chunk/chunk-private.h"

#ifdef VJ_CHUNK_X86

#include <immintrin.h>

#define BLOCK VJ_CHUNK_MINCDC_BLOCK
#define UNIT_BYTES 8

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw")))

/* ---- AVX-512: 64 windows are four vectors ------------------------------------------ */

#define LANES 4

typedef struct Key512 {
    __m512i xor_word, mul_late, mul_early;
} Key512;

/* The units that begin at each fourth byte from the one @skip bytes into @line on;
 * @ahead: @line and what follows it, from byte 16 on. */
#define UNITS_512(line, ahead, skip, key)                                                \
    _mm512_add_epi32(                                                                    \
        _mm512_xor_si512(_mm512_alignr_epi8(ahead, line, (skip) + 4), (key)->xor_word),  \
        _mm512_rol_epi32(_mm512_alignr_epi8(ahead, line, skip), 15))

AVX512 static inline void units_512(__m512i line, __m512i next, const Key512 *key,
                                    __m512i units[LANES])
{
    __m512i ahead = _mm512_alignr_epi32(next, line, 4);

    units[0] = UNITS_512(line, ahead, 0, key);
    units[1] = UNITS_512(line, ahead, 1, key);
    units[2] = UNITS_512(line, ahead, 2, key);
    units[3] = UNITS_512(line, ahead, 3, key);
}

/* The 64 windows of @early, whose late units begin two lanes on; @next: the units of the
 * 64 bytes behind. */
AVX512 static inline __m512i least_512(__m512i least, const __m512i early[LANES],
                                       const __m512i next[LANES], const Key512 *key)
{
    /* In registers: a loop would have them in memory. */
#pragma GCC unroll 4
    for (uint32_t i = 0; i < LANES; i++) {
        __m512i late = _mm512_alignr_epi32(next[i], early[i], 2);
        __m512i hash = _mm512_add_epi32(_mm512_mullo_epi32(late, key->mul_late),
                                        _mm512_mullo_epi32(early[i], key->mul_early));

        least = _mm512_min_epu32(least, hash);
    }
    return least;
}

/* The smallest hash of a block of windows, or @least. */
AVX512 static inline __m512i block_512(const uint8_t *p, __m512i least, const Key512 *key)
{
    __m512i line = _mm512_loadu_si512(p), next = _mm512_loadu_si512(p + 64);
    __m512i even[LANES], odd[LANES];

    G_STATIC_ASSERT(BLOCK == 256);
    units_512(line, next, key, even);
    line = _mm512_loadu_si512(p + 128);
    units_512(next, line, key, odd);
    least = least_512(least, even, odd, key);
    next = _mm512_loadu_si512(p + 192);
    units_512(line, next, key, even);
    least = least_512(least, odd, even, key);
    /* The bytes behind these may not be there. */
    line = _mm512_maskz_loadu_epi8(((__mmask64)1 << (2 * UNIT_BYTES - 1)) - 1, p + BLOCK);
    units_512(next, line, key, odd);
    least = least_512(least, even, odd, key);
    units_512(line, _mm512_setzero_si512(), key, even);
    return least_512(least, odd, even, key);
}

AVX512 uint32_t vj_chunk_mincdc_skip_avx512(const VjMincdcKey *k, const uint8_t *p,
                                            uint32_t count, uint32_t best_hash)
{
    const Key512 key = {
        .xor_word = _mm512_set1_epi32((int)k->xor_word),
        .mul_late = _mm512_set1_epi32((int)k->mul_late),
        .mul_early = _mm512_set1_epi32((int)k->mul_early),
    };
    const __m512i best = _mm512_set1_epi32((int)best_hash);
    uint32_t at;

    for (at = 0; at + BLOCK <= count; at += BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i += 64) {
            _mm_prefetch((const void *)(p + at + VJ_CHUNK_AHEAD_BYTES + i), _MM_HINT_T0);
        }
        if (_mm512_cmplt_epu32_mask(block_512(p + at, best, &key), best) != 0) {
            break;
        }
    }
    return at;
}

/* ---- AVX2: the same with 32 windows ------------------------------------------------ */

typedef struct Key256 {
    __m256i xor_word, mul_late, mul_early;
} Key256;

AVX2 static inline __m256i units_256(const uint8_t *p, __m256i xor_word)
{
    __m256i first = _mm256_loadu_si256((const void *)p);
    __m256i second = _mm256_loadu_si256((const void *)(p + 4));
    __m256i rotated =
        _mm256_or_si256(_mm256_slli_epi32(first, 15), _mm256_srli_epi32(first, 17));

    return _mm256_add_epi32(_mm256_xor_si256(second, xor_word), rotated);
}

AVX2 static inline __m256i least_256(__m256i least, __m256i early, __m256i late,
                                     const Key256 *key)
{
    __m256i hash = _mm256_add_epi32(_mm256_mullo_epi32(late, key->mul_late),
                                    _mm256_mullo_epi32(early, key->mul_early));

    return _mm256_min_epu32(least, hash);
}

AVX2 uint32_t vj_chunk_mincdc_skip_avx2(const VjMincdcKey *k, const uint8_t *p,
                                        uint32_t count, uint32_t best_hash)
{
    const Key256 key = {
        .xor_word = _mm256_set1_epi32((int)k->xor_word),
        .mul_late = _mm256_set1_epi32((int)k->mul_late),
        .mul_early = _mm256_set1_epi32((int)k->mul_early),
    };
    const __m256i best = _mm256_set1_epi32((int)best_hash);
    uint32_t at;

    for (at = 0; at + BLOCK <= count; at += BLOCK) {
        __m256i least = best;

        for (uint32_t i = 0; i < BLOCK; i += 64) {
            _mm_prefetch((const void *)(p + at + VJ_CHUNK_AHEAD_BYTES + i), _MM_HINT_T0);
        }

        for (uint32_t i = 0; i < 4; i++) {
            const uint8_t *q = p + at + i;
            __m256i early = units_256(q, key.xor_word);

            for (uint32_t from = 32; from < BLOCK; from += 32) {
                __m256i next = units_256(q + from, key.xor_word);
                __m256i middle = _mm256_permute2x128_si256(early, next, 0x21);

                least =
                    least_256(least, early, _mm256_alignr_epi8(middle, early, 8), &key);
                early = next;
            }
            least = least_256(least, early,
                              units_256(q + BLOCK - 32 + UNIT_BYTES, key.xor_word), &key);
        }
        /* All lanes of least are best's, unless one is below it. */
        if (_mm256_movemask_epi8(_mm256_cmpeq_epi32(least, best)) != -1) {
            break;
        }
    }
    return at;
}

#endif
