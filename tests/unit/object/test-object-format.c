/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-format.c - records and the stored form, byte by byte
 *
 * tests/compat/object-*.hex are what each version wrote; they are never changed.
 */
#include "object-fixture.h"

#include <ctype.h>

#include "object/object-format.h"
#include "object/stored-form.h"

/* The hex file @name: owned bytes. */
static uint8_t *load_golden(const char *name, size_t *len)
{
    g_autofree char *path = g_build_filename(TOP_SRCDIR, "tests/compat", name, NULL);
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    GByteArray *bytes = g_byte_array_new();
    int high = -1;

    if (!g_file_get_contents(path, &text, NULL, &error)) {
        fail_msg("%s", error->message);
    }
    for (const char *at = text; *at != '\0'; at++) {
        int digit = g_ascii_xdigit_value(*at);

        if (isspace((unsigned char)*at)) {
            continue;
        }
        assert_true(digit >= 0);
        if (high < 0) {
            high = digit;
        } else {
            uint8_t byte = (uint8_t)(high << 4 | digit);

            g_byte_array_append(bytes, &byte, 1);
            high = -1;
        }
    }
    assert_int_equal(high, -1);
    *len = bytes->len;
    return g_byte_array_free(bytes, FALSE);
}

static void expect_golden(const char *name, const void *bytes, size_t len)
{
    size_t golden_len;
    g_autofree uint8_t *golden = NULL;
    /* A directory: for a new version. */
    const char *write_to = g_getenv("VARJFS_WRITE_GOLDEN");

    if (write_to != NULL) {
        g_autofree char *path = g_build_filename(write_to, name, NULL);
        g_autoptr(GString) text = g_string_new(NULL);

        for (size_t i = 0; i < len; i++) {
            g_string_append_printf(text, "%02x%s", ((const uint8_t *)bytes)[i],
                                   i % 32 == 31 || i + 1 == len ? "\n" : "");
        }
        assert_true(g_file_set_contents(path, text->str, -1, NULL));
    }
    golden = load_golden(name, &golden_len);
    assert_int_equal(len, golden_len);
    assert_memory_equal(bytes, golden, len);
}

static VjObject sample(void)
{
    VjObject object = {.id = 0x0102030405060708,
                       .plain_bytes = 0x00112233,
                       .stored_bytes = 0x00445566,
                       .codec = 3,
                       .requested_codec = 4,
                       .param = 5,
                       .key_id = 0x778899aa,
                       .flags = VJ_OBJECT_UNINDEXED,
                       .deaths = 0x0b0c0d0e,
                       .trailer_checksum = 0xf1f2f3f4f5f6f7f8,
                       .refs = 0x1112131415161718};

    for (uint8_t i = 0; i < VJ_LOC_BYTES; i++) {
        object.loc.bytes[i] = (uint8_t)(0x20 + i);
    }
    for (uint8_t i = 0; i < VJ_DIGEST_MAX_BYTES; i++) {
        object.digest.bytes[i] = (uint8_t)(0x40 + i);
    }
    return object;
}

static void expect_equal(const VjObject *a, const VjObject *b)
{
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->plain_bytes, b->plain_bytes);
    assert_int_equal(a->stored_bytes, b->stored_bytes);
    assert_int_equal(a->codec, b->codec);
    assert_int_equal(a->requested_codec, b->requested_codec);
    assert_int_equal(a->param, b->param);
    assert_int_equal(a->key_id, b->key_id);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->deaths, b->deaths);
    assert_int_equal(a->trailer_checksum, b->trailer_checksum);
    assert_int_equal(a->refs, b->refs);
    assert_memory_equal(&a->loc, &b->loc, sizeof a->loc);
    assert_memory_equal(&a->digest, &b->digest, sizeof a->digest);
}

static void test_records(void **state)
{
    static const struct {
        VjSpace space;
        const char *name;
    } kinds[] = {{VJ_SPACE_OBJECT, "object-record-v1.hex"},
                 {VJ_SPACE_DEAD, "object-dead-v2.hex"}};

    (void)state;
    for (size_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
        VjSpace other = kinds[1 - k].space;
        uint8_t bytes[VJ_OBJECT_RECORD_BYTES];
        VjSlice value = vj_slice(bytes, sizeof bytes);
        VjObject object = sample(), got;

        if (kinds[k].space == VJ_SPACE_DEAD) {
            object.refs = 0;
            object.flags |= VJ_OBJECT_REMOVING;
        }
        vj_object_encode(&object, kinds[k].space, bytes);
        expect_golden(kinds[k].name, bytes, sizeof bytes);
        assert_int_equal(vj_object_decode(value, kinds[k].space, object.id, &got), 0);
        expect_equal(&object, &got);
        assert_int_equal(vj_object_decode(value, other, object.id, &got), -EBADMSG);
        assert_int_equal(vj_object_decode(value, kinds[k].space, object.id + 1, &got),
                         -EBADMSG);
        value.len--;
        assert_int_equal(vj_object_decode(value, kinds[k].space, object.id, &got),
                         -EBADMSG);
    }
}

