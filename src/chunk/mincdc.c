/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * mincdc.c - cut where a hash of the last 16 bytes is smallest
 *
 * A chunk of a file that goes on is c bytes long, where c is the one of min … max whose
 * window, the 16 bytes before position c, has the smallest hash; of equal ones the
 * smallest c. So all cuts lie in [avg/2, 3 avg/2], and a decision looks at exactly max
 * bytes from the chunk's start.  When fewer than max bytes are left, all of them are the
 * last chunk: an append changes no chunk before it.
 *
 * The hash is frozen on disk.  z1 and z2 are the first two numbers of splitmix64 from the
 * seed; all arithmetic is on 32-bit lanes modulo 2^32; le32(p) are the bytes p … p+3:
 *
 *   unit(p) = (le32(p + 4) ^ low32(z2)) + rotl32(le32(p), 15)
 *   hash(p) = unit(p + 8) * (low32(z1) | 1) + unit(p) * (high32(z1) | 1)
 *
 * where p is the window's first byte.  Why 16 bytes: README.md, "The window".
 *
 * Invariant between calls: best_hash and best_cut cover the candidates up to fed_bytes,
 * and carry holds the bytes before fed_bytes that later windows need.
 */
#include "chunk/chunk-private.h"

#define WINDOW_BYTES 16
#define UNIT_BYTES 8 /* the distance between the two units of a window */

typedef struct VjMincdc {
    VjMincdcKey key;
    uint32_t best_hash;
    uint32_t best_cut;
    uint32_t carry_bytes;
    uint8_t carry[WINDOW_BYTES - 1];
} VjMincdc;

G_STATIC_ASSERT(VJ_CHUNK_MIN_LEAST >= WINDOW_BYTES);

static int mincdc_init(VjChunker *c, uint32_t min_bytes, uint32_t avg_bytes,
                       uint32_t max_bytes)
{
    VjMincdc *m = (VjMincdc *)c->state;
    uint64_t x = c->seed;
    uint64_t z1 = vj_chunk_seed_next(&x);
    uint64_t z2 = vj_chunk_seed_next(&x);

    if (min_bytes != avg_bytes / 2 || max_bytes != avg_bytes / 2 + avg_bytes) {
        return -EINVAL;
    }
    m->key.mul_late = (uint32_t)z1 | 1;
    m->key.mul_early = (uint32_t)(z1 >> 32) | 1;
    m->key.xor_word = (uint32_t)z2;
    return 0;
}

static uint32_t mincdc_lookahead_bytes(const VjChunker *c)
{
    return c->sizes.max_bytes - c->sizes.min_bytes;
}

static inline uint32_t unit_at(const uint8_t *p, uint32_t xor_word)
{
    uint32_t first = vj_le32_get(p);

    return (vj_le32_get(p + 4) ^ xor_word) + (first << 15 | first >> 17);
}

/*
 * The windows that begin at p[0] … p[count - 1], which belong to the cuts first_cut and
 * up. Each unit serves two windows, so the last eight are kept in @early; the compiler
 * unrolls the inner loop and has them in registers, which is worth 60 %.
 */
static void try_windows(VjMincdc *m, const uint8_t *p, uint32_t count, uint32_t first_cut)
{
    const uint32_t xor_word = m->key.xor_word;
    const uint32_t mul_late = m->key.mul_late;
    const uint32_t mul_early = m->key.mul_early;
    uint32_t best_hash = m->best_hash;
    uint32_t early[UNIT_BYTES];
    uint32_t i;

    for (i = 0; i < UNIT_BYTES && i < count; i++) {
        early[i] = unit_at(p + i, xor_word);
    }
    for (i = 0; i + UNIT_BYTES <= count; i += UNIT_BYTES) {
        for (uint32_t k = 0; k < UNIT_BYTES; k++) {
            uint32_t late = unit_at(p + i + k + UNIT_BYTES, xor_word);
            uint32_t hash = late * mul_late + early[k] * mul_early;

            early[k] = late;
            if (hash < best_hash) {
                best_hash = hash;
                m->best_cut = first_cut + i + k;
            }
        }
    }
    for (uint32_t k = 0; i < count; i++, k++) {
        uint32_t hash =
            unit_at(p + i + UNIT_BYTES, xor_word) * mul_late + early[k] * mul_early;

        if (hash < best_hash) {
            best_hash = hash;
            m->best_cut = first_cut + i;
        }
    }
    m->best_hash = best_hash;
}

