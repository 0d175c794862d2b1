/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The wrappers: which call the fault wrapper fails, damages or delays, and what stats
 * counts.
 */
#include "store-test.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <unistd.h>

/* A memory store, fault, stats from the inside out; the initial state is the spec. */
static int setup(void **state)
{
    VjStore *outer = NULL;
    VjStoreTest *t;

    *state = *state != NULL ? *state : (void *)"memory";
    vj_store_test_setup(state);
    t = *state;
    assert_true(vj_store_wrap("fault", t->s, &outer, NULL));
    t->s = outer;
    assert_true(vj_store_wrap("stats", t->s, &outer, NULL));
    t->s = outer;
    return 0;
}

static void set(VjStoreTest *t, const char *options)
{
    g_autoptr(GError) error = NULL;

    if (!vj_store_fault_set(t->s, options, &error)) {
        fail_msg("%s", error->message);
    }
}

static int put_one(VjStoreTest *t, uint64_t id)
{
    VjPut put;

    return vj_store_test_try_put(t->s, id, 100, &put);
}

static void test_nothing_by_default(void **state)
{
    VjStoreTest *t = *state;

    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(put_one(t, i), 0);
    }
    assert_int_equal(vj_store_fault_calls(t->s), 20);
}

static void test_fail_once(void **state)
{
    VjStoreTest *t = *state;

    set(t, "fail=3");
    assert_int_equal(put_one(t, 1), 0);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(put_one(t, 2), -EIO);
    assert_int_equal(put_one(t, 3), 0);
    assert_int_equal(vj_store_fault_calls(t->s), 4);
    assert_int_equal(vj_store_test_object_count(t->s), 2);
    set(t, "fail=1,errno=ENOSPC");
    assert_int_equal(put_one(t, 4), -ENOSPC);
    set(t, "");
    assert_int_equal(vj_store_fault_calls(t->s), 0);
    assert_int_equal(put_one(t, 5), 0);
}

static void test_times(void **state)
{
    VjStoreTest *t = *state;
    uint64_t hits = vj_store_fault_hits();
    VjPut put;

    set(t, "fail=2,times=3");
    for (uint64_t i = 1; i <= 6; i++) {
        assert_int_equal(put_one(t, i), i >= 2 && i <= 4 ? -EIO : 0);
    }
    set(t, "fail=3,times=0");
    for (uint64_t i = 11; i <= 20; i++) {
        assert_int_equal(put_one(t, i), i >= 13 ? -EIO : 0);
    }
    assert_int_equal(vj_store_fault_hits() - hits, 11);
    set(t, "");
    put = vj_store_test_put(t->s, 30, 100);
    set(t, "short=1,times=2");
    assert_int_equal(vj_store_test_get_byte(t->s, &put), -EBADMSG);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), -EBADMSG);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), 0);
    assert_int_equal(vj_store_fault_hits() - hits, 13);
}

/* What a power cut could take. */
static void test_unflushed(void **state)
{
    VjStoreTest *t = *state;
    VjPut a = vj_store_test_put(t->s, 1, 100);
    g_autoptr(GArray) before = vj_store_fault_unflushed(t->s);
    g_autoptr(GArray) after = NULL;
    g_autoptr(GArray) flushed = NULL;

    assert_int_equal(before->len, 1);
    assert_int_equal(g_array_index(before, uint64_t, 0), 1);
    set(t, "kinds=flush,fail=1");
    assert_int_equal(vj_store_flush(t->s), -EIO);
    (void)vj_store_test_put(t->s, 2, 100);
    assert_int_equal(vj_store_remove(t->s, a.id, a.loc), 0);
    after = vj_store_fault_unflushed(t->s);
    assert_int_equal(after->len, 1);
    assert_int_equal(g_array_index(after, uint64_t, 0), 2);
    assert_int_equal(vj_store_flush(t->s), 0);
    flushed = vj_store_fault_unflushed(t->s);
    assert_int_equal(flushed->len, 0);
}

