/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-content.c - maps and inline bytes: what can be reached stays, what is lost is said
 *
 * A map with a damaged node is built anew, beside the old one, from the entries that can
 * be reached; each range between them becomes entries of an object that nobody can read,
 * so that a reader gets an error and no zeroes.  One commit then lays the new map under
 * the inode.  Nodes that no tree leads to any more hold content whose place is unknown:
 * their entries become an inode of their own, which fs gives a name in lost+found.
 *
 * Memory: the entries of the one map that is built anew, and a number for each of its
 * nodes.
 */
#include "file/inode-format.h"
#include "file/repair-private.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

/* Entries, or nodes to delete, of one transaction. */
#define BATCH 4096u
/* Stands for a lost range in a list of entries. */
#define LOST 0
/* Pieces of one lost range: 1 TiB.  A longer one is left as it is. */
#define LOST_MOST 65536u
/* Ranges that are told of one inode. */
#define RANGES_TOLD 16u

/* ---- what maps say of objects ------------------------------------------------------ */

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

static int see_node(VjRepair *r, VjTxn *txn, VjSlice key, VjSlice value, void *opaque)
{
    Needs *n = opaque;
    VjMapImage image;

    (void)r;
    (void)txn;
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

/* ---- entries of a damaged map ------------------------------------------------------ */

typedef struct Salvage {
    VjTxn *txn;
    uint64_t ino;
    GArray *entries;       /* VjEntry; kind LOST: a range; NULL: only look */
    GHashTable *fragments; /* numbers that an entry named, as pointers */
    GHashTable *foreign;   /* VjRepair.foreign; NULL: none */
    uint64_t old_end;      /* behind the entry before, as the damaged map counts */
    uint64_t lost_bytes;
    bool wrong; /* something is not as it has to be */
    bool loose; /* of nodes without a place: lost ranges are not kept */
} Salvage;

static void keep(Salvage *s, const VjEntry *entry)
{
    if (s->entries != NULL) {
        g_array_append_vals(s->entries, entry, 1);
    }
}

static void lose(Salvage *s, uint64_t length)
{
    const VjEntry lost = {.kind = LOST, .length = length};

    s->wrong = true;
    if (length > 0 && !s->loose) {
        s->lost_bytes += length;
        keep(s, &lost);
    }
}

static void keep_object(Salvage *s, const VjEntry *entry)
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

static void keep_fragment(Salvage *s, const VjEntry *entry)
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
    Salvage *s = opaque;
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

/* Walks @root; @seen gets its nodes. */
static int salvage_tree(Salvage *s, const VjMapRoot *root, GHashTable *seen)
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
    rc = vj_meta_run(r->v->meta, VJ_RUN_RELEASE, build_body, b);
    if (rc == 0) {
        b->root = b->next;
    }
    return rc;
}

/* LOST ranges become entries of the lost object. */
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

