/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * make.c - inodes come into being: files, directories, symlinks, devices, further links
 *
 * The inode, its name and the directory's record are one transaction.  What is made
 * belongs to the caller; in a set-gid directory to the directory's group, and directories
 * made there are set-gid too.  Settings are inherited (vj_file_inherit), and permissions
 * where the directory has a default access control list; else the caller's umask limits
 * them.
 */
#include "fs/fs-private.h"

typedef struct MakeOp {
    const VjFileTable *files;
    const VjCaller *who;
    uint64_t parent;
    uint64_t ino;     /* of what is made: of vj_fs_ino_new */
    const char *name; /* NULL: an orphan (O_TMPFILE) */
    mode_t mode;
    dev_t rdev;
    const char *target; /* symlinks */
    struct timespec now;
    const VjFsSetting *settings;
    size_t setting_count;
    VjFileMaking *making; /* a file that is to be open; NULL: none is */
    const VjFs *fs;
    VjInode inode;   /* out */
    VjSafety safety; /* out */
} MakeOp;

static void make_fill(const MakeOp *op, const VjInode *dir, VjInode *out)
{
    *out = (VjInode){
        .ino = op->ino,
        .generation = 1, /* inode numbers are never used again */
        .mode = op->mode,
        .uid = op->who->uid,
        .gid = op->who->gid,
        .nlink = op->name == NULL    ? 0
                 : S_ISDIR(op->mode) ? 2
                                     : 1,
        .rdev = op->rdev,
        .atime = op->now,
        .mtime = op->now,
        .ctime = op->now,
        .btime = op->now,
        .content = VJ_CONTENT_EMPTY,
        .root = {.next_node = 1},
    };
    vj_file_inherit(op->files, dir, out);
    if (dir->mode & S_ISGID) {
        out->gid = dir->gid;
        if (S_ISDIR(op->mode)) {
            out->mode |= S_ISGID;
        }
    }
    if (S_ISDIR(op->mode)) {
        out->parent = dir->ino;
        out->next_cookie = 3;
    }
}

/* The inode that is to be named in @dir, not put yet. */
static int make_inode(VjTxn *txn, MakeOp *op, const VjInode *dir)
{
    make_fill(op, dir, &op->inode);
    for (size_t i = 0; i < op->setting_count; i++) {
        int r = vj_setting_make(op->fs, &op->inode, &op->settings[i]);

        if (r < 0) {
            return r;
        }
    }
    return vj_acl_inherit(txn, dir, op->who->umask, &op->inode);
}

int vj_whiteout_make(VjTxn *txn, const VjFs *fs, const VjCaller *who, const VjInode *dir,
                     struct timespec now, uint64_t ino)
{
    MakeOp op = {
        .files = fs->files,
        .who = who,
        .parent = dir->ino,
        .ino = ino,
        .name = "", /* the caller gives it the one that it takes from another */
        .mode = S_IFCHR,
        .now = now,
    };
    int r = make_inode(txn, &op, dir);

    return r < 0 ? r : vj_inode_put(txn, &op.inode);
}

static int make_body(VjTxn *txn, void *opaque)
{
    MakeOp *op = opaque;
    VjInode dir;
    VjDentry d;
    int r = vj_dir_get(txn, op->parent, &dir);

    if (r < 0) {
        return r;
    }
    if (op->name != NULL) {
        r = vj_name_get(txn, op->parent, op->name, &d);
        if (r != -ENOENT) {
            return r == 0 ? -EEXIST : r;
        }
    }
    if (vj_is_immutable(&dir)) {
        return -EPERM;
    }
    if (S_ISDIR(op->mode) && dir.nlink >= UINT32_MAX - 1) {
        return -EMLINK;
    }
    op->safety = vj_fs_safety_of(op->fs, &dir);
    r = make_inode(txn, op, &dir);
    if (r < 0) {
        return r;
    }
    if (op->target != NULL) {
        r = vj_symlink_put(txn, &op->inode, op->target, strlen(op->target));
        if (r < 0) {
            return r;
        }
    }
    r = vj_inode_put(txn, &op->inode);
    if (r == 0 && op->making != NULL) {
        r = vj_file_make_claim(txn, op->making);
    }
    if (r < 0) {
        return r;
    }
    if (op->name == NULL) {
        return vj_orphan_put(txn, op->inode.ino);
    }
    if (S_ISDIR(op->mode)) {
        dir.nlink++;
    }
    dir.mtime = dir.ctime = op->now;
    r = vj_name_add(txn, &dir, op->name, op->inode.ino, vj_fs_type(op->mode));
    return r < 0 ? r : vj_inode_put(txn, &dir);
}

