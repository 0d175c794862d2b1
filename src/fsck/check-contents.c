/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * check.c - fsck of what this room keeps: inodes, contents, maps, orphans, objects
 *
 * One snapshot of a volume at rest.  Each inode's trees (its map and the subtrees that
 * were cut off it) are walked together, so that every node of VJ_SPACE_NODE has exactly
 * one parent or is reported.  Every entry is counted for its object; object-check.c
 * compares the counts with records, index and store.  Objects with a problem are looked
 * up in the maps once more, because people know files, not objects.
 *
 * One damage is one line where that is possible: behind a node or record that cannot be
 * read, the leaves that are still whole are found by their keys and their entries
 * counted, so that the objects they name are not reported as well.
 *
 * Memory: a number for each object, and for each map node of the inode being looked at.
 */
#include "file/inode-format.h"
#include "file/records.h"
#include "fsck/repair-private.h"
#include "map/map-format.h"
#include "volume/scrub-format.h"

#include <inttypes.h>
#include <sys/stat.h>

/* Ranges that are told of one inode's damaged objects. */
#define RANGES_TOLD 16u

typedef struct Count {
    gint64 id, entries;
} Count;

typedef struct Check {
    VjVolume *v;
    VjTxn *txn;
    VjCheckSay *say;
    void *opaque;
    VjCheckReport *report;
    GHashTable *counts;    /* gint64* in Count → gint64* in Count */
    GHashTable *suspects;  /* gint64*, owned: objects that have a problem */
    GHashTable *fragments; /* fragment_name(), owned: named by an entry */
    uint64_t next_ino;     /* no number from here on was ever given out */
    uint64_t ino;          /* whose trees are being walked */
    unsigned told;         /* ranges of it */
} Check;

static void G_GNUC_PRINTF(3, 4) problem(Check *c, uint64_t ino, const char *format, ...)
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
    const Check *c = opaque;

    c->say(c->opaque, text);
}

/* ---- entries --------------------------------------------------------------------- */

static void count_entry(Check *c, const VjEntry *entry)
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

static char *fragment_name(uint64_t ino, uint64_t number)
{
    return g_strdup_printf("%" PRIu64 "/%" PRIu64, ino, number);
}

/* Is the fragment right, and is this the only entry that names it? */
static void check_fragment(Check *c, const VjEntry *entry, uint64_t at)
{
    uint8_t bytes[VJ_FILE_INLINE_MAX];
    char *name = fragment_name(c->ino, entry->id);

    if (entry->length > sizeof bytes ||
        vj_fragment_get(c->txn, c->ino, entry, 0, bytes, entry->length) < 0) {
        problem(c, c->ino,
                "the entry at offset %" PRIu64 " names fragment %" PRIu64
                ", which cannot be read",
                at, entry->id);
    } else if (entry->stored_bytes != entry->length) {
        problem(c, c->ino, "the fragment at offset %" PRIu64 " counts %u stored bytes",
                at, entry->stored_bytes);
    }
    if (!g_hash_table_add(c->fragments, name)) {
        problem(c, c->ino,
                "the entry at offset %" PRIu64 " names a fragment a second time", at);
    }
}

/* Does the entry fit its object?  A missing record is object-check's to tell. */
static void check_entry(Check *c, const VjEntry *entry, uint64_t at)
{
    VjObject object;

    if (entry->kind == VJ_ENTRY_FRAGMENT) {
        check_fragment(c, entry, at);
        return;
    }
    if (entry->kind == VJ_ENTRY_HOLE) {
        if (entry->stored_bytes != 0) {
            problem(c, c->ino, "the hole at offset %" PRIu64 " counts %u stored bytes",
                    at, entry->stored_bytes);
        }
        return;
    }
    if (vj_object_get(c->txn, entry->id, &object) < 0) {
        return;
    }
    if (entry->start + entry->length > object.plain_bytes) {
        problem(c, c->ino,
                "the entry at offset %" PRIu64 " ends behind its object %" PRIu64, at,
                entry->id);
    } else if (entry->stored_bytes != vj_object_share(&object, entry->length)) {
        problem(
            c, c->ino,
            "the entry at offset %" PRIu64 " counts %u stored bytes, its share of object "
            "%" PRIu64 " is %u",
            at, entry->stored_bytes, entry->id, vj_object_share(&object, entry->length));
    }
}

static bool visit_entry(void *opaque, const VjEntry *entry, uint64_t at)
{
    count_entry(opaque, entry);
    check_entry(opaque, entry, at);
    return true;
}

/* ---- trees ----------------------------------------------------------------------- */

