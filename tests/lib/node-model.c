/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* node-model.c - see node-model.h */
#include "node-model.h"

#include "store/store.h"

#define OPS 0x0200u

typedef struct Object {
    VjWireObject key;
    VjBuf *bytes;
    int64_t mtime_us;
    bool is_durable;
    bool is_removed;  /* and may come back */
    bool is_doubtful; /* a FLUSH that covered it has failed */
} Object;

struct NodeModel {
    VjRng rng;
    bool has_volume;
    uint8_t volume[VJ_WIRE_UUID_BYTES], place[VJ_WIRE_UUID_BYTES],
        instance[VJ_WIRE_UUID_BYTES];
    uint64_t size_bytes, used_bytes;
    GTree *objects;        /* of Object by key, which they own */
    GHashTable *undurable; /* set of Object: put, and not flushed */
    unsigned count;        /* without removed ones */
    unsigned failing_flushes;
    int fails;
    uint64_t requests[OPS];
};

static int compare(const VjWireObject *a, const VjWireObject *b)
{
    return a->id != b->id         ? (a->id < b->id ? -1 : 1)
           : a->nonce != b->nonce ? (a->nonce < b->nonce ? -1 : 1)
                                  : 0;
}

static gint compare_objects(gconstpointer a, gconstpointer b, gpointer unused)
{
    (void)unused;
    return compare(a, b);
}

static void object_free(gpointer opaque)
{
    Object *object = opaque;

    vj_buf_unref(object->bytes);
    g_free(object);
}

static void new_disk(NodeModel *m)
{
    if (m->objects != NULL) {
        g_tree_unref(m->objects);
        g_hash_table_unref(m->undurable);
    }
    m->objects = g_tree_new_full(compare_objects, NULL, NULL, object_free);
    m->undurable = g_hash_table_new(NULL, NULL);
    m->used_bytes = 0;
    m->count = 0;
    m->has_volume = false;
    vj_rng_bytes(&m->rng, m->place, sizeof m->place);
    vj_rng_bytes(&m->rng, m->instance, sizeof m->instance);
}

NodeModel *node_model_new(uint64_t seed, uint64_t size_bytes)
{
    NodeModel *m = g_new0(NodeModel, 1);

    vj_rng_init(&m->rng, seed);
    m->size_bytes = size_bytes;
    new_disk(m);
    return m;
}

void node_model_free(NodeModel *m)
{
    g_tree_unref(m->objects);
    g_hash_table_unref(m->undurable);
    g_free(m);
}

void node_reply_clear(NodeReply *reply)
{
    g_clear_pointer(&reply->message, g_byte_array_unref);
    g_clear_pointer(&reply->bulk, vj_buf_unref);
}

int node_model_hello(NodeModel *m, VjSlice message, GByteArray *reply)
{
    VjHelloReply answer = {.version = VJ_WIRE_VERSION};
    VjHello hello;
    int rc = vj_hello_decode(message, &hello);

    if (rc < 0) {
        return rc;
    }
    if (hello.role != VJ_ROLE_OBJECT) {
        return -EOPNOTSUPP;
    }
    if (m->has_volume && memcmp(m->volume, hello.uuid, sizeof m->volume) != 0) {
        return -ENXIO;
    }
    if (!m->has_volume) {
        if ((hello.flags & (VJ_HELLO_CREATE | VJ_HELLO_ADOPT)) == 0) {
            return -ENODATA;
        }
        m->has_volume = true;
        memcpy(m->volume, hello.uuid, sizeof m->volume);
        answer.was_empty = 1;
    }
    memcpy(answer.node, m->place, sizeof answer.node);
    memcpy(answer.instance, m->instance, sizeof answer.instance);
    vj_hello_reply_encode(reply, &answer);
    return 0;
}

/* ---- requests ---------------------------------------------------------------------- */

static Object *find_any(const NodeModel *m, const VjWireObject *key)
{
    return g_tree_lookup(m->objects, key);
}

static Object *find(const NodeModel *m, const VjWireObject *key)
{
    Object *object = find_any(m, key);

    return object != NULL && !object->is_removed ? object : NULL;
}

static void forget(NodeModel *m, Object *object)
{
    m->used_bytes -= object->bytes->len;
    m->count -= !object->is_removed;
    g_hash_table_remove(m->undurable, object);
    g_tree_remove(m->objects, &object->key);
}

