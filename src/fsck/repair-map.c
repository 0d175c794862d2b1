/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-map.c - the map of one inode: what can be reached stays, what is lost is said
 *
 * A map with a damaged node is built anew, beside the old one, from the entries that can
 * be reached; each range between them becomes entries of an object that cannot be read,
 * so that a reader gets an error and no zeroes.  One commit then lays the new map under
 * the inode.  Nodes that no tree leads to any more hold content whose place is unknown:
 * their entries become an inode of their own, which fs gives a name in lost+found.
 *
 * Memory: the entries of the one map that is built anew, and a number for each of its
 * nodes.
 */
#include "fsck/repair-map-private.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

/* Entries, or nodes to delete, of one transaction. */
#define BATCH 4096u
/* Pieces of one lost range: 1 TiB.  A longer one is left as it is. */
#define LOST_MOST 65536u
/* Ranges that are reported of one inode. */
#define RANGES_REPORTED 16u

/* ---- a map made of entries --------------------------------------------------------- */

typedef struct Build {
    uint64_t ino;
    const VjEntry *entries;
    size_t count;
    VjMapRoot root; /* in; */
    VjMapRoot next; /* out: after this batch */
} Build;

static int build_body(VjTxn *txn, void *opaque)
{
    Build *b = opaque;
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));

    b->next = b->root;
    return vj_map_replace(txn, b->ino, &b->next, b->root.bytes, 0, b->entries, b->count,
                          removed, detached);
}

static int build_some(VjRepair *r, Build *b, const VjEntry *entries, size_t count)
{
    int rc;

    b->entries = entries;
    b->count = count;
    rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, build_body, b);
    if (rc == 0) {
        b->root = b->next;
    }
    return rc;
}

/* VJ_SALVAGE_LOST ranges become entries of the lost object. */
static int add_lost(VjRepair *r, GArray *out, uint64_t length)
{
    VjObject lost;
    int rc = length / VJ_OBJECT_PLAIN_MAX >= LOST_MOST ? -EFBIG
                                                       : vj_repair_lost_object(r, &lost);

    while (rc == 0 && length > 0) {
        VjEntry e = {.kind = VJ_ENTRY_OBJECT,
                     .id = lost.id,
                     .length = MIN(length, (uint64_t)lost.plain_bytes)};

        e.stored_bytes = vj_object_share(&lost, e.length);
        g_array_append_val(out, e);
        length -= e.length;
    }
    return rc;
}

int vj_repair_build_map(VjRepair *r, uint64_t ino, const GArray *entries, VjMapRoot *root)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    Build b = {.ino = ino, .root = *root};
    int rc = 0;

    for (guint i = 0; rc == 0 && i < entries->len; i++) {
        const VjEntry *e = &g_array_index(entries, VjEntry, i);

        if (e->kind == VJ_SALVAGE_LOST) {
            rc = add_lost(r, all, e->length);
        } else {
            g_array_append_vals(all, e, 1);
        }
    }
    for (guint i = 0; rc == 0 && i < all->len; i += BATCH) {
        rc = build_some(r, &b, &g_array_index(all, VjEntry, i), MIN(BATCH, all->len - i));
    }
    *root = b.root;
    return rc;
}

static int lay_body(VjTxn *txn, void *opaque)
{
    const VjLay *l = opaque;
    VjInode inode;
    int rc = vj_inode_get(txn, l->ino, &inode);

    if (rc < 0) {
        return rc;
    }
    if (l->clear_inline) {
        rc = vj_inline_del(txn, l->ino);
        if (rc < 0 && rc != -ENOENT) {
            return rc;
        }
    }
    inode.root = l->root;
    inode.size = l->root.bytes;
    inode.stored_bytes = l->root.stored_bytes;
    inode.content = l->root.node != 0 ? VJ_CONTENT_MAP : VJ_CONTENT_EMPTY;
    if (S_ISLNK(inode.mode)) { /* its target is lost: reading a file can say so */
        inode.mode = S_IFREG | (inode.mode & 0777 & ~(mode_t)0111);
    }
    inode.map_version++;
    return vj_inode_put(txn, &inode);
}

int vj_repair_lay_map(VjRepair *r, VjLay *lay)
{
    return vj_meta_run(r->meta, VJ_RUN_RELEASE, lay_body, lay);
}

static int new_ino_body(VjTxn *txn, void *opaque)
{
    return vj_ino_take(txn, opaque);
}

