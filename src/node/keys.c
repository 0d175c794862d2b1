/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * keys.c - operations of the role meta
 *
 * The keys of a volume stand in an exclusive session of room meta, which makes an APPLY
 * durable by one write of its log.  The version of a value is a hash of it, so nothing is
 * kept for it.  APPLYs run one at a time: each compares, changes and is durable before
 * the next one begins.  One that only has to be received is answered when it can be seen;
 * it becomes durable with the next one that is, or by the commit interval of the session
 * here, whether its client is still there or not.
 *
 * A client that lost its connection sends its batch again, and an older one of it may
 * still be on its way: so a batch without checks whose number is smaller than that of
 * the last one under the same fence is too late, and is not done.
 */
#include "node/node-private.h"

struct VjNodeKeys {
    VjMutex lock; /* VJ_RANK_NODE */
    VjCond changed;
    /* guarded by lock: */
    bool is_applying;
    uint64_t counts[VJ_SPACE_COUNT];
    /* of the one that applies: */
    uint64_t fence_key_hash, fence_version, number;
};

int vj_node_keys_new(VjMeta *meta, VjNodeKeys **out)
{
    VjNodeKeys *k = g_new0(VjNodeKeys, 1);
    int rc = 0;

    G_STATIC_ASSERT(VJ_WIRE_SPACES == VJ_SPACE_COUNT);
    G_STATIC_ASSERT(VJ_WIRE_KEY_MAX == VJ_META_KEY_MAX);
    G_STATIC_ASSERT(VJ_WIRE_VALUE_MAX == VJ_META_VALUE_MAX);
    for (unsigned i = 0; rc == 0 && i < VJ_SPACE_COUNT; i++) {
        rc = vj_meta_count(meta, (VjSpace)i, &k->counts[i]);
    }
    if (rc < 0) {
        g_free(k);
        *out = NULL;
        return rc;
    }
    vj_mutex_init(&k->lock, VJ_RANK_NODE, "node.keys");
    vj_cond_init(&k->changed);
    *out = k;
    return 0;
}

void vj_node_keys_free(VjNodeKeys *k)
{
    if (k != NULL) {
        vj_cond_clear(&k->changed);
        vj_mutex_clear(&k->lock);
        g_free(k);
    }
}

static uint64_t version_of(VjSlice value)
{
    uint64_t sum = vj_checksum64(value.data, value.len);

    return sum != 0 ? sum : 1;
}

/* ---- items of a reply -------------------------------------------------------------- */

typedef struct Items {
    GByteArray *bytes;
    VjWireItemsReply head;
} Items;

/* False: there is no room for it, and the client asks for it again. */
static bool add(Items *items, const VjWireItem *item)
{
    size_t bytes = vj_wire_item_bytes(item);

    if (items->head.count > 0 && items->bytes->len + bytes > VJ_WIRE_ITEMS_BYTES_MAX) {
        items->head.more = 1;
        return false;
    }
    vj_wire_item_encode(items->bytes, item);
    items->head.count++;
    return true;
}

static void reset(Items *items)
{
    g_byte_array_set_size(items->bytes, 0);
    items->head = (VjWireItemsReply){0};
}

static void reply_items(VjRpcRequest *r, int rc, const Items *items)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    g_autoptr(VjBuf) bulk = NULL;

    if (items->bytes->len > 0) {
        bulk = vj_buf_new_copy(items->bytes->data, items->bytes->len);
        if (bulk == NULL) {
            vj_node_reply_rc(r, -ENOMEM);
            return;
        }
    }
    vj_wire_items_reply_encode(message, &items->head);
    vj_rpc_reply(r, rc, vj_slice(message->data, message->len), bulk, items->bytes->len);
}