static int run_put(NodeModel *m, VjSlice message, VjSlice bulk)
{
    VjWirePut put;
    Object *object;

    if (vj_wire_put_decode(message, &put) < 0 || bulk.len > VJ_STORE_OBJECT_MAX) {
        return -EPROTO;
    }
    object = find(m, &put.object);
    if (object != NULL && object->bytes->len == bulk.len) {
        if (put.flags & VJ_WIRE_PUT_DURABLE) {
            object->is_durable = true;
        }
        return 0; /* a node keeps what it has */
    }
    object = find_any(m, &put.object);
    if (object != NULL) {
        forget(m, object);
    }
    if (bulk.len > m->size_bytes - m->used_bytes) {
        return -ENOSPC;
    }
    object = g_new0(Object, 1);
    object->key = put.object;
    object->bytes = vj_buf_new_copy(bulk.data, bulk.len);
    object->mtime_us = (int64_t)vj_clock_real().tv_sec * G_USEC_PER_SEC;
    object->is_durable = (put.flags & VJ_WIRE_PUT_DURABLE) != 0;
    m->used_bytes += bulk.len;
    m->count++;
    g_tree_insert(m->objects, &object->key, object);
    if (!object->is_durable) {
        g_hash_table_add(m->undurable, object);
    }
    return 0;
}

static int run_get(NodeModel *m, VjSlice message, NodeReply *reply)
{
    const Object *object;
    VjWireGet get;

    if (vj_wire_get_decode(message, &get) < 0) {
        return -EPROTO;
    }
    object = find(m, &get.object);
    if (object == NULL) {
        return -ENOENT;
    }
    if (get.offset > object->bytes->len || get.len > object->bytes->len - get.offset) {
        return -EBADMSG;
    }
    reply->bulk = vj_buf_new_copy(object->bytes->data + get.offset, get.len);
    reply->bulk_bytes = get.len;
    return 0;
}

static int run_remove(NodeModel *m, VjSlice message, NodeReply *reply)
{
    g_autoptr(GArray) objects = NULL;
    g_autofree uint32_t *statuses = NULL;

    if (vj_wire_objects_decode(message, &objects) < 0) {
        return -EPROTO;
    }
    statuses = g_new0(uint32_t, objects->len + 1);
    for (guint i = 0; i < objects->len; i++) {
        Object *object = find(m, &g_array_index(objects, VjWireObject, i));

        if (object != NULL && object->is_durable) {
            object->is_removed = true;
            m->count--;
        } else if (object != NULL) {
            forget(m, object);
        }
    }
    vj_wire_statuses_encode(reply->message, statuses, objects->len);
    return 0;
}

static int run_have(NodeModel *m, VjSlice message, NodeReply *reply)
{
    g_autoptr(GArray) objects = NULL;
    g_autofree uint64_t *lengths = NULL;

    if (vj_wire_objects_decode(message, &objects) < 0) {
        return -EPROTO;
    }
    lengths = g_new0(uint64_t, objects->len + 1);
    for (guint i = 0; i < objects->len; i++) {
        const Object *object = find(m, &g_array_index(objects, VjWireObject, i));

        lengths[i] = object != NULL ? object->bytes->len : VJ_WIRE_HAS_NOT;
    }
    vj_wire_lengths_encode(reply->message, lengths, objects->len);
    return 0;
}

/* As a store: in doubt until it is removed. */
static int run_flush(NodeModel *m)
{
    GHashTableIter iter;
    gpointer key;
    bool fails = m->failing_flushes > 0, is_doubtful = false;

    m->failing_flushes -= fails;
    g_hash_table_iter_init(&iter, m->undurable);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        Object *object = key;

        object->is_doubtful = object->is_doubtful || fails;
        if (object->is_doubtful) {
            is_doubtful = true;
        } else {
            object->is_durable = true;
            g_hash_table_iter_remove(&iter);
        }
    }
    return is_doubtful ? -EIO : 0;
}

static gboolean gather_removed(gpointer key, gpointer value, gpointer opaque)
{
    Object *object = value;

    (void)key;
    if (object->is_removed) {
        g_ptr_array_add(opaque, object);
    }
    return FALSE;
}

