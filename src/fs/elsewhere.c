/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * elsewhere.c - what other sessions of a shared volume change
 *
 * The metadata report the keys.  This room then forgets what it remembers of the inode,
 * and reports to the front, which serves the file system, of what it may hold copies that
 * are old: attributes, contents, names.  Contents that are open here are not changed
 * elsewhere (room file).
 *
 * The calls come in threads of the metadata, and of other volumes of this process: they
 * take the lock of this room for a moment, and wait for nothing else.
 */
#include "fs/fs-private.h"

static bool is_open(VjFs *fs, uint64_t ino)
{
    const VjNode *n;
    bool open;

    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    open = n != NULL && n->handles > 0;
    vj_mutex_unlock(&fs->lock);
    return open;
}

static void inode_changed(VjFs *fs, uint64_t ino)
{
    vj_fs_record_changed(fs, ino);
    if (fs->events != NULL) {
        fs->events->inode_changed(fs->events_opaque, ino, !is_open(fs, ino));
    }
}

static void name_changed(VjFs *fs, VjSlice key)
{
    char name[VJ_NAME_MAX + 1];
    size_t len = key.len - sizeof(uint64_t);

    memcpy(name, (const char *)key.data + sizeof(uint64_t), len);
    name[len] = '\0';
    if (fs->events != NULL) {
        fs->events->name_changed(fs->events_opaque, vj_be64_get(key.data), name);
    }
}

static void all_changed(VjFs *fs)
{
    vj_fs_all_records_changed(fs);
    if (fs->events != NULL) {
        fs->events->all_changed(fs->events_opaque);
    }
}

static void on_changed(void *opaque, const VjKey *key)
{
    VjFs *fs = opaque;

    if (key == NULL) {
        all_changed(fs);
        return;
    }
    if (key->key.len < sizeof(uint64_t) || key->key.len > VJ_FS_KEY_MAX) {
        return;
    }
    switch (key->space) {
    case VJ_SPACE_INODE:
    case VJ_SPACE_XATTR:
        inode_changed(fs, vj_be64_get(key->key.data));
        break;
    case VJ_SPACE_DENTRY:
        name_changed(fs, key->key);
        break;
    default: /* contents come with their inode, cookies with their names */
        break;
    }
}

static const VjVolumeEvents volume_events = {.changed = on_changed};

void vj_fs_listen(VjFs *fs, const VjFsEvents *events, void *opaque)
{
    if (!vj_volume_is_shared(fs->volume)) {
        return;
    }
    vj_volume_listen(fs->volume, NULL, NULL); /* no thread is in a call after that */
    fs->events = events;
    fs->events_opaque = opaque;
    vj_volume_listen(fs->volume, &volume_events, fs);
}

void vj_fs_listen_end(VjFs *fs)
{
    if (vj_volume_is_shared(fs->volume)) {
        vj_volume_listen(fs->volume, NULL, NULL);
    }
}
