/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rpc-test.h - a server in the process of the test, and clients of it
 *
 * Its operations:
 *   ECHO    answers with message and bulk of the request (quick where the op says so)
 *   WAIT    is answered when the test lets it go (test_let_go), by another thread
 *   FILL    answers with a bulk of as many bytes as the message says
 *   FAIL    answers -ENOENT
 *   BLOCK   keeps a worker until test_unblock
 *   BEHIND  as ECHO, when all that came before is answered
 */
#ifndef VJ_TESTS_UNIT_RPC_RPC_TEST_H
#define VJ_TESTS_UNIT_RPC_RPC_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../lib/test.h"
#include "base/base.h"
#include "rpc/messages.h"
#include "rpc/rpc.h"

enum {
    OP_ECHO = VJ_OP_PUT,
    OP_QUICK = VJ_OP_GET,
    OP_WAIT = VJ_OP_FLUSH,
    OP_FILL = VJ_OP_LIST,
    OP_FAIL = VJ_OP_HAVE,
    OP_BLOCK = VJ_OP_SPACE,
    OP_BEHIND = VJ_OP_FLUSH_REMOVES,
    OP_OTHER_ROLE = VJ_OP_SCAN,
};

#define TEST_TCP "127.0.0.1:0"
#define TEST_TLS "tls"
#define TEST_IDENTITY "test"
#define SMALL_MESSAGE_MAX 1024u
#define TEST_SECOND ((int64_t)1000 * 1000)

typedef struct RpcTest {
    char *directory, *address;
    VjCredentials *credentials, *client_credentials;
    bool has_tls;
    VjRpcServer *server;
    VjRpcServerConfig config;
    unsigned port;

    VjMutex lock; /* outermost of all that the test takes */
    VjCond changed;
    /* guarded by lock: */
    GQueue held; /* of VjRpcRequest: WAIT */
    bool is_unblocked;
    unsigned blocked;
    unsigned echoed, one_at; /* as which of them "one" was */
    unsigned hellos, gone, connected, lost, done;
    int hello_rc;
    VjHelloReply hello_reply;
    int last_status;
} RpcTest;

/* The one that runs; handlers have no other way to it. */
static RpcTest *rpc_test;

/* ---- server ------------------------------------------------------------------------ */

static void run_echo(VjRpcRequest *r)
{
    uint32_t bytes;
    VjBuf *bulk = vj_rpc_request_bulk(r, &bytes);
    VjSlice message = vj_rpc_request_message(r);

    vj_mutex_lock(&rpc_test->lock);
    rpc_test->echoed++;
    if (message.len == 3 && memcmp(message.data, "one", 3) == 0) {
        rpc_test->one_at = rpc_test->echoed;
    }
    vj_mutex_unlock(&rpc_test->lock);
    vj_rpc_reply(r, 0, message, bulk, bytes);
}

static void run_wait(VjRpcRequest *r)
{
    vj_mutex_lock(&rpc_test->lock);
    g_queue_push_tail(&rpc_test->held, r);
    vj_cond_broadcast(&rpc_test->changed);
    vj_mutex_unlock(&rpc_test->lock);
}

static void run_block(VjRpcRequest *r)
{
    vj_mutex_lock(&rpc_test->lock);
    rpc_test->blocked++;
    vj_cond_broadcast(&rpc_test->changed);
    while (!rpc_test->is_unblocked) {
        vj_cond_wait(&rpc_test->changed, &rpc_test->lock);
    }
    vj_mutex_unlock(&rpc_test->lock);
    run_echo(r);
}

