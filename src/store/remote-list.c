/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-list.c - what is asked of all nodes at once, by a thread that waits
 *
 * A walk merges the listings of all nodes, which are in order of id and nonce; an object
 * is visited once, with the nodes that have it.  It is whole as long as fewer nodes are
 * missing than each object has replicas.  Objects with fewer replicas than that are not
 * seen while their nodes are away: heal sees to them before.
 */
#include "store/remote-private.h"

/* ---- each -------------------------------------------------------------------------- */

/* The listing of one node, a page of it at a time. */
typedef struct Pages {
    bool is_asked;  /* the node takes part */
    bool is_failed; /* and has not given all of it */
    bool more;      /* there is another page */
    VjBuf *page;    /* of count entries; NULL: none yet */
    uint32_t count, at;
    VjWireListed first; /* the entry at @at, where there is one */
    VjWireObject last;  /* of all that was read */
} Pages;

typedef struct Walk {
    VjRemote *r;
    VjNodeSet places; /* when it began */
    uint64_t first_id, last_id;
    Pages pages[VJ_PLACEMENT_NODES_MAX];
} Walk;

static int compare(const VjWireObject *a, const VjWireObject *b)
{
    return a->id != b->id         ? (a->id < b->id ? -1 : 1)
           : a->nonce != b->nonce ? (a->nonce < b->nonce ? -1 : 1)
                                  : 0;
}

static VjRpcCall *list_call(const Walk *w, const Pages *p)
{
    VjRpcCall *call = vj_remote_call_new(w->r, VJ_OP_LIST);
    VjWireList message = {.first = w->first_id,
                          .last = w->last_id,
                          .after = p->last,
                          .limit = VJ_REMOTE_PAGE};

    vj_wire_list_encode(call->message, &message);
    call->bulk_max = VJ_REMOTE_PAGE * VJ_WIRE_LISTED_BYTES;
    return call;
}

/* What a node lists is in order, in the range, and all of it new. */
static bool is_sound(const Walk *w, const Pages *p, VjSlice entries)
{
    VjWireObject before = p->last;
    bool is_start = p->page == NULL;

    for (size_t at = 0; at < entries.len; at += VJ_WIRE_LISTED_BYTES) {
        VjWireListed one;

        vj_wire_listed_decode((const uint8_t *)entries.data + at, &one);
        if (one.object.id < w->first_id || one.object.id > w->last_id ||
            one.bytes > VJ_STORE_OBJECT_MAX ||
            (!(is_start && at == 0) && compare(&before, &one.object) >= 0)) {
            return false;
        }
        before = one.object;
    }
    return true;
}

static void set_entry(Pages *p)
{
    if (p->at < p->count) {
        vj_wire_listed_decode(p->page->data + (size_t)p->at * VJ_WIRE_LISTED_BYTES,
                              &p->first);
    }
}

/* 0 or -errno; @call is answered. */
static int take_page(const Walk *w, Pages *p, const VjRpcCall *call)
{
    VjSlice entries = {.data = NULL};
    VjWireListReply reply;

    if (call->rc < 0) {
        return call->rc;
    }
    if (call->reply_bulk != NULL) {
        entries = vj_slice(call->reply_bulk->data, call->reply_bulk_bytes);
    }
    if (vj_wire_list_reply_decode(vj_slice(call->reply->data, call->reply->len),
                                  entries.len, &reply) < 0 ||
        reply.count > VJ_REMOTE_PAGE || (reply.more && reply.count == 0) ||
        !is_sound(w, p, entries)) {
        return -EPROTO;
    }
    vj_buf_unref(p->page);
    p->page = entries.len > 0 ? vj_buf_ref(call->reply_bulk) : NULL;
    p->count = reply.count;
    p->at = 0;
    p->more = reply.more;
    if (reply.count > 0) {
        VjWireListed one;

        vj_wire_listed_decode(
            (const uint8_t *)entries.data + entries.len - VJ_WIRE_LISTED_BYTES, &one);
        p->last = one.object;
        set_entry(p);
    }
    return 0;
}

