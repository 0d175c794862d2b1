/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * key-node.h - a node with the role meta in the process of a test
 *
 * It answers from an engine of the test's, by a unix socket.  The test can stop it and
 * start it again, which loses its connections and keeps the keys; hold applies back; let
 * requests be done without an answer, or answers be none; and look at what came.
 */
#ifndef VJ_TESTS_LIB_KEY_NODE_H
#define VJ_TESTS_LIB_KEY_NODE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "meta/engine.h"
#include "rpc/messages.h"
#include "rpc/rpc.h"

#define KEY_NODE_VOLUME "00112233-4455-6677-8899-aabbccddeeff"

typedef struct KeyNode KeyNode;

/* What becomes of a request. */
typedef enum KeyNodeFate {
    KEY_NODE_DO,
    KEY_NODE_HOLD,    /* until key_node_let_go(); then done */
    KEY_NODE_FAIL,    /* answered with fail_rc, not done */
    KEY_NODE_GARBAGE, /* answered with bytes of garbage */
} KeyNodeFate;

struct KeyNode {
    char *dir, *address;
    VjCredentials *credentials;
    VjEngine *engine; /* owned */
    VjRpcServer *server;
    VjMutex lock;
    VjCond changed;
    /* guarded by lock: */
    uint8_t place[VJ_WIRE_UUID_BYTES];
    uint8_t uuid[VJ_WIRE_UUID_BYTES];
    bool has_uuid;
    int hello_rc;
    KeyNodeFate fates[VJ_OP_COUNT + 1]; /* by op */
    unsigned fate_calls;                /* so many more requests meet theirs */
    int fail_rc;
    GByteArray *garbage_message, *garbage_bulk;
    unsigned held; /* requests that are held back */
    bool let_go;
    unsigned may_go; /* so many of those that are held back */
    uint64_t requests[VJ_OP_COUNT + 1];
    char *name; /* of the last client */
    /* of the applies of one fence: the last number */
    uint64_t fence_version, last_number;
    unsigned refused_late;
    unsigned received;        /* applies that only had to be received, */
    uint64_t last_changes;    /* and what was in the last apply that was done */
    uint32_t items_bytes_max; /* of one answer; for tests of long ones */
};

static inline KeyNode *key_node_of(const VjRpcRequest *r)
{
    return vj_rpc_request_peer(r);
}

/* ---- Answers --------------------------------------------------------------------- */

/* Items from the first on, as many as fit. */
static inline void key_node_answer_items(VjRpcRequest *r, int rc, const VjItems *items,
                                         bool more)
{
    g_autoptr(GByteArray) bulk = g_byte_array_new(), message = g_byte_array_new();
    g_autoptr(VjBuf) buf = NULL;
    VjWireItemsReply head = {.more = more};

    for (size_t i = 0; i < items->count; i++) {
        const VjItem *item = &items->at[i];
        VjWireItem wire = {.key = {(uint8_t)item->space, item->key},
                           .version = item->version,
                           .value = item->value};

        if (head.count > 0 &&
            bulk->len + vj_wire_item_bytes(&wire) > key_node_of(r)->items_bytes_max) {
            head.more = true;
            break;
        }
        vj_wire_item_encode(bulk, &wire);
        head.count++;
    }
    vj_wire_items_reply_encode(message, &head);
    buf = bulk->len > 0 ? vj_buf_new_copy(bulk->data, bulk->len) : NULL;
    vj_rpc_reply(r, rc, vj_slice(message->data, message->len), buf, bulk->len);
}

static inline void key_node_answer_rc(VjRpcRequest *r, int rc)
{
    vj_rpc_reply(r, rc, vj_slice(NULL, 0), NULL, 0);
}

static inline void key_node_answer_u64(VjRpcRequest *r, int rc, uint64_t value)
{
    g_autoptr(GByteArray) message = g_byte_array_new();

    if (rc == 0) {
        vj_wire_u64_encode(message, value);
    }
    vj_rpc_reply(r, rc, vj_slice(message->data, message->len), NULL, 0);
}

/* ---- Operations ------------------------------------------------------------------ */

