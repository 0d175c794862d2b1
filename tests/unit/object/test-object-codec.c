/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-codec.c - transformations of both shapes under objects
 *
 * The codecs are this test's own, in place of the build's table: "halves" drops every
 * second of two equal bytes and says -ENOSPC where they differ (varying), "turned" adds
 * its parameter to each byte (even).
 */
#include "object-fixture.h"

#include "object/object-private.h"

#define HALVES 200
#define TURNED 201
#define LEN (3 * 65536u + 1000)

const VjCodecOps *__real_vj_codec_by_id(uint8_t id);
const VjCodecOps *__wrap_vj_codec_by_id(uint8_t id);

static unsigned decoded;
/* The next encodings have no memory. */
static unsigned short_of_memory;

static size_t same_bound(size_t src_len)
{
    return src_len;
}

static size_t halves_bound(size_t src_len)
{
    return src_len + 1;
}

/* A byte that tells whether the rest is half of it or all. */
static int halves_encode(const VjCodecParams *params, const VjCodecContext *context,
                         const void *src, size_t src_len, void *dst, size_t cap,
                         size_t *dst_len)
{
    const uint8_t *from = src;
    uint8_t *to = dst;
    bool in_pairs = src_len % 2 == 0;
    size_t len;

    (void)params, (void)context;
    if (short_of_memory > 0) {
        short_of_memory--;
        return -ENOMEM;
    }
    for (size_t i = 0; in_pairs && i < src_len; i += 2) {
        in_pairs = from[i] == from[i + 1];
    }
    len = in_pairs ? src_len / 2 : src_len;
    if (cap < len + 1) {
        return -ENOSPC;
    }
    to[0] = in_pairs;
    for (size_t i = 0; i < len; i++) {
        to[1 + i] = from[in_pairs ? 2 * i : i];
    }
    *dst_len = len + 1;
    return 0;
}

static int halves_decode(const VjCodecParams *params, const VjCodecContext *context,
                         const void *src, size_t src_len, void *dst, size_t dst_len)
{
    const uint8_t *from = src;
    uint8_t *to = dst;

    (void)params, (void)context;
    decoded++;
    if (src_len == 0 || from[0] > 1 || (src_len - 1) * (1u + from[0]) != dst_len) {
        return -EBADMSG;
    }
    for (size_t i = 0; i < dst_len; i++) {
        to[i] = from[1 + (from[0] == 1 ? i / 2 : i)];
    }
    return 0;
}

static int turned_encode(const VjCodecParams *params, const VjCodecContext *context,
                         const void *src, size_t src_len, void *dst, size_t cap,
                         size_t *dst_len)
{
    const uint8_t *from = src;
    uint8_t *to = dst;

    (void)context;
    assert_true(cap >= src_len);
    for (size_t i = 0; i < src_len; i++) {
        to[i] = (uint8_t)(from[i] + params->param);
    }
    *dst_len = src_len;
    return 0;
}

static int turned_decode(const VjCodecParams *params, const VjCodecContext *context,
                         const void *src, size_t src_len, void *dst, size_t dst_len)
{
    const VjCodecParams back = {.param = (uint8_t)-params->param};
    size_t len;

    decoded++;
    return turned_encode(&back, context, src, src_len, dst, dst_len, &len);
}

const VjCodecOps *__wrap_vj_codec_by_id(uint8_t id)
{
    static const VjCodecOps halves = {.name = "halves",
                                      .id = HALVES,
                                      .bound = halves_bound,
                                      .encode = halves_encode,
                                      .decode = halves_decode};
    static const VjCodecOps turned = {.name = "turned",
                                      .id = TURNED,
                                      .flags =
                                          VJ_CODEC_SAME_LENGTH | VJ_CODEC_RANDOM_ACCESS,
                                      .bound = same_bound,
                                      .encode = turned_encode,
                                      .decode = turned_decode};

    return id == HALVES ? &halves : id == TURNED ? &turned : __real_vj_codec_by_id(id);
}

/* Each byte twice, so that it can be halved. */
static uint8_t *pairs(uint64_t seed, size_t len)
{
    uint8_t *bytes = content(seed, len);

    for (size_t i = 1; i < len; i += 2) {
        bytes[i] = bytes[i - 1];
    }
    return bytes;
}

