/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Locks lock; debug builds abort, in a child here, on a wrong order and name both locks.
 */
#include "../../lib/test.h"

static VjMutex outer = VJ_MUTEX_INIT(VJ_RANK_FS, "outer");
static VjMutex inner = VJ_MUTEX_INIT(VJ_RANK_STORE, "inner");
static VjMutex twin = VJ_MUTEX_INIT(VJ_RANK_STORE, "twin");

static void expect_abort(void (*body)(void), const char *part, const char *other_part)
{
#ifdef VJ_LOCK_DEBUG
    vj_test_expect_abort(body, part, other_part);
#else
    (void)body;
    (void)part;
    (void)other_part;
    print_message("# needs configure --enable-developer\n");
    skip();
#endif
}

VJ_TSA(no_thread_safety_analysis) static void falling(void)
{
    vj_mutex_lock(&inner);
    vj_mutex_lock(&outer);
}

VJ_TSA(no_thread_safety_analysis) static void falling_by_trylock(void)
{
    vj_mutex_lock(&inner);
    (void)!vj_mutex_trylock(&outer);
}

VJ_TSA(no_thread_safety_analysis) static void equal(void)
{
    vj_mutex_lock(&inner);
    vj_mutex_lock(&twin);
}

VJ_TSA(no_thread_safety_analysis) static void twice(void)
{
    vj_mutex_lock(&inner);
    vj_mutex_lock(&inner);
}

VJ_TSA(no_thread_safety_analysis) static void release_of_another(void)
{
    vj_mutex_lock(&inner);
    vj_mutex_unlock(&outer);
}

static void needed(void)
{
    vj_mutex_assert_held(&inner);
}

VJ_TSA(no_thread_safety_analysis) static void io_with_mutex(void)
{
    vj_mutex_lock(&inner);
    vj_lock_assert_none();
}

VJ_TSA(no_thread_safety_analysis) static void wait_with_inner(void)
{
    VjCond c;

    vj_cond_init(&c);
    vj_mutex_lock(&outer);
    vj_mutex_lock(&inner);
    vj_cond_wait(&c, &outer);
}

VJ_TSA(no_thread_safety_analysis) static void wait_without_mutex(void)
{
    VjCond c;

    vj_cond_init(&c);
    vj_cond_wait(&c, &outer);
}

VJ_TSA(no_thread_safety_analysis) static void reader_below_mutex(void)
{
    VjRwLock l;

    vj_rwlock_init(&l, VJ_RANK_FS, "range");
    vj_mutex_lock(&inner);
    vj_rwlock_read_lock(&l);
}

static void a_falling_rank_aborts(void **state)
{
    (void)state;
    expect_abort(falling, "taking \"outer\" (rank 20)", "holding \"inner\" (62)");
    expect_abort(falling_by_trylock, "\"outer\"", "\"inner\"");
    expect_abort(reader_below_mutex, "\"range\"", "\"inner\"");
}

static void an_equal_rank_aborts(void **state)
{
    (void)state;
    expect_abort(equal, "\"twin\"", "\"inner\"");
    expect_abort(twice, "\"inner\"", "\"inner\"");
}

static void what_is_not_held_aborts(void **state)
{
    (void)state;
    expect_abort(release_of_another, "does not hold", "\"outer\"");
    expect_abort(needed, "not held", "\"inner\"");
    expect_abort(wait_without_mutex, "not held", "\"outer\"");
}

static void io_under_a_mutex_aborts(void **state)
{
    (void)state;
    expect_abort(io_with_mutex, "none may be", "\"inner\"");
}

static void waiting_under_an_inner_lock_aborts(void **state)
{
    (void)state;
    expect_abort(wait_with_inner, "waiting with \"outer\"", "\"inner\"");
}

