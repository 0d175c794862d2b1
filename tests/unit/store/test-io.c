/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Requests in flight over a store that hangs: deadlines, cancelling, the limit, what
 * comes too late, and close.  The fault wrapper's hold= makes calls wait as long as the
 * test has a file locked.
 */
#include "store-test.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct Hung {
    VjStoreTest *t;
    int fd; /* locked: calls wait */
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    unsigned answers;
} Hung;

/* posix or memory, fault from the inside out */
static void hang(Hung *h, VjStoreTest *t, const char *kinds)
{
    g_autofree char *path = g_build_filename(t->path, "hold", NULL);
    g_autofree char *options = g_strdup_printf("kinds=%s,hold=%s", kinds, path);
    VjStore *outer = NULL;
    GError *error = NULL;

    *h = (Hung){.t = t};
    h->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(h->fd >= 0);
    assert_int_equal(flock(h->fd, LOCK_EX), 0);
    vj_mutex_init(&h->lock, VJ_RANK_BASE, "hung");
    vj_cond_init(&h->changed);
    assert_true(vj_store_wrap("fault", t->s, &outer, &error));
    t->s = outer;
    assert_true(vj_store_fault_set(t->s, options, &error));
}

static void go_on(Hung *h)
{
    vj_fd_close(&h->fd);
}

static void hung_clear(Hung *h)
{
    vj_fd_close(&h->fd);
    vj_cond_clear(&h->changed);
    vj_mutex_clear(&h->lock);
}

static void answered(VjIo *io)
{
    Hung *h = io->opaque;

    vj_mutex_lock(&h->lock);
    h->answers++;
    vj_cond_broadcast(&h->changed);
    vj_mutex_unlock(&h->lock);
}

static void wait_for(Hung *h, unsigned answers)
{
    vj_mutex_lock(&h->lock);
    while (h->answers < answers) {
        vj_cond_wait(&h->changed, &h->lock);
    }
    assert_int_equal(h->answers, answers);
    vj_mutex_unlock(&h->lock);
}

static VjIo *start(Hung *h, VjIo *io, int64_t deadline_us)
{
    io->done = answered;
    io->opaque = h;
    io->deadline_us = deadline_us;
    assert_true(vj_store_submit(h->t->s, io));
    return io;
}

static VjIo *new_put(uint64_t id)
{
    g_autoptr(VjBuf) buf = vj_buf_new_copy("some bytes", 10);

    return vj_io_new_put(id, buf, 10);
}

static void test_deadline(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 100);
    VjIo *io[4];
    Hung h;

    hang(&h, t, "put+get+remove+flush");
    io[0] = start(&h, new_put(2), vj_clock_mono_us() + 1000);
    io[1] = start(&h, vj_io_new_get(1, put.loc, 0, 100), vj_clock_mono_us() + 500);
    io[2] = start(&h, vj_io_new_remove(3, put.loc), vj_clock_mono_us() + 2000);
    io[3] = start(&h, vj_io_new_flush(), vj_clock_mono_us());
    wait_for(&h, 4);
    for (size_t i = 0; i < G_N_ELEMENTS(io); i++) {
        assert_int_equal(io[i]->rc, -ETIMEDOUT);
        vj_io_unref(io[i]); /* the driver has the buffers still */
    }
    go_on(&h);
    vj_store_close(t->s); /* waits for them */
    assert_int_equal(h.answers, 4);
    vj_store_test_open(t, false);
    assert_int_equal(vj_store_test_object_count(t->s), 1); /* the late put is gone */
    assert_true(vj_store_test_matches(t->s, &put));
    hung_clear(&h);
}

