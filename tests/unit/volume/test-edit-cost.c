/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-edit-cost.c - what an edit puts beside its own bytes, and what many of them leave
 *
 * Objects are of 256 KiB in the mean, as by default.  VARJFS_MODEL_SEED=N gives the same
 * offsets and lengths again.
 */
#include "settings-fixture.h"

/* Of mincdc with that mean. */
#define LONGEST ((uint64_t)384 << 10)
#define SHORTEST_PIECE ((uint64_t)64 << 10)

typedef struct Edited {
    Fixture *x;
    VjFile *f;
    GByteArray *want; /* its content */
} Edited;

static void seed(Fixture *x)
{
    const char *text = g_getenv("VARJFS_MODEL_SEED");
    uint64_t state =
        text != NULL ? g_ascii_strtoull(text, NULL, 0) : vj_random_u64() >> 32;

    print_message("# VARJFS_MODEL_SEED=%" G_GUINT64_FORMAT "\n", state);
    vj_rng_init(&x->rng, state);
}

static void edited_new(Edited *e, Fixture *x, size_t len)
{
    e->x = x;
    e->f = create(x);
    e->want = g_byte_array_new();
    g_byte_array_set_size(e->want, (guint)len);
    vj_rng_bytes(&x->rng, e->want->data, len);
    set(x, e->f, NULL, "256K");
    write_all(e->f, 0, e->want->data, len);
    assert_int_equal(vj_file_sync(e->f), 0);
}

/* Its content is right now and when it is opened anew; fsck finds nothing. */
static void edited_end(Edited *e)
{
    uint64_t ino = vj_file_ino(e->f);

    expect_bytes(e->f, e->want->data, e->want->len);
    assert_int_equal(vj_file_sync(e->f), 0);
    vj_file_unref(e->f);
    expect_sound(e->x);
    assert_int_equal(vj_file_open(vj_volume_files(e->x->v), ino, &e->f), 0);
    expect_bytes(e->f, e->want->data, e->want->len);
    vj_file_unref(e->f);
    g_byte_array_unref(e->want);
}

/* Bytes put into the store, and got from it. */
typedef struct Moved {
    uint64_t put, got;
} Moved;

static Moved moved(const Fixture *x)
{
    VjObjectsStats stats;

    vj_objects_stats(x->v->objects, &stats);
    return (Moved){stats.put_bytes, stats.read_bytes};
}

/* @data: what comes in, of @len; NULL: random bytes. */
static void replace(Edited *e, uint64_t at, uint64_t old_len, const uint8_t *data,
                    size_t len)
{
    g_autofree uint8_t *made = NULL;
    GByteArray *want = e->want;
    guint behind = want->len - (guint)(at + old_len);

    if (data == NULL) {
        made = g_malloc(len + 1);
        vj_rng_bytes(&e->x->rng, made, len);
        data = made;
    }
    assert_int_equal(vj_file_replace(e->f, at, old_len, data, len, false, NULL), 0);
    if (len > old_len) {
        g_byte_array_set_size(want, (guint)(at + len) + behind);
    }
    memmove(want->data + at + len, want->data + at + old_len, behind);
    memcpy(want->data + at, data, len);
    g_byte_array_set_size(want, (guint)(at + len) + behind);
}

/* What the write-back of that put beyond the edit's own bytes, and got. */
static Moved cost(Edited *e, uint64_t at, uint64_t old_len, size_t len)
{
    Moved before = moved(e->x), after;

    replace(e, at, old_len, NULL, len);
    assert_int_equal(vj_file_commit(e->f), 0); /* objects, and no fragments */
    after = moved(e->x);
    assert_true(after.put - before.put >= len);
    return (Moved){after.put - before.put - len, after.got - before.got};
}

/* No piece but the last is short, and no object is dead for its greater part. */
static void expect_pieces(Edited *e)
{
    g_autoptr(GArray) map = NULL;

    assert_int_equal(vj_file_commit(e->f), 0);
    map = map_of(e->f);
    for (guint i = 0; i + 1 < map->len; i++) {
        const VjFileExtent *p = &g_array_index(map, VjFileExtent, i);

        assert_int_equal(p->kind, VJ_EXTENT_OBJECT);
        assert_in_range(p->length, SHORTEST_PIECE, LONGEST);
        assert_true(2 * p->length >= p->object_bytes);
    }
}

/* ---- one edit ---------------------------------------------------------------------- */

#define ROUNDS 6u

/* @gone: bytes that are replaced, by @len new ones; @most: beyond them, put, and got. */
static void expect_cost(Edited *e, const char *name, size_t gone, size_t len,
                        uint64_t most)
{
    Moved worst = {0}, sum = {0};

    for (unsigned i = 0; i < ROUNDS; i++) {
        /* The last chunk may be of any length, and is cut anew where that is short. */
        uint64_t room = e->want->len - gone - 4 * LONGEST;
        Moved beyond = cost(e, vj_rng_below(&e->x->rng, room), gone, len);

        sum.put += beyond.put;
        sum.got += beyond.got;
        worst.put = MAX(worst.put, beyond.put);
        worst.got = MAX(worst.got, beyond.got);
    }
    print_message(
        "# %s, %zu for %zu bytes: beyond it %" G_GUINT64_FORMAT " put, %" G_GUINT64_FORMAT
        " got; at most %" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT "\n",
        name, len, gone, sum.put / ROUNDS, sum.got / ROUNDS, worst.put, worst.got);
    assert_in_range(worst.put, 0, most);
    assert_in_range(worst.got, 0, most);
}

