/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-heal.c - an object gets its number of good replicas, where they ought to be
 *
 * All live nodes are asked whether they have it, and each replica is read, verified and
 * made durable.  Heal puts good ones where the object ought to be, in the place of bad
 * ones, and takes no good one away.  Trim, which is called when the record that names
 * them is durable, removes those that are one too many.  So at each moment, also after a
 * crash, the durable record names at least as many good and durable replicas as it named
 * at first, or as there have to be.
 *
 * Good are replicas that are right, durable, and not suspect.  Others that may be right
 * are kept, uncounted, and named: one that is suspect or cannot be read, which trim puts
 * anew when the record names a good one, and that of a node that fails to FLUSH, which
 * may have been durable for long and goes when there are enough others.
 */
#include "store/remote-private.h"

typedef struct Heal {
    VjRemote *r;
    VjWireObject object;
    uint64_t stored_bytes;
    VjStoreVerify *verify;
    void *opaque;
    uint8_t order[VJ_PLACEMENT_NODES_MAX];
    VjNodeSet named;   /* by the locator */
    VjNodeSet live;    /* when it began; those that failed since are taken out */
    VjNodeSet there;   /* they have something of that name */
    VjNodeSet good;    /* they have what was put; from flush_good() on: see above */
    VjNodeSet kept;    /* they have it, or may, and it does not count */
    VjNodeSet flushed; /* of those: suspect, and FLUSH had nothing against it */
    VjNodeSet unsure;  /* the node cannot read it, and has not said that it is bad */
    VjNodeSet suspect; /* nobody counts on what they have */
    uint64_t lives[VJ_PLACEMENT_NODES_MAX]; /* of each, when it was read there */
    VjBuf *bytes;                           /* of a good one; NULL: none yet */
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
    if (rc < 0 && rc != -EBADMSG && rc != -ENOENT &&
        (h->live & vj_node_bit(index)) != 0) {
        h->unsure |= vj_node_bit(index);
    }
    if (rc < 0 || call->reply_bulk == NULL || call->reply_bulk_bytes != h->stored_bytes ||
        !h->verify(h->opaque, vj_slice(call->reply_bulk->data, h->stored_bytes))) {
        return false;
    }
    *bytes = vj_buf_ref(call->reply_bulk);
    return true;
}

static uint64_t life_of(VjRemote *r, unsigned index)
{
    uint64_t life;

    vj_mutex_lock(&r->lock);
    life = r->nodes[index].life;
    vj_mutex_unlock(&r->lock);
    return life;
}

