/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * place.c - the directory of a volume on a node
 *
 *     DIRECTORY/  node.conf     whose it is, and which roles were made; written last
 *                 node.making   is there while something is made or destroyed
 *                 objects/      the local store
 *                 meta/         the local engine
 *
 * A directory without node.conf belongs to no volume.  Objects or keys that no node.conf
 * speaks of may be all that is left of somebody's volume: they are removed where
 * node.making says that a making was cut off, or when mkfs.varjfs -f asks for it, and
 * else the directory is refused.
 *
 * Each role is made by itself, when a hello of that role asks for it.  A directory that a
 * mount takes again after its disk was lost gets objects alone: keys that were lost are
 * not there again because an empty engine is.
 */
#include "base/uuid.h"
#include "node/node-private.h"

#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONF_BYTES_MAX ((size_t)4096)
#define HEAD "varjfs-node 1\n"
#define MAKING_NAME "node.making"
#define OBJECTS_DIR "objects"
#define META_DIR "meta"
/* Of a mount's own directory. */
#define SUPERBLOCK_NAME "varjfs.conf"
/* A daemon that ends lets go of it. */
#define CLIENTS_LOCK_WAIT_US ((int64_t)3 * G_USEC_PER_SEC)

/* ---- node.conf --------------------------------------------------------------------- */

static char *format_conf(const VjNodePlace *p)
{
    char node[VJ_UUID_TEXT_BYTES], volume[VJ_UUID_TEXT_BYTES];
    g_autofree char *text = NULL;

    vj_uuid_text(p->node, node);
    vj_uuid_text(p->volume, volume);
    text = g_strdup_printf(HEAD "node = %s\nvolume = %s\nroles = %u\n", node, volume,
                           p->made);
    return g_strdup_printf("%schecksum = %016" G_GINT64_MODIFIER "x\n", text,
                           vj_checksum64(text, strlen(text)));
}

static bool parse_conf(const char *text, VjNodePlace *p)
{
    char node[VJ_UUID_TEXT_BYTES], volume[VJ_UUID_TEXT_BYTES];
    g_autofree char *again = NULL;

    /* What is read is made again and compared: so every byte counts. */
    if (sscanf(text, HEAD "node = %36s volume = %36s roles = %u", node, volume,
               &p->made) != 3 ||
        !vj_uuid_parse(node, p->node) || !vj_uuid_parse(volume, p->volume)) {
        return false;
    }
    again = format_conf(p);
    return strcmp(again, text) == 0;
}

/* -ENODATA: there is none. */
static int read_conf(VjNodePlace *p)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *text =
        vj_file_read_small(p->dir_fd, VJ_NODE_CONF_NAME, CONF_BYTES_MAX, NULL, &error);

    if (text == NULL) {
        if (error->code == ENOENT) {
            return -ENODATA;
        }
        vj_log_error("%s: %s", p->path, error->message);
        return -EIO;
    }
    if (!parse_conf(text, p)) {
        vj_log_error("%s/" VJ_NODE_CONF_NAME " is damaged", p->path);
        return -EBADMSG;
    }
    return 0;
}

/* ---- store and keys ---------------------------------------------------------------- */

static int report(const VjNodePlace *p, GError *error)
{
    int rc = vj_error_to_errno(error);

    vj_log_error("%s: %s", p->path, error->message);
    g_error_free(error);
    return rc;
}

