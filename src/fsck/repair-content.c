/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-content.c - the content of all inodes: values, what has no inode
 *
 * Maps are repair-map.c's, inline bytes repair-inline.c's.  Content of what cannot have
 * any becomes a file of its own, and so does content whose inode is gone.
 */
#include "file/inode-format.h"
#include "fsck/repair-map-private.h"

#include <inttypes.h>
#include <sys/stat.h>

/* ---- values ------------------------------------------------------------------------ */

static int get_inode(VjRepair *r, uint64_t ino, VjInode *out)
{
    uint8_t key[8];
    VjSlice value;
    int rc = vj_repair_get(r, VJ_SPACE_INODE, vj_ino_key(ino, key), &value);

    return rc < 0 ? rc : vj_inode_decode(value, ino, out);
}

static bool is_known_type(mode_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISCHR(mode) ||
           S_ISBLK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode);
}

typedef struct EvictLook {
    const VjInode *inode;
    GHashTable *foreign; /* borrowed */
    GArray *entries;     /* out: VjEntry */
} EvictLook;

static int evict_look_body(VjTxn *txn, void *opaque)
{
    const EvictLook *l = opaque;
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    g_autoptr(GHashTable) fragments = g_hash_table_new(NULL, NULL);
    VjSalvage s = {.txn = txn,
                   .ino = l->inode->ino,
                   .fragments = fragments,
                   .foreign = l->foreign,
                   .entries = l->entries,
                   .loose = true};

    g_array_set_size(l->entries, 0);
    return vj_salvage_tree(&s, &l->inode->root, seen);
}

static int evict_map(VjRepair *r, VjInode *inode)
{
    g_autoptr(GArray) entries = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    EvictLook look = {.inode = inode, .foreign = r->foreign, .entries = entries};
    int rc = vj_meta_view(r->meta, evict_look_body, &look);

    if (rc == 0 && entries->len > 0) {
        rc = vj_repair_keep_entries(r, inode->ino, entries);
    }
    if (rc == 0) {
        inode->content = VJ_CONTENT_EMPTY;
        inode->size = inode->stored_bytes = 0;
        inode->root = (VjMapRoot){.next_node = inode->root.next_node};
        rc = vj_repair_put_inode(r, inode);
    }
    return rc;
}

static int evict(VjRepair *r, VjInode *inode)
{
    int rc;

    if (inode->content == VJ_CONTENT_INLINE) {
        return vj_repair_evict_inline(r, inode);
    }
    rc = evict_map(r, inode);
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
        int rc = vj_repair_put_inode(r, inode);

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
        rc = vj_repair_inline(r, inode);
    }
    return rc < 0 ? rc : vj_repair_map(r, inode);
}

/* ---- all of them ------------------------------------------------------------------- */

/* The inodes that have records in one of the spaces whose keys begin with a number. */
typedef struct Inos {
    VjSpace space;
    uint64_t after; /* the last one */
    bool begun;     /* there may be one of number 0, and it was seen */
    uint64_t ino;   /* out: the next one */
} Inos;

/* Behind all keys of the last one that have the length of such keys. */
static int next_ino_body(VjTxn *txn, void *opaque)
{
    Inos *i = opaque;
    bool is_long = i->space == VJ_SPACE_NODE || i->space == VJ_SPACE_ORPHAN;
    uint8_t after[VJ_MAP_KEY_BYTES];
    VjSlice key, value;
    int rc;

    vj_be64_set(after, i->after);
    memset(after + 8, 0xff, sizeof after - 8);
    rc = vj_txn_next(txn, i->space,
                     vj_slice(after, !i->begun ? 0
                                     : is_long ? sizeof after
                                               : 8),
                     &key, &value);
    if (rc == 0) {
        i->ino = key.len >= 8 ? vj_be64_get(key.data) : i->after + 1;
    }
    return rc;
}

/* -ENOENT: there is no other. */
static int next_ino(VjRepair *r, Inos *i)
{
    int rc = vj_meta_view(r->meta, next_ino_body, i);

    if (rc == 0) {
        i->begun = true;
        i->after = i->ino;
    }
    return rc;
}

