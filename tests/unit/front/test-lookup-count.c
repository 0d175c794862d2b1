/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-lookup-count.c - counts of inodes that the kernel knows, against a plain table
 */
#include "../../lib/test.h"

#include "front/front-private.h"

static bool memory_is_short;

/* In front of GLib's: what g_try_new0 calls. */
gpointer(g_try_malloc0_n)(gsize count, gsize len)
{
    return memory_is_short ? NULL : calloc(count, len);
}

/* Tables that cannot grow are filled further, and grow later. */
static void test_short_of_memory(void **state)
{
    VjLookupCounts *k = vj_lookup_counts_new();
    uint64_t inodes, bytes, bytes_then;

    (void)state;
    vj_lookup_counts_size(k, &inodes, &bytes);
    memory_is_short = true;
    for (uint64_t ino = 1; ino <= 800; ino++) {
        vj_lookup_counts_add(k, ino);
    }
    vj_lookup_counts_size(k, &inodes, &bytes_then);
    assert_int_equal(inodes, 800);
    assert_int_equal(bytes_then, bytes);
    memory_is_short = false;
    for (uint64_t ino = 801; ino <= 1600; ino++) {
        vj_lookup_counts_add(k, ino);
    }
    for (uint64_t ino = 1; ino <= 1600; ino++) {
        assert_true(vj_lookup_counts_has(k, ino));
    }
    memory_is_short = true;
    for (uint64_t ino = 1; ino <= 1600; ino++) {
        assert_true(vj_lookup_counts_sub(k, ino, 1));
    }
    memory_is_short = false;
    vj_lookup_counts_size(k, &inodes, &bytes);
    assert_int_equal(inodes, 0);
    vj_lookup_counts_free(k);
}

static void test_counts(void **state)
{
    VjLookupCounts *k = vj_lookup_counts_new();

    (void)state;
    assert_false(vj_lookup_counts_has(k, 7));
    assert_false(vj_lookup_counts_sub(k, 7, 1)); /* never told: nothing to forget */
    vj_lookup_counts_add(k, 7);
    vj_lookup_counts_add(k, 7);
    assert_true(vj_lookup_counts_has(k, 7));
    assert_false(vj_lookup_counts_sub(k, 7, 1));
    assert_true(vj_lookup_counts_sub(k, 7, 1));
    assert_false(vj_lookup_counts_has(k, 7));
    vj_lookup_counts_add(k, 7);
    assert_true(vj_lookup_counts_sub(k, 7, 1));
    vj_lookup_counts_free(k);
}

/* Counts beyond 16 bits, numbers beyond 48. */
static void test_what_does_not_fit(void **state)
{
    static const uint64_t inos[] = {1, 5, UINT64_C(1) << 47, UINT64_C(1) << 48,
                                    UINT64_MAX};
    VjLookupCounts *k = vj_lookup_counts_new();

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(inos); i++) {
        for (unsigned n = 0; n < 200000; n++) {
            vj_lookup_counts_add(k, inos[i]);
        }
        assert_false(vj_lookup_counts_sub(k, inos[i], 65534));
        assert_false(vj_lookup_counts_sub(k, inos[i], 65536));
        assert_false(vj_lookup_counts_sub(k, inos[i], 68929));
        assert_true(vj_lookup_counts_has(k, inos[i]));
        assert_true(vj_lookup_counts_sub(k, inos[i], 1));
        assert_false(vj_lookup_counts_has(k, inos[i]));
    }
    vj_lookup_counts_free(k);
}

/* Each that is known is in the list of one part. */
static uint64_t count_listed(VjLookupCounts *k)
{
    uint64_t listed = 0;

    for (unsigned shard = 0; shard < VJ_LOOKUP_SHARDS; shard++) {
        g_autoptr(GArray) inos = vj_lookup_counts_list(k, shard);

        for (guint i = 0; i < inos->len; i++) {
            assert_true(vj_lookup_counts_has(k, g_array_index(inos, uint64_t, i)));
        }
        listed += inos->len;
    }
    return listed;
}

static void test_list(void **state)
{
    VjLookupCounts *k = vj_lookup_counts_new();

    (void)state;
    assert_int_equal(count_listed(k), 0);
    for (uint64_t ino = 1; ino <= 1000; ino++) {
        vj_lookup_counts_add(k, ino);
    }
    for (unsigned i = 0; i < 100000; i++) { /* its count does not fit */
        vj_lookup_counts_add(k, 5);
    }
    vj_lookup_counts_add(k, UINT64_C(1) << 48); /* its number does not */
    assert_int_equal(count_listed(k), 1001);
    for (uint64_t ino = 11; ino <= 1000; ino++) {
        assert_true(vj_lookup_counts_sub(k, ino, 1));
    }
    assert_int_equal(count_listed(k), 11);
    vj_lookup_counts_free(k);
}

static void test_random(void **state)
{
    GHashTable *model = g_hash_table_new(NULL, NULL);
    VjLookupCounts *k = vj_lookup_counts_new();
    uint64_t inodes, bytes;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 20260101);
    for (unsigned step = 0; step < 400000; step++) {
        /* Grows, then shrinks. */
        bool add = vj_rng_below(&rng, 100) < (step < 200000 ? 70 : 30);
        uint64_t ino = 1 + vj_rng_below(&rng, 20000);
        size_t count =
            GPOINTER_TO_SIZE(g_hash_table_lookup(model, GSIZE_TO_POINTER(ino)));

        assert_int_equal(vj_lookup_counts_has(k, ino), count > 0);
        if (add) {
            vj_lookup_counts_add(k, ino);
            g_hash_table_insert(model, GSIZE_TO_POINTER(ino),
                                GSIZE_TO_POINTER(count + 1));
        } else if (count > 0) {
            size_t less = 1 + vj_rng_below(&rng, count);

            assert_int_equal(vj_lookup_counts_sub(k, ino, less), less == count);
            if (less == count) {
                g_hash_table_remove(model, GSIZE_TO_POINTER(ino));
            } else {
                g_hash_table_insert(model, GSIZE_TO_POINTER(ino),
                                    GSIZE_TO_POINTER(count - less));
            }
        }
    }
    vj_lookup_counts_size(k, &inodes, &bytes);
    assert_int_equal(inodes, g_hash_table_size(model));
    assert_int_equal(count_listed(k), inodes);
    g_hash_table_unref(model);
    vj_lookup_counts_free(k);
}

/* The budget of design section 8, at every size on the way up and down. */
static void test_memory(void **state)
{
    VjLookupCounts *k = vj_lookup_counts_new();
    uint64_t inodes, bytes;

    (void)state;
    for (uint64_t ino = 1; ino <= 500000; ino++) {
        vj_lookup_counts_add(k, ino);
        if (ino >= 4096 && (ino & 1023) == 0) {
            vj_lookup_counts_size(k, &inodes, &bytes);
            assert_int_equal(inodes, ino);
            assert_true(bytes <= 16 * inodes);
        }
    }
    for (uint64_t ino = 1; ino <= 500000; ino++) {
        assert_true(vj_lookup_counts_sub(k, ino, 1));
    }
    vj_lookup_counts_size(k, &inodes, &bytes);
    assert_int_equal(inodes, 0);
    assert_true(bytes <= 16 * 1024 * 8);
    vj_lookup_counts_free(k);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_counts),
    cmocka_unit_test(test_short_of_memory),
    cmocka_unit_test(test_what_does_not_fit),
    cmocka_unit_test(test_list),
    cmocka_unit_test(test_random),
    cmocka_unit_test(test_memory),
};

VJ_TEST_MAIN(tests)
