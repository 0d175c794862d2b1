/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fs.c - the file system as a whole: open inodes, orphans, space
 *
 * An inode without a name lives on while a handle is open or the kernel knows it.  It is
 * a VjNode from the moment its last name went, and it is reaped by the call that takes
 * the node out of the table: the last release, the kernel's forget, or the unlink itself.
 */
#include "fs/fs-private.h"

VjFs *vj_fs_new(VjVolume *volume)
{
    VjFs *fs = g_new0(VjFs, 1);

    g_assert(volume != NULL);
    fs->volume = volume;
    fs->files = vj_volume_files(volume);
    fs->meta = vj_volume_meta(volume);
    fs->nodes = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    fs->busy_paths = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    fs->shown = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    vj_mutex_init(&fs->lock, VJ_RANK_FS, "fs");
    fs->inode_count = vj_volume_inodes_at_open(volume);
    vj_fs_listen(fs, NULL, NULL);
    return fs;
}

void vj_fs_free(VjFs *fs)
{
    if (fs == NULL) {
        return;
    }
    vj_fs_listen_end(fs);
    g_assert(fs->staged_bytes == 0);
    g_hash_table_unref(fs->nodes);
    g_hash_table_unref(fs->busy_paths);
    g_hash_table_unref(fs->shown);
    vj_mutex_clear(&fs->lock);
    g_free(fs);
}

bool vj_fs_is_shared(VjFs *fs)
{
    return vj_volume_is_shared(fs->volume);
}

bool vj_fs_is_shut_out(VjFs *fs)
{
    return vj_volume_is_shut_out(fs->volume);
}

bool vj_fs_is_far(VjFs *fs)
{
    return vj_meta_is_far(fs->meta);
}

void vj_fs_set_knows(VjFs *fs, VjFsKnows *knows, void *opaque)
{
    fs->knows = knows;
    fs->knows_opaque = opaque;
}

void vj_fs_set_requests(VjFs *fs, const VjFsRequests *requests, void *opaque)
{
    fs->requests = requests;
    fs->requests_opaque = opaque;
}

/* ---- nodes ------------------------------------------------------------------------- */

static VjNode *node_get(VjFs *fs, uint64_t ino) VJ_REQUIRES(fs->lock)
{
    VjNode *n = g_hash_table_lookup(fs->nodes, &ino);

    if (n == NULL) {
        n = g_new0(VjNode, 1);
        n->ino = ino;
        g_hash_table_insert(fs->nodes, &n->ino, n);
    }
    return n;
}

/* statfs counts what has a name or is open; the rest is only waiting to be dropped. */
static unsigned node_counts(const VjNode *n)
{
    return !n->orphan || n->handles > 0;
}

/* After a change of @n, which counted as @before until then. */
static void node_count_again(VjFs *fs, const VjNode *n, unsigned before)
    VJ_REQUIRES(fs->lock)
{
    /* On a damaged volume there may have been fewer inodes than names. */
    if (fs->inode_count + node_counts(n) >= before) {
        fs->inode_count = fs->inode_count + node_counts(n) - before;
    }
}

void vj_fs_node_orphaned(VjFs *fs, uint64_t ino, bool held)
{
    VjNode *n;
    unsigned before;
    bool is_known, reap = false;

    vj_mutex_lock(&fs->lock);
    n = node_get(fs, ino);
    before = node_counts(n);
    n->orphan = true;
    n->forgotten = false;
    node_count_again(fs, n, before);
    vj_mutex_unlock(&fs->lock);

    /* A forget that came before found no orphan; one that comes later finds it. */
    is_known = fs->knows != NULL && (held || fs->knows(fs->knows_opaque, ino));
    if (is_known) {
        return;
    }
    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    if (n != NULL && n->orphan) {
        n->forgotten = true;
        reap = vj_fs_node_drop_unused_locked(fs, n);
    }
    vj_mutex_unlock(&fs->lock);
    if (reap) {
        vj_volume_reap(fs->volume, ino);
    }
}

void vj_fs_node_unlinked(VjFs *fs, uint64_t ino, bool left_open)
{
    if (!left_open) {
        vj_fs_node_orphaned(fs, ino, false);
        return;
    }
    vj_mutex_lock(&fs->lock);
    if (fs->inode_count > 0) {
        fs->inode_count--;
    }
    vj_mutex_unlock(&fs->lock);
}

void vj_fs_node_named(VjFs *fs, uint64_t ino)
{
    VjNode *n;

    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    if (n != NULL) {
        unsigned before = node_counts(n);

        n->orphan = false;
        node_count_again(fs, n, before);
        (void)vj_fs_node_drop_unused_locked(fs, n);
    }
    vj_mutex_unlock(&fs->lock);
}

void vj_fs_node_made(VjFs *fs)
{
    vj_mutex_lock(&fs->lock);
    fs->inode_count++;
    vj_mutex_unlock(&fs->lock);
}

