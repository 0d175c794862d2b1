/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-erase.c - files that held what was removed are overwritten before they go
 *
 * With `erase=` a file that another one has taken the place of keeps a name of its own
 * until it has been overwritten, so that the open after a crash finds it and goes on.
 * Zeroes, once: what they reach is said in varjfs-security(7).
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/lmdb-private.h"

/* 0: it is gone, or was not there. */
static int erase(int dir_fd, const char *name)
{
    VJ_AUTO_FD fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    int rc;

    if (fd < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    /* A crash is not to find it under the engine's name again. */
    rc = fsync(dir_fd) != 0 ? -errno : vj_fd_check_alive(dir_fd);
    /* With another name it is the engine's own still: the rename did not happen. */
    if (rc == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1) {
        rc = vj_fd_overwrite(fd, (uint64_t)st.st_size);
    }
    return rc == 0 && unlinkat(dir_fd, name, 0) != 0 ? -errno : rc;
}

void vj_lmdb_erase_file(const VjLmdb *d, const char *name)
{
    int rc = erase(d->dir_fd, name);

    if (rc < 0) {
        vj_log_error("meta lmdb: %s/%s: it cannot be overwritten: %s", d->path, name,
                     g_strerror(-rc));
    }
}
