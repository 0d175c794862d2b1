/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-put.c - an object goes to its nodes, all at once
 *
 * The first live nodes in the object's order, as many as there are to be replicas, get
 * it.  For each that fails the next live one takes its place.  When there is no other, it
 * is good with fewer, but at least one.  Without a live node it waits for one.
 *
 * A node that was asked and gave no answer may have it all the same.  Of a put that is
 * good such a replica is suspect: heal sees to it, and nothing else removes it, as it may
 * be the last one by then.  Of one that failed nobody names it: it is removed when the
 * node is there again, or by what looks for unreferenced objects.
 */
#include "store/remote-private.h"

typedef struct PutOp {
    VjRemoteOp op;
    uint64_t id;
    VjBuf *buf, *lead; /* as VjIo has them; a reference each */
    const uint8_t *lead_data;
    size_t len, lead_len;
    /* guarded by the store's lock: */
    VjRemotePut *put; /* NULL: has no place among those that are not durable */
    /* The first flush of the store's own that begins after it asked for one, to get a
     * place; 0: has not asked. */
    uint64_t flush;
    int64_t next_flush_us; /* not earlier it begins another one */
    VjNodeSet asked;       /* in this attempt */
    VjNodeSet busy;        /* they said so */
    VjNodeSet silent;      /* they gave no answer, and may have it */
    uint64_t connects;     /* of the store, when the attempt began */
    int full_rc, fail_rc;  /* what nodes said of space, and of other things; 0: nothing */
} PutOp;

static void put_more(PutOp *p);

static VjNodeSet acknowledged(const PutOp *p)
{
    return p->put->pending | p->put->durable;
}

/* ---- the end ----------------------------------------------------------------------- */

typedef enum Verdict { VERDICT_NONE, VERDICT_DONE, VERDICT_WAIT } Verdict;

/* No call is in flight, and there is no other node. */
static Verdict judge(PutOp *p, int *rc)
{
    bool is_late = p->op.is_canceled || vj_clock_mono_us() >= p->op.deadline_us;

    vj_mutex_assert_held(&p->op.r->lock);
    if (acknowledged(p) != 0) {
        *rc = 0;
    } else if (p->full_rc != 0 || p->fail_rc != 0) {
        *rc = p->full_rc != 0 ? p->full_rc : p->fail_rc;
    } else if (is_late) {
        *rc = p->op.is_canceled ? -ECANCELED : -ETIMEDOUT;
    } else {
        return VERDICT_WAIT;
    }
    return VERDICT_DONE;
}

/* The caller has judged.  *orphaned: nodes from which it is to be removed. */
static void end_put(PutOp *p, int rc, VjPut *put, VjNodeSet *orphaned)
{
    VjWireObject object = {.id = p->id, .nonce = p->op.nonce};
    VjNodeSet silent = p->silent & ~acknowledged(p);
    VjRemotePut *held = g_steal_pointer(&p->put);

    vj_mutex_assert_held(&p->op.r->lock);
    *orphaned = rc < 0 ? silent : 0;
    if (rc == 0) {
        vj_remote_suspect_note(p->op.r, &object, silent);
    }
    p->op.is_over = true;
    *put =
        (VjPut){.id = p->id,
                .loc = vj_remote_loc_encode(p->op.nonce, held->pending | held->durable),
                .stored_bytes = p->len};
    vj_remote_op_clear_timer(&p->op);
    vj_remote_put_return(p->op.r, held, rc < 0);
}

/* ---- calls ------------------------------------------------------------------------- */

/* Each node may take most of the time that is left: then another one has some. */
static int64_t call_deadline_us(const PutOp *p)
{
    int64_t now_us = vj_clock_mono_us();

    return now_us + MAX(p->op.deadline_us - now_us, 0) / 4 * 3;
}

