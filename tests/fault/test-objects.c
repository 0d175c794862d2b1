/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-objects.c - fail the n-th call below, for each n; then nothing is lost or
 * leaked
 *
 * The fixture counts the references whose commits were acknowledged.  After a run with a
 * fault the objects are opened again without it: records, index, store and those counts
 * agree to the byte.
 */
#include "../unit/object/object-fixture.h"

#include "object/object-private.h"

static const VjTransform plain_none;

static void try_reap(Fixture *f)
{
    assert_true(vj_objects_reap_now(f->objects) <= 0);
}

/* A bit of everything; errors are fine, the fixture notes what was acknowledged. */
static void work(Fixture *f)
{
    VjObject a, b, c, out;
    VjPendingObject *pending[2] = {NULL, NULL};
    g_autofree uint8_t *one = content(1, 50000), *two = content(2, 300);
    g_autofree uint8_t *three = content(3, 9000);
    int got_a = put_content(f, one, 50000, &a), got_b = put_content(f, two, 300, &b);
    int got_c;

    (void)put_content(f, one, 50000, &out);
    if (got_a == 0) {
        g_autofree uint8_t *bytes = g_malloc(50000);

        if (vj_object_read(f->objects, &a, 0, bytes, 50000, false) == 0) {
            assert_memory_equal(bytes, one, 50000);
        }
        vj_object_pin(f->objects, a.id);
        if (drop_ref(f, a.id) == 0 && drop_ref(f, a.id) == 0) {
            try_reap(f);
            (void)add_ref(f, a.id, &out);
        }
        vj_object_unpin(f->objects, a.id);
    }
    if (got_b == 0) {
        (void)drop_ref(f, b.id);
    }
    try_reap(f);
    if (store_plain(f->objects, three, 9000, &plain_none, NULL, 0, &pending[0]) == 0 &&
        store_plain(f->objects, two, 300, &plain_none, NULL, 0, &pending[1]) == 0) {
        VjObject both[2];

        (void)commit_pending(f, pending, 2, both);
    }
    vj_pending_free(f->objects, pending[0], false);
    vj_pending_free(f->objects, pending[1], false);
    got_c = store_plain(f->objects, one, 777, &plain_none, NULL, 0, &pending[0]);
    if (got_c == 0) {
        vj_pending_free(f->objects, pending[0], false);
    }
    got_c = put_content(f, three, 9000, &c);
    if (got_c == 0) {
        (void)drop_ref(f, c.id);
    }
}

/* Everything is as the acknowledged commits say, also after the next mount. */
static void judge(Fixture *f)
{
    fixture_faults(f, "", "");
    assert_consistent(f);
    fixture_reopen_objects(f);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_consistent(f);
    assert_int_equal(key_count(f, VJ_SPACE_DEAD), 0);
    assert_int_equal(stored_count(f), key_count(f, VJ_SPACE_OBJECT));
    assert_int_equal(stored_count(f), g_hash_table_size(f->counts));
}

/* Runs work() with the n-th call failing until one run meets no fault; returns
 * how many. */
static unsigned sweep(void **state, const char *store, const char *meta)
{
    for (unsigned n = 1;; n++) {
        g_autofree char *store_faults = store == NULL ? NULL : g_strdup_printf(store, n);
        g_autofree char *meta_faults = meta == NULL ? NULL : g_strdup_printf(meta, n);
        uint64_t calls;
        Fixture *f;

        assert_int_equal(fixture_setup(state), 0);
        f = *state;
        assert_int_equal(vj_objects_reap_now(f->objects), 0);
        fixture_faults(f, store_faults, meta_faults);
        work(f);
        calls =
            store != NULL ? vj_store_fault_calls(f->store) : vj_meta_fault_calls(f->meta);
        judge(f);
        assert_int_equal(fixture_teardown(state), 0);
        if (calls < n) {
            return n - 1;
        }
        assert_true(n < 2000);
    }
}

static void test_store_calls(void **state)
{
    static const char *const faults[] = {
        "kinds=put,errno=ENOSPC,fail=%u",
        "kinds=put,after=yes,fail=%u",
        "kinds=get,fail=%u",
        "kinds=get,errno=EBADMSG,fail=%u",
        "kinds=flush,fail=%u",
        "kinds=remove,fail=%u",
        "kinds=remove,after=yes,fail=%u",
        "kinds=stage,fail=%u",
        "kinds=get,damage=%u",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(faults); i++) {
        assert_true(sweep(state, faults[i], NULL) >= 2);
    }
}

static void test_meta_calls(void **state)
{
    static const char *const faults[] = {
        "kinds=commit,fail=%u", "kinds=commit,errno=ENOSPC,fail=%u",
        "kinds=flush,fail=%u",  "kinds=begin,fail=%u",
        "kinds=put,fail=%u",    "kinds=del,fail=%u",
        "kinds=next,fail=%u",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(faults); i++) {
        assert_true(sweep(state, NULL, faults[i]) >= 2);
    }
}

