/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * settings.c - what a user chose for a file: transformation and object sizes
 *
 * An inode has settings of its own (set, or inherited when it was made) or the volume's.
 * The numbers in its record come from a user and from disk.  Sizes that the chunker
 * cannot keep are not used, so that no setting can make a file impossible to write; a
 * transformation that is not in this build is kept, and refuses writes: storing the bytes
 * otherwise would not be what was asked for.
 *
 * An open file keeps what holds for it in memory (VjFile.transform, sizes), because
 * changes look at it under the file's lock.
 */
#include "file/file-private.h"

#include <sys/stat.h>

/* ---- object sizes ------------------------------------------------------------------ */

static bool are_possible(const VjFileTable *table, VjChunkSizes sizes)
{
    g_autoptr(VjChunker) trial = NULL;

    return vj_chunker_new(table->chunker, sizes, 0, &trial) == 0;
}

VjChunkSizes vj_file_sizes(const VjFileTable *table, const VjInode *inode)
{
    const VjChunkSizes own = {.min_bytes = inode->object_min,
                              .avg_bytes = inode->object_avg,
                              .max_bytes = inode->object_max};

    return (inode->flags & VJ_INODE_OBJECTS) && are_possible(table, own) ? own
                                                                         : table->sizes;
}

bool vj_file_sizes_set(const VjFileTable *table, VjInode *inode, const char *text,
                       GError **error)
{
    VjChunkSizes sizes;

    if (!vj_chunk_sizes_parse(table->chunker, text, &sizes, error)) {
        return false;
    }
    inode->object_min = sizes.min_bytes;
    inode->object_avg = sizes.avg_bytes;
    inode->object_max = sizes.max_bytes;
    return true;
}

char *vj_file_sizes_text(const VjFileTable *table, const VjInode *inode)
{
    const VjChunkSizes sizes = vj_file_sizes(table, inode);
    g_autofree char *avg = g_strdup_printf("%u", sizes.avg_bytes);
    VjChunkSizes alone;

    /* The shortest text that means the same. */
    if (vj_chunk_sizes_parse(table->chunker, avg, &alone, NULL) &&
        alone.min_bytes == sizes.min_bytes && alone.max_bytes == sizes.max_bytes) {
        return g_steal_pointer(&avg);
    }
    return g_strdup_printf("%u:%u:%u", sizes.min_bytes, sizes.avg_bytes, sizes.max_bytes);
}

/* ---- transformation ---------------------------------------------------------------- */

VjTransform vj_file_transform(const VjFileTable *table, const VjInode *inode)
{
    VjTransform t =
        inode->flags & VJ_INODE_TRANSFORM ? inode->transform : table->transform;

    t.mode = inode->flags & VJ_INODE_MODE ? inode->transform.mode : VJ_MODE_CLIENT;
    return t;
}

bool vj_file_transform_set(VjInode *inode, const char *text, GError **error)
{
    return vj_transform_parse(text, &inode->transform, error);
}

char *vj_file_transform_text(const VjFileTable *table, const VjInode *inode)
{
    const VjTransform t = vj_file_transform(table, inode);

    return vj_transform_text(&t);
}

/* ---- what begins with what --------------------------------------------------------- */

void vj_file_inherit(const VjFileTable *table, const VjInode *dir, VjInode *inode)
{
    const uint32_t settings = dir->flags & VJ_INODE_SETTINGS;

    inode->flags |= dir->flags & (VJ_INODE_NODUMP | VJ_INODE_NOATIME);
    if (!S_ISREG(inode->mode) && !S_ISDIR(inode->mode)) {
        return; /* no program could see or change them there */
    }
    inode->flags |= settings | VJ_INODE_INHERITED(settings);
    inode->transform = dir->transform;
    inode->object_min = dir->object_min;
    inode->object_avg = dir->object_avg;
    inode->object_max = dir->object_max;
    inode->safety = dir->safety;
    if (S_ISREG(inode->mode) && !(settings & VJ_INODE_TRANSFORM) && table->new_is_set) {
        inode->flags |= VJ_INODE_TRANSFORM | VJ_INODE_INHERITED(VJ_INODE_TRANSFORM);
        inode->transform.codec = table->new_transform.codec;
        inode->transform.param = table->new_transform.param;
        inode->transform.level = table->new_transform.level;
        inode->transform.key_id = table->new_transform.key_id;
    }
}

/* ---- an open file's ---------------------------------------------------------------- */

void vj_file_take_settings(VjFile *f, const VjInode *inode)
{
    f->transform = vj_file_transform(f->table, inode);
    f->sizes = vj_file_sizes(f->table, inode);
    f->is_unwritable = !vj_transform_is_known(&f->transform);
}

void vj_file_record_changed(VjFileTable *table, uint64_t ino)
{
    VjOpening *opening;
    VjFile *f;

    vj_mutex_lock(&table->lock);
    f = g_hash_table_lookup(table->files, &ino);
    opening = g_hash_table_lookup(table->opening, &ino);
    if (f != NULL) {
        g_atomic_int_set(&f->settings_are_old, 1);
    }
    if (opening != NULL) {
        opening->has_changed = true;
    }
    vj_mutex_unlock(&table->lock);
}

void vj_file_records_changed(VjFileTable *table)
{
    GHashTableIter iter;
    gpointer each;

    vj_mutex_lock(&table->lock);
    g_hash_table_iter_init(&iter, table->files);
    while (g_hash_table_iter_next(&iter, NULL, &each)) {
        g_atomic_int_set(&((VjFile *)each)->settings_are_old, 1);
    }
    g_hash_table_iter_init(&iter, table->opening);
    while (g_hash_table_iter_next(&iter, NULL, &each)) {
        ((VjOpening *)each)->has_changed = true;
    }
    vj_mutex_unlock(&table->lock);
}

void vj_file_renew_settings(VjFile *f)
{
    if (g_atomic_int_compare_and_exchange(&f->settings_are_old, 1, 0) &&
        vj_file_settings_changed(f->table, f->ino) < 0) {
        g_atomic_int_set(&f->settings_are_old, 1); /* the next round looks again */
    }
}

/*
 * Of several that read the record at the same time the last to begin wins: what was
 * committed before any of them called is in what it reads.
 */
int vj_file_settings_changed(VjFileTable *table, uint64_t ino)
{
    g_autoptr(VjFile) f = vj_file_find(table, ino);
    VjInode inode;
    uint64_t mine;
    int r;

    if (f == NULL) {
        return 0;
    }
    vj_mutex_lock(&f->lock);
    mine = ++f->settings_seq;
    vj_mutex_unlock(&f->lock);
    r = vj_file_record(table, ino, &inode);
    if (r < 0) {
        return r;
    }
    vj_mutex_lock(&f->lock);
    if (f->settings_seq == mine) {
        vj_file_take_settings(f, &inode);
    }
    vj_mutex_unlock(&f->lock);
    return 0;
}
