/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-redo.c - the log in front of the file: what a flush costs, and what a crash leaves
 *
 * A crash is a copy of both files.  fdatasync and pwritev are defined here, so that syncs
 * of the log can be held, counted and made to fail, and writes past the page cache be
 * refused.
 */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "meta-fixture.h"

#define WAITERS 16
#define SPEC "lmdb:commit=3600,redo=1M"

/* ---- the device -------------------------------------------------------------------- */

static VjMutex device_lock = VJ_MUTEX_INIT(VJ_RANK_META_WRAPPER, "device");
static VjCond device_changed;
/* guarded by device_lock: */
static bool is_held, log_fails, data_fails;
static unsigned log_syncs;
static unsigned data_failures; /* so many syncs of the file fail */
static bool refuses_direct;
static unsigned direct_writes; /* to the log */

static bool is_log(int fd)
{
    g_autofree char *link = g_strdup_printf("/proc/self/fd/%d", fd);
    g_autofree char *path = g_file_read_link(link, NULL);

    return path != NULL && g_str_has_suffix(path, VJ_REDO_FILE);
}

int fdatasync(int fd)
{
    bool fails;

    vj_mutex_lock(&device_lock);
    if (is_log(fd)) {
        log_syncs++;
        vj_cond_broadcast(&device_changed);
        while (is_held) {
            vj_cond_wait(&device_changed, &device_lock);
        }
        fails = log_fails;
    } else {
        fails = data_fails || data_failures > 0;
        data_failures -= data_failures > 0;
    }
    vj_mutex_unlock(&device_lock);
    if (fails) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

static void device_set(bool held, bool log, bool data)
{
    vj_mutex_lock(&device_lock);
    is_held = held;
    log_fails = log;
    data_fails = data;
    vj_cond_broadcast(&device_changed);
    vj_mutex_unlock(&device_lock);
}

/* Writes past the page cache since the last call. */
static unsigned device_refuse_direct(bool refuses)
{
    unsigned count;

    vj_mutex_lock(&device_lock);
    count = direct_writes;
    direct_writes = 0;
    refuses_direct = refuses;
    vj_mutex_unlock(&device_lock);
    return count;
}

static unsigned log_syncs_now(void)
{
    unsigned count;

    vj_mutex_lock(&device_lock);
    count = log_syncs;
    vj_mutex_unlock(&device_lock);
    return count;
}

static void wait_for_log_syncs(unsigned count)
{
    vj_mutex_lock(&device_lock);
    while (log_syncs < count) {
        vj_cond_wait(&device_changed, &device_lock);
    }
    vj_mutex_unlock(&device_lock);
}

/* ---- helpers ----------------------------------------------------------------------- */

static VjMetaLogStats stats_of(const Fixture *f)
{
    VjMetaLogStats s;

    vj_meta_log_stats(f->meta, &s);
    return s;
}

static void put_flushed(const Fixture *f, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        assert_int_equal(put_numbered(f->meta, VJ_SPACE_NODE, i, 100), 0);
        assert_int_equal(vj_meta_flush(f->meta), 0);
    }
}

/* After a failure: the log has a new file, and the data file names it. */
static void wait_until_log_serves(const Fixture *f)
{
    VjSession *s = vj_session_of(f->meta);

    vj_mutex_lock(&s->state);
    while (!s->redo.serves) {
        vj_cond_wait(&s->moved, &s->state);
    }
    vj_mutex_unlock(&s->state);
}

/* Exactly those before @end are there. */
static void assert_up_to(const Fixture *f, uint64_t end)
{
    for (uint64_t i = 0; i < end; i++) {
        assert_int_equal(get_numbered(f->meta, VJ_SPACE_NODE, i), 100);
    }
    assert_int_equal(get_numbered(f->meta, VJ_SPACE_NODE, end), -ENOENT);
}

static void copy_file(const Fixture *from, const Fixture *to, const char *name)
{
    g_autofree char *a = g_build_filename(from->path, name, NULL);
    g_autofree char *b = g_build_filename(to->path, name, NULL);
    g_autofree char *bytes = NULL;
    gsize len;

    /* A log that failed goes when the data file needs none. */
    if (g_file_get_contents(a, &bytes, &len, NULL)) {
        assert_true(g_file_set_contents(b, bytes, (gssize)len, NULL));
    } else {
        assert_string_equal(name, VJ_REDO_FILE);
    }
}

