/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * node.c - volumes by name, hello, and the table of handlers
 *
 * A volume's place is opened by the first hello for it and stays open until the node
 * ends, the configuration has it no more, or mkfs destroys it.  Each connection is a peer
 * that has a reference on its volume; a place is closed when it has no peer.
 */
#include "node/node-private.h"

struct VjNodeVolume {
    /* guarded by the node's lock: */
    unsigned refs;          /* of the node's table, and of peers */
    VjNodeVolumeConf *conf; /* changes while is_busy is not set, but for its keys */
    bool is_busy;           /* a thread opens or closes the place */
    bool is_gone;           /* from the configuration */
    unsigned peers;
    VjNodePlace *place; /* NULL: not open */
};

struct VjNode {
    uint8_t instance[VJ_WIRE_UUID_BYTES];
    VjMutex lock; /* VJ_RANK_NODE */
    VjCond changed;
    /* guarded by lock: */
    GHashTable *volumes; /* name → VjNodeVolume */
    int error;           /* the first of closing */

    VjMutex keys_lock; /* VJ_RANK_NODE_KEYS: taken while a connection shakes hands */
    GHashTable *keys;  /* name → VjKey256, of volumes with one; guarded by keys_lock */
};

/* ---- volumes ----------------------------------------------------------------------- */

static void unref_locked(VjNode *n, VjNodeVolume *v)
{
    vj_mutex_assert_held(&n->lock);
    if (--v->refs == 0) {
        g_assert(v->place == NULL && v->peers == 0);
        vj_node_volume_conf_free(v->conf);
        g_free(v);
    }
}

/* Closes the place where nobody needs it; gives the lock up meanwhile. */
static void close_if_unused(VjNode *n, VjNodeVolume *v) VJ_REQUIRES(n->lock)
{
    VjNodePlace *place;
    int rc;

    if (v->peers > 0 || v->is_busy || v->place == NULL) {
        return;
    }
    place = g_steal_pointer(&v->place);
    v->is_busy = true;
    vj_mutex_unlock(&n->lock);
    rc = vj_node_place_close(place);
    vj_mutex_lock(&n->lock);
    v->is_busy = false;
    n->error = n->error < 0 ? n->error : rc;
    vj_cond_broadcast(&n->changed);
}

VjNode *vj_node_new(const VjNodeConf *conf)
{
    VjNode *n = g_new0(VjNode, 1);

    vj_random_bytes(n->instance, sizeof n->instance);
    vj_mutex_init(&n->lock, VJ_RANK_NODE, "node");
    vj_cond_init(&n->changed);
    n->volumes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    vj_mutex_init(&n->keys_lock, VJ_RANK_NODE_KEYS, "node.pre-shared");
    n->keys = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    vj_node_reload(n, conf);
    return n;
}

/* From the configuration; it lives as long as it has peers. */
static void let_go(VjNode *n, VjNodeVolume *v) VJ_REQUIRES(n->lock)
{
    v->is_gone = true;
    while (v->is_busy) {
        vj_cond_wait(&n->changed, &n->lock);
    }
    close_if_unused(n, v);
    unref_locked(n, v);
}

static void add(VjNode *n, const VjNodeVolumeConf *conf) VJ_REQUIRES(n->lock)
{
    VjNodeVolume *v = g_new0(VjNodeVolume, 1);

    v->refs = 1;
    v->conf = vj_node_volume_conf_copy(conf);
    g_hash_table_insert(n->volumes, g_strdup(conf->name), v);
}

static void reload_keys(VjNode *n, const VjNodeConf *conf)
{
    vj_mutex_lock(&n->keys_lock);
    g_hash_table_remove_all(n->keys);
    for (guint i = 0; i < conf->volumes->len; i++) {
        const VjNodeVolumeConf *one = g_ptr_array_index(conf->volumes, i);

        if (one->has_key) {
            g_hash_table_insert(n->keys, g_strdup(one->name),
                                g_memdup2(&one->key, sizeof one->key));
        }
    }
    vj_mutex_unlock(&n->keys_lock);
}

void vj_node_reload(VjNode *n, const VjNodeConf *conf)
{
    g_autoptr(GPtrArray) gone = g_ptr_array_new();
    GHashTableIter iter;
    gpointer name, value;

    reload_keys(n, conf);
    vj_mutex_lock(&n->lock);
    g_hash_table_iter_init(&iter, n->volumes);
    while (g_hash_table_iter_next(&iter, &name, &value)) {
        VjNodeVolume *v = value;
        const VjNodeVolumeConf *now = vj_node_conf_volume(conf, name);

        if (now == NULL || !vj_node_volume_conf_same_place(v->conf, now)) {
            g_ptr_array_add(gone, v);
            g_hash_table_iter_remove(&iter);
        } else {
            vj_node_volume_conf_free(v->conf);
            v->conf = vj_node_volume_conf_copy(now);
        }
    }
    for (guint i = 0; i < conf->volumes->len; i++) {
        const VjNodeVolumeConf *one = g_ptr_array_index(conf->volumes, i);

        if (g_hash_table_lookup(n->volumes, one->name) == NULL) {
            add(n, one);
        }
    }
    for (guint i = 0; i < gone->len; i++) {
        let_go(n, g_ptr_array_index(gone, i));
    }
    vj_mutex_unlock(&n->lock);
}

