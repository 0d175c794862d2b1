/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * settings.c - what a user chose for a file: transformation and object sizes
 *
 * An inode has settings of its own (set, or inherited when it was made) or the volume's.  The
 * numbers in its record come from a user and from disk.  Sizes that the chunker cannot keep are
 * not used, so that no setting can make a file impossible to write; a transformation that
 * is not in this build is kept, and refuses writes: storing the bytes otherwise would not be what
 * was asked for.
 *
 * An open file keeps what holds for it in memory (VjFile.transform, sizes), because changes
 * look at it under the file's lock.
 */
#include "file/volume-private.h"

#include <sys/stat.h>

/* ---- object sizes ------------------------------------------------------------------- */

static bool are_possible(const VjVolume *v, VjChunkSizes sizes)
{
    g_autoptr(VjChunker) trial = NULL;

    return vj_chunker_new(v->super.chunker, sizes, 0, &trial) == 0;
}

VjChunkSizes vj_volume_sizes(const VjVolume *v, const VjInode *inode)
{
    const VjChunkSizes own = {.min_bytes = inode->object_min,
                              .avg_bytes = inode->object_avg,
                              .max_bytes = inode->object_max};

    return (inode->flags & VJ_INODE_OBJECTS) && are_possible(v, own) ? own
                                                                     : v->super.sizes;
}

bool vj_volume_sizes_set(const VjVolume *v, VjInode *inode, const char *text,
                         GError **error)
{
    VjChunkSizes sizes;

    if (!vj_chunk_sizes_parse(v->super.chunker, text, &sizes, error)) {
        return false;
    }
    inode->object_min = sizes.min_bytes;
    inode->object_avg = sizes.avg_bytes;
    inode->object_max = sizes.max_bytes;
    return true;
}

char *vj_volume_sizes_text(const VjVolume *v, const VjInode *inode)
{
    const VjChunkSizes sizes = vj_volume_sizes(v, inode);
    g_autofree char *avg = g_strdup_printf("%u", sizes.avg_bytes);
    VjChunkSizes alone;

    /* The shortest text that means the same. */
    if (vj_chunk_sizes_parse(v->super.chunker, avg, &alone, NULL) &&
        alone.min_bytes == sizes.min_bytes && alone.max_bytes == sizes.max_bytes) {
        return g_steal_pointer(&avg);
    }
    return g_strdup_printf("%u:%u:%u", sizes.min_bytes, sizes.avg_bytes, sizes.max_bytes);
}

/* ---- transformation ----------------------------------------------------------------- */

VjTransform vj_volume_transform(const VjVolume *v, const VjInode *inode)
{
    VjTransform t =
        inode->flags & VJ_INODE_TRANSFORM ? inode->transform : v->super.transform;

    t.mode = inode->flags & VJ_INODE_MODE ? inode->transform.mode : VJ_MODE_CLIENT;
    return t;
}

bool vj_volume_transform_set(VjInode *inode, const char *text, GError **error)
{
    return vj_transform_parse(text, &inode->transform, error);
}

char *vj_volume_transform_text(const VjVolume *v, const VjInode *inode)
{
    const VjTransform t = vj_volume_transform(v, inode);

    return vj_transform_text(&t);
}

/* ---- what begins with what ---------------------------------------------------------- */

void vj_volume_inherit(const VjVolume *v, const VjInode *dir, VjInode *inode)
{
    const uint32_t settings = dir->flags & VJ_INODE_SETTINGS;

    inode->flags |= dir->flags & (VJ_INODE_NODUMP | VJ_INODE_NOATIME);
    if (!S_ISREG(inode->mode) && !S_ISDIR(inode->mode)) {
        return; /* nobody could see or change them there */
    }
    inode->flags |= settings | VJ_INODE_INHERITED(settings);
    inode->transform = dir->transform;
    inode->object_min = dir->object_min;
    inode->object_avg = dir->object_avg;
    inode->object_max = dir->object_max;
    if (S_ISREG(inode->mode) && !(settings & VJ_INODE_TRANSFORM) && v->new_is_set) {
        inode->flags |= VJ_INODE_TRANSFORM | VJ_INODE_INHERITED(VJ_INODE_TRANSFORM);
        inode->transform.codec = v->new_transform.codec;
        inode->transform.param = v->new_transform.param;
        inode->transform.level = v->new_transform.level;
        inode->transform.key_id = v->new_transform.key_id;
    }
}

/* ---- an open file's ------------------------------------------------------------------- */

void vj_file_settle_settings(VjFile *f, const VjInode *inode)
{
    f->transform = vj_volume_transform(f->volume, inode);
    f->sizes = vj_volume_sizes(f->volume, inode);
    f->is_unwritable = !vj_transform_is_known(&f->transform);
}

/*
 * Of several that read the record at the same time the last to begin wins: its snapshot is the
 * newest.
 */
int vj_file_settings_changed(VjVolume *v, uint64_t ino)
{
    g_autoptr(VjFile) f = vj_volume_find(v, ino);
    VJ_AUTO_READ_TXN *txn = NULL;
    VjInode inode;
    uint64_t mine;
    int r;

    if (f == NULL) {
        return 0;
    }
    vj_mutex_lock(&f->lock);
    r = vj_meta_begin_read(v->meta, &txn);
    mine = ++f->settings_seq;
    vj_mutex_unlock(&f->lock);
    if (r == 0) {
        r = vj_inode_get(txn, ino, &inode);
    }
    if (r < 0) {
        return r;
    }
    vj_mutex_lock(&f->lock);
    if (f->settings_seq == mine) {
        vj_file_settle_settings(f, &inode);
    }
    vj_mutex_unlock(&f->lock);
    return 0;
}
