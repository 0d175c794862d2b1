/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Golden values of the seeded generator.  The first ten numbers from state 1, 2, 3, 4 are
 * those that other implementations of xoshiro256** test against; the seeded ones were
 * computed by a second implementation (in Python).
 */
#include "../../lib/test.h"

#include <sys/wait.h>
#include <unistd.h>

static void numbers_from_a_known_state(void **state)
{
    static const uint64_t golden[] = {
        UINT64_C(11520),
        UINT64_C(0),
        UINT64_C(1509978240),
        UINT64_C(1215971899390074240),
        UINT64_C(1216172134540287360),
        UINT64_C(607988272756665600),
        UINT64_C(16172922978634559625),
        UINT64_C(8476171486693032832),
        UINT64_C(10595114339597558777),
        UINT64_C(2904607092377533576),
    };
    VjRng r = {.s = {1, 2, 3, 4}};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(golden); i++) {
        assert_true(vj_rng_u64(&r) == golden[i]);
    }
}

static void numbers_from_a_seed(void **state)
{
    static const struct {
        uint64_t seed, first_state, numbers[4];
    } golden[] = {
        {0,
         UINT64_C(0xe220a8397b1dcdaf),
         {UINT64_C(0x99ec5f36cb75f2b4), UINT64_C(0xbf6e1f784956452a),
          UINT64_C(0x1a5f849d4933e6e0), UINT64_C(0x6aa594f1262d2d2c)}},
        {42,
         UINT64_C(0xbdd732262feb6e95),
         {UINT64_C(0x15780b2e0c2ec716), UINT64_C(0x6104d9866d113a7e),
          UINT64_C(0xae17533239e499a1), UINT64_C(0xecb8ad4703b360a1)}},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(golden); i++) {
        VjRng r;

        vj_rng_init(&r, golden[i].seed);
        assert_true(r.s[0] == golden[i].first_state);
        for (size_t j = 0; j < G_N_ELEMENTS(golden[i].numbers); j++) {
            assert_true(vj_rng_u64(&r) == golden[i].numbers[j]);
        }
    }
}

static void bounded_numbers_and_bytes_are_golden_too(void **state)
{
    static const uint64_t below_1000[] = {994, 674, 638, 664, 664, 721, 716, 196};
    uint8_t bytes[19];
    VjRng r;

    (void)state;
    vj_rng_init(&r, 7);
    for (size_t i = 0; i < G_N_ELEMENTS(below_1000); i++) {
        assert_true(vj_rng_below(&r, 1000) == below_1000[i]);
    }
    vj_rng_init(&r, 7);
    vj_rng_bytes(&r, bytes, sizeof bytes);
    vj_test_expect_hex(bytes, sizeof bytes, "5a76f94ef7fa58b3d22c484f963d5c4796792c");
}

static void bounds_hold(void **state)
{
    static const uint64_t bounds[] = {1,         2, 3, 7, 1u << 20, UINT64_C(3) << 62,
                                      UINT64_MAX};
    VjRng r;

    (void)state;
    vj_rng_init(&r, 5);
    for (size_t i = 0; i < G_N_ELEMENTS(bounds); i++) {
        for (int n = 0; n < 200; n++) {
            assert_true(vj_rng_below(&r, bounds[i]) < bounds[i]);
        }
    }
}

/* With 3 * 2^62 a plain modulus would give the lowest third half of all draws. */
static void bounded_numbers_are_even(void **state)
{
    int low = 0;
    VjRng r;

    (void)state;
    vj_rng_init(&r, 11);
    for (int n = 0; n < 30000; n++) {
        low += vj_rng_below(&r, UINT64_C(3) << 62) < UINT64_C(1) << 62;
    }
    assert_in_range(low, 9500, 10500);
}

static void the_kernel_gives_different_bytes(void **state)
{
    uint8_t a[600] = {0}, b[600] = {0}; /* beyond the 256 that getrandom gives whole */

    (void)state;
    vj_random_bytes(a, sizeof a);
    vj_random_bytes(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a + 584, (uint8_t[16]){0}, 16);
    assert_true(vj_random_u64() != vj_random_u64());
}

/* What the kernel gave before a fork belongs to the parent. */
static void a_child_gets_numbers_of_its_own(void **state)
{
    uint64_t of_child[100], of_parent[100];
    int fds[2], status;
    pid_t child;

    (void)state;
    (void)vj_random_u64();
    assert_int_equal(pipe(fds), 0);
    child = fork();
    assert_true(child >= 0);
    for (size_t i = 0; i < G_N_ELEMENTS(of_parent); i++) {
        of_parent[i] = vj_random_u64();
    }
    if (child == 0) {
        _exit(write(fds[1], of_parent, sizeof of_parent) == sizeof of_parent ? 0 : 1);
    }
    assert_int_equal(read(fds[0], of_child, sizeof of_child), sizeof of_child);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(of_child); i++) {
        for (size_t j = 0; j < G_N_ELEMENTS(of_parent); j++) {
            assert_true(of_child[i] != of_parent[j]);
            assert_true(i == j || of_parent[i] != of_parent[j]);
        }
    }
    close(fds[0]);
    close(fds[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(numbers_from_a_known_state),
    cmocka_unit_test(numbers_from_a_seed),
    cmocka_unit_test(bounded_numbers_and_bytes_are_golden_too),
    cmocka_unit_test(bounds_hold),
    cmocka_unit_test(bounded_numbers_are_even),
    cmocka_unit_test(the_kernel_gives_different_bytes),
    cmocka_unit_test(a_child_gets_numbers_of_its_own),
};

VJ_TEST_MAIN(tests)