/* How many of these windows cannot be the best, so far as @code finds out at once. */
static uint32_t skip_windows(const VjMincdc *m, VjChunkCode code, const uint8_t *p,
                             uint32_t count)
{
#ifdef VJ_CHUNK_X86
    if (code == VJ_CHUNK_CODE_AVX512) {
        return vj_chunk_mincdc_skip_avx512(&m->key, p, count, m->best_hash);
    }
    if (code == VJ_CHUNK_CODE_AVX2) {
        return vj_chunk_mincdc_skip_avx2(&m->key, p, count, m->best_hash);
    }
#endif
    (void)m, (void)code, (void)p, (void)count;
    return 0;
}

/* As try_windows(), by blocks.  What is less than one at the end is tried once more
 * together with windows before it: they cannot be better than the best. */
static void try_blocks(VjMincdc *m, VjChunkCode code, const uint8_t *p, uint32_t count,
                       uint32_t first_cut)
{
    uint32_t at = 0, tail;

    if (code == VJ_CHUNK_CODE_PLAIN || count < VJ_CHUNK_MINCDC_BLOCK) {
        try_windows(m, p, count, first_cut);
        return;
    }
    for (;;) {
        at += skip_windows(m, code, p + at, count - at);
        if (count - at < VJ_CHUNK_MINCDC_BLOCK) {
            break;
        }
        try_windows(m, p + at, VJ_CHUNK_MINCDC_BLOCK, first_cut + at);
        at += VJ_CHUNK_MINCDC_BLOCK;
    }
    tail = count - VJ_CHUNK_MINCDC_BLOCK;
    if (at < count && skip_windows(m, code, p + tail, VJ_CHUNK_MINCDC_BLOCK) == 0) {
        try_windows(m, p + at, count - at, first_cut + at);
    }
}

/* Bytes @from … @from + @len of the chunk stand at @src; none of them before the first
 * window, none behind the last. */
static void take_bytes(VjMincdc *m, VjChunkCode code, const uint8_t *src, uint32_t len,
                       uint32_t from)
{
    uint8_t seam[2 * (WINDOW_BYTES - 1)];
    uint32_t head_bytes = MIN(len, WINDOW_BYTES - 1);
    uint32_t seam_bytes = m->carry_bytes + head_bytes;

    /* Windows that begin in an earlier call's bytes. */
    memcpy(seam, m->carry, m->carry_bytes);
    memcpy(seam + m->carry_bytes, src, head_bytes);
    if (seam_bytes >= WINDOW_BYTES) {
        try_windows(m, seam, seam_bytes - WINDOW_BYTES + 1,
                    from - m->carry_bytes + WINDOW_BYTES);
    }
    if (len >= WINDOW_BYTES) {
        try_blocks(m, code, src, len - WINDOW_BYTES + 1, from + WINDOW_BYTES);
    }
    if (len >= WINDOW_BYTES - 1) {
        m->carry_bytes = WINDOW_BYTES - 1;
        memcpy(m->carry, src + len - m->carry_bytes, m->carry_bytes);
    } else {
        m->carry_bytes = MIN(seam_bytes, WINDOW_BYTES - 1);
        memcpy(m->carry, seam + seam_bytes - m->carry_bytes, m->carry_bytes);
    }
}

static bool mincdc_scan(VjChunker *c, const void *src, size_t len, bool at_end,
                        uint64_t *cut)
{
    VjMincdc *m = (VjMincdc *)c->state;
    const uint8_t *bytes = src;
    uint64_t first_used = c->sizes.min_bytes - WINDOW_BYTES;
    uint64_t from = c->fed_bytes;
    uint64_t to = MIN(from + len, c->sizes.max_bytes);

    if (from == 0) {
        m->best_hash = UINT32_MAX;
        m->best_cut = c->sizes.min_bytes;
        m->carry_bytes = 0;
    }
    if (from < first_used && len > 0) {
        bytes += MIN(first_used - from, len);
        from = MIN(first_used, to);
    }
    if (from < to) {
        take_bytes(m, c->code, bytes, (uint32_t)(to - from), (uint32_t)from);
    }
    if (to == c->sizes.max_bytes) {
        *cut = m->best_cut;
        return true;
    }
    *cut = to;
    return at_end;
}

VjChunkSizes vj_chunk_mincdc_from_avg(uint32_t avg_bytes)
{
    return (VjChunkSizes){
        .min_bytes = avg_bytes / 2,
        .avg_bytes = avg_bytes,
        .max_bytes = avg_bytes / 2 + avg_bytes,
    };
}

const VjChunkerOps vj_chunk_mincdc = {
    .name = "mincdc",
    .id = VJ_CHUNK_ID_MINCDC,
    .state_size = sizeof(VjMincdc),
    .lookahead_bytes = mincdc_lookahead_bytes,
    .init = mincdc_init,
    .scan = mincdc_scan,
};
