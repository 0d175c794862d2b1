/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-loop.c - sockets that are read without an event hold up nothing else
 *
 * A source that always has something is read again and again; beside it stands an event
 * that is always due, and says how often the loop has looked at all of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../lib/test.h"
#include "rpc/loop-private.h"

#define ROUNDS 50u

typedef struct LoopTest {
    VjLoop *loop;
    int fds[2]; /* the first one has a byte that nobody takes, where that is wanted */
    VjLoopTask begin_task, end_task, other_task;
    VjLoopSource source;
    int wants;
    struct event *event;
    VjLoopMemory memory;
    VjLoopTask watch_task;
    bool is_watched; /* from the beginning */
    /* in the loop's thread: */
    bool has_something;
    unsigned reads_since, takes_since;

    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    unsigned reads, most_reads, looks, tasks, takes, most_takes, listens, ends;
    size_t read_bytes; /* by each read */
    bool has_begun, has_ended;
} LoopTest;

static LoopTest *test_of(VjLoopTask *task, size_t offset)
{
    return (LoopTest *)(void *)((uint8_t *)task - offset);
}

static bool read_source(VjLoopSource *source)
{
    LoopTest *t = (LoopTest *)(void *)((uint8_t *)source - offsetof(LoopTest, source));

    assert_true(vj_loop_is_current(t->loop));
    if (!t->has_something) {
        return false;
    }
    t->reads_since++;
    vj_mutex_lock(&t->lock);
    source->bytes = t->read_bytes;
    t->reads++;
    t->most_reads = MAX(t->most_reads, t->reads_since);
    vj_mutex_unlock(&t->lock);
    return true;
}

static bool take_memory(VjLoopMemory *memory)
{
    LoopTest *t = (LoopTest *)(void *)((uint8_t *)memory - offsetof(LoopTest, memory));

    assert_true(vj_loop_is_current(t->loop));
    t->takes_since++;
    vj_mutex_lock(&t->lock);
    t->takes += t->has_something;
    t->most_takes = MAX(t->most_takes, t->takes_since);
    vj_mutex_unlock(&t->lock);
    return t->has_something;
}

