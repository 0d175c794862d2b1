/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-transform.c - what is stored is what the user chose: index, copies, mixed files,
 * records
 */
#include "settings-fixture.h"

#define LEN ((size_t)400000)

static VjObjectsStats stats_of(Fixture *x)
{
    VjObjectsStats s;

    vj_objects_stats(x->v->objects, &s);
    return s;
}

static uint64_t stored_bytes(Fixture *x, VjFile *f)
{
    VjInode inode;

    assert_int_equal(vj_file_getattr(vj_volume_files(x->v), vj_file_ino(f), &inode), 0);
    return inode.stored_bytes;
}

static VjFile *make(Fixture *x, const char *transform, const uint8_t *bytes, size_t len)
{
    VjFile *f = create(x);

    set(x, f, transform, NULL);
    write_all(f, 0, bytes, len);
    assert_int_equal(vj_file_sync(f), 0);
    return f;
}

/* The index knows content under what was asked for and what decoding needs, not under how
 * hard the encoder tried. */
static void equal_content_is_one_object_where_the_choice_is_equal(void **state)
{
    static const struct {
        const char *transform;
        bool is_new;
    } cases[] = {{"none", true},    {"none", false},  {"lz4", true},     {"lz4:9", false},
                 {"xor:5a", true},  {"xor:5b", true}, {"xor:5a", false}, {"zstd:1", true},
                 {"zstd:9", false}, {"rle", true}};
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        VjObjectsStats before = stats_of(x), after;
        VjFile *f = make(x, cases[i].transform, bytes, LEN);

        after = stats_of(x);
        if ((after.put_bytes > before.put_bytes) != cases[i].is_new) {
            fail_msg("%s: case %zu put %" G_GUINT64_FORMAT " bytes", cases[i].transform,
                     i, after.put_bytes - before.put_bytes);
        }
        expect_bytes(f, bytes, LEN);
        vj_file_unref(f);
    }
    expect_sound(x);
}

/* Content that no codec makes smaller is stored as it is, under what was asked for. */
static void what_does_not_shrink_is_stored_as_none(void **state)
{
    static const char *const transforms[] = {"rle", "lz4", "zstd"};
    Fixture *x = *state;
    g_autofree uint8_t *bytes = g_malloc(LEN);
    uint64_t plain;
    VjFile *f;

    vj_rng_bytes(&x->rng, bytes, LEN);
    f = make(x, "none", bytes, LEN);
    plain = stored_bytes(x, f);
    assert_true(plain < LEN + LEN / 200); /* grows by less than 0.5 % */
    vj_file_unref(f);
    for (size_t i = 0; i < G_N_ELEMENTS(transforms); i++) {
        g_autoptr(GArray) map = NULL;

        f = make(x, transforms[i], bytes, LEN);
        map = map_of(f);
        assert_int_equal(stored_bytes(x, f), plain);
        for (guint e = 0; e < map->len; e++) {
            assert_int_equal(g_array_index(map, VjFileExtent, e).codec, 0);
        }
        expect_bytes(f, bytes, LEN);
        vj_file_unref(f);
    }
    expect_sound(x);
}

static void copy(Fixture *x, VjFile *from, const char *transform, const uint8_t *bytes,
                 size_t len, bool is_shared)
{
    VjObjectsStats before = stats_of(x), after;
    VjFile *to = create(x);
    uint64_t done = 0;

    set(x, to, transform, NULL);
    while (done < len) {
        uint64_t copied;

        assert_int_equal(vj_file_copy(from, done, to, done, len - done, &copied), 0);
        assert_true(copied > 0);
        done += copied;
    }
    assert_int_equal(vj_file_sync(to), 0);
    expect_bytes(to, bytes, len);
    after = stats_of(x);
    assert_int_equal(after.put_bytes == before.put_bytes, is_shared);
    if (is_shared) {
        assert_int_equal(after.hashed_bytes, before.hashed_bytes); /* no byte was moved */
    }
    vj_file_unref(to);
}

/* Longer than what one call brings into memory. */
static void copies_share_where_the_choice_is_equal(void **state)
{
    const size_t len = 5000000;
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, len);
    VjFile *f = create(x), *none = create(x);

    set(x, f, "lz4", "256K");
    write_all(f, 0, bytes, len);
    assert_int_equal(vj_file_sync(f), 0);
    copy(x, f, "lz4", bytes, len, true);
    copy(x, f, "lz4:9", bytes, len, true);
    copy(x, f, "none", bytes, len, false);
    copy(x, f, "zstd", bytes, len, false);
    set(x, none, "xor:01", "256K");
    write_all(none, 0, bytes, len);
    assert_int_equal(vj_file_sync(none), 0);
    copy(x, none, "xor:01", bytes, len, true);
    copy(x, none, "xor:02", bytes, len, false);
    vj_file_unref(f);
    vj_file_unref(none);
    expect_sound(x);
}

/* A change of mind holds for what is written; the rest stays readable.  Edits in the
 * middle. */