/* What kill -9 would leave; not opened yet. */
static Fixture crashed(const Fixture *f)
{
    g_autofree char *template = g_build_filename(g_get_tmp_dir(), "meta-XXXXXX", NULL);
    Fixture copy = {.path = g_strdup(g_mkdtemp(template))};

    copy.dir_fd = open(copy.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(copy.dir_fd >= 0);
    copy_file(f, &copy, VJ_LMDB_FILE);
    copy_file(f, &copy, VJ_REDO_FILE);
    return copy;
}

static uint64_t log_flaws(const Fixture *f)
{
    VjMetaPlace place = {.dir_fd = f->dir_fd, .path = f->path};
    VjMetaExam exam;

    assert_int_equal(vj_meta_examine("lmdb", &place, -1, NULL, NULL, &exam), 0);
    assert_int_equal(exam.flaws, 0);
    return exam.log_flaws;
}

static bool try_open(Fixture *f, const char *spec, bool read_only, bool salvage,
                     int *code)
{
    VjMetaPlace place = {
        .dir_fd = f->dir_fd, .path = f->path, .read_only = read_only, .salvage = salvage};
    g_autoptr(GError) error = NULL;
    bool ok = vj_meta_open(spec, &place, &f->meta, &error);

    *code = ok ? 0 : error->code;
    assert_true(ok || strchr(error->message, '\n') == NULL);
    return ok;
}

static void assert_refused(Fixture *f)
{
    int code;

    assert_false(try_open(f, SPEC, false, false, &code));
    assert_int_equal(code, EBADMSG);
    assert_false(try_open(f, SPEC, true, false, &code));
    assert_int_equal(code, EBADMSG);
    f->meta = NULL;
}

/* Read-only, which changes nothing, and then as a mount does. */
static void assert_recovers(Fixture *f, const char *spec, uint64_t end)
{
    int code;

    assert_int_equal(log_flaws(f), 0);
    assert_true(try_open(f, spec, true, false, &code));
    assert_up_to(f, end);
    assert_int_equal(vj_meta_close(f->meta), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(try_open(f, spec, false, false, &code));
        assert_up_to(f, end);
        fixture_close(f);
    }
}

/* Changes a byte of the log. */
static void hurt(const Fixture *f, uint64_t at)
{
    int fd = openat(f->dir_fd, VJ_REDO_FILE, O_RDWR | O_CLOEXEC);
    uint8_t byte;

    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

/* Where the record of the n-th flush behind the first one stands: they take a block
 * each. */
static uint64_t place_of(const Fixture *f, unsigned n)
{
    VjSession *s = vj_session_of(f->meta);

    return VJ_REDO_BLOCK_BYTES + s->redo.round % 2 * s->redo.log->half_bytes +
           (uint64_t)n * VJ_REDO_BLOCK_BYTES;
}

typedef struct Waiter {
    VjMeta *meta;
    uint64_t number;
    gint *committed; /* atomic */
    int result;
} Waiter;

static gpointer waiter_main(gpointer opaque)
{
    Waiter *w = opaque;
    int rc = put_numbered(w->meta, VJ_SPACE_NODE, w->number, 100);

    vj_mutex_lock(&device_lock);
    (*w->committed)++;
    vj_cond_broadcast(&device_changed);
    vj_mutex_unlock(&device_lock);
    w->result = rc < 0 ? rc : vj_meta_flush(w->meta);
    return NULL;
}

static void wait_for_committed(const gint *committed, gint count)
{
    vj_mutex_lock(&device_lock);
    while (*committed < count) {
        vj_cond_wait(&device_changed, &device_lock);
    }
    vj_mutex_unlock(&device_lock);
}

static void wait_until_frozen(VjSession *s)
{
    vj_mutex_lock(&s->state);
    while (s->frozen == NULL) {
        vj_cond_wait(&s->moved, &s->state);
    }
    vj_mutex_unlock(&s->state);
}

/* ---- tests ------------------------------------------------------------------------- */

/* The first flush says in the file that there is a log; all others are one sync of the
 * log. */
static void test_flush_is_one_sync(void **state)
{
    Fixture f = fixture_new(SPEC);
    unsigned before;

    (void)state;
    put_flushed(&f, 0, 1);
    assert_int_equal(stats_of(&f).moves, 1);
    before = log_syncs_now();
    put_flushed(&f, 1, 51);
    assert_int_equal(log_syncs_now() - before, 50);
    assert_int_equal(stats_of(&f).records, 50);
    assert_int_equal(stats_of(&f).bytes, 50 * VJ_REDO_BLOCK_BYTES);
    assert_int_equal(stats_of(&f).moves, 1);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(stats_of(&f).records, 50);
    fixture_free(&f);
}

static void count_call(void *opaque)
{
    ++*(unsigned *)opaque;
}

/* A thread that writes the log or the engine's file waits for the device, and says so
 * before (vj_before_wait); one that has nothing to write does not wait. */
static void check_announces(const char *spec)
{
    static unsigned calls; /* also there for what comes after a failure */
    Fixture f = fixture_new(spec);

    calls = 0;
    put_flushed(&f, 0, 1); /* what the first one does beside that */
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 1, 100), 0);
    vj_before_wait_set(count_call, &calls);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(calls, 1);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(calls, 1);
    vj_before_wait_set(NULL, NULL);
    fixture_free(&f);
}

