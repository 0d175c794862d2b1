/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-rewrite.c - the lmdb engine's file is written anew while it is open
 *
 * fdatasync, fsync, pwrite, writev and renameat are defined here, so that liblmdb finds
 * these and not libc's: they call a hook at the syncs of the copy, fail calls, and end
 * the process at any of them.  fallocate waits where a test says so; pread is counted.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "meta-fixture.h"
#include "meta/lmdb-copy-private.h"

enum { NONE, FAIL_WRITE, FAIL_RENAME, FAIL_DIRECTORY, FAIL_ERASE };

/* Set while no rewrite runs. */
static Fixture *fixture;
static void (*at_sync)(unsigned sync); /* of the copy, before it */
static unsigned syncs;                 /* that it was called at */
static gint failing, failed;
/* The process ends at the call with this number; 0: never.  Counted while it is armed. */
static gint end_at, calls, armed;

static bool is_named(int fd, const char *name)
{
    struct stat st, named;

    return fixture != NULL && fstat(fd, &st) == 0 &&
           fstatat(fixture->dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino == named.st_ino;
}

static bool is_copy(int fd)
{
    return is_named(fd, VJ_LMDB_COPY_FILE);
}

/* One that was opened to overwrite the file. */
static bool overwrites(int fd)
{
    return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY &&
           (is_named(fd, VJ_LMDB_OLD_FILE) || is_copy(fd));
}

/* Pages of this file that the walk reads: the first calls at_read, the others are
 * counted. */
static const char *read_name;
static void (*at_read)(void);
static gint reads_after;

/* Of the file that is in use; and of the copy when it is whole: each try to put it in
 * place. */
typedef struct Holds {
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    bool fallocate_waits, fallocate_is_there;
    unsigned tries;
} Holds;

static Holds *holds; /* NULL: none waits */

static void hold_fallocate(void)
{
    vj_mutex_lock(&holds->lock);
    if (holds->fallocate_waits) {
        holds->fallocate_is_there = true;
        vj_cond_broadcast(&holds->changed);
    }
    while (holds->fallocate_waits) {
        vj_cond_wait(&holds->changed, &holds->lock);
    }
    vj_mutex_unlock(&holds->lock);
}

static void count_try(void)
{
    vj_mutex_lock(&holds->lock);
    holds->tries++;
    vj_cond_broadcast(&holds->changed);
    vj_mutex_unlock(&holds->lock);
}

static bool is_directory(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

static void maybe_end(void)
{
    if (g_atomic_int_get(&armed) != 0 &&
        g_atomic_int_add(&calls, 1) + 1 == g_atomic_int_get(&end_at)) {
        (void)raise(SIGKILL);
    }
}

static bool fails(int kind, int error)
{
    if (g_atomic_int_get(&failing) != kind) {
        return false;
    }
    g_atomic_int_inc(&failed);
    errno = error;
    return true;
}

int fdatasync(int fd)
{
    maybe_end();
    if (at_sync != NULL && is_copy(fd)) {
        at_sync(syncs++);
    }
    if (overwrites(fd) && fails(FAIL_ERASE, EIO)) {
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    maybe_end();
    if (is_directory(fd) && fails(FAIL_DIRECTORY, EIO)) {
        return -1;
    }
    if (holds != NULL && is_copy(fd)) {
        count_try();
    }
    return (int)syscall(SYS_fsync, fd);
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    if (holds != NULL && !is_copy(fd)) {
        hold_fallocate();
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, len);
}

/* By these names even where 64-bit offsets make the headers rename them. */
ssize_t device_pread(int fd, void *dst, size_t len, off_t offset) __asm__("pread64");
ssize_t device_pread(int fd, void *dst, size_t len, off_t offset)
{
    if (read_name != NULL && len >= VJ_LMDB_PAGE_BYTES_MIN && is_named(fd, read_name)) {
        if (at_read != NULL) {
            void (*now)(void) = at_read;

            at_read = NULL;
            now();
        } else {
            g_atomic_int_inc(&reads_after);
        }
    }
    return (ssize_t)syscall(SYS_pread64, fd, dst, len, offset);
}

ssize_t device_pwrite(int fd, const void *src, size_t len,
                      off_t offset) __asm__("pwrite");
ssize_t device_pwrite(int fd, const void *src, size_t len, off_t offset)
{
    maybe_end();
    if (is_copy(fd) && fails(FAIL_WRITE, ENOSPC)) {
        return -1;
    }
    return (ssize_t)syscall(SYS_pwrite64, fd, src, len, offset);
}

ssize_t writev(int fd, const struct iovec *iov, int iov_count)
{
    maybe_end();
    if (is_copy(fd) && fails(FAIL_WRITE, ENOSPC)) {
        return -1;
    }
    return (ssize_t)syscall(SYS_writev, fd, iov, iov_count);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    maybe_end();
    if (strcmp(from, VJ_LMDB_COPY_FILE) == 0 && fails(FAIL_RENAME, EIO)) {
        return -1;
    }
    return (int)syscall(SYS_renameat, from_dir, from, to_dir, to);
}

static VjMetaLogStats stats_of(const Fixture *f)
{
    VjMetaLogStats s;

    vj_meta_log_stats(f->meta, &s);
    return s;
}

static ino_t data_file(const Fixture *f, off_t *bytes)
{
    struct stat st;

    assert_int_equal(fstatat(f->dir_fd, VJ_LMDB_FILE, &st, 0), 0);
    *bytes = st.st_size;
    return st.st_ino;
}

static void assert_no_copy(const Fixture *f)
{
    assert_int_equal(faccessat(f->dir_fd, VJ_LMDB_COPY_FILE, F_OK, 0), -1);
}

static void examine(const Fixture *f)
{
    VjMetaPlace place = {.dir_fd = f->dir_fd, .path = f->path};
    VjMetaExam exam;

    assert_int_equal(vj_meta_examine("lmdb", &place, -1, NULL, NULL, &exam), 0);
    assert_int_equal(exam.flaws, 0);
    assert_int_equal(exam.log_flaws, 0);
}

static void put_many(const Fixture *f, VjSpace space, uint64_t first, uint64_t end,
                     size_t bytes)
{
    for (uint64_t i = first; i < end; i++) {
        assert_int_equal(put_numbered(f->meta, space, i, bytes), 0);
    }
}

static void assert_many(const Fixture *f, VjSpace space, uint64_t first, uint64_t end,
                        int64_t bytes)
{
    for (uint64_t i = first; i < end; i++) {
        assert_int_equal(get_numbered(f->meta, space, i), bytes);
    }
}

static void rewrite(const Fixture *f)
{
    vj_lmdb_rewrite_for_test(fixture_engine(f));
}

/* ---- size -------------------------------------------------------------------------- */

typedef struct Drop {
    uint64_t at, end;
} Drop;

static int drop_body(VjTxn *txn, void *opaque)
{
    Drop *d = opaque;
    uint64_t end = MIN(d->at + 100, d->end);
    uint8_t key[8];
    int rc = 0;

    for (uint64_t i = d->at; rc == 0 && i < end; i++) {
        rc = vj_txn_del(txn, VJ_SPACE_INLINE, numbered_key(i, key));
    }
    return rc;
}

static void drop_many(const Fixture *f, uint64_t first, uint64_t end)
{
    for (Drop d = {.at = first, .end = end}; d.at < d.end; d.at += 100) {
        assert_int_equal(vj_meta_run(f->meta, VJ_RUN_RELEASE, drop_body, &d), 0);
    }
    assert_int_equal(vj_meta_flush(f->meta), 0);
}

/* By itself, when most of it has been free for a second; the next one is not before
 * there is as much to gain again. */
static void test_gives_back(void **state)
{
    enum { KEYS = 24000, KEPT = 100 };
    Fixture f = fixture_new("lmdb:reserve=1M,shrink=1");
    int64_t until_us;
    off_t full, small;
    ino_t before;

    (void)state;
    put_many(&f, VJ_SPACE_INLINE, 0, KEYS, 4000);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(stats_of(&f).rewrites, 0);
    drop_many(&f, KEPT, KEYS);
    before = data_file(&f, &full);
    assert_true(full > (off_t)KEYS * 4000);
    until_us = vj_clock_mono_us() + 60 * (int64_t)G_USEC_PER_SEC;
    while (stats_of(&f).rewrites == 0 && vj_clock_mono_us() < until_us) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 100), 0);
        assert_int_equal(vj_meta_flush(f.meta), 0);
    }
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_true(data_file(&f, &small) != before);
    assert_true(small < full / 8);
    assert_true(stats_of(&f).freed_bytes >= (uint64_t)full / 8 * 7);
    assert_no_copy(&f);
    assert_many(&f, VJ_SPACE_INLINE, 0, KEPT, 4000);
    put_many(&f, VJ_SPACE_INLINE, KEPT, 2 * KEPT, 4000);
    fixture_close(&f);
    examine(&f);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, VJ_SPACE_INLINE, 0, 2 * KEPT, 4000);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INLINE, 2 * KEPT), -ENOENT);
    fixture_free(&f);
}

