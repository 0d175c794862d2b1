/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* test-history.c - what the checker of histories accepts and what it finds, by small
 * histories */
#include "../lib/test.h"

#include "history.h"

#include <errno.h>

#define AT(from, to) .called_ns = (from), .returned_ns = (to), .has_returned = true
#define SEES(...)                                                                        \
    .seen = (const Run[]){__VA_ARGS__},                                                  \
    .seen_count = G_N_ELEMENTS(((const Run[]){__VA_ARGS__}))

static Verdict check(const Event *events, unsigned count)
{
    State first;
    Found found;
    Verdict verdict;

    state_init(&first);
    state_replace(&first, 0, 0, (Run){.op = 1, .len = 10});
    first.inodes[0] = 100;
    first.inodes[1] = 101;
    verdict = history_check(&first, events, count, 10000, &found);
    found_clear(&found);
    state_clear(&first);
    return verdict;
}

#define CHECK(events, wanted)                                                            \
    assert_int_equal(check(events, G_N_ELEMENTS(events)), wanted)

/* Three words instead of words 2 and 3, while somebody reads. */
static Event edit_events[] = {
    {AT(10, 20), .kind = EDIT, .at = 2, .old_len = 2, .len = 3, .op = 5,
     .size_after = 11},
    {AT(12, 18), .kind = READ, .at = 0, SEES({1, 0, 2}, {5, 0, 3}, {1, 4, 6}),
     .to_the_end = true},
    {AT(13, 17), .kind = READ, .at = 0, SEES({1, 0, 10}), .to_the_end = true},
};

static void edits(void **state)
{
    Event torn[2] = {edit_events[0], edit_events[1]};
    Event late[2] = {edit_events[0], edit_events[2]};
    Event again[3] = {edit_events[0], edit_events[1], edit_events[2]};
    static const Run half[] = {{1, 0, 2}, {1, 4, 6}};

    (void)state;
    CHECK(edit_events, EXPLAINED);
    torn[1].seen = half;
    torn[1].seen_count = 2;
    CHECK(torn, UNEXPLAINED);
    late[1].called_ns = 21;
    late[1].returned_ns = 22;
    CHECK(late, UNEXPLAINED);
    again[2].called_ns = 19; /* the one before has seen it */
    CHECK(again, UNEXPLAINED);
    again[0].size_after = 12;
    CHECK(again, UNEXPLAINED);
}

static void writes_and_appends(void **state)
{
    Event events[] = {
        {AT(1, 9), .kind = APPEND, .len = 2, .op = 5, .size_after = NO_SIZE},
        {AT(1, 9), .kind = APPEND, .len = 1, .op = 6, .size_after = NO_SIZE},
        {AT(10, 11), .kind = TRUNCATE, .at = 12, .size_after = NO_SIZE},
        {AT(12, 13), .kind = WRITE, .at = 14, .len = 1, .op = 7, .size_after = NO_SIZE},
        {AT(12, 13), .kind = STORE, .at = 20, .len = 1, .op = 8, .size_after = NO_SIZE},
        {AT(14, 15), .kind = READ, .at = 9, .to_the_end = true,
         SEES({1, 9, 1}, {6, 0, 1}, {5, 0, 1}, {0, 0, 2}, {7, 0, 1})},
    };

    (void)state;
    CHECK(events, EXPLAINED);
    events[2].at = 13;
    CHECK(events, UNEXPLAINED);
    events[2].at = 12;
    events[1].returned_ns = 0; /* before the other one: the same order as was seen */
    events[1].called_ns = 0;
    CHECK(events, EXPLAINED);
    events[1].called_ns = events[1].returned_ns = 10;
    CHECK(events, UNEXPLAINED);
}

/* Beside an edit, the first store may be behind it and the second one before it. */
static void stores(void **state)
{
    Event events[] = {
        {AT(1, 20), .kind = EDIT, .at = 0, .len = 1, .op = 5, .size_after = 11},
        {AT(2, 3), .kind = STORE, .at = 4, .len = 1, .op = 6, .size_after = NO_SIZE},
        {AT(4, 5), .kind = STORE, .at = 8, .len = 1, .op = 7, .size_after = NO_SIZE},
        {AT(21, 22), .kind = READ, .at = 0, .to_the_end = true,
         SEES({5, 0, 1}, {1, 0, 3}, {6, 0, 1}, {1, 4, 4}, {7, 0, 1}, {1, 9, 1})},
    };

    (void)state;
    CHECK(events, EXPLAINED);
    events[2].called_ns = 21; /* behind the edit */
    events[2].returned_ns = 21;
    events[3].called_ns = 22;
    CHECK(events, UNEXPLAINED);
}

/* What was killed has happened or not. */
static void killed(void **state)
{
    Event events[] = {
        {.called_ns = 1,
         .returned_ns = 5,
         .kind = WRITE,
         .at = 0,
         .len = 1,
         .op = 5,
         .size_after = NO_SIZE},
        {AT(2, 3), .kind = READ, .at = 0, SEES({1, 0, 1})},
        {AT(6, 7), .kind = READ, .at = 0, SEES({5, 0, 1})},
    };

    (void)state;
    CHECK(events, EXPLAINED);
    events[2].seen = events[1].seen;
    CHECK(events, EXPLAINED);
    events[2].seen = (const Run[]){{6, 0, 1}};
    CHECK(events, UNEXPLAINED);
}

