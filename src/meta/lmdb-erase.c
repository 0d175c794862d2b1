/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-erase.c - files that held what was removed are overwritten before they go
 *
 * With `erase=` a file that another one has taken the place of keeps a name of its own
 * until it has been overwritten, so that the open after a crash finds it and goes on.
 * Where the device does not take that it is tried again, a number of times, while no
 * other file can take the place of the one that has come after it.
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

/* ---- What cannot be overwritten ---------------------------------------------------- */

/* It waits under the name that the next open looks for, too.  False: it cannot. */
static bool keep(const VjLmdb *d, const char *name)
{
    if (strcmp(name, VJ_LMDB_OLD_FILE) == 0) {
        return true;
    }
    return !vj_fd_has(d->dir_fd, VJ_LMDB_OLD_FILE) &&
           renameat(d->dir_fd, name, d->dir_fd, VJ_LMDB_OLD_FILE) == 0;
}

/* The number of the try that failed. */
static unsigned count_failure(VjLmdb *d)
{
    VjLmdbRewrite *r = &d->rewrite;
    unsigned tries;

    vj_mutex_lock(&d->lock);
    tries = ++r->erase_tries;
    r->erase_next_us = vj_clock_mono_us() + (VJ_LMDB_ERASE_PAUSE_FIRST_US
                                             << MIN(tries - 1, VJ_LMDB_ERASE_TRIES_MAX));
    vj_mutex_unlock(&d->lock);
    return tries;
}

/* @name goes as it is. */
static void give_up(VjLmdb *d, const char *name, int error)
{
    int rc = unlinkat(d->dir_fd, name, 0) != 0 && errno != ENOENT ? -errno : 0;

    vj_log_error("meta lmdb: %s/%s: %s without being overwritten: %s; names, attributes "
                 "and files of at most 4096 bytes that were removed may be left on the "
                 "device",
                 d->path, name, rc == 0 ? "it is removed" : "it stays",
                 g_strerror(-error));
    vj_mutex_lock(&d->lock);
    d->rewrite.erasures_given_up++;
    vj_mutex_unlock(&d->lock);
}

static void end_tries(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    d->rewrite.erase_tries = 0;
    vj_mutex_unlock(&d->lock);
}

void vj_lmdb_erase_file(VjLmdb *d, const char *name)
{
    bool is_old = strcmp(name, VJ_LMDB_OLD_FILE) == 0;
    int rc = erase(d->dir_fd, name);
    unsigned tries;

    if (rc == 0) {
        if (is_old) {
            end_tries(d);
        }
        return;
    }
    if (!keep(d, name)) {
        give_up(d, name, rc);
        return;
    }
    tries = count_failure(d);
    if (tries >= VJ_LMDB_ERASE_TRIES_MAX) {
        give_up(d, VJ_LMDB_OLD_FILE, rc);
        end_tries(d);
    } else if (tries == 1) {
        vj_log_error("meta lmdb: %s/%s: it cannot be overwritten: %s; tried again, "
                     "as " VJ_LMDB_OLD_FILE,
                     d->path, name, g_strerror(-rc));
    }
}

bool vj_lmdb_erase_is_left(VjLmdb *d)
{
    bool is_left;

    vj_mutex_lock(&d->lock);
    is_left = d->rewrite.erase_tries > 0;
    vj_mutex_unlock(&d->lock);
    return is_left;
}
