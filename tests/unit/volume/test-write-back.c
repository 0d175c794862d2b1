/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-write-back.c - what write-back, readers and the orphan purge may never do: take
 * damage for success, lose an object that is being read, forget an orphan
 */
#include "../../lib/flush-answer.h"
#include "../../lib/test.h"
#include "file/file-private.h"

#include "object/object-private.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

#define CONTENT_BYTES ((size_t)64 << 10)

typedef struct Fixture {
    char *dir;
    VjVolume *v;
} Fixture;

static void open_volume(Fixture *x, const char *wrap_meta)
{
    g_autoptr(GError) error = NULL;
    /* Nothing is written back that nobody waits for. */
    VjVolumeOpen how = {.source = x->dir, .wrap_meta = wrap_meta, .commit_seconds = 3600};

    if (!vj_volume_open(&how, &x->v, &error)) {
        fail_msg("%s", error->message);
    }
}

static void make_volume(Fixture *x, const char *options, const char *wrap_meta)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {.options = options};

    x->dir = vj_test_make_dir();
    how.source = x->dir;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    open_volume(x, wrap_meta);
}

static int create_body(VjTxn *txn, void *opaque)
{
    uint64_t *ino = opaque;
    int r = vj_ino_take(txn, ino);
    VjInode inode = {.ino = *ino, .generation = 1, .mode = S_IFREG | 0644, .nlink = 1};

    return r < 0 ? r : vj_inode_put(txn, &inode);
}

/* A file of @len random bytes, durable. */
static VjFile *create(Fixture *x, uint64_t seed, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len);
    VjRng rng;
    VjFile *f;
    uint64_t ino;

    vj_rng_init(&rng, seed);
    vj_rng_bytes(&rng, bytes, len);
    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, create_body, &ino), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    for (size_t at = 0; at < len; at += MIN(len - at, VJ_FILE_EDIT_MAX)) {
        assert_int_equal(vj_file_write(f, at, bytes + at, MIN(len - at, VJ_FILE_EDIT_MAX),
                                       false, NULL),
                         0);
    }
    assert_int_equal(vj_file_sync(f), 0);
    return f;
}

static uint64_t count_keys(VjMeta *m, VjSpace space)
{
    VjListing l;
    uint64_t count = 0;

    vj_listing_begin(&l, m, space);
    while (vj_listing_next(&l)) {
        count++;
    }
    assert_int_equal(vj_listing_end(&l), 0);
    return count;
}

/* ---- damage below an edit ---------------------------------------------------------- */

static int lose_records_body(VjTxn *txn, void *opaque)
{
    VjSlice key, value;
    uint64_t *count = opaque;
    int r;

    *count = 0;
    while ((r = vj_txn_next(txn, VJ_SPACE_OBJECT, vj_slice(NULL, 0), &key, &value)) ==
           0) {
        uint8_t id[VJ_OBJECT_KEY_BYTES];

        assert_int_equal(key.len, sizeof id);
        memcpy(id, key.data, sizeof id);
        r = vj_txn_del(txn, VJ_SPACE_OBJECT, vj_slice(id, sizeof id));
        if (r < 0) {
            return r;
        }
        ++*count;
    }
    return r == -ENOENT ? 0 : r;
}

