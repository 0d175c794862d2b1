/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-object-ahead.c - objects that are got before a reader asks for them
 *
 * A memory store cannot expect, as a far one cannot.
 */
#include "object-fixture.h"

#include "object/object-private.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#define LEN 100000u

/* One get ahead, and who waits for its end. */
typedef struct Ahead {
    VjGetAhead get;
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    unsigned got;
} Ahead;

static void note_got(VjGetAhead *get)
{
    Ahead *a = get->opaque;

    vj_mutex_lock(&a->lock);
    a->got++;
    vj_cond_broadcast(&a->changed);
    vj_mutex_unlock(&a->lock);
}

/* As read-ahead does it: the object is pinned from the beginning to the end. */
static bool begin(Fixture *f, Ahead *a, const VjObject *object)
{
    *a = (Ahead){.get = {.object = *object, .got = note_got, .opaque = a}};
    vj_mutex_init(&a->lock, VJ_RANK_BASE, "ahead");
    vj_cond_init(&a->changed);
    vj_object_pin(f->objects, object->id);
    return vj_object_get_ahead(f->objects, &a->get);
}

static void wait_until_got(Ahead *a)
{
    vj_mutex_lock(&a->lock);
    while (a->got == 0) {
        vj_cond_wait(&a->changed, &a->lock);
    }
    assert_int_equal(a->got, 1);
    vj_mutex_unlock(&a->lock);
}

/* @begun: what begin() said. */
static void end(Fixture *f, Ahead *a, bool begun)
{
    if (begun) {
        wait_until_got(a);
        if (!a->get.is_over) {
            vj_object_get_ahead_end(&a->get);
        }
    }
    assert_int_equal(a->got, begun);
    vj_object_unpin(f->objects, a->get.object.id);
    vj_cond_clear(&a->changed);
    vj_mutex_clear(&a->lock);
}

static uint64_t gets(Fixture *f)
{
    VjStoreStats s;

    vj_store_stats(f->store, &s);
    return s.gets;
}

static void read_part(Fixture *f, const VjObject *object, const uint8_t *plain,
                      uint32_t start, uint32_t len)
{
    g_autofree uint8_t *got = g_malloc(len);

    assert_int_equal(vj_object_read(f->objects, object, start, got, len, false), 0);
    assert_memory_equal(got, plain + start, len);
}

