/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * dir.c - reading directories
 *
 * A call collects names in one snapshot, ends the transaction, and then visits: visitors
 * may be slow, and attributes are looked at later, many in a transaction.
 */
#include "file/records.h"
#include "fs/fs-private.h"

#define VJ_DIR_SELF_COOKIE 1u
#define VJ_DIR_PARENT_COOKIE 2u
/* Most names of one call, whatever room there is. */
#define VJ_DIR_BATCH_MAX 4096u
/* Bytes that a name takes at a reader beside itself: a lower bound, so that room
 * fills. */
#define VJ_DIR_ENTRY_BYTES 24u
#define VJ_DIR_ENTRY_PLUS_BYTES 152u
/* Where keys are far, so many names and inodes are brought nearer at a time. */
#define VJ_DIR_AHEAD 1024u

typedef struct DirItem {
    uint64_t ino, cookie;
    uint32_t name; /* offset in names */
    uint8_t type;
} DirItem;

typedef struct DirBatch {
    GArray *items;     /* of DirItem */
    GByteArray *names; /* each with its NUL */
} DirBatch;

static void batch_clear(DirBatch *b)
{
    g_array_unref(b->items);
    g_byte_array_unref(b->names);
}

static void batch_add(DirBatch *b, VjDentry d, const void *name, size_t len)
{
    DirItem item = {
        .ino = d.ino,
        .cookie = d.cookie,
        .type = d.type,
        .name = b->names->len,
    };

    g_array_append_val(b->items, item);
    g_byte_array_append(b->names, name, (guint)len);
    g_byte_array_append(b->names, (const guint8 *)"", 1);
}

/*
 * The record at @cookie is damaged.  A name has two, and the key of this one says which
 * name it is: so the other is looked for, and nothing of the directory is lost.  0 also
 * when no name has that cookie; -EBADMSG when names are damaged that may be it.
 */
static int batch_add_by_name(VjTxn *txn, uint64_t dir, uint64_t cookie, DirBatch *b)
{
    bool is_damaged = false;
    VjFsKey key;
    VjScan scan;

    vj_log_error("directory %" G_GUINT64_FORMAT ": the order of names is damaged", dir);
    vj_fs_key_name(&key, dir, "", 0);
    vj_scan_begin(&scan, txn, VJ_SPACE_DENTRY, vj_fs_key_slice(&key));
    while (vj_scan_next(&scan) && scan.key.len <= VJ_FS_KEY_MAX) {
        VjDentry d;

        if (vj_dentry_decode(scan.key, scan.value, &d) < 0) {
            is_damaged = true;
        } else if (d.cookie == cookie) {
            batch_add(b, d, (const uint8_t *)scan.key.data + 8, scan.key.len - 8);
            return 0;
        }
    }
    return scan.error < 0 ? scan.error : is_damaged ? -EBADMSG : 0;
}

/* What a batch is to be filled with. */
typedef struct Fill {
    uint64_t dir, cookie;
    uint64_t *end; /* as in vj_fs_readdir */
    size_t about_bytes, entry_bytes;
    bool with_attr;
    DirBatch *batch;
} Fill;

/* ---- Where keys are far ----------------------------------------------------------- */

typedef struct InodeKeys {
    size_t count;
    VjKey keys[VJ_DIR_AHEAD];
    uint8_t bytes[VJ_DIR_AHEAD][8];
} InodeKeys;

static void keys_add(InodeKeys *all, uint64_t ino)
{
    all->keys[all->count] = (VjKey){
        .space = VJ_SPACE_INODE,
        .key = vj_ino_key(ino, all->bytes[all->count]),
    };
    all->count++;
}

static bool has_far_inode(VjTxn *txn, const DirBatch *b)
{
    for (guint i = 0; i < b->items->len; i++) {
        uint8_t bytes[8];
        VjSlice key = vj_ino_key(g_array_index(b->items, DirItem, i).ino, bytes);

        if (vj_txn_is_far(txn, (VjKey){.space = VJ_SPACE_INODE, .key = key})) {
            return true;
        }
    }
    return false;
}

/* The inodes of the batch, and of the names behind it, will be asked for. */
static void expect_inodes(VjTxn *txn, const DirBatch *b, VjScan *scan,
                          uint64_t entry_count)
{
    g_autofree InodeKeys *all = NULL;
    VjSlice name;
    VjDentry d;

    if (!has_far_inode(txn, b)) {
        return;
    }
    all = g_new0(InodeKeys, 1);
    for (guint i = 0; i < b->items->len && all->count < VJ_DIR_AHEAD; i++) {
        keys_add(all, g_array_index(b->items, DirItem, i).ino);
    }
    while (all->count < MIN(entry_count, VJ_DIR_AHEAD)) {
        vj_txn_expect_run(txn, VJ_SPACE_COOKIE, scan->key,
                          MIN(entry_count, VJ_DIR_AHEAD));
        if (!vj_scan_next(scan) ||
            vj_cookie_decode(scan->key, scan->value, &d, &name) < 0) {
            break;
        }
        keys_add(all, d.ino);
    }
    vj_txn_expect(txn, all->keys, all->count);
}

/* ---- One call ---------------------------------------------------------------------- */