static void test_flush_announces_its_wait(void **state)
{
    (void)state;
    check_announces(SPEC);
    check_announces("lmdb:redo=0,commit=3600");
}

/* One waiter's sync runs; sixteen more commit and flush meanwhile: one more for all of
 * them. */
static void test_waiters_share(void **state)
{
    Fixture f = fixture_new(SPEC);
    Waiter waiters[WAITERS + 1];
    GThread *threads[WAITERS + 1];
    gint committed = 0;
    unsigned before;

    (void)state;
    put_flushed(&f, 0, 1);
    before = log_syncs_now();
    device_set(true, false, false);
    for (unsigned i = 0; i <= WAITERS; i++) {
        waiters[i] = (Waiter){.meta = f.meta, .number = 1 + i, .committed = &committed};
        threads[i] = g_thread_new("waiter", waiter_main, &waiters[i]);
        if (i == 0) {
            wait_for_log_syncs(before + 1);
        }
    }
    wait_for_committed(&committed, WAITERS + 1);
    /* Nobody but who flushes waits for the device. */
    for (uint64_t i = 1 + WAITERS + 1; i < 300; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, i, 100), 0);
    }
    device_set(false, false, false);
    for (unsigned i = 0; i <= WAITERS; i++) {
        g_thread_join(threads[i]);
        assert_int_equal(waiters[i].result, 0);
    }
    assert_int_equal(stats_of(&f).records, 2);
    assert_int_equal(log_syncs_now() - before, 2);
    assert_up_to(&f, 300);
    fixture_free(&f);
}

/* Of a key that changed between two flushes the log has the last value; of one that went,
 * that. */
static void test_crash(void **state)
{
    Fixture f = fixture_new(SPEC), copy;
    uint64_t count;
    int code;

    (void)state;
    put_flushed(&f, 0, 10);
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 3, 100 + i), 0);
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 500 + i, 10), 0);
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 500 + i, 0), 0);
    }
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 3, 100), 0);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 9, 0), 0);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 9, 100), 0); /* not flushed */
    copy = crashed(&f);
    assert_true(try_open(&copy, SPEC, true, false, &code));
    assert_int_equal(vj_meta_count(copy.meta, VJ_SPACE_NODE, &count), 0);
    assert_int_equal(count, 9);
    assert_int_equal(vj_meta_close(copy.meta), 0);
    assert_recovers(&copy, SPEC, 9);
    fixture_free(&copy);
    copy = crashed(&f);
    assert_recovers(&copy, "lmdb:redo=0", 9);
    assert_recovers(&copy, "lmdb:redo=2M", 9);
    fixture_free(&copy);
    fixture_free(&f);
}

/* The device fails while the log is replayed: it stays as it was, and is replayed
 * again. */
static void test_recovery_is_repeated(void **state)
{
    Fixture f = fixture_new(SPEC), copy;
    int code;

    (void)state;
    put_flushed(&f, 0, 40);
    copy = crashed(&f);
    device_set(false, false, true);
    for (unsigned i = 0; i < 3; i++) {
        assert_false(try_open(&copy, SPEC, false, false, &code));
        assert_int_equal(code, EIO);
    }
    device_set(false, false, false);
    copy.meta = NULL;
    assert_recovers(&copy, SPEC, 40);
    fixture_free(&copy);
    fixture_free(&f);
}

