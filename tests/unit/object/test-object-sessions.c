/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-sessions.c - sessions that share a volume: what one does to the objects of
 * another, step by step
 */
#include "session-fixture.h"

/* Until @condition; a test that waits for ever is ended by its time limit. */
#define WAIT_UNTIL(condition)                                                            \
    do {                                                                                 \
        g_usleep(500);                                                                   \
    } while (!(condition))

static VjObject must_name(Fixture *f, uint64_t name, uint64_t seed)
{
    VjObject object;
    uint64_t named;

    assert_int_equal(name_content(f, name, seed), 0);
    assert_int_equal(look_up_name(f, name, &object, &named), 0);
    assert_int_equal(named, seed);
    return object;
}

static void finish_pass(Fixture *f)
{
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
}

/* Sees @name under a guard and pins what it names. */
static VjObject pin_name(Fixture *f, uint64_t name)
{
    VjReadGuard guard;
    VjObject object;
    uint64_t seed;

    vj_objects_guard_enter(f->objects, &guard);
    assert_int_equal(look_up_name(f, name, &object, &seed), 0);
    vj_object_pin(f->objects, object.id);
    vj_objects_guard_leave(f->objects, &guard);
    return object;
}

/* ---- sharing ----------------------------------------------------------------------- */

static void test_equal_content_of_two_sessions_is_one_object(void **state)
{
    World *w = *state;
    VjObject a = must_name(w->s[0], 1, 7), b = must_name(w->s[1], 2, 7);

    assert_int_equal(a.id, b.id);
    assert_int_equal(b.refs, 2);
    assert_int_equal(stats_of(w->s[1]).index_hits, 1);
    assert_int_equal(read_content(w->s[2], &b, 7), 0);
    assert_int_equal(unname(w->s[1], 1), 0);
    finish_pass(w->s[1]);
    assert_int_equal(read_content(w->s[0], &b, 7), 0);
    assert_int_equal(unname(w->s[0], 2), 0);
    finish_pass(w->s[2]);
    assert_int_equal(stored_count(w->s[0]), 0);
}

/* Both have put it before one commits. */
static void test_the_loser_of_two_puts_takes_the_winner(void **state)
{
    World *w = *state;
    VjPendingObject *pending[2];
    VjObject out[2];

    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(store_content(w->s[i], 7, &pending[i]), 0);
        assert_true(vj_pending_is_put(pending[i]));
    }
    assert_int_equal(stored_count(w->s[0]), 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(name_pending(w->s[i], i, 7, pending[i], &out[i]), 0);
    }
    assert_int_equal(out[1].id, out[0].id);
    assert_int_equal(out[1].refs, 2);
    assert_int_equal(stored_count(w->s[0]), 1); /* the loser's bytes are gone */
    assert_int_equal(read_content(w->s[1], &out[1], 7), 0);
}

static gpointer name_thread(gpointer opaque)
{
    Fixture *f = opaque;

    for (uint64_t i = 0; i < 200; i++) {
        uint64_t name = session_number(f) * 1000 + i % 10;

        g_assert(name_content(f, name, i) == 0);
    }
    return NULL;
}

static void test_equal_content_at_the_same_time(void **state)
{
    World *w = *state;
    GThread *threads[SESSIONS];

    for (unsigned i = 0; i < SESSIONS; i++) {
        threads[i] = g_thread_new("namer", name_thread, w->s[i]);
    }
    for (unsigned i = 0; i < SESSIONS; i++) {
        g_thread_join(threads[i]);
    }
    finish_pass(w->s[0]);
    assert_world_consistent(w->s[0]);
    assert_int_equal(stored_count(w->s[0]), 10);
}

/* The second finds the bytes damaged; the first believes that it knows them. */
static void test_what_one_condemns_no_other_shares(void **state)
{
    World *w = *state;
    VjObject bad = must_name(w->s[0], 1, 7), good, seen;
    VjPendingObject *pending;

    assert_int_equal(store_content(w->s[0], 7, &pending), 0);
    assert_false(vj_pending_is_put(pending));
    fixture_faults(w->s[1], "kinds=get,damage=1", NULL);
    good = must_name(w->s[1], 2, 7);
    fixture_faults(w->s[1], "", NULL);
    assert_true(good.id != bad.id);
    assert_int_equal(name_pending(w->s[0], 3, 7, pending, &seen), 0);
    assert_int_equal(seen.id, good.id);
    seen = must_name(w->s[0], 4, 7);
    assert_int_equal(seen.id, good.id);
    assert_int_equal(get_object(w->s[0], bad.id, &seen), 0);
    assert_int_equal(seen.flags, VJ_OBJECT_DAMAGED | VJ_OBJECT_UNINDEXED);
    assert_int_equal(unname(w->s[0], 1), 0);
    finish_pass(w->s[0]); /* its bytes are whole, a check would say so */
}

