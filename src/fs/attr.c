/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * attr.c - what stat(2) shows, and chmod, chown, utimensat, truncate
 */
#include "fs/fs-private.h"

#include <linux/capability.h>

void vj_fs_attr(const VjInode *inode, VjAttr *out)
{
    struct stat *st = &out->st;

    memset(out, 0, sizeof *out);
    st->st_ino = inode->ino;
    st->st_mode = inode->mode;
    st->st_nlink = inode->nlink;
    st->st_uid = inode->uid;
    st->st_gid = inode->gid;
    st->st_rdev = inode->rdev;
    st->st_size = (off_t)inode->size;
    st->st_blksize = 4096;
    st->st_blocks = (blkcnt_t)((inode->stored_bytes + 511) / 512);
    st->st_atim = inode->atime;
    st->st_mtim = inode->mtime;
    st->st_ctim = inode->ctime;
    out->btime = inode->btime;
    /* Programs take a file without blocks for one hole: data always shows some. */
    if (S_ISREG(inode->mode) && st->st_blocks == 0 && inode->size > 0 &&
        (inode->dirty || inode->content != VJ_CONTENT_EMPTY)) {
        st->st_blocks = (blkcnt_t)((MIN(inode->size, 4096) + 511) / 512);
    }
    out->generation = inode->generation;
    out->flags = inode->flags & VJ_INODE_CHATTR;
    out->may_change = (inode->dirty && !inode->is_final) || inode->has_fragments;
}

int vj_fs_getattr(VjFs *fs, uint64_t ino, VjAttr *out)
{
    gint read_ends;
    VjInode inode;
    int r;

    /* Again where an atime may have left the memory behind our look at the record. */
    do {
        read_ends = g_atomic_int_get(&fs->read_end_count);
        r = vj_file_getattr(fs->files, ino, &inode);
        if (r < 0) {
            return r;
        }
        vj_fs_attr(&inode, out);
        vj_fs_show_read(fs, ino, out);
    } while (g_atomic_int_get(&fs->read_end_count) != read_ends);
    return 0;
}

void vj_fs_getattr_many(VjFs *fs, const uint64_t *inos, size_t count, VjAttr *out,
                        int *results)
{
    gint read_ends = g_atomic_int_get(&fs->read_end_count);
    g_autofree VjInode *inodes = g_new(VjInode, count);

    vj_file_getattr_many(fs->files, inos, count, inodes, results);
    for (size_t i = 0; i < count; i++) {
        if (results[i] == 0) {
            vj_fs_attr(&inodes[i], &out[i]);
            vj_fs_show_read(fs, inos[i], &out[i]);
        }
    }
    for (size_t i = 0; g_atomic_int_get(&fs->read_end_count) != read_ends && i < count;
         i++) {
        results[i] = vj_fs_getattr(fs, inos[i], &out[i]);
    }
}

typedef struct SetOp {
    uint64_t ino;
    const VjSetattr *set;
    bool clear;      /* set-id bits */
    bool member;     /* the caller may keep set-gid of what the group cannot execute */
    bool capability; /* security.capability goes */
    bool has_looked; /* whether the caller is a member */
    struct timespec now;
    const VjFs *fs;
    /* out: */
    bool is_to_look; /* nothing was set, as that has to be looked at before */
    VjSafety safety;
    VjInode inode; /* as it is now */
} SetOp;

static bool is_chown(const VjSetattr *set)
{
    return (set->what & (VJ_SET_UID | VJ_SET_GID)) != 0;
}

/* Whether he is decides about set-gid. */
static bool asks_for_member(const VjSetattr *set, const VjInode *inode)
{
    return ((set->what & VJ_SET_MODE) && (set->mode & S_ISGID) &&
            !(set->what & VJ_SET_CHECKED)) ||
           (is_chown(set) && vj_set_id_needs_member(inode->mode));
}

static struct timespec time_to_set(struct timespec wanted, struct timespec now)
{
    return wanted.tv_nsec == UTIME_NOW ? now : wanted;
}

#define SET_VALUES (VJ_SET_MODE | VJ_SET_UID | VJ_SET_GID | VJ_SET_ATIME | VJ_SET_MTIME)

/* Both times to now, as touch(1) does: that much may happen to what is append only. */
static bool is_touch(const VjSetattr *set)
{
    return (set->what & SET_VALUES) == (VJ_SET_ATIME | VJ_SET_MTIME) &&
           set->atime.tv_nsec == UTIME_NOW && set->mtime.tv_nsec == UTIME_NOW;
}

/* The mode that an older libfuse has the kernel set before a write, which may be an
 * append. */
