/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume-file.c - a volume file: varjfs.conf of a volume whose drivers keep no files here
 *
 * It says which machines the process talks to, so one that others may write is refused.
 */
#include "volume/volume-private.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHERS_MAY_WRITE (S_IWGRP | S_IWOTH)

static bool check(const char *path, const struct stat *st, GError **error)
{
    if (!S_ISREG(st->st_mode)) {
        return vj_error_set(error, ENOTDIR, "%s is neither a directory nor a volume file",
                            path);
    }
    if ((st->st_mode & OTHERS_MAY_WRITE) != 0) {
        return vj_error_set(error, EACCES,
                            "%s: others may write it (mode %04o), and it says which "
                            "machines to trust: chmod go-w",
                            path, st->st_mode & 07777);
    }
    return st->st_size <= (off_t)VJ_SUPERBLOCK_MAX ||
           vj_error_set(error, EFBIG, "%s is too large for a volume file", path);
}

int vj_volume_file_open(const char *path, GError **error)
{
    VJ_AUTO_FD name = open(path, O_PATH | O_CLOEXEC);
    VJ_AUTO_FD fd = -1;
    struct stat st;

    if (name < 0 || fstat(name, &st) < 0) {
        vj_error_set_errno(error, errno, "%s", path);
        return -1;
    }
    /* Opening may do something where it is no regular file. */
    if (!check(path, &st, error)) {
        return -1;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0) {
        vj_error_set_errno(error, errno, "%s", path);
        return -1;
    }
    return check(path, &st, error) ? vj_fd_steal(&fd) : -1;
}

/* It is locked, and the name is still its own.  Where files cannot be locked, it will do
 * without (source-lock.c). */
int vj_volume_file_open_beside(int dir_fd, const char *dir, const char *name,
                               GError **error)
{
    VJ_AUTO_FD fd =
        openat(dir_fd, name,
               O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    struct stat st, now;

    if (fd < 0 || fstat(fd, &st) < 0) {
        vj_error_set_errno(error, errno, "%s/%s", dir, name);
        return -1;
    }
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink > 1) {
        vj_error_set(error, EEXIST, "%s/%s is there, and is not ours", dir, name);
        return -1;
    }
    if (vj_fd_lock(fd, NULL, 0) == -EWOULDBLOCK ||
        fstatat(dir_fd, name, &now, AT_SYMLINK_NOFOLLOW) < 0 || now.st_ino != st.st_ino ||
        now.st_dev != st.st_dev) {
        vj_error_set(error, EBUSY, "%s/%s: another process writes it", dir, name);
        return -1;
    }
    return vj_fd_steal(&fd);
}

char *vj_volume_file_read(int fd, size_t *len, GError **error)
{
    struct stat st;
    g_autofree char *text = NULL;
    int r;

    if (fstat(fd, &st) < 0) {
        vj_error_set_errno(error, errno, "it cannot be read");
        return NULL;
    }
    if (st.st_size > (off_t)VJ_SUPERBLOCK_MAX) {
        vj_error_set(error, EFBIG, "it is larger than %zu bytes", VJ_SUPERBLOCK_MAX);
        return NULL;
    }
    *len = (size_t)st.st_size;
    text = g_malloc0(*len + 1);
    r = vj_fd_pread_all(fd, text, *len, 0);
    if (r < 0) {
        vj_error_set_errno(error, -r, "it cannot be read");
        return NULL;
    }
    return g_steal_pointer(&text);
}
