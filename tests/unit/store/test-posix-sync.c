/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Grouped flushes of the posix driver, and what it says after the device failed.  The
 * device is the test's: it counts, waits until it is let go, or fails.  The linker hands
 * close() of the code under test to __wrap_close, which fails on demand.
 */
#include "store-test.h"

#include <stdatomic.h>

/* The test's device. */
static int fail_error;       /* errno of the next sync of any kind; 0: it works */
static atomic_bool is_held;  /* a sync that enters waits while it is set */
static atomic_uint entered;  /* syncs that came in */
static int fail_close_error; /* errno of each close of a written file; 0: they work */

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    int result = __real_close(fd);

    if (fail_close_error != 0 && result == 0) {
        errno = fail_close_error;
        result = -1;
    }
    return result;
}

static int sync_somehow(int fd)
{
    assert_true(fcntl(fd, F_GETFD) >= 0);
    atomic_fetch_add(&entered, 1);
    while (atomic_load(&is_held)) {
        sched_yield();
    }
    if (fail_error != 0) {
        errno = fail_error;
        fail_error = 0;
        return -1;
    }
    return 0;
}

static const VjPosixSyncCalls calls = {sync_somehow, sync_somehow, sync_somehow};

static int setup(void **state)
{
    fail_error = 0;
    fail_close_error = 0;
    atomic_store(&is_held, false);
    atomic_store(&entered, 0);
    vj_store_test_setup(state);
    vj_store_posix_set_calls(((VjStoreTest *)*state)->s, &calls);
    return 0;
}

static VjPosixSyncCounts counts_of(VjStoreTest *t)
{
    return vj_store_posix_counts(t->s);
}

/* The first flush takes the directories along; counts start after it. */
static VjPosixSyncCounts flush_first(VjStoreTest *t, uint64_t id)
{
    vj_store_test_put(t->s, id, 10);
    assert_int_equal(vj_store_flush(t->s), 0);
    return counts_of(t);
}

static void test_idle_flush_is_free(void **state)
{
    VjStoreTest *t = *state;

    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(counts_of(t).batches, 0);
    vj_store_test_put(t->s, 1, 10);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(counts_of(t).batches, 1);
}

