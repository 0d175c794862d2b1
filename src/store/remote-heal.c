/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-heal.c - an object gets its number of good replicas, where they ought to be
 *
 * All live nodes are asked whether they have it, and each replica is read, verified and
 * made durable.  Bad ones are removed, good ones are put where the object ought to be,
 * and those at other nodes are removed when there are enough.  In this order: at each
 * moment there are at least as many good replicas as there were at first, or as there
 * have to be.
 *
 * A suspect replica is bad as soon as there is another one.  A replica that is right, and
 * whose node fails to FLUSH, may have been durable for long: it stays, uncounted.
 */
#include "store/remote-private.h"

typedef struct Heal {
    VjRemote *r;
    VjWireObject object;
    uint64_t stored_bytes;
    VjStoreVerify *verify;
    void *opaque;
    uint8_t order[VJ_PLACEMENT_NODES_MAX];
    VjNodeSet live;    /* when it began; those that failed since are taken out */
    VjNodeSet there;   /* they have something of that name */
    VjNodeSet good;    /* they have what was put; from flush_good() on: durably */
    VjNodeSet kept;    /* it was good, and may be durable: the node cannot flush */
    VjNodeSet unsure;  /* the node has an error of its device */
    VjNodeSet suspect; /* nobody counts on what they have */
    VjBuf *bytes;      /* of a good one; NULL: none yet */
} Heal;

/* Where a new object of that id would go. */
static VjNodeSet ideal(VjRemote *r, const uint8_t *order, VjNodeSet live)
{
    VjNodeSet usable = live & ~vj_remote_draining(r);

    vj_mutex_lock(&r->lock);
    live &= ~r->leaving; /* it gets nothing even where all others are drained */
    vj_mutex_unlock(&r->lock);
    return vj_placement_first(order, vj_remote_count(r), usable != 0 ? usable : live,
                              r->replicas);
}

/* One call, waited for; returns its rc.  A node that gave no answer is not live for this
 * heal any more. */
static int run_one(Heal *h, unsigned index, VjRpcCall *call)
{
    vj_remote_run(h->r, &index, &call, 1);
    if (vj_remote_is_lost(call)) {
        h->live &= ~vj_node_bit(index);
    }
    return call->rc;
}

/* ---- who has it -------------------------------------------------------------------- */

static void ask_all(Heal *h)
{
    unsigned nodes[VJ_PLACEMENT_NODES_MAX] = {0}, count = 0;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX] = {NULL};

    VJ_NODE_EACH(i, h->live)
    {
        nodes[count] = i;
        calls[count++] = vj_remote_objects_call(h->r, VJ_OP_HAVE, &h->object, 1);
    }
    vj_remote_run(h->r, nodes, calls, count);
    for (unsigned i = 0; i < count; i++) {
        uint64_t bytes = VJ_WIRE_HAS_NOT;
        bool is_answer =
            calls[i]->rc == 0 &&
            vj_wire_lengths_decode(vj_slice(calls[i]->reply->data, calls[i]->reply->len),
                                   &bytes, 1) == 0;

        if (!is_answer) {
            h->live &= ~vj_node_bit(nodes[i]);
        } else if (bytes != VJ_WIRE_HAS_NOT) {
            h->there |= vj_node_bit(nodes[i]);
        }
        vj_rpc_call_unref(calls[i]);
    }
}

/* True: the node gave what was put. */
static bool read_good(Heal *h, unsigned index, VjBuf **bytes)
{
    g_autoptr(VjRpcCall) call = vj_remote_call_new(h->r, VJ_OP_GET);
    VjWireGet message = {
        .object = h->object, .offset = 0, .len = (uint32_t)h->stored_bytes};
    int rc;

    *bytes = NULL;
    if (h->stored_bytes == 0) {
        return h->verify(h->opaque, vj_slice(NULL, 0));
    }
    vj_wire_get_encode(call->message, &message);
    call->bulk_max = (uint32_t)h->stored_bytes;
    rc = run_one(h, index, call);
    if (rc == -EIO && (h->live & vj_node_bit(index)) != 0) {
        h->unsure |= vj_node_bit(index);
    }
    if (rc < 0 || call->reply_bulk == NULL || call->reply_bulk_bytes != h->stored_bytes ||
        !h->verify(h->opaque, vj_slice(call->reply_bulk->data, h->stored_bytes))) {
        return false;
    }
    *bytes = vj_buf_ref(call->reply_bulk);
    return true;
}

static void verify_all(Heal *h)
{
    VJ_NODE_EACH(i, h->there)
    {
        VjBuf *bytes;
        bool is_good = read_good(h, i, &bytes);

        if (is_good) {
            h->good |= vj_node_bit(i);
        } else if ((h->live & vj_node_bit(i)) != 0) {
            vj_log_warn("store remote: object %" G_GUINT64_FORMAT
                        ": the replica of node %u, %s, is damaged",
                        h->object.id, i, h->r->nodes[i].address);
        }
        if (is_good && h->bytes == NULL) {
            h->bytes = g_steal_pointer(&bytes);
        }
        vj_buf_unref(bytes);
    }
}