/* Those that no worker has begun are given up at once; the hung one later. */
static void test_cancel(void **state)
{
    enum { COUNT = VJ_STORE_WORKERS_MAX + 4 };
    VjStoreTest *t = *state;
    VjIo *io[COUNT];
    Hung h;

    hang(&h, t, "put");
    for (uint64_t i = 0; i < COUNT; i++) {
        io[i] = start(&h, new_put(i + 1), 0);
    }
    for (unsigned i = COUNT; i-- > 0;) {
        vj_store_cancel(t->s, io[i]);
        assert_int_equal(h.answers, COUNT - i);
        vj_store_cancel(t->s, io[i]);
        assert_int_equal(h.answers, COUNT - i);
        assert_int_equal(io[i]->rc, -ECANCELED);
        vj_io_unref(io[i]);
    }
    go_on(&h);
    vj_store_close(t->s);
    assert_int_equal(h.answers, COUNT);
    vj_store_test_open(t, false);
    assert_int_equal(vj_store_test_object_count(t->s), 0);
    hung_clear(&h);
}

static void test_limit(void **state)
{
    VjStoreTest *t = *state;
    VjIo *io[VJ_STORE_IN_FLIGHT_MAX], *more = new_put(0);
    VjIo *another = new_put(0);
    Hung h;

    hang(&h, t, "put");
    more->done = answered;
    more->opaque = &h;
    for (uint64_t i = 0; i < VJ_STORE_IN_FLIGHT_MAX; i++) {
        io[i] = start(&h, new_put(i + 1), 0);
    }
    assert_false(vj_store_submit(t->s, more));
    assert_int_equal(h.answers, 0);
    vj_store_cancel(t->s, io[VJ_STORE_IN_FLIGHT_MAX - 1]); /* no worker has begun it */
    assert_true(vj_store_submit(t->s, more));
    another->done = answered;
    another->opaque = &h;
    assert_false(vj_store_submit(t->s, another));
    vj_io_unref(another);
    go_on(&h);
    wait_for(&h, VJ_STORE_IN_FLIGHT_MAX + 1);
    assert_int_equal(more->rc, 0);
    for (uint64_t i = 0; i < VJ_STORE_IN_FLIGHT_MAX; i++) {
        assert_int_equal(io[i]->rc, i + 1 < VJ_STORE_IN_FLIGHT_MAX ? 0 : -ECANCELED);
        vj_io_unref(io[i]);
    }
    vj_io_unref(more);
    assert_int_equal(vj_store_test_object_count(t->s), VJ_STORE_IN_FLIGHT_MAX);
    hung_clear(&h);
}

/* The synchronous calls of a store with a timeout, which the wrappers in front
 * inherit. */
static void test_timeout(void **state)
{
    VjStoreTest *t = *state;
    VjPut put = vj_store_test_put(t->s, 1, 100), late;
    Hung h;

    t->s->timeout_us = 1000;
    hang(&h, t, "put+get+remove+flush");
    assert_int_equal(t->s->timeout_us, 1000);
    assert_int_equal(t->s->next->timeout_us, 0);
    assert_int_equal(vj_store_test_get_byte(t->s, &put), -ETIMEDOUT);
    assert_int_equal(vj_store_test_try_put(t->s, 2, 5000, &late), -ETIMEDOUT);
    assert_int_equal(vj_store_flush(t->s), -ETIMEDOUT);
    assert_int_equal(vj_store_remove(t->s, 3, put.loc), -ETIMEDOUT);
    t->s->timeout_us = 0;
    go_on(&h);
    assert_true(vj_store_test_matches(t->s, &put));
    vj_store_close(t->s);
    vj_store_test_open(t, false);
    assert_int_equal(vj_store_test_object_count(t->s), 1);
    hung_clear(&h);
}

/* Nor do those keep anybody that are not about one object: who writes back asks for
 * space, and id blocks end when removes are durable. */
