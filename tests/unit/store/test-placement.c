/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Which nodes keep an object: spread evenly by weight, and moved as little as can be.
 */
#include "../../lib/test.h"

#include "store/placement.h"

#include <math.h>

enum { IDS = 20000 };

static void ones(uint32_t *weights, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        weights[i] = 1;
    }
}

/* The order never changes: records of objects rely on nothing of it, but gets are fast
 * where it is the same. */
static void test_golden(void **state)
{
    static const uint8_t equal[4][5] = {
        {3, 0, 1, 4, 2},
        {3, 0, 2, 1, 4},
        {1, 3, 4, 2, 0},
        {3, 0, 4, 1, 2},
    };
    static const uint8_t weighted[4][5] = {
        {4, 3, 1, 0, 2},
        {4, 3, 1, 0, 2},
        {4, 1, 3, 0, 2},
        {4, 1, 3, 0, 2},
    };
    static const uint32_t weights[5] = {1, 100, 0, 7, 1000};
    uint32_t all[5];
    uint8_t order[5];

    (void)state;
    ones(all, 5);
    for (uint64_t id = 0; id < 4; id++) {
        vj_placement_rank(id, all, 5, order);
        assert_memory_equal(order, equal[id], 5);
        vj_placement_rank(id, weights, 5, order);
        assert_memory_equal(order, weighted[id], 5);
    }
}

/* Against the logarithm of the C library, whose last bits may be others. */
static void test_cost(void **state)
{
    const double unit = 4294967296.0;
    VjRng rng;

    (void)state;
    assert_true(vj_placement_cost(0) == (uint64_t)64 << 32);
    assert_true(vj_placement_cost(UINT64_MAX) == 0);
    assert_true(vj_placement_cost(UINT64_MAX - 1) == 1);
    assert_true(vj_placement_cost(((uint64_t)1 << 63) - 1) == (uint64_t)1 << 32);
    assert_true(vj_placement_cost(((uint64_t)1 << 62) - 1) == (uint64_t)2 << 32);
    vj_rng_init(&rng, 7);
    for (int i = 0; i < 20000; i++) {
        uint64_t h = vj_rng_u64(&rng) >> vj_rng_below(&rng, 64);
        double want = (64.0 - log2((double)h + 1)) * unit;

        assert_true(fabs((double)vj_placement_cost(h) - want) < 64);
    }
    for (uint64_t h = UINT64_MAX - 1000; h != 0; h++) {
        assert_true(vj_placement_cost(h - 1) >= vj_placement_cost(h));
    }
}

static void test_order_is_a_permutation(void **state)
{
    uint32_t weights[VJ_PLACEMENT_NODES_MAX];
    uint8_t order[VJ_PLACEMENT_NODES_MAX];
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 3);
    for (unsigned count = 0; count <= VJ_PLACEMENT_NODES_MAX; count++) {
        VjNodeSet seen = 0;
        bool in_zeros = false;

        for (unsigned i = 0; i < count; i++) {
            weights[i] = (uint32_t)vj_rng_below(&rng, 3) *
                         (uint32_t)vj_rng_below(&rng, VJ_PLACEMENT_WEIGHT_MAX / 2);
        }
        vj_placement_rank(vj_rng_u64(&rng), weights, count, order);
        for (unsigned i = 0; i < count; i++) {
            assert_true(order[i] < count);
            seen |= vj_node_bit(order[i]);
            in_zeros = in_zeros || weights[order[i]] == 0;
            assert_true(in_zeros == (weights[order[i]] == 0)); /* they come last */
        }
        assert_int_equal(vj_node_count(seen), count);
    }
}

/* Objects of each node, of those that have @replicas of them. */
static void count_objects(const uint32_t *weights, unsigned count, VjNodeSet live,
                          unsigned replicas, unsigned *objects)
{
    uint8_t order[VJ_PLACEMENT_NODES_MAX];

    memset(objects, 0, count * sizeof *objects);
    for (uint64_t id = 0; id < IDS; id++) {
        VjNodeSet nodes;

        vj_placement_rank(id, weights, count, order);
        nodes = vj_placement_first(order, count, live, replicas);
        assert_int_equal(vj_node_count(nodes), MIN(replicas, vj_node_count(live)));
        VJ_NODE_EACH(i, nodes)
        {
            objects[i]++;
        }
    }
}

