/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-flush.c - what becomes durable, when, and at what price
 *
 * The hook of the driver holds moves, lets them fail and counts them: no clock is
 * involved.
 */
#include "meta-fixture.h"

#define WAITERS 16

/*
 * What moves have to pass, and a count of those that came by.  Of our own locks, so that
 * ThreadSanitizer sees them.
 */
typedef struct Hold {
    VjMutex lock;
    VjCond changed;
    bool closed;
    int arrived;
    int error; /* what a move gets when it passes */
} Hold;

static void hold_init(Hold *g, bool closed, int error)
{
    vj_mutex_init(&g->lock, VJ_RANK_META_WRAPPER, "hold");
    vj_cond_init(&g->changed);
    g->closed = closed;
    g->arrived = 0;
    g->error = error;
}

static void hold_clear(Hold *g)
{
    vj_cond_clear(&g->changed);
    vj_mutex_clear(&g->lock);
}

static int hold_pass(void *opaque)
{
    Hold *g = opaque;
    int rc;

    vj_mutex_lock(&g->lock);
    g->arrived++;
    vj_cond_broadcast(&g->changed);
    while (g->closed) {
        vj_cond_wait(&g->changed, &g->lock);
    }
    rc = g->error;
    vj_mutex_unlock(&g->lock);
    return rc;
}

static void hold_set(Hold *g, bool closed, int error)
{
    vj_mutex_lock(&g->lock);
    g->closed = closed;
    g->error = error;
    vj_cond_broadcast(&g->changed);
    vj_mutex_unlock(&g->lock);
}

static void hold_wait_for(Hold *g, int arrived)
{
    vj_mutex_lock(&g->lock);
    while (g->arrived < arrived) {
        vj_cond_wait(&g->changed, &g->lock);
    }
    vj_mutex_unlock(&g->lock);
}

/* A thread that commits one key and flushes. */
typedef struct Waiter {
    VjMeta *meta;
    uint64_t number;
    Hold *committed; /* open; passed when the commit has returned; NULL: nobody counts */
    int result;
} Waiter;

static gpointer waiter_main(gpointer opaque)
{
    Waiter *w = opaque;
    int rc = put_numbered(w->meta, VJ_SPACE_INODE, w->number, 100);

    if (w->committed != NULL) {
        (void)hold_pass(w->committed);
    }
    w->result = rc < 0 ? rc : vj_meta_flush(w->meta);
    return NULL;
}

/* Threads that have committed while a move is held. */
typedef struct Crowd {
    Hold committed;
    Waiter waiters[WAITERS];
    GThread *threads[WAITERS];
} Crowd;

static void crowd_start(Crowd *c, VjMeta *m, uint64_t first_number)
{
    hold_init(&c->committed, false, 0);
    for (size_t i = 0; i < WAITERS; i++) {
        c->waiters[i] = (Waiter){.meta = m,
                                 .number = first_number + i,
                                 .committed = &c->committed,
                                 .result = 1};
        c->threads[i] = g_thread_new("waiter", waiter_main, &c->waiters[i]);
    }
    hold_wait_for(&c->committed, WAITERS);
}

static void crowd_join(Crowd *c)
{
    for (size_t i = 0; i < WAITERS; i++) {
        g_thread_join(c->threads[i]);
    }
    hold_clear(&c->committed);
}

/* One waiter's move runs; sixteen more commit and flush meanwhile: two syncs for all. */
static void test_waiters_share(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    Hold hold;
    Waiter first = {.meta = f.meta, .number = 1};
    GThread *thread;
    Crowd crowd;

    (void)state;
    hold_init(&hold, true, 0);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    thread = g_thread_new("first", waiter_main, &first);
    hold_wait_for(&hold, 1);
    crowd_start(&crowd, f.meta, 100);
    hold_set(&hold, false, 0);
    g_thread_join(thread);
    crowd_join(&crowd);
    assert_int_equal(first.result, 0);
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(crowd.waiters[i].result, 0);
    }
    assert_int_equal(vj_session_moves_for_test(f.meta), 2);
    /* Nothing is left to do: no sync. */
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(vj_session_moves_for_test(f.meta), 2);
    fixture_free(&f);
    hold_clear(&hold);
}

/* Nobody but flush waits for the device. */
static void test_work_goes_on_during_a_move(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    Hold hold;
    Waiter first = {.meta = f.meta, .number = 1};
    GThread *thread;

    (void)state;
    hold_init(&hold, true, 0);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    thread = g_thread_new("first", waiter_main, &first);
    hold_wait_for(&hold, 1);
    for (uint64_t i = 2; i < 1000; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, i, 50), 0);
        assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, i), 50);
    }
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 0), 0);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), -ENOENT);
    assert_int_equal(vj_session_moves_for_test(f.meta), 0);
    hold_set(&hold, false, 0);
    g_thread_join(thread);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), -ENOENT);
    fixture_close(&f);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), -ENOENT);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 999), 50);
    fixture_free(&f);
    hold_clear(&hold);
}