/* Gets wait while the descriptor is open. */
static int hold_gets(Fixture *f)
{
    g_autofree char *path = g_build_filename(f->path, "hold", NULL);
    g_autofree char *options = g_strdup_printf("kinds=get,hold=%s", path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    fixture_faults(f, options, NULL);
    return fd;
}

static const uint8_t codecs[] = {VJ_CODEC_ID_NONE, VJ_CODEC_ID_XOR};

static void test_what_was_got_ahead_is_not_got_again(void **state)
{
    Fixture *f = *state;

    for (unsigned i = 0; i < G_N_ELEMENTS(codecs); i++) {
        g_autofree uint8_t *bytes = content(i, LEN);
        uint64_t before;
        VjObject object;
        Ahead a, again;

        f->codec = codecs[i];
        must_put(f, bytes, LEN, &object);
        before = gets(f);
        assert_int_equal(vj_object_expect(f->objects, &object), VJ_EXPECT_GET);
        assert_true(begin(f, &a, &object));
        end(f, &a, true);
        assert_int_equal(vj_object_expect(f->objects, &object), VJ_EXPECT_DONE);
        assert_false(begin(f, &again, &object));
        end(f, &again, false);
        read_part(f, &object, bytes, 4000, 10000);
        read_part(f, &object, bytes, 0, LEN);
        assert_int_equal(gets(f), before + 1);
    }
    assert_int_equal(stats_of(f).reads, G_N_ELEMENTS(codecs));
    assert_int_equal(stats_of(f).read_bytes,
                     G_N_ELEMENTS(codecs) * (LEN + vj_trailer_bytes(false, LEN)));
}

/* And is read where it is, also when the cache has let go of it. */
static void test_what_was_got_ahead_is_held(void **state)
{
    Fixture *f = *state;

    for (unsigned i = 0; i < G_N_ELEMENTS(codecs); i++) {
        g_autofree uint8_t *bytes = content(10 + i, LEN);
        g_autoptr(VjBuf) held = NULL;
        VjObject object;
        Ahead a;

        f->codec = codecs[i];
        must_put(f, bytes, LEN, &object);
        assert_null(vj_object_hold(f->objects, &object, 0, LEN));
        assert_true(begin(f, &a, &object));
        end(f, &a, true);
        assert_null(vj_object_hold(f->objects, &object, 4000, 4000)); /* a piece */
        held = vj_object_hold(f->objects, &object, 4000, LEN - 4000);
        assert_non_null(held);
        vj_cache_drop(&f->objects->cache, object.id);
        assert_null(vj_object_hold(f->objects, &object, 0, LEN));
        assert_memory_equal(held->data, bytes, LEN);
    }
}

/* It does not wait for the one who is to unpack it, and unpacks it itself. */
static void test_a_reader_takes_what_was_got(void **state)
{
    Fixture *f = *state;

    for (unsigned i = 0; i < G_N_ELEMENTS(codecs); i++) {
        g_autofree uint8_t *bytes = content(i, LEN);
        uint64_t before;
        VjObject object;
        Ahead a;

        f->codec = codecs[i];
        must_put(f, bytes, LEN, &object);
        read_part(f, &object, bytes, 0, 100); /* its trailer is known */
        before = gets(f);
        assert_true(begin(f, &a, &object));
        wait_until_got(&a);
        read_part(f, &object, bytes, 50000, 5000);
        read_part(f, &object, bytes, 0, LEN);
        end(f, &a, true);
        read_part(f, &object, bytes, 0, LEN);
        assert_int_equal(gets(f), before + 1);
    }
}

typedef struct Reader {
    Fixture *f;
    const VjObject *object;
    const uint8_t *bytes;
    GThread *thread;
} Reader;

static gpointer read_all(gpointer opaque)
{
    Reader *r = opaque;

    read_part(r->f, r->object, r->bytes, 50000, 20000);
    read_part(r->f, r->object, r->bytes, 0, LEN);
    return NULL;
}

static void start_readers(Reader *readers, unsigned count, const Reader *of)
{
    for (unsigned i = 0; i < count; i++) {
        readers[i] = *of;
        readers[i].thread = g_thread_new("reader", read_all, &readers[i]);
    }
}

static void test_readers_wait_for_what_is_in_flight(void **state)
{
    enum { READERS = 3 };
    Fixture *f = *state;

    for (unsigned i = 0; i < G_N_ELEMENTS(codecs); i++) {
        g_autofree uint8_t *bytes = content(i, LEN);
        Reader readers[READERS];
        uint64_t before;
        VjObject object;
        Ahead a;
        int fd;

        f->codec = codecs[i];
        must_put(f, bytes, LEN, &object);
        read_part(f, &object, bytes, 0, 100);
        before = gets(f);
        fd = hold_gets(f);
        assert_true(begin(f, &a, &object));
        start_readers(readers, READERS, &(Reader){f, &object, bytes, NULL});
        vj_fd_close(&fd);
        for (unsigned k = 0; k < READERS; k++) {
            g_thread_join(readers[k].thread);
        }
        end(f, &a, true);
        assert_int_equal(gets(f), before + 1);
        fixture_faults(f, "", NULL);
    }
}

/* The reader tries for itself, and only the reader would tell. */
static void test_a_get_that_fails_is_left_to_the_reader(void **state)
{
    enum { READERS = 3 };
    Fixture *f = *state;

    for (unsigned i = 0; i < G_N_ELEMENTS(codecs); i++) {
        g_autofree uint8_t *bytes = content(i, LEN);
        Reader readers[READERS];
        VjObject object;
        Ahead a;

        f->codec = codecs[i];
        must_put(f, bytes, LEN, &object);
        fixture_faults(f, "kinds=get,fail=1", NULL);
        assert_true(begin(f, &a, &object));
        start_readers(readers, READERS, &(Reader){f, &object, bytes, NULL});
        for (unsigned k = 0; k < READERS; k++) {
            g_thread_join(readers[k].thread);
        }
        end(f, &a, true);
        fixture_faults(f, "", NULL);
    }
    assert_int_equal(stats_of(f).damaged, 0);
}

static void test_a_wrong_bit_is_left_to_the_reader(void **state)
{
    Fixture *f = *state;

    for (unsigned i = 0; i < G_N_ELEMENTS(codecs); i++) {
        g_autofree uint8_t *bytes = content(i, LEN);
        VjObject object;
        Ahead a;

        f->codec = codecs[i];
        must_put(f, bytes, LEN, &object);
        fixture_faults(f, "kinds=get,damage=1", NULL);
        assert_true(begin(f, &a, &object));
        end(f, &a, true);
        read_part(f, &object, bytes, 0, LEN);
        fixture_faults(f, "", NULL);
    }
}

static void test_a_get_that_hangs_is_given_up(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject object;
    Ahead a;
    int fd;

    must_put(f, bytes, LEN, &object);
    fd = hold_gets(f);
    f->store->timeout_us = 1000;
    assert_true(begin(f, &a, &object));
    end(f, &a, true); /* the store hangs still */
    f->store->timeout_us = 0;
    assert_int_equal(vj_object_expect(f->objects, &object), VJ_EXPECT_GET);
    vj_fd_close(&fd);
    read_part(f, &object, bytes, 0, LEN);
}

typedef struct Killed {
    Reader reader;
    VjCancel cancel;
    int result;
} Killed;

static gpointer read_and_be_killed(gpointer opaque)
{
    Killed *k = opaque;
    uint8_t got[100];

    vj_cancel_enter(&k->cancel);
    k->result = vj_object_read(k->reader.f->objects, k->reader.object, 50000, got,
                               sizeof got, false);
    (void)vj_cancel_leave();
    return NULL;
}

/* Who waits for a get of others can be given up, and leaves the get to them. */
static void test_a_reader_that_is_killed_does_not_wait(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    Killed k = {.reader = {.f = f}};
    uint64_t before;
    VjObject object;
    GThread *thread;
    Ahead a;
    int fd;

    must_put(f, bytes, LEN, &object);
    k.reader.object = &object;
    vj_cancel_init(&k.cancel);
    before = gets(f);
    fd = hold_gets(f);
    assert_true(begin(f, &a, &object));
    thread = g_thread_new("killed", read_and_be_killed, &k);
    vj_cancel_fire(&k.cancel, 1);
    g_thread_join(thread);
    assert_int_equal(k.result, -ECANCELED);
    vj_fd_close(&fd);
    end(f, &a, true);
    read_part(f, &object, bytes, 0, LEN);
    assert_int_equal(gets(f), before + 1);
    vj_cancel_clear(&k.cancel);
    fixture_faults(f, "", NULL);
}

static void let_go(VjIo *io)
{
    vj_io_unref(io);
}

static void test_a_full_store_refuses(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    VjObject object;
    Ahead a;
    int fd;

    must_put(f, bytes, LEN, &object);
    fd = hold_gets(f);
    for (unsigned i = 0; i < VJ_STORE_IN_FLIGHT_MAX; i++) {
        VjIo *io = vj_io_new_get(object.id, object.loc, 0, 10);

        io->done = let_go;
        assert_true(vj_store_submit(f->store, io));
    }
    assert_false(begin(f, &a, &object));
    end(f, &a, false);
    vj_fd_close(&fd);
    read_part(f, &object, bytes, 0, LEN);
}

/* A long read takes a small part of the cache, and what others use stays. */
static void test_what_a_reader_has_come_by_makes_room(void **state)
{
    enum { MANY = 60 }; /* more than the cache holds */
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, LEN);
    const uint8_t first = bytes[0];
    VjObject used, objects[MANY];
    uint64_t before;
    Ahead a;

    f->codec = VJ_CODEC_ID_XOR;
    must_put(f, bytes, LEN, &used);
    assert_true(begin(f, &a, &used));
    end(f, &a, true);
    read_part(f, &used, bytes, 0, LEN);
    f->codec = VJ_CODEC_ID_NONE;
    for (uint8_t i = 0; i < MANY; i++) {
        bytes[0] = i;
        must_put(f, bytes, LEN, &objects[i]);
    }
    before = gets(f);
    for (uint8_t i = 0; i < MANY; i++) {
        bytes[0] = i;
        assert_true(begin(f, &a, &objects[i]));
        end(f, &a, true);
        /* The kernel's requests overtake each other. */
        read_part(f, &objects[i], bytes, LEN / 2, LEN / 2);
        read_part(f, &objects[i], bytes, 0, LEN / 2);
        assert_true(stats_of(f).cache_bytes < f->cache_bytes / 8);
    }
    bytes[0] = MANY - 1;
    read_part(f, &objects[MANY - 1], bytes, 0, LEN); /* another one, right behind */
    bytes[0] = first;
    read_part(f, &used, bytes, 0, LEN);
    assert_int_equal(gets(f), before + MANY);
}

