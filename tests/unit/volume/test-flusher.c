/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-flusher.c - whom write-back in the background makes wait: a small file is made
 * durable while the store holds up what a stream has put, and its flush
 */
#include "../../lib/test.h"

#include "codec/codec.h"
#include "file/write-back-private.h"
#include "volume/volume-private.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SMALL_BYTES ((size_t)64 << 10) /* has objects */
#define INLINE_BYTES ((size_t)100)
#define MEDIUM_BYTES ((size_t)VJ_MIB / 2) /* not much, and not small */
/* More than half of the memory for changes: that is short then. */
#define STREAM_BYTES (VJ_DIRTY_LEAST / 2 + VJ_MIB)
#define ROUNDS 50u

typedef struct Fixture {
    char *dir;
    VjVolume *v;
    VjFile *small, *stream;
    int hold_fd;
} Fixture;

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

    assert_int_equal(vj_meta_run(x->v->meta, VJ_RUN_DEFAULT, create_body, &ino), 0);
    assert_int_equal(vj_file_open(vj_volume_files(x->v), ino, &f), 0);
    return f;
}

/* Random bytes. */
static void write_at(VjFile *f, uint64_t at, size_t len, uint64_t seed)
{
    g_autofree uint8_t *bytes = g_malloc(len);
    VjRng rng;

    vj_rng_init(&rng, seed);
    vj_rng_bytes(&rng, bytes, len);
    for (size_t done = 0, part; done < len; done += part) {
        part = MIN(len - done, VJ_FILE_EDIT_MAX);
        assert_int_equal(vj_file_write(f, at + done, bytes + done, part, false, NULL), 0);
    }
}

static void set_up(Fixture *x)
{
    g_autoptr(GError) error = NULL;
    VjVolumeMake make = {.options = NULL};
    VjVolumeOpen how = {.wrap_store = "fault",
                        .commit_seconds = 3600, /* nothing is due by its age */
                        .dirty_bytes = VJ_DIRTY_LEAST};

    x->dir = vj_test_make_dir();
    make.source = how.source = x->dir;
    assert_true(vj_volume_make(&make, &error));
    assert_true(vj_volume_open(&how, &x->v, &error));
    x->small = create(x);
    write_at(x->small, 0, SMALL_BYTES, 1);
    assert_int_equal(vj_file_sync(x->small), 0);
    x->stream = create(x);
}

static void tear_down(Fixture *x)
{
    vj_file_unref(x->small);
    vj_file_unref(x->stream);
    assert_int_equal(vj_volume_close(x->v), 0);
    vj_test_remove_dir(x->dir);
}

/* Such calls of the store wait until let_go(). */
static void hold(Fixture *x, const char *kinds)
{
    g_autofree char *path = g_build_filename(x->dir, "hold", NULL);
    g_autofree char *options = g_strdup_printf("kinds=%s,hold=%s", kinds, path);
    g_autoptr(GError) error = NULL;

    x->hold_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(x->hold_fd >= 0);
    assert_int_equal(flock(x->hold_fd, LOCK_EX), 0);
    assert_true(vj_store_fault_set(x->v->store, options, &error));
}

static void let_go(Fixture *x)
{
    vj_fd_close(&x->hold_fd);
}

/* One of the calls that are held has come. */
static void wait_for_held(Fixture *x)
{
    while (vj_store_fault_calls(x->v->store) == 0) {
        g_thread_yield();
    }
}

static void wait_for_clean(VjFile *f)
{
    while (vj_file_is_dirty(f)) {
        g_thread_yield();
    }
}

/* A background thread is at the stream's round, with puts or the flush held up. */
static void begin_stream(Fixture *x, const char *kinds)
{
    hold(x, kinds);
    write_at(x->stream, 0, STREAM_BYTES, 2);
    wait_for_held(x);
}

static void sync_small_many_times(Fixture *x, const char *kinds)
{
    begin_stream(x, kinds);
    for (unsigned i = 0; i < ROUNDS; i++) {
        write_at(x->small, 100 * i, 100, 10 + i);
        assert_false(vj_file_is_much(x->small));
        assert_int_equal(vj_file_sync(x->small), 0);
        assert_false(vj_file_is_dirty(x->small));
    }
    assert_true(vj_file_is_dirty(x->stream));
    let_go(x);
    assert_int_equal(vj_file_sync(x->stream), 0);
}

static void a_small_sync_does_not_wait_for_objects_of_a_stream(void **state)
{
    Fixture x = {0};

    (void)state;
    set_up(&x);
    sync_small_many_times(&x, "put");
    tear_down(&x);
}

static void nor_for_its_flush(void **state)
{
    Fixture x = {0};

    (void)state;
    set_up(&x);
    sync_small_many_times(&x, "flush");
    tear_down(&x);
}

/* Who writes the stream waits for memory: that is no reason to write back a small file,
 * as long as the stream is being written back. */
static void pressure_is_relieved_by_what_holds_much(void **state)
{
    Fixture x = {0};

    (void)state;
    set_up(&x);
    begin_stream(&x, "put");
    for (unsigned i = 0; i < ROUNDS; i++) {
        write_at(x.small, 100 * i, 100, 10 + i);
        vj_flusher_pressure(x.v->flusher, false);
        g_thread_yield();
        assert_int_equal(vj_file_sync(x.small), 0); /* it would wait for its puts, too */
    }
    assert_true(vj_file_is_dirty(x.stream));
    let_go(&x);
    assert_int_equal(vj_file_sync(x.stream), 0);
    write_at(x.small, 0, 100, 5);
    vj_flusher_pressure(x.v->flusher, false); /* nothing else is there now */
    wait_for_clean(x.small);
    tear_down(&x);
}