/* shrink=0: never while it is open. */
static void test_not_asked_for(void **state)
{
    Fixture f = fixture_new("lmdb:reserve=1M,shrink=0");
    off_t full, small;

    (void)state;
    put_many(&f, VJ_SPACE_INLINE, 0, 24000, 4000);
    drop_many(&f, 0, 24000);
    (void)data_file(&f, &full);
    assert_null(((VjLmdb *)fixture_engine(&f))->rewrite.thread);
    fixture_close(&f);
    (void)data_file(&f, &small);
    assert_true(small < full / 8);
    fixture_free(&f);
}

/* ---- what happens meanwhile ------------------------------------------------------ */

#define BULK 4000u

/* Between two steps: keys that were copied, some that were not, new ones of both kinds.
 */
static void change_some(unsigned sync)
{
    uint64_t low = sync * 10, high = BULK - 100 + sync * 10;

    if (sync < 1 || sync > 3) {
        return;
    }
    assert_int_equal(put_numbered(fixture->meta, VJ_SPACE_INODE, low, 700), 0);
    assert_int_equal(put_numbered(fixture->meta, VJ_SPACE_INODE, low + 1, 0), 0);
    assert_int_equal(put_numbered(fixture->meta, VJ_SPACE_INODE, BULK + sync, 10), 0);
    assert_int_equal(put_numbered(fixture->meta, VJ_SPACE_INLINE, high, 700), 0);
    assert_int_equal(put_numbered(fixture->meta, VJ_SPACE_INLINE, high + 1, 0), 0);
    assert_int_equal(put_numbered(fixture->meta, VJ_SPACE_INLINE, BULK + sync, 10), 0);
    assert_int_equal(vj_meta_flush(fixture->meta), 0);
}

static void assert_changed(const Fixture *f)
{
    for (unsigned sync = 1; sync <= 3; sync++) {
        uint64_t low = sync * 10, high = BULK - 100 + sync * 10;

        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INODE, low), 700);
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INODE, low + 1), -ENOENT);
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INODE, low + 2), 1000);
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INODE, BULK + sync), 10);
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INLINE, high), 700);
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INLINE, high + 1), -ENOENT);
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INLINE, high + 2), 1000);
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_INLINE, BULK + sync), 10);
    }
}

static void test_changes_meanwhile(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    ino_t before;
    off_t bytes;

    (void)state;
    put_many(&f, VJ_SPACE_INODE, 0, BULK, 1000);
    put_many(&f, VJ_SPACE_INLINE, 0, BULK, 1000);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    before = data_file(&f, &bytes);
    fixture = &f;
    syncs = 0;
    at_sync = change_some;
    rewrite(&f);
    assert_true(syncs > 4);
    at_sync = NULL;
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_true(data_file(&f, &bytes) != before);
    assert_changed(&f);
    fixture_close(&f);
    examine(&f);
    fixture_open(&f, "lmdb", false);
    assert_changed(&f);
    fixture_free(&f);
}

/* More than a step follows, of a space that is copied by then. */
#define FLOOD_FIRST 100000u
#define FLOOD_END 130000u

static void change_many(unsigned sync)
{
    if (sync == 3) {
        put_many(fixture, VJ_SPACE_INODE, FLOOD_FIRST, FLOOD_END, 10);
        assert_int_equal(vj_meta_flush(fixture->meta), 0);
    }
}

static void test_many_changes_meanwhile(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");

    (void)state;
    put_many(&f, VJ_SPACE_INODE, 0, BULK, 1000);
    put_many(&f, VJ_SPACE_INLINE, 0, BULK, 1000);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    fixture = &f;
    syncs = 0;
    at_sync = change_many;
    rewrite(&f);
    at_sync = NULL;
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_many(&f, VJ_SPACE_INODE, FLOOD_FIRST, FLOOD_END, 10);
    assert_many(&f, VJ_SPACE_INLINE, 0, BULK, 1000);
    fixture_close(&f);
    examine(&f);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, VJ_SPACE_INODE, FLOOD_FIRST, FLOOD_END, 10);
    fixture_free(&f);
}

