/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rename.c - move, replace and exchange names in one transaction, and leave whiteouts
 *
 * Up to four inode records take part, and some may be the same one (both directories; an
 * empty directory replaced below its own parent): a transaction reads each record once
 * into a set and writes the set back, so that no change is lost to an older copy.
 */
#include "fs/fs-private.h"

#define RENAME_INODES 4u

typedef struct InodeSet {
    VjInode inode[RENAME_INODES];
    unsigned count;
} InodeSet;

typedef int InodeGet(VjTxn *txn, uint64_t ino, VjInode *out);

/* @get: vj_named_inode_get, or vj_dir_get for what the caller named. */
static int set_get(VjTxn *txn, InodeSet *set, uint64_t ino, InodeGet *get, VjInode **out)
{
    int r;

    for (unsigned i = 0; i < set->count; i++) {
        if (set->inode[i].ino == ino) {
            *out = &set->inode[i];
            return 0;
        }
    }
    g_assert(set->count < RENAME_INODES);
    r = get(txn, ino, &set->inode[set->count]);
    if (r == 0) {
        *out = &set->inode[set->count++];
    }
    return r;
}

typedef struct RenameOp {
    const VjFs *fs;
    const VjCaller *who;
    uint64_t parent, new_parent;
    const char *name, *new_name;
    unsigned flags;
    uint64_t whiteout_ino; /* of vj_fs_ino_new, when @flags want one */
    struct timespec now;
    /* out: */
    VjSafety safety;
    uint64_t changed[RENAME_INODES];
    unsigned changed_count;
    uint64_t replaced; /* lost its last name; 0: none did */
    bool left_open;    /* that one: another session has it open, and drops it */
    bool left_whiteout;
} RenameOp;

static int set_put(VjTxn *txn, const InodeSet *set, RenameOp *op)
{
    for (unsigned i = 0; i < set->count; i++) {
        int r = vj_inode_put(txn, &set->inode[i]);

        if (r < 0) {
            return r;
        }
        op->changed[op->changed_count++] = set->inode[i].ino;
    }
    return 0;
}

/*
 * 1: @ino is @dir or above it; 0: it is not.  Damaged directories may form a ring: a walk
 * that comes back to the landmark, which moves at doubling distances, is in one.
 */
static int is_above(VjTxn *txn, uint64_t ino, uint64_t dir)
{
    uint64_t landmark = 0, steps = 0, distance = 1;
    VjInode inode;

    while (dir != VJ_INO_ROOT) {
        int r;

        if (dir == ino) {
            return 1;
        }
        r = vj_named_inode_get(txn, dir, &inode);
        if (r < 0) {
            return r;
        }
        if (!S_ISDIR(inode.mode) || inode.parent == dir || inode.parent == landmark) {
            return -EBADMSG;
        }
        if (++steps == distance) {
            landmark = dir;
            distance *= 2;
        }
        dir = inode.parent;
    }
    return ino == VJ_INO_ROOT;
}

/* A directory changes its parent: "..", and the link counts of both. */
static void move_directory(VjInode *moved, VjInode *from, VjInode *to)
{
    if (S_ISDIR(moved->mode) && from != to) {
        moved->parent = to->ino;
        from->nlink--;
        to->nlink++;
    }
}

static int rename_exchange(VjTxn *txn, const RenameOp *op, InodeSet *set, VjInode *dir,
                           VjInode *new_dir, VjDentry a, VjDentry b)
{
    VjInode *moved, *other;
    VjDentry a_now = {.ino = b.ino, .cookie = a.cookie, .type = b.type};
    VjDentry b_now = {.ino = a.ino, .cookie = b.cookie, .type = a.type};
    int r = set_get(txn, set, a.ino, vj_named_inode_get, &moved);

    if (r == 0) {
        r = set_get(txn, set, b.ino, vj_named_inode_get, &other);
    }
    if (r < 0) {
        return r;
    }
    if (vj_is_protected(new_dir) || vj_is_protected(moved) || vj_is_protected(other)) {
        return -EPERM;
    }
    if (S_ISDIR(other->mode)) {
        r = is_above(txn, other->ino, op->parent);
        if (r != 0) {
            return r < 0 ? r : -EINVAL;
        }
    }
    move_directory(moved, dir, new_dir);
    move_directory(other, new_dir, dir);
    moved->ctime = other->ctime = op->now;
    r = vj_name_set(txn, op->parent, op->name, &a_now);
    return r < 0 ? r : vj_name_set(txn, op->new_parent, op->new_name, &b_now);
}

