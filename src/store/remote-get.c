/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-get.c - an object comes from the first node that gives it
 *
 * The nodes of the locator are asked in the object's order, then all others that are
 * live. A node that does not answer within a time that its recent gets suggest is not
 * waited for: another one of the locator is asked too (a hedge), and the first good
 * answer counts.  Where no node has the object, and some of the locator did not answer,
 * it waits for those to come back.
 *
 * The first call writes to the caller's buffer; a hedge has one of its own, which is
 * copied when the other call has let go of the caller's.
 */
#include "store/remote-private.h"

typedef struct GetOp {
    VjRemoteOp op;
    uint64_t id;
    uint64_t offset;
    VjBuf *buf; /* a reference */
    size_t len;
    bool is_checked;
    /* guarded by the store's lock: */
    VjNodeSet asked; /* since the last wait */
    VjNodeSet said;  /* they have answered of the object, and do not give it */
    uint64_t connects;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX]; /* in flight, a reference each */
    unsigned last;                            /* the node asked last */
    int64_t last_us;
    bool is_busy;           /* a node said so */
    bool is_bad, is_broken; /* what nodes said: EBADMSG, EIO */
    int64_t absent_us;   /* when all of the locator had said that they have it not; 0 */
    bool asks_all_again; /* as it has just become absent */
} GetOp;

static void go_on(GetOp *g, bool is_timer);

/* ---- which node -------------------------------------------------------------------- */

/* The next one to be asked, of @may; -1: none.  One that gives no answer comes last. */
static int next_of(const GetOp *g, VjNodeSet may) VJ_REQUIRES(g->op.r->lock)
{
    const VjRemote *r = g->op.r;
    int suspect = -1;

    for (unsigned i = 0; i < vj_remote_count(r); i++) {
        unsigned index = g->op.order[i];

        if ((may & vj_node_bit(index)) == 0) {
            continue;
        }
        if (!r->nodes[index].is_silent) {
            return (int)index;
        }
        suspect = suspect < 0 ? (int)index : suspect;
    }
    return suspect;
}

static int next_node(const GetOp *g) VJ_REQUIRES(g->op.r->lock)
{
    VjNodeSet may = g->op.r->live & ~g->asked & ~g->said;
    int index = next_of(g, may & g->op.nodes);

    return index >= 0 ? index : next_of(g, may & ~g->op.nodes);
}

/* Another replica that a hedge could ask. */
static int next_other(const GetOp *g)
{
    vj_mutex_assert_held(&g->op.r->lock);
    return next_of(g, g->op.r->live & ~g->asked & ~g->said & g->op.nodes);
}

/* ---- calls ------------------------------------------------------------------------- */

static VjRpcCall *new_call(const GetOp *g, bool is_direct)
{
    VjWireObject object = {.id = g->id, .nonce = g->op.nonce};
    VjRpcCall *call;

    if (g->len == 0) {
        call = vj_remote_objects_call(g->op.r, VJ_OP_HAVE, &object, 1);
    } else {
        VjWireGet message = {
            .object = object, .offset = g->offset, .len = (uint32_t)g->len};

        call = vj_remote_call_new(g->op.r, VJ_OP_GET);
        vj_wire_get_encode(call->message, &message);
        call->bulk_max = (uint32_t)g->len;
        call->may_be_bare = g->is_checked;
        call->into = is_direct ? vj_buf_ref(g->buf) : NULL;
    }
    call->deadline_us = g->op.deadline_us;
    return call;
}

/* The answer as get has it; @call is answered with 0. */
static int check_answer(const GetOp *g, const VjRpcCall *call)
{
    uint64_t bytes = 0;

    if (g->len > 0) {
        return call->reply_bulk != NULL && call->reply_bulk_bytes == g->len ? 0 : -EPROTO;
    }
    if (vj_wire_lengths_decode(vj_slice(call->reply->data, call->reply->len), &bytes, 1) <
        0) {
        return -EPROTO;
    }
    return bytes == VJ_WIRE_HAS_NOT ? -ENOENT : g->offset <= bytes ? 0 : -EBADMSG;
}

/* The others are not wanted any more.  With a reference each, which the caller drops. */
static unsigned take_others(GetOp *g, unsigned *nodes, VjRpcCall **calls)
    VJ_REQUIRES(g->op.r->lock)
{
    unsigned count = 0;

    for (unsigned i = 0; i < vj_remote_count(g->op.r); i++) {
        if (g->calls[i] != NULL) {
            nodes[count] = i;
            calls[count++] = g_steal_pointer(&g->calls[i]);
        }
    }
    return count;
}

static void cancel_others(GetOp *g, const unsigned *nodes, VjRpcCall *const *calls,
                          unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        vj_remote_seam->cancel(g->op.r->nodes[nodes[i]].client, calls[i]);
        vj_rpc_call_unref(calls[i]);
    }
}