/* What a commit refers to is not there: the change must not be taken for written. */
static void test_a_lost_record_fails_the_write_back(void **state)
{
    FlushAnswer answer = {.wait.done = count_answer};
    Fixture x = {0};
    uint64_t ino, copied, count;
    VjFile *first, *second;
    uint8_t byte;
    size_t got;

    (void)state;
    make_volume(&x, "objects=64K", NULL);
    first = create(&x, 1, CONTENT_BYTES);
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, create_body, &ino), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x.v), ino, &second), 0);
    assert_int_equal(vj_file_copy(first, 0, second, 0, CONTENT_BYTES, &copied), 0);
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, lose_records_body, &count),
                     0);
    assert_true(count > 0);
    vj_file_commit_begins(first); /* what is kept of its map goes */
    vj_mutex_lock(&first->lock);
    vj_file_commit_is_over_locked(first);
    vj_mutex_unlock(&first->lock);
    assert_int_equal(vj_file_read(first, 0, &byte, 1, &got), -EBADMSG);
    assert_int_equal(vj_file_sync(second), -EBADMSG);
    assert_true(vj_file_is_dirty(second));
    vj_file_sync_join(second, &answer.wait);
    assert_int_equal(answer.times, 1);
    assert_int_equal(answer.rc, -EBADMSG);
    vj_file_sync_join(first, &answer.wait);
    assert_int_equal(answer.times, 2);
    assert_int_equal(answer.rc, 0);
    vj_file_unref(first);
    vj_file_unref(second);
    assert_int_equal(vj_volume_close(x.v), -EBADMSG);
    vj_test_remove_dir(x.dir);
}

/* ---- a full store ------------------------------------------------------------------ */

/* Deleting needs no byte of space, whether the device or a quota is full. */
static void test_truncating_puts_nothing_when_there_is_no_space(void **state)
{
    static const char *const full[] = {"fault:errno=ENOSPC,kinds=put,every=1",
                                       "fault:errno=EDQUOT,kinds=put,every=1"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(full); i++) {
        g_autoptr(GError) error = NULL;
        VjVolumeOpen how = {.wrap_store = full[i]};
        Fixture x = {0};
        uint64_t ino;
        VjFile *f;

        make_volume(&x, "objects=8K", NULL);
        f = create(&x, 4, CONTENT_BYTES);
        ino = vj_file_ino(f);
        vj_file_unref(f);
        assert_int_equal(vj_volume_close(x.v), 0);
        how.source = x.dir;
        assert_true(vj_volume_open(&how, &x.v, &error));
        assert_int_equal(vj_file_open(vj_volume_files(x.v), ino, &f), 0);
        assert_int_equal(vj_file_truncate(f, CONTENT_BYTES / 2 + 1), 0);
        assert_int_equal(vj_file_sync(f), 0);
        vj_file_unref(f);
        assert_int_equal(vj_volume_close(x.v), 0);
        vj_test_remove_dir(x.dir);
    }
}

/* ---- full metadata ----------------------------------------------------------------- */

#define SMALL_FILES 20000u

static int create_many_body(VjTxn *txn, void *opaque)
{
    uint64_t *inos = opaque;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < SMALL_FILES; i++) {
        r = create_body(txn, &inos[i]);
    }
    return r;
}

static int drop_contents_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, *ino, &inode);

    if (r == 0) {
        inode.nlink = 0;
        r = vj_inode_put(txn, &inode);
    }
    return r < 0 ? r : vj_orphan_put(txn, *ino);
}

/* The reserve for deleting is there whatever was written into files that there were. */
static void test_small_contents_leave_the_reserve(void **state)
{
    Fixture x = {0};
    g_autofree uint64_t *inos = g_new0(uint64_t, SMALL_FILES);
    g_autofree uint8_t *bytes = g_malloc0(VJ_FILE_INLINE_MAX);
    unsigned written = 0;
    int r = 0;

    (void)state;
    make_volume(&x, "store=null,meta=lmdb:map=64M", NULL);
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, create_many_body, inos), 0);
    for (; r == 0 && written < SMALL_FILES; written++) {
        g_autoptr(VjFile) f = NULL;

        assert_int_equal(vj_file_open(vj_volume_files(x.v), inos[written], &f), 0);
        assert_int_equal(vj_file_write(f, 0, bytes, VJ_FILE_INLINE_MAX, false, NULL), 0);
        r = vj_file_commit(f);
    }
    assert_int_equal(r, -ENOSPC);
    for (unsigned i = 0; i < written; i++) {
        assert_int_equal(
            vj_meta_run(x.v->meta, VJ_RUN_RELEASE, drop_contents_body, &inos[i]), 0);
        vj_volume_reap(x.v, inos[i]);
    }
    vj_orphan_purge_drain(x.v->purge);
    assert_int_equal(count_keys(x.v->meta, VJ_SPACE_ORPHAN), 0);
    assert_int_equal(vj_volume_close(x.v), 0);
    vj_test_remove_dir(x.dir);
}

