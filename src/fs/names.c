/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * names.c - one name in a transaction: by (directory, name) and by (directory, cookie)
 *
 * The two records of a name are written and deleted together.  Each change of a directory
 * also writes its inode record (entry_count, next_cookie), so that two transactions that
 * decide from the same directory conflict.
 */
#include "fs/fs-private.h"

static int damaged(uint64_t dir, const char *what)
{
    vj_log_error("directory %" G_GUINT64_FORMAT ": %s is damaged", dir, what);
    return -EBADMSG;
}

int vj_fs_name_check(const char *name)
{
    size_t len = strlen(name);

    if (len > VJ_NAME_MAX) {
        return -ENAMETOOLONG;
    }
    if (len == 0 || strchr(name, '/') != NULL) {
        return -EINVAL;
    }
    return 0;
}

int vj_name_get(VjTxn *txn, uint64_t dir, const char *name, VjDentry *out)
{
    VjFsKey key;
    VjSlice value;
    int r;

    vj_fs_key_name(&key, dir, name, strlen(name));
    vj_fs_expect_near(txn, VJ_SPACE_DENTRY, &key, VJ_NAMES_AHEAD);
    r = vj_txn_get(txn, VJ_SPACE_DENTRY, vj_fs_key_slice(&key), &value);
    if (r < 0) {
        return r;
    }
    r = vj_dentry_decode(vj_fs_key_slice(&key), value, out);
    return r < 0 ? damaged(dir, "a name") : 0;
}

/* Both records of a name. */
static int name_write(VjTxn *txn, uint64_t dir, const char *name, const VjDentry *d)
{
    size_t len = strlen(name);
    VjFsKey key;
    VjDentryDisk disk;
    uint8_t value[sizeof(VjCookieDisk) + VJ_NAME_MAX];
    size_t value_len;
    int r;

    vj_fs_key_name(&key, dir, name, len);
    vj_dentry_encode(&key, d, &disk);
    r = vj_txn_put(txn, VJ_SPACE_DENTRY, vj_fs_key_slice(&key),
                   vj_slice(&disk, sizeof disk));
    if (r < 0) {
        return r;
    }
    vj_fs_key_number(&key, dir, d->cookie);
    value_len = vj_cookie_encode(&key, d, name, len, value);
    return vj_txn_put(txn, VJ_SPACE_COOKIE, vj_fs_key_slice(&key),
                      vj_slice(value, value_len));
}

int vj_name_add(VjTxn *txn, VjInode *dir, const char *name, uint64_t ino, uint8_t type)
{
    VjDentry d = {.ino = ino, .cookie = dir->next_cookie, .type = type};

    g_assert(S_ISDIR(dir->mode) && dir->next_cookie >= 3);
    if (dir->next_cookie == INT64_MAX) {
        return -ENOSPC; /* 10^9 names a second for 292 years, or damage */
    }
    dir->next_cookie++;
    dir->entry_count++;
    return name_write(txn, dir->ino, name, &d);
}

int vj_name_put_back(VjTxn *txn, VjInode *dir, const char *name, const VjDentry *was)
{
    g_assert(S_ISDIR(dir->mode));
    /* Of a record that is older than the name, no later name gets its cookie. */
    dir->next_cookie = MAX(dir->next_cookie, MIN(was->cookie + 1, INT64_MAX));
    dir->entry_count++;
    return name_write(txn, dir->ino, name, was);
}

int vj_name_set(VjTxn *txn, uint64_t dir, const char *name, const VjDentry *now)
{
    return name_write(txn, dir, name, now);
}

int vj_name_del(VjTxn *txn, VjInode *dir, const char *name, const VjDentry *was)
{
    VjFsKey key;
    int r;

    if (dir->entry_count == 0) {
        return damaged(dir->ino, "the count of names");
    }
    dir->entry_count--;
    vj_fs_key_name(&key, dir->ino, name, strlen(name));
    r = vj_txn_del(txn, VJ_SPACE_DENTRY, vj_fs_key_slice(&key));
    if (r < 0) {
        return r;
    }
    vj_fs_key_number(&key, dir->ino, was->cookie);
    r = vj_txn_del(txn, VJ_SPACE_COOKIE, vj_fs_key_slice(&key));
    return r == -ENOENT ? damaged(dir->ino, "the order of names") : r;
}

int vj_named_inode_get(VjTxn *txn, uint64_t ino, VjInode *out)
{
    int r = vj_inode_get(txn, ino, out);

    if (r == -ENOENT) {
        vj_log_error("inode %" G_GUINT64_FORMAT ": a name leads to it, but it is missing",
                     ino);
        return -EBADMSG;
    }
    return r;
}

int vj_dir_get(VjTxn *txn, uint64_t ino, VjInode *out)
{
    int r = vj_inode_get(txn, ino, out);

    if (r < 0) {
        return r;
    }
    if (!S_ISDIR(out->mode)) {
        return -ENOTDIR;
    }
    /* Removed, but a process has it open or stands in it. */
    return out->nlink == 0 ? -ENOENT : 0;
}

