/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-encoded.c - objects under each transformation of the build: what is stored,
 * what a read of a part costs, what damage costs
 */
#include "object-fixture.h"

#include "object/object-private.h"

#define OBJECT_BYTES ((uint32_t)8 << 20)
#define BLOCK ((uint32_t)VJ_STORED_VARYING_BYTES)
#define READ_BYTES 4096u

static const char *const texts[] = {"xor",   "xor:5a", "rle",    "lz4",
                                    "lz4:9", "zstd",   "zstd:-3"};

static VjTransform transform_of(const char *text)
{
    VjTransform t = {.codec = 0};

    assert_true(vj_transform_parse(text, &t, NULL));
    return t;
}

/* Those of @texts that are in this build, one after another; ends with NULL. */
static const char *next_text(size_t *at)
{
    while (*at < G_N_ELEMENTS(texts)) {
        const char *text = texts[(*at)++];
        VjTransform t;

        if (vj_transform_parse(text, &t, NULL)) {
            return text;
        }
    }
    return NULL;
}

/* Words and runs, so that every codec saves something, and no two blocks are equal. */
static uint8_t *soft_content(uint64_t seed, size_t len)
{
    static const char *const words[] = {"object ",  "block ",
                                        "keeps ",   "\n\n\n\n\n\n\n\n",
                                        "content ", "                "};
    uint8_t *bytes = g_malloc(len);
    size_t at = 0;
    VjRng r;

    vj_rng_init(&r, seed);
    while (at < len) {
        const char *word = words[vj_rng_below(&r, G_N_ELEMENTS(words))];
        size_t part = MIN(strlen(word), len - at);

        memcpy(bytes + at, word, part);
        at += part;
        if (at < len && vj_rng_below(&r, 8) == 0) {
            bytes[at++] = (uint8_t)vj_rng_u64(&r);
        }
    }
    return bytes;
}

static void put_as(Fixture *f, const void *plain, uint32_t len, const char *text,
                   VjObject *out)
{
    const VjTransform want = transform_of(text);
    VjPendingObject *pending;

    assert_int_equal(store_plain(f->objects, plain, len, &want, NULL, 0, &pending), 0);
    assert_int_equal(commit_pending(f, &pending, 1, out), 0);
}

static int read_part(Fixture *f, const VjObject *object, const uint8_t *plain,
                     uint32_t start, uint32_t len, bool whole)
{
    g_autofree uint8_t *got = g_malloc(len);
    int rc = vj_object_read(f->objects, object, start, got, len, whole);

    if (rc == 0) {
        assert_memory_equal(got, plain + start, len);
    }
    return rc;
}

static void test_a_small_read_of_a_large_object_decodes_two_blocks_at_most(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = soft_content(1, OBJECT_BYTES);
    const char *text;
    VjRng r;

    vj_rng_init(&r, 1);
    for (size_t t = 0; (text = next_text(&t)) != NULL;) {
        VjObject object;

        put_as(f, bytes, OBJECT_BYTES, text, &object);
        assert_int_equal(object.codec, object.requested_codec);
        for (int i = 0; i < 40; i++) {
            uint32_t start =
                i == 0   ? 0
                : i == 1 ? OBJECT_BYTES - READ_BYTES
                : i == 2 ? BLOCK - READ_BYTES / 2
                         : (uint32_t)vj_rng_below(&r, OBJECT_BYTES - READ_BYTES + 1);
            VjStoreStats before, after;
            uint64_t decoded;

            fixture_reopen_objects(f); /* an empty cache: the trailer is read as well */
            vj_store_stats(f->store, &before);
            decoded = stats_of(f).decoded_blocks;
            assert_int_equal(read_part(f, &object, bytes, start, READ_BYTES, i % 2 == 0),
                             0);
            vj_store_stats(f->store, &after);
            assert_in_range(stats_of(f).decoded_blocks - decoded, 1, 2);
            assert_in_range(after.get_bytes - before.get_bytes, READ_BYTES, 150000 - 1);
            assert_int_equal(after.gets - before.gets, 2);
        }
        assert_int_equal(drop_ref(f, object.id), 0);
    }
}