/* ---- a reader and a pin that goes -------------------------------------------------- */

static gpointer reap_thread(gpointer opaque)
{
    return GINT_TO_POINTER(vj_objects_reap_now(opaque));
}

/*
 * Starts a pass and returns when one waits for @older, which was inside before anything
 * died.  That may be another, which the commit has asked for; then ours comes behind it.
 */
static GThread *begin_pass(VjObjects *o, const VjReadGuard *older)
{
    GThread *thread = g_thread_new("reap", reap_thread, o);
    unsigned now;

    do {
        g_thread_yield();
        vj_mutex_lock(&o->dead.lock);
        now = o->dead.epoch;
        vj_mutex_unlock(&o->dead.lock);
    } while (now == older->epoch);
    return thread;
}

/*
 * The second file shares an object of the first in memory alone, and the first lets it
 * go: only the pin of that piece keeps it.  A reader resolves the piece, then it is
 * overwritten, while a pass that saw the object dead waits for older guards.
 */
static void test_a_resolved_piece_keeps_its_object(void **state)
{
    Fixture x = {0};
    g_autofree uint8_t *zeroes = g_malloc0(CONTENT_BYTES), *got = g_malloc(CONTENT_BYTES);
    g_autoptr(GArray) segments = vj_segments_new();
    uint64_t copied, size;
    VjReadGuard older, younger;
    VjFile *first, *second;
    GThread *pass;

    (void)state;
    make_volume(&x, "objects=64K", NULL);
    first = create(&x, 2, CONTENT_BYTES);
    assert_int_equal(vj_meta_run(x.v->meta, VJ_RUN_DEFAULT, create_body, &size), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x.v), size, &second), 0);
    assert_int_equal(vj_objects_reap_now(x.v->objects), 0);
    assert_int_equal(vj_file_copy(first, 0, second, 0, CONTENT_BYTES, &copied), 0);
    assert_true(copied >= 16384);
    vj_objects_guard_enter(x.v->objects, &older);
    assert_int_equal(vj_file_truncate(first, 0), 0);
    assert_int_equal(vj_file_sync(first), 0);
    pass = begin_pass(x.v->objects, &older);

    vj_objects_guard_enter(x.v->objects, &younger);
    assert_int_equal(vj_file_resolve(second, 0, copied, 64, segments, &size), 0);
    assert_int_equal(size, copied);
    assert_true(segments->len > 0);
    assert_int_equal(vj_file_write(second, 0, zeroes, copied, false, NULL), 0);
    vj_objects_guard_leave(x.v->objects, &older);
    assert_int_equal(GPOINTER_TO_INT(g_thread_join(pass)), 0);

    for (guint i = 0; i < segments->len; i++) {
        const VjSegment *s = &g_array_index(segments, VjSegment, i);

        assert_int_equal(vj_segment_read(x.v->files, s, 0, got + s->at, s->length, false),
                         0);
    }
    g_array_set_size(segments, 0);
    vj_objects_guard_leave(x.v->objects, &younger);
    vj_file_unref(first);
    vj_file_unref(second);
    assert_int_equal(vj_volume_close(x.v), 0);
    vj_test_remove_dir(x.dir);
}

/* ---- dropping under conflicts ------------------------------------------------------ */

static void test_conflicts_leave_no_orphan(void **state)
{
    Fixture x = {0};
    VjFile *f;

    (void)state;
    make_volume(&x, "store=null,objects=1K", "fault:conflicts=900,seed=3");
    f = create(&x, 3, (size_t)3200 << 10); /* its last batch leaves a lower tree */
    assert_int_equal(vj_file_truncate(f, 0), 0);
    assert_int_equal(vj_file_sync(f), 0);
    vj_orphan_purge_drain(x.v->purge);
    assert_int_equal(count_keys(x.v->meta, VJ_SPACE_ORPHAN), 0);
    vj_file_unref(f);
    assert_int_equal(vj_volume_close(x.v), 0);
    vj_test_remove_dir(x.dir);
}

