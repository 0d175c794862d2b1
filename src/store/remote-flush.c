/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-flush.c - what was put becomes durable
 *
 * A flush asks each node that holds something, all at once, and looks then at what is
 * left of the puts that had returned before it:
 *
 * - pending at a live node: that one is asked once more (it was lost meanwhile and came
 *   back, or did not answer in time);
 * - durable somewhere, and else pending at nodes that are away: good, with fewer
 *   replicas;
 * - pending at nodes that are away alone: the flush waits for one to come back;
 * - lost everywhere: the flush fails, and so does each later one until the caller has
 *   removed the object.
 *
 * A node whose FLUSH fails goes on failing as long as it has the objects that it could
 * not make durable, and does not say which they are.  Those that are durable elsewhere
 * are suspect there: heal puts them anew (remote-suspect.c).
 */
#include "store/remote-private.h"

typedef struct FlushOp {
    VjRemoteOp op;
    uint64_t until; /* the last put that it answers for */
    /* guarded by the store's lock: */
    uint64_t sent[VJ_PLACEMENT_NODES_MAX]; /* of each node: what its FLUSH covers */
    bool is_busy;                          /* a node said so, or did not answer in time */
    bool is_full;                          /* a node failed for want of space */
} FlushOp;

static void flush_step(FlushOp *f, VjNodeSet ask);

/* Nodes that hold something. */
static VjNodeSet holders(const VjRemote *r) VJ_REQUIRES(r->lock)
{
    VjNodeSet set = 0;

    VJ_NODE_EACH(i, r->live)
    {
        set |= r->nodes[i].held.length > 0 ? vj_node_bit(i) : 0;
    }
    return set;
}

typedef struct Look {
    VjNodeSet ask; /* nodes to be asked again */
    bool must_wait;
    bool is_lost;
} Look;

/* At what is left of the puts up to f->until. */
static void look(FlushOp *f, Look *l) VJ_REQUIRES(f->op.r->lock)
{
    VjRemote *r = f->op.r;
    GList *next;

    for (GList *at = r->returned.head; at != NULL; at = next) {
        VjRemotePut *put = at->data;

        next = at->next;
        if (put->number > f->until) {
            break;
        }
        if ((put->pending & r->live) != 0) {
            l->ask |= put->pending & r->live;
        } else if (put->durable != 0) {
            vj_remote_put_end(r, put);
        } else if (put->pending != 0) {
            l->must_wait = true;
        } else {
            l->is_lost = true;
        }
    }
}

static void send_flush(FlushOp *f, VjRemoteNode *node)
{
    VjRpcCall *call = vj_remote_call_new(f->op.r, VJ_OP_FLUSH);

    call->deadline_us = f->op.deadline_us;
    vj_remote_op_send(&f->op, node, call);
}

static void flush_answered(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call,
                           int64_t at_us, uint64_t life)
{
    FlushOp *f = (FlushOp *)op;
    uint64_t number;
    bool is_last;

    (void)at_us;
    vj_mutex_lock(&op->r->lock);
    op->in_flight--;
    is_last = op->in_flight == 0;
    number = f->sent[node->index];
    if (life != node->life) {
        /* Whatever it said, it is another one now. */
    } else if (call->rc == 0) {
        vj_remote_node_durable(node, number);
    } else if (!vj_remote_is_lost(call)) {
        vj_log_error("store remote: node %u, %s, cannot make objects durable: %s",
                     node->index, node->address, g_strerror(-call->rc));
        f->is_full = f->is_full || call->rc == -ENOSPC || call->rc == -EDQUOT;
        vj_remote_node_doubt(node, number);
    } else if (call->is_answered || call->rc == -ETIMEDOUT || call->rc == -EBUSY ||
               call->rc == -ENOTCONN) {
        /* Also where the connection is lost and the node is not yet known to be: asked
         * again at once it would answer so at once, one call within the other. */
        f->is_busy = true;
    }
    vj_mutex_unlock(&op->r->lock);
    if (is_last) {
        flush_step(f, 0);
    }
}

/* What the state says: 0 done; -EAGAIN go on: *ask nodes, or none, then it waits; else it
 * ends with that. */
static int decide(FlushOp *f, Look *l)
{
    VjRemote *r = f->op.r;
    bool is_late = vj_clock_mono_us() >= f->op.deadline_us;
    int rc = 0;

    vj_mutex_assert_held(&f->op.r->lock);
    look(f, l);
    if (l->ask == 0 && !l->must_wait) {
        rc = !l->is_lost ? 0 : f->is_full ? -ENOSPC : -EIO;
    } else if (f->op.is_canceled || is_late) {
        rc = f->op.is_canceled ? -ECANCELED : -ETIMEDOUT;
    } else if (f->op.io == NULL && r->stop) {
        rc = -ECANCELED;
    } else {
        rc = -EAGAIN;
        if (f->is_busy || l->ask == 0) {
            l->ask = 0;
            vj_remote_op_wait(&f->op, f->is_busy
                                          ? MIN(vj_clock_mono_us() + VJ_REMOTE_BUSY_US,
                                                f->op.deadline_us)
                                          : f->op.deadline_us);
        }
        f->is_busy = false;
    }
    return rc;
}

/* Asks the nodes @ask, or, where there are none, goes by what is left to do. */
static void flush_step(FlushOp *f, VjNodeSet ask)
{
    VjRemote *r = f->op.r;
    Look l = {.ask = ask};
    int rc = -EAGAIN;

    vj_mutex_lock(&r->lock);
    if (ask == 0) {
        rc = decide(f, &l);
    }
    if (rc != -EAGAIN) {
        l.ask = 0;
        f->op.is_over = true;
        vj_remote_op_clear_timer(&f->op);
        if (f->op.io == NULL) {
            r->is_flushing = false;
            if (rc == -EIO || rc == -ENOSPC) {
                r->lost_flush = r->own_flushes;
            }
            vj_remote_own_end(r);
        }
        vj_remote_resume_all(r); /* there may be room */
    }
    VJ_NODE_EACH(i, l.ask)
    {
        f->sent[i] = r->nodes[i].held_number;
    }
    f->op.in_flight += vj_node_count(l.ask);
    vj_mutex_unlock(&r->lock);
    VJ_NODE_EACH(i, l.ask)
    {
        send_flush(f, &r->nodes[i]);
    }
    if (rc != -EAGAIN) {
        vj_remote_op_complete(&f->op, rc, NULL);
    }
}

static void flush_resume(VjRemoteOp *op)
{
    flush_step((FlushOp *)op, 0);
}

static const VjRemoteOpKind flush_kind = {
    .size = sizeof(FlushOp), .answered = flush_answered, .resume = flush_resume};

void vj_remote_flush(VjRemote *r, VjIo *io)
{
    VjRemoteOp *op = vj_remote_op_new(&flush_kind, r, io);
    FlushOp *f = (FlushOp *)op;
    VjNodeSet ask;
    bool begins = true;

    vj_mutex_lock(&r->lock);
    if (io == NULL) {
        g_assert(r->is_flushing);
        begins = vj_remote_own_begin(r);
        r->is_flushing = begins;
    }
    f->until = r->returned_number;
    ask = holders(r);
    op->is_over = !begins;
    vj_mutex_unlock(&r->lock);
    if (begins) {
        flush_step(f, ask);
    }
    vj_remote_op_unref(op);
}