/* ---- removal ----------------------------------------------------------------------- */

static void test_a_guard_of_another_session_keeps_what_it_sees(void **state)
{
    World *w = *state;
    VjObject object = must_name(w->s[0], 1, 7), seen;
    unsigned before;
    VjReadGuard guard;
    uint64_t seed;
    GThread *pass;

    finish_pass(w->s[0]);
    before = parity_of(w->s[1]);
    vj_objects_guard_enter(w->s[1]->objects, &guard);
    assert_int_equal(look_up_name(w->s[1], 1, &seen, &seed), 0);
    assert_int_equal(unname(w->s[0], 1), 0);
    pass = begin_pass(w->s[0]);
    wait_for_other_parity(w->s[1], before); /* it has heard of the pass */
    assert_int_equal(stored_count(w->s[0]), 1);
    assert_int_equal(read_content(w->s[1], &seen, 7), 0);
    vj_objects_guard_leave(w->s[1]->objects, &guard);
    end_pass(pass, 0);
    assert_int_equal(stored_count(w->s[0]), 0);
    assert_int_equal(get_object(w->s[1], object.id, &seen), -ENOENT);
}

static void test_a_younger_guard_of_another_session_delays_nothing(void **state)
{
    World *w = *state;
    VjReadGuard older, younger;
    unsigned before;
    GThread *pass;

    (void)must_name(w->s[0], 1, 7);
    finish_pass(w->s[0]);
    assert_int_equal(unname(w->s[0], 1), 0);
    before = parity_of(w->s[1]);
    vj_objects_guard_enter(w->s[1]->objects, &older);
    pass = begin_pass(w->s[0]);
    wait_for_other_parity(w->s[1], before);
    vj_objects_guard_enter(w->s[1]->objects, &younger);
    vj_objects_guard_leave(w->s[1]->objects, &older);
    end_pass(pass, 0);
    assert_int_equal(stored_count(w->s[0]), 0);
    vj_objects_guard_leave(w->s[1]->objects, &younger);
}

static void test_a_pin_of_another_session_holds(void **state)
{
    World *w = *state;
    VjObject object, seen;

    (void)must_name(w->s[0], 1, 7);
    object = pin_name(w->s[1], 1);
    assert_int_equal(unname(w->s[0], 1), 0);
    finish_pass(w->s[0]);
    finish_pass(w->s[2]);
    assert_int_equal(stored_count(w->s[0]), 1);
    assert_int_equal(key_count(w->s[0], VJ_SPACE_DEAD), 1);
    assert_int_equal(get_object(w->s[1], object.id, &seen), 0);
    assert_int_equal(seen.flags, 0);
    assert_int_equal(read_content(w->s[1], &seen, 7), 0);
    vj_object_unpin(w->s[1]->objects, object.id); /* this alone lets it go */
    WAIT_UNTIL(stored_count(w->s[0]) == 0);
    WAIT_UNTIL(key_count(w->s[0], VJ_SPACE_CLAIM) == 0);
}

static void test_a_pin_of_another_session_revives(void **state)
{
    World *w = *state;
    VjObject object, seen;
    uint64_t seed;

    (void)must_name(w->s[0], 1, 7);
    object = pin_name(w->s[1], 1);
    assert_int_equal(unname(w->s[0], 1), 0);
    finish_pass(w->s[0]);
    assert_int_equal(name_object(w->s[1], 2, object.id, 7), 0);
    vj_object_unpin(w->s[1]->objects, object.id);
    finish_pass(w->s[1]);
    finish_pass(w->s[0]);
    assert_int_equal(look_up_name(w->s[0], 2, &seen, &seed), 0);
    assert_int_equal(seen.id, object.id);
    assert_int_equal(read_content(w->s[0], &seen, 7), 0);
}

/* The first has begun to remove it: nobody gets it any more, by whatever way. */
static void test_what_one_session_removes_no_other_revives(void **state)
{
    World *w = *state;
    VjObject object = must_name(w->s[0], 1, 7), seen;

    assert_int_equal(unname(w->s[0], 1), 0);
    fixture_faults(w->s[0], "kinds=remove,every=1", NULL);
    assert_int_equal(vj_objects_reap_now(w->s[0]->objects), -EIO);
    assert_int_equal(get_object(w->s[1], object.id, &seen), 0);
    assert_int_equal(seen.flags, VJ_OBJECT_REMOVING);
    assert_int_equal(name_object(w->s[1], 2, object.id, 7), -ESTALE);
    seen = must_name(w->s[1], 3, 7);
    assert_true(seen.id != object.id);
    finish_pass(w->s[1]); /* goes on where the first could not */
    assert_int_equal(stored_count(w->s[0]), 1);
    fixture_faults(w->s[0], "", NULL);
    finish_pass(w->s[0]);
}

