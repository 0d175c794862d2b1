/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-read-ahead.c - who reads on finds what comes next, and nobody else pays for it
 */
#include "settings-fixture.h"

#define LEN ((size_t)6 << 20)
#define STEP ((size_t)128 << 10)

/* A file of LEN bytes, opened when nothing of it is cached and nothing was counted. */
static VjFile *begin(Fixture *x, const char *transform, const uint8_t *bytes)
{
    VjFile *f = create(x);
    uint64_t ino = vj_file_ino(f);

    set(x, f, transform, "64K");
    write_all(f, 0, bytes, LEN);
    assert_int_equal(vj_file_sync(f), 0);
    vj_file_unref(f);
    close_volume(x);
    open_volume(x, false);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    return f;
}

static VjObjectsStats stats_of(Fixture *x)
{
    VjObjectsStats s;

    vj_file_table_drain_read_ahead(vj_volume_files(x->v));
    vj_objects_stats(x->v->objects, &s);
    return s;
}

static void read_step(VjFile *f, const uint8_t *bytes, size_t at, size_t len)
{
    g_autofree uint8_t *got_bytes = g_malloc(len);
    size_t got;

    assert_int_equal(vj_file_read(f, at, got_bytes, len, &got), 0);
    assert_int_equal(got, MIN(len, LEN - at));
    assert_memory_equal(got_bytes, bytes + at, got);
}

static void a_reader_from_end_to_end_finds_what_comes_next(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = begin(x, "lz4", bytes);
    g_autoptr(GArray) map = map_of(f);

    for (size_t at = 0; at < LEN; at += STEP) {
        VjObjectsStats s;

        read_step(f, bytes, at, STEP);
        s = stats_of(x);
        if (at + STEP >= LEN / 2) {
            /* As much again as was read: all.  A short last object may not be encoded at
             * all. */
            assert_int_equal(s.reads, map->len);
        } else if (at + STEP >= (size_t)1 << 20) {
            assert_true(s.decoded_bytes >= (at + STEP) * 5 / 4);
        }
    }
    assert_int_equal(stats_of(x).reads, map->len); /* each object once */
    vj_file_unref(f);
}

/* The store is told; the cache is not filled with what its file system keeps. */
static void plain_content_is_left_to_the_store(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = g_malloc(LEN);
    VjStoreStats s;
    VjFile *f;

    vj_rng_bytes(&x->rng, bytes, LEN);
    f = begin(x, "none", bytes);
    for (size_t at = 0; at < (size_t)3 << 20; at += STEP) {
        read_step(f, bytes, at, STEP);
    }
    assert_true(stats_of(x).expected > 0);
    vj_store_stats(x->v->store, &s);
    assert_true(s.expects > 20);
    assert_true(s.get_bytes < ((uint64_t)3 << 20) + (512 << 10));
    vj_file_unref(f);
}

static void what_is_not_read_on_brings_nothing(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = begin(x, "lz4", bytes);
    uint64_t ino = vj_file_ino(f);

    for (size_t at = 0; at < (size_t)4 << 20; at += 4096) { /* the kernel asks for more */
        read_step(f, bytes, at, 4096);
    }
    for (size_t i = 0; i < 12; i++) { /* in steps back */
        read_step(f, bytes, LEN - (i + 1) * 4 * STEP, STEP);
    }
    vj_file_unref(f);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    for (size_t i = 0; i < 6; i++) { /* with gaps */
        read_step(f, bytes, i << 20, 2 * STEP);
    }
    assert_int_equal(stats_of(x).expected, 0);
    vj_file_unref(f);
}

static void two_readers_are_two_streams(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = begin(x, "lz4", bytes);

    for (size_t at = 0; at < (size_t)1 << 20; at += STEP) {
        read_step(f, bytes, at, STEP);
        read_step(f, bytes, LEN / 2 + at, STEP);
    }
    /* 2 MiB read, 2 MiB ahead. */
    assert_true(stats_of(x).decoded_bytes >= (size_t)7 << 19);
    vj_file_unref(f);
}

static void what_changed_meanwhile_is_not_looked_at(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = begin(x, "lz4", bytes);

    vj_file_table_hold_read_ahead(vj_volume_files(x->v), true);
    for (size_t at = 0; at < (size_t)2 << 20; at += STEP) {
        read_step(f, bytes, at, STEP);
    }
    bytes[LEN - 5] ^= 1;
    write_all(f, LEN - 5, bytes + LEN - 5, 1);
    vj_file_table_hold_read_ahead(vj_volume_files(x->v), false);
    assert_int_equal(stats_of(x).expected, 0);
    for (size_t at = 2 << 20; at < LEN; at += STEP) {
        read_step(f, bytes, at, STEP);
    }
    assert_true(stats_of(x).expected > 0); /* the next reads begin again */
    vj_file_unref(f);
}

/* The reader tells of it, who brings it does not; and what is whole can be read. */
static void what_cannot_be_brought_is_read_all_the_same(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = begin(x, "lz4", bytes);
    g_autoptr(GError) error = NULL;

    for (size_t at = 0; at < ((size_t)1 << 20) - STEP; at += STEP) {
        read_step(f, bytes, at, STEP);
    }
    vj_file_table_hold_read_ahead(vj_volume_files(x->v), true);
    read_step(f, bytes, ((size_t)1 << 20) - STEP, STEP);
    assert_true(vj_store_fault_set(x->v->store, "kinds=get,fail=1,times=0", &error));
    vj_file_table_hold_read_ahead(vj_volume_files(x->v), false);
    assert_true(stats_of(x).expected > 0);
    assert_true(vj_store_fault_set(x->v->store, "", &error));
    for (size_t at = (size_t)1 << 20; at < LEN; at += STEP) {
        read_step(f, bytes, at, STEP);
    }
    vj_file_unref(f);
}

/* An unmount does not wait for a slow store to bring what nobody will read. */
static void what_waits_at_the_end_is_dropped(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = begin(x, "lz4", bytes);
    VjObjectsStats s;

    vj_file_table_hold_read_ahead(vj_volume_files(x->v), true);
    for (size_t at = 0; at < (size_t)2 << 20; at += STEP) {
        read_step(f, bytes, at, STEP);
    }
    vj_file_unref(f);
    vj_file_table_stop(vj_volume_files(x->v));
    vj_objects_stats(x->v->objects, &s);
    assert_int_equal(s.expected, 0);
}

#define AHEAD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    AHEAD_TEST(a_reader_from_end_to_end_finds_what_comes_next),
    AHEAD_TEST(plain_content_is_left_to_the_store),
    AHEAD_TEST(what_is_not_read_on_brings_nothing),
    AHEAD_TEST(two_readers_are_two_streams),
    AHEAD_TEST(what_changed_meanwhile_is_not_looked_at),
    AHEAD_TEST(what_cannot_be_brought_is_read_all_the_same),
    AHEAD_TEST(what_waits_at_the_end_is_dropped),
};

VJ_TEST_MAIN_WITH_CODECS(tests)