/* The driver is asked once a second; what was put meanwhile is taken off. */
static void test_space_is_asked_once_a_second(void **state)
{
    VjStoreTest *t = *state;
    struct timespec real = {.tv_sec = 1};
    VjStoreSpace first, space;

    vj_clock_set_for_test(&real, 5000000);
    set(t, "kinds=space");
    assert_int_equal(vj_store_space(t->s, &first), 0);
    assert_int_equal(vj_store_fault_calls(t->s), 1);
    assert_true(first.total_bytes == (uint64_t)4 << 30);
    assert_int_equal(put_one(t, 1), 0);
    vj_clock_set_for_test(&real, 5999999);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(vj_store_space(t->s, &space), 0);
        assert_true(space.available_bytes <= first.available_bytes - 4096);
        assert_true(space.available_bytes >= first.available_bytes - 3 * 4096);
        assert_true(space.total_bytes == first.total_bytes);
    }
    assert_int_equal(vj_store_fault_calls(t->s), 1);
    vj_clock_set_for_test(&real, 6000000);
    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_true(space.available_bytes == first.available_bytes - 100);
    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_int_equal(vj_store_fault_calls(t->s), 2);
    /* An answer that failed is not kept. */
    vj_clock_set_for_test(&real, 9000000);
    set(t, "kinds=space,fail=1");
    assert_int_equal(vj_store_space(t->s, &space), -EIO);
    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_int_equal(vj_store_fault_calls(t->s), 2);
    vj_clock_set_for_test(NULL, 0);
}

/* Near the end each answer is the driver's. */
static void test_little_space_is_asked_each_time(void **state)
{
    VjStoreTest *t = *state;
    VjStoreSpace space;
    VjPut put = vj_store_test_put(t->s, 1, 5000);

    set(t, "kinds=space");
    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_true(space.available_bytes == (1 << 20) - 5000);
    assert_int_equal(vj_store_remove(t->s, 1, put.loc), 0);
    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_true(space.available_bytes == 1 << 20);
    assert_int_equal(vj_store_fault_calls(t->s), 2);
}

static void test_every(void **state)
{
    VjStoreTest *t = *state;

    set(t, "every=3,errno=ETIMEDOUT");
    for (uint64_t i = 1; i <= 12; i++) {
        assert_int_equal(put_one(t, i), i % 3 == 0 ? -ETIMEDOUT : 0);
    }
}

static void test_kinds(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 100);
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    VjStoreSpace space;
    uint64_t count = 0;

    set(t, "kinds=flush,every=1");
    assert_int_equal(put_one(t, 2), 0);
    assert_int_equal(vj_store_flush(t->s), -EIO);
    set(t, "kinds=get+remove,every=1");
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), -EIO);
    assert_int_equal(vj_store_remove(t->s, put.id, put.loc), -EIO);
    set(t, "kinds=each,every=1");
    assert_int_equal(vj_store_test_get_byte(t->s, &put), 0);
    assert_int_equal(vj_store_each(t->s, 0, 9, vj_store_test_count, &count), -EIO);
    assert_int_equal(count, 0);
    set(t, "kinds=space,every=1");
    assert_int_equal(vj_store_each(t->s, 0, 9, vj_store_test_count, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(vj_store_space(t->s, &space), -EIO);
    set(t, "kinds=stage,every=1");
    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_int_equal(vj_store_stage(t->s, &put, 1, NULL, 0, changes), -EIO);
    set(t, "kinds=get,every=1,errno=ENOENT");
    assert_int_equal(vj_store_stage(t->s, &put, 1, NULL, 0, changes), 0);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), -ENOENT);
}

/* The store did it, and the answer was lost on the way. */
static void test_after(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 100);

    set(t, "fail=1,after");
    assert_int_equal(put_one(t, 2), -EIO);
    assert_int_equal(vj_store_test_object_count(t->s), 2);
    set(t, "fail=1,after,errno=ETIMEDOUT");
    assert_int_equal(vj_store_remove(t->s, put.id, put.loc), -ETIMEDOUT);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), -ENOENT);
}

static unsigned wrong_bits(VjStoreTest *t, const VjPut *put)
{
    uint8_t want[1000], got[1000];
    unsigned count = 0;

    assert_true(put->stored_bytes == sizeof want);
    vj_store_test_fill(want, sizeof want, put->id);
    assert_int_equal(vj_store_get(t->s, put->id, put->loc, 0, got, sizeof got), 0);
    for (size_t i = 0; i < sizeof want; i++) {
        count += (unsigned)__builtin_popcount(want[i] ^ got[i]);
    }
    return count;
}

static void test_damage(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 1000);

    /* Gets have numbers of their own. */
    set(t, "damage=2");
    assert_int_equal(put_one(t, 2), 0);
    assert_int_equal(wrong_bits(t, &put), 0);
    assert_int_equal(wrong_bits(t, &put), 1);
    assert_int_equal(wrong_bits(t, &put), 0);
    set(t, "damage=1");
    assert_int_equal(wrong_bits(t, &put), 1);
}

static void test_short(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 1000);

    set(t, "short=2");
    assert_int_equal(vj_store_test_get_byte(t->s, &put), 0);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), -EBADMSG);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), 0);
}

