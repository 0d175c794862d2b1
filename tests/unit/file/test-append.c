/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-append.c - parts of an append that come in any order, beside other changes
 */
#include "../../lib/test.h"

#include "file/append-private.h"

/* A file of single letters; an append in parts is a run of numbers. */
typedef struct World {
    VjAppend a;
    GString *file;
} World;

static World world_new(const char *content)
{
    return (World){.file = g_string_new(content)};
}

static void world_free(World *w)
{
    g_string_free(w->file, TRUE);
}

static void part(World *w, uint64_t who, uint64_t from, const char *bytes)
{
    uint64_t len = strlen(bytes), at;

    assert_true(vj_append_enter(&w->a, who));
    at = vj_append_place(&w->a, from, len, w->file->len);
    g_string_insert(w->file, (gssize)at, bytes);
    vj_append_changed(&w->a, at, 0, len);
    vj_append_placed(&w->a, from, len, at);
}

static void change(World *w, uint64_t at, uint64_t old_len, const char *bytes)
{
    g_string_erase(w->file, (gssize)at, (gssize)old_len);
    g_string_insert(w->file, (gssize)at, bytes);
    vj_append_changed(&w->a, at, old_len, strlen(bytes));
}

static void leave(World *w, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        vj_append_leave(&w->a, 0, false);
    }
}

static void parts_stand_in_order_whatever_came_first(void **state)
{
    static const char *const parts[] = {"ab", "cd", "ef"};
    static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(orders); i++) {
        for (unsigned left_between = 0; left_between < 2; left_between++) {
            World w = world_new("xyz");

            for (unsigned k = 0; k < 3; k++) {
                part(&w, 1, 1000 + 2 * orders[i][k], parts[orders[i][k]]);
                leave(&w, left_between);
            }
            assert_string_equal(w.file->str, "xyzabcdef");
            leave(&w, left_between ? 0 : 3);
            part(&w, 1, 1006, "g"); /* the next append */
            assert_string_equal(w.file->str, "xyzabcdefg");
            leave(&w, 1);
            world_free(&w);
        }
    }
}

/* Where the numbers begin says nothing: the end is the file's. */
static void no_byte_of_another_is_touched(void **state)
{
    World w = world_new("xyz");

    (void)state;
    part(&w, 1, 1, "cd");
    change(&w, w.file->len, 0, "Q"); /* another one appends */
    part(&w, 1, 3, "ef");
    assert_string_equal(w.file->str, "xyzcdQef");
    part(&w, 1, 0, "a"); /* the first one, late */
    assert_string_equal(w.file->str, "xyzacdQef");
    leave(&w, 3);
    world_free(&w);
}

static void edits_in_front_move_it(void **state)
{
    World w = world_new("xyz");

    (void)state;
    part(&w, 1, 12, "ef");
    change(&w, 1, 0, "123");
    part(&w, 1, 10, "cd");
    change(&w, 0, 4, "");
    part(&w, 1, 8, "ab");
    assert_string_equal(w.file->str, "yzabcdef");
    leave(&w, 3);
    /* It was cut: the next append of the same caller has lower numbers and goes to the
     * end. */
    part(&w, 1, 4, "gh");
    assert_string_equal(w.file->str, "yzabcdefgh");
    leave(&w, 1);
    world_free(&w);
}

static void an_edit_of_its_bytes_ends_it(void **state)
{
    World w = world_new("");

    (void)state;
    part(&w, 1, 4, "efgh");
    change(&w, 1, 2, "");
    part(&w, 1, 0, "abcd");
    assert_string_equal(w.file->str, "ehabcd");
    leave(&w, 2);
    world_free(&w);
}

static void another_caller_waits_for_nobody(void **state)
{
    World w = world_new("");

    (void)state;
    part(&w, 1, 4, "efgh");
    assert_false(vj_append_enter(&w.a, 2)); /* who goes to the end, then */
    change(&w, w.file->len, 0, "Q");
    part(&w, 1, 0, "abcd");
    assert_string_equal(w.file->str, "abcdefghQ");
    leave(&w, 2);
    part(&w, 2, 0, "R");
    assert_string_equal(w.file->str, "abcdefghQR");
    leave(&w, 1);
    world_free(&w);
}

/* pwritev2(2) with RWF_NOAPPEND begins wherever it likes: here, within the append
 * before it. */
static void numbers_that_come_again(void **state)
{
    static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const char *const first[] = {"ab", "cd", "ef"};
    static const char *const second[] = {"gh", "ij", "kl"};
    const unsigned ways = G_N_ELEMENTS(orders) * G_N_ELEMENTS(orders);

    (void)state;
    for (unsigned i = 0; i < ways * 4; i++) {
        const unsigned *one = orders[i % 6], *two = orders[i / 6 % 6];
        unsigned shift = i / ways % 2, left_between = i / ways / 2;
        World w = world_new("xyz");

        for (unsigned k = 0; k < 3; k++) {
            part(&w, 1, 10 + 2 * one[k], first[one[k]]);
            leave(&w, left_between);
        }
        leave(&w, w.a.active);
        for (unsigned k = 0; k < 3; k++) {
            part(&w, 1, 10 - shift + 2 * two[k], second[two[k]]);
            leave(&w, left_between);
        }
        leave(&w, w.a.active);
        assert_string_equal(w.file->str, "xyzabcdefghijkl");
        world_free(&w);
    }
}

/* A part that shares no number with the earlier append comes before those that do. */
static void numbers_that_come_again_late(void **state)
{
    World w = world_new("");

    (void)state;
    part(&w, 1, 7, "Z");
    part(&w, 1, 10, "ab");
    leave(&w, 2);
    part(&w, 1, 13, "gh");
    part(&w, 1, 11, "ef");
    part(&w, 1, 9, "cd");
    part(&w, 1, 15, "i");
    leave(&w, 4);
    assert_string_equal(w.file->str, "Zabcdefghi");
    world_free(&w);
}