static void test_timeout_of_the_rest(void **state)
{
    VjStoreTest *t = *state;
    VjStoreSpace space;
    Hung h;

    t->s->timeout_us = 1000;
    hang(&h, t, "space+flush_removes");
    assert_int_equal(vj_store_space(t->s, &space), -ETIMEDOUT);
    assert_int_equal(vj_store_space(t->s, &space), -ETIMEDOUT);
    assert_int_equal(vj_store_flush_removes(t->s), -ETIMEDOUT);
    go_on(&h);
    t->s->timeout_us = 60 * G_USEC_PER_SEC;
    assert_int_equal(vj_store_space(t->s, &space), 0);
    assert_true(space.total_bytes > 0 && space.free_bytes <= space.total_bytes);
    assert_int_equal(vj_store_flush_removes(t->s), 0);
    hung_clear(&h);
}

/* A thread whose request nobody waits for any more (base/cancel.h). */
typedef struct Caller {
    VjStore *s;
    VjPut put;
    VjCancel cancel;
    int results[5];
} Caller;

static gpointer call_all(gpointer opaque)
{
    Caller *c = opaque;
    VjStoreSpace space;
    VjPut late;

    vj_cancel_enter(&c->cancel);
    c->results[0] = vj_store_test_get_byte(c->s, &c->put);
    c->results[1] = vj_store_test_try_put(c->s, 2, 5000, &late);
    c->results[2] = vj_store_flush(c->s);
    c->results[3] = vj_store_space(c->s, &space);
    c->results[4] = vj_store_flush_removes(c->s);
    (void)vj_cancel_leave();
    return NULL;
}

/* It is told while it waits; what it asks for after that is not waited for at all. */
static void test_cancelled_caller(void **state)
{
    VjStoreTest *t = *state;
    Caller c = {.put = vj_store_test_put(t->s, 1, 100)};
    GThread *thread;
    Hung h;

    t->s->timeout_us = 20 * G_USEC_PER_SEC;
    hang(&h, t, "put+get+flush+space+flush_removes");
    c.s = t->s;
    vj_cancel_init(&c.cancel);
    thread = g_thread_new("caller", call_all, &c);
    while (vj_store_fault_calls(t->s) == 0) { /* the get hangs */
        g_thread_yield();
    }
    vj_cancel_fire(&c.cancel, 1);
    g_thread_join(thread);
    for (size_t i = 0; i < G_N_ELEMENTS(c.results); i++) {
        assert_int_equal(c.results[i], -ECANCELED);
    }
    vj_cancel_clear(&c.cancel);
    t->s->timeout_us = 0;
    go_on(&h);
    assert_true(vj_store_test_matches(t->s, &c.put));
    vj_store_close(t->s);
    vj_store_test_open(t, false);
    assert_int_equal(vj_store_test_object_count(t->s), 1); /* the late put is gone */
    hung_clear(&h);
}

/* A full store with a timeout does not keep a synchronous caller either. */
static void test_timeout_when_full(void **state)
{
    VjStoreTest *t = *state;
    VjPut put;
    VjIo *io[VJ_STORE_IN_FLIGHT_MAX];
    Hung h;

    hang(&h, t, "put");
    for (uint64_t i = 0; i < VJ_STORE_IN_FLIGHT_MAX; i++) {
        io[i] = start(&h, new_put(i + 1), 0);
    }
    t->s->timeout_us = 1000;
    assert_int_equal(vj_store_test_try_put(t->s, 5000, 10, &put), -ETIMEDOUT);
    t->s->timeout_us = 0;
    go_on(&h);
    wait_for(&h, VJ_STORE_IN_FLIGHT_MAX);
    for (uint64_t i = 0; i < VJ_STORE_IN_FLIGHT_MAX; i++) {
        vj_io_unref(io[i]);
    }
    hung_clear(&h);
}

#define TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, vj_store_test_setup, vj_store_test_teardown)
static const struct CMUnitTest tests[] = {
    TEST(test_deadline),
    TEST(test_cancel),
    TEST(test_limit),
    TEST(test_timeout),
    TEST(test_timeout_of_the_rest),
    TEST(test_cancelled_caller),
    TEST(test_timeout_when_full),
};

VJ_TEST_MAIN(tests)