static void test_wrong_options_change_nothing(void **state)
{
    VjStoreTest *t = *state;
    g_autoptr(GError) error = NULL;

    set(t, "every=1");
    assert_false(vj_store_fault_set(t->s, "every=x", &error));
    vj_test_expect_error(&error, EINVAL, "every");
    assert_false(vj_store_fault_set(t->s, "kinds=all", &error));
    vj_test_expect_error(&error, EINVAL, "\"all\"");
    assert_int_equal(put_one(t, 1), -EIO);
}

/* Lower bounds alone: a busy machine may be slower. */
static void test_slow(void **state)
{
    VjStoreTest *t = *state;
    int64_t start_us = vj_clock_mono_us();

    set(t, "delay_us=2000,kinds=put");
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(put_one(t, i), 0);
    }
    assert_true(vj_clock_mono_us() - start_us >= 10000);

    /* 2000 bytes at 100 KiB a second, also of calls that are not counted */
    set(t, "bps=100K,kinds=flush");
    start_us = vj_clock_mono_us();
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(put_one(t, i), 0);
    }
    assert_true(vj_clock_mono_us() - start_us >= 2000 * G_USEC_PER_SEC / 102400 - 100);
}

typedef struct Putter {
    VjStoreTest *t;
    uint64_t first_id;
    uint64_t failures;
} Putter;

static void *put_many(void *opaque)
{
    Putter *putter = opaque;

    for (uint64_t i = 0; i < 300; i++) {
        putter->failures += put_one(putter->t, putter->first_id + i) != 0;
    }
    return NULL;
}

/* Options change under running calls; each call is judged by one plan. */
static void test_set_while_running(void **state)
{
    VjStoreTest *t = *state;
    pthread_t threads[3];
    Putter putters[3];
    VjStoreStats stats;
    uint64_t failures = 0;

    for (size_t i = 0; i < 3; i++) {
        putters[i] = (Putter){.t = t, .first_id = i * 1000};
        assert_int_equal(pthread_create(&threads[i], NULL, put_many, &putters[i]), 0);
    }
    for (int i = 0; i < 100; i++) {
        set(t, i % 2 == 0 ? "every=2" : "");
        (void)vj_store_fault_calls(t->s);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        failures += putters[i].failures;
    }
    set(t, "");
    vj_store_stats(t->s, &stats);
    assert_int_equal(stats.failures, failures);
    assert_int_equal(stats.puts, 900 - failures);
    assert_int_equal(vj_store_test_object_count(t->s), stats.puts);
}

/* if=: calls neither fail nor count before the file is there. */
static void test_only_if(void **state)
{
    VjStoreTest *t = *state;
    g_autofree char *name = NULL;
    g_autofree char *options = NULL;
    int fd = g_file_open_tmp("test-wrap-XXXXXX", &name, NULL);

    assert_true(fd >= 0);
    options = g_strdup_printf("kinds=put,fail=2,if=%s", name);
    set(t, options);
    assert_int_equal(put_one(t, 1), 0);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(put_one(t, 2), 0);
    assert_int_equal(put_one(t, 3), 0);
    assert_int_equal(vj_store_fault_calls(t->s), 1);
    assert_true(g_file_set_contents(name, "", 0, NULL));
    assert_int_equal(put_one(t, 4), -EIO);
    assert_int_equal(unlink(name), 0);
    close(fd);
}

/* hold=: the call returns after the lock was given up, and not before. */
static void test_hold(void **state)
{
    VjStoreTest *t = *state;
    g_autofree char *name = NULL;
    g_autofree char *options = NULL;
    int fd = g_file_open_tmp("test-wrap-XXXXXX", &name, NULL);
    Putter putter = {.t = t, .first_id = 1000};
    pthread_t thread;

    assert_true(fd >= 0);
    options = g_strdup_printf("kinds=put,hold=%s", name);
    set(t, options);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(pthread_create(&thread, NULL, put_many, &putter), 0);
    while (vj_store_fault_calls(t->s) == 0) {
        g_thread_yield();
    }
    /* Other kinds pass, and the one that waits stays the only one. */
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_test_object_count(t->s), 0);
    assert_int_equal(vj_store_fault_calls(t->s), 1);
    assert_int_equal(flock(fd, LOCK_UN), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(putter.failures, 0);
    assert_int_equal(vj_store_test_object_count(t->s), 300);
    assert_int_equal(unlink(name), 0);
    close(fd);
}

static int no_file(void *opaque, int fd, uint64_t offset, size_t len)
{
    (void)opaque, (void)fd, (void)offset, (void)len;
    fail();
    return 0;
}

