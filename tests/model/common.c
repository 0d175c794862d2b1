/* SPDX-License-Identifier: LGPL-3.0-or-later */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

uint64_t option_number(const char *text, uint64_t least, uint64_t most)
{
    uint64_t n;

    if (!g_ascii_string_to_unsigned(text, 10, least, most, &n, NULL)) {
        fprintf(stderr, "model: %s: not a number that fits\n", text);
        exit(2);
    }
    return n;
}

static unsigned weight_at(const Weight *weights, size_t i, size_t stride)
{
    return ((const Weight *)(const void *)((const char *)weights + i * stride))->weight;
}

size_t any_of(VjRng *rng, const Weight *weights, size_t count, size_t stride)
{
    uint64_t total = 0, chosen;
    size_t i = 0;

    for (i = 0; i < count; i++) {
        total += weight_at(weights, i, stride);
    }
    chosen = vj_rng_below(rng, total);
    for (i = 0; chosen >= weight_at(weights, i, stride); i++) {
        chosen -= weight_at(weights, i, stride);
    }
    return i;
}

size_t any_offset_of(VjRng *rng, const Shadow *s, size_t last)
{
    switch (vj_rng_below(rng, 8)) {
    case 0:
        return s->len;
    case 1:
        return s->len + vj_rng_below(rng, 10000);
    case 2:
    case 3:
        return MIN(last, s->len);
    case 4:
        return vj_rng_below(rng, MIN(s->len, 5000) + 1);
    default:
        return vj_rng_below(rng, s->len + 1);
    }
}

const char *any_transform(VjRng *rng)
{
    static const char *const transforms[] = {"none", "xor",   "xor:5a", "rle",
                                             "lz4",  "lz4:9", "zstd",   "zstd:-5"};

    return transforms[vj_rng_below(rng, G_N_ELEMENTS(transforms))];
}
