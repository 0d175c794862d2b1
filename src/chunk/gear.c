/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * gear.c - cut where chosen bits of a Gear hash of the last 64 bytes are zero
 *
 * Each byte b shifts the hash h, 64 bits, and adds the table's entry for it:
 *
 *   h = 2 h + T[b]    modulo 2^64, so that h depends on the last 64 bytes alone
 *
 * A chunk is c bytes long, where c is the first of min … max - 1 at which h, of the bytes
 * before position c, has zeroes in all bits of a mask, else max.  avg is 2^n; the mask
 * has n + 2 bits where c is below easier and n - 2 bits from there on, which brings the
 * lengths closer to the mean ("normalised").  With
 *
 *   easier = avg - avg / 8 - min / 4    rounded towards 0 in each division
 *
 * random content comes to avg within 3 % (to min + avg / 4 if min is above 3/4 avg).  A
 * mask of k bits: of the hash's bits 15, 14, … 4 as many as k asks for, and what it asks
 * for beyond these 12 from bit 63 downwards.
 *
 * Bits 0 … 15 of h depend on 16 bytes alone, and T is made so that their part of it is
 * two tables of 16 entries: vector code finds the few positions where the mask's low bits
 * are zero ("split Gear"), and the whole hash is computed at these.  Bits 0 … 3 are not
 * asked for, since they depend on up to 4 bytes and are constant in much content.
 *
 * The table comes from the seed and is frozen on disk.  z(0), z(1), … are the numbers of
 * splitmix64 from the seed; for i = 0 … 15
 *
 *   A[i] = (z(256 + i) & 0xfff0) | i
 *   B[i] = (z(272 + i) & 0xfff0) | (7 i & 15)
 *   T[b] = (z(b) & ~0xffff) | (A[b & 15] ^ B[b >> 4])
 *
 * The lowest bits of A and B let bytes that differ in one half alone differ there, so
 * that in text of two such letters no bit that is asked for is constant.
 *
 * Invariant between calls: hash is that of the bytes from min - 64 up to fed_bytes.
 */
#include "chunk/chunk-private.h"

#define WINDOW_BYTES 64
#define LOW_BITS 12u /* of a mask, at most, stand in bits 15 … 4 */
#define EASIER 2u    /* n + 2 bits before it, n - 2 from there on */

/* After a place where the mask's low bits are zero so many bytes are tried one by one: an
 * input that is made of such places costs no more than about twice the plain code. */
#define PROBE_BYTES 64

typedef struct VjGear {
    uint64_t table[256];
    VjGearNibbles nibbles;
    uint64_t early_mask, late_mask; /* below easier_from_bytes, and from there on */
    uint32_t easier_from_bytes;
    uint64_t hash;
} VjGear;

G_STATIC_ASSERT(VJ_CHUNK_MIN_LEAST >= WINDOW_BYTES);
G_STATIC_ASSERT(VJ_CHUNK_AVG_LEAST >= 16); /* a mask is never empty */

static uint64_t mask_of(unsigned bits)
{
    unsigned low = MIN(bits, LOW_BITS), high = bits - low;
    uint64_t mask = (((uint64_t)1 << low) - 1) << (16 - low);

    return high == 0 ? mask : mask | ~(uint64_t)0 << (64 - high);
}

static int gear_init(VjChunker *c, uint32_t min_bytes, uint32_t avg_bytes,
                     uint32_t max_bytes)
{
    VjGear *g = (VjGear *)c->state;
    uint64_t x = c->seed;
    uint16_t low[2][16];
    unsigned n = 0;

    g_assert(min_bytes >= WINDOW_BYTES && max_bytes >= avg_bytes);
    if ((avg_bytes & (avg_bytes - 1)) != 0) {
        return -EINVAL;
    }
    while (avg_bytes >> n > 1) {
        n++;
    }
    g->early_mask = mask_of(n + EASIER);
    g->late_mask = mask_of(n - EASIER);
    g->easier_from_bytes = avg_bytes - avg_bytes / 8 - min_bytes / 4;
    for (unsigned b = 0; b < 256; b++) {
        g->table[b] = vj_chunk_seed_next(&x) & ~(uint64_t)0xffff;
    }
    for (unsigned i = 0; i < 16; i++) {
        low[0][i] = (uint16_t)((vj_chunk_seed_next(&x) & 0xfff0) | i);
    }
    for (unsigned i = 0; i < 16; i++) {
        low[1][i] = (uint16_t)((vj_chunk_seed_next(&x) & 0xfff0) | (7 * i & 15));
    }
    for (unsigned b = 0; b < 256; b++) {
        g->table[b] |= low[0][b & 15] ^ low[1][b >> 4];
    }
    for (unsigned half = 0; half < 2; half++) {
        for (unsigned i = 0; i < 16; i++) {
            g->nibbles.low_byte[half][i] = (uint8_t)low[half][i];
            g->nibbles.high_byte[half][i] = (uint8_t)(low[half][i] >> 8);
        }
    }
    return 0;
}

