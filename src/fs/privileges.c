/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * privileges.c - what a change of content takes away: set-id bits and security.capability
 */
#include "fs/fs-private.h"

mode_t vj_set_id_bits(mode_t mode, bool member)
{
    if (S_ISDIR(mode)) {
        return 0;
    }
    return mode & (S_ISUID | ((mode & S_IXGRP) || !member ? S_ISGID : 0));
}

bool vj_set_id_needs_member(mode_t mode)
{
    return vj_set_id_bits(mode, true) != vj_set_id_bits(mode, false);
}

int vj_fs_has_capability(VjFs *fs, uint64_t ino, bool *out)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    int r = vj_meta_begin_read(fs->meta, &txn);

    return r < 0 ? r : vj_xattr_exists(txn, ino, VJ_CAPABILITY_XATTR, out);
}

int vj_fs_look_for_privileges(VjFs *fs, uint64_t ino, bool *out)
{
    VjInode inode;
    int r = vj_file_getattr(fs->files, ino, &inode);

    if (r < 0) {
        return r;
    }
    if (vj_set_id_bits(inode.mode, false) != 0) {
        *out = true;
        return 0;
    }
    return vj_fs_has_capability(fs, ino, out);
}
