/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Buckets have no gaps; ranks are those of the sorted latencies; nothing is lost between
 * threads. */
#include "../../lib/test.h"

#include <pthread.h>
#include <stdlib.h>

static void buckets_follow_each_other(void **state)
{
    uint64_t begin = 0;

    (void)state;
    for (unsigned i = 0; i < VJ_LATENCY_BUCKETS; i++) {
        uint64_t end = vj_latency_bucket_end(i);

        assert_true(end > begin);
        assert_int_equal(vj_latency_bucket(begin), i);
        assert_int_equal(vj_latency_bucket(end - 1), i);
        /* A quarter of where it begins, at most. */
        if (i > 0 && i < VJ_LATENCY_BUCKETS - 1) {
            assert_true((end - begin) * 4 <= begin);
        }
        begin = end;
    }
    assert_int_equal(begin, UINT64_MAX);
    assert_int_equal(vj_latency_bucket(UINT64_MAX), VJ_LATENCY_BUCKETS - 1);
    /* As include/varjfs/ioctl.h says. */
    assert_int_equal(vj_latency_bucket_end(0), 32);
    assert_int_equal(vj_latency_bucket_end(5), 80);
    assert_int_equal(vj_latency_bucket_end(VJ_LATENCY_BUCKETS - 2), UINT64_C(56) << 30);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The rank of @permille in @sorted and in the buckets. */
static void check_rank(const uint64_t *sorted, size_t count, unsigned permille,
                       const VjCallSums *sums)
{
    size_t rank = (count * permille + 999) / 1000;
    uint64_t right = sorted[rank - 1];
    uint64_t said = vj_latency_rank_ns(sums->buckets, permille);

    assert_int_equal(said, vj_latency_bucket_end(vj_latency_bucket(right)));
    assert_true(said > right);
    assert_true(right < VJ_LATENCY_LEAST_NS || said - right <= right / 4 + 1);
}

static void ranks_are_those_of_the_sorted_latencies(void **state)
{
    const char *wanted = g_getenv("VARJFS_MODEL_SEED");
    uint64_t seed = wanted != NULL ? g_ascii_strtoull(wanted, NULL, 10) : vj_random_u64();
    VjRng rng;

    (void)state;
    print_message("# seed %" G_GUINT64_FORMAT "\n", seed);
    vj_rng_init(&rng, seed);
    for (unsigned round = 0; round < 200; round++) {
        size_t count = 1 + vj_rng_below(&rng, round < 100 ? 20 : 3000);
        g_autofree uint64_t *all = g_new(uint64_t, count);
        VjCallStats *s = vj_call_stats_new(2);
        VjCallSums sums;
        uint64_t total = 0;

        for (size_t i = 0; i < count; i++) {
            /* Of all sizes up to 17 s. */
            all[i] = vj_rng_u64(&rng) >> (30 + vj_rng_below(&rng, 34));
            total += all[i];
            vj_call_begins(s, 1);
            vj_call_took(s, 1, all[i]);
        }
        qsort(all, count, sizeof *all, compare);
        vj_call_stats_read(s, 1, &sums);
        assert_int_equal(sums.calls, count);
        assert_int_equal(sums.timed, count);
        assert_int_equal(sums.total_ns, total);
        assert_int_equal(sums.max_ns, all[count - 1]);
        for (unsigned permille = 1; permille <= 1000; permille += 37) {
            check_rank(all, count, permille, &sums);
        }
        check_rank(all, count, 500, &sums);
        check_rank(all, count, 990, &sums);
        check_rank(all, count, 1000, &sums);
        vj_call_stats_read(s, 0, &sums);
        assert_int_equal(sums.calls + sums.timed, 0);
        vj_call_stats_free(s);
    }
}

static void no_call_has_no_rank(void **state)
{
    VjCallSums sums = {0};

    (void)state;
    assert_int_equal(vj_latency_rank_ns(sums.buckets, 500), 0);
    /* More of them than a product with 1000 has room for. */
    sums.buckets[7] = UINT64_MAX / 2;
    sums.buckets[9] = UINT64_MAX / 4;
    assert_int_equal(vj_latency_rank_ns(sums.buckets, 500), vj_latency_bucket_end(7));
    assert_int_equal(vj_latency_rank_ns(sums.buckets, 990), vj_latency_bucket_end(9));
}

static void results_count(void **state)
{
    VjCallStats *s = vj_call_stats_new(1);
    struct timespec at = {.tv_sec = 1};
    VjCallSums sums;

    (void)state;
    vj_clock_set_for_test(&at, 5000);
    vj_call_done(s, 0, 2000 * 1000, 100, false);
    vj_call_done(s, 0, 4999 * 1000, 100, true);
    vj_clock_set_for_test(NULL, 0);
    vj_call_begins(s, 0);
    vj_call_stats_read(s, 0, &sums);
    assert_int_equal(sums.calls, 3);
    assert_int_equal(sums.failures, 1);
    assert_int_equal(sums.bytes, 100);
    assert_int_equal(sums.timed, 2);
    assert_int_equal(sums.max_ns, 3000 * 1000);
    assert_int_equal(sums.total_ns, 3001 * 1000);
    vj_call_stats_free(s);
    vj_call_stats_free(NULL);
}

/* ---- threads ----------------------------------------------------------------------- */

#define THREADS 12u
#define CALLS 20000u

static void *call(void *opaque)
{
    VjCallStats *s = opaque;

    for (unsigned i = 0; i < CALLS; i++) {
        vj_call_begins(s, i % 3);
        vj_call_result(s, i % 3, i, i % 7 == 0);
        vj_call_took(s, i % 3, i);
    }
    return NULL;
}

static void no_call_of_any_thread_is_lost(void **state)
{
    VjCallStats *s = vj_call_stats_new(3);
    uint64_t calls = 0, failures = 0, timed = 0, total = 0, max = 0;
    pthread_t threads[THREADS];
    VjCallSums sums;

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call, s), 0);
    }
    /* Meanwhile whoever reads sees no more than there is. */
    vj_call_stats_read(s, 0, &sums);
    assert_true(sums.calls <= THREADS * CALLS);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (unsigned kind = 0; kind < 3; kind++) {
        vj_call_stats_read(s, kind, &sums);
        calls += sums.calls;
        failures += sums.failures;
        timed += sums.timed;
        total += sums.total_ns;
        max = MAX(max, sums.max_ns);
    }
    assert_int_equal(calls, THREADS * CALLS);
    assert_int_equal(timed, THREADS * CALLS);
    assert_int_equal(failures, THREADS * ((CALLS + 6) / 7));
    assert_int_equal(total, (uint64_t)THREADS * CALLS * (CALLS - 1) / 2);
    assert_int_equal(max, CALLS - 1);
    vj_call_stats_free(s);
}

static void one_call_in_some_is_timed(void **state)
{
    unsigned timed = 0;

    (void)state;
    for (unsigned i = 0; i < 10 * VJ_CALL_SAMPLE; i++) {
        timed += vj_call_is_sampled();
    }
    assert_int_equal(timed, 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(buckets_follow_each_other),
    cmocka_unit_test(ranks_are_those_of_the_sorted_latencies),
    cmocka_unit_test(no_call_has_no_rank),
    cmocka_unit_test(results_count),
    cmocka_unit_test(no_call_of_any_thread_is_lost),
    cmocka_unit_test(one_call_in_some_is_timed),
};

VJ_TEST_MAIN(tests)
