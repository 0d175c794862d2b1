/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-form.c - nodes that make stored forms, take them apart and digest content
 *
 * The caller's thread waits.  What no node can do now is left to the caller, who does it
 * by way of put and get: so there is no waiting for nodes here.
 */
#include "store/remote-private.h"

static VjWireForm wire_form(const VjStoreForm *form)
{
    return (VjWireForm){.codec = form->codec,
                        .param = form->param,
                        .key_id = form->key_id,
                        .plain_bytes = form->plain_bytes,
                        .stored_bytes = form->stored_bytes,
                        .trailer_checksum = form->trailer_checksum};
}

static VjSlice reply_of(const VjRpcCall *call)
{
    return vj_slice(call->reply->data, call->reply->len);
}

/* ---- putting ----------------------------------------------------------------------- */

typedef struct PutPlain {
    VjRemote *r;
    VjWireObject object;
    VjRemotePut *put;
    unsigned nodes[VJ_PLACEMENT_NODES_MAX], count;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX];
    uint64_t lives[VJ_PLACEMENT_NODES_MAX];
    bool has_form;
    VjWireForm form;  /* that the first node made */
    VjNodeSet silent; /* nodes that may have it, or another form of it */
} PutPlain;

/* False: there is no node, or no room for one more that no flush has covered. */
static bool choose(PutPlain *p)
{
    VjRemote *r = p->r;
    uint8_t order[VJ_PLACEMENT_NODES_MAX];
    VjNodeSet usable = vj_remote_live(r) & ~vj_remote_draining(r), chosen;

    vj_remote_rank(r, p->object.id, order);
    chosen = vj_placement_first(order, vj_remote_count(r), usable, r->replicas);
    if (chosen == 0) {
        return false;
    }
    vj_mutex_lock(&r->lock);
    if (vj_remote_has_room(r)) {
        p->put = vj_remote_put_begin(r, p->object.id, p->object.nonce);
        VJ_NODE_EACH(i, chosen)
        {
            p->lives[p->count] = r->nodes[i].life;
            p->nodes[p->count++] = i;
        }
    }
    vj_mutex_unlock(&r->lock);
    return p->put != NULL;
}

/* What one node said. */
static int take_answer(PutPlain *p, unsigned i)
{
    const VjRpcCall *call = p->calls[i];
    VjRemoteNode *node = &p->r->nodes[p->nodes[i]];
    VjWireForm form;
    bool is_good;

    if (!call->is_answered && call->rc != -ENOTCONN) {
        p->silent |= vj_node_bit(node->index);
    }
    if (call->rc < 0) {
        return vj_remote_is_lost(call) ? -ETIMEDOUT : call->rc;
    }
    if (vj_wire_form_decode(reply_of(call), &form) < 0) {
        return -EPROTO;
    }
    if (p->has_form && memcmp(&form, &p->form, sizeof form) != 0) {
        /* Another version of a library: one record cannot describe both, and heal puts
         * there what the first node made. */
        p->silent |= vj_node_bit(node->index);
        return -ETIMEDOUT;
    }
    vj_mutex_lock(&p->r->lock);
    is_good = vj_remote_put_acknowledge(p->put, node, p->lives[i]);
    vj_mutex_unlock(&p->r->lock);
    if (is_good) {
        p->has_form = true;
        p->form = form;
    } else {
        p->silent |= vj_node_bit(node->index);
    }
    return is_good ? 0 : -ETIMEDOUT;
}

static int run_puts(PutPlain *p, const VjWirePutPlain *message, VjBuf *bulk, size_t len)
{
    int rc = -ETIMEDOUT;

    for (unsigned i = 0; i < p->count; i++) {
        VjRpcCall *call = vj_remote_call_new(p->r, VJ_OP_PUT_PLAIN);

        vj_wire_put_plain_encode(call->message, message);
        call->bulk = vj_buf_ref(bulk);
        call->bulk_bytes = (uint32_t)len;
        p->calls[i] = call;
    }
    vj_remote_run(p->r, p->nodes, p->calls, p->count);
    for (unsigned i = 0; i < p->count; i++) {
        int one = take_answer(p, i);

        rc = p->has_form ? 0 : one;
        vj_rpc_call_unref(p->calls[i]);
    }
    if (rc < 0 && p->silent != 0) {
        vj_remote_remove_at(p->r, p->object.id, p->object.nonce, p->silent);
    }
    return rc;
}

int vj_remote_put_plain(VjStore *s, uint64_t id, const VjStoreWant *want,
                        const void *bytes, size_t len, VjPut *out, VjStoreForm *form)
{
    VjRemote *r = (VjRemote *)s;
    PutPlain p = {.r = r, .object = {.id = id, .nonce = vj_remote_seam->random_u64()}};
    VjWirePutPlain message = {.object = p.object,
                              .codec = want->codec,
                              .param = want->param,
                              .level = (uint8_t)want->level,
                              .wire_codec = want->wire_codec,
                              .wire_param = want->wire_param,
                              .plain_bytes = want->plain_bytes};
    g_autoptr(VjBuf) bulk = vj_buf_new_copy(bytes, len);
    int rc;

    if (r->read_only) {
        return -EROFS;
    }
    if (bulk == NULL) {
        return -ENOMEM;
    }
    if (!choose(&p)) {
        return -EOPNOTSUPP;
    }
    rc = run_puts(&p, &message, bulk, len);
    vj_mutex_lock(&r->lock);
    *out = (VjPut){
        .id = id,
        .loc = vj_remote_loc_encode(p.object.nonce, p.put->pending | p.put->durable),
        .stored_bytes = p.form.stored_bytes};
    if (rc == 0) {
        vj_remote_suspect_note(r, &p.object, p.silent);
    }
    vj_remote_put_return(r, p.put, rc < 0);
    vj_mutex_unlock(&r->lock);
    *form = (VjStoreForm){.codec = p.form.codec,
                          .param = p.form.param,
                          .key_id = p.form.key_id,
                          .plain_bytes = p.form.plain_bytes,
                          .stored_bytes = p.form.stored_bytes,
                          .trailer_checksum = p.form.trailer_checksum};
    return rc;
}