/* Writes the nodes of a map with these entries; *root says where. */
static int build(VjRepair *r, uint64_t ino, const GArray *entries, VjMapRoot *root)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    Build b = {.ino = ino, .root = *root};
    int rc = 0;

    for (guint i = 0; rc == 0 && i < entries->len; i++) {
        const VjEntry *e = &g_array_index(entries, VjEntry, i);

        if (e->kind == LOST) {
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

typedef struct Lay {
    uint64_t ino;
    VjMapRoot root;
    bool clear_inline;
} Lay;

/* The inode gets a map; an empty one means no content. */
static int lay_body(VjTxn *txn, void *opaque)
{
    const Lay *l = opaque;
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

static int new_ino_body(VjTxn *txn, void *opaque)
{
    return vj_ino_new(txn, opaque);
}

static int put_inode_body(VjTxn *txn, void *opaque)
{
    return vj_inode_put(txn, opaque);
}

/* A file without a name; fs finds it one. */
static VjInode nameless(uint64_t ino)
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

/* An inode of their own for @entries. */
static int keep_entries(VjRepair *r, uint64_t of, const GArray *entries)
{
    VjInode inode = nameless(0);
    int rc = vj_meta_run(r->v->meta, VJ_RUN_RELEASE, new_ino_body, &inode.ino);

    inode.root.next_node = 1;
    if (rc == 0) {
        rc = build(r, inode.ino, entries, &inode.root);
    }
    if (rc < 0) {
        return rc;
    }
    inode.content = VJ_CONTENT_MAP;
    inode.size = inode.root.bytes;
    inode.stored_bytes = inode.root.stored_bytes;
    rc = vj_meta_run(r->v->meta, VJ_RUN_RELEASE, put_inode_body, &inode);
    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": %" PRIu64 " bytes of it whose place is lost "
                      "are kept as inode %" PRIu64,
                      of, inode.size, inode.ino);
    }
    return rc;
}

/* ---- nodes that no tree leads to --------------------------------------------------- */

typedef struct Loose {
    uint32_t node;
    uint8_t level;
    bool has_parent; /* among the loose */
    bool readable;
    VjMapSums sums;
} Loose;

static gint by_node(gconstpointer a, gconstpointer b)
{
    const Loose *x = a, *y = b;

    return x->node < y->node ? -1 : x->node > y->node;
}

/* The next node of @ino behind *node.  -ENOENT. */
static int next_node(VjTxn *txn, uint64_t ino, uint32_t *node, VjSlice *value)
{
    uint8_t after[VJ_MAP_KEY_BYTES];
    VjSlice key;
    int rc;

    vj_map_key_encode(ino, *node, after);
    rc = vj_txn_next(txn, VJ_SPACE_NODE, vj_slice(after, sizeof after), &key, value);
    if (rc == 0 && (key.len != sizeof after || vj_be64_get(key.data) != ino)) {
        return -ENOENT;
    }
    if (rc == 0) {
        *node = vj_be32_get((const uint8_t *)key.data + 8);
    }
    return rc;
}

/* The parents of loose nodes among the loose: GHashTable of node numbers. */
static int list_loose(VjTxn *txn, uint64_t ino, GHashTable *seen, GArray *loose)
{
    g_autoptr(GHashTable) children = g_hash_table_new(NULL, NULL);
    g_autofree VjMapImage *image = g_new(VjMapImage, 1);
    uint32_t node = 0;
    VjSlice value;
    int rc;

    while ((rc = next_node(txn, ino, &node, &value)) == 0) {
        Loose one = {.node = node};

        if (g_hash_table_contains(seen, GUINT_TO_POINTER(node))) {
            continue;
        }
        if (vj_map_image_decode(value, ino, node, image) == 0) {
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
        Loose *one = &g_array_index(loose, Loose, i);

        one->has_parent = g_hash_table_contains(children, GUINT_TO_POINTER(one->node));
    }
    g_array_sort(loose, by_node);
    return rc == -ENOENT ? 0 : rc;
}

/* Entries of loose subtrees, in the order in which their roots were made. */
static int loose_entries(Salvage *s, const GArray *loose, uint32_t below,
                         GHashTable *seen)
{
    int rc = 0;

    for (guint i = 0; rc == 0 && i < loose->len; i++) {
        const Loose *one = &g_array_index(loose, Loose, i);
        const VjMapRoot root = {.node = one->node,
                                .height = (uint8_t)(one->level + 1),
                                .bytes = one->sums.bytes,
                                .stored_bytes = one->sums.stored_bytes};

        if (one->readable && !one->has_parent && one->node < below) {
            rc = salvage_tree(s, &root, seen);
        }
    }
    return rc;
}

typedef struct Delete {
    uint64_t ino;
    const Loose *loose;
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
                    .loose = &g_array_index(loose, Loose, i),
                    .count = MIN(BATCH, loose->len - i)};

        rc = vj_meta_run(r->v->meta, VJ_RUN_RELEASE, delete_body, &d);
    }
    return rc;
}

/* ---- one inode --------------------------------------------------------------------- */

