/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map-check.c - verify each invariant of one map by walking all of it
 *
 * A node that cannot be read is one problem; the walk goes on behind it, at the offset
 * that its parent names.  A node that two parents name is not entered twice, so a damaged
 * map costs no more than the nodes that it has.
 */
#include "map/map-private.h"

#include <inttypes.h>

typedef struct Check {
    VjTxn *txn;
    uint64_t ino;
    const VjMapRoot *root;
    VjMapVisit *visit;
    VjCheckSay *say;
    void *opaque;
    GHashTable *seen; /* node numbers */
    bool stopped;     /* by visit */
    bool after_hole;  /* the entry before was a hole */
    uint64_t nodes, problems;
} Check;

static void report(Check *c, uint32_t node, const char *format, ...) G_GNUC_PRINTF(3, 4);

static void report(Check *c, uint32_t node, const char *format, ...)
{
    g_autofree char *what = NULL;
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    what = g_strdup_vprintf(format, args);
    va_end(args);
    text = g_strdup_printf("inode %" PRIu64 ": map node %" PRIu32 ": %s", c->ino, node,
                           what);
    c->problems++;
    if (c->say != NULL) {
        c->say(c->opaque, text);
    }
}

/* Reads one node; 1: it is damaged and was reported. */
static int read_node(Check *c, const VjMapChild *child, uint8_t level, VjMapImage *out)
{
    uint8_t key[VJ_MAP_KEY_BYTES];
    VjSlice value;
    int rc;

    vj_map_key_encode(c->ino, child->node, key);
    rc = vj_txn_get(c->txn, VJ_SPACE_NODE, vj_slice(key, sizeof key), &value);
    if (rc == -ENOENT) {
        report(c, child->node, "missing");
        return 1;
    }
    if (rc < 0) {
        return rc;
    }
    if (vj_map_image_decode(value, c->ino, child->node, out) < 0) {
        report(c, child->node, "damaged");
        return 1;
    }
    if (out->level != level) {
        report(c, child->node, "is at level %u, its parent says %u", out->level, level);
        return 1;
    }
    if (out->sums.bytes != child->sums.bytes) {
        report(c, child->node, "holds %" PRIu64 " bytes, its parent says %" PRIu64,
               out->sums.bytes, child->sums.bytes);
    }
    if (out->sums.stored_bytes != child->sums.stored_bytes) {
        report(c, child->node, "holds %" PRIu64 " stored bytes, its parent says %" PRIu64,
               out->sums.stored_bytes, child->sums.stored_bytes);
    }
    return 0;
}

static void check_fill(Check *c, const VjMapImage *image, bool is_root, bool is_last)
{
    if (image->count > vj_map_most(image->level)) {
        report(c, image->node, "has %u items, more than %u", image->count,
               vj_map_most(image->level));
    }
    /* The last child of a level may be the root of a detached subtree. */
    if (is_root && c->root->next_node != 0 && image->level > 0 && image->count < 2) {
        report(c, image->node, "is a root with a single child");
    }
    if (!is_root && !is_last && image->count < vj_map_least(image->level)) {
        report(c, image->node, "has %u items, fewer than %u", image->count,
               vj_map_least(image->level));
    }
}

static void visit_leaf(Check *c, const VjMapImage *image, uint64_t at)
{
    for (unsigned i = 0; i < image->count && !c->stopped; i++) {
        const VjEntry *entry = &image->entries[i];
        bool is_hole = entry->kind == VJ_ENTRY_HOLE;

        if (is_hole && c->after_hole) {
            report(c, image->node, "entry %u is a hole behind a hole", i);
        }
        c->after_hole = is_hole;
        c->stopped = c->visit != NULL && !c->visit(c->opaque, entry, at);
        at += entry->length;
    }
}

/* Recursion: at most VJ_MAP_HEIGHT_MAX deep, because each child is one level lower. */
static int check_subtree(Check *c, const VjMapChild *child, uint8_t level, uint64_t at,
                         bool is_last)
{
    g_autofree VjMapImage *image = g_try_new(VjMapImage, 1);
    bool is_root = level + 1u == c->root->height;
    int rc;

    if (image == NULL) {
        return -ENOMEM;
    }
    if (c->root->next_node != 0 && child->node >= c->root->next_node) {
        report(c, child->node, "its number was never given out");
    }
    if (!g_hash_table_add(c->seen, GUINT_TO_POINTER(child->node))) {
        report(c, child->node, "two parents name it");
        c->after_hole = false;
        return 0;
    }
    rc = read_node(c, child, level, image);
    if (rc != 0) {
        c->after_hole = false;
        return MIN(rc, 0);
    }
    c->nodes++;
    check_fill(c, image, is_root, is_last);
    if (level == 0) {
        visit_leaf(c, image, at);
        return 0;
    }
    for (unsigned i = 0; rc == 0 && i < image->count && !c->stopped; i++) {
        rc = check_subtree(c, &image->children[i], (uint8_t)(level - 1), at,
                           is_last && i + 1u == image->count);
        at += image->children[i].sums.bytes;
    }
    return rc;
}

int vj_map_check_shared(VjTxn *txn, uint64_t ino, const VjMapRoot *root, GHashTable *seen,
                        VjMapVisit *visit, VjCheckSay *say, void *opaque, uint64_t *nodes,
                        uint64_t *problems)
{
    Check c = {.txn = txn,
               .ino = ino,
               .root = root,
               .visit = visit,
               .say = say,
               .opaque = opaque,
               .seen = seen};
    VjMapChild child = {
        .node = root->node,
        .sums = {.bytes = root->bytes, .stored_bytes = root->stored_bytes}};
    int rc = 0;

    if (vj_map_root_check(root) < 0) {
        report(&c, root->node, "the root in the inode record cannot be");
    } else if (root->height > 0) {
        rc = check_subtree(&c, &child, (uint8_t)(root->height - 1), 0, true);
    }
    *nodes = c.nodes;
    *problems = c.problems;
    return rc;
}

int vj_map_check(VjTxn *txn, uint64_t ino, const VjMapRoot *root, VjMapVisit *visit,
                 VjCheckSay *say, void *opaque, uint64_t *nodes, uint64_t *problems)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);

    return vj_map_check_shared(txn, ino, root, seen, visit, say, opaque, nodes, problems);
}