static int put_inode_body(VjTxn *txn, void *opaque)
{
    return vj_inode_put(txn, opaque);
}

int vj_repair_put_inode(VjRepair *r, const VjInode *inode)
{
    return vj_meta_run(r->meta, VJ_RUN_RELEASE, put_inode_body, (void *)(uintptr_t)inode);
}

VjInode vj_repair_nameless(uint64_t ino)
{
    struct timespec now = vj_clock_real();

    return (VjInode){.ino = ino,
                     .mode = S_IFREG | 0600,
                     .uid = getuid(),
                     .gid = getgid(),
                     .generation = 1,
                     .atime = now,
                     .mtime = now,
                     .ctime = now,
                     .btime = now};
}

int vj_repair_keep_entries(VjRepair *r, uint64_t of, const GArray *entries)
{
    VjInode inode = vj_repair_nameless(0);
    int rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, new_ino_body, &inode.ino);

    inode.root.next_node = 1;
    if (rc == 0) {
        rc = vj_repair_build_map(r, inode.ino, entries, &inode.root);
    }
    if (rc < 0) {
        return rc;
    }
    inode.content = VJ_CONTENT_MAP;
    inode.size = inode.root.bytes;
    inode.stored_bytes = inode.root.stored_bytes;
    rc = vj_repair_put_inode(r, &inode);
    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": %" PRIu64 " bytes of it whose place is lost "
                      "are kept as inode %" PRIu64,
                      of, inode.size, inode.ino);
    }
    return rc;
}

/* ---- nodes that go ----------------------------------------------------------------- */

typedef struct Delete {
    uint64_t ino;
    const VjLooseNode *loose;
    guint count;
} Delete;