/* ---- the end of a growing file ----------------------------------------------------- */

#define STREAM_STEP                                                                      \
    ((size_t)12 << 20) /* enough to be held back, not to be taken at once */
#define STREAM_STEPS 3u

static VjFile *new_file(Fixture *x)
{
    VjFile *f;
    uint64_t ino;

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, create_body, &ino), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    return f;
}

static void append(VjFile *f, uint64_t at, const uint8_t *bytes, size_t len)
{
    for (size_t done = 0; done < len; done += MIN(len - done, VJ_MIB)) {
        assert_int_equal(vj_file_write(f, at + done, bytes + done,
                                       MIN(len - done, VJ_MIB), false, NULL),
                         0);
    }
}

static void assert_content(VjFile *f, const uint8_t *bytes, size_t len)
{
    g_autofree uint8_t *read = g_malloc(len + 1);
    size_t got;

    assert_int_equal(vj_file_read(f, 0, read, len + 1, &got), 0);
    assert_int_equal(got, len);
    assert_memory_equal(read, bytes, len);
}

/* @opaque: VjInode with its number. */
static int committed_body(VjTxn *txn, void *opaque)
{
    VjInode *inode = opaque;

    return vj_inode_get(txn, inode->ino, inode);
}

static uint64_t committed_bytes(Fixture *x, VjFile *f)
{
    VjInode inode = {.ino = vj_file_ino(f)};

    assert_int_equal(vj_meta_view(x->v->meta, committed_body, &inode), 0);
    return inode.size;
}

static uint64_t put_count(Fixture *x)
{
    uint64_t puts;

    vj_mutex_lock(&x->v->objects->cache.lock);
    puts = x->v->objects->cache.stats.puts;
    vj_mutex_unlock(&x->v->objects->cache.lock);
    return puts;
}

/* A volume whose background does nothing by itself, and bytes for a file. */
static uint8_t *make_stream(Fixture *x)
{
    uint8_t *bytes = g_malloc(STREAM_STEPS * STREAM_STEP);
    VjRng rng;

    vj_rng_init(&rng, 7);
    vj_rng_bytes(&rng, bytes, STREAM_STEPS * STREAM_STEP);
    make_volume(x, "objects=64K", NULL);
    vj_flusher_close(x->v->flusher);
    x->v->flusher = vj_flusher_open(x->v->files, INT64_MAX / 4);
    return bytes;
}

/* Rounds while it is being written cut it as if it had been written back at once. */
static void test_a_copy_by_turns_puts_nothing(void **state)
{
    Fixture x = {0};
    g_autofree uint8_t *bytes = make_stream(&x);
    uint64_t before, held = 0;
    VjFile *first, *second;

    (void)state;
    first = new_file(&x);
    append(first, 0, bytes, STREAM_STEPS * STREAM_STEP);
    assert_int_equal(vj_file_sync(first), 0);
    second = new_file(&x);
    before = put_count(&x);
    for (size_t i = 0; i < STREAM_STEPS; i++) {
        append(second, i * STREAM_STEP, bytes + i * STREAM_STEP, STREAM_STEP);
        assert_int_equal(vj_file_write_back_grown(vj_volume_files(x.v), &second, 1), 0);
        assert_true(vj_file_is_dirty(second));
        assert_true(committed_bytes(&x, second) > held);
        held = committed_bytes(&x, second);
        assert_true(held < (i + 1) * STREAM_STEP);
        assert_content(second, bytes, (i + 1) * STREAM_STEP);
    }
    assert_int_equal(vj_file_sync(second), 0);
    assert_false(vj_file_is_dirty(second));
    assert_int_equal(put_count(&x), before);
    assert_content(second, bytes, STREAM_STEPS * STREAM_STEP);
    vj_file_unref(first);
    vj_file_unref(second);
    assert_int_equal(vj_volume_close(x.v), 0);
    vj_test_remove_dir(x.dir);
}