/* ---- beside readers and writers ---------------------------------------------------- */

enum { WRITERS = 2, READERS = 2, ROUNDS = 60, OWN_KEYS = 400 };

typedef struct Worker {
    Fixture *f;
    uint64_t first; /* of its own keys */
    uint32_t seed;
    gint *stop;
    int64_t len[OWN_KEYS]; /* -ENOENT: there is none */
} Worker;

static uint32_t next_random(Worker *w)
{
    w->seed = w->seed * 1664525u + 1013904223u;
    return w->seed >> 8;
}

static gpointer write_some(gpointer opaque)
{
    Worker *w = opaque;

    while (g_atomic_int_get(w->stop) == 0) {
        unsigned i = next_random(w) % OWN_KEYS;
        size_t len = next_random(w) % 4 == 0 ? 0 : 8 + next_random(w) % 3000;
        int rc = put_numbered(w->f->meta, VJ_SPACE_NODE, w->first + i, len);

        assert_true(rc == 0 || (rc == -ENOENT && len == 0));
        w->len[i] = len == 0 ? -ENOENT : (int64_t)len;
        if (next_random(w) % 50 == 0) {
            assert_int_equal(vj_meta_flush(w->f->meta), 0);
        }
    }
    return NULL;
}

static int read_all_body(VjTxn *txn, void *opaque)
{
    VjScan s;

    (void)opaque;
    vj_scan_begin(&s, txn, VJ_SPACE_INODE, VJ_SCAN_ALL);
    for (uint64_t i = 0; vj_scan_next(&s); i++) {
        assert_int_equal(vj_be64_get(s.key.data), i);
        assert_int_equal(s.value.len, 500);
    }
    return s.error;
}

static gpointer read_some(gpointer opaque)
{
    Worker *w = opaque;

    while (g_atomic_int_get(w->stop) == 0) {
        assert_int_equal(vj_meta_view(w->f->meta, read_all_body, NULL), 0);
    }
    return NULL;
}

static void assert_worker(const Worker *w)
{
    for (unsigned i = 0; i < OWN_KEYS; i++) {
        assert_int_equal(get_numbered(w->f->meta, VJ_SPACE_NODE, w->first + i),
                         w->len[i]);
    }
}

static void test_beside_work(void **state)
{
    Fixture f = fixture_new("lmdb:overlay=1M,commit=1");
    Worker workers[WRITERS + READERS];
    GThread *threads[WRITERS + READERS];
    uint64_t rewrites;
    gint stop = 0;

    (void)state;
    put_many(&f, VJ_SPACE_INODE, 0, 3000, 500);
    for (unsigned i = 0; i < WRITERS + READERS; i++) {
        Worker *w = &workers[i];

        *w = (Worker){.f = &f, .first = i * 100000, .seed = i + 1, .stop = &stop};
        for (unsigned k = 0; k < OWN_KEYS; k++) {
            w->len[k] = -ENOENT;
        }
        threads[i] = g_thread_new("work", i < WRITERS ? write_some : read_some, w);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        rewrite(&f);
    }
    g_atomic_int_set(&stop, 1);
    for (unsigned i = 0; i < WRITERS + READERS; i++) {
        g_thread_join(threads[i]);
    }
    rewrites = stats_of(&f).rewrites;
    print_message("# %" G_GUINT64_FORMAT " of %d\n", rewrites, ROUNDS);
    assert_true(rewrites > ROUNDS / 2);
    for (unsigned i = 0; i < WRITERS; i++) {
        assert_worker(&workers[i]);
    }
    fixture_close(&f);
    examine(&f);
    fixture_open(&f, "lmdb", false);
    for (unsigned i = 0; i < WRITERS; i++) {
        assert_worker(&workers[i]);
    }
    assert_int_equal(vj_meta_view(f.meta, read_all_body, NULL), 0);
    fixture_free(&f);
}

/* ---- failures ---------------------------------------------------------------------- */

/* The old file stays, nothing is left of the copy, and another time it succeeds. */
static void check_failure(int kind)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    ino_t before;
    off_t bytes;

    put_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    before = data_file(&f, &bytes);
    fixture = &f;
    g_atomic_int_set(&failed, 0);
    g_atomic_int_set(&failing, kind);
    rewrite(&f);
    g_atomic_int_set(&failing, NONE);
    assert_true(g_atomic_int_get(&failed) > 0);
    assert_int_equal(stats_of(&f).rewrites, 0);
    assert_true(data_file(&f, &bytes) == before);
    assert_no_copy(&f);
    assert_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    put_many(&f, VJ_SPACE_INODE, 500, 600, 500);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_true(data_file(&f, &bytes) != before);
    fixture = NULL;
    assert_many(&f, VJ_SPACE_INODE, 0, 600, 500);
    fixture_close(&f);
    examine(&f);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, VJ_SPACE_INODE, 0, 600, 500);
    fixture_free(&f);
}

static void test_no_space(void **state)
{
    (void)state;
    check_failure(FAIL_WRITE);
}

static void test_no_rename(void **state)
{
    (void)state;
    check_failure(FAIL_RENAME);
}

/* Which of the two a crash would find is not known: nothing is durable until another
 * file has got the name for good. */
static void test_name_not_durable(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");

    (void)state;
    vj_session_retry_when_asked_for_test(f.meta);
    put_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    g_atomic_int_set(&failing, FAIL_DIRECTORY);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    put_many(&f, VJ_SPACE_INODE, 500, 600, 500);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    g_atomic_int_set(&failing, NONE);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_many(&f, VJ_SPACE_INODE, 0, 600, 500);
    fixture_close(&f);
    examine(&f);
    fixture_open(&f, "lmdb", false);
    assert_many(&f, VJ_SPACE_INODE, 0, 600, 500);
    fixture_free(&f);
}

static int fail_hook(void *opaque)
{
    (void)opaque;
    return -EIO;
}

static void fail_an_apply(unsigned sync)
{
    (void)sync;
    at_sync = NULL;
    vj_lmdb_set_move_hook_for_test(fixture_engine(fixture), fail_hook, NULL);
    assert_int_equal(put_numbered(fixture->meta, VJ_SPACE_INODE, 1000, 500), 0);
    assert_int_equal(vj_meta_flush(fixture->meta), -EIO);
    vj_lmdb_set_move_hook_for_test(fixture_engine(fixture), NULL, NULL);
}

/* An apply that failed may be in the file or not: what was copied is given up. */
static void test_failed_apply(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");

    (void)state;
    vj_session_retry_when_asked_for_test(f.meta);
    put_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    fixture = &f;
    at_sync = fail_an_apply;
    rewrite(&f);
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 0);
    assert_no_copy(&f);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1000), 500);
    fixture_free(&f);
}

