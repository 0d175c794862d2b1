/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-codec-context.c - what is decoded gets the context that it was encoded under
 *
 * An encryption makes its nonce of it.  The codecs are those of context-codec.h: one that
 * keeps the length (even blocks) and one that does not (varying blocks); neither gives
 * back under one context what it was given under another.
 */
#include "settings-fixture.h"

#include "../../lib/context-codec.h"
#include "fsck/fsck.h"

#define LEN ((size_t)700000)
#define INLINE_LEN ((size_t)3000)
/* Longer than a varying block. */
#define OBJECTS "256K"

static const char *const codecs[] = {"placed", "sealed"};

static VjTestContexts contexts_of(void)
{
    VjTestContexts c;

    vj_test_contexts(&c);
    return c;
}

static int setup_contexts(void **state)
{
    vj_test_contexts_forget();
    vj_test_contexts_reset();
    return setup(state);
}

/* Whatever a test did: fsck reads all that there is, and no context came twice. */
static int teardown_contexts(void **state)
{
    expect_sound(*state);
    assert_int_equal(contexts_of().repeated, 0);
    return teardown(state);
}

static VjFile *make(Fixture *x, const char *transform, const uint8_t *bytes, size_t len)
{
    VjFile *f = create(x);

    set(x, f, transform, OBJECTS);
    write_all(f, 0, bytes, len);
    assert_int_equal(vj_file_commit(f), 0);
    return f;
}

/* Nothing of the file is kept anywhere but in store and metadata. */
static VjFile *reopened(Fixture *x, VjFile *f)
{
    uint64_t ino = vj_file_ino(f);

    vj_file_unref(f);
    close_volume(x);
    open_volume(x, false);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    return f;
}

static void expect_part(VjFile *f, const uint8_t *bytes, size_t at, size_t len)
{
    g_autofree uint8_t *got = g_malloc(len);
    size_t got_len;

    assert_int_equal(vj_file_read(f, at, got, len, &got_len), 0);
    assert_int_equal(got_len, len);
    assert_memory_equal(got, bytes + at, len);
}

/* Objects are stored as @codec; a short one at the end may not have become smaller. */
static void expect_codec(VjFile *f, uint8_t codec)
{
    g_autoptr(GArray) map = map_of(f);

    assert_true(map->len > 1);
    for (guint i = 0; i + 1 < map->len; i++) {
        const VjFileExtent *e = &g_array_index(map, VjFileExtent, i);

        assert_int_equal(e->kind, VJ_EXTENT_OBJECT);
        assert_int_equal(e->codec, codec);
    }
}

static const uint8_t ids[] = {VJ_TEST_PLACED, VJ_TEST_SEALED};

static void wholes_and_parts(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);

    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        VjFile *f = make(x, codecs[c], bytes, LEN);

        expect_codec(f, ids[c]);
        f = reopened(x, f);
        expect_bytes(f, bytes, LEN);
        for (int i = 0; i < 60; i++) {
            size_t at = vj_rng_below(&x->rng, LEN - 1);
            size_t most = i % 2 == 0 ? 6000 : LEN;
            size_t len = 1 + vj_rng_below(&x->rng, MIN(most, LEN - at));

            if (i % 10 == 0) {
                f = reopened(x, f);
            }
            expect_part(f, bytes, at, len);
        }
        vj_file_unref(f);
    }
    assert_true(contexts_of().decoded[VJ_CODEC_DOMAIN_OBJECT] > 0);
}