/*
 * The applier takes all that was replayed before the replaying is over, and is done with
 * it after that: the file goes on saying that the old rounds count, so the log is not to
 * be used yet.
 */
static void test_moved_while_replaying(void **state)
{
    const uint64_t end = 6000;
    Fixture f = fixture_new("lmdb:commit=3600"), copy, again;
    int code;

    (void)state;
    put_flushed(&f, 0, 1);
    for (uint64_t i = 1; i < end; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, i, 100), 0);
    }
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(stats_of(&f).records, 1);
    copy = crashed(&f);
    vj_mutex_lock(&device_lock);
    data_failures = 1;
    vj_mutex_unlock(&device_lock);
    /* Where the failure comes so late that it is the opening's, this is a test of
     * something else. */
    if (!try_open(&copy, "lmdb:commit=3600,overlay=1M", false, false, &code)) {
        assert_int_equal(code, EIO);
        assert_true(try_open(&copy, "lmdb:commit=3600,overlay=1M", false, false, &code));
    }
    vj_mutex_lock(&device_lock);
    data_failures = 0;
    vj_mutex_unlock(&device_lock);
    put_flushed(&copy, end, end + 3);
    again = crashed(&copy);
    assert_recovers(&again, SPEC, end + 3);
    fixture_free(&again);
    fixture_free(&copy);
    fixture_free(&f);
}

/* Rounds follow one another in blocks that are used again, and each crash leaves a sound
 * log. */
static void test_rounds(void **state)
{
    Fixture f = fixture_new("lmdb:commit=3600,redo=256K"), copy;
    uint64_t end = 0;

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        put_flushed(&f, end, end + 37);
        end += 37;
        copy = crashed(&f);
        assert_recovers(&copy, i % 3 == 0 ? "lmdb" : "lmdb:redo=256K", end);
        fixture_free(&copy);
    }
    assert_true(stats_of(&f).moves > 5);
    assert_true(stats_of(&f).records > 12 * 37 - 40);
    fixture_close(&f);
    /* Closed in order it needs none, and an old one is no harm. */
    assert_int_equal(unlinkat(f.dir_fd, VJ_REDO_FILE, 0), 0);
    assert_recovers(&f, "lmdb:redo=256K", end);
    fixture_free(&f);
}

/* More than a record may have is moved, as without a log. */
static void test_too_much_for_a_record(void **state)
{
    Fixture f = fixture_new(SPEC), copy;

    (void)state;
    put_flushed(&f, 0, 5);
    for (uint64_t i = 0; i < 80; i++) {
        assert_int_equal(put_numbered(f.meta, VJ_SPACE_XATTR, i, 64 << 10), 0);
    }
    assert_int_equal(vj_meta_flush(f.meta), 0);
    assert_int_equal(stats_of(&f).moves, 2);
    assert_int_equal(stats_of(&f).records, 4);
    put_flushed(&f, 5, 10);
    assert_int_equal(stats_of(&f).records, 9);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, 10);
    fixture_free(&copy);
    fixture_free(&f);
}

static ino_t inode_of(const Fixture *f, const char *name)
{
    struct stat st;

    assert_int_equal(fstatat(f->dir_fd, name, &st, 0), 0);
    return st.st_ino;
}

/* The log fails: the file takes it, and a new log, in a file of its own, is used from
 * then on. */
