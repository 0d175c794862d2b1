/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-recode.c - files whose transformation or object sizes change, and that are stored
 * anew
 */
#include "settings-fixture.h"

#define MANY ((size_t)1500000) /* bytes: several steps */

/* All steps; the sums of what they say are in the result. */
static VjRecode recode(VjFile *f)
{
    VjRecode step = {.offset = 0}, sum = {.offset = 0};

    while (!step.done) {
        assert_int_equal(vj_file_recode(f, &step), 0);
        sum.examined_bytes += step.examined_bytes;
        sum.rewritten_bytes += step.rewritten_bytes;
        sum.unreadable_bytes += step.unreadable_bytes;
        sum.changed = sum.changed || step.changed;
        sum.offset++;
        assert_true(sum.offset < 1000);
    }
    return sum;
}

/* Two files of equal content and settings consist of the very same objects. */
static void expect_same_map(VjFile *a, VjFile *b)
{
    g_autoptr(GArray) one = map_of(a);
    g_autoptr(GArray) two = map_of(b);

    assert_int_equal(one->len, two->len);
    for (guint i = 0; i < one->len; i++) {
        const VjFileExtent *p = &g_array_index(one, VjFileExtent, i);
        const VjFileExtent *q = &g_array_index(two, VjFileExtent, i);

        assert_int_equal(p->length, q->length);
        assert_int_equal(p->kind, q->kind);
        assert_int_equal(p->object_id, q->object_id);
    }
}

/* A file that has @bytes and was never anything else. */
static VjFile *reference(Fixture *x, const uint8_t *bytes, size_t len,
                         const char *transform, const char *objects)
{
    VjFile *f = create(x);

    set(x, f, transform, objects);
    write_all(f, 0, bytes, len);
    assert_int_equal(vj_file_sync(f), 0);
    return f;
}

static uint64_t objects_in(Fixture *x)
{
    VjVolumeUsage usage;

    vj_orphan_purge_drain(x->v->purge);
    assert_int_equal(vj_meta_flush(x->v->meta), 0);
    assert_int_equal(vj_objects_reap_now(x->v->objects), 0);
    assert_int_equal(vj_volume_usage(x->v, &usage), 0);
    return usage.objects;
}

/* After each change of mind the file is what it would be if it had been written so. */
static void becomes_what_it_would_have_been(void **state)
{
    static const char *const minds[][2] = {
        {"lz4", NULL}, {"xor:5a", NULL}, {"zstd:3", "64K"},
        {"rle", "4K"}, {"none", "16K"},
    };
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, MANY);
    VjFile *f = create(x);
    uint64_t ino = vj_file_ino(f);

    write_all(f, 0, bytes, MANY);
    assert_int_equal(vj_file_sync(f), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(minds); i++) {
        VjInode before, after;
        VjRecode sum;
        VjFile *other;

        assert_int_equal(vj_file_getattr(vj_volume_files(x->v), ino, &before), 0);
        set(x, f, minds[i][0], minds[i][1]);
        sum = recode(f);
        assert_int_equal(sum.rewritten_bytes, MANY);
        assert_int_equal(sum.examined_bytes, MANY);
        assert_false(sum.changed);
        assert_true(sum.offset > 2);
        expect_bytes(f, bytes, MANY);
        assert_int_equal(vj_file_getattr(vj_volume_files(x->v), ino, &after), 0);
        assert_memory_equal(&before.mtime, &after.mtime, sizeof after.mtime);
        assert_memory_equal(&before.ctime, &after.ctime, sizeof after.ctime);
        other = reference(x, bytes, MANY, minds[i][0], minds[i][1]);
        expect_same_map(f, other);
        assert_int_equal(vj_file_truncate(other, 0), 0);
        assert_int_equal(vj_file_sync(other), 0);
        vj_file_unref(other);
        sum = recode(f);
        assert_int_equal(sum.rewritten_bytes, 0);
    }
    {
        g_autoptr(GArray) map = map_of(f);

        assert_int_equal(objects_in(x), map->len); /* the old ones are gone */
    }
    vj_file_unref(f);
    expect_sound(x);
}