/* The name that is replaced keeps its cookie: a reader of the directory sees it once. */
static int rename_over(VjTxn *txn, RenameOp *op, InodeSet *set, VjInode *new_dir,
                       const VjInode *moved, VjDentry a, VjDentry b)
{
    VjDentry now = {.ino = a.ino, .cookie = b.cookie, .type = a.type};
    VjInode *victim;
    int r = set_get(txn, set, b.ino, vj_named_inode_get, &victim);

    if (r < 0) {
        return r;
    }
    if (vj_is_protected(new_dir) || vj_is_protected(victim)) {
        return -EPERM;
    }
    if (S_ISDIR(victim->mode)) {
        if (!S_ISDIR(moved->mode)) {
            return -EISDIR;
        }
        /* The directory that the moved one has just left is an ancestor, if empty now. */
        if (victim->entry_count > 0 || victim->ino == op->parent) {
            return -ENOTEMPTY;
        }
        victim->nlink = 0;
        new_dir->nlink--;
    } else {
        if (S_ISDIR(moved->mode)) {
            return -ENOTDIR;
        }
        victim->nlink--;
    }
    victim->ctime = op->now;
    if (victim->nlink == 0) {
        op->replaced = victim->ino;
        r = vj_orphan_put_unlinked(txn, victim->ino, &op->left_open);
        if (r < 0) {
            return r;
        }
    }
    return vj_name_set(txn, op->new_parent, op->new_name, &now);
}

/* The old name goes, or names a whiteout: it was there all the time then, and keeps its
 * cookie. */
static int rename_from(VjTxn *txn, RenameOp *op, VjInode *dir, const VjDentry *a)
{
    VjDentry now = {.ino = op->whiteout_ino, .cookie = a->cookie, .type = DT_CHR};
    int r;

    if ((op->flags & VJ_RENAME_WHITEOUT) == 0) {
        return vj_name_del(txn, dir, op->name, a);
    }
    op->left_whiteout = true;
    r = vj_whiteout_make(txn, op->fs, op->who, dir, op->now, now.ino);
    return r < 0 ? r : vj_name_set(txn, op->parent, op->name, &now);
}

static int rename_move(VjTxn *txn, RenameOp *op, InodeSet *set, VjInode *dir,
                       VjInode *new_dir, VjDentry a, const VjDentry *b)
{
    VjInode *moved;
    int r = set_get(txn, set, a.ino, vj_named_inode_get, &moved);

    if (r < 0) {
        return r;
    }
    if (vj_is_protected(moved) || vj_is_immutable(new_dir)) {
        return -EPERM;
    }
    r = rename_from(txn, op, dir, &a);
    if (r < 0) {
        return r;
    }
    if (b == NULL && dir == new_dir && (op->flags & VJ_RENAME_WHITEOUT) == 0) {
        /* The place in the order stays: a reader of the directory meets the file once. */
        r = vj_name_put_back(txn, dir, op->new_name, &a);
    } else if (b != NULL) {
        r = rename_over(txn, op, set, new_dir, moved, a, *b);
    } else {
        if (S_ISDIR(moved->mode) && dir != new_dir && new_dir->nlink >= UINT32_MAX - 1) {
            return -EMLINK;
        }
        r = vj_name_add(txn, new_dir, op->new_name, a.ino, a.type);
    }
    if (r < 0) {
        return r;
    }
    move_directory(moved, dir, new_dir);
    moved->ctime = op->now;
    return 0;
}

