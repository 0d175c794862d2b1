/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * owners.c - whose SOURCE is it?
 */
#include "cmd/owners.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void look_at(const struct stat *st, VjSourceOwners *out)
{
    out->has_others = out->has_others || st->st_uid != geteuid();
    out->others_may_write =
        out->others_may_write || st->st_uid != 0 ||
        (!S_ISLNK(st->st_mode) && ((st->st_mode & S_IWOTH) != 0 ||
                                   ((st->st_mode & S_IWGRP) != 0 && st->st_gid != 0)));
}

/* The directory @fd, which is taken, and its entries. */
static void look_into(int fd, VjSourceOwners *out)
{
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    struct stat st;

    if (dir == NULL) {
        vj_fd_close(&fd);
        *out = (VjSourceOwners){true, true};
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, "..") != 0 &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            look_at(&st, out);
        }
    }
    closedir(dir);
}

static VjSourceOwners owners_of_file(const VjPlace *source)
{
    const int fds[] = {vj_place_fd(source), vj_place_credentials_dir_fd(source)};
    VjSourceOwners out = {false, false};
    struct stat st;

    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        if (fstat(fds[i], &st) < 0) {
            return (VjSourceOwners){true, true};
        }
        look_at(&st, &out);
    }
    return out;
}

VjSourceOwners vj_source_owners(const VjPlace *source)
{
    static const char *const names[] = {".", "meta", "objects", "checkpoints"};
    VjSourceOwners out = {false, false};
    int source_fd = vj_place_fd(source);

    if (vj_place_is_file(source)) {
        return owners_of_file(source);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        int fd =
            openat(source_fd, names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

        /* What is missing or no directory is refused when it is opened. */
        if (fd >= 0 || (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)) {
            look_into(fd, &out);
        }
    }
    return out;
}

/* ---- what is closed to us ---------------------------------------------------------- */

/* The first entry of the directory @fd, which is taken, that is closed; owned, NULL:
 * none. */
static char *find_closed(int fd, const char *path, int mode, unsigned depth)
{
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char *found = NULL;
    const struct dirent *entry;
    struct stat st;

    if (dir == NULL) {
        vj_fd_close(&fd);
        return NULL; /* it belongs to us, or has been looked at */
    }
    while (found == NULL && (entry = readdir(dir)) != NULL) {
        g_autofree char *name = g_build_filename(path, entry->d_name, NULL);

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
            continue;
        }
        if (st.st_uid != geteuid() &&
            faccessat(dirfd(dir), entry->d_name, S_ISDIR(st.st_mode) ? mode | X_OK : mode,
                      AT_EACCESS) < 0 &&
            errno == EACCES) {
            found = g_steal_pointer(&name);
        } else if (S_ISDIR(st.st_mode) && depth > 0) {
            found = find_closed(openat(dirfd(dir), entry->d_name,
                                       O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW),
                                name, mode, depth - 1);
        }
    }
    closedir(dir);
    return found;
}

bool vj_source_is_ours(const VjPlace *place, const char *source, bool write,
                       unsigned depth, GError **error)
{
    static const char *const names[] = {"meta", "objects"};
    int mode = write ? R_OK | W_OK : R_OK, source_fd = vj_place_fd(place);

    g_assert(depth <= VJ_SOURCE_DEPTH);
    if (vj_place_is_file(place)) {
        return true;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_build_filename(source, names[i], NULL);
        g_autofree char *found = find_closed(
            openat(source_fd, names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW),
            path, mode, depth);

        if (found != NULL) {
            return vj_error_set(error, EACCES,
                                "%s belongs to another user, as when root has served it: "
                                "chown -R the whole of %s, or be root",
                                found, source);
        }
    }
    return true;
}
