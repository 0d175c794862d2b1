/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-budget.c - waiting for memory: until some is freed, write-back fails, or the
 * caller has died
 */
#include "../../lib/test.h"

#include "file/budget-private.h"

#define LIMIT ((size_t)1 << 20)

typedef struct Fixture {
    VjBudget budget;
    VjCancel cancel;
    gint asked; /* for write-back */
    GThread *thread;
    int r;
} Fixture;

static void on_pressure(void *opaque, bool any)
{
    assert_false(any); /* what is wanted is not small */
    g_atomic_int_inc(&((Fixture *)opaque)->asked);
}

static gpointer wait_main(gpointer opaque)
{
    Fixture *x = opaque;

    vj_cancel_enter(&x->cancel);
    x->r = vj_budget_wait(&x->budget, LIMIT);
    g_assert_true(vj_cancel_leave() == &x->cancel);
    return NULL;
}

/* A thread waits for memory, all of which is in use. */
static int setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);

    vj_budget_init(&x->budget, LIMIT, on_pressure, x);
    vj_cancel_init(&x->cancel);
    vj_budget_charge(&x->budget, LIMIT);
    x->thread = g_thread_new("waiter", wait_main, x);
    while (g_atomic_int_get(&x->asked) == 0) {
        g_thread_yield();
    }
    *state = x;
    return 0;
}

static void ends_with(Fixture *x, int r)
{
    g_thread_join(x->thread);
    assert_int_equal(x->r, r);
    assert_int_equal(vj_budget_used(&x->budget), r == 0 ? 0 : LIMIT);
}

static int teardown(void **state)
{
    Fixture *x = *state;

    if (vj_budget_used(&x->budget) > 0) {
        vj_budget_release(&x->budget, LIMIT);
    }
    vj_cancel_clear(&x->cancel);
    vj_budget_clear(&x->budget);
    g_free(x);
    return 0;
}

static void until_some_is_freed(void **state)
{
    Fixture *x = *state;

    vj_budget_release(&x->budget, LIMIT);
    ends_with(x, 0);
}

static void until_write_back_fails(void **state)
{
    Fixture *x = *state;

    vj_budget_set_failing(&x->budget, -ENOSPC);
    ends_with(x, -ENOSPC);
}

/* What it asked for gave nothing back: it asks once more. */
static void asks_again(void **state)
{
    Fixture *x = *state;

    for (int i = 1; i < 5; i++) {
        while (g_atomic_int_get(&x->asked) < i) {
            g_thread_yield();
        }
        vj_budget_ask_again(&x->budget);
    }
    vj_budget_release(&x->budget, LIMIT);
    ends_with(x, 0);
    assert_true(g_atomic_int_get(&x->asked) >= 4);
}

static void until_its_caller_has_died(void **state)
{
    Fixture *x = *state;

    vj_cancel_fire(&x->cancel, 1);
    ends_with(x, -ECANCELED);
}

#define BUDGET_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    BUDGET_TEST(until_some_is_freed),
    BUDGET_TEST(until_write_back_fails),
    BUDGET_TEST(asks_again),
    BUDGET_TEST(until_its_caller_has_died),
};

VJ_TEST_MAIN(tests)