static void test_parts_of_any_length_come_back(void **state)
{
    Fixture *f = *state;
    const uint32_t len = 5 * BLOCK + 1234;
    g_autofree uint8_t *bytes = soft_content(2, len);
    const char *text;
    VjRng r;

    vj_rng_init(&r, 2);
    for (size_t t = 0; (text = next_text(&t)) != NULL;) {
        VjObject object;

        put_as(f, bytes, len, text, &object);
        for (int i = 0; i < 100; i++) {
            uint32_t start = (uint32_t)vj_rng_below(&r, len);
            uint32_t part = (uint32_t)vj_rng_below(&r, len - start) + 1;

            if (i % 20 == 0) {
                fixture_reopen_objects(f);
            }
            assert_int_equal(read_part(f, &object, bytes, start,
                                       i % 3 ? part : MIN(part, 3000), i % 7 == 6),
                             0);
        }
        assert_content(f, &object, bytes);
    }
}

/* Alternating bytes, noise and single bytes: never more than none stores, and said so. */
static void test_what_would_grow_is_stored_as_none(void **state)
{
    Fixture *f = *state;
    const uint32_t len = 3 * BLOCK + 77;
    g_autofree uint8_t *noise = content(3, len), *alternating = g_malloc(len);
    const char *text;

    for (uint32_t i = 0; i < len; i++) {
        alternating[i] = i % 2 ? 0xaa : 0x55;
    }
    for (size_t t = 0; (text = next_text(&t)) != NULL;) {
        const VjTransform want = transform_of(text);
        VjObject object, again;
        uint64_t unshrunk = stats_of(f).unshrunk;
        bool varies = strncmp(text, "xor", 3) != 0;

        put_as(f, noise, len, text, &object);
        assert_int_equal(object.requested_codec, want.codec);
        assert_int_equal(object.codec, varies ? VJ_CODEC_ID_NONE : want.codec);
        assert_int_equal(object.stored_bytes, len + vj_trailer_bytes(false, len));
        assert_int_equal(stats_of(f).unshrunk - unshrunk, varies);
        assert_content(f, &object, noise);
        put_as(f, noise, len, text, &again);
        assert_int_equal(again.id, object.id);

        put_as(f, alternating, len, text, &object);
        assert_true(object.stored_bytes <= len + vj_trailer_bytes(false, len));
        assert_int_equal(object.codec == VJ_CODEC_ID_NONE, strcmp(text, "rle") == 0);
        assert_content(f, &object, alternating);
        for (uint32_t few = 1; few < 20; few++) {
            put_as(f, noise, few, text, &object);
            assert_true(object.stored_bytes <= few + vj_trailer_bytes(false, few));
            assert_content(f, &object, noise);
        }
        for (int refs = 0; refs < 2; refs++) {
            assert_int_equal(drop_ref(f, again.id), 0); /* lz4:9 shares what lz4 put */
        }
    }
}

static void test_noise_between_text_does_not_spoil_the_text(void **state)
{
    Fixture *f = *state;
    const uint32_t len = 8 * BLOCK;
    g_autofree uint8_t *bytes = soft_content(4, len), *noise = content(4, 4 * BLOCK);
    const char *text;

    memcpy(bytes, noise, BLOCK); /* first of all: nobody may give up on it */
    memcpy(bytes + 3 * BLOCK + 100, noise + BLOCK, 3 * BLOCK);
    for (size_t t = 0; (text = next_text(&t)) != NULL;) {
        VjObject object;

        put_as(f, bytes, len, text, &object);
        assert_int_equal(object.codec, object.requested_codec);
        if (strncmp(text, "xor", 3) != 0) {
            assert_true(object.stored_bytes < len - BLOCK);
        }
        assert_content(f, &object, bytes);
    }
}