/* The key behind which the next inode's keys of this space begin. */
static VjSlice last_key_of(uint64_t ino, uint8_t bytes[VJ_MAP_KEY_BYTES])
{
    vj_map_key_encode(ino, UINT32_MAX, bytes);
    return vj_slice(bytes, VJ_MAP_KEY_BYTES);
}

/* Nobody's number: what stands there is passed over. */
static VjSlice number_zero(size_t len)
{
    static const uint8_t zero[VJ_MAP_KEY_BYTES];

    return vj_slice(zero, len);
}

/* The next key of @ino behind (@ino, *@node); sets *@node.  -ENOENT: there is none. */
static int next_of(Check *c, VjSpace space, uint64_t ino, uint32_t *node, VjSlice *key,
                   VjSlice *value)
{
    uint8_t after[VJ_MAP_KEY_BYTES];
    int r;

    vj_map_key_encode(ino, *node, after);
    r = vj_txn_next(c->txn, space, vj_slice(after, sizeof after), key, value);
    if (r == 0 && (key->len != sizeof after || vj_be64_get(key->data) != ino)) {
        return -ENOENT;
    }
    if (r == 0) {
        *node = vj_be32_get((const uint8_t *)key->data + 8);
    }
    return r;
}

typedef int TreeWalk(Check *c, uint64_t ino, const VjMapRoot *root, void *opaque);

/*
 * Calls @walk for the map of @ino (@inode NULL: there is no usable record) and for each
 * subtree that waits to be dropped.  *whole: every tree is known.
 */
static int each_tree(Check *c, uint64_t ino, const VjInode *inode, TreeWalk *walk,
                     void *opaque, bool *whole)
{
    uint32_t node = 0;
    VjSlice key, value;
    int r = 0;

    if (inode != NULL && inode->content == VJ_CONTENT_MAP) {
        r = walk(c, ino, &inode->root, opaque);
    }
    while (r == 0 && (r = next_of(c, VJ_SPACE_ORPHAN, ino, &node, &key, &value)) == 0) {
        uint64_t named;
        VjMapRoot root;

        if (vj_orphan_decode(key, value, &named, &root) == 0) {
            r = walk(c, ino, &root, opaque);
        } else {
            *whole = false;
        }
    }
    return r == -ENOENT ? 0 : r;
}

typedef struct Walk {
    GHashTable *seen; /* node numbers that a tree names */
    bool whole;       /* no node was damaged or missing */
} Walk;

static int check_tree(Check *c, uint64_t ino, const VjMapRoot *root, void *opaque)
{
    Walk *w = opaque;
    uint64_t nodes, problems;
    int r = vj_map_check_shared(c->txn, ino, root, w->seen, visit_entry, say_through, c,
                                &nodes, &problems);

    c->report->map_nodes += nodes;
    c->report->problems += problems;
    w->whole = w->whole && problems == 0;
    return r;
}

/* A node that no tree led to. */
static void check_loose_node(Check *c, uint64_t ino, uint32_t node, VjSlice value,
                             bool whole)
{
    g_autofree VjMapImage *image = g_new(VjMapImage, 1);

    if (whole) {
        problem(c, ino, "map node %" PRIu32 ": nothing names it", node);
    } else if (vj_map_image_decode(value, ino, node, image) < 0) {
        problem(c, ino, "map node %" PRIu32 ": damaged, and nothing names it", node);
    } else {
        c->report->map_nodes++;
        for (unsigned i = 0; image->level == 0 && i < image->count; i++) {
            count_entry(c, &image->entries[i]);
        }
    }
}

/* Everything in VJ_SPACE_NODE that belongs to @ino. */
static int check_trees(Check *c, uint64_t ino, const VjInode *inode, bool whole)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    Walk w = {.seen = seen, .whole = whole};
    uint32_t node = 0;
    VjSlice key, value;
    int r;

    c->ino = ino;
    r = each_tree(c, ino, inode, check_tree, &w, &w.whole);
    while (r == 0 && (r = next_of(c, VJ_SPACE_NODE, ino, &node, &key, &value)) == 0) {
        if (!g_hash_table_contains(seen, GUINT_TO_POINTER(node))) {
            check_loose_node(c, ino, node, value, w.whole);
        }
    }
    return r == -ENOENT ? 0 : r;
}

/* ---- inodes ---------------------------------------------------------------------- */