static void test_log_fails(void **state)
{
    Fixture f = fixture_new(SPEC), copy;
    ino_t inode = inode_of(&f, VJ_REDO_FILE);
    /* Its number is not given to another one meanwhile. */
    int old = openat(f.dir_fd, VJ_REDO_FILE, O_RDONLY | O_CLOEXEC);

    (void)state;
    assert_true(old >= 0);
    put_flushed(&f, 0, 5);
    device_set(false, true, false);
    put_flushed(&f, 5, 6);
    assert_int_equal(stats_of(&f).failures, 1);
    assert_int_equal(stats_of(&f).moves, 2);
    copy = crashed(&f);
    assert_recovers(&copy, "lmdb:redo=0", 6);
    fixture_free(&copy);
    device_set(false, false, false);
    wait_until_log_serves(&f);
    assert_int_equal(stats_of(&f).moves, 3);
    assert_int_not_equal(inode_of(&f, VJ_REDO_FILE), inode);
    close(old);
    put_flushed(&f, 6, 12);
    assert_int_equal(stats_of(&f).moves, 3);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, 12);
    fixture_free(&copy);
    /* For good: it is given up, and nobody notices. */
    for (unsigned i = 0; i < VJ_SESSION_REDO_FAILURES_MAX; i++) {
        wait_until_log_serves(&f);
        device_set(false, true, false);
        put_flushed(&f, 12 + i, 13 + i);
        assert_int_equal(stats_of(&f).failures, 2 + i);
        device_set(false, false, false);
    }
    put_flushed(&f, 15, 20);
    assert_int_equal(stats_of(&f).records, 4 + 6);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, 20);
    fixture_free(&copy);
    fixture_free(&f);
}

typedef struct Hold {
    bool held; /* guarded by device_lock */
} Hold;

static int hold_move(void *opaque)
{
    vj_mutex_lock(&device_lock);
    while (((Hold *)opaque)->held) {
        vj_cond_wait(&device_changed, &device_lock);
    }
    vj_mutex_unlock(&device_lock);
    return 0;
}

static gpointer move_main(gpointer opaque)
{
    return GINT_TO_POINTER(vj_session_flush_moved(opaque));
}

static gpointer flush_main(gpointer opaque)
{
    return GINT_TO_POINTER(vj_meta_flush(opaque));
}

/* What failed was of the generation that is being moved: the round of the next one is
 * spent too. */
static void test_log_fails_during_a_move(void **state)
{
    Fixture f = fixture_new(SPEC), copy;
    Hold hold = {.held = true};
    GThread *first, *flusher;
    unsigned before;

    (void)state;
    put_flushed(&f, 0, 1);
    vj_lmdb_set_move_hook_for_test(fixture_engine(&f), hold_move, &hold);
    before = log_syncs_now();
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 1, 100), 0);
    device_set(false, true, false);
    first = g_thread_new("flush", move_main, f.meta);
    wait_until_frozen(vj_session_of(f.meta));
    flusher = g_thread_new("flusher", flush_main, f.meta);
    wait_for_log_syncs(before + 1);
    vj_mutex_lock(&device_lock);
    hold.held = false;
    vj_cond_broadcast(&device_changed);
    vj_mutex_unlock(&device_lock);
    assert_int_equal(GPOINTER_TO_INT(g_thread_join(first)), 0);
    assert_int_equal(GPOINTER_TO_INT(g_thread_join(flusher)), 0);
    assert_int_equal(stats_of(&f).failures, 1);
    device_set(false, false, false);
    put_flushed(&f, 2, 3);
    wait_until_log_serves(&f);
    assert_int_equal(stats_of(&f).moves, 4);
    assert_int_equal(stats_of(&f).records, 0);
    put_flushed(&f, 3, 6);
    assert_int_equal(stats_of(&f).records, 3);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, 6);
    fixture_free(&copy);
    fixture_free(&f);
}

/* Both fail: every flush says so, nothing is lost, and the next one makes it good. */
static void test_both_fail(void **state)
{
    Fixture f = fixture_new(SPEC), copy;

    (void)state;
    put_flushed(&f, 0, 5);
    device_set(false, true, true);
    assert_int_equal(put_numbered(f.meta, VJ_SPACE_NODE, 5, 100), 0);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    assert_int_equal(vj_meta_flush(f.meta), -EIO);
    assert_up_to(&f, 6);
    device_set(false, false, false);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, 6);
    fixture_free(&copy);
    fixture_free(&f);
}

/* The file fails and the log does not: what was flushed is there, and closing says what
 * failed. */
static void test_file_fails(void **state)
{
    Fixture f = fixture_new(SPEC);

    (void)state;
    put_flushed(&f, 0, 5);
    device_set(false, false, true);
    put_flushed(&f, 5, 9);
    assert_int_equal(vj_meta_close(f.meta), -EIO);
    device_set(false, false, false);
    assert_recovers(&f, SPEC, 9);
    fixture_free(&f);
}