static int run_flush_removes(NodeModel *m)
{
    g_autoptr(GPtrArray) removed = g_ptr_array_new();

    g_tree_foreach(m->objects, gather_removed, removed);
    for (guint i = 0; i < removed->len; i++) {
        forget(m, removed->pdata[i]);
    }
    return 0;
}

static int run_list(NodeModel *m, VjSlice message, NodeReply *reply)
{
    VjWireListReply answer = {.count = 0};
    static const VjWireObject none;
    VjWireList list;
    GTreeNode *at;

    if (vj_wire_list_decode(message, &list) < 0) {
        return -EPROTO;
    }
    if (memcmp(&list.after, &none, sizeof none) == 0) {
        VjWireObject first = {.id = list.first};

        at = g_tree_lower_bound(m->objects, &first);
    } else {
        at = g_tree_upper_bound(m->objects, &list.after);
    }
    reply->bulk = vj_buf_new((size_t)list.limit * VJ_WIRE_LISTED_BYTES);
    for (; at != NULL; at = g_tree_node_next(at)) {
        const Object *object = g_tree_node_value(at);
        VjWireListed one = {.object = object->key,
                            .bytes = object->bytes->len,
                            .mtime_us = object->mtime_us};

        if (object->key.id > list.last) {
            break;
        }
        if (object->is_removed) {
            continue;
        }
        if (answer.count == list.limit) {
            answer.more = 1;
            break;
        }
        vj_wire_listed_encode(&one, reply->bulk->data +
                                        (size_t)answer.count++ * VJ_WIRE_LISTED_BYTES);
    }
    reply->bulk_bytes = answer.count * VJ_WIRE_LISTED_BYTES;
    vj_wire_list_reply_encode(reply->message, &answer);
    return 0;
}

static int run_space(NodeModel *m, NodeReply *reply)
{
    VjWireSpace space = {.total_bytes = m->size_bytes,
                         .free_bytes = m->size_bytes - m->used_bytes,
                         .available_bytes = m->size_bytes - m->used_bytes,
                         .available_objects = UINT64_MAX};

    vj_wire_space_encode(reply->message, &space);
    return 0;
}

NodeReply node_model_run(NodeModel *m, uint16_t op, VjSlice message, VjSlice bulk)
{
    NodeReply reply = {.message = g_byte_array_new()};

    g_assert(op < OPS);
    m->requests[op]++;
    if (op == VJ_OP_PING) {
        return reply;
    }
    if (m->fails != 0) {
        reply.rc = m->fails;
        return reply;
    }
    switch (op) {
    case VJ_OP_PUT:
        reply.rc = run_put(m, message, bulk);
        break;
    case VJ_OP_GET:
        reply.rc = run_get(m, message, &reply);
        break;
    case VJ_OP_REMOVE:
        reply.rc = run_remove(m, message, &reply);
        break;
    case VJ_OP_HAVE:
        reply.rc = run_have(m, message, &reply);
        break;
    case VJ_OP_FLUSH:
        reply.rc = run_flush(m);
        break;
    case VJ_OP_FLUSH_REMOVES:
        reply.rc = run_flush_removes(m);
        break;
    case VJ_OP_LIST:
        reply.rc = run_list(m, message, &reply);
        break;
    case VJ_OP_SPACE:
        reply.rc = run_space(m, &reply);
        break;
    default:
        reply.rc = -EOPNOTSUPP;
        break;
    }
    if (reply.rc != 0) {
        g_byte_array_set_size(reply.message, 0);
        g_clear_pointer(&reply.bulk, vj_buf_unref);
        reply.bulk_bytes = 0;
    }
    return reply;
}

/* ---- what befalls a node ----------------------------------------------------------- */

static gboolean gather_all(gpointer key, gpointer value, gpointer opaque)
{
    (void)key;
    g_ptr_array_add(opaque, value);
    return FALSE;
}

void node_model_crash(NodeModel *m)
{
    g_autoptr(GPtrArray) all = g_ptr_array_new();

    g_tree_foreach(m->objects, gather_all, all);
    for (guint i = 0; i < all->len; i++) {
        Object *object = all->pdata[i];

        if (!object->is_durable) {
            forget(m, object);
        } else if (object->is_removed) {
            object->is_removed = false;
            m->count++;
        }
    }
    vj_rng_bytes(&m->rng, m->instance, sizeof m->instance);
}