/* What is got ahead of the reader is decoded by another thread. */
static void read_ahead(void **state)
{
    Fixture *x = *state;
    const size_t len = (size_t)6 << 20, step = (size_t)128 << 10;
    g_autofree uint8_t *bytes = make_bytes(x, len);

    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        static const char *const stores[] = {"fault;latency:us=0", NULL};

        for (size_t s = 0; s < G_N_ELEMENTS(stores); s++) {
            g_autoptr(GArray) map = NULL;
            VjObjectsStats stats;
            VjFile *f;

            x->wrap_store = stores[s];
            f = reopened(x, make(x, codecs[c], bytes, len));
            map = map_of(f);
            for (size_t at = 0; at < len; at += step) {
                expect_part(f, bytes, at, MIN(step, len - at));
            }
            vj_file_table_drain_read_ahead(vj_volume_files(x->v));
            vj_objects_stats(x->v->objects, &stats);
            assert_true(stats.expected > 0);
            assert_true(stats.reads <= map->len + 1);
            vj_file_unref(f);
        }
    }
}

static void scrub(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjTend t = {.cursor = 0};

    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        vj_file_unref(make(x, codecs[c], bytes, LEN));
    }
    vj_test_contexts_reset();
    while (t.cursor != UINT64_MAX) {
        assert_int_equal(vj_volume_scrub(x->v, &t), 0);
    }
    assert_true(t.examined >= 2 * G_N_ELEMENTS(codecs));
    assert_int_equal(t.found, 0);
    /* Of both: an even block is 4 KiB, a varying one 64 KiB. */
    assert_true(contexts_of().decoded[VJ_CODEC_DOMAIN_OBJECT] > LEN / 4096 + 8);
}

static VjFile *open_file(Fixture *x, uint64_t ino)
{
    VjFile *f;

    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    return f;
}

static void recode(VjFile *f)
{
    VjRecode step = {.offset = 0};

    while (!step.done) {
        assert_int_equal(vj_file_recode(f, &step), 0);
    }
}

static void recoded_from_and_to(void **state)
{
    static const char *const minds[] = {"placed", "sealed", "lz4", "sealed", "placed"};
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = make(x, "none", bytes, LEN), *small = make(x, "none", bytes, INLINE_LEN);
    uint64_t small_ino = vj_file_ino(small);

    for (size_t i = 0; i < G_N_ELEMENTS(minds); i++) {
        set(x, f, minds[i], NULL);
        set(x, small, minds[i], NULL);
        recode(f);
        recode(small);
        vj_file_unref(small);
        f = reopened(x, f);
        small = open_file(x, small_ino);
        expect_bytes(f, bytes, LEN);
        expect_bytes(small, bytes, INLINE_LEN);
    }
    expect_codec(f, VJ_TEST_PLACED);
    vj_file_unref(f);
    vj_file_unref(small);
}

/* A copy of @from under @transform, which is read when the volume was closed. */
static void expect_copied(Fixture *x, uint64_t from, const char *transform,
                          const uint8_t *bytes, bool is_shared)
{
    VjFile *source = open_file(x, from), *to = create(x);
    VjTestContexts before = contexts_of(), after;
    VjObjectsStats stats;
    uint64_t done = 0, copied, puts;

    vj_objects_stats(x->v->objects, &stats);
    puts = stats.puts;
    set(x, to, transform, OBJECTS);
    while (done < LEN) {
        assert_int_equal(vj_file_copy(source, done, to, done, LEN - done, &copied), 0);
        assert_true(copied > 0);
        done += copied;
    }
    assert_int_equal(vj_file_commit(to), 0);
    after = contexts_of();
    vj_objects_stats(x->v->objects, &stats);
    assert_int_equal(stats.puts == puts, is_shared);
    assert_true(!is_shared || after.encoded[VJ_CODEC_DOMAIN_OBJECT] ==
                                  before.encoded[VJ_CODEC_DOMAIN_OBJECT]);
    vj_file_unref(source);
    to = reopened(x, to);
    expect_bytes(to, bytes, LEN);
    vj_file_unref(to);
}