/* A writer that finds no space gets that of the copy. */
static gpointer ask_for_too_much(gpointer opaque)
{
    VjLoad load = {.first = {[VJ_SPACE_NODE] = {.puts = 1}}};

    load.first[VJ_SPACE_NODE].run_pages = UINT64_C(1) << 40;
    return GINT_TO_POINTER(vj_engine_reserve(opaque, &load, false));
}

static GThread *asker;

static void ask_meanwhile(unsigned sync)
{
    VjLmdb *d = (VjLmdb *)fixture_engine(fixture);

    (void)sync;
    at_sync = NULL;
    asker = g_thread_new("ask", ask_for_too_much, d);
    vj_mutex_lock(&d->lock);
    while (!d->rewrite.yields) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    vj_mutex_unlock(&d->lock);
}

static void test_yields(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");

    (void)state;
    put_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    fixture = &f;
    at_sync = ask_meanwhile;
    rewrite(&f);
    assert_int_equal(GPOINTER_TO_INT(g_thread_join(asker)), -ENOSPC);
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 0);
    assert_no_copy(&f);
    fixture_free(&f);
}

static gpointer ask_for_some(gpointer opaque)
{
    VjLoad load = {.first = {[VJ_SPACE_NODE] = {.puts = 1}}};

    load.first[VJ_SPACE_NODE].run_pages = 4096;
    return GINT_TO_POINTER(vj_engine_reserve(opaque, &load, false));
}

static gpointer rewrite_main(gpointer opaque)
{
    rewrite(opaque);
    return NULL;
}

/* While a writer waits for room of the device no reader waits: the copy is not put in
 * place then, but when the writer has it. */
static void test_waits_for_no_claim(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600,reserve=1M");
    int64_t until_us = vj_clock_mono_us() + 60 * (int64_t)G_USEC_PER_SEC;
    Holds here = {.fallocate_waits = true};
    GThread *rewriter;

    (void)state;
    put_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    vj_mutex_init(&here.lock, VJ_RANK_META_WRAPPER, "holds");
    vj_cond_init(&here.changed);
    fixture = &f;
    holds = &here;
    asker = g_thread_new("ask", ask_for_some, fixture_engine(&f));
    vj_mutex_lock(&here.lock);
    while (!here.fallocate_is_there &&
           vj_cond_wait_until(&here.changed, &here.lock, until_us)) {
    }
    assert_true(here.fallocate_is_there);
    rewriter = g_thread_new("rewrite", rewrite_main, &f);
    while (here.tries < 2 && vj_cond_wait_until(&here.changed, &here.lock, until_us)) {
    }
    assert_true(here.tries >= 2);
    vj_mutex_unlock(&here.lock);
    assert_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    vj_mutex_lock(&here.lock);
    here.fallocate_waits = false;
    vj_cond_broadcast(&here.changed);
    vj_mutex_unlock(&here.lock);
    assert_int_equal(GPOINTER_TO_INT(g_thread_join(asker)), 0);
    g_thread_join(rewriter);
    holds = NULL;
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    fixture_free(&f);
    vj_cond_clear(&here.changed);
    vj_mutex_clear(&here.lock);
}

/* ---- what it gives up for ---------------------------------------------------------- */

static VjLmdb *lmdb_of(const Fixture *f)
{
    return (VjLmdb *)fixture_engine(f);
}

static int last_error(const Fixture *f)
{
    VjLmdb *d = lmdb_of(f);
    int rc;

    vj_mutex_lock(&d->lock);
    rc = d->rewrite.last_error;
    vj_mutex_unlock(&d->lock);
    return rc;
}

#define LONG_KEYS 200u

typedef struct LongPut {
    VjSpace space;
    uint64_t first;
} LongPut;

/* Long keys, as what is noted of a change is its key. */
static int long_body(VjTxn *txn, void *opaque)
{
    const LongPut *p = opaque;
    uint8_t key[VJ_META_KEY_MAX] = {0};
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < LONG_KEYS; i++) {
        vj_be64_set(key, p->first + i);
        rc = vj_txn_put(txn, p->space, vj_slice(key, sizeof key), vj_slice(key, 8));
    }
    return rc;
}

/* More than may be left for the exchange; at a time when none is copied, of a space that
 * has been. */
static void put_long_keys(const Fixture *f, uint64_t round)
{
    LongPut p = {.space = VJ_SPACE_INODE, .first = round * LONG_KEYS};

    G_STATIC_ASSERT(LONG_KEYS * VJ_META_KEY_MAX > VJ_LMDB_NOTES_LAST);
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, long_body, &p), 0);
    assert_int_equal(vj_meta_flush(f->meta), 0);
}

#define LONG_ROUNDS_ALL (VJ_LMDB_NOTES_MAX / (LONG_KEYS * VJ_META_KEY_MAX) + 2)

static void note_too_much(unsigned sync)
{
    (void)sync;
    at_sync = NULL;
    for (uint64_t i = 0; i < LONG_ROUNDS_ALL; i++) {
        put_long_keys(fixture, i);
    }
}

static void keep_behind(unsigned sync)
{
    put_long_keys(fixture, sync);
}

/* It is given up because of @why while @meanwhile is called, and made another time. */
static void check_given_up(const char *spec, void (*meanwhile)(unsigned sync), int why)
{
    Fixture f = fixture_new(spec);
    ino_t before;
    off_t bytes;

    put_many(&f, VJ_SPACE_INODE, 0, 3000, 1000);
    put_many(&f, VJ_SPACE_INLINE, 0, 3000, 1000);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    before = data_file(&f, &bytes);
    fixture = &f;
    syncs = 0;
    at_sync = meanwhile;
    rewrite(&f);
    at_sync = NULL;
    assert_int_equal(stats_of(&f).rewrites, 0);
    assert_int_equal(last_error(&f), why);
    assert_true(data_file(&f, &bytes) == before);
    assert_no_copy(&f);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_int_equal(last_error(&f), 0);
    fixture = NULL;
    assert_many(&f, VJ_SPACE_INODE, 0, 3000, 1000);
    assert_many(&f, VJ_SPACE_INLINE, 0, 3000, 1000);
    fixture_close(&f);
    examine(&f);
    fixture_free(&f);
}

/* More is applied between two steps than can be noted. */
static void test_too_many_notes(void **state)
{
    (void)state;
    check_given_up("lmdb:redo=0,commit=3600", note_too_much, -EBUSY);
}

