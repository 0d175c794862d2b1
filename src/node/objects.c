/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * objects.c - operations of the role object
 *
 * An object is (id, nonce) here; the store behind it makes its locators of the nonce.
 * Each function decodes, calls the store, and answers once.
 */
#include "node/form.h"
#include "node/node-private.h"

/* The store of a request that changes it; NULL: it was answered, and is gone. */
static VjStore *writable(VjRpcRequest *r)
{
    VjNodePeer *peer = vj_node_peer(r);

    if (peer->read_only) {
        vj_node_reply_rc(r, -EROFS);
        return NULL;
    }
    return peer->place->store;
}

static VjStore *store_of(const VjRpcRequest *r)
{
    return vj_node_peer(r)->place->store;
}

static int flush(VjRpcRequest *r)
{
    VjNodePlace *place = vj_node_peer(r)->place;
    int rc = vj_store_flush(place->store);

    if (rc < 0) {
        g_atomic_int_set(&place->has_failed, 1);
    }
    return rc;
}

/* A put of whatever kind is over. */
static int finish_put(VjRpcRequest *r, int rc, uint8_t flags)
{
    return rc == 0 && (flags & VJ_WIRE_PUT_DURABLE) != 0 ? flush(r) : rc;
}

void vj_node_put(VjRpcRequest *r)
{
    VjStore *s = writable(r);
    struct iovec iov;
    VjWirePut m;
    uint32_t bytes;
    VjBuf *bulk;
    VjPut put;
    int rc;

    if (s == NULL) {
        return;
    }
    bulk = vj_rpc_request_bulk(r, &bytes);
    rc = vj_wire_put_decode(vj_rpc_request_message(r), &m);
    if (rc == 0) {
        iov = (struct iovec){.iov_base = bytes > 0 ? bulk->data : NULL, .iov_len = bytes};
        rc = vj_store_put_as(s, m.object.id, m.object.nonce, &iov, 1, &put);
        rc = finish_put(r, rc, m.flags);
    }
    vj_node_reply_rc(r, rc);
}

static int send_file(void *r, int fd, uint64_t offset, size_t len)
{
    return vj_rpc_reply_file(r, fd, offset, (uint32_t)len);
}

void vj_node_get(VjRpcRequest *r)
{
    VjStore *s = store_of(r);
    g_autoptr(VjBuf) buf = NULL;
    VjWireGet m;
    VjLoc loc;
    int rc = vj_wire_get_decode(vj_rpc_request_message(r), &m);

    if (rc == 0) {
        loc = vj_store_loc_of_nonce(s, m.object.nonce);
        rc = vj_store_with_file(s, m.object.id, loc, m.offset, m.len, send_file, r);
        if (rc == 0) {
            return; /* it is answered */
        }
    }
    if (rc == -EOPNOTSUPP) {
        buf = vj_buf_new(m.len);
        rc = buf == NULL ? -ENOMEM
                         : vj_store_get_unaligned(s, m.object.id, loc, m.offset,
                                                  buf->data, m.len);
    }
    vj_rpc_reply(r, rc, vj_slice(NULL, 0), rc == 0 ? buf : NULL, rc == 0 ? m.len : 0);
}

void vj_node_remove(VjRpcRequest *r)
{
    VjStore *s = writable(r);
    g_autoptr(GArray) objects = NULL;
    g_autofree uint32_t *statuses = NULL;
    GByteArray *reply;
    int rc;

    if (s == NULL) {
        return;
    }
    rc = vj_wire_objects_decode(vj_rpc_request_message(r), &objects);
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    statuses = g_new(uint32_t, MAX(objects->len, 1));
    for (guint i = 0; i < objects->len; i++) {
        const VjWireObject *o = &g_array_index(objects, VjWireObject, i);

        statuses[i] =
            vj_wire_status(vj_store_remove(s, o->id, vj_store_loc_of_nonce(s, o->nonce)));
    }
    reply = g_byte_array_new();
    vj_wire_statuses_encode(reply, statuses, objects->len);
    vj_node_reply_message(r, reply);
}

void vj_node_have(VjRpcRequest *r)
{
    VjStore *s = store_of(r);
    g_autoptr(GArray) objects = NULL;
    g_autofree uint64_t *lengths = NULL;
    GByteArray *reply;
    int rc = vj_wire_objects_decode(vj_rpc_request_message(r), &objects);

    lengths = g_new(uint64_t, rc == 0 ? MAX(objects->len, 1) : 1);
    for (guint i = 0; rc == 0 && i < objects->len; i++) {
        const VjWireObject *o = &g_array_index(objects, VjWireObject, i);

        rc = vj_store_length(s, o->id, vj_store_loc_of_nonce(s, o->nonce), &lengths[i]);
        if (rc == -ENOENT || rc == -EBADMSG) {
            lengths[i] = VJ_WIRE_HAS_NOT;
            rc = 0;
        }
    }
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    reply = g_byte_array_new();
    vj_wire_lengths_encode(reply, lengths, objects->len);
    vj_node_reply_message(r, reply);
}

void vj_node_flush(VjRpcRequest *r)
{
    if (writable(r) != NULL) {
        vj_node_reply_rc(r, flush(r));
    }
}

void vj_node_flush_removes(VjRpcRequest *r)
{
    VjStore *s = writable(r);

    if (s != NULL) {
        vj_node_reply_rc(r, vj_store_flush_removes(s));
    }
}

/* ---- lists ------------------------------------------------------------------------- */