/* Release in any order; what is left still counts. */
VJ_TSA(no_thread_safety_analysis) static void releases_need_no_order(void **state)
{
    VjRwLock range;

    (void)state;
    vj_rwlock_init(&range, VJ_RANK_FILE, "range");
    for (int i = 0; i < 2; i++) {
        vj_mutex_lock(&outer);
        vj_rwlock_write_lock(&range);
        vj_mutex_lock(&inner);
        vj_mutex_assert_held(&outer);
        vj_mutex_assert_held(&inner);
        vj_mutex_unlock(&outer);
        vj_mutex_unlock(&inner);
        vj_lock_assert_none(); /* a reader-writer lock does not count */
        assert_true(vj_mutex_trylock(&inner));
        vj_mutex_unlock(&inner);
        vj_rwlock_write_unlock(&range);
    }
    vj_rwlock_clear(&range);
}

typedef struct Shared {
    VjMutex mutex;
    VjCond cond;
    VjRwLock range;
    int step;       /* guarded by mutex */
    int sum;        /* guarded by mutex */
    int pair[2];    /* guarded by range: equal unless a writer is between the two */
    int torn_pairs; /* guarded by mutex */
} Shared;

static void shared_init(Shared *s)
{
    *s = (Shared){.step = 0};
    vj_mutex_init(&s->mutex, VJ_RANK_FILE_BUDGET, "shared");
    vj_cond_init(&s->cond);
    vj_rwlock_init(&s->range, VJ_RANK_FILE, "range");
}

static void shared_clear(Shared *s)
{
    vj_rwlock_clear(&s->range);
    vj_cond_clear(&s->cond);
    vj_mutex_clear(&s->mutex);
}

static gpointer add(gpointer data)
{
    Shared *s = data;

    for (int i = 0; i < 5000; i++) {
        vj_mutex_lock(&s->mutex);
        s->sum++;
        vj_mutex_unlock(&s->mutex);
    }
    return NULL;
}

static gpointer answer(gpointer data)
{
    Shared *s = data;

    vj_mutex_lock(&s->mutex);
    for (int i = 0; i < 100; i++) {
        while (s->step != 1) {
            vj_cond_wait(&s->cond, &s->mutex);
        }
        s->step = 0;
        vj_cond_broadcast(&s->cond);
    }
    vj_mutex_unlock(&s->mutex);
    return NULL;
}

static gpointer write_pairs(gpointer data)
{
    Shared *s = data;

    for (int i = 0; i < 1000; i++) {
        vj_rwlock_write_lock(&s->range);
        s->pair[0]++;
        s->pair[1]++;
        vj_rwlock_write_unlock(&s->range);
    }
    return NULL;
}

static gpointer read_pairs(gpointer data)
{
    Shared *s = data;

    for (int i = 0; i < 1000; i++) {
        vj_rwlock_read_lock(&s->range);
        if (s->pair[0] != s->pair[1]) {
            vj_mutex_lock(&s->mutex);
            s->torn_pairs++;
            vj_mutex_unlock(&s->mutex);
        }
        vj_rwlock_read_unlock(&s->range);
    }
    return NULL;
}

static void a_mutex_excludes(void **state)
{
    GThread *threads[4];
    Shared s;

    (void)state;
    shared_init(&s);
    for (int i = 0; i < 4; i++) {
        threads[i] = g_thread_new("add", add, &s);
    }
    for (int i = 0; i < 4; i++) {
        g_thread_join(threads[i]);
    }
    assert_int_equal(s.sum, 20000);
    shared_clear(&s);
}

static void a_condition_wakes(void **state)
{
    GThread *thread;
    Shared s;

    (void)state;
    shared_init(&s);
    thread = g_thread_new("answer", answer, &s);
    vj_mutex_lock(&s.mutex);
    for (int i = 0; i < 100; i++) {
        s.step = 1;
        vj_cond_signal(&s.cond);
        while (s.step != 0) {
            /* Far away: a lost wakeup fails by the test's time limit. */
            (void)!vj_cond_wait_until(&s.cond, &s.mutex, vj_clock_mono_us() + 600000000);
        }
    }
    vj_mutex_unlock(&s.mutex);
    g_thread_join(thread);
    shared_clear(&s);
}

