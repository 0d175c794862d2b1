/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-client-server.c - a client and a server that keep the protocol, in one process
 *
 * What is sent and answered runs over a unix socket, over tcp and over TLS; the rest,
 * which does not depend on the socket, over a unix socket.
 */
#include "rpc-test.h"

#include <sys/wait.h>

#define NEVER ((int64_t)3600 * TEST_SECOND)

static void begin(RpcTest *t, void **state)
{
    test_begin(t, *state);
    test_start_server(t);
}

/* ---- calls ------------------------------------------------------------------------- */

static void one_call(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    g_autoptr(VjRpcCall) call = test_call(OP_ECHO, "is there anybody?");

    begin(&t, state);
    c = test_client(&t);
    assert_false(vj_rpc_client_is_connected(c));
    assert_int_equal(vj_rpc_run(c, call), 0);
    expect_reply(call, "is there anybody?");
    assert_null(call->reply_bulk);
    assert_true(vj_rpc_client_is_connected(c));
    expect_count(&t, &t.hellos, 1);
    expect_count(&t, &t.gone, 0);
    vj_rpc_client_free(c);
    test_wait(&t, &t.gone, 1);
    expect_count(&t, &t.lost, 1);
    test_end(&t);
}

static void statuses(void **state)
{
    static const struct {
        uint16_t op;
        int rc;
        const char *reply;
    } cases[] = {
        {OP_FAIL, -ENOENT, "why"},
        {OP_OTHER_ROLE, -EOPNOTSUPP, ""},
        {0x7777, -EOPNOTSUPP, ""},
        {OP_QUICK, 0, "what"},
    };
    RpcTest t;
    VjRpcClient *c;

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(VjRpcCall) call = test_call(cases[i].op, "what");

        assert_int_equal(vj_rpc_run(c, call), cases[i].rc);
        expect_reply(call, cases[i].reply);
    }
    expect_count(&t, &t.connected, 1); /* none of them ended the connection */
    expect_count(&t, &t.lost, 0);
    vj_rpc_client_free(c);
    test_end(&t);
}

static void out_of_order(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *calls[3];

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), '\0'};

        calls[i] = test_submit(&t, c, test_call(OP_WAIT, name));
    }
    test_wait(&t, &t.held.length, 3);
    for (unsigned i = 0; i < 3; i++) {
        expect_count(&t, &t.done, i);
        test_let_go(&t, false);
        test_wait(&t, &t.done, i + 1);
        assert_true(calls[2 - i]->is_answered);
    }
    for (unsigned i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), '\0'};

        expect_reply(calls[i], name);
        vj_rpc_call_unref(calls[i]);
    }
    vj_rpc_client_free(c);
    test_end(&t);
}

/* More than may be in flight: the others wait, and none is sent before there is room. */
static void thousands(void **state)
{
    enum { COUNT = 2 * VJ_RPC_IN_FLIGHT_MAX + 500 };
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall **calls = g_new0(VjRpcCall *, COUNT);

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < COUNT; i++) {
        g_autofree char *name = g_strdup_printf("%u", i);

        calls[i] = test_submit(&t, c, test_call(OP_WAIT, name));
    }
    for (unsigned i = 0; i < COUNT; i++) {
        test_wait(&t, &t.held.length, MIN(VJ_RPC_IN_FLIGHT_MAX, COUNT - i));
        assert_true(test_counted(&t, &t.held.length) <= VJ_RPC_IN_FLIGHT_MAX);
        test_let_go(&t, i % 2 == 0);
    }
    test_wait(&t, &t.done, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        g_autofree char *name = g_strdup_printf("%u", i);

        assert_int_equal(calls[i]->rc, 0);
        expect_reply(calls[i], name);
        vj_rpc_call_unref(calls[i]);
    }
    expect_count(&t, &t.connected, 1);
    vj_rpc_client_free(c);
    g_free(calls);
    test_end(&t);
}

/* The node says in its answer to hello how many it takes. */
static void limits_of_the_peer(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *calls[9];

    test_begin(&t, *state);
    t.hello_reply.requests_max = 3;
    t.hello_reply.bytes_max = 5;
    test_start_server(&t);
    c = test_client(&t);
    for (unsigned i = 0; i < 9; i++) {
        /* Three of one byte; then one that has all the room by itself. */
        calls[i] = test_submit(&t, c, test_call(OP_WAIT, i < 6 ? "x" : "xxxxxxxxx"));
    }
    for (unsigned i = 0; i < 9; i++) {
        unsigned held = i < 6 ? MIN(3, 6 - i) : 1;
        g_autoptr(VjRpcCall) other = test_call(OP_QUICK, NULL);

        test_wait(&t, &t.held.length, held);
        expect_count(&t, &t.held.length, held);
        test_let_go(&t, true);
        test_wait(&t, &t.done, i + 1);
    }
    for (unsigned i = 0; i < 9; i++) {
        assert_int_equal(calls[i]->rc, 0);
        vj_rpc_call_unref(calls[i]);
    }
    vj_rpc_client_free(c);
    test_end(&t);
}

static VjBuf *bulk_new(size_t bytes, uint64_t seed)
{
    VjBuf *bulk = vj_buf_new(bytes);
    VjRng rng;

    vj_rng_init(&rng, seed);
    vj_rng_bytes(&rng, bulk->data, bytes);
    bulk->len = bytes;
    return bulk;
}

