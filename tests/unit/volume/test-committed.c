/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-committed.c - who reads again asks the metadata nothing, and never sees an older
 * state
 */
#include "file/file-private.h"
#include "settings-fixture.h"

#define LEN ((size_t)4 << 20)

static uint64_t engine_reads(Fixture *x)
{
    VjMetaStats s;
    uint64_t sum;

    vj_meta_stats(x->v->meta, &s);
    sum = s.reads;
    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        sum += s.gets[i];
    }
    return sum;
}

/* Of the map, which nobody else looks at. */
static uint64_t map_reads(Fixture *x)
{
    VjMetaStats s;

    vj_meta_stats(x->v->meta, &s);
    return s.gets[VJ_SPACE_NODE];
}

static void read_at(VjFile *f, const uint8_t *bytes, size_t at, size_t len)
{
    g_autofree uint8_t *got_bytes = g_malloc(len);
    size_t got;

    assert_int_equal(vj_file_read(f, at, got_bytes, len, &got), 0);
    assert_int_equal(got, len);
    assert_memory_equal(got_bytes, bytes + at, len);
}

static void read_everywhere(VjFile *f, const uint8_t *bytes)
{
    for (size_t at = 0; at < LEN; at += 7 * 4096) {
        read_at(f, bytes, at, 4096);
    }
    read_at(f, bytes, 0, LEN);
}

/* Nothing is written back but on demand. */
static int setup_quiet(void **state)
{
    int r = setup(state);
    Fixture *x = *state;

    if (r == 0) {
        vj_flusher_close(x->v->flusher);
        x->v->flusher = vj_flusher_open(x->v->files, INT64_MAX / 4);
    }
    return r;
}

static VjFile *make(Fixture *x, uint8_t **bytes)
{
    VjFile *f = create(x);

    *bytes = make_bytes(x, LEN);
    set(x, f, "none", "16K");
    write_all(f, 0, *bytes, LEN);
    assert_int_equal(vj_file_sync(f), 0);
    return f;
}

static void a_warm_read_asks_nothing(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = NULL;
    VjFile *f = make(x, &bytes);
    uint64_t least = UINT64_MAX;

    read_everywhere(f, bytes);
    for (unsigned i = 0; i < 5; i++) { /* the reaper and its like may ask meanwhile */
        uint64_t before = engine_reads(x);

        read_everywhere(f, bytes);
        least = MIN(least, engine_reads(x) - before);
    }
    assert_int_equal(least, 0);
    vj_file_unref(f);
}

/* What waits in memory lies over it, and what was committed is read anew.  (More than may
 * become fragments, whose bytes are in the metadata.) */
static void a_change_is_seen_at_once_and_after_its_commit(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = NULL;
    VjFile *f = make(x, &bytes);
    uint64_t before;

    read_everywhere(f, bytes);
    for (unsigned i = 0; i < 8; i++) {
        size_t at = (size_t)i * 400000;

        memset(bytes + at, (int)i + 1, 200000);
        assert_int_equal(vj_file_write(f, at, bytes + at, 200000, false, NULL), 0);
        before = map_reads(x);
        read_everywhere(f, bytes);
        assert_int_equal(map_reads(x), before); /* the map below is the same */
        assert_int_equal(vj_file_sync(f), 0);
        before = map_reads(x);
        read_everywhere(f, bytes);
        assert_true(map_reads(x) > before);
    }
    vj_file_unref(f);
    expect_sound(x);
}

/* However many files there are, what is kept of them stays below the limit. */
static void the_budget_holds(void **state)
{
    Fixture *x = *state;
    VjCommittedBudget *budget = &x->v->files->committed;
    g_autofree uint8_t *bytes = NULL, *more = NULL;
    VjFile *first = make(x, &bytes), *second = make(x, &more);
    uint64_t all, limit = budget->limit_bytes;

    read_everywhere(first, bytes);
    all = budget->bytes;
    assert_true(all > 0);
    budget->limit_bytes = all / 3; /* nobody else uses it */
    for (unsigned i = 0; i < 4; i++) {
        read_everywhere(second, more);
        assert_true(budget->bytes <= all / 3);
        read_everywhere(first, bytes);
        assert_true(budget->bytes <= all / 3);
    }
    budget->limit_bytes = limit;
    vj_file_unref(first);
    vj_file_unref(second);
}

typedef struct Reader {
    VjFile *f;
    gint stop;
    uint64_t reads;
} Reader;

/* Every 8 bytes of a page are the same number: the round in which it was written. */
static gpointer reader_main(gpointer opaque)
{
    Reader *r = opaque;
    g_autofree uint64_t *page = g_malloc(4096);
    uint64_t last[LEN / 4096] = {0};
    VjRng rng;

    vj_rng_init(&rng, 12);
    while (g_atomic_int_get(&r->stop) == 0) {
        size_t at = vj_rng_below(&rng, LEN / 4096), got;

        assert_int_equal(vj_file_read(r->f, at * 4096, page, 4096, &got), 0);
        assert_int_equal(got, 4096);
        for (size_t i = 1; i < 512; i++) {
            assert_int_equal(page[i], page[0]);
        }
        assert_true(page[0] >= last[at]); /* never back */
        last[at] = page[0];
        r->reads++;
    }
    return NULL;
}

static void readers_beside_commits_never_go_back(void **state)
{
    Fixture *x = *state;
    g_autofree uint64_t *pages = g_malloc0(LEN);
    VjFile *f = create(x);
    Reader readers[2] = {{0}};
    GThread *threads[2];
    VjRng rng;

    set(x, f, "none", "16K");
    write_all(f, 0, (uint8_t *)pages, LEN);
    assert_int_equal(vj_file_sync(f), 0);
    for (size_t i = 0; i < 2; i++) {
        readers[i].f = f;
        threads[i] = g_thread_new("reader", reader_main, &readers[i]);
    }
    vj_rng_init(&rng, 7);
    for (uint64_t round = 1; round <= 300; round++) {
        for (size_t i = 0; i < 8; i++) {
            size_t at = vj_rng_below(&rng, LEN / 4096);

            for (size_t k = 0; k < 512; k++) {
                pages[at * 512 + k] = round;
            }
            assert_int_equal(
                vj_file_write(f, at * 4096, pages + at * 512, 4096, false, NULL), 0);
        }
        /* Fragments and objects, and what was removed goes at once. */
        assert_int_equal(round % 3 == 0 ? vj_file_sync(f) : vj_file_commit(f), 0);
        if (round % 16 == 0) {
            assert_int_equal(vj_volume_purge(x->v), 0);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        g_atomic_int_set(&readers[i].stop, 1);
        g_thread_join(threads[i]);
        assert_true(readers[i].reads > 0);
    }
    expect_bytes(f, (const uint8_t *)pages, LEN);
    vj_file_unref(f);
    expect_sound(x);
}

#define COMMITTED_TEST(name) cmocka_unit_test_setup_teardown(name, setup_quiet, teardown)

static const struct CMUnitTest tests[] = {
    COMMITTED_TEST(a_warm_read_asks_nothing),
    COMMITTED_TEST(a_change_is_seen_at_once_and_after_its_commit),
    COMMITTED_TEST(the_budget_holds),
    COMMITTED_TEST(readers_beside_commits_never_go_back),
};

VJ_TEST_MAIN(tests)