static bool is_of_write(const VjInode *inode, const VjSetattr *set)
{
    mode_t bits = vj_set_id_bits(inode->mode, true);

    return (set->what & (SET_VALUES | VJ_SET_CHECKED)) == VJ_SET_MODE && bits != 0 &&
           ((set->mode ^ inode->mode) & 07777) == bits;
}

static bool is_forbidden(const VjInode *inode, const VjSetattr *set)
{
    bool may_append =
        (set->what & SET_VALUES) == 0 || is_touch(set) || is_of_write(inode, set);

    return may_append ? vj_is_immutable(inode) : vj_is_protected(inode);
}

static int set_body(VjTxn *txn, void *opaque)
{
    SetOp *op = opaque;
    const VjSetattr *set = op->set;
    VjInode inode;
    int r = vj_inode_get(txn, op->ino, &inode);

    if (r < 0) {
        return r;
    }
    op->is_to_look = !op->has_looked && asks_for_member(set, &inode);
    if (op->is_to_look || is_forbidden(&inode, set)) {
        return -EPERM;
    }
    if (op->clear || is_chown(set)) {
        inode.mode &= ~vj_set_id_bits(inode.mode, op->member);
    }
    if (op->capability || (is_chown(set) && S_ISREG(inode.mode))) {
        r = vj_xattr_drop(txn, op->ino, VJ_CAPABILITY_XATTR);
        if (r < 0) {
            return r;
        }
    }
    if (set->what & VJ_SET_MODE) {
        inode.mode = (inode.mode & S_IFMT) | (set->mode & 07777);
        /* For chmod(2) the kernel has looked; without VJ_SET_CHECKED this may come of a
         * write. */
        if (!op->member && !(set->what & VJ_SET_CHECKED)) {
            inode.mode &= ~(mode_t)S_ISGID;
        }
        r = vj_acl_chmod(txn, &inode);
        if (r < 0) {
            return r;
        }
    }
    if (set->what & VJ_SET_UID) {
        inode.uid = set->uid;
    }
    if (set->what & VJ_SET_GID) {
        inode.gid = set->gid;
    }
    if ((set->what & VJ_SET_ATIME) && set->atime.tv_nsec != UTIME_OMIT) {
        inode.atime = time_to_set(set->atime, op->now);
    }
    if ((set->what & VJ_SET_MTIME) && set->mtime.tv_nsec != UTIME_OMIT) {
        inode.mtime = time_to_set(set->mtime, op->now);
    }
    if (vj_fs_time_later(op->now, inode.ctime)) {
        inode.ctime = op->now;
    }
    op->safety = vj_fs_safety_of(op->fs, &inode);
    op->inode = inode;
    return vj_inode_put(txn, &inode);
}

/* What is known of whether the caller has CAP_FSETID and so keeps the set-id bits. */
typedef enum Keeps {
    KEEPS,       /* it has */
    KEEPS_NOT,   /* it has not */
    KEEPS_MAYBE, /* it may */
    KEEPS_ELSE,  /* it has not, if there is no security.capability */
} Keeps;

static int clear_privileges(VjFs *fs, const VjCaller *who, const VjInode *inode,
                            Keeps keeps)
{
    static const VjSetattr nothing;
    SetOp op = {.fs = fs, .ino = inode->ino, .set = &nothing, .has_looked = true};
    int r = vj_is_immutable(inode) ? -EPERM
                                   : vj_fs_has_capability(fs, inode->ino, &op.capability);

    if (r < 0) {
        return r;
    }
    if (keeps == KEEPS_ELSE) {
        keeps = op.capability ? KEEPS_MAYBE : KEEPS_NOT;
    }
    if ((inode->mode & (S_ISUID | S_ISGID)) && keeps != KEEPS &&
        (keeps == KEEPS_NOT || !vj_caller_capable(who, CAP_FSETID))) {
        op.member =
            vj_set_id_needs_member(inode->mode) && vj_caller_is_member(who, inode);
        op.clear = vj_set_id_bits(inode->mode, op.member) != 0;
    }
    if (!op.clear && !op.capability) {
        return 0;
    }
    op.now = vj_clock_real();
    r = vj_fs_run(fs, VJ_RUN_DEFAULT, set_body, &op);
    vj_fs_record_changed(fs, inode->ino);
    return r;
}

static int look_and_clear(VjFs *fs, const VjCaller *who, uint64_t ino, Keeps keeps)
{
    VjInode inode;
    int r = vj_file_getattr(fs->files, ino, &inode);

    return r < 0 ? r : clear_privileges(fs, who, &inode, keeps);
}

int vj_fs_clear_privileges(VjFs *fs, const VjCaller *who, uint64_t ino)
{
    return look_and_clear(fs, who, ino, KEEPS_NOT);
}

int vj_fs_clear_privileges_open(VjHandle *h, const VjCaller *who)
{
    bool has;
    int r = vj_fs_has_privileges(h, &has);

    return r < 0 || !has ? r : look_and_clear(h->fs, who, h->ino, KEEPS_MAYBE);
}