static void bulks(void **state)
{
    static const uint32_t lengths[] = {
        1,      1,      47,        4096,      8191,      8192,      16384,   16385,
        262143, 262144, (1 << 20), (1 << 20), (4 << 20), (4 << 20), 5000001, (32 << 20)};
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *calls[G_N_ELEMENTS(lengths)];

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < G_N_ELEMENTS(calls); i++) {
        uint32_t bytes = lengths[i];
        VjRpcCall *call = test_call(OP_ECHO, i % 3 == 0 ? NULL : "with a message");

        call->bulk = bulk_new(bytes, i);
        call->bulk_bytes = bytes;
        call->bulk_max = bytes;
        call->into = i % 2 == 0 ? vj_buf_new(bytes) : NULL;
        calls[i] = test_submit(&t, c, call);
    }
    test_wait(&t, &t.done, G_N_ELEMENTS(calls));
    for (unsigned i = 0; i < G_N_ELEMENTS(calls); i++) {
        VjRpcCall *call = calls[i];

        assert_int_equal(call->rc, 0);
        expect_reply(call, i % 3 == 0 ? "" : "with a message");
        assert_int_equal(call->reply_bulk_bytes, call->bulk_bytes);
        assert_true(call->into == NULL || call->reply_bulk == call->into);
        assert_memory_equal(call->reply_bulk->data, call->bulk->data, call->bulk_bytes);
        vj_rpc_call_unref(call);
    }
    vj_rpc_client_free(c);
    test_end(&t);
}

/* What goes out is a part of one buffer, and another one behind it. */
static void bulks_of_two_parts(void **state)
{
    static const uint32_t lengths[][2] = {
        {1, 0}, {1, 1}, {47, 8000}, {100001, 24}, {1 << 20, 1 << 20}, {5000001, 9999},
    };
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *calls[2 * G_N_ELEMENTS(lengths)];
    VjBuf *holder = bulk_new(6000000, 3);

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < G_N_ELEMENTS(calls); i++) {
        VjRpcCall *call = test_call(OP_ECHO, i % 2 == 0 ? NULL : "with a message");

        call->lead = vj_buf_ref(holder);
        call->lead_data = holder->data + 77 + i;
        call->lead_bytes = lengths[i / 2][0];
        call->bulk_bytes = lengths[i / 2][1];
        call->bulk = call->bulk_bytes > 0 ? bulk_new(call->bulk_bytes, i) : NULL;
        call->bulk_max = call->lead_bytes + call->bulk_bytes;
        calls[i] = test_submit(&t, c, call);
    }
    test_wait(&t, &t.done, G_N_ELEMENTS(calls));
    for (unsigned i = 0; i < G_N_ELEMENTS(calls); i++) {
        VjRpcCall *call = calls[i];

        assert_int_equal(call->rc, 0);
        expect_reply(call, i % 2 == 0 ? "" : "with a message");
        assert_int_equal(call->reply_bulk_bytes, call->bulk_max);
        assert_memory_equal(call->reply_bulk->data, call->lead_data, call->lead_bytes);
        if (call->bulk_bytes > 0) {
            assert_memory_equal(call->reply_bulk->data + call->lead_bytes,
                                call->bulk->data, call->bulk_bytes);
        }
        vj_rpc_call_unref(call);
    }
    vj_rpc_client_free(c);
    test_end(&t);
    assert_int_equal(holder->refs, 1); /* nobody holds it any more */
    vj_buf_unref(holder);
}

static void traffic(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcTraffic there;
    VjRpcServerStats here;
    uint64_t requests, failures, busy_us;
    g_autoptr(GByteArray) hello = test_hello_message();
    g_autoptr(GByteArray) hello_reply = g_byte_array_new();

    begin(&t, state);
    vj_hello_reply_encode(hello_reply, &t.hello_reply);
    c = test_client(&t);
    for (unsigned i = 0; i < 3; i++) {
        g_autoptr(VjRpcCall) call = test_call(i < 2 ? OP_ECHO : OP_FAIL, "12345");

        call->bulk = i == 0 ? bulk_new(1000, 1) : NULL;
        call->bulk_bytes = call->bulk_max = i == 0 ? 1000 : 0;
        assert_int_equal(vj_rpc_run(c, call), i < 2 ? 0 : -ENOENT);
    }
    vj_rpc_client_traffic(c, &there);
    vj_rpc_server_stats(t.server, &here);
    assert_int_equal(there.calls, 3);
    assert_int_equal(there.connects, 1);
    assert_int_equal(there.losses, 0);
    assert_int_equal(there.sent_bytes, 4 * VJ_FRAME_HEAD_BYTES + hello->len + 15 + 1000);
    assert_int_equal(there.received_bytes,
                     4 * VJ_FRAME_HEAD_BYTES + hello_reply->len + 10 + 3 + 1000);
    assert_int_equal(here.received_bytes, there.sent_bytes);
    assert_int_equal(here.connections, 1);
    assert_int_equal(here.accepted, 1);
    assert_int_equal(here.requests, 3);
    assert_int_equal(here.failures, 1);
    assert_int_equal(here.protocol_errors, 0);
    vj_rpc_server_op_stats(t.server, 0, &requests, &failures, &busy_us);
    assert_int_equal(requests, 2);
    assert_int_equal(failures, 0);
    vj_rpc_server_op_stats(t.server, 4, &requests, &failures, &busy_us);
    assert_int_equal(requests, 1);
    assert_int_equal(failures, 1);
    vj_rpc_client_free(c);
    test_wait(&t, &t.gone, 1);
    vj_rpc_server_stats(t.server, &here);
    assert_int_equal(here.sent_bytes, there.received_bytes);
    assert_int_equal(here.held_bytes, 0);
    test_end(&t);
}