/* What the store brings nearer by itself is not got; what would not stay neither. */
static void test_who_brings_it(void **state)
{
    Fixture *f = *state;
    g_autofree uint8_t *bytes = content(1, 2 * VJ_MIB);
    VjObject object;

    must_put(f, bytes, LEN, &object);
    assert_int_equal(vj_object_expect(f->objects, &object), VJ_EXPECT_DONE);
    f->codec = VJ_CODEC_ID_XOR;
    must_put(f, bytes, LEN + 1, &object);
    assert_int_equal(vj_object_expect(f->objects, &object), VJ_EXPECT_LOAD);
    must_put(f, bytes, 2 * VJ_MIB, &object); /* half of the cache */
    assert_int_equal(vj_object_expect(f->objects, &object), VJ_EXPECT_DONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_what_was_got_ahead_is_not_got_again),
    TEST(test_what_was_got_ahead_is_held),
    TEST(test_a_reader_takes_what_was_got),
    TEST(test_readers_wait_for_what_is_in_flight),
    TEST(test_a_get_that_fails_is_left_to_the_reader),
    TEST(test_a_wrong_bit_is_left_to_the_reader),
    TEST(test_a_get_that_hangs_is_given_up),
    TEST(test_a_reader_that_is_killed_does_not_wait),
    TEST(test_a_full_store_refuses),
    TEST(test_what_a_reader_has_come_by_makes_room),
    cmocka_unit_test_setup_teardown(test_who_brings_it, fixture_setup_posix,
                                    fixture_teardown),
};

VJ_TEST_MAIN(tests)