static int rename_body(VjTxn *txn, void *opaque)
{
    RenameOp *op = opaque;
    InodeSet set = {.count = 0};
    VjInode *dir, *new_dir;
    VjDentry a, b;
    bool exists;
    int r;

    op->changed_count = 0;
    op->replaced = 0;
    op->left_whiteout = false;
    op->safety = VJ_SAFETY_NONE;
    r = set_get(txn, &set, op->parent, vj_dir_get, &dir);
    if (r == 0) {
        r = set_get(txn, &set, op->new_parent, vj_dir_get, &new_dir);
    }
    if (r < 0) {
        return r;
    }
    r = vj_name_get(txn, op->parent, op->name, &a);
    if (r < 0) {
        return r;
    }
    r = vj_name_get(txn, op->new_parent, op->new_name, &b);
    if (r < 0 && r != -ENOENT) {
        return r;
    }
    exists = r == 0;
    if (exists && (op->flags & VJ_RENAME_NOREPLACE)) {
        return -EEXIST;
    }
    if (!exists && (op->flags & VJ_RENAME_EXCHANGE)) {
        return -ENOENT;
    }
    if (exists && a.ino == b.ino) {
        return 0; /* two names of one file: nothing happens */
    }
    if (vj_is_protected(dir)) {
        return -EPERM;
    }
    op->safety = MAX(vj_fs_safety_of(op->fs, dir), vj_fs_safety_of(op->fs, new_dir));
    if (a.type == DT_DIR) {
        r = is_above(txn, a.ino, op->new_parent);
        if (r != 0) {
            return r < 0 ? r : -EINVAL;
        }
    }
    if (op->flags & VJ_RENAME_EXCHANGE) {
        r = rename_exchange(txn, op, &set, dir, new_dir, a, b);
    } else {
        r = rename_move(txn, op, &set, dir, new_dir, a, exists ? &b : NULL);
    }
    if (r < 0) {
        return r;
    }
    dir->mtime = dir->ctime = op->now;
    new_dir->mtime = new_dir->ctime = op->now;
    return set_put(txn, &set, op);
}

static int content_commit(VjFs *fs, const VjDentry *d)
{
    g_autoptr(VjFile) file = NULL;
    VjInode inode;
    int r = d->type == DT_REG ? vj_file_getattr(fs->files, d->ino, &inode) : -ENOENT;

    if (r < 0 || !inode.dirty) {
        return r == -ENOENT ? 0 : r;
    }
    r = vj_file_open(fs->files, d->ino, &file);
    if (r == 0) {
        vj_stall_begin();
        r = vj_stall_end(vj_file_commit(file));
    }
    return r;
}

typedef struct BothNames {
    const RenameOp *op;
    VjDentry a, b; /* the name, and that of the target */
} BothNames;

static int both_names_body(VjTxn *txn, void *opaque)
{
    BothNames *n = opaque;
    int r = vj_name_get(txn, n->op->parent, n->op->name, &n->a);

    return r < 0 ? r : vj_name_get(txn, n->op->new_parent, n->op->new_name, &n->b);
}

/*
 * Commits the content of the file that is about to replace another one, of both when they
 * are exchanged.  Commits become durable in order, so after a crash a name never shows
 * less than it showed here.
 */
static int commit_contents_first(VjFs *fs, const RenameOp *op)
{
    BothNames n = {.op = op};
    int r;

    if (vj_meta_view(fs->meta, both_names_body, &n) < 0) {
        return 0; /* the transaction decides */
    }
    r = content_commit(fs, &n.a);
    return r == 0 && (op->flags & VJ_RENAME_EXCHANGE) ? content_commit(fs, &n.b) : r;
}

int vj_fs_rename(VjFs *fs, const VjCaller *who, uint64_t parent, const char *name,
                 uint64_t new_parent, const char *new_name, unsigned flags)
{
    RenameOp op = {
        .fs = fs,
        .who = who,
        .parent = parent,
        .new_parent = new_parent,
        .name = name,
        .new_name = new_name,
        .flags = flags,
    };
    int r;

    if ((flags & ~(VJ_RENAME_NOREPLACE | VJ_RENAME_EXCHANGE | VJ_RENAME_WHITEOUT)) != 0 ||
        ((flags & VJ_RENAME_EXCHANGE) && flags != VJ_RENAME_EXCHANGE)) {
        return -EINVAL;
    }
    r = vj_fs_name_check(name);
    if (r == 0) {
        r = vj_fs_name_check(new_name);
    }
    if (r == 0 && vj_volume_read_only(fs->volume)) {
        r = -EROFS;
    }
    if (r == 0) {
        r = commit_contents_first(fs, &op);
    }
    if (r == 0 && (flags & VJ_RENAME_WHITEOUT)) {
        r = vj_fs_ino_new(fs, &op.whiteout_ino);
    }
    if (r < 0) {
        return r;
    }
    op.now = vj_clock_real();
    r = vj_fs_run(fs, VJ_RUN_DEFAULT, rename_body, &op);
    for (unsigned i = 0; r == 0 && i < op.changed_count; i++) {
        vj_fs_record_changed(fs, op.changed[i]);
    }
    if (r == 0 && op.left_whiteout) {
        vj_fs_node_made(fs);
    }
    if (r == 0 && op.replaced != 0) {
        vj_fs_node_unlinked(fs, op.replaced, op.left_open);
    }
    return vj_fs_acknowledge(fs, r, op.safety);
}