/* A request that is to run behind earlier ones does, and threads are free meanwhile. */
static void behind_earlier(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *before[2], *behind[8], *later;

    test_begin(&t, *state);
    t.config.workers = 1;
    test_start_server(&t);
    c = test_client(&t);
    before[0] = test_submit(&t, c, test_call(OP_WAIT, "first"));
    before[1] = test_submit(&t, c, test_call(OP_WAIT, "second"));
    for (unsigned i = 0; i < 8; i++) {
        behind[i] = test_submit(&t, c, test_call(OP_BEHIND, "behind"));
    }
    later = test_submit(&t, c, test_call(OP_ECHO, "later"));
    test_wait(&t, &t.done, 1);
    assert_true(later->is_answered);
    test_let_go(&t, false);
    test_wait(&t, &t.done, 2);
    assert_true(before[1]->is_answered && !before[0]->is_answered);
    test_let_go(&t, true);
    test_wait(&t, &t.done, 11);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(behind[i]->rc, 0);
        vj_rpc_call_unref(behind[i]);
    }
    vj_rpc_call_unref(before[0]);
    vj_rpc_call_unref(before[1]);
    vj_rpc_call_unref(later);
    vj_rpc_client_free(c);
    test_end(&t);
}

/* ---- deadlines and cancelling ------------------------------------------------------ */

/* The server has read all that was sent before. */
static void pass_by(RpcTest *t, VjRpcClient *c)
{
    g_autoptr(VjRpcCall) call = test_call(OP_QUICK, NULL);

    (void)t;
    assert_int_equal(vj_rpc_run(c, call), 0);
}

static void deadline(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *late = test_call(OP_WAIT, "late"), *long_one = test_call(OP_WAIT, "long");
    VjRpcRequest *held;

    begin(&t, state);
    c = test_client(&t);
    long_one->deadline_us = vj_clock_mono_us() + NEVER;
    test_submit(&t, c, long_one);
    test_wait(&t, &t.held.length, 1);
    late->deadline_us = vj_clock_mono_us() + 100 * 1000;
    test_submit(&t, c, late);
    test_wait(&t, &t.done, 1);
    assert_int_equal(late->rc, -ETIMEDOUT);
    assert_false(late->is_answered);
    assert_true(vj_clock_mono_us() >= late->deadline_us);
    pass_by(&t, c);
    test_wait(&t, &t.held.length, 2);
    held = test_held(&t, false);
    assert_true(vj_rpc_request_is_canceled(held));
    assert_true(vj_rpc_request_deadline_us(held) < vj_clock_mono_us() + TEST_SECOND);
    held = test_held(&t, true);
    assert_false(vj_rpc_request_is_canceled(held));
    assert_true(vj_rpc_request_deadline_us(held) > vj_clock_mono_us() + NEVER / 2);
    test_let_go(&t, false); /* an answer that comes too late is no fault */
    test_let_go(&t, true);
    test_wait(&t, &t.done, 2);
    expect_reply(long_one, "long");
    expect_count(&t, &t.lost, 0);
    vj_rpc_call_unref(late);
    vj_rpc_call_unref(long_one);
    vj_rpc_client_free(c);
    test_end(&t);
}

/* One that is late when a thread takes it up is not begun. */
static void late_in_the_queue(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    g_autoptr(VjRpcCall) past = test_call(OP_ECHO, NULL);
    uint64_t requests, failures, busy_us;

    begin(&t, state);
    c = test_client(&t);
    past->deadline_us = vj_clock_mono_us() - 1;
    assert_int_equal(vj_rpc_run(c, past), -ETIMEDOUT);
    expect_count(&t, &t.hellos, 0); /* nothing was sent */
    pass_by(&t, c);
    vj_rpc_server_op_stats(t.server, 0, &requests, &failures, &busy_us);
    assert_int_equal(requests, 0);
    vj_rpc_client_free(c);
    test_end(&t);
}

static void cancel(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *call, *other;
    g_autoptr(VjRpcCall) answered = test_call(OP_ECHO, "answered");

    begin(&t, state);
    c = test_client(&t);
    assert_int_equal(vj_rpc_run(c, answered), 0);
    vj_rpc_cancel(c, answered);
    assert_int_equal(answered->rc, 0);
    call = test_submit(&t, c, test_call(OP_WAIT, "call"));
    other = test_submit(&t, c, test_call(OP_WAIT, "other"));
    test_wait(&t, &t.held.length, 2);
    vj_rpc_cancel(c, call);
    expect_count(&t, &t.done, 1); /* before it returned */
    assert_int_equal(call->rc, -ECANCELED);
    vj_rpc_cancel(c, call);
    expect_count(&t, &t.done, 1);
    pass_by(&t, c);
    assert_true(vj_rpc_request_is_canceled(test_held(&t, true)));
    assert_false(vj_rpc_request_is_canceled(test_held(&t, false)));
    test_let_go(&t, true);
    test_let_go(&t, true);
    test_wait(&t, &t.done, 2);
    expect_reply(other, "other");
    vj_rpc_call_unref(call);
    vj_rpc_call_unref(other);
    vj_rpc_client_free(c);
    test_end(&t);
}