/* Values that a right checksum does not excuse. */
static void test_senseless_records(void **state)
{
    static const struct {
        size_t at;
        uint8_t byte;
        VjSpace space;
    } wrong[] = {
        {4, 2, VJ_SPACE_OBJECT},     /* version */
        {4, 1, VJ_SPACE_DEAD},       /* the version before */
        {23, 0xff, VJ_SPACE_OBJECT}, /* stored bytes too many */
        {19, 0x7f, VJ_SPACE_OBJECT}, /* plain bytes too many */
        {28, 0x80, VJ_SPACE_OBJECT}, /* unknown flag */
        {28, 0x20, VJ_SPACE_DEAD},
        {28, VJ_OBJECT_REMOVING, VJ_SPACE_OBJECT}, /* a flag of the dead */
        {36, 1, VJ_SPACE_OBJECT},                  /* reserved */
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        uint8_t bytes[VJ_OBJECT_RECORD_BYTES];
        VjObject object = sample(), got;
        uint64_t sum;

        object.refs = wrong[i].space == VJ_SPACE_OBJECT;
        vj_object_encode(&object, wrong[i].space, bytes);
        assert_int_equal(vj_object_decode(vj_slice(bytes, sizeof bytes), wrong[i].space,
                                          object.id, &got),
                         0);
        bytes[wrong[i].at] = wrong[i].byte;
        sum = GUINT64_TO_LE(vj_checksum64(bytes, sizeof bytes - 8));
        memcpy(bytes + sizeof bytes - 8, &sum, sizeof sum);
        assert_int_equal(vj_object_decode(vj_slice(bytes, sizeof bytes), wrong[i].space,
                                          object.id, &got),
                         -EBADMSG);
    }
}

static void test_index_entries(void **state)
{
    VjObject object = sample();
    VjIndexKey key, other;
    uint8_t bytes[VJ_INDEX_VALUE_BYTES];
    VjSlice value = vj_slice(bytes, sizeof bytes);
    uint64_t id;

    (void)state;
    vj_index_key_of(&object, &key);
    expect_golden("object-index-key-v1.hex", &key, sizeof key);
    vj_index_encode(&key, object.id, bytes);
    expect_golden("object-index-v1.hex", bytes, sizeof bytes);
    assert_int_equal(vj_index_decode(&key, value, &id), 0);
    assert_int_equal(id, object.id);
    object.param ^= 1;
    vj_index_key_of(&object, &other);
    assert_int_equal(vj_index_decode(&other, value, &id), -EBADMSG);
    value.len--;
    assert_int_equal(vj_index_decode(&key, value, &id), -EBADMSG);
}

static void test_id_blocks(void **state)
{
    uint8_t key[8], bytes[VJ_ID_BLOCK_BYTES], next[VJ_NEXT_ID_BYTES];
    VjIdRange range = {.first_id = 0x1020304050607080,
                       .last_id = 0x102030405060ffff,
                       .owner = 0x2122232425262728},
              got;
    VjSlice value = vj_slice(bytes, sizeof bytes);
    uint64_t next_id;

    (void)state;
    vj_be64_set(key, range.first_id);
    vj_id_block_encode(&range, bytes);
    expect_golden("object-id-block-v2.hex", bytes, sizeof bytes);
    assert_int_equal(vj_id_block_decode(vj_slice(key, 8), value, &got), 0);
    assert_int_equal(got.first_id, range.first_id);
    assert_int_equal(got.last_id, range.last_id);
    assert_int_equal(got.owner, range.owner);
    key[7]++;
    assert_int_equal(vj_id_block_decode(vj_slice(key, 8), value, &got), -EBADMSG);
    vj_next_id_encode(0x1020304050610000, next);
    expect_golden("object-next-id-v1.hex", next, sizeof next);
    assert_int_equal(vj_next_id_decode(vj_slice(next, sizeof next), &next_id), 0);
    assert_int_equal(next_id, 0x1020304050610000);
    next[9] ^= 1;
    assert_int_equal(vj_next_id_decode(vj_slice(next, sizeof next), &next_id), -EBADMSG);
}

static void test_epochs(void **state)
{
    uint8_t bytes[VJ_EPOCH_BYTES];
    VjSlice value = vj_slice(bytes, sizeof bytes);
    uint64_t epoch;

    (void)state;
    vj_epoch_encode(0x3132333435363738, bytes);
    expect_golden("object-epoch-v1.hex", bytes, sizeof bytes);
    assert_int_equal(vj_epoch_decode(value, &epoch), 0);
    assert_int_equal(epoch, 0x3132333435363738);
    assert_int_equal(vj_next_id_decode(value, &epoch), -EBADMSG);
    bytes[9] ^= 1;
    assert_int_equal(vj_epoch_decode(value, &epoch), -EBADMSG);
    vj_epoch_encode(0, bytes);
    assert_int_equal(vj_epoch_decode(value, &epoch), -EBADMSG);
}