/* A replica that was found may be one that a node acknowledged to nobody, or before it
 * crashed: good are those that are durable, and suspect ones where there is no other. */
static void flush_good(Heal *h)
{
    VjNodeSet trusted = h->good & ~h->suspect;
    unsigned nodes[VJ_PLACEMENT_NODES_MAX] = {0}, count = 0;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX] = {NULL};

    h->good = trusted != 0 ? trusted : h->good;
    VJ_NODE_EACH(i, h->good)
    {
        nodes[count] = i;
        calls[count++] = vj_remote_call_new(h->r, VJ_OP_FLUSH);
    }
    vj_remote_run(h->r, nodes, calls, count);
    for (unsigned i = 0; i < count; i++) {
        VjNodeSet bit = vj_node_bit(nodes[i]);

        if (calls[i]->rc < 0 && vj_remote_is_lost(calls[i])) {
            h->good &= ~bit;
            h->live &= ~bit;
        } else if (calls[i]->rc < 0) {
            h->good &= ~bit;
            h->kept |= bit;
        }
        vj_rpc_call_unref(calls[i]);
    }
}

/* ---- what is done ------------------------------------------------------------------ */

static bool remove_at(Heal *h, unsigned index)
{
    g_autoptr(VjRpcCall) call = vj_remote_objects_call(h->r, VJ_OP_REMOVE, &h->object, 1);
    uint32_t status = VJ_WIRE_DEVICE;
    int rc = run_one(h, index, call);

    if (rc == 0 && vj_wire_statuses_decode(vj_slice(call->reply->data, call->reply->len),
                                           &status, 1) == 0) {
        rc = vj_wire_errno(status);
    }
    if (rc == 0 || rc == -ENOENT) {
        h->there &= ~vj_node_bit(index);
        h->kept &= ~vj_node_bit(index);
        vj_mutex_lock(&h->r->lock);
        h->r->nodes[index].has_removes = true;
        vj_mutex_unlock(&h->r->lock);
        return true;
    }
    return false;
}

/* Durable when it returns true. */
static bool put_at(Heal *h, unsigned index)
{
    g_autoptr(VjRpcCall) call = vj_remote_call_new(h->r, VJ_OP_PUT);
    VjWirePut message = {.object = h->object, .flags = VJ_WIRE_PUT_DURABLE};

    vj_wire_put_encode(call->message, &message);
    if (h->stored_bytes > 0) {
        call->bulk = vj_buf_ref(h->bytes);
        call->bulk_bytes = (uint32_t)h->stored_bytes;
    }
    if (run_one(h, index, call) < 0) {
        vj_log_warn(
            "store remote: object %" G_GUINT64_FORMAT ": no replica at node %u, %s: %s",
            h->object.id, index, h->r->nodes[index].address, g_strerror(-call->rc));
        return false;
    }
    h->there |= vj_node_bit(index);
    h->good |= vj_node_bit(index);
    h->suspect &= ~vj_node_bit(index);
    return true;
}

/* Those nodes get it that ought to have it; where one cannot, or may have it, the next
 * one does.  Returns the nodes where it is to stay. */
static VjNodeSet put_missing(Heal *h)
{
    VjNodeSet refused = h->kept, wanted;

    for (;;) {
        VjNodeSet missing;

        wanted = ideal(h->r, h->order, h->live & ~refused);
        missing = wanted & ~h->good;
        if (missing == 0) {
            return wanted;
        }
        VJ_NODE_EACH(i, missing)
        {
            VjNodeSet bit = vj_node_bit(i);
            /* A node keeps what it has of that name. */
            bool ok = (h->there & bit) == 0 || remove_at(h, i);

            if (!ok || !put_at(h, i)) {
                refused |= bit;
            }
        }
    }
}

static void remove_from(Heal *h, VjNodeSet nodes)
{
    VJ_NODE_EACH(i, nodes & h->live)
    {
        if (remove_at(h, i)) {
            h->good &= ~vj_node_bit(i);
        }
    }
}

/* As put_missing(), and those replicas are put anew that had to wait for others. */
static VjNodeSet put_all(Heal *h)
{
    VjNodeSet stays = put_missing(h);

    if ((h->good & h->suspect) != 0 && (h->good & ~h->suspect) != 0) {
        h->good &= ~h->suspect;
        stays = put_missing(h);
    }
    h->suspect &= ~h->good; /* no other node takes it: this one is believed */
    if (h->kept != 0 && vj_node_count(stays & h->good) >= h->r->replicas) {
        remove_from(h, h->kept);
        stays = put_missing(h);
    }
    return stays;
}