typedef struct Runner {
    VjCancel cancel;
    VjRpcClient *client;
    VjRpcCall *call;
    int rc;
} Runner;

static gpointer runner_main(gpointer opaque)
{
    Runner *r = opaque;

    vj_cancel_enter(&r->cancel);
    r->rc = vj_rpc_run(r->client, r->call);
    vj_cancel_leave();
    return NULL;
}

static void runner_fired(void **state)
{
    RpcTest t;
    Runner fired = {.rc = 1}, slow = {.rc = 1};
    GThread *threads[2];

    begin(&t, state);
    fired.client = slow.client = test_client(&t);
    fired.call = test_call(OP_WAIT, NULL);
    slow.call = test_call(OP_WAIT, NULL);
    vj_cancel_init(&fired.cancel);
    vj_cancel_init(&slow.cancel);
    vj_cancel_reset(&slow.cancel, 1, 50 * 1000);
    threads[0] = g_thread_new("fired", runner_main, &fired);
    test_wait(&t, &t.held.length, 1);
    vj_cancel_fire(&fired.cancel, 1);
    g_thread_join(threads[0]);
    assert_int_equal(fired.rc, -ECANCELED);
    threads[1] = g_thread_new("slow", runner_main, &slow);
    g_thread_join(threads[1]);
    assert_int_equal(slow.rc, -ETIMEDOUT);
    pass_by(&t, slow.client);
    test_wait(&t, &t.held.length, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(vj_rpc_request_is_canceled(test_held(&t, true)));
        test_let_go(&t, true);
    }
    vj_rpc_client_free(slow.client);
    vj_rpc_call_unref(fired.call);
    vj_rpc_call_unref(slow.call);
    vj_cancel_clear(&fired.cancel);
    vj_cancel_clear(&slow.cancel);
    test_end(&t);
}

static bool is_why(VjRpcClient *c, const char *part)
{
    g_autofree char *why = vj_rpc_client_why(c);

    return why != NULL && strstr(why, part) != NULL;
}

/* The reason comes with the next attempt, if there is none yet. */
static void expect_why(VjRpcClient *c, const char *part)
{
    g_autofree char *why = NULL;

    while ((why = vj_rpc_client_why(c)) == NULL) {
        g_thread_yield();
    }
    assert_true(is_why(c, part));
}

/* What waits, too. */
static void without_a_server(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    g_autoptr(VjRpcCall) impatient = test_call(OP_ECHO, NULL);
    g_autoptr(VjRpcCall) late = test_call(OP_ECHO, NULL);
    VjRpcCall *canceled, *patient, *freed;

    test_begin(&t, *state);
    c = test_client(&t);
    impatient->waits_for_connection = false;
    assert_int_equal(vj_rpc_run(c, impatient), -ENOTCONN);
    expect_why(c, "No such file");
    late->deadline_us = vj_clock_mono_us() + 30 * 1000;
    assert_int_equal(vj_rpc_run(c, late), -ETIMEDOUT);
    canceled = test_submit(&t, c, test_call(OP_ECHO, NULL));
    vj_rpc_cancel(c, canceled);
    expect_count(&t, &t.done, 1);
    assert_int_equal(canceled->rc, -ECANCELED);
    patient = test_submit(&t, c, test_call(OP_ECHO, "patient"));
    test_start_server(&t);
    test_wait(&t, &t.done, 2);
    assert_int_equal(patient->rc, 0);
    assert_null(vj_rpc_client_why(c));
    expect_reply(patient, "patient");
    freed = test_submit(&t, c, test_call(OP_WAIT, NULL));
    test_wait(&t, &t.held.length, 1);
    vj_rpc_client_free(c);
    expect_count(&t, &t.done, 3);
    assert_int_equal(freed->rc, -ECANCELED);
    test_let_go(&t, true);
    vj_rpc_call_unref(canceled);
    vj_rpc_call_unref(patient);
    vj_rpc_call_unref(freed);
    test_end(&t);
}

/* ---- losses ------------------------------------------------------------------------ */

static void server_restarts(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcTraffic traffic_of;

    begin(&t, state);
    c = test_client(&t);
    for (unsigned round = 1; round <= 5; round++) {
        g_autoptr(VjRpcCall) call = test_call(OP_ECHO, "again");

        assert_int_equal(vj_rpc_run(c, call), 0);
        expect_count(&t, &t.connected, round);
        test_stop_server(&t);
        test_wait(&t, &t.lost, round);
        test_start_server(&t);
    }
    vj_rpc_client_traffic(c, &traffic_of);
    assert_int_equal(traffic_of.connects, 5);
    assert_int_equal(traffic_of.losses, 5);
    expect_count(&t, &t.gone, 5);
    vj_rpc_client_free(c);
    test_end(&t);
}

