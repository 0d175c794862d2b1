/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-rabin.c - rabin against long division, and its polynomial against Rabin's test
 */
#include "../../lib/test.h"

#include "chunk/chunk.h"

#define SEED 0x726162696e
#define DEGREE VJ_CHUNK_RABIN_DEGREE
#define WINDOW_BYTES 48

/* a·b modulo @modulus, all polynomials over GF(2); a and b of a degree below @degree. */
static uint64_t multiply(uint64_t a, uint64_t b, uint64_t modulus, int degree)
{
    uint64_t product = 0;

    for (; b != 0; b >>= 1) {
        if (b & 1) {
            product ^= a;
        }
        a <<= 1;
        if (a >> degree & 1) {
            a ^= modulus;
        }
    }
    return product;
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a;

        while (rest != 0 && __builtin_clzll(rest) <= __builtin_clzll(b)) {
            rest ^= b << (__builtin_clzll(b) - __builtin_clzll(rest));
        }
        a = b;
        b = rest;
    }
    return a;
}

/* x^(2^times) modulo @modulus. */
static uint64_t squared_x(int times, uint64_t modulus, int degree)
{
    uint64_t power = 2;

    for (; times > 0; times--) {
        power = multiply(power, power, modulus, degree);
    }
    return power;
}

/* Rabin's test: x^(2^n) = x modulo the polynomial, and for every prime p that divides n,
 * x^(2^(n/p)) - x has no factor in common with it. */
static bool is_irreducible(uint64_t polynomial, int degree)
{
    if (squared_x(degree, polynomial, degree) != 2) {
        return false;
    }
    for (int p = 2; p <= degree; p++) {
        bool p_is_prime = true;

        for (int d = 2; d < p; d++) {
            p_is_prime = p_is_prime && p % d != 0;
        }
        if (p_is_prime && degree % p == 0 &&
            greatest_common_divisor(polynomial,
                                    squared_x(degree / p, polynomial, degree) ^ 2) != 1) {
            return false;
        }
    }
    return true;
}

static void polynomial_is_irreducible(void **state)
{
    int found[9] = {0};
    /* How many irreducible polynomials of each degree there are: a check of the test. */
    static const int expected[9] = {
        [2] = 1, [3] = 2, [4] = 3, [5] = 6, [6] = 9, [7] = 18, [8] = 30};

    (void)state;
    for (int degree = 2; degree <= 8; degree++) {
        for (uint64_t p = (uint64_t)1 << degree; p < (uint64_t)2 << degree; p++) {
            found[degree] += is_irreducible(p, degree);
        }
        assert_int_equal(found[degree], expected[degree]);
    }
    assert_int_equal(VJ_CHUNK_RABIN_POLYNOMIAL >> DEGREE, 1);
    assert_true(is_irreducible(VJ_CHUNK_RABIN_POLYNOMIAL, DEGREE));
    assert_false(is_irreducible(VJ_CHUNK_RABIN_POLYNOMIAL ^ 2, DEGREE));
}

/* The 48 bytes at @p, bit by bit, modulo the polynomial. */
static uint64_t naive_fingerprint(const uint8_t *p)
{
    uint64_t rest = 0;

    for (int bit = 0; bit < 8 * WINDOW_BYTES; bit++) {
        rest = rest << 1 | (p[bit / 8] >> (7 - bit % 8) & 1);
        if (rest >> DEGREE & 1) {
            rest ^= VJ_CHUNK_RABIN_POLYNOMIAL;
        }
    }
    return rest;
}

static uint64_t value_of_seed(uint64_t seed, uint64_t mask)
{
    uint64_t z = seed + 0x9e3779b97f4a7c15;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z = (z ^ (z >> 31)) & mask;
    return z == 0 ? 1 : z;
}

static uint64_t naive_cut(const uint8_t *p, size_t len, VjChunkSizes sizes, uint64_t seed)
{
    uint64_t mask = sizes.avg_bytes - 1;
    size_t cut;

    for (cut = sizes.min_bytes; cut < MIN(len, sizes.max_bytes); cut++) {
        if ((naive_fingerprint(p + cut - WINDOW_BYTES) & mask) ==
            value_of_seed(seed, mask)) {
            return cut;
        }
    }
    return MIN(len, sizes.max_bytes);
}

/* Returns the number of chunks. */
static size_t check_against_naive(const uint8_t *p, size_t len, VjChunkSizes sizes,
                                  uint64_t seed)
{
    g_autoptr(VjChunker) c = NULL;
    uint64_t cut;
    size_t chunk_count = 0;

    assert_int_equal(vj_chunker_new(vj_chunk_by_name("rabin"), sizes, seed, &c), 0);
    for (; len > 0; p += cut, len -= cut, chunk_count++) {
        assert_true(vj_chunker_scan(c, p, len, true, &cut));
        assert_int_equal(cut, naive_cut(p, len, sizes, seed));
    }
    return chunk_count;
}

