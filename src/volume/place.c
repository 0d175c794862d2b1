/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * place.c - where a volume is: opening, closing, directories for drivers
 *
 * A place with a directory is locked by the first volume that uses it, marked as in use
 * by the first that may change it, and both end with the place.  So several volumes of
 * one process can share a place, and each has its own engine and store.  A volume whose
 * drivers need no files can do without a directory: then the place is a file with the
 * text of varjfs.conf, or that text alone.
 */
#include "volume/volume-private.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- open and close ---------------------------------------------------------------- */

/* @dir_fd is taken. */
static VjPlace *place_new(const char *name, int dir_fd)
{
    VjPlace *p = g_new0(VjPlace, 1);

    p->name = g_strdup(name);
    p->dir_fd = dir_fd;
    p->file_fd = -1;
    p->credentials_dir_fd = dir_fd;
    p->credentials_dir = dir_fd < 0 ? NULL : g_strdup(name);
    p->lock_fd = -1;
    p->replaced_fd = -1;
    return p;
}

/* One that another user has put there might be locked for ever. */
static int open_replaced(int dir_fd, const char *path, int file_fd)
{
    g_autofree char *base = g_path_get_basename(path);
    g_autofree char *name = g_strconcat(base, VJ_REPLACED_SUFFIX, NULL);
    VJ_AUTO_FD fd =
        openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    struct stat st, file;

    return fd >= 0 && fstat(fd, &st) == 0 && fstat(file_fd, &file) == 0 &&
                   S_ISREG(st.st_mode) && st.st_uid == file.st_uid
               ? vj_fd_steal(&fd)
               : -1;
}

/* Relative names in it are beside it, also where one comes to it by a link. */
static bool open_file(const char *source, VjPlace **out, GError **error)
{
    VJ_AUTO_FD fd = vj_volume_file_open(source, error);
    char *real = fd >= 0 ? realpath(source, NULL) : NULL;
    g_autofree char *dir = g_path_get_dirname(real != NULL ? real : source);
    VJ_AUTO_FD dir_fd = fd >= 0 ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

    VJ_AUTO_FD replaced_fd =
        dir_fd >= 0 ? open_replaced(dir_fd, real != NULL ? real : source, fd) : -1;

    free(real);
    if (fd < 0) {
        return false;
    }
    if (dir_fd < 0) {
        return vj_error_set_errno(error, errno, "%s", dir);
    }
    *out = place_new(source, -1);
    (*out)->file_fd = vj_fd_steal(&fd);
    (*out)->replaced_fd = vj_fd_steal(&replaced_fd);
    (*out)->credentials_dir_fd = vj_fd_steal(&dir_fd);
    (*out)->credentials_dir = g_steal_pointer(&dir);
    return true;
}

bool vj_place_open(const char *source, VjPlace **out, GError **error)
{
    int fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    *out = NULL;
    if (fd < 0 && errno == ENOTDIR) {
        return open_file(source, out, error);
    }
    *out = fd >= 0 ? place_new(source, fd) : NULL;
    return fd >= 0 || vj_error_set_errno(error, errno, "%s", source);
}

int vj_place_fd(const VjPlace *p)
{
    return p->dir_fd >= 0 ? p->dir_fd : p->file_fd;
}

bool vj_place_is_file(const VjPlace *p)
{
    return p->file_fd >= 0;
}

int vj_place_credentials_dir_fd(const VjPlace *p)
{
    return p->credentials_dir_fd;
}

bool vj_place_open_at(int dir_fd, const char *source, VjPlace **out, GError **error)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    *out = fd >= 0 ? place_new(source, fd) : NULL;
    return fd >= 0 || vj_error_set_errno(error, errno, "%s", source);
}

VjPlace *vj_place_of_text(const char *name, const char *conf)
{
    VjPlace *p = place_new(name, -1);

    p->conf = g_strdup(conf);
    return p;
}

void vj_place_enter(VjPlace *p)
{
    p->users++;
}

void vj_place_leave(VjPlace *p, bool in_order)
{
    g_assert(p->users > 0);
    p->users--;
    p->has_failed = p->has_failed || !in_order;
}

int vj_place_close(VjPlace *p)
{
    int r;

    if (p == NULL) {
        return 0;
    }
    g_assert(p->users == 0);
    r = p->is_marked && !p->has_failed && vj_place_is_last(p) ? vj_place_unmark(p) : 0;
    if (p->credentials_dir_fd != p->dir_fd) {
        vj_fd_close(&p->credentials_dir_fd);
    }
    vj_fd_close(&p->dir_fd);
    vj_fd_close(&p->file_fd);
    vj_fd_close(&p->replaced_fd);
    vj_fd_close(&p->lock_fd);
    g_free(p->credentials_dir);
    g_free(p->conf);
    g_free(p->name);
    g_free(p);
    return r;
}

void vj_place_drop(VjPlace *p)
{
    int r;

    g_assert(p == NULL || !p->is_marked);
    r = vj_place_close(p);
    g_assert(r == 0);
}

/* ---- directories for drivers ------------------------------------------------------- */

static bool open_dir(const VjPlace *p, const char *name, bool create, VjPlaceDir *out,
                     GError **error)
{
    if (p->dir_fd < 0) {
        return vj_error_set(error, EINVAL,
                            "%s: a driver that keeps files needs a directory", p->name);
    }
    if (create && mkdirat(p->dir_fd, name, 0700) < 0 && errno != EEXIST) {
        return vj_error_set_errno(error, errno, "%s", out->path);
    }
    out->fd = openat(p->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return out->fd >= 0 || vj_error_set_errno(error, errno, "%s", out->path);
}

bool vj_place_dir_open(const VjPlace *p, const char *name, uint32_t needs, bool create,
                       VjPlaceDir *out, GError **error)
{
    *out = (VjPlaceDir){.path = p->dir_fd < 0 ? g_strdup(p->name)
                                              : g_build_filename(p->name, name, NULL),
                        .fd = -1};
    return (needs & VJ_NEEDS_FILES) == 0 || open_dir(p, name, create, out, error);
}

void vj_place_dir_close(VjPlaceDir *d)
{
    g_clear_pointer(&d->path, g_free);
    vj_fd_close(&d->fd);
}

void vj_place_meta_at(const VjPlace *p, const VjPlaceDir *dir, VjMetaPlace *out)
{
    out->dir_fd = dir->fd;
    out->path = dir->path;
    out->credentials_dir_fd = p->credentials_dir_fd;
    out->credentials_dir = p->credentials_dir;
}

void vj_place_store_at(const VjPlace *p, const VjPlaceDir *dir, VjStorePlace *out)
{
    out->dir_fd = dir->fd;
    out->path = dir->path;
    out->credentials_dir_fd = p->credentials_dir_fd;
    out->credentials_dir = p->credentials_dir;
}
