/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The drivers that keep nothing on a device: null does not grow, memory stays in its
 * limit.
 */
#include "store-test.h"

#include <malloc.h>

/* Nothing under a sanitizer or valgrind, whose allocators do not tell. */
static size_t allocated_bytes(void)
{
    return mallinfo2().uordblks;
}

static void test_null_does_not_grow(void **state)
{
    VjStoreTest *t = *state;
    uint8_t bytes[16] = {0};
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    size_t before, after;
    VjPut put;

    assert_int_equal(vj_store_put(t->s, 0, &iov, 1, &put), 0);
    before = allocated_bytes();
    for (uint64_t id = 1; id <= 1000000; id++) {
        assert_true(vj_store_put(t->s, id, &iov, 1, &put) == 0);
    }
    after = allocated_bytes();
    assert_true(after < before + 64 * VJ_KIB);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_test_object_count(t->s), 0);
}

static void expect_space(VjStoreTest *t, uint64_t total_bytes, uint64_t free_bytes)
{
    VjStoreSpace space;

    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_true(space.total_bytes == total_bytes);
    assert_true(space.free_bytes == free_bytes);
    assert_true(space.available_bytes == free_bytes);
}

static void test_null_space(void **state)
{
    VjStoreTest *t = *state;

    vj_store_test_put(t->s, 1, 1000);
    expect_space(t, 5 * VJ_GIB, 5 * VJ_GIB);
}

static void test_memory_is_bounded(void **state)
{
    VjStoreTest *t = *state;
    VjPut first = vj_store_test_put(t->s, 1, 600), second;

    expect_space(t, 1024, 424);
    assert_int_equal(vj_store_test_try_put(t->s, 2, 425, &second), -ENOSPC);
    second = vj_store_test_put(t->s, 2, 424);
    expect_space(t, 1024, 0);
    assert_int_equal(vj_store_test_try_put(t->s, 3, 1, &second), -ENOSPC);
    assert_true(vj_store_test_matches(t->s, &first));
    assert_int_equal(vj_store_remove(t->s, first.id, first.loc), 0);
    assert_int_equal(vj_store_remove(t->s, first.id, first.loc), 0);
    expect_space(t, 1024, 600);
    first = vj_store_test_put(t->s, 4, 600);
    assert_int_equal(vj_store_test_object_count(t->s), 2);
}

#define STORE_TEST_WITH(name, spec)                                                      \
    cmocka_unit_test_prestate_setup_teardown(name, vj_store_test_setup,                  \
                                             vj_store_test_teardown, (void *)(spec))

static const struct CMUnitTest tests[] = {
    STORE_TEST_WITH(test_null_does_not_grow, "null"),
    STORE_TEST_WITH(test_null_space, "null:size=5G"),
    STORE_TEST_WITH(test_memory_is_bounded, "memory:size=1K"),
};

VJ_TEST_MAIN(tests)
