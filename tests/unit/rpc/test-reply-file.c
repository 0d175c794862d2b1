/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-reply-file.c - bulks that go from a file to the socket, and have no checksum
 *
 * The server's GET answers with a part of the test's file: by vj_rpc_reply_file where
 * that can be, else by a copy.  It counts both.
 */
#include "raw-peer.h"

#include <fcntl.h>

#include "rpc/pipes-private.h"

#define FILE_BYTES ((size_t)3 << 20)
/* More than goes into the buffers of a socket. */
#define LONG_BYTES ((uint32_t)1000 * 1000)
/* More requests than the server has pipes. */
#define REQUESTS 70u
#define PIPES VJ_PIPES_MAX
/* A user may have no more of this length. */
#define PIPES_LEAST 2u

static struct {
    int fd;
    uint8_t *bytes; /* what it has */
    /* guarded by rpc_test->lock: */
    unsigned from_file, copied, answered, gone_before_end;
} file;

static void count_answer(unsigned *how)
{
    vj_mutex_lock(&rpc_test->lock);
    file.answered++;
    if (how != NULL) {
        ++*how;
    }
    vj_cond_broadcast(&rpc_test->changed);
    vj_mutex_unlock(&rpc_test->lock);
}

static void run_get(VjRpcRequest *r)
{
    VjWireGet m;
    VjBuf *bulk;
    int rc = vj_wire_get_decode(vj_rpc_request_message(r), &m);

    assert_int_equal(rc, 0);
    rc = vj_rpc_reply_file(r, file.fd, m.offset, m.len);
    if (rc == 0) {
        count_answer(&file.from_file);
    } else if (rc == -EOPNOTSUPP && m.offset + m.len > FILE_BYTES) {
        vj_rpc_reply(r, -EBADMSG, vj_slice(NULL, 0), NULL, 0); /* as pread(2) finds out */
        count_answer(NULL);
    } else if (rc == -EOPNOTSUPP) {
        bulk = vj_buf_new(m.len);
        memcpy(bulk->data, file.bytes + m.offset, m.len);
        vj_rpc_reply(r, 0, vj_slice(NULL, 0), bulk, m.len);
        vj_buf_unref(bulk);
        count_answer(&file.copied);
    } else {
        vj_rpc_reply(r, rc, vj_slice(NULL, 0), NULL, 0);
        count_answer(NULL);
    }
}

/* Its peer is gone when it replies, and what belongs to the peer is still in use. */
static void run_late(VjRpcRequest *r)
{
    int64_t until_us;

    vj_mutex_lock(&rpc_test->lock);
    rpc_test->blocked++;
    vj_cond_broadcast(&rpc_test->changed);
    vj_mutex_unlock(&rpc_test->lock);
    while (!vj_rpc_request_is_canceled(r)) {
        g_usleep(500); /* until the server has noticed; the test has a time limit */
    }
    vj_rpc_reply(r, 0, vj_slice(NULL, 0), NULL, 0);
    until_us = vj_clock_mono_us() + 200 * 1000; /* for another worker, to be wrong in */
    vj_mutex_lock(&rpc_test->lock);
    while (rpc_test->gone == 0 &&
           vj_cond_wait_until(&rpc_test->changed, &rpc_test->lock, until_us)) {
        continue;
    }
    file.gone_before_end = rpc_test->gone;
    file.answered++;
    vj_cond_broadcast(&rpc_test->changed);
    vj_mutex_unlock(&rpc_test->lock);
}

static const VjRpcHandler handlers[] = {
    HANDLER(VJ_OP_GET, VJ_ROLE_OBJECT, SMALL_MESSAGE_MAX, 0, run_get, .is_quick = false),
    HANDLER(OP_BLOCK, VJ_ROLE_OBJECT, SMALL_MESSAGE_MAX, 0, run_late, .is_quick = false),
    HANDLER(OP_ECHO, VJ_ROLE_OBJECT, SMALL_MESSAGE_MAX, 1 << 20, run_echo,
            .is_quick = false),
    {.op = 0},
};

static void begin(RpcTest *t, void **state)
{
    g_autofree char *path = NULL;
    VjRng rng;

    test_begin(t, *state);
    t->config.handlers = handlers;
    path = g_build_filename(t->directory, "file", NULL);
    memset(&file, 0, sizeof file);
    file.bytes = g_malloc(FILE_BYTES);
    vj_rng_init(&rng, 1);
    for (size_t i = 0; i < FILE_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = vj_rng_u64(&rng);

        memcpy(file.bytes + i, &word, sizeof word);
    }
    file.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(file.fd >= 0);
    assert_int_equal(vj_fd_write_all(file.fd, file.bytes, FILE_BYTES), 0);
    assert_int_equal(unlink(path), 0); /* as an object that is removed meanwhile */
    test_start_server(t);
}