static inline void key_node_get_many(VjRpcRequest *r)
{
    g_autoptr(GArray) wire = NULL;
    g_autofree VjKey *keys = NULL;
    VjItems items = {0};
    int rc = vj_wire_keys_decode(vj_rpc_request_message(r), &wire);

    if (rc < 0) {
        key_node_answer_rc(r, rc);
        return;
    }
    keys = g_new(VjKey, wire->len + 1);
    for (guint i = 0; i < wire->len; i++) {
        const VjWireKey *key = &g_array_index(wire, VjWireKey, i);

        keys[i] = (VjKey){(VjSpace)key->space, key->key};
    }
    rc = vj_engine_get_many(key_node_of(r)->engine, keys, wire->len, &items,
                            VJ_NO_DEADLINE);
    if (rc < 0) {
        key_node_answer_rc(r, rc);
    } else {
        key_node_answer_items(r, 0, &items, false);
    }
    vj_items_clear(&items);
}

static inline void key_node_scan(VjRpcRequest *r)
{
    VjWireScan scan;
    VjRange range;
    VjItems items = {0};
    bool more = false;
    int rc = vj_wire_scan_decode(vj_rpc_request_message(r), &scan);

    if (rc == 0) {
        range = (VjRange){.space = (VjSpace)scan.space,
                          .backward = scan.backward,
                          .from = scan.from,
                          .to = scan.to};
        rc = vj_engine_scan(key_node_of(r)->engine, &range, scan.limit, &items, &more,
                            VJ_NO_DEADLINE);
    }
    if (rc < 0) {
        key_node_answer_rc(r, rc);
    } else {
        key_node_answer_items(r, 0, &items, more);
    }
    vj_items_clear(&items);
}

/* A batch as it came. */
typedef struct KeyNodeBatch {
    VjWireApply wire;
    GArray *changes; /* of VjChange */
    GArray *checks;  /* of VjCheck */
    VjCheck fence;
} KeyNodeBatch;

static inline int key_node_read_batch(VjRpcRequest *r, KeyNodeBatch *b)
{
    uint32_t bytes = 0;
    VjBuf *bulk = vj_rpc_request_bulk(r, &bytes);
    VjReader reader =
        vj_reader(bulk != NULL ? vj_slice(bulk->data, bytes) : vj_slice(NULL, 0));
    int rc = vj_wire_apply_decode(vj_rpc_request_message(r), &b->wire);

    for (uint64_t i = 0; rc == 0 && i < b->wire.change_count; i++) {
        VjWireChange wire;
        VjChange change;

        rc = vj_wire_change_decode(&reader, &wire);
        change = (VjChange){.space = (VjSpace)wire.key.space,
                            .is_delete = wire.is_delete,
                            .key = wire.key.key,
                            .value = wire.value};
        g_array_append_val(b->changes, change);
    }
    for (guint i = 0; rc == 0 && i < b->wire.checks->len; i++) {
        const VjWireCheck *wire = &g_array_index(b->wire.checks, VjWireCheck, i);
        VjCheck check = {{(VjSpace)wire->key.space, wire->key.key}, wire->version};

        g_array_append_val(b->checks, check);
    }
    b->fence = (VjCheck){{(VjSpace)b->wire.fence.key.space, b->wire.fence.key.key},
                         b->wire.fence.version};
    return rc == 0 && !vj_reader_done(&reader) ? -EPROTO : rc;
}

/* One that comes late must not undo a newer one. */
static inline bool key_node_is_late(KeyNode *n, const KeyNodeBatch *b)
{
    bool is_late;

    if (!b->wire.has_fence || b->wire.number == 0 || b->checks->len > 0) {
        return false;
    }
    vj_mutex_lock(&n->lock);
    if (b->fence.version != n->fence_version) {
        n->fence_version = b->fence.version;
        n->last_number = 0;
    }
    is_late = b->wire.number < n->last_number;
    n->last_number = MAX(n->last_number, b->wire.number);
    n->refused_late += is_late;
    vj_mutex_unlock(&n->lock);
    return is_late;
}

