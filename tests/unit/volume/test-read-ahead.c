/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-read-ahead.c - who reads on finds what comes next, and nobody else pays for it
 */
#include "settings-fixture.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

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

/* ---- a store that is far: it cannot be told ---------------------------------------- */

/* Calls are held and fail inside of the wrapper that makes it far, and counts. */
#define FAR "fault;latency:us=0"
/* So many are in flight at least, where as many are wanted, and no more than that. */
#define FLIGHT_LEAST 32u
#define FLIGHT_MOST 64u

static VjFile *begin_far(Fixture *x, const char *transform, const uint8_t *bytes)
{
    x->wrap_store = FAR;
    return begin(x, transform, bytes);
}

static uint8_t *random_bytes(Fixture *x)
{
    uint8_t *bytes = g_malloc(LEN);

    vj_rng_bytes(&x->rng, bytes, LEN);
    return bytes;
}

static uint64_t gets_begun(Fixture *x)
{
    VjStoreLatencyCalls calls;

    vj_store_latency_calls(x->v->store, &calls);
    return calls.gets;
}

static uint64_t reads_now(Fixture *x)
{
    VjObjectsStats s;

    vj_objects_stats(x->v->objects, &s);
    return s.reads;
}

/* Gets wait in the store while the descriptor is open. */
static int hold_gets(Fixture *x)
{
    g_autofree char *path = g_build_filename(x->dir, "hold", NULL);
    g_autofree char *options = g_strdup_printf("kinds=get,hold=%s", path);
    g_autoptr(GError) error = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_true(vj_store_fault_set(x->v->store, options, &error));
    return fd;
}

static void read_range(VjFile *f, const uint8_t *bytes, size_t from, size_t to)
{
    for (size_t at = from; at < to; at += STEP) {
        read_step(f, bytes, at, STEP);
    }
}

/* Half of the file; what comes next is noticed and not begun. */
static void read_half(Fixture *x, VjFile *f, const uint8_t *bytes)
{
    vj_file_table_hold_read_ahead(vj_volume_files(x->v), true);
    read_range(f, bytes, 0, LEN / 2);
}

/* At least so many gets of what was noticed are in flight, and wait while the descriptor
 * is open. */
static int take_off(Fixture *x, unsigned least)
{
    uint64_t before = gets_begun(x);
    int fd = hold_gets(x);

    vj_file_table_hold_read_ahead(vj_volume_files(x->v), false);
    while (gets_begun(x) < before + least) {
        g_thread_yield();
    }
    return fd;
}

static void many_are_in_flight(Fixture *x, const char *transform, const uint8_t *bytes)
{
    VjFile *f = begin_far(x, transform, bytes);
    uint64_t before, reads;
    int fd;

    read_half(x, f, bytes);
    before = gets_begun(x);
    fd = take_off(x, FLIGHT_LEAST);
    assert_true(gets_begun(x) <= before + FLIGHT_MOST);
    vj_fd_close(&fd);
    reads = stats_of(x).reads;
    read_range(f, bytes, LEN / 2, LEN);
    assert_int_equal(stats_of(x).reads, reads); /* all of it was there */
    vj_file_unref(f);
}

static void many_plain_objects_are_in_flight_at_once(void **state)
{
    g_autofree uint8_t *bytes = random_bytes(*state);

    many_are_in_flight(*state, "none", bytes);
}

static void many_encoded_objects_are_in_flight_at_once(void **state)
{
    g_autofree uint8_t *bytes = make_bytes(*state, LEN);

    many_are_in_flight(*state, "lz4", bytes);
}

static void each_object_of_a_far_store_is_got_once(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = begin_far(x, "xor", bytes);
    g_autoptr(GArray) map = map_of(f);

    read_range(f, bytes, 0, LEN);
    assert_int_equal(stats_of(x).reads, map->len);
    vj_file_unref(f);
}

/* A read of [at, at + len) in parts; how many of its bytes were not copied. */
static size_t read_parts(VjFile *f, const uint8_t *bytes, size_t at, size_t len)
{
    g_autofree uint8_t *dst = g_malloc(len);
    size_t got, sum = 0, held = 0;
    VjReadParts parts = {.count = 0};

    assert_int_equal(vj_file_read_or_tell(f, at, dst, len, &got, NULL, &parts), 0);
    for (unsigned i = 0; i < parts.count; i++) {
        assert_memory_equal(parts.iov[i].iov_base, bytes + at + sum,
                            parts.iov[i].iov_len);
        held += parts.held[i] != NULL ? parts.iov[i].iov_len : 0;
        sum += parts.iov[i].iov_len;
    }
    assert_int_equal(sum, got);
    assert_int_equal(got, MIN(len, LEN - at));
    vj_read_parts_clear(&parts);
    return held;
}