/* Nodes without an entry get their next page. */
static void fill(Walk *w)
{
    unsigned nodes[VJ_PLACEMENT_NODES_MAX] = {0}, count = 0;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX] = {NULL};

    for (unsigned i = 0; i < vj_remote_count(w->r); i++) {
        Pages *p = &w->pages[i];

        if (p->is_asked && !p->is_failed && p->at == p->count && p->more) {
            nodes[count] = i;
            calls[count++] = list_call(w, p);
        }
    }
    vj_remote_run(w->r, nodes, calls, count);
    for (unsigned i = 0; i < count; i++) {
        Pages *p = &w->pages[nodes[i]];
        int rc = take_page(w, p, calls[i]);

        if (rc < 0) {
            vj_log_warn("store remote: node %u, %s, cannot list its objects: %s",
                        nodes[i], w->r->nodes[nodes[i]].address, g_strerror(-rc));
            p->is_failed = true;
            p->at = p->count = 0;
        }
        vj_rpc_call_unref(calls[i]);
    }
}

static unsigned missing_nodes(const Walk *w)
{
    unsigned count = 0;

    VJ_NODE_EACH(i, w->places)
    {
        count += !w->pages[i].is_asked || w->pages[i].is_failed;
    }
    return count;
}

/* The next object, of all nodes that have it.  False: there is none. */
static bool next_object(Walk *w, VjPut *put, int64_t *mtime_us)
{
    const Pages *least = NULL;
    VjNodeSet nodes = 0;
    VjWireListed one;

    for (unsigned i = 0; i < vj_remote_count(w->r); i++) {
        const Pages *p = &w->pages[i];

        if (p->at < p->count &&
            (least == NULL || compare(&p->first.object, &least->first.object) < 0)) {
            least = p;
        }
    }
    if (least == NULL) {
        return false;
    }
    one = least->first;
    for (unsigned i = 0; i < vj_remote_count(w->r); i++) {
        Pages *p = &w->pages[i];

        if (p->at < p->count && compare(&p->first.object, &one.object) == 0) {
            nodes |= vj_node_bit(i);
            /* One that is shorter than another is damaged. */
            one.bytes = MAX(one.bytes, p->first.bytes);
            one.mtime_us = MAX(one.mtime_us, p->first.mtime_us);
            p->at++;
            set_entry(p);
        }
    }
    *put = (VjPut){.id = one.object.id,
                   .loc = vj_remote_loc_encode(one.object.nonce, nodes),
                   .stored_bytes = one.bytes};
    *mtime_us = one.mtime_us;
    return true;
}

static bool needs_page(const Walk *w)
{
    bool needs = false;

    for (unsigned i = 0; i < vj_remote_count(w->r); i++) {
        const Pages *p = &w->pages[i];

        needs = needs || (p->is_asked && !p->is_failed && p->at == p->count && p->more);
    }
    return needs;
}

static int walk(Walk *w, VjStoreVisit *visit, void *opaque)
{
    VjPut put;
    int64_t mtime_us;

    for (;;) {
        if (needs_page(w)) {
            fill(w);
        }
        if (missing_nodes(w) >= w->r->replicas) {
            return -EIO;
        }
        if (!next_object(w, &put, &mtime_us) || !visit(opaque, &put, mtime_us)) {
            return 0;
        }
    }
}

int vj_remote_each(VjStore *s, uint64_t first_id, uint64_t last_id, VjStoreVisit *visit,
                   void *opaque)
{
    VjRemote *r = (VjRemote *)s;
    g_autofree Walk *w = g_new0(Walk, 1);
    VjNodeSet live = vj_remote_live(r);
    unsigned missing;
    int rc;

    w->r = r;
    w->places = vj_remote_places(r);
    w->first_id = first_id;
    w->last_id = last_id;
    VJ_NODE_EACH(i, live)
    {
        w->pages[i].is_asked = w->pages[i].more = true;
    }
    rc = walk(w, visit, opaque);
    missing = missing_nodes(w);
    if (rc < 0) {
        vj_log_error("store remote: cannot list objects: %u of %u nodes are missing",
                     missing, vj_node_count(w->places));
    } else if (missing > 0) {
        vj_log_warn(
            "store remote: objects were listed without %u of %u nodes: those with "
            "fewer replicas than they should have may be missing",
            missing, vj_node_count(w->places));
    }
    for (unsigned i = 0; i < vj_remote_count(r); i++) {
        vj_buf_unref(w->pages[i].page);
    }
    return rc;
}

