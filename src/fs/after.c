/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * after.c - changes in a transaction of a caller's: what follows when it was committed
 *
 * Bodies run again, so what they bring about in memory is gathered and done once,
 * afterwards: as each operation of this room does for itself.
 */
#include "fs/fs-private.h"

VjFsAfter *vj_fs_after_new(VjFs *fs)
{
    VjFsAfter *a = g_new0(VjFsAfter, 1);

    a->fs = fs;
    a->now = vj_clock_real();
    a->changed = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    a->unlinked = g_array_new(FALSE, FALSE, sizeof(VjFsUnlinked));
    return a;
}

void vj_fs_after_free(VjFsAfter *a)
{
    if (a == NULL) {
        return;
    }
    g_array_unref(a->changed);
    g_array_unref(a->unlinked);
    g_free(a->record);
    g_free(a);
}

void vj_fs_after_begin(VjFsAfter *a)
{
    a->made = 0;
    g_array_set_size(a->changed, 0);
    g_array_set_size(a->unlinked, 0);
    a->safety = VJ_SAFETY_NONE;
}

void vj_fs_after_changed(VjFsAfter *a, uint64_t ino, VjSafety safety)
{
    g_array_append_val(a->changed, ino);
    a->safety = MAX(a->safety, safety);
}

int vj_fs_after_commit(VjFsAfter *a)
{
    for (unsigned i = 0; i < a->made; i++) {
        vj_fs_node_made(a->fs);
    }
    for (guint i = 0; i < a->changed->len; i++) {
        vj_fs_record_changed(a->fs, g_array_index(a->changed, uint64_t, i));
    }
    for (guint i = 0; i < a->unlinked->len; i++) {
        const VjFsUnlinked *u = &g_array_index(a->unlinked, VjFsUnlinked, i);

        vj_fs_node_unlinked(a->fs, u->ino, u->left_open);
    }
    return vj_fs_acknowledge(a->fs, 0, a->safety);
}