static void test_counters_tell_what_was_saved(void **state)
{
    Fixture *f = *state;
    const uint32_t len = 4 * BLOCK;
    g_autofree uint8_t *bytes = soft_content(5, len);
    VjObjectsStats before = stats_of(f), after;
    VjObject object;

    put_as(f, bytes, len, "rle", &object);
    after = stats_of(f);
    assert_int_equal(after.encoded_in_bytes - before.encoded_in_bytes, len);
    assert_int_equal(after.encoded_out_bytes - before.encoded_out_bytes,
                     object.stored_bytes - vj_trailer_bytes(true, len));
    put_as(f, bytes, len, "none", &object);
    assert_int_equal(stats_of(f).encoded_in_bytes, after.encoded_in_bytes);
    assert_int_equal(stats_of(f).unshrunk, after.unshrunk);
    assert_int_equal(read_part(f, &object, bytes, 5, 100, false), 0);
    assert_int_equal(stats_of(f).decoded_blocks, before.decoded_blocks);
}

/* ---- sizes of reads and of the cache ----------------------------------------------- */

static void test_a_large_object_is_loaded_whole_for_large_reads_alone(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = soft_content(6, OBJECT_BYTES);
    VjStoreStats before, after;
    VjObject object;

    fixture_close_objects(f);
    f->cache_bytes = 64 * VJ_MIB;
    fixture_open_objects(f);
    put_as(f, bytes, OBJECT_BYTES, "rle", &object);
    vj_store_stats(f->store, &before);
    assert_int_equal(read_part(f, &object, bytes, 3 * BLOCK, 2 * BLOCK, true), 0);
    vj_store_stats(f->store, &after);
    assert_true(after.get_bytes - before.get_bytes < 2 * BLOCK + 3000);
    assert_int_equal(stats_of(f).decoded_blocks, 2);
    assert_int_equal(read_part(f, &object, bytes, 0, 1 << 20, true), 0);
    vj_store_stats(f->store, &before);
    assert_int_equal(read_part(f, &object, bytes, 1 << 20, 1 << 20, true), 0);
    vj_store_stats(f->store, &after);
    assert_int_equal(after.gets, before.gets); /* the second one finds it all */
}

static void test_a_small_cache_does_not_load_the_same_object_again_and_again(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = soft_content(7, OBJECT_BYTES);
    VjStoreStats before, after;
    VjObject object;

    fixture_close_objects(f);
    f->cache_bytes = VJ_MIB;
    fixture_open_objects(f);
    put_as(f, bytes, OBJECT_BYTES, "rle", &object);
    vj_store_stats(f->store, &before);
    for (uint32_t at = 0; at < OBJECT_BYTES; at += 2 * BLOCK) {
        assert_int_equal(read_part(f, &object, bytes, at, 2 * BLOCK, true), 0);
    }
    vj_store_stats(f->store, &after);
    assert_true(after.get_bytes - before.get_bytes <= object.stored_bytes + 3000);
    assert_int_equal(stats_of(f).decoded_blocks, OBJECT_BYTES / BLOCK);
}

/* ---- damage, and what other builds wrote ------------------------------------------- */

static void flip_stored(Fixture *f, const VjObject *object, uint32_t at, VjObject *out)
{
    g_autofree uint8_t *stored = g_malloc(object->stored_bytes);
    struct iovec iov = {.iov_base = stored, .iov_len = object->stored_bytes};
    VjPut put;

    assert_int_equal(
        vj_store_get(f->store, object->id, object->loc, 0, stored, object->stored_bytes),
        0);
    stored[at] ^= 0x20;
    *out = *object;
    assert_int_equal(vj_id_take(f->objects, &out->id), 0);
    assert_int_equal(vj_store_put(f->store, out->id, &iov, 1, &put), 0);
    out->loc = put.loc;
}

