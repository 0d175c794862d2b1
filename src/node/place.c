/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * place.c - the directory of a volume on a node
 *
 *     DIRECTORY/  node.conf   whose it is; written last when it is made
 *                 objects/    the local store
 *                 meta/       the local engine
 *
 * A directory without node.conf belongs to no volume.  What else is in it then was left
 * by a making that was cut off, and is removed by the next one: so nothing of a volume is
 * ever taken for another's.
 */
#include "node/node-private.h"

#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONF_BYTES_MAX ((size_t)4096)
#define HEAD "varjfs-node 1\n"
#define UUID_TEXT_BYTES 37u

static void uuid_text(const uint8_t uuid[VJ_WIRE_UUID_BYTES], char out[UUID_TEXT_BYTES])
{
    char *at = out;

    for (unsigned i = 0; i < VJ_WIRE_UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *at++ = '-';
        }
        at += g_snprintf(at, 3, "%02x", uuid[i]);
    }
}

static bool uuid_parse(const char *text, uint8_t uuid[VJ_WIRE_UUID_BYTES])
{
    unsigned digits = 0;

    if (strlen(text) != UUID_TEXT_BYTES - 1) {
        return false;
    }
    for (const char *at = text; *at != '\0'; at++) {
        int value = g_ascii_xdigit_value(*at);

        if (value >= 0 && digits < 2 * VJ_WIRE_UUID_BYTES) {
            uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | value);
            digits++;
        } else if (*at != '-') {
            return false;
        }
    }
    return digits == 2 * VJ_WIRE_UUID_BYTES;
}

/* ---- node.conf --------------------------------------------------------------------- */

static char *format_conf(const VjNodePlace *p)
{
    char node[UUID_TEXT_BYTES], volume[UUID_TEXT_BYTES];
    g_autofree char *text = NULL;

    uuid_text(p->node, node);
    uuid_text(p->volume, volume);
    text = g_strdup_printf(HEAD "node = %s\nvolume = %s\nroles = %u\n", node, volume,
                           p->roles);
    return g_strdup_printf("%schecksum = %016" G_GINT64_MODIFIER "x\n", text,
                           vj_checksum64(text, strlen(text)));
}

