/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * placement.c - see placement.h
 *
 * Each node has a number h for an object, drawn evenly from 2^64 by a hash of the id and
 * the node's place.  With u = (h + 1) / 2^64 the time -ln(u) / weight is exponentially
 * distributed with the rate weight, so that of any set of nodes one is the first with the
 * probability of its weight in the sum.  The logarithm to base 2 orders alike.
 */
#include "store/placement.h"

#define FRACTION_BITS 32u

/* The finaliser of splitmix64: each bit of the result depends on each one of @x. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t hash_of(uint64_t id, unsigned index)
{
    return mix(mix(id) + (index + 1) * 0x9e3779b97f4a7c15u);
}

uint64_t vj_placement_cost(uint64_t h)
{
    uint64_t whole, mantissa, fraction = 0;

    if (h == UINT64_MAX) {
        return 0;
    }
    h++;
    whole = 63 - (uint64_t)__builtin_clzll(h);
    mantissa = h << (63 - whole); /* 1 <= it / 2^63 < 2 */
    for (unsigned i = 0; i < FRACTION_BITS; i++) {
        unsigned __int128 square = (unsigned __int128)mantissa * mantissa >> 63;
        bool is_two = square >> 64 != 0;

        fraction = fraction << 1 | is_two;
        mantissa = (uint64_t)(is_two ? square >> 1 : square);
    }
    return ((uint64_t)64 << FRACTION_BITS) - (whole << FRACTION_BITS) - fraction;
}

typedef struct Ranked {
    uint64_t cost;
    uint32_t weight;
    uint8_t index;
} Ranked;

/* cost / weight, compared without a division; 2^38 * 1000 fits. */
static bool comes_before(const Ranked *a, const Ranked *b)
{
    uint64_t x, y;

    if ((a->weight == 0) != (b->weight == 0)) {
        return a->weight != 0;
    }
    x = a->cost * MAX(b->weight, 1);
    y = b->cost * MAX(a->weight, 1);
    return x != y ? x < y : a->index < b->index;
}

void vj_placement_rank(uint64_t id, const uint32_t *weights, unsigned count,
                       uint8_t *order)
{
    Ranked ranked[VJ_PLACEMENT_NODES_MAX];

    g_assert(count <= VJ_PLACEMENT_NODES_MAX);
    for (unsigned i = 0; i < count; i++) {
        Ranked one = {.cost = vj_placement_cost(hash_of(id, i)),
                      .weight = weights[i],
                      .index = (uint8_t)i};
        unsigned at = i;

        g_assert(weights[i] <= VJ_PLACEMENT_WEIGHT_MAX);
        for (; at > 0 && comes_before(&one, &ranked[at - 1]); at--) {
            ranked[at] = ranked[at - 1];
        }
        ranked[at] = one;
    }
    for (unsigned i = 0; i < count; i++) {
        order[i] = ranked[i].index;
    }
}

VjNodeSet vj_placement_first(const uint8_t *order, unsigned count, VjNodeSet live,
                             unsigned replicas)
{
    VjNodeSet chosen = 0;

    for (unsigned i = 0; i < count && replicas > 0; i++) {
        if ((live & vj_node_bit(order[i])) != 0) {
            chosen |= vj_node_bit(order[i]);
            replicas--;
        }
    }
    return chosen;
}

static gint descending(gconstpointer a, gconstpointer b, gpointer unused)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    (void)unused;
    return x > y ? -1 : x < y;
}

uint64_t vj_placement_space(uint64_t *bytes, unsigned count, unsigned replicas)
{
    uint64_t sum = 0;

    g_assert(replicas > 0);
    replicas = MIN(replicas, count);
    if (count == 0) {
        return 0;
    }
    g_qsort_with_data(bytes, (gint)count, sizeof *bytes, descending, NULL);
    for (unsigned i = 0; i < count; i++) {
        sum = vj_add_u64(sum, bytes[i], &sum) ? sum : UINT64_MAX;
    }
    /* A node that is larger than what is left for it to share has all objects. */
    while (replicas > 1 && sum != UINT64_MAX && *bytes > sum / replicas) {
        sum -= *bytes++;
        replicas--;
    }
    if (sum == UINT64_MAX) {
        /* At least one has no limit: it has all objects, the others share the rest. */
        return replicas > 1 ? vj_placement_space(bytes + 1, count - 1, replicas - 1)
                            : UINT64_MAX;
    }
    return sum / replicas;
}