/* With each step as much is applied as it follows. */
static void test_never_catches_up(void **state)
{
    (void)state;
    check_given_up("lmdb:redo=0,commit=3600", keep_behind, -EBUSY);
    assert_true(syncs >= 64);
}

/* A change that was not noted: the files have not the same keys. */
static void lose_a_note(unsigned sync)
{
    VjLmdb *d = lmdb_of(fixture);

    if (sync != 3) {
        return;
    }
    assert_int_equal(put_numbered(fixture->meta, VJ_SPACE_INODE, 1000000, 100), 0);
    assert_int_equal(vj_meta_flush(fixture->meta), 0);
    vj_mutex_lock(&d->lock);
    g_byte_array_set_size(d->notes, 0);
    vj_mutex_unlock(&d->lock);
}

static void test_copy_that_is_not_the_same(void **state)
{
    (void)state;
    check_given_up("lmdb:redo=0,commit=3600", lose_a_note, -EBADMSG);
}

/* Something stands under the name that the old file is to have. */
static void take_old_name(unsigned sync)
{
    VJ_AUTO_FD fd =
        openat(fixture->dir_fd, VJ_LMDB_OLD_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    (void)sync;
    assert_true(fd >= 0);
}

static void test_old_name_is_taken(void **state)
{
    (void)state;
    check_given_up("lmdb:redo=0,commit=3600,erase=3600", take_old_name, -EEXIST);
}

/* Of a reader that stays in its view, and of saves. */
typedef struct Stay {
    Fixture *f;
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    bool is_there, may_go;
} Stay;

static int stay_body(VjTxn *txn, void *opaque)
{
    Stay *s = opaque;
    VjSlice value;
    uint8_t key[8];
    int rc = vj_txn_get(txn, VJ_SPACE_INODE, numbered_key(1, key), &value);

    vj_mutex_lock(&s->lock);
    s->is_there = true;
    vj_cond_broadcast(&s->changed);
    while (!s->may_go) {
        vj_cond_wait(&s->changed, &s->lock);
    }
    vj_mutex_unlock(&s->lock);
    return rc == 0 ? vj_txn_get(txn, VJ_SPACE_INODE, numbered_key(2, key), &value) : rc;
}

static gpointer stay_main(gpointer opaque)
{
    Stay *s = opaque;

    return GINT_TO_POINTER(vj_meta_view(s->f->meta, stay_body, s));
}

/* A reader that stays for as long as it is tried: it reads on, and so do others. */
static void test_long_snapshot(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    VjLmdb *d = lmdb_of(&f);
    Stay stay = {.f = &f};
    Holds counts = {.tries = 0};
    GThread *reader;

    (void)state;
    put_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    d->rewrite.hold_us = d->rewrite.hold_pause_us = 1000;
    vj_mutex_init(&stay.lock, VJ_RANK_META_WRAPPER, "stay");
    vj_cond_init(&stay.changed);
    vj_mutex_init(&counts.lock, VJ_RANK_META_WRAPPER, "holds");
    vj_cond_init(&counts.changed);
    reader = g_thread_new("stay", stay_main, &stay);
    vj_mutex_lock(&stay.lock);
    while (!stay.is_there) {
        vj_cond_wait(&stay.changed, &stay.lock);
    }
    vj_mutex_unlock(&stay.lock);
    fixture = &f;
    holds = &counts;
    rewrite(&f);
    holds = NULL;
    assert_int_equal(counts.tries, 64);
    assert_int_equal(stats_of(&f).rewrites, 0);
    assert_int_equal(last_error(&f), -EBUSY);
    assert_no_copy(&f);
    assert_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    vj_mutex_lock(&stay.lock);
    stay.may_go = true;
    vj_cond_broadcast(&stay.changed);
    vj_mutex_unlock(&stay.lock);
    assert_int_equal(GPOINTER_TO_INT(g_thread_join(reader)), 0);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    fixture = NULL;
    fixture_free(&f);
    vj_cond_clear(&counts.changed);
    vj_mutex_clear(&counts.lock);
    vj_cond_clear(&stay.changed);
    vj_mutex_clear(&stay.lock);
}

static void set_saving(const Fixture *f, bool saving)
{
    VjLmdb *d = lmdb_of(f);

    vj_mutex_lock(&d->lock);
    d->saving = saving;
    vj_cond_broadcast(&d->changed);
    vj_mutex_unlock(&d->lock);
}

static gint is_saving;

static void begin_to_save(unsigned sync)
{
    (void)sync;
    at_sync = NULL;
    set_saving(fixture, true);
    g_atomic_int_set(&is_saving, 1);
}

/* The copy follows, until little is noted.  False: it was given up. */
static bool wait_for_few_notes(const Fixture *f, int64_t until_us)
{
    VjLmdb *d = lmdb_of(f);
    bool is_there;

    vj_mutex_lock(&d->lock);
    while (d->notes != NULL && d->notes->len > VJ_LMDB_NOTES_LAST &&
           vj_clock_mono_us() < until_us) {
        (void)vj_cond_wait_until(&d->changed, &d->lock, vj_clock_mono_us() + 1000);
    }
    is_there = d->notes != NULL && d->notes->len <= VJ_LMDB_NOTES_LAST;
    vj_mutex_unlock(&d->lock);
    return is_there;
}

/* While a save runs, which may take long, more is applied than could be noted: the copy
 * is not lost by that, and takes its place when the save has ended. */
static void test_follows_through_a_save(void **state)
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");
    int64_t until_us = vj_clock_mono_us() + 60 * (int64_t)G_USEC_PER_SEC;
    GThread *rewriter;

    (void)state;
    put_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    fixture = &f;
    at_sync = begin_to_save;
    g_atomic_int_set(&is_saving, 0);
    rewriter = g_thread_new("rewrite", rewrite_main, &f);
    while (g_atomic_int_get(&is_saving) == 0) {
        g_thread_yield();
    }
    for (uint64_t i = 0; i < LONG_ROUNDS_ALL; i++) {
        put_long_keys(&f, i);
        assert_true(wait_for_few_notes(&f, until_us));
    }
    assert_int_equal(stats_of(&f).rewrites, 0);
    set_saving(&f, false);
    g_thread_join(rewriter);
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_many(&f, VJ_SPACE_INODE, 0, 500, 500);
    fixture_close(&f);
    examine(&f);
    fixture_free(&f);
}

/* ---- the walks end --------------------------------------------------------------- */

/* Reads of a page more, when it was to end: its head, and one that is on its way. */
#define READS_AFTER_MOST 4

