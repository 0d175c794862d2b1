/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-connection.c - the order in which frames go out of one connection, and which can
 * be taken back
 */
#include "raw-peer.h"

#include "rpc/connection-private.h"

/* More than the buffers of a socket take. */
#define LONG_BYTES ((size_t)8 << 20)

typedef struct Other {
    VjLoopTask start_task, close_task;
    VjConn *conn;
    VjCredentials *credentials;
    VjConnCounters counters;
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    unsigned ready, closed, sent, dropped;
} Other;

typedef struct OtherOut {
    VjOut out;
    Other *other;
} OtherOut;

static void count(Other *o, unsigned *counter)
{
    vj_mutex_lock(&o->lock);
    ++*counter;
    vj_cond_broadcast(&o->changed);
    vj_mutex_unlock(&o->lock);
}

static void wait_for(Other *o, const unsigned *counter, unsigned least)
{
    vj_mutex_lock(&o->lock);
    while (*counter < least) {
        vj_cond_wait(&o->changed, &o->lock);
    }
    vj_mutex_unlock(&o->lock);
}

static void on_ready(VjConn *c)
{
    Other *o = vj_conn_owner(c);

    count(o, &o->ready);
}

static int on_head(VjConn *c, const VjFrame *frame, VjInto *into)
{
    (void)c;
    (void)frame;
    (void)into;
    return -EPROTO;
}

static void on_frame(VjConn *c, const VjFrame *frame, GByteArray *message, VjBuf *bulk,
                     bool is_ignored)
{
    (void)c;
    (void)frame;
    (void)message;
    (void)bulk;
    (void)is_ignored;
    g_assert_not_reached();
}

static void on_closed(VjConn *c, int rc)
{
    Other *o = vj_conn_owner(c);

    g_assert(rc < 0);
    count(o, &o->closed);
}

static const VjConnCallbacks callbacks = {
    .ready = on_ready,
    .head = on_head,
    .frame = on_frame,
    .closed = on_closed,
};

static void start(VjLoopTask *task)
{
    Other *o = (Other *)(void *)((uint8_t *)task - offsetof(Other, start_task));

    vj_conn_start(o->conn, true, o->credentials, NULL);
}

static void end(VjLoopTask *task)
{
    Other *o = (Other *)(void *)((uint8_t *)task - offsetof(Other, close_task));

    vj_conn_close(o->conn, -ECANCELED);
}

static void released(VjOut *out, bool was_sent)
{
    Other *o = ((OtherOut *)out)->other;

    count(o, was_sent ? &o->sent : &o->dropped);
}

static OtherOut out_of(Other *o, uint64_t tag, VjSlice bulk)
{
    OtherOut out = {.other = o, .out = {.bulk = bulk, .released = released}};
    VjFrame frame = {.op = OP_ECHO, .tag = tag};

    vj_out_encode(&out.out, &frame);
    return out;
}

static void order(void **state)
{
    static const uint64_t expected[] = {1, 4, 3, 6};
    g_autofree uint8_t *bytes = g_malloc0(LONG_BYTES);
    VjCredentialsFiles files = {.insecure = true};
    Other o = {.start_task.run = start, .close_task.run = end};
    VjLoop *loop = vj_loop_new("test", false, NULL);
    OtherOut outs[7];
    int fds[2];

    (void)state;
    assert_non_null(loop);
    assert_true(vj_credentials_load(-1, &files, &o.credentials, NULL));
    vj_mutex_init(&o.lock, VJ_RANK_BASE, "other");
    vj_cond_init(&o.changed);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(fcntl(fds[1], F_SETFL, 0), 0);
    raw_set_timeout(fds[1]);
    o.conn = vj_conn_new(loop, fds[0], &callbacks, &o, &o.counters);
    for (unsigned i = 1; i <= 6; i++) {
        outs[i] = out_of(&o, i, vj_slice(bytes, i == 1 ? LONG_BYTES : 0));
    }
    vj_conn_send(o.conn, &outs[5].out); /* nobody is there yet */
    wait_for(&o, &o.dropped, 1);
    vj_loop_post(loop, &o.start_task);
    wait_for(&o, &o.ready, 1);

    vj_conn_send(o.conn, &outs[1].out); /* part of it goes out */
    vj_conn_send(o.conn, &outs[2].out);
    vj_conn_send(o.conn, &outs[3].out);
    vj_conn_send_first(o.conn, &outs[4].out);
    assert_true(vj_conn_has_output(o.conn));
    assert_false(vj_conn_take_back(o.conn, &outs[1].out));
    assert_true(vj_conn_take_back(o.conn, &outs[2].out));
    assert_false(vj_conn_take_back(o.conn, &outs[2].out));
    vj_conn_send(o.conn, &outs[6].out);
    for (unsigned i = 0; i < G_N_ELEMENTS(expected); i++) {
        assert_int_equal(raw_recv_frame(fds[1], NULL).tag, expected[i]);
    }
    wait_for(&o, &o.sent, 4);
    assert_int_equal(o.dropped, 1);
    assert_false(vj_conn_has_output(o.conn));
    assert_int_equal(o.counters.sent_bytes, LONG_BYTES + 4 * VJ_FRAME_HEAD_BYTES);

    vj_conn_send(o.conn, &outs[1].out);
    vj_conn_send_first(o.conn, &outs[2].out);
    vj_loop_post(loop, &o.close_task);
    wait_for(&o, &o.closed, 1);
    wait_for(&o, &o.dropped, 3);
    assert_int_equal(o.sent, 4);
    vj_conn_unref(o.conn);
    vj_loop_free(loop);
    close(fds[1]);
    vj_credentials_unref(o.credentials);
    vj_cond_clear(&o.changed);
    vj_mutex_clear(&o.lock);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(order),
};

VJ_TEST_MAIN(tests)