static void a_timed_wait_ends(void **state)
{
    struct timespec real = {.tv_sec = 1000000000};
    int64_t start = vj_clock_mono_us();
    Shared s;

    (void)state;
    shared_init(&s);
    vj_mutex_lock(&s.mutex);
    /* Loops, since a wait may end without reason; the clock decides. */
    while (vj_cond_wait_until(&s.cond, &s.mutex, start + 20000)) {
    }
    assert_true(vj_clock_mono_us() >= start + 20000);
    while (vj_cond_wait_until(&s.cond, &s.mutex, start)) {
    }
    /* A frozen clock: only the distance to it counts. */
    vj_clock_set_for_test(&real, 5);
    while (vj_cond_wait_until(&s.cond, &s.mutex, 1005)) {
    }
    vj_clock_set_for_test(NULL, 0);
    vj_mutex_assert_held(&s.mutex);
    vj_mutex_unlock(&s.mutex);
    shared_clear(&s);
}

static void writers_exclude_readers(void **state)
{
    GThread *threads[4];
    Shared s;

    (void)state;
    shared_init(&s);
    for (int i = 0; i < 4; i++) {
        threads[i] = g_thread_new("pairs", i % 2 ? read_pairs : write_pairs, &s);
    }
    for (int i = 0; i < 4; i++) {
        g_thread_join(threads[i]);
    }
    assert_int_equal(s.torn_pairs, 0);
    assert_int_equal(s.pair[0], 2000);
    shared_clear(&s);
}

static gpointer try_outer(gpointer unused)
{
    (void)unused;
    if (vj_mutex_trylock(&outer)) {
        vj_mutex_unlock(&outer);
        return GINT_TO_POINTER(1);
    }
    return NULL;
}

static void trylock_fails_while_another_holds(void **state)
{
    void *taken;

    (void)state;
    vj_mutex_lock(&outer);
    taken = g_thread_join(g_thread_new("try", try_outer, NULL));
    vj_mutex_unlock(&outer);
    assert_null(taken);
    assert_non_null(g_thread_join(g_thread_new("try", try_outer, NULL)));
}

static void a_held_mutex_is_named(void **state)
{
    static VjRwLock rwlock;

    (void)state;
    vj_rwlock_init(&rwlock, VJ_RANK_FRONT, "rwlock");
    assert_null(vj_lock_held());
    vj_rwlock_read_lock(&rwlock);
    assert_null(vj_lock_held()); /* a reader-writer lock does not count */
    vj_mutex_lock(&outer);
#ifdef VJ_LOCK_DEBUG
    assert_string_equal(vj_lock_held(), "outer");
#else
    assert_null(vj_lock_held());
#endif
    vj_mutex_unlock(&outer);
    vj_rwlock_read_unlock(&rwlock);
    assert_null(vj_lock_held());
}

static void count_call(void *opaque)
{
    ++*(unsigned *)opaque;
}

static void a_thread_is_told_before_it_waits(void **state)
{
    unsigned calls = 0;
    VjCond never;

    (void)state;
    vj_cond_init(&never);
    vj_before_wait(); /* nothing is set */
    vj_before_wait_set(count_call, &calls);
    vj_before_wait();
    assert_int_equal(calls, 1);
    vj_mutex_lock(&inner);
    assert_int_equal(calls, 1); /* a mutex is no long wait */
    assert_false(vj_cond_wait_until(&never, &inner, 0));
    assert_int_equal(calls, 2);
    vj_mutex_unlock(&inner);
    vj_before_wait_set(NULL, NULL);
    vj_before_wait();
    assert_int_equal(calls, 2);
    vj_cond_clear(&never);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_falling_rank_aborts),
    cmocka_unit_test(an_equal_rank_aborts),
    cmocka_unit_test(what_is_not_held_aborts),
    cmocka_unit_test(io_under_a_mutex_aborts),
    cmocka_unit_test(waiting_under_an_inner_lock_aborts),
    cmocka_unit_test(releases_need_no_order),
    cmocka_unit_test(a_mutex_excludes),
    cmocka_unit_test(a_condition_wakes),
    cmocka_unit_test(a_timed_wait_ends),
    cmocka_unit_test(writers_exclude_readers),
    cmocka_unit_test(trylock_fails_while_another_holds),
    cmocka_unit_test(a_held_mutex_is_named),
    cmocka_unit_test(a_thread_is_told_before_it_waits),
};

VJ_TEST_MAIN(tests)