static void follows_the_formula(void **state)
{
    VjChunkSizes sizes[] = {{256, 1024, 8192}, {257, 1024, 1500}, {1024, 1024, 1024}};
    size_t len = 60000;
    g_autofree uint8_t *bytes = g_malloc(len);
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    vj_rng_bytes(&rng, bytes, len);
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        assert_true(check_against_naive(bytes, len, sizes[i], vj_rng_u64(&rng)) > 30);
    }
}

/* Mean min + avg, at random; the paper's 2 KiB, 1 MiB, 8 MiB a thousand times smaller. */
static void sizes_of_random_chunks(void **state)
{
    VjChunkSizes sizes = {256, 4096, 32768};
    size_t len = 16 << 20;
    g_autofree uint8_t *bytes = g_malloc(len);
    g_autoptr(VjChunker) c = NULL;
    size_t chunk_count = 0;
    uint64_t cut;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    vj_rng_bytes(&rng, bytes, len);
    assert_int_equal(vj_chunker_new(vj_chunk_by_name("rabin"), sizes, SEED, &c), 0);
    for (size_t at = 0; at < len; at += cut, chunk_count++) {
        assert_true(vj_chunker_scan(c, bytes + at, len - at, true, &cut));
    }
    assert_in_range(len / chunk_count, 4096, 4700);
}

/* A window that cuts is put where the first and the last candidates are, and beside them.
 */
static void bounds_are_candidates(void **state)
{
    VjChunkSizes sizes = {256, 1024, 4096};
    static const size_t ends[] = {255, 256, 257, 4095, 4096, 4097};
    static const size_t expected[] = {4096, 256, 257, 4095, 4096, 4096};
    g_autofree uint8_t *random = g_malloc(100000);
    g_autoptr(VjChunker) c = NULL;
    uint8_t window[WINDOW_BYTES];
    uint8_t bytes[5000];
    uint64_t cut;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, SEED);
    vj_rng_bytes(&rng, random, 100000);
    assert_int_equal(vj_chunker_new(vj_chunk_by_name("rabin"), sizes, SEED, &c), 0);
    assert_true(vj_chunker_scan(c, random, 100000, false, &cut));
    assert_true(cut < 4096);
    memcpy(window, random + cut - WINDOW_BYTES, WINDOW_BYTES);
    for (size_t i = 0; i < G_N_ELEMENTS(ends); i++) {
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes + ends[i] - WINDOW_BYTES, window, WINDOW_BYTES);
        assert_int_equal(naive_cut(bytes, sizeof bytes, sizes, SEED), expected[i]);
        assert_true(vj_chunker_scan(c, bytes, sizeof bytes, false, &cut));
        assert_int_equal(cut, expected[i]);
    }
}

static void zeroes_are_cut_at_the_maximum(void **state)
{
    VjChunkSizes sizes = {256, 1024, 4096};
    g_autofree uint8_t *bytes = g_malloc0(3 * 4096 + 5);

    (void)state;
    /* Among them seeds whose low bits are 0. */
    for (uint64_t seed = 0; seed < 3000; seed++) {
        g_autoptr(VjChunker) c = NULL;
        uint64_t cut;

        assert_int_equal(vj_chunker_new(vj_chunk_by_name("rabin"), sizes, seed, &c), 0);
        assert_true(vj_chunker_scan(c, bytes, 3 * 4096 + 5, true, &cut));
        assert_int_equal(cut, 4096);
    }
}

static void avg_is_a_power_of_two(void **state)
{
    VjChunkSizes wrong = {256, 1025, 4096};
    VjChunker *c;

    (void)state;
    assert_int_equal(vj_chunker_new(vj_chunk_by_name("rabin"), wrong, 0, &c), -EINVAL);
    assert_null(c);
}

static void does_not_look_ahead(void **state)
{
    VjChunkSizes sizes = {256, 1024, 4096};
    g_autoptr(VjChunker) c = NULL;

    (void)state;
    assert_int_equal(vj_chunker_new(vj_chunk_by_name("rabin"), sizes, 0, &c), 0);
    assert_int_equal(vj_chunker_lookahead_bytes(c), 0);
    assert_int_equal(vj_chunker_decision_bytes(c, 256), 256);
    assert_int_equal(vj_chunker_decision_bytes(c, 4096), 4096);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(polynomial_is_irreducible),
    cmocka_unit_test(follows_the_formula),
    cmocka_unit_test(sizes_of_random_chunks),
    cmocka_unit_test(bounds_are_candidates),
    cmocka_unit_test(zeroes_are_cut_at_the_maximum),
    cmocka_unit_test(avg_is_a_power_of_two),
    cmocka_unit_test(does_not_look_ahead),
};

VJ_TEST_MAIN(tests)