/* What is shared stays under its own number; what is not is encoded under a new one. */
static void copies_between_files(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    VjFile *f = make(x, "lz4", bytes, LEN);
    uint64_t packed = vj_file_ino(f), placed;

    f = reopened(x, f);
    vj_file_unref(f);
    expect_copied(x, packed, "placed", bytes, false);
    f = make(x, "placed", bytes, LEN); /* what the copy put */
    placed = vj_file_ino(f);
    vj_file_unref(f);
    expect_copied(x, placed, "placed", bytes, true);
    expect_copied(x, placed, "sealed", bytes, false);
    expect_copied(x, placed, "none", bytes, false);
}

/* An index hit of a mount that knows nothing of the object: what it decodes to is
 * compared, under its own number. */
static void equal_content_is_one_object(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);

    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        VjFile *f = reopened(x, make(x, codecs[c], bytes, LEN)), *other;
        g_autoptr(GArray) map = NULL;
        VjObjectsStats stats;

        other = make(x, codecs[c], bytes, LEN);
        map = map_of(f);
        vj_objects_stats(x->v->objects, &stats);
        assert_int_equal(stats.puts, 0);
        assert_int_equal(stats.verified, map->len);
        assert_int_equal(stats.damaged, 0);
        vj_file_unref(other);
        vj_file_unref(f);
    }
}

static unsigned fragments_of(VjFile *f)
{
    g_autoptr(GArray) map = map_of(f);
    unsigned count = 0;

    for (guint i = 0; i < map->len; i++) {
        count += g_array_index(map, VjFileExtent, i).kind == VJ_EXTENT_FRAGMENT;
    }
    return count;
}

static void replace(VjFile *f, uint8_t *bytes, size_t *len, size_t at, size_t old_len,
                    size_t new_len)
{
    g_autofree uint8_t *fresh = g_malloc(new_len + 1);

    memset(fresh, (int)(at % 251), new_len); /* so that rle makes it smaller */
    assert_int_equal(vj_file_replace(f, at, old_len, fresh, new_len, false, NULL), 0);
    memmove(bytes + at + new_len, bytes + at + old_len, *len - at - old_len);
    memcpy(bytes + at, fresh, new_len);
    *len += new_len - old_len;
}

static void records_of_the_metadata(void **state)
{
    Fixture *x = *state;

    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        g_autofree uint8_t *bytes = g_realloc(make_bytes(x, LEN), 2 * LEN);
        VjFile *f = make(x, codecs[c], bytes, LEN);
        VjTestContexts counts;
        size_t len = LEN;

        vj_test_contexts_reset();
        for (size_t i = 0; i < 8; i++) { /* small, and somebody waits */
            replace(f, bytes, &len, 20000 + i * 50000, 100, 3000);
            assert_int_equal(vj_file_sync(f), 0);
        }
        assert_true(fragments_of(f) >= 8);
        f = reopened(x, f);
        expect_bytes(f, bytes, len);
        counts = contexts_of();
        assert_true(counts.encoded[VJ_CODEC_DOMAIN_FRAGMENT] >= 8);
        assert_true(counts.decoded[VJ_CODEC_DOMAIN_FRAGMENT] >= 8);
        /* Cut in two: parts become fragments of their own under other numbers. */
        for (size_t i = 0; i < 4; i++) {
            replace(f, bytes, &len, 21000 + i * 52900, 500, 10);
            assert_int_equal(vj_file_sync(f), 0);
        }
        f = reopened(x, f);
        expect_bytes(f, bytes, len);
        assert_int_equal(vj_file_table_remap(vj_volume_files(x->v)), 0);
        assert_int_equal(fragments_of(f), 0);
        f = reopened(x, f);
        expect_bytes(f, bytes, len);
        vj_file_unref(f);
    }
}

