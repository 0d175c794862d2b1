/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * place.c - where a volume is: opening, closing, directories for drivers
 *
 * A place with a directory is locked by the first volume that uses it, marked as in use
 * by the first that may change it, and both end with the place.  So several volumes of
 * one process can share a place, and each has its own engine and store.  A volume whose
 * drivers need no files can do without a directory: then the place is the text of
 * varjfs.conf.
 */
#include "volume/place-private.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- open and close ---------------------------------------------------------------- */

int vj_source_open(const char *path, GError **error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        if (errno == ENOTDIR) {
            vj_error_set(error, ENOTDIR,
                         "%s is not a directory; volume files come with later versions",
                         path);
        } else {
            vj_error_set_errno(error, errno, "%s", path);
        }
    }
    return fd;
}

/* @dir_fd is taken. */
static VjPlace *place_new(const char *name, int dir_fd)
{
    VjPlace *p = g_new0(VjPlace, 1);

    p->name = g_strdup(name);
    p->dir_fd = dir_fd;
    p->credentials_dir_fd = dir_fd;
    p->credentials_dir = dir_fd < 0 ? NULL : g_strdup(name);
    p->lock_fd = -1;
    return p;
}

bool vj_place_open(const char *source, VjPlace **out, GError **error)
{
    int fd = vj_source_open(source, error);

    *out = fd >= 0 ? place_new(source, fd) : NULL;
    return fd >= 0;
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
    vj_fd_close(&p->dir_fd);
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
    *out = (VjPlaceDir){.path = g_build_filename(p->name, name, NULL), .fd = -1};
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
