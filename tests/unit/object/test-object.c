/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object.c - objects: round trip, sharing, references, death, removal
 */
#include "object-fixture.h"

static const VjTransform plain_none;

static void test_round_trip_of_lengths(void **state)
{
    static const uint32_t lengths[] = {1,     2,     4095,  4096,   4097,
                                       32768, 32769, 65536, 262145, 1048576};
    Fixture *f = *state;

    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        g_autofree uint8_t *bytes = content(i + 1, lengths[i]);
        VjObject object;

        must_put(f, bytes, lengths[i], &object);
        assert_int_equal(object.refs, 1);
        assert_int_equal(object.plain_bytes, lengths[i]);
        assert_content(f, &object, bytes);
        for (uint32_t start = 0; start < lengths[i]; start += 1 + lengths[i] / 7) {
            uint32_t len = MIN(lengths[i] - start, 5000);
            g_autofree uint8_t *got = g_malloc(len);

            assert_int_equal(vj_object_read(f->objects, &object, start, got, len, false),
                             0);
            assert_memory_equal(got, bytes + start, len);
        }
    }
    assert_int_equal(stored_count(f), G_N_ELEMENTS(lengths));
}

static void test_byte_0_of_a_none_object_is_byte_0_of_its_content(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, 10000), *got = g_malloc(10000);
    VjObject object;

    must_put(f, bytes, 10000, &object);
    assert_int_equal(vj_store_get(f->store, object.id, object.loc, 0, got, 10000), 0);
    assert_memory_equal(got, bytes, 10000);
    assert_int_equal(object.stored_bytes, 10000 + 3 * 8 + 24);
}

static void test_equal_content_is_stored_once(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(7, 100000);
    VjObject first, second;

    must_put(f, bytes, 100000, &first);
    must_put(f, bytes, 100000, &second);
    assert_int_equal(first.id, second.id);
    assert_int_equal(second.refs, 2);
    assert_int_equal(stats_of(f).puts, 1);
    assert_int_equal(stats_of(f).index_hits, 1);
    assert_int_equal(stats_of(f).verified, 0); /* written since open */
    assert_int_equal(stored_count(f), 1);

    fixture_reopen_objects(f);
    must_put(f, bytes, 100000, &second);
    assert_int_equal(second.refs, 3);
    assert_int_equal(stats_of(f).puts, 0);
    assert_int_equal(stats_of(f).verified, 1);
    must_put(f, bytes, 100000, &second);
    assert_int_equal(stats_of(f).verified, 1); /* once is enough */
}

/* Wherever the seam lies, it is the object that the bytes make in one place. */
static void test_content_in_two_places_is_that_in_one(void **state)
{
    static const uint32_t firsts[] = {1, 4095, 4096, 4097, 8192, 50001, 99999};
    const uint32_t len = 100000;
    Fixture *f = *state;

    assert_true(vj_objects_take_two(f->objects, &plain_none));
    for (size_t i = 0; i < G_N_ELEMENTS(firsts); i++) {
        g_autofree uint8_t *bytes = content(100 + i, len);
        g_autofree uint8_t *first = g_memdup2(bytes, firsts[i]);
        g_autofree uint8_t *rest = g_memdup2(bytes + firsts[i], len - firsts[i]);
        VjPlain two = {.plain = first, .len = len, .rest = rest, .first_len = firsts[i]};
        VjPendingObject *pending;
        VjObject in_two, in_one;

        assert_int_equal(vj_plain_digest(f->objects, &two), 0);
        assert_int_equal(
            vj_object_store(f->objects, &two, &plain_none, NULL, 0, &pending), 0);
        assert_true(vj_pending_is_put(pending));
        assert_int_equal(commit_pending(f, &pending, 1, &in_two), 0);
        assert_content(f, &in_two, bytes);
        must_put(f, bytes, len, &in_one);
        assert_int_equal(in_one.id, in_two.id);

        fixture_reopen_objects(f); /* nothing is verified: it is read and compared */
        assert_int_equal(
            vj_object_store(f->objects, &two, &plain_none, NULL, 0, &pending), 0);
        assert_false(vj_pending_is_put(pending));
        assert_int_equal(stats_of(f).verified, 1);
        assert_int_equal(commit_pending(f, &pending, 1, &in_one), 0);
        assert_int_equal(in_one.id, in_two.id);
        assert_int_equal(in_one.refs, 3);
    }
    assert_consistent(f);
}

static void test_a_neighbour_needs_no_index(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(7, 5000), *other = content(8, 5000);
    VjObject neighbours[2], out;
    VjPendingObject *pending;

    must_put(f, other, 5000, &neighbours[0]);
    must_put(f, bytes, 5000, &neighbours[1]);
    vj_object_pin(f->objects, neighbours[1].id);
    assert_int_equal(
        store_plain(f->objects, bytes, 5000, &plain_none, neighbours, 2, &pending), 0);
    assert_false(vj_pending_is_put(pending));
    assert_int_equal(stats_of(f).fast_hits, 1);
    assert_int_equal(stats_of(f).index_hits, 0);
    vj_object_unpin(f->objects, neighbours[1].id);
    assert_int_equal(commit_pending(f, &pending, 1, &out), 0);
    assert_int_equal(out.id, neighbours[1].id);
    assert_int_equal(out.refs, 2);
}