/* What was changed after an append is not committed before it; and not after a close. */
static void test_only_the_end_of_a_stream_is_held_back(void **state)
{
    Fixture x = {0};
    g_autofree uint8_t *bytes = make_stream(&x);
    VjFile *f;

    (void)state;
    f = new_file(&x);
    append(f, 0, bytes, STREAM_STEP);
    bytes[0] ^= 1;
    append(f, 0, bytes, 1);
    assert_int_equal(vj_file_write_back_grown(vj_volume_files(x.v), &f, 1), 0);
    assert_false(vj_file_is_dirty(f));
    assert_int_equal(committed_bytes(&x, f), STREAM_STEP);
    append(f, STREAM_STEP, bytes + STREAM_STEP, VJ_MIB); /* little: a slow writer */
    assert_int_equal(vj_file_write_back_grown(vj_volume_files(x.v), &f, 1), 0);
    assert_false(vj_file_is_dirty(f));
    append(f, STREAM_STEP + VJ_MIB, bytes + STREAM_STEP + VJ_MIB, STREAM_STEP);
    vj_mutex_lock(&f->lock);
    f->closed = true;
    vj_mutex_unlock(&f->lock);
    assert_int_equal(vj_file_write_back_grown(vj_volume_files(x.v), &f, 1), 0);
    assert_false(vj_file_is_dirty(f));
    assert_content(f, bytes, 2 * STREAM_STEP + VJ_MIB);
    vj_file_unref(f);
    assert_int_equal(vj_volume_close(x.v), 0);
    vj_test_remove_dir(x.dir);
}

/* What is held back may be changed in any way before the next round. */
static void test_what_is_held_back_is_changed(void **state)
{
    Fixture x = {0};
    g_autofree uint8_t *bytes = make_stream(&x);
    uint64_t held;
    VjFile *f;

    (void)state;
    f = new_file(&x);
    append(f, 0, bytes, STREAM_STEP);
    assert_int_equal(vj_file_write_back_grown(vj_volume_files(x.v), &f, 1), 0);
    held = committed_bytes(&x, f);
    assert_true(held > 0 && held < STREAM_STEP - 1);
    /* Across the end of what is committed, in the rest, and shorter than what is
     * committed. */
    memset(bytes + held - 1, 0xa5, 2);
    append(f, held - 1, bytes + held - 1, 2);
    bytes[STREAM_STEP - 1] ^= 1;
    append(f, STREAM_STEP - 1, bytes + STREAM_STEP - 1, 1);
    assert_content(f, bytes, STREAM_STEP);
    assert_int_equal(vj_file_write_back_grown(vj_volume_files(x.v), &f, 1), 0);
    assert_false(vj_file_is_dirty(f));
    assert_content(f, bytes, STREAM_STEP);
    append(f, STREAM_STEP, bytes + STREAM_STEP, STREAM_STEP);
    assert_int_equal(vj_file_write_back_grown(vj_volume_files(x.v), &f, 1), 0);
    assert_true(vj_file_is_dirty(f));
    assert_int_equal(vj_file_truncate(f, 100000), 0);
    assert_int_equal(vj_file_sync(f), 0);
    assert_content(f, bytes, 100000);
    vj_file_unref(f);
    assert_int_equal(vj_volume_close(x.v), 0);
    vj_test_remove_dir(x.dir);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_copy_by_turns_puts_nothing),
    cmocka_unit_test(test_only_the_end_of_a_stream_is_held_back),
    cmocka_unit_test(test_what_is_held_back_is_changed),
    cmocka_unit_test(test_a_lost_record_fails_the_write_back),
    cmocka_unit_test(test_truncating_puts_nothing_when_there_is_no_space),
    cmocka_unit_test(test_small_contents_leave_the_reserve),
    cmocka_unit_test(test_a_resolved_piece_keeps_its_object),
    cmocka_unit_test(test_conflicts_leave_no_orphan),
};

VJ_TEST_MAIN(tests)
