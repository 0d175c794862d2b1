/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map-private.h - map nodes in memory while one operation changes a tree
 *
 * An edit holds the part of one tree that the operation has looked at.  Nodes in it may
 * have any number of items until vj_map_edit_commit brings them back to between a quarter
 * and all of a node and writes each changed one once.  Nothing is written before.
 *
 * Threads: one at a time (that of the transaction).  Locks: none.
 */
#ifndef VJ_MAP_MAP_PRIVATE_H
#define VJ_MAP_MAP_PRIVATE_H

#include "map/map-format.h"

typedef struct VjMapNode VjMapNode;

/* An item of an inner node. */
typedef struct VjMapItem {
    /* What the parent's bytes say; behind the times while node is set. */
    VjMapChild stored;
    VjMapNode *node; /* the child in memory, owned; NULL: not loaded */
} VjMapItem;

struct VjMapNode {
    uint32_t number; /* 0: new, gets one when it is written */
    uint8_t level;
    bool dirty;    /* differs from what is stored */
    bool balanced; /* its fill and that of all below was found right */
    VjMapSums sums;
    GArray *items; /* VjEntry in a leaf, else VjMapItem */
};

/* A subtree that was cut off: on disk and unchanged, or (with loaded nodes) in memory. */
typedef struct VjMapCut {
    VjMapItem item; /* owns item.node */
    uint8_t level;
} VjMapCut;

struct VjMapEdit {
    VjTxn *txn; /* borrowed */
    uint64_t ino;
    VjMapNode *root; /* NULL: the tree is empty */
    uint32_t next_node;
    bool at_end;        /* entries were added at the end: leave full nodes behind */
    GArray *cuts;       /* VjMapCut */
    GArray *dead_nodes; /* uint32_t: keys to delete */
    GArray *removed;    /* VjEntry; borrowed */
    GArray *detached;   /* VjMapDetached; borrowed; NULL when nothing is detached */
    unsigned removed_before, detached_before;
    bool committed;
};

/* ---- map-node.c -------------------------------------------------------------------- */

/* Most items of a node at @level, and the fewest of one that is neither root nor last. */
unsigned vj_map_most(uint8_t level);
unsigned vj_map_least(uint8_t level);
/* How full a node is left behind when items are added in order. */
unsigned vj_map_fill(uint8_t level);
/* Tests: nodes of at most so many items, 4 or more; 0: what the format holds.  Setup
 * only. */
void vj_map_set_most_for_test(unsigned most);

/* Read and decode; -EBADMSG also when the node is missing or is not what @child says. */
int vj_map_image_get(VjTxn *txn, uint64_t ino, const VjMapChild *child, uint8_t level,
                     VjMapImage *out) G_GNUC_WARN_UNUSED_RESULT;

VjMapNode *vj_map_node_new(uint8_t level);
void vj_map_node_free(VjMapNode *n); /* and what is loaded below it; NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjMapNode, vj_map_node_free)

static inline VjEntry *vj_map_entry_at(const VjMapNode *n, unsigned i)
{
    return &g_array_index(n->items, VjEntry, i);
}

static inline VjMapItem *vj_map_item_at(const VjMapNode *n, unsigned i)
{
    return &g_array_index(n->items, VjMapItem, i);
}

static inline VjMapSums vj_map_item_sums(const VjMapItem *item)
{
    return item->node != NULL ? item->node->sums : item->stored.sums;
}

/* Add up the items again. */
void vj_map_node_sum(VjMapNode *n);
/* Something in @n or below it was changed. */
void vj_map_node_touch(VjMapNode *n);

/* ---- map-edit.c -------------------------------------------------------------------- */

/* The child @i of @n, loaded. */
int vj_map_edit_child(VjMapEdit *e, VjMapNode *n, unsigned i,
                      VjMapNode **out) G_GNUC_WARN_UNUSED_RESULT;
/* @n is no longer part of the tree: frees it, its key goes with the commit.  Nothing that
 * is loaded hangs below it any more. */
void vj_map_edit_discard(VjMapEdit *e, VjMapNode *n);
/* @item, whose node is at @level, is no longer part of the tree: it is dropped later. */
void vj_map_edit_cut(VjMapEdit *e, const VjMapItem *item, uint8_t level);

/* ---- map-balance.c ----------------------------------------------------------------- */

/* Brings every touched node of a tree to its fill; it grows or loses levels for it. */
int vj_map_balance(VjMapEdit *e, VjMapNode **root) G_GNUC_WARN_UNUSED_RESULT;

#endif
