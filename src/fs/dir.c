/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * dir.c - reading directories
 *
 * A call collects names in one snapshot, ends the transaction, and then visits: visitors
 * may be slow, and attributes need transactions of their own.
 */
#include "fs/fs-private.h"

#define VJ_DIR_SELF_COOKIE 1u
#define VJ_DIR_PARENT_COOKIE 2u
/* Most names of one call, whatever room there is. */
#define VJ_DIR_BATCH_MAX 4096u
/* Bytes that a name takes at a reader beside itself: a lower bound, so that room
 * fills. */
#define VJ_DIR_ENTRY_BYTES 24u
#define VJ_DIR_ENTRY_PLUS_BYTES 152u

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
    DirBatch *batch;
} Fill;

/* Up to about_bytes of names behind @cookie. */
static int fill_names(VjTxn *txn, const Fill *f, uint64_t cookie)
{
    DirBatch *b = f->batch;
    size_t used = 0;
    uint8_t prefix[8];
    VjFsKey key;
    VjScan scan;

    vj_be64_set(prefix, f->dir);
    vj_fs_key_number(&key, f->dir, cookie);
    vj_scan_begin(&scan, txn, VJ_SPACE_COOKIE, vj_slice(prefix, sizeof prefix));
    vj_scan_behind(&scan, vj_fs_key_slice(&key));
    while (used < f->about_bytes && b->items->len < VJ_DIR_BATCH_MAX &&
           vj_scan_next(&scan)) {
        VjSlice name;
        uint64_t at;
        VjDentry d;
        int r;

        if (scan.key.len != 16) {
            return 0;
        }
        at = vj_be64_get((const uint8_t *)scan.key.data + 8);
        if (f->end != NULL && at >= *f->end) {
            return 0;
        }
        if (vj_cookie_decode(scan.key, scan.value, &d, &name) == 0) {
            batch_add(b, d, name.data, name.len);
            used += f->entry_bytes + name.len;
            continue;
        }
        r = batch_add_by_name(txn, f->dir, at, b);
        if (r < 0) {
            return r;
        }
        used += f->entry_bytes + VJ_NAME_MAX;
    }
    return scan.error;
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
    if (f->cookie == 0 && f->end != NULL) {
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
    return fill_names(txn, f, MAX(f->cookie, VJ_DIR_PARENT_COOKIE));
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
        .batch = &b,
    };
    int r = vj_meta_view(fs->meta, fill_body, &fill);

    for (guint i = 0; r == 0 && i < b.items->len; i++) {
        const DirItem *item = &g_array_index(b.items, DirItem, i);
        VjDirent entry = {
            .name = (const char *)b.names->data + item->name,
            .ino = item->ino,
            .cookie = item->cookie,
            .type = item->type,
        };
        VjAttr attr;
        bool has_attr = with_attr && vj_fs_getattr(fs, item->ino, &attr) == 0;

        if (!visit(opaque, &entry, has_attr ? &attr : NULL)) {
            break;
        }
    }
    batch_clear(&b);
    return r;
}
