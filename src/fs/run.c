/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * run.c - one write transaction of an operation, and how safe it is when that returns
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

void vj_fs_set_safety(VjFs *fs, VjSafety safety)
{
    fs->safety = safety;
}

int vj_fs_acknowledge(VjFs *fs, int r, VjSafety safety)
{
    if (r < 0 || safety == VJ_SAFETY_NONE) {
        return r;
    }
    vj_stall_begin();
    return vj_stall_end(safety == VJ_SAFETY_STORAGE ? vj_meta_flush(fs->meta)
                                                    : vj_meta_send(fs->meta));
}

/* What the commit names has been flushed at its store by then. */
int vj_fs_acknowledge_content(VjFs *fs, VjFile *file, VjSafety safety)
{
    int r;

    if (safety == VJ_SAFETY_NONE) {
        return 0;
    }
    vj_stall_begin();
    r = vj_stall_end(vj_file_commit(file));
    return vj_fs_acknowledge(fs, r, safety);
}