/* The directory of a driver; -1: it needs none. */
static int open_dir(const VjNodePlace *p, const char *name, uint32_t needs, bool create,
                    int *fd)
{
    *fd = -1;
    if ((needs & VJ_NEEDS_FILES) == 0) {
        return 0;
    }
    if (create && mkdirat(p->dir_fd, name, 0700) < 0 && errno != EEXIST) {
        return -errno;
    }
    *fd = openat(p->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return *fd >= 0 ? 0 : -errno;
}

static int open_store(VjNodePlace *p, const VjNodeVolumeConf *conf, bool create)
{
    g_autofree char *path = g_build_filename(p->path, OBJECTS_DIR, NULL);
    VJ_AUTO_FD fd = -1;
    char volume[VJ_UUID_TEXT_BYTES];
    VjStorePlace place = {
        .path = path, .volume = volume, .create = create, .credentials_dir_fd = -1};
    GError *error = NULL;
    int rc = open_dir(p, OBJECTS_DIR, vj_store_needs(conf->store), create, &fd);

    if (rc < 0) {
        vj_log_error("%s: %s", path, g_strerror(-rc));
        return rc;
    }
    vj_uuid_text(p->volume, volume);
    place.dir_fd = fd;
    if (!vj_store_open(conf->store, &place, &p->store, &error) ||
        (p->wrap_store != NULL &&
         !vj_store_wrap(p->wrap_store, p->store, &p->store, &error)) ||
        !vj_store_wrap("stats", p->store, &p->store, &error)) {
        return report(p, error);
    }
    if (!vj_store_can_put_as(p->store)) {
        vj_log_error("%s: store=%s cannot stand behind a node", p->path, conf->store);
        return -EOPNOTSUPP;
    }
    return 0;
}

static int open_meta(VjNodePlace *p, const VjNodeVolumeConf *conf, bool create)
{
    g_autofree char *path = g_build_filename(p->path, META_DIR, NULL);
    VJ_AUTO_FD fd = -1;
    VjMetaPlace place = {.path = path,
                         .create = create,
                         .credentials_dir_fd = -1,
                         .txn_bytes_max = VJ_NODE_TXN_BYTES_MAX};
    GError *error = NULL;
    int rc = open_dir(p, META_DIR, vj_meta_needs(conf->meta), create, &fd);

    if (rc < 0) {
        vj_log_error("%s: %s", path, g_strerror(-rc));
        return rc;
    }
    place.dir_fd = fd;
    if (!vj_meta_open(conf->meta, &place, &p->meta, &error) ||
        (p->wrap_meta != NULL &&
         !vj_meta_wrap(p->wrap_meta, p->meta, &p->meta, &error)) ||
        !vj_meta_wrap("stats", p->meta, &p->meta, &error)) {
        return report(p, error);
    }
    return vj_node_keys_new(p->meta, &p->keys);
}

/* What is there already stays. */
static int open_roles(VjNodePlace *p, const VjNodeVolumeConf *conf, uint32_t roles,
                      bool create)
{
    int rc = 0;

    if ((roles & VJ_NODE_ROLE(VJ_ROLE_OBJECT)) != 0 && p->store == NULL) {
        rc = open_store(p, conf, create);
    }
    if (rc == 0 && (roles & VJ_NODE_ROLE(VJ_ROLE_META)) != 0 && p->meta == NULL) {
        rc = open_meta(p, conf, create);
    }
    return rc;
}

static int close_all(VjNodePlace *p)
{
    int closed = vj_clients_close(g_steal_pointer(&p->clients));
    int rc = p->meta != NULL ? vj_meta_close(g_steal_pointer(&p->meta)) : 0;

    vj_node_keys_free(g_steal_pointer(&p->keys));
    vj_store_close(g_steal_pointer(&p->store));
    return rc < 0 ? rc : closed;
}

/* ---- making ------------------------------------------------------------------------ */

/* What is below @name in the directory, and itself.  Follows no link. */
static int remove_tree(const VjNodePlace *p, const char *name)
{
    g_autofree char *path = g_build_filename(p->path, name, NULL);
    char *paths[] = {path, NULL};
    FTS *tree;
    FTSENT *entry;
    int rc = 0;

    if (!vj_fd_has(p->dir_fd, name)) {
        return 0;
    }
    tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    if (tree == NULL) {
        return -errno;
    }
    while (rc == 0 && (errno = 0, entry = fts_read(tree)) != NULL) {
        if (entry->fts_info == FTS_DP) {
            rc = rmdir(entry->fts_accpath) < 0 ? -errno : 0;
        } else if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR) {
            rc = -entry->fts_errno;
        } else if (entry->fts_info != FTS_D) {
            rc = unlink(entry->fts_accpath) < 0 ? -errno : 0;
        }
    }
    rc = rc == 0 && errno != 0 ? -errno : rc;
    fts_close(tree);
    return rc;
}

static bool has_entries(const VjNodePlace *p, const char *name)
{
    g_autofree char *path = g_build_filename(p->path, name, NULL);
    g_autoptr(GDir) dir = NULL;

    if (!vj_fd_has(p->dir_fd, name)) {
        return false;
    }
    dir = g_dir_open(path, 0, NULL);
    return dir == NULL || g_dir_read_name(dir) != NULL;
}

static const char *dir_of(uint8_t role)
{
    return role == VJ_ROLE_OBJECT ? OBJECTS_DIR : META_DIR;
}