/* The objects behind `after` that come first, as many as are wanted and one more, out of
 * a walk in no order: when twice as many have come the rest is dropped. */
typedef struct Page {
    VjStore *store;
    VjWireObject after;
    size_t most;
    GArray *found; /* of VjWireListed */
} Page;

static int by_object(const VjWireObject *a, const VjWireObject *b)
{
    if (a->id != b->id) {
        return a->id < b->id ? -1 : 1;
    }
    return a->nonce < b->nonce ? -1 : a->nonce > b->nonce;
}

static gint by_listed(gconstpointer a, gconstpointer b)
{
    return by_object(&((const VjWireListed *)a)->object,
                     &((const VjWireListed *)b)->object);
}

static void cut(Page *p)
{
    g_array_sort(p->found, by_listed);
    if (p->found->len > p->most) {
        g_array_set_size(p->found, (guint)p->most);
    }
}

static bool visit(void *opaque, const VjPut *put, int64_t mtime_us)
{
    Page *p = opaque;
    VjWireListed listed = {
        .object = {.id = put->id}, .bytes = put->stored_bytes, .mtime_us = mtime_us};

    if (vj_store_nonce_of_loc(p->store, put->loc, &listed.object.nonce) &&
        by_object(&listed.object, &p->after) > 0) {
        g_array_append_val(p->found, listed);
        if (p->found->len >= 2 * p->most) {
            cut(p);
        }
    }
    return true;
}

static void reply_page(VjRpcRequest *r, const GArray *found, uint32_t limit)
{
    VjWireListReply m = {.more = found->len > limit, .count = MIN(found->len, limit)};
    uint32_t bytes = m.count * VJ_WIRE_LISTED_BYTES;
    g_autoptr(GByteArray) message = g_byte_array_new();
    g_autoptr(VjBuf) bulk = bytes > 0 ? vj_buf_new(bytes) : NULL;

    if (bytes > 0 && bulk == NULL) {
        vj_node_reply_rc(r, -ENOMEM);
        return;
    }
    for (uint32_t i = 0; i < m.count; i++) {
        vj_wire_listed_encode(&g_array_index(found, VjWireListed, i),
                              bulk->data + (size_t)i * VJ_WIRE_LISTED_BYTES);
    }
    vj_wire_list_reply_encode(message, &m);
    vj_rpc_reply(r, 0, vj_slice(message->data, message->len), bulk, bytes);
}

void vj_node_list(VjRpcRequest *r)
{
    g_autoptr(GArray) found = g_array_new(FALSE, FALSE, sizeof(VjWireListed));
    Page page = {.store = store_of(r), .found = found};
    VjWireList m;
    int rc = vj_wire_list_decode(vj_rpc_request_message(r), &m);

    if (rc == 0) {
        page.after = m.after;
        page.most = (size_t)m.limit + 1;
        rc = vj_store_each(page.store, m.first, m.last, visit, &page);
    }
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    cut(&page);
    reply_page(r, found, m.limit);
}

void vj_node_space(VjRpcRequest *r)
{
    VjStoreSpace space;
    GByteArray *reply;
    int rc = vj_store_space(store_of(r), &space);

    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    reply = g_byte_array_new();
    vj_wire_space_encode(reply,
                         &(VjWireSpace){.total_bytes = space.total_bytes,
                                        .free_bytes = space.free_bytes,
                                        .available_bytes = space.available_bytes,
                                        .available_objects = space.available_objects});
    vj_node_reply_message(r, reply);
}

/* ---- work of the room object (form.c) ---------------------------------------------- */

void vj_node_run_digest(VjRpcRequest *r)
{
    uint8_t digest[VJ_WIRE_DIGEST_BYTES];
    VjWireDigest m;
    GByteArray *reply;
    int rc = vj_wire_digest_decode(vj_rpc_request_message(r), &m);

    if (rc == 0) {
        rc = vj_node_digest(store_of(r), &m, digest);
    }
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    reply = g_byte_array_new();
    vj_wire_digest_reply_encode(reply, digest);
    vj_node_reply_message(r, reply);
}

void vj_node_run_put_plain(VjRpcRequest *r)
{
    VjStore *s = writable(r);
    uint32_t bytes;
    const VjBuf *bulk;
    VjWirePutPlain m;
    VjWireForm form;
    GByteArray *reply;
    int rc;

    if (s == NULL) {
        return;
    }
    bulk = vj_rpc_request_bulk(r, &bytes);
    rc = vj_wire_put_plain_decode(vj_rpc_request_message(r), &m);
    if (rc == 0) {
        rc = bulk == NULL ? -EPROTO
                          : vj_node_put_plain(s, &m, vj_slice(bulk->data, bytes), &form);
        rc = finish_put(r, rc, m.flags);
    }
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    reply = g_byte_array_new();
    vj_wire_form_encode(reply, &form);
    vj_node_reply_message(r, reply);
}

void vj_node_run_get_plain(VjRpcRequest *r)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    g_autoptr(VjBuf) bytes = NULL;
    uint8_t codec = 0;
    VjWireGetPlain m;
    int rc = vj_wire_get_plain_decode(vj_rpc_request_message(r), &m);

    if (rc == 0) {
        rc = vj_node_get_plain(store_of(r), &m, &bytes, &codec);
    }
    if (rc < 0) {
        vj_node_reply_rc(r, rc);
        return;
    }
    vj_wire_u8_encode(message, codec);
    vj_rpc_reply(r, 0, vj_slice(message->data, message->len), bytes,
                 (uint32_t)bytes->len);
}