static gpointer stop_server(gpointer opaque)
{
    test_stop_server(opaque);
    return NULL;
}

/* Its requests are answered by nobody; that they are gone is said once. */
static void server_ends_with_requests(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *calls[100];
    GThread *stopper;
    g_autoptr(VjRpcCall) impatient = test_call(OP_ECHO, NULL);

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < 100; i++) {
        calls[i] = test_submit(&t, c, test_call(OP_WAIT, NULL));
    }
    test_wait(&t, &t.held.length, 100);
    stopper = g_thread_new("stopper", stop_server, &t);
    test_wait(&t, &t.done, 100);
    test_wait(&t, &t.lost, 1);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(calls[i]->rc, -ECONNRESET);
        while (!vj_rpc_request_is_canceled(test_held(&t, true))) {
            g_thread_yield(); /* the client may learn of it a moment earlier */
        }
        test_let_go(&t, true);
        vj_rpc_call_unref(calls[i]);
    }
    g_thread_join(stopper);
    impatient->waits_for_connection = false;
    assert_int_equal(vj_rpc_run(c, impatient), -ENOTCONN);
    test_start_server(&t); /* that call has begun a connection */
    test_wait(&t, &t.connected, 2);
    vj_rpc_client_free(c);
    test_end(&t);
}

/* Also where several addresses were tried, and after what the peer says itself. */
static void why_not(void **state)
{
    RpcTest t;
    VjRpcClient *c;

    (void)state;
    test_begin(&t, TEST_TCP);
    test_start_server(&t);
    test_stop_server(&t); /* nobody listens at its port */
    c = test_client(&t);
    assert_null(vj_rpc_client_why(c));
    vj_rpc_client_connect(c);
    expect_why(c, "127.0.0.1");
    expect_why(c, "refused");
    t.hello_rc = -ENODATA;
    t.says_why = true;
    test_start_server(&t);
    test_wait(&t, &t.connected, 1);
    while (!is_why(c, "told you so")) {
        g_thread_yield();
    }
    test_stop_server(&t);
    while (!is_why(c, "refused")) {
        g_thread_yield();
    }
    vj_rpc_client_free(c);
    test_end(&t);
}

/* A name has several addresses, and they may change while nobody answers. */
static void by_name(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    g_autoptr(VjRpcCall) call = test_call(OP_ECHO, "by name");

    (void)state;
    test_begin(&t, TEST_TCP);
    t.host = "localhost";
    test_start_server(&t);
    test_stop_server(&t);
    c = test_client(&t);
    vj_rpc_client_connect(c);
    expect_why(c, "localhost"); /* before the next attempt the resolver is asked again */
    test_start_server(&t);
    assert_int_equal(vj_rpc_run(c, call), 0);
    expect_reply(call, "by name");
    vj_rpc_client_free(c);
    test_end(&t);
}

static void no_such_name(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    g_autoptr(VjRpcCall) call = test_call(OP_ECHO, NULL);

    (void)state;
    test_begin(&t, TEST_TCP);
    t.host = "no-such-name.invalid";
    t.port = 1;
    c = test_client(&t);
    call->deadline_us = vj_clock_mono_us() + 50 * 1000;
    assert_int_equal(vj_rpc_run(c, call), -ETIMEDOUT);
    vj_rpc_client_free(c); /* also while the resolver is being asked */
    test_end(&t);
}

/* The loop may be at what a client was asked for while the client is ended. */
static void ends_at_once(void **state)
{
    enum { COUNT = 3000 };
    RpcTest t;
    VjRpcClient *other;

    (void)state;
    test_begin(&t, NULL);
    other = test_client(&t); /* so the loop goes on */
    for (unsigned i = 0; i < COUNT; i++) {
        VjRpcClient *c = test_client(&t);
        VjRpcCall *call = test_submit(&t, c, test_call(OP_ECHO, NULL));

        for (unsigned spin = 0; spin < i % 64; spin++) {
            g_thread_yield();
        }
        vj_rpc_client_free(c);
        assert_true(call->rc < 0);
        vj_rpc_call_unref(call);
    }
    test_wait(&t, &t.done, COUNT);
    vj_rpc_client_free(other);
    test_end(&t);
}

static void connect_without_a_call(void **state)
{
    RpcTest t;
    VjRpcClient *c;

    test_begin(&t, *state);
    c = test_client(&t);
    vj_rpc_client_connect(c);
    test_start_server(&t);
    test_wait(&t, &t.connected, 1);
    vj_rpc_client_connect(c); /* it is */
    pass_by(&t, c);
    expect_count(&t, &t.connected, 1);
    vj_rpc_client_free(c);
    test_end(&t);
}

static void refused_hello(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    g_autoptr(VjRpcCall) call = test_call(OP_ECHO, NULL);
    VjRpcTraffic traffic_of;

    begin(&t, state);
    t.hello_rc = -EACCES;
    c = test_client(&t);
    vj_rpc_client_connect(c);
    test_wait(&t, &t.connected, 2); /* it tries again */
    expect_count(&t, (const unsigned *)&t.last_status, (unsigned)-EACCES);
    assert_false(vj_rpc_client_is_connected(c));
    expect_why(c, "refuses");
    vj_mutex_lock(&t.lock);
    t.hello_rc = 0;
    vj_mutex_unlock(&t.lock);
    assert_int_equal(vj_rpc_run(c, call), 0);
    vj_rpc_client_traffic(c, &traffic_of);
    assert_int_equal(traffic_of.connects, 1);
    assert_int_equal(traffic_of.losses, 0);
    expect_count(&t, &t.lost, 0);
    vj_rpc_client_free(c);
    test_wait(&t, &t.gone, 1);
    expect_count(&t, &t.gone, 1); /* those who were refused are not gone */
    test_end(&t);
}