/* @call has what was asked for. */
static void succeed(GetOp *g, const VjRpcCall *call)
{
    VjRpcCall *others[VJ_PLACEMENT_NODES_MAX];
    unsigned nodes[VJ_PLACEMENT_NODES_MAX], count;

    vj_mutex_lock(&g->op.r->lock);
    count = take_others(g, nodes, others);
    vj_remote_op_clear_timer(&g->op);
    vj_mutex_unlock(&g->op.r->lock);
    cancel_others(g, nodes, others, count); /* buf is nobody else's now */
    if (g->len > 0 && call->reply_bulk != g->buf) {
        memcpy(g->buf->data, call->reply_bulk->data, g->len);
    }
    vj_remote_op_complete(&g->op, 0, NULL);
}

static void note_failure(GetOp *g, const VjRemoteNode *node, const VjRpcCall *call,
                         int rc)
{
    vj_mutex_assert_held(&g->op.r->lock);
    if (rc == -EPROTO || vj_remote_is_lost(call)) {
        g->is_busy = g->is_busy || call->rc == -EBUSY;
        return;
    }
    g->said |= vj_node_bit(node->index);
    g->is_bad = g->is_bad || rc == -EBADMSG;
    g->is_broken = g->is_broken || (rc != -EBADMSG && rc != -ENOENT);
}

static void get_answered(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call,
                         int64_t at_us, uint64_t life)
{
    GetOp *g = (GetOp *)op;
    int rc = call->rc == 0 ? check_answer(g, call) : call->rc;
    int64_t took_us = vj_clock_mono_us() - at_us;
    bool is_mine = false;

    (void)life;
    vj_mutex_lock(&op->r->lock);
    op->in_flight--;
    vj_rpc_call_unref(g_steal_pointer(&g->calls[node->index]));
    if (rc == 0 && call->is_answered) {
        vj_remote_node_note_get(node, g->len, took_us);
    }
    if (!op->is_over && rc == 0) {
        is_mine = op->is_over = true;
    } else if (!op->is_over) {
        note_failure(g, node, call, rc);
    }
    vj_mutex_unlock(&op->r->lock);
    if (is_mine) {
        succeed(g, call);
    } else {
        go_on(g, false);
    }
}

/* ---- going on ---------------------------------------------------------------------- */

/* No call is in flight and there is no other node.  0: it waits. */
static int judge(GetOp *g)
{
    VjNodeSet silent = g->op.nodes & g->op.r->places & ~g->said;
    int64_t now_us = vj_clock_mono_us();

    vj_mutex_assert_held(&g->op.r->lock);
    if (g->op.is_canceled) {
        return -ECANCELED;
    }
    if (silent != 0 && now_us < g->op.deadline_us) {
        return 0;
    }
    if (g->is_bad || g->is_broken || silent != 0) {
        return g->is_bad ? -EBADMSG : g->is_broken ? -EIO : -ETIMEDOUT;
    }
    /* Heal may be about to bring it from one to another: all are asked again. */
    if (g->absent_us == 0) {
        g->absent_us = now_us;
        g->asks_all_again = true;
        return 0;
    }
    if ((g->op.r->places & ~g->said) != 0 &&
        now_us < MIN(g->absent_us + VJ_REMOTE_ABSENT_US, g->op.deadline_us)) {
        return 0;
    }
    return -ENOENT;
}

static void wait_for_node(GetOp *g) VJ_REQUIRES(g->op.r->lock)
{
    int64_t now_us = vj_clock_mono_us();

    if (g->op.r->connects != g->connects || g->asks_all_again) {
        g->asks_all_again = false;
        vj_remote_op_wait(&g->op, now_us); /* one came meanwhile; or at once, one time */
    } else if (g->is_busy || g->absent_us != 0) {
        vj_remote_op_wait(&g->op, MIN(now_us + VJ_REMOTE_BUSY_US, g->op.deadline_us));
    } else {
        vj_remote_op_wait(&g->op, g->op.deadline_us);
    }
}

/* One is asked from now on.  *call: to be sent. */
static void ask(GetOp *g, unsigned index, VjRpcCall **call)
{
    vj_mutex_assert_held(&g->op.r->lock);
    /* Where no other call is in flight none can be good before this one is sent. */
    *call = new_call(g, g->op.in_flight == 0);
    g->calls[index] = vj_rpc_call_ref(*call);
    g->asked |= vj_node_bit(index);
    g->last = index;
    g->last_us = vj_clock_mono_us();
    g->op.in_flight++;
}

/* The node asked last takes long.  The one to be asked too; -1: none, or not now. */
static int hedge(GetOp *g)
{
    VjRemote *r = g->op.r;
    VjRemoteNode *node = &r->nodes[g->last];
    int index = next_other(g);

    vj_mutex_assert_held(&g->op.r->lock);
    if (node->answered_us < g->last_us) {
        node->is_silent = true;
    }
    if (index < 0) {
        return -1;
    }
    if (!node->is_silent && r->hedge_credit < VJ_REMOTE_HEDGE_EVERY) {
        vj_remote_op_set_timer(&g->op, vj_clock_mono_us() + VJ_REMOTE_HEDGE_MIN_US);
        return -1;
    }
    if (!node->is_silent) {
        r->hedge_credit -= VJ_REMOTE_HEDGE_EVERY;
    }
    r->hedges++;
    return index;
}