static Keeps what_is_kept(unsigned what)
{
    return what & VJ_SET_UNPRIVILEGED ? KEEPS_NOT
           : what & VJ_SET_CHANGES    ? KEEPS_ELSE
           : what & VJ_SET_CHECKED    ? KEEPS
                                      : KEEPS_MAYBE;
}

static int set_size(VjFs *fs, const VjCaller *who, uint64_t ino, VjHandle *h,
                    const VjSetattr *set)
{
    uint64_t size = set->size;
    g_autoptr(VjFile) file = NULL;
    VjSafety safety;
    VjInode inode;
    int r;

    if (vj_volume_read_only(fs->volume)) {
        return -EROFS;
    }
    if (size > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    r = vj_file_getattr(fs->files, ino, &inode);
    if (r == 0) {
        r = vj_is_protected(&inode)
                ? -EPERM
                : clear_privileges(fs, who, &inode, what_is_kept(set->what));
    }
    if (r < 0) {
        return r;
    }
    safety = vj_fs_safety_of(fs, &inode);
    if (h != NULL) {
        vj_fs_note_change(h);
        r = vj_fs_append_undo(h, size) ? 0 : vj_file_truncate(h->file, size);
        return r < 0 ? r : vj_fs_acknowledge_content(fs, h->file, safety);
    }
    r = vj_file_open(fs->files, ino, &file);
    if (r == 0) {
        r = vj_file_truncate(file, size);
    }
    return r < 0 ? r : vj_fs_acknowledge_content(fs, file, safety);
}

/* Where set-gid is at stake it may have to read /proc: not in the transaction. */
static int look_at_member(VjFs *fs, const VjCaller *who, SetOp *op)
{
    VjInode inode;
    int r = vj_file_getattr(fs->files, op->ino, &inode);

    if (r == 0 && asks_for_member(op->set, &inode)) {
        op->member = vj_caller_is_member(who, &inode);
    }
    op->has_looked = true;
    return r;
}

static int set_values(VjFs *fs, SetOp *op)
{
    const VjSetattr *set = op->set;
    VjUtimensRead read = {.n = NULL};
    VjUtimens write = {.f = NULL};
    int r;

    if ((set->what & VJ_SET_ATIME) && set->atime.tv_nsec != UTIME_OMIT) {
        vj_fs_utimens_begin(fs, op->ino, &read);
    }
    if ((set->what & VJ_SET_MTIME) && set->mtime.tv_nsec != UTIME_OMIT) {
        vj_file_utimens_begin(fs->files, op->ino, &write);
    }
    r = vj_fs_run(fs, VJ_RUN_DEFAULT, set_body, op);
    vj_fs_record_changed(fs, op->ino);
    vj_file_utimens_end(&write, r);
    vj_fs_utimens_end(fs, &read, r);
    return r;
}

/* The record that @op has put, with what is in memory.  False: there may be a newer
 * one. */
static bool show(VjFs *fs, SetOp *op, gint read_ends, VjAttr *out)
{
    if (!vj_file_lay_over(fs->files, &op->inode)) {
        return false;
    }
    vj_fs_attr(&op->inode, out);
    vj_fs_show_read(fs, op->ino, out);
    return g_atomic_int_get(&fs->read_end_count) == read_ends;
}

int vj_fs_setattr(VjFs *fs, const VjCaller *who, uint64_t ino, VjHandle *h,
                  const VjSetattr *set, VjAttr *out)
{
    SetOp op = {.fs = fs, .ino = ino, .set = set, .member = true, .now = vj_clock_real()};
    gint read_ends = 0;
    int r = vj_cancel_is_fired() ? -ECANCELED : 0;

    if (r < 0) {
        return r;
    }
    if (set->what & VJ_SET_SIZE) {
        r = set_size(fs, who, ino, h, set);
    } else if ((set->what & (VJ_SET_UNPRIVILEGED | VJ_SET_CHANGES)) && !is_chown(set)) {
        r = look_and_clear(fs, who, ino, what_is_kept(set->what));
    }
    if (r == 0 && (set->what & SET_VALUES)) {
        read_ends = g_atomic_int_get(&fs->read_end_count);
        r = set_values(fs, &op);
        if (op.is_to_look) {
            r = look_at_member(fs, who, &op);
            r = r < 0 ? r : set_values(fs, &op);
        }
    }
    r = r < 0 ? r : vj_fs_acknowledge(fs, 0, op.safety);
    if (r < 0) {
        return r;
    }
    if ((set->what & SET_VALUES) && show(fs, &op, read_ends, out)) {
        return 0;
    }
    return vj_fs_getattr(fs, ino, out);
}
