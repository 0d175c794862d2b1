/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * node-fixture.h - a node in the process of the test, and clients of it
 *
 * The node listens on a unix socket, without credentials and, where volumes have keys, on
 * another one with TLS.
 */
#ifndef VJ_TESTS_UNIT_NODE_NODE_FIXTURE_H
#define VJ_TESTS_UNIT_NODE_NODE_FIXTURE_H

#include "../../lib/test.h"

#include "node/node.h"
#include "rpc/messages.h"
#include "rpc/rpc.h"

#define FIXTURE_SECOND ((int64_t)1000 * 1000)

typedef struct TestNode {
    char *dir;
    VjNodeConf *conf;
    VjNode *node;
    VjRpcServer *server;
} TestNode;

/* A client of one volume and role, and what its hello was answered with. */
typedef struct TestPeer {
    VjRpcClient *client;
    VjMutex lock;
    VjCond changed;
    bool is_answered; /* guarded by lock, with the rest */
    int status;
    VjHelloReply reply;
} TestPeer;

/* "DIR" stands for the node's directory in what follows "[node]…". */
static inline VjNodeConf *test_node_conf(const TestNode *t, const char *volumes,
                                         bool has_tls)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *path = g_build_filename(t->dir, "varjfsd.conf", NULL);
    g_autofree char *text =
        g_strdup_printf("[node]\nlisten_insecure = unix:%s/clear\n%s%s%s%s", t->dir,
                        has_tls ? "listen = unix:" : "", has_tls ? t->dir : "",
                        has_tls ? "/tls\n" : "", volumes);
    VjNodeConf *conf = vj_node_conf_parse(path, text, strlen(text), &error);

    if (conf == NULL) {
        fail_msg("%s", error->message);
    }
    return conf;
}

static inline void test_node_start(TestNode *t, const char *wrap_store)
{
    g_autoptr(GError) error = NULL;
    VjRpcServerConfig config = {.handlers = vj_node_handlers,
                                .hello = vj_node_hello,
                                .gone = vj_node_gone,
                                .workers = 4};
    g_autoptr(VjCredentials) clear = NULL;
    g_autoptr(VjCredentials) tls = NULL;

    t->node = vj_node_new(t->conf, wrap_store, NULL);
    config.opaque = t->node;
    t->server = vj_rpc_server_new(&config);
    assert_true(vj_credentials_load_server(-1, &(VjCredentialsFiles){.insecure = true},
                                           vj_node_find_key, t->node, &clear, &error));
    assert_true(
        vj_rpc_server_listen(t->server, t->conf->listen_insecure[0], clear, &error));
    if (t->conf->listen[0] != NULL) {
        assert_true(vj_credentials_load_server(-1,
                                               &(VjCredentialsFiles){.insecure = false},
                                               vj_node_find_key, t->node, &tls, &error));
        assert_true(vj_rpc_server_listen(t->server, t->conf->listen[0], tls, &error));
    }
    vj_node_set_server(t->node, t->server);
    assert_true(vj_rpc_server_start(t->server, &error));
}

static inline void test_node_stop(TestNode *t)
{
    vj_rpc_server_free(t->server);
    assert_int_equal(vj_node_free(t->node), 0);
}

/* The directories "a" and "b" are there. */
static inline TestNode *test_node_new(void)
{
    TestNode *t = g_new0(TestNode, 1);

    t->dir = vj_test_make_dir();
    for (unsigned i = 0; i < 2; i++) {
        g_autofree char *path = g_strdup_printf("%s/%c", t->dir, 'a' + (char)i);

        assert_int_equal(mkdir(path, 0700), 0);
    }
    return t;
}

static inline void test_node_free(TestNode *t)
{
    vj_node_conf_free(t->conf);
    vj_test_remove_dir(t->dir);
    g_free(t);
}

/* ---- clients ----------------------------------------------------------------------- */

static inline bool test_peer_connected(void *opaque, int status, VjSlice reply)
{
    TestPeer *p = opaque;

    vj_mutex_lock(&p->lock);
    p->is_answered = true;
    p->status = status;
    if (status == 0) {
        assert_int_equal(vj_hello_reply_decode(reply, &p->reply), 0);
    }
    vj_cond_broadcast(&p->changed);
    vj_mutex_unlock(&p->lock);
    return status == 0;
}

