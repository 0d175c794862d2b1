/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * clients.c - a volume that is open for programs, and its namespaces
 *
 *     /.varjfs/           mode 0700, made when it is needed first
 *         objects/SPACE/  a file for each object
 *         keys/SPACE/     empty; its records in VJ_SPACE_XATTR have the keys.  Immutable:
 *                         who tidies up a mount would take them away with it
 */
#include "clients/clients-private.h"

#include <unistd.h>

#define ROOT_NAME ".varjfs"
#define DIR_MODE 0700

static const char *const kind_names[VJ_CLIENT_KINDS] = {"objects", "keys"};

/* ---- open and close ---------------------------------------------------------------- */

bool vj_clients_open(const VjClientsOpen *how, VjClients **out, GError **error)
{
    VjVolumeOpen open = {.source = how->source,
                         .session_name = how->name,
                         .checkpoint_seconds = 0,
                         .wrap_store = how->wrap_store,
                         .wrap_meta = how->wrap_meta,
                         .lock_wait_us = how->lock_wait_us};
    VjVolume *volume;
    VjStoreNode node;
    VjClients *c;

    *out = NULL;
    if (!vj_volume_open(&open, &volume, error)) {
        return false;
    }
    c = g_new0(VjClients, 1);
    c->volume = volume;
    c->fs = vj_fs_new(volume);
    c->meta = vj_volume_meta(volume);
    c->is_far = vj_meta_is_far(c->meta) || vj_volume_node(volume, 0, &node);
    c->who = (VjCaller){.uid = geteuid(), .gid = getegid()};
    vj_mutex_init(&c->lock, VJ_RANK_CLIENTS, "clients");
    vj_mutex_init(&c->stats_lock, VJ_RANK_CLIENTS_STATS, "clients.stats");
    for (unsigned i = 0; i < VJ_CLIENT_KINDS; i++) {
        c->spaces[i] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    }
    c->open = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_queue_init(&c->unused);
    *out = c;
    return true;
}

int vj_clients_close(VjClients *c)
{
    int rc;

    if (c == NULL) {
        return 0;
    }
    vj_client_forget_all(c);
    g_assert(g_hash_table_size(c->open) == 0); /* no batch is under way */
    g_hash_table_unref(c->open);
    vj_fs_free(c->fs);
    rc = vj_volume_close(c->volume);
    for (unsigned i = 0; i < VJ_CLIENT_KINDS; i++) {
        g_hash_table_unref(c->spaces[i]);
    }
    vj_mutex_clear(&c->lock);
    vj_mutex_clear(&c->stats_lock);
    g_free(c);
    return rc;
}

VjVolume *vj_clients_volume(VjClients *c)
{
    return c->volume;
}

int vj_clients_sync(VjClients *c)
{
    int rc = vj_volume_sync(c->volume);

    if (rc == -ESTALE) {
        g_atomic_int_set(&c->is_shut_out, 1);
    }
    return rc;
}

bool vj_clients_is_shut_out(VjClients *c)
{
    return g_atomic_int_get(&c->is_shut_out) != 0;
}

void vj_clients_reply_clear(VjClientsReply *reply)
{
    if (reply->message != NULL) {
        g_byte_array_unref(reply->message);
    }
    vj_buf_unref(reply->bulk);
    *reply = (VjClientsReply){0};
}

/* ---- namespaces -------------------------------------------------------------------- */

int vj_client_name(VjSlice name, char out[VARJFS_WIRE_NAME_MAX + 1])
{
    if (name.len == 0 || name.len > VARJFS_WIRE_NAME_MAX ||
        memchr(name.data, '\0', name.len) != NULL ||
        memchr(name.data, '/', name.len) != NULL) {
        return -EINVAL;
    }
    memcpy(out, name.data, name.len);
    out[name.len] = '\0';
    return strcmp(out, ".") == 0 || strcmp(out, "..") == 0 ? -EINVAL : 0;
}