/* As it is now; version 0: it is not there. */
static int get_item(VjTxn *txn, const VjWireKey *key, VjWireItem *out)
{
    int rc;

    *out = (VjWireItem){.key = *key};
    rc = vj_txn_get(txn, (VjSpace)key->space, key->key, &out->value);
    if (rc == -ENOENT) {
        out->value = vj_slice(NULL, 0);
        return 0;
    }
    out->version = rc == 0 ? version_of(out->value) : 0;
    return rc;
}

/* ---- reading ----------------------------------------------------------------------- */

typedef struct GetMany {
    const GArray *keys; /* of VjWireKey */
    Items items;
} GetMany;

static int get_many_body(VjTxn *txn, void *opaque)
{
    GetMany *g = opaque;
    int rc = 0;

    reset(&g->items);
    for (guint i = 0; rc == 0 && i < g->keys->len; i++) {
        VjWireItem item;

        rc = get_item(txn, &g_array_index(g->keys, VjWireKey, i), &item);
        if (rc == 0 && !add(&g->items, &item)) {
            break;
        }
    }
    return rc;
}

void vj_node_get_many(VjRpcRequest *r)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_autoptr(GArray) keys = NULL;
    GetMany get = {.items = {.bytes = bytes}};
    int rc = vj_wire_keys_decode(vj_rpc_request_message(r), &keys);

    if (rc == 0) {
        get.keys = keys;
        rc = vj_meta_view(vj_node_peer(r)->place->meta, get_many_body, &get);
    }
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
    } else {
        reply_items(r, 0, &get.items);
    }
}

typedef struct Scan {
    VjWireScan range;
    Items items;
} Scan;

static bool is_at_end(const Scan *s, VjSlice key)
{
    int order = s->range.to.len == 0 ? 0 : vj_slice_compare(key, s->range.to);

    return s->range.to.len > 0 && (s->range.backward ? order <= 0 : order >= 0);
}

static int scan_body(VjTxn *txn, void *opaque)
{
    Scan *s = opaque;
    uint8_t at[VJ_META_KEY_MAX];
    VjSpace space = (VjSpace)s->range.space;
    VjSlice from = s->range.from, key, value;

    reset(&s->items);
    for (;;) {
        int rc = s->range.backward ? vj_txn_prev(txn, space, from, &key, &value)
                                   : vj_txn_next(txn, space, from, &key, &value);

        if (rc == -ENOENT || (rc == 0 && is_at_end(s, key))) {
            return 0;
        }
        if (rc < 0) {
            return rc;
        }
        if (s->items.head.count == s->range.limit) {
            s->items.head.more = 1;
            return 0;
        }
        if (!add(&s->items, &(VjWireItem){.key = {.space = s->range.space, .key = key},
                                          .version = version_of(value),
                                          .value = value})) {
            return 0;
        }
        memcpy(at, key.data, key.len);
        from = vj_slice(at, key.len);
    }
}

void vj_node_scan(VjRpcRequest *r)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    Scan scan = {.items = {.bytes = bytes}};
    int rc = vj_wire_scan_decode(vj_rpc_request_message(r), &scan.range);

    if (rc == 0) {
        rc = vj_meta_view(vj_node_peer(r)->place->meta, scan_body, &scan);
    }
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
    } else {
        reply_items(r, 0, &scan.items);
    }
}

/* ---- applying ---------------------------------------------------------------------- */

typedef enum Verdict { VERDICT_NONE, VERDICT_FENCED, VERDICT_CONFLICT } Verdict;

typedef struct Apply {
    VjWireApply m; /* its checks are owned */
    /* The changes as they came: an array of them would be many times as large. */
    VjSlice changes;
    bool only_deletes;
    Items fresh;
    Verdict verdict;
    int64_t added[VJ_SPACE_COUNT]; /* keys */
} Apply;

static bool is_in_order(const VjWireKey *a, const VjWireKey *b)
{
    return a->space < b->space ||
           (a->space == b->space && vj_slice_compare(a->key, b->key) < 0);
}