static int delete_body(VjTxn *txn, void *opaque)
{
    const Delete *d = opaque;
    int rc = 0;

    for (guint i = 0; rc == 0 && i < d->count; i++) {
        uint8_t key[VJ_MAP_KEY_BYTES];

        vj_map_key_encode(d->ino, d->loose[i].node, key);
        rc = vj_txn_del(txn, VJ_SPACE_NODE, vj_slice(key, sizeof key));
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

static int delete_loose(VjRepair *r, uint64_t ino, const GArray *loose)
{
    int rc = 0;

    for (guint i = 0; rc == 0 && i < loose->len; i += BATCH) {
        Delete d = {.ino = ino,
                    .loose = &g_array_index(loose, VjLooseNode, i),
                    .count = MIN(BATCH, loose->len - i)};

        rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, delete_body, &d);
    }
    return rc;
}

/* ---- one inode --------------------------------------------------------------------- */

typedef struct Ino {
    VjInode inode;
    GHashTable *seen;      /* nodes of its map and of what is being dropped */
    GHashTable *fragments; /* that its map names */
    GHashTable *foreign;   /* borrowed */
    GArray *entries;       /* of its map, when that is wrong */
    GArray *loose;
    GArray *loose_entries; /* what is kept of them */
    uint64_t lost_bytes;
    bool wrong;
    bool subtree_wrong; /* one that is being dropped */
} Ino;

static void ino_clear(Ino *i)
{
    g_hash_table_unref(i->seen);
    g_hash_table_unref(i->fragments);
    g_array_unref(i->entries);
    g_array_unref(i->loose);
    g_array_unref(i->loose_entries);
}
static void ino_init(Ino *i, const VjRepair *r)
{
    *i = (Ino){.foreign = r->foreign,
               .seen = g_hash_table_new(NULL, NULL),
               .fragments = g_hash_table_new(NULL, NULL),
               .entries = g_array_new(FALSE, FALSE, sizeof(VjEntry)),
               .loose = g_array_new(FALSE, FALSE, sizeof(VjLooseNode)),
               .loose_entries = g_array_new(FALSE, FALSE, sizeof(VjEntry))};
}

static int look_at_map(Ino *i, VjTxn *txn)
{
    VjSalvage s = {.txn = txn,
                   .ino = i->inode.ino,
                   .fragments = i->fragments,
                   .foreign = i->foreign};
    int rc = vj_salvage_tree(&s, &i->inode.root, i->seen);

    if (rc == 0 && s.wrong) { /* once more, now keeping what there is */
        g_hash_table_remove_all(i->seen);
        g_hash_table_remove_all(i->fragments);
        s = (VjSalvage){.txn = txn,
                        .ino = i->inode.ino,
                        .fragments = i->fragments,
                        .foreign = i->foreign,
                        .entries = i->entries};
        rc = vj_salvage_tree(&s, &i->inode.root, i->seen);
        i->wrong = true;
        i->lost_bytes = s.lost_bytes;
    }
    return rc;
}

static int look_at_loose(Ino *i, VjTxn *txn)
{
    g_autoptr(GHashTable) none = g_hash_table_new(NULL, NULL);
    uint32_t below = i->inode.content == VJ_CONTENT_MAP ? i->inode.root.next_node : 0;
    VjSalvage s = {.txn = txn,
                   .ino = i->inode.ino,
                   .fragments = none,
                   .foreign = i->foreign,
                   .entries = i->loose_entries,
                   .loose = true};
    int rc = vj_salvage_list_loose(txn, i->inode.ino, i->seen, i->loose);

    if (rc < 0 || i->lost_bytes == 0) {
        return rc; /* nothing is missing: these are what a crash left */
    }
    return vj_salvage_loose_entries(&s, i->loose, below, none);
}

static void forget_look(Ino *i)
{
    g_hash_table_remove_all(i->seen);
    g_hash_table_remove_all(i->fragments);
    g_array_set_size(i->entries, 0);
    g_array_set_size(i->loose, 0);
    g_array_set_size(i->loose_entries, 0);
    i->lost_bytes = 0;
    i->wrong = i->subtree_wrong = false;
}

static int look_body(VjTxn *txn, void *opaque)
{
    Ino *i = opaque;
    VjSalvage dropped = {.txn = txn,
                         .ino = i->inode.ino,
                         .fragments = i->fragments,
                         .foreign = i->foreign};
    int rc = 0;

    forget_look(i);
    if (i->inode.content == VJ_CONTENT_MAP) {
        rc = look_at_map(i, txn);
    }
    if (rc == 0) {
        rc = vj_salvage_orphans(&dropped, i->seen);
        i->subtree_wrong = dropped.wrong;
    }
    return rc < 0 ? rc : look_at_loose(i, txn);
}

static void tell_lost(VjRepair *r, const Ino *i)
{
    uint64_t at = 0;
    unsigned reported = 0;

    for (guint k = 0; k < i->entries->len && reported <= RANGES_REPORTED; k++) {
        const VjEntry *e = &g_array_index(i->entries, VjEntry, k);

        if (e->kind == VJ_SALVAGE_LOST && reported++ < RANGES_REPORTED) {
            vj_repair_say(r,
                          "inode %" PRIu64 ": its bytes %" PRIu64 " to %" PRIu64
                          " are lost and cannot be read",
                          i->inode.ino, at, at + e->length - 1);
        }
        at += e->length;
    }
    if (reported > RANGES_REPORTED) {
        vj_repair_say(r, "inode %" PRIu64 ": and more of it", i->inode.ino);
    }
}

/* Lays a new map under the inode.  Its nodes get numbers that no old one has. */
static int rebuild(VjRepair *r, Ino *i)
{
    VjLay lay = {.ino = i->inode.ino, .root = {.next_node = i->inode.root.next_node}};
    int rc;

    for (guint k = 0; k < i->loose->len; k++) {
        lay.root.next_node =
            MAX(lay.root.next_node, g_array_index(i->loose, VjLooseNode, k).node + 1);
    }
    rc = vj_repair_build_map(r, i->inode.ino, i->entries, &lay.root);
    if (rc == 0) {
        rc = vj_repair_lay_map(r, &lay);
    }
    if (rc == -EFBIG) {
        return 0; /* it stays as it is, and the check goes on saying so */
    }
    if (rc == 0) {
        vj_repair_say(r, "inode %" PRIu64 ": its map was made anew", i->inode.ino);
        tell_lost(r, i);
    }
    return rc;
}

typedef struct Prune {
    const Ino *i;
    GArray *numbers; /* uint32_t */
} Prune;

static int prune_body(VjTxn *txn, void *opaque)
{
    const Prune *p = opaque;
    int rc = 0;

    for (guint k = 0; rc == 0 && k < p->numbers->len; k++) {
        uint8_t key[12];

        vj_be64_set(key, p->i->inode.ino);
        vj_be32_set(key + 8, g_array_index(p->numbers, uint32_t, k));
        rc = vj_txn_del(txn, VJ_SPACE_FRAGMENT, vj_slice(key, sizeof key));
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

static int list_unnamed_body(VjTxn *txn, void *opaque)
{
    const Prune *p = opaque;
    const Ino *i = p->i;
    uint8_t prefix[8];
    VjScan scan;

    g_array_set_size(p->numbers, 0);
    vj_scan_begin(&scan, txn, VJ_SPACE_FRAGMENT, vj_ino_key(i->inode.ino, prefix));
    while (vj_scan_next(&scan) && scan.key.len == 12) {
        uint32_t number = vj_be32_get((const uint8_t *)scan.key.data + 8);

        if (!g_hash_table_contains(i->fragments, GUINT_TO_POINTER(number))) {
            g_array_append_val(p->numbers, number);
        }
    }
    return scan.error;
}

/* Fragments that neither the map nor what is being dropped names. */
static int prune(VjRepair *r, const Ino *i)
{
    g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    Prune p = {.i = i, .numbers = numbers};
    int rc = vj_meta_view(r->meta, list_unnamed_body, &p);

    if (rc < 0 || numbers->len == 0) {
        return rc;
    }
    rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, prune_body, &p);
    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": %u fragments that nothing names were removed",
                      i->inode.ino, numbers->len);
    }
    return rc;
}