static void stop_now(void)
{
    VjLmdb *d = lmdb_of(fixture);

    vj_mutex_lock(&d->lock);
    d->rewrite.stopping = true;
    vj_cond_broadcast(&d->changed);
    vj_mutex_unlock(&d->lock);
}

static void ask_now(void)
{
    VjLmdb *d = lmdb_of(fixture);

    asker = g_thread_new("ask", ask_for_too_much, d);
    vj_mutex_lock(&d->lock);
    while (!d->rewrite.yields && !d->save_yields) {
        vj_cond_wait_until(&d->changed, &d->lock, vj_clock_mono_us() + 1000);
    }
    vj_mutex_unlock(&d->lock);
}

/* @why comes at the first read of the file @name. */
static void check_walk_ends(const char *name, void (*why)(void))
{
    Fixture f = fixture_new("lmdb:redo=0,commit=3600");

    put_many(&f, VJ_SPACE_INODE, 0, 2000, 1000);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    fixture = &f;
    at_read = why;
    g_atomic_int_set(&reads_after, 0);
    read_name = name;
    rewrite(&f);
    read_name = NULL;
    assert_null(at_read);
    if (why == ask_now) {
        assert_int_equal(GPOINTER_TO_INT(g_thread_join(asker)), -ENOSPC);
    }
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 0);
    assert_true(g_atomic_int_get(&reads_after) <= READS_AFTER_MOST);
    assert_no_copy(&f);
    fixture_free(&f);
}

static void test_walks_end(void **state)
{
    (void)state;
    check_walk_ends(VJ_LMDB_FILE, stop_now);
    check_walk_ends(VJ_LMDB_FILE, ask_now);
    check_walk_ends(VJ_LMDB_COPY_FILE, stop_now);
    check_walk_ends(VJ_LMDB_COPY_FILE, ask_now);
}

/* What a crash left of a copy. */
static void test_left_over(void **state)
{
    Fixture f = fixture_new("lmdb");
    int fd;

    (void)state;
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 100), 0);
    fixture_close(&f);
    fd = openat(f.dir_fd, VJ_LMDB_COPY_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "half", 4), 4);
    close(fd);
    fixture_open(&f, "lmdb", false);
    assert_no_copy(&f);
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, 1), 100);
    fixture_free(&f);
}

/* ---- erase= ------------------------------------------------------------------------ */

#define SECRET "what nobody is to find again"

static int secret_body(VjTxn *txn, void *opaque)
{
    static const char values[2][3000] = {SECRET, SECRET};
    const uint64_t *first = opaque;
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < 50; i++) {
        /* In leaf pages, and in pages of their own. */
        VjSlice value = vj_slice(values[i % 2], i % 2 == 0 ? 200 : sizeof values[0]);
        uint8_t key[8];

        rc = vj_txn_put(txn, VJ_SPACE_INLINE, numbered_key(*first + i, key), value);
    }
    return rc;
}

static void put_secrets(const Fixture *f, uint64_t first)
{
    assert_int_equal(vj_meta_run(f->meta, VJ_RUN_DEFAULT, secret_body, &first), 0);
    assert_int_equal(vj_meta_flush(f->meta), 0);
}

/* How often it is in the file. */
static unsigned secrets_in(int fd)
{
    struct stat st;
    unsigned count = 0;
    const char *bytes, *at, *end;

    assert_int_equal(fstat(fd, &st), 0);
    if (st.st_size == 0) {
        return 0;
    }
    bytes = at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(bytes != MAP_FAILED);
    end = bytes + st.st_size;
    while ((at = memmem(at, (size_t)(end - at), SECRET, strlen(SECRET))) != NULL) {
        at++;
        count++;
    }
    munmap((void *)(uintptr_t)bytes, (size_t)st.st_size);
    return count;
}

static unsigned secrets_named(const Fixture *f, const char *name)
{
    VJ_AUTO_FD fd = openat(f->dir_fd, name, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? 0 : secrets_in(fd);
}

/* Old and new secrets: the old ones are deleted, between and beside others that stay. */
static Fixture fixture_with_secrets(const char *spec)
{
    Fixture f = fixture_new(spec);

    put_many(&f, VJ_SPACE_INLINE, 0, 1000, 300);
    put_secrets(&f, 100);
    put_secrets(&f, 2000);
    put_many(&f, VJ_SPACE_INLINE, 100, 150, 0);
    put_many(&f, VJ_SPACE_INLINE, 2000, 2050, 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    return f;
}

static void test_erases(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=0,commit=3600,erase=3600");
    VJ_AUTO_FD old = openat(f.dir_fd, VJ_LMDB_FILE, O_RDONLY | O_CLOEXEC);

    (void)state;
    assert_true(secrets_in(old) > 0);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_int_equal(secrets_in(old), 0);
    assert_int_equal(secrets_named(&f, VJ_LMDB_FILE), 0);
    assert_int_equal(faccessat(f.dir_fd, VJ_LMDB_OLD_FILE, F_OK, 0), -1);
    assert_many(&f, VJ_SPACE_INLINE, 150, 1000, 300);
    fixture_free(&f);
}

static int64_t changed_since(const Fixture *f)
{
    VjLmdb *d = (VjLmdb *)fixture_engine(f);
    int64_t since_us;

    vj_mutex_lock(&d->lock);
    since_us = d->rewrite.changed_since_us;
    vj_mutex_unlock(&d->lock);
    return since_us;
}

/* A copy that is given up does not make the time begin anew. */
static void test_failure_keeps_its_time(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=0,commit=3600,erase=3600");
    int64_t before_us = changed_since(&f);

    (void)state;
    assert_true(before_us != 0);
    fixture = &f;
    g_atomic_int_set(&failing, FAIL_RENAME);
    rewrite(&f);
    g_atomic_int_set(&failing, NONE);
    assert_int_equal(stats_of(&f).rewrites, 0);
    assert_int_equal(changed_since(&f), before_us);
    rewrite(&f);
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_int_equal(changed_since(&f), 0);
    fixture_free(&f);
}

/* By itself, after the time that was asked for, also where little is free. */
static void test_erases_in_time(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=0,shrink=0,erase=1");
    int64_t until_us = vj_clock_mono_us() + 60 * (int64_t)G_USEC_PER_SEC;

    (void)state;
    while (stats_of(&f).rewrites == 0 && vj_clock_mono_us() < until_us) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_INODE, 1, 100), 0);
        assert_int_equal(vj_meta_flush(f.meta), 0);
    }
    assert_int_equal(secrets_named(&f, VJ_LMDB_FILE), 0);
    fixture_free(&f);
}

/* Which of the two a crash would find is not known: the old one keeps its bytes until
 * another file has got the name for good, and is overwritten then. */