static void put_as(Fixture *f, const void *plain, uint32_t len, const VjTransform *want,
                   VjObject *out)
{
    VjPendingObject *pending;

    assert_int_equal(store_plain(f->objects, plain, len, want, NULL, 0, &pending), 0);
    assert_int_equal(commit_pending(f, &pending, 1, out), 0);
}

static void read_everywhere(Fixture *f, const VjObject *object, const uint8_t *plain)
{
    g_autofree uint8_t *got = g_malloc(object->plain_bytes);
    VjRng rng;

    vj_rng_init(&rng, 1);
    for (int i = 0; i < 60; i++) {
        uint32_t start = (uint32_t)vj_rng_below(&rng, object->plain_bytes);
        uint32_t len = (uint32_t)vj_rng_below(&rng, object->plain_bytes - start) + 1;

        if (i % 2 == 0) {
            len = MIN(len, 5000);
        }
        assert_int_equal(vj_object_read(f->objects, object, start, got, len, i > 40), 0);
        assert_memory_equal(got, plain + start, len);
    }
    assert_content(f, object, plain);
}

static void test_varying_blocks(void **state)
{
    const VjTransform want = {.codec = HALVES};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = pairs(1, LEN), *got = g_malloc(4096);
    VjStoreStats before, after;
    VjObject object;

    put_as(f, bytes, LEN, &want, &object);
    assert_int_equal(object.codec, HALVES);
    assert_int_equal(object.stored_bytes, LEN / 2 + 4 + 4 * 12 + 24);
    read_everywhere(f, &object, bytes);

    fixture_reopen_objects(f);
    vj_store_stats(f->store, &before);
    decoded = 0;
    assert_int_equal(vj_object_read(f->objects, &object, 65536, got, 4096, false), 0);
    vj_store_stats(f->store, &after);
    assert_int_equal(decoded, 1);
    assert_int_equal(after.get_bytes - before.get_bytes, 65536 / 2 + 1 + 4 * 12 + 24);
    assert_int_equal(vj_object_read(f->objects, &object, 2 * 65536 - 10, got, 20, false),
                     0);
    assert_int_equal(decoded, 3);
}

static void test_what_does_not_shrink_is_stored_as_it_is(void **state)
{
    const VjTransform want = {.codec = HALVES}, none = {0};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject object, again, plain;

    put_as(f, bytes, LEN, &want, &object);
    assert_int_equal(object.codec, VJ_CODEC_ID_NONE);
    assert_int_equal(object.requested_codec, HALVES);
    read_everywhere(f, &object, bytes);
    put_as(f, bytes, LEN, &want, &again);
    assert_int_equal(again.id, object.id);
    for (uint32_t len = 1; len < 40; len++) {
        g_autofree uint8_t *few = pairs(2, len);

        put_as(f, few, len, &want, &again);
        assert_true(again.stored_bytes <= len + 8 + 24);
        read_everywhere(f, &again, few);
    }
    put_as(f, bytes, LEN, &none, &plain); /* what was chosen is what is stored */
    assert_true(plain.id != object.id);
}

static void test_even_blocks(void **state)
{
    const VjTransform want = {.codec = TURNED, .param = 77},
                      other = {.codec = TURNED, .param = 78};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    uint8_t first;
    VjObject object, second;

    put_as(f, bytes, LEN, &want, &object);
    assert_int_equal(object.codec, TURNED);
    assert_int_equal(object.param, 77);
    assert_int_equal(object.stored_bytes, LEN + ((LEN + 4095) / 4096) * 8 + 24);
    assert_int_equal(vj_store_get(f->store, object.id, object.loc, 0, &first, 1), 0);
    assert_int_equal(first, (uint8_t)(bytes[0] + 77));
    read_everywhere(f, &object, bytes);
    put_as(f, bytes, LEN, &other, &second);
    assert_true(second.id != object.id);
    read_everywhere(f, &second, bytes);
}

/* Level and mode steer the making and are no part of what the index knows. */
static void test_level_and_mode_do_not_part_equal_content(void **state)
{
    const VjTransform want = {.codec = HALVES},
                      other = {.codec = HALVES, .level = 9, .mode = 1};
    const VjTransform key = {.codec = HALVES, .key_id = 5};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = pairs(1, LEN);
    VjObject object, second, third;

    put_as(f, bytes, LEN, &want, &object);
    put_as(f, bytes, LEN, &other, &second);
    assert_int_equal(object.id, second.id);
    put_as(f, bytes, LEN, &key, &third);
    assert_true(third.id != object.id);
}