static int move_for_nobody(void *opaque)
{
    *(unsigned *)opaque += 1;
    return vj_cancel_current() == NULL ? 0 : -ECANCELED;
}

/* A move is for all that wait: it does not end with the caller whose thread makes it. */
static void test_caller_that_was_killed(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    VjCancel cancel;
    unsigned moves = 0;

    (void)state;
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), move_for_nobody, &moves);
    vj_cancel_init(&cancel);
    vj_cancel_reset(&cancel, 1, INT64_MAX);
    vj_cancel_enter(&cancel);
    vj_cancel_fire(&cancel, 1);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 50), 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_ptr_equal(vj_cancel_leave(), &cancel);
    assert_int_equal(moves, 1);
    vj_cancel_clear(&cancel);
    fixture_free(&f);
}

/* A failed move tells every waiter, loses nothing, and the next flush makes it good. */
static void test_failed_move(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    Hold hold;
    Waiter first = {.meta = f.meta, .number = 1};
    GThread *thread;
    Crowd crowd;

    (void)state;
    hold_init(&hold, true, -EIO);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    thread = g_thread_new("first", waiter_main, &first);
    hold_wait_for(&hold, 1);
    crowd_start(&crowd, f.meta, 100);
    hold_set(&hold, false, -EIO);
    g_thread_join(thread);
    crowd_join(&crowd);
    assert_int_equal(first.result, -EIO);
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(crowd.waiters[i].result, -EIO);
        assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 100 + i), 100);
    }
    assert_int_equal(vj_session_moves_for_test(f.meta), 0);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 2, 77), 0);
    hold_set(&hold, false, 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    /* The generation that had failed, and the one that came after it. */
    assert_int_equal(vj_session_moves_for_test(f.meta), 2);
    fixture_close(&f);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), 100);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 2), 77);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 100 + WAITERS - 1), 100);
    fixture_free(&f);
    hold_clear(&hold);
}

/* The error of a device that never recovers comes out of close, too. */
static void test_close_reports(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    Hold hold;

    (void)state;
    hold_init(&hold, false, -EIO);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 10), 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 2, 10), 0);
    assert_int_equal(vj_meta_close(f.meta), -EIO);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), 10);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 2), -ENOENT);
    fixture_free(&f);
    hold_clear(&hold);
}

/* Without a flush: the commit interval alone moves what is there. */
static void test_commit_interval(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0");
    VjSession *s = vj_session_of(f.meta);
    Hold hold;

    (void)state;
    hold_init(&hold, false, 0);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    vj_mutex_lock(&s->state);
    s->commit_interval_us = 20 * 1000;
    vj_mutex_unlock(&s->state);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 10), 0);
    hold_wait_for(&hold, 1);
    fixture_free(&f);
    hold_clear(&hold);
}

/* Half of the memory in use: a move starts unasked. */
static void test_full_half_moves(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600,overlay=1M");
    Hold hold;

    (void)state;
    hold_init(&hold, false, 0);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    for (uint64_t i = 0; i < 8; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_XATTR, i, 64 << 10), 0);
    }
    hold_wait_for(&hold, 1);
    fixture_free(&f);
    hold_clear(&hold);
}

static gpointer fill_main(gpointer opaque)
{
    Waiter *w = opaque;

    /* Three times the memory. */
    for (uint64_t i = 0; i < 48; i++) {
        w->result = put_numbered(w->meta, VJ_SPACE_XATTR, i, 64 << 10);
        if (w->result < 0) {
            break;
        }
    }
    return NULL;
}

/* As much as there is, in the background. */
static gpointer background_main(gpointer opaque)
{
    Waiter *w = opaque;

    for (uint64_t i = 0; i < 48 && w->result == 0; i++) {
        NumberedPut op = {.space = VJ_SPACE_XATTR, .number = i, .value_bytes = 64 << 10};

        w->result =
            vj_meta_run(w->meta, VJ_RUN_RELEASE | VJ_RUN_BACKGROUND, numbered_body, &op);
    }
    return NULL;
}

static void wait_until_yielding(VjSession *s)
{
    vj_mutex_lock(&s->state);
    while (s->yielding == 0 || s->frozen == NULL) {
        vj_mutex_unlock(&s->state);
        g_thread_yield();
        vj_mutex_lock(&s->state);
    }
    vj_mutex_unlock(&s->state);
}