typedef struct GetInode {
    uint64_t ino;
    VjInode inode;
} GetInode;

static int get_inode_body(VjTxn *txn, void *opaque)
{
    GetInode *g = opaque;

    return vj_inode_get(txn, g->ino, &g->inode);
}

/* What is left of a map that was replaced, and what was loose before. */
static int sweep(VjRepair *r, const VjInode *inode)
{
    uint64_t ino = inode->ino;
    GetInode get = {.ino = ino};
    Ino now;
    int rc = vj_meta_view(r->meta, get_inode_body, &get);

    ino_init(&now, r);
    now.inode = rc == 0 ? get.inode : *inode;
    rc = rc == -ENOENT ? 0 : rc; /* what is dropped of an inode that is gone */
    if (rc == 0) {
        rc = vj_meta_view(r->meta, look_body, &now);
    }
    if (rc == 0 && !now.wrong) {
        rc = delete_loose(r, ino, now.loose);
    }
    if (rc == 0 && !now.wrong) {
        rc = prune(r, &now);
    }
    ino_clear(&now);
    return rc;
}

static int forget_body(VjTxn *txn, void *opaque)
{
    const uint64_t *ino = opaque;
    uint8_t whole_inode[VJ_MAP_KEY_BYTES];
    VjScan scan;

    vj_map_key_encode(*ino, 0, whole_inode); /* stays */
    vj_scan_begin(&scan, txn, VJ_SPACE_ORPHAN, vj_slice(whole_inode, 8));
    vj_scan_behind(&scan, vj_slice(whole_inode, sizeof whole_inode));
    while (vj_scan_next(&scan) && scan.key.len == VJ_MAP_KEY_BYTES) {
        int rc = vj_txn_del(txn, VJ_SPACE_ORPHAN, scan.key);

        if (rc < 0) {
            return rc;
        }
    }
    return scan.error;
}

/* Subtrees that were to be dropped and are damaged: no record leads to their nodes any
 * more. */
static int forget_subtrees(VjRepair *r, uint64_t ino)
{
    int rc = vj_meta_run(r->meta, VJ_RUN_RELEASE, forget_body, &ino);

    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": what was to be dropped of it is damaged and "
                      "was forgotten",
                      ino);
    }
    return rc;
}

int vj_repair_map(VjRepair *r, const VjInode *inode)
{
    Ino i;
    int rc;

    ino_init(&i, r);
    i.inode = *inode;
    rc = vj_meta_view(r->meta, look_body, &i);
    if (rc == 0 && i.subtree_wrong) {
        rc = forget_subtrees(r, inode->ino);
    }
    if (rc == 0 && i.loose_entries->len > 0) {
        rc = vj_repair_keep_entries(r, inode->ino, i.loose_entries);
    }
    if (rc == 0 && i.wrong) {
        rc = rebuild(r, &i);
    }
    if (rc == 0 && (i.wrong || i.loose->len > 0 || i.subtree_wrong)) {
        if (!i.wrong && !i.subtree_wrong) {
            vj_repair_say(r,
                          "inode %" PRIu64 ": %u map nodes that nothing names were "
                          "removed",
                          inode->ino, i.loose->len);
        }
        rc = sweep(r, inode);
    } else if (rc == 0) {
        rc = prune(r, &i);
    }
    ino_clear(&i);
    return rc;
}