static void test_erases_no_name_in_doubt(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=0,commit=3600,erase=3600");
    VJ_AUTO_FD old = openat(f.dir_fd, VJ_LMDB_FILE, O_RDONLY | O_CLOEXEC);
    unsigned before = secrets_in(old);

    (void)state;
    vj_session_retry_when_asked_for_test(f.meta);
    g_atomic_int_set(&failing, FAIL_DIRECTORY);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_int_equal(secrets_in(old), before);
    put_many(&f, VJ_SPACE_INODE, 500, 600, 500);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    rewrite(&f);
    assert_int_equal(secrets_in(old), before);
    g_atomic_int_set(&failing, NONE);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    rewrite(&f);
    assert_int_equal(secrets_in(old), 0);
    assert_int_equal(faccessat(f.dir_fd, VJ_LMDB_OLD_FILE, F_OK, 0), -1);
    assert_many(&f, VJ_SPACE_INLINE, 150, 1000, 300);
    fixture_free(&f);
}

/* When it is closed, the log too. */
static void test_erases_at_close(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=256K,erase=3600");
    VJ_AUTO_FD log = openat(f.dir_fd, VJ_REDO_FILE, O_RDONLY | O_CLOEXEC);
    VJ_AUTO_FD old = openat(f.dir_fd, VJ_LMDB_FILE, O_RDONLY | O_CLOEXEC);

    (void)state;
    assert_true(secrets_in(old) > 0);
    assert_true(secrets_in(log) > 0);
    fixture_close(&f);
    assert_int_equal(secrets_in(old), 0);
    assert_int_equal(secrets_in(log), 0);
    assert_int_equal(secrets_named(&f, VJ_LMDB_FILE), 0);
    examine(&f);
    fixture_open(&f, "lmdb:erase=3600", false);
    assert_many(&f, VJ_SPACE_INLINE, 150, 1000, 300);
    put_secrets(&f, 0);
    fixture_free(&f);
}

/* Unasked, nothing is overwritten. */
static void test_does_not_erase(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=0");
    VJ_AUTO_FD old = openat(f.dir_fd, VJ_LMDB_FILE, O_RDONLY | O_CLOEXEC);

    (void)state;
    rewrite(&f);
    assert_true(secrets_in(old) > 0);
    fixture_free(&f);
}

/* A crash left it: before the rename, when it is the engine's own; and after it. */
static void test_erases_what_is_left(void **state)
{
    static const char text[] = SECRET;
    Fixture f = fixture_new("lmdb:erase=3600");
    VJ_AUTO_FD fd = -1;

    (void)state;
    put_many(&f, VJ_SPACE_INLINE, 0, 100, 300);
    fixture_close(&f);
    assert_int_equal(linkat(f.dir_fd, VJ_LMDB_FILE, f.dir_fd, VJ_LMDB_OLD_FILE, 0), 0);
    fixture_open(&f, "lmdb:erase=3600", false);
    assert_int_equal(faccessat(f.dir_fd, VJ_LMDB_OLD_FILE, F_OK, 0), -1);
    assert_many(&f, VJ_SPACE_INLINE, 0, 100, 300);
    fixture_close(&f);
    fd = openat(f.dir_fd, VJ_LMDB_OLD_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    fixture_open(&f, "lmdb", false);
    assert_int_equal(secrets_in(fd), 0);
    assert_int_equal(faccessat(f.dir_fd, VJ_LMDB_OLD_FILE, F_OK, 0), -1);
    assert_many(&f, VJ_SPACE_INLINE, 0, 100, 300);
    fixture_free(&f);
}

/* ---- what cannot be overwritten ---------------------------------------------------- */

static void expect_erasures(const Fixture *f, uint64_t waiting, uint64_t given_up)
{
    VjMetaLogStats s = stats_of(f);

    assert_int_equal(s.erasures_waiting, waiting);
    assert_int_equal(s.erasures_given_up, given_up);
}

static bool has_old(const Fixture *f)
{
    return faccessat(f->dir_fd, VJ_LMDB_OLD_FILE, F_OK, 0) == 0;
}

/* The old file is tried again, and the next one takes no place before it has gone. */
static void test_tries_to_erase_again(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=0,commit=3600,erase=3600");
    VJ_AUTO_FD old = openat(f.dir_fd, VJ_LMDB_FILE, O_RDONLY | O_CLOEXEC);
    VJ_AUTO_FD second = -1;

    (void)state;
    fixture = &f;
    g_atomic_int_set(&failing, FAIL_ERASE);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    expect_erasures(&f, 1, 0);
    assert_true(has_old(&f));
    put_secrets(&f, 3000);
    put_many(&f, VJ_SPACE_INLINE, 3000, 3050, 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    second = openat(f.dir_fd, VJ_LMDB_FILE, O_RDONLY | O_CLOEXEC);
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 1);
    assert_int_equal(last_error(&f), -EEXIST);
    expect_erasures(&f, 1, 0);
    g_atomic_int_set(&failing, NONE);
    assert_true(secrets_in(second) > 0);
    rewrite(&f);
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 2);
    expect_erasures(&f, 0, 0);
    assert_false(has_old(&f));
    assert_int_equal(secrets_in(old), 0);
    assert_int_equal(secrets_in(second), 0);
    fixture_free(&f);
}

/* At last it goes as it is, and the next one is made. */
static void test_gives_up_to_erase(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=0,commit=3600,erase=3600");

    (void)state;
    fixture = &f;
    g_atomic_int_set(&failing, FAIL_ERASE);
    for (unsigned i = 1; i < VJ_LMDB_ERASE_TRIES_MAX; i++) {
        rewrite(&f);
        assert_int_equal(stats_of(&f).rewrites, 1);
        expect_erasures(&f, 1, 0);
    }
    rewrite(&f);
    assert_int_equal(stats_of(&f).rewrites, 2);
    expect_erasures(&f, 1, 1); /* and its own old file waits */
    g_atomic_int_set(&failing, NONE);
    rewrite(&f);
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 3);
    expect_erasures(&f, 0, 1);
    assert_false(has_old(&f));
    fixture_free(&f);
}

static void expect_erased_soon(const Fixture *f)
{
    int64_t until_us = vj_clock_mono_us() + 60 * (int64_t)G_USEC_PER_SEC;

    while (stats_of(f).erasures_waiting > 0 && vj_clock_mono_us() < until_us) {
        assert_int_equal(put_numbered(f->meta, VJ_SPACE_INODE, 1, 100), 0);
        assert_int_equal(vj_meta_flush(f->meta), 0);
    }
    expect_erasures(f, 0, 0);
    assert_false(has_old(f));
}