/* Within 5 standard deviations of a draw with that chance. */
static void expect_share(unsigned objects, double share)
{
    double deviation = sqrt(IDS * share * (1 - share));

    if (fabs(objects - IDS * share) > 5 * deviation) {
        fail_msg("%u objects, expected %.0f +- %.0f", objects, IDS * share, deviation);
    }
}

static void test_equal_nodes(void **state)
{
    static const unsigned counts[] = {1, 2, 3, 5, 16};
    uint32_t weights[VJ_PLACEMENT_NODES_MAX];
    unsigned objects[VJ_PLACEMENT_NODES_MAX];

    (void)state;
    ones(weights, VJ_PLACEMENT_NODES_MAX);
    for (size_t c = 0; c < G_N_ELEMENTS(counts); c++) {
        for (unsigned replicas = 1; replicas <= MIN(counts[c], 3u); replicas++) {
            count_objects(weights, counts[c], UINT64_MAX >> (64 - counts[c]), replicas,
                          objects);
            for (unsigned i = 0; i < counts[c]; i++) {
                expect_share(objects[i], (double)replicas / counts[c]);
            }
        }
    }
}

static void test_weighted_nodes(void **state)
{
    static const uint32_t weights[] = {1, 2, 3, 0, 10};
    unsigned objects[G_N_ELEMENTS(weights)];

    (void)state;
    count_objects(weights, 5, 0x1f, 1, objects);
    for (unsigned i = 0; i < 5; i++) {
        expect_share(objects[i], weights[i] / 16.0);
    }
    /* Of those that are left, in the same proportion. */
    count_objects(weights, 5, 0x0f, 1, objects);
    for (unsigned i = 0; i < 4; i++) {
        expect_share(objects[i], weights[i] / 6.0);
    }
    /* A second replica: of the pairs in which it is first or second. */
    count_objects(weights, 5, 0x07, 2, objects);
    expect_share(objects[0], 1 - (2 / 6.0 * 3 / 4.0 + 3 / 6.0 * 2 / 3.0));
}

/* Objects whose nodes are others than before, and those that did not have to. */
typedef struct Moves {
    unsigned moved, needless;
} Moves;

/* When the nodes @before become @after; the weights may change too. */
static Moves count_moves(const uint32_t *old_weights, const uint32_t *new_weights,
                         unsigned count, VjNodeSet before, VjNodeSet after,
                         VjNodeSet changed, unsigned replicas)
{
    Moves moves = {0, 0};

    for (uint64_t id = 0; id < IDS; id++) {
        uint8_t order[VJ_PLACEMENT_NODES_MAX];
        VjNodeSet old_nodes, new_nodes;

        vj_placement_rank(id, old_weights, count, order);
        old_nodes = vj_placement_first(order, count, before, replicas);
        vj_placement_rank(id, new_weights, count, order);
        new_nodes = vj_placement_first(order, count, after, replicas);
        moves.moved += old_nodes != new_nodes;
        /* Only one that is about a changed node, by one replica. */
        moves.needless +=
            old_nodes != new_nodes && (((old_nodes | new_nodes) & changed) == 0 ||
                                       vj_node_count(old_nodes ^ new_nodes) > 2);
    }
    return moves;
}

static void test_a_node_goes(void **state)
{
    uint32_t weights[8];
    Moves moves;

    (void)state;
    ones(weights, 8);
    moves = count_moves(weights, weights, 8, 0xff, 0xf7, 0x08, 1);
    assert_int_equal(moves.needless, 0);
    assert_int_equal(moves.moved, 2504);
    expect_share(moves.moved, 1 / 8.0);
    moves = count_moves(weights, weights, 8, 0xff, 0xf7, 0x08, 2);
    assert_int_equal(moves.needless, 0);
    assert_int_equal(moves.moved, 4975);
    expect_share(moves.moved, 2 / 8.0);
}

