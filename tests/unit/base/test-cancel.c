/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-cancel.c - waits that end when nobody wants their result any more
 */
#include "../../lib/test.h"

typedef struct World {
    VjMutex lock;
    VjCond cond;
    VjCancel cancel;
    /* guarded by lock: */
    unsigned waits;
    bool is_there; /* what is waited for */
    int result;
} World;

static World *world_new(void)
{
    World *w = g_new0(World, 1);

    vj_mutex_init(&w->lock, VJ_RANK_META_STATE, "world");
    vj_cond_init(&w->cond);
    vj_cancel_init(&w->cancel);
    return w;
}

static void world_free(World *w)
{
    vj_cancel_clear(&w->cancel);
    vj_cond_clear(&w->cond);
    vj_mutex_clear(&w->lock);
    g_free(w);
}

static int wait_for_it(World *w)
{
    int64_t until_us = vj_cancel_deadline_us();
    int rc = 0;

    vj_mutex_lock(&w->lock);
    w->waits++;
    vj_cond_broadcast(&w->cond);
    while (rc == 0 && !w->is_there) {
        rc = vj_cond_wait_or_cancel(&w->cond, &w->lock, until_us);
    }
    vj_mutex_unlock(&w->lock);
    return rc;
}

static gpointer waiter(gpointer opaque)
{
    World *w = opaque;

    vj_cancel_enter(&w->cancel);
    w->result = wait_for_it(w);
    assert_ptr_equal(vj_cancel_leave(), &w->cancel);
    return NULL;
}

static GThread *start_waiter(World *w, unsigned waits)
{
    GThread *t = g_thread_new("waiter", waiter, w);

    vj_mutex_lock(&w->lock);
    while (w->waits < waits) {
        vj_cond_wait(&w->cond, &w->lock);
    }
    vj_mutex_unlock(&w->lock);
    return t;
}

static void a_wait_ends(void **state)
{
    World *w = world_new();

    (void)state;
    /* The thread is about to wait, or does so: every moment comes up. */
    for (unsigned i = 1; i <= 2000; i++) {
        GThread *t;

        vj_cancel_reset(&w->cancel, INT64_MAX);
        t = start_waiter(w, i);
        vj_cancel_fire(&w->cancel);
        g_thread_join(t);
        assert_int_equal(w->result, -ECANCELED);
    }
    world_free(w);
}

static void what_was_fired_does_not_wait(void **state)
{
    World *w = world_new();

    (void)state;
    vj_cancel_fire(&w->cancel);
    vj_cancel_enter(&w->cancel);
    assert_true(vj_cancel_is_fired());
    assert_int_equal(wait_for_it(w), -ECANCELED);
    assert_ptr_equal(vj_cancel_leave(), &w->cancel);
    assert_false(vj_cancel_is_fired());

    vj_cancel_reset(&w->cancel, INT64_MAX);
    vj_cancel_enter(&w->cancel);
    assert_false(vj_cancel_is_fired());
    w->is_there = true;
    assert_int_equal(wait_for_it(w), 0);
    assert_ptr_equal(vj_cancel_leave(), &w->cancel);
    world_free(w);
}

static void a_deadline_comes(void **state)
{
    World *w = world_new();
    int64_t until_us = vj_clock_mono_us() + 1000;

    (void)state;
    assert_int_equal(vj_cancel_deadline_us(), INT64_MAX);
    vj_cancel_reset(&w->cancel, 1000);
    vj_cancel_enter(&w->cancel);
    assert_true(vj_cancel_deadline_us() >= until_us);
    assert_int_equal(wait_for_it(w), -ETIMEDOUT);
    assert_ptr_equal(vj_cancel_leave(), &w->cancel);
    assert_true(vj_clock_mono_us() >= until_us);
    world_free(w);
}

static gpointer bring(gpointer opaque)
{
    World *w = opaque;

    vj_mutex_lock(&w->lock);
    while (w->waits < 1) {
        vj_cond_wait(&w->cond, &w->lock);
    }
    w->is_there = true;
    vj_cond_broadcast(&w->cond);
    vj_mutex_unlock(&w->lock);
    return NULL;
}

static void without_one_it_waits(void **state)
{
    World *w = world_new();
    GThread *t = g_thread_new("bring", bring, w);

    (void)state;
    vj_cancel_fire(&w->cancel); /* nobody's */
    assert_int_equal(wait_for_it(w), 0);
    g_thread_join(t);
    world_free(w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_wait_ends),
    cmocka_unit_test(what_was_fired_does_not_wait),
    cmocka_unit_test(a_deadline_comes),
    cmocka_unit_test(without_one_it_waits),
};

VJ_TEST_MAIN(tests)