/* ---- asking one after the other ---------------------------------------------------- */

/* Makes the call, owned. */
typedef VjRpcCall *NewCall(VjRemote *r, const void *message);
/* 0: the answer is good, and was taken. */
typedef int TakeAnswer(const VjRpcCall *call, void *opaque);

/* The live nodes of @loc, until one gives a good answer. */
static int ask_each(VjRemote *r, uint64_t id, VjLoc loc, NewCall *new_call,
                    const void *message, TakeAnswer *take, void *opaque)
{
    uint8_t order[VJ_PLACEMENT_NODES_MAX];
    VjNodeSet nodes, live = vj_remote_live(r);
    uint64_t nonce;
    int rc = -EOPNOTSUPP;

    if (!vj_remote_loc_decode(loc, &nonce, &nodes)) {
        return -EBADMSG;
    }
    vj_remote_rank(r, id, order);
    for (unsigned i = 0; rc < 0 && i < vj_remote_count(r); i++) {
        unsigned index = order[i];

        if ((nodes & live & vj_node_bit(index)) != 0) {
            g_autoptr(VjRpcCall) call = new_call(r, message);
            VjRpcCall *calls[] = {call};

            vj_remote_run(r, &index, calls, 1);
            rc = call->rc < 0 ? (vj_remote_is_lost(call) ? -EOPNOTSUPP : call->rc)
                              : take(call, opaque);
        }
    }
    return rc;
}

/* ---- getting ----------------------------------------------------------------------- */

typedef struct Got {
    VjWireGetPlain message;
    VjBuf *bytes;
    bool is_encoded;
} Got;

static VjRpcCall *new_get(VjRemote *r, const void *opaque)
{
    const Got *g = opaque;
    VjRpcCall *call = vj_remote_call_new(r, VJ_OP_GET_PLAIN);

    vj_wire_get_plain_encode(call->message, &g->message);
    call->bulk_max = g->message.len;
    return call;
}

static int take_get(const VjRpcCall *call, void *opaque)
{
    Got *g = opaque;
    uint8_t codec;

    if (vj_wire_u8_decode(reply_of(call), &codec) < 0 || call->reply_bulk == NULL ||
        (codec != 0 && codec != g->message.wire_codec) ||
        (codec == 0 && call->reply_bulk_bytes != g->message.len)) {
        return -EPROTO;
    }
    g->is_encoded = codec != 0;
    g->bytes = vj_buf_ref(call->reply_bulk); /* which had room for more */
    g->bytes->len = call->reply_bulk_bytes;
    return 0;
}

int vj_remote_get_plain(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                        uint32_t offset, uint32_t len, const VjStoreWant *wire,
                        VjBuf **bytes, bool *is_encoded)
{
    Got g = {.message = {.object = {.id = id},
                         .form = wire_form(form),
                         .offset = offset,
                         .len = len,
                         .wire_codec = wire != NULL ? wire->wire_codec : 0,
                         .wire_param = wire != NULL ? wire->wire_param : 0}};
    VjNodeSet nodes;
    int rc;

    if (!vj_remote_loc_decode(loc, &g.message.object.nonce, &nodes)) {
        return -EBADMSG;
    }
    rc = ask_each((VjRemote *)s, id, loc, new_get, &g, take_get, &g);
    if (rc == 0) {
        *bytes = g.bytes;
        *is_encoded = g.is_encoded;
    }
    return rc;
}

/* ---- digests ----------------------------------------------------------------------- */

static VjRpcCall *new_digest(VjRemote *r, const void *opaque)
{
    VjRpcCall *call = vj_remote_call_new(r, VJ_OP_DIGEST);

    vj_wire_digest_encode(call->message, opaque);
    return call;
}

static int take_digest(const VjRpcCall *call, void *opaque)
{
    VjDigest *out = opaque;

    return vj_wire_digest_reply_decode(reply_of(call), out->bytes);
}

int vj_remote_digest(VjStore *s, uint64_t id, VjLoc loc, const VjStoreForm *form,
                     uint8_t algorithm, VjDigest *out)
{
    VjWireDigest message = {
        .object = {.id = id}, .form = wire_form(form), .digest = algorithm};
    VjNodeSet nodes;

    G_STATIC_ASSERT(sizeof out->bytes == VJ_WIRE_DIGEST_BYTES);
    if (!vj_remote_loc_decode(loc, &message.object.nonce, &nodes)) {
        return -EBADMSG;
    }
    return ask_each((VjRemote *)s, id, loc, new_digest, &message, take_digest, out);
}