static void test_stats(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 1000);
    VjStoreForm form = {.plain_bytes = 1000, .stored_bytes = 1000};
    VjDigest digest;
    VjStoreStats stats;
    uint8_t bytes[300];
    g_autoptr(VjBuf) holder = vj_buf_new(1000);
    struct iovec held[] = {{.iov_base = holder->data, .iov_len = 400},
                           {.iov_base = bytes, .iov_len = 100}};
    VjPut put_of_two;

    memset(bytes, 'b', sizeof bytes);
    memset(holder->data, 'h', 400);
    assert_int_equal(vj_store_put_held(t->s, 2, holder, held, 2, &put_of_two), 0);
    assert_int_equal(vj_store_get(t->s, 1, put.loc, 100, bytes, 300), 0);
    assert_int_equal(vj_store_get(t->s, 1, put.loc, 900, bytes, 300), -EBADMSG);
    assert_int_equal(vj_store_get_checked(t->s, 1, put.loc, 100, bytes, 200), 0);
    /* Not past a wrapper that looks at what is gotten: nothing happened. */
    assert_int_equal(vj_store_with_file(t->s, 1, put.loc, 100, 300, no_file, NULL),
                     -EOPNOTSUPP);
    /* Nor did a driver fail that has no digest: its caller reads instead. */
    assert_int_equal(vj_store_digest(t->s, 1, put.loc, &form, 0, &digest), -EOPNOTSUPP);
    vj_store_expect(t->s, 1, put.loc);
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_remove(t->s, 1, put.loc), 0);
    vj_store_stats(t->s, &stats);
    assert_int_equal(stats.puts, 2);
    assert_int_equal(stats.put_bytes, 1500);
    assert_int_equal(stats.gets, 2);
    assert_int_equal(stats.get_bytes, 500);
    assert_int_equal(stats.expects, 1);
    assert_int_equal(stats.removes, 1);
    assert_int_equal(stats.flushes, 1);
    assert_int_equal(stats.failures, 1);
    /* Without the wrapper: zeroes. */
    vj_store_stats(t->s->next, &stats);
    assert_int_equal(stats.puts, 0);
}

/* ---- latency ----------------------------------------------------------------------- */

static void add_latency(VjStoreTest *t, const char *spec)
{
    VjStore *outer = NULL;
    GError *error = NULL;

    if (!vj_store_wrap(spec, t->s, &outer, &error)) {
        fail_msg("%s", error->message);
    }
    t->s = outer;
}

static void test_latency_waits_and_counts(void **state)
{
    VjStoreTest *t = *state;
    VjStoreLatencyCalls calls;
    VjStoreSpace space;
    int64_t before_us;
    VjPut put;

    add_latency(t, "latency:us=2000");
    before_us = vj_clock_mono_us();
    put = vj_store_test_put(t->s, 1, 100);
    assert_true(vj_clock_mono_us() - before_us >= 2000);
    assert_true(vj_store_test_matches(t->s, &put));
    assert_int_equal(vj_store_flush(t->s), 0);
    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_int_equal(vj_store_test_object_count(t->s), 1);
    vj_store_expect(t->s, 1, put.loc);
    assert_int_equal(vj_store_remove(t->s, 1, put.loc), 0);
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    assert_true(vj_clock_mono_us() - before_us >= 7 * 2000);
    vj_store_latency_calls(t->s, &calls);
    assert_int_equal(calls.puts, 1);
    assert_int_equal(calls.gets, 1);
    assert_int_equal(calls.flushes, 1);
    assert_int_equal(calls.spaces, 1);
    assert_int_equal(calls.eaches, 1);
    assert_int_equal(calls.removes, 1);
    assert_int_equal(calls.flush_removes, 1);
}

/* Through wrappers that pass it on, down to a driver that has it. */
static void test_who_can_expect(void **state)
{
    VjStoreTest *t = *state;

    assert_true(vj_store_can_expect(t->s));
    assert_true(vj_store_can_expect(t->s->next->next));
    add_latency(t, "latency:us=0");
    assert_false(vj_store_can_expect(t->s));
    assert_true(vj_store_can_expect(t->s->next));
}

static void test_memory_cannot_expect(void **state)
{
    VjStoreTest *t = *state;

    assert_false(vj_store_can_expect(t->s));
    assert_false(vj_store_can_expect(t->s->next->next));
}

typedef struct Landing {
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    unsigned pending;
    int failed;
} Landing;

