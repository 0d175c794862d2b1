/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-reap.c - when the dead may go: guards, pins, revivals, failures
 */
#include "object-fixture.h"

#include "object/object-private.h"

static gpointer reap_thread(gpointer opaque)
{
    return GINT_TO_POINTER(vj_objects_reap_now(opaque));
}

/* Starts a pass and returns when it waits for the guards that are inside now. */
static GThread *begin_pass(Fixture *f)
{
    VjDead *d = &f->objects->dead;
    unsigned before, now;
    GThread *thread;

    vj_mutex_lock(&d->lock);
    before = d->epoch;
    vj_mutex_unlock(&d->lock);
    thread = g_thread_new("reap", reap_thread, f->objects);
    do {
        g_thread_yield();
        vj_mutex_lock(&d->lock);
        now = d->epoch;
        vj_mutex_unlock(&d->lock);
    } while (now == before);
    return thread;
}

static void end_pass(GThread *thread)
{
    assert_int_equal(GPOINTER_TO_INT(g_thread_join(thread)), 0);
}

/* The pass that open starts is over: no other one comes in between. */
static void finish_pass(Fixture *f)
{
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
}

static void test_a_guard_keeps_what_its_snapshot_names(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object, seen;
    GThread *pass;
    VjReadGuard guard;

    must_put(f, bytes, 9000, &object);
    finish_pass(f);
    vj_objects_guard_enter(f->objects, &guard);
    assert_int_equal(get_object(f, object.id, &seen), 0);
    assert_int_equal(drop_ref(f, object.id), 0);
    pass = begin_pass(f);
    assert_content(f, &seen, bytes);
    assert_int_equal(stored_count(f), 1);
    vj_objects_guard_leave(f->objects, &guard);
    end_pass(pass);
    assert_int_equal(stored_count(f), 0);
}

static void test_a_pin_taken_under_the_guard_outlives_it(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object, seen;
    GThread *pass;
    VjReadGuard guard;

    must_put(f, bytes, 9000, &object);
    finish_pass(f);
    vj_objects_guard_enter(f->objects, &guard);
    assert_int_equal(get_object(f, object.id, &seen), 0);
    assert_int_equal(drop_ref(f, object.id), 0);
    pass = begin_pass(f);
    vj_object_pin(f->objects, object.id);
    vj_objects_guard_leave(f->objects, &guard);
    end_pass(pass);
    assert_content(f, &seen, bytes);
    vj_object_unpin(f->objects, object.id);
    finish_pass(f);
    assert_int_equal(stored_count(f), 0);
}

static void test_a_younger_guard_does_not_delay_the_pass(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object;
    VjReadGuard older, younger;
    GThread *pass;

    must_put(f, bytes, 9000, &object);
    finish_pass(f);
    vj_objects_guard_enter(f->objects, &older);
    assert_int_equal(drop_ref(f, object.id), 0);
    pass = begin_pass(f);
    vj_objects_guard_enter(f->objects, &younger);
    vj_objects_guard_leave(f->objects, &older);
    end_pass(pass);
    assert_int_equal(stored_count(f), 0);
    vj_objects_guard_leave(f->objects, &younger);
}

/*
 * The reaper saw the object dead; a pin revives it, a younger reader sees it alive, it
 * dies again: the first death must not be the one that removes it.
 */
static void test_a_second_death_waits_for_its_own_readers(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object, seen;
    VjReadGuard older, younger;
    GThread *pass;

    must_put(f, bytes, 9000, &object);
    finish_pass(f);
    vj_object_pin(f->objects, object.id);
    vj_objects_guard_enter(f->objects, &older);
    assert_int_equal(drop_ref(f, object.id), 0);
    pass = begin_pass(f);

    assert_int_equal(add_ref(f, object.id, &seen), 0);
    assert_int_equal(seen.refs, 1);
    assert_int_equal(seen.deaths, 1);
    vj_objects_guard_enter(f->objects, &younger);
    assert_int_equal(get_object(f, object.id, &seen), 0);
    assert_int_equal(seen.refs, 1);
    vj_object_unpin(f->objects, object.id);
    assert_int_equal(drop_ref(f, object.id), 0);

    vj_objects_guard_leave(f->objects, &older);
    end_pass(pass);
    assert_int_equal(stored_count(f), 1);
    vj_object_pin(f->objects, object.id);
    vj_objects_guard_leave(f->objects, &younger);
    assert_content(f, &seen, bytes);
    vj_object_unpin(f->objects, object.id);
    finish_pass(f);
    assert_int_equal(stored_count(f), 0);
}

