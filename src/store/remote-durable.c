/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-durable.c - which puts of the driver remote are durable at which nodes
 *
 * A put that a node has acknowledged is pending there until a FLUSH of the same life of
 * that node covers it: a node flushes what it has acknowledged before the FLUSH came. So
 * each node has a list of what it holds, in the order in which it was acknowledged, and
 * a FLUSH that was sent when the last number was N covers all up to N.
 *
 * A put is over, and in no table, when it is pending nowhere and durable somewhere, or
 * was removed.  One that is pending nowhere and durable nowhere is lost: it stays, and
 * flush fails, until its caller removes it.  The lists of the nodes may have puts that
 * are over, until a FLUSH takes them out: where that fails, the replica is suspect,
 * unless the object was removed.
 */
#include "store/remote-private.h"

static guint put_hash(gconstpointer opaque)
{
    const VjRemotePut *put = opaque;

    return (guint)(put->nonce ^ put->nonce >> 32);
}

static gboolean put_equal(gconstpointer a, gconstpointer b)
{
    const VjRemotePut *x = a, *y = b;

    return x->nonce == y->nonce && x->id == y->id;
}

static void put_unref(VjRemotePut *put)
{
    g_assert(put->refs > 0);
    if (--put->refs == 0) {
        g_assert(put->is_over);
        g_free(put);
    }
}

void vj_remote_durable_init(VjRemote *r)
{
    r->puts = g_hash_table_new(put_hash, put_equal);
    r->late_puts = g_hash_table_new(put_hash, put_equal);
    g_queue_init(&r->returned);
}

/* It leaves the tables.  Drops their reference. */
static void end_put(VjRemote *r, VjRemotePut *put)
{
    vj_mutex_assert_held(&r->lock);
    g_assert(!put->is_over);
    put->is_over = true;
    g_hash_table_remove(r->puts, put);
    if (put->number > 0) {
        g_queue_unlink(&r->returned, &put->link);
    }
    put_unref(put);
}

VjRemotePut *vj_remote_put_begin(VjRemote *r, uint64_t id, uint64_t nonce)
{
    VjRemotePut *put = g_new0(VjRemotePut, 1);

    put->id = id;
    put->nonce = nonce;
    put->link.data = put;
    put->refs = 2; /* the tables' and the caller's */
    g_hash_table_add(r->puts, put);
    return put;
}

bool vj_remote_put_acknowledge(VjRemotePut *put, VjRemoteNode *node, uint64_t life)
{
    VjRemoteHeld *held;

    if (life != node->life) {
        return false;
    }
    held = g_new(VjRemoteHeld, 1);
    *held = (VjRemoteHeld){.put = put, .number = ++node->held_number};
    put->refs++;
    put->pending |= vj_node_bit(node->index);
    put->doubtful &= ~vj_node_bit(node->index); /* it was put once more */
    g_queue_push_tail(&node->held, held);
    node->r->held_count++;
    return true;
}

static void note_degraded(VjRemote *r, VjRemotePut *put)
{
    vj_mutex_assert_held(&r->lock);
    if (!put->is_degraded) {
        put->is_degraded = true;
        r->degraded_puts++;
    }
}

/* Nothing is pending: it is durable, or lost. */
static void look_at(VjRemote *r, VjRemotePut *put)
{
    vj_mutex_assert_held(&r->lock);
    if (put->is_over || put->number == 0 || put->pending != 0) {
        return;
    }
    if (vj_node_count(put->durable) < r->replicas) {
        note_degraded(r, put);
    }
    if (put->durable != 0 && put->doubtful == 0) {
        end_put(r, put);
    }
}

static void note_suspect(VjRemote *r, const VjRemotePut *put, VjNodeSet nodes)
{
    VjWireObject object = {.id = put->id, .nonce = put->nonce};

    vj_mutex_assert_held(&r->lock);
    vj_remote_suspect_note(r, &object, nodes);
}