/* It stands on what was received before the node began anew; else it is counted. */
static inline bool key_node_lacks_commits(KeyNode *n, const KeyNodeBatch *b)
{
    bool lacks;

    vj_mutex_lock(&n->lock);
    lacks = b->wire.is_received &&
            (b->fence.version != n->fence_version || b->wire.after > n->last_number);
    lacks = lacks && b->wire.after > 0;
    n->received += b->wire.is_received && !lacks;
    n->last_changes = lacks ? n->last_changes : b->wire.change_count;
    vj_mutex_unlock(&n->lock);
    return lacks;
}

static inline void key_node_apply(VjRpcRequest *r)
{
    KeyNode *n = key_node_of(r);
    KeyNodeBatch b = {.changes = g_array_new(FALSE, FALSE, sizeof(VjChange)),
                      .checks = g_array_new(FALSE, FALSE, sizeof(VjCheck))};
    VjItems fresh = {0};
    int rc = key_node_read_batch(r, &b);

    if (rc == 0) {
        VjChanges all = {(const VjChange *)(void *)b.changes->data, b.changes->len};
        VjBatch batch = {.checks = (const VjCheck *)(void *)b.checks->data,
                         .check_count = b.checks->len,
                         .fence = b.wire.has_fence ? &b.fence : NULL,
                         .next = vj_changes_next,
                         .changes = &all,
                         .count = all.count,
                         .number = b.wire.number};

        rc = key_node_lacks_commits(n, &b) ? -EAGAIN
             : key_node_is_late(n, &b)
                 ? -ETIMEDOUT
                 : vj_engine_apply(n->engine, &batch, &fresh, VJ_NO_DEADLINE);
    }
    if (rc == -EAGAIN) {
        key_node_answer_items(r, rc, &fresh, false);
    } else {
        key_node_answer_rc(r, rc);
    }
    vj_items_clear(&fresh);
    g_clear_pointer(&b.wire.checks, g_array_unref);
    g_array_unref(b.changes);
    g_array_unref(b.checks);
}

static inline void key_node_clock(VjRpcRequest *r)
{
    int64_t us = vj_engine_clock_us(key_node_of(r)->engine, VJ_NO_DEADLINE);

    key_node_answer_u64(r, us < 0 ? (int)us : 0, (uint64_t)us);
}

static inline void key_node_count(VjRpcRequest *r)
{
    uint64_t count = 0;
    uint8_t space;
    int rc = vj_wire_u8_decode(vj_rpc_request_message(r), &space);

    if (rc == 0) {
        rc = space < VJ_SPACE_COUNT
                 ? vj_engine_count(key_node_of(r)->engine, (VjSpace)space, &count)
                 : -EPROTO;
    }
    key_node_answer_u64(r, rc, count);
}

/* ---- What becomes of them -------------------------------------------------------- */

static inline KeyNodeFate key_node_fate(KeyNode *n, uint16_t op)
{
    KeyNodeFate fate = KEY_NODE_DO;

    vj_mutex_lock(&n->lock);
    n->requests[op]++;
    if (n->fates[op] != KEY_NODE_DO && n->fate_calls > 0) {
        n->fate_calls--;
        fate = n->fates[op];
    }
    if (fate == KEY_NODE_HOLD) {
        n->held++;
        vj_cond_broadcast(&n->changed);
        while (!n->let_go && n->may_go == 0) {
            vj_cond_wait(&n->changed, &n->lock);
        }
        n->may_go -= n->may_go > 0;
        n->held--;
        vj_cond_broadcast(&n->changed);
        fate = KEY_NODE_DO;
    }
    vj_mutex_unlock(&n->lock);
    return fate;
}

static inline void key_node_answer_garbage(KeyNode *n, VjRpcRequest *r)
{
    GByteArray *bulk = n->garbage_bulk;
    g_autoptr(VjBuf) buf = bulk->len > 0 ? vj_buf_new_copy(bulk->data, bulk->len) : NULL;

    vj_rpc_reply(r, n->fail_rc,
                 vj_slice(n->garbage_message->data, n->garbage_message->len), buf,
                 bulk->len);
}

