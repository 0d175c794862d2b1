/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-read.c - what is fetched, what is kept, and how often
 */
#include "object-fixture.h"

#include "object/object-private.h"

#define BIG 1000000u

static VjStoreStats gets_since(Fixture *f, VjStoreStats *before)
{
    VjStoreStats now, since;

    vj_store_stats(f->store, &now);
    since = now;
    since.gets -= before->gets;
    since.get_bytes -= before->get_bytes;
    *before = now;
    return since;
}

static void read_at(Fixture *f, const VjObject *object, const uint8_t *plain,
                    uint32_t start, uint32_t len, bool whole)
{
    g_autofree uint8_t *got = g_malloc(len);

    assert_int_equal(vj_object_read(f->objects, object, start, got, len, whole), 0);
    assert_memory_equal(got, plain + start, len);
}

static void test_a_part_costs_its_blocks_and_the_trailer_once(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG);
    VjStoreStats before, since;
    VjObject object;

    must_put(f, bytes, BIG, &object);
    vj_store_stats(f->store, &before);
    read_at(f, &object, bytes, 500000, 4096, false);
    since = gets_since(f, &before);
    assert_int_equal(since.gets, 2);
    assert_int_equal(since.get_bytes, 2 * 4096 + 245 * 8 + 24);
    read_at(f, &object, bytes, 40960, 4096, false);
    since = gets_since(f, &before);
    assert_int_equal(since.gets, 1);
    assert_int_equal(since.get_bytes, 4096);
    read_at(f, &object, bytes, BIG - 1, 1, false);
    since = gets_since(f, &before);
    assert_int_equal(since.gets, 1);
    assert_int_equal(since.get_bytes, BIG % 4096);
}

static void test_a_whole_object_costs_one_get_and_then_none(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG);
    VjStoreStats before, since;
    VjObject object;

    f->codec = VJ_CODEC_ID_XOR;
    must_put(f, bytes, BIG, &object);
    vj_store_stats(f->store, &before);
    read_at(f, &object, bytes, 10, 5000, true);
    since = gets_since(f, &before);
    assert_int_equal(since.gets, 1);
    assert_int_equal(since.get_bytes, object.stored_bytes);
    read_at(f, &object, bytes, 0, BIG, true);
    read_at(f, &object, bytes, 700000, 5000, false);
    assert_int_equal(gets_since(f, &before).gets, 0);
    assert_int_equal(stats_of(f).cache_hits, 2);
    assert_int_equal(stats_of(f).cache_misses, 1);
}

/* Content that stands in the store as it is: from there to the reader, and not kept. */
static void test_plain_content_goes_straight(void **state)
{
    static const struct {
        uint32_t start, len, gets;
    } reads[] = {
        {0, BIG, 1},     /* after the first: the trailer is there */
        {4096, 8192, 1}, /* few blocks */
        {100, 9000, 1},      {BIG - 9000, 9000, 1},
        {4096, 65536, 1}, /* whole blocks */
        {4000, 65536, 3}, /* a part of the first and of the last one */
        {4096, 65000, 2},    {5000, BIG - 5000, 2},
        {0, BIG - 1, 2},     {819200, BIG - 819200, 1},
        {BIG - 576, 576, 1}, {BIG - 1, 1, 1},
        {12288, 16384, 1},   {12289, 16383, 1},
        {12287, 16386, 3},   {12288, 20480, 1},
    };
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG);
    VjStoreStats before, since;
    VjObject object;

    must_put(f, bytes, BIG, &object);
    vj_store_stats(f->store, &before);
    read_at(f, &object, bytes, 0, BIG, true);
    since = gets_since(f, &before);
    assert_int_equal(since.gets, 2);
    assert_int_equal(since.get_bytes, object.stored_bytes);
    for (size_t i = 0; i < G_N_ELEMENTS(reads); i++) {
        read_at(f, &object, bytes, reads[i].start, reads[i].len, i % 2 == 0);
        since = gets_since(f, &before);
        assert_int_equal(since.gets, reads[i].gets);
        assert_true(since.get_bytes < reads[i].len + 2 * 4096);
    }
    assert_true(stats_of(f).cache_bytes < 8192);
}