void vj_fs_forgotten(VjFs *fs, uint64_t ino)
{
    VjNode *n;
    bool reap = false;

    vj_mutex_lock(&fs->lock);
    n = g_hash_table_lookup(fs->nodes, &ino);
    if (n != NULL && n->orphan) {
        n->forgotten = true;
        reap = vj_fs_node_drop_unused_locked(fs, n);
    }
    vj_mutex_unlock(&fs->lock);
    if (reap) {
        vj_trace(fs, "ino %" G_GUINT64_FORMAT ": forgotten, reaped", ino);
        vj_volume_reap(fs->volume, ino);
    }
}

static unsigned handle_writes(const VjHandle *h)
{
    return (h->flags & O_ACCMODE) != O_RDONLY;
}

VjHandle *vj_fs_node_opened(VjFs *fs, VjFile *file, int flags)
{
    VjHandle *h = g_new0(VjHandle, 1);
    unsigned before;
    VjNode *n;

    h->fs = fs;
    h->ino = vj_file_ino(file);
    h->flags = flags;
    h->error_mark = vj_file_error_mark(file);
    h->file = file;
    vj_mutex_init(&h->lock, VJ_RANK_FS_HANDLE, "fs handle");

    vj_mutex_lock(&fs->lock);
    n = node_get(fs, h->ino);
    before = node_counts(n);
    n->handles++;
    n->writers += handle_writes(h);
    g_atomic_int_set(&n->atime_is_new, 0);
    h->node = n;
    node_count_again(fs, n, before);
    vj_mutex_unlock(&fs->lock);
    return h;
}

int vj_fs_node_open(VjFs *fs, uint64_t ino, int flags, VjHandle **out)
{
    VjFile *file;
    int r = vj_file_open(fs->files, ino, &file);

    *out = r == 0 ? vj_fs_node_opened(fs, file, flags) : NULL;
    return r;
}

void vj_fs_release(VjFs *fs, VjHandle *h)
{
    uint64_t ino = h->ino;
    unsigned before;
    VjNode *n;
    bool reap;

    vj_fs_commit_read(h);
    if (h->stages != NULL) {
        for (guint i = 0; i < h->stages->len; i++) {
            vj_buf_unref(g_array_index(h->stages, VjStage, i).data);
        }
        g_array_unref(h->stages);
    }
    vj_file_unref(h->file);

    vj_mutex_lock(&fs->lock);
    fs->staged_bytes -= h->staged_bytes;
    n = g_hash_table_lookup(fs->nodes, &ino);
    g_assert(n != NULL && n->handles > 0);
    /* A utimens that has failed since gave it back. */
    while (n->handles == 1 && n->was_read) {
        vj_mutex_unlock(&fs->lock);
        vj_fs_commit_read(h);
        vj_mutex_lock(&fs->lock);
    }
    before = node_counts(n);
    n->handles--;
    n->writers -= handle_writes(h);
    node_count_again(fs, n, before);
    reap = vj_fs_node_drop_unused_locked(fs, n);
    vj_mutex_unlock(&fs->lock);
    if (reap) {
        vj_trace(fs, "ino %" G_GUINT64_FORMAT ": released, reaped", ino);
        vj_volume_reap(fs->volume, ino);
    }
    vj_mutex_clear(&h->lock);
    g_free(h);
}

uint64_t vj_fs_handle_ino(const VjHandle *h)
{
    return h->ino;
}

/* ---- the volume -------------------------------------------------------------------- */

/* An inode for each block that is left is what is promised, and an object for each. */
int vj_fs_statfs(VjFs *fs, struct statvfs *out)
{
    VjStoreSpace space;
    uint64_t reserved;
    int r;

    vj_stall_begin();
    r = vj_stall_end(vj_volume_space(fs->volume, &space, &reserved));
    if (r < 0) {
        return r;
    }
    memset(out, 0, sizeof *out);
    out->f_bsize = 4096;
    out->f_frsize = 4096;
    out->f_blocks = space.total_bytes / 4096;
    out->f_bfree = (space.free_bytes - MIN(reserved, space.free_bytes)) / 4096;
    out->f_bfree = MIN(out->f_bfree, out->f_blocks);
    out->f_bavail = (space.available_bytes - MIN(reserved, space.available_bytes)) / 4096;
    out->f_bavail = MIN(out->f_bavail, out->f_bfree);
    out->f_ffree = MIN(out->f_bfree, space.available_objects);
    out->f_favail = MIN(out->f_bavail, out->f_ffree);
    vj_mutex_lock(&fs->lock);
    out->f_files = out->f_ffree + fs->inode_count;
    vj_mutex_unlock(&fs->lock);
    out->f_namemax = VJ_NAME_MAX;
    return 0;
}

int vj_fs_sync_names(VjFs *fs)
{
    if (vj_volume_read_only(fs->volume)) {
        return 0;
    }
    return vj_meta_flush(fs->meta);
}

void vj_fs_sync_names_join(VjFs *fs, VjFlushWait *w)
{
    if (vj_volume_read_only(fs->volume)) {
        w->done(w, 0);
    } else {
        vj_meta_flush_join(fs->meta, w);
    }
}

int vj_fs_sync_all(VjFs *fs)
{
    if (vj_volume_read_only(fs->volume)) {
        return 0;
    }
    return vj_volume_sync(fs->volume);
}