/* ---- limits ------------------------------------------------------------------------ */

/* The reply comes, then the end. */
static void too_large(void **state)
{
    static const struct {
        uint16_t op;
        uint32_t message_bytes, bulk_bytes;
        int rc;
    } cases[] = {
        {OP_QUICK, SMALL_MESSAGE_MAX + 1, 0, -EFBIG},
        {OP_QUICK, 0, (1 << 20) + 1, -EFBIG},
        {OP_FAIL, 0, 1, -EFBIG},
        {0x7777, 0, 100 << 10, -EOPNOTSUPP},
        {OP_OTHER_ROLE, 100 << 10, 0, -EOPNOTSUPP},
    };
    RpcTest t;
    VjRpcClient *c;

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(VjRpcCall) call = test_call(cases[i].op, NULL);

        call->message = g_byte_array_new();
        g_byte_array_set_size(call->message, cases[i].message_bytes);
        if (cases[i].message_bytes > 0) {
            memset(call->message->data, 0, cases[i].message_bytes);
        }
        if (cases[i].bulk_bytes > 0) {
            call->bulk = bulk_new(cases[i].bulk_bytes, 1);
            call->bulk_bytes = cases[i].bulk_bytes;
        }
        assert_int_equal(vj_rpc_run(c, call), cases[i].rc);
        assert_true(call->is_answered);
        test_wait(&t, &t.lost, i + 1);
    }
    pass_by(&t, c);
    vj_rpc_client_free(c);
    test_end(&t);
}

/* A peer that has no room for more requests is not read, and none of them is refused. */
static void bytes_in_flight(void **state)
{
    RpcTest t;
    VjRpcClient *clients[2];
    VjRpcCall *calls[12];
    bool is_one = *state != NULL;
    VjRpcServerStats stats;

    test_begin(&t, NULL);
    if (is_one) {
        t.config.connection_bytes_max = 1 << 20;
    } else {
        t.config.bytes_max = 1 << 20;
    }
    test_start_server(&t);
    clients[0] = test_client(&t);
    clients[1] = is_one ? clients[0] : test_client(&t);
    for (unsigned i = 0; i < G_N_ELEMENTS(calls); i++) {
        VjRpcCall *call = test_call(OP_WAIT, NULL);

        call->bulk = bulk_new(300 << 10, i);
        call->bulk_bytes = call->bulk_max = 300 << 10;
        calls[i] = test_submit(&t, clients[i % 2], call);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(calls); i++) {
        test_wait(&t, &t.held.length, MIN(3, G_N_ELEMENTS(calls) - i));
        assert_true(test_counted(&t, &t.held.length) <= 3);
        vj_rpc_server_stats(t.server, &stats);
        /* The reply of the last one may not be out. */
        assert_true(stats.held_bytes <= (1 << 20) + (301 << 10));
        test_let_go(&t, true);
        test_wait(&t, &t.done, i + 1);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(calls); i++) {
        assert_int_equal(calls[i]->rc, 0);
        assert_memory_equal(calls[i]->reply_bulk->data, calls[i]->bulk->data, 300 << 10);
        vj_rpc_call_unref(calls[i]);
    }
    vj_rpc_client_free(clients[0]);
    if (!is_one) {
        vj_rpc_client_free(clients[1]);
    }
    test_end(&t);
}

/* There is room for one of them, and each gets its turn. */
static void long_bulks_in_turn(void **state)
{
    enum { COUNT = 6, BYTES = 900 << 10 };
    RpcTest t;
    VjRpcClient *clients[COUNT];
    VjRpcCall *calls[2 * COUNT];
    VjRpcServerStats stats;

    test_begin(&t, *state);
    t.config.bytes_max = 1 << 20;
    test_start_server(&t);
    for (unsigned i = 0; i < 2 * COUNT; i++) {
        VjRpcCall *call = test_call(OP_ECHO, NULL);

        if (i < COUNT) {
            clients[i] = test_client(&t);
        }
        call->bulk = bulk_new(BYTES, i);
        call->bulk_bytes = call->bulk_max = BYTES;
        calls[i] = test_submit(&t, clients[i % COUNT], call);
    }
    while (test_counted(&t, &t.done) < 2 * COUNT) {
        g_thread_yield();
        vj_rpc_server_stats(t.server, &stats);
        /* The first one may go beyond the limit. */
        assert_true(stats.held_bytes <= (1 << 20) + BYTES + 10000);
    }
    for (unsigned i = 0; i < 2 * COUNT; i++) {
        assert_int_equal(calls[i]->rc, 0);
        assert_memory_equal(calls[i]->reply_bulk->data, calls[i]->bulk->data, BYTES);
        vj_rpc_call_unref(calls[i]);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        vj_rpc_client_free(clients[i]);
    }
    test_end(&t);
}

