/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-mincdc.c - mincdc against the formula of its file comment, written down naively
 */
#include "../../lib/test.h"

#include "chunk/chunk-private.h"
#include "naive.h"

#define SEED 0x6d696e636463

static void check_against_naive(const uint8_t *p, size_t len, uint32_t avg_bytes,
                                uint64_t seed)
{
    g_autoptr(VjChunker) c = NULL;
    VjChunkSizes sizes = {avg_bytes / 2, avg_bytes, avg_bytes / 2 + avg_bytes};
    uint64_t cut;

    assert_int_equal(vj_chunker_new(vj_chunk_by_name("mincdc"), sizes, seed, &c), 0);
    for (; len > 0; p += cut, len -= cut) {
        assert_true(vj_chunker_scan(c, p, len, true, &cut));
        assert_int_equal(cut, naive_mincdc_cut(sizes, seed, p, len));
    }
}

static void follows_the_formula(void **state)
{
    static const uint32_t avgs[] = {1024, 1025, 1031, 4096, 10007};
    size_t len = 300000;
    g_autofree uint8_t *bytes = g_malloc(len);
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    vj_rng_bytes(&rng, bytes, len);
    for (size_t i = 0; i < G_N_ELEMENTS(avgs); i++) {
        check_against_naive(bytes, len - i, avgs[i], vj_rng_u64(&rng));
    }
    /* Few different bytes, so that equal hashes decide. */
    for (size_t i = 0; i < len; i++) {
        bytes[i] &= 1;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(avgs); i++) {
        check_against_naive(bytes, len - i, avgs[i], vj_rng_u64(&rng));
    }
}

/* A window of a very small hash is put where the first and the last candidates are, and
 * beside them. */
static void bounds_are_candidates(void **state)
{
    VjChunkSizes sizes = {512, 1024, 1536};
    static const size_t ends[] = {511, 512, 513, 1535, 1536, 1537};
    g_autofree uint8_t *random = g_malloc(100000);
    g_autoptr(VjChunker) c = NULL;
    uint8_t bytes[1600];
    size_t best = 0;
    uint64_t cut;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    vj_rng_bytes(&rng, random, 100000);
    for (size_t i = 1; i + 16 <= 100000; i++) {
        if (naive_mincdc_hash(random + i, SEED) <
            naive_mincdc_hash(random + best, SEED)) {
            best = i;
        }
    }
    assert_int_equal(vj_chunker_new(vj_chunk_by_name("mincdc"), sizes, SEED, &c), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(ends); i++) {
        vj_rng_bytes(&rng, bytes, sizeof bytes);
        memcpy(bytes + ends[i] - 16, random + best, 16);
        for (VjChunkCode code = 0; code <= vj_chunk_code_best(); code++) {
            vj_chunker_use(c, code);
            assert_true(vj_chunker_scan(c, bytes, sizeof bytes, false, &cut));
            assert_int_equal(cut, naive_mincdc_cut(sizes, SEED, bytes, sizeof bytes));
            assert_true((cut == ends[i]) == (ends[i] >= 512 && ends[i] <= 1536));
        }
    }
}

/* Around the length at which the last chunk stops being "all the rest". */
static void last_chunk_is_the_rest(void **state)
{
    VjChunkSizes sizes = {512, 1024, 1536};
    g_autofree uint8_t *bytes = g_malloc(1600);
    g_autoptr(VjChunker) c = NULL;
    uint64_t cut;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    vj_rng_bytes(&rng, bytes, 1600);
    assert_int_equal(vj_chunker_new(vj_chunk_by_name("mincdc"), sizes, SEED, &c), 0);
    for (size_t len = 1; len < 1536; len++) {
        assert_true(vj_chunker_scan(c, bytes, len, true, &cut));
        assert_int_equal(cut, len);
        assert_false(vj_chunker_scan(c, bytes, len, false, &cut));
        vj_chunker_reset(c);
    }
    for (size_t len = 1536; len <= 1600; len++) {
        assert_true(vj_chunker_scan(c, bytes, len, false, &cut));
        assert_int_equal(cut, naive_mincdc_cut(sizes, SEED, bytes, len));
    }
}

static void constant_data_is_cut_at_the_minimum(void **state)
{
    VjChunkSizes sizes = {512, 1024, 1536};
    g_autofree uint8_t *bytes = g_malloc0(100000);
    uint64_t cut;

    (void)state;
    for (int value = 0; value < 256; value += 51) {
        g_autoptr(VjChunker) c = NULL;
        size_t left = 100000;

        memset(bytes, value, left);
        assert_int_equal(vj_chunker_new(vj_chunk_by_name("mincdc"), sizes, SEED, &c), 0);
        for (; left >= 1536; left -= cut) {
            assert_true(vj_chunker_scan(c, bytes, left, true, &cut));
            assert_int_equal(cut, 512);
        }
    }
}

static void keeps_only_its_own_sizes(void **state)
{
    VjChunkSizes wrong[] = {{511, 1024, 1536}, {512, 1024, 1535}, {512, 1024, 2048}};
    VjChunker *c;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        assert_int_equal(vj_chunker_new(vj_chunk_by_name("mincdc"), wrong[i], 0, &c),
                         -EINVAL);
        assert_null(c);
    }
}

static void looks_ahead_by_a_mean(void **state)
{
    VjChunkSizes sizes = {512, 1025, 1537};
    g_autoptr(VjChunker) c = NULL;

    (void)state;
    assert_int_equal(vj_chunker_new(vj_chunk_by_name("mincdc"), sizes, 0, &c), 0);
    assert_int_equal(vj_chunker_lookahead_bytes(c), 1025);
    assert_int_equal(vj_chunker_decision_bytes(c, 512), 1537);
    assert_int_equal(vj_chunker_decision_bytes(c, 1000), 1537);
    assert_int_equal(vj_chunker_decision_bytes(c, 1537), 1537);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(follows_the_formula),
    cmocka_unit_test(bounds_are_candidates),
    cmocka_unit_test(last_chunk_is_the_rest),
    cmocka_unit_test(constant_data_is_cut_at_the_minimum),
    cmocka_unit_test(keeps_only_its_own_sizes),
    cmocka_unit_test(looks_ahead_by_a_mean),
};

VJ_TEST_MAIN(tests)