static int repair_inodes(VjRepair *r)
{
    Inos all = {.space = VJ_SPACE_INODE};
    int rc;

    while ((rc = next_ino(r, &all)) == 0) {
        VjInode inode;

        rc = get_inode(r, all.ino, &inode);
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
    VjInode nameless; /* in; */
    VjInode inode;    /* out: with its content, as the others */
    bool is_there, is_orphan, has_content;
} Found;

static int look_for_body(VjTxn *txn, void *opaque)
{
    Found *f = opaque;
    uint64_t ino = f->nameless.ino;
    uint8_t key[8], after[12];
    VjSlice value, found;
    int rc = vj_txn_get(txn, VJ_SPACE_INODE, vj_ino_key(ino, key), &value);

    f->inode = f->nameless;
    f->is_there = rc == 0;
    f->is_orphan = f->has_content = false;
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

/* Content whose inode is gone becomes a file without a name, unless it is being
 * dropped. */
static int repair_ownerless(VjRepair *r, VjSpace space)
{
    Inos all = {.space = space};
    int rc;

    while ((rc = next_ino(r, &all)) == 0) {
        Found f = {.nameless = vj_repair_nameless(all.ino)};

        if (all.ino == 0 || all.ino >= VJ_INO_MAX) {
            continue;
        }
        rc = vj_meta_view(r->meta, look_for_body, &f);
        if (rc == 0 && f.is_there) {
            continue;
        }
        if (rc == 0 && f.has_content) {
            rc = vj_repair_put_inode(r, &f.inode);
            if (rc == 0) {
                vj_repair_say(r,
                              "inode %" PRIu64 ": its record was missing, what is left "
                              "of its %" PRIu64 " bytes is kept",
                              all.ino, f.inode.size);
            }
        }
        if (rc == 0 && f.inode.content == VJ_CONTENT_INLINE) {
            rc = vj_repair_inline(r, &f.inode);
        }
        if (rc == 0) {
            rc = vj_repair_map(r, &f.inode);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

/* Bytes beside other content, or of no inode. */
static int check_inline_use(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    uint64_t ino = vj_be64_get(key.data);
    uint8_t ino_key[8];
    VjInode inode;
    VjSlice record;
    int rc = vj_repair_get(r, VJ_SPACE_INODE, vj_ino_key(ino, ino_key), &record);

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
static int check_fragment_use(VjRepair *r, VjSlice key, VjSlice value, void *opaque)
{
    uint64_t ino = vj_be64_get(key.data);
    uint8_t ino_key[8];
    VjSlice record;
    int rc = vj_repair_get(r, VJ_SPACE_INODE, vj_ino_key(ino, ino_key), &record);

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
static const VjLooseNode *best_root(const GArray *loose)
{
    const VjLooseNode *best = NULL;

    for (guint i = 0; i < loose->len; i++) {
        const VjLooseNode *one = &g_array_index(loose, VjLooseNode, i);

        if (one->readable && !one->has_parent &&
            (best == NULL || one->level > best->level ||
             (one->level == best->level && one->sums.bytes > best->sums.bytes))) {
            best = one;
        }
    }
    return best;
}

int vj_repair_content(VjTxn *txn, uint64_t ino, VjInode *inode, bool *found)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    g_autoptr(GHashTable) fragments = g_hash_table_new(NULL, NULL);
    g_autoptr(GArray) loose = g_array_new(FALSE, FALSE, sizeof(VjLooseNode));
    VjSalvage s = {.txn = txn, .ino = ino, .fragments = fragments};
    const VjLooseNode *best;
    int rc = vj_salvage_orphans(&s, seen);

    *found = false;
    inode->content = VJ_CONTENT_EMPTY;
    inode->size = inode->stored_bytes = 0;
    inode->root = (VjMapRoot){0};
    if (rc == 0) {
        rc = vj_salvage_list_loose(txn, ino, seen, loose);
    }
    if (rc < 0) {
        return rc;
    }
    best = best_root(loose);
    if (best == NULL || best->sums.bytes > VJ_MAP_BYTES_MAX) {
        return vj_repair_content_inline(txn, ino, inode, found);
    }
    inode->content = VJ_CONTENT_MAP;
    inode->root = (VjMapRoot){
        .node = best->node,
        .next_node = g_array_index(loose, VjLooseNode, loose->len - 1).node + 1,
        .height = (uint8_t)(best->level + 1),
        .bytes = best->sums.bytes,
        .stored_bytes = best->sums.stored_bytes};
    inode->size = best->sums.bytes;
    inode->stored_bytes = best->sums.stored_bytes;
    *found = true;
    return 0;
}