static int check_inline(Check *c, const VjInode *inode)
{
    uint8_t bytes[VJ_SYMLINK_MAX];
    uint64_t stored = 0;
    uint64_t most = S_ISLNK(inode->mode) ? VJ_SYMLINK_MAX : VJ_FILE_INLINE_MAX;
    int r;

    if (inode->size == 0 || inode->size > most) {
        problem(c, inode->ino, "inline content of %" PRIu64 " bytes", inode->size);
        return 0;
    }
    r = vj_inline_get(c->txn, inode, bytes, sizeof bytes, &stored);
    if (r == -EBADMSG) {
        problem(c, inode->ino, "its inline content is missing or damaged");
        return 0;
    }
    if (r == -EOPNOTSUPP) {
        problem(c, inode->ino,
                "its inline content has a transformation that is not in this build");
        return 0;
    }
    if (r == 0 && stored != inode->stored_bytes) {
        problem(c, inode->ino, "%" PRIu64 " stored bytes for %" PRIu64 " inline",
                inode->stored_bytes, stored);
    }
    if (r == 0) {
        c->report->bytes_verified += inode->size;
    }
    return r;
}

static bool is_known_type(mode_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISCHR(mode) ||
           S_ISBLK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode);
}

static void check_values(Check *c, const VjInode *inode)
{
    if (inode->ino >= c->next_ino) {
        problem(c, inode->ino, "its number was never given out");
    }
    if (!is_known_type(inode->mode)) {
        problem(c, inode->ino, "mode %o is no type of file", inode->mode);
    }
    if (inode->content == VJ_CONTENT_EMPTY && inode->stored_bytes != 0) {
        problem(c, inode->ino, "%" PRIu64 " stored bytes without content",
                inode->stored_bytes);
    }
    if (S_ISLNK(inode->mode) && inode->nlink > 0 && inode->content != VJ_CONTENT_INLINE) {
        problem(c, inode->ino, "a symlink without a target");
    }
    if (!S_ISREG(inode->mode) && !S_ISLNK(inode->mode) &&
        inode->content != VJ_CONTENT_EMPTY) {
        problem(c, inode->ino, "it has content and is no regular file");
    }
}

static int check_inode(Check *c, uint64_t ino, VjSlice value)
{
    VjInode inode;
    int r = 0;

    c->report->inodes++;
    vj_check_tick(c->report);
    if (vj_inode_decode(value, ino, &inode) < 0) {
        problem(c, ino, "its record is damaged");
        return check_trees(c, ino, NULL, false);
    }
    check_values(c, &inode);
    if (inode.content == VJ_CONTENT_INLINE) {
        r = check_inline(c, &inode);
    }
    return r < 0 ? r : check_trees(c, ino, &inode, true);
}

/* @visit gets each record of VJ_SPACE_INODE; its value is borrowed until the next get. */
typedef int InodeVisit(Check *c, uint64_t ino, VjSlice value);

static int each_inode(Check *c, InodeVisit *visit)
{
    VjScan scan;

    vj_scan_begin(&scan, c->txn, VJ_SPACE_INODE, VJ_SCAN_ALL);
    vj_scan_behind(&scan, number_zero(8));
    while (vj_scan_next(&scan)) {
        int r;

        if (scan.key.len != 8) {
            return -EBADMSG;
        }
        r = visit(c, vj_be64_get(scan.key.data), scan.value);
        if (r < 0) {
            return r;
        }
    }
    return scan.error;
}

/* 0: there is a record; *@inode NULL when it is damaged.  -ENOENT. */
static int find_inode(Check *c, uint64_t ino, VjInode *out, bool *damaged)
{
    uint8_t key[8];
    VjSlice value;
    int r = vj_txn_get(c->txn, VJ_SPACE_INODE, vj_ino_key(ino, key), &value);

    *damaged = r == 0 && vj_inode_decode(value, ino, out) < 0;
    return r;
}

/* ---- what belongs to inodes ------------------------------------------------------ */

static int check_orphan(Check *c, VjSlice key, VjSlice value)
{
    uint64_t ino = vj_be64_get(key.data);
    uint32_t node = vj_be32_get((const uint8_t *)key.data + 8);
    VjMapRoot root;
    VjInode inode;
    bool damaged;
    int r;

    c->report->pending++;
    if (vj_orphan_decode(key, value, &ino, &root) < 0) {
        problem(c, ino, "its orphan record %" PRIu32 " is damaged", node);
    }
    if (node != 0) {
        return 0;
    }
    r = find_inode(c, ino, &inode, &damaged);
    if (r == -ENOENT) {
        problem(c, ino, "an orphan record without an inode");
        return 0;
    }
    if (r == 0 && !damaged && inode.nlink != 0) {
        problem(c, ino, "an orphan although it has %u links", inode.nlink);
    }
    return r;
}

