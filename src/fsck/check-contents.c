/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * check-contents.c - fsck of contents: inodes, maps, fragments, orphans, objects
 *
 * A volume at rest, so that views see the same state, however many there are: spaces are
 * listed in batches, single records are looked up, and what is counted and said of them
 * is so outside of views.  Each inode's trees (its map and the subtrees that were cut off
 * it) are walked together, in one view, so that every node of VJ_SPACE_NODE has exactly
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
#include "fsck/check-private.h"
#include "fsck/repair-private.h"
#include "map/map-format.h"
#include "volume/scrub-format.h"

#include <inttypes.h>
#include <sys/stat.h>

/* The number of no inode: what stands there is passed over. */
static VjSlice number_zero(size_t len)
{
    static const uint8_t zero[VJ_MAP_KEY_BYTES];

    return vj_slice(zero, len);
}

/* The key behind which the next inode's keys of this space begin. */
static VjSlice last_key_of(uint64_t ino, uint8_t bytes[VJ_MAP_KEY_BYTES])
{
    vj_map_key_encode(ino, UINT32_MAX, bytes);
    return vj_slice(bytes, VJ_MAP_KEY_BYTES);
}

/* ---- inodes ---------------------------------------------------------------------- */

typedef struct Inline {
    const VjInode *inode;
    uint64_t stored_bytes; /* out */
} Inline;

static int inline_body(VjTxn *txn, void *opaque)
{
    Inline *i = opaque;
    uint8_t bytes[VJ_FILE_INLINE_MAX];

    return vj_inline_get(txn, i->inode, bytes, sizeof bytes, &i->stored_bytes);
}

