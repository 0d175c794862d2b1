/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Copies out of memory of the daemon's: all bytes and no others, wherever both lie. */
#include "../../lib/test.h"

#include "../../../lib/client/client-private.h"

#define PAGE 4096u
#define LONGEST (3 * PAGE)
/* Of the destination, before and behind. */
#define MARGIN 16u

static void check_one(const uint8_t *src, uint8_t *room, size_t at, size_t len)
{
    memset(room, 0xee, LONGEST + 2 * PAGE);
    vjc_copy(room + at, src, len);
    assert_memory_equal(room + at, src, len);
    for (size_t i = 1; i <= MARGIN; i++) {
        assert_int_equal(room[at - i], 0xee);
        assert_int_equal(room[at + len + i - 1], 0xee);
    }
}

static void test_all_places(void **state)
{
    static const size_t lengths[] = {0,    1,    31,       2047,         2048,   2049,
                                     4095, 4096, 2 * PAGE, 2 * PAGE + 1, LONGEST};
    g_autofree uint8_t *src_room = g_malloc(LONGEST + 2 * PAGE);
    g_autofree uint8_t *room = g_malloc(LONGEST + 2 * PAGE);
    size_t to_page = PAGE - (uintptr_t)room % PAGE;

    (void)state;
    for (size_t i = 0; i < LONGEST + 2 * PAGE; i++) {
        src_room[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (size_t behind = 0; behind <= 64; behind++) {
        /* The source begins with a page, and then in its middle. */
        for (size_t from = 0; from <= 1000; from += 1000) {
            const uint8_t *src = src_room + PAGE - (uintptr_t)src_room % PAGE;
            size_t at = (to_page + from + behind) % PAGE;

            for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
                if (from + lengths[i] <= LONGEST) {
                    check_one(src + from, room, at < MARGIN ? at + PAGE : at, lengths[i]);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