/* The name at which @scan stands.  1: no more are wanted. */
static int fill_name(VjTxn *txn, const Fill *f, const VjScan *scan, size_t *used)
{
    VjSlice name;
    uint64_t at;
    VjDentry d;

    if (scan->key.len != 16) {
        return 1;
    }
    at = vj_be64_get((const uint8_t *)scan->key.data + 8);
    if (f->end != NULL && at >= *f->end) {
        return 1;
    }
    if (vj_cookie_decode(scan->key, scan->value, &d, &name) == 0) {
        batch_add(f->batch, d, name.data, name.len);
        *used += f->entry_bytes + name.len;
        return 0;
    }
    *used += f->entry_bytes + VJ_NAME_MAX;
    return batch_add_by_name(txn, f->dir, at, f->batch);
}

/* Up to about_bytes of names behind @cookie. */
static int fill_names(VjTxn *txn, const Fill *f, uint64_t cookie, uint64_t entry_count)
{
    size_t used = 0;
    uint8_t prefix[8];
    VjFsKey key;
    VjScan scan;

    vj_be64_set(prefix, f->dir);
    vj_fs_key_number(&key, f->dir, cookie);
    vj_scan_begin(&scan, txn, VJ_SPACE_COOKIE, vj_slice(prefix, sizeof prefix));
    vj_scan_behind(&scan, vj_fs_key_slice(&key));
    while (used < f->about_bytes && f->batch->items->len < VJ_DIR_BATCH_MAX) {
        int r;

        vj_txn_expect_run(txn, VJ_SPACE_COOKIE, scan.key, MIN(entry_count, VJ_DIR_AHEAD));
        if (!vj_scan_next(&scan)) {
            break;
        }
        r = fill_name(txn, f, &scan, &used);
        if (r != 0) {
            return MIN(r, 0);
        }
    }
    if (scan.error < 0) {
        return scan.error;
    }
    if (f->with_attr) {
        expect_inodes(txn, f->batch, &scan, entry_count);
    }
    return 0;
}

static int fill_body(VjTxn *txn, void *opaque)
{
    const Fill *f = opaque;
    DirBatch *b = f->batch;
    VjInode inode;
    int r = vj_inode_get(txn, f->dir, &inode);

    g_array_set_size(b->items, 0);
    g_byte_array_set_size(b->names, 0);
    if (r < 0) {
        return r;
    }
    if (!S_ISDIR(inode.mode)) {
        return -ENOTDIR;
    }
    if (f->end != NULL && *f->end == UINT64_MAX) {
        *f->end = inode.next_cookie;
    }
    if (inode.nlink == 0) {
        return 0; /* removed while open: empty */
    }
    if (f->cookie < VJ_DIR_SELF_COOKIE) {
        batch_add(b, (VjDentry){f->dir, VJ_DIR_SELF_COOKIE, DT_DIR}, ".", 1);
    }
    if (f->cookie < VJ_DIR_PARENT_COOKIE) {
        batch_add(b, (VjDentry){inode.parent, VJ_DIR_PARENT_COOKIE, DT_DIR}, "..", 2);
    }
    return fill_names(txn, f, MAX(f->cookie, VJ_DIR_PARENT_COOKIE), inode.entry_count);
}

/* Attributes of some names. */
typedef struct Looks {
    guint from, count; /* items of the batch */
    uint64_t inos[VJ_FILE_LOOKS_MOST];
    VjAttr attrs[VJ_FILE_LOOKS_MOST];
    int results[VJ_FILE_LOOKS_MOST];
} Looks;

/* NULL: it cannot be read. */
static const VjAttr *look(VjFs *fs, const DirBatch *b, guint i, Looks *l)
{
    if (i >= l->from + l->count) {
        l->from = i;
        l->count = MIN(b->items->len - i, VJ_FILE_LOOKS_MOST);
        for (guint j = 0; j < l->count; j++) {
            l->inos[j] = g_array_index(b->items, DirItem, i + j).ino;
        }
        vj_fs_getattr_many(fs, l->inos, l->count, l->attrs, l->results);
    }
    return l->results[i - l->from] == 0 ? &l->attrs[i - l->from] : NULL;
}

static void visit_all(VjFs *fs, const DirBatch *b, bool with_attr, VjFsVisit *visit,
                      void *opaque)
{
    g_autofree Looks *looks = with_attr ? g_new0(Looks, 1) : NULL;

    for (guint i = 0; i < b->items->len; i++) {
        const DirItem *item = &g_array_index(b->items, DirItem, i);
        VjDirent entry = {
            .name = (const char *)b->names->data + item->name,
            .ino = item->ino,
            .cookie = item->cookie,
            .type = item->type,
        };

        if (!visit(opaque, &entry, with_attr ? look(fs, b, i, looks) : NULL)) {
            break;
        }
    }
}

int vj_fs_readdir(VjFs *fs, uint64_t dir, uint64_t cookie, uint64_t *end,
                  size_t about_bytes, bool with_attr, VjFsVisit *visit, void *opaque)
{
    DirBatch b = {
        .items = g_array_new(FALSE, FALSE, sizeof(DirItem)),
        .names = g_byte_array_new(),
    };
    Fill fill = {
        .dir = dir,
        .cookie = cookie,
        .end = end,
        .about_bytes = about_bytes,
        .entry_bytes = with_attr ? VJ_DIR_ENTRY_PLUS_BYTES : VJ_DIR_ENTRY_BYTES,
        .with_attr = with_attr,
        .batch = &b,
    };
    int r = vj_meta_view(fs->meta, fill_body, &fill);

    if (r == 0) {
        visit_all(fs, &b, with_attr, visit, opaque);
    }
    batch_clear(&b);
    return r;
}