/* Reads the whole blocks of BIG bytes one by one: block @step comes after block 0; store
 * gets that it took. */
static uint64_t read_pieces(Fixture *f, const VjObject *object, const uint8_t *bytes,
                            uint32_t step)
{
    enum { BLOCKS = BIG / 4096 };
    VjStoreStats before;

    vj_store_stats(f->store, &before);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        read_at(f, object, bytes, i * step % BLOCKS * 4096, 4096, false);
    }
    return gets_since(f, &before).gets;
}

static void test_pieces_that_are_wanted_again_are_kept(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG);
    uint64_t blocks = BIG / 4096;
    VjObject object;

    must_put(f, bytes, BIG, &object);
    assert_int_equal(read_pieces(f, &object, bytes, 5), blocks + 1);
    assert_true(stats_of(f).cache_bytes < 8192);
    /* Then as much was read as there is. */
    assert_true(read_pieces(f, &object, bytes, 5) <= 4);
    assert_true(stats_of(f).cache_bytes >= BIG);
    assert_int_equal(read_pieces(f, &object, bytes, 7), 0);
}

/* However often they are read, each comes from the store. */
static void pieces_are_not_kept(Fixture *f, uint32_t step)
{
    g_autofree uint8_t *bytes = content(1, BIG);
    uint64_t blocks = BIG / 4096;
    VjObject object;

    must_put(f, bytes, BIG, &object);
    assert_int_equal(read_pieces(f, &object, bytes, step), blocks + 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(read_pieces(f, &object, bytes, step), blocks);
    }
    assert_true(stats_of(f).cache_bytes < 8192);
}

static void test_pieces_in_a_row_are_not_kept(void **state)
{
    pieces_are_not_kept(*state, 1);
}

static void test_pieces_put_nothing_out(void **state)
{
    Fixture *f = *state;

    fixture_close_objects(f);
    f->cache_bytes = BIG; /* and the trailer */
    fixture_open_objects(f);
    pieces_are_not_kept(f, 5);
}

static void test_a_small_object_is_one_get(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, 20000);
    VjStoreStats before;
    VjObject object;

    must_put(f, bytes, 20000, &object);
    vj_store_stats(f->store, &before);
    read_at(f, &object, bytes, 10000, 4096, false);
    read_at(f, &object, bytes, 0, 4096, false);
    assert_int_equal(gets_since(f, &before).gets, 1);
}

static void test_the_cache_keeps_its_budget(void **state)
{
    enum { MANY = 12 };
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG);
    VjStoreStats before;
    VjObject objects[MANY];

    f->codec = VJ_CODEC_ID_XOR;
    for (uint8_t i = 0; i < MANY; i++) {
        bytes[0] = i;
        must_put(f, bytes, BIG, &objects[i]);
    }
    for (uint8_t i = 0; i < MANY; i++) {
        bytes[0] = i;
        read_at(f, &objects[i], bytes, 0, BIG, true);
        assert_true(stats_of(f).cache_bytes <= f->cache_bytes);
    }
    assert_true(stats_of(f).cache_bytes >= f->cache_bytes / 2);
    vj_store_stats(f->store, &before);
    read_at(f, &objects[MANY - 1], bytes, 0, BIG, true); /* used last: still there */
    assert_int_equal(gets_since(f, &before).gets, 0);
    bytes[0] = 0;
    read_at(f, &objects[0], bytes, 0, BIG, true); /* used first: gone */
    assert_int_equal(gets_since(f, &before).gets, 1);
}

