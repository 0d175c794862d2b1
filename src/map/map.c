/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map.c - changing a file map: replace a range of entries, drop a tree from its end
 *
 * A replace works in three steps on the nodes in memory: the range is taken out (whole
 * subtrees unread, the rest entry by entry), the new entries are put where it was, then
 * the nodes are balanced and written.  What went wrong before the last step has changed
 * nothing.
 */
#include "map/map-private.h"

/* ---- Finding ---------------------------------------------------------------------- */

static uint64_t item_bytes(const VjMapNode *n, unsigned i)
{
    return vj_map_item_sums(vj_map_item_at(n, i)).bytes;
}

/* The entry of a leaf that begins at @offset (count: its end); -EINVAL inside one. */
static int leaf_index(const VjMapNode *n, uint64_t offset, unsigned *out)
{
    uint64_t at = 0;
    unsigned i = 0;

    while (i < n->items->len && at < offset) {
        at += vj_map_entry_at(n, i++)->length;
    }
    *out = i;
    return at == offset ? 0 : -EINVAL;
}

/* The entry that holds byte @offset of the tree, and the offset of its first byte. */
static int find(VjMapEdit *e, uint64_t offset, VjEntry *entry, uint64_t *at)
{
    VjMapNode *n = e->root;
    unsigned i = 0;

    g_assert(n != NULL && offset < n->sums.bytes);
    *at = 0;
    while (n->level > 0) {
        int rc;

        i = 0;
        while (offset - *at >= item_bytes(n, i)) {
            *at += item_bytes(n, i++);
        }
        rc = vj_map_edit_child(e, n, i, &n);
        if (rc < 0) {
            return rc;
        }
    }
    i = 0;
    while (offset - *at >= vj_map_entry_at(n, i)->length) {
        *at += vj_map_entry_at(n, i++)->length;
    }
    *entry = *vj_map_entry_at(n, i);
    return 0;
}

/* ---- Taking out ------------------------------------------------------------------- */

static void remove_entries(VjMapEdit *e, VjMapNode *leaf, unsigned from, unsigned count)
{
    if (count > 0) {
        g_array_append_vals(e->removed, vj_map_entry_at(leaf, from), count);
        g_array_remove_range(leaf->items, from, count);
        leaf->dirty = true;
    }
    vj_map_node_touch(leaf);
}

/*
 * Take children [from, to) out of @n.  A single leaf goes entry by entry; more than that
 * stays on disk, several children under a node of their own.
 */
static int cut_children(VjMapEdit *e, VjMapNode *n, unsigned from, unsigned to)
{
    VjMapItem item = *vj_map_item_at(n, from);

    n->dirty = true;
    if (to - from == 1 && n->level == 1) {
        VjMapNode *leaf;
        int rc = vj_map_edit_child(e, n, from, &leaf);

        if (rc == 0) {
            remove_entries(e, leaf, 0, leaf->items->len);
            g_array_remove_index(n->items, from);
            vj_map_edit_discard(e, leaf);
        }
        return rc;
    }
    if (to - from == 1) {
        g_array_remove_index(n->items, from);
        vj_map_edit_cut(e, &item, (uint8_t)(n->level - 1));
        return 0;
    }
    item = (VjMapItem){.node = vj_map_node_new(n->level)};
    g_array_append_vals(item.node->items, vj_map_item_at(n, from), to - from);
    g_array_remove_range(n->items, from, to - from);
    vj_map_node_sum(item.node);
    vj_map_edit_cut(e, &item, n->level);
    return 0;
}

/* Take [lo, hi) out of @n, offsets from its start; not all of it. */
static int take_out(VjMapEdit *e, VjMapNode *n, uint64_t lo, uint64_t hi)
{
    uint64_t at = 0;
    unsigned i = 0;
    int rc = 0;

    if (n->level == 0) {
        unsigned from, to;

        if (leaf_index(n, lo, &from) < 0 || leaf_index(n, hi, &to) < 0) {
            return -EINVAL;
        }
        remove_entries(e, n, from, to - from);
        return 0;
    }
    while (rc == 0 && i < n->items->len && at < hi) {
        uint64_t end = at + item_bytes(n, i);

        if (end > lo && at >= lo && end <= hi) {
            unsigned to = i + 1;

            while (to < n->items->len && item_bytes(n, to) <= hi - end) {
                end += item_bytes(n, to++);
            }
            rc = cut_children(e, n, i, to);
        } else {
            if (end > lo) {
                VjMapNode *child;

                rc = vj_map_edit_child(e, n, i, &child);
                if (rc == 0) {
                    rc = take_out(e, child, MAX(lo, at) - at, MIN(hi, end) - at);
                }
            }
            i++;
        }
        at = end;
    }
    vj_map_node_touch(n);
    return rc;
}