static uint64_t held_bytes(RpcTest *t)
{
    VjRpcServerStats stats;

    vj_rpc_server_stats(t->server, &stats);
    return stats.held_bytes;
}

static void end(RpcTest *t)
{
    test_stop_server(t); /* asserts that nothing is held and no pipe is left */
    test_end(t);
    close(file.fd);
    g_free(file.bytes);
}

static GByteArray *get_message(uint64_t offset, uint32_t len)
{
    GByteArray *message = g_byte_array_new();
    VjWireGet m = {.object = {.id = 1, .nonce = 2}, .offset = offset, .len = len};

    vj_wire_get_encode(message, &m);
    return message;
}

static VjRpcCall *get_call(uint64_t offset, uint32_t len, bool may_be_bare)
{
    VjRpcCall *call = test_call(VJ_OP_GET, NULL);

    call->message = get_message(offset, len);
    call->bulk_max = len;
    call->may_be_bare = may_be_bare;
    return call;
}

static void expect_bytes(const VjRpcCall *call, uint64_t offset, uint32_t len)
{
    assert_int_equal(call->rc, 0);
    assert_int_equal(call->reply_bulk_bytes, len);
    assert_memory_equal(call->reply_bulk->data, file.bytes + offset, len);
}

static void get(VjRpcClient *c, uint64_t offset, uint32_t len, bool may_be_bare)
{
    g_autoptr(VjRpcCall) call = get_call(offset, len, may_be_bare);

    assert_int_equal(vj_rpc_run(c, call), 0);
    expect_bytes(call, offset, len);
}

/* ---- both sides keep the protocol -------------------------------------------------- */

static void ranges(void **state)
{
    static const struct {
        uint32_t offset, len;
        bool from_file;
    } cases[] = {
        {0, 16384, true},    {1, 16384, true},      {4095, 65537, true},
        {123, 700001, true}, {0, LONG_BYTES, true}, {FILE_BYTES - 20000, 20000, true},
        {0, 100, false},     {5, 16383, false},     {7, 2 << 20, false},
    };
    RpcTest t;
    VjRpcClient *c;
    unsigned from_file = 0;

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        get(c, cases[i].offset, cases[i].len, true);
        from_file += cases[i].from_file && !t.has_tls;
        test_wait(&t, &file.answered, i + 1);
        expect_count(&t, &file.from_file, from_file);
    }
    expect_count(&t, &t.connected, 1);
    vj_rpc_client_free(c);
    end(&t);
}

static void nobody_allows_it(void **state)
{
    RpcTest t;
    VjRpcClient *c;

    begin(&t, state);
    c = test_client(&t);
    get(c, 0, LONG_BYTES, false);
    test_wait(&t, &file.copied, 1);
    expect_count(&t, &file.from_file, 0);
    vj_rpc_client_free(c);
    end(&t);
}

/* It is found out before anything was sent. */
static void file_too_short(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    g_autoptr(VjRpcCall) call = get_call(FILE_BYTES - 100000, 100001, true);
    g_autoptr(VjRpcCall) behind = get_call(FILE_BYTES + 5, 20000, true);

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < PIPES + 1; i++) { /* and no pipe is lost by it */
        g_autoptr(VjRpcCall) again = get_call(FILE_BYTES - 100000, 100001, true);

        assert_int_equal(vj_rpc_run(c, again), -EBADMSG);
    }
    assert_int_equal(vj_rpc_run(c, call), -EBADMSG);
    assert_true(call->is_answered);
    assert_int_equal(vj_rpc_run(c, behind), -EBADMSG);
    get(c, 10, LONG_BYTES, true);
    test_wait(&t, &file.from_file, 1);
    expect_count(&t, &t.lost, 0);
    vj_rpc_client_free(c);
    end(&t);
}

static void gone_comes_behind_the_handler(void **state)
{
    VjFrame frame = {.op = OP_BLOCK, .tag = 1};
    RpcTest t;
    int fd;

    begin(&t, state);
    fd = raw_connect_and_hello(&t);
    raw_send_frame(fd, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
    test_wait(&t, &t.blocked, 1);
    close(fd);
    test_wait(&t, &file.answered, 1);
    test_wait(&t, &t.gone, 1);
    assert_int_equal(file.gone_before_end, 0);
    end(&t);
}

/* Replies of both kinds one behind the other. */
static void many_at_once(void **state)
{
    enum { COUNT = 300 };
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *calls[COUNT];

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < COUNT; i++) {
        calls[i] = test_submit(
            &t, c, get_call(i * 7001, i % 3 == 0 ? 50 : 20000 + i * 1500, i % 5 != 0));
    }
    test_wait(&t, &t.done, COUNT);
    test_wait(&t, &file.answered, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        expect_bytes(calls[i], i * 7001, i % 3 == 0 ? 50 : 20000 + i * 1500);
        vj_rpc_call_unref(calls[i]);
    }
    assert_true(file.from_file > 0 && file.copied > 0);
    expect_count(&t, &t.lost, 0);
    vj_rpc_client_free(c);
    end(&t);
}

