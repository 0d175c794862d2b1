/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * attr.c - what stat(2) shows, and chmod, chown, utimensat, truncate
 */
#include <linux/capability.h>

#include "fs/fs-private.h"

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
    out->dirty = inode->dirty;
}

int vj_fs_getattr(VjFs *fs, uint64_t ino, VjAttr *out)
{
    VjInode inode;
    int r = vj_file_getattr(fs->volume, ino, &inode);

    if (r == 0) {
        vj_fs_attr(&inode, out);
        vj_fs_show_read(fs, ino, out);
    }
    return r;
}

#define CAPABILITY_XATTR "security.capability"

/* What a write takes away.  @member: the caller is in the file's group. */
static mode_t set_id_bits(mode_t mode, bool member)
{
    if (S_ISDIR(mode)) {
        return 0;
    }
    return mode & (S_ISUID | ((mode & S_IXGRP) || !member ? S_ISGID : 0));
}

typedef struct SetOp {
    uint64_t ino;
    const VjSetattr *set;
    bool clear;      /* set-id bits */
    bool member;     /* the caller may keep set-gid of what the group cannot execute */
    bool capability; /* security.capability goes */
    struct timespec now;
} SetOp;

static struct timespec time_to_set(struct timespec wanted, struct timespec now)
{
    return wanted.tv_nsec == UTIME_NOW ? now : wanted;
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
    if (op->clear || (set->what & (VJ_SET_UID | VJ_SET_GID))) {
        inode.mode &= ~set_id_bits(inode.mode, op->member);
    }
    if (op->capability) {
        r = vj_xattr_drop(txn, op->ino, CAPABILITY_XATTR);
        if (r < 0) {
            return r;
        }
    }
    if (set->what & VJ_SET_MODE) {
        inode.mode = (inode.mode & S_IFMT) | (set->mode & 07777);
        /* For chmod(2) the kernel has looked, but for the mode after a write it has not. */
        if (!op->member) {
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
    return vj_inode_put(txn, &inode);
}

/* Whoever is not in the file's group cannot have it set-gid. */
static bool is_member(const VjCaller *who, gid_t gid)
{
    return vj_caller_in_group(who, gid) || vj_caller_capable(who, CAP_FSETID);
}

static int has_capability(VjFs *fs, uint64_t ino, bool *out)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    int r = vj_meta_begin_read(fs->meta, &txn);

    return r < 0 ? r : vj_xattr_exists(txn, ino, CAPABILITY_XATTR, out);
}

int vj_fs_clear_privileges_seen(VjFs *fs, const VjCaller *who, const VjInode *inode)
{
    static const VjSetattr nothing;
    SetOp op = {.ino = inode->ino, .set = &nothing};
    int r = has_capability(fs, inode->ino, &op.capability);

    if (r < 0) {
        return r;
    }
    if ((inode->mode & (S_ISUID | S_ISGID)) && !vj_caller_capable(who, CAP_FSETID)) {
        op.member = is_member(who, inode->gid);
        op.clear = set_id_bits(inode->mode, op.member) != 0;
    }
    if (!op.clear && !op.capability) {
        return 0;
    }
    op.now = vj_clock_real();
    return vj_fs_run(fs, VJ_RUN_DEFAULT, set_body, &op);
}

int vj_fs_clear_privileges(VjFs *fs, const VjCaller *who, uint64_t ino)
{
    VjInode inode;
    int r = vj_file_getattr(fs->volume, ino, &inode);

    return r < 0 ? r : vj_fs_clear_privileges_seen(fs, who, &inode);
}

static int set_size(VjFs *fs, const VjCaller *who, uint64_t ino, VjHandle *h,
                    uint64_t size)
{
    g_autoptr(VjFile) file = NULL;
    int r;

    if (vj_volume_read_only(fs->volume)) {
        return -EROFS;
    }
    if (size > VJ_FILE_SIZE_MAX) {
        return -EFBIG;
    }
    r = vj_fs_clear_privileges(fs, who, ino);
    if (r < 0) {
        return r;
    }
    if (h != NULL) {
        vj_fs_note_change(h);
        return vj_file_truncate(h->file, size);
    }
    r = vj_file_open(fs->volume, ino, &file);
    return r < 0 ? r : vj_file_truncate(file, size);
}

/* Where set-gid is at stake; before the transaction, because it may have to read /proc. */
static int look_up_member(VjFs *fs, const VjCaller *who, SetOp *op)
{
    const VjSetattr *set = op->set;
    bool asked = (set->what & VJ_SET_MODE) && (set->mode & S_ISGID);
    VjInode inode;
    int r;

    op->member = true;
    if (!asked && !(set->what & (VJ_SET_UID | VJ_SET_GID))) {
        return 0;
    }
    r = vj_file_getattr(fs->volume, op->ino, &inode);
    if (r == 0 && (asked || (inode.mode & S_ISGID))) {
        op->member = is_member(who, inode.gid);
    }
    return r;
}

int vj_fs_setattr(VjFs *fs, const VjCaller *who, uint64_t ino, VjHandle *h,
                  const VjSetattr *set, VjAttr *out)
{
    SetOp op = {.ino = ino, .set = set, .now = vj_clock_real()};
    int r;

    if (set->what & VJ_SET_SIZE) {
        r = set_size(fs, who, ino, h, set->size);
        if (r < 0) {
            return r;
        }
    }
    if (set->what & VJ_SET_UNPRIVILEGED) {
        r = vj_fs_clear_privileges(fs, who, ino);
        if (r < 0) {
            return r;
        }
    }
    if (set->what & ~(unsigned)(VJ_SET_SIZE | VJ_SET_UNPRIVILEGED)) {
        r = look_up_member(fs, who, &op);
        if (r < 0) {
            return r;
        }
        if ((set->what & VJ_SET_ATIME) && set->atime.tv_nsec != UTIME_OMIT) {
            vj_fs_forget_read(fs, ino);
        }
        if (set->what & VJ_SET_MTIME) {
            vj_file_forget_times(fs->volume, ino);
        }
        r = vj_fs_run(fs, VJ_RUN_DEFAULT, set_body, &op);
        if (r < 0) {
            return r;
        }
    }
    return vj_fs_getattr(fs, ino, out);
}