static void test_what_has_a_key_is_not_stored_as_it_is(void **state)
{
    const VjTransform want = {.codec = HALVES, .key_id = 5};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjPendingObject *pending;

    assert_int_equal(store_plain(f->objects, bytes, LEN, &want, NULL, 0, &pending),
                     -EOPNOTSUPP);
    assert_null(pending);
    assert_int_equal(stored_count(f), 0);
}

static void test_an_unknown_codec_is_refused(void **state)
{
    const VjTransform want = {.codec = 250};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = pairs(1, 5000), *got = g_malloc(5000);
    VjPendingObject *pending;
    VjObject object;

    assert_int_equal(store_plain(f->objects, bytes, 5000, &want, NULL, 0, &pending),
                     -EOPNOTSUPP);
    assert_null(pending);
    must_put(f, bytes, 5000, &object);
    object.codec = 250;
    assert_int_equal(vj_object_read(f->objects, &object, 0, got, 5000, true),
                     -EOPNOTSUPP);
}

/* Each took a number, and nothing was put under it: no id block stays open for them
 * (teardown), and nobody keeps them. */
static void test_what_cannot_be_encoded_leaves_nothing(void **state)
{
    const VjTransform want = {.codec = HALVES}, unknown = {.codec = 250};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = pairs(1, LEN);
    VjPendingObject *pending;
    VjObject object, after;

    put_as(f, bytes, 1000, &want, &object);
    for (unsigned i = 0; i < 3; i++) {
        const VjTransform *how = i < 2 ? &want : &unknown;

        short_of_memory = i < 2;
        assert_int_equal(store_plain(f->objects, bytes, LEN, how, NULL, 0, &pending),
                         i < 2 ? -ENOMEM : -EOPNOTSUPP);
        assert_null(pending);
    }
    assert_int_equal(stored_count(f), 1);
    put_as(f, bytes, LEN, &want, &after);
    assert_int_equal(after.id, object.id + 4);
    read_everywhere(f, &after, bytes);
}

/* A codec that says no to bytes with right checksums: damage of that block, not a
 * crash. */
static void test_a_decoder_that_refuses(void **state)
{
    const VjTransform want = {.codec = HALVES};
    Fixture *f = *state;
    g_autofree uint8_t *bytes = pairs(1, 65536 * 2), *got = g_malloc(4096);
    VjTrailer *t = vj_trailer_new(HALVES, true, 65536 * 2);
    static uint8_t data[2 * 32769];
    VjObject object, forged;
    struct iovec iov[2];
    VjPut put;

    put_as(f, bytes, 65536 * 2, &want, &object);
    forged = object;
    assert_int_equal(vj_store_get(f->store, object.id, object.loc, 0, data, sizeof data),
                     0);
    data[0] = 7;
    vj_trailer_add(t, 0, data, 32769);
    vj_trailer_add(t, 1, data + 32769, 32769);
    forged.trailer_checksum = vj_trailer_seal(t);
    forged.stored_bytes = t->data_bytes + t->bytes;
    iov[0] = (struct iovec){.iov_base = data, .iov_len = sizeof data};
    iov[1] = (struct iovec){.iov_base = t->raw, .iov_len = t->bytes};
    assert_int_equal(vj_id_take(f->objects, &forged.id), 0);
    assert_int_equal(vj_store_put(f->store, forged.id, iov, 2, &put), 0);
    forged.loc = put.loc;
    assert_int_equal(vj_object_read(f->objects, &forged, 100, got, 4096, false),
                     -EBADMSG);
    assert_int_equal(vj_object_read(f->objects, &forged, 100, got, 4096, true), -EBADMSG);
    assert_int_equal(vj_object_read(f->objects, &forged, 65536, got, 4096, true), 0);
    assert_memory_equal(got, bytes + 65536, 4096);
    assert_int_equal(vj_store_remove(f->store, put.id, put.loc), 0);
    vj_id_resolve(f->objects, put.id, false);
    vj_trailer_free(t);
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
    TEST(test_varying_blocks),
    TEST(test_what_does_not_shrink_is_stored_as_it_is),
    TEST(test_even_blocks),
    TEST(test_level_and_mode_do_not_part_equal_content),
    TEST(test_what_has_a_key_is_not_stored_as_it_is),
    TEST(test_an_unknown_codec_is_refused),
    TEST(test_what_cannot_be_encoded_leaves_nothing),
    TEST(test_a_decoder_that_refuses),
};

VJ_TEST_MAIN(tests)