static int lookup_special(VjFs *fs, uint64_t parent, bool up, VjAttr *out)
{
    VjInode inode;
    int r = vj_file_getattr(fs->files, parent, &inode);

    if (r < 0) {
        return r;
    }
    if (up) {
        if (!S_ISDIR(inode.mode)) {
            return -ENOTDIR;
        }
        return vj_fs_getattr(fs, inode.parent, out);
    }
    if (inode.nlink == 0) {
        return -ENOENT;
    }
    return vj_fs_getattr(fs, parent, out);
}

typedef struct Lookup {
    uint64_t parent;
    const char *name;
    VjDentry found;
} Lookup;

static int lookup_body(VjTxn *txn, void *opaque)
{
    Lookup *l = opaque;

    return vj_name_get(txn, l->parent, l->name, &l->found);
}

int vj_fs_lookup(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                 VjAttr *out)
{
    Lookup l = {.parent = parent, .name = name};
    int r = vj_fs_name_check(name);

    (void)who;
    if (r < 0) {
        return r;
    }
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return lookup_special(fs, parent, name[1] == '.', out);
    }
    r = vj_meta_view(fs->meta, lookup_body, &l);
    return r < 0 ? r : vj_fs_getattr(fs, l.found.ino, out);
}

/* ---- removing ---------------------------------------------------------------------- */

typedef struct RemoveOp {
    uint64_t parent;
    const char *name;
    bool directory;
    struct timespec now;
    const VjFs *fs;
    /* out: */
    VjSafety safety;
    uint64_t ino;
    bool orphaned;
    bool left_open; /* then another session has it open, and drops it */
} RemoveOp;

static int remove_body(VjTxn *txn, void *opaque)
{
    RemoveOp *op = opaque;
    VjInode dir, inode;
    VjDentry d;
    int r = vj_dir_get(txn, op->parent, &dir);

    op->orphaned = false;
    if (r < 0) {
        return r;
    }
    r = vj_name_get(txn, op->parent, op->name, &d);
    if (r < 0) {
        return r;
    }
    r = vj_named_inode_get(txn, d.ino, &inode);
    if (r < 0) {
        return r;
    }
    if (vj_is_protected(&dir) || vj_is_protected(&inode)) {
        return -EPERM;
    }
    if (S_ISDIR(inode.mode) != op->directory) {
        return op->directory ? -ENOTDIR : -EISDIR;
    }
    if (op->directory && inode.entry_count > 0) {
        return -ENOTEMPTY;
    }
    op->safety = vj_fs_safety_of(op->fs, &dir);
    r = vj_name_del(txn, &dir, op->name, &d);
    if (r < 0) {
        return r;
    }
    if (op->directory) {
        inode.nlink = 0;
        dir.nlink--;
    } else {
        inode.nlink--;
    }
    inode.ctime = op->now;
    dir.mtime = dir.ctime = op->now;
    r = vj_inode_put(txn, &dir);
    if (r == 0) {
        r = vj_inode_put(txn, &inode);
    }
    if (r == 0 && inode.nlink == 0) {
        op->orphaned = true;
        r = vj_orphan_put_unlinked(txn, inode.ino, &op->left_open);
    }
    op->ino = inode.ino;
    return r;
}

int vj_fs_txn_remove(VjTxn *txn, VjFsAfter *a, uint64_t parent, const char *name,
                     bool directory, uint64_t *ino)
{
    RemoveOp op = {.parent = parent,
                   .name = name,
                   .directory = directory,
                   .fs = a->fs,
                   .now = a->now};
    int r = vj_fs_name_check(name);

    r = r == 0 ? remove_body(txn, &op) : r;
    if (r < 0) {
        return r;
    }
    vj_fs_after_changed(a, op.ino, op.safety);
    if (op.orphaned) {
        VjFsUnlinked unlinked = {.ino = op.ino, .left_open = op.left_open};

        g_array_append_val(a->unlinked, unlinked);
    }
    *ino = op.ino;
    return 0;
}

static int name_remove(VjFs *fs, uint64_t parent, const char *name, bool directory)
{
    RemoveOp op = {
        .parent = parent,
        .name = name,
        .directory = directory,
        .fs = fs,
        .now = vj_clock_real(),
    };
    int r = vj_fs_name_check(name);

    if (r == 0) {
        r = vj_fs_run(fs, VJ_RUN_RELEASE, remove_body, &op);
    }
    if (r == 0) {
        vj_fs_record_changed(fs, op.ino);
    }
    if (r == 0 && op.orphaned) {
        vj_fs_node_unlinked(fs, op.ino, op.left_open);
    }
    return vj_fs_acknowledge(fs, r, op.safety);
}

int vj_fs_unlink(VjFs *fs, uint64_t parent, const char *name)
{
    return name_remove(fs, parent, name, false);
}

int vj_fs_rmdir(VjFs *fs, uint64_t parent, const char *name)
{
    if (strcmp(name, ".") == 0) {
        return -EINVAL;
    }
    if (strcmp(name, "..") == 0) {
        return -ENOTEMPTY;
    }
    return name_remove(fs, parent, name, true);
}
