/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * run.c - one write transaction of an operation
 */
#include "fs/fs-private.h"

/* Nothing of the operation has happened: another one may be tried, or none. */
static int purge(VjFs *fs)
{
    vj_stall_begin();
    return vj_stall_end(vj_volume_purge(fs->volume));
}

int vj_fs_ino_new(VjFs *fs, uint64_t *ino)
{
    int r;

    if (vj_volume_read_only(fs->volume)) {
        return -EROFS;
    }
    r = vj_ino_new(fs->files, ino);
    if (r == -ENOSPC && purge(fs) == 0) {
        r = vj_ino_new(fs->files, ino);
    }
    return r;
}

/* What came before may have waited for the store, while the caller died. */
static int run_once(VjFs *fs, VjRunFlags flags, VjTxnBody *body, void *op)
{
    return vj_cancel_is_fired() ? -ECANCELED : vj_meta_run(fs->meta, flags, body, op);
}

int vj_fs_run(VjFs *fs, VjRunFlags flags, VjTxnBody *body, void *op)
{
    int r;

    if (vj_volume_read_only(fs->volume)) {
        return -EROFS;
    }
    r = run_once(fs, flags, body, op);
    /* What was deleted a moment ago is removed in the background: then there may be
     * space. */
    if (r == -ENOSPC && purge(fs) == 0) {
        r = run_once(fs, flags, body, op);
    }
    return r;
}