/* By itself, whatever is changed. */
static void test_erases_later_by_itself(void **state)
{
    Fixture f = fixture_with_secrets("lmdb:redo=0,commit=3600,erase=3600");

    (void)state;
    fixture = &f;
    g_atomic_int_set(&failing, FAIL_ERASE);
    rewrite(&f);
    expect_erasures(&f, 1, 0);
    g_atomic_int_set(&failing, NONE);
    expect_erased_soon(&f);
    fixture = NULL;
    assert_int_equal(stats_of(&f).rewrites, 1);
    fixture_free(&f);
}

/* What a crash left, and the open cannot overwrite either, does not keep it from opening;
 * a copy waits under the name that the next open looks for, too. */
static void test_left_over_that_cannot_be_erased(void **state)
{
    static const char *const names[] = {VJ_LMDB_OLD_FILE, VJ_LMDB_COPY_FILE};
    static const char *const specs[] = {"lmdb", "lmdb:erase=3600"};
    static const char text[] = SECRET;
    Fixture f = fixture_new("lmdb");

    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        VJ_AUTO_FD fd = -1;

        fixture_close(&f);
        fd = openat(f.dir_fd, names[i], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, text, sizeof text), sizeof text);
        fixture = &f;
        g_atomic_int_set(&failing, FAIL_ERASE);
        fixture_open(&f, specs[i], false);
        expect_erasures(&f, 1, 0);
        assert_true(has_old(&f));
        g_atomic_int_set(&failing, NONE);
        expect_erased_soon(&f);
        fixture = NULL;
        assert_int_equal(secrets_in(fd), 0);
    }
    fixture_free(&f);
}

/* ---- kill -9 ----------------------------------------------------------------------- */

typedef struct Shared {
    gint flushed; /* keys that were durable */
    gint calls;   /* the child has come to its end: that it made */
} Shared;

static gpointer put_and_flush(gpointer opaque)
{
    Worker *w = opaque;
    Shared *shared = (Shared *)(void *)w->stop;

    for (uint64_t i = 300; i < 330; i++) {
        put_many(w->f, VJ_SPACE_INODE, i, i + 1, 500);
        assert_int_equal(vj_meta_flush(w->f->meta), 0);
        g_atomic_int_set(&shared->flushed, (gint)i + 1);
    }
    return NULL;
}

/* In a process of its own: rewrites beside flushes, and ends at the call @at. */
static void child(Fixture *f, Shared *shared, gint at, const char *spec)
{
    Worker w = {.f = f, .stop = (gint *)(void *)shared};
    GThread *thread;

    fixture_open(f, spec, true);
    put_many(f, VJ_SPACE_INODE, 0, 300, 500);
    assert_int_equal(vj_meta_flush(f->meta), 0);
    g_atomic_int_set(&shared->flushed, 300);
    g_atomic_int_set(&end_at, at);
    g_atomic_int_set(&armed, 1);
    thread = g_thread_new("work", put_and_flush, &w);
    rewrite(f);
    rewrite(f);
    g_thread_join(thread);
    g_atomic_int_set(&armed, 0);
    g_atomic_int_set(&shared->calls, g_atomic_int_get(&calls));
    _exit(0);
}

/* True: it came to its end. */
static bool end_child_at(Shared *shared, gint at, const char *spec)
{
    g_autofree char *template = g_build_filename(g_get_tmp_dir(), "meta-XXXXXX", NULL);
    Fixture f = {.path = g_strdup(g_mkdtemp(template))};
    int status;
    pid_t pid;

    assert_non_null(f.path);
    f.dir_fd = open(f.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *shared = (Shared){0};
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        child(&f, shared, at, spec);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == 0
                                  : WTERMSIG(status) == SIGKILL);
    examine(&f);
    fixture_open(&f, "lmdb", false);
    assert_no_copy(&f);
    assert_many(&f, VJ_SPACE_INODE, 0, (uint64_t)shared->flushed, 500);
    /* One more may have been on its way. */
    assert_int_equal(get_numbered(f.meta, VJ_SPACE_INODE, (uint64_t)shared->flushed + 1),
                     -ENOENT);
    put_many(&f, VJ_SPACE_INODE, 400, 410, 500);
    fixture_free(&f);
    return WIFEXITED(status);
}

static void check_killed(const char *spec)
{
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    gint at = 1;

    assert_true(shared != MAP_FAILED);
    while (!end_child_at(shared, at, spec)) {
        at++;
        assert_true(at < 1000);
    }
    print_message("# killed at %d calls\n", at - 1);
    assert_true(at > 20);
    munmap(shared, sizeof *shared);
}

static void test_killed(void **state)
{
    (void)state;
    check_killed("lmdb:redo=0,commit=3600,reserve=1M");
    check_killed("lmdb:redo=256K,commit=1,reserve=1M");
    check_killed("lmdb:redo=0,commit=3600,reserve=1M,erase=3600");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gives_back),
        cmocka_unit_test(test_not_asked_for),
        cmocka_unit_test(test_changes_meanwhile),
        cmocka_unit_test(test_many_changes_meanwhile),
        cmocka_unit_test(test_beside_work),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_no_rename),
        cmocka_unit_test(test_name_not_durable),
        cmocka_unit_test(test_failed_apply),
        cmocka_unit_test(test_yields),
        cmocka_unit_test(test_waits_for_no_claim),
        cmocka_unit_test(test_too_many_notes),
        cmocka_unit_test(test_never_catches_up),
        cmocka_unit_test(test_copy_that_is_not_the_same),
        cmocka_unit_test(test_old_name_is_taken),
        cmocka_unit_test(test_long_snapshot),
        cmocka_unit_test(test_follows_through_a_save),
        cmocka_unit_test(test_walks_end),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_erases),
        cmocka_unit_test(test_failure_keeps_its_time),
        cmocka_unit_test(test_erases_in_time),
        cmocka_unit_test(test_erases_no_name_in_doubt),
        cmocka_unit_test(test_erases_at_close),
        cmocka_unit_test(test_does_not_erase),
        cmocka_unit_test(test_erases_what_is_left),
        cmocka_unit_test(test_tries_to_erase_again),
        cmocka_unit_test(test_gives_up_to_erase),
        cmocka_unit_test(test_erases_later_by_itself),
        cmocka_unit_test(test_left_over_that_cannot_be_erased),
        cmocka_unit_test(test_killed),
    };

    if (argc == 3 && strcmp(argv[1], "-p") == 0) {
        cmocka_set_test_filter(argv[2]);
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [-p PATTERN]\n", argv[0]);
        return 2;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