/* At the end of the list, where no other changes its place. */
static void test_a_node_comes(void **state)
{
    uint32_t weights[8];
    Moves moves = {0, 0};

    (void)state;
    ones(weights, 8);
    for (uint64_t id = 0; id < IDS; id++) {
        uint8_t few[7], many[8];
        VjNodeSet before, after;

        vj_placement_rank(id, weights, 7, few);
        vj_placement_rank(id, weights, 8, many);
        before = vj_placement_first(few, 7, 0x7f, 2);
        after = vj_placement_first(many, 8, 0xff, 2);
        moves.moved += before != after;
        moves.needless += before != after && (after & 0x80) == 0;
    }
    assert_int_equal(moves.needless, 0);
    assert_int_equal(moves.moved, 5012);
    expect_share(moves.moved, 2 / 8.0);
}

/* A larger weight takes objects from all others, and none of them takes any. */
static void test_a_weight_changes(void **state)
{
    static const uint32_t old_weights[] = {1, 1, 1, 1}, new_weights[] = {1, 1, 1, 2};
    Moves moves;

    (void)state;
    moves = count_moves(old_weights, new_weights, 4, 0xf, 0xf, 0x8, 1);
    assert_int_equal(moves.needless, 0);
    assert_int_equal(moves.moved, 3064);
    expect_share(moves.moved, 2 / 5.0 - 1 / 4.0);
}

static void test_first(void **state)
{
    static const uint8_t order[] = {3, 0, 2, 1};

    (void)state;
    assert_true(vj_placement_first(order, 4, 0xf, 2) == 0x9);
    assert_true(vj_placement_first(order, 4, 0x6, 1) == 0x4);
    assert_true(vj_placement_first(order, 4, 0x6, 8) == 0x6);
    assert_true(vj_placement_first(order, 4, 0, 2) == 0);
    assert_true(vj_placement_first(order, 4, 0xf, 0) == 0);
}

static void test_next(void **state)
{
    VjNodeSet seen = 0, set = ((VjNodeSet)1 << 63) | 0x15;

    (void)state;
    VJ_NODE_EACH(i, set)
    {
        seen |= vj_node_bit(i);
    }
    assert_true(seen == set);
    VJ_NODE_EACH(i, 0)
    {
        fail();
    }
}

static uint64_t space_of(const uint64_t *bytes, unsigned count, unsigned replicas)
{
    uint64_t copy[8];

    memcpy(copy, bytes, count * sizeof *bytes);
    return vj_placement_space(copy, count, replicas);
}

/* By definition: the largest T with sum of min(bytes, T) >= replicas * T. */
static uint64_t space_by_trial(const uint64_t *bytes, unsigned count, unsigned replicas)
{
    uint64_t best = 0;

    replicas = MIN(replicas, count);
    for (uint64_t t = 0; t < 400 && replicas > 0; t++) {
        uint64_t sum = 0;

        for (unsigned i = 0; i < count; i++) {
            sum += MIN(bytes[i], t);
        }
        best = sum >= replicas * t ? t : best;
    }
    return best;
}

static void test_space(void **state)
{
    static const uint64_t no_limit[] = {UINT64_MAX, 10, 20};
    VjRng rng;

    (void)state;
    assert_true(space_of(no_limit, 3, 1) == UINT64_MAX);
    assert_true(space_of(no_limit, 3, 2) == 30);
    assert_true(space_of(no_limit, 3, 3) == 10);
    assert_true(space_of(no_limit, 1, 3) == UINT64_MAX);
    assert_true(space_of(no_limit, 0, 3) == 0);
    vj_rng_init(&rng, 11);
    for (int i = 0; i < 20000; i++) {
        uint64_t bytes[8];
        unsigned count = (unsigned)vj_rng_below(&rng, 5),
                 replicas = 1 + (unsigned)vj_rng_below(&rng, 4);

        for (unsigned n = 0; n < count; n++) {
            bytes[n] = vj_rng_below(&rng, 1 + vj_rng_below(&rng, 100));
        }
        assert_true(space_of(bytes, count, replicas) ==
                    space_by_trial(bytes, count, replicas));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_golden),
    cmocka_unit_test(test_cost),
    cmocka_unit_test(test_order_is_a_permutation),
    cmocka_unit_test(test_equal_nodes),
    cmocka_unit_test(test_weighted_nodes),
    cmocka_unit_test(test_a_node_goes),
    cmocka_unit_test(test_a_node_comes),
    cmocka_unit_test(test_a_weight_changes),
    cmocka_unit_test(test_first),
    cmocka_unit_test(test_next),
    cmocka_unit_test(test_space),
};

VJ_TEST_MAIN(tests)
