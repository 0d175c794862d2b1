/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-map-format.c - map nodes as bytes: the committed images, and damaged ones
 *
 * tests/compat/map-node-*.hex are what version 1 wrote; they are never changed.
 */
#include "../../lib/golden.h"

#include "map/map-format.h"

#define LEAF_INO UINT64_C(0x0102030405060708)
#define LEAF_NODE 0x11121314u

static void fill_leaf(VjMapImage *image)
{
    *image = (VjMapImage){.ino = LEAF_INO, .node = LEAF_NODE, .level = 0, .count = 3};
    image->entries[0] = (VjEntry){.kind = VJ_ENTRY_OBJECT,
                                  .id = UINT64_C(0x2122232425262728),
                                  .length = 0x31323334,
                                  .start = 0x41424344,
                                  .stored_bytes = 0x51525354};
    image->entries[1] = (VjEntry){.kind = VJ_ENTRY_HOLE, .length = (uint64_t)1 << 62};
    image->entries[2] = (VjEntry){
        .kind = VJ_ENTRY_FRAGMENT, .id = 7, .length = 4096, .stored_bytes = 4100};
}

static void fill_inner(VjMapImage *image)
{
    *image = (VjMapImage){.ino = 42, .node = 9, .level = 2, .count = 2};
    image->children[0] = (VjMapChild){
        .node = 0x61626364,
        .sums = {UINT64_C(0x0172737475767778), UINT64_C(0x0182838485868788)}};
    image->children[1] = (VjMapChild){.node = 3, .sums = {1, 0}};
}

static void expect_golden(const char *name, const VjMapImage *expected)
{
    g_autoptr(GByteArray) golden = golden_load(name);
    uint8_t bytes[VJ_META_VALUE_CHEAP];
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    size_t len = vj_map_image_encode(expected, bytes);

    assert_int_equal(len, golden->len);
    assert_memory_equal(bytes, golden->data, len);
    assert_int_equal(vj_map_image_decode(vj_slice(golden->data, golden->len),
                                         expected->ino, expected->node, image),
                     0);
    assert_int_equal(image->level, expected->level);
    assert_int_equal(image->count, expected->count);
    for (unsigned i = 0; i < image->count; i++) {
        if (image->level == 0) {
            const VjEntry *a = &image->entries[i], *b = &expected->entries[i];

            assert_int_equal(a->id, b->id);
            assert_int_equal(a->length, b->length);
            assert_int_equal(a->start, b->start);
            assert_int_equal(a->stored_bytes, b->stored_bytes);
            assert_int_equal(a->kind, b->kind);
        } else {
            assert_memory_equal(&image->children[i].sums, &expected->children[i].sums,
                                sizeof(VjMapSums));
            assert_int_equal(image->children[i].node, expected->children[i].node);
        }
    }
    assert_int_equal(vj_map_image_encode(image, bytes), golden->len);
    assert_memory_equal(bytes, golden->data, golden->len);
}

static void golden_images(void **state)
{
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);

    (void)state;
    fill_leaf(image);
    expect_golden("map-node-leaf-v1.hex", image);
    fill_inner(image);
    expect_golden("map-node-inner-v1.hex", image);
}

/* Decode from memory of exactly @len bytes, so that AddressSanitizer sees a step too far.
 */
static int decode(const uint8_t *bytes, size_t len, uint64_t ino, uint32_t node,
                  VjMapImage *out)
{
    g_autofree uint8_t *copy = g_memdup2(bytes, len);

    return vj_map_image_decode(vj_slice(copy, len), ino, node, out);
}

typedef struct Stored {
    uint64_t ino;
    uint32_t node;
    size_t len;
    uint8_t bytes[VJ_META_VALUE_CHEAP];
} Stored;

static void store(const VjMapImage *image, Stored *out)
{
    out->ino = image->ino;
    out->node = image->node;
    out->len = vj_map_image_encode(image, out->bytes);
}

static void expect_each_damage_found(const VjMapImage *good)
{
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    Stored s;

    store(good, &s);
    assert_int_equal(decode(s.bytes, s.len, s.ino, s.node, image), 0);
    for (size_t bit = 0; bit < s.len * 8; bit++) {
        s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(decode(s.bytes, s.len, s.ino, s.node, image), -EBADMSG);
        s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t len = 0; len < s.len; len++) {
        assert_int_equal(decode(s.bytes, len, s.ino, s.node, image), -EBADMSG);
    }
    for (size_t more = 1; s.len + more <= sizeof s.bytes && more < 40; more++) {
        memset(s.bytes + s.len, 0, more);
        assert_int_equal(decode(s.bytes, s.len + more, s.ino, s.node, image), -EBADMSG);
    }
    assert_int_equal(decode(s.bytes, s.len, s.ino + 1, s.node, image), -EBADMSG);
    assert_int_equal(decode(s.bytes, s.len, s.ino, s.node + 1, image), -EBADMSG);
}

static void each_damage_is_found(void **state)
{
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);

    (void)state;
    fill_leaf(image);
    expect_each_damage_found(image);
    fill_inner(image);
    expect_each_damage_found(image);
}