static void inline_content(void **state)
{
    Fixture *x = *state;
    uint8_t bytes[INLINE_LEN];

    memset(bytes, 'i', sizeof bytes);
    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        VjFile *f = make(x, codecs[c], bytes, sizeof bytes);
        VjFile *equal = make(x, codecs[c], bytes, sizeof bytes);

        vj_file_unref(equal);
        vj_test_contexts_reset();
        for (uint8_t i = 0; i < 4; i++) { /* one place, with other bytes */
            bytes[i * 700] = i;
            write_all(f, 0, bytes, sizeof bytes);
            assert_int_equal(vj_file_sync(f), 0);
            f = reopened(x, f);
            expect_bytes(f, bytes, sizeof bytes);
        }
        assert_int_equal(contexts_of().encoded[VJ_CODEC_DOMAIN_INLINE], 4);
        assert_true(contexts_of().decoded[VJ_CODEC_DOMAIN_INLINE] >= 4);
        vj_file_unref(f);
    }
}

/* Each try takes a number of its own. */
static void puts_that_fail_are_encoded_anew(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);

    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        VjFile *f = create(x);
        g_autoptr(GError) error = NULL;

        set(x, f, codecs[c], OBJECTS);
        assert_true(vj_store_fault_set(x->v->store, "kinds=put+flush,every=2", &error));
        write_all(f, 0, bytes, LEN);
        for (int i = 0; i < 3; i++) {
            assert_true(vj_file_commit(f) < 0);
        }
        assert_true(vj_store_fault_set(x->v->store, "", &error));
        assert_int_equal(vj_file_commit(f), 0);
        f = reopened(x, f);
        expect_bytes(f, bytes, LEN);
        vj_file_unref(f);
    }
}

/* ---- repair ------------------------------------------------------------------------ */

static int lose_records(VjTxn *txn, void *opaque)
{
    unsigned *lost = opaque;
    VjScan scan;

    *lost = 0;
    vj_scan_begin(&scan, txn, VJ_SPACE_OBJECT, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        assert_int_equal(vj_txn_del(txn, VJ_SPACE_OBJECT, scan.key), 0);
        ++*lost;
    }
    return scan.error;
}

static void say(void *opaque, const char *text)
{
    (void)opaque;
    print_message("# %s\n", text);
}

/* Out of the index and the bytes, which are tried under the number that they have. */
static void records_are_made_again(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, LEN);
    g_autoptr(VjRepair) r = NULL;
    VjCheckReport report = {0};
    uint64_t inos[G_N_ELEMENTS(codecs)];
    VjVolumeOpen how = {.source = x->dir, .check = true, .repair = true};
    unsigned lost;

    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        VjFile *f = make(x, codecs[c], bytes, LEN);

        inos[c] = vj_file_ino(f);
        vj_file_unref(f);
    }
    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, lose_records, &lost), 0);
    assert_true(lost >= 2 * G_N_ELEMENTS(codecs));
    close_volume(x);
    assert_true(vj_volume_open(&how, &x->v, NULL));
    assert_int_equal(vj_fsck_contents(x->v, true, say, NULL, &report), 0);
    assert_true(report.problems >= lost);
    r = vj_repair_new(x->v, say, NULL);
    assert_int_equal(vj_repair_all(r), 0);
    g_clear_pointer(&r, vj_repair_free);
    close_volume(x);
    open_volume(x, false);
    for (size_t c = 0; c < G_N_ELEMENTS(codecs); c++) {
        VjFile *f = open_file(x, inos[c]);

        expect_bytes(f, bytes, LEN);
        vj_file_unref(f);
    }
}

#define CONTEXT_TEST(name)                                                               \
    cmocka_unit_test_setup_teardown(name, setup_contexts, teardown_contexts)

static const struct CMUnitTest tests[] = {
    CONTEXT_TEST(wholes_and_parts),
    CONTEXT_TEST(read_ahead),
    CONTEXT_TEST(scrub),
    CONTEXT_TEST(recoded_from_and_to),
    CONTEXT_TEST(copies_between_files),
    CONTEXT_TEST(equal_content_is_one_object),
    CONTEXT_TEST(records_of_the_metadata),
    CONTEXT_TEST(inline_content),
    CONTEXT_TEST(puts_that_fail_are_encoded_anew),
    CONTEXT_TEST(records_are_made_again),
};

VJ_TEST_MAIN_WITH_CODECS(tests)