/* @file: NULL, or where the content of what is made goes; owned, NULL on failure.  It is
 * not acknowledged yet. */
static int make(VjFs *fs, MakeOp *op, VjAttr *out, VjFile **file)
{
    int r;

    if (op->name != NULL) {
        r = vj_fs_name_check(op->name);
        if (r < 0) {
            return r;
        }
        if (strcmp(op->name, ".") == 0 || strcmp(op->name, "..") == 0) {
            return -EEXIST;
        }
    }
    op->now = vj_clock_real();
    op->files = fs->files;
    op->fs = fs;
    r = vj_fs_ino_new(fs, &op->ino);
    if (r == 0 && vj_cancel_is_fired()) {
        r = -ECANCELED; /* before there may be a claim that is to be looked for */
    }
    if (r < 0) {
        return r;
    }
    if (file != NULL) {
        op->making = vj_file_make_begin(fs->files, op->ino);
    }
    r = vj_fs_run(fs, VJ_RUN_DEFAULT, make_body, op);
    if (file != NULL) {
        r = vj_file_make_end(g_steal_pointer(&op->making), r, &op->inode, file);
    }
    if (r == 0) {
        vj_fs_node_made(fs);
        vj_fs_attr(&op->inode, out);
    }
    return r;
}

int vj_fs_txn_make(VjTxn *txn, VjFsAfter *a, const VjFsMaking *making)
{
    MakeOp op = {.files = a->fs->files,
                 .fs = a->fs,
                 .who = making->who,
                 .parent = making->parent,
                 .ino = making->ino,
                 .name = making->name,
                 .mode = S_IFREG | (making->mode & 07777),
                 .settings = making->settings,
                 .setting_count = making->setting_count,
                 .now = a->now};
    int r = vj_fs_name_check(op.name);

    r = r == 0 ? make_body(txn, &op) : r;
    if (r == 0) {
        a->made++;
        a->safety = MAX(a->safety, op.safety);
    }
    return r;
}

static int make_node(VjFs *fs, MakeOp *op, VjAttr *out)
{
    int r = make(fs, op, out, NULL);

    return vj_fs_acknowledge(fs, r, op->safety);
}

int vj_fs_mknod(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                mode_t mode, dev_t rdev, VjAttr *out)
{
    MakeOp op = {.who = who, .parent = parent, .name = name};

    op.mode = mode & (S_IFMT | 07777);
    if ((op.mode & S_IFMT) == 0) {
        op.mode |= S_IFREG;
    }
    switch (op.mode & S_IFMT) {
    case S_IFBLK:
    case S_IFCHR:
        op.rdev = rdev;
        break;
    case S_IFREG:
    case S_IFIFO:
    case S_IFSOCK:
        break;
    default:
        return -EINVAL;
    }
    return make_node(fs, &op, out);
}

int vj_fs_mkdir(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                mode_t mode, VjAttr *out)
{
    MakeOp op = {.who = who, .parent = parent, .name = name};

    op.mode = S_IFDIR | (mode & 07777);
    return make_node(fs, &op, out);
}

int vj_fs_symlink(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                  const char *target, VjAttr *out)
{
    MakeOp op = {.who = who, .parent = parent, .name = name, .target = target};
    size_t len = strlen(target);

    if (len == 0) {
        return -ENOENT;
    }
    if (len > VJ_SYMLINK_MAX) {
        return -ENAMETOOLONG;
    }
    op.mode = S_IFLNK | 0777;
    return make_node(fs, &op, out);
}

typedef struct Readlink {
    uint64_t ino;
    char *dst; /* VJ_SYMLINK_MAX bytes and a NUL */
} Readlink;

static int readlink_body(VjTxn *txn, void *opaque)
{
    const Readlink *l = opaque;
    VjInode inode;
    size_t len;
    int r = vj_inode_get(txn, l->ino, &inode);

    if (r < 0) {
        return r;
    }
    if (!S_ISLNK(inode.mode)) {
        return -EINVAL;
    }
    r = vj_symlink_get(txn, &inode, l->dst, &len);
    if (r < 0) {
        return r;
    }
    g_assert(len <= VJ_SYMLINK_MAX);
    l->dst[len] = '\0';
    return 0;
}

int vj_fs_readlink(VjFs *fs, uint64_t ino, char *dst)
{
    Readlink l = {.ino = ino, .dst = dst};

    return vj_meta_view(fs->meta, readlink_body, &l);
}

