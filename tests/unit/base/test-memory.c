/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Freed memory that the allocator keeps goes back to the system, and what is in use
 * stays. */
#include "../../lib/test.h"

#include <malloc.h>

#define BLOCKS 4096u
#define BLOCK_BYTES 60000u /* from an arena, not a mapping of its own */
#define KEPT_EACH 64u

static size_t resident_bytes(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %zu", &pages), 1);
    assert_int_equal(fclose(f), 0);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Not under a sanitizer or valgrind, and not without glibc. */
static bool allocator_tells(void)
{
#if defined HAVE_MALLINFO2 && defined HAVE_MALLOC_TRIM
    size_t before = mallinfo2().uordblks;
    g_autofree char *some = g_malloc(BLOCK_BYTES);

    memset(some, 1, BLOCK_BYTES);
    return mallinfo2().uordblks >= before + BLOCK_BYTES;
#else
    return false;
#endif
}

static void what_was_freed_is_given_back(void **state)
{
    VjMemoryKeeper *k;
    uint8_t **blocks;
    size_t full, before;

    (void)state;
    if (!allocator_tells()) {
        skip();
    }
    vj_memory_init((size_t)4 << 20);
    k = vj_memory_keeper_new();
    blocks = g_new0(uint8_t *, BLOCKS);
    before = resident_bytes();
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = g_malloc(BLOCK_BYTES);
        memset(blocks[i], (int)(i % 251), BLOCK_BYTES);
    }
    full = resident_bytes();
    assert_true(full - before > (size_t)BLOCKS * BLOCK_BYTES * 9 / 10);
    assert_false(vj_memory_give_back(k, 32u << 20)); /* all of it is in use */
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (i % KEPT_EACH != 0) {
            g_free(g_steal_pointer(&blocks[i]));
        }
    }
    assert_true(vj_memory_give_back(k, 32u << 20));
    assert_true(full - resident_bytes() > (size_t)BLOCKS * BLOCK_BYTES * 8 / 10);
    assert_false(vj_memory_give_back(k, 32u << 20));
    for (unsigned i = 0; i < BLOCKS; i += KEPT_EACH) {
        for (unsigned at = 0; at < BLOCK_BYTES; at++) {
            if (blocks[i][at] != i % 251) {
                fail_msg("block %u changed at %u", i, at);
            }
        }
        g_free(blocks[i]);
    }
    g_free(blocks);
    vj_memory_keeper_free(k);
}

static void little_is_left_alone(void **state)
{
    VjMemoryKeeper *k = vj_memory_keeper_new();

    (void)state;
    g_free(g_malloc(BLOCK_BYTES));
    assert_false(vj_memory_give_back(k, 256u << 20));
    vj_memory_keeper_free(k);
    vj_memory_keeper_free(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_was_freed_is_given_back),
    cmocka_unit_test(little_is_left_alone),
};

VJ_TEST_MAIN(tests)