static bool parse_conf(const char *text, VjNodePlace *p)
{
    char node[UUID_TEXT_BYTES], volume[UUID_TEXT_BYTES];
    g_autofree char *again = NULL;

    /* What is read is made again and compared: so every byte counts. */
    if (sscanf(text, HEAD "node = %36s volume = %36s roles = %u", node, volume,
               &p->roles) != 3 ||
        !uuid_parse(node, p->node) || !uuid_parse(volume, p->volume)) {
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
    g_autofree char *path = g_build_filename(p->path, "objects", NULL);
    VJ_AUTO_FD fd = -1;
    char volume[UUID_TEXT_BYTES];
    VjStorePlace place = {
        .path = path, .volume = volume, .create = create, .credentials_dir_fd = -1};
    GError *error = NULL;
    int rc = open_dir(p, "objects", vj_store_needs(conf->store), create, &fd);

    if (rc < 0) {
        vj_log_error("%s: %s", path, g_strerror(-rc));
        return rc;
    }
    uuid_text(p->volume, volume);
    place.dir_fd = fd;
    if (!vj_store_open(conf->store, &place, &p->store, &error) ||
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
    g_autofree char *path = g_build_filename(p->path, "meta", NULL);
    VJ_AUTO_FD fd = -1;
    VjMetaPlace place = {.path = path,
                         .create = create,
                         .credentials_dir_fd = -1,
                         .txn_bytes_max = VJ_NODE_TXN_BYTES_MAX};
    GError *error = NULL;
    int rc = open_dir(p, "meta", vj_meta_needs(conf->meta), create, &fd);

    if (rc < 0) {
        vj_log_error("%s: %s", path, g_strerror(-rc));
        return rc;
    }
    place.dir_fd = fd;
    if (!vj_meta_open(conf->meta, &place, &p->meta, &error)) {
        return report(p, error);
    }
    return vj_node_keys_new(p->meta, &p->keys);
}

static int open_both(VjNodePlace *p, const VjNodeVolumeConf *conf, bool create)
{
    int rc = 0;

    if ((p->roles & VJ_NODE_ROLE(VJ_ROLE_OBJECT)) != 0) {
        rc = open_store(p, conf, create);
    }
    if (rc == 0 && (p->roles & VJ_NODE_ROLE(VJ_ROLE_META)) != 0) {
        rc = open_meta(p, conf, create);
    }
    return rc;
}

static int close_both(VjNodePlace *p)
{
    int rc = p->meta != NULL ? vj_meta_close(g_steal_pointer(&p->meta)) : 0;

    vj_node_keys_free(g_steal_pointer(&p->keys));
    vj_store_close(g_steal_pointer(&p->store));
    return rc;
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

/* It belongs to no volume from here on, and has nothing of one. */
static int clear(const VjNodePlace *p)
{
    int rc = 0;

    if (unlinkat(p->dir_fd, VJ_NODE_CONF_NAME, 0) < 0 && errno != ENOENT) {
        return -errno;
    }
    rc = fsync(p->dir_fd) < 0 ? -errno : remove_tree(p, "objects");
    return rc < 0 ? rc : remove_tree(p, "meta");
}

static int make(VjNodePlace *p, const VjNodePlaceOpen *how)
{
    g_autofree char *text = NULL;
    GError *error = NULL;
    int rc = clear(p);

    if (rc < 0) {
        vj_log_error("%s: what is left of an older volume: %s", p->path, g_strerror(-rc));
        return rc;
    }
    memcpy(p->volume, how->volume, sizeof p->volume);
    vj_random_bytes(p->node, sizeof p->node);
    p->roles = how->conf->roles;
    rc = open_both(p, how->conf, true);
    if (rc < 0) {
        return rc;
    }
    text = format_conf(p);
    if (!vj_file_replace_contents(p->dir_fd, VJ_NODE_CONF_NAME, text, strlen(text), 0600,
                                  &error)) {
        return report(p, error);
    }
    return 0;
}

/* ---- open and close ---------------------------------------------------------------- */

static int open_existing(VjNodePlace *p, const VjNodePlaceOpen *how)
{
    if (memcmp(p->volume, how->volume, sizeof p->volume) != 0) {
        return -ENXIO;
    }
    if ((how->conf->roles & ~p->roles) != 0) {
        vj_log_error("%s: was made for fewer roles than the configuration says", p->path);
        return -EINVAL;
    }
    p->roles = how->conf->roles;
    return open_both(p, how->conf, false);
}

static int decide(VjNodePlace *p, const VjNodePlaceOpen *how, bool *was_empty)
{
    const uint8_t may_make = VJ_HELLO_CREATE | VJ_HELLO_ADOPT;
    bool destroys = (how->flags & VJ_HELLO_DESTROY) != 0;
    int rc = read_conf(p);

    if (rc == 0) {
        rc = open_existing(p, how);
        if (rc != -ENXIO || !destroys) {
            return rc;
        }
        vj_log_warn("%s: another volume is destroyed, as mkfs.varjfs -f asks for it",
                    p->path);
    } else if (rc != -ENODATA && !destroys) {
        return rc;
    } else if ((how->flags & may_make) == 0 ||
               ((how->flags & VJ_HELLO_ADOPT) != 0 && how->conf->refuses_empty)) {
        return rc;
    }
    *was_empty = true;
    if ((how->flags & VJ_HELLO_ADOPT) != 0) {
        vj_log_warn("%s is empty, and is taken for the volume \"%s\" again", p->path,
                    how->conf->name);
    }
    return make(p, how);
}

int vj_node_place_open(const VjNodePlaceOpen *how, VjNodePlace **out, bool *was_empty)
{
    VjNodePlace *p = g_new0(VjNodePlace, 1);
    int rc;

    *out = NULL;
    *was_empty = false;
    p->path = g_strdup(how->conf->directory);
    p->dir_fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = p->dir_fd < 0 ? -errno : vj_fd_lock(p->dir_fd, NULL, 0);
    if (rc < 0) {
        vj_log_error("%s: %s", p->path,
                     rc == -EWOULDBLOCK ? "another process uses it" : g_strerror(-rc));
        rc = rc == -EWOULDBLOCK ? -EBUSY : rc == -ENOENT ? -EIO : rc;
    } else {
        rc = decide(p, how, was_empty);
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
    rc = close_both(p);
    if (rc < 0) {
        vj_log_error("%s: closing its keys: %s", p->path, g_strerror(-rc));
    }
    vj_fd_close(&p->dir_fd);
    g_free(p->path);
    g_free(p);
    return rc;
}