static int heal(Heal *h)
{
    VjNodeSet silent, stays;

    ask_all(h);
    verify_all(h);
    flush_good(h);
    silent = vj_remote_places(h->r) & ~h->live;
    if (h->good == 0 && h->kept == 0) {
        /* A node that is away may have a good one. */
        return silent != 0      ? -EAGAIN
               : h->unsure != 0 ? -EIO
               : h->there == 0  ? -ENOENT
                                : -EBADMSG;
    }
    stays = put_all(h);
    remove_from(h, h->there & ~h->good & ~h->kept);
    if (vj_node_count(stays & h->good) >= h->r->replicas) {
        remove_from(h, h->good & ~stays);
    }
    return vj_node_count(h->good & h->live) >= h->r->replicas ? 0 : -EAGAIN;
}

int vj_remote_heal(VjStore *s, uint64_t id, VjLoc loc, uint64_t stored_bytes,
                   VjStoreVerify *verify, void *opaque, VjLoc *now)
{
    VjRemote *r = (VjRemote *)s;
    Heal h = {.r = r,
              .object = {.id = id},
              .stored_bytes = stored_bytes,
              .verify = verify,
              .opaque = opaque,
              .live = vj_remote_live(r)};
    VjNodeSet nodes, suspect;
    int rc;

    if (r->read_only) {
        return -EROFS;
    }
    if (!vj_remote_loc_decode(loc, &h.object.nonce, &nodes)) {
        return -EBADMSG;
    }
    if (!vj_remote_heal_begin(r, &h.object, &suspect)) {
        return -EAGAIN;
    }
    h.suspect = suspect;
    vj_remote_rank(r, id, h.order);
    rc = heal(&h);
    vj_remote_heal_end(r, &h.object, suspect & (~h.suspect | (h.live & ~h.there)));
    if ((h.good | h.kept) != 0) {
        *now = vj_remote_loc_encode(h.object.nonce, h.good | h.kept);
    }
    vj_buf_unref(h.bytes);
    return rc;
}

/* ---- what needs it ----------------------------------------------------------------- */

/* Of one page of objects: which nodes have each of them, whole, and may be counted on. */
static int survey_page(VjRemote *r, const VjPut *puts, uint32_t count, VjNodeSet live,
                       VjNodeSet *whole, VjNodeSet *there)
{
    g_autofree VjWireObject *objects = g_new0(VjWireObject, count);
    g_autofree uint64_t *lengths = g_new(uint64_t, count);
    unsigned nodes[VJ_PLACEMENT_NODES_MAX] = {0}, call_count = 0;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX] = {NULL};
    int rc = 0;

    for (uint32_t i = 0; i < count; i++) {
        VjNodeSet unused;

        objects[i].id = puts[i].id;
        (void)vj_remote_loc_decode(puts[i].loc, &objects[i].nonce, &unused);
        whole[i] = there[i] = 0;
    }
    VJ_NODE_EACH(n, live)
    {
        nodes[call_count] = n;
        calls[call_count++] = vj_remote_objects_call(r, VJ_OP_HAVE, objects, count);
    }
    vj_remote_run(r, nodes, calls, call_count);
    for (unsigned c = 0; c < call_count; c++) {
        if (calls[c]->rc < 0 ||
            vj_wire_lengths_decode(vj_slice(calls[c]->reply->data, calls[c]->reply->len),
                                   lengths, count) < 0) {
            rc = -EAGAIN;
        } else {
            for (uint32_t i = 0; i < count; i++) {
                VjNodeSet bit = vj_node_bit(nodes[c]);

                there[i] |= lengths[i] != VJ_WIRE_HAS_NOT ? bit : 0;
                whole[i] |= lengths[i] == puts[i].stored_bytes ? bit : 0;
            }
        }
        vj_rpc_call_unref(calls[c]);
    }
    vj_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < count; i++) {
        whole[i] &= ~vj_remote_suspects(r, &objects[i]);
    }
    vj_mutex_unlock(&r->lock);
    return rc;
}

int vj_remote_survey(VjStore *s, const VjPut *puts, size_t count, bool *wants)
{
    VjRemote *r = (VjRemote *)s;
    g_autofree VjNodeSet *whole = g_new(VjNodeSet, VJ_REMOTE_PAGE);
    g_autofree VjNodeSet *there = g_new(VjNodeSet, VJ_REMOTE_PAGE);
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < count; at += VJ_REMOTE_PAGE) {
        uint32_t page = (uint32_t)MIN(count - at, VJ_REMOTE_PAGE);
        VjNodeSet live = vj_remote_live(r);

        rc = survey_page(r, puts + at, page, live, whole, there);
        for (uint32_t i = 0; rc == 0 && i < page; i++) {
            uint8_t order[VJ_PLACEMENT_NODES_MAX];
            VjNodeSet wanted, nodes;
            uint64_t nonce;

            vj_remote_rank(r, puts[at + i].id, order);
            wanted = ideal(r, order, live);
            wants[at + i] = !vj_remote_loc_decode(puts[at + i].loc, &nonce, &nodes) ||
                            whole[i] != wanted || there[i] != wanted || nodes != wanted ||
                            vj_node_count(wanted) < r->replicas;
        }
    }
    return rc;
}
