/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * append.c - an append that comes as several requests
 */
#include "fs/fs-private.h"

/* Of @h; a number for its first append in parts. */
static uint64_t append_who(VjHandle *h, bool make)
{
    uint64_t who;

    vj_mutex_lock(&h->lock);
    if (h->append_who == 0 && make) {
        h->append_who = vj_file_append_who(h->file);
    }
    who = h->append_who;
    vj_mutex_unlock(&h->lock);
    return who;
}

int vj_fs_append_part(VjHandle *h, VjFilePart *part, void **block, const void *src,
                      size_t len)
{
    int r;

    if (vj_volume_read_only(h->fs->volume)) {
        return -EROFS;
    }
    r = vj_fs_may_write(h, true);
    if (r == 0) {
        part->who = append_who(h, true);
        r = vj_file_append_part(h->file, part, block, src, len);
        vj_fs_note_change(h);
    }
    return r;
}

bool vj_fs_append_undo(VjHandle *h, uint64_t size)
{
    return vj_file_append_undo(h->file, append_who(h, false), size);
}
