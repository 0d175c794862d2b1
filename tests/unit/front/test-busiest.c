/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* What is listed as busy: no count too low, none too high beyond what is said, nothing
 * that is busy is missing, and never more than there is room for. */
#include "../../lib/test.h"
#include "front/front-private.h"

#include <pthread.h>

static const VjFsBusy *find(const VjFsBusy *list, unsigned count, uint64_t id)
{
    for (unsigned i = 0; i < count; i++) {
        if (list[i].id == id) {
            return &list[i];
        }
    }
    return NULL;
}

static void few_are_counted_exactly(void **state)
{
    VjBusiest *b = vj_busiest_new();
    VjFsBusy list[VJ_BUSIEST_MAX];
    unsigned count;

    (void)state;
    assert_int_equal(vj_busiest_list(b, list), 0);
    for (unsigned i = 0; i < 5; i++) {
        vj_busiest_add(b, 7, 100);
    }
    vj_busiest_add(b, UINT64_MAX, 0);
    count = vj_busiest_list(b, list);
    assert_int_equal(count, 2);
    assert_int_equal(find(list, count, 7)->requests, 5);
    assert_int_equal(find(list, count, 7)->over, 0);
    assert_int_equal(find(list, count, 7)->bytes, 500);
    assert_int_equal(find(list, count, UINT64_MAX)->requests, 1);
    vj_busiest_free(b);
}

#define IDS 20000u
#define ADDS 400000u

static void the_busiest_are_there_with_true_bounds(void **state)
{
    const char *wanted = g_getenv("VARJFS_MODEL_SEED");
    uint64_t seed = wanted != NULL ? g_ascii_strtoull(wanted, NULL, 10) : vj_random_u64();
    g_autofree uint64_t *right = g_new0(uint64_t, IDS + 1);
    VjBusiest *b = vj_busiest_new();
    VjFsBusy list[VJ_BUSIEST_MAX];
    unsigned count;
    VjRng rng;

    (void)state;
    print_message("# seed %" G_GUINT64_FORMAT "\n", seed);
    vj_rng_init(&rng, seed);
    for (unsigned i = 0; i < ADDS; i++) {
        /* Eight have a sixteenth each, among many that come now and then. */
        uint64_t id = vj_rng_below(&rng, 2) == 0 ? 1 + vj_rng_below(&rng, 8)
                                                 : 9 + vj_rng_below(&rng, IDS - 8);

        right[id]++;
        vj_busiest_add(b, id, 10);
    }
    count = vj_busiest_list(b, list);
    assert_in_range(count, 1, VJ_BUSIEST_MAX);
    for (unsigned i = 0; i < count; i++) {
        uint64_t true_count = right[list[i].id];

        assert_true(list[i].requests >= true_count);
        assert_true(list[i].requests - list[i].over <= true_count);
        assert_true(list[i].bytes <= 10 * true_count);
        assert_int_equal(list[i].bytes, 10 * (list[i].requests - list[i].over));
    }
    for (uint64_t id = 1; id <= 8; id++) {
        const VjFsBusy *found = find(list, count, id);

        assert_non_null(found);
        /* It came early, and has kept its place. */
        assert_true(found->over < right[id] / 50);
    }
    vj_busiest_free(b);
}

/* ---- threads ----------------------------------------------------------------------- */

static void *add(void *opaque)
{
    VjBusiest *b = opaque;

    for (unsigned i = 0; i < 20000; i++) {
        vj_busiest_add(b, 5, 1);
        vj_busiest_add(b, 100 + i % 3, 0);
        vj_busiest_add(b, 1000 + i, 0);
    }
    return NULL;
}

static void threads_count_together(void **state)
{
    VjBusiest *b = vj_busiest_new();
    VjFsBusy list[VJ_BUSIEST_MAX];
    pthread_t threads[6];
    const VjFsBusy *found;
    unsigned count;

    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add, b), 0);
    }
    for (unsigned i = 0; i < 100; i++) {
        assert_in_range(vj_busiest_list(b, list), 0, VJ_BUSIEST_MAX);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(threads); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    count = vj_busiest_list(b, list);
    found = find(list, count, 5);
    assert_non_null(found);
    /* One that came while its place was given away may have gone to another. */
    assert_true(found->requests >= 6 * 19000);
    assert_true(found->bytes <= 6 * 20000);
    vj_busiest_free(b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(few_are_counted_exactly),
    cmocka_unit_test(the_busiest_are_there_with_true_bounds),
    cmocka_unit_test(threads_count_together),
};

VJ_TEST_MAIN(tests)