/* No call is in flight: the next node; -1: *rc is the end, or 0: it waits. */
static int next_or_end(GetOp *g, bool is_timer, int *rc)
{
    int index;

    vj_mutex_assert_held(&g->op.r->lock);
    if (is_timer) { /* it has waited */
        g->asked = 0;
        g->said = g->absent_us != 0 ? 0 : g->said;
        g->is_busy = false;
        g->connects = g->op.r->connects;
    }
    vj_remote_op_clear_timer(&g->op);
    index = g->op.is_canceled ? -1 : next_node(g);
    if (index < 0) {
        *rc = judge(g);
        if (*rc == 0) {
            wait_for_node(g);
        }
        g->op.is_over = *rc < 0;
    }
    return index;
}

/* After an answer, or, @is_timer, when a hedge or the end of a wait is due. */
static void go_on(GetOp *g, bool is_timer)
{
    VjRemote *r = g->op.r;
    VjRpcCall *call = NULL;
    int index = -1, rc = 0;

    vj_mutex_lock(&r->lock);
    if (!g->op.is_over && g->op.in_flight == 0) {
        index = next_or_end(g, is_timer, &rc);
    } else if (!g->op.is_over && is_timer) {
        index = hedge(g);
    }
    if (index >= 0) {
        ask(g, (unsigned)index, &call);
    }
    vj_mutex_unlock(&r->lock);
    if (rc < 0) {
        vj_remote_op_complete(&g->op, rc, NULL);
    } else if (call != NULL) {
        vj_remote_op_send(&g->op, &r->nodes[index], call);
        /* Not before it is sent: what has not been sent cannot be cancelled. */
        vj_mutex_lock(&r->lock);
        if (!g->op.is_over && g->op.in_flight > 0 && next_other(g) >= 0) {
            vj_remote_op_set_timer(
                &g->op, g->last_us + vj_remote_node_hedge_us(&r->nodes[index], g->len));
        }
        vj_mutex_unlock(&r->lock);
    }
}

static void get_resume(VjRemoteOp *op)
{
    go_on((GetOp *)op, true);
}

static void get_cancel(VjRemoteOp *op)
{
    GetOp *g = (GetOp *)op;
    VjRpcCall *calls[VJ_PLACEMENT_NODES_MAX];
    unsigned nodes[VJ_PLACEMENT_NODES_MAX], count = 0;

    vj_mutex_lock(&op->r->lock);
    for (unsigned i = 0; i < vj_remote_count(op->r); i++) {
        if (g->calls[i] != NULL) {
            nodes[count] = i;
            calls[count++] = vj_rpc_call_ref(g->calls[i]);
        }
    }
    vj_mutex_unlock(&op->r->lock);
    cancel_others(g, nodes, calls, count);
}

static void get_clear(VjRemoteOp *op)
{
    vj_buf_unref(((GetOp *)op)->buf);
}

static const VjRemoteOpKind get_kind = {.size = sizeof(GetOp),
                                        .answered = get_answered,
                                        .resume = get_resume,
                                        .clear = get_clear,
                                        .cancel = get_cancel};

/* Places of the list, those of removed nodes too: a locator that was read before its
 * object was brought elsewhere may name one of these alone. */
static VjNodeSet listed(const VjRemote *r)
{
    unsigned count = vj_remote_count(r);

    return count < VJ_PLACEMENT_NODES_MAX ? vj_node_bit(count) - 1 : UINT64_MAX;
}

void vj_remote_get(VjRemote *r, VjIo *io)
{
    VjRemoteOp *op = vj_remote_op_new(&get_kind, r, io);
    GetOp *g = (GetOp *)op;

    g->id = io->id;
    g->offset = io->offset;
    g->len = io->len;
    g->is_checked = io->is_checked;
    g->buf = vj_buf_ref(io->buf);
    if (!vj_remote_loc_decode(io->loc, &op->nonce, &op->nodes) ||
        (op->nodes & listed(r)) == 0) {
        op->is_over = true;
        vj_remote_op_complete(op, -EBADMSG, NULL);
    } else {
        vj_remote_rank(r, g->id, op->order);
        vj_mutex_lock(&r->lock);
        g->connects = r->connects;
        r->hedge_credit = MIN(r->hedge_credit + 1,
                              (uint64_t)VJ_REMOTE_HEDGE_EVERY * VJ_REMOTE_HEDGE_BURST);
        vj_mutex_unlock(&r->lock);
        go_on(g, false);
    }
    vj_remote_op_unref(op);
}