static void a_failed_long_one_is_undone(void **state)
{
    World w = world_new("xyz");
    uint64_t at, len;

    (void)state;
    for (unsigned i = 0; i < 3 * VJ_APPEND_RUNS; i++) {
        part(&w, 1, 3 + 2 * i, "ab");
        assert_true(w.a.count <= VJ_APPEND_RUNS);
    }
    leave(&w, 3 * VJ_APPEND_RUNS);
    assert_true(vj_append_enter(&w.a, 1));
    vj_append_leave(&w.a, 3 + 6 * VJ_APPEND_RUNS, true);
    assert_true(vj_append_undo(&w.a, 3, &at, &len));
    assert_int_equal(at, 3);
    assert_int_equal(len, 6 * VJ_APPEND_RUNS);
    world_free(&w);
}

static void more_pieces_than_are_known(void **state)
{
    World w = world_new("");

    (void)state;
    for (uint64_t i = 0; i < 3 * VJ_APPEND_RUNS; i++) { /* never side by side */
        part(&w, 1, 10 * i, "a");
        change(&w, w.file->len, 0, "Q");
        assert_true(w.a.count <= VJ_APPEND_RUNS);
    }
    leave(&w, 3 * VJ_APPEND_RUNS);
    world_free(&w);
}

static void undo(World *w, uint64_t from, bool is_undo, uint64_t at, uint64_t len)
{
    uint64_t got_at, got_len;

    assert_int_equal(vj_append_undo(&w->a, from, &got_at, &got_len), is_undo);
    assert_int_equal(got_len, len);
    if (len > 0) {
        assert_int_equal(got_at, at);
    }
}

static void what_failed_is_undone_once(void **state)
{
    World w = world_new("xyzN"); /* N: the kernel does not know of it */

    (void)state;
    undo(&w, 3, false, 0, 0);
    part(&w, 1, 3, "ab");
    undo(&w, 3, false, 0, 0); /* nothing has failed */
    assert_true(vj_append_enter(&w.a, 1));
    vj_append_leave(&w.a, 5, true);
    leave(&w, 1);
    undo(&w, 7, false, 0, 0);
    undo(&w, 2, false, 0, 0);
    undo(&w, 3, true, 4, 2);
    undo(&w, 3, false, 0, 0);

    /* The first part itself failed; of an earlier append before it nothing goes. */
    assert_true(vj_append_enter(&w.a, 1));
    vj_append_leave(&w.a, 5, true);
    part(&w, 1, 7, "ef");
    leave(&w, 1);
    undo(&w, 5, true, 6, 2);

    /* Another one stands between. */
    change(&w, w.file->len, 0, "Q");
    part(&w, 1, 9, "gh");
    assert_true(vj_append_enter(&w.a, 1));
    vj_append_leave(&w.a, 11, true);
    leave(&w, 1);
    undo(&w, 7, true, 0, 0);
    world_free(&w);
}

/* Letters a to z in parts of random length and order, beside edits in front and others'
 * appends. */
static void random_orders(void **state)
{
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 20261124);
    for (unsigned round = 0; round < 20000; round++) {
        World w = world_new("0123456789");
        uint64_t cuts[27], base = vj_rng_below(&rng, 20);
        unsigned parts = 0, order[26];
        bool shrinks = round % 2 == 0;

        for (uint64_t at = 0; at < 26; at += 1 + vj_rng_below(&rng, 6)) {
            cuts[parts++] = at;
        }
        cuts[parts] = 26;
        for (unsigned i = 0; i < parts; i++) {
            unsigned k = (unsigned)vj_rng_below(&rng, i + 1);

            order[i] = order[k];
            order[k] = i;
        }
        for (unsigned i = 0; i < parts; i++) {
            char bytes[27] = {0};
            uint64_t from = cuts[order[i]];

            for (uint64_t c = from; c < cuts[order[i] + 1]; c++) {
                bytes[c - from] = (char)('a' + c);
            }
            part(&w, 7, base + from, bytes);
            if (w.a.active > 0 && !shrinks && vj_rng_below(&rng, 2) == 0) {
                leave(&w, w.a.active); /* those that come later are late */
            }
            switch (vj_rng_below(&rng, shrinks ? 6 : 5)) {
            case 0:
                change(&w, vj_rng_below(&rng, 3), 0, "++");
                break;
            case 1:
                change(&w, w.file->len, 0, "Q");
                break;
            case 5: /* what is under way outlives it, what was before does not */
                change(&w, 0, vj_rng_below(&rng, 3), "");
                break;
            default:
                break;
            }
            for (char last = 'a' - 1, *p = w.file->str; *p != '\0'; p++) {
                if (*p >= 'a' && *p <= 'z') {
                    assert_true(*p > last);
                    last = *p;
                }
            }
        }
        leave(&w, w.a.active);
        world_free(&w);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_stand_in_order_whatever_came_first),
    cmocka_unit_test(no_byte_of_another_is_touched),
    cmocka_unit_test(edits_in_front_move_it),
    cmocka_unit_test(an_edit_of_its_bytes_ends_it),
    cmocka_unit_test(another_caller_waits_for_nobody),
    cmocka_unit_test(numbers_that_come_again),
    cmocka_unit_test(numbers_that_come_again_late),
    cmocka_unit_test(a_failed_long_one_is_undone),
    cmocka_unit_test(more_pieces_than_are_known),
    cmocka_unit_test(what_failed_is_undone_once),
    cmocka_unit_test(random_orders),
};

VJ_TEST_MAIN(tests)