static void mixed_files(void **state)
{
    static const char *const transforms[] = {"lz4", "xor", "none", "zstd", "rle"};
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, 2 * LEN);
    VjFile *f = make(x, "none", bytes, LEN);
    size_t len = LEN, seen[8] = {0};
    g_autoptr(GArray) map = NULL;

    for (size_t i = 0; i < G_N_ELEMENTS(transforms); i++) {
        size_t at = 60000 + i * 70000;
        uint8_t piece[5000];

        memset(piece, (int)i + 1, sizeof piece);
        set(x, f, transforms[i], NULL);
        assert_int_equal(vj_file_replace(f, at, 1000, piece, sizeof piece, false, NULL),
                         0);
        memmove(bytes + at + sizeof piece, bytes + at + 1000, len - at - 1000);
        memcpy(bytes + at, piece, sizeof piece);
        len += sizeof piece - 1000;
        assert_int_equal(vj_file_commit(f), 0); /* as objects */
        expect_bytes(f, bytes, len);
    }
    map = map_of(f);
    for (guint e = 0; e < map->len; e++) {
        seen[g_array_index(map, VjFileExtent, e).codec]++;
    }
    for (uint8_t codec = VJ_CODEC_ID_NONE; codec <= VJ_CODEC_ID_ZSTD; codec++) {
        assert_true(seen[codec] > 0);
    }
    assert_int_equal(vj_file_truncate(f, 250000), 0);
    assert_int_equal(vj_file_sync(f), 0);
    expect_bytes(f, bytes, 250000);
    vj_file_unref(f);
    expect_sound(x);
}

/* Small contents are encoded in their record, for every length around what a codec can
 * do. */
static void small_contents(void **state)
{
    static const char *const transforms[] = {"none", "xor:5a", "rle", "lz4", "zstd:3"};
    static const size_t lengths[] = {1, 2, 3, 16, 200, 4095, 4096, 4097};
    Fixture *x = *state;

    for (size_t t = 0; t < G_N_ELEMENTS(transforms); t++) {
        for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
            uint8_t same[4097], random[4097];
            VjFile *f, *g;

            memset(same, 'a', sizeof same);
            vj_rng_bytes(&x->rng, random, sizeof random);
            f = make(x, transforms[t], same, lengths[i]);
            g = make(x, transforms[t], random, lengths[i]);
            expect_bytes(f, same, lengths[i]);
            expect_bytes(g, random, lengths[i]);
            if (lengths[i] <= VJ_FILE_INLINE_MAX) {
                assert_int_equal(stored_bytes(x, g), lengths[i]);
                if (t >= 2 && lengths[i] >= 200) {
                    assert_true(stored_bytes(x, f) < lengths[i] / 2);
                }
            }
            vj_file_unref(f);
            vj_file_unref(g);
        }
    }
    expect_sound(x);
}

typedef struct Choice {
    uint64_t ino;
    VjTransform transform;
} Choice;

static int choose_body(VjTxn *txn, void *opaque)
{
    const Choice *c = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, c->ino, &inode);

    inode.transform = c->transform;
    inode.flags |= VJ_INODE_TRANSFORM;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

/* The content is read, changes are refused. */
static void expect_refused(Fixture *x, VjTransform later)
{
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = make(x, "lz4", bytes, LEN);
    Choice choice = {.ino = vj_file_ino(f), .transform = later};
    VjRecode step = {.offset = 0};
    VjFile *other = create(x);
    uint64_t copied;

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, choose_body, &choice), 0);
    assert_int_equal(vj_file_settings_changed(vj_volume_files(x->v), choice.ino), 0);
    expect_bytes(f, bytes, LEN);
    assert_int_equal(vj_file_write(f, 0, "x", 1, false, NULL), -EIO);
    assert_int_equal(vj_file_truncate(f, 5), -EIO);
    assert_int_equal(vj_file_copy(other, 0, f, 0, 1, &copied), 0); /* nothing to copy */
    assert_int_equal(vj_file_recode(f, &step), -EIO);
    assert_int_equal(vj_file_sync(f), 0);
    set(x, f, "zstd", NULL);
    assert_int_equal(vj_file_write(f, 0, "x", 1, false, NULL), 0);
    bytes[0] = 'x';
    expect_bytes(f, bytes, LEN);
    vj_file_unref(f);
    vj_file_unref(other);
}

/* A transformation of a later version. */
static void an_unknown_choice(void **state)
{
    expect_refused(*state, (VjTransform){.codec = 77});
    expect_sound(*state);
}

/* Without the key nothing is written: not in the clear. */
static void a_choice_with_a_key(void **state)
{
    expect_refused(*state, (VjTransform){.codec = VJ_CODEC_ID_LZ4, .key_id = 1});
    expect_sound(*state);
}

/* Space for a write is reserved as the file's own object sizes take it. */
static void small_objects_reserve_more(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *large = create(x), *small = create(x);
    uint64_t by_large, by_both;

    set(x, large, NULL, "64K");
    set(x, small, NULL, "1K");
    write_all(large, 0, bytes, LEN);
    by_large = vj_file_table_reserved(x->v->files);
    write_all(small, 0, bytes, LEN);
    by_both = vj_file_table_reserved(x->v->files);
    /* Each object takes a block of the store and its records besides its bytes. */
    assert_true(by_both - by_large > LEN + LEN / 1024 * 4096);
    assert_true(by_large < 2 * LEN);
    vj_file_unref(large);
    vj_file_unref(small);
    expect_sound(x);
}

#define TRANSFORM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TRANSFORM_TEST(equal_content_is_one_object_where_the_choice_is_equal),
    TRANSFORM_TEST(what_does_not_shrink_is_stored_as_none),
    TRANSFORM_TEST(copies_share_where_the_choice_is_equal),
    TRANSFORM_TEST(mixed_files),
    TRANSFORM_TEST(small_contents),
    TRANSFORM_TEST(an_unknown_choice),
    TRANSFORM_TEST(a_choice_with_a_key),
    TRANSFORM_TEST(small_objects_reserve_more),
};

VJ_TEST_MAIN_WITH_CODECS(tests)
