/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-file.c - contents through a real volume: changes, write-back, reopening
 */
#include "../../lib/test.h"

#include "file/records.h"
#include "volume/volume.h"

#include <sys/stat.h>

typedef struct Fixture {
    char *dir;
    VjVolume *v;
} Fixture;

static void open_volume(Fixture *x)
{
    g_autoptr(GError) error = NULL;
    VjVolumeOpen how = {.source = x->dir, .lock_wait_us = 0};

    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
}

static void close_volume(Fixture *x)
{
    assert_int_equal(vj_volume_close(x->v), 0);
    x->v = NULL;
}

static void make_volume(Fixture *x, const char *options)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.options = options};

    x->dir = vj_test_make_dir();
    how.source = x->dir;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    open_volume(x);
}

static void done(Fixture *x)
{
    if (x->v != NULL) {
        close_volume(x);
    }
    vj_test_remove_dir(x->dir);
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int r = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static VjFile *create(Fixture *x)
{
    uint64_t ino;
    VjFile *f;

    assert_int_equal(vj_meta_run(vj_volume_meta(x->v), VJ_RUN_DEFAULT, create_body, &ino),
                     0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    return f;
}

static void expect(VjFile *f, const uint8_t *want, size_t len)
{
    g_autofree uint8_t *got = g_malloc(len + 1);
    size_t read_len;

    assert_int_equal(vj_file_read(f, 0, got, len + 1, &read_len), 0);
    assert_int_equal(read_len, len);
    for (size_t i = 0; i < len; i++) {
        if (got[i] != want[i]) {
            fail_msg("byte %zu of %zu is %02x, not %02x", i, len, got[i], want[i]);
        }
    }
}

static void small_file(void **state)
{
    Fixture x = {0};
    VjFile *f;

    (void)state;
    make_volume(&x, "objects=1K");
    f = create(&x);
    assert_int_equal(vj_file_write(f, 0, "hello world", 11, false, NULL), 0);
    expect(f, (const uint8_t *)"hello world", 11);
    assert_int_equal(vj_file_replace(f, 5, 0, " brave", 6, false, NULL), 0);
    expect(f, (const uint8_t *)"hello brave world", 17);
    assert_int_equal(vj_file_sync(f), 0);
    expect(f, (const uint8_t *)"hello brave world", 17);
    uint64_t ino = vj_file_ino(f);
    vj_file_unref(f);
    close_volume(&x);
    open_volume(&x);
    assert_int_equal(vj_file_open(vj_volume_files(x.v), ino, &f), 0);
    expect(f, (const uint8_t *)"hello brave world", 17);
    vj_file_unref(f);
    done(&x);
}

/* ---- random edits against a byte array --------------------------------------------- */

#define MODEL_MAX ((size_t)192 << 10)

typedef struct Model {
    uint8_t bytes[MODEL_MAX * 2];
    size_t len;
} Model;

static void model_replace(Model *m, size_t offset, size_t old_len, const uint8_t *src,
                          size_t len)
{
    if (offset > m->len) {
        if (len == 0) {
            return;
        }
        memset(m->bytes + m->len, 0, offset - m->len);
        m->len = offset;
    }
    old_len = MIN(old_len, m->len - offset);
    memmove(m->bytes + offset + len, m->bytes + offset + old_len,
            m->len - offset - old_len);
    memcpy(m->bytes + offset, src, len);
    m->len += len - old_len;
}

static void random_step(VjRng *rng, VjFile *f, Model *m, uint8_t *data)
{
    size_t offset = vj_rng_below(rng, m->len + 100), len = vj_rng_below(rng, 6000);
    size_t old_len = vj_rng_below(rng, 3000);

    if (m->len > MODEL_MAX) {
        old_len = vj_rng_below(rng, m->len);
    }
    if (vj_rng_below(rng, 4) == 0) {
        memset(data, (int)vj_rng_below(rng, 3), len);
    } else {
        vj_rng_bytes(rng, data, len);
    }
    switch (vj_rng_below(rng, 8)) {
    case 0:
        len = 0; /* delete */
        /* fall through */
    case 1:
    case 2:
        assert_int_equal(vj_file_replace(f, offset, old_len, data, len, false, NULL), 0);
        model_replace(m, offset, old_len, data, len);
        break;
    case 3:
        assert_int_equal(vj_file_write(f, offset, data, len, false, NULL), 0);
        model_replace(m, offset, len, data, len);
        break;
    case 4:
        offset = m->len;
        assert_int_equal(vj_file_write(f, 0, data, len, true, NULL), 0);
        model_replace(m, offset, 0, data, len);
        break;
    case 5:
        assert_int_equal(vj_file_truncate(f, offset), 0);
        if (offset < m->len) {
            m->len = offset;
        } else {
            memset(m->bytes + m->len, 0, offset - m->len);
            m->len = offset;
        }
        break;
    case 6:
        assert_int_equal(vj_file_punch(f, offset, len * 3, false), 0);
        if (offset < m->len) {
            memset(m->bytes + offset, 0, MIN(len * 3, m->len - offset));
        }
        break;
    case 7:
        assert_int_equal(vj_file_sync(f), 0);
        break;
    }
}

static void run_model(const char *options, uint64_t seed, unsigned steps)
{
    Fixture x = {0};
    g_autofree Model *m = g_new0(Model, 1);
    g_autofree uint8_t *data = g_malloc(8192);
    VjRng rng;
    VjFile *f;
    uint64_t ino;

    vj_rng_init(&rng, seed);
    make_volume(&x, options);
    f = create(&x);
    ino = vj_file_ino(f);
    for (unsigned i = 0; i < steps; i++) {
        random_step(&rng, f, m, data);
        if (i % 8 == 0) {
            expect(f, m->bytes, m->len);
        }
        if (i % 97 == 96) {
            vj_file_unref(f);
            close_volume(&x);
            open_volume(&x);
            assert_int_equal(vj_file_open(vj_volume_files(x.v), ino, &f), 0);
            expect(f, m->bytes, m->len);
        }
    }
    expect(f, m->bytes, m->len);
    vj_file_unref(f);
    done(&x);
}

static void random_edits_small_objects(void **state)
{
    (void)state;
    run_model("objects=1K", 1, 400);
}

static void random_edits_rabin(void **state)
{
    (void)state;
    run_model("chunker=rabin,objects=256:1K:8K", 2, 400);
}

static void random_edits_gear(void **state)
{
    (void)state;
    run_model("chunker=gear,objects=1K", 3, 400);
}

/* ---- object sizes ------------------------------------------------------------------ */

typedef struct SetSizes {
    VjVolume *v;
    uint64_t ino;
    const char *text; /* NULL: sizes that no chunker can keep */
} SetSizes;

static int sizes_body(VjTxn *txn, void *opaque)
{
    SetSizes *s = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, s->ino, &inode);

    if (r == 0 && s->text != NULL) {
        r = vj_file_sizes_set(vj_volume_files(s->v), &inode, s->text, NULL) ? 0 : -EINVAL;
    } else {
        inode.object_min = inode.object_max = 0;
        inode.object_avg = 1;
    }
    inode.flags |= VJ_INODE_OBJECTS;
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

static bool count_extent(void *opaque, const VjFileExtent *e)
{
    unsigned *count = opaque;

    assert_int_equal(e->kind, VJ_EXTENT_OBJECT);
    (*count)++;
    return true;
}

/* A file keeps to the sizes that were set for it; impossible ones do not keep it from
 * being written. */
static void own_object_sizes(void **state)
{
    static const struct {
        const char *text, *effective;
        unsigned least, most; /* objects of 100000 bytes */
    } cases[] = {{"2K", "2048", 30, 100}, {"32K", "32768", 2, 7}, {NULL, "8192", 8, 25}};
    g_autofree uint8_t *bytes = g_malloc(100000);
    Fixture x = {0};

    (void)state;
    make_volume(&x, "objects=8K");
    for (size_t i = 0; i < 100000; i++) {
        bytes[i] = (uint8_t)(i * i >> 7);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        VjFile *f = create(&x);
        SetSizes set = {x.v, vj_file_ino(f), cases[i].text};
        g_autofree char *text = NULL;
        unsigned count = 0;
        VjInode inode;

        assert_int_equal(
            vj_meta_run(vj_volume_meta(x.v), VJ_RUN_DEFAULT, sizes_body, &set), 0);
        assert_int_equal(vj_file_getattr(vj_volume_files(x.v), set.ino, &inode), 0);
        text = vj_file_sizes_text(vj_volume_files(x.v), &inode);
        assert_string_equal(text, cases[i].effective);
        bytes[0] = (uint8_t)i; /* another content */
        assert_int_equal(vj_file_write(f, 0, bytes, 100000, false, NULL), 0);
        assert_int_equal(vj_file_sync(f), 0);
        assert_int_equal(vj_file_extents(f, 0, count_extent, &count), 0);
        assert_in_range(count, cases[i].least, cases[i].most);
        expect(f, bytes, 100000);
        vj_file_unref(f);
    }
    done(&x);
}

/* qemu-img ends itself where a hole begins or ends within a sector, before the end of the
 * file. */
static void expect_seek(VjFile *f, uint64_t offset, bool data, int64_t want)
{
    uint64_t at = 0;
    int r = vj_file_seek(f, offset, data, &at);

    if (want < 0) {
        assert_int_equal(r, (int)want);
    } else {
        assert_int_equal(r, 0);
        assert_int_equal(at, want);
    }
}

static void expect_whole_blocks(VjFile *f)
{
    expect_seek(f, 0, false, 0);
    expect_seek(f, 0, true, 2 * 4096);
    expect_seek(f, 2 * 4096, true, 2 * 4096);
    expect_seek(f, 2 * 4096, false, 3 * 4096);
    expect_seek(f, 2 * 4096 + 4000, true,
                2 * 4096 + 4000); /* behind the bytes, in their block */
    expect_seek(f, 2 * 4096 + 4000, false, 3 * 4096);
    expect_seek(f, 3 * 4096 + 7, false, 3 * 4096 + 7);
    expect_seek(f, 3 * 4096 + 7, true, 19 * 4096);
    expect_seek(f, 19 * 4096, false, 22 * 4096); /* the hole within is no whole block */
    expect_seek(f, 22 * 4096 + 1, true, -ENXIO);
    expect_seek(f, 40 * 4096 + 9, false, 40 * 4096 + 9);
    expect_seek(f, 40 * 4096 + 10, false, -ENXIO);
}

typedef struct Shifter {
    VjFile *f;
    size_t edits;
    int stop;
} Shifter;

/* Puts a byte in front and takes it away again. */
static gpointer shifter_main(gpointer shifter)
{
    Shifter *s = shifter;

    for (s->edits = 0; !g_atomic_int_get(&s->stop); s->edits++) {
        assert_int_equal(vj_file_replace(s->f, 0, 0, "!", 1, false, NULL), 0);
        assert_int_equal(vj_file_replace(s->f, 0, 1, NULL, 0, false, NULL), 0);
    }
    return NULL;
}

/* However many pieces a file has, a read of it is of one moment. */
static void reads_of_many_pieces_are_whole(void **state)
{
    enum { PIECES = 3000 };
    Fixture x = {0};
    Shifter s = {0};
    g_autofree uint8_t *got = g_malloc(2 * PIECES + 1);
    GThread *thread;
    uint8_t byte = 0;
    size_t len;

    (void)state;
    make_volume(&x, "objects=16K");
    s.f = create(&x);
    /* Each byte comes in front of the last one, so that no two of them can be one
     * piece. */
    for (size_t i = 0; i < PIECES; i++) {
        byte = (uint8_t)(i % 251);
        assert_int_equal(vj_file_replace(s.f, 0, 0, &byte, 1, false, NULL), 0);
    }
    thread = g_thread_new("shifter", shifter_main, &s);
    for (size_t i = 0; i < 300; i++) {
        size_t shift;

        assert_int_equal(vj_file_read(s.f, 0, got, 2 * PIECES + 1, &len), 0);
        shift = len - PIECES;
        assert_true(len == PIECES || (len == PIECES + 1 && got[0] == '!'));
        for (size_t k = shift; k < len; k++) {
            assert_int_equal(got[k], (PIECES - 1 - (k - shift)) % 251);
        }
    }
    g_atomic_int_set(&s.stop, 1);
    g_thread_join(thread);
    vj_file_unref(s.f);
    done(&x);
}

static void holes_are_whole_blocks(void **state)
{
    Fixture x = {0};
    uint8_t bytes[100];
    VjFile *f;

    (void)state;
    make_volume(&x, "objects=16K");
    f = create(&x);
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(vj_file_truncate(f, 40 * 4096 + 10), 0);
    assert_int_equal(vj_file_write(f, 2 * 4096 + 5, bytes, sizeof bytes, false, NULL), 0);
    assert_int_equal(vj_file_write(f, 20 * 4096 - 50, bytes, sizeof bytes, false, NULL),
                     0);
    assert_int_equal(vj_file_write(f, 21 * 4096 + 4000, bytes, 1, false, NULL), 0);
    assert_int_equal(vj_file_write(f, 21 * 4096 - 1, bytes, 1, false, NULL), 0);
    expect_whole_blocks(f);
    assert_int_equal(vj_file_sync(f), 0);
    expect_whole_blocks(f);
    vj_file_unref(f);
    done(&x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(small_file),
    cmocka_unit_test(holes_are_whole_blocks),
    cmocka_unit_test(own_object_sizes),
    cmocka_unit_test(random_edits_small_objects),
    cmocka_unit_test(random_edits_rabin),
    cmocka_unit_test(random_edits_gear),
    cmocka_unit_test(reads_of_many_pieces_are_whole),
};

VJ_TEST_MAIN(tests)