static inline void test_peer_wait(TestPeer *p)
{
    int64_t until_us = vj_clock_mono_us() + 30 * FIXTURE_SECOND;

    vj_mutex_lock(&p->lock);
    while (!p->is_answered && vj_cond_wait_until(&p->changed, &p->lock, until_us)) {
    }
    assert_true(p->is_answered);
    vj_mutex_unlock(&p->lock);
}

/* @key: the file; NULL: without credentials.  @uuid: all bytes are so. */
static inline TestPeer *test_peer_new(TestNode *t, const char *key, const char *identity,
                                      const char *volume, uint8_t role, uint8_t uuid,
                                      uint8_t flags)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(VjCredentials) credentials = NULL;
    g_autoptr(GByteArray) hello = g_byte_array_new();
    VjCredentialsFiles files = {
        .key = key, .identity = identity, .insecure = key == NULL};
    VjHello h = {.version_min = 1,
                 .version_max = VJ_WIRE_VERSION,
                 .features = role == VJ_ROLE_CLIENT ? VJ_FEATURE_SHARE : 0,
                 .role = role,
                 .flags = flags,
                 .volume = vj_slice(volume, strlen(volume))};
    TestPeer *p = g_new0(TestPeer, 1);
    VjRpcClientConfig config = {.connected = test_peer_connected, .opaque = p};

    vj_mutex_init(&p->lock, VJ_RANK_BASE, "test peer");
    vj_cond_init(&p->changed);
    memset(h.uuid, uuid, sizeof h.uuid);
    vj_hello_encode(hello, &h);
    assert_true(vj_credentials_load(AT_FDCWD, &files, &credentials, &error));
    config.address = key != NULL ? t->conf->listen[0] : t->conf->listen_insecure[0];
    config.credentials = credentials;
    config.hello = vj_slice(hello->data, hello->len);
    p->client = vj_rpc_client_new(&config, &error);
    assert_non_null(p->client);
    vj_rpc_client_connect(p->client);
    test_peer_wait(p);
    return p;
}

static inline void test_peer_free(TestPeer *p)
{
    vj_rpc_client_free(p->client);
    vj_cond_clear(&p->changed);
    vj_mutex_clear(&p->lock);
    g_free(p);
}

/* Its hello is answered with @status. */
static inline void expect_hello(TestNode *t, const char *volume, uint8_t role,
                                uint8_t uuid, uint8_t flags, int status)
{
    TestPeer *p = test_peer_new(t, NULL, NULL, volume, role, uuid, flags);

    assert_int_equal(p->status, status);
    test_peer_free(p);
}

static inline VjRpcCall *test_call_as(TestPeer *p, uint16_t op, GByteArray *message,
                                      const void *bulk, uint32_t bulk_bytes,
                                      bool may_be_bare)
{
    VjRpcCall *call = vj_rpc_call_new(op);

    call->may_be_bare = may_be_bare;
    call->message = message;
    if (bulk_bytes > 0) {
        call->bulk = vj_buf_new_copy(bulk, bulk_bytes);
        assert_non_null(call->bulk);
        call->bulk_bytes = bulk_bytes;
    }
    call->bulk_max = VJ_RPC_BULK_MAX;
    call->deadline_us = vj_clock_mono_us() + 60 * FIXTURE_SECOND;
    call->waits_for_connection = true;
    if (vj_rpc_run(p->client, call) != call->rc) {
        fail_msg("a call has two results");
    }
    return call;
}

static inline VjRpcCall *test_call(TestPeer *p, uint16_t op, GByteArray *message,
                                   const void *bulk, uint32_t bulk_bytes)
{
    return test_call_as(p, op, message, bulk, bulk_bytes, false);
}

/* The result alone. */
static inline int test_rc(TestPeer *p, uint16_t op, GByteArray *message, const void *bulk,
                          uint32_t bulk_bytes)
{
    g_autoptr(VjRpcCall) call = test_call(p, op, message, bulk, bulk_bytes);

    return call->rc;
}

#endif