void node_model_lose_disk(NodeModel *m)
{
    new_disk(m);
}

void node_model_fail_flush(NodeModel *m, unsigned count)
{
    m->failing_flushes = count;
}

void node_model_fail_all(NodeModel *m, int rc)
{
    m->fails = rc;
}

bool node_model_damage(NodeModel *m, uint64_t id, uint64_t nonce, bool cut)
{
    Object *object = find(m, &(VjWireObject){.id = id, .nonce = nonce});
    VjBuf *bytes;

    if (object == NULL || object->bytes->len == 0) {
        return false;
    }
    bytes = vj_buf_new_copy(object->bytes->data, object->bytes->len - cut);
    m->used_bytes -= cut;
    if (!cut) {
        bytes->data[bytes->len / 2] ^= 1;
    }
    vj_buf_unref(object->bytes);
    object->bytes = bytes;
    return true;
}

int64_t node_model_has(NodeModel *m, uint64_t id, uint64_t nonce)
{
    const Object *object = find(m, &(VjWireObject){.id = id, .nonce = nonce});

    return object != NULL ? (int64_t)object->bytes->len : -1;
}

bool node_model_holds(NodeModel *m, uint64_t id, uint64_t nonce, VjSlice bytes,
                      bool *is_durable)
{
    const Object *object = find(m, &(VjWireObject){.id = id, .nonce = nonce});

    *is_durable = object != NULL && object->is_durable;
    return object != NULL && object->bytes->len == bytes.len &&
           memcmp(object->bytes->data, bytes.data, bytes.len) == 0;
}

bool node_model_has_id(NodeModel *m, uint64_t id)
{
    VjWireObject first = {.id = id};
    GTreeNode *at = g_tree_lower_bound(m->objects, &first);

    return at != NULL && ((const Object *)g_tree_node_value(at))->key.id == id;
}

unsigned node_model_count(const NodeModel *m)
{
    return m->count;
}

uint64_t node_model_requests(const NodeModel *m, uint16_t op)
{
    return m->requests[op];
}

/* ---- a server ---------------------------------------------------------------------- */

struct NodeServer {
    NodeModel *model;
    VjRpcServer *rpc;
    VjMutex lock; /* outermost of all that the server's threads take */
    /* guarded by lock, as the model: */
    uint16_t held_op;
    bool held_are_done; /* by the model */
    GQueue held;        /* of VjRpcRequest */
};

void node_server_lock(NodeServer *s)
{
    vj_mutex_lock(&s->lock);
}

void node_server_unlock(NodeServer *s)
{
    vj_mutex_unlock(&s->lock);
}

unsigned node_server_held(NodeServer *s)
{
    return s->held.length;
}

static void serve(VjRpcRequest *r, uint16_t op)
{
    NodeServer *s = vj_rpc_request_peer(r);
    VjSlice bulk = {.data = NULL};
    uint32_t bulk_bytes = 0;
    VjBuf *buf = vj_rpc_request_bulk(r, &bulk_bytes);
    NodeReply reply;

    if (buf != NULL) {
        bulk = vj_slice(buf->data, bulk_bytes);
    }
    vj_mutex_lock(&s->lock);
    if (s->held_op == op && !s->held_are_done) {
        g_queue_push_tail(&s->held, r);
        vj_mutex_unlock(&s->lock);
        return;
    }
    reply = node_model_run(s->model, op, vj_rpc_request_message(r), bulk);
    if (s->held_op == op) {
        g_queue_push_tail(&s->held, r);
        vj_mutex_unlock(&s->lock);
        node_reply_clear(&reply);
        return;
    }
    vj_mutex_unlock(&s->lock);
    vj_rpc_reply(r, reply.rc, vj_slice(reply.message->data, reply.message->len),
                 reply.bulk, reply.bulk_bytes);
    node_reply_clear(&reply);
}

#define HANDLER(name, number)                                                            \
    static void name(VjRpcRequest *r)                                                    \
    {                                                                                    \
        serve(r, number);                                                                \
    }