/* What a request uses stays, however many others come by. */
static void test_what_is_in_use_is_not_evicted(void **state)
{
    enum { MANY = 8 };
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG);
    const VjTrailer *trailer;
    VjObject objects[MANY];
    VjCacheEntry *entry;
    VjBuf *plain;

    for (uint8_t i = 0; i < MANY; i++) {
        bytes[0] = i;
        f->codec = i == 0 ? VJ_CODEC_ID_NONE : VJ_CODEC_ID_XOR;
        must_put(f, bytes, BIG, &objects[i]);
    }
    assert_int_equal(vj_cache_use(f->objects, &objects[0], &(VjCacheRead){.len = 1},
                                  &entry, &plain, &trailer),
                     0);
    assert_null(plain);
    for (uint8_t i = 1; i < MANY; i++) {
        bytes[0] = i;
        read_at(f, &objects[i], bytes, 0, BIG, true);
    }
    vj_cache_drop(&f->objects->cache, objects[0].id);
    bytes[0] = 0;
    assert_true(vj_trailer_block_is_right(trailer, 0, bytes));
    vj_cache_done(&f->objects->cache, entry);
    assert_true(stats_of(f).cache_bytes <= f->cache_bytes);
}

enum { WORKING_SET = 30, OBJECT_BYTES = 50000 }; /* of 4 MiB: 1.5 */

static void put_many(Fixture *f, uint8_t *bytes, VjObject *objects, unsigned count)
{
    f->codec = VJ_CODEC_ID_XOR;
    for (unsigned i = 0; i < count; i++) {
        memcpy(bytes, &i, sizeof i);
        must_put(f, bytes, OBJECT_BYTES, &objects[i]);
    }
}

/* In parts, as the kernel asks for them. */
static void read_many(Fixture *f, uint8_t *bytes, const VjObject *objects, unsigned from,
                      unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        memcpy(bytes, &i, sizeof i);
        for (uint32_t at = 0; at < OBJECT_BYTES; at += 10000) {
            read_at(f, &objects[i], bytes, at, 10000, true);
        }
    }
}

/* What is read again and again stays, beside a scan of many times what the cache
 * holds. */
static void test_a_scan_does_not_put_out_what_is_used(void **state)
{
    enum { MANY = 1000 };
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, OBJECT_BYTES);
    g_autofree VjObject *objects = g_new(VjObject, MANY);
    VjStoreStats before;

    put_many(f, bytes, objects, MANY);
    read_many(f, bytes, objects, 0, WORKING_SET);
    read_many(f, bytes, objects, 0, WORKING_SET);
    read_many(f, bytes, objects, WORKING_SET, MANY); /* 12 times the cache */
    vj_store_stats(f->store, &before);
    read_many(f, bytes, objects, 0, WORKING_SET);
    assert_int_equal(gets_since(f, &before).gets, 0);
    for (unsigned i = WORKING_SET; i < MANY; i++) { /* both at a time */
        read_many(f, bytes, objects, i, i + 1);
        read_many(f, bytes, objects, i % WORKING_SET, i % WORKING_SET + 1);
    }
    assert_int_equal(gets_since(f, &before).gets, MANY - WORKING_SET);
    assert_true(stats_of(f).cache_bytes <= f->cache_bytes);
}

/* A working set that changes takes the place of the old one. */
static void test_what_is_not_used_any_more_goes(void **state)
{
    enum { SETS = 8 };
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, OBJECT_BYTES);
    g_autofree VjObject *objects = g_new(VjObject, SETS * WORKING_SET);
    VjStoreStats before;

    put_many(f, bytes, objects, SETS * WORKING_SET);
    for (unsigned s = 0; s < SETS; s++) {
        unsigned from = s * WORKING_SET, to = from + WORKING_SET;

        for (int i = 0; i < 6; i++) {
            read_many(f, bytes, objects, from, to);
        }
        vj_store_stats(f->store, &before);
        read_many(f, bytes, objects, from, to);
        assert_int_equal(gets_since(f, &before).gets, 0);
        assert_true(stats_of(f).cache_bytes <= f->cache_bytes);
    }
}

static void test_without_a_cache_all_still_works(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG);
    VjObject object;

    fixture_close_objects(f);
    f->cache_bytes = 0;
    fixture_open_objects(f);
    must_put(f, bytes, BIG, &object);
    for (int i = 0; i < 3; i++) {
        read_at(f, &object, bytes, 5000, 70000, false);
        read_at(f, &object, bytes, 0, BIG, true);
        assert_int_equal(stats_of(f).cache_bytes, 0);
    }
}

