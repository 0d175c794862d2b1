/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * empty.c - a namespace goes: its objects or keys a part at a time, at last its directory
 *
 * A request is one transaction, or several where something stays among many; what is
 * interrupted is less, and as it was otherwise.  The transaction that finds nothing left
 * removes the directory too, and takes the flag that protects one of keys for that alone.
 * Whoever puts something into the namespace reads the record of its directory (check_dir
 * in transaction.c): it was put before that transaction, which has seen it, or is put
 * into a new directory.
 */
#include "clients/clients-private.h"

#include "fs/records.h"

/* How often the directory may be another one than was found. */
#define STALE_TRIES 16u

/* How far it is. */
typedef struct Progress {
    uint32_t gone;
    uint64_t stays; /* directories, which programs of a mount have made */
    VjFsKey behind; /* the last name that was looked at; empty: none was */
} Progress;

typedef struct Empty {
    const VjClientEmpty *asked;
    VjClientKind kind;
    uint64_t root, dir;
    char name[VARJFS_WIRE_NAME_MAX + 1]; /* of the namespace */
    VjFsAfter *after;
    const VjClientsStop *stop;
    Progress done; /* by the transactions before */
    /* of the transaction: */
    Progress now;
    uint32_t looked; /* at so many names */
    bool is_stale;
    /* out: */
    uint8_t what; /* VARJFS_WIRE_EMPTY_..., of the reply */
} Empty;

static bool may_look(const Empty *e)
{
    return e->now.gone < e->asked->most && e->looked < VJ_CLIENT_EMPTY_LOOK_MAX;
}

/* *ended: there are no more. */
static int remove_keys(VjTxn *txn, Empty *e, bool *ended)
{
    VjFsKey prefix;
    VjScan scan;
    int rc = 0;

    vj_fs_key_record(&prefix, e->dir, vj_slice("", 0));
    vj_scan_begin(&scan, txn, VJ_SPACE_XATTR, vj_fs_key_slice(&prefix));
    *ended = false;
    while (rc == 0 && may_look(e)) {
        if (!vj_scan_next(&scan)) {
            *ended = true;
            return scan.error;
        }
        rc = vj_txn_del(txn, VJ_SPACE_XATTR, scan.key);
        e->looked++;
        e->now.gone++;
    }
    return rc;
}

static int remove_object(VjTxn *txn, Empty *e, const VjScan *scan)
{
    size_t len = scan->key.len - sizeof(uint64_t);
    char name[VJ_NAME_MAX + 1];
    uint64_t ino;
    VjDentry d;
    int rc = vj_dentry_decode(scan->key, scan->value, &d);

    if (rc < 0) {
        return rc;
    }
    e->looked++;
    memcpy(name, (const char *)scan->key.data + sizeof(uint64_t), len);
    name[len] = '\0';
    vj_fs_key_name(&e->now.behind, e->dir, name, len);
    if (d.type == DT_DIR) {
        e->now.stays++;
        return 0;
    }
    e->now.gone++;
    return vj_fs_txn_remove(txn, e->after, e->dir, name, false, &ino);
}

static int remove_objects(VjTxn *txn, Empty *e, bool *ended)
{
    VjFsKey prefix;
    VjScan scan;
    int rc = 0;

    vj_fs_key_name(&prefix, e->dir, "", 0);
    vj_scan_begin(&scan, txn, VJ_SPACE_DENTRY, vj_fs_key_slice(&prefix));
    if (e->now.behind.len > 0) {
        vj_scan_behind(&scan, vj_fs_key_slice(&e->now.behind));
    }
    *ended = false;
    while (rc == 0 && may_look(e)) {
        if (!vj_scan_next(&scan)) {
            *ended = true;
            return scan.error;
        }
        rc = remove_object(txn, e, &scan);
    }
    return rc;
}

