/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map-cursor.c - walking the entries of a map in both directions
 *
 * The path from the root to the current leaf is kept decoded, so a step reads a node only
 * when it leaves a leaf, and a seek only below the deepest node that holds its offset.
 * Images are copies: a put or del in the transaction does not hurt the cursor, but one
 * that changes this map leaves the cursor in the map as it was.
 */
#include "map/map-private.h"

typedef struct CursorLevel {
    VjMapImage *image; /* NULL: never used */
    unsigned index;    /* current item */
    uint64_t at;       /* offset in the file of the current item's first byte */
} CursorLevel;

typedef enum CursorPlace {
    AT_START, /* before the first entry */
    ON_ENTRY,
    AT_END, /* behind the last entry */
} CursorPlace;

struct VjMapCursor {
    VjTxn *txn;
    uint64_t ino;
    VjMapRoot root;
    CursorPlace place;
    unsigned depth; /* levels of the path that are loaded; root first */
    CursorLevel path[VJ_MAP_HEIGHT_MAX];
};

VjMapCursor *vj_map_cursor_new(VjTxn *txn, uint64_t ino, const VjMapRoot *root)
{
    VjMapCursor *c = g_new0(VjMapCursor, 1);

    c->txn = txn;
    c->ino = ino;
    c->root = *root;
    return c;
}

void vj_map_cursor_free(VjMapCursor *c)
{
    if (c == NULL) {
        return;
    }
    for (unsigned i = 0; i < VJ_MAP_HEIGHT_MAX; i++) {
        g_free(c->path[i].image);
    }
    g_free(c);
}

static uint64_t item_bytes(const CursorLevel *l)
{
    return l->image->level == 0 ? l->image->entries[l->index].length
                                : l->image->children[l->index].sums.bytes;
}

/* Load the node below the current path: the root, or what the last level points at. */
static int push(VjMapCursor *c)
{
    CursorLevel *l = &c->path[c->depth];
    VjMapChild child = {
        .node = c->root.node,
        .sums = {.bytes = c->root.bytes, .stored_bytes = c->root.stored_bytes}};
    int rc;

    g_assert(c->depth < c->root.height);
    l->at = 0;
    l->index = 0;
    if (c->depth > 0) {
        const CursorLevel *above = l - 1;

        child = above->image->children[above->index];
        l->at = above->at;
    }
    if (l->image == NULL) {
        l->image = g_try_new(VjMapImage, 1);
        if (l->image == NULL) {
            return -ENOMEM;
        }
    }
    rc = vj_map_image_get(c->txn, c->ino, &child,
                          (uint8_t)(c->root.height - 1 - c->depth), l->image);
    if (rc == 0) {
        c->depth++;
    }
    return rc;
}

static void to_last_item(CursorLevel *l)
{
    while (l->index + 1u < l->image->count) {
        l->at += item_bytes(l);
        l->index++;
    }
}

/* Complete the path down to a leaf along the first or the last items. */
static int descend(VjMapCursor *c, bool last)
{
    while (c->depth < c->root.height) {
        int rc = push(c);

        if (rc < 0) {
            c->depth = 0; /* the next call begins at the root again */
            return rc;
        }
        if (last) {
            to_last_item(&c->path[c->depth - 1]);
        }
    }
    return 0;
}

static int give(VjMapCursor *c, VjEntry *entry, uint64_t *at)
{
    const CursorLevel *leaf = &c->path[c->depth - 1];

    c->place = ON_ENTRY;
    *entry = leaf->image->entries[leaf->index];
    *at = leaf->at;
    return 0;
}

/* The path becomes that of the first or the last entry. */
static int give_outermost(VjMapCursor *c, bool last, VjEntry *entry, uint64_t *at)
{
    int rc;

    if (vj_map_root_check(&c->root) < 0) {
        return -EBADMSG;
    }
    if (c->root.height == 0) {
        return -ENOENT;
    }
    c->depth = 0;
    rc = descend(c, last);
    return rc < 0 ? rc : give(c, entry, at);
}

/* Move the item of @l so that it holds @offset; false when the node does not. */
static bool seek_in_node(CursorLevel *l, uint64_t offset)
{
    while (l->at > offset && l->index > 0) {
        l->index--;
        l->at -= item_bytes(l);
    }
    if (l->at > offset) {
        return false;
    }
    while (offset - l->at >= item_bytes(l)) {
        if (l->index + 1u == l->image->count) {
            return false;
        }
        l->at += item_bytes(l);
        l->index++;
    }
    return true;
}

int vj_map_cursor_seek(VjMapCursor *c, uint64_t offset, VjEntry *entry, uint64_t *at)
{
    if (vj_map_root_check(&c->root) < 0) {
        return -EBADMSG;
    }
    if (offset >= c->root.bytes) {
        c->place = AT_END;
        return -ENOENT;
    }
    /* Up to the deepest node that holds @offset; its new item decides what is below. */
    while (c->depth > 0 && !seek_in_node(&c->path[c->depth - 1], offset)) {
        c->depth--;
    }
    while (c->depth < c->root.height) {
        int rc = push(c);

        if (rc < 0) {
            c->depth = 0;
            return rc;
        }
        if (!seek_in_node(&c->path[c->depth - 1], offset)) {
            g_assert_not_reached(); /* sums were compared when the node was read */
        }
    }
    return give(c, entry, at);
}

int vj_map_cursor_next(VjMapCursor *c, VjEntry *entry, uint64_t *at)
{
    unsigned depth = c->depth;
    int rc;

    if (c->place == AT_END) {
        return -ENOENT;
    }
    if (c->place == AT_START || depth == 0) {
        return give_outermost(c, false, entry, at);
    }
    while (depth > 0 &&
           c->path[depth - 1].index + 1u == c->path[depth - 1].image->count) {
        depth--;
    }
    if (depth == 0) {
        c->place = AT_END;
        return -ENOENT;
    }
    c->path[depth - 1].at += item_bytes(&c->path[depth - 1]);
    c->path[depth - 1].index++;
    c->depth = depth;
    rc = descend(c, false);
    return rc < 0 ? rc : give(c, entry, at);
}

int vj_map_cursor_prev(VjMapCursor *c, VjEntry *entry, uint64_t *at)
{
    unsigned depth = c->depth;
    int rc;

    if (c->place == AT_START) {
        return -ENOENT;
    }
    if (c->place == AT_END || depth == 0) {
        return give_outermost(c, true, entry, at);
    }
    while (depth > 0 && c->path[depth - 1].index == 0) {
        depth--;
    }
    if (depth == 0) {
        c->place = AT_START;
        return -ENOENT;
    }
    c->path[depth - 1].index--;
    c->path[depth - 1].at -= item_bytes(&c->path[depth - 1]);
    c->depth = depth;
    rc = descend(c, true);
    return rc < 0 ? rc : give(c, entry, at);
}