static void take_out_all(VjMapEdit *e)
{
    VjMapItem item = {.node = g_steal_pointer(&e->root)};
    VjMapNode *root = item.node;

    if (root->level == 0) {
        remove_entries(e, root, 0, root->items->len);
        vj_map_edit_discard(e, root);
    } else {
        vj_map_edit_cut(e, &item, root->level);
    }
}

/* ---- Putting in ------------------------------------------------------------------- */

/* Which child takes entries at @offset: where two meet, one that is written anyway. */
static unsigned choose_child(const VjMapNode *n, uint64_t *offset)
{
    unsigned i = 0;

    while (*offset > item_bytes(n, i)) {
        *offset -= item_bytes(n, i++);
    }
    if (*offset == item_bytes(n, i) && i + 1 < n->items->len) {
        const VjMapNode *here = vj_map_item_at(n, i)->node;
        const VjMapNode *there = vj_map_item_at(n, i + 1)->node;

        if (there != NULL && !there->balanced && (here == NULL || here->balanced)) {
            *offset = 0;
            i++;
        }
    }
    return i;
}

static int put_in(VjMapEdit *e, VjMapNode *n, uint64_t offset, const GArray *entries,
                  bool is_last)
{
    unsigned i;
    int rc;

    if (n->level == 0) {
        rc = leaf_index(n, offset, &i);
        if (rc == 0) {
            /* Less than a tenth of a leaf follows. */
            e->at_end |= is_last && n->items->len - i <= vj_map_most(0) - vj_map_fill(0);
            g_array_insert_vals(n->items, i, entries->data, entries->len);
            n->dirty = true;
        }
    } else {
        VjMapNode *child;

        i = choose_child(n, &offset);
        rc = vj_map_edit_child(e, n, i, &child);
        if (rc == 0) {
            rc = put_in(e, child, offset, entries, is_last && i + 1 == n->items->len);
        }
    }
    vj_map_node_touch(n);
    return rc;
}

/* ---- Holes ------------------------------------------------------------------------ */

/* A copy of @entries in which no two holes meet.  -EFBIG when the lengths overflow. */
static int merge_holes(const VjEntry *entries, size_t count, GArray *out, VjMapSums *sums)
{
    *sums = (VjMapSums){0};
    for (size_t i = 0; i < count; i++) {
        VjEntry *before =
            out->len > 0 ? &g_array_index(out, VjEntry, out->len - 1) : NULL;

        g_assert(vj_map_entry_is_valid(&entries[i]));
        if (!vj_add_u64(sums->bytes, entries[i].length, &sums->bytes) ||
            sums->bytes > VJ_MAP_BYTES_MAX) {
            return -EFBIG;
        }
        sums->stored_bytes += entries[i].stored_bytes;
        if (before != NULL && before->kind == VJ_ENTRY_HOLE &&
            entries[i].kind == VJ_ENTRY_HOLE) {
            before->length += entries[i].length;
        } else {
            g_array_append_val(out, entries[i]);
        }
    }
    return 0;
}

/* The hole that ends at @offset (@before) or begins there; length 0: there is none. */
static int hole_beside(VjMapEdit *e, uint64_t offset, bool before, VjEntry *out)
{
    uint64_t at;
    int rc;

    *out = (VjEntry){0};
    if (e->root == NULL || offset == (before ? 0 : e->root->sums.bytes)) {
        return 0;
    }
    rc = find(e, before ? offset - 1 : offset, out, &at);
    if (rc < 0) {
        return rc;
    }
    if ((before ? at + out->length : at) != offset) {
        return -EINVAL;
    }
    if (out->kind != VJ_ENTRY_HOLE) {
        *out = (VjEntry){0};
    }
    return 0;
}

/*
 * Where a hole among @entries would meet a hole beside [*lo, *hi), the range is widened
 * to take that one out as well; likewise where nothing is put between two holes.
 */