/* All orphan records, and the subtrees whose inode is gone already. */
static int check_orphans(Check *c)
{
    uint64_t walked = 0;
    VjScan scan;

    vj_scan_begin(&scan, c->txn, VJ_SPACE_ORPHAN, VJ_SCAN_ALL);
    vj_scan_behind(&scan, number_zero(VJ_MAP_KEY_BYTES));
    while (vj_scan_next(&scan)) {
        uint64_t ino;
        VjInode inode;
        bool damaged;
        int r;

        if (scan.key.len != VJ_MAP_KEY_BYTES) {
            problem(c, 0, "an orphan record with a key of %zu bytes", scan.key.len);
            return 0;
        }
        ino = vj_be64_get(scan.key.data);
        r = check_orphan(c, scan.key, scan.value);
        if (r == 0 && ino != walked) {
            walked = ino;
            r = find_inode(c, ino, &inode, &damaged);
            if (r == -ENOENT) {
                r = check_trees(c, ino, NULL, true);
            }
        }
        if (r < 0) {
            return r;
        }
    }
    return scan.error;
}

/* Nodes of inodes that have neither a record nor a subtree to be dropped. */
static int check_nodes(Check *c)
{
    uint8_t last[VJ_MAP_KEY_BYTES];
    VjScan scan;

    vj_scan_begin(&scan, c->txn, VJ_SPACE_NODE, VJ_SCAN_ALL);
    vj_scan_behind(&scan, number_zero(VJ_MAP_KEY_BYTES));
    while (vj_scan_next(&scan)) {
        uint32_t orphan = 0;
        VjSlice key, value;
        VjInode inode;
        bool damaged;
        uint64_t ino;
        int r;

        if (scan.key.len != VJ_MAP_KEY_BYTES) {
            problem(c, 0, "a map node with a key of %zu bytes", scan.key.len);
            return 0;
        }
        ino = vj_be64_get(scan.key.data);
        r = find_inode(c, ino, &inode, &damaged);
        if (r == -ENOENT) {
            r = next_of(c, VJ_SPACE_ORPHAN, ino, &orphan, &key, &value);
        }
        if (r == -ENOENT) {
            problem(c, ino, "map nodes without an inode");
        } else if (r < 0) {
            return r;
        }
        vj_scan_behind(&scan, last_key_of(ino, last));
    }
    return scan.error;
}

static int check_inlines(Check *c)
{
    VjScan scan;

    vj_scan_begin(&scan, c->txn, VJ_SPACE_INLINE, VJ_SCAN_ALL);
    vj_scan_behind(&scan, number_zero(8));
    while (vj_scan_next(&scan)) {
        VjInode inode;
        bool damaged;
        uint64_t ino;
        int r;

        if (scan.key.len != 8) {
            problem(c, 0, "inline content with a key of %zu bytes", scan.key.len);
            return 0;
        }
        ino = vj_be64_get(scan.key.data);
        r = find_inode(c, ino, &inode, &damaged);
        if (r == -ENOENT) {
            problem(c, ino, "inline content without an inode");
        } else if (r < 0) {
            return r;
        } else if (!damaged && inode.content != VJ_CONTENT_INLINE) {
            problem(c, inode.ino, "inline content beside other content");
        }
    }
    return scan.error;
}

/* After all maps: each fragment that is stored was named by an entry. */
static int check_fragments(Check *c)
{
    VjScan scan;

    vj_scan_begin(&scan, c->txn, VJ_SPACE_FRAGMENT, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        g_autofree char *name = NULL;
        uint32_t number;
        uint64_t ino;

        if (scan.key.len != VJ_MAP_KEY_BYTES) {
            problem(c, scan.key.len >= 8 ? vj_be64_get(scan.key.data) : 0,
                    "a fragment's key has %zu bytes", scan.key.len);
            return 0;
        }
        ino = vj_be64_get(scan.key.data);
        number = vj_be32_get((const uint8_t *)scan.key.data + 8);
        name = fragment_name(ino, number);
        if (!g_hash_table_contains(c->fragments, name)) {
            problem(c, ino, "no entry of a map names fragment %u", number);
        }
    }
    return scan.error;
}

/* ---- objects --------------------------------------------------------------------- */

/* Passes a line of object-check.c on and remembers which object it is about. */
static void say_of_object(void *opaque, const char *text)
{
    static const char prefix[] = "object ";
    Check *c = opaque;

    if (g_str_has_prefix(text, prefix)) {
        gint64 *id = g_new(gint64, 1);

        *id = (gint64)g_ascii_strtoull(text + sizeof prefix - 1, NULL, 10);
        g_hash_table_add(c->suspects, id);
    }
    c->say(c->opaque, text);
}