/* Files that were made durable stay in the queue, before those that have the memory: to
 * write them back gives none back.  A writer goes on all the same. */
static void pressure_goes_past_files_without_changes(void **state)
{
    enum {
        CLEAN = 3 * VJ_WRITE_BACK_BATCH,
        MEDIUM = 2 * (int)(VJ_DIRTY_LEAST / MEDIUM_BYTES)
    };
    VjFile *files[CLEAN + MEDIUM];
    Fixture x = {0};

    (void)state;
    set_up(&x);
    for (unsigned i = 0; i < CLEAN; i++) {
        files[i] = create(&x);
        write_at(files[i], 0, INLINE_BYTES, i);
        assert_int_equal(vj_file_sync(files[i]), 0);
    }
    for (unsigned i = CLEAN; i < G_N_ELEMENTS(files); i++) {
        files[i] = create(&x);
        write_at(files[i], 0, MEDIUM_BYTES, i);
        assert_false(vj_file_is_much(files[i]));
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(files); i++) {
        vj_file_unref(files[i]);
    }
    tear_down(&x);
}

/* Closed within the same moment as the stream, taken by another thread. */
static void small_files_are_not_in_one_batch_with_a_stream(void **state)
{
    Fixture x = {0};
    VjFile *tiny;

    (void)state;
    set_up(&x);
    tiny = create(&x);
    hold(&x, "put");
    write_at(x.stream, 0, VJ_FILE_MUCH_LEAST, 2);
    write_at(tiny, 0, INLINE_BYTES, 3);
    vj_file_kick(x.stream);
    vj_file_kick(tiny);
    wait_for_clean(tiny);
    wait_for_held(&x);
    assert_true(vj_file_is_dirty(x.stream));
    let_go(&x);
    vj_file_unref(tiny);
    tear_down(&x);
}

typedef struct Batch {
    Fixture *x;
    VjFile *files[2];
    int r;
} Batch;

static gpointer batch_main(gpointer opaque)
{
    Batch *b = opaque;

    b->r = vj_file_write_back_grown(vj_volume_files(b->x->v), b->files, 2);
    return NULL;
}

/* What has put nothing is committed before the others' flush. */
static void what_needs_no_flush_does_not_wait_for_it(void **state)
{
    Fixture x = {0};
    Batch b = {.x = &x};
    GThread *thread;

    (void)state;
    set_up(&x);
    b.files[0] = x.stream;
    b.files[1] = create(&x);
    hold(&x, "flush");
    write_at(b.files[0], 0, SMALL_BYTES, 2);
    write_at(b.files[1], 0, INLINE_BYTES, 3);
    thread = g_thread_new("batch", batch_main, &b);
    wait_for_held(&x);
    wait_for_clean(b.files[1]);
    assert_true(vj_file_is_dirty(b.files[0]));
    let_go(&x);
    g_thread_join(thread);
    assert_int_equal(b.r, 0);
    assert_false(vj_file_is_dirty(b.files[0]));
    vj_file_unref(b.files[1]);
    tear_down(&x);
}

/* A worker is not woken for each chunk, and does not take all of a stream's in one go. */
static void a_call_takes_some_chunks_and_then_others_go_first(void **state)
{
    enum { CHUNKS = 40, CHUNK_BYTES = 4096 };
    static uint8_t bytes[CHUNKS][CHUNK_BYTES];
    const VjTransform none = {.codec = VJ_CODEC_ID_NONE};
    VjOut outs[CHUNKS] = {{.pending = NULL}};
    VjFileTable *table;
    Fixture x = {0};
    VjPutQueue q;

    (void)state;
    set_up(&x);
    table = vj_volume_files(x.v);
    assert_true(table->put_workers + VJ_PUT_CALL_JOBS < CHUNKS);
    assert_true(g_thread_pool_set_max_threads(table->workers, 0, NULL)); /* none runs */
    vj_put_queue_init(&q, table, &none);
    for (unsigned i = 0; i < CHUNKS; i++) {
        VjPlain content = {.plain = bytes[i], .len = CHUNK_BYTES};

        memset(bytes[i], (int)i + 1, CHUNK_BYTES);
        assert_int_equal(vj_put_queue_add(&q, &outs[i], &content, NULL, 0), 0);
    }
    assert_int_equal(g_thread_pool_unprocessed(table->workers), table->put_workers);
    assert_int_equal(q.calls, table->put_workers);
    q.calls++; /* the one that is made here */
    vj_put_worker(&q.self, table);
    assert_int_equal(q.waiting_jobs, CHUNKS - VJ_PUT_CALL_JOBS);
    /* It goes on behind those that came meanwhile. */
    assert_int_equal(g_thread_pool_unprocessed(table->workers), table->put_workers + 1);
    assert_int_equal(q.calls, table->put_workers + 1);
    assert_true(
        g_thread_pool_set_max_threads(table->workers, (gint)table->put_workers, NULL));
    assert_int_equal(vj_put_queue_drain(&q), 0);
    for (unsigned i = 0; i < CHUNKS; i++) {
        assert_non_null(outs[i].pending);
        vj_pending_free(table->objects, outs[i].pending, false);
    }
    vj_put_queue_clear(&q);
    tear_down(&x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_small_sync_does_not_wait_for_objects_of_a_stream),
    cmocka_unit_test(nor_for_its_flush),
    cmocka_unit_test(pressure_is_relieved_by_what_holds_much),
    cmocka_unit_test(pressure_goes_past_files_without_changes),
    cmocka_unit_test(small_files_are_not_in_one_batch_with_a_stream),
    cmocka_unit_test(what_needs_no_flush_does_not_wait_for_it),
    cmocka_unit_test(a_call_takes_some_chunks_and_then_others_go_first),
};

VJ_TEST_MAIN(tests)
