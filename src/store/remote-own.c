/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-own.c - what heal and removes of the store's own know of each other
 *
 * The store removes single replicas by itself: of puts that a node did not answer, and of
 * those that a node cannot make durable.  Such a REMOVE that came to its node after heal
 * has put a good replica there would take it away.  So heal leaves an object alone as
 * long as one is under way, and none is begun while it is at work.
 */
#include "store/remote-private.h"

static guint object_hash(gconstpointer opaque)
{
    const VjWireObject *object = opaque;

    return (guint)(object->nonce ^ object->nonce >> 32);
}

static gboolean object_equal(gconstpointer a, gconstpointer b)
{
    const VjWireObject *x = a, *y = b;

    return x->nonce == y->nonce && x->id == y->id;
}

void vj_remote_own_init(VjRemote *r)
{
    r->own_removes = g_hash_table_new_full(object_hash, object_equal, g_free, NULL);
    r->healing = g_hash_table_new(object_hash, object_equal);
}

void vj_remote_own_clear(VjRemote *r)
{
    g_assert(g_hash_table_size(r->healing) == 0);
    g_hash_table_unref(r->healing);
    g_hash_table_unref(r->own_removes);
}

bool vj_remote_own_remove_begin(VjRemote *r, const VjWireObject *object, unsigned count)
{
    unsigned before = GPOINTER_TO_UINT(g_hash_table_lookup(r->own_removes, object));

    vj_mutex_assert_held(&r->lock);
    if (g_hash_table_contains(r->healing, object)) {
        return false;
    }
    g_hash_table_replace(r->own_removes, g_memdup2(object, sizeof *object),
                         GUINT_TO_POINTER(before + count));
    return true;
}

void vj_remote_own_remove_end(VjRemote *r, const VjWireObject *object)
{
    unsigned before = GPOINTER_TO_UINT(g_hash_table_lookup(r->own_removes, object));

    vj_mutex_assert_held(&r->lock);
    g_assert(before > 0);
    if (before == 1) {
        g_hash_table_remove(r->own_removes, object);
    } else {
        g_hash_table_replace(r->own_removes, g_memdup2(object, sizeof *object),
                             GUINT_TO_POINTER(before - 1));
    }
}

bool vj_remote_heal_begin(VjRemote *r, VjWireObject *object)
{
    bool begins;

    vj_mutex_lock(&r->lock);
    begins = !g_hash_table_contains(r->own_removes, object) &&
             !g_hash_table_contains(r->healing, object);
    if (begins) {
        g_hash_table_add(r->healing, object);
    }
    vj_mutex_unlock(&r->lock);
    return begins;
}

void vj_remote_heal_end(VjRemote *r, VjWireObject *object)
{
    vj_mutex_lock(&r->lock);
    g_hash_table_remove(r->healing, object);
    vj_mutex_unlock(&r->lock);
}