static void test_a_revived_object_gives_way_to_its_successor(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject old, new, seen;

    must_put(f, bytes, 9000, &old);
    vj_object_pin(f->objects, old.id);
    assert_int_equal(drop_ref(f, old.id), 0);
    must_put(f, bytes, 9000, &new); /* the index does not know the dead */
    assert_true(new.id != old.id);
    assert_int_equal(add_ref(f, old.id, &seen), 0);
    assert_true((seen.flags & VJ_OBJECT_UNINDEXED) != 0);
    vj_object_unpin(f->objects, old.id);
    assert_consistent(f);
    must_put(f, bytes, 9000, &seen);
    assert_int_equal(seen.id, new.id);
    assert_int_equal(drop_ref(f, old.id),
                     0); /* leaves the successor's index entry alone */
    finish_pass(f);
    must_put(f, bytes, 9000, &seen);
    assert_int_equal(seen.id, new.id);
    assert_int_equal(seen.refs, 3);
}

static void test_fresh_content_revives_what_died_meanwhile(void **state)
{
    Fixture *f = *state;
    const VjTransform want = {0};
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object, out;
    VjPendingObject *pending;

    must_put(f, bytes, 9000, &object);
    assert_int_equal(store_plain(f->objects, bytes, 9000, &want, NULL, 0, &pending), 0);
    assert_false(vj_pending_is_put(pending));
    assert_int_equal(drop_ref(f, object.id), 0);
    finish_pass(f);
    assert_int_equal(stored_count(f), 1);
    assert_int_equal(commit_pending(f, &pending, 1, &out), 0);
    assert_int_equal(out.id, object.id);
    assert_int_equal(out.refs, 1);
    assert_content(f, &out, bytes);
}

typedef struct Rival {
    Fixture *f;
    VjPendingObject *pending;
    VjObject own, out;
} Rival;

/* Another mount commits equal content: written by hand, since one mount puts it once. */
static int rival_body(VjTxn *txn, void *opaque)
{
    Rival *r = opaque;

    return vj_object_create(r->f->objects, txn, &r->own, &r->out);
}

static void test_the_loser_of_a_commit_takes_the_winner(void **state)
{
    Fixture *f = *state;
    const VjTransform want = {0};
    g_autofree uint8_t *bytes = content(3, 9000), *stored = NULL;
    Rival r = {.f = f};
    struct iovec iov;
    VjObject out;
    gint64 *refs;
    guint64 id;
    VjPut put;

    assert_int_equal(store_plain(f->objects, bytes, 9000, &want, NULL, 0, &r.pending), 0);
    assert_int_equal(commit_pending(f, &r.pending, 1, &r.own), 0);
    stored = g_malloc(r.own.stored_bytes);
    assert_int_equal(
        vj_store_get(f->store, r.own.id, r.own.loc, 0, stored, r.own.stored_bytes), 0);
    assert_int_equal(drop_ref(f, r.own.id), 0);
    finish_pass(f);
    assert_int_equal(stored_count(f), 0);

    assert_int_equal(store_plain(f->objects, bytes, 9000, &want, NULL, 0, &r.pending), 0);
    assert_int_equal(vj_id_take(f->objects, &r.own.id), 0);
    iov = (struct iovec){.iov_base = stored, .iov_len = r.own.stored_bytes};
    assert_int_equal(vj_store_put(f->store, r.own.id, &iov, 1, &put), 0);
    r.own.loc = put.loc;
    r.own.refs = 0;
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, rival_body, &r), 0);
    vj_id_resolve(f->objects, r.own.id, false);
    refs = g_new(gint64, 1);
    *refs = 1;
    id = r.own.id;
    g_hash_table_insert(f->counts, g_memdup2(&id, sizeof id), refs);
    assert_int_equal(stored_count(f), 2);

    assert_int_equal(commit_pending(f, &r.pending, 1, &out), 0);
    assert_int_equal(out.id, r.own.id);
    assert_int_equal(out.refs, 2);
    assert_int_equal(stored_count(f), 1); /* the loser's bytes are gone */
    assert_content(f, &out, bytes);
}