static unsigned count_kept(const Fixture *f)
{
    g_autoptr(GDir) dir = g_dir_open(f->path, 0, NULL);
    const char *name;
    unsigned count = 0;

    assert_non_null(dir);
    while ((name = g_dir_read_name(dir)) != NULL) {
        count += g_str_has_prefix(name, VJ_REDO_FILE ".damaged-");
    }
    return count;
}

/* The last record may have been cut off; damage before it is told, and kept from being
 * used. */
static void test_damage(void **state)
{
    Fixture f = fixture_new(SPEC), copy;
    int code;

    (void)state;
    put_flushed(&f, 0, 11); /* ten records */
    for (unsigned at = 0; at < 180; at += 7) {
        copy = crashed(&f);
        hurt(&copy, place_of(&f, 9) + at);
        assert_recovers(&copy, SPEC, 10);
        fixture_free(&copy);
        copy = crashed(&f);
        hurt(&copy, place_of(&f, 4) + at);
        assert_int_equal(log_flaws(&copy), 1);
        assert_refused(&copy);
        /* A repair keeps what is before it. */
        assert_true(try_open(&copy, SPEC, false, true, &code));
        assert_up_to(&copy, 5);
        put_flushed(&copy, 5, 8);
        fixture_close(&copy);
        assert_int_equal(count_kept(&copy), 1);
        assert_recovers(&copy, SPEC, 8);
        fixture_free(&copy);
    }
    fixture_free(&f);
}

/* A log that is gone, cut off, of somebody else, or of an earlier mount.  A repair takes
 * what is still there, and never writes to a log of which something was given up. */
static void test_wrong_log(void **state)
{
    Fixture f = fixture_new(SPEC), other = fixture_new(SPEC), copy;
    static const uint64_t kept_end[] = {1, 5, 1, 5};
    int code;

    (void)state;
    put_flushed(&f, 0, 5);
    put_flushed(&other, 0, 5);
    for (unsigned i = 0; i < 4; i++) {
        copy = crashed(&f);
        switch (i) {
        case 0:
            assert_int_equal(unlinkat(copy.dir_fd, VJ_REDO_FILE, 0), 0);
            break;
        case 1:
            hurt(&copy, 20);
            break;
        case 2:
            copy_file(&other, &copy, VJ_REDO_FILE);
            break;
        default: {
            g_autofree char *name = g_build_filename(copy.path, VJ_REDO_FILE, NULL);

            struct stat st;

            assert_int_equal(stat(name, &st), 0);
            assert_int_equal(truncate(name, st.st_size - 100), 0);
        }
        }
        assert_int_equal(log_flaws(&copy), 1);
        assert_refused(&copy);
        assert_true(try_open(&copy, SPEC, false, true, &code));
        assert_up_to(&copy, kept_end[i]);
        assert_int_equal(count_kept(&copy), i > 0);
        fixture_close(&copy);
        assert_recovers(&copy, SPEC, kept_end[i]);
        assert_int_equal(count_kept(&copy), i > 0);
        fixture_free(&copy);
    }
    fixture_free(&other);
    fixture_free(&f);
}

/* Log and file of different moments of one mount do not fit together unnoticed. */
static void test_log_of_another_time(void **state)
{
    Fixture f = fixture_new("lmdb:commit=3600,redo=256K"), early, late;

    (void)state;
    put_flushed(&f, 0, 10);
    early = crashed(&f);
    put_flushed(&f, 10, 200);
    late = crashed(&f);
    copy_file(&late, &early, VJ_REDO_FILE);
    assert_true(log_flaws(&early) > 0);
    assert_refused(&early);
    fixture_free(&early);
    fixture_free(&late);
    fixture_free(&f);
}

/* ---- who does not wait ------------------------------------------------------------- */

typedef struct Note {
    VjFlushWait wait;
    unsigned told; /* guarded by device_lock: how often */
    int rc;
} Note;

static void note_told(VjFlushWait *w, int rc)
{
    Note *n = (Note *)w;

    vj_mutex_lock(&device_lock);
    n->told++;
    n->rc = rc;
    vj_cond_broadcast(&device_changed);
    vj_mutex_unlock(&device_lock);
}

static int note_wait(const Note *n)
{
    int rc;

    vj_mutex_lock(&device_lock);
    while (n->told == 0) {
        vj_cond_wait(&device_changed, &device_lock);
    }
    rc = n->rc;
    vj_mutex_unlock(&device_lock);
    return rc;
}

