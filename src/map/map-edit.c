/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map-edit.c - the part of a tree that an operation has in memory: load it, write it back
 *
 * Each changed node is written once, when the operation is over; a node whose bytes would
 * not change is not written, so an entry that is replaced by one of the same length costs
 * its leaf alone.
 */
#include "map/map-private.h"

static int load(VjMapEdit *e, const VjMapChild *child, uint8_t level, VjMapNode **out)
{
    g_autofree VjMapImage *image = g_try_new(VjMapImage, 1);
    VjMapNode *n;
    int rc;

    *out = NULL;
    if (image == NULL) {
        return -ENOMEM;
    }
    rc = vj_map_image_get(e->txn, e->ino, child, level, image);
    if (rc < 0) {
        return rc;
    }
    n = vj_map_node_new(level);
    n->number = child->node;
    n->balanced = true;
    n->sums = image->sums;
    if (level == 0) {
        g_array_append_vals(n->items, image->entries, image->count);
    } else {
        for (unsigned i = 0; i < image->count; i++) {
            VjMapItem item = {.stored = image->children[i]};

            g_array_append_val(n->items, item);
        }
    }
    *out = n;
    return 0;
}

static void cut_clear(gpointer p)
{
    vj_map_node_free(((VjMapCut *)p)->item.node);
}

int vj_map_edit_new(VjTxn *txn, uint64_t ino, const VjMapRoot *root, GArray *removed,
                    GArray *detached, VjMapEdit **out)
{
    g_autoptr(VjMapEdit) e = NULL;
    int rc = vj_map_root_check(root);

    g_assert(txn->write && removed != NULL);
    *out = NULL;
    if (rc < 0) {
        return rc;
    }
    e = g_new(VjMapEdit, 1);
    *e = (VjMapEdit){
        .txn = txn,
        .ino = ino,
        .next_node = MAX(root->next_node, 1),
        .cuts = g_array_new(FALSE, FALSE, sizeof(VjMapCut)),
        .dead_nodes = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
        .removed = removed,
        .detached = detached,
        .removed_before = removed->len,
        .detached_before = detached != NULL ? detached->len : 0,
    };
    g_array_set_clear_func(e->cuts, cut_clear);
    if (root->node != 0) {
        VjMapChild child = {
            .node = root->node,
            .sums = {.bytes = root->bytes, .stored_bytes = root->stored_bytes}};

        rc = load(e, &child, (uint8_t)(root->height - 1), &e->root);
    }
    if (rc == 0) {
        *out = g_steal_pointer(&e);
    }
    return rc;
}

void vj_map_edit_free(VjMapEdit *e)
{
    if (e == NULL) {
        return;
    }
    if (!e->committed) {
        g_array_set_size(e->removed, e->removed_before);
        if (e->detached != NULL) {
            g_array_set_size(e->detached, e->detached_before);
        }
    }
    vj_map_node_free(e->root);
    g_array_unref(e->cuts);
    g_array_unref(e->dead_nodes);
    g_free(e);
}

int vj_map_edit_child(VjMapEdit *e, VjMapNode *n, unsigned i, VjMapNode **out)
{
    VjMapItem *item = vj_map_item_at(n, i);

    g_assert(n->level > 0 && i < n->items->len);
    *out = NULL;
    if (item->node == NULL) {
        int rc = load(e, &item->stored, (uint8_t)(n->level - 1), &item->node);

        if (rc < 0) {
            return rc;
        }
    }
    *out = item->node;
    return 0;
}

void vj_map_edit_discard(VjMapEdit *e, VjMapNode *n)
{
    if (n->number != 0) {
        g_array_append_val(e->dead_nodes, n->number);
    }
    vj_map_node_free(n);
}

void vj_map_edit_cut(VjMapEdit *e, const VjMapItem *item, uint8_t level)
{
    VjMapCut cut = {.item = *item, .level = level};

    g_assert(e->detached != NULL);
    g_array_append_val(e->cuts, cut);
}

/* A number for a node that has none.  -EFBIG when all were used. */
static int give_number(VjMapEdit *e, VjMapNode *n)
{
    if (n->number != 0) {
        return 0;
    }
    if (e->next_node == UINT32_MAX) {
        return -EFBIG;
    }
    n->number = e->next_node++;
    n->dirty = true;
    return 0;
}