static void test_few_one_by_one(void **state)
{
    VjStoreTest *t = *state;
    VjPosixSyncCounts before = flush_first(t, 1), after;

    assert_int_equal(before.alls, 1); /* made directories */
    for (uint64_t id = 10; id < 18; id++) {
        vj_store_test_put(t->s, id, 10);
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    after = counts_of(t);
    assert_int_equal(after.batches - before.batches, 1);
    assert_int_equal(after.alls - before.alls, 0);
    assert_int_equal(after.files - before.files, 8);
    assert_int_equal(after.directories - before.directories, 1);
}

static void test_two_directories(void **state)
{
    VjStoreTest *t = *state;
    VjPosixSyncCounts before, after;

    vj_store_test_put(t->s, 5000, 10);
    before = flush_first(t, 1);
    vj_store_test_put(t->s, 2, 10);
    vj_store_test_put(t->s, 5001, 10);
    vj_store_test_put(t->s, 3, 10);
    assert_int_equal(vj_store_flush(t->s), 0);
    after = counts_of(t);
    assert_int_equal(after.files - before.files, 3);
    assert_int_equal(after.directories - before.directories, 2);
}

static void test_many_by_syncfs(void **state)
{
    VjStoreTest *t = *state;
    VjPosixSyncCounts before = flush_first(t, 1), after;

    for (uint64_t id = 10; id < 19; id++) {
        vj_store_test_put(t->s, id, 10);
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    after = counts_of(t);
    assert_int_equal(after.batches - before.batches, 1);
    assert_int_equal(after.alls - before.alls, 1);
    assert_int_equal(after.files - before.files, 0);
    /* And the next few are few again. */
    vj_store_test_put(t->s, 30, 10);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(counts_of(t).files - after.files, 1);
}

static void test_new_directory_by_syncfs(void **state)
{
    VjStoreTest *t = *state;
    VjPosixSyncCounts before = flush_first(t, 1);

    vj_store_test_put(t->s, 4096, 10);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(counts_of(t).alls - before.alls, 1);
}

/* A store that is opened again does not know what its predecessor left unsynced. */
static void test_first_flush_by_syncfs(void **state)
{
    VjStoreTest *t = *state;

    flush_first(t, 1);
    vj_store_test_reopen(t);
    vj_store_posix_set_calls(t->s, &calls);
    vj_store_test_put(t->s, 2, 10);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(counts_of(t).alls, 1);
}

/* Nor has it put anything: what is there is durable after a flush all the same, as a
 * caller that finds it, and has not put it here, counts on. */
static void test_flush_covers_predecessor(void **state)
{
    VjStoreTest *t = *state;

    vj_store_test_put(t->s, 1, 10);
    vj_store_test_reopen(t);
    vj_store_posix_set_calls(t->s, &calls);
    fail_error = EIO;
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(counts_of(t).alls, 1);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(counts_of(t).alls, 2);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(counts_of(t).batches, 2);
}

typedef struct Flusher {
    VjStore *s;
    uint64_t id;
    atomic_uint *put_count;
    int result;
} Flusher;

static void *put_and_flush(void *opaque)
{
    Flusher *f = opaque;
    VjPut put;

    f->result = vj_store_test_try_put(f->s, f->id, 100, &put);
    atomic_fetch_add(f->put_count, 1);
    if (f->result == 0) {
        f->result = vj_store_flush(f->s);
    }
    return NULL;
}

static void wait_for(atomic_uint *counter, unsigned value)
{
    while (atomic_load(counter) < value) {
        sched_yield();
    }
}

/* However many flush while one sync runs, one more serves them all. */
static void test_group(void **state)
{
    enum { COUNT = 16 };
    VjStoreTest *t = *state;
    pthread_t threads[COUNT];
    Flusher flushers[COUNT];
    atomic_uint put_count = 0;
    VjPosixSyncCounts before = flush_first(t, 1);
    unsigned entered_before = atomic_load(&entered);

    atomic_store(&is_held, true);
    for (size_t i = 0; i < COUNT; i++) {
        flushers[i] = (Flusher){.s = t->s, .id = 100 + i, .put_count = &put_count};
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_flush, &flushers[i]),
                         0);
        if (i == 0) {
            wait_for(&entered, entered_before + 1);
        }
    }
    wait_for(&put_count, COUNT);
    assert_int_equal(atomic_load(&entered), entered_before + 1);
    atomic_store(&is_held, false);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(flushers[i].result, 0);
    }
    assert_int_equal(counts_of(t).batches - before.batches, 2);
}

static void test_error_stays_until_removed(void **state)
{
    VjStoreTest *t = *state;
    VjPut a, b;

    flush_first(t, 1);
    a = vj_store_test_put(t->s, 2, 10);
    b = vj_store_test_put(t->s, 3, 10);
    fail_error = EIO;
    assert_int_equal(vj_store_flush(t->s), -EIO);
    /* The device works again, and has forgotten; we have not. */
    assert_int_equal(vj_store_flush(t->s), -EIO);
    vj_store_test_put(t->s, 4, 10);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_remove(t->s, a.id, a.loc), 0);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_remove(t->s, b.id, b.loc), 0);
    assert_int_equal(vj_store_flush(t->s), 0);
}

static void test_syncfs_error(void **state)
{
    VjStoreTest *t = *state;
    VjPut puts[20];

    for (uint64_t i = 0; i < G_N_ELEMENTS(puts); i++) {
        puts[i] = vj_store_test_put(t->s, i, 10);
    }
    fail_error = ENOSPC;
    assert_int_equal(vj_store_flush(t->s), -ENOSPC);
    for (size_t i = 0; i < G_N_ELEMENTS(puts); i++) {
        assert_int_equal(vj_store_flush(t->s), -ENOSPC);
        assert_int_equal(vj_store_remove(t->s, puts[i].id, puts[i].loc), 0);
    }
    assert_int_equal(vj_store_flush(t->s), 0);
    /* Its directories were not synced either. */
    vj_store_test_put(t->s, 100, 10);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(counts_of(t).alls, 2);
}