/* Bytes that somebody made up, with a checksum that is right. */
static void forged_nodes_are_refused_or_kept(void **state)
{
    g_autofree VjMapImage *good = g_new0(VjMapImage, 1);
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    unsigned accepted = 0, refused = 0;
    VjRng rng;

    (void)state;
    vj_rng_init(&rng, 11);
    for (unsigned round = 0; round < 60000; round++) {
        uint8_t again[VJ_META_VALUE_CHEAP];
        Stored s;

        if (round % 2) {
            fill_leaf(good);
        } else {
            fill_inner(good);
        }
        store(good, &s);
        for (uint64_t k = 0, n = 1 + vj_rng_below(&rng, 3); k < n; k++) {
            s.bytes[4 + vj_rng_below(&rng, s.len - 12)] = (uint8_t)vj_rng_u64(&rng);
        }
        uint64_t sum = GUINT64_TO_LE(vj_checksum64(s.bytes, s.len - 8));
        memcpy(s.bytes + s.len - 8, &sum, 8);
        if (decode(s.bytes, s.len, s.ino, s.node, image) == 0) {
            accepted++;
            assert_int_equal(vj_map_image_encode(image, again), s.len);
            assert_memory_equal(again, s.bytes, s.len);
        } else {
            refused++;
        }
    }
    assert_true(accepted > 1000 && refused > 1000);
}

static void expect_leaf(VjEntry entry, int expected)
{
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    Stored s;

    *image = (VjMapImage){.ino = 1, .node = 1, .level = 0, .count = 1};
    image->entries[0] = entry;
    store(image, &s);
    assert_int_equal(decode(s.bytes, s.len, 1, 1, image), expected);
}

static void entries_have_limits(void **state)
{
    VjEntry object = {.kind = VJ_ENTRY_OBJECT, .id = 1, .length = 1};
    VjEntry hole = {.kind = VJ_ENTRY_HOLE, .length = VJ_MAP_BYTES_MAX};
    VjEntry e;

    (void)state;
    expect_leaf(object, 0);
    e = object, e.length = 0, expect_leaf(e, -EBADMSG);
    e = object, e.id = 0, expect_leaf(e, -EBADMSG);
    e = object, e.kind = 0, expect_leaf(e, -EBADMSG);
    e = object, e.kind = 4, expect_leaf(e, -EBADMSG);
    e = object, e.start = UINT32_MAX, expect_leaf(e, -EBADMSG);
    e = object, e.start = UINT32_MAX - 1, expect_leaf(e, 0);
    e = object, e.length = UINT32_MAX, expect_leaf(e, 0);
    e = object, e.length = (uint64_t)UINT32_MAX + 1, expect_leaf(e, -EBADMSG);
    expect_leaf(hole, 0);
    e = hole, e.length++, expect_leaf(e, -EBADMSG);
    e = hole, e.id = 1, expect_leaf(e, -EBADMSG);
    e = hole, e.start = 1, expect_leaf(e, -EBADMSG);
    e = hole, e.stored_bytes = 1, expect_leaf(e, -EBADMSG);
}

static void sums_have_limits(void **state)
{
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    Stored s;

    (void)state;
    fill_inner(image);
    image->children[0].sums.bytes = VJ_MAP_BYTES_MAX - 1;
    image->children[0].sums.stored_bytes = VJ_MAP_STORED_MAX;
    store(image, &s);
    assert_int_equal(decode(s.bytes, s.len, s.ino, s.node, image), 0);
    assert_int_equal(image->sums.bytes, VJ_MAP_BYTES_MAX);
    image->children[1].sums.bytes = 2;
    store(image, &s);
    assert_int_equal(decode(s.bytes, s.len, s.ino, s.node, image), -EBADMSG);
    image->children[1].sums.bytes = UINT64_MAX;
    store(image, &s);
    assert_int_equal(decode(s.bytes, s.len, s.ino, s.node, image), -EBADMSG);
    image->children[1].sums = (VjMapSums){.bytes = 1, .stored_bytes = 1};
    store(image, &s);
    assert_int_equal(decode(s.bytes, s.len, s.ino, s.node, image), -EBADMSG);
    image->children[1].sums = (VjMapSums){.bytes = 0, .stored_bytes = 0};
    store(image, &s);
    assert_int_equal(decode(s.bytes, s.len, s.ino, s.node, image), -EBADMSG);
}

/* The fullest nodes stay below what costs an engine a second page. */
static void full_nodes_fit(void **state)
{
    g_autofree VjMapImage *image = g_new0(VjMapImage, 1);
    Stored s;

    (void)state;
    *image = (VjMapImage){.ino = 1, .node = 1, .level = 0, .count = VJ_MAP_LEAF_MAX};
    for (unsigned i = 0; i < VJ_MAP_LEAF_MAX; i++) {
        image->entries[i] = (VjEntry){.kind = VJ_ENTRY_OBJECT, .id = i + 1, .length = 1};
    }
    store(image, &s);
    assert_int_equal(s.len, 20 + 162 * 25 + 8);
    assert_int_equal(decode(s.bytes, s.len, 1, 1, image), 0);
    *image = (VjMapImage){.ino = 1, .node = 1, .level = 15, .count = VJ_MAP_INNER_MAX};
    for (unsigned i = 0; i < VJ_MAP_INNER_MAX; i++) {
        image->children[i] = (VjMapChild){.node = i + 2, .sums = {.bytes = 1}};
    }
    store(image, &s);
    assert_int_equal(s.len, 20 + 202 * 20 + 8);
    assert_int_equal(decode(s.bytes, s.len, 1, 1, image), 0);
}

static void keys_sort_by_inode_and_number(void **state)
{
    uint8_t key[VJ_MAP_KEY_BYTES];

    (void)state;
    vj_map_key_encode(UINT64_C(0x0102030405060708), 0x090a0b0c, key);
    vj_test_expect_hex(key, sizeof key, "0102030405060708090a0b0c");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(golden_images),
    cmocka_unit_test(each_damage_is_found),
    cmocka_unit_test(forged_nodes_are_refused_or_kept),
    cmocka_unit_test(entries_have_limits),
    cmocka_unit_test(sums_have_limits),
    cmocka_unit_test(full_nodes_fit),
    cmocka_unit_test(keys_sort_by_inode_and_number),
};

VJ_TEST_MAIN(tests)
