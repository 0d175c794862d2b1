/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * run.c - one write transaction of an operation
 */
#include "fs/fs-private.h"

int vj_fs_ino_new(VjFs *fs, uint64_t *ino)
{
    int r;

    if (vj_volume_read_only(fs->volume)) {
        return -EROFS;
    }
    r = vj_ino_new(fs->files, ino);
    if (r == -ENOSPC && vj_volume_purge(fs->volume) == 0) {
        r = vj_ino_new(fs->files, ino);
    }
    return r;
}

int vj_fs_run(VjFs *fs, VjRunFlags flags, VjTxnBody *body, void *op)
{
    int r;

    if (vj_volume_read_only(fs->volume)) {
        return -EROFS;
    }
    if (vj_cancel_is_fired()) {
        return -ECANCELED; /* its caller has been answered that nothing happens */
    }
    r = vj_meta_run(fs->meta, flags, body, op);
    /* What was deleted a moment ago is removed in the background: then there may be
     * space. */
    if (r == -ENOSPC && vj_volume_purge(fs->volume) == 0) {
        r = vj_meta_run(fs->meta, flags, body, op);
    }
    return r;
}