static int find_dir(VjClients *c, uint64_t parent, const char *name, bool make,
                    uint64_t *ino)
{
    VjAttr attr;
    int rc = vj_fs_lookup(c->fs, &c->who, parent, name, &attr);

    if (rc == -ENOENT && make) {
        rc = vj_fs_mkdir(c->fs, &c->who, parent, name, DIR_MODE, &attr);
        if (rc == -EEXIST) { /* another thread has made it */
            rc = vj_fs_lookup(c->fs, &c->who, parent, name, &attr);
        }
    }
    if (rc == 0 && !S_ISDIR(attr.st.st_mode)) {
        return -ENOTDIR;
    }
    *ino = rc == 0 ? attr.st.st_ino : 0;
    return rc;
}

int vj_client_root(VjClients *c, VjClientKind kind, bool make, uint64_t *ino)
{
    uint64_t own;
    int rc;

    vj_mutex_lock(&c->lock);
    *ino = c->roots[kind];
    vj_mutex_unlock(&c->lock);
    if (*ino != 0) {
        return 0;
    }
    rc = find_dir(c, VJ_INO_ROOT, ROOT_NAME, make, &own);
    if (rc == 0) {
        rc = find_dir(c, own, kind_names[kind], make, ino);
    }
    if (rc == 0) {
        vj_mutex_lock(&c->lock);
        c->roots[kind] = *ino;
        vj_mutex_unlock(&c->lock);
    }
    return rc;
}

void vj_client_forget_spaces(VjClients *c)
{
    vj_mutex_lock(&c->lock);
    for (unsigned i = 0; i < VJ_CLIENT_KINDS; i++) {
        g_hash_table_remove_all(c->spaces[i]);
    }
    c->forgotten++;
    vj_mutex_unlock(&c->lock);
}

/* @forgotten: as it was before it was looked for. */
static void remember(VjClients *c, VjClientKind kind, const char *name, uint64_t ino,
                     uint64_t forgotten)
{
    GHashTable *spaces = c->spaces[kind];

    vj_mutex_lock(&c->lock);
    if (c->forgotten != forgotten) {
        vj_mutex_unlock(&c->lock);
        return;
    }
    if (g_hash_table_size(spaces) >= VJ_CLIENT_SPACES_KEPT) {
        g_hash_table_remove_all(spaces);
    }
    g_hash_table_insert(spaces, g_strdup(name), g_memdup2(&ino, sizeof ino));
    vj_mutex_unlock(&c->lock);
}

/* 0; -ENOENT: it is not, and is not to be. */
static int protect(VjClients *c, uint64_t ino, bool make)
{
    uint32_t flags;
    int rc = vj_fs_get_flags(c->fs, ino, &flags);

    if (rc < 0 || (flags & VJ_INODE_IMMUTABLE) != 0) {
        return rc;
    }
    return make ? vj_fs_set_flags(c->fs, NULL, ino, flags | VJ_INODE_IMMUTABLE) : -ENOENT;
}

int vj_client_space(VjClients *c, VjClientKind kind, VjSlice space, bool make,
                    uint64_t *ino)
{
    char name[VARJFS_WIRE_NAME_MAX + 1];
    const uint64_t *kept;
    uint64_t root, forgotten;
    int rc =
        space.len > VARJFS_WIRE_NAMESPACE_MAX ? -EINVAL : vj_client_name(space, name);

    *ino = 0;
    if (rc < 0) {
        return rc;
    }
    vj_mutex_lock(&c->lock);
    kept = g_hash_table_lookup(c->spaces[kind], name);
    *ino = kept != NULL ? *kept : 0;
    forgotten = c->forgotten;
    vj_mutex_unlock(&c->lock);
    if (*ino != 0) {
        return 0;
    }
    rc = vj_client_root(c, kind, make, &root);
    if (rc == 0) {
        rc = find_dir(c, root, name, make, ino);
    }
    if (rc == 0 && kind == VJ_CLIENT_KEYS) {
        rc = protect(c, *ino, make);
        if (rc == -ENOENT) {
            return 0; /* as after a crash: the next key that is put looks again */
        }
    }
    if (rc == 0) {
        remember(c, kind, name, *ino, forgotten);
    }
    return rc;
}