typedef struct Reader {
    Fixture *f;
    const VjObject *object;
    uint32_t start;
    bool whole;
    uint8_t got[5000];
    int rc;
} Reader;

static gpointer reader_thread(gpointer opaque)
{
    Reader *r = opaque;

    r->rc = vj_object_read(r->f->objects, r->object, r->start, r->got, sizeof r->got,
                           r->whole);
    return NULL;
}

static void test_who_reads_at_the_same_time_shares_one_load(void **state)
{
    enum { READERS = 4 };
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG);
    static Reader readers[READERS];
    GThread *threads[READERS];
    VjStoreStats before;
    VjObject object;

    f->codec = VJ_CODEC_ID_XOR;
    must_put(f, bytes, BIG, &object);
    vj_store_stats(f->store, &before);
    fixture_faults(f, "kinds=get,delay_us=30000", NULL);
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] =
            (Reader){.f = f, .object = &object, .start = i * 200000, .whole = true};
        threads[i] = g_thread_new("reader", reader_thread, &readers[i]);
    }
    for (uint32_t i = 0; i < READERS; i++) {
        g_thread_join(threads[i]);
        assert_int_equal(readers[i].rc, 0);
        assert_memory_equal(readers[i].got, bytes + readers[i].start,
                            sizeof readers[i].got);
    }
    assert_int_equal(gets_since(f, &before).gets, 1);
}

static void test_a_failed_load_is_tried_again(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG), *got = g_malloc(100);
    VjObject object;

    must_put(f, bytes, BIG, &object);
    fixture_faults(f, "kinds=get,every=1,errno=ETIMEDOUT", NULL);
    assert_int_equal(vj_object_read(f->objects, &object, 0, got, 100, true), -ETIMEDOUT);
    assert_int_equal(vj_object_read(f->objects, &object, 0, got, 100, false), -ETIMEDOUT);
    fixture_faults(f, "kinds=get,fail=2",
                   NULL); /* the trailer comes, the block does not */
    assert_int_equal(vj_object_read(f->objects, &object, 0, got, 100, false), -EIO);
    fixture_faults(f, "", NULL);
    read_at(f, &object, bytes, 0, 100, true);
    read_at(f, &object, bytes, 0, BIG, false);
}

static void test_a_bit_flipped_on_the_way_is_found(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, BIG), *got = g_malloc(BIG);
    VjObject object;

    must_put(f, bytes, BIG, &object);
    for (uint32_t seed = 1; seed <= 20; seed++) {
        g_autofree char *faults =
            g_strdup_printf("kinds=get,damage=%u,seed=%u", 1 + seed % 2, seed);
        int rc;

        vj_cache_drop(&f->objects->cache, object.id);
        fixture_faults(f, faults, NULL);
        rc = vj_object_read(f->objects, &object, 0, got, BIG, false);
        assert_int_equal(rc, -EBADMSG);
    }
    fixture_faults(f, "", NULL);
    vj_cache_drop(&f->objects->cache, object.id);
    read_at(f, &object, bytes, 0, BIG, true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_a_part_costs_its_blocks_and_the_trailer_once),
    TEST(test_a_whole_object_costs_one_get_and_then_none),
    TEST(test_plain_content_goes_straight),
    TEST(test_pieces_that_are_wanted_again_are_kept),
    TEST(test_pieces_in_a_row_are_not_kept),
    TEST(test_pieces_put_nothing_out),
    TEST(test_a_small_object_is_one_get),
    TEST(test_the_cache_keeps_its_budget),
    TEST(test_what_is_in_use_is_not_evicted),
    TEST(test_a_scan_does_not_put_out_what_is_used),
    TEST(test_what_is_not_used_any_more_goes),
    TEST(test_without_a_cache_all_still_works),
    TEST(test_who_reads_at_the_same_time_shares_one_load),
    TEST(test_a_failed_load_is_tried_again),
    TEST(test_a_bit_flipped_on_the_way_is_found),
};

VJ_TEST_MAIN(tests)