/* All of the bulk is decoded before anything is done. */
static int check_changes(Apply *a)
{
    VjReader r = vj_reader(a->changes);
    VjWireKey before = {0};
    uint64_t count = 0;

    a->only_deletes = true;
    for (; r.left > 0; count++) {
        VjWireChange change;

        if (vj_wire_change_decode(&r, &change) < 0 || count >= a->m.change_count ||
            (count > 0 && !is_in_order(&before, &change.key))) {
            return -EPROTO;
        }
        before = change.key;
        a->only_deletes = a->only_deletes && change.is_delete;
    }
    return count == a->m.change_count ? 0 : -EPROTO;
}

static int compare(VjTxn *txn, Apply *a)
{
    VjWireItem item;
    bool holds = true;
    int rc = 0;

    if (a->m.has_fence) {
        rc = get_item(txn, &a->m.fence.key, &item);
        if (rc == 0 && item.version != a->m.fence.version) {
            a->verdict = VERDICT_FENCED;
            return -ESTALE;
        }
    }
    for (guint i = 0; rc == 0 && i < a->m.checks->len; i++) {
        const VjWireCheck *check = &g_array_index(a->m.checks, VjWireCheck, i);

        rc = get_item(txn, &check->key, &item);
        holds = holds && rc == 0 && item.version == check->version;
        if (rc == 0 && !a->fresh.head.more) {
            (void)add(&a->fresh, &item);
        }
    }
    if (rc == 0 && !holds) {
        a->verdict = VERDICT_CONFLICT;
        return -ESTALE;
    }
    return rc;
}

static int change(VjTxn *txn, Apply *a, const VjWireChange *c)
{
    VjSpace space = (VjSpace)c->key.space;
    VjSlice old;
    int rc = vj_txn_get(txn, space, c->key.key, &old);
    bool was_there = rc == 0;

    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    if (c->is_delete) {
        rc = was_there ? vj_txn_del(txn, space, c->key.key) : 0;
        a->added[space] -= was_there;
    } else {
        rc = vj_txn_put(txn, space, c->key.key, c->value);
        a->added[space] += !was_there;
    }
    return rc;
}

static int apply_body(VjTxn *txn, void *opaque)
{
    Apply *a = opaque;
    VjReader r = vj_reader(a->changes);
    int rc;

    reset(&a->fresh);
    a->verdict = VERDICT_NONE;
    memset(a->added, 0, sizeof a->added);
    rc = compare(txn, a);
    while (rc == 0 && r.left > 0) {
        VjWireChange c;

        rc = vj_wire_change_decode(&r, &c);
        g_assert(rc == 0); /* check_changes has seen it */
        rc = change(txn, a, &c);
    }
    return rc;
}

static void begin(VjNodeKeys *k)
{
    vj_mutex_lock(&k->lock);
    while (k->is_applying) {
        vj_cond_wait(&k->changed, &k->lock);
    }
    k->is_applying = true;
    vj_mutex_unlock(&k->lock);
}

/* Batches with checks guard themselves, and a batch without a number is the only one. */
static bool has_order(const VjWireApply *m)
{
    return m->has_fence && m->checks->len == 0 && m->number > 0;
}

static uint64_t fence_key_hash(const VjWireApply *m)
{
    return vj_checksum64(m->fence.key.key.data, m->fence.key.key.len);
}

/* The number of the last batch of @m's session; 0: there was none since this node
 * began. */
static uint64_t last_number(const VjNodeKeys *k, const VjWireApply *m)
{
    return fence_key_hash(m) == k->fence_key_hash && m->fence.version == k->fence_version
               ? k->number
               : 0;
}

/* An older batch of a session that has sent a newer one since. */
static bool is_too_late(const VjNodeKeys *k, const VjWireApply *m)
{
    return has_order(m) && m->number < last_number(k, m);
}

