/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-op.c - requests in flight of the driver remote: calls, timers, waiting
 *
 * A request is counted: who submitted it, each of its calls, its timer and the queue of
 * those that wait have a reference.  It is resumed by the thread of the timers alone, so
 * that a node that comes, which the loop's thread of rpc sees first, runs no request
 * there.
 */
#include "store/remote-private.h"

/* Enough for the messages of one object. */
#define MESSAGE_BYTES 64u

VjRemoteOp *vj_remote_op_new(const VjRemoteOpKind *kind, VjRemote *r, VjIo *io)
{
    VjRemoteOp *op = vj_malloc0(kind->size);

    g_assert(kind->size >= sizeof *op);
    op->refs = 1;
    op->kind = kind;
    op->r = r;
    op->io = io;
    op->has_helper = io != NULL && io->has_helper;
    op->deadline_us =
        io != NULL && io->deadline_us > 0 ? io->deadline_us : vj_remote_deadline_us(r);
    if (io != NULL) {
        vj_mutex_lock(&r->lock);
        io->of_driver = op;
        vj_mutex_unlock(&r->lock);
    }
    return op;
}

VjRemoteOp *vj_remote_op_ref(VjRemoteOp *op)
{
    g_atomic_int_inc(&op->refs);
    return op;
}

void vj_remote_op_unref(VjRemoteOp *op)
{
    if (!g_atomic_int_dec_and_test(&op->refs)) {
        return;
    }
    g_assert(op->is_over && op->in_flight == 0 && op->timer == NULL && !op->is_waiting);
    if (op->kind->clear != NULL) {
        op->kind->clear(op);
    }
    g_free(op);
}

void vj_remote_op_complete(VjRemoteOp *op, int rc, const VjPut *put)
{
    VjIo *io = op->io;

    g_assert(op->is_over);
    vj_lock_assert_none();
    if (io != NULL) {
        vj_mutex_lock(&op->r->lock);
        io->of_driver = NULL;
        vj_mutex_unlock(&op->r->lock);
        op->io = NULL;
        vj_io_complete(io, rc, put);
    }
}

/* ---- timers ------------------------------------------------------------------------ */

static gint by_time(gconstpointer a, gconstpointer b, gpointer unused)
{
    int64_t x = ((const VjRemoteOp *)a)->timer_us, y = ((const VjRemoteOp *)b)->timer_us;

    (void)unused;
    return x < y ? -1 : x > y;
}

void vj_remote_op_set_timer(VjRemoteOp *op, int64_t at_us)
{
    vj_mutex_assert_held(&op->r->lock);
    if (op->timer != NULL) {
        g_sequence_remove(op->timer);
    } else {
        vj_remote_op_ref(op);
    }
    op->timer_us = at_us;
    op->timer = g_sequence_insert_sorted(op->r->timers, op, by_time, NULL);
    if (g_sequence_iter_is_begin(op->timer)) {
        vj_cond_signal(&op->r->timer_changed);
    }
}

void vj_remote_op_clear_timer(VjRemoteOp *op)
{
    vj_mutex_assert_held(&op->r->lock);
    if (op->is_waiting) {
        op->is_waiting = false;
        g_queue_unlink(&op->r->waiting, &op->wait_link);
    }
    if (op->timer != NULL) {
        g_sequence_remove(g_steal_pointer(&op->timer));
        g_atomic_int_add(&op->refs, -1);
        g_assert(g_atomic_int_get(&op->refs) > 0); /* the caller has one */
    }
}

void vj_remote_op_wait(VjRemoteOp *op, int64_t at_us)
{
    g_assert(!op->is_waiting && !op->is_over);
    op->is_waiting = true;
    op->wait_link.data = op;
    g_queue_push_tail_link(&op->r->waiting, &op->wait_link);
    vj_remote_op_set_timer(op, at_us); /* whose reference is that of the queue too */
}

void vj_remote_resume_all(VjRemote *r)
{
    vj_mutex_assert_held(&r->lock);
    for (GList *l = r->waiting.head; l != NULL; l = l->next) {
        vj_remote_op_set_timer(l->data, 0);
    }
}

