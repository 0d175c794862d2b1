/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * gear-x86.c - where the low 16 bits of the Gear hash ask for a closer look, for AVX2 and
 * AVX-512
 *
 * g is the table's low 16 bits for a byte, looked up by its two halves; everything below
 * is modulo 2^16 in lanes of 16 bits, of which each stands for two bytes: "even" and
 * "odd" are g of the first and of the second.  With h(k) the hash of the last k bytes
 * behind the second one, and x[-i] the lane i before,
 *
 *   h(2) = odd + 2 even               h(4) = h(2) + 4 h(2)[-1]
 *   h(8) = h(4) + 16 h(4)[-2]         h(16) = h(8) + 256 h(8)[-4]
 *
 * is the hash behind the second byte, and even + 2 h(16)[-1] that behind the first: what
 * stands 17 bytes before has been shifted out.  The first vector is that before the bytes
 * in question; it has no lanes before its own, and its first 16 bytes are not asked for.
 */
#include "chunk/chunk-private.h"

#ifdef VJ_CHUNK_X86

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw")))

/* ---- AVX-512: 64 bytes ------------------------------------------------------------- */

typedef struct Tables512 {
    __m512i low[2], high[2]; /* bytes of A and of B */
} Tables512;

typedef struct Lanes512 {
    __m512i h2, h4, h8, h16; /* of the vector before */
} Lanes512;

AVX512 static inline __m512i table_512(const uint8_t *entries)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)entries));
}

/* @x with the last lane of @before in front. */
AVX512 static inline __m512i one_lane_before_512(__m512i x, __m512i before)
{
    return _mm512_alignr_epi8(x, _mm512_alignr_epi64(x, before, 6), 14);
}

/* The hashes behind the first byte of each lane (*@first) and behind the second. */
AVX512 static inline __m512i hashes_512(const Tables512 *t, const uint8_t *p, Lanes512 *l,
                                        __m512i *first)
{
    const __m512i halves = _mm512_set1_epi8(15), low_bytes = _mm512_set1_epi16(255);
    __m512i bytes = _mm512_loadu_si512(p);
    __m512i a = _mm512_and_si512(bytes, halves);
    __m512i b = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), halves);
    __m512i low = _mm512_xor_si512(_mm512_shuffle_epi8(t->low[0], a),
                                   _mm512_shuffle_epi8(t->low[1], b));
    __m512i high = _mm512_xor_si512(_mm512_shuffle_epi8(t->high[0], a),
                                    _mm512_shuffle_epi8(t->high[1], b));
    __m512i even =
        _mm512_or_si512(_mm512_and_si512(low, low_bytes), _mm512_slli_epi16(high, 8));
    __m512i odd =
        _mm512_or_si512(_mm512_srli_epi16(low, 8), _mm512_andnot_si512(low_bytes, high));
    __m512i h2 = _mm512_add_epi16(odd, _mm512_slli_epi16(even, 1));
    __m512i h4 =
        _mm512_add_epi16(h2, _mm512_slli_epi16(one_lane_before_512(h2, l->h2), 2));
    __m512i h8 =
        _mm512_add_epi16(h4, _mm512_slli_epi16(_mm512_alignr_epi32(h4, l->h4, 15), 4));
    __m512i h16 =
        _mm512_add_epi16(h8, _mm512_slli_epi16(_mm512_alignr_epi64(h8, l->h8, 7), 8));

    *first =
        _mm512_add_epi16(even, _mm512_slli_epi16(one_lane_before_512(h16, l->h16), 1));
    *l = (Lanes512){.h2 = h2, .h4 = h4, .h8 = h8, .h16 = h16};
    return h16;
}

AVX512 size_t vj_chunk_gear_skip_avx512(const VjGearNibbles *n, const uint8_t *p,
                                        size_t count, uint16_t mask)
{
    const __m512i masks = _mm512_set1_epi16((short)mask);
    const Tables512 t = {
        .low = {table_512(n->low_byte[0]), table_512(n->low_byte[1])},
        .high = {table_512(n->high_byte[0]), table_512(n->high_byte[1])},
    };
    const __m512i none = _mm512_setzero_si512();
    Lanes512 lanes = {none, none, none, none};
    __m512i first, second;
    size_t at;

    if (count < 64) {
        return 0;
    }
    (void)hashes_512(&t, p - 64, &lanes, &first);
    for (at = 0; at + 64 <= count; at += 64) {
        uint32_t first_hits, second_hits;

        _mm_prefetch((const void *)(p + at + VJ_CHUNK_AHEAD_BYTES), _MM_HINT_T0);
        second = hashes_512(&t, p + at, &lanes, &first);
        first_hits = _mm512_testn_epi16_mask(first, masks);
        second_hits = _mm512_testn_epi16_mask(second, masks);
        if ((first_hits | second_hits) != 0) {
            unsigned lane = (unsigned)__builtin_ctz(first_hits | second_hits);

            return at + 2 * lane + (first_hits >> lane & 1 ? 0 : 1);
        }
    }
    return at;
}