static void test_directory_error(void **state)
{
    VjStoreTest *t = *state;
    VjPosixSyncCalls other = calls;
    VjPut put;

    vj_store_test_reopen(t);
    other.sync_file = fdatasync;
    other.sync_all = syncfs;
    vj_store_posix_set_calls(t->s, &other);
    flush_first(t, 1);
    put = vj_store_test_put(t->s, 2, 10);
    fail_error = EIO;
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_remove(t->s, put.id, put.loc), 0);
    assert_int_equal(vj_store_flush(t->s), 0);
}

/* What was removed before the sync failed is in nobody's doubt. */
static void test_removed_before_error(void **state)
{
    VjStoreTest *t = *state;
    VjPut a = vj_store_test_put(t->s, 1, 10), b = vj_store_test_put(t->s, 2, 10);

    assert_int_equal(vj_store_remove(t->s, a.id, a.loc), 0);
    fail_error = EIO;
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_remove(t->s, b.id, b.loc), 0);
    assert_int_equal(vj_store_flush(t->s), 0);
}

/* The error that a sync reported may be that of a put which returned while it ran. */
static void test_put_during_failed_sync(void **state)
{
    VjStoreTest *t = *state;
    atomic_uint put_count = 0;
    Flusher flusher = {.s = t->s, .id = 1, .put_count = &put_count};
    pthread_t thread;
    VjPut late;

    atomic_store(&is_held, true);
    fail_error = EIO;
    assert_int_equal(pthread_create(&thread, NULL, put_and_flush, &flusher), 0);
    wait_for(&entered, 1);
    late = vj_store_test_put(t->s, 2, 10);
    atomic_store(&is_held, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(flusher.result, -EIO);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    assert_int_equal(vj_store_remove(t->s, late.id, late.loc), 0);
    assert_int_equal(vj_store_flush(t->s), -EIO); /* the other is still there */
}

/* Everybody who waits for a sync that fails hears of it. */
static void test_error_reaches_all_waiters(void **state)
{
    enum { COUNT = 8 };
    VjStoreTest *t = *state;
    pthread_t threads[COUNT];
    Flusher flushers[COUNT];
    atomic_uint put_count = 0;

    atomic_store(&is_held, true);
    for (size_t i = 0; i < COUNT; i++) {
        flushers[i] = (Flusher){.s = t->s, .id = 100 + i, .put_count = &put_count};
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_flush, &flushers[i]),
                         0);
    }
    wait_for(&put_count, COUNT);
    fail_error = EIO;
    atomic_store(&is_held, false);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(flushers[i].result, -EIO);
    }
}

/* ---- Below the driver: states that a put passes through too fast to catch ---------- */

typedef struct Bare {
    VjFdCache dirs;
    VjPosixSync y;
    int root_fd;
} Bare;

static void bare_init(Bare *b, uint32_t batch_max)
{
    fail_error = 0;
    fail_close_error = 0;
    atomic_store(&is_held, false);
    b->root_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(b->root_fd >= 0);
    vj_fd_cache_init(&b->dirs, 4, "test");
    vj_posix_sync_init(&b->y, b->root_fd, &b->dirs, batch_max, false);
    b->y.calls = calls;
}

static void bare_clear(Bare *b)
{
    vj_posix_sync_clear(&b->y);
    vj_fd_cache_clear(&b->dirs);
    vj_fd_close(&b->root_fd);
}

static int bare_put_done(Bare *b, uint64_t id, uint64_t failures)
{
    VjFdUse dir = {.fd = dup(b->root_fd), .slot = -1};
    int fd = dup(b->root_fd), result;

    result = vj_posix_sync_put_done(&b->y, (VjFdKey){id, id}, failures, &fd, &dir);
    assert_int_equal(fd, -1);
    vj_fd_cache_release(&b->dirs, &dir);
    return result;
}

static int bare_put(Bare *b, uint64_t id)
{
    uint64_t failures = 0;

    vj_posix_sync_put_begin(&b->y, &failures);
    return bare_put_done(b, id, failures);
}

static void test_sync_fails_while_writing(void **state)
{
    uint64_t failures = 0;
    Bare b;

    (void)state;
    bare_init(&b, 8);
    vj_posix_sync_put_begin(&b.y, &failures);
    assert_int_equal(bare_put(&b, 1), 0);
    fail_error = EIO;
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    assert_int_equal(bare_put_done(&b, 2, failures), -EIO);
    vj_posix_sync_removed(&b.y, (VjFdKey){1, 1});
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    bare_clear(&b);
}