/* Nodes that belong to subtrees which wait to be dropped. */
static int see_orphans(Salvage *s, GHashTable *seen)
{
    uint8_t after[12];
    uint32_t node = 0;
    int rc = 0;

    while (rc == 0) {
        VjSlice key, value;
        VjMapRoot root;
        uint64_t ino;

        vj_be64_set(after, s->ino);
        vj_be32_set(after + 8, node);
        rc = vj_txn_next(s->txn, VJ_SPACE_ORPHAN, vj_slice(after, sizeof after), &key,
                         &value);
        if (rc < 0 || key.len != sizeof after || vj_be64_get(key.data) != s->ino) {
            break;
        }
        node = vj_be32_get((const uint8_t *)key.data + 8);
        if (vj_orphan_decode(key, value, &ino, &root) == 0 && root.node != 0) {
            rc = salvage_tree(s, &root, seen);
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

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
               .loose = g_array_new(FALSE, FALSE, sizeof(Loose)),
               .loose_entries = g_array_new(FALSE, FALSE, sizeof(VjEntry))};
}

static int look_at_map(Ino *i, VjTxn *txn)
{
    Salvage s = {.txn = txn,
                 .ino = i->inode.ino,
                 .fragments = i->fragments,
                 .foreign = i->foreign};
    int rc = salvage_tree(&s, &i->inode.root, i->seen);

    if (rc == 0 && s.wrong) { /* once more, now keeping what there is */
        g_hash_table_remove_all(i->seen);
        g_hash_table_remove_all(i->fragments);
        s = (Salvage){.txn = txn,
                      .ino = i->inode.ino,
                      .fragments = i->fragments,
                      .foreign = i->foreign,
                      .entries = i->entries};
        rc = salvage_tree(&s, &i->inode.root, i->seen);
        i->wrong = true;
        i->lost_bytes = s.lost_bytes;
    }
    return rc;
}

static int look_at_loose(Ino *i, VjTxn *txn)
{
    g_autoptr(GHashTable) none = g_hash_table_new(NULL, NULL);
    uint32_t below = i->inode.content == VJ_CONTENT_MAP ? i->inode.root.next_node : 0;
    Salvage s = {.txn = txn,
                 .ino = i->inode.ino,
                 .fragments = none,
                 .foreign = i->foreign,
                 .entries = i->loose_entries,
                 .loose = true};
    int rc = list_loose(txn, i->inode.ino, i->seen, i->loose);

    if (rc < 0 || i->lost_bytes == 0) {
        return rc; /* nothing is missing: these are what a crash left */
    }
    return loose_entries(&s, i->loose, below, none);
}

static int look(VjRepair *r, Ino *i)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    Salvage dropped = {
        .ino = i->inode.ino, .fragments = i->fragments, .foreign = i->foreign};
    int rc = vj_meta_begin_read(r->v->meta, &txn);

    dropped.txn = txn;
    if (rc == 0 && i->inode.content == VJ_CONTENT_MAP) {
        rc = look_at_map(i, txn);
    }
    if (rc == 0) {
        rc = see_orphans(&dropped, i->seen);
        i->subtree_wrong = dropped.wrong;
    }
    return rc < 0 ? rc : look_at_loose(i, txn);
}

static void tell_lost(VjRepair *r, const Ino *i)
{
    uint64_t at = 0;
    unsigned told = 0;

    for (guint k = 0; k < i->entries->len && told <= RANGES_TOLD; k++) {
        const VjEntry *e = &g_array_index(i->entries, VjEntry, k);

        if (e->kind == LOST && told++ < RANGES_TOLD) {
            vj_repair_say(r,
                          "inode %" PRIu64 ": its bytes %" PRIu64 " to %" PRIu64
                          " are lost and cannot be read",
                          i->inode.ino, at, at + e->length - 1);
        }
        at += e->length;
    }
    if (told > RANGES_TOLD) {
        vj_repair_say(r, "inode %" PRIu64 ": and more of it", i->inode.ino);
    }
}