static int check_inline(VjContentsCheck *c, const VjInode *inode)
{
    Inline i = {.inode = inode};
    uint64_t most = S_ISLNK(inode->mode) ? VJ_SYMLINK_MAX : VJ_FILE_INLINE_MAX;
    int r;

    if (inode->size == 0 || inode->size > most) {
        vj_contents_problem(c, inode->ino, "inline content of %" PRIu64 " bytes",
                            inode->size);
        return 0;
    }
    r = vj_meta_view(c->meta, inline_body, &i);
    if (r == -EBADMSG) {
        vj_contents_problem(c, inode->ino, "its inline content is missing or damaged");
        return 0;
    }
    if (r == -EOPNOTSUPP) {
        vj_contents_problem(
            c, inode->ino,
            "its inline content has a transformation that is not in this build");
        return 0;
    }
    if (r == 0 && i.stored_bytes != inode->stored_bytes) {
        vj_contents_problem(c, inode->ino,
                            "%" PRIu64 " stored bytes for %" PRIu64 " inline",
                            inode->stored_bytes, i.stored_bytes);
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

static void check_values(VjContentsCheck *c, const VjInode *inode)
{
    if (inode->ino >= c->next_ino) {
        vj_contents_problem(c, inode->ino, "its number was never given out");
    }
    if (!is_known_type(inode->mode)) {
        vj_contents_problem(c, inode->ino, "mode %o is no type of file", inode->mode);
    }
    if (inode->content == VJ_CONTENT_EMPTY && inode->stored_bytes != 0) {
        vj_contents_problem(c, inode->ino, "%" PRIu64 " stored bytes without content",
                            inode->stored_bytes);
    }
    if (S_ISLNK(inode->mode) && inode->nlink > 0 && inode->content != VJ_CONTENT_INLINE) {
        vj_contents_problem(c, inode->ino, "a symlink without a target");
    }
    if (!S_ISREG(inode->mode) && !S_ISLNK(inode->mode) &&
        inode->content != VJ_CONTENT_EMPTY) {
        vj_contents_problem(c, inode->ino, "it has content and is no regular file");
    }
}

static int check_inode(VjContentsCheck *c, uint64_t ino, VjSlice value)
{
    VjInode inode;
    int r = 0;

    c->report->inodes++;
    vj_check_tick(c->report);
    if (vj_inode_decode(value, ino, &inode) < 0) {
        vj_contents_problem(c, ino, "its record is damaged");
        return vj_contents_trees(c, ino, NULL, false);
    }
    check_values(c, &inode);
    if (inode.content == VJ_CONTENT_INLINE) {
        r = check_inline(c, &inode);
    }
    return r < 0 ? r : vj_contents_trees(c, ino, &inode, true);
}

/* @visit gets each record of VJ_SPACE_INODE, outside of views; its value is borrowed. */
typedef int InodeVisit(VjContentsCheck *c, uint64_t ino, VjSlice value);

static int each_inode(VjContentsCheck *c, InodeVisit *visit)
{
    VjListing l;
    int r = 0, listed;

    vj_listing_begin(&l, c->meta, VJ_SPACE_INODE);
    vj_listing_behind(&l, number_zero(8));
    while (r == 0 && vj_listing_next(&l)) {
        r = l.key.len != 8 ? -EBADMSG : visit(c, vj_be64_get(l.key.data), l.value);
    }
    listed = vj_listing_end(&l);
    return r < 0 ? r : listed;
}

typedef struct FindInode {
    uint64_t ino;
    VjInode *out;
    bool damaged; /* out */
} FindInode;

static int find_inode_body(VjTxn *txn, void *opaque)
{
    FindInode *f = opaque;
    uint8_t key[8];
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(f->ino, key), &value);

    f->damaged = r == 0 && vj_inode_decode(value, f->ino, f->out) < 0;
    return r;
}

/* 0: there is a record; *damaged: *out says nothing.  -ENOENT. */
static int find_inode(VjContentsCheck *c, uint64_t ino, VjInode *out, bool *damaged)
{
    FindInode f = {.ino = ino, .out = out};
    int r = vj_meta_view(c->meta, find_inode_body, &f);

    *damaged = f.damaged;
    return r;
}

/* ---- what belongs to inodes ------------------------------------------------------ */

static int check_orphan(VjContentsCheck *c, VjSlice key, VjSlice value)
{
    uint64_t ino = vj_be64_get(key.data);
    uint32_t node = vj_be32_get((const uint8_t *)key.data + 8);
    VjOrphan orphan;
    VjInode inode;
    bool damaged;
    int r;

    c->report->pending++;
    if (vj_orphan_decode(key, value, &orphan) < 0) {
        vj_contents_problem(c, ino, "its orphan record %" PRIu32 " is damaged", node);
    }
    if (node != 0) {
        return 0;
    }
    r = find_inode(c, ino, &inode, &damaged);
    if (r == -ENOENT) {
        vj_contents_problem(c, ino, "an orphan record without an inode");
        return 0;
    }
    if (r == 0 && !damaged && inode.nlink != 0) {
        vj_contents_problem(c, ino, "an orphan although it has %u links", inode.nlink);
    }
    return r;
}

/* Also the subtrees whose inode is gone already. */
static int check_orphan_of(VjContentsCheck *c, VjSlice key, VjSlice value,
                           uint64_t *walked)
{
    uint64_t ino = vj_be64_get(key.data);
    VjInode inode;
    bool damaged;
    int r = check_orphan(c, key, value);

    if (r == 0 && ino != *walked) {
        *walked = ino;
        r = find_inode(c, ino, &inode, &damaged);
        if (r == -ENOENT) {
            r = vj_contents_trees(c, ino, NULL, true);
        }
    }
    return r;
}

static int check_orphans(VjContentsCheck *c)
{
    uint64_t walked = 0;
    VjListing l;
    int r = 0, listed;

    vj_listing_begin(&l, c->meta, VJ_SPACE_ORPHAN);
    vj_listing_behind(&l, number_zero(VJ_MAP_KEY_BYTES));
    while (r == 0 && vj_listing_next(&l)) {
        if (l.key.len != VJ_MAP_KEY_BYTES) {
            vj_contents_problem(c, 0, "an orphan record with a key of %zu bytes",
                                l.key.len);
            break;
        }
        r = check_orphan_of(c, l.key, l.value, &walked);
    }
    listed = vj_listing_end(&l);
    return r < 0 ? r : listed;
}

/* Map nodes, an inode at a time. */
typedef struct NodesOf {
    bool begun;
    uint64_t after; /* the inode before, when begun */
    uint64_t ino;   /* out, as the others */
    size_t key_bytes;
    bool is_owned; /* the inode has a record, or a subtree to be dropped */
} NodesOf;

/* The next one that has nodes. */
static int next_nodes_body(VjTxn *txn, void *opaque)
{
    NodesOf *n = opaque;
    uint8_t last[VJ_MAP_KEY_BYTES], ino_key[8];
    uint32_t orphan;
    VjSlice key, value;
    VjScan orphans;
    int r = vj_txn_next(txn, VJ_SPACE_NODE,
                        n->begun ? last_key_of(n->after, last)
                                 : number_zero(VJ_MAP_KEY_BYTES),
                        &key, &value);

    if (r < 0) {
        return r;
    }
    n->key_bytes = key.len;
    if (key.len != VJ_MAP_KEY_BYTES) {
        return 0;
    }
    n->ino = vj_be64_get(key.data);
    r = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(n->ino, ino_key), &value);
    n->is_owned = r == 0;
    if (r == -ENOENT) {
        vj_contents_scan_begin(&orphans, txn, VJ_SPACE_ORPHAN, n->ino);
        n->is_owned = vj_contents_scan_next(&orphans, &orphan);
        r = orphans.error;
    }
    return r;
}

