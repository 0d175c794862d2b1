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

VjSourceOwners vj_source_owners(int source_fd)
{
    static const char *const names[] = {".", "meta", "objects"};
    VjSourceOwners out = {false, false};

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