/* At each end less than half an object, and what the store adds to each object. */
static void test_a_large_edit_puts_its_own_bytes(void **state)
{
    static const size_t lengths[] = {256 << 10, 1 << 20, 8 << 20};
    Edited e;

    seed(*state);
    edited_new(&e, *state, (size_t)64 << 20);
    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        const uint64_t most = LONGEST + lengths[i] / 128 + 16384;

        expect_cost(&e, "insert", 0, lengths[i], most);
        expect_cost(&e, "replacement", lengths[i] / 2, lengths[i], most);
        expect_cost(&e, "overwrite", lengths[i], lengths[i], most);
    }
    expect_pieces(&e);
    edited_end(&e);
}

/* Without new bytes, or with a few, what is joined is at most two objects' rest. */
static void test_a_small_edit_puts_two_objects(void **state)
{
    const uint64_t most = 2 * LONGEST + LONGEST / 16;
    Edited e;

    seed(*state);
    edited_new(&e, *state, (size_t)64 << 20);
    expect_cost(&e, "delete", 4096, 0, most);
    expect_cost(&e, "delete", 1 << 20, 0, most);
    expect_cost(&e, "delete", 8 << 20, 0, most);
    expect_cost(&e, "insert", 0, 4096, most);
    expect_cost(&e, "overwrite", 4096, 4096, most);
    expect_cost(&e, "replacement", 1 << 20, 4096, most);
    expect_pieces(&e);
    edited_end(&e);
}

/* The bytes around an insert do not hide what the store has of it. */
static void test_content_is_found_inside_an_insert(void **state)
{
    Edited e;
    Fixture *x = *state;
    g_autofree uint8_t *data = g_malloc(VJ_FILE_EDIT_MAX);

    seed(x);
    edited_new(&e, x, (size_t)16 << 20);
    vj_rng_bytes(&x->rng, data, VJ_FILE_EDIT_MAX);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t before = moved(x).put;

        replace(&e, vj_rng_below(&x->rng, e.want->len), 0, data, VJ_FILE_EDIT_MAX);
        assert_int_equal(vj_file_commit(e.f), 0);
        if (i > 0) {
            assert_in_range(moved(x).put - before, 0, VJ_FILE_EDIT_MAX / 2);
        }
    }
    edited_end(&e);
}

/* A writer that overwrites a file in rounds cuts it as if it had done so at once, but for
 * the end of each round. */
static void test_content_is_found_in_an_overwriting_stream(void **state)
{
    enum { ROUND = 2 << 20, STREAM = 16 << 20 };
    Fixture *x = *state;
    const uint64_t begin = 1234567;
    Edited first, second;
    uint64_t before;

    seed(x);
    edited_new(&first, x, STREAM);
    edited_new(&second, x, STREAM + (4 << 20));
    before = moved(x).put;
    for (uint64_t at = 0; at < STREAM; at += ROUND) {
        replace(&second, begin + at, ROUND, first.want->data + at, ROUND);
        assert_int_equal(vj_file_commit(second.f), 0);
    }
    /* At each end one chunk, on average; all of them anew would be twice as much. */
    assert_in_range(moved(x).put - before, 1, (STREAM / ROUND + 2) * LONGEST);
    vj_file_unref(first.f);
    edited_end(&second);
    g_byte_array_unref(first.want);
}

/* ---- many edits -------------------------------------------------------------------- */

/* Of all lengths, several in one commit or one, near each other or not. */
static void test_many_edits_leave_large_pieces(void **state)
{
    Fixture *x = *state;
    Edited e;

    seed(x);
    edited_new(&e, x, (size_t)4 << 20);
    for (unsigned i = 0; i < 400; i++) {
        uint64_t most = (uint64_t)1 << (8 + vj_rng_below(&x->rng, 12));
        uint64_t at = vj_rng_below(&x->rng, e.want->len);
        uint64_t gone = vj_rng_below(&x->rng, 2) * vj_rng_below(&x->rng, most);
        uint64_t len = vj_rng_below(&x->rng, 3) * vj_rng_below(&x->rng, most / 2);

        gone = MIN(gone, e.want->len - at);
        replace(&e, at, gone, NULL, e.want->len < (32 << 20) ? len : 0);
        if (vj_rng_below(&x->rng, 2) == 0) {
            expect_pieces(&e);
        }
    }
    expect_pieces(&e);
    edited_end(&e);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_a_large_edit_puts_its_own_bytes, setup,
                                    teardown),
    cmocka_unit_test_setup_teardown(test_a_small_edit_puts_two_objects, setup, teardown),
    cmocka_unit_test_setup_teardown(test_content_is_found_inside_an_insert, setup,
                                    teardown),
    cmocka_unit_test_setup_teardown(test_content_is_found_in_an_overwriting_stream, setup,
                                    teardown),
    cmocka_unit_test_setup_teardown(test_many_edits_leave_large_pieces, setup, teardown),
};

VJ_TEST_MAIN(tests)
