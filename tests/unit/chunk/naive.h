/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * naive.h - the formulas of mincdc.c, gear.c and rabin.c once more, as plainly as they
 * can be written: no state, no tables kept, no blocks
 *
 * A function takes the bytes from a chunk's start to the file's end and gives the chunk's
 * length.
 */
#ifndef VJ_TESTS_UNIT_CHUNK_NAIVE_H
#define VJ_TESTS_UNIT_CHUNK_NAIVE_H

#include "chunk/chunk.h"

static uint64_t naive_splitmix64(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* ---- mincdc ------------------------------------------------------------------------ */

static uint32_t naive_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

static uint32_t naive_mincdc_unit(const uint8_t *p, uint64_t z2)
{
    uint32_t first = naive_le32(p);

    return (naive_le32(p + 4) ^ (uint32_t)z2) + (first << 15 | first >> 17);
}

/* The hash of the 16 bytes at @p. */
static uint32_t naive_mincdc_hash(const uint8_t *p, uint64_t seed)
{
    uint64_t z1 = naive_splitmix64(&seed), z2 = naive_splitmix64(&seed);

    return naive_mincdc_unit(p + 8, z2) * ((uint32_t)z1 | 1) +
           naive_mincdc_unit(p, z2) * ((uint32_t)(z1 >> 32) | 1);
}

static size_t naive_mincdc_cut(VjChunkSizes sizes, uint64_t seed, const uint8_t *p,
                               size_t len)
{
    uint32_t best = 0;
    size_t cut = 0;

    if (len < sizes.max_bytes) {
        return len;
    }
    for (size_t c = sizes.min_bytes; c <= sizes.max_bytes; c++) {
        uint32_t hash = naive_mincdc_hash(p + c - 16, seed);

        if (cut == 0 || hash < best) {
            best = hash;
            cut = c;
        }
    }
    return cut;
}

/* ---- gear -------------------------------------------------------------------------- */

static void naive_gear_table(uint64_t seed, uint64_t table[256])
{
    uint64_t z[288];

    for (int i = 0; i < 288; i++) {
        z[i] = naive_splitmix64(&seed);
    }
    for (int b = 0; b < 256; b++) {
        uint64_t late = (z[256 + b % 16] & 0xfff0) + (uint64_t)(b % 16);
        uint64_t early = (z[272 + b / 16] & 0xfff0) + (uint64_t)(b / 16 * 7 % 16);

        table[b] = z[b] / 65536 * 65536 + (late ^ early);
    }
}

/* The bits of a mask of @bits, from the one that comes first. */
static bool naive_gear_asks(uint64_t hash, int bits)
{
    for (int i = 0; i < bits; i++) {
        int bit = i < 12 ? 15 - i : 63 - (i - 12);

        if (hash >> bit & 1) {
            return false;
        }
    }
    return true;
}

static size_t naive_gear_cut(VjChunkSizes sizes, uint64_t seed, const uint8_t *p,
                             size_t len)
{
    size_t most = MIN(len, sizes.max_bytes);
    size_t easier_from = sizes.avg_bytes - sizes.avg_bytes / 8 - sizes.min_bytes / 4;
    uint64_t table[256];
    int n = 0;

    naive_gear_table(seed, table);
    while ((uint32_t)1 << n < sizes.avg_bytes) {
        n++;
    }
    for (size_t c = sizes.min_bytes; c < most; c++) {
        uint64_t hash = 0;

        for (size_t i = c - 64; i < c; i++) {
            hash = 2 * hash + table[p[i]];
        }
        if (naive_gear_asks(hash, c < easier_from ? n + 2 : n - 2)) {
            return c;
        }
    }
    return most;
}

/* ---- rabin ------------------------------------------------------------------------- */

/* @f with @bits zeroes behind it, modulo the polynomial. */
static uint64_t naive_rabin_shift(uint64_t f, unsigned bits)
{
    while (bits-- > 0) {
        f <<= 1;
        f = f >> VJ_CHUNK_RABIN_DEGREE ? f ^ VJ_CHUNK_RABIN_POLYNOMIAL : f;
    }
    return f;
}

static size_t naive_rabin_cut(VjChunkSizes sizes, uint64_t seed, const uint8_t *p,
                              size_t len)
{
    uint64_t mask = sizes.avg_bytes - 1, value = naive_splitmix64(&seed) & mask, f = 0;
    size_t most = MIN(len, sizes.max_bytes);

    value = value == 0 ? 1 : value;
    for (size_t c = 1; c <= most; c++) {
        /* Of the window, 48 bytes, the oldest goes and one comes. */
        f = naive_rabin_shift(f, 8) ^ p[c - 1];
        if (c > 48) {
            f ^= naive_rabin_shift(p[c - 49], 8 * 48);
        }
        if (c >= sizes.min_bytes && (f & mask) == value) {
            return c;
        }
    }
    return most;
}

static inline size_t naive_cut(const VjChunkerOps *ops, VjChunkSizes sizes, uint64_t seed,
                               const uint8_t *p, size_t len)
{
    switch (ops->id) {
    case VJ_CHUNK_ID_RABIN:
        return naive_rabin_cut(sizes, seed, p, len);
    case VJ_CHUNK_ID_GEAR:
        return naive_gear_cut(sizes, seed, p, len);
    default:
        return naive_mincdc_cut(sizes, seed, p, len);
    }
}

#endif