static bool tell_range(void *opaque, const VjEntry *entry, uint64_t at)
{
    Check *c = opaque;
    gint64 id = (gint64)entry->id;
    g_autofree char *line = NULL;

    if (entry->kind != VJ_ENTRY_OBJECT || !g_hash_table_contains(c->suspects, &id)) {
        return true;
    }
    if (c->told == RANGES_TOLD) {
        line = g_strdup_printf("inode %" PRIu64 ": and more of it", c->ino);
    } else {
        line = g_strdup_printf("inode %" PRIu64 ": its bytes %" PRIu64 " to %" PRIu64
                               " are in object %" PRIu64,
                               c->ino, at, at + entry->length - 1, entry->id);
    }
    c->say(c->opaque, line); /* not a problem of its own */
    return c->told++ < RANGES_TOLD;
}

static int tell_ranges(Check *c, uint64_t ino, VjSlice value)
{
    VjInode inode;
    uint64_t nodes, problems;

    if (vj_inode_decode(value, ino, &inode) < 0 || inode.content != VJ_CONTENT_MAP) {
        return 0;
    }
    c->ino = ino;
    c->told = 0;
    return vj_map_check(c->txn, ino, &inode.root, tell_range, NULL, c, &nodes, &problems);
}

static int check_objects(Check *c, bool read_data)
{
    int r;

    g_hash_table_remove_all(vj_volume_bytes_found(c->v));
    r = vj_objects_check(vj_volume_objects(c->v), c->txn, c->counts, read_data,
                         vj_volume_bytes_found(c->v), say_of_object, c, c->report);

    if (r == 0 && g_hash_table_size(c->suspects) > 0) {
        r = each_inode(c, tell_ranges);
    }
    return r;
}

/* ---- everything ------------------------------------------------------------------ */

static int check_root(Check *c)
{
    VjInode inode;
    bool damaged;
    int r = find_inode(c, VJ_INO_ROOT, &inode, &damaged);

    if (r == -ENOENT || (r == 0 && !damaged && !S_ISDIR(inode.mode))) {
        problem(c, VJ_INO_ROOT, "there is no root directory");
        return 0;
    }
    return r;
}

static int read_next_ino(Check *c)
{
    int r = vj_ino_next(c->txn, &c->next_ino);

    if (r == -EBADMSG) {
        c->next_ino = UINT64_MAX;
        problem(c, 0, "the counter of inode numbers is damaged");
        r = 0;
    }
    return r;
}

/* Of a record that a volume may be without; one that is whole may be of another
 * version. */
static int check_sealed(Check *c, const char *name, const char *what)
{
    VjSlice value;
    int r = vj_txn_get(c->txn, VJ_SPACE_SYSTEM, vj_slice(name, strlen(name)), &value);

    if (r == 0 && !vj_repair_is_sealed(value)) {
        problem(c, 0, "%s is damaged", what);
    }
    return r == -ENOENT ? 0 : r;
}

static int check_all(Check *c, bool read_data)
{
    int r = read_next_ino(c);

    if (r == 0) {
        r = check_root(c);
    }
    if (r == 0) {
        r = each_inode(c, check_inode);
    }
    if (r == 0) {
        r = check_orphans(c);
    }
    if (r == 0) {
        r = check_nodes(c);
    }
    if (r == 0) {
        r = check_inlines(c);
    }
    if (r == 0) {
        r = check_fragments(c);
    }
    if (r == 0) {
        r = check_sealed(c, VJ_SCRUB_KEY, "the record of how far a scrub has come");
    }
    if (r == 0) {
        r = check_sealed(c, VJ_SUPERBLOCK_KEY, "the copy of " VJ_SUPERBLOCK_NAME);
    }
    return r < 0 ? r : check_objects(c, read_data);
}

int vj_fsck_contents(VjVolume *v, bool read_data, VjCheckSay *say, void *opaque,
                     VjCheckReport *out)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    g_autoptr(GHashTable) counts =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr(GHashTable) fragments =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GHashTable) suspects =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    Check c = {.v = v,
               .say = say,
               .opaque = opaque,
               .report = out,
               .counts = counts,
               .suspects = suspects,
               .fragments = fragments};
    int r;

    g_assert(say != NULL && vj_volume_is_checked(v));
    *out = (VjCheckReport){.tick = out->tick, .tick_opaque = out->tick_opaque};
    r = vj_meta_begin_read(vj_volume_meta(v), &txn);
    if (r == 0) {
        c.txn = txn;
        r = check_all(&c, read_data);
    }
    return r;
}