/* A bulk that is not wanted any more is thrown away, and the next frame is found. */
static void cancelled_while_it_comes(void **state)
{
    RpcTest t;
    VjRpcClient *c;

    begin(&t, state);
    c = test_client(&t);
    for (unsigned i = 0; i < 50; i++) {
        unsigned before = test_counted(&t, &file.answered);
        g_autoptr(VjRpcCall) call = test_submit(&t, c, get_call(i, LONG_BYTES, true));

        if (i % 2 == 0) {
            test_wait(&t, &file.answered, before + 1);
        }
        vj_rpc_cancel(c, call);
        get(c, i, 30000, true);
    }
    expect_count(&t, &t.connected, 1);
    expect_count(&t, &t.lost, 0);
    vj_rpc_client_free(c);
    end(&t);
}

/* ---- clients that do not ----------------------------------------------------------- */

static void raw_get(int fd, uint64_t tag, uint8_t flags, uint32_t len)
{
    g_autoptr(GByteArray) message = get_message(tag, len);
    VjFrame frame = {.op = VJ_OP_GET, .flags = flags, .tag = tag};

    raw_send_frame(fd, &frame, vj_slice(message->data, message->len), vj_slice(NULL, 0));
}

/* Replies that nobody takes; returns the connection. */
static int send_and_take_nothing(RpcTest *t)
{
    int fd = raw_connect_with(t, VJ_FEATURE_BARE);
    unsigned before = test_counted(t, &file.answered);

    for (unsigned i = 1; i <= REQUESTS; i++) {
        raw_get(fd, i, VJ_FRAME_BARE, LONG_BYTES);
    }
    test_wait(t, &file.answered, before + REQUESTS);
    assert_true(held_bytes(t) >= (uint64_t)(REQUESTS - 2) * LONG_BYTES);
    return fd;
}

/* When all pipes are in use others are copied; pages stay whatever becomes of a file. */
static void slow_receiver(void **state)
{
    RpcTest t;
    bool was_sent[REQUESTS + 1] = {false};
    unsigned bare = 0;
    int fd;

    begin(&t, state);
    fd = send_and_take_nothing(&t);
    assert_true(file.copied >= REQUESTS - PIPES - 2);
    assert_true(file.from_file >= PIPES_LEAST);
    assert_int_equal(ftruncate(file.fd, 0), 0);
    for (unsigned i = 0; i < REQUESTS; i++) {
        g_autoptr(GByteArray) bulk = NULL;
        VjFrame reply;

        do {
            g_clear_pointer(&bulk, g_byte_array_unref);
            reply = raw_recv_all(fd, NULL, &bulk);
        } while (reply.op == VJ_OP_PING);
        assert_true(reply.tag >= 1 && reply.tag <= REQUESTS && !was_sent[reply.tag]);
        was_sent[reply.tag] = true;
        assert_int_equal(reply.status, VJ_WIRE_OK);
        assert_int_equal(bulk->len, LONG_BYTES);
        assert_memory_equal(bulk->data, file.bytes + reply.tag, LONG_BYTES);
        bare += vj_frame_is_bare(&reply);
    }
    assert_int_equal(bare, file.from_file);
    close(fd);
    test_wait(&t, &t.gone, 1);
    assert_int_equal(held_bytes(&t), 0);
    end(&t);
}

/* What was in pipes is never sent to anybody else, and others get pipes again. */
static void receiver_dies(void **state)
{
    RpcTest t;
    VjRpcClient *c;

    begin(&t, state);
    for (unsigned i = 0; i < 3; i++) {
        unsigned from_file = file.from_file;

        close(send_and_take_nothing(&t));
        test_wait(&t, &t.gone, i + 1);
        assert_true(file.from_file - from_file >= PIPES_LEAST);
    }
    assert_int_equal(held_bytes(&t), 0);
    c = test_client(&t);
    file.from_file = 0;
    get(c, 77, LONG_BYTES, true);
    test_wait(&t, &file.from_file, 1);
    vj_rpc_client_free(c);
    end(&t);
}

/* The server ends while pipes are full. */
static void server_ends(void **state)
{
    RpcTest t;
    int fd;

    begin(&t, state);
    fd = send_and_take_nothing(&t);
    end(&t);
    close(fd);
}