static void names(void **state)
{
    Event events[] = {
        {AT(1, 9), .kind = RENAME, .a = 0, .b = 1},
        {AT(2, 3), .kind = LOOK_UP, .a = 1, .inode = 101},
        {AT(4, 5), .kind = LOOK_UP, .a = 1, .inode = 100},
        {AT(6, 7), .kind = LOOK_UP, .a = 0, .inode = 0},
        {AT(10, 11), .kind = LINK, .inode = 101, .b = 0, .error = ENOENT},
        {AT(12, 13), .kind = CREATE, .a = 0, .inode = 102},
        {AT(14, 15), .kind = EXCHANGE, .a = 0, .b = 1},
        {AT(16, 17), .kind = UNLINK, .a = 3, .error = ENOENT},
        {AT(16, 17), .kind = LOOK_UP, .a = 1, .inode = 102},
    };

    (void)state;
    CHECK(events, EXPLAINED);
    events[2].inode = 0; /* a name that is renamed over is never absent */
    CHECK(events, UNEXPLAINED);
    events[2].inode = 101;
    CHECK(events, EXPLAINED);
    events[3].inode = 100;
    CHECK(events, EXPLAINED);
    events[3].called_ns = 10;
    CHECK(events, UNEXPLAINED);
}

static Verdict check_cached(const Event *others, unsigned count, const Event *read,
                            bool strict)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(Event));
    g_autoptr(GPtrArray) keep =
        g_ptr_array_new_with_free_func((GDestroyNotify)g_array_unref);

    g_array_append_vals(all, others, count);
    history_slices(read, others, count, 0, false, strict, keep, all);
    return check((const Event *)(const void *)all->data, all->len);
}

/* Through the page cache: not before what had returned, page by page, never torn in a
 * page. */
static void the_page_cache(void **state)
{
    Event changes[] = {
        {AT(1, 2), .kind = TRUNCATE, .at = 1024, .size_after = NO_SIZE},
        {AT(10, 20), .kind = EDIT, .at = 0, .len = 1, .op = 5, .size_after = 1025},
    };
    Event read = {AT(15, 16), .kind = READ, .at = 0, SEES({5, 0, 1}, {1, 0, 2})};

    (void)state;
    assert_int_equal(check_cached(changes, 2, &read, true), EXPLAINED);
    read.called_ns = 3;
    read.returned_ns = 4;
    assert_int_equal(check_cached(changes, 2, &read, true), UNEXPLAINED);
    read.seen = (const Run[]){{1, 0, 3}};
    read.seen_count = 1;
    assert_int_equal(check_cached(changes, 2, &read, true), EXPLAINED);
    read.called_ns = 21; /* a stale page */
    read.returned_ns = 22;
    assert_int_equal(check_cached(changes, 2, &read, true), UNEXPLAINED);
    read.called_ns = 15;
    read.returned_ns = 30;
    read.at = 8;
    read.seen = (const Run[]){{1, 8, 2}, {0, 0, 502}, {0, 0, 400}};
    read.seen_count = 3; /* the first page from before it, the second one from either */
    assert_int_equal(check_cached(changes, 2, &read, true), EXPLAINED);
    read.seen = (const Run[]){{1, 8, 1}, {1, 8, 1}, {0, 0, 502}};
    assert_int_equal(check_cached(changes, 2, &read, true), UNEXPLAINED);
}

/* A write through the cache is seen before it has arrived, but not after something
 * newer. */
static void words_on_their_way(void **state)
{
    Event changes[] = {
        {AT(10, 20), .kind = WRITE, .at = 1, .len = 1, .op = 5, .size_after = NO_SIZE},
        {AT(11, 30), .kind = EDIT, .at = 0, .len = 1, .op = 6, .size_after = 11},
    };
    Event read = {AT(15, 16), .kind = READ, .at = 0,
                  SEES({1, 0, 1}, {5, 0, 1}, {1, 2, 2})};

    (void)state;
    assert_int_equal(check_cached(changes, 2, &read, false), EXPLAINED);
    read.seen = (const Run[]){{1, 0, 1}, {OP_BROKEN, 0, 1}, {1, 2, 2}};
    assert_int_equal(check_cached(changes, 2, &read, false), EXPLAINED);
    read.called_ns = 31;
    read.returned_ns = 32;
    assert_int_equal(check_cached(changes, 2, &read, false), UNEXPLAINED);
    read.seen = (const Run[]){{6, 0, 1}, {5, 0, 1}, {1, 1, 2}};
    assert_int_equal(check_cached(changes, 2, &read, false), EXPLAINED);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stores),
    cmocka_unit_test(edits),
    cmocka_unit_test(writes_and_appends),
    cmocka_unit_test(killed),
    cmocka_unit_test(names),
    cmocka_unit_test(the_page_cache),
    cmocka_unit_test(words_on_their_way),
};

VJ_TEST_MAIN(tests)
