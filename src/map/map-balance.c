/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map-balance.c - after a change: every node between a quarter and all of its room
 *
 * Only touched nodes and, where one is too empty, one neighbour are looked at.  Work goes
 * from the leaves up; a join above can give a lonely child neighbours, so a node is gone
 * through until nothing below it changes.  Exempt from the lower bound are the root and
 * the last node of each level: a file that grows at its end leaves nodes that are nine
 * tenths full, not halves.
 */
#include "map/map-private.h"

/* Items [keep, len) of @n go to the front of @to. */
static void move_tail(VjMapNode *n, unsigned keep, VjMapNode *to)
{
    unsigned size = g_array_get_element_size(n->items);
    unsigned count = n->items->len - keep;

    g_array_insert_vals(to->items, 0, n->items->data + (size_t)keep * size, count);
    g_array_set_size(n->items, keep);
}

/* The first @count items of @from go to the end of @n. */
static void move_head(VjMapNode *n, VjMapNode *from, unsigned count)
{
    g_array_append_vals(n->items, from->items->data, count);
    g_array_remove_range(from->items, 0, count);
}

static void changed(VjMapNode *n)
{
    n->dirty = true;
    vj_map_node_touch(n);
}

/* Two neighbours share their items evenly. */
static void even_out(VjMapNode *left, VjMapNode *right)
{
    unsigned keep = (left->items->len + right->items->len + 1) / 2;

    if (left->items->len > keep) {
        move_tail(left, keep, right);
    } else if (left->items->len < keep) {
        move_head(left, right, keep - left->items->len);
    }
    changed(left);
    changed(right);
}

/* Items [from, from + count) of @n as a new node. */
static VjMapItem split_off(VjMapNode *n, unsigned from, unsigned count)
{
    VjMapNode *piece = vj_map_node_new(n->level);
    unsigned size = g_array_get_element_size(n->items);

    g_array_append_vals(piece->items, n->items->data + (size_t)from * size, count);
    changed(piece);
    return (VjMapItem){.node = piece};
}

/*
 * The child @i of @n has too many items: cut it into as few nodes as are nine tenths
 * full; evenly, or for entries that come in order (@in_order) with the rest in the last.
 */
static void split(VjMapNode *n, unsigned i, bool in_order)
{
    VjMapNode *child = vj_map_item_at(n, i)->node;
    unsigned total = child->items->len;
    unsigned fill = vj_map_fill(child->level);
    unsigned pieces = (total + fill - 1) / fill;
    unsigned keep = in_order ? fill : total / pieces;
    unsigned extra = in_order ? 0 : total % pieces;
    g_autoptr(GArray) next = g_array_new(FALSE, FALSE, sizeof(VjMapItem));
    unsigned from;

    g_assert(pieces >= 2 && keep > 0);
    keep += extra > 0;
    from = keep;
    for (unsigned k = 1; k < pieces; k++) {
        unsigned count =
            in_order ? MIN(fill, total - from) : total / pieces + (k < extra);
        VjMapItem item = split_off(child, from, count);

        g_array_append_val(next, item);
        from += count;
    }
    g_assert(from == total);
    g_array_set_size(child->items, keep);
    changed(child);
    g_array_insert_vals(n->items, i + 1, next->data, next->len);
    n->dirty = true;
}

/* A neighbour that is written anyway and has room takes the surplus. */
static bool share(VjMapNode *n, unsigned i)
{
    VjMapNode *child = vj_map_item_at(n, i)->node;
    unsigned room = 2 * vj_map_fill(child->level);

    for (unsigned k = 0; k < 2; k++) {
        VjMapNode *other;

        if (k == 0 ? i == 0 : i + 1 == n->items->len) {
            continue;
        }
        other = vj_map_item_at(n, k == 0 ? i - 1 : i + 1)->node;
        if (other == NULL || !other->dirty ||
            child->items->len + other->items->len > room) {
            continue;
        }
        even_out(k == 0 ? other : child, k == 0 ? child : other);
        return true;
    }
    return false;
}

