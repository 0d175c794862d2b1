/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rabin.c - cut where the low bits of a Rabin fingerprint have a chosen value
 *
 * The VarFS paper's chunker: the last 48 bytes before position c, read as a polynomial
 * over GF(2) (first byte highest, most significant bit first), are reduced modulo an
 * irreducible polynomial; a chunk is c bytes long, where c is the first of min … max - 1
 * at which the low n bits of the fingerprint equal a value, else max.  avg is 2^n, so
 * random content comes to min + avg.  Windows do not reach back beyond the cut: min is
 * longer than a window.
 *
 * The value comes from the seed: the low n bits of the first number of splitmix64, and 1
 * instead of 0, since runs of zero bytes have fingerprint 0 and would be cut at every
 * minimum.  Frozen on disk, like the polynomial.
 */
#include "chunk/chunk-private.h"

#define WINDOW_BYTES 48

/* Indexed by a byte.  Never change once made. */
typedef struct VjRabinTables {
    uint64_t carry[256]; /* for the byte shifted out at the top: what it comes to, and
                            itself */
    uint64_t leave[256]; /* a byte that was the window's first, after the next shift */
} VjRabinTables;

/* Invariant: window holds the last 48 bytes before fed_bytes, zeroes for those that stand
 * before the first window, and fingerprint is theirs. */
typedef struct VjRabin {
    const VjRabinTables *tables;
    uint64_t mask, value; /* a cut where (fingerprint & mask) == value */
    uint64_t fingerprint;
    uint8_t window[WINDOW_BYTES]; /* oldest first */
} VjRabin;

G_STATIC_ASSERT(VJ_CHUNK_MIN_LEAST > WINDOW_BYTES);
G_STATIC_ASSERT(VJ_CHUNK_RABIN_DEGREE <= 56); /* so that a shift by 8 loses nothing */

static uint64_t shift_bits(uint64_t a, unsigned bits)
{
    for (; bits > 0; bits--) {
        a <<= 1;
        if (a >> VJ_CHUNK_RABIN_DEGREE & 1) {
            a ^= VJ_CHUNK_RABIN_POLYNOMIAL;
        }
    }
    return a;
}

static const VjRabinTables *rabin_tables(void)
{
    static VjRabinTables tables;
    static gsize made;

    if (g_once_init_enter(&made)) {
        for (uint64_t i = 0; i < 256; i++) {
            tables.carry[i] =
                shift_bits(i, VJ_CHUNK_RABIN_DEGREE) ^ i << VJ_CHUNK_RABIN_DEGREE;
            tables.leave[i] = shift_bits(i, 8 * WINDOW_BYTES);
        }
        g_once_init_leave(&made, 1);
    }
    return &tables;
}

static int rabin_init(VjChunker *c, uint32_t min_bytes, uint32_t avg_bytes,
                      uint32_t max_bytes)
{
    VjRabin *r = (VjRabin *)c->state;
    uint64_t x = c->seed;

    g_assert(min_bytes > WINDOW_BYTES && max_bytes >= avg_bytes);
    if ((avg_bytes & (avg_bytes - 1)) != 0) {
        return -EINVAL;
    }
    r->tables = rabin_tables();
    r->mask = avg_bytes - 1;
    r->value = vj_chunk_seed_next(&x) & r->mask;
    if (r->value == 0) {
        r->value = 1;
    }
    return 0;
}

static uint32_t rabin_lookahead_bytes(const VjChunker *c)
{
    (void)c;
    return 0;
}

/*
 * @in[0] … @in[count - 1] enter the window, @out[0] … leave it.  Returns how many were
 * taken in: up to and with the first whose position, counted by @min_count, is not below
 * it and whose fingerprint matches (*@hit), else all.
 */
static size_t roll(VjRabin *r, const uint8_t *out, const uint8_t *in, size_t count,
                   size_t min_count, bool *hit)
{
    const VjRabinTables *t = r->tables;
    uint64_t fingerprint = r->fingerprint;
    size_t i;

    *hit = false;
    for (i = 0; i < count && !*hit; i++) {
        fingerprint = (fingerprint << 8 ^ (t->leave[out[i]] ^ in[i])) ^
                      t->carry[fingerprint >> (VJ_CHUNK_RABIN_DEGREE - 8)];
        *hit = (fingerprint & r->mask) == r->value && i + 1 >= min_count;
    }
    r->fingerprint = fingerprint;
    return i;
}

/* The @len bytes at @src have entered the window. */
static void remember(VjRabin *r, const uint8_t *src, size_t len)
{
    size_t kept_bytes = WINDOW_BYTES - MIN(len, WINDOW_BYTES);

    memmove(r->window, r->window + WINDOW_BYTES - kept_bytes, kept_bytes);
    memcpy(r->window + kept_bytes, src + len - (WINDOW_BYTES - kept_bytes),
           WINDOW_BYTES - kept_bytes);
}

static bool rabin_scan(VjChunker *c, const void *src, size_t len, bool at_end,
                       uint64_t *cut)
{
    VjRabin *r = (VjRabin *)c->state;
    const uint8_t *bytes = src;
    uint64_t first_used = c->sizes.min_bytes - WINDOW_BYTES;
    uint64_t from = c->fed_bytes;
    uint64_t to = MIN(from + len, c->sizes.max_bytes);
    bool hit = false;

    if (from == 0) {
        r->fingerprint = 0;
        memset(r->window, 0, sizeof r->window);
    }
    if (from < first_used && len > 0) {
        bytes += MIN(first_used - from, len);
        from = MIN(first_used, to);
    }
    if (from < to) {
        size_t count = to - from;
        size_t head_count = MIN(count, WINDOW_BYTES);
        size_t min_count = c->sizes.min_bytes - MIN(from, c->sizes.min_bytes);
        size_t taken = roll(r, r->window, bytes, head_count, min_count, &hit);

        if (!hit) {
            taken += roll(r, bytes, bytes + taken, count - taken,
                          min_count - MIN(taken, min_count), &hit);
        }
        if (!hit) {
            remember(r, bytes, count);
        }
        to = from + taken;
    }
    *cut = to;
    return hit || to == c->sizes.max_bytes || at_end;
}

VjChunkSizes vj_chunk_rabin_from_avg(uint32_t avg_bytes)
{
    return (VjChunkSizes){
        .min_bytes = MAX(avg_bytes / 512, VJ_CHUNK_MIN_LEAST),
        .avg_bytes = avg_bytes,
        .max_bytes = MIN(8 * avg_bytes, VJ_CHUNK_MAX_MOST),
    };
}

const VjChunkerOps vj_chunk_rabin = {
    .name = "rabin",
    .id = VJ_CHUNK_ID_RABIN,
    .state_size = sizeof(VjRabin),
    .lookahead_bytes = rabin_lookahead_bytes,
    .init = rabin_init,
    .scan = rabin_scan,
};