int vj_node_free(VjNode *n)
{
    GHashTableIter iter;
    gpointer value;
    int rc;

    vj_mutex_lock(&n->lock);
    g_hash_table_iter_init(&iter, n->volumes);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        g_hash_table_iter_remove(&iter);
        let_go(n, value);
        g_hash_table_iter_init(&iter, n->volumes);
    }
    rc = n->error;
    vj_mutex_unlock(&n->lock);
    g_hash_table_unref(n->volumes);
    g_hash_table_unref(n->keys);
    vj_mutex_clear(&n->keys_lock);
    vj_cond_clear(&n->changed);
    vj_mutex_clear(&n->lock);
    g_free(n);
    return rc;
}

bool vj_node_find_key(void *opaque, const char *identity, VjKey256 *out)
{
    VjNode *n = opaque;
    const VjKey256 *key;

    vj_mutex_lock(&n->keys_lock);
    key = g_hash_table_lookup(n->keys, identity);
    if (key != NULL) {
        *out = *key;
    }
    vj_mutex_unlock(&n->keys_lock);
    return key != NULL;
}

void vj_node_each_volume(VjNode *n, VjNodeVolumeVisit *visit, void *opaque)
{
    GHashTableIter iter;
    gpointer name, value;

    vj_mutex_lock(&n->lock);
    g_hash_table_iter_init(&iter, n->volumes);
    while (g_hash_table_iter_next(&iter, &name, &value)) {
        const VjNodeVolume *v = value;
        VjNodeVolumeStats stats = {
            .name = name, .is_open = v->place != NULL, .peers = v->peers};

        if (v->place != NULL && v->place->store != NULL) {
            vj_store_stats(v->place->store, &stats.store);
        }
        visit(opaque, &stats);
    }
    vj_mutex_unlock(&n->lock);
}

/* ---- hello ------------------------------------------------------------------------- */

/* The place is open for the volume of @how; gives the lock up meanwhile. */
static int enter_place(VjNode *n, VjNodeVolume *v, const VjNodePlaceOpen *how,
                       bool *was_empty) VJ_REQUIRES(n->lock)
{
    int rc;

    while (v->is_busy) {
        vj_cond_wait(&n->changed, &n->lock);
    }
    if (v->place != NULL &&
        memcmp(v->place->volume, how->volume, sizeof how->volume) != 0) {
        if ((how->flags & VJ_HELLO_DESTROY) == 0) {
            return -ENXIO;
        }
        if (v->peers > 0) {
            return -EBUSY;
        }
        close_if_unused(n, v);
    }
    if (v->place != NULL) {
        return 0;
    }
    v->is_busy = true;
    vj_mutex_unlock(&n->lock);
    rc = vj_node_place_open(how, &v->place, was_empty);
    vj_mutex_lock(&n->lock);
    v->is_busy = false;
    vj_cond_broadcast(&n->changed);
    return rc;
}

static int enter(VjNode *n, const VjHello *hello, const char *identity, VjNodePeer *peer,
                 bool *was_empty) VJ_REQUIRES(n->lock)
{
    g_autofree char *name = g_strndup(hello->volume.data, hello->volume.len);
    VjNodeVolume *v = g_hash_table_lookup(n->volumes, name);
    VjNodePlaceOpen how = {.flags = hello->flags};
    int rc;

    /* One answer for both: who asks does not hear which volumes there are. */
    if (v == NULL || !vj_node_volume_conf_admits(v->conf, identity)) {
        vj_log_warn("a peer (%s) asks for the volume \"%s\", which is not for it",
                    *identity != '\0' ? identity : "without credentials", name);
        return -EACCES;
    }
    if (hello->role != VJ_ROLE_OBJECT && hello->role != VJ_ROLE_META) {
        return -EPROTO;
    }
    if ((v->conf->roles & VJ_NODE_ROLE(hello->role)) == 0) {
        return -EOPNOTSUPP;
    }
    memcpy(how.volume, hello->uuid, sizeof how.volume);
    how.conf = v->conf;
    v->refs++;
    rc = enter_place(n, v, &how, was_empty);
    if (rc < 0) {
        unref_locked(n, v);
        return rc;
    }
    v->peers++;
    *peer = (VjNodePeer){.volume = v,
                         .place = v->place,
                         .role = hello->role,
                         .read_only = (hello->flags & VJ_HELLO_READ_ONLY) != 0};
    return 0;
}

