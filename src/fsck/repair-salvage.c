/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-salvage.c - what can be read of a damaged map
 *
 * The entries that can be reached are kept in their order; a range between them that is
 * lost is an entry that says so.  Nodes that no tree leads to are listed, with those of
 * them that are roots of something.  Nothing is changed here.
 */
#include "fsck/check-private.h"
#include "fsck/repair-map-private.h"

/* ---- entries of a damaged map ------------------------------------------------------ */

static void keep(VjSalvage *s, const VjEntry *entry)
{
    if (s->entries != NULL) {
        g_array_append_vals(s->entries, entry, 1);
    }
}

static void lose(VjSalvage *s, uint64_t length)
{
    const VjEntry lost = {.kind = VJ_SALVAGE_LOST, .length = length};

    s->wrong = true;
    if (length > 0 && !s->loose) {
        s->lost_bytes += length;
        keep(s, &lost);
    }
}

static void keep_object(VjSalvage *s, const VjEntry *entry)
{
    gint64 id = (gint64)entry->id;
    VjEntry fit = *entry;
    VjObject object;

    if (s->foreign != NULL && g_hash_table_contains(s->foreign, &id)) {
        keep(s, entry);
        return;
    }
    if (vj_object_get(s->txn, entry->id, &object) < 0 ||
        entry->start >= object.plain_bytes) {
        lose(s, entry->length);
        return;
    }
    fit.length = MIN(entry->length, object.plain_bytes - entry->start);
    fit.stored_bytes = vj_object_share(&object, fit.length);
    s->wrong = s->wrong || fit.stored_bytes != entry->stored_bytes;
    keep(s, &fit);
    if (fit.length < entry->length) {
        lose(s, entry->length - fit.length);
    }
}

static void keep_fragment(VjSalvage *s, const VjEntry *entry)
{
    uint8_t bytes[VJ_FILE_INLINE_MAX];
    VjEntry fit = *entry;
    int rc = s->loose || entry->length > sizeof bytes
                 ? -EBADMSG
                 : vj_fragment_get(s->txn, s->ino, entry, 0, bytes, entry->length);

    if ((rc < 0 && rc != -EOPNOTSUPP) ||
        !g_hash_table_add(s->fragments, GUINT_TO_POINTER(entry->id))) {
        lose(s, entry->length);
        return;
    }
    fit.stored_bytes = (uint32_t)entry->length;
    s->wrong = s->wrong || fit.stored_bytes != entry->stored_bytes;
    keep(s, &fit);
}

static bool see_entry(void *opaque, const VjEntry *entry, uint64_t at)
{
    VjSalvage *s = opaque;
    VjEntry fit = *entry;

    if (at > s->old_end) {
        lose(s, at - s->old_end);
    }
    s->old_end = at + entry->length;
    if (entry->kind == VJ_ENTRY_OBJECT) {
        keep_object(s, entry);
    } else if (entry->kind == VJ_ENTRY_FRAGMENT) {
        keep_fragment(s, entry);
    } else {
        fit.stored_bytes = 0;
        s->wrong = s->wrong || entry->stored_bytes != 0;
        keep(s, &fit);
    }
    return true;
}

int vj_salvage_tree(VjSalvage *s, const VjMapRoot *root, GHashTable *seen)
{
    uint64_t nodes, problems;
    int rc;

    s->old_end = 0;
    rc = vj_map_check_shared(s->txn, s->ino, root, seen, see_entry, NULL, s, &nodes,
                             &problems);
    s->wrong = s->wrong || problems > 0;
    if (rc == 0 && s->old_end < root->bytes) {
        lose(s, root->bytes - s->old_end);
    }
    return rc;
}

/* ---- nodes that no tree leads to --------------------------------------------------- */

static gint by_node(gconstpointer a, gconstpointer b)
{
    const VjLooseNode *x = a, *y = b;

    return x->node < y->node ? -1 : x->node > y->node;
}

/* The parents of loose nodes among the loose: GHashTable of node numbers. */
int vj_salvage_list_loose(VjTxn *txn, uint64_t ino, GHashTable *seen, GArray *loose)
{
    g_autoptr(GHashTable) children = g_hash_table_new(NULL, NULL);
    g_autofree VjMapImage *image = g_new(VjMapImage, 1);
    uint32_t node;
    VjScan scan;

    vj_contents_scan_begin(&scan, txn, VJ_SPACE_NODE, ino);
    while (vj_contents_scan_next(&scan, &node)) {
        VjLooseNode one = {.node = node};

        if (g_hash_table_contains(seen, GUINT_TO_POINTER(node))) {
            continue;
        }
        if (vj_map_image_decode(scan.value, ino, node, image) == 0) {
            one.readable = true;
            one.level = image->level;
            one.sums = image->sums;
            for (unsigned i = 0; image->level > 0 && i < image->count; i++) {
                g_hash_table_add(children, GUINT_TO_POINTER(image->children[i].node));
            }
        }
        g_array_append_val(loose, one);
    }
    for (guint i = 0; i < loose->len; i++) {
        VjLooseNode *one = &g_array_index(loose, VjLooseNode, i);

        one->has_parent = g_hash_table_contains(children, GUINT_TO_POINTER(one->node));
    }
    g_array_sort(loose, by_node);
    return scan.error;
}

int vj_salvage_loose_entries(VjSalvage *s, const GArray *loose, uint32_t below,
                             GHashTable *seen)
{
    int rc = 0;

    for (guint i = 0; rc == 0 && i < loose->len; i++) {
        const VjLooseNode *one = &g_array_index(loose, VjLooseNode, i);
        const VjMapRoot root = {.node = one->node,
                                .height = (uint8_t)(one->level + 1),
                                .bytes = one->sums.bytes,
                                .stored_bytes = one->sums.stored_bytes};

        if (one->readable && !one->has_parent && one->node < below) {
            rc = vj_salvage_tree(s, &root, seen);
        }
    }
    return rc;
}

/* ---- what is being dropped --------------------------------------------------------- */

/* Nodes that belong to subtrees which wait to be dropped. */
int vj_salvage_orphans(VjSalvage *s, GHashTable *seen)
{
    uint8_t prefix[8];
    VjScan scan;

    vj_scan_begin(&scan, s->txn, VJ_SPACE_ORPHAN, vj_ino_key(s->ino, prefix));
    while (vj_scan_next(&scan) && scan.key.len == VJ_MAP_KEY_BYTES) {
        VjOrphan orphan;

        if (vj_orphan_decode(scan.key, scan.value, &orphan) == 0 &&
            orphan.root.node != 0) {
            int rc = vj_salvage_tree(s, &orphan.root, seen);

            if (rc < 0) {
                return rc == -ENOENT ? 0 : rc;
            }
        }
    }
    return scan.error;
}