/* Nodes of inodes that have neither a record nor a subtree to be dropped. */
static int check_nodes(VjContentsCheck *c)
{
    NodesOf n = {.begun = false};
    int r;

    while ((r = vj_meta_view(c->meta, next_nodes_body, &n)) == 0) {
        if (n.key_bytes != VJ_MAP_KEY_BYTES) {
            vj_contents_problem(c, 0, "a map node with a key of %zu bytes", n.key_bytes);
            return 0;
        }
        if (!n.is_owned) {
            vj_contents_problem(c, n.ino, "map nodes without an inode");
        }
        n.begun = true;
        n.after = n.ino;
    }
    return r == -ENOENT ? 0 : r;
}

static int check_inline_use(VjContentsCheck *c, uint64_t ino)
{
    VjInode inode;
    bool damaged;
    int r = find_inode(c, ino, &inode, &damaged);

    if (r == -ENOENT) {
        vj_contents_problem(c, ino, "inline content without an inode");
        return 0;
    }
    if (r == 0 && !damaged && inode.content != VJ_CONTENT_INLINE) {
        vj_contents_problem(c, ino, "inline content beside other content");
    }
    return r;
}

static int check_inlines(VjContentsCheck *c)
{
    VjListing l;
    int r = 0, listed;

    vj_listing_begin(&l, c->meta, VJ_SPACE_INLINE);
    vj_listing_behind(&l, number_zero(8));
    while (r == 0 && vj_listing_next(&l)) {
        if (l.key.len != 8) {
            vj_contents_problem(c, 0, "inline content with a key of %zu bytes",
                                l.key.len);
            break;
        }
        r = check_inline_use(c, vj_be64_get(l.key.data));
    }
    listed = vj_listing_end(&l);
    return r < 0 ? r : listed;
}

/* After all maps: each fragment that is stored was named by an entry. */
static int check_fragments(VjContentsCheck *c)
{
    VjListing l;

    vj_listing_begin(&l, c->meta, VJ_SPACE_FRAGMENT);
    while (vj_listing_next(&l)) {
        g_autofree char *name = NULL;
        uint32_t number;
        uint64_t ino;

        if (l.key.len != VJ_MAP_KEY_BYTES) {
            vj_contents_problem(c, l.key.len >= 8 ? vj_be64_get(l.key.data) : 0,
                                "a fragment's key has %zu bytes", l.key.len);
            break;
        }
        ino = vj_be64_get(l.key.data);
        number = vj_be32_get((const uint8_t *)l.key.data + 8);
        name = vj_contents_fragment(ino, number);
        if (!g_hash_table_contains(c->fragments, name)) {
            vj_contents_problem(c, ino, "no entry of a map names fragment %u", number);
        }
    }
    return vj_listing_end(&l);
}

/* ---- objects --------------------------------------------------------------------- */