/* Durable before anything is removed. */
static int mark(const VjNodePlace *p)
{
    VJ_AUTO_FD fd =
        openat(p->dir_fd, MAKING_NAME,
               O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    return fd < 0 || fsync(p->dir_fd) < 0 ? -errno : 0;
}

/* All is durable. */
static int unmark(const VjNodePlace *p)
{
    return (unlinkat(p->dir_fd, MAKING_NAME, 0) < 0 && errno != ENOENT) ||
                   fsync(p->dir_fd) < 0
               ? -errno
               : 0;
}

/* Under the mark: the directory belongs to no volume, and has nothing of one. */
static int destroy(VjNodePlace *p)
{
    int rc;

    if (unlinkat(p->dir_fd, VJ_NODE_CONF_NAME, 0) < 0 && errno != ENOENT) {
        return -errno;
    }
    p->made = 0;
    rc = fsync(p->dir_fd) < 0 ? -errno : remove_tree(p, OBJECTS_DIR);
    return rc < 0 ? rc : remove_tree(p, META_DIR);
}

/* The way is free for making the role of @how; @destroys: and nothing else is left. */
static int clear_way(VjNodePlace *p, const VjNodePlaceOpen *how, bool destroys)
{
    bool may_remove =
        (how->flags & VJ_HELLO_DESTROY) != 0 || vj_fd_has(p->dir_fd, MAKING_NAME);
    uint8_t role = how->role;
    int rc;

    if (!may_remove && has_entries(p, dir_of(role))) {
        vj_log_error("%s/%s is not empty, and " VJ_NODE_CONF_NAME
                     " does not say whose it is: mkfs.varjfs -f destroys it",
                     p->path, dir_of(role));
        return -ENXIO;
    }
    rc = mark(p);
    if (rc == 0) {
        rc = destroys ? destroy(p) : remove_tree(p, dir_of(role));
    }
    if (rc < 0) {
        vj_log_error("%s: what is left of an older volume: %s", p->path, g_strerror(-rc));
    }
    return rc;
}

static int write_conf(VjNodePlace *p)
{
    g_autofree char *text = format_conf(p);
    GError *error = NULL;
    int rc;

    if (!vj_file_replace_contents(p->dir_fd, VJ_NODE_CONF_NAME, text, strlen(text), 0600,
                                  &error)) {
        return report(p, error);
    }
    rc = unmark(p);
    if (rc < 0) {
        vj_log_error("%s/" MAKING_NAME ": %s", p->path, g_strerror(-rc));
    }
    return rc;
}

static int make(VjNodePlace *p, const VjNodePlaceOpen *how, bool destroys)
{
    int rc = clear_way(p, how, destroys);

    if (rc < 0) {
        return rc;
    }
    if (p->made == 0) {
        memcpy(p->volume, how->volume, sizeof p->volume);
        vj_random_bytes(p->node, sizeof p->node);
    }
    rc = open_roles(p, how->conf, VJ_NODE_ROLE(how->role), true);
    if (rc == 0) {
        p->made |= VJ_NODE_ROLE(how->role);
        rc = write_conf(p);
    }
    return rc;
}

/* ---- open and close ---------------------------------------------------------------- */

/* Roles whose drivers keep nothing when the process ends. */
static uint32_t forgotten_roles(const VjNodeVolumeConf *conf)
{
    return ((vj_store_needs(conf->store) & VJ_NEEDS_FILES) == 0
                ? VJ_NODE_ROLE(VJ_ROLE_OBJECT)
                : 0) |
           (vj_meta_forgets(conf->meta) ? VJ_NODE_ROLE(VJ_ROLE_META) : 0);
}

/* @how asks for a role that is not there, and may have it. */
static bool may_make(const VjNodePlaceOpen *how)
{
    return (how->flags & VJ_HELLO_CREATE) != 0 ||
           ((how->flags & VJ_HELLO_ADOPT) != 0 && how->role == VJ_ROLE_OBJECT &&
            !how->conf->refuses_empty);
}

int vj_node_place_add(VjNodePlace *p, const VjNodePlaceOpen *how, bool *was_empty)
{
    uint32_t role = VJ_NODE_ROLE(how->role);
    int rc;

    *was_empty = false;
    if ((p->made & role) != 0) {
        return open_roles(p, how->conf, role, false);
    }
    if (!may_make(how)) {
        return -ENODATA;
    }
    if ((how->flags & VJ_HELLO_ADOPT) != 0) {
        vj_log_warn("%s has no objects, and is taken for the volume \"%s\" again",
                    p->path, how->conf->name);
    }
    rc = make(p, how, false);
    *was_empty = rc == 0;
    return rc;
}

static int replace_volume(VjNodePlace *p, const VjNodePlaceOpen *how, bool *was_empty)
{
    int rc;

    vj_log_warn("%s: what is there is destroyed, as mkfs.varjfs -f asks for it", p->path);
    rc = make(p, how, true);
    *was_empty = rc == 0;
    return rc;
}

/* A whole volume, which locks its directory itself. */
static int open_clients(VjNodePlace *p, const VjNodePlaceOpen *how)
{
    g_autofree char *name = g_strdup_printf("varjfsd, pid %ld", (long)getpid());
    VjClientsOpen open = {.source = p->path,
                          .name = name,
                          .wrap_store = how->wrap_store,
                          .wrap_meta = how->wrap_meta,
                          .lock_wait_us = CLIENTS_LOCK_WAIT_US};
    GError *error = NULL;

    if (!vj_clients_open(&open, &p->clients, &error)) {
        return report(p, error);
    }
    if (!vj_uuid_parse(vj_volume_uuid(vj_clients_volume(p->clients)), p->volume)) {
        return -EBADMSG;
    }
    memcpy(p->node, p->volume, sizeof p->node);
    p->made = VJ_NODE_ROLE(VJ_ROLE_CLIENT);
    return 0;
}

static int enter(VjNodePlace *p, const VjNodePlaceOpen *how, bool *was_empty)
{
    bool destroys = (how->flags & VJ_HELLO_DESTROY) != 0;
    int rc = read_conf(p);

    p->made &= ~forgotten_roles(how->conf);
    if (rc == 0 && p->made != 0 &&
        memcmp(p->volume, how->volume, sizeof p->volume) != 0) {
        return destroys ? replace_volume(p, how, was_empty) : -ENXIO;
    }
    if (rc < 0 && destroys) {
        return replace_volume(p, how, was_empty);
    }
    if (rc < 0 && rc != -ENODATA) {
        return rc;
    }
    return vj_node_place_add(p, how, was_empty);
}

/* Who may open it may lock it, too. */
static void close_to_others(const VjNodePlace *p)
{
    struct stat st;

    if (fstat(p->dir_fd, &st) == 0 && (st.st_mode & (S_IRGRP | S_IROTH)) != 0 &&
        fchmod(p->dir_fd, st.st_mode & (mode_t)(07777 & ~(S_IRGRP | S_IROTH))) < 0) {
        vj_log_warn("%s: others may open it, and keep it locked: %s", p->path,
                    g_strerror(errno));
    }
}

/* -errno, and why is logged. */
static int lock_dir(VjNodePlace *p)
{
    int rc;

    p->dir_fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = p->dir_fd < 0 ? -errno : vj_fd_lock(p->dir_fd, NULL, 0);
    if (rc < 0) {
        vj_log_error("%s: %s", p->path,
                     rc == -EWOULDBLOCK ? "another process uses it" : g_strerror(-rc));
        return rc == -EWOULDBLOCK ? -EBUSY : -EIO;
    }
    if (vj_fd_has(p->dir_fd, SUPERBLOCK_NAME)) {
        vj_log_error("%s has a file system of its own (" SUPERBLOCK_NAME
                     "): a node takes another directory",
                     p->path);
        return -ENXIO;
    }
    close_to_others(p);
    return 0;
}

int vj_node_place_open(const VjNodePlaceOpen *how, VjNodePlace **out, bool *was_empty)
{
    VjNodePlace *p = g_new0(VjNodePlace, 1);
    int rc;

    *out = NULL;
    *was_empty = false;
    p->path = g_strdup(how->conf->directory);
    p->wrap_store = how->wrap_store;
    p->wrap_meta = how->wrap_meta;
    p->dir_fd = -1;
    if (how->role == VJ_ROLE_CLIENT) {
        rc = open_clients(p, how);
    } else {
        rc = lock_dir(p);
        rc = rc == 0 ? enter(p, how, was_empty) : rc;
    }
    if (rc < 0) {
        (void)vj_node_place_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

int vj_node_place_close(VjNodePlace *p)
{
    int rc;

    if (p == NULL) {
        return 0;
    }
    rc = close_all(p);
    if (rc < 0) {
        vj_log_error("%s: closing it: %s", p->path, g_strerror(-rc));
    }
    vj_fd_close(&p->dir_fd);
    g_free(p->path);
    g_free(p);
    return rc;
}