/* Referenced: the first one whose time has come.  NULL: none, wait until *next_us. */
static VjRemoteOp *take_due(VjRemote *r, int64_t *next_us) VJ_REQUIRES(r->lock)
{
    GSequenceIter *first = g_sequence_get_begin_iter(r->timers);
    VjRemoteOp *op;

    *next_us = INT64_MAX;
    if (g_sequence_iter_is_end(first)) {
        return NULL;
    }
    op = g_sequence_get(first);
    *next_us = op->timer_us;
    if (vj_clock_mono_us() < op->timer_us) {
        return NULL;
    }
    g_sequence_remove(g_steal_pointer(&op->timer));
    if (op->is_waiting) {
        op->is_waiting = false;
        g_queue_unlink(&r->waiting, &op->wait_link);
    }
    /* What it sends now is not sent by the thread that runs the loop, and its caller may
     * have left the loop meanwhile: the loop's own thread is to wait for the answers. */
    op->has_helper = false;
    return op;
}

/* The lock is given up while a request is resumed. */
static int64_t run_due(VjRemote *r) VJ_REQUIRES(r->lock)
{
    int64_t next_us;
    VjRemoteOp *op;

    while ((op = take_due(r, &next_us)) != NULL) {
        vj_mutex_unlock(&r->lock);
        op->kind->resume(op);
        vj_remote_op_unref(op);
        vj_mutex_lock(&r->lock);
    }
    return next_us;
}

int64_t vj_remote_timers_run(VjRemote *r)
{
    int64_t next_us;

    vj_mutex_lock(&r->lock);
    next_us = run_due(r);
    vj_mutex_unlock(&r->lock);
    return next_us;
}

static gpointer watch_timers(gpointer opaque)
{
    VjRemote *r = opaque;

    vj_mutex_lock(&r->lock);
    while (!r->timers_stop) {
        int64_t next_us = run_due(r);

        if (r->timers_stop) {
            break;
        }
        if (next_us == INT64_MAX) {
            vj_cond_wait(&r->timer_changed, &r->lock);
        } else {
            (void)!vj_cond_wait_until(&r->timer_changed, &r->lock, next_us);
        }
    }
    vj_mutex_unlock(&r->lock);
    return NULL;
}

bool vj_remote_timers_start(VjRemote *r, GError **error)
{
    if (vj_remote_seam->step == NULL) {
        g_autoptr(GError) failed = NULL;

        r->timer_thread = g_thread_try_new("store-remote", watch_timers, r, &failed);
        if (r->timer_thread == NULL) {
            return vj_error_set(error, EAGAIN, "no thread for timers: %s",
                                failed->message);
        }
    }
    return true;
}

void vj_remote_timers_stop(VjRemote *r)
{
    vj_mutex_lock(&r->lock);
    r->timers_stop = true;
    vj_cond_signal(&r->timer_changed);
    vj_mutex_unlock(&r->lock);
    if (r->timer_thread != NULL) {
        g_thread_join(g_steal_pointer(&r->timer_thread));
    }
}

/* ---- calls ------------------------------------------------------------------------- */

typedef struct Sent {
    VjRemoteOp *op; /* a reference */
    VjRemoteNode *node;
    int64_t at_us;
    uint64_t life, connects;
} Sent;

static void call_done(VjRpcCall *call)
{
    Sent *sent = call->opaque;
    VjRemote *r = sent->op->r;

    vj_mutex_lock(&r->lock);
    vj_remote_node_answered(sent->node, call, sent->connects);
    vj_mutex_unlock(&r->lock);
    sent->op->kind->answered(sent->op, sent->node, call, sent->at_us, sent->life);
    vj_remote_op_unref(sent->op);
    g_free(sent);
    vj_rpc_call_unref(call);
}

