/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-remove.c - an object leaves the nodes of its locator
 *
 * All live ones are asked; one that is away keeps its replica, which nothing names, until
 * a listing finds it.  Removes that come while a node has enough of them in flight go
 * together in the next one, as do those whose caller says that more come.
 */
#include "store/remote-private.h"

typedef struct RemoveOp {
    VjRemoteOp op;
    VjWireObject object;
    /* guarded by the store's lock; op.in_flight counts nodes: */
    VjNodeSet again; /* they were busy */
    int rc;
} RemoveOp;

/* One REMOVE: op.refs of it is the call's alone. */
typedef struct BatchOp {
    VjRemoteOp op;
    GPtrArray *removes; /* of RemoveOp, a reference each */
} BatchOp;

static void pump(VjRemoteNode *node, const RemoveOp *by);

/* ---- one object -------------------------------------------------------------------- */

/* It is removed when @node is live. */
static void note_orphan(VjRemoteNode *node, const VjWireObject *object)
{
    vj_mutex_assert_held(&node->r->lock);
    if (node->state != VJ_REMOTE_HOLE && node->orphans->len < VJ_REMOTE_ORPHANS_MAX) {
        g_array_append_vals(node->orphans, object, 1);
    }
}

/* A node has done with it.  True: all have, and the caller completes it with *rc. */
static bool note_answer(RemoveOp *m, VjRemoteNode *node, int rc, bool is_away, int *out)
{
    VjRemote *r = m->op.r;
    bool is_late = vj_clock_mono_us() >= m->op.deadline_us;

    vj_mutex_assert_held(&m->op.r->lock);
    m->op.in_flight--;
    if (rc == -EBUSY && !is_late && !m->op.is_canceled && !r->stop) {
        m->again |= vj_node_bit(node->index);
    } else if (rc < 0 && m->rc == 0) {
        m->rc = rc == -EBUSY ? -ETIMEDOUT : rc;
    }
    if (m->op.io == NULL && is_away) {
        note_orphan(node, &m->object);
    }
    if (m->op.in_flight > 0) {
        return false;
    }
    if (m->again != 0) {
        vj_remote_op_set_timer(&m->op, vj_clock_mono_us() + VJ_REMOTE_BUSY_US);
        return false;
    }
    m->op.is_over = true;
    *out = m->rc;
    if (m->op.io == NULL) {
        vj_remote_own_end(r);
    }
    return true;
}

/* @now: and sends it. */
static void enqueue(RemoveOp *m, VjNodeSet nodes, bool now)
{
    VjRemote *r = m->op.r;

    vj_mutex_lock(&r->lock);
    m->op.in_flight = vj_node_count(nodes);
    VJ_NODE_EACH(i, nodes)
    {
        g_queue_push_tail(&r->nodes[i].removes, vj_remote_op_ref(&m->op));
    }
    vj_mutex_unlock(&r->lock);
    if (now) {
        VJ_NODE_EACH(i, nodes)
        {
            pump(&r->nodes[i], m);
        }
    }
}

static void remove_answered(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call,
                            int64_t at_us, uint64_t life)
{
    (void)op, (void)node, (void)call, (void)at_us, (void)life;
    g_assert_not_reached(); /* its calls are those of batches */
}

static void remove_resume(VjRemoteOp *op)
{
    RemoveOp *m = (RemoveOp *)op;
    VjNodeSet nodes;

    vj_mutex_lock(&op->r->lock);
    nodes = m->again;
    m->again = 0;
    vj_mutex_unlock(&op->r->lock);
    enqueue(m, nodes, true);
}

static const VjRemoteOpKind remove_kind = {
    .size = sizeof(RemoveOp), .answered = remove_answered, .resume = remove_resume};

/* ---- one REMOVE -------------------------------------------------------------------- */

/* What the node said of each object; a node that is away says nothing, and that is
 * good. */
