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

        vj_cancel_reset(&w->cancel, i, INT64_MAX);
        t = start_waiter(w, i);
        vj_cancel_fire(&w->cancel, i);
        g_thread_join(t);
        assert_int_equal(w->result, -ECANCELED);
    }
    world_free(w);
}

static void what_was_fired_does_not_wait(void **state)
{
    World *w = world_new();

    (void)state;
    vj_cancel_fire(&w->cancel, 1);
    vj_cancel_enter(&w->cancel);
    assert_true(vj_cancel_is_fired());
    assert_int_equal(wait_for_it(w), -ECANCELED);
    assert_ptr_equal(vj_cancel_leave(), &w->cancel);
    assert_false(vj_cancel_is_fired());

    vj_cancel_reset(&w->cancel, 2, INT64_MAX);
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
    vj_cancel_reset(&w->cancel, 2, 1000);
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
    vj_cancel_fire(&w->cancel, 1); /* nobody's */
    assert_int_equal(wait_for_it(w), 0);
    g_thread_join(t);
    world_free(w);
}

/* What is meant for a request does not reach the one after it. */
static void each_request_has_its_number(void **state)
{
    World *w = world_new();

    (void)state;
    vj_cancel_reset(&w->cancel, 2, INT64_MAX);
    vj_cancel_fire(&w->cancel, 1);
    vj_cancel_enter(&w->cancel);
    assert_ptr_equal(vj_cancel_current(), &w->cancel);
    assert_false(vj_cancel_is_fired());
    vj_stall_begin();
    assert_false(vj_cancel_abandon(&w->cancel, 1));
    assert_int_equal(vj_stall_end(0), 0);
    assert_ptr_equal(vj_cancel_leave(), &w->cancel);
    assert_null(vj_cancel_current());
    world_free(w);
}

static void a_request_is_abandoned_in_a_stall_alone(void **state)
{
    World *w = world_new();

    (void)state;
    vj_stall_begin(); /* of no request */
    assert_int_equal(vj_stall_end(-EIO), -EIO);
    vj_cancel_enter(&w->cancel);
    assert_false(vj_cancel_abandon(&w->cancel, 1));
    vj_stall_begin();
    assert_int_equal(vj_stall_end(-EIO), -EIO);
    assert_false(vj_cancel_abandon(&w->cancel, 1));

    vj_stall_begin();
    vj_stall_begin();
    assert_int_equal(vj_stall_end(7), 7);
    assert_true(vj_cancel_abandon(&w->cancel, 1)); /* the outer one lasts */
    assert_false(vj_cancel_abandon(&w->cancel, 1));
    assert_int_equal(vj_stall_end(0), -ECANCELED);
    assert_true(vj_cancel_was_abandoned(&w->cancel));
    vj_stall_begin(); /* it stays so */
    assert_false(vj_cancel_abandon(&w->cancel, 1));
    assert_int_equal(vj_stall_end(-ENOSPC), -ECANCELED);

    assert_ptr_equal(vj_cancel_leave(), &w->cancel);
    vj_cancel_reset(&w->cancel, 2, INT64_MAX);
    assert_false(vj_cancel_was_abandoned(&w->cancel));
    vj_cancel_fire(&w->cancel, 2);
    vj_cancel_enter(&w->cancel);
    vj_stall_begin();
    assert_int_equal(vj_stall_end(0), -ECANCELED);
    assert_false(vj_cancel_was_abandoned(&w->cancel));
    (void)vj_cancel_leave();
    world_free(w);
}

typedef struct Stalls {
    VjCancel cancel;
    gint given_up, answered; /* atomic */
    gint number;             /* atomic: of the request that is worked on; 0: the end */
} Stalls;

#define STALLS 20000

static gpointer stalling(gpointer opaque)
{
    Stalls *s = opaque;

    for (gint i = 1; i <= STALLS; i++) {
        vj_cancel_reset(&s->cancel, (uint64_t)i, INT64_MAX);
        g_atomic_int_set(&s->number, i);
        vj_cancel_enter(&s->cancel);
        vj_stall_begin();
        if (vj_stall_end(0) == -ECANCELED) {
            g_atomic_int_inc(&s->given_up);
        }
        (void)vj_cancel_leave();
    }
    g_atomic_int_set(&s->number, 0);
    return NULL;
}

/* Each request has one answer, whoever is faster. */
static void one_of_the_two_answers(void **state)
{
    Stalls s = {.number = 1};
    GThread *thread;
    gint number;

    (void)state;
    vj_cancel_init(&s.cancel);
    thread = g_thread_new("stalling", stalling, &s);
    while ((number = g_atomic_int_get(&s.number)) != 0) {
        if (vj_cancel_abandon(&s.cancel, (uint64_t)number)) {
            g_atomic_int_inc(&s.answered);
        }
    }
    g_thread_join(thread);
    vj_cancel_clear(&s.cancel);
    assert_int_equal(s.given_up, s.answered);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_wait_ends),
    cmocka_unit_test(what_was_fired_does_not_wait),
    cmocka_unit_test(a_deadline_comes),
    cmocka_unit_test(without_one_it_waits),
    cmocka_unit_test(each_request_has_its_number),
    cmocka_unit_test(a_request_is_abandoned_in_a_stall_alone),
    cmocka_unit_test(one_of_the_two_answers),
};

VJ_TEST_MAIN(tests)
