/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-lock.c - LMDB's table of readers, in memory
 *
 * LMDB maps its lock file shared and stores into it whenever a transaction begins.  In a
 * file below SOURCE such a store is SIGBUS where the file system copies on write and is
 * full, or where the device fails.  The table is needed all the same: it keeps pages that
 * a transaction or a save reads from being used again, and it says which meta page is
 * whole (without it, MDB_NOLOCK, a reader may take one that is being written).  So it is
 * in memory that has no name.
 *
 * LMDB takes no descriptors, but the name of a directory with a data.mdb and a lock.mdb.
 * That is meta/lmdb, with two symbolic links: to the file beside it, and to a descriptor
 * of this process.  Its number is the one that the link says, if that is free, so that
 * the link is written once in the life of a volume: a full device may have no room for it
 * later.  The process that has SOURCE locked is the only one that follows it.
 *
 * A file opened read-only has no writer beside it (the lock of SOURCE), and needs no
 * table.
 */
#include "meta/lmdb-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first number that is tried: what a program inherits is below it. */
#define FIRST_NUMBER 200
#define MEMORY_LINK "/proc/self/fd/%d"
#define LINK_TEXT_MAX 64

/* What the link @name says; "": there is none, or something longer. */
static void read_link(int dir_fd, const char *name, char text[LINK_TEXT_MAX])
{
    ssize_t len = readlinkat(dir_fd, name, text, LINK_TEXT_MAX);

    text[len < 0 || len == LINK_TEXT_MAX ? 0 : len] = '\0';
}

static int put_link(int dir_fd, const char *name, const char *text)
{
    char there[LINK_TEXT_MAX];

    read_link(dir_fd, name, there);
    if (strcmp(there, text) == 0) {
        return 0;
    }
    if (unlinkat(dir_fd, name, 0) != 0 && errno != ENOENT) {
        return -errno;
    }
    return symlinkat(text, dir_fd, name) == 0 ? 0 : -errno;
}

/* A descriptor with the number that the link says, or else with another one. */
static int take_number(int env_fd)
{
    VJ_AUTO_FD memory = memfd_create("varjfs-readers", MFD_CLOEXEC);
    char text[LINK_TEXT_MAX];
    int number = FIRST_NUMBER, fd;

    if (memory < 0) {
        return -errno;
    }
    read_link(env_fd, VJ_LMDB_LOCK_FILE, text);
    if (sscanf(text, MEMORY_LINK, &number) != 1 || number < 0) {
        number = FIRST_NUMBER;
    }
    fd = fcntl(memory, F_DUPFD_CLOEXEC, number);
    if (fd < 0 && errno == EINVAL) { /* the limit of descriptors is below it */
        fd = fcntl(memory, F_DUPFD_CLOEXEC, 0);
    }
    return fd < 0 ? -errno : fd;
}

static int open_env_dir(int dir_fd)
{
    int fd;

    if (mkdirat(dir_fd, VJ_LMDB_ENV_DIR, 0700) != 0 && errno != EEXIST) {
        return -errno;
    }
    fd = openat(dir_fd, VJ_LMDB_ENV_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

static int make_links(VjLmdb *d)
{
    g_autofree char *memory = NULL;
    int rc = open_env_dir(d->dir_fd);

    if (rc < 0) {
        return rc;
    }
    d->env_fd = rc;
    rc = take_number(d->env_fd);
    if (rc < 0) {
        return rc;
    }
    d->lock_fd = rc;
    memory = g_strdup_printf(MEMORY_LINK, d->lock_fd);
    rc = put_link(d->env_fd, VJ_LMDB_FILE, "../" VJ_LMDB_FILE);
    return rc < 0 ? rc : put_link(d->env_fd, VJ_LMDB_LOCK_FILE, memory);
}

bool vj_lmdb_lock_open(VjLmdb *d, GError **error)
{
    int rc;

    if (d->read_only) {
        return true;
    }
    /* Of programs that had the table there.  What it took may be room for the links. */
    if (unlinkat(d->dir_fd, VJ_LMDB_LOCK_FILE, 0) != 0 && errno != ENOENT) {
        return vj_error_set_errno(error, errno, "%s/" VJ_LMDB_LOCK_FILE, d->path);
    }
    rc = make_links(d);
    return rc == 0 || vj_error_set_errno(error, -rc, "%s/" VJ_LMDB_ENV_DIR, d->path);
}

int vj_lmdb_env_fd(const VjLmdb *d)
{
    return d->read_only ? d->dir_fd : d->env_fd;
}