static void test_given_up_content_leaves_nothing(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(9, 70000);
    VjPendingObject *pending;

    assert_int_equal(
        store_plain(f->objects, bytes, 70000, &plain_none, NULL, 0, &pending), 0);
    assert_true(vj_pending_is_put(pending));
    assert_int_equal(stored_count(f), 1);
    vj_pending_free(f->objects, pending, false);
    assert_int_equal(stored_count(f), 0);
    assert_int_equal(key_count(f, VJ_SPACE_OBJECT), 0);
    vj_pending_free(f->objects, NULL, false);
}

static void test_two_entries_of_one_commit_share(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(9, 70000);
    VjPendingObject *pending[2];
    VjObject out[2];

    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            store_plain(f->objects, bytes, 70000, &plain_none, NULL, 0, &pending[i]), 0);
    }
    assert_true(vj_pending_is_put(pending[1]));
    assert_int_equal(commit_pending(f, pending, 2, out), 0);
    assert_int_equal(out[0].id, out[1].id);
    assert_int_equal(out[1].refs, 2);
    assert_int_equal(stats_of(f).puts, 1);
    assert_int_equal(stats_of(f).inflight_hits, 1);
    assert_int_equal(stored_count(f), 1);
}

static void test_a_holder_that_gives_up_leaves_the_others_their_bytes(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(9, 70000);
    VjPendingObject *pending[2];
    VjObject out;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            store_plain(f->objects, bytes, 70000, &plain_none, NULL, 0, &pending[i]), 0);
    }
    vj_pending_free(f->objects, pending[0], false);
    assert_int_equal(stored_count(f), 1);
    assert_int_equal(commit_pending(f, &pending[1], 1, &out), 0);
    assert_content(f, &out, bytes);
    assert_int_equal(stored_count(f), 1);
}

static void test_the_dead_are_removed(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object, out;

    must_put(f, bytes, 9000, &object);
    assert_int_equal(add_ref(f, object.id, &out), 0);
    assert_int_equal(out.refs, 2);
    assert_int_equal(drop_ref(f, object.id), 0);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_int_equal(stored_count(f), 1);
    assert_int_equal(drop_ref(f, object.id), 0);
    assert_int_equal(key_count(f, VJ_SPACE_OBJECT), 0);
    assert_int_equal(key_count(f, VJ_SPACE_INDEX), 0);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_int_equal(key_count(f, VJ_SPACE_DEAD), 0);
    assert_int_equal(stored_count(f), 0);
    assert_int_equal(get_object(f, object.id, &out), -ENOENT);
    assert_int_equal(drop_ref(f, object.id), -ENOENT);
    assert_int_equal(add_ref(f, object.id, &out), -ENOENT);
}

static void test_a_pin_keeps_the_dead_and_lets_them_return(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(3, 9000);
    VjObject object, out;

    must_put(f, bytes, 9000, &object);
    vj_object_pin(f->objects, object.id);
    assert_int_equal(drop_ref(f, object.id), 0);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_int_equal(stored_count(f), 1);
    assert_int_equal(get_object(f, object.id, &out), 0);
    assert_int_equal(out.refs, 0);
    assert_content(f, &out, bytes);

    assert_int_equal(add_ref(f, object.id, &out), 0);
    assert_int_equal(out.refs, 1);
    vj_object_unpin(f->objects, object.id);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_int_equal(stored_count(f), 1);
    assert_int_equal(key_count(f, VJ_SPACE_INDEX), 1);

    assert_int_equal(drop_ref(f, object.id), 0);
    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_int_equal(stored_count(f), 0);
}

static int teardown(void **state)
{
    Fixture *f = *state;

    assert_int_equal(vj_objects_reap_now(f->objects), 0);
    assert_consistent(f);
    fixture_close_objects(f);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), 0);
    return fixture_teardown(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_round_trip_of_lengths),
    TEST(test_byte_0_of_a_none_object_is_byte_0_of_its_content),
    TEST(test_equal_content_is_stored_once),
    TEST(test_content_in_two_places_is_that_in_one),
    TEST(test_a_neighbour_needs_no_index),
    TEST(test_given_up_content_leaves_nothing),
    TEST(test_two_entries_of_one_commit_share),
    TEST(test_a_holder_that_gives_up_leaves_the_others_their_bytes),
    TEST(test_the_dead_are_removed),
    TEST(test_a_pin_keeps_the_dead_and_lets_them_return),
};

VJ_TEST_MAIN(tests)
