/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-needs.c - what the maps say of objects, whatever else is left of these
 */
#include "fsck/repair-private.h"

typedef struct Needs {
    GHashTable *table;
    bool whole; /* no node was damaged */
} Needs;

static void need(GHashTable *needs, const VjEntry *entry)
{
    gint64 id = (gint64)entry->id;
    VjNeed *n = g_hash_table_lookup(needs, &id);

    if (n == NULL) {
        n = g_new0(VjNeed, 1);
        n->id = id;
        g_hash_table_insert(needs, &n->id, n);
    }
    n->entries++;
    n->end = MAX(n->end, entry->start + entry->length);
}

static int see_node(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    Needs *n = opaque;
    VjMapImage image;

    (void)r;
    if (key.len != VJ_MAP_KEY_BYTES ||
        vj_map_image_decode(value, vj_be64_get(key.data),
                            vj_be32_get((const uint8_t *)key.data + 8), &image) < 0) {
        n->whole = false;
        return 0;
    }
    for (unsigned i = 0; image.level == 0 && i < image.count; i++) {
        if (image.entries[i].kind == VJ_ENTRY_OBJECT) {
            need(n->table, &image.entries[i]);
        }
    }
    return 0;
}

int vj_repair_needs(VjRepair *r, GHashTable **needs, bool *whole)
{
    Needs n = {.table = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free),
               .whole = true};
    int rc = vj_repair_each(r, VJ_SPACE_NODE, see_node, &n);

    *needs = n.table;
    *whole = n.whole;
    return rc;
}