/* Between what was changed, and behind what is too small; more objects than parts. */
static void parts_are_what_stands_there(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = random_bytes(x);
    VjFile *f = begin_far(x, "none", bytes);

    read_half(x, f, bytes);
    assert_int_equal(read_parts(f, bytes, LEN - 1000, 2000), 0);
    vj_file_table_hold_read_ahead(vj_volume_files(x->v), false);
    (void)stats_of(x); /* waits until all that was noticed is there */
    for (size_t at = LEN / 2 + 10000; at < LEN - 100; at += (size_t)300 << 10) {
        bytes[at] ^= 1;
        write_all(f, at, bytes + at, 1);
    }
    assert_true(read_parts(f, bytes, LEN / 2 - 777, LEN / 2) > LEN / 16);
    assert_true(read_parts(f, bytes, 5, LEN) > LEN / 16);
    vj_file_unref(f);
}

typedef struct Reader {
    VjFile *f;
    const uint8_t *bytes;
} Reader;

static gpointer read_on(gpointer opaque)
{
    const Reader *r = opaque;

    read_range(r->f, r->bytes, LEN / 2, LEN);
    return NULL;
}

static void a_reader_waits_for_what_is_in_flight(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = random_bytes(x);
    VjFile *f = begin_far(x, "none", bytes);
    g_autoptr(GArray) map = map_of(f);
    Reader reader = {f, bytes};
    uint64_t before, wanted = 0;
    GThread *thread;
    int fd;

    for (guint i = 0; i < map->len; i++) {
        const VjFileExtent *e = &g_array_index(map, VjFileExtent, i);

        wanted += e->offset + e->length > LEN / 2;
    }
    assert_true(wanted >= FLIGHT_LEAST && wanted <= FLIGHT_MOST);
    /* As much again as is read from here is read ahead, from its middle on. */
    vj_file_table_hold_read_ahead(vj_volume_files(x->v), true);
    read_range(f, bytes, LEN / 3, LEN / 3 * 2);
    before = reads_now(x);
    fd = take_off(x, (unsigned)wanted);
    thread = g_thread_new("reader", read_on, &reader);
    vj_fd_close(&fd);
    g_thread_join(thread);
    assert_int_equal(stats_of(x).reads, before + wanted);
    vj_file_unref(f);
}

/* With and without a reader who waits for it. */
static void what_a_far_store_fails_is_read_all_the_same(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = random_bytes(x);
    VjFile *f = begin_far(x, "none", bytes);
    g_autoptr(GError) error = NULL;

    read_half(x, f, bytes);
    assert_true(vj_store_fault_set(x->v->store, "kinds=get,every=2", &error));
    vj_file_table_hold_read_ahead(vj_volume_files(x->v), false);
    (void)stats_of(x);
    assert_true(vj_store_fault_set(x->v->store, "", &error));
    read_range(f, bytes, LEN / 2, LEN);
    vj_file_unref(f);
}

/* Unmounted while gets are in flight: their answers come, and nothing is left. */
static void what_is_in_flight_at_the_end_is_waited_for(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = random_bytes(x);
    VjFile *f = begin_far(x, "none", bytes);
    int fd;

    read_half(x, f, bytes);
    fd = take_off(x, FLIGHT_LEAST);
    vj_file_unref(f);
    vj_fd_close(&fd);
    vj_file_table_stop(vj_volume_files(x->v));
}

/* Nor does an unmount wait for a store that does not answer in its time. */
static void what_does_not_come_in_time_is_given_up(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = random_bytes(x);
    VjFile *f = begin_far(x, "none", bytes);
    VjObjectsStats s;
    int fd;

    x->v->store->timeout_us = G_USEC_PER_SEC; /* enough for those that are not held */
    read_half(x, f, bytes);
    fd = take_off(x, 1);
    vj_file_unref(f);
    vj_file_table_stop(vj_volume_files(x->v));
    vj_objects_stats(x->v->objects, &s);
    assert_int_equal(s.damaged, 0);
    x->v->store->timeout_us = 0;
    vj_fd_close(&fd);
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
    AHEAD_TEST(many_plain_objects_are_in_flight_at_once),
    AHEAD_TEST(many_encoded_objects_are_in_flight_at_once),
    AHEAD_TEST(each_object_of_a_far_store_is_got_once),
    AHEAD_TEST(parts_are_what_stands_there),
    AHEAD_TEST(a_reader_waits_for_what_is_in_flight),
    AHEAD_TEST(what_a_far_store_fails_is_read_all_the_same),
    AHEAD_TEST(what_is_in_flight_at_the_end_is_waited_for),
    AHEAD_TEST(what_does_not_come_in_time_is_given_up),
};

VJ_TEST_MAIN_WITH_CODECS(tests)