static inline void key_node_serve(VjRpcRequest *r, uint16_t op,
                                  void (*serve)(VjRpcRequest *r))
{
    KeyNode *n = key_node_of(r);

    switch (key_node_fate(n, op)) {
    case KEY_NODE_FAIL:
        key_node_answer_rc(r, n->fail_rc);
        break;
    case KEY_NODE_GARBAGE:
        key_node_answer_garbage(n, r);
        break;
    default:
        serve(r);
        break;
    }
}

#define KEY_NODE_HANDLER(name, op)                                                       \
    static inline void key_node_run_##name(VjRpcRequest *r)                              \
    {                                                                                    \
        key_node_serve(r, (op), key_node_##name);                                        \
    }

KEY_NODE_HANDLER(get_many, VJ_OP_GET_MANY)
KEY_NODE_HANDLER(scan, VJ_OP_SCAN)
KEY_NODE_HANDLER(apply, VJ_OP_APPLY)
KEY_NODE_HANDLER(clock, VJ_OP_CLOCK)
KEY_NODE_HANDLER(count, VJ_OP_COUNT)

/* ---- The node -------------------------------------------------------------------- */

static inline int key_node_hello(void *opaque, const char *identity, VjSlice message,
                                 uint8_t *role, void **peer, GByteArray *reply)
{
    KeyNode *n = opaque;
    VjHelloReply out = {.version = VJ_WIRE_VERSION, .instance = {1}};
    VjHello hello;
    int rc = vj_hello_decode(message, &hello);

    (void)identity;
    if (rc < 0) {
        return rc;
    }
    vj_mutex_lock(&n->lock);
    rc = n->hello_rc;
    if (rc == 0 && (hello.flags & VJ_HELLO_CREATE) != 0 && !n->has_uuid) {
        memcpy(n->uuid, hello.uuid, sizeof n->uuid);
        n->has_uuid = true;
        out.was_empty = 1;
    }
    if (rc == 0) {
        rc = !n->has_uuid                                       ? -ENODATA
             : memcmp(n->uuid, hello.uuid, sizeof n->uuid) != 0 ? -ENXIO
                                                                : 0;
    }
    memcpy(out.node, n->place, sizeof out.node);
    g_free(n->name);
    n->name = g_strndup(hello.name.data, hello.name.len);
    vj_mutex_unlock(&n->lock);
    if (rc == 0) {
        vj_hello_reply_encode(reply, &out);
    } else {
        g_byte_array_append(reply, (const guint8 *)"the test says so", 16);
    }
    *role = hello.role;
    *peer = n;
    return rc;
}

static inline void key_node_start(KeyNode *n)
{
    static const VjRpcHandler handlers[] = {
        {.op = VJ_OP_GET_MANY,
         .role = VJ_ROLE_META,
         .name = "get_many",
         .message_max = VJ_RPC_MESSAGE_MAX,
         .run = key_node_run_get_many},
        {.op = VJ_OP_SCAN,
         .role = VJ_ROLE_META,
         .name = "scan",
         .message_max = VJ_RPC_MESSAGE_MAX,
         .run = key_node_run_scan},
        {.op = VJ_OP_APPLY,
         .role = VJ_ROLE_META,
         .name = "apply",
         .message_max = VJ_RPC_MESSAGE_MAX,
         .bulk_max = VJ_RPC_BULK_MAX,
         .run = key_node_run_apply},
        {.op = VJ_OP_CLOCK,
         .role = VJ_ROLE_META,
         .name = "clock",
         .message_max = VJ_RPC_MESSAGE_MAX,
         .run = key_node_run_clock},
        {.op = VJ_OP_COUNT,
         .role = VJ_ROLE_META,
         .name = "count",
         .message_max = VJ_RPC_MESSAGE_MAX,
         .run = key_node_run_count},
        {.op = 0},
    };
    VjRpcServerConfig config = {
        .handlers = handlers, .hello = key_node_hello, .opaque = n, .workers = 8};
    GError *error = NULL;

    g_assert(n->server == NULL);
    n->server = vj_rpc_server_new(&config);
    if (!vj_rpc_server_listen(n->server, n->address, n->credentials, &error) ||
        !vj_rpc_server_start(n->server, &error)) {
        g_error("node of the test: %s", error->message);
    }
}

/* Its connections are lost; what is held back ends first. */
static inline void key_node_stop(KeyNode *n)
{
    vj_mutex_lock(&n->lock);
    n->let_go = true;
    vj_cond_broadcast(&n->changed);
    vj_mutex_unlock(&n->lock);
    vj_rpc_server_free(g_steal_pointer(&n->server));
    vj_mutex_lock(&n->lock);
    n->let_go = false;
    vj_mutex_unlock(&n->lock);
}

/* Takes @engine. */
static inline KeyNode *key_node_new(VjEngine *engine)
{
    KeyNode *n = g_new0(KeyNode, 1);
    g_autofree char *template =
        g_build_filename(g_get_tmp_dir(), "key-node-XXXXXX", NULL);
    VjCredentialsFiles files = {.insecure = true};

    n->dir = g_strdup(g_mkdtemp(template));
    g_assert(n->dir != NULL);
    n->address = g_strdup_printf("unix:%s/socket", n->dir);
    g_assert(vj_credentials_load_server(-1, &files, NULL, NULL, &n->credentials, NULL));
    n->engine = engine;
    n->items_bytes_max = VJ_WIRE_ITEMS_BYTES_MAX;
    n->garbage_message = g_byte_array_new();
    n->garbage_bulk = g_byte_array_new();
    vj_random_bytes(n->place, sizeof n->place);
    vj_mutex_init(&n->lock, VJ_RANK_BASE, "node of the test");
    vj_cond_init(&n->changed);
    key_node_start(n);
    return n;
}

static inline void key_node_free(KeyNode *n)
{
    if (n->server != NULL) {
        key_node_stop(n);
    }
    g_assert(vj_engine_close(n->engine, true) == 0);
    vj_credentials_unref(n->credentials);
    g_byte_array_unref(n->garbage_message);
    g_byte_array_unref(n->garbage_bulk);
    vj_cond_clear(&n->changed);
    vj_mutex_clear(&n->lock);
    (void)unlink(n->address + strlen("unix:"));
    (void)rmdir(n->dir);
    g_free(n->name);
    g_free(n->address);
    g_free(n->dir);
    g_free(n);
}

/* "remote:…" with @more (",K=V", may be empty); owned. */
static inline char *key_node_spec(const KeyNode *n, const char *more)
{
    return g_strdup_printf("remote:%s:insecure%s", n->address, more);
}

/* Requests of @op that come from now on, @calls of them, meet @fate. */
static inline void key_node_set_fate(KeyNode *n, uint16_t op, KeyNodeFate fate,
                                     unsigned calls, int fail_rc)
{
    vj_mutex_lock(&n->lock);
    memset(n->fates, 0, sizeof n->fates);
    n->fates[op] = fate;
    n->fate_calls = calls;
    n->fail_rc = fail_rc;
    n->let_go = false;
    vj_mutex_unlock(&n->lock);
}

static inline void key_node_wait_for_held(KeyNode *n, unsigned count)
{
    vj_mutex_lock(&n->lock);
    while (n->held != count) {
        vj_cond_wait(&n->changed, &n->lock);
    }
    vj_mutex_unlock(&n->lock);
}

static inline void key_node_let_go(KeyNode *n)
{
    vj_mutex_lock(&n->lock);
    n->let_go = true;
    vj_cond_broadcast(&n->changed);
    vj_mutex_unlock(&n->lock);
}

/* Returns when one has gone; others, and those that come, are held back as before. */
static inline void key_node_let_one_go(KeyNode *n)
{
    vj_mutex_lock(&n->lock);
    n->may_go++;
    vj_cond_broadcast(&n->changed);
    while (n->may_go > 0) {
        vj_cond_wait(&n->changed, &n->lock);
    }
    vj_mutex_unlock(&n->lock);
}

static inline uint64_t key_node_requests(KeyNode *n, uint16_t op)
{
    uint64_t requests;

    vj_mutex_lock(&n->lock);
    requests = n->requests[op];
    vj_mutex_unlock(&n->lock);
    return requests;
}

#endif