HANDLER(serve_put, VJ_OP_PUT)
HANDLER(serve_get, VJ_OP_GET)
HANDLER(serve_remove, VJ_OP_REMOVE)
HANDLER(serve_have, VJ_OP_HAVE)
HANDLER(serve_flush, VJ_OP_FLUSH)
HANDLER(serve_flush_removes, VJ_OP_FLUSH_REMOVES)
HANDLER(serve_list, VJ_OP_LIST)
HANDLER(serve_space, VJ_OP_SPACE)

#define MESSAGE_MAX ((uint32_t)1 << 20)
#define BULK_MAX ((uint32_t)VJ_STORE_OBJECT_MAX)

static const VjRpcHandler handlers[] = {
    {.op = VJ_OP_PUT,
     .role = VJ_ROLE_OBJECT,
     .name = "put",
     .message_max = MESSAGE_MAX,
     .bulk_max = BULK_MAX,
     .run = serve_put},
    {.op = VJ_OP_GET,
     .role = VJ_ROLE_OBJECT,
     .name = "get",
     .message_max = MESSAGE_MAX,
     .run = serve_get},
    {.op = VJ_OP_REMOVE,
     .role = VJ_ROLE_OBJECT,
     .name = "remove",
     .message_max = MESSAGE_MAX,
     .run = serve_remove},
    {.op = VJ_OP_HAVE,
     .role = VJ_ROLE_OBJECT,
     .name = "have",
     .message_max = MESSAGE_MAX,
     .run = serve_have},
    {.op = VJ_OP_FLUSH, .role = VJ_ROLE_OBJECT, .name = "flush", .run = serve_flush},
    {.op = VJ_OP_FLUSH_REMOVES,
     .role = VJ_ROLE_OBJECT,
     .name = "flush_removes",
     .run = serve_flush_removes},
    {.op = VJ_OP_LIST,
     .role = VJ_ROLE_OBJECT,
     .name = "list",
     .message_max = MESSAGE_MAX,
     .run = serve_list},
    {.op = VJ_OP_SPACE, .role = VJ_ROLE_OBJECT, .name = "space", .run = serve_space},
    {.op = 0},
};

static int serve_hello(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                       void **peer, GByteArray *reply)
{
    NodeServer *s = opaque;
    int rc;

    (void)identity;
    vj_mutex_lock(&s->lock);
    rc = node_model_hello(s->model, message, reply);
    vj_mutex_unlock(&s->lock);
    *role = VJ_ROLE_OBJECT;
    *peer = s;
    return rc;
}

NodeServer *node_server_start(NodeModel *model, const char *path)
{
    static const VjCredentialsFiles files = {.insecure = true};
    NodeServer *s = g_new0(NodeServer, 1);
    VjRpcServerConfig config = {
        .handlers = handlers, .hello = serve_hello, .opaque = s, .workers = 2};
    g_autofree char *address = g_strconcat("unix:", path, NULL);
    g_autoptr(VjCredentials) credentials = NULL;
    g_autoptr(GError) error = NULL;

    s->model = model;
    vj_mutex_init(&s->lock, VJ_RANK_FRONT, "node-server");
    g_queue_init(&s->held);
    s->rpc = vj_rpc_server_new(&config);
    if (!vj_credentials_load_server(-1, &files, NULL, NULL, &credentials, &error) ||
        !vj_rpc_server_listen(s->rpc, address, credentials, &error) ||
        !vj_rpc_server_start(s->rpc, &error)) {
        g_error("node server %s: %s", path, error->message);
    }
    return s;
}

static void hold(NodeServer *s, uint16_t op, bool are_done)
{
    GQueue held = G_QUEUE_INIT;
    VjRpcRequest *r;

    vj_mutex_lock(&s->lock);
    s->held_op = op;
    s->held_are_done = are_done;
    if (op == 0) {
        held = s->held;
        g_queue_init(&s->held);
    }
    vj_mutex_unlock(&s->lock);
    while ((r = g_queue_pop_head(&held)) != NULL) {
        vj_rpc_reply(r, -EBUSY, vj_slice(NULL, 0), NULL, 0);
    }
}

void node_server_hold(NodeServer *s, uint16_t op)
{
    hold(s, op, false);
}

void node_server_mute(NodeServer *s, uint16_t op)
{
    hold(s, op, true);
}

void node_server_stop(NodeServer *s)
{
    node_server_hold(s, 0);
    vj_rpc_server_free(s->rpc);
    vj_mutex_clear(&s->lock);
    g_free(s);
}