/* The child @i of @n has too few items: one node with a neighbour, or halves. */
static int join(VjMapEdit *e, VjMapNode *n, unsigned i)
{
    bool last = i + 1 == n->items->len;
    bool right_is_loaded = !last && vj_map_item_at(n, i + 1)->node != NULL;
    bool left_is_loaded = i > 0 && vj_map_item_at(n, i - 1)->node != NULL;
    unsigned first = i == 0 || (right_is_loaded && !left_is_loaded) ? i : i - 1;
    VjMapNode *left, *right;
    int rc;

    g_assert(n->items->len > 1);
    rc = vj_map_edit_child(e, n, first, &left);
    if (rc == 0) {
        rc = vj_map_edit_child(e, n, first + 1, &right);
    }
    if (rc < 0) {
        return rc;
    }
    if (left->items->len + right->items->len > vj_map_fill(left->level)) {
        even_out(left, right);
        return 0;
    }
    move_head(left, right, right->items->len);
    changed(left);
    vj_map_edit_discard(e, right);
    g_array_remove_index(n->items, first + 1);
    n->dirty = true;
    return 0;
}

static int balance_below(VjMapEdit *e, VjMapNode *n, bool is_last);

/* Looks at the child @i of @n; @again: the children of @n are not what they were. */
static int balance_child(VjMapEdit *e, VjMapNode *n, unsigned i, bool is_last,
                         bool *again)
{
    VjMapNode *child = vj_map_item_at(n, i)->node;
    int rc = balance_below(e, child, is_last);

    if (rc < 0) {
        return rc;
    }
    if (child->items->len == 0) {
        vj_map_edit_discard(e, child);
        g_array_remove_index(n->items, i);
        n->dirty = true;
    } else if (child->items->len > vj_map_most(child->level)) {
        if (!share(n, i)) {
            split(n, i, is_last && e->at_end);
        }
    } else if (is_last || child->items->len >= vj_map_least(child->level)) {
        child->balanced = true;
        return 0;
    } else if (n->items->len == 1) {
        return 0; /* it stays unbalanced until a join above gives it a neighbour */
    } else {
        rc = join(e, n, i);
    }
    *again = true;
    return rc;
}

static int balance_below(VjMapEdit *e, VjMapNode *n, bool is_last)
{
    bool again = n->level > 0;

    while (again) {
        again = false;
        for (unsigned i = 0; i < n->items->len; i++) {
            VjMapNode *child = vj_map_item_at(n, i)->node;
            int rc;

            if (child == NULL || child->balanced) {
                continue;
            }
            rc = balance_child(e, n, i, is_last && i + 1 == n->items->len, &again);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

static int grow(VjMapNode **root)
{
    VjMapItem item = {.node = *root};

    if ((*root)->level + 1u >= VJ_MAP_HEIGHT_MAX) {
        return -EFBIG;
    }
    (*root)->balanced = false;
    *root = vj_map_node_new((uint8_t)((*root)->level + 1));
    g_array_append_val((*root)->items, item);
    changed(*root);
    return 0;
}

static int shrink(VjMapEdit *e, VjMapNode **root)
{
    VjMapNode *child;
    int rc = vj_map_edit_child(e, *root, 0, &child);

    if (rc < 0) {
        return rc;
    }
    g_array_set_size((*root)->items, 0);
    vj_map_edit_discard(e, *root);
    *root = child;
    return 0;
}

int vj_map_balance(VjMapEdit *e, VjMapNode **root)
{
    while (*root != NULL) {
        VjMapNode *n = *root;
        int rc = balance_below(e, n, true);

        if (rc == 0 && n->items->len == 0) {
            vj_map_edit_discard(e, g_steal_pointer(root));
        } else if (rc == 0 && n->items->len > vj_map_most(n->level)) {
            rc = grow(root);
        } else if (rc == 0 && n->level > 0 && n->items->len == 1) {
            rc = shrink(e, root);
        } else {
            return rc;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}