/* A directory that is being made when the sync starts may not be part of it. */
static void test_directory_in_making(void **state)
{
    Bare b;

    (void)state;
    bare_init(&b, 8);
    assert_int_equal(bare_put(&b, 1), 0);
    vj_posix_sync_dir_begin(&b.y);
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    assert_int_equal(b.y.counts.alls, 1);
    assert_int_equal(bare_put(&b, 2), 0);
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    assert_int_equal(b.y.counts.alls, 2);
    vj_posix_sync_dir_end(&b.y);
    assert_int_equal(bare_put(&b, 3), 0);
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    assert_int_equal(b.y.counts.alls, 3);
    assert_int_equal(bare_put(&b, 4), 0);
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    assert_int_equal(b.y.counts.alls, 3);
    bare_clear(&b);
}

/* The record of what is not durable is bounded: the put that fills it flushes. */
static void test_unsynced_is_bounded(void **state)
{
    Bare b;

    (void)state;
    bare_init(&b, 0);
    for (uint64_t id = 0; id < VJ_POSIX_UNSYNCED_MAX; id++) {
        assert_int_equal(bare_put(&b, id), 0);
    }
    assert_int_equal(b.y.counts.batches, 0);
    assert_int_equal(bare_put(&b, VJ_POSIX_UNSYNCED_MAX), 0);
    assert_int_equal(b.y.counts.batches, 1);
    assert_int_equal(g_hash_table_size(b.y.unsynced), 1);
    /* The same with a device that fails: the put works, flush() tells. */
    for (uint64_t id = 1; id < VJ_POSIX_UNSYNCED_MAX; id++) {
        assert_int_equal(bare_put(&b, id + VJ_POSIX_UNSYNCED_MAX), 0);
    }
    fail_error = EIO;
    assert_int_equal(bare_put(&b, 0), 0);
    assert_int_equal(b.y.counts.batches, 2);
    assert_int_equal(g_hash_table_size(b.y.doubtful), VJ_POSIX_UNSYNCED_MAX);
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    bare_clear(&b);
}

/* Too many in doubt to list: failed until it is opened again. */
static void test_doubtful_is_bounded(void **state)
{
    Bare b;

    (void)state;
    bare_init(&b, 0);
    for (uint64_t id = 0; id <= VJ_POSIX_DOUBTFUL_MAX; id++) {
        assert_int_equal(bare_put(&b, id), 0);
        if (id % 50000 == 0) {
            fail_error = EIO;
            assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
        }
    }
    fail_error = EIO;
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    assert_true(b.y.broken);
    assert_int_equal(g_hash_table_size(b.y.doubtful), 0);
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    bare_clear(&b);
}

/* File systems that write at close() say there what went wrong. */
static void test_close_fails(void **state)
{
    Bare b;

    (void)state;
    bare_init(&b, 2);
    assert_int_equal(bare_put(&b, 1), 0);
    assert_int_equal(bare_put(&b, 2), 0);
    /* The third overflows the batch: all three are closed. */
    fail_close_error = EIO;
    assert_int_equal(bare_put(&b, 3), -EIO);
    fail_close_error = 0;
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    vj_posix_sync_removed(&b.y, (VjFdKey){1, 1});
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    vj_posix_sync_removed(&b.y, (VjFdKey){2, 2});
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    bare_clear(&b);

    /* Its own close alone: the others are sound. */
    bare_init(&b, 0);
    assert_int_equal(bare_put(&b, 1), 0);
    fail_close_error = EDQUOT;
    assert_int_equal(bare_put(&b, 2), -EDQUOT);
    fail_close_error = 0;
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    bare_clear(&b);

    /* One by one, after the file was synced. */
    bare_init(&b, 2);
    b.y.dirs_synced = b.y.dirs_made;
    assert_int_equal(bare_put(&b, 1), 0);
    fail_close_error = EIO;
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    fail_close_error = 0;
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    bare_clear(&b);

    /* Short of descriptors. */
    bare_init(&b, 2);
    assert_int_equal(bare_put(&b, 1), 0);
    fail_close_error = EIO;
    assert_true(vj_posix_sync_shrink(&b.y));
    fail_close_error = 0;
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    bare_clear(&b);
}

