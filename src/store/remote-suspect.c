/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-suspect.c - replicas that nobody counts on, and objects that are being healed
 *
 * A put that is good leaves suspects where a node gave no answer, which may have the
 * object or get it later, and where a FLUSH failed, which does not say of what.  Such a
 * replica may be whole and durable, and the last one when disks are lost: so only heal
 * takes it away, when it has seen another one, and puts it anew.  A survey names the
 * object until then.  What is suspect is forgotten when the store is closed.
 */
#include "store/remote-private.h"

typedef struct Suspect {
    VjWireObject object; /* the key */
    VjNodeSet nodes;     /* never none */
} Suspect;

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

void vj_remote_suspect_init(VjRemote *r)
{
    r->suspects = g_hash_table_new_full(object_hash, object_equal, NULL, g_free);
    r->healing = g_hash_table_new(object_hash, object_equal);
}

void vj_remote_suspect_clear(VjRemote *r)
{
    g_assert(g_hash_table_size(r->healing) == 0);
    g_hash_table_unref(r->healing);
    g_hash_table_unref(r->suspects);
}

/* ---- suspects ---------------------------------------------------------------------- */

void vj_remote_suspect_note(VjRemote *r, const VjWireObject *object, VjNodeSet nodes)
{
    Suspect *suspect = g_hash_table_lookup(r->suspects, object);

    vj_mutex_assert_held(&r->lock);
    if (nodes == 0) {
        return;
    }
    if (suspect == NULL && g_hash_table_size(r->suspects) >= VJ_REMOTE_SUSPECTS_MAX) {
        if (!r->has_too_many_suspects) {
            vj_log_error("store remote: more than %u objects have replicas that may be "
                         "bad: a node that cannot make its objects durable goes on "
                         "failing until it is started again",
                         VJ_REMOTE_SUSPECTS_MAX);
        }
        r->has_too_many_suspects = true;
        return;
    }
    if (suspect == NULL) {
        suspect = g_new(Suspect, 1);
        *suspect = (Suspect){.object = *object};
        g_hash_table_insert(r->suspects, &suspect->object, suspect);
    }
    suspect->nodes |= nodes;
    r->changes++; /* a survey is due */
}

VjNodeSet vj_remote_suspects(VjRemote *r, const VjWireObject *object)
{
    const Suspect *suspect = g_hash_table_lookup(r->suspects, object);

    vj_mutex_assert_held(&r->lock);
    return suspect != NULL ? suspect->nodes : 0;
}

void vj_remote_suspect_end(VjRemote *r, const VjWireObject *object, VjNodeSet nodes)
{
    Suspect *suspect = g_hash_table_lookup(r->suspects, object);

    vj_mutex_assert_held(&r->lock);
    if (suspect != NULL) {
        suspect->nodes &= ~nodes;
        if (suspect->nodes == 0) {
            g_hash_table_remove(r->suspects, object);
        }
    }
}

static gboolean is_no_suspect_without(gpointer key, gpointer value, gpointer opaque)
{
    Suspect *suspect = value;
    const VjRemoteNode *node = opaque;

    (void)key;
    suspect->nodes &= ~vj_node_bit(node->index);
    return suspect->nodes == 0;
}

void vj_remote_suspect_forget(VjRemote *r, const VjRemoteNode *node)
{
    vj_mutex_assert_held(&r->lock);
    g_hash_table_foreach_remove(r->suspects, is_no_suspect_without,
                                (gpointer)(uintptr_t)node);
}

/* ---- one heal at a time for one object --------------------------------------------- */

bool vj_remote_heal_begin(VjRemote *r, VjWireObject *object, VjNodeSet *suspect)
{
    bool begins;

    vj_mutex_lock(&r->lock);
    begins = !g_hash_table_contains(r->healing, object);
    if (begins) {
        g_hash_table_add(r->healing, object);
    }
    *suspect = vj_remote_suspects(r, object);
    vj_mutex_unlock(&r->lock);
    return begins;
}

void vj_remote_heal_end(VjRemote *r, VjWireObject *object, VjNodeSet mended)
{
    vj_mutex_lock(&r->lock);
    vj_remote_suspect_end(r, object, mended);
    g_hash_table_remove(r->healing, object);
    vj_mutex_unlock(&r->lock);
}