/* ---- AVX2: 32 bytes ---------------------------------------------------------------- */

typedef struct Tables256 {
    __m256i low[2], high[2];
} Tables256;

typedef struct Lanes256 {
    __m256i h2, h4, h8, h16;
} Lanes256;

AVX2 static inline __m256i table_256(const uint8_t *entries)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)entries));
}

/* The last half of @before and the first half of @x. */
AVX2 static inline __m256i half_before(__m256i x, __m256i before)
{
    return _mm256_permute2x128_si256(before, x, 0x21);
}

AVX2 static inline __m256i hashes_256(const Tables256 *t, const uint8_t *p, Lanes256 *l,
                                      __m256i *first)
{
    const __m256i halves = _mm256_set1_epi8(15), low_bytes = _mm256_set1_epi16(255);
    __m256i bytes = _mm256_loadu_si256((const void *)p);
    __m256i a = _mm256_and_si256(bytes, halves);
    __m256i b = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), halves);
    __m256i low = _mm256_xor_si256(_mm256_shuffle_epi8(t->low[0], a),
                                   _mm256_shuffle_epi8(t->low[1], b));
    __m256i high = _mm256_xor_si256(_mm256_shuffle_epi8(t->high[0], a),
                                    _mm256_shuffle_epi8(t->high[1], b));
    __m256i even =
        _mm256_or_si256(_mm256_and_si256(low, low_bytes), _mm256_slli_epi16(high, 8));
    __m256i odd =
        _mm256_or_si256(_mm256_srli_epi16(low, 8), _mm256_andnot_si256(low_bytes, high));
    __m256i h2 = _mm256_add_epi16(odd, _mm256_slli_epi16(even, 1));
    __m256i h4 = _mm256_add_epi16(
        h2, _mm256_slli_epi16(_mm256_alignr_epi8(h2, half_before(h2, l->h2), 14), 2));
    __m256i h8 = _mm256_add_epi16(
        h4, _mm256_slli_epi16(_mm256_alignr_epi8(h4, half_before(h4, l->h4), 12), 4));
    __m256i h16 = _mm256_add_epi16(
        h8, _mm256_slli_epi16(_mm256_alignr_epi8(h8, half_before(h8, l->h8), 8), 8));

    *first = _mm256_add_epi16(
        even,
        _mm256_slli_epi16(_mm256_alignr_epi8(h16, half_before(h16, l->h16), 14), 1));
    *l = (Lanes256){.h2 = h2, .h4 = h4, .h8 = h8, .h16 = h16};
    return h16;
}

/* Two bits for each lane whose bits of @masks are all zero. */
AVX2 static inline uint32_t hits_256(__m256i hashes, __m256i masks)
{
    return (uint32_t)_mm256_movemask_epi8(
        _mm256_cmpeq_epi16(_mm256_and_si256(hashes, masks), _mm256_setzero_si256()));
}

AVX2 size_t vj_chunk_gear_skip_avx2(const VjGearNibbles *n, const uint8_t *p,
                                    size_t count, uint16_t mask)
{
    const __m256i masks = _mm256_set1_epi16((short)mask);
    const Tables256 t = {
        .low = {table_256(n->low_byte[0]), table_256(n->low_byte[1])},
        .high = {table_256(n->high_byte[0]), table_256(n->high_byte[1])},
    };
    const __m256i none = _mm256_setzero_si256();
    Lanes256 lanes = {none, none, none, none};
    __m256i first, second;
    size_t at;

    if (count < 32) {
        return 0;
    }
    (void)hashes_256(&t, p - 32, &lanes, &first);
    for (at = 0; at + 32 <= count; at += 32) {
        uint32_t first_hits, second_hits;

        _mm_prefetch((const void *)(p + at + VJ_CHUNK_AHEAD_BYTES), _MM_HINT_T0);
        second = hashes_256(&t, p + at, &lanes, &first);
        first_hits = hits_256(first, masks);
        second_hits = hits_256(second, masks);
        if ((first_hits | second_hits) != 0) {
            unsigned bit = (unsigned)__builtin_ctz(first_hits | second_hits);

            return at + bit + (first_hits >> bit & 1 ? 0 : 1);
        }
    }
    return at;
}

#endif
