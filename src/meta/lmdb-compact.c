/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-compact.c - the file without its free pages
 *
 * LMDB's file never becomes shorter by itself.  When it is closed and most of it is free,
 * or it is copied on write although its directory says otherwise (lmdb-space.c), LMDB
 * writes a copy without free pages beside it (its own compacting copy), which is synced,
 * walked like a file from elsewhere, compared in its number of keys, and renamed into
 * place.  A crash leaves the old file or the new one; what is left of a copy the next
 * open removes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "meta/lmdb-private.h"
#include "meta/lmdb-walk.h"

/* Beyond the copy this stays free on the device. */
#define ROOM_LEFT_BYTES (64 * VJ_MIB)

static bool has_room(const VjLmdb *d, uint64_t bytes)
{
    struct statvfs st;

    return fstatvfs(d->fd, &st) == 0 &&
           (uint64_t)st.f_bavail * st.f_frsize >= bytes + ROOM_LEFT_BYTES;
}

/* Worth it, and possible. */
static bool is_wanted(const VjLmdb *d, const VjLmdbFile *file)
{
    bool is_empty = vj_lmdb_is_mostly_free(d, file);
    bool is_copied = vj_fd_is_in_place(d->dir_fd) && !vj_fd_is_in_place(d->fd);

    return (is_empty || is_copied) &&
           has_room(d, vj_lmdb_used_pages(file) * d->page_bytes);
}

static void log_flaw(void *opaque, const char *text)
{
    vj_log_error("meta lmdb: %s/%s", (const char *)opaque, text);
}

static int walk(VjLmdb *d, int fd, const char *name, uint64_t *entries)
{
    g_autofree char *path = g_strdup_printf("%s/%s", d->path, name);
    VjLmdbWalk w;
    int rc = vj_lmdb_walk(fd, UINT64_MAX, log_flaw, NULL, path, &w);

    *entries = w.entries;
    if (rc == 0 && w.flaws > 0) {
        rc = -EBADMSG;
    }
    vj_lmdb_walk_clear(&w);
    return rc;
}

/* @before: keys in the old file. */
static int write_copy(VjLmdb *d, int fd, uint64_t before)
{
    uint64_t after;
    int rc = mdb_env_copyfd2(d->env, fd, MDB_CP_COMPACT);

    if (rc != 0) {
        return rc == MDB_INCOMPATIBLE ? -EOPNOTSUPP
                                      : vj_lmdb_errno(d, rc, "mdb_env_copy");
    }
    if (fsync(fd) != 0) {
        return -errno;
    }
    rc = walk(d, fd, VJ_LMDB_NEW_FILE, &after);
    return rc == 0 && after != before ? -EBADMSG : rc;
}

int vj_lmdb_compact(VjLmdb *d, bool *ready)
{
    VJ_AUTO_FD fd = -1;
    VjLmdbFile file;
    uint64_t before;
    int rc;

    *ready = false;
    if (vj_lmdb_file_measure(d, &file) < 0 || !is_wanted(d, &file)) {
        return 0;
    }
    rc = walk(d, d->fd, VJ_LMDB_FILE, &before); /* LMDB's copy believes what it reads */
    if (rc < 0) {
        return rc == -EBADMSG ? rc : 0;
    }
    fd = openat(d->dir_fd, VJ_LMDB_NEW_FILE,
                O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    rc = fd < 0 ? -errno : write_copy(d, fd, before);
    if (rc < 0) {
        vj_log_warn("meta lmdb: %s: the file keeps its size: %s", d->path,
                    g_strerror(-rc));
        (void)!unlinkat(d->dir_fd, VJ_LMDB_NEW_FILE, 0); /* the next open tries again */
    }
    *ready = rc == 0;
    return 0;
}

int vj_lmdb_compact_finish(int dir_fd, const char *path)
{
    if (renameat(dir_fd, VJ_LMDB_NEW_FILE, dir_fd, VJ_LMDB_FILE) != 0 ||
        fsync(dir_fd) != 0) {
        int rc = -errno;

        vj_log_error("meta lmdb: %s: putting the smaller file in place: %s", path,
                     g_strerror(-rc));
        return rc;
    }
    vj_log_info("meta lmdb: %s: written anew without its free pages", path);
    return 0;
}