/* One request may always be read. */
static void larger_than_the_limit(void **state)
{
    RpcTest t;
    VjRpcClient *c;

    test_begin(&t, *state);
    t.config.connection_bytes_max = t.config.bytes_max = 1000;
    test_start_server(&t);
    c = test_client(&t);
    for (unsigned i = 0; i < 3; i++) {
        g_autoptr(VjRpcCall) call = test_call(OP_ECHO, "large");

        call->bulk = bulk_new(100000, i);
        call->bulk_bytes = call->bulk_max = 100000;
        assert_int_equal(vj_rpc_run(c, call), 0);
        assert_memory_equal(call->reply_bulk->data, call->bulk->data, 100000);
    }
    vj_rpc_client_free(c);
    test_end(&t);
}

static void connection_limit(void **state)
{
    RpcTest t;
    VjRpcClient *clients[3];
    VjRpcServerStats stats;
    g_autoptr(VjRpcCall) call = test_call(OP_ECHO, NULL);

    test_begin(&t, *state);
    t.config.connections_max = 2;
    test_start_server(&t);
    for (unsigned i = 0; i < 3; i++) {
        clients[i] = test_client(&t);
        if (i < 2) {
            pass_by(&t, clients[i]);
        }
    }
    call->deadline_us = vj_clock_mono_us() + 100 * 1000;
    assert_int_equal(vj_rpc_run(clients[2], call), -ETIMEDOUT);
    vj_rpc_server_stats(t.server, &stats);
    assert_int_equal(stats.connections, 2);
    assert_true(stats.refused > 0);
    vj_rpc_client_free(clients[0]);
    pass_by(&t, clients[2]);
    vj_rpc_client_free(clients[1]);
    vj_rpc_client_free(clients[2]);
    test_end(&t);
}

static void drain(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *held;
    g_autoptr(VjRpcCall) refused = test_call(OP_ECHO, "no more");
    g_autoptr(VjRpcCall) bulky = test_call(OP_ECHO, NULL);

    begin(&t, state);
    c = test_client(&t);
    held = test_submit(&t, c, test_call(OP_WAIT, "held"));
    test_wait(&t, &t.held.length, 1);
    assert_false(vj_rpc_server_drain(t.server, vj_clock_mono_us()));
    assert_int_equal(vj_rpc_run(c, refused), -ESHUTDOWN);
    bulky->bulk = bulk_new(1 << 20, 1);
    bulky->bulk_bytes = 1 << 20;
    assert_int_equal(vj_rpc_run(c, bulky), -ESHUTDOWN);
    test_let_go(&t, true);
    assert_true(vj_rpc_server_drain(t.server, INT64_MAX));
    test_wait(&t, &t.done, 1);
    expect_reply(held, "held");
    expect_count(&t, &t.lost, 0);
    vj_rpc_call_unref(held);
    vj_rpc_client_free(c);
    test_end(&t);
}

/* ---- the same client again --------------------------------------------------------- */

/* A connection that the client has lost and the server has not: what came by it is over
 * before the next one is answered. */
static void earlier_connection(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *held;
    g_autoptr(VjRpcCall) bad = test_call(OP_ECHO, "not into so little room");
    VjRpcCall *next;

    begin(&t, state);
    c = test_client(&t);
    held = test_submit(&t, c, test_call(OP_WAIT, "held"));
    test_wait(&t, &t.held.length, 1);
    bad->bulk = bulk_new(1000, 1);
    bad->bulk_bytes = 1000;
    bad->bulk_max = 999;
    assert_int_equal(vj_rpc_run(c, bad), -EPROTO);
    test_wait(&t, &t.lost, 1);
    assert_int_equal(held->rc, -ECONNRESET);
    next = test_submit(&t, c, test_call(OP_ECHO, "next"));
    /* The hello cannot be answered before the request of the earlier one is. */
    for (unsigned i = 0; i < 100; i++) {
        g_thread_yield();
        expect_count(&t, &t.hellos, 1);
    }
    test_let_go(&t, true);
    test_wait(&t, &t.done, 2);
    assert_int_equal(next->rc, 0);
    expect_count(&t, &t.hellos, 2);
    expect_count(&t, &t.gone, 1);
    vj_rpc_call_unref(held);
    vj_rpc_call_unref(next);
    vj_rpc_client_free(c);
    test_end(&t);
}

/* ---- many -------------------------------------------------------------------------- */

enum { CALLERS = 8, CALLS_OF_EACH = 200 };

typedef struct Caller {
    RpcTest *test;
    VjRpcClient *client;
    unsigned number;
} Caller;

static gpointer caller_main(gpointer opaque)
{
    const Caller *caller = opaque;

    for (unsigned i = 0; i < CALLS_OF_EACH; i++) {
        g_autofree char *name = g_strdup_printf("%u of %u", i, caller->number);
        g_autoptr(VjRpcCall) call = test_call(i % 2 == 0 ? OP_ECHO : OP_QUICK, name);
        uint32_t bytes = i % 3 == 0 ? 70000 : i;

        call->bulk = bulk_new(bytes, i);
        call->bulk_bytes = call->bulk_max = bytes;
        assert_int_equal(vj_rpc_run(caller->client, call), 0);
        expect_reply(call, name);
        assert_int_equal(call->reply_bulk_bytes, bytes);
        if (bytes > 0) {
            assert_memory_equal(call->reply_bulk->data, call->bulk->data, bytes);
        }
    }
    return NULL;
}