static void assert_told(const Note *n, unsigned told, int rc)
{
    vj_mutex_lock(&device_lock);
    assert_int_equal(n->told, told);
    assert_int_equal(n->rc, rc);
    vj_mutex_unlock(&device_lock);
}

static void put_joined(const Fixture *f, uint64_t number, Note *n)
{
    *n = (Note){.wait.done = note_told};
    assert_int_equal(put_numbered(f->meta, VJ_SPACE_NODE, number, 100), 0);
    vj_meta_flush_join(f->meta, &n->wait);
}

typedef struct Leader {
    VjMeta *meta;
    Note *note; /* NULL: it waits */
} Leader;

static gpointer leader_main(gpointer opaque)
{
    const Leader *l = opaque;

    if (l->note == NULL) {
        return GINT_TO_POINTER(vj_meta_flush(l->meta));
    }
    vj_meta_flush_join(l->meta, &l->note->wait);
    return NULL;
}

/* Number 1 is being synced by a thread, sixteen more have joined; then the device
 * answers. */
static int join_a_leader(const Fixture *f, Note *first, Note notes[WAITERS], bool fails)
{
    Leader leader = {f->meta, first};
    unsigned before = log_syncs_now();
    GThread *thread;

    assert_int_equal(put_numbered(f->meta, VJ_SPACE_NODE, 1, 100), 0);
    device_set(true, fails, false);
    thread = g_thread_new("leader", leader_main, &leader);
    wait_for_log_syncs(before + 1);
    for (unsigned i = 0; i < WAITERS; i++) {
        put_joined(f, 2 + i, &notes[i]);
        assert_told(&notes[i], 0, 0);
    }
    device_set(false, fails, false);
    return GPOINTER_TO_INT(g_thread_join(thread));
}

/* Whoever finds nobody at work is told before the call returns: with and without the
 * log. */
static void test_join_alone(void **state)
{
    Fixture f = fixture_new(SPEC), copy;
    Note n;

    (void)state;
    put_joined(&f, 0, &n);
    assert_told(&n, 1, 0);
    assert_int_equal(stats_of(&f).moves, 1);
    put_joined(&f, 1, &n);
    assert_told(&n, 1, 0);
    assert_int_equal(stats_of(&f).records, 1);
    vj_meta_flush_join(f.meta, &n.wait);
    assert_told(&n, 2, 0);
    assert_int_equal(stats_of(&f).records, 1);
    assert_int_equal(stats_of(&f).moves, 1);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, 2);
    fixture_free(&copy);
    fixture_free(&f);
}

/* As those who wait: one more sync for all, by the thread that made the first. */
static void test_joined_share(void **state)
{
    Fixture f = fixture_new(SPEC), copy;
    Note first = {.wait.done = note_told}, notes[WAITERS];

    (void)state;
    put_flushed(&f, 0, 1);
    assert_int_equal(join_a_leader(&f, &first, notes, false), 0);
    assert_told(&first, 1, 0);
    for (unsigned i = 0; i < WAITERS; i++) {
        assert_told(&notes[i], 1, 0);
    }
    assert_int_equal(stats_of(&f).records, 2);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, 2 + WAITERS);
    fixture_free(&copy);
    fixture_free(&f);
}

static void join_and_be_sent_away(bool waits, bool fails)
{
    Fixture f = fixture_new(SPEC), copy;
    Note first = {.wait.done = note_told}, notes[WAITERS];

    put_flushed(&f, 0, 1);
    assert_int_equal(join_a_leader(&f, waits ? NULL : &first, notes, fails), 0);
    if (!waits) {
        assert_told(&first, 1, -EAGAIN);
    }
    for (unsigned i = 0; i < WAITERS; i++) {
        assert_told(&notes[i], 1, -EAGAIN);
    }
    assert_int_equal(stats_of(&f).failures, fails);
    assert_int_equal(vj_meta_flush(f.meta), 0);
    device_set(false, false, false);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, 2 + WAITERS);
    fixture_free(&copy);
    fixture_free(&f);
}

/* Who syncs for himself does not stay for the others; when the log fails nobody does it
 * for them. */
