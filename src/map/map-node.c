/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map-node.c - one map node: how full it may be, reading it, and its form in memory
 *
 * What is read is checked against what its parent (or the root in the inode record) says
 * about it: level and both sums.  So a tree that was walked down to a leaf was consistent
 * along the way.
 */
#include "map/map-private.h"

/* Tests make nodes small, so that a few entries make a high tree.  0: the format's. */
static unsigned most_for_test;

void vj_map_set_most_for_test(unsigned most)
{
    g_assert(most == 0 || (most >= 4 && most <= VJ_MAP_LEAF_MAX));
    most_for_test = most;
}

unsigned vj_map_most(uint8_t level)
{
    if (most_for_test != 0) {
        return most_for_test;
    }
    return level == 0 ? VJ_MAP_LEAF_MAX : VJ_MAP_INNER_MAX;
}

unsigned vj_map_least(uint8_t level)
{
    /* An inner node with one child is a level too many, so two at least. */
    return MAX(vj_map_most(level) / 4, 2);
}

unsigned vj_map_fill(uint8_t level)
{
    return vj_map_most(level) * 9 / 10;
}

int vj_map_root_check(const VjMapRoot *root)
{
    bool empty = root->node == 0;

    if ((root->height == 0) != empty || (root->bytes == 0) != empty ||
        root->height > VJ_MAP_HEIGHT_MAX || root->bytes > VJ_MAP_BYTES_MAX ||
        root->stored_bytes > VJ_MAP_STORED_MAX) {
        return -EBADMSG;
    }
    return 0;
}

int vj_map_image_get(VjTxn *txn, uint64_t ino, const VjMapChild *child, uint8_t level,
                     VjMapImage *out)
{
    uint8_t key[VJ_MAP_KEY_BYTES];
    VjSlice value;
    int rc;

    vj_map_key_encode(ino, child->node, key);
    rc = vj_txn_get(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key), &value);
    if (rc < 0) {
        return rc == -ENOENT ? -EBADMSG : rc;
    }
    rc = vj_map_image_decode(value, ino, child->node, out);
    if (rc < 0) {
        return rc;
    }
    if (out->level != level || out->sums.bytes != child->sums.bytes ||
        out->sums.stored_bytes != child->sums.stored_bytes) {
        return -EBADMSG;
    }
    return 0;
}

VjMapNode *vj_map_node_new(uint8_t level)
{
    VjMapNode *n = g_new0(VjMapNode, 1);

    n->level = level;
    n->items =
        g_array_new(FALSE, FALSE, level == 0 ? sizeof(VjEntry) : sizeof(VjMapItem));
    return n;
}

void vj_map_node_free(VjMapNode *n)
{
    if (n == NULL) {
        return;
    }
    if (n->level > 0) {
        for (unsigned i = 0; i < n->items->len; i++) {
            vj_map_node_free(vj_map_item_at(n, i)->node);
        }
    }
    g_array_free(n->items, TRUE);
    g_free(n);
}

void vj_map_node_sum(VjMapNode *n)
{
    VjMapSums sums = {0};

    for (unsigned i = 0; i < n->items->len; i++) {
        if (n->level == 0) {
            sums.bytes += vj_map_entry_at(n, i)->length;
            sums.stored_bytes += vj_map_entry_at(n, i)->stored_bytes;
        } else {
            VjMapSums one = vj_map_item_sums(vj_map_item_at(n, i));

            sums.bytes += one.bytes;
            sums.stored_bytes += one.stored_bytes;
        }
    }
    n->sums = sums;
}

void vj_map_node_touch(VjMapNode *n)
{
    n->balanced = false;
    vj_map_node_sum(n);
}