/* It stands on commits that were received and are gone: this node has begun anew. */
static bool lacks_commits(const VjNodeKeys *k, const VjWireApply *m)
{
    return m->is_received && m->after > last_number(k, m);
}

static void end(VjNodeKeys *k, const Apply *a, bool is_done)
{
    if (is_done && has_order(&a->m)) {
        k->fence_key_hash = fence_key_hash(&a->m);
        k->fence_version = a->m.fence.version;
        k->number = a->m.number;
    }
    vj_mutex_lock(&k->lock);
    for (unsigned i = 0; is_done && i < VJ_SPACE_COUNT; i++) {
        k->counts[i] += (uint64_t)a->added[i];
    }
    k->is_applying = false;
    vj_cond_broadcast(&k->changed);
    vj_mutex_unlock(&k->lock);
}

static int run_apply(VjRpcRequest *r, Apply *a)
{
    VjNodePlace *place = vj_node_peer(r)->place;
    bool is_visible;
    int rc;

    begin(place->keys);
    if (vj_clock_mono_us() >= vj_rpc_request_deadline_us(r) ||
        vj_rpc_request_is_canceled(r) || is_too_late(place->keys, &a->m)) {
        end(place->keys, a, false);
        return -ETIMEDOUT;
    }
    if (lacks_commits(place->keys, &a->m)) {
        end(place->keys, a, false);
        a->verdict = VERDICT_CONFLICT;
        return -ESTALE;
    }
    rc = vj_meta_run(place->meta, a->only_deletes ? VJ_RUN_RELEASE : VJ_RUN_DEFAULT,
                     apply_body, a);
    is_visible = rc == 0;
    if (rc == 0 && !a->m.is_received) {
        rc = vj_meta_flush(place->meta);
    }
    end(place->keys, a, is_visible);
    return rc;
}

void vj_node_apply(VjRpcRequest *r)
{
    g_autoptr(GByteArray) fresh = g_byte_array_new();
    Apply a = {.fresh = {.bytes = fresh}};
    uint32_t bytes;
    const VjBuf *bulk = vj_rpc_request_bulk(r, &bytes);
    int rc;

    if (vj_node_peer(r)->read_only) {
        vj_node_reply_rc(r, -EROFS);
        return;
    }
    rc = vj_wire_apply_decode(vj_rpc_request_message(r), &a.m);
    if (rc == 0) {
        a.changes = bulk != NULL ? vj_slice(bulk->data, bytes) : vj_slice(NULL, 0);
        rc = check_changes(&a);
    }
    if (rc == 0) {
        rc = run_apply(r, &a);
    }
    if (rc == -ESTALE && a.verdict == VERDICT_CONFLICT) {
        reply_items(r, -EAGAIN, &a.fresh);
    } else {
        vj_node_reply_rc(r, rc);
    }
    g_clear_pointer(&a.m.checks, g_array_unref);
}

/* ---- the rest ---------------------------------------------------------------------- */

static void reply_u64(VjRpcRequest *r, uint64_t value)
{
    GByteArray *reply = g_byte_array_new();

    vj_wire_u64_encode(reply, value);
    vj_node_reply_message(r, reply);
}

void vj_node_clock(VjRpcRequest *r)
{
    struct timespec now = vj_clock_real();

    reply_u64(r, (uint64_t)now.tv_sec * G_USEC_PER_SEC + (uint64_t)now.tv_nsec / 1000);
}

void vj_node_count(VjRpcRequest *r)
{
    VjNodeKeys *k = vj_node_peer(r)->place->keys;
    uint64_t count;
    uint8_t space;
    int rc = vj_wire_u8_decode(vj_rpc_request_message(r), &space);

    if (rc < 0 || space >= VJ_SPACE_COUNT) {
        vj_node_reply_rc(r, -EPROTO);
        return;
    }
    vj_mutex_lock(&k->lock);
    count = k->counts[space];
    vj_mutex_unlock(&k->lock);
    reply_u64(r, count);
}