static int widen_over_holes(VjMapEdit *e, GArray *entries, uint64_t *lo, uint64_t *hi)
{
    VjEntry *first = entries->len > 0 ? &g_array_index(entries, VjEntry, 0) : NULL;
    VjEntry *last = first != NULL ? first + entries->len - 1 : NULL;
    VjEntry before = {0}, after = {0};
    int rc = 0;

    if (first == NULL || first->kind == VJ_ENTRY_HOLE) {
        rc = hole_beside(e, *lo, true, &before);
    }
    if (rc == 0 && (last == NULL ? before.length > 0 : last->kind == VJ_ENTRY_HOLE)) {
        rc = hole_beside(e, *hi, false, &after);
    }
    if (rc < 0) {
        return rc;
    }
    if (first != NULL) {
        first->length += before.length;
        last->length += after.length;
    } else if (before.length > 0 && after.length > 0) {
        before.length += after.length;
        g_array_append_val(entries, before);
        before.length -= after.length;
    } else {
        return 0;
    }
    *lo -= before.length;
    *hi += after.length;
    return 0;
}

/* ---- Public ----------------------------------------------------------------------- */

int vj_map_edit_replace(VjMapEdit *e, uint64_t offset, uint64_t old_bytes,
                        const VjEntry *entries, size_t count)
{
    g_autoptr(GArray) merged = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    VjMapSums now = e->root != NULL ? e->root->sums : (VjMapSums){0};
    uint64_t lo = offset, hi;
    VjMapSums added;
    int rc;

    g_assert(count <= G_MAXUINT / 2 && (entries != NULL || count == 0));
    g_assert(!e->committed && e->detached != NULL);
    if (!vj_add_u64(offset, old_bytes, &hi) || hi > now.bytes) {
        return -EINVAL;
    }
    rc = merge_holes(entries, count, merged, &added);
    if (rc == 0 && (added.bytes > VJ_MAP_BYTES_MAX - (now.bytes - old_bytes) ||
                    added.stored_bytes > VJ_MAP_STORED_MAX - now.stored_bytes)) {
        rc = -EFBIG;
    }
    if (rc == 0) {
        rc = widen_over_holes(e, merged, &lo, &hi);
    }
    if (rc == 0 && hi > lo) {
        if (lo == 0 && hi == now.bytes) {
            take_out_all(e);
        } else {
            rc = take_out(e, e->root, lo, hi);
        }
    }
    if (rc < 0 || merged->len == 0) {
        return rc;
    }
    if (e->root == NULL) {
        e->root = vj_map_node_new(0);
    }
    return put_in(e, e->root, lo, merged, true);
}

int vj_map_replace(VjTxn *txn, uint64_t ino, VjMapRoot *root, uint64_t offset,
                   uint64_t old_bytes, const VjEntry *entries, size_t count,
                   GArray *removed, GArray *detached)
{
    g_autoptr(VjMapEdit) e = NULL;
    int rc = vj_map_edit_new(txn, ino, root, removed, detached, &e);

    if (rc == 0) {
        rc = vj_map_edit_replace(e, offset, old_bytes, entries, count);
    }
    return rc < 0 ? rc : vj_map_edit_commit(e, root);
}

static int drop_tail(VjMapEdit *e, VjMapNode *n, size_t *most)
{
    int rc = 0;

    if (n->level == 0) {
        unsigned count = (unsigned)MIN(*most, n->items->len);

        remove_entries(e, n, n->items->len - count, count);
        *most -= count;
        return 0;
    }
    while (rc == 0 && *most > 0 && n->items->len > 0) {
        unsigned last = n->items->len - 1;
        VjMapNode *child;

        rc = vj_map_edit_child(e, n, last, &child);
        if (rc == 0) {
            rc = drop_tail(e, child, most);
        }
        if (rc == 0 && child->items->len == 0) {
            g_array_set_size(n->items, last);
            vj_map_edit_discard(e, child);
            n->dirty = true;
        }
    }
    vj_map_node_touch(n);
    return rc;
}

int vj_map_drop(VjTxn *txn, uint64_t ino, VjMapRoot *root, size_t most, GArray *removed)
{
    uint32_t next_node = root->next_node;
    g_autoptr(VjMapEdit) e = NULL;
    int rc = vj_map_edit_new(txn, ino, root, removed, NULL, &e);

    if (rc == 0 && e->root != NULL) {
        rc = drop_tail(e, e->root, &most);
    }
    if (rc == 0) {
        rc = vj_map_edit_commit(e, root);
    }
    if (rc == 0) {
        /* No node is made here; of a detached tree it is 0. */
        root->next_node = next_node;
    }
    return rc;
}