typedef struct Race {
    World *w;
    gint stop; /* atomic */
} Race;

static gpointer reap_again_and_again(gpointer opaque)
{
    Race *r = opaque;

    while (!g_atomic_int_get(&r->stop)) {
        g_assert(vj_objects_reap_now(r->w->s[0]->objects) == 0);
    }
    return NULL;
}

typedef struct Unnamed {
    World *w;
    uint64_t name;
    VjObject object;
    unsigned runs;
} Unnamed;

static int ref_unnamed_body(VjTxn *txn, void *opaque)
{
    Unnamed *u = opaque;
    VjObject out;
    VjIndexKey key;
    uint64_t id;
    int rc;

    vj_index_key_of(&u->object, &key);
    rc = vj_index_get(txn, &key, &id);
    if (u->runs++ == 0) {
        assert_int_equal(rc, 0);
        assert_int_equal(unname(u->w->s[0], u->name), 0);
    }
    rc = vj_object_ref(txn, u->object.id, &out);
    return rc == 0 ? vj_object_unref(txn, out.id, &out) : rc;
}

/* It dies between two reads of one transaction, which then sees records that do not
 * agree, and runs again. */
static void test_reviving_what_dies_meanwhile(void **state)
{
    World *w = *state;
    Unnamed u = {.w = w, .name = 1, .object = must_name(w->s[0], 1, 7)};
    VjObject seen;

    assert_int_equal(session_close(g_steal_pointer(&w->s[1])), 0);
    w->s[1] = session_open(w, "b", "latency:us=0,watch=none");
    vj_object_pin(w->s[1]->objects, u.object.id);
    assert_int_equal(vj_meta_run(w->s[1]->meta, VJ_RUN_DEFAULT, ref_unnamed_body, &u), 0);
    assert_int_equal(u.runs, 2);
    assert_int_equal(get_object(w->s[1], u.object.id, &seen), 0);
    assert_int_equal(seen.refs, 0);
    assert_int_equal(seen.flags, 0);
    vj_object_unpin(w->s[1]->objects, u.object.id);
    assert_world_consistent(w->s[0]);
    finish_pass(w->s[0]);
    assert_int_equal(stored_count(w->s[0]), 0);
}

/* The second session pins what the third lets die, and revives it, while the first marks
 * what is dead as being removed. */
static void test_reviving_beside_a_reaper(void **state)
{
    World *w = *state;
    Race r = {.w = w};
    GThread *reaper = g_thread_new("reaper", reap_again_and_again, &r);

    for (uint64_t i = 0; i < 150; i++) {
        VjObject object, seen;
        uint64_t seed;

        (void)must_name(w->s[2], 1, i);
        object = pin_name(w->s[1], 1);
        assert_int_equal(unname(w->s[2], 1), 0);
        assert_int_equal(read_content(w->s[1], &object, i), 0);
        if (i % 3 > 0) {
            assert_int_equal(name_object(w->s[1], 2, object.id, i), 0);
        }
        vj_object_unpin(w->s[1]->objects, object.id);
        if (i % 3 > 0) {
            assert_int_equal(look_up_name(w->s[2], 2, &seen, &seed), 0);
            assert_int_equal(seen.id, object.id);
            assert_int_equal(unname(w->s[2], 2), 0);
        }
    }
    g_atomic_int_set(&r.stop, 1);
    g_thread_join(reaper);
    WAIT_UNTIL(stored_count(w->s[0]) == 0);
}

static gpointer die_and_reap(gpointer opaque)
{
    Fixture *f = opaque;

    for (uint64_t i = 0; i < 50; i++) {
        g_assert(name_content(f, session_number(f), i) == 0);
        g_assert(unname(f, session_number(f)) == 0);
        g_assert(vj_objects_reap_now(f->objects) == 0);
    }
    return NULL;
}

static void test_reapers_take_turns(void **state)
{
    World *w = *state;
    GThread *threads[SESSIONS];
    uint64_t removed = 0, puts = 0;

    for (unsigned i = 0; i < SESSIONS; i++) {
        threads[i] = g_thread_new("reaper", die_and_reap, w->s[i]);
    }
    for (unsigned i = 0; i < SESSIONS; i++) {
        g_thread_join(threads[i]);
    }
    for (unsigned i = 0; i < SESSIONS; i++) {
        removed += stats_of(w->s[i]).removed;
        puts += stats_of(w->s[i]).puts;
    }
    assert_int_equal(stored_count(w->s[0]), 0);
    assert_int_equal(removed, puts); /* each by one of them */
}