static void send_put(PutOp *p, VjRemoteNode *node)
{
    VjRpcCall *call = vj_remote_call_new(p->op.r, VJ_OP_PUT);
    VjWirePut message = {.object = {.id = p->id, .nonce = p->op.nonce}};

    vj_wire_put_encode(call->message, &message);
    if (p->lead != NULL) {
        call->lead = vj_buf_ref(p->lead);
        call->lead_data = p->lead_data;
        call->lead_bytes = (uint32_t)p->lead_len;
    }
    if (p->len > p->lead_len) {
        call->bulk = vj_buf_ref(p->buf);
        call->bulk_bytes = (uint32_t)(p->len - p->lead_len);
    }
    call->deadline_us = call_deadline_us(p);
    vj_remote_op_send(&p->op, node, call);
}

static void put_answered(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call,
                         int64_t at_us, uint64_t life)
{
    PutOp *p = (PutOp *)op;

    (void)at_us;
    vj_mutex_lock(&op->r->lock);
    op->in_flight--;
    if (call->rc == 0 && !vj_remote_put_acknowledge(p->put, node, life)) {
        p->silent |= vj_node_bit(node->index);
    } else if (call->rc == 0) {
        p->silent &= ~vj_node_bit(node->index);
    } else if (call->rc == -ENOSPC || call->rc == -EDQUOT) {
        p->full_rc = p->full_rc == -ENOSPC ? -ENOSPC : call->rc;
    } else if (!vj_remote_is_lost(call)) {
        p->fail_rc = call->rc == -EROFS ? -EROFS : -EIO;
    } else if (call->rc == -EBUSY) {
        p->busy |= vj_node_bit(node->index);
    } else if (!call->is_answered && call->rc != -ENOTCONN) {
        p->silent |= vj_node_bit(node->index);
    }
    vj_mutex_unlock(&op->r->lock);
    if (call->rc != 0) {
        vj_trace(store, "remote put id=%" G_GUINT64_FORMAT " node=%u rc=%d", p->id,
                 node->index, call->rc);
    }
    put_more(p);
}

/* ---- which nodes ------------------------------------------------------------------- */

/* Nodes to be asked now; they count as in flight from now on. */
static VjNodeSet choose(PutOp *p)
{
    const VjRemote *r = p->op.r;
    unsigned have = vj_node_count(acknowledged(p)) + p->op.in_flight;
    VjNodeSet may = r->live & ~p->asked & ~acknowledged(p), chosen, draining = 0;

    vj_mutex_assert_held(&p->op.r->lock);
    may &= ~r->leaving;
    VJ_NODE_EACH(i, may)
    {
        draining |= r->weights[i] == 0 ? vj_node_bit(i) : 0;
    }
    if (p->op.is_canceled || have >= r->replicas) {
        return 0;
    }
    chosen = vj_placement_first(p->op.order, vj_remote_count(r), may & ~draining,
                                r->replicas - have);
    if (chosen == 0 && have == 0) {
        /* Nodes that are to be emptied, before the put fails. */
        chosen = vj_placement_first(p->op.order, vj_remote_count(r), may, r->replicas);
    }
    p->asked |= chosen;
    p->op.in_flight += vj_node_count(chosen);
    return chosen;
}

/* There is room for one more that no flush has covered. */
bool vj_remote_has_room(const VjRemote *r)
{
    return g_hash_table_size(r->puts) < VJ_REMOTE_UNFLUSHED_MAX &&
           r->held_count < (uint64_t)VJ_REMOTE_UNFLUSHED_MAX * r->replicas;
}

/* Goes on: asks nodes, ends, or waits. */
static void put_more(PutOp *p)
{
    VjRemote *r = p->op.r;
    VjNodeSet chosen = 0;
    Verdict verdict = VERDICT_NONE;
    VjNodeSet orphaned = 0;
    VjPut put = {0};
    int rc = 0;

    vj_mutex_lock(&r->lock);
    if (!p->op.is_over) {
        chosen = choose(p);
    }
    if (!p->op.is_over && p->op.in_flight == 0) {
        verdict = judge(p, &rc);
        if (verdict == VERDICT_DONE) {
            end_put(p, rc, &put, &orphaned);
        } else if (r->connects != p->connects) {
            vj_remote_op_wait(&p->op, 0); /* a node came meanwhile */
        } else {
            vj_remote_op_wait(&p->op, p->busy != 0
                                          ? MIN(vj_clock_mono_us() + VJ_REMOTE_BUSY_US,
                                                p->op.deadline_us)
                                          : p->op.deadline_us);
        }
    }
    vj_mutex_unlock(&r->lock);
    VJ_NODE_EACH(i, chosen)
    {
        send_put(p, &r->nodes[i]);
    }
    if (orphaned != 0) {
        vj_remote_remove_at(r, p->id, p->op.nonce, orphaned);
    }
    if (verdict == VERDICT_DONE) {
        vj_remote_op_complete(&p->op, rc, &put);
    }
}