/* Work in the background stops early: while a move is under way others go on writing. */
static void test_background_leaves_memory(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600,overlay=1M");
    VjSession *s = vj_session_of(f.meta);
    Waiter filler = {.meta = f.meta};
    GThread *thread;
    Hold hold;

    (void)state;
    hold_init(&hold, true, 0);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    thread = g_thread_new("filler", background_main, &filler);
    hold_wait_for(&hold, 1);
    wait_until_yielding(s);
    /* More than a third of the 512 KiB of a generation. */
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, i, 64 << 10), 0);
    }
    hold_set(&hold, false, 0);
    g_thread_join(thread);
    assert_int_equal(filler.result, 0);
    fixture_free(&f);
    hold_clear(&hold);
}

/* Bodies note in which order they ran. */
typedef struct Turn {
    VjMeta *meta;
    VjRunFlags flags;
    Hold *first; /* that the body passes; NULL: none */
    gint *order; /* atomic: how many came before */
    gint mine;
    int result;
} Turn;

static int turn_body(VjTxn *txn, void *opaque)
{
    Turn *t = opaque;

    (void)txn;
    if (t->first != NULL) {
        (void)hold_pass(t->first);
    }
    t->mine = g_atomic_int_add(t->order, 1);
    return 0;
}

static gpointer turn_main(gpointer opaque)
{
    Turn *t = opaque;

    t->result = vj_meta_run(t->meta, t->flags, turn_body, t);
    return NULL;
}

/* Who waits goes before what is in the background, though that came earlier. */
static void test_background_goes_last(void **state)
{
    Fixture f = fixture_new("lmdb:commit=3600");
    VjSession *s = vj_session_of(f.meta);
    gint order = 0;
    Hold hold;
    Turn turns[] = {
        {.meta = f.meta, .first = &hold, .order = &order, .result = 1},
        {.meta = f.meta, .flags = VJ_RUN_BACKGROUND, .order = &order, .result = 1},
        {.meta = f.meta, .order = &order, .result = 1},
    };
    GThread *threads[G_N_ELEMENTS(turns)];
    unsigned waiting = 0;

    (void)state;
    hold_init(&hold, true, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(turns); i++) {
        threads[i] = g_thread_new("turn", turn_main, &turns[i]);
        hold_wait_for(&hold, 1);
    }
    while (waiting == 0) {
        g_thread_yield();
        vj_mutex_lock(&s->writer);
        waiting = s->writers_wait;
        vj_mutex_unlock(&s->writer);
    }
    hold_set(&hold, false, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(turns); i++) {
        g_thread_join(threads[i]);
        assert_int_equal(turns[i].result, 0);
    }
    assert_int_equal(turns[0].mine, 0);
    assert_int_equal(turns[2].mine, 1);
    assert_int_equal(turns[1].mine, 2);
    fixture_free(&f);
    hold_clear(&hold);
}

/* More changes than memory: writers wait for the moves and all get through. */
static void test_back_pressure(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600,overlay=1M");
    VjSession *s = vj_session_of(f.meta);
    Hold hold;
    Waiter filler = {.meta = f.meta};
    GThread *thread;

    (void)state;
    hold_init(&hold, true, 0);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    thread = g_thread_new("filler", fill_main, &filler);
    hold_wait_for(&hold, 1);
    /* While the move is held each generation has its half and at most one transaction
     * more. */
    vj_mutex_lock(&s->state);
    assert_true(s->active->overlay.bytes + s->frozen->overlay.bytes <=
                (1 << 20) + 2 * (66 << 10));
    vj_mutex_unlock(&s->state);
    hold_set(&hold, false, 0);
    g_thread_join(thread);
    assert_int_equal(filler.result, 0);
    for (uint64_t i = 0; i < 48; i++) {
        assert_int_equal(get_numbered(f.meta, VJ_SPACE_XATTR, i), 64 << 10);
    }
    fixture_free(&f);
    hold_clear(&hold);
}

/* Memory full and the device broken: writers get the error instead of waiting for ever.
 */
static void test_back_pressure_error(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600,overlay=1M");
    Hold hold;
    int rc = 0;
    uint64_t i;

    (void)state;
    hold_init(&hold, false, -EIO);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_pass, &hold);
    for (i = 0; rc == 0 && i < 100; i++) {
        rc = put_numbered(f.meta, VJ_SPACE_XATTR, i, 64 << 10);
    }
    assert_int_equal(rc, -EIO);
    assert_true(i >= 16);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_XATTR, 0), 64 << 10);
    hold_set(&hold, false, 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_XATTR, i, 64 << 10), 0);
    fixture_free(&f);
    hold_clear(&hold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiters_share),
        cmocka_unit_test(test_work_goes_on_during_a_move),
        cmocka_unit_test(test_caller_that_was_killed),
        cmocka_unit_test(test_failed_move),
        cmocka_unit_test(test_close_reports),
        cmocka_unit_test(test_commit_interval),
        cmocka_unit_test(test_full_half_moves),
        cmocka_unit_test(test_background_leaves_memory),
        cmocka_unit_test(test_background_goes_last),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_back_pressure_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