/* ---- sessions that come, go and end ------------------------------------------------ */

static void test_a_session_that_begins_later_is_not_in_the_way(void **state)
{
    World *w = *state;
    VjReadGuard guard;
    GThread *pass;

    assert_int_equal(session_close(g_steal_pointer(&w->s[2])), 0);
    (void)must_name(w->s[0], 1, 7);
    finish_pass(w->s[0]);
    assert_int_equal(unname(w->s[0], 1), 0);
    vj_objects_guard_enter(w->s[1]->objects, &guard);
    pass = begin_pass(w->s[0]);
    w->s[2] = session_open(w, "late", NULL);
    vj_objects_guard_leave(w->s[1]->objects, &guard);
    end_pass(pass, 0);
    assert_int_equal(stored_count(w->s[0]), 0);
}

/* A pass waits for a guard of another session; closing does not wait for that. */
static void test_closing_ends_a_pass_that_waits_for_others(void **state)
{
    World *w = *state;
    VjReadGuard guard;
    unsigned before, other;

    (void)must_name(w->s[0], 1, 7);
    finish_pass(w->s[0]);
    vj_objects_guard_enter(w->s[1]->objects, &guard);
    before = parity_of(w->s[0]);
    other = parity_of(w->s[1]);
    assert_int_equal(unname(w->s[0], 1), 0);
    wait_for_other_parity(w->s[0], before);
    wait_for_other_parity(w->s[1], other);
    assert_int_equal(session_close(g_steal_pointer(&w->s[0])), 0);
    assert_int_equal(stored_count(w->s[1]), 1);
    vj_objects_guard_leave(w->s[1]->objects, &guard);
    finish_pass(w->s[2]); /* the claim is free */
    assert_int_equal(stored_count(w->s[1]), 0);
}

/* The same of its own guard, which is another thread's. */
static void test_closing_ends_publishing_that_waits(void **state)
{
    World *w = *state;
    VjReadGuard guard;
    unsigned before;
    GThread *pass;

    (void)must_name(w->s[0], 1, 7);
    finish_pass(w->s[0]);
    vj_objects_guard_enter(w->s[1]->objects, &guard);
    before = parity_of(w->s[1]);
    assert_int_equal(unname(w->s[0], 1), 0);
    pass = begin_pass(w->s[0]);
    wait_for_other_parity(w->s[1], before);
    assert_int_equal(vj_dead_stop(w->s[1]->objects), 0);
    vj_objects_guard_leave(w->s[1]->objects, &guard);
    assert_int_equal(session_close(g_steal_pointer(&w->s[1])), 0);
    end_pass(pass, 0);
    assert_int_equal(stored_count(w->s[0]), 0);
}

static void test_a_session_that_ends_leaves_what_it_committed(void **state)
{
    World *w = *state;
    VjObject committed = must_name(w->s[1], 1, 7), held, out;
    VjPendingObject *pending;
    uint64_t id = session_number(w->s[1]);

    (void)must_name(w->s[0], 2, 8);
    held = pin_name(w->s[1], 2);
    assert_int_equal(store_content(w->s[1], 9, &pending), 0);
    assert_true(vj_pending_is_put(pending));
    assert_int_equal(unname(w->s[0], 2), 0);
    finish_pass(w->s[0]);
    assert_int_equal(stored_count(w->s[0]), 3);
    assert_int_equal(collect_garbage(w->s[0]), 0); /* it lives: it may commit that */

    shut_out(w->s[0], id);
    assert_int_equal(release_ended(w->s[0], id), 0);
    assert_int_equal(release_ended(w->s[2], id), 0); /* again */
    finish_pass(w->s[0]);
    assert_int_equal(stored_count(w->s[0]), 1);
    assert_int_equal(read_content(w->s[2], &committed, 7), 0);

    /* It goes on for a while, and hears of nothing but errors. */
    assert_int_equal(name_pending(w->s[1], 3, 9, pending, &out), -ESTALE);
    assert_int_equal(name_content(w->s[1], 4, 10), -ESTALE);
    assert_int_equal(unname(w->s[1], 1), -ESTALE);
    vj_object_unpin(w->s[1]->objects, held.id);
    assert_true(session_close(g_steal_pointer(&w->s[1])) < 0);
    assert_world_consistent(w->s[0]);
    assert_int_equal(read_content(w->s[2], &committed, 7), 0);
}

