/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * node.c - volumes by name, hello, and the table of handlers
 *
 * A volume's place is opened by the first hello for it and stays open until the node
 * ends, the configuration has it no more, or mkfs destroys it.  Each connection is a peer
 * that has a reference on its volume; a place is closed when it has no peer.
 */
#include "node/node-private.h"
#include "varjfs/client-protocol.h"

struct VjNodeVolume {
    gint is_gone; /* atomic: from the configuration; requests of it are refused */
    /* guarded by the node's lock: */
    unsigned refs; /* of the node's table, of peers, and of the thread that is busy */
    VjNodeVolumeConf *conf;
    bool is_busy; /* a thread opens or closes the place */
    unsigned peers;
    VjNodePlace *place; /* NULL: not open */
};

struct VjNode {
    uint8_t instance[VJ_WIRE_UUID_BYTES];
    int64_t started_us;
    char *wrap_store, *wrap_meta; /* NULL: none */
    gint areas;                   /* atomic */
    VjMutex lock;                 /* VJ_RANK_NODE */
    VjCond changed;
    /* guarded by lock: */
    GHashTable *volumes; /* name → VjNodeVolume */
    int error;           /* the first of closing */
    VjRpcServer *server; /* NULL: none is running */

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

VjNode *vj_node_new(const VjNodeConf *conf, const char *wrap_store, const char *wrap_meta)
{
    VjNode *n = g_new0(VjNode, 1);

    vj_random_bytes(n->instance, sizeof n->instance);
    n->started_us = vj_clock_mono_us();
    n->wrap_store = g_strdup(wrap_store);
    n->wrap_meta = g_strdup(wrap_meta);
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
    g_atomic_int_set(&v->is_gone, 1);
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
    if (conf->has_key) {
        g_hash_table_insert(n->keys, g_strdup(VJ_NODE_OPERATOR),
                            g_memdup2(&conf->key, sizeof conf->key));
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
    g_free(n->wrap_store);
    g_free(n->wrap_meta);
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

static void fill(const char *name, const VjNodeVolume *v, VjNodeVolumeStats *out)
{
    *out = (VjNodeVolumeStats){.name = name, .peers = v->peers};
    if (v->place == NULL || v->is_busy) {
        return;
    }
    out->roles = (v->place->store != NULL ? VJ_NODE_ROLE(VJ_ROLE_OBJECT) : 0) |
                 (v->place->meta != NULL ? VJ_NODE_ROLE(VJ_ROLE_META) : 0) |
                 (v->place->clients != NULL ? VJ_NODE_ROLE(VJ_ROLE_CLIENT) : 0);
    if (v->place->store != NULL) {
        vj_store_stats(v->place->store, &out->store);
        vj_store_erasures(v->place->store, &out->erasures);
    }
    if (v->place->meta != NULL) {
        vj_meta_stats(v->place->meta, &out->meta);
    }
    if (v->place->clients != NULL) {
        VjVolume *volume = vj_clients_volume(v->place->clients);

        vj_store_stats(vj_volume_store(volume), &out->store);
        vj_store_erasures(vj_volume_store(volume), &out->erasures);
        vj_meta_stats(vj_volume_meta(volume), &out->meta);
        vj_clients_stats(v->place->clients, &out->clients);
    }
}

static gint by_name(gconstpointer a, gconstpointer b)
{
    return strcmp(((const VjNodeVolumeStats *)a)->name,
                  ((const VjNodeVolumeStats *)b)->name);
}

void vj_node_each_volume(VjNode *n, const char *identity, VjNodeVolumeVisit *visit,
                         void *opaque)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(VjNodeVolumeStats));
    bool is_operator = strcmp(identity, "key:" VJ_NODE_OPERATOR) == 0;
    GHashTableIter iter;
    gpointer name, value;

    vj_mutex_lock(&n->lock);
    g_hash_table_iter_init(&iter, n->volumes);
    while (g_hash_table_iter_next(&iter, &name, &value)) {
        VjNodeVolume *v = value;
        VjNodeVolumeStats stats;

        if (is_operator || vj_node_volume_conf_admits(v->conf, identity)) {
            fill(g_intern_string(name), v, &stats);
            g_array_append_val(all, stats);
        }
    }
    vj_mutex_unlock(&n->lock);
    g_array_sort(all, by_name);
    for (guint i = 0; i < all->len; i++) {
        visit(opaque, &g_array_index(all, VjNodeVolumeStats, i));
    }
}

void vj_node_set_server(VjNode *n, VjRpcServer *server)
{
    vj_mutex_lock(&n->lock);
    n->server = server;
    vj_mutex_unlock(&n->lock);
}

VjRpcServer *vj_node_server(VjNode *n)
{
    VjRpcServer *server;

    vj_mutex_lock(&n->lock);
    server = n->server;
    vj_mutex_unlock(&n->lock);
    return server;
}

int64_t vj_node_started_us(const VjNode *n)
{
    return n->started_us;
}

gint *vj_node_areas(VjNode *n)
{
    return &n->areas;
}

/* ---- hello ------------------------------------------------------------------------- */

/* By one thread at a time; the lock is given up meanwhile. */
static int open_or_add(VjNode *n, VjNodeVolume *v, VjNodePlaceOpen *how, bool *was_empty)
    VJ_REQUIRES(n->lock)
{
    g_autoptr(VjNodeVolumeConf) conf = vj_node_volume_conf_copy(v->conf);
    VjNodePlace *place = v->place;
    int rc;

    how->conf = conf;
    v->is_busy = true;
    vj_mutex_unlock(&n->lock);
    rc = place != NULL ? vj_node_place_add(place, how, was_empty)
                       : vj_node_place_open(how, &place, was_empty);
    vj_mutex_lock(&n->lock);
    v->place = place;
    v->is_busy = false;
    vj_cond_broadcast(&n->changed);
    return rc;
}

static bool has_role(const VjNodePlace *p, uint8_t role)
{
    return role == VJ_ROLE_OBJECT ? p->store != NULL
           : role == VJ_ROLE_META ? p->meta != NULL
                                  : p->clients != NULL;
}

/* Programs need not know which volume it is. */
static bool is_wanted(const VjNodePlaceOpen *how,
                      const uint8_t volume[VJ_WIRE_UUID_BYTES])
{
    static const uint8_t any[VJ_WIRE_UUID_BYTES];

    return memcmp(volume, how->volume, sizeof how->volume) == 0 ||
           (how->role == VJ_ROLE_CLIENT &&
            memcmp(how->volume, any, sizeof how->volume) == 0);
}

/* The place is open for the role and volume of @how; gives the lock up meanwhile. */
static int enter_place(VjNode *n, VjNodeVolume *v, VjNodePlaceOpen *how, bool *was_empty)
    VJ_REQUIRES(n->lock)
{
    while (v->is_busy) {
        vj_cond_wait(&n->changed, &n->lock);
    }
    if (g_atomic_int_get(&v->is_gone)) {
        return -ESHUTDOWN;
    }
    if (v->place != NULL && !is_wanted(how, v->place->volume)) {
        if ((how->flags & VJ_HELLO_DESTROY) == 0 || how->role == VJ_ROLE_CLIENT) {
            return -ENXIO;
        }
        if (v->peers > 0) {
            vj_log_warn("%s is not destroyed, as mkfs.varjfs -f asks for: it is in use",
                        v->place->path);
            return -EBUSY;
        }
        close_if_unused(n, v);
    }
    /* Its session was shut out: who comes now waits until the others are gone. */
    if (v->place != NULL && v->place->clients != NULL &&
        g_atomic_int_get(&v->place->has_failed)) {
        close_if_unused(n, v);
        if (v->place != NULL) {
            return -ESHUTDOWN;
        }
    }
    if (v->place == NULL || !has_role(v->place, how->role)) {
        int rc = open_or_add(n, v, how, was_empty);

        return rc == 0 && !is_wanted(how, v->place->volume) ? -ENXIO : rc;
    }
    return 0;
}

static int enter(VjNode *n, const VjHello *hello, const char *identity, VjNodePeer *peer,
                 bool *was_empty) VJ_REQUIRES(n->lock)
{
    g_autofree char *name = g_strndup(hello->volume.data, hello->volume.len);
    VjNodeVolume *v = g_hash_table_lookup(n->volumes, name);
    VjNodePlaceOpen how = {.role = hello->role,
                           .flags = hello->flags,
                           .wrap_store = n->wrap_store,
                           .wrap_meta = n->wrap_meta};
    int rc;

    /* One answer for both: who asks does not hear which volumes there are. */
    if (v == NULL || !vj_node_volume_conf_admits(v->conf, identity)) {
        vj_log_warn("a peer (%s) asks for the volume \"%s\", which is not for it",
                    *identity != '\0' ? identity : "without credentials", name);
        return -EACCES;
    }
    if (hello->role > VJ_ROLE_CLIENT) {
        return -EOPNOTSUPP; /* of a later version */
    }
    if ((v->conf->roles & VJ_NODE_ROLE(hello->role)) == 0) {
        return -EOPNOTSUPP;
    }
    memcpy(how.volume, hello->uuid, sizeof how.volume);
    v->refs++;
    rc = enter_place(n, v, &how, was_empty);
    if (rc < 0) {
        unref_locked(n, v);
        return rc;
    }
    v->peers++;
    peer->volume = v;
    peer->place = v->place;
    peer->is_gone = &v->is_gone;
    return 0;
}

/* Who asks for no role gets statistics alone. */
static int admit(VjNode *n, const VjHello *hello, const char *identity, VjNodePeer *peer,
                 VjHelloReply *answer)
{
    bool was_empty = false;
    int rc;

    *peer = (VjNodePeer){.node = n,
                         .role = hello->role,
                         .read_only = (hello->flags & VJ_HELLO_READ_ONLY) != 0};
    if (hello->role != VJ_ROLE_ANY) {
        vj_mutex_lock(&n->lock);
        rc = enter(n, hello, identity, peer, &was_empty);
        vj_mutex_unlock(&n->lock);
        if (rc < 0) {
            return rc;
        }
        memcpy(answer->node, peer->place->node, sizeof answer->node);
        answer->was_empty = was_empty;
    }
    peer->identity = g_strdup(identity);
    return 0;
}

int vj_node_hello(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                  void **out, GByteArray *reply)
{
    VjNode *n = opaque;
    VjHelloReply answer = {.version = VJ_WIRE_VERSION};
    VjNodePeer peer;
    VjHello hello;
    int rc = vj_hello_decode(message, &hello);

    if (rc < 0) {
        return rc;
    }
    if (hello.version_min > VJ_WIRE_VERSION || hello.version_max < VJ_WIRE_VERSION) {
        return -EOPNOTSUPP;
    }
    rc = admit(n, &hello, identity, &peer, &answer);
    vj_trace(node, "hello: role %u identity %s result %d", hello.role, identity, rc);
    if (rc < 0) {
        return rc;
    }
    memcpy(answer.instance, n->instance, sizeof answer.instance);
    vj_hello_reply_encode(reply, &answer);
    *role = peer.role;
    *out = g_memdup2(&peer, sizeof peer);
    return 0;
}

static void leave(VjNode *n, VjNodeVolume *v) VJ_REQUIRES(n->lock)
{
    v->peers--;
    /* A store that cannot be flushed for the sake of puts that nobody will put again is
     * opened anew by the next hello. */
    if (g_atomic_int_get(&v->is_gone) ||
        (v->place != NULL && g_atomic_int_get(&v->place->has_failed))) {
        close_if_unused(n, v);
    }
    unref_locked(n, v);
}

void vj_node_gone(void *opaque, void *gone)
{
    VjNode *n = opaque;
    VjNodePeer *peer = gone;

    if (peer->volume != NULL) {
        vj_mutex_lock(&n->lock);
        leave(n, peer->volume);
        vj_mutex_unlock(&n->lock);
    }
    vj_node_area_free(peer->area);
    g_free(peer->identity);
    g_free(peer);
}

bool vj_node_open(VjNode *n, const char *volume, GError **error)
{
    VjNodePlaceOpen how = {
        .role = VJ_ROLE_CLIENT, .wrap_store = n->wrap_store, .wrap_meta = n->wrap_meta};
    bool was_empty;
    VjNodeVolume *v;
    int rc;

    vj_mutex_lock(&n->lock);
    v = g_hash_table_lookup(n->volumes, volume);
    g_assert(v != NULL);
    rc = enter_place(n, v, &how, &was_empty);
    vj_mutex_unlock(&n->lock);
    if (rc == -EBUSY) {
        return vj_error_set(error, EBUSY, "%s: another program uses it, as a mount",
                            v->conf->directory);
    }
    return rc == 0 || vj_error_set_errno(error, -rc, "%s", v->conf->directory);
}

/* ---- operations -------------------------------------------------------------------- */

/* Of messages: with objects, with keys or checks of keys, and of others. */
#define OBJECTS_MAX (4u + VJ_WIRE_OBJECTS_MAX * 16u)
#define KEYS_MAX (1024u + VJ_WIRE_KEYS_MAX * (VJ_WIRE_KEY_MAX + 11u))
#define SMALL_MAX 4096u

typedef void Handler(VjRpcRequest *r);

static void serve(VjRpcRequest *r, const char *name, Handler *handler)
{
    const VjNodePeer *peer = vj_node_peer(r);

    vj_trace(node, "%s: %zu bytes", name, vj_rpc_request_message(r).len);
    if (g_atomic_int_get(peer->is_gone)) {
        vj_node_reply_rc(r, -EACCES); /* the configuration has its volume no more */
    } else {
        handler(r);
    }
}

#define SERVE(name)                                                                      \
    static void serve_##name(VjRpcRequest *r)                                            \
    {                                                                                    \
        serve(r, #name, vj_node_##name);                                                 \
    }

/* Of requests that have no fields: a message is of a version that this is not. */
#define SERVE_EMPTY(name)                                                                \
    static void serve_##name(VjRpcRequest *r)                                            \
    {                                                                                    \
        if (vj_rpc_request_message(r).len > 0) {                                         \
            vj_node_reply_rc(r, -EPROTO);                                                \
        } else {                                                                         \
            serve(r, #name, vj_node_##name);                                             \
        }                                                                                \
    }

SERVE(put)
SERVE(get)
SERVE(remove)
SERVE(have)
SERVE_EMPTY(flush)
SERVE_EMPTY(flush_removes)
SERVE(list)
SERVE_EMPTY(space)
SERVE(run_digest)
SERVE(run_put_plain)
SERVE(run_get_plain)
SERVE(get_many)
SERVE(scan)
SERVE(apply)
SERVE_EMPTY(clock)
SERVE(count)
SERVE(batch)
SERVE(iterate)
SERVE_EMPTY(sync)
SERVE(empty)
SERVE_EMPTY(share)
SERVE_EMPTY(mailbox)
SERVE_EMPTY(bell)

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

G_STATIC_ASSERT(VJ_OP_BATCH == VARJFS_WIRE_BATCH &&
                VJ_OP_ITERATE == VARJFS_WIRE_ITERATE && VJ_OP_SYNC == VARJFS_WIRE_SYNC &&
                VJ_OP_EMPTY == VARJFS_WIRE_EMPTY && VJ_OP_SHARE == VARJFS_WIRE_SHARE &&
                VJ_OP_MAILBOX == VARJFS_WIRE_MAILBOX && VJ_OP_BELL == VARJFS_WIRE_BELL &&
                VJ_MAILBOX_REQUEST_AT == VARJFS_WIRE_MAILBOX_REQUEST_AT &&
                VJ_MAILBOX_REPLY_AT == VARJFS_WIRE_MAILBOX_REPLY_AT &&
                VJ_MAILBOX_BYTES == VARJFS_WIRE_MAILBOX_BYTES &&
                (int)VJ_MAILBOX_BY_SOCKET == (int)VARJFS_WIRE_MAILBOX_BY_SOCKET &&
                VJ_ROLE_CLIENT == VARJFS_WIRE_ROLE_CLIENT);

#define CLIENT(number, text, message, bulk, function)                                    \
    {                                                                                    \
        .op = (number), .role = VJ_ROLE_CLIENT, .name = (text),                          \
        .message_max = (message), .bulk_max = (bulk), .run = (function)                  \
    }

const VjRpcHandler vj_node_handlers[] = {
    {.op = VJ_OP_STATS,
     .role = VJ_ROLE_ANY,
     .name = "stats",
     .message_max = SMALL_MAX,
     .run = vj_node_stats},
    OBJECT(VJ_OP_PUT, "put", SMALL_MAX, (uint32_t)VJ_STORE_OBJECT_MAX, serve_put),
    OBJECT(VJ_OP_GET, "get", SMALL_MAX, 0, serve_get),
    OBJECT(VJ_OP_REMOVE, "remove", OBJECTS_MAX, 0, serve_remove),
    OBJECT(VJ_OP_HAVE, "have", OBJECTS_MAX, 0, serve_have),
    {.op = VJ_OP_FLUSH,
     .role = VJ_ROLE_OBJECT,
     .name = "flush",
     .message_max = SMALL_MAX,
     .run = serve_flush,
     .after_earlier = true},
    {.op = VJ_OP_FLUSH_REMOVES,
     .role = VJ_ROLE_OBJECT,
     .name = "flush_removes",
     .message_max = SMALL_MAX,
     .run = serve_flush_removes,
     .after_earlier = true},
    OBJECT(VJ_OP_LIST, "list", SMALL_MAX, 0, serve_list),
    OBJECT(VJ_OP_SPACE, "space", SMALL_MAX, 0, serve_space),
    OBJECT(VJ_OP_DIGEST, "digest", SMALL_MAX, 0, serve_run_digest),
    OBJECT(VJ_OP_PUT_PLAIN, "put_plain", SMALL_MAX, VJ_WIRE_PLAIN_MAX,
           serve_run_put_plain),
    OBJECT(VJ_OP_GET_PLAIN, "get_plain", SMALL_MAX, 0, serve_run_get_plain),
    META(VJ_OP_GET_MANY, "get_many", KEYS_MAX, 0, serve_get_many),
    META(VJ_OP_SCAN, "scan", SMALL_MAX, 0, serve_scan),
    META(VJ_OP_APPLY, "apply", KEYS_MAX, VJ_RPC_BULK_MAX, serve_apply),
    META(VJ_OP_CLOCK, "clock", SMALL_MAX, 0, serve_clock),
    META(VJ_OP_COUNT, "count", SMALL_MAX, 0, serve_count),
    CLIENT(VJ_OP_BATCH, "batch", VARJFS_WIRE_BATCH_MESSAGE_MAX,
           VARJFS_WIRE_BATCH_BULK_MAX, serve_batch),
    CLIENT(VJ_OP_ITERATE, "iterate", VARJFS_WIRE_ITERATE_MESSAGE_MAX, 0, serve_iterate),
    CLIENT(VJ_OP_SYNC, "sync", SMALL_MAX, 0, serve_sync),
    CLIENT(VJ_OP_EMPTY, "empty", SMALL_MAX, 0, serve_empty),
    {.op = VJ_OP_SHARE,
     .role = VJ_ROLE_CLIENT,
     .name = "share",
     .message_max = SMALL_MAX,
     .run = serve_share,
     .is_quick = true},
    {.op = VJ_OP_MAILBOX,
     .role = VJ_ROLE_CLIENT,
     .name = "mailbox",
     .message_max = SMALL_MAX,
     .run = serve_mailbox,
     .is_quick = true},
    {.op = VJ_OP_BELL,
     .role = VJ_ROLE_CLIENT,
     .name = "bell",
     .message_max = SMALL_MAX,
     .run = serve_bell,
     .is_quick = true},
    {.op = 0},
};