/* Nothing is left of it but what stays. */
static int remove_dir(VjTxn *txn, Empty *e)
{
    uint64_t ino;
    VjInode inode;
    int rc = vj_inode_get(txn, e->dir, &inode);

    if (rc == 0 && inode.entry_count > 0) {
        /* Or others have put something there, where it had been looked already. */
        e->what = inode.entry_count == e->now.stays || e->asked->keys
                      ? VARJFS_WIRE_EMPTY_STAYS
                      : VARJFS_WIRE_EMPTY_MORE;
        return 0;
    }
    if (rc == 0 && e->asked->keys) {
        inode.flags &= ~(uint32_t)VJ_INODE_IMMUTABLE;
        rc = vj_inode_put(txn, &inode);
    }
    rc = rc == 0 ? vj_fs_txn_remove(txn, e->after, e->root, e->name, true, &ino) : rc;
    e->what = VARJFS_WIRE_EMPTY_GONE;
    return rc;
}

static int body(VjTxn *txn, void *opaque)
{
    Empty *e = opaque;
    bool ended;
    VjInode inode;
    int rc = vj_inode_get(txn, e->dir, &inode);

    vj_fs_after_begin(e->after);
    e->now = e->done;
    e->looked = 0;
    e->what = VARJFS_WIRE_EMPTY_MORE;
    e->is_stale = rc == -ENOENT || (rc == 0 && inode.nlink == 0);
    if (rc < 0 || e->is_stale) {
        return rc < 0 ? rc : -ENOENT;
    }
    rc = e->asked->keys ? remove_keys(txn, e, &ended) : remove_objects(txn, e, &ended);
    return rc == 0 && ended ? remove_dir(txn, e) : rc;
}

static bool is_stopped(const Empty *e)
{
    return e->stop != NULL && e->stop->is_wanted(e->stop->opaque);
}

/* Until enough is gone, or all that could go. */
static int remove_some(VjClients *c, Empty *e)
{
    int rc;

    e->done = (Progress){0};
    while (true) {
        rc = vj_meta_run(c->meta, VJ_RUN_RELEASE, body, e);
        if (rc == 0) {
            rc = vj_fs_after_commit(e->after);
            vj_client_forget_all(c);
        }
        if (rc < 0) {
            return rc;
        }
        e->done = e->now;
        if (e->what != VARJFS_WIRE_EMPTY_MORE || e->looked < VJ_CLIENT_EMPTY_LOOK_MAX ||
            e->now.gone == e->asked->most) {
            return 0;
        }
        if (is_stopped(e)) {
            return e->now.gone > 0 ? 0 : -ECANCELED;
        }
    }
}

/* As go() of transaction.c: where the directory is not there any more, another one may
 * have its name. */
static int run(VjClients *c, Empty *e)
{
    int rc = vj_client_name(e->asked->space, e->name);

    rc = rc == 0 ? vj_client_root(c, e->kind, false, &e->root) : rc;
    for (unsigned i = 0; rc == 0 && i < STALE_TRIES; i++) {
        rc = vj_client_space(c, e->kind, e->asked->space, false, &e->dir);
        rc = rc == 0 ? remove_some(c, e) : rc;
        if (rc == 0 && e->what == VARJFS_WIRE_EMPTY_GONE) {
            vj_client_forget_spaces(c);
        }
        if (!e->is_stale) {
            return rc;
        }
        e->is_stale = false;
        vj_client_forget_spaces(c);
        rc = 0;
    }
    return rc < 0 ? rc : -EBUSY;
}

int vj_clients_empty(VjClients *c, VjSlice message, bool read_only,
                     const VjClientsStop *stop, VjClientsReply *reply)
{
    uint8_t bytes[VARJFS_WIRE_EMPTY_REPLY_BYTES];
    VjWriter w = vj_writer(bytes, sizeof bytes);
    VjClientEmpty asked;
    Empty e = {.asked = &asked, .stop = stop};
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
        return rc == -EINVAL    ? -EPROTO
               : rc == -ENOTDIR ? -ENOENT
               : rc == -EPERM   ? -EACCES
                                : rc;
    }
    vj_write_u8(&w, e.what);
    vj_write_u32(&w, e.done.gone);
    g_assert(!w.bad && w.used == sizeof bytes);
    reply->message = g_byte_array_new();
    g_byte_array_append(reply->message, bytes, sizeof bytes);
    return 0;
}