/* A flush makes room.  True: the caller begins it; else another one is under way, or was
 * just now. */
static bool ask_for_flush(PutOp *p)
{
    VjRemote *r = p->op.r;
    int64_t now_us = vj_clock_mono_us();
    bool begins = !r->is_flushing && now_us >= p->next_flush_us;

    vj_mutex_assert_held(&r->lock);
    if (p->flush == 0) {
        p->flush = r->own_flushes + 1;
    }
    if (begins) {
        r->own_flushes++;
        r->is_flushing = true;
        p->next_flush_us = now_us + VJ_REMOTE_BUSY_US;
    }
    vj_remote_op_wait(&p->op, r->is_flushing ? p->op.deadline_us
                                             : MIN(p->next_flush_us, p->op.deadline_us));
    return begins;
}

/* True: it has a place among the puts that no flush has covered.  Else it waits for one,
 * and with *flush the caller flushes; or it ends with *rc. */
static bool has_place(PutOp *p, int *rc, bool *flush)
{
    VjRemote *r = p->op.r;

    vj_mutex_assert_held(&p->op.r->lock);
    if (p->put == NULL && vj_remote_has_room(r)) {
        p->put = vj_remote_put_begin(r, p->id, p->op.nonce);
    }
    if (p->put != NULL) {
        return true;
    }
    if (p->op.is_canceled) {
        *rc = -ECANCELED;
    } else if (vj_clock_mono_us() >= p->op.deadline_us) {
        *rc = -ETIMEDOUT;
    } else if (p->flush != 0 && r->lost_flush >= p->flush) {
        *rc = -EIO; /* too many are lost, and their callers have not removed them */
    } else {
        *flush = ask_for_flush(p);
    }
    p->op.is_over = *rc < 0;
    return false;
}

/* The first time, or after a wait. */
static void put_resume(VjRemoteOp *op)
{
    PutOp *p = (PutOp *)op;
    VjRemote *r = op->r;
    bool has, flush = false;
    int rc = 0;

    vj_mutex_lock(&r->lock);
    has = has_place(p, &rc, &flush);
    p->asked = p->busy = 0;
    p->connects = r->connects;
    vj_mutex_unlock(&r->lock);
    if (has) {
        put_more(p);
    } else if (rc < 0) {
        vj_remote_op_complete(op, rc, NULL);
    } else if (flush) {
        vj_remote_flush(r, NULL);
    }
}

static void put_clear(VjRemoteOp *op)
{
    vj_buf_unref(((PutOp *)op)->lead);
    vj_buf_unref(((PutOp *)op)->buf);
}

static const VjRemoteOpKind put_kind = {.size = sizeof(PutOp),
                                        .answered = put_answered,
                                        .resume = put_resume,
                                        .clear = put_clear};

void vj_remote_put(VjRemote *r, VjIo *io)
{
    VjRemoteOp *op = vj_remote_op_new(&put_kind, r, io);
    PutOp *p = (PutOp *)op;

    p->id = io->id;
    p->buf = vj_buf_ref(io->buf);
    p->len = io->len;
    p->lead = io->lead != NULL ? vj_buf_ref(io->lead) : NULL;
    p->lead_data = io->lead_data;
    p->lead_len = io->lead_len;
    op->nonce = vj_remote_seam->random_u64();
    vj_remote_rank(r, p->id, op->order);
    put_resume(op);
    vj_remote_op_unref(op);
}