static void listen_to_memory(VjLoopMemory *memory, bool does)
{
    LoopTest *t = (LoopTest *)(void *)((uint8_t *)memory - offsetof(LoopTest, memory));

    vj_mutex_lock(&t->lock);
    t->listens += does;
    t->ends += !does;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static void watch_memory(VjLoopTask *task)
{
    LoopTest *t = (LoopTest *)(void *)((uint8_t *)task - offsetof(LoopTest, watch_task));

    vj_loop_watch(t->loop, &t->memory);
    vj_mutex_lock(&t->lock);
    t->tasks++;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static void on_look(evutil_socket_t fd, short what, void *opaque)
{
    LoopTest *t = opaque;

    (void)fd, (void)what;
    t->reads_since = t->takes_since = 0;
    vj_mutex_lock(&t->lock);
    t->looks++;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static void begin(VjLoopTask *task)
{
    LoopTest *t = test_of(task, offsetof(LoopTest, begin_task));

    t->source = (VjLoopSource){.fd = t->fds[0], .read = read_source};
    vj_loop_source_wants(t->loop, &t->source, t->wants);
    vj_loop_source_was_read(t->loop, &t->source);
    t->memory = (VjLoopMemory){.take = take_memory, .listen = listen_to_memory};
    if (t->is_watched) {
        vj_loop_watch(t->loop, &t->memory);
    }
    t->event =
        event_new(vj_loop_base(t->loop), t->fds[0], EV_READ | EV_PERSIST, on_look, t);
    assert_int_equal(event_add(t->event, NULL), 0);
    vj_mutex_lock(&t->lock);
    t->has_begun = true;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static void end(VjLoopTask *task)
{
    LoopTest *t = test_of(task, offsetof(LoopTest, end_task));

    vj_loop_source_wants(t->loop, &t->source, VJ_SOURCE_IDLE);
    vj_loop_unwatch(t->loop, &t->memory);
    event_free(t->event);
    vj_mutex_lock(&t->lock);
    t->has_ended = true;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static void run_other(VjLoopTask *task)
{
    LoopTest *t = test_of(task, offsetof(LoopTest, other_task));

    vj_mutex_lock(&t->lock);
    t->tasks++;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static void open_it(LoopTest *t, bool has_follower)
{
    t->begin_task.run = begin;
    t->watch_task.run = watch_memory;
    t->end_task.run = end;
    t->other_task.run = run_other;
    vj_mutex_init(&t->lock, VJ_RANK_BASE, "test.loop");
    vj_cond_init(&t->changed);
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, t->fds), 0);
    if (t->has_something) {
        assert_int_equal(write(t->fds[1], "x", 1), 1);
    }
    t->loop = vj_loop_new("test", has_follower, NULL);
    assert_non_null(t->loop);
    vj_loop_post(t->loop, &t->begin_task);
    vj_mutex_lock(&t->lock);
    while (!t->has_begun) {
        vj_cond_wait(&t->changed, &t->lock);
    }
    vj_mutex_unlock(&t->lock);
}

static void open_loop(LoopTest *t, bool has_follower, int wants, bool has_something)
{
    *t = (LoopTest){.wants = wants, .has_something = has_something};
    open_it(t, has_follower);
}

/* Memory beside it is watched. */
static void open_watched(LoopTest *t, bool has_something)
{
    *t = (LoopTest){
        .wants = VJ_SOURCE_IDLE, .has_something = has_something, .is_watched = true};
    open_it(t, true);
}

static void close_loop(LoopTest *t)
{
    vj_loop_post(t->loop, &t->end_task);
    vj_mutex_lock(&t->lock);
    while (!t->has_ended) {
        vj_cond_wait(&t->changed, &t->lock);
    }
    vj_mutex_unlock(&t->lock);
    vj_loop_free(t->loop);
    close(t->fds[0]);
    close(t->fds[1]);
    vj_cond_clear(&t->changed);
    vj_mutex_clear(&t->lock);
}

static unsigned counter(LoopTest *t, const unsigned *of)
{
    unsigned value;

    vj_mutex_lock(&t->lock);
    value = *of;
    vj_mutex_unlock(&t->lock);
    return value;
}

static void wait_for(LoopTest *t, const unsigned *of, unsigned least)
{
    vj_mutex_lock(&t->lock);
    while (*of < least) {
        vj_cond_wait(&t->changed, &t->lock);
    }
    vj_mutex_unlock(&t->lock);
}

/* The test's thread has the loop, as a caller. */
static void borrow(LoopTest *t)
{
    while (!vj_loop_borrow(t->loop)) {
        vj_loop_post(t->loop, &t->other_task); /* its thread leaves it then */
    }
}

/* ---- tests ------------------------------------------------------------------------- */

/* A server: one connection with a stream of requests. */
static void a_stream_leaves_others_their_turn(void **state)
{
    LoopTest t;

    (void)state;
    open_loop(&t, true, VJ_SOURCE_READS, true);
    wait_for(&t, &t.looks, ROUNDS);
    vj_loop_post(t.loop, &t.other_task);
    wait_for(&t, &t.tasks, 1);
    close_loop(&t);
    assert_int_equal(t.most_reads, VJ_LOOP_AGAIN_MAX);
    assert_in_range(t.reads, ROUNDS - 1, UINT_MAX);
}

/* A mailbox in which there is always a request. */
static void full_memory_leaves_others_their_turn(void **state)
{
    LoopTest t;

    (void)state;
    open_watched(&t, true);
    wait_for(&t, &t.looks, ROUNDS);
    vj_loop_post(t.loop, &t.other_task);
    wait_for(&t, &t.tasks, 1);
    close_loop(&t);
    assert_int_equal(t.most_takes, VJ_LOOP_LOOKS_MAX);
    assert_in_range(t.takes, ROUNDS - 1, UINT_MAX);
}

/* One in which there is none: the loop sleeps, and does not believe in it for long. */
static void empty_memory_is_left(void **state)
{
    LoopTest t;

    (void)state;
    open_watched(&t, false);
    wait_for(&t, &t.ends, 1);
    for (unsigned i = 1; i < 200; i++) {
        vj_loop_post(t.loop, &t.watch_task);
        wait_for(&t, &t.tasks, i);
    }
    assert_int_equal(counter(&t, &t.listens), 1);
    for (unsigned i = 200; i < 300; i++) {
        vj_loop_post(t.loop, &t.watch_task);
        wait_for(&t, &t.tasks, i);
    }
    assert_int_equal(counter(&t, &t.listens), 2); /* tried again */
    wait_for(&t, &t.ends, 2);
    close_loop(&t);
    assert_int_equal(t.takes, 0);
}

/* One that had much waits for its event. */
static void what_was_long_is_not_read_again(void **state)
{
    LoopTest t;
    unsigned reads;

    (void)state;
    open_loop(&t, true, VJ_SOURCE_READS, true);
    wait_for(&t, &t.reads, 1);
    vj_mutex_lock(&t.lock);
    t.read_bytes = VJ_LOOP_AGAIN_BYTES_MAX + 1;
    reads = t.reads;
    vj_mutex_unlock(&t.lock);
    wait_for(&t, &t.reads, reads + 1); /* there is one more, and it is the last */
    wait_for(&t, &t.looks, counter(&t, &t.looks) + 2);
    vj_mutex_lock(&t.lock);
    t.most_reads = 0;
    vj_mutex_unlock(&t.lock);
    wait_for(&t, &t.looks, counter(&t, &t.looks) + ROUNDS);
    close_loop(&t);
    assert_int_equal(t.most_reads, 0);
}

/* What waits for something else is not read without an event. */
static void a_socket_that_waits_to_write_is_left_alone(void **state)
{
    LoopTest t;

    (void)state;
    open_loop(&t, true, VJ_SOURCE_OTHER, true);
    wait_for(&t, &t.looks, ROUNDS);
    close_loop(&t);
    assert_int_equal(t.reads, 0);
}

/* A caller that gets answers all the time looks at everything else as well. */
static void a_borrower_looks_at_all(void **state)
{
    LoopTest t;
    unsigned before;

    (void)state;
    open_loop(&t, false, VJ_SOURCE_READS, true);
    borrow(&t);
    before = counter(&t, &t.looks);
    while (counter(&t, &t.looks) < before + 3 || counter(&t, &t.reads) == 0) {
        (void)!vj_loop_borrowed_run(t.loop, INT64_MAX);
    }
    vj_loop_give_back(t.loop);
    close_loop(&t);
}

static void a_borrower_asks_for_events_beside_other_sockets(void **state)
{
    LoopTest t;

    (void)state;
    open_loop(&t, false, VJ_SOURCE_OTHER, true);
    borrow(&t);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned before = counter(&t, &t.looks);

        (void)!vj_loop_borrowed_run(t.loop, INT64_MAX);
        assert_int_equal(counter(&t, &t.looks), before + 1);
    }
    vj_loop_give_back(t.loop);
    close_loop(&t);
    assert_int_equal(t.reads, 0);
}

/* A task ends the wait of a borrower to whom nothing comes. */
static void a_borrower_runs_tasks(void **state)
{
    LoopTest t;

    (void)state;
    open_loop(&t, false, VJ_SOURCE_READS, false);
    borrow(&t);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned before = counter(&t, &t.tasks);

        vj_loop_post(t.loop, &t.other_task);
        while (counter(&t, &t.tasks) == before) {
            (void)!vj_loop_borrowed_run(t.loop, INT64_MAX);
        }
    }
    vj_loop_give_back(t.loop);
    close_loop(&t);
    assert_int_equal(t.reads, 0);
}

/* More of them than a borrower looks at itself; all go in another order. */
static void change_many(VjLoopTask *task)
{
    LoopTest *t = test_of(task, offsetof(LoopTest, other_task));
    VjLoopSource many[20];

    for (unsigned i = 0; i < G_N_ELEMENTS(many); i++) {
        many[i] = (VjLoopSource){.fd = t->fds[0], .read = read_source};
        vj_loop_source_wants(t->loop, &many[i],
                             i % 3 == 0 ? VJ_SOURCE_OTHER : VJ_SOURCE_READS);
        vj_loop_source_was_read(t->loop, &many[i]);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(many); i += 2) {
        vj_loop_source_wants(t->loop, &many[i], VJ_SOURCE_READS);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(many); i++) {
        vj_loop_source_wants(t->loop, &many[i * 7 % 20], VJ_SOURCE_IDLE);
    }
    run_other(task);
}

static void many_sources_come_and_go(void **state)
{
    LoopTest t;
    unsigned before;

    (void)state;
    open_loop(&t, false, VJ_SOURCE_READS, true);
    t.other_task.run = change_many;
    for (unsigned i = 1; i <= ROUNDS; i++) {
        vj_loop_post(t.loop, &t.other_task);
        wait_for(&t, &t.tasks, i);
    }
    borrow(&t);
    /* None of them is left that would keep a borrower from reading. */
    before = counter(&t, &t.reads);
    while (counter(&t, &t.reads) == before) {
        (void)!vj_loop_borrowed_run(t.loop, INT64_MAX);
    }
    vj_loop_give_back(t.loop);
    close_loop(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_stream_leaves_others_their_turn),
    cmocka_unit_test(full_memory_leaves_others_their_turn),
    cmocka_unit_test(empty_memory_is_left),
    cmocka_unit_test(what_was_long_is_not_read_again),
    cmocka_unit_test(a_socket_that_waits_to_write_is_left_alone),
    cmocka_unit_test(a_borrower_looks_at_all),
    cmocka_unit_test(a_borrower_asks_for_events_beside_other_sockets),
    cmocka_unit_test(a_borrower_runs_tasks),
    cmocka_unit_test(many_sources_come_and_go),
};

VJ_TEST_MAIN(tests)