static void verify_all(Heal *h)
{
    VJ_NODE_EACH(i, h->there)
    {
        VjBuf *bytes;
        bool is_good;

        h->lives[i] = life_of(h->r, i);
        is_good = read_good(h, i, &bytes);

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
 * crashed: good are those that are durable, and suspect ones are not known to be. */
static void flush_good(Heal *h)
{
    unsigned nodes[VJ_PLACEMENT_NODES_MAX] = {0}, count = 0;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX] = {NULL};

    VJ_NODE_EACH(i, h->good)
    {
        nodes[count] = i;
        calls[count++] = vj_remote_call_new(h->r, VJ_OP_FLUSH);
    }
    vj_remote_run(h->r, nodes, calls, count);
    for (unsigned i = 0; i < count; i++) {
        VjNodeSet bit = vj_node_bit(nodes[i]);

        if ((calls[i]->rc < 0 && vj_remote_is_lost(calls[i])) ||
            h->lives[nodes[i]] != life_of(h->r, nodes[i])) {
            /* Or the process that read it has ended, and FLUSH says nothing of that. */
            h->good &= ~bit;
            h->live &= ~bit;
        } else if (calls[i]->rc < 0 || (h->suspect & bit) != 0) {
            h->good &= ~bit;
            h->kept |= bit;
            h->flushed |= calls[i]->rc < 0 ? 0 : bit;
        }
        vj_rpc_call_unref(calls[i]);
    }
}

/* 0: there is a replica that is right. */
static int look_at_all(Heal *h)
{
    VjNodeSet silent, unread;

    ask_all(h);
    verify_all(h);
    flush_good(h);
    silent = vj_remote_places(h->r) & ~h->live;
    if ((h->good | h->kept) != 0) {
        /* What could not be read may be right. */
        unread = h->unsure & h->there & ~h->good & ~h->kept;
        h->kept |= unread;
        h->suspect |= unread;
        return 0;
    }
    /* A node that is away may have a good one. */
    return silent != 0      ? -EAGAIN
           : h->unsure != 0 ? -EIO
           : h->there == 0  ? -ENOENT
                            : -EBADMSG;
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

/* In the place of what it has of that name, which it would keep. */
static bool put_anew_at(Heal *h, unsigned index)
{
    bool is_free = (h->there & vj_node_bit(index)) == 0 || remove_at(h, index);

    return is_free && put_at(h, index);
}

/* Those nodes get it that ought to have it; where one cannot, the next one does.  A
 * suspect replica that is right waits for trim, as long as there is a good one: else it
 * may be the last one, and other nodes get it first. */
static void put_missing(Heal *h)
{
    VjNodeSet refused = h->good != 0 ? h->kept & ~h->suspect : h->kept;

    for (;;) {
        VjNodeSet wanted = ideal(h->r, h->order, h->live & ~refused);
        VjNodeSet missing = wanted & ~h->good & ~h->kept;

        if (missing == 0) {
            return;
        }
        VJ_NODE_EACH(i, missing)
        {
            refused |= put_anew_at(h, i) ? 0 : vj_node_bit(i);
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

/* Bad ones are worth nothing where there is a good one. */
static void remove_bad(Heal *h)
{
    if (h->good != 0) {
        remove_from(h, h->there & ~h->good & ~h->kept);
    }
}

/* Suspect replicas are all that there is, at every node: nothing will make them any
 * surer, and they were read, and FLUSH had nothing against them. */
static void believe_all(Heal *h)
{
    VjNodeSet places = vj_remote_places(h->r);

    if (h->good == 0 && (h->flushed & h->live) == places) {
        h->good = places;
        h->kept = h->suspect = 0;
    }
}

/* The good ones that are to stay; none: they are too few, and all stay. */
static VjNodeSet enough(const Heal *h)
{
    VjNodeSet stay = ideal(h->r, h->order, h->good);

    return vj_node_count(stay) >= h->r->replicas ? stay : 0;
}

/* There is something for trim() to do as soon as the record names what is here. */
static bool can_trim(const Heal *h)
{
    VjNodeSet stay = enough(h);

    return (h->good != 0 && (h->kept & h->suspect & h->live) != 0) ||
           (stay != 0 && (h->there & h->live & ~stay) != 0);
}

static int result_of(const Heal *h)
{
    return vj_node_count(h->good & h->live) >= h->r->replicas ? 0 : -EAGAIN;
}

static int heal(Heal *h)
{
    int rc = look_at_all(h);

    if (rc < 0) {
        return rc;
    }
    put_missing(h);
    believe_all(h);
    remove_bad(h);
    return result_of(h);
}

/* Suspect ones are put anew where the object ought to be, one after the other. */
static void renew_suspects(Heal *h)
{
    VjNodeSet suspects = h->kept & h->suspect & h->live;

    VJ_NODE_EACH(i, suspects & ideal(h->r, h->order, h->live & ~(h->kept & ~h->suspect)))
    {
        (void)put_anew_at(h, i);
    }
}

static int trim(Heal *h)
{
    int rc = look_at_all(h);
    VjNodeSet stay, failing;

    if (rc < 0) {
        return rc;
    }
    if ((h->good & h->named) != 0) {
        renew_suspects(h);
        remove_bad(h);
    }
    failing = h->kept & ~h->suspect;
    stay = enough(h);
    if (stay != 0 && (stay & ~h->named) == 0) {
        remove_from(h, h->there & ~stay);
    }
    /* Where a node could not FLUSH, and has nothing of it any more, another heal puts it
     * if it ought to be there. */
    return (failing & ~h->kept) != 0 ? -EAGAIN : result_of(h);
}

/* The nodes of the new locator.  One that is away is left out of it when there is a good
 * replica: then it can be removed from the list for good. */
static VjNodeSet names_of(const Heal *h)
{
    VjNodeSet away = vj_remote_places(h->r) & ~h->live;

    return h->good | h->kept | (h->good == 0 ? h->named & away : 0);
}

static int run(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
               int (*work)(Heal *), VjStoreHealed *out)
{
    VjRemote *r = (VjRemote *)s;
    Heal h = {.r = r,
              .object = {.id = object->id},
              .stored_bytes = object->stored_bytes,
              .verify = verify,
              .opaque = opaque,
              .live = vj_remote_live(r)};
    VjNodeSet suspect;
    int rc;

    if (r->read_only) {
        return -EROFS;
    }
    if (!vj_remote_loc_decode(object->loc, &h.object.nonce, &h.named)) {
        return -EBADMSG;
    }
    if (!vj_remote_heal_begin(r, &h.object, &suspect)) {
        return -EAGAIN;
    }
    h.suspect = suspect;
    vj_remote_rank(r, object->id, h.order);
    rc = work(&h);
    vj_remote_heal_end(r, &h.object, suspect & (~h.suspect | (h.live & ~h.there)));
    if ((h.good | h.kept) != 0) {
        out->loc = vj_remote_loc_encode(h.object.nonce, names_of(&h));
        out->can_trim = can_trim(&h);
    }
    vj_buf_unref(h.bytes);
    return rc;
}

int vj_remote_heal(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                   VjStoreHealed *out)
{
    return run(s, object, verify, opaque, heal, out);
}

int vj_remote_trim(VjStore *s, const VjPut *object, VjStoreVerify *verify, void *opaque,
                   VjStoreHealed *out)
{
    return run(s, object, verify, opaque, trim, out);
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