static void test_the_dead_of_the_last_mount_are_removed(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object;

    must_put(f, bytes, 9000, &object);
    finish_pass(f);
    assert_int_equal(drop_ref(f, object.id), 0);
    fixture_close_objects(f);
    assert_int_equal(key_count(f, VJ_SPACE_DEAD), 1);
    fixture_open_objects(f);
    finish_pass(f);
    assert_int_equal(stored_count(f), 0);
}

static void test_many_die_in_batches(void **state)
{
    enum { MANY = 600 };
    Fixture *f = *state;
    g_autofree VjObject *objects = g_new(VjObject, MANY);

    for (int i = 0; i < MANY; i++) {
        g_autofree uint8_t *bytes = content(1000 + (uint64_t)i, 100);

        must_put(f, bytes, 100, &objects[i]);
    }
    vj_object_pin(f->objects, objects[10].id);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(drop_ref(f, objects[i].id), 0);
    }
    finish_pass(f);
    assert_int_equal(stored_count(f), 1);
    vj_object_unpin(f->objects, objects[10].id); /* this alone wakes the reaper */
    while (stored_count(f) > 0) {
        g_usleep(1000);
    }
}

static void test_what_cannot_be_removed_stays_dead(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object;

    must_put(f, bytes, 9000, &object);
    finish_pass(f);
    assert_int_equal(drop_ref(f, object.id), 0);
    fixture_faults(f, NULL, "kinds=flush,every=1");
    assert_int_equal(vj_objects_reap_now(f->objects), -EIO);
    assert_int_equal(stored_count(f), 1); /* its death may not survive a crash */
    fixture_faults(f, "", "kinds=commit,every=1");
    assert_int_equal(vj_objects_reap_now(f->objects), -EIO);
    assert_int_equal(stored_count(f), 1); /* no record says that its bytes go */
    fixture_faults(f, "kinds=remove,every=1", "");
    assert_int_equal(vj_objects_reap_now(f->objects), -EIO);
    assert_int_equal(stored_count(f), 1);
    fixture_faults(f, "", "kinds=commit,fail=2");
    assert_int_equal(vj_objects_reap_now(f->objects), -EIO);
    assert_int_equal(stored_count(f), 0);
    assert_int_equal(key_count(f, VJ_SPACE_DEAD), 1);
    fixture_faults(f, NULL, "");
    finish_pass(f); /* removing twice is fine */
    assert_int_equal(key_count(f, VJ_SPACE_DEAD), 0);
}

static void test_a_record_says_that_its_bytes_go_before_they_do(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object, seen;

    must_put(f, bytes, 9000, &object);
    finish_pass(f);
    assert_int_equal(drop_ref(f, object.id), 0);
    assert_int_equal(get_object(f, object.id, &seen), 0);
    assert_int_equal(seen.flags, 0);
    fixture_faults(f, "kinds=remove,every=1", NULL);
    assert_int_equal(vj_objects_reap_now(f->objects), -EIO);
    assert_int_equal(stored_count(f), 1);
    assert_int_equal(get_object(f, object.id, &seen), 0);
    assert_int_equal(seen.flags, VJ_OBJECT_REMOVING);
    assert_int_equal(seen.deaths, 1);
    fixture_faults(f, "", NULL);
    finish_pass(f);
    assert_int_equal(stored_count(f), 0);
}

static int mark_removing_body(VjTxn *txn, void *opaque)
{
    VjObject object;
    int rc = vj_object_get(txn, *(const uint64_t *)opaque, &object);

    if (rc == 0) {
        object.flags |= VJ_OBJECT_REMOVING;
        rc = vj_object_record_put(txn, VJ_SPACE_DEAD, &object);
    }
    return rc;
}