static void test_a_damaged_block_costs_its_range_alone(void **state)
{
    Fixture *f = *state;
    const uint32_t blocks = 6, len = blocks * BLOCK;
    g_autofree uint8_t *bytes = soft_content(8, len);
    const char *text;

    for (size_t t = 0; (text = next_text(&t)) != NULL;) {
        g_autoptr(VjTrailer) trailer = NULL;
        VjObject object, damaged;
        uint32_t even, bad = 3;

        put_as(f, bytes, len, text, &object);
        assert_int_equal(vj_object_load_trailer(f->objects, &object, &trailer), 0);
        even = vj_stored_block_bytes(trailer->varying);
        bad = trailer->varying ? 3 : 50;
        flip_stored(f, &object, vj_trailer_block_start(trailer, bad) + 20, &damaged);
        for (uint32_t i = 0; i < trailer->block_count; i++) {
            assert_int_equal(read_part(f, &damaged, bytes, i * even,
                                       vj_trailer_block_plain(trailer, i), i % 2),
                             i == bad ? -EBADMSG : 0);
        }
        assert_int_equal(read_part(f, &damaged, bytes, 0, len, true), -EBADMSG);
        assert_int_equal(read_part(f, &damaged, bytes, bad * even - 10, 10, true), 0);
        assert_int_equal(read_part(f, &damaged, bytes, bad * even - 10, 11, true),
                         -EBADMSG);
        assert_int_equal(vj_store_remove(f->store, damaged.id, damaged.loc), 0);
        vj_id_resolve(f->objects, damaged.id, false);
    }
}

typedef struct Relabel {
    uint64_t id;
    uint8_t codec;
} Relabel;

static int relabel(VjTxn *txn, void *opaque)
{
    const Relabel *what = opaque;
    VjObject object;
    int r = vj_object_record_get(txn, VJ_SPACE_OBJECT, what->id, &object);

    if (r < 0) {
        return r;
    }
    object.codec = what->codec;
    return vj_object_record_put(txn, VJ_SPACE_OBJECT, &object);
}

/* A record whose transformation only a later version knows: everything else goes on. */
static void test_an_unknown_transformation_on_disk(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = soft_content(9, 100000);
    g_autofree char *said = NULL;
    VjObject object, other;
    VjCheckReport report = {.tick = NULL};
    Relabel what = {.codec = 200};

    must_put(f, bytes, 100000, &object);
    put_as(f, bytes + 1, 90000, "rle", &other);
    what.id = object.id;
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, relabel, &what), 0);
    assert_int_equal(get_object(f, object.id, &object), 0);
    assert_int_equal(read_part(f, &object, bytes, 0, 4096, false), -EOPNOTSUPP);
    assert_int_equal(read_part(f, &object, bytes, 0, 100000, true), -EOPNOTSUPP);
    assert_content(f, &other, bytes + 1);
    report = check_objects(f, &said);
    assert_int_equal(report.problems, 1);
    assert_non_null(
        strstr(said, "transformation 200 (unknown), which is not in this build"));
    what.codec = 0;
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, relabel, &what), 0);
    assert_int_equal(get_object(f, object.id, &object), 0);
    assert_content(f, &object, bytes);
}

/* What is stored is what was asked for, or none: everything else is a fault of the
 * daemon. */
static void test_fsck_compares_what_is_stored_with_what_was_asked_for(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = soft_content(9, 100000);
    g_autofree char *said = NULL;
    VjObject object;
    Relabel what = {.codec = VJ_CODEC_ID_LZ4};

    put_as(f, bytes, 100000, "rle", &object);
    what.id = object.id;
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, relabel, &what), 0);
    assert_true(check_objects(f, &said).problems > 0);
    assert_non_null(strstr(said, "it is stored with lz4, but rle was asked for"));
    what.codec = object.codec;
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, relabel, &what), 0);
}

static int teardown(void **state)
{
    Fixture *f = *state;

    assert_consistent(f);
    fixture_close_objects(f);
    assert_int_equal(key_count(f, VJ_SPACE_ID_BLOCK), 0);
    return fixture_teardown(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_a_small_read_of_a_large_object_decodes_two_blocks_at_most),
    TEST(test_parts_of_any_length_come_back),
    TEST(test_what_would_grow_is_stored_as_none),
    TEST(test_noise_between_text_does_not_spoil_the_text),
    TEST(test_counters_tell_what_was_saved),
    TEST(test_a_large_object_is_loaded_whole_for_large_reads_alone),
    TEST(test_a_small_cache_does_not_load_the_same_object_again_and_again),
    TEST(test_a_damaged_block_costs_its_range_alone),
    TEST(test_an_unknown_transformation_on_disk),
    TEST(test_fsck_compares_what_is_stored_with_what_was_asked_for),
};

VJ_TEST_MAIN(tests)