static void not_agreed_on(void **state)
{
    RpcTest t;
    VjFrame echo = {.op = OP_ECHO, .flags = VJ_FRAME_BARE, .tag = 1};
    VjFrame reply;
    int fd;

    begin(&t, state);
    /* Who lacks the feature gets a checksum, and must not allow what it does not know. */
    fd = raw_connect_and_hello(&t);
    raw_get(fd, 1, 0, LONG_BYTES);
    reply = raw_recv_but_ping(fd);
    assert_int_equal(reply.flags, VJ_FRAME_REPLY);
    assert_int_equal(reply.bulk_bytes, LONG_BYTES);
    test_wait(&t, &file.answered, 1);
    expect_count(&t, &file.from_file, 0);
    raw_get(fd, 2, VJ_FRAME_BARE, LONG_BYTES);
    raw_expect_end(fd);
    fd = raw_connect_with(&t, VJ_FEATURE_BARE);
    raw_send_frame(fd, &echo, vj_slice(NULL, 0), vj_slice(NULL, 0));
    raw_expect_end(fd);
    echo.op = VJ_OP_BATCH; /* of which the feature is another one */
    fd = raw_connect_with(&t, VJ_FEATURE_BARE);
    raw_send_frame(fd, &echo, vj_slice(NULL, 0), vj_slice(NULL, 0));
    raw_expect_end(fd);
    expect_count(&t, &file.answered, 1);
    end(&t);
}

/* ---- servers ----------------------------------------------------------------------- */

/* A server by hand with these features, and a client's GET that has come to it. */
static int serve(RpcTest *t, uint64_t features, VjRpcClient **c, VjRpcCall *call,
                 int *listener, VjFrame *request)
{
    int fd;

    test_begin(t, NULL);
    t->hello_reply.features = features;
    *listener = raw_listen(t);
    *c = test_client(t);
    test_submit(t, *c, call);
    fd = raw_accept_and_hello(t, *listener);
    *request = raw_recv_frame(fd, NULL);
    assert_int_equal(request->op, VJ_OP_GET);
    return fd;
}

static void expect_answer(uint64_t features, bool may_be_bare, bool is_bare, int rc)
{
    static const char bytes[] = "twenty bytes of bulk";
    RpcTest t;
    VjRpcClient *c;
    int listener;
    VjFrame request, reply = {.flags = VJ_FRAME_REPLY, .op = VJ_OP_GET};
    g_autoptr(VjRpcCall) call = get_call(0, 20, may_be_bare);
    int fd = serve(&t, features, &c, call, &listener, &request);

    assert_int_equal(request.flags,
                     may_be_bare && features == VJ_FEATURE_BARE ? VJ_FRAME_BARE : 0);
    reply.tag = request.tag;
    if (is_bare) {
        uint8_t head[VJ_FRAME_HEAD_BYTES];

        reply.flags |= VJ_FRAME_BARE;
        reply.bulk_bytes = 20;
        vj_frame_encode(&reply, head);
        raw_send(fd, head, sizeof head);
        raw_send(fd, bytes, 20);
    } else {
        raw_send_frame(fd, &reply, vj_slice(NULL, 0), vj_slice(bytes, 20));
    }
    test_wait(&t, &t.done, 1);
    assert_int_equal(call->rc, rc);
    if (rc == 0) {
        assert_memory_equal(call->reply_bulk->data, bytes, 20);
    }
    vj_rpc_client_free(c);
    close(fd);
    raw_stop_listening(&t, listener);
    test_end(&t);
}

static void servers(void **state)
{
    (void)state;
    expect_answer(VJ_FEATURE_BARE, true, true, 0);
    expect_answer(VJ_FEATURE_BARE, true, false, 0); /* it need not */
    expect_answer(0, true, false, 0);               /* it does not know how */
    expect_answer(0, true, true, -EPROTO);
    expect_answer(VJ_FEATURE_BARE, false, true, -EPROTO);
    expect_answer(VJ_FEATURE_BARE << 1, true, true, -EPROTO);
}

#define ALL(test)                                                                        \
    {#test " unix", test, NULL, NULL, NULL},                                             \
    {                                                                                    \
#test " tcp", test, NULL, NULL, TEST_TCP                                         \
    }

static const struct CMUnitTest tests[] = {
    ALL(ranges),
    {"ranges tls", ranges, NULL, NULL, TEST_TLS},
    cmocka_unit_test(nobody_allows_it),
    ALL(file_too_short),
    cmocka_unit_test(gone_comes_behind_the_handler),
    ALL(many_at_once),
    ALL(cancelled_while_it_comes),
    cmocka_unit_test(slow_receiver),
    cmocka_unit_test(receiver_dies),
    cmocka_unit_test(server_ends),
    cmocka_unit_test(not_agreed_on),
    cmocka_unit_test(servers),
};

VJ_TEST_MAIN(tests)
