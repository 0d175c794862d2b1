/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* The clock runs, and stands still where a test wants it to. */
#include "../../lib/test.h"

static void the_clock_never_steps_back(void **state)
{
    int64_t last = vj_clock_mono_us();

    (void)state;
    for (int i = 0; i < 10000; i++) {
        int64_t now = vj_clock_mono_us();

        assert_true(now >= last);
        last = now;
    }
}

static void the_wall_clock_is_the_systems(void **state)
{
    struct timespec before, now, after;

    (void)state;
    clock_gettime(CLOCK_REALTIME, &before);
    now = vj_clock_real();
    clock_gettime(CLOCK_REALTIME, &after);
    assert_true(now.tv_sec >= before.tv_sec && now.tv_sec <= after.tv_sec);
    assert_true(now.tv_nsec >= 0 && now.tv_nsec < 1000000000);
}

static void a_test_can_freeze_it(void **state)
{
    struct timespec frozen = {.tv_sec = 1234567890, .tv_nsec = 987654321};
    struct timespec seen;

    (void)state;
    vj_clock_set_for_test(&frozen, 77);
    seen = vj_clock_real();
    assert_int_equal(seen.tv_sec, 1234567890);
    assert_int_equal(seen.tv_nsec, 987654321);
    assert_int_equal(vj_clock_mono_us(), 77);
    vj_clock_set_for_test(NULL, 0);
    assert_true(vj_clock_real().tv_sec > 1234567890);
    assert_true(vj_clock_mono_us() != 77);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_clock_never_steps_back),
    cmocka_unit_test(the_wall_clock_is_the_systems),
    cmocka_unit_test(a_test_can_freeze_it),
};

VJ_TEST_MAIN(tests)