static void small_and_sparse_files(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = g_malloc0(400000);
    VjFile *small = create(x), *empty = create(x), *sparse = create(x);
    VjFileExtent *e;

    memset(bytes, 'a', 4000);
    write_all(small, 0, bytes, 4000);
    assert_int_equal(vj_file_sync(small), 0);
    set(x, small, "zstd", NULL);
    assert_int_equal(recode(small).rewritten_bytes, 4000);
    assert_int_equal(recode(small).rewritten_bytes, 0);
    expect_bytes(small, bytes, 4000);
    {
        g_autoptr(GArray) map = map_of(small);
        VjInode inode;

        e = &g_array_index(map, VjFileExtent, 0);
        assert_int_equal(e->kind, VJ_EXTENT_INLINE);
        assert_int_equal(
            vj_file_getattr(vj_volume_files(x->v), vj_file_ino(small), &inode), 0);
        assert_true(inode.stored_bytes < 200);
    }
    assert_int_equal(recode(empty).examined_bytes, 0);
    memset(bytes, 0, 4000);
    for (size_t at = 150000; at < 400000; at++) {
        bytes[at] = (uint8_t)(at * at >> 9);
    }
    assert_int_equal(vj_file_truncate(sparse, 150000), 0);
    write_all(sparse, 150000, bytes + 150000, 250000);
    assert_int_equal(vj_file_sync(sparse), 0);
    set(x, sparse, "lz4", NULL);
    assert_int_equal(recode(sparse).rewritten_bytes, 250000);
    expect_bytes(sparse, bytes, 400000);
    {
        g_autoptr(GArray) map = map_of(sparse);

        assert_int_equal(g_array_index(map, VjFileExtent, 0).kind, VJ_EXTENT_HOLE);
        assert_int_equal(g_array_index(map, VjFileExtent, 0).length, 150000);
    }
    vj_file_unref(small);
    vj_file_unref(empty);
    vj_file_unref(sparse);
    expect_sound(x);
}

/* Only what is stored otherwise is stored anew. */
static void mixed_files(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, 1400000);
    VjFile *f = reference(x, bytes, 1400000, "lz4", "16K"), *other;
    VjRecode sum;

    set(x, f, "rle", NULL);
    /* Runs, which rle makes shorter, of bytes by which it can be cut. */
    for (size_t at = 500000; at < 1000000; at += 50) {
        memset(bytes + at, bytes[at], 50);
    }
    write_all(f, 500000, bytes + 500000, 500000);
    assert_int_equal(vj_file_sync(f), 0);
    expect_bytes(f, bytes, 1400000);
    sum = recode(f);
    /* The 900000 that were not written, and where the cuts of the rest meet them. */
    assert_in_range(sum.rewritten_bytes, 700000, 1200000);
    expect_bytes(f, bytes, 1400000);
    other = reference(x, bytes, 1400000, "rle", "16K");
    expect_same_map(f, other);
    vj_file_unref(f);
    vj_file_unref(other);
    expect_sound(x);
}

/* Changes in memory lie over what is recoded, before, between and after the steps. */
static void changes_between_the_steps(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, MANY);
    g_autofree uint8_t *want = g_malloc(MANY + 100);
    VjFile *f = reference(x, bytes, MANY, "none", NULL);
    VjRecode step = {.offset = 0};

    set(x, f, "lz4", NULL);
    assert_int_equal(vj_file_recode(f, &step), 0);
    assert_false(step.done);
    assert_int_equal(vj_file_replace(f, 100, 0, bytes, 50, false, NULL), 0);
    memcpy(want, bytes, 100);
    memcpy(want + 100, bytes, 50);
    memcpy(want + 150, bytes + 100, MANY - 100);
    assert_int_equal(vj_file_recode(f, &step), 0);
    expect_bytes(f, want, MANY + 50);
    assert_int_equal(vj_file_replace(f, 0, 1000, NULL, 0, false, NULL), 0);
    memmove(want, want + 1000, MANY - 950);
    while (!step.done) {
        step.changed = false;
        assert_int_equal(vj_file_recode(f, &step), 0);
    }
    expect_bytes(f, want, MANY - 950);
    assert_int_equal(vj_file_sync(f), 0);
    step.done = false;
    assert_int_equal(vj_file_recode(f, &step), 0);
    assert_true(step.changed); /* the map is another than the one the last step left */
    recode(f);
    expect_bytes(f, want, MANY - 950);
    vj_file_unref(f);
    expect_sound(x);
}