static int status_of(const VjRpcCall *call, const uint32_t *statuses, guint i,
                     bool is_away)
{
    int rc;

    if (call->rc != 0) {
        return is_away ? 0
               : call->rc == -EBUSY || call->rc == -ETIMEDOUT || call->rc == -EROFS
                   ? call->rc
                   : -EIO;
    }
    rc = vj_wire_errno(statuses[i]);
    return rc == -ENOENT || rc == 0 ? 0 : rc == -EROFS || rc == -EBUSY ? rc : -EIO;
}

static void batch_answered(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call,
                           int64_t at_us, uint64_t life)
{
    BatchOp *b = (BatchOp *)op;
    VjRemote *r = op->r;
    g_autofree uint32_t *statuses = g_new0(uint32_t, b->removes->len);

    bool is_away = !call->is_answered || call->rc == -ESHUTDOWN;

    (void)at_us, (void)life;
    is_away = is_away && call->rc != -ETIMEDOUT && call->rc != -EBUSY;
    if (call->rc == 0 &&
        vj_wire_statuses_decode(vj_slice(call->reply->data, call->reply->len), statuses,
                                b->removes->len) < 0) {
        call->rc = -EIO;
    }
    vj_mutex_lock(&r->lock);
    op->in_flight--;
    node->removes_in_flight--;
    node->has_removes = true;
    vj_mutex_unlock(&r->lock);
    for (guint i = 0; i < b->removes->len; i++) {
        RemoveOp *m = b->removes->pdata[i];
        int rc = 0;
        bool is_last;

        vj_mutex_lock(&r->lock);
        is_last =
            note_answer(m, node, status_of(call, statuses, i, is_away), is_away, &rc);
        vj_mutex_unlock(&r->lock);
        if (is_last) {
            vj_remote_op_complete(&m->op, rc, NULL);
        }
    }
    pump(node, NULL);
}

static void batch_resume(VjRemoteOp *op)
{
    (void)op;
    g_assert_not_reached();
}

static void batch_clear(VjRemoteOp *op)
{
    g_ptr_array_unref(((BatchOp *)op)->removes);
}

static const VjRemoteOpKind batch_kind = {.size = sizeof(BatchOp),
                                          .answered = batch_answered,
                                          .resume = batch_resume,
                                          .clear = batch_clear};

static void unref_remove(gpointer op)
{
    vj_remote_op_unref(op);
}

/* There is another one, and it has a deadline if those in @b have. */
static bool is_alike(const VjRemoteNode *node, const BatchOp *b)
{
    const VjRemoteOp *first = b->removes->pdata[0];
    const VjRemoteOp *next = g_queue_peek_head((GQueue *)&node->removes);

    vj_mutex_assert_held(&node->r->lock);
    return next != NULL &&
           (next->deadline_us == INT64_MAX) == (first->deadline_us == INT64_MAX);
}

/* Owned; NULL: there is nothing to send, or not now. */
static BatchOp *take_batch(VjRemoteNode *node, const RemoveOp *by)
{
    VjRemote *r = node->r;
    BatchOp *b;

    vj_mutex_lock(&r->lock);
    if (node->removes.length == 0 ||
        node->removes_in_flight >= VJ_REMOTE_REMOVES_IN_FLIGHT) {
        vj_mutex_unlock(&r->lock);
        return NULL;
    }
    b = (BatchOp *)vj_remote_op_new(&batch_kind, r, NULL);
    b->removes = g_ptr_array_new_with_free_func(unref_remove);
    b->op.is_over = true;
    b->op.in_flight = 1;
    node->removes_in_flight++;
    do {
        g_ptr_array_add(b->removes, g_queue_pop_head(&node->removes));
    } while (b->removes->len < VJ_REMOTE_PAGE && is_alike(node, b));
    b->op.has_helper =
        b->removes->len == 1 && b->removes->pdata[0] == by && by->op.has_helper;
    vj_mutex_unlock(&r->lock);
    return b;
}