/* Passes a line of object-check.c on and remembers which object it is about. */
static void say_of_object(void *opaque, const char *text)
{
    static const char prefix[] = "object ";
    VjContentsCheck *c = opaque;

    if (g_str_has_prefix(text, prefix)) {
        gint64 *id = g_new(gint64, 1);

        *id = (gint64)g_ascii_strtoull(text + sizeof prefix - 1, NULL, 10);
        g_hash_table_add(c->suspects, id);
    }
    c->say(c->opaque, text);
}

static int tell_ranges(VjContentsCheck *c, uint64_t ino, VjSlice value)
{
    VjInode inode;

    return vj_inode_decode(value, ino, &inode) < 0 || inode.content != VJ_CONTENT_MAP
               ? 0
               : vj_contents_tell_ranges(c, &inode);
}

static int check_objects(VjContentsCheck *c, bool read_data)
{
    int r;

    g_hash_table_remove_all(vj_volume_bytes_found(c->v));
    r = vj_objects_check(vj_volume_objects(c->v), c->counts, read_data,
                         vj_volume_bytes_found(c->v), say_of_object, c, c->report);

    if (r == 0 && g_hash_table_size(c->suspects) > 0) {
        r = each_inode(c, tell_ranges);
    }
    return r;
}

/* ---- everything ------------------------------------------------------------------ */

static int check_root(VjContentsCheck *c)
{
    VjInode inode;
    bool damaged;
    int r = find_inode(c, VJ_INO_ROOT, &inode, &damaged);

    if (r == -ENOENT || (r == 0 && !damaged && !S_ISDIR(inode.mode))) {
        vj_contents_problem(c, VJ_INO_ROOT, "there is no root directory");
        return 0;
    }
    return r;
}

static int next_ino_body(VjTxn *txn, void *opaque)
{
    return vj_ino_next(txn, opaque);
}

static int read_next_ino(VjContentsCheck *c)
{
    int r = vj_meta_view(c->meta, next_ino_body, &c->next_ino);

    if (r == -EBADMSG) {
        c->next_ino = UINT64_MAX;
        vj_contents_problem(c, 0, "the counter of inode numbers is damaged");
        r = 0;
    }
    return r;
}

/* Of a record that a volume may be without; one that is whole may be of another
 * version. */
static int sealed_body(VjTxn *txn, void *opaque)
{
    const char *name = opaque;
    VjSlice value;
    int r = vj_txn_get(txn, VJ_SPACE_SYSTEM, vj_slice(name, strlen(name)), &value);

    return r == 0 && !vj_repair_is_sealed(value) ? -EBADMSG : r;
}

static int check_sealed(VjContentsCheck *c, const char *name, const char *what)
{
    int r = vj_meta_view(c->meta, sealed_body, (void *)(uintptr_t)name);

    if (r == -EBADMSG) {
        vj_contents_problem(c, 0, "%s is damaged", what);
        return 0;
    }
    return r == -ENOENT ? 0 : r;
}

/* What sessions left is the next one's to release; here it is whole or not. */
static int check_sessions(VjContentsCheck *c, VjSpace space, const char *what)
{
    VjListing l;

    vj_listing_begin(&l, c->meta, space);
    while (vj_listing_next(&l)) {
        if (vj_session_key_check(space, l.key, l.value) < 0) {
            vj_contents_problem(c, 0, "%s is damaged", what);
        }
    }
    return vj_listing_end(&l);
}

static int check_all(VjContentsCheck *c, bool read_data)
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
        r = check_sessions(c, VJ_SPACE_SESSION, "the record of a session");
    }
    if (r == 0) {
        r = check_sessions(c, VJ_SPACE_CLAIM, "what a session had alone");
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
    g_autoptr(GHashTable) counts =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr(GHashTable) fragments =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GHashTable) suspects =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    VjContentsCheck c = {.v = v,
                         .meta = vj_volume_meta(v),
                         .say = say,
                         .opaque = opaque,
                         .report = out,
                         .counts = counts,
                         .suspects = suspects,
                         .fragments = fragments};

    g_assert(say != NULL && vj_volume_is_checked(v));
    *out = (VjCheckReport){.tick = out->tick, .tick_opaque = out->tick_opaque};
    return check_all(&c, read_data);
}
