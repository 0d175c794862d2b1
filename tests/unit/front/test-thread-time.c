/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-thread-time.c - whether a thread has run
 */
#include "../../lib/test.h"

#include "front/front-private.h"

#include <unistd.h>

typedef struct Other {
    gint tid;        /* atomic; 0: it has not begun */
    gint stop;       /* atomic */
    int pipe_fds[2]; /* it sleeps in reading it */
} Other;

static gpointer spin(gpointer data)
{
    Other *o = data;

    g_atomic_int_set(&o->tid, (gint)gettid());
    while (g_atomic_int_get(&o->stop) == 0) {
    }
    return NULL;
}

static gpointer sleep_in_read(gpointer data)
{
    Other *o = data;
    char byte;

    g_atomic_int_set(&o->tid, (gint)gettid());
    assert_int_equal(read(o->pipe_fds[0], &byte, 1), 1);
    return NULL;
}

static pid_t begun(Other *o)
{
    while (g_atomic_int_get(&o->tid) == 0) {
        g_thread_yield();
    }
    return (pid_t)g_atomic_int_get(&o->tid);
}

static void test_one_that_runs(void **state)
{
    Other o = {.tid = 0};
    GThread *thread = g_thread_new("spin", spin, &o);
    uint64_t first = 0, later = 0;
    pid_t tid = begun(&o);

    (void)state;
    do {
        assert_true(vj_thread_is_runnable(tid, &later));
        first = first == 0 ? later : first;
    } while (later == first);
    assert_true(later > first);
    g_atomic_int_set(&o.stop, 1);
    g_thread_join(thread);
}

static void test_one_that_sleeps(void **state)
{
    Other o = {.tid = 0};
    uint64_t run_ns;
    GThread *thread;
    pid_t tid;

    (void)state;
    assert_int_equal(pipe(o.pipe_fds), 0);
    thread = g_thread_new("sleep", sleep_in_read, &o);
    tid = begun(&o);
    while (vj_thread_is_runnable(tid, &run_ns)) {
        g_thread_yield(); /* until it sleeps */
    }
    assert_int_equal(write(o.pipe_fds[1], "", 1), 1);
    g_thread_join(thread);
    assert_false(vj_thread_is_runnable(tid, &run_ns));
    assert_false(vj_thread_is_runnable(0, &run_ns));
    close(o.pipe_fds[0]);
    close(o.pipe_fds[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one_that_runs),
    cmocka_unit_test(test_one_that_sleeps),
};

VJ_TEST_MAIN(tests)
