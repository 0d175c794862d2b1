/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-ranges.c - sets of pages against an array of bools
 */
#include "../../lib/test.h"

#include "front/front-private.h"

#define PAGES 48u
#define STEPS 20000u

static VjPageRange any_range(VjRng *rng)
{
    uint64_t first = vj_rng_below(rng, PAGES);

    return (VjPageRange){first, first + vj_rng_below(rng, PAGES - first)};
}

/* With room for all the set is what was added and not taken out; without, it has that and
 * more. */
static void check(const GArray *ranges, const bool *has, bool exact)
{
    for (uint64_t page = 0; page < PAGES; page++) {
        bool found = vj_ranges_meet(ranges, (VjPageRange){page, page});

        assert_true(exact ? found == has[page] : found || !has[page]);
    }
}

static void run(uint64_t seed, guint most, bool exact)
{
    g_autoptr(GArray) ranges = NULL;
    bool has[PAGES] = {false};
    VjRng rng;

    vj_rng_init(&rng, seed);
    for (unsigned i = 0; i < STEPS; i++) {
        VjPageRange r = any_range(&rng);
        bool add = vj_rng_below(&rng, 2) == 0;

        if (add) {
            (void)vj_ranges_add(&ranges, most, r);
        } else {
            vj_ranges_remove(ranges, most, r);
        }
        for (uint64_t page = r.first; page <= r.last; page++) {
            has[page] = add;
        }
        if (ranges != NULL) {
            assert_true(ranges->len <= most);
        }
        check(ranges, has, exact);
    }
}

static void is_a_set_of_pages(void **state)
{
    (void)state;
    run(1, PAGES, true);
}

static void holds_more_without_room(void **state)
{
    (void)state;
    run(2, 2, false);
}

static void pages_of_bytes(void **state)
{
    VjPageRange r = vj_pages_of(2 * VJ_PAGE_BYTES - 1, 2);

    (void)state;
    assert_int_equal(r.first, 1);
    assert_int_equal(r.last, 2);
    r = vj_pages_of(VJ_PAGE_BYTES, 0);
    assert_int_equal(r.first, 1);
    assert_int_equal(r.last, 1);
    r = vj_pages_from(VJ_PAGE_BYTES, 0);
    assert_int_equal(r.first, 1);
    assert_true(r.last == UINT64_MAX);
    r = vj_pages_from(VJ_PAGE_BYTES, VJ_PAGE_BYTES);
    assert_int_equal(r.last, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_a_set_of_pages),
        cmocka_unit_test(holds_more_without_room),
        cmocka_unit_test(pages_of_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
