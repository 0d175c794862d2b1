/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * place-make.c - a directory for a new file system
 *
 * The superblock gets its name last: until then the directory holds no file system.  From
 * the first change on it is there as varjfs.making.  A directory with that name in it has
 * what a mkfs that was cut off left, and no user's data: the next mkfs clears it away
 * unasked.  With force it is the superblock of the old file system that is renamed, so
 * that there is never one of each name.
 *
 * A failure removes what was made, and that name last.
 */
#include "volume/place-private.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define TREE_DEPTH_MAX 16

/* ---- what is there ----------------------------------------------------------------- */

static bool is_cancelled(const VjPlaceMake *how)
{
    return how != NULL && how->cancelled != NULL && how->cancelled(how->opaque);
}

/* Removes a tree that an older file system left; follows no link.  @how NULL: to the
 * end. */
static int remove_tree(const VjPlaceMake *how, int dir_fd, const char *name, int depth)
{
    VJ_AUTO_FD fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir;
    struct dirent *entry;
    int copy, r = 0;

    if (fd < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (depth > TREE_DEPTH_MAX) {
        return -ELOOP;
    }
    copy = dup(fd);
    dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (dir == NULL) {
        r = -errno;
        vj_fd_close(&copy);
        return r;
    }
    while (r == 0 && (errno = 0, entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(fd, entry->d_name, 0) < 0) {
            r = errno == EISDIR ? remove_tree(how, fd, entry->d_name, depth + 1) : -errno;
        }
        if (r == 0 && is_cancelled(how)) {
            r = -ECANCELED;
        }
    }
    closedir(dir);
    if (r == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0) {
        r = -errno;
    }
    return r;
}

static bool has_entries(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    bool found = false;

    if (dir == NULL) {
        /* What cannot be looked into may hold anything. */
        found = errno != ENOENT;
        vj_fd_close(&fd);
        return found;
    }
    while (!found && (errno = 0, entry = readdir(dir)) != NULL) {
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    found = found || errno != 0;
    closedir(dir);
    return found;
}

/*
 * What is in the directory: a file system, what is left of one whose superblock is lost
 * (all of its data may be there), other files, or nothing but what a mkfs that was cut
 * off left.
 */
static int look_around(int dir_fd, bool *is_varjfs, bool *is_rest, bool *is_foreign)
{
    bool is_cut_off = vj_fd_has(dir_fd, VJ_MAKING_NAME);
    int copy = dup(dir_fd);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    struct dirent *entry;

    *is_varjfs = vj_fd_has(dir_fd, VJ_SUPERBLOCK_NAME);
    *is_rest = !is_cut_off &&
               (has_entries(dir_fd, VJ_META_DIR) || has_entries(dir_fd, VJ_OBJECTS_DIR));
    *is_foreign = false;
    if (dir == NULL) {
        int r = -errno;

        vj_fd_close(&copy);
        return r;
    }
    while ((errno = 0, entry = readdir(dir)) != NULL) {
        static const char *const ours[] = {".",
                                           "..",
                                           VJ_SUPERBLOCK_NAME,
                                           VJ_MAKING_NAME,
                                           VJ_META_DIR,
                                           VJ_OBJECTS_DIR,
                                           VJ_OLD_LOCK_NAME,
                                           VJ_IN_USE_NAME,
                                           VJ_CLEAN_NAME,
                                           VJ_RESTORING_NAME,
                                           VJ_CHECKPOINTS_NAME,
                                           "lost+found"};
        bool is_known = false;

        for (size_t i = 0; i < G_N_ELEMENTS(ours); i++) {
            is_known = is_known || strcmp(entry->d_name, ours[i]) == 0;
        }
        *is_foreign = *is_foreign || !is_known;
    }
    closedir(dir);
    return 0;
}

/* @is_varjfs: it holds a file system, which may be destroyed. */
static bool may_make(const VjPlace *p, const VjPlaceMake *how, bool *is_varjfs,
                     GError **error)
{
    bool is_rest, is_foreign;
    int r = look_around(p->dir_fd, is_varjfs, &is_rest, &is_foreign);

    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s", p->name);
    }
    if (*is_varjfs && !how->force) {
        return vj_error_set(error, EEXIST,
                            "%s already holds a varjfs file system; -f destroys it",
                            p->name);
    }
    if (is_rest && !how->force) {
        return vj_error_set(error, ENOTEMPTY,
                            "%s has no " VJ_SUPERBLOCK_NAME
                            " but a meta or objects directory that is not empty; "
                            "-f destroys what is in them",
                            p->name);
    }
    return !is_foreign || how->force ||
           vj_error_set(error, ENOTEMPTY,
                        "%s holds other files; -f makes a file system beside them",
                        p->name);
}

/* From here on what is in the directory is no file system. */
static bool mark(const VjPlace *p, bool is_varjfs, GError **error)
{
    int dir_fd = p->dir_fd;
    VJ_AUTO_FD fd = -1;
    int failed = 0;

    if (is_varjfs) {
        failed =
            renameat(dir_fd, VJ_SUPERBLOCK_NAME, dir_fd, VJ_MAKING_NAME) < 0 ? errno : 0;
    } else {
        fd = openat(dir_fd, VJ_MAKING_NAME,
                    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        failed = fd < 0 ? errno : 0;
    }
    if (failed == 0 && fsync(dir_fd) < 0) {
        failed = errno;
        if (is_varjfs) {
            (void)renameat(dir_fd, VJ_MAKING_NAME, dir_fd, VJ_SUPERBLOCK_NAME);
        } else {
            (void)unlinkat(dir_fd, VJ_MAKING_NAME, 0);
        }
    }
    return failed == 0 ||
           vj_error_set_errno(error, failed, "%s/" VJ_MAKING_NAME, p->name);
}

/* What is left of an older file system, or of a mkfs that was cut off. */
static bool clear_way(const VjPlace *p, const VjPlaceMake *how, GError **error)
{
    static const char *const trees[] = {VJ_CHECKPOINTS_NAME, VJ_META_DIR, VJ_OBJECTS_DIR};
    int dir_fd = p->dir_fd, r = 0;

    if ((unlinkat(dir_fd, VJ_IN_USE_NAME, 0) < 0 && errno != ENOENT) ||
        (unlinkat(dir_fd, VJ_CLEAN_NAME, 0) < 0 && errno != ENOENT) ||
        (unlinkat(dir_fd, VJ_RESTORING_NAME, 0) < 0 && errno != ENOENT)) {
        return vj_error_set_errno(error, errno, "%s/" VJ_IN_USE_NAME, p->name);
    }
    for (size_t i = 0; r == 0 && i < G_N_ELEMENTS(trees); i++) {
        r = remove_tree(how, dir_fd, trees[i], 0);
    }
    return r == 0 || vj_error_set_errno(
                         error, -r, "%s: what is left of an older file system", p->name);
}

/* ---- from the mark to the name ----------------------------------------------------- */

bool vj_place_make_go_on(const VjPlace *p, const VjPlaceMake *how, GError **error)
{
    return !is_cancelled(how) ||
           vj_error_set(error, ECANCELED, "%s: interrupted, nothing was made", p->name);
}

bool vj_place_make_begin(const VjPlace *p, const VjPlaceMake *how, GError **error)
{
    bool is_varjfs;

    return may_make(p, how, &is_varjfs, error) && vj_place_make_go_on(p, how, error) &&
           mark(p, is_varjfs, error) && clear_way(p, how, error);
}

bool vj_place_make_superblock(const VjPlace *p, const char *text, GError **error)
{
    VJ_AUTO_FD fd = openat(p->dir_fd, VJ_MAKING_NAME,
                           O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int r = fd < 0 ? -errno : vj_fd_write_all(fd, text, strlen(text));

    if (r == 0 && fsync(fd) < 0) {
        r = -errno;
    }
    return r == 0 || vj_error_set_errno(error, -r, "%s/" VJ_MAKING_NAME, p->name);
}

bool vj_place_make_end(const VjPlace *p, GError **error)
{
    int dir_fd = p->dir_fd;
    int failed;

    if (renameat(dir_fd, VJ_MAKING_NAME, dir_fd, VJ_SUPERBLOCK_NAME) == 0) {
        if (fsync(dir_fd) == 0) {
            return true;
        }
        failed = errno;
        (void)renameat(dir_fd, VJ_SUPERBLOCK_NAME, dir_fd, VJ_MAKING_NAME);
        errno = failed;
    }
    return vj_error_set_errno(error, errno, "%s/" VJ_SUPERBLOCK_NAME, p->name);
}

void vj_place_make_undo(const VjPlace *p)
{
    int r = remove_tree(NULL, p->dir_fd, VJ_OBJECTS_DIR, 0), one;

    one = remove_tree(NULL, p->dir_fd, VJ_META_DIR, 0);
    r = r < 0 ? r : one;
    if (r < 0 || unlinkat(p->dir_fd, VJ_MAKING_NAME, 0) < 0) {
        vj_log_warn("what was made cannot be removed: %s; the next mkfs.varjfs does it",
                    g_strerror(r < 0 ? -r : errno));
    }
}
