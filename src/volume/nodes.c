/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * nodes.c - the list of nodes of a volume that is open, and changes of it
 *
 * The list is a part of the superblock.  A new one becomes durable in its copy in the
 * metadata, with a higher sequence number than the file has, before the store goes by it:
 * so no crash leaves a locator that names a node which the newest list does not have.
 * What was removed is named by no record that is committed then.
 */
#include "volume/volume-private.h"

char *vj_volume_conf(VjVolume *v)
{
    char *text;

    vj_mutex_lock(&v->super_lock);
    text = g_strdup(v->super.text);
    vj_mutex_unlock(&v->super_lock);
    return text;
}

static bool begin(VjVolume *v, GError **error)
{
    bool was_changing;

    if (!vj_store_has_replicas(v->store)) {
        return vj_error_set(error, EOPNOTSUPP, "the volume has no storage nodes");
    }
    if (vj_volume_read_only(v) || v->healer == NULL) {
        return vj_error_set(error, EROFS, "the volume is mounted read-only");
    }
    vj_mutex_lock(&v->super_lock);
    was_changing = v->is_changing;
    v->is_changing = true;
    vj_mutex_unlock(&v->super_lock);
    return !was_changing ||
           vj_error_set(error, EBUSY, "another change of the nodes is under way");
}

static void end(VjVolume *v)
{
    vj_mutex_lock(&v->super_lock);
    v->is_changing = false;
    vj_mutex_unlock(&v->super_lock);
}

/* UINT_MAX: it is not in the list. */
static unsigned find(VjVolume *v, const char *address)
{
    VjStoreNode node;

    for (unsigned i = 0; vj_volume_node(v, i, &node); i++) {
        if (strcmp(node.address, address) == 0) {
            return i;
        }
    }
    return UINT_MAX;
}

static bool never(void *opaque)
{
    (void)opaque;
    return false;
}

static bool must_stop(void *opaque)
{
    (void)opaque;
    return vj_cancel_is_fired();
}

int vj_volume_count_at_node(VjVolume *v, const char *address, uint64_t *out)
{
    unsigned index;

    *out = 0;
    if (!vj_store_has_replicas(v->store)) {
        return -EOPNOTSUPP;
    }
    index = find(v, address);
    return index == UINT_MAX
               ? -ENOENT
               : vj_objects_count_at_node(v->objects, index, must_stop, NULL, out);
}

/* ---- removal ----------------------------------------------------------------------- */

/* No record that is committed, or about to be, names the node, which gets nothing
 * more. */
static bool is_empty(VjVolume *v, const VjNodeChange *change, GError **error)
{
    unsigned index = find(v, change->address);
    VjHealed healed = {0};
    uint64_t left = 0;
    int r = vj_volume_sync(v);

    /* A pass moves what is still there, and finds what the record of a heal before a
     * crash does not name.  By force the count tells what it could not do. */
    if (r == 0) {
        int pass = vj_volume_heal(v, &healed);

        r = change->is_forced ? 0 : pass;
    }
    /* A heal could put an object there, and not yet say so in its record. */
    vj_objects_pause_healing(v->objects, true);
    r = r < 0 ? r : vj_volume_sync(v);
    r = r < 0 ? r : vj_volume_purge(v);
    r = r < 0 ? r : vj_objects_count_at_node(v->objects, index, never, NULL, &left);
    if (r < 0) {
        return vj_error_set_errno(error, -r, "what node %s has", change->address);
    }
    return left == 0 ||
           vj_error_set(error, ENOTEMPTY,
                        change->is_forced
                            ? "%" G_GUINT64_FORMAT
                              " objects would have no replica left: node %s stays"
                            : "%" G_GUINT64_FORMAT
                              " objects are still to be copied from node %s",
                        left, change->address);
}

/* ---- all changes ------------------------------------------------------------------- */

static bool make_durable(VjVolume *v, const char *store, GError **error)
{
    uint64_t sequence = v->super.sequence + 1;
    g_autofree char *text = vj_superblock_text_with(v->super.text, store, sequence);
    int r;

    if (strlen(text) > VJ_SUPERBLOCK_MAX) {
        return vj_error_set(error, ENOSPC, "the list of nodes gets too long");
    }
    r = vj_superblock_record_change(v, text);
    vj_mutex_lock(&v->super_lock);
    /* The number is used up: what failed may be there all the same. */
    v->super.sequence = sequence;
    if (r == 0) {
        g_free(v->super.store);
        v->super.store = g_strdup(store);
        g_free(v->super.text);
        v->super.text = g_steal_pointer(&text);
    }
    vj_mutex_unlock(&v->super_lock);
    return r == 0 || vj_error_set_errno(error, -r, "the new list of nodes");
}

static bool change_now(VjVolume *v, const VjNodeChange *change, GError **error)
{
    g_autofree char *store = NULL;
    bool ok;

    if (!vj_store_change_spec(v->super.store, change, &store, error)) {
        return false;
    }
    if (strcmp(store, v->super.store) == 0) {
        return true; /* it is so already */
    }
    if (!vj_store_change_begin(v->store, change, error)) {
        return false;
    }
    if (change->kind == VJ_NODE_REMOVE && !is_empty(v, change, error)) {
        vj_store_change_end(v->store, change, false);
        vj_objects_pause_healing(v->objects, false);
        return false;
    }
    ok = make_durable(v, store, error);
    /* A removal that may be durable goes on: nothing may be put there. */
    if (ok || change->kind != VJ_NODE_REMOVE) {
        vj_store_change_end(v->store, change, ok);
    }
    vj_objects_pause_healing(v->objects, false);
    return ok;
}

bool vj_volume_change_nodes(VjVolume *v, const VjNodeChange *change, GError **error)
{
    bool ok;

    vj_lock_assert_none();
    if (!begin(v, error)) {
        return false;
    }
    ok = change_now(v, change, error);
    end(v);
    return ok;
}