static inline void test_unblock(RpcTest *t)
{
    vj_mutex_lock(&t->lock);
    t->is_unblocked = true;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static void run_fill(VjRpcRequest *r)
{
    VjSlice message = vj_rpc_request_message(r);
    uint32_t bytes = message.len == 4 ? vj_le32_get(message.data) : 0;
    VjBuf *bulk = vj_buf_new(bytes);

    memset(bulk->data, 'f', bytes);
    bulk->len = bytes;
    vj_rpc_reply(r, 0, vj_slice(NULL, 0), bulk, bytes);
    vj_buf_unref(bulk);
}

static void run_fail(VjRpcRequest *r)
{
    vj_rpc_reply(r, -ENOENT, vj_slice("why", 3), NULL, 0);
}

#define HANDLER(op_, role_, message_max_, bulk_max_, run_, ...)                          \
    {                                                                                    \
        .op = (op_), .role = (role_), .name = #op_, .message_max = (message_max_),       \
        .bulk_max = (bulk_max_), .run = (run_), __VA_ARGS__                              \
    }

static const VjRpcHandler test_handlers[] = {
    HANDLER(OP_ECHO, VJ_ROLE_OBJECT, VJ_RPC_MESSAGE_MAX, VJ_RPC_BULK_MAX, run_echo,
            .is_quick = false),
    HANDLER(OP_QUICK, VJ_ROLE_ANY, SMALL_MESSAGE_MAX, 1 << 20, run_echo,
            .is_quick = true),
    HANDLER(OP_WAIT, VJ_ROLE_OBJECT, SMALL_MESSAGE_MAX, VJ_RPC_BULK_MAX, run_wait,
            .is_quick = true),
    HANDLER(OP_FILL, VJ_ROLE_OBJECT, SMALL_MESSAGE_MAX, 0, run_fill, .is_quick = false),
    HANDLER(OP_FAIL, VJ_ROLE_OBJECT, SMALL_MESSAGE_MAX, 0, run_fail, .is_quick = false),
    HANDLER(OP_BLOCK, VJ_ROLE_OBJECT, SMALL_MESSAGE_MAX, 0, run_block, .is_quick = false),
    HANDLER(OP_BEHIND, VJ_ROLE_OBJECT, SMALL_MESSAGE_MAX, 0, run_echo,
            .after_earlier = true),
    HANDLER(OP_OTHER_ROLE, VJ_ROLE_META, SMALL_MESSAGE_MAX, 0, run_echo,
            .is_quick = false),
    {.op = 0},
};

static int test_hello(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                      void **peer, GByteArray *reply)
{
    RpcTest *t = opaque;
    VjHello hello;
    int rc;

    assert_string_equal(identity, t->has_tls ? "key:" TEST_IDENTITY : "");
    vj_mutex_lock(&t->lock);
    t->hellos++;
    rc = t->hello_rc;
    vj_mutex_unlock(&t->lock);
    *role = VJ_ROLE_OBJECT;
    *peer = t;
    assert_int_equal(vj_hello_decode(message, &hello), 0);
    assert_int_equal(hello.role, VJ_ROLE_OBJECT);
    vj_hello_reply_encode(reply, &t->hello_reply);
    return rc;
}

static void test_gone(void *opaque, void *peer)
{
    RpcTest *t = opaque;

    assert_ptr_equal(peer, t);
    vj_mutex_lock(&t->lock);
    t->gone++;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

static inline void test_start_server(RpcTest *t)
{
    /* The port of the last one, where there was one. */
    g_autofree char *address =
        t->port != 0 ? g_strdup_printf("127.0.0.1:%u", t->port) : g_strdup(t->address);
    GError *error = NULL;

    t->server = vj_rpc_server_new(&t->config);
    if (!vj_rpc_server_listen(t->server, address, t->credentials, &error) ||
        !vj_rpc_server_start(t->server, &error)) {
        fail_msg("%s", error->message);
    }
    t->port = vj_rpc_server_port(t->server, 0);
}

static inline void test_stop_server(RpcTest *t)
{
    vj_rpc_server_free(g_steal_pointer(&t->server));
}

static bool test_find_key(void *opaque, const char *identity, VjKey256 *out)
{
    (void)opaque;
    memset(out->bytes, 0xab, sizeof out->bytes);
    return strcmp(identity, TEST_IDENTITY) == 0;
}

/* A key that both sides have.  A build may be without TLS. */
static inline void test_load_key(RpcTest *t)
{
    g_autofree char *path = g_build_filename(t->directory, "key", NULL);
    g_autofree char *hex = g_strnfill(64, 'a'), *text = NULL;
    VjCredentialsFiles files = {.key = path, .identity = TEST_IDENTITY}, none = {0};
    GError *error = NULL;
    bool good;
    int fd;

    for (unsigned i = 1; i < 64; i += 2) {
        hex[i] = 'b';
    }
    text = g_strdup_printf("varjfs-key-1:%s\n", hex);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(vj_fd_write_all(fd, text, strlen(text)), 0);
    close(fd);
    good = vj_credentials_load(-1, &files, &t->client_credentials, &error);
    assert_int_equal(unlink(path), 0);
    if (!good && error->code == EOPNOTSUPP) {
        assert_int_equal(rmdir(t->directory), 0);
        skip();
    }
    if (!good || !vj_credentials_load_server(-1, &none, test_find_key, t, &t->credentials,
                                             &error)) {
        fail_msg("%s", error->message);
    }
}

/* @address: NULL: a unix socket; TEST_TLS: tcp with TLS */
static inline void test_begin(RpcTest *t, const char *address)
{
    VjCredentialsFiles files = {.insecure = true};
    GError *error = NULL;

    *t = (RpcTest){0};
    rpc_test = t;
    t->directory = g_dir_make_tmp("varjfs-rpc-XXXXXX", &error);
    assert_non_null(t->directory);
    t->has_tls = g_strcmp0(address, TEST_TLS) == 0;
    if (t->has_tls) {
        test_load_key(t);
    } else {
        assert_true(vj_credentials_load(-1, &files, &t->credentials, &error));
        t->client_credentials = vj_credentials_ref(t->credentials);
    }
    t->address = t->has_tls        ? g_strdup(TEST_TCP)
                 : address != NULL ? g_strdup(address)
                                   : g_strdup_printf("unix:%s/socket", t->directory);
    vj_mutex_init(&t->lock, VJ_RANK_FRONT, "test");
    vj_cond_init(&t->changed);
    t->config = (VjRpcServerConfig){.handlers = test_handlers,
                                    .hello = test_hello,
                                    .gone = test_gone,
                                    .opaque = t,
                                    .workers = 4};
    t->hello_reply.version = VJ_WIRE_VERSION;
}

static inline void test_end(RpcTest *t)
{
    if (t->server != NULL) {
        test_stop_server(t);
    }
    assert_int_equal(t->held.length, 0);
    vj_credentials_unref(t->credentials);
    vj_credentials_unref(t->client_credentials);
    vj_cond_clear(&t->changed);
    vj_mutex_clear(&t->lock);
    assert_int_equal(rmdir(t->directory), 0);
    g_free(t->directory);
    g_free(t->address);
    rpc_test = NULL;
}

/* ---- what the test waits for ------------------------------------------------------- */

/* Until *@counter, guarded by lock, is at least @least. */
static inline void test_wait(RpcTest *t, const unsigned *counter, unsigned least)
{
    int64_t until_us = vj_clock_mono_us() + 30 * TEST_SECOND;

    vj_mutex_lock(&t->lock);
    while (*counter < least) {
        if (!vj_cond_wait_until(&t->changed, &t->lock, until_us)) {
            vj_mutex_unlock(&t->lock);
            fail_msg("waited for %u, there are %u", least, *counter);
        }
    }
    vj_mutex_unlock(&t->lock);
}

static inline unsigned test_counted(RpcTest *t, const unsigned *counter)
{
    unsigned count;

    vj_mutex_lock(&t->lock);
    count = *counter;
    vj_mutex_unlock(&t->lock);
    return count;
}

static inline void expect_count(RpcTest *t, const unsigned *counter, unsigned count)
{
    assert_int_equal(test_counted(t, counter), count);
}

static inline void test_count(RpcTest *t, unsigned *counter)
{
    vj_mutex_lock(&t->lock);
    ++*counter;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
}

/* The oldest WAIT, or the newest one. */
static inline VjRpcRequest *test_held(RpcTest *t, bool oldest)
{
    VjRpcRequest *r;

    vj_mutex_lock(&t->lock);
    r = oldest ? g_queue_peek_head(&t->held) : g_queue_peek_tail(&t->held);
    vj_mutex_unlock(&t->lock);
    return r;
}

/* Answers a WAIT, the oldest one or the newest one. */
static inline void test_let_go(RpcTest *t, bool oldest)
{
    VjRpcRequest *r;

    vj_mutex_lock(&t->lock);
    r = oldest ? g_queue_pop_head(&t->held) : g_queue_pop_tail(&t->held);
    vj_mutex_unlock(&t->lock);
    assert_non_null(r);
    run_echo(r);
}

/* ---- clients ----------------------------------------------------------------------- */

static bool test_connected(void *opaque, int status, VjSlice reply)
{
    RpcTest *t = opaque;
    VjHelloReply decoded;

    vj_mutex_lock(&t->lock);
    t->connected++;
    t->last_status = status;
    vj_cond_broadcast(&t->changed);
    vj_mutex_unlock(&t->lock);
    if (status == 0) {
        assert_int_equal(vj_hello_reply_decode(reply, &decoded), 0);
    }
    return status == 0;
}

static void test_lost(void *opaque)
{
    test_count(opaque, &((RpcTest *)opaque)->lost);
}

static inline GByteArray *test_hello_message(void)
{
    VjHello hello = {.version_min = VJ_WIRE_VERSION,
                     .version_max = VJ_WIRE_VERSION,
                     .role = VJ_ROLE_OBJECT,
                     .volume = vj_slice("test", 4),
                     .name = vj_slice("test client", 11)};
    GByteArray *message = g_byte_array_new();

    vj_hello_encode(message, &hello);
    return message;
}

static inline VjRpcClient *test_client(RpcTest *t)
{
    g_autofree char *address =
        t->port != 0 ? g_strdup_printf("127.0.0.1:%u", t->port) : g_strdup(t->address);
    g_autoptr(GByteArray) hello = test_hello_message();
    VjRpcClientConfig config = {.address = address,
                                .credentials = t->client_credentials,
                                .hello = vj_slice(hello->data, hello->len),
                                .connected = test_connected,
                                .lost = test_lost,
                                .opaque = t};
    GError *error = NULL;
    VjRpcClient *c = vj_rpc_client_new(&config, &error);

    if (c == NULL) {
        fail_msg("%s", error->message);
    }
    return c;
}

static void test_done(VjRpcCall *call)
{
    test_count(call->opaque, &((RpcTest *)call->opaque)->done);
}

/* Waits for a connection; deadline 30 s from now. */
static inline VjRpcCall *test_call(uint16_t op, const char *message)
{
    VjRpcCall *call = vj_rpc_call_new(op);

    call->waits_for_connection = true;
    call->deadline_us = vj_clock_mono_us() + 30 * TEST_SECOND;
    if (message != NULL) {
        call->message = g_byte_array_new();
        g_byte_array_append(call->message, (const guint8 *)message,
                            (guint)strlen(message));
    }
    return call;
}

static inline VjRpcCall *test_submit(RpcTest *t, VjRpcClient *c, VjRpcCall *call)
{
    call->done = test_done;
    call->opaque = t;
    vj_rpc_submit(c, call);
    return call;
}

static inline void expect_reply(const VjRpcCall *call, const char *message)
{
    assert_true(call->is_answered);
    assert_int_equal(call->reply->len, strlen(message));
    assert_memory_equal(call->reply->data, message, call->reply->len);
}

#endif
