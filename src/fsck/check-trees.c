/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * check-trees.c - the map of an inode and the subtrees that were cut off it, node by node
 *
 * They are walked in one view, which is as long as the map, so what is found is counted
 * and said as it goes.  Each entry, and each line, is a step.  A run that begins anew
 * comes to the same ones in the same order, since nothing changes, and passes over those
 * that a run before it has taken.
 */
#include "fsck/check-private.h"

#include <inttypes.h>

/* Ranges that are reported of one inode's damaged objects. */
#define RANGES_REPORTED 16u

typedef struct Count {
    gint64 id, entries;
} Count;

/* ---- steps ----------------------------------------------------------------------- */

static void begin_run(VjContentsCheck *c, VjTxn *txn)
{
    c->txn = txn;
    c->step = 0;
    c->failed = 0;
}

static bool is_done(VjContentsCheck *c)
{
    return c->step++ < c->steps_done;
}

static void done(VjContentsCheck *c)
{
    c->steps_done = c->step;
}

static int view_trees(VjContentsCheck *c, uint64_t ino, VjTxnBody *body, void *opaque)
{
    c->ino = ino;
    c->steps_done = 0;
    return vj_meta_view(c->meta, body, opaque);
}

void vj_contents_problem(VjContentsCheck *c, uint64_t ino, const char *format, ...)
{
    g_autofree char *what = NULL, *line = NULL;
    va_list args;

    va_start(args, format);
    what = g_strdup_vprintf(format, args);
    va_end(args);
    line = g_strdup_printf("inode %" PRIu64 ": %s", ino, what);
    c->report->problems++;
    c->say(c->opaque, line);
}

/* map-check.c counts its own problems. */
static void say_through(void *opaque, const char *text)
{
    VjContentsCheck *c = opaque;

    if (!is_done(c)) {
        c->say(c->opaque, text);
        done(c);
    }
}

/* ---- entries --------------------------------------------------------------------- */

static void count_entry(VjContentsCheck *c, const VjEntry *entry)
{
    gint64 id = (gint64)entry->id;
    gint64 *entries = g_hash_table_lookup(c->counts, &id);

    c->report->map_entries++;
    if (entry->kind != VJ_ENTRY_OBJECT) {
        return;
    }
    if (entries == NULL) {
        Count *count = g_new(Count, 1);

        *count = (Count){.id = id, .entries = 1};
        g_hash_table_insert(c->counts, &count->id, &count->entries);
    } else {
        ++*entries;
    }
}

/* Is the fragment right, and is this the only entry that names it?  -EAGAIN. */
static int check_fragment(VjContentsCheck *c, const VjEntry *entry, uint64_t at)
{
    uint8_t bytes[VJ_FILE_INLINE_MAX];
    int r = entry->length > sizeof bytes
                ? -EBADMSG
                : vj_fragment_get(c->txn, c->ino, entry, 0, bytes, entry->length);

    if (r == -EAGAIN) {
        return r;
    }
    if (r < 0) {
        vj_contents_problem(c, c->ino,
                            "the entry at offset %" PRIu64 " names fragment %" PRIu64
                            ", which cannot be read",
                            at, entry->id);
    } else if (entry->stored_bytes != entry->length) {
        vj_contents_problem(c, c->ino,
                            "the fragment at offset %" PRIu64 " counts %u stored bytes",
                            at, entry->stored_bytes);
    }
    if (!g_hash_table_add(c->fragments, vj_contents_fragment(c->ino, entry->id))) {
        vj_contents_problem(
            c, c->ino, "the entry at offset %" PRIu64 " names a fragment a second time",
            at);
    }
    return 0;
}

/* Does the entry fit its object?  A missing record is left to object-check.c to report.
 * -EAGAIN: nothing was reported yet. */
static int check_entry(VjContentsCheck *c, const VjEntry *entry, uint64_t at)
{
    VjObject object;
    int r;

    if (entry->kind == VJ_ENTRY_FRAGMENT) {
        return check_fragment(c, entry, at);
    }
    if (entry->kind == VJ_ENTRY_HOLE) {
        if (entry->stored_bytes != 0) {
            vj_contents_problem(c, c->ino,
                                "the hole at offset %" PRIu64 " counts %u stored bytes",
                                at, entry->stored_bytes);
        }
        return 0;
    }
    r = vj_object_get(c->txn, entry->id, &object);
    if (r < 0) {
        return r == -EAGAIN ? r : 0;
    }
    if (entry->start + entry->length > object.plain_bytes) {
        vj_contents_problem(
            c, c->ino, "the entry at offset %" PRIu64 " ends behind its object %" PRIu64,
            at, entry->id);
    } else if (entry->stored_bytes != vj_object_share(&object, entry->length)) {
        vj_contents_problem(
            c, c->ino,
            "the entry at offset %" PRIu64 " counts %u stored bytes, its share of object "
            "%" PRIu64 " is %u",
            at, entry->stored_bytes, entry->id, vj_object_share(&object, entry->length));
    }
    return 0;
}

static bool visit_entry(void *opaque, const VjEntry *entry, uint64_t at)
{
    VjContentsCheck *c = opaque;

    if (is_done(c)) {
        return true;
    }
    c->failed = check_entry(c, entry, at);
    if (c->failed < 0) {
        return false;
    }
    count_entry(c, entry);
    done(c);
    return true;
}

/* ---- trees ----------------------------------------------------------------------- */

void vj_contents_scan_begin(VjScan *s, VjTxn *txn, VjSpace space, uint64_t ino)
{
    uint8_t key[VJ_MAP_KEY_BYTES];

    vj_map_key_encode(ino, 0, key);
    vj_scan_begin(s, txn, space, vj_slice(key, sizeof ino));
    vj_scan_behind(s, vj_slice(key, sizeof key));
}