/* Lays a new map under the inode.  Its nodes get numbers that no old one has. */
static int rebuild(VjRepair *r, Ino *i)
{
    Lay lay = {.ino = i->inode.ino, .root = {.next_node = i->inode.root.next_node}};
    int rc;

    for (guint k = 0; k < i->loose->len; k++) {
        lay.root.next_node =
            MAX(lay.root.next_node, g_array_index(i->loose, Loose, k).node + 1);
    }
    rc = build(r, i->inode.ino, i->entries, &lay.root);
    if (rc == 0) {
        rc = vj_meta_run(r->v->meta, VJ_RUN_RELEASE, lay_body, &lay);
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

static int list_unnamed(VjTxn *txn, const Ino *i, GArray *numbers)
{
    uint8_t after[12];
    VjSlice key, value;
    int rc;

    vj_be64_set(after, i->inode.ino);
    vj_be32_set(after + 8, 0);
    while ((rc = vj_txn_next(txn, VJ_SPACE_FRAGMENT, vj_slice(after, sizeof after), &key,
                             &value)) == 0 &&
           key.len == sizeof after && vj_be64_get(key.data) == i->inode.ino) {
        uint32_t number = vj_be32_get((const uint8_t *)key.data + 8);

        memcpy(after, key.data, sizeof after);
        if (!g_hash_table_contains(i->fragments, GUINT_TO_POINTER(number))) {
            g_array_append_val(numbers, number);
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

/* Fragments that neither the map nor what is being dropped names. */
static int prune(VjRepair *r, const Ino *i)
{
    g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    Prune p = {.i = i, .numbers = numbers};
    int rc;

    {
        VJ_AUTO_READ_TXN *txn = NULL;

        rc = vj_meta_begin_read(r->v->meta, &txn);
        rc = rc < 0 ? rc : list_unnamed(txn, i, numbers);
    }
    if (rc < 0 || numbers->len == 0) {
        return rc;
    }
    rc = vj_meta_run(r->v->meta, VJ_RUN_RELEASE, prune_body, &p);
    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": %u fragments that nothing names were removed",
                      i->inode.ino, numbers->len);
    }
    return rc;
}

/* What is left of a map that was replaced, and what was loose before. */
static int sweep(VjRepair *r, const VjInode *inode)
{
    uint64_t ino = inode->ino;
    Ino now;
    int rc;

    ino_init(&now, r);
    now.inode = *inode;
    {
        VJ_AUTO_READ_TXN *txn = NULL;

        rc = vj_meta_begin_read(r->v->meta, &txn);
        rc = rc < 0 ? rc : vj_inode_get(txn, ino, &now.inode);
    }
    rc = rc == -ENOENT ? 0 : rc; /* what is dropped of an inode that is gone */
    if (rc == 0) {
        rc = look(r, &now);
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
    uint8_t after[12];
    VjSlice key, value;
    int rc;

    vj_be64_set(after, *ino);
    vj_be32_set(after + 8, 0);
    while ((rc = vj_txn_next(txn, VJ_SPACE_ORPHAN, vj_slice(after, sizeof after), &key,
                             &value)) == 0 &&
           key.len == sizeof after && vj_be64_get(key.data) == *ino) {
        memcpy(after, key.data, sizeof after);
        rc = vj_txn_del(txn, VJ_SPACE_ORPHAN, vj_slice(after, sizeof after));
        if (rc < 0) {
            return rc;
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

/* Subtrees that were to be dropped and are damaged: their nodes are nobody's now. */
static int forget_subtrees(VjRepair *r, uint64_t ino)
{
    int rc = vj_meta_run(r->v->meta, VJ_RUN_RELEASE, forget_body, &ino);

    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": what was to be dropped of it is damaged and "
                      "was forgotten",
                      ino);
    }
    return rc;
}

static int repair_map(VjRepair *r, const VjInode *inode)
{
    Ino i;
    int rc;

    ino_init(&i, r);
    i.inode = *inode;
    rc = look(r, &i);
    if (rc == 0 && i.subtree_wrong) {
        rc = forget_subtrees(r, inode->ino);
    }
    if (rc == 0 && i.loose_entries->len > 0) {
        rc = keep_entries(r, inode->ino, i.loose_entries);
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

/* ---- inline content ---------------------------------------------------------------- */

static int get_inode(VjRepair *r, uint64_t ino, VjInode *out)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    uint8_t key[8];
    VjSlice value;
    int rc = vj_meta_begin_read(r->v->meta, &txn);

    if (rc == 0) {
        rc = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(ino, key), &value);
    }
    return rc < 0 ? rc : vj_inode_decode(value, ino, out);
}

/* The range of the whole file is lost. */
static int lose_inline(VjRepair *r, const VjInode *inode)
{
    g_autoptr(GArray) entries = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    const VjEntry lost = {.kind = LOST, .length = MAX(inode->size, 1)};
    Lay lay = {.ino = inode->ino,
               .root = {.next_node = MAX(inode->root.next_node, 1)},
               .clear_inline = true};
    int rc;

    g_array_append_val(entries, lost);
    rc = build(r, inode->ino, entries, &lay.root);
    if (rc == 0) {
        rc = vj_meta_run(r->v->meta, VJ_RUN_RELEASE, lay_body, &lay);
    }
    if (rc == 0) {
        vj_repair_say(r,
                      "inode %" PRIu64 ": its %" PRIu64 " bytes are lost and cannot be "
                      "read%s",
                      inode->ino, inode->size,
                      S_ISLNK(inode->mode) ? "; the symlink became a file" : "");
    }
    return rc;
}

typedef enum InlineState {
    INLINE_GOOD,
    INLINE_LOST,
    INLINE_SIZE,
    INLINE_FOREIGN
} InlineState;

/* *size, *stored_bytes: what the record itself says. */
static int look_at_inline(VjRepair *r, const VjInode *inode, InlineState *state,
                          uint64_t *size, uint64_t *stored_bytes)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    uint8_t bytes[VJ_SYMLINK_MAX], key[8];
    VjInlineHead head;
    VjSlice value;
    int rc = vj_meta_begin_read(r->v->meta, &txn);

    *state = INLINE_LOST;
    if (rc == 0) {
        rc = vj_txn_get(txn, VJ_SPACE_INLINE, vj_ino_key(inode->ino, key), &value);
    }
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (!vj_repair_is_sealed(value) || value.len <= sizeof head) {
        return 0;
    }
    memcpy(&head, value.data, sizeof head);
    if (GUINT32_FROM_LE(head.magic) != VJ_INLINE_MAGIC ||
        GUINT64_FROM_LE(head.ino) != inode->ino) {
        return 0;
    }
    *size = GUINT16_FROM_LE(head.plain_bytes);
    if (*size > 0 && *size <= VJ_SYMLINK_MAX && *size != inode->size) {
        *state = INLINE_SIZE;
        return 0;
    }
    rc = vj_inline_get(txn, inode, bytes, sizeof bytes, stored_bytes);
    *state = rc == 0 ? INLINE_GOOD : rc == -EOPNOTSUPP ? INLINE_FOREIGN : INLINE_LOST;
    return rc == -EBADMSG || rc == -EOPNOTSUPP ? 0 : rc;
}

static int put_value(VjRepair *r, const VjInode *inode)
{
    return vj_meta_run(r->v->meta, VJ_RUN_RELEASE, put_inode_body,
                       (void *)(uintptr_t)inode);
}

static int repair_inline(VjRepair *r, VjInode *inode)
{
    InlineState state;
    uint64_t size = inode->size, stored_bytes = inode->stored_bytes;
    int rc = look_at_inline(r, inode, &state, &size, &stored_bytes);

    if (rc == 0 && state == INLINE_LOST) {
        rc = lose_inline(r, inode);
        return rc < 0 ? rc : get_inode(r, inode->ino, inode);
    }
    if (rc == 0 && state == INLINE_SIZE) {
        inode->size = size; /* its stored bytes are looked at in the next round */
        rc = put_value(r, inode);
        if (rc == 0) {
            vj_repair_say(
                r, "inode %" PRIu64 ": its size is that of its %" PRIu64 " bytes inline",
                inode->ino, size);
        }
    } else if (rc == 0 && state == INLINE_GOOD && stored_bytes != inode->stored_bytes) {
        inode->stored_bytes = stored_bytes;
        rc = put_value(r, inode);
        if (rc == 0) {
            vj_repair_say(r, "inode %" PRIu64 ": its stored bytes were counted anew",
                          inode->ino);
        }
    }
    return rc;
}

/* ---- values ------------------------------------------------------------------------ */

static bool is_known_type(mode_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISCHR(mode) ||
           S_ISBLK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode);
}

/* Moves what a directory or device cannot have to a file of its own. */
static int evict_body(VjTxn *txn, void *opaque)
{
    VjInode *inode = opaque, file = nameless(0);
    uint8_t bytes[VJ_SYMLINK_MAX];
    VjInlineRecord record;
    int rc = vj_inline_get(txn, inode, bytes, sizeof bytes, NULL);
    bool is_lost = rc == -EBADMSG; /* nothing of it can be read */

    if (rc == 0) {
        rc = vj_ino_new(txn, &file.ino);
    }
    if (rc == 0) {
        vj_inline_make(file.ino, NULL, bytes, inode->size, &record);
        rc = vj_inline_put(txn, file.ino, &record);
    }
    if (rc == 0) {
        file.content = VJ_CONTENT_INLINE;
        file.size = file.stored_bytes = inode->size;
        rc = vj_inode_put(txn, &file);
    }
    if (rc == 0 || is_lost) {
        rc = vj_inline_del(txn, inode->ino);
        rc = rc == -ENOENT ? 0 : rc;
    }
    if (rc == 0) {
        VjInode without = *inode;

        without.content = VJ_CONTENT_EMPTY;
        without.size = without.stored_bytes = 0;
        rc = vj_inode_put(txn, &without);
    }
    return rc;
}

static int evict_map(VjRepair *r, VjInode *inode)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    g_autoptr(GHashTable) fragments = g_hash_table_new(NULL, NULL);
    g_autoptr(GArray) entries = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    Salvage s = {.ino = inode->ino,
                 .fragments = fragments,
                 .foreign = r->foreign,
                 .entries = entries,
                 .loose = true};
    int rc;

    {
        VJ_AUTO_READ_TXN *txn = NULL;

        rc = vj_meta_begin_read(r->v->meta, &txn);
        s.txn = txn;
        rc = rc < 0 ? rc : salvage_tree(&s, &inode->root, seen);
    }
    if (rc == 0 && entries->len > 0) {
        rc = keep_entries(r, inode->ino, entries);
    }
    if (rc == 0) {
        inode->content = VJ_CONTENT_EMPTY;
        inode->size = inode->stored_bytes = 0;
        inode->root = (VjMapRoot){.next_node = inode->root.next_node};
        rc = put_value(r, inode);
    }
    return rc;
}

/* -EOPNOTSUPP: only another build can read it. */
static int evict_inline(VjRepair *r, const VjInode *inode)
{
    VjInode as_stored = *inode;
    uint64_t size = inode->size, stored_bytes;
    InlineState state;
    int rc = look_at_inline(r, inode, &state, &size, &stored_bytes);

    if (rc < 0) {
        return rc;
    }
    if (state == INLINE_SIZE) {
        as_stored.size = size; /* the record knows better */
    }
    return vj_meta_run(r->v->meta, VJ_RUN_RELEASE, evict_body, &as_stored);
}

static int evict(VjRepair *r, VjInode *inode)
{
    int rc =
        inode->content == VJ_CONTENT_MAP ? evict_map(r, inode) : evict_inline(r, inode);

    if (rc == -EOPNOTSUPP) {
        return 0; /* stays as it is, and stays a problem */
    }
    if (rc == 0) {
        inode->content = VJ_CONTENT_EMPTY;
        vj_repair_say(r,
                      "inode %" PRIu64 ": its content became a file of its own, it is "
                      "no regular file",
                      inode->ino);
    }
    return rc;
}

static int repair_values(VjRepair *r, VjInode *inode)
{
    VjInode was = *inode;

    if (!is_known_type(inode->mode)) {
        inode->mode = S_IFREG | (inode->mode & 07777);
    }
    if (inode->content == VJ_CONTENT_EMPTY && S_ISLNK(inode->mode) && inode->nlink > 0) {
        inode->mode = S_IFREG | 0600;
    }
    if (inode->content == VJ_CONTENT_EMPTY) {
        inode->stored_bytes = 0;
    }
    if (was.mode != inode->mode || was.stored_bytes != inode->stored_bytes) {
        int rc = put_value(r, inode);

        if (rc < 0) {
            return rc;
        }
        vj_repair_say(r, "inode %" PRIu64 ": %s", inode->ino,
                      was.mode != inode->mode ? "it became a regular file"
                                              : "its stored bytes were counted anew");
    }
    if (!S_ISREG(inode->mode) && !S_ISLNK(inode->mode) &&
        inode->content != VJ_CONTENT_EMPTY) {
        return evict(r, inode);
    }
    return 0;
}

/* Of one inode: what its record promises is there, nothing else is. */
static int repair_inode(VjRepair *r, VjInode *inode)
{
    int rc = repair_values(r, inode);

    if (rc == 0 && inode->content == VJ_CONTENT_INLINE) {
        rc = repair_inline(r, inode);
    }
    return rc < 0 ? rc : repair_map(r, inode);
}

/* ---- all of them ------------------------------------------------------------------- */

/* The first inode behind *ino in one of the spaces that have one in their keys, which have
 * the length of such keys.  There may be one of number 0, and *begun says that it was seen. */
static int next_ino(VjRepair *r, VjSpace space, bool *begun, uint64_t *ino)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    uint8_t after[VJ_META_KEY_MAX];
    VjSlice key, value;
    int rc = vj_meta_begin_read(r->v->meta, &txn);

    vj_be64_set(after, *ino);
    memset(after + 8, 0xff, sizeof after - 8);
    if (rc == 0) {
        rc = vj_txn_next(
            txn, space,
            !*begun ? vj_slice(NULL, 0)
                    : vj_slice(after, space == VJ_SPACE_NODE || space == VJ_SPACE_ORPHAN
                                          ? VJ_MAP_KEY_BYTES
                                          : 8),
            &key, &value);
    }
    if (rc == 0) {
        *begun = true;
        *ino = key.len >= 8 ? vj_be64_get(key.data) : *ino + 1;
    }
    return rc;
}

static int repair_inodes(VjRepair *r)
{
    uint64_t ino = 0;
    bool begun = false;
    int rc;

    while ((rc = next_ino(r, VJ_SPACE_INODE, &begun, &ino)) == 0) {
        VjInode inode;

        rc = get_inode(r, ino, &inode);
        if (rc == 0) {
            rc = repair_inode(r, &inode);
        }
        if (rc < 0 && rc != -EBADMSG && rc != -ENOENT) {
            return rc;
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

typedef struct Found {
    VjInode inode;
    bool is_there, is_orphan, has_content;
} Found;

static int look_for(VjRepair *r, uint64_t ino, Found *f)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    uint8_t key[8], after[12];
    VjSlice value, found;
    int rc = vj_meta_begin_read(r->v->meta, &txn);

    *f = (Found){.inode = nameless(ino)};
    if (rc == 0) {
        rc = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(ino, key), &value);
    }
    f->is_there = rc == 0;
    if (rc == -ENOENT) {
        vj_be64_set(after, ino - 1);
        vj_be32_set(after + 8, UINT32_MAX);
        rc = vj_txn_next(txn, VJ_SPACE_ORPHAN, vj_slice(after, sizeof after), &found,
                         &value);
        f->is_orphan = rc == 0 && found.len >= 8 && vj_be64_get(found.data) == ino;
        rc = rc == -ENOENT ? 0 : rc;
    }
    if (rc == 0 && !f->is_there && !f->is_orphan) {
        rc = vj_repair_content(txn, ino, &f->inode, &f->has_content);
    }
    return rc;
}

/* Content whose inode is gone becomes a file without a name, unless it is being dropped. */
static int repair_ownerless(VjRepair *r, VjSpace space)
{
    uint64_t ino = 0;
    bool begun = false;
    int rc;

    while ((rc = next_ino(r, space, &begun, &ino)) == 0) {
        Found f;

        if (ino == 0 || ino >= VJ_INO_MAX) {
            continue;
        }
        rc = look_for(r, ino, &f);
        if (rc == 0 && f.is_there) {
            continue;
        }
        if (rc == 0 && f.has_content) {
            rc = put_value(r, &f.inode);
            if (rc == 0) {
                vj_repair_say(r,
                              "inode %" PRIu64 ": its record is missing, its %" PRIu64
                              " bytes are kept",
                              ino, f.inode.size);
            }
        }
        if (rc == 0) {
            rc = repair_map(r, &f.inode);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

/* Bytes beside other content, or of nobody. */
static int check_inline_use(VjRepair *r, VjTxn *txn, VjSlice key, VjSlice value,
                            void *opaque)
{
    uint64_t ino = vj_be64_get(key.data);
    uint8_t ino_key[8];
    VjInode inode;
    VjSlice record;
    int rc = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(ino, ino_key), &record);

    (void)value;
    (void)opaque;
    if (rc == 0 && (vj_inode_decode(record, ino, &inode) < 0 ||
                    inode.content == VJ_CONTENT_INLINE)) {
        return 0;
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    vj_repair_del(r, VJ_SPACE_INLINE, key);
    vj_repair_say(r, "inode %" PRIu64 ": inline content that it does not use was removed",
                  ino);
    return 0;
}

/* Of an inode that is not there; those of others went with the look at their maps. */
static int check_fragment_use(VjRepair *r, VjTxn *txn, VjSlice key, VjSlice value,
                              void *opaque)
{
    uint64_t ino = vj_be64_get(key.data);
    uint8_t ino_key[8];
    VjSlice record;
    int rc = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(ino, ino_key), &record);

    (void)value;
    (void)opaque;
    if (rc == -ENOENT) {
        vj_repair_del(r, VJ_SPACE_FRAGMENT, key);
        vj_repair_say(r, "inode %" PRIu64 ": a fragment of nobody was removed", ino);
        rc = 0;
    }
    return rc;
}

int vj_repair_contents(VjRepair *r)
{
    int rc = vj_repair_object_records(r);

    if (rc == 0) {
        rc = repair_inodes(r);
    }
    if (rc == 0) {
        rc = repair_ownerless(r, VJ_SPACE_NODE);
    }
    if (rc == 0) {
        rc = repair_ownerless(r, VJ_SPACE_INLINE);
    }
    if (rc == 0) {
        rc = vj_repair_each(r, VJ_SPACE_INLINE, check_inline_use, NULL);
    }
    return rc < 0 ? rc : vj_repair_each(r, VJ_SPACE_FRAGMENT, check_fragment_use, NULL);
}

/* ---- an inode whose record is lost ------------------------------------------------- */

/* Of the nodes that no other names: the highest, then the one with the most bytes. */
static const Loose *best_root(const GArray *loose)
{
    const Loose *best = NULL;

    for (guint i = 0; i < loose->len; i++) {
        const Loose *one = &g_array_index(loose, Loose, i);

        if (one->readable && !one->has_parent &&
            (best == NULL || one->level > best->level ||
             (one->level == best->level && one->sums.bytes > best->sums.bytes))) {
            best = one;
        }
    }
    return best;
}

static int content_inline(VjTxn *txn, uint64_t ino, VjInode *inode, bool *found)
{
    VjInlineHead head;
    uint8_t key[8];
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_INLINE, vj_ino_key(ino, key), &value);

    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (vj_repair_is_sealed(value) &&
        value.len > sizeof head + VJ_INLINE_CHECKSUM_BYTES) {
        memcpy(&head, value.data, sizeof head);
        inode->size = GUINT16_FROM_LE(head.plain_bytes);
        *found = inode->size > 0 && inode->size <= VJ_SYMLINK_MAX &&
                 GUINT64_FROM_LE(head.ino) == ino;
    }
    inode->content = *found ? VJ_CONTENT_INLINE : VJ_CONTENT_EMPTY;
    inode->size = *found ? inode->size : 0;
    inode->stored_bytes = *found ? value.len - sizeof head - VJ_INLINE_CHECKSUM_BYTES : 0;
    return 0;
}

int vj_repair_content(VjTxn *txn, uint64_t ino, VjInode *inode, bool *found)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    g_autoptr(GHashTable) fragments = g_hash_table_new(NULL, NULL);
    g_autoptr(GArray) loose = g_array_new(FALSE, FALSE, sizeof(Loose));
    Salvage s = {.txn = txn, .ino = ino, .fragments = fragments};
    const Loose *best;
    int rc = see_orphans(&s, seen);

    *found = false;
    inode->content = VJ_CONTENT_EMPTY;
    inode->size = inode->stored_bytes = 0;
    inode->root = (VjMapRoot){0};
    if (rc == 0) {
        rc = list_loose(txn, ino, seen, loose);
    }
    if (rc < 0) {
        return rc;
    }
    best = best_root(loose);
    if (best == NULL || best->sums.bytes > VJ_FILE_SIZE_MAX) {
        return content_inline(txn, ino, inode, found);
    }
    inode->content = VJ_CONTENT_MAP;
    inode->root =
        (VjMapRoot){.node = best->node,
                    .next_node = g_array_index(loose, Loose, loose->len - 1).node + 1,
                    .height = (uint8_t)(best->level + 1),
                    .bytes = best->sums.bytes,
                    .stored_bytes = best->sums.stored_bytes};
    inode->size = best->sums.bytes;
    inode->stored_bytes = best->sums.stored_bytes;
    *found = true;
    return 0;
}