/* As the reaper of another session does it, or one that a crash ended. */
static void mark_removing(Fixture *f, uint64_t id)
{
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, mark_removing_body, &id), 0);
}

static void test_nothing_revives_what_is_being_removed(void **state)
{
    Fixture *f = *state;
    const VjTransform want = {0};
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object, out;
    VjPendingObject *pending;

    must_put(f, bytes, 9000, &object);
    finish_pass(f);
    assert_int_equal(store_plain(f->objects, bytes, 9000, &want, NULL, 0, &pending), 0);
    assert_false(vj_pending_is_put(pending));
    assert_int_equal(drop_ref(f, object.id), 0);
    mark_removing(f, object.id);
    assert_int_equal(add_ref(f, object.id, &out), -ESTALE);
    assert_int_equal(commit_pending(f, &pending, 1, &out), -ESTALE);
    must_put(f, bytes, 9000, &out); /* so the caller stores it again */
    assert_true(out.id != object.id);
    assert_content(f, &out, bytes);
    finish_pass(f);
    assert_int_equal(stored_count(f), 1);
}

static void test_what_a_crash_left_half_removed_is_removed_again(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000), *others = content(4, 9000);
    VjObject gone, whole;

    must_put(f, bytes, 9000, &gone);
    must_put(f, others, 9000, &whole);
    finish_pass(f);
    assert_int_equal(drop_ref(f, gone.id), 0);
    assert_int_equal(drop_ref(f, whole.id), 0);
    fixture_close_objects(f);
    mark_removing(f, gone.id);
    mark_removing(f, whole.id);
    assert_int_equal(vj_store_remove(f->store, gone.id, gone.loc), 0);
    fixture_open_objects(f);
    finish_pass(f);
    assert_int_equal(stored_count(f), 0);
    assert_int_equal(key_count(f, VJ_SPACE_DEAD), 0);
}

static void
test_a_failed_removal_of_abandoned_bytes_is_left_to_the_next_mount(void **state)
{
    Fixture *f = *state;
    const VjTransform want = {0};
    g_autofree uint8_t *bytes = content(3, 9000);
    VjPendingObject *pending;

    assert_int_equal(store_plain(f->objects, bytes, 9000, &want, NULL, 0, &pending), 0);
    fixture_faults(f, "kinds=remove,every=1", NULL);
    vj_pending_free(f->objects, pending, false);
    fixture_faults(f, "", NULL);
    assert_int_equal(stored_count(f), 1);
    assert_consistent(f); /* in an open id block: no leak */
    fixture_reopen_objects(f);
    assert_int_equal(stored_count(f), 0);
}

static int teardown(void **state)
{
    Fixture *f = *state;

    finish_pass(f);
    assert_consistent(f);
    fixture_close_objects(f);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), 0);
    assert_int_equal(key_count(f, VJ_SPACE_DEAD), 0);
    return fixture_teardown(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_a_guard_keeps_what_its_snapshot_names),
    TEST(test_a_pin_taken_under_the_guard_outlives_it),
    TEST(test_a_younger_guard_does_not_delay_the_pass),
    TEST(test_a_second_death_waits_for_its_own_readers),
    TEST(test_a_revived_object_gives_way_to_its_successor),
    TEST(test_fresh_content_revives_what_died_meanwhile),
    TEST(test_the_loser_of_a_commit_takes_the_winner),
    TEST(test_the_dead_of_the_last_mount_are_removed),
    TEST(test_many_die_in_batches),
    TEST(test_what_cannot_be_removed_stays_dead),
    TEST(test_a_record_says_that_its_bytes_go_before_they_do),
    TEST(test_nothing_revives_what_is_being_removed),
    TEST(test_what_a_crash_left_half_removed_is_removed_again),
    TEST(test_a_failed_removal_of_abandoned_bytes_is_left_to_the_next_mount),
};

VJ_TEST_MAIN(tests)