int vj_node_hello(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                  void **out, GByteArray *reply)
{
    VjNode *n = opaque;
    VjHelloReply answer = {.version = VJ_WIRE_VERSION};
    VjNodePeer peer;
    VjHello hello;
    bool was_empty = false;
    int rc = vj_hello_decode(message, &hello);

    if (rc < 0) {
        return rc;
    }
    if (hello.version_min > VJ_WIRE_VERSION || hello.version_max < VJ_WIRE_VERSION) {
        return -EOPNOTSUPP;
    }
    vj_mutex_lock(&n->lock);
    rc = enter(n, &hello, identity, &peer, &was_empty);
    vj_mutex_unlock(&n->lock);
    if (rc < 0) {
        return rc;
    }
    memcpy(answer.node, peer.place->node, sizeof answer.node);
    memcpy(answer.instance, n->instance, sizeof answer.instance);
    answer.was_empty = was_empty;
    vj_hello_reply_encode(reply, &answer);
    *role = peer.role;
    *out = g_memdup2(&peer, sizeof peer);
    return 0;
}

void vj_node_gone(void *opaque, void *gone)
{
    VjNode *n = opaque;
    VjNodePeer *peer = gone;
    VjNodeVolume *v = peer->volume;

    vj_mutex_lock(&n->lock);
    v->peers--;
    if (v->is_gone) {
        close_if_unused(n, v);
    }
    unref_locked(n, v);
    vj_mutex_unlock(&n->lock);
    g_free(peer);
}

/* ---- operations -------------------------------------------------------------------- */

/* Of messages with a list of objects or keys, and of others. */
#define LIST_MAX ((uint32_t)4 << 20)
#define SMALL_MAX 4096u

#define OBJECT(number, text, message, bulk, function)                                    \
    {                                                                                    \
        .op = (number), .role = VJ_ROLE_OBJECT, .name = (text),                          \
        .message_max = (message), .bulk_max = (bulk), .run = (function)                  \
    }
#define META(number, text, message, bulk, function)                                      \
    {                                                                                    \
        .op = (number), .role = VJ_ROLE_META, .name = (text), .message_max = (message),  \
        .bulk_max = (bulk), .run = (function)                                            \
    }

const VjRpcHandler vj_node_handlers[] = {
    OBJECT(VJ_OP_PUT, "put", SMALL_MAX, (uint32_t)VJ_STORE_OBJECT_MAX, vj_node_put),
    OBJECT(VJ_OP_GET, "get", SMALL_MAX, 0, vj_node_get),
    OBJECT(VJ_OP_REMOVE, "remove", LIST_MAX, 0, vj_node_remove),
    OBJECT(VJ_OP_HAVE, "have", LIST_MAX, 0, vj_node_have),
    {.op = VJ_OP_FLUSH,
     .role = VJ_ROLE_OBJECT,
     .name = "flush",
     .message_max = SMALL_MAX,
     .run = vj_node_flush,
     .after_earlier = true},
    {.op = VJ_OP_FLUSH_REMOVES,
     .role = VJ_ROLE_OBJECT,
     .name = "flush_removes",
     .message_max = SMALL_MAX,
     .run = vj_node_flush_removes,
     .after_earlier = true},
    OBJECT(VJ_OP_LIST, "list", SMALL_MAX, 0, vj_node_list),
    OBJECT(VJ_OP_SPACE, "space", SMALL_MAX, 0, vj_node_space),
    OBJECT(VJ_OP_DIGEST, "digest", SMALL_MAX, 0, vj_node_run_digest),
    OBJECT(VJ_OP_PUT_PLAIN, "put_plain", SMALL_MAX, VJ_WIRE_PLAIN_MAX,
           vj_node_run_put_plain),
    OBJECT(VJ_OP_GET_PLAIN, "get_plain", SMALL_MAX, 0, vj_node_run_get_plain),
    META(VJ_OP_GET_MANY, "get_many", LIST_MAX, 0, vj_node_get_many),
    META(VJ_OP_SCAN, "scan", SMALL_MAX, 0, vj_node_scan),
    META(VJ_OP_APPLY, "apply", LIST_MAX, VJ_RPC_BULK_MAX, vj_node_apply),
    META(VJ_OP_CLOCK, "clock", SMALL_MAX, 0, vj_node_clock),
    META(VJ_OP_COUNT, "count", SMALL_MAX, 0, vj_node_count),
    {.op = 0},
};
