/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-slab.c - blocks of a stream: taken, kept, given back with their slabs
 */
#include "../../lib/test.h"

#include "file/budget-private.h"

#define BLOCK VJ_BUDGET_BLOCK_ALLOCATED
#define LIMIT (4 * VJ_SLAB_BLOCKS * VJ_BUDGET_BLOCK)

static void blocks_stand_side_by_side(void **state)
{
    VjSlab *s = vj_slab_new(true);
    uint8_t *first = vj_slab_take(s), *next;

    (void)state;
    assert_int_equal((uintptr_t)first % 4096, 0);
    memset(first, 1, BLOCK);
    for (unsigned i = 1; i < VJ_SLAB_BLOCKS; i++) {
        next = vj_slab_take(s);
        assert_ptr_equal(next, first + i * BLOCK);
        assert_true(vj_slab_has(s, next));
        memset(next, (int)i + 1, BLOCK);
    }
    assert_null(vj_slab_take(s));
    assert_false(vj_slab_has(s, first - 1));
    assert_false(vj_slab_has(s, first + VJ_SLAB_BLOCKS * BLOCK));
    for (unsigned i = 0; i < VJ_SLAB_BLOCKS; i++) {
        assert_int_equal(first[i * BLOCK], i + 1);
        assert_int_equal(first[(i + 1) * BLOCK - 1], i + 1);
    }
    for (unsigned i = 0; i < VJ_SLAB_BLOCKS; i++) {
        assert_true(vj_slab_give(s, first + i * BLOCK) == (i + 1 == VJ_SLAB_BLOCKS));
    }
    vj_slab_free(s);
}

static void what_was_given_back_has_no_pages(void **state)
{
    VjSlab *s = vj_slab_new(true);
    uint8_t *first = vj_slab_take(s), *second = vj_slab_take(s), *third = vj_slab_take(s);

    (void)state;
    memset(first, 1, 3 * BLOCK);
    vj_slab_drop_pages(second);
    assert_false(vj_slab_give(s, second));
    assert_int_equal(first[BLOCK - 1], 1);
    assert_int_equal(third[0], 1);
    assert_ptr_equal(vj_slab_take(s), second); /* the lowest */
    for (size_t i = 0; i < BLOCK; i += 4096) {
        assert_int_equal(second[i], 0);
    }
    assert_false(vj_slab_give(s, first));
    assert_false(vj_slab_give(s, second));
    assert_true(vj_slab_give(s, third));
    vj_slab_free(s);
}

/* What write-back frees is what the next write takes, until nothing is written. */
static void a_budget_keeps_blocks_and_gives_them_back(void **state)
{
    uint8_t *blocks[3 * VJ_SLAB_BLOCKS];
    VjBudget b;

    (void)state;
    vj_budget_init(&b, LIMIT, NULL, NULL);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < G_N_ELEMENTS(blocks); i++) {
            blocks[i] = vj_budget_take_block(&b);
            assert_non_null(blocks[i]);
            blocks[i][0] = (uint8_t)i;
            blocks[i][BLOCK - 1] = (uint8_t)i;
        }
        for (size_t i = 0; i < G_N_ELEMENTS(blocks); i++) {
            assert_int_equal(blocks[i][0], i);
            assert_int_equal(blocks[i][BLOCK - 1], i);
            vj_budget_give_block(&b, blocks[i]);
        }
        assert_true(vj_budget_has_blocks(&b) == !VJ_IS_SANITIZED);
        if (round == 0) {
            uint8_t *again = vj_budget_take_block(&b);

            /* The one that came last: it may be in the processor's cache. */
            assert_true(VJ_IS_SANITIZED || again[BLOCK - 1] == 2 * VJ_SLAB_BLOCKS - 1);
            vj_budget_give_block(&b, again);
        }
    }
    vj_budget_trim(&b);
    assert_false(vj_budget_has_blocks(&b));
    assert_true(VJ_IS_SANITIZED || b.slabs->len == 1);
    vj_budget_clear(&b);
}

/* Looks, some of them while blocks are used: a stream has them as long as it goes on. */
static void blocks_stay_while_some_are_taken(void **state)
{
    void *blocks[VJ_SLAB_BLOCKS], *other;
    VjBudget b;

    (void)state;
    if (VJ_IS_SANITIZED) {
        skip(); /* none are kept */
    }
    vj_budget_init(&b, LIMIT, NULL, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(blocks); i++) {
        blocks[i] = vj_budget_take_block(&b);
    }
    other = blocks[0];
    for (size_t i = 1; i < G_N_ELEMENTS(blocks); i++) {
        vj_budget_give_block(&b, blocks[i]);
    }
    for (unsigned i = 0; i < 3 * VJ_BUDGET_LOOKS; i++) {
        vj_budget_give_block(&b, other);
        other = vj_budget_take_block(&b);
        vj_budget_look(&b);
        assert_true(vj_budget_has_blocks(&b));
    }
    for (unsigned i = 1; i < VJ_BUDGET_LOOKS; i++) {
        vj_budget_look(&b);
        assert_true(vj_budget_has_blocks(&b));
    }
    vj_budget_look(&b);
    assert_false(vj_budget_has_blocks(&b));
    vj_budget_give_block(&b, other);
    assert_true(vj_budget_has_blocks(&b)); /* until the next look */
    vj_budget_look(&b);
    assert_false(vj_budget_has_blocks(&b));
    vj_budget_clear(&b);
}

/* Memory that is charged otherwise takes the place of blocks that are kept. */
static void charges_free_kept_blocks(void **state)
{
    uint8_t *blocks[2 * VJ_SLAB_BLOCKS];
    VjBudget b;

    (void)state;
    vj_budget_init(&b, LIMIT, NULL, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(blocks); i++) {
        blocks[i] = vj_budget_take_block(&b);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(blocks); i++) {
        vj_budget_give_block(&b, blocks[i]);
    }
    vj_budget_charge(&b, LIMIT);
    assert_false(vj_budget_has_blocks(&b));
    vj_budget_release(&b, LIMIT);
    vj_budget_clear(&b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_stand_side_by_side),
    cmocka_unit_test(what_was_given_back_has_no_pages),
    cmocka_unit_test(a_budget_keeps_blocks_and_gives_them_back),
    cmocka_unit_test(blocks_stay_while_some_are_taken),
    cmocka_unit_test(charges_free_kept_blocks),
};

VJ_TEST_MAIN(tests)