typedef struct Writer {
    VjFile *f;
    uint8_t *bytes;
    size_t len;
    gint stop;
} Writer;

static gpointer writer_main(gpointer opaque)
{
    Writer *w = opaque;
    VjRng rng;

    vj_rng_init(&rng, 3);
    while (!g_atomic_int_get(&w->stop)) {
        size_t len = vj_rng_below(&rng, 3000) + 1, at = vj_rng_below(&rng, w->len - len);

        vj_rng_bytes(&rng, w->bytes + at, len);
        assert_int_equal(vj_file_write(w->f, at, w->bytes + at, len, false, NULL), 0);
        if (vj_rng_below(&rng, 50) == 0) {
            assert_int_equal(vj_file_sync(w->f), 0);
        }
    }
    return NULL;
}

static void beside_a_writer(void **state)
{
    static const char *const minds[] = {"lz4", "none", "zstd", "xor"};
    Fixture *x = *state;
    Writer w = {.len = MANY, .bytes = make_bytes(x, MANY)};
    GThread *thread;

    w.f = reference(x, w.bytes, MANY, "none", NULL);
    thread = g_thread_new("writer", writer_main, &w);
    for (size_t i = 0; i < G_N_ELEMENTS(minds); i++) {
        set(x, w.f, minds[i], NULL);
        recode(w.f);
    }
    g_atomic_int_set(&w.stop, 1);
    g_thread_join(thread);
    expect_bytes(w.f, w.bytes, MANY);
    assert_int_equal(vj_file_sync(w.f), 0);
    expect_bytes(w.f, w.bytes, MANY);
    recode(w.f);
    {
        VjFile *other = create(x);

        set(x, other, "xor", NULL);
        write_all(other, 0, w.bytes, MANY);
        assert_int_equal(vj_file_sync(other), 0);
        expect_same_map(w.f, other);
        vj_file_unref(other);
    }
    vj_file_unref(w.f);
    g_free(w.bytes);
    expect_sound(x);
}

static void fail_calls(Fixture *x, const char *spec)
{
    g_autoptr(GError) error = NULL;

    if (!vj_store_fault_set(vj_volume_store(x->v), spec, &error)) {
        fail_msg("%s", error->message);
    }
}

/* A step that fails leaves everything as it was, and is done by the next attempt. */
static void a_store_that_fails(void **state)
{
    Fixture *x = *state;
    g_autofree uint8_t *bytes = make_bytes(x, MANY);
    VjFile *f = reference(x, bytes, MANY, "none", NULL);
    VjRecode step = {.offset = 0};
    VjRecode sum;

    set(x, f, "lz4", NULL);
    fail_calls(x, "kinds=put,every=7");
    assert_int_equal(vj_file_recode(f, &step), -EIO);
    fail_calls(x, "kinds=flush,every=1");
    assert_int_equal(vj_file_recode(f, &step), -EIO);
    fail_calls(x, "kinds=flush,every=0");
    assert_int_equal(step.offset, 0);
    expect_bytes(f, bytes, MANY);
    assert_int_equal(vj_file_write(f, 5, "hello", 5, false, NULL), 0);
    memcpy(bytes + 5, "hello", 5);
    assert_int_equal(vj_file_sync(f), 0);
    sum = recode(f);
    assert_true(sum.rewritten_bytes > MANY - 200000);
    expect_bytes(f, bytes, MANY);
    vj_file_unref(f);
    expect_sound(x);
}

#define RECODE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    RECODE_TEST(becomes_what_it_would_have_been),
    RECODE_TEST(small_and_sparse_files),
    RECODE_TEST(mixed_files),
    RECODE_TEST(changes_between_the_steps),
    RECODE_TEST(beside_a_writer),
    RECODE_TEST(a_store_that_fails),
};

VJ_TEST_MAIN_WITH_CODECS(tests)