static void test_meta_gets(void **state)
{
    assert_true(sweep(state, NULL, "kinds=get,fail=%u") >= 10);
}

/* Opening itself, on a volume that the last mount left in the middle of everything. */
static void test_opening(void **state)
{
    for (unsigned n = 1;; n++) {
        g_autofree char *faults = g_strdup_printf("fail=%u", n);
        uint64_t calls;
        Fixture *f;
        VjObjectsConfig config;
        GError *error = NULL;

        assert_int_equal(fixture_setup(state), 0);
        f = *state;
        config = (VjObjectsConfig){
            .meta = f->meta, .store = f->store, .digest = vj_digest_default()};
        fixture_faults(f, "kinds=remove,every=1", NULL);
        work(f);
        fixture_close_objects(f);
        fixture_faults(f, "", faults);
        if (vj_objects_open(&config, &f->objects, &error)) {
            try_reap(f);
            assert_true(vj_objects_close(g_steal_pointer(&f->objects)) <= 0);
        } else {
            assert_null(f->objects);
            vj_test_expect_error(&error, EIO, "blocks of object ids");
        }
        calls = vj_meta_fault_calls(f->meta);
        fixture_faults(f, "", "");
        fixture_open_objects(f);
        judge(f);
        assert_int_equal(fixture_teardown(state), 0);
        if (calls < n) {
            assert_true(n > 10);
            return;
        }
    }
}

static void test_conflicts_change_nothing(void **state)
{
    for (unsigned seed = 1; seed <= 10; seed++) {
        g_autofree char *faults = g_strdup_printf("conflicts=400,seed=%u", seed);
        VjObject object;
        Fixture *f;

        assert_int_equal(fixture_setup(state), 0);
        f = *state;
        fixture_faults(f, NULL, faults);
        for (uint64_t i = 0; i < 20; i++) {
            g_autofree uint8_t *bytes = content(i % 7, 5000);

            must_put(f, bytes, 5000, &object);
            if (i % 3 == 0) {
                assert_int_equal(drop_ref(f, object.id), 0);
            }
        }
        work(f);
        judge(f);
        assert_int_equal(fixture_teardown(state), 0);
    }
}

/* What flush could not make durable is put again under another id. */
static void test_after_a_failed_flush_the_bytes_are_put_again(void **state)
{
    Fixture *f;
    g_autofree uint8_t *bytes = content(1, 5000);
    VjPendingObject *pending[2];
    VjObject out, other;

    assert_int_equal(fixture_setup(state), 0);
    f = *state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            store_plain(f->objects, bytes, 5000, &plain_none, NULL, 0, &pending[i]), 0);
    }
    fixture_faults(f, "kinds=flush,fail=1", NULL);
    assert_int_equal(commit_pending(f, &pending[0], 1, &out), -EIO);
    must_put(f, bytes, 5000, &out); /* does not join what the second still holds */
    assert_int_equal(stats_of(f).puts, 2);
    assert_int_equal(commit_pending(f, &pending[1], 1, &other), 0);
    assert_int_equal(other.id, out.id);
    judge(f);
    assert_int_equal(fixture_teardown(state), 0);
}

/* What a failed write-back leaves, and what could not be removed then, does not stay for
 * ever: a store that lost it would go on failing. */
static void test_a_removal_that_failed_is_tried_again(void **state)
{
    Fixture *f;
    g_autofree uint8_t *bytes = content(1, 5000);
    VjPendingObject *pending;

    assert_int_equal(fixture_setup(state), 0);
    f = *state;
    fixture_faults(f, "kinds=remove,fail=1,times=2", NULL);
    assert_int_equal(store_plain(f->objects, bytes, 5000, &plain_none, NULL, 0, &pending),
                     0);
    vj_pending_free(f->objects, pending, false);
    assert_int_equal(stored_count(f), 1);
    assert_int_equal(vj_objects_flush(f->objects), 0);
    assert_int_equal(stored_count(f), 1);
    assert_int_equal(vj_objects_flush(f->objects), 0);
    assert_int_equal(stored_count(f), 0);
    judge(f);
    assert_int_equal(fixture_teardown(state), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_store_calls),
    cmocka_unit_test(test_meta_calls),
    cmocka_unit_test(test_meta_gets),
    cmocka_unit_test(test_opening),
    cmocka_unit_test(test_conflicts_change_nothing),
    cmocka_unit_test(test_after_a_failed_flush_the_bytes_are_put_again),
    cmocka_unit_test(test_a_removal_that_failed_is_tried_again),
};

VJ_TEST_MAIN(tests)