static int write_one(VjMapEdit *e, const VjMapNode *n)
{
    uint8_t key[VJ_MAP_KEY_BYTES];
    uint8_t bytes[VJ_META_VALUE_CHEAP];
    g_autofree VjMapImage *image = g_try_new(VjMapImage, 1);

    g_assert(n->number != 0 && n->items->len > 0);
    g_assert(n->items->len <= (n->level == 0 ? VJ_MAP_LEAF_MAX : VJ_MAP_INNER_MAX));
    if (image == NULL) {
        return -ENOMEM;
    }
    image->ino = e->ino;
    image->node = n->number;
    image->level = n->level;
    image->count = (uint16_t)n->items->len;
    for (unsigned i = 0; i < n->items->len; i++) {
        if (n->level == 0) {
            image->entries[i] = *vj_map_entry_at(n, i);
        } else {
            image->children[i] = vj_map_item_at(n, i)->stored;
        }
    }
    vj_map_key_encode(e->ino, n->number, key);
    return vj_txn_put(e->txn, VJ_SPACE_NODE, vj_slice(key, sizeof key),
                      vj_slice(bytes, vj_map_image_encode(image, bytes)));
}

/* Children first: they get their numbers, and only then are the parent's bytes known. */
static int write_subtree(VjMapEdit *e, VjMapNode *n)
{
    int rc;

    for (unsigned i = 0; n->level > 0 && i < n->items->len; i++) {
        VjMapItem *item = vj_map_item_at(n, i);
        VjMapNode *child = item->node;

        if (child == NULL) {
            continue;
        }
        rc = write_subtree(e, child);
        if (rc < 0) {
            return rc;
        }
        if (item->stored.node != child->number ||
            item->stored.sums.bytes != child->sums.bytes ||
            item->stored.sums.stored_bytes != child->sums.stored_bytes) {
            item->stored = (VjMapChild){.node = child->number, .sums = child->sums};
            n->dirty = true;
        }
    }
    rc = give_number(e, n);
    if (rc == 0 && n->dirty) {
        rc = write_one(e, n);
        n->dirty = false;
    }
    return rc;
}

static int delete_dead(VjMapEdit *e)
{
    for (unsigned i = 0; i < e->dead_nodes->len; i++) {
        uint8_t key[VJ_MAP_KEY_BYTES];
        int rc;

        vj_map_key_encode(e->ino, g_array_index(e->dead_nodes, uint32_t, i), key);
        rc = vj_txn_del(e->txn, VJ_SPACE_NODE, vj_slice(key, sizeof key));
        if (rc < 0) {
            /* It was read a moment ago, so two parents named it. */
            return rc == -ENOENT ? -EBADMSG : rc;
        }
    }
    return 0;
}

static VjMapRoot root_of(const VjMapChild *child, uint8_t level)
{
    VjMapRoot root = {.node = child->node,
                      .height = (uint8_t)(level + 1),
                      .bytes = child->sums.bytes,
                      .stored_bytes = child->sums.stored_bytes};

    g_assert(vj_map_root_check(&root) == 0);
    return root;
}

static int commit_tree(VjMapEdit *e, VjMapNode **tree, VjMapRoot *root)
{
    int rc = vj_map_balance(e, tree);

    *root = (VjMapRoot){0};
    if (rc == 0 && *tree != NULL) {
        rc = write_subtree(e, *tree);
        if (rc == 0) {
            VjMapChild child = {.node = (*tree)->number, .sums = (*tree)->sums};

            *root = root_of(&child, (*tree)->level);
        }
    }
    return rc;
}

static int commit_cut(VjMapEdit *e, VjMapCut *cut)
{
    VjMapDetached detached;
    int rc = 0;

    if (cut->item.node != NULL) {
        rc = commit_tree(e, &cut->item.node, &detached.root);
    } else {
        detached.root = root_of(&cut->item.stored, cut->level);
    }
    if (rc == 0) {
        g_array_append_val(e->detached, detached);
    }
    return rc;
}

int vj_map_edit_commit(VjMapEdit *e, VjMapRoot *root)
{
    VjMapRoot next;
    int rc = commit_tree(e, &e->root, &next);

    g_assert(!e->committed);
    for (unsigned i = 0; rc == 0 && i < e->cuts->len; i++) {
        rc = commit_cut(e, &g_array_index(e->cuts, VjMapCut, i));
    }
    if (rc == 0) {
        rc = delete_dead(e);
    }
    if (rc == 0) {
        *root = next;
        root->next_node = e->next_node;
        e->committed = true;
    }
    return rc;
}