static uint32_t gear_lookahead_bytes(const VjChunker *c)
{
    (void)c;
    return 0;
}

static uint64_t roll(const VjGear *g, uint64_t hash, const uint8_t *p, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash << 1) + g->table[p[i]];
    }
    return hash;
}

/* Takes in @count bytes, or up to and with the first behind which the mask's bits are
 * zero (*@hit).  Returns how many. */
static size_t try_bytes(VjGear *g, const uint8_t *p, size_t count, uint64_t mask,
                        bool *hit)
{
    uint64_t hash = g->hash;
    size_t i;

    *hit = false;
    for (i = 0; i < count && !*hit; i++) {
        hash = (hash << 1) + g->table[p[i]];
        *hit = (hash & mask) == 0;
    }
    g->hash = hash;
    return i;
}

/* How many of the @count bytes at @p, behind WINDOW_BYTES others, cannot be a chunk's
 * last, so far as @code finds out at once. */
static size_t skip_bytes(const VjGear *g, VjChunkCode code, const uint8_t *p,
                         size_t count, uint64_t mask)
{
#ifdef VJ_CHUNK_X86
    if (code == VJ_CHUNK_CODE_AVX512) {
        return vj_chunk_gear_skip_avx512(&g->nibbles, p, count, (uint16_t)mask);
    }
    if (code == VJ_CHUNK_CODE_AVX2) {
        return vj_chunk_gear_skip_avx2(&g->nibbles, p, count, (uint16_t)mask);
    }
#endif
    (void)g, (void)code, (void)p, (void)count, (void)mask;
    return 0;
}

/* As try_bytes() for src[from] … src[to - 1].  What stands at @src before is the chunk's
 * too.  Returns the end of what was taken in. */
static size_t try_blocks(VjGear *g, VjChunkCode code, const uint8_t *src, size_t from,
                         size_t to, uint64_t mask, bool *hit)
{
    *hit = false;
    if (code == VJ_CHUNK_CODE_PLAIN) {
        return from + try_bytes(g, src + from, to - from, mask, hit);
    }
    while (from < to && !*hit) {
        size_t count = from < WINDOW_BYTES ? WINDOW_BYTES - from : PROBE_BYTES;

        if (from >= WINDOW_BYTES) {
            size_t skipped = skip_bytes(g, code, src + from, to - from, mask);

            if (skipped > 0) {
                from += skipped;
                g->hash = roll(g, 0, src + from - WINDOW_BYTES, WINDOW_BYTES);
            }
        }
        from += try_bytes(g, src + from, MIN(count, to - from), mask, hit);
    }
    return from;
}

static bool gear_scan(VjChunker *c, const void *src, size_t len, bool at_end,
                      uint64_t *cut)
{
    VjGear *g = (VjGear *)c->state;
    const uint8_t *bytes = src;
    const uint64_t fed = c->fed_bytes, to = MIN(fed + len, c->sizes.max_bytes);
    /* Positions of the chunk: behind the byte that stands before a position is asked. */
    const uint64_t begin[] = {c->sizes.min_bytes - WINDOW_BYTES, c->sizes.min_bytes - 1,
                              g->easier_from_bytes - 1};
    uint64_t at;
    bool hit = false;

    if (fed == 0) {
        g->hash = 0;
    }
    at = MIN(MAX(fed, begin[0]), to);
    if (at < begin[1] && at < to) {
        uint64_t end = MIN(begin[1], to);

        g->hash = roll(g, g->hash, bytes + (at - fed), end - at);
        at = end;
    }
    if (at < begin[2] && at < to) {
        at = fed + try_blocks(g, c->code, bytes, at - fed, MIN(begin[2], to) - fed,
                              g->early_mask, &hit);
    }
    if (!hit && at < to) {
        at = fed + try_blocks(g, c->code, bytes, at - fed, to - fed, g->late_mask, &hit);
    }
    *cut = at;
    return hit || at == c->sizes.max_bytes || at_end;
}

VjChunkSizes vj_chunk_gear_from_avg(uint32_t avg_bytes)
{
    return (VjChunkSizes){
        .min_bytes = MAX(avg_bytes / 4, VJ_CHUNK_MIN_LEAST),
        .avg_bytes = avg_bytes,
        .max_bytes = MIN(4 * avg_bytes, VJ_CHUNK_MAX_MOST),
    };
}

const VjChunkerOps vj_chunk_gear = {
    .name = "gear",
    .id = VJ_CHUNK_ID_GEAR,
    .state_size = sizeof(VjGear),
    .lookahead_bytes = gear_lookahead_bytes,
    .init = gear_init,
    .scan = gear_scan,
};