/* The second is the reaper, and ends while it waits for the third. */
static void test_the_claim_passes_on_when_its_holder_ends(void **state)
{
    World *w = *state;
    uint64_t id = session_number(w->s[1]);
    VjReadGuard guard;
    GThread *pass;

    (void)must_name(w->s[0], 1, 7);
    finish_pass(w->s[0]);
    vj_objects_guard_enter(w->s[2]->objects, &guard);
    assert_int_equal(unname(w->s[0], 1), 0);
    pass = begin_pass(w->s[1]);
    WAIT_UNTIL(key_count(w->s[0], VJ_SPACE_CLAIM) > 0);
    shut_out(w->s[0], id);
    end_pass(pass, -ESTALE);
    vj_objects_guard_leave(w->s[2]->objects, &guard);
    finish_pass(w->s[0]);
    assert_int_equal(stored_count(w->s[0]), 0);
    assert_int_equal(release_ended(w->s[2], id), 0);
    assert_true(session_close(g_steal_pointer(&w->s[1])) < 0);
}

/* A session that does not answer because it has ended is not waited for. */
static void test_a_pass_goes_on_when_who_it_waits_for_ends(void **state)
{
    World *w = *state;
    uint64_t id = session_number(w->s[1]);
    VjReadGuard guard;
    unsigned before;
    GThread *pass;

    (void)must_name(w->s[0], 1, 7);
    finish_pass(w->s[0]);
    before = parity_of(w->s[1]);
    vj_objects_guard_enter(w->s[1]->objects, &guard);
    assert_int_equal(unname(w->s[0], 1), 0);
    pass = begin_pass(w->s[0]);
    wait_for_other_parity(w->s[1], before);
    shut_out(w->s[2], id);
    end_pass(pass, 0);
    assert_int_equal(stored_count(w->s[0]), 0);
    assert_int_equal(release_ended(w->s[0], id), 0);
    vj_objects_guard_leave(w->s[1]->objects, &guard);
    assert_true(session_close(g_steal_pointer(&w->s[1])) < 0);
}

/* Without word of changes it takes about a second. */
static void test_epochs_are_seen_without_word_of_them(void **state)
{
    World *w = *state;
    VjObject object;

    vj_meta_listen(w->s[1]->meta, NULL, NULL);
    vj_meta_listen(w->s[2]->meta, NULL, NULL);
    (void)must_name(w->s[0], 1, 7);
    object = pin_name(w->s[1], 1);
    assert_int_equal(unname(w->s[0], 1), 0);
    finish_pass(w->s[0]);
    assert_int_equal(stored_count(w->s[0]), 1);
    vj_object_unpin(w->s[1]->objects, object.id);
    WAIT_UNTIL(stored_count(w->s[0]) == 0);
}

static void test_who_only_reads_is_refused_by_name(void **state)
{
    World *w = *state;
    VjObjectsConfig config = {.meta = w->s[0]->meta,
                              .store = w->s[0]->store,
                              .digest = vj_digest_default(),
                              .read_only = true};
    GError *error = NULL;
    VjObjects *o;

    assert_false(vj_objects_open(&config, &o, &error));
    assert_null(o);
    vj_test_expect_error(&error, EOPNOTSUPP, "beside other sessions");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_equal_content_of_two_sessions_is_one_object),
    TEST(test_the_loser_of_two_puts_takes_the_winner),
    TEST(test_equal_content_at_the_same_time),
    TEST(test_what_one_condemns_no_other_shares),
    TEST(test_a_guard_of_another_session_keeps_what_it_sees),
    TEST(test_a_younger_guard_of_another_session_delays_nothing),
    TEST(test_a_pin_of_another_session_holds),
    TEST(test_a_pin_of_another_session_revives),
    TEST(test_what_one_session_removes_no_other_revives),
    TEST(test_reviving_what_dies_meanwhile),
    TEST(test_reviving_beside_a_reaper),
    TEST(test_reapers_take_turns),
    TEST(test_a_session_that_begins_later_is_not_in_the_way),
    TEST(test_closing_ends_a_pass_that_waits_for_others),
    TEST(test_closing_ends_publishing_that_waits),
    TEST(test_a_session_that_ends_leaves_what_it_committed),
    TEST(test_the_claim_passes_on_when_its_holder_ends),
    TEST(test_a_pass_goes_on_when_who_it_waits_for_ends),
    TEST(test_epochs_are_seen_without_word_of_them),
    TEST(test_who_only_reads_is_refused_by_name),
};

VJ_TEST_MAIN(tests)