static void test_joined_are_sent_away(void **state)
{
    (void)state;
    join_and_be_sent_away(true, false);
    join_and_be_sent_away(true, true);
    join_and_be_sent_away(false, true);
}

#define CROWD 8u
#define CROWD_FLUSHES 400u

typedef struct Crowd {
    VjMeta *meta;
    unsigned number, failed;
} Crowd;

/* Every third waits; where nobody syncs for a note, its owner does. */
static gpointer crowd_main(gpointer opaque)
{
    Crowd *c = opaque;

    for (unsigned i = 0; i < CROWD_FLUSHES; i++) {
        Note n = {.wait.done = note_told};
        int rc = put_numbered(c->meta, VJ_SPACE_NODE, i * CROWD + c->number, 100);

        if (rc == 0 && i % 3 == 2) {
            rc = vj_meta_flush(c->meta);
        } else if (rc == 0) {
            vj_meta_flush_join(c->meta, &n.wait);
            rc = note_wait(&n);
            rc = rc == -EAGAIN ? vj_meta_flush(c->meta) : rc;
        }
        c->failed += rc != 0;
    }
    return NULL;
}

/* The log is full again and again. */
static void test_crowd(void **state)
{
    Fixture f = fixture_new(SPEC), copy;
    Crowd crowd[CROWD];
    GThread *threads[CROWD];

    (void)state;
    for (unsigned i = 0; i < CROWD; i++) {
        crowd[i] = (Crowd){.meta = f.meta, .number = i};
        threads[i] = g_thread_new("crowd", crowd_main, &crowd[i]);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        g_thread_join(threads[i]);
        assert_int_equal(crowd[i].failed, 0);
    }
    assert_true(stats_of(&f).moves > 2);
    copy = crashed(&f);
    assert_recovers(&copy, SPEC, CROWD * CROWD_FLUSHES);
    fixture_free(&copy);
    fixture_free(&f);
}

/* ---- past the page cache ----------------------------------------------------------- */

/* Counts what is written to the log that way; refuses it, as a device with larger blocks
 * does. */
ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    ssize_t put;

    if (is_log(fd) && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
        bool refuses;

        vj_mutex_lock(&device_lock);
        direct_writes++;
        refuses = refuses_direct;
        vj_mutex_unlock(&device_lock);
        if (refuses) {
            errno = EINVAL;
            return -1;
        }
    }
    put = syscall(SYS_pwritev, fd, iov, count, offset, 0);
    return put;
}

static bool has_direct_writes(const Fixture *f)
{
    int fd = openat(f->dir_fd, VJ_REDO_FILE, O_RDWR | O_DIRECT | O_CLOEXEC);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

/* A record is one write past the page cache; a device that refuses the first gets all by
 * the cache. */
static void test_direct(void **state)
{
    (void)state;
    for (unsigned refuses = 0; refuses < 2; refuses++) {
        Fixture f = fixture_new(SPEC), copy;
        unsigned wanted;

        put_flushed(&f, 0, 1);
        wanted = !has_direct_writes(&f) ? 0 : refuses ? 1 : 20;
        if (wanted == 0) {
            print_message("# no direct I/O where the test runs: not tried\n");
        }
        device_refuse_direct(refuses);
        put_flushed(&f, 1, 21);
        assert_int_equal(device_refuse_direct(false), wanted);
        assert_int_equal(stats_of(&f).records, 20);
        assert_int_equal(stats_of(&f).failures, 0);
        copy = crashed(&f);
        assert_recovers(&copy, SPEC, 21);
        fixture_free(&copy);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flush_is_one_sync),
        cmocka_unit_test(test_flush_announces_its_wait),
        cmocka_unit_test(test_waiters_share),
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_join_alone),
        cmocka_unit_test(test_joined_share),
        cmocka_unit_test(test_joined_are_sent_away),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_crash),
        cmocka_unit_test(test_recovery_is_repeated),
        cmocka_unit_test(test_moved_while_replaying),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_too_much_for_a_record),
        cmocka_unit_test(test_log_fails),
        cmocka_unit_test(test_log_fails_during_a_move),
        cmocka_unit_test(test_both_fail),
        cmocka_unit_test(test_file_fails),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_wrong_log),
        cmocka_unit_test(test_log_of_another_time),
    };

    vj_cond_init(&device_changed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
