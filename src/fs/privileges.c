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

typedef struct HasCapability {
    uint64_t ino;
    bool *out;
} HasCapability;

static int has_capability_body(VjTxn *txn, void *opaque)
{
    const HasCapability *h = opaque;

    return vj_xattr_exists(txn, h->ino, VJ_CAPABILITY_XATTR, h->out);
}

int vj_fs_has_capability(VjFs *fs, uint64_t ino, bool *out)
{
    HasCapability h = {.ino = ino, .out = out};

    return vj_meta_view(fs->meta, has_capability_body, &h);
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