static void *flush_bare(void *opaque)
{
    Bare *b = opaque;

    return GINT_TO_POINTER(vj_posix_sync_flush(&b->y));
}

/* What a close() told while a sync ran is not made good by that sync. */
static void test_close_fails_during_sync(void **state)
{
    unsigned entered_before = atomic_load(&entered);
    void *result = NULL;
    pthread_t thread;
    Bare b;

    (void)state;
    bare_init(&b, 1);
    assert_int_equal(bare_put(&b, 1), 0);
    atomic_store(&is_held, true);
    assert_int_equal(pthread_create(&thread, NULL, flush_bare, &b), 0);
    wait_for(&entered, entered_before + 1);
    assert_int_equal(bare_put(&b, 2), 0);
    fail_close_error = EIO;
    assert_int_equal(bare_put(&b, 3), -EIO);
    fail_close_error = 0;
    atomic_store(&is_held, false);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal(GPOINTER_TO_INT(result), -EIO);
    vj_posix_sync_removed(&b.y, (VjFdKey){1, 1});
    assert_int_equal(vj_posix_sync_flush(&b.y), -EIO);
    vj_posix_sync_removed(&b.y, (VjFdKey){2, 2});
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    assert_int_equal(bare_put(&b, 4), 0);
    assert_int_equal(vj_posix_sync_flush(&b.y), 0);
    bare_clear(&b);
}

/* One sync of each directory that lost a name, none twice, and after an error of
 * everything. */
static void test_flush_removes(void **state)
{
    VjStoreTest *t = *state;
    VjPut a = vj_store_test_put(t->s, 1, 10), b = vj_store_test_put(t->s, 2, 10),
          c = vj_store_test_put(t->s, 5000, 10), d = vj_store_test_put(t->s, 3, 10);
    unsigned before;

    assert_int_equal(vj_store_flush(t->s), 0);
    before = atomic_load(&entered);
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    assert_int_equal(atomic_load(&entered) - before, 0);
    assert_int_equal(vj_store_remove(t->s, a.id, a.loc), 0);
    assert_int_equal(vj_store_remove(t->s, b.id, b.loc), 0);
    assert_int_equal(vj_store_remove(t->s, c.id, c.loc), 0);
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    assert_int_equal(atomic_load(&entered) - before, 2);
    assert_int_equal(vj_store_remove(t->s, d.id, d.loc), 0);
    fail_error = EIO;
    assert_int_equal(vj_store_flush_removes(t->s), -EIO);
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    assert_int_equal(atomic_load(&entered) - before, 4);
    /* Puts are not concerned. */
    assert_int_equal(vj_store_flush(t->s), 0);
}

#define STORE_TEST(name)                                                                 \
    cmocka_unit_test_setup_teardown(name, setup, vj_store_test_teardown)

#define STORE_TEST_WITH(name, spec)                                                      \
    cmocka_unit_test_prestate_setup_teardown(name, vj_store_test_setup,                  \
                                             vj_store_test_teardown, (void *)(spec))

static const struct CMUnitTest tests[] = {
    STORE_TEST(test_idle_flush_is_free),
    STORE_TEST_WITH(test_few_one_by_one, "posix:sync_batch=8"),
    STORE_TEST_WITH(test_two_directories, "posix:sync_batch=8"),
    STORE_TEST(test_many_by_syncfs),
    STORE_TEST(test_new_directory_by_syncfs),
    STORE_TEST(test_first_flush_by_syncfs),
    STORE_TEST(test_flush_covers_predecessor),
    STORE_TEST(test_group),
    STORE_TEST(test_error_stays_until_removed),
    STORE_TEST(test_syncfs_error),
    STORE_TEST(test_directory_error),
    STORE_TEST(test_removed_before_error),
    STORE_TEST(test_flush_removes),
    STORE_TEST(test_put_during_failed_sync),
    STORE_TEST(test_error_reaches_all_waiters),
    cmocka_unit_test(test_sync_fails_while_writing),
    cmocka_unit_test(test_directory_in_making),
    cmocka_unit_test(test_unsynced_is_bounded),
    cmocka_unit_test(test_doubtful_is_bounded),
    cmocka_unit_test(test_close_fails),
    cmocka_unit_test(test_close_fails_during_sync),
};

VJ_TEST_MAIN(tests)