/* ---- space ------------------------------------------------------------------------- */

typedef struct Spaces {
    uint64_t total[VJ_PLACEMENT_NODES_MAX], free[VJ_PLACEMENT_NODES_MAX],
        available[VJ_PLACEMENT_NODES_MAX], objects[VJ_PLACEMENT_NODES_MAX];
    unsigned count;
} Spaces;

static int take_space(Spaces *all, const VjRpcCall *call)
{
    VjWireSpace one;

    if (call->rc < 0) {
        return call->rc;
    }
    if (vj_wire_space_decode(vj_slice(call->reply->data, call->reply->len), &one) < 0) {
        return -EPROTO;
    }
    all->total[all->count] = one.total_bytes;
    all->free[all->count] = MIN(one.free_bytes, one.total_bytes);
    all->available[all->count] = MIN(one.available_bytes, all->free[all->count]);
    all->objects[all->count++] = one.available_objects;
    return 0;
}

int vj_remote_space(VjStore *s, VjStoreSpace *out)
{
    VjRemote *r = (VjRemote *)s;
    VjNodeSet live = vj_remote_live(r), usable = live & ~vj_remote_draining(r);
    VjNodeSet asked = usable != 0 ? usable : live; /* those that get new objects */
    unsigned nodes[VJ_PLACEMENT_NODES_MAX] = {0}, count = 0;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX] = {NULL};
    Spaces all = {.count = 0};
    int rc = -ETIMEDOUT;

    VJ_NODE_EACH(i, asked)
    {
        nodes[count] = i;
        calls[count++] = vj_remote_call_new(r, VJ_OP_SPACE);
    }
    vj_remote_run(r, nodes, calls, count);
    for (unsigned i = 0; i < count; i++) {
        int failed = take_space(&all, calls[i]);

        rc = failed == 0 ? rc : vj_remote_is_lost(calls[i]) ? rc : -EIO;
        vj_rpc_call_unref(calls[i]);
    }
    if (all.count == 0) {
        vj_log_error("store remote: no node says how much space it has");
        return rc;
    }
    out->total_bytes = vj_placement_space(all.total, all.count, r->replicas);
    out->free_bytes =
        MIN(vj_placement_space(all.free, all.count, r->replicas), out->total_bytes);
    out->available_bytes =
        MIN(vj_placement_space(all.available, all.count, r->replicas), out->free_bytes);
    out->available_objects = vj_placement_space(all.objects, all.count, r->replicas);
    return 0;
}

/* ---- flush_removes ----------------------------------------------------------------- */

int vj_remote_flush_removes(VjStore *s)
{
    VjRemote *r = (VjRemote *)s;
    unsigned nodes[VJ_PLACEMENT_NODES_MAX] = {0}, count = 0;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX] = {NULL};
    int rc = 0;

    vj_mutex_lock(&r->lock);
    VJ_NODE_EACH(i, r->live)
    {
        if (r->nodes[i].has_removes) {
            r->nodes[i].has_removes = false;
            nodes[count++] = i;
        }
    }
    vj_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < count; i++) {
        calls[i] = vj_remote_call_new(r, VJ_OP_FLUSH_REMOVES);
    }
    vj_remote_run(r, nodes, calls, count);
    for (unsigned i = 0; i < count; i++) {
        /* One that was lost may have them back, and nothing names them. */
        if (calls[i]->rc < 0) {
            vj_mutex_lock(&r->lock);
            r->nodes[nodes[i]].has_removes = true;
            vj_mutex_unlock(&r->lock);
        }
        if (calls[i]->rc < 0 && calls[i]->rc != -ENOTCONN &&
            calls[i]->rc != -ECONNRESET) {
            vj_log_warn(
                "store remote: node %u, %s: removed objects may come back after a "
                "crash: %s",
                nodes[i], r->nodes[nodes[i]].address, g_strerror(-calls[i]->rc));
            rc = -EIO;
        }
        vj_rpc_call_unref(calls[i]);
    }
    return rc;
}
