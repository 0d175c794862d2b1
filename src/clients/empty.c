/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * empty.c - a namespace goes: its objects or keys a part at a time, at last its directory
 *
 * Each request is one transaction, so what is interrupted goes on where it was.  Whoever
 * puts something into the namespace meanwhile reads its directory's record (check_dir in
 * transaction.c): of objects their number is there, of keys the flag that protects it,
 * which goes first.  Who puts a key sets that flag again, and then the directory stays
 * until this is asked for once more.
 */
#include "clients/clients-private.h"

#include "fs/records.h"

typedef struct Empty {
    const VjClientEmpty *asked;
    VjClientKind kind;
    uint64_t root, dir;
    char name[VARJFS_WIRE_NAME_MAX + 1]; /* of the namespace */
    VjFsAfter *after;
    /* out: */
    uint32_t gone;
    uint8_t what; /* VARJFS_WIRE_EMPTY_..., of the reply */
} Empty;

static int remove_keys(VjTxn *txn, Empty *e)
{
    VjFsKey prefix;
    VjScan scan;
    int rc = 0;

    vj_fs_key_record(&prefix, e->dir, vj_slice("", 0));
    vj_scan_begin(&scan, txn, VJ_SPACE_XATTR, vj_fs_key_slice(&prefix));
    while (rc == 0 && e->gone < e->asked->most && vj_scan_next(&scan)) {
        rc = vj_txn_del(txn, VJ_SPACE_XATTR, scan.key);
        e->gone++;
    }
    return rc < 0 ? rc : scan.error;
}

/* Directories, which programs of a mount have made, stay. */
static int remove_objects(VjTxn *txn, Empty *e)
{
    VjFsKey prefix;
    VjScan scan;
    int rc = 0;

    vj_fs_key_name(&prefix, e->dir, "", 0);
    vj_scan_begin(&scan, txn, VJ_SPACE_DENTRY, vj_fs_key_slice(&prefix));
    while (rc == 0 && e->gone < e->asked->most && vj_scan_next(&scan)) {
        char name[VJ_NAME_MAX + 1];
        size_t len = scan.key.len - sizeof(uint64_t);
        VjDentry d;
        uint64_t ino;

        rc = vj_dentry_decode(scan.key, scan.value, &d);
        if (rc < 0 || d.type == DT_DIR) {
            continue;
        }
        memcpy(name, (const char *)scan.key.data + sizeof(uint64_t), len);
        name[len] = '\0';
        rc = vj_fs_txn_remove(txn, e->after, e->dir, name, false, &ino);
        e->gone++;
    }
    return rc < 0 ? rc : scan.error;
}

static int body(VjTxn *txn, void *opaque)
{
    Empty *e = opaque;
    VjInode inode;
    uint64_t ino;
    int rc = vj_inode_get(txn, e->dir, &inode);

    vj_fs_after_begin(e->after);
    e->gone = 0;
    e->what = VARJFS_WIRE_EMPTY_MORE;
    if (rc < 0 || inode.nlink == 0) {
        return rc < 0 ? rc : -ENOENT; /* another client has asked for it too */
    }
    rc = e->asked->keys ? remove_keys(txn, e) : remove_objects(txn, e);
    if (rc < 0 || e->gone == e->asked->most || (inode.flags & VJ_INODE_IMMUTABLE)) {
        return rc;
    }
    rc = vj_fs_txn_remove(txn, e->after, e->root, e->name, true, &ino);
    e->what = rc == 0 ? VARJFS_WIRE_EMPTY_GONE : VARJFS_WIRE_EMPTY_STAYS;
    return rc == -ENOTEMPTY ? 0 : rc;
}

/* A key that is put from now on finds it, and protects it again. */
static int unprotect(VjClients *c, const Empty *e)
{
    uint32_t flags;
    int rc = e->asked->keys ? vj_fs_get_flags(c->fs, e->dir, &flags) : -ENODATA;

    if (rc == -ENODATA) {
        return 0;
    }
    if (rc < 0 || !(flags & VJ_INODE_IMMUTABLE)) {
        return rc;
    }
    return vj_fs_set_flags(c->fs, NULL, e->dir, flags & ~VJ_INODE_IMMUTABLE);
}

static int run(VjClients *c, Empty *e)
{
    int rc = vj_client_name(e->asked->space, e->name);

    rc = rc == 0 ? vj_client_root(c, e->kind, false, &e->root) : rc;
    rc = rc == 0 ? vj_client_space(c, e->kind, e->asked->space, false, &e->dir) : rc;
    rc = rc == 0 ? unprotect(c, e) : rc;
    rc = rc == 0 ? vj_meta_run(c->meta, VJ_RUN_RELEASE, body, e) : rc;
    if (rc == 0) {
        rc = vj_fs_after_commit(e->after);
        vj_client_forget_all(c);
    }
    if (rc == 0 && e->what == VARJFS_WIRE_EMPTY_GONE) {
        vj_client_forget_spaces(c);
    }
    return rc;
}

int vj_clients_empty(VjClients *c, VjSlice message, bool read_only, VjClientsReply *reply)
{
    uint8_t bytes[VARJFS_WIRE_EMPTY_REPLY_BYTES];
    VjWriter w = vj_writer(bytes, sizeof bytes);
    VjClientEmpty asked;
    Empty e = {.asked = &asked};
    int rc = vj_client_empty_decode(message, &asked);

    *reply = (VjClientsReply){0};
    if (rc < 0 || read_only) {
        return rc < 0 ? rc : -EROFS;
    }
    e.kind = asked.keys ? VJ_CLIENT_KEYS : VJ_CLIENT_OBJECTS;
    e.after = vj_fs_after_new(c->fs);
    rc = run(c, &e);
    vj_fs_after_free(e.after);
    if (rc < 0) {
        return rc == -EINVAL ? -EPROTO : rc == -ENOTDIR ? -ENOENT : rc;
    }
    vj_write_u8(&w, e.what);
    vj_write_u32(&w, e.gone);
    g_assert(!w.bad && w.used == sizeof bytes);
    reply->message = g_byte_array_new();
    g_byte_array_append(reply->message, bytes, sizeof bytes);
    return 0;
}