/* What the store gets for a `none` object of two blocks. */
static void test_a_stored_none_object(void **state)
{
    Fixture *f;
    g_autofree uint8_t *stored = NULL;
    uint8_t plain[4097 + 100];
    VjObject object;

    assert_int_equal(fixture_setup(state), 0);
    f = *state;
    vj_test_fill_pattern(plain, sizeof plain);
    must_put(f, plain, sizeof plain, &object);
    stored = g_malloc(object.stored_bytes);
    assert_int_equal(
        vj_store_get(f->store, object.id, object.loc, 0, stored, object.stored_bytes), 0);
    expect_golden("object-stored-none-v1.hex", stored, object.stored_bytes);
    assert_int_equal(
        object.trailer_checksum,
        vj_checksum64(stored + sizeof plain, object.stored_bytes - sizeof plain));
    fixture_teardown(state);
}

/* A trailer of the varying shape: three blocks of 1000, 1 and 70000 stored bytes. */
static VjTrailer *make_varying(uint64_t *checksum)
{
    static const uint32_t lengths[] = {1000, 1, 70000};
    g_autofree uint8_t *bytes = g_malloc(70000);
    VjTrailer *t = vj_trailer_new(9, true, 2 * 65536 + 5);

    assert_non_null(t);
    assert_int_equal(t->block_count, 3);
    vj_test_fill_pattern(bytes, 70000);
    for (uint32_t i = 0; i < 3; i++) {
        vj_trailer_add(t, i, bytes, lengths[i]);
    }
    *checksum = vj_trailer_seal(t);
    return t;
}

static void test_a_varying_trailer(void **state)
{
    uint64_t checksum;
    g_autoptr(VjTrailer) t = make_varying(&checksum), got = NULL;

    (void)state;
    expect_golden("object-trailer-varying-v1.hex", t->raw, t->bytes);
    assert_int_equal(vj_trailer_parse(vj_slice(t->raw, t->bytes), 9, true, t->plain_bytes,
                                      71001 + t->bytes, checksum, &got),
                     0);
    assert_int_equal(got->data_bytes, 71001);
    assert_int_equal(vj_trailer_block_start(got, 0), 0);
    assert_int_equal(vj_trailer_block_end(got, 0), 1000);
    assert_int_equal(vj_trailer_block_start(got, 2), 1001);
    assert_int_equal(vj_trailer_block_end(got, 2), 71001);
    assert_int_equal(vj_trailer_block_plain(got, 1), 65536);
    assert_int_equal(vj_trailer_block_plain(got, 2), 5);
}

/* The record and the trailer disagree, or the trailer with itself, under a right
 * checksum. */
static void test_hostile_trailers(void **state)
{
    uint64_t checksum;
    g_autoptr(VjTrailer) t = make_varying(&checksum);
    uint32_t stored = 71001 + t->bytes;
    VjTrailer *got;

    (void)state;
    assert_int_equal(vj_trailer_parse(vj_slice(t->raw, t->bytes), 9, true, t->plain_bytes,
                                      stored, checksum + 1, &got),
                     -EBADMSG);
    assert_int_equal(vj_trailer_parse(vj_slice(t->raw, t->bytes), 8, true, t->plain_bytes,
                                      stored, checksum, &got),
                     -EBADMSG);
    assert_int_equal(vj_trailer_parse(vj_slice(t->raw, t->bytes), 9, true,
                                      t->plain_bytes - 1, stored, checksum, &got),
                     -EBADMSG);
    assert_int_equal(vj_trailer_parse(vj_slice(t->raw, t->bytes), 9, true, t->plain_bytes,
                                      stored - 1, checksum, &got),
                     -EBADMSG);
    assert_int_equal(vj_trailer_parse(vj_slice(t->raw, t->bytes), 9, true, t->plain_bytes,
                                      t->bytes, checksum, &got),
                     -EBADMSG);
    assert_int_equal(vj_trailer_parse(vj_slice(t->raw, t->bytes - 1), 9, true,
                                      t->plain_bytes, stored, checksum, &got),
                     -EBADMSG);
    for (uint32_t at = 24; at < t->bytes;
         at++) { /* ends and footer; sums are not judged */
        for (int bit = 0; bit < 8; bit++) {
            t->raw[at] ^= (uint8_t)(1 << bit);
            int rc = vj_trailer_parse(vj_slice(t->raw, t->bytes), 9, true, t->plain_bytes,
                                      stored, vj_checksum64(t->raw, t->bytes), &got);

            if (rc == 0) { /* inner ends that are still in order */
                assert_true(at < 24 + 8);
                vj_trailer_free(got);
            } else {
                assert_int_equal(rc, -EBADMSG);
                assert_null(got);
            }
            t->raw[at] ^= (uint8_t)(1 << bit);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_records),
    cmocka_unit_test(test_senseless_records),
    cmocka_unit_test(test_index_entries),
    cmocka_unit_test(test_id_blocks),
    cmocka_unit_test(test_epochs),
    cmocka_unit_test(test_a_stored_none_object),
    cmocka_unit_test(test_a_varying_trailer),
    cmocka_unit_test(test_hostile_trailers),
};

VJ_TEST_MAIN(tests)