bool vj_contents_scan_next(VjScan *s, uint32_t *node)
{
    /* Keys of another length are the business of the check of that space. */
    if (!vj_scan_next(s) || s->key.len != VJ_MAP_KEY_BYTES) {
        return false;
    }
    *node = vj_be32_get((const uint8_t *)s->key.data + 8);
    return true;
}

/* The trees of an inode. */
typedef struct Trees {
    VjContentsCheck *c;
    uint64_t ino;
    const VjInode *inode; /* NULL: there is no usable record */
    bool is_known;        /* no record of a tree is lost */
    /* Of this run: */
    GHashTable *seen; /* node numbers that a tree names */
    bool whole;       /* no node was damaged or missing, and every tree is known */
    uint64_t nodes, problems;
} Trees;

static int check_tree(Trees *t, const VjMapRoot *root)
{
    VjContentsCheck *c = t->c;
    uint64_t nodes, problems;
    int r = vj_map_check_shared(c->txn, t->ino, root, t->seen, visit_entry, say_through,
                                c, &nodes, &problems);

    t->nodes += nodes;
    t->problems += problems;
    t->whole = t->whole && problems == 0;
    return c->failed < 0 ? c->failed : r;
}

/* The map, and each subtree that waits to be dropped. */
static int each_tree(Trees *t)
{
    uint32_t node;
    VjScan scan;
    int r = 0;

    if (t->inode != NULL && t->inode->content == VJ_CONTENT_MAP) {
        r = check_tree(t, &t->inode->root);
    }
    vj_contents_scan_begin(&scan, t->c->txn, VJ_SPACE_ORPHAN, t->ino);
    while (r == 0 && vj_contents_scan_next(&scan, &node)) {
        VjOrphan orphan;

        if (vj_orphan_decode(scan.key, scan.value, &orphan) == 0) {
            r = check_tree(t, &orphan.root);
        } else {
            t->whole = false;
        }
    }
    return r < 0 ? r : scan.error;
}

/* A node that no tree led to. */
static void check_loose_node(VjContentsCheck *c, uint64_t ino, uint32_t node,
                             VjSlice value, bool whole)
{
    g_autofree VjMapImage *image = g_new(VjMapImage, 1);

    if (is_done(c)) {
        return;
    }
    if (whole) {
        vj_contents_problem(c, ino, "map node %" PRIu32 ": nothing names it", node);
    } else if (vj_map_image_decode(value, ino, node, image) < 0) {
        vj_contents_problem(c, ino, "map node %" PRIu32 ": damaged, and nothing names it",
                            node);
    } else {
        c->report->map_nodes++;
        for (unsigned i = 0; image->level == 0 && i < image->count; i++) {
            count_entry(c, &image->entries[i]);
        }
    }
    done(c);
}

static int trees_body(VjTxn *txn, void *opaque)
{
    Trees *t = opaque;
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    uint32_t node;
    VjScan scan;
    int r;

    begin_run(t->c, txn);
    t->seen = seen;
    t->whole = t->is_known;
    t->nodes = t->problems = 0;
    r = each_tree(t);
    if (r < 0) {
        return r;
    }
    vj_contents_scan_begin(&scan, txn, VJ_SPACE_NODE, t->ino);
    while (vj_contents_scan_next(&scan, &node)) {
        if (!g_hash_table_contains(seen, GUINT_TO_POINTER(node))) {
            check_loose_node(t->c, t->ino, node, scan.value, t->whole);
        }
    }
    return scan.error;
}

int vj_contents_trees(VjContentsCheck *c, uint64_t ino, const VjInode *inode,
                      bool is_known)
{
    Trees t = {.c = c, .ino = ino, .inode = inode, .is_known = is_known};
    int r = view_trees(c, ino, trees_body, &t);

    c->report->map_nodes += t.nodes;
    c->report->problems += t.problems;
    return r;
}

/* ---- ranges ---------------------------------------------------------------------- */

static void tell(VjContentsCheck *c, const VjEntry *entry, uint64_t at)
{
    g_autofree char *line = NULL;

    if (c->reported == RANGES_REPORTED) {
        line = g_strdup_printf("inode %" PRIu64 ": and more of it", c->ino);
    } else {
        line = g_strdup_printf("inode %" PRIu64 ": its bytes %" PRIu64 " to %" PRIu64
                               " are in object %" PRIu64,
                               c->ino, at, at + entry->length - 1, entry->id);
    }
    c->say(c->opaque, line); /* not a problem of its own */
}

static bool tell_range(void *opaque, const VjEntry *entry, uint64_t at)
{
    VjContentsCheck *c = opaque;
    gint64 id = (gint64)entry->id;

    if (entry->kind != VJ_ENTRY_OBJECT || !g_hash_table_contains(c->suspects, &id)) {
        return true;
    }
    if (!is_done(c)) {
        tell(c, entry, at);
        done(c);
    }
    return c->reported++ < RANGES_REPORTED;
}

typedef struct Ranges {
    VjContentsCheck *c;
    const VjInode *inode;
} Ranges;

static int ranges_body(VjTxn *txn, void *opaque)
{
    const Ranges *x = opaque;
    uint64_t nodes, problems;

    begin_run(x->c, txn);
    x->c->reported = 0;
    return vj_map_check(txn, x->inode->ino, &x->inode->root, tell_range, NULL, x->c,
                        &nodes, &problems);
}

int vj_contents_tell_ranges(VjContentsCheck *c, const VjInode *inode)
{
    Ranges x = {.c = c, .inode = inode};

    return view_trees(c, inode->ino, ranges_body, &x);
}