static void land(VjIo *io)
{
    Landing *l = io->opaque;

    vj_mutex_lock(&l->lock);
    l->failed = io->rc < 0 ? io->rc : l->failed;
    l->pending--;
    vj_cond_broadcast(&l->changed);
    vj_mutex_unlock(&l->lock);
    vj_io_unref(io);
}

/*
 * With the clock that the wrapper reads stopped nothing is due; all that was submitted is
 * in flight then, and no thread waits for each.
 */
static void test_latency_of_requests_in_flight(void **state)
{
    enum { COUNT = 500 };
    VjStoreTest *t = *state;
    Landing l = {.pending = COUNT};
    struct timespec real = {.tv_sec = 1};
    VjStoreLatencyCalls calls;
    VjPut put = vj_store_test_put(t->s, 1, 100);

    vj_mutex_init(&l.lock, VJ_RANK_BASE, "landing");
    vj_cond_init(&l.changed);
    add_latency(t, "latency:us=1000");
    vj_clock_set_for_test(&real, 1000000);
    for (unsigned i = 0; i < COUNT; i++) {
        VjIo *io = vj_io_new_get(1, put.loc, 0, 100);

        io->done = land;
        io->opaque = &l;
        assert_true(vj_store_submit(t->s, io));
    }
    vj_store_latency_calls(t->s, &calls);
    assert_int_equal(calls.gets, COUNT);
    vj_mutex_lock(&l.lock);
    assert_int_equal(l.pending, COUNT);
    vj_mutex_unlock(&l.lock);
    vj_clock_set_for_test(&real, 1001000); /* all are due at once */
    vj_mutex_lock(&l.lock);
    while (l.pending > 0) {
        vj_cond_wait(&l.changed, &l.lock);
    }
    assert_int_equal(l.failed, 0);
    vj_mutex_unlock(&l.lock);
    vj_clock_set_for_test(NULL, 0);
    vj_cond_clear(&l.changed);
    vj_mutex_clear(&l.lock);
}

#ifdef VJ_LOCK_DEBUG
static VjMutex held = VJ_MUTEX_INIT(VJ_RANK_FRONT, "held by a caller");
static VjStore *latent;

VJ_TSA(no_thread_safety_analysis) static void flush_under_a_lock(void)
{
    vj_mutex_lock(&held);
    (void)!latent->ops->flush(latent);
}

VJ_TSA(no_thread_safety_analysis) static void submit_under_a_lock(void)
{
    VjIo *io = vj_io_new_flush();

    vj_mutex_lock(&held);
    latent->ops->submit(latent, io);
}
#endif

static void test_latency_aborts_under_a_lock(void **state)
{
#ifdef VJ_LOCK_DEBUG
    VjStoreTest *t = *state;

    add_latency(t, "latency:us=0");
    latent = t->s;
    vj_test_expect_abort(flush_under_a_lock, "store latency: flushes while holding",
                         "held by a caller");
    vj_test_expect_abort(submit_under_a_lock, "store latency: submit while holding",
                         "held by a caller");
#else
    (void)state;
    print_message("# needs configure --enable-developer\n");
    skip();
#endif
}

#define WRAP_TEST(name)                                                                  \
    cmocka_unit_test_setup_teardown(name, setup, vj_store_test_teardown)

static const struct CMUnitTest tests[] = {
    WRAP_TEST(test_nothing_by_default),
    WRAP_TEST(test_fail_once),
    WRAP_TEST(test_times),
    WRAP_TEST(test_unflushed),
    WRAP_TEST(test_every),
    WRAP_TEST(test_kinds),
    WRAP_TEST(test_after),
    WRAP_TEST(test_damage),
    WRAP_TEST(test_short),
    WRAP_TEST(test_wrong_options_change_nothing),
    WRAP_TEST(test_slow),
    WRAP_TEST(test_set_while_running),
    WRAP_TEST(test_only_if),
    WRAP_TEST(test_hold),
    WRAP_TEST(test_stats),
    {"test_who_can_expect", test_who_can_expect, setup, vj_store_test_teardown,
     (void *)"posix"},
    WRAP_TEST(test_memory_cannot_expect),
    WRAP_TEST(test_latency_waits_and_counts),
    WRAP_TEST(test_latency_of_requests_in_flight),
    WRAP_TEST(test_latency_aborts_under_a_lock),
    {"test_space_is_asked_once_a_second", test_space_is_asked_once_a_second, setup,
     vj_store_test_teardown, (void *)"memory:size=4G"},
    {"test_little_space_is_asked_each_time", test_little_space_is_asked_each_time, setup,
     vj_store_test_teardown, (void *)"memory:size=1M"},
};

VJ_TEST_MAIN(tests)