/* Sends what waits for @node.  @by: its caller has just brought it; NULL: it goes on. */
static void pump(VjRemoteNode *node, const RemoveOp *by)
{
    BatchOp *b = take_batch(node, by);
    g_autofree VjWireObject *objects = NULL;
    int64_t deadline_us = 0;
    VjRpcCall *call;

    if (b == NULL) {
        return;
    }
    objects = g_new(VjWireObject, b->removes->len);
    for (guint i = 0; i < b->removes->len; i++) {
        const RemoveOp *m = b->removes->pdata[i];

        objects[i] = m->object;
        deadline_us = MAX(deadline_us, m->op.deadline_us);
    }
    call = vj_remote_objects_call(node->r, VJ_OP_REMOVE, objects, b->removes->len);
    call->deadline_us = deadline_us;
    vj_remote_op_send(&b->op, node, call);
    vj_remote_op_unref(&b->op);
}

/* ---- what others call -------------------------------------------------------------- */

void vj_remote_remove(VjRemote *r, VjIo *io)
{
    VjRemoteOp *op = vj_remote_op_new(&remove_kind, r, io);
    RemoveOp *m = (RemoveOp *)op;
    VjNodeSet nodes = 0;

    m->object.id = io->id;
    if (!vj_remote_loc_decode(io->loc, &op->nonce, &op->nodes)) {
        m->rc = -EBADMSG;
    } else {
        m->object.nonce = op->nonce;
        vj_mutex_lock(&r->lock);
        vj_remote_put_forget(r, io->id, op->nonce);
        vj_remote_suspect_end(r, &m->object, ~(VjNodeSet)0);
        nodes = op->nodes & r->live;
        vj_mutex_unlock(&r->lock);
    }
    if (nodes != 0) {
        enqueue(m, nodes, !io->more);
    } else {
        op->is_over = true;
        vj_remote_op_complete(op, m->rc, NULL);
    }
    vj_remote_op_unref(op);
}

void vj_remote_push_removes(VjRemote *r)
{
    for (unsigned i = 0; i < vj_remote_count(r); i++) {
        pump(&r->nodes[i], NULL);
    }
}

static void begin_own_remove(VjRemote *r, const VjWireObject *object, VjNodeSet nodes)
{
    VjRemoteOp *op = vj_remote_op_new(&remove_kind, r, NULL);
    RemoveOp *m = (RemoveOp *)op;
    bool begins;

    op->nonce = object->nonce;
    /* A node that takes its time may do it at any time: it is waited for. */
    op->deadline_us = INT64_MAX;
    m->object = *object;
    vj_mutex_lock(&r->lock);
    VJ_NODE_EACH(i, nodes & ~r->live)
    {
        note_orphan(&r->nodes[i], object);
    }
    nodes &= r->live;
    begins = nodes != 0 && vj_remote_own_begin(r);
    op->is_over = !begins;
    vj_mutex_unlock(&r->lock);
    if (begins) {
        enqueue(m, nodes, true);
    }
    vj_remote_op_unref(op);
}

void vj_remote_remove_at(VjRemote *r, uint64_t id, uint64_t nonce, VjNodeSet nodes)
{
    VjWireObject object = {.id = id, .nonce = nonce};

    begin_own_remove(r, &object, nodes);
}

void vj_remote_remove_orphans(VjRemoteNode *node)
{
    VjRemote *r = node->r;
    g_autoptr(GArray) orphans = NULL;

    vj_mutex_lock(&r->lock);
    orphans = node->orphans;
    node->orphans = g_array_new(FALSE, FALSE, sizeof(VjWireObject));
    vj_mutex_unlock(&r->lock);
    for (guint i = 0; i < orphans->len; i++) {
        begin_own_remove(r, &g_array_index(orphans, VjWireObject, i),
                         vj_node_bit(node->index));
    }
}