void vj_remote_put_return(VjRemote *r, VjRemotePut *put, bool failed)
{
    if (!put->is_over && failed) {
        g_assert(put->pending == 0 && put->durable == 0);
        end_put(r, put);
    } else if (!put->is_over) {
        put->number = ++r->returned_number;
        g_queue_push_tail_link(&r->returned, &put->link);
        if (vj_node_count(put->pending | put->durable) < r->replicas) {
            note_degraded(r, put);
        }
        look_at(r, put);
    }
    put_unref(put);
}

void vj_remote_put_forget(VjRemote *r, uint64_t id, uint64_t nonce)
{
    VjRemotePut key = {.id = id, .nonce = nonce};
    VjRemotePut *put = g_hash_table_lookup(r->puts, &key);

    if (put != NULL) {
        put->is_removed = true;
        end_put(r, put);
    } else if ((put = g_hash_table_lookup(r->late_puts, &key)) != NULL) {
        put->is_removed = true;
        g_hash_table_remove(r->late_puts, put);
    }
}

void vj_remote_put_end(VjRemote *r, VjRemotePut *put)
{
    g_assert(put->durable != 0 && put->number > 0);
    g_assert((put->durable & put->doubtful) == 0);
    note_suspect(r, put, put->doubtful);
    if (vj_node_count(put->durable) < r->replicas) {
        note_degraded(r, put);
    }
    if (put->pending != 0) {
        g_hash_table_add(r->late_puts, put); /* nodes hold it */
    }
    end_put(r, put);
}

/* The first that @node holds, where its number is at most @number: taken out of its list,
 * and its reference is the caller's.  NULL: there is none. */
static VjRemotePut *take_held(VjRemoteNode *node, uint64_t number)
{
    VjRemoteHeld *held = g_queue_peek_head(&node->held);
    VjRemotePut *put;

    vj_mutex_assert_held(&node->r->lock);
    if (held == NULL || held->number > number) {
        return NULL;
    }
    g_queue_pop_head(&node->held);
    g_assert(node->r->held_count > 0);
    node->r->held_count--;
    put = held->put;
    put->pending &= ~vj_node_bit(node->index);
    if (put->pending == 0) {
        g_hash_table_remove(node->r->late_puts, put);
    }
    g_free(held);
    return put;
}

void vj_remote_node_durable(VjRemoteNode *node, uint64_t number)
{
    VjRemotePut *put;

    while ((put = take_held(node, number)) != NULL) {
        put->durable |= vj_node_bit(node->index);
        put->doubtful &= ~vj_node_bit(node->index);
        look_at(node->r, put);
        put_unref(put);
    }
}

void vj_remote_node_doubt(VjRemoteNode *node, uint64_t number)
{
    VjRemotePut *put;

    while ((put = take_held(node, number)) != NULL) {
        put->doubtful |= vj_node_bit(node->index);
        if (put->is_over && !put->is_removed) {
            /* It was pending there when the put was good without that. */
            note_suspect(node->r, put, vj_node_bit(node->index));
        }
        look_at(node->r, put);
        put_unref(put);
    }
}

/* What is durable there of puts that are not over, is it no more. */
static void lose_durable(VjRemoteNode *node)
{
    GHashTableIter iter;
    gpointer put;

    vj_mutex_assert_held(&node->r->lock);
    g_hash_table_iter_init(&iter, node->r->puts);
    while (g_hash_table_iter_next(&iter, &put, NULL)) {
        ((VjRemotePut *)put)->durable &= ~vj_node_bit(node->index);
    }
}

void vj_remote_node_lose(VjRemoteNode *node, bool disk)
{
    VjRemotePut *put;

    if (disk) {
        lose_durable(node);
    }
    while ((put = take_held(node, UINT64_MAX)) != NULL) {
        look_at(node->r, put);
        put_unref(put);
    }
}

void vj_remote_durable_clear(VjRemote *r)
{
    for (unsigned i = 0; i < vj_remote_count(r); i++) {
        vj_remote_node_lose(&r->nodes[i], false);
    }
    while (r->returned.head != NULL) {
        end_put(r, r->returned.head->data);
    }
    g_assert(g_hash_table_size(r->puts) == 0 && r->held_count == 0);
    g_assert(g_hash_table_size(r->late_puts) == 0);
    g_hash_table_unref(r->late_puts);
    g_hash_table_unref(r->puts);
}
