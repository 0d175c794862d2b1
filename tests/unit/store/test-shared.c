/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-shared.c - two stores on one place: who may, and what one does to the other
 */
#include "store-test.h"

static bool try_open(VjStoreTest *t, const char *spec, bool create, bool shared,
                     VjStore **out, GError **error)
{
    VjStorePlace place = {
        .dir_fd = t->dir_fd, .path = t->path, .create = create, .shared = shared};

    return vj_store_open(spec, &place, out, error);
}

static VjStore *must_open(VjStoreTest *t, const char *spec, bool create)
{
    g_autoptr(GError) error = NULL;
    VjStore *s;

    if (!try_open(t, spec, create, true, &s, &error)) {
        fail_msg("%s", error->message);
    }
    return s;
}

static void expect_refused(VjStoreTest *t, const char *spec, int code, const char *why)
{
    GError *error = NULL;
    VjStore *s;

    assert_false(try_open(t, spec, false, true, &s, &error));
    assert_null(s);
    vj_test_expect_error(&error, code, why);
}

static void test_who_has_its_place_alone_is_refused_by_name(void **state)
{
    VjStoreTest *t = *state;
    VjStore *s;

    expect_refused(t, "block", EOPNOTSUPP, "store block: it cannot be shared");
    expect_refused(t, "memory", EINVAL, "store memory: objects without name=");
    expect_refused(t, "memory:name=nobody made them", ENOENT, "store memory: ");
    s = must_open(t, "null", false);
    vj_store_close(s);
}

/* What one puts is the other's as well: to read, list and remove. */
static void share(VjStoreTest *t, const char *spec)
{
    VjStore *a = must_open(t, spec, true), *b = must_open(t, spec, false);
    VjPut put = vj_store_test_put(a, 7, 5000), other = vj_store_test_put(b, 8, 300);

    assert_true(vj_store_test_matches(b, &put));
    assert_true(vj_store_test_matches(a, &other));
    assert_int_equal(vj_store_test_object_count(a), 2);
    assert_int_equal(vj_store_test_object_count(b), 2);
    assert_int_equal(vj_store_flush(a), 0);
    assert_int_equal(vj_store_flush(b), 0);
    assert_int_equal(vj_store_remove(b, put.id, put.loc), 0);
    assert_int_equal(vj_store_flush_removes(b), 0);
    assert_int_equal(vj_store_remove(a, put.id, put.loc), 0);
    assert_int_equal(vj_store_flush(a), 0);
    assert_int_equal(vj_store_test_object_count(a), 1);
    vj_store_close(a);
    assert_true(vj_store_test_matches(b, &other));
    vj_store_close(b);
}

static void test_posix_is_shared(void **state)
{
    share(*state, "posix");
}

static void test_memory_of_one_name_is_shared(void **state)
{
    VjStoreTest *t = *state;
    VjStore *s;

    share(t, "memory:name=shared");
    s = must_open(t, "memory:name=shared", false);
    assert_int_equal(vj_store_test_object_count(s), 1); /* it stays */
    vj_store_close(s);
    s = must_open(t, "memory:name=shared", true);
    assert_int_equal(vj_store_test_object_count(s), 0);
    vj_store_close(s);
}

/* One walks and removes the empty directory that the other has open. */
static void test_posix_makes_a_directory_again_that_another_removed(void **state)
{
    VjStoreTest *t = *state;
    VjStore *a = must_open(t, "posix", false), *b = must_open(t, "posix", false);
    VjPut put = vj_store_test_put(a, 7, 100);

    assert_true(vj_store_test_matches(b, &put));
    assert_int_equal(vj_store_remove(a, put.id, put.loc), 0);
    assert_int_equal(vj_store_test_object_count(b), 0);
    put = vj_store_test_put(a, 8, 100);
    assert_true(vj_store_test_matches(a, &put));
    assert_true(vj_store_test_matches(b, &put));
    assert_int_equal(vj_store_flush(a), 0);
    vj_store_close(a);
    vj_store_close(b);
}

/* A directory that the other made, and did not make durable, goes with the first flush of
 * what is put there, even if it was read from before. */
static void test_posix_makes_directories_of_another_durable(void **state)
{
    VjStoreTest *t = *state;
    VjStore *a = must_open(t, "posix", false), *b = must_open(t, "posix", false);
    VjPosixSyncCounts before, after;
    VjPut put;

    (void)vj_store_test_put(b, 7, 100);
    assert_int_equal(vj_store_flush(b), 0);
    put = vj_store_test_put(a, 5000, 100);
    assert_true(vj_store_test_matches(b, &put));
    before = vj_store_posix_counts(b);
    (void)vj_store_test_put(b, 5001, 100);
    assert_int_equal(vj_store_flush(b), 0);
    after = vj_store_posix_counts(b);
    assert_int_equal(after.alls - before.alls, 1);
    (void)vj_store_test_put(b, 5002, 100);
    assert_int_equal(vj_store_flush(b), 0);
    assert_int_equal(vj_store_posix_counts(b).alls, after.alls);
    vj_store_close(a);
    vj_store_close(b);
}

#define TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, vj_store_test_setup, vj_store_test_teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_who_has_its_place_alone_is_refused_by_name),
    TEST(test_posix_is_shared),
    TEST(test_memory_of_one_name_is_shared),
    TEST(test_posix_makes_a_directory_again_that_another_removed),
    TEST(test_posix_makes_directories_of_another_durable),
};

VJ_TEST_MAIN(tests)
