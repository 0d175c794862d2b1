/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-threads.c - many at once: contents in flight, and everything against the
 * reaper
 */
#include "object-fixture.h"

#include "object/object-private.h"

#define THREADS 4
#define CONTENTS 12
#define ROUNDS 40

typedef struct Worker {
    Fixture *f;
    unsigned number;
    uint64_t seed;
    unsigned stored, failed;
} Worker;

static const VjTransform plain_none;

static void run(Fixture *f, GThreadFunc body, Worker workers[THREADS])
{
    GThread *threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].f = f;
        workers[i].number = i;
        threads[i] = g_thread_new("worker", body, &workers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        g_thread_join(threads[i]);
    }
}

static gpointer store_same(gpointer opaque)
{
    Worker *w = opaque;

    for (uint64_t i = 0; i < CONTENTS; i++) {
        g_autofree uint8_t *bytes = content(i, 20000);
        VjObject object;

        must_put(w->f, bytes, 20000, &object);
    }
    return NULL;
}

static void test_equal_content_in_flight_is_put_once(void **state)
{
    Fixture *f = *state;
    Worker workers[THREADS] = {0};
    g_autofree uint8_t *first = content(0, 20000);
    VjStoreStats stats;
    VjObject object;
    VjPendingObject *held;

    /* This one is in flight until all of them have met it; of the others it depends. */
    assert_int_equal(store_plain(f->objects, first, 20000, &plain_none, NULL, 0, &held),
                     0);
    fixture_faults(f, "kinds=put,delay_us=2000", NULL);
    run(f, store_same, workers);
    assert_true(stats_of(f).inflight_hits >= THREADS);
    assert_int_equal(commit_pending(f, &held, 1, &object), 0);
    assert_int_equal(object.refs, THREADS + 1);
    vj_store_stats(f->store, &stats);
    assert_int_equal(stats.puts, CONTENTS);
    assert_int_equal(stats.removes, 0);
    assert_int_equal(stats_of(f).puts, CONTENTS);
    assert_int_equal(stats_of(f).inflight_hits + stats_of(f).index_hits,
                     (THREADS - 1) * CONTENTS + 1);
    assert_int_equal(stored_count(f), CONTENTS);
}

static gpointer store_one(gpointer opaque)
{
    Worker *w = opaque;
    g_autofree uint8_t *bytes = content(1, 20000);
    VjObject object;
    int rc = put_content(w->f, bytes, 20000, &object);

    w->stored += rc == 0;
    w->failed += rc == -ENOSPC;
    return NULL;
}

/* The first put fails: the waiters try for themselves. */
static void test_a_failed_put_is_not_everybodys(void **state)
{
    Fixture *f = *state;
    Worker workers[THREADS] = {0};
    unsigned stored = 0, failed = 0;

    fixture_faults(f, "kinds=put,delay_us=20000,fail=1,errno=ENOSPC", NULL);
    run(f, store_one, workers);
    for (unsigned i = 0; i < THREADS; i++) {
        stored += workers[i].stored;
        failed += workers[i].failed;
    }
    assert_int_equal(failed, 1);
    assert_int_equal(stored, THREADS - 1);
    assert_int_equal(stats_of(f).puts, 1);
    fixture_faults(f, "", NULL);
}

/* Holds up to 8 references to random contents; reads, revives and drops them. */
static gpointer churn(gpointer opaque)
{
    enum { HELD = 8 };
    Worker *w = opaque;
    VjObject held[HELD];
    uint64_t seeds[HELD];
    unsigned count = 0;
    VjRng rng;

    vj_rng_init(&rng, w->seed + w->number);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t dice = vj_rng_below(&rng, 10);

        if (count < HELD && (dice < 5 || count == 0)) {
            g_autofree uint8_t *bytes =
                content(seeds[count] = vj_rng_below(&rng, CONTENTS), 9000);
            int rc;

            /* Shares die under the feet of those who found them: that is the point. */
            rc = put_content(w->f, bytes, 9000, &held[count]);
            assert_int_equal(rc, 0);
            count++;
        } else if (dice < 6) {
            g_autofree uint8_t *bytes = content(vj_rng_below(&rng, CONTENTS), 9000);
            VjPendingObject *pending;

            assert_int_equal(
                store_plain(w->f->objects, bytes, 9000, &plain_none, NULL, 0, &pending),
                0);
            vj_pending_free(w->f->objects, pending, false);
        } else if (dice < 8) {
            unsigned i = (unsigned)vj_rng_below(&rng, count);
            g_autofree uint8_t *bytes = content(seeds[i], 9000);

            assert_content(w->f, &held[i], bytes);
        } else {
            unsigned i = (unsigned)vj_rng_below(&rng, count);
            g_autofree uint8_t *bytes = content(seeds[i], 9000);
            VjReadGuard guard;

            vj_objects_guard_enter(w->f->objects, &guard);
            vj_object_pin(w->f->objects, held[i].id);
            assert_int_equal(drop_ref(w->f, held[i].id), 0);
            vj_objects_guard_leave(w->f->objects, &guard);
            vj_objects_kick(w->f->objects);
            assert_content(w->f, &held[i], bytes);
            if (dice == 9) {
                VjObject out;

                assert_int_equal(add_ref(w->f, held[i].id, &out), 0);
            } else {
                unsigned last = --count;
                uint64_t id = held[i].id;

                held[i] = held[last];
                seeds[i] = seeds[last];
                vj_object_unpin(w->f->objects, id);
                continue;
            }
            vj_object_unpin(w->f->objects, held[i].id);
        }
    }
    while (count > 0) {
        assert_int_equal(drop_ref(w->f, held[--count].id), 0);
    }
    return NULL;
}

static gpointer reap_all_the_time(gpointer opaque)
{
    Worker *w = opaque;

    while (g_atomic_int_get((gint *)&w->stored) == 0) {
        assert_int_equal(vj_objects_reap_now(w->f->objects), 0);
    }
    return NULL;
}

static void test_churn_against_the_reaper(void **state)
{
    Fixture *f = *state;
    Worker workers[THREADS] = {0}, reaper = {.f = f};
    GThread *thread;

    fixture_close_objects(f);
    f->block_ids = 8;
    f->cache_bytes = 40000;
    fixture_open_objects(f);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].seed = 4711;
    }
    fixture_faults(f, NULL, "conflicts=100,seed=3");
    thread = g_thread_new("reaper", reap_all_the_time, &reaper);
    run(f, churn, workers);
    g_atomic_int_set((gint *)&reaper.stored, 1);
    g_thread_join(thread);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_int_equal(stored_count(f), 0);
    assert_int_equal(key_count(f, VJ_SPACE_OBJECT) + key_count(f, VJ_SPACE_INDEX), 0);
}

static int teardown(void **state)
{
    Fixture *f = *state;

    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_consistent(f);
    return fixture_teardown(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_equal_content_in_flight_is_put_once),
    TEST(test_a_failed_put_is_not_everybodys),
    TEST(test_churn_against_the_reaper),
};

VJ_TEST_MAIN(tests)