void vj_remote_op_send(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call)
{
    Sent *sent = g_new(Sent, 1);

    vj_lock_assert_none();
    *sent = (Sent){.op = vj_remote_op_ref(op), .node = node, .at_us = vj_clock_mono_us()};
    vj_mutex_lock(&op->r->lock);
    sent->life = node->life;
    sent->connects = node->connects;
    call->has_helper = op->has_helper;
    vj_mutex_unlock(&op->r->lock);
    call->done = call_done;
    call->opaque = sent;
    vj_remote_seam->submit(node->client, call);
}

VjRpcCall *vj_remote_call_new(const VjRemote *r, uint16_t op)
{
    VjRpcCall *call = vj_rpc_call_new(op);

    call->deadline_us = vj_remote_deadline_us(r);
    call->message = g_byte_array_sized_new(MESSAGE_BYTES);
    return call;
}

VjRpcCall *vj_remote_objects_call(const VjRemote *r, uint16_t op,
                                  const VjWireObject *objects, uint32_t count)
{
    VjRpcCall *call = vj_remote_call_new(r, op);

    g_assert(count > 0 && count <= VJ_WIRE_OBJECTS_MAX);
    vj_wire_objects_encode(call->message, objects, count);
    return call;
}

void vj_remote_wait_until(VjRemote *r, int64_t until_us)
{
    vj_mutex_assert_held(&r->lock);
    if (vj_remote_seam->step != NULL) {
        vj_mutex_unlock(&r->lock);
        vj_remote_seam->step();
        vj_mutex_lock(&r->lock);
    } else if (until_us == INT64_MAX) {
        vj_cond_wait(&r->changed, &r->lock);
    } else {
        (void)!vj_cond_wait_until(&r->changed, &r->lock, until_us);
    }
}

bool vj_remote_own_begin(VjRemote *r)
{
    vj_mutex_assert_held(&r->lock);
    r->own_ops += !r->stop;
    return !r->stop;
}

void vj_remote_own_end(VjRemote *r)
{
    vj_mutex_assert_held(&r->lock);
    g_assert(r->own_ops > 0);
    r->own_ops--;
    vj_cond_broadcast(&r->changed);
}

void vj_remote_own_stop(VjRemote *r)
{
    int64_t until_us = vj_remote_deadline_us(r);

    vj_mutex_lock(&r->lock);
    r->stop = true;
    vj_remote_resume_all(r);
    while (r->own_ops > 0 && vj_clock_mono_us() < until_us) {
        vj_remote_wait_until(r, until_us);
    }
    vj_mutex_unlock(&r->lock);
}

/* ---- calls that a thread waits for ------------------------------------------------- */

static void run_answered(VjRemoteOp *op, VjRemoteNode *node, VjRpcCall *call,
                         int64_t at_us, uint64_t life)
{
    (void)node, (void)call, (void)at_us, (void)life;
    vj_mutex_lock(&op->r->lock);
    op->in_flight--;
    vj_cond_broadcast(&op->r->changed);
    vj_mutex_unlock(&op->r->lock);
}

static void run_resumed(VjRemoteOp *op)
{
    (void)op;
    g_assert_not_reached();
}

static const VjRemoteOpKind run_kind = {
    .size = sizeof(VjRemoteOp), .answered = run_answered, .resume = run_resumed};

void vj_remote_run(VjRemote *r, const unsigned *nodes, VjRpcCall *const *calls,
                   unsigned count)
{
    VjRemoteOp *op = vj_remote_op_new(&run_kind, r, NULL);

    op->is_over = true;
    for (unsigned i = 0; i < count; i++) {
        op->in_flight += calls[i] != NULL;
    }
    for (unsigned i = 0; i < count; i++) {
        if (calls[i] != NULL) {
            vj_remote_op_send(op, &r->nodes[nodes[i]], vj_rpc_call_ref(calls[i]));
        }
    }
    vj_mutex_lock(&r->lock);
    while (op->in_flight > 0) {
        vj_remote_wait_until(r, INT64_MAX);
    }
    vj_mutex_unlock(&r->lock);
    vj_remote_op_unref(op);
}