int vj_fs_create(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                 mode_t mode, int flags, VjAttr *attr, VjHandle **out)
{
    MakeOp op = {.who = who, .parent = parent, .name = name};
    VjFile *file;
    int r;

    *out = NULL;
    op.mode = S_IFREG | (mode & 07777);
    r = make(fs, &op, attr, &file);
    if (r == 0) {
        *out = vj_fs_node_opened(fs, file, flags);
        vj_fs_note_made(*out, &op.inode);
        r = vj_fs_acknowledge(fs, 0, op.safety);
        if (r < 0) {
            vj_fs_release(fs, *out);
            *out = NULL;
        }
        return r;
    }
    if (r != -EEXIST || (flags & O_EXCL)) {
        return r;
    }
    /* Another caller made it first. */
    r = vj_fs_lookup(fs, who, parent, name, attr);
    if (r < 0) {
        return r;
    }
    if (!S_ISREG(attr->st.st_mode)) {
        return S_ISDIR(attr->st.st_mode) ? -EISDIR : -EEXIST;
    }
    r = vj_fs_open(fs, who, attr->st.st_ino, flags, out);
    if (r == 0 && (flags & O_TRUNC)) {
        r = vj_fs_getattr(fs, attr->st.st_ino, attr);
        if (r < 0) {
            vj_fs_release(fs, *out);
            *out = NULL;
        }
    }
    return r;
}

int vj_fs_tmpfile(VjFs *fs, const VjCaller *who, uint64_t parent, mode_t mode, int flags,
                  VjAttr *attr, VjHandle **out)
{
    MakeOp op = {.who = who, .parent = parent};
    VjFile *file;
    int r;

    *out = NULL;
    op.mode = S_IFREG | (mode & 07777);
    r = make(fs, &op, attr, &file);
    if (r < 0) {
        return r;
    }
    *out = vj_fs_node_opened(fs, file, flags);
    vj_fs_node_orphaned(fs, op.inode.ino, true);
    return 0;
}

/* ---- further links ----------------------------------------------------------------- */

typedef struct LinkOp {
    uint64_t ino, parent;
    const char *name;
    struct timespec now;
    const VjFs *fs;
    bool was_orphan; /* out */
    VjSafety safety; /* out */
} LinkOp;

static int link_body(VjTxn *txn, void *opaque)
{
    LinkOp *op = opaque;
    VjInode dir, inode;
    VjDentry d;
    int r = vj_dir_get(txn, op->parent, &dir);

    if (r < 0) {
        return r;
    }
    r = vj_name_get(txn, op->parent, op->name, &d);
    if (r != -ENOENT) {
        return r == 0 ? -EEXIST : r;
    }
    r = vj_inode_get(txn, op->ino, &inode);
    if (r < 0) {
        return r;
    }
    if (S_ISDIR(inode.mode) || vj_is_protected(&inode) || vj_is_immutable(&dir)) {
        return -EPERM;
    }
    if (inode.nlink >= VJ_FS_LINK_MAX) {
        return -EMLINK;
    }
    op->safety = vj_fs_safety_of(op->fs, &dir);
    op->was_orphan = inode.nlink == 0;
    if (op->was_orphan) {
        r = vj_orphan_take_back(txn, op->ino);
        if (r < 0) {
            return r;
        }
    }
    inode.nlink++;
    inode.ctime = dir.mtime = dir.ctime = op->now;
    r = vj_name_add(txn, &dir, op->name, op->ino, vj_fs_type(inode.mode));
    if (r == 0) {
        r = vj_inode_put(txn, &dir);
    }
    return r < 0 ? r : vj_inode_put(txn, &inode);
}

int vj_fs_link(VjFs *fs, uint64_t ino, uint64_t parent, const char *name, VjAttr *out)
{
    LinkOp op = {
        .fs = fs, .ino = ino, .parent = parent, .name = name, .now = vj_clock_real()};
    int r = vj_fs_name_check(name);

    if (r == 0) {
        r = vj_fs_run(fs, VJ_RUN_DEFAULT, link_body, &op);
    }
    if (r < 0) {
        return r;
    }
    vj_fs_record_changed(fs, ino);
    if (op.was_orphan) {
        vj_fs_node_named(fs, ino);
    }
    r = vj_fs_acknowledge(fs, 0, op.safety);
    return r < 0 ? r : vj_fs_getattr(fs, ino, out);
}