static void many_callers(void **state)
{
    RpcTest t;
    Caller callers[CALLERS];
    GThread *threads[CALLERS];
    VjRpcClient *clients[2];

    begin(&t, state);
    clients[0] = test_client(&t);
    clients[1] = test_client(&t);
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i] = (Caller){.test = &t, .client = clients[i % 2], .number = i};
        threads[i] = g_thread_new("caller", caller_main, &callers[i]);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        g_thread_join(threads[i]);
    }
    expect_count(&t, &t.connected, 2);
    vj_rpc_client_free(clients[0]);
    vj_rpc_client_free(clients[1]);
    test_end(&t);
}

/* Calls are begun, cancelled and late while the server comes and goes: each is answered
 * once, and nothing is left. */
static void storm(void **state)
{
    enum { COUNT = 1500 };
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall **calls = g_new0(VjRpcCall *, COUNT);
    VjRng rng;

    begin(&t, state);
    c = test_client(&t);
    vj_rng_init(&rng, 13);
    for (unsigned i = 0; i < COUNT; i++) {
        VjRpcCall *call = test_call(i % 2 == 0 ? OP_ECHO : OP_QUICK, "storm");

        call->waits_for_connection = vj_rng_below(&rng, 4) != 0;
        if (vj_rng_below(&rng, 8) == 0) {
            call->deadline_us = vj_clock_mono_us() + (int64_t)vj_rng_below(&rng, 3000);
        }
        call->bulk = bulk_new(1 + vj_rng_below(&rng, 100000), i);
        call->bulk_bytes = call->bulk_max = (uint32_t)call->bulk->len;
        call->into = vj_buf_new(call->bulk_max);
        calls[i] = test_submit(&t, c, call);
        if (vj_rng_below(&rng, 4) == 0) {
            vj_rpc_cancel(c, calls[vj_rng_below(&rng, i + 1)]);
        }
        if (i % 500 == 499) {
            test_stop_server(&t);
            test_start_server(&t);
        }
    }
    test_wait(&t, &t.done, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        VjRpcCall *call = calls[i];

        if (call->rc == 0) {
            assert_memory_equal(call->into->data, call->bulk->data, call->bulk_bytes);
        } else {
            assert_true(call->rc == -ECANCELED || call->rc == -ETIMEDOUT ||
                        call->rc == -ECONNRESET || call->rc == -ENOTCONN);
        }
        vj_rpc_call_unref(call);
    }
    expect_count(&t, &t.done, COUNT);
    vj_rpc_client_free(c);
    g_free(calls);
    test_end(&t);
}

/* A daemon forks before it connects; its parent may have had connections before. */
static void after_fork(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    pid_t child;
    int status;

#ifdef __SANITIZE_THREAD__
    skip(); /* it does not follow threads that begin after a fork */
#endif
    begin(&t, state);
    c = test_client(&t);
    pass_by(&t, c);
    vj_rpc_client_free(c);
    test_stop_server(&t);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        test_start_server(&t);
        c = test_client(&t);
        pass_by(&t, c);
        vj_rpc_client_free(c);
        test_stop_server(&t);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    test_end(&t);
}

#define OVER_ALL(test)                                                                   \
    {#test "_unix", test, NULL, NULL, NULL},                                             \
        {#test "_tcp", test, NULL, NULL, (void *)(uintptr_t)TEST_TCP},                   \
    {                                                                                    \
#test "_tls", test, NULL, NULL, (void *)(uintptr_t)TEST_TLS                      \
    }

static const struct CMUnitTest tests[] = {
    OVER_ALL(one_call),
    OVER_ALL(statuses),
    OVER_ALL(out_of_order),
    OVER_ALL(thousands),
    cmocka_unit_test(limits_of_the_peer),
    OVER_ALL(bulks),
    OVER_ALL(bulks_of_two_parts),
    OVER_ALL(traffic),
    cmocka_unit_test(behind_earlier),
    OVER_ALL(deadline),
    cmocka_unit_test(late_in_the_queue),
    OVER_ALL(cancel),
    cmocka_unit_test(runner_fired),
    cmocka_unit_test(without_a_server),
    OVER_ALL(server_restarts),
    OVER_ALL(server_ends_with_requests),
    cmocka_unit_test(ends_at_once),
    cmocka_unit_test(connect_without_a_call),
    cmocka_unit_test(why_not),
    cmocka_unit_test(by_name),
    cmocka_unit_test(no_such_name),
    OVER_ALL(refused_hello),
    OVER_ALL(too_large),
    {"bytes_of_a_connection", bytes_in_flight, NULL, NULL, (void *)(uintptr_t) "one"},
    {"bytes_of_all", bytes_in_flight, NULL, NULL, NULL},
    OVER_ALL(long_bulks_in_turn),
    OVER_ALL(larger_than_the_limit),
    cmocka_unit_test(connection_limit),
    OVER_ALL(drain),
    OVER_ALL(earlier_connection),
    OVER_ALL(many_callers),
    OVER_ALL(storm),
    cmocka_unit_test(after_fork),
};

VJ_TEST_MAIN(tests)
