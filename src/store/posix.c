/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * posix.c - one file per object in a fan-out of directories of any POSIX file system
 *
 * Durability: what flush() covered survives (posix-sync.h says how and what after an
 * error).  Limits: one file and its inode per object; the file system's.
 *
 * - A put writes the file under its final name, which has 64 random bits, so that no
 *   caller can name it before the put has returned.  A put that a crash cut off leaves a
 *   short file that no metadata names; each() shows it like any object that nothing
 *   refers to, and recovery removes both kinds in one way.
 * - Every step into the tree is one name below an open directory, and no link is
 *   followed: what another program put there can be in the way, but leads nowhere.
 * - A put under a number of the caller's (put_as) writes likewise.  Where an object of
 *   that name is there, the bytes go under another name, as those of a put that nothing
 *   refers to, are synced, and take the name by rename: whatever was durable stays so.
 * - Directories are made when the first object needs them.  each() removes those that it
 *   finds empty; a put that loses this race makes the directory again.
 *
 * Several stores on one directory (place->shared) do each other no harm:
 *
 * - names do not meet: nonces are random, and files are made with O_EXCL;
 * - flush answers for what its own store put, which the others cannot name before.  A
 *   directory that another made may not be durable: a store that opens one to put into it
 *   counts it as made, so that the next flush is a syncfs;
 * - after a failed sync what is in doubt is each store's own.  What one put and another
 *   removes, because the first has ended, needs no sync;
 * - a remove that finds nothing syncs the directory all the same: the store that removed
 *   it may have ended before its flush_removes;
 * - a descriptor that is kept of an object which another store removed gives its bytes
 *   back when it is closed, with others of open_files at the latest;
 * - space is what statvfs says.  Other stores use it meanwhile, so that what one store
 *   saw a second ago may be gone.
 */
#include "store/erase.h"
#include "store/posix-format.h"
#include "store/posix-private.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DIR_CACHE_SLOTS 16u
/* Directories that flush_removes() syncs one by one; more of them by one syncfs. */
#define REMOVED_DIRS_MAX 8u
/* So many names that a directory lost make another one the better place for new
 * objects. */
#define CROWDED_REMOVES 512u
/* Smaller objects are left to the flush, which writes many of them together. */
#define WRITE_OUT_LEAST 65536u
/* How often one call starts again because a directory was removed or a name was taken. */
#define TRIES_MAX 16

typedef struct PosixStore {
    VjStore base;
    int root_fd; /* our own open of objects/: syncfs through it sees errors from then on
                  */
    dev_t device;
    bool read_only;
    bool shared;    /* others put, remove and make directories here too */
    bool erases;    /* objects are overwritten before they are removed */
    char *path;     /* for messages */
    VjFdCache dirs; /* dir_key() → directory of objects */
    VjFdCache objects;
    VjPosixSync sync;
    VjMutex named_lock;
    VjCond named_changed;
    /* guarded by named_lock: what put_as puts just now, one call for one name */
    GHashTable *named; /* set of VjFdKey, which the calls own */
    VjMutex removed_lock;
    /* guarded by removed_lock: directories with removes that are not known to survive */
    uint64_t removed_dirs[REMOVED_DIRS_MAX]; /* an id of each */
    unsigned removed_count;
    bool removed_anywhere;   /* or in any directory at all */
    uint64_t newest_dir;     /* of the ids that prefer() was asked about */
    uint32_t newest_removes; /* names that it lost meanwhile */
    VjErasures erasures;
} PosixStore;

/* ---- Errors and descriptors -------------------------------------------------------- */

/* An errno of the vocabulary for @error (positive); others are said here, once. */
static int data_error(const PosixStore *p, const char *what, uint64_t id, int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case ETIMEDOUT:
    case EBADMSG:
        return -error;
    case EFBIG: /* RLIMIT_FSIZE, or what the file system below can hold */
        return -ENOSPC;
    default:
        vj_log_error("store posix %s: cannot %s object %016" G_GINT64_MODIFIER "x: %s",
                     p->path, what, id, g_strerror(error));
        return -EIO;
    }
}

/* After a failed open: true when some descriptors were closed and it is worth another
 * try. */
static bool made_room(PosixStore *p, int error)
{
    bool closed_some = false;

    if (error != EMFILE && error != ENFILE) {
        return false;
    }
    closed_some = vj_fd_cache_shrink(&p->objects);
    closed_some = vj_posix_sync_shrink(&p->sync) || closed_some;
    return vj_fd_cache_shrink(&p->dirs) || closed_some;
}

/* A descriptor, or -errno. */
static int open_below(PosixStore *p, int dir_fd, const char *name, int flags)
{
    for (int tries = 0;; tries++) {
        int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
        int error = errno;

        if (fd >= 0) {
            return fd;
        }
        if (error != EINTR && (tries >= TRIES_MAX || !made_room(p, error))) {
            return -error;
        }
    }
}

/* A directory of ours, or -errno; -ENOTDIR for what is none, or is on another device. */
static int open_directory(PosixStore *p, int dir_fd, const char *name)
{
    VJ_AUTO_FD fd = open_below(p, dir_fd, name, O_RDONLY | O_DIRECTORY);
    struct stat st;

    if (fd < 0) {
        int failed = vj_fd_steal(&fd);

        return failed == -ELOOP ? -ENOTDIR : failed;
    }
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    /* flush() would not reach another device. */
    return st.st_dev == p->device ? vj_fd_steal(&fd) : -ENOTDIR;
}

static int open_or_make_directory(PosixStore *p, int dir_fd, const char *name)
{
    int fd = open_directory(p, dir_fd, name);
    int error = 0;

    if (fd != -ENOENT) {
        return fd;
    }
    vj_posix_sync_dir_begin(&p->sync);
    if (mkdirat(dir_fd, name, 0700) != 0) {
        error = errno;
    }
    vj_posix_sync_dir_end(&p->sync);
    return error == 0 || error == EEXIST ? open_directory(p, dir_fd, name) : -error;
}

/*
 * ext4 places what is made in a directory near it, also directories, unless this flag
 * says that those have nothing to do with each other.  Then each directory of objects
 * begins where few others are, and what was removed a moment ago stands nowhere in the
 * way: without a journal ext4 passes over the inodes of five minutes, one by one, to make
 * a file.  Elsewhere it is an error, and nothing is lost.
 */
static void spread_directories(int fd)
{
    int flags = 0;

    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_TOPDIR_FL) == 0) {
        flags |= FS_TOPDIR_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
}

static int open_object_directory(PosixStore *p, uint64_t id, bool create)
{
    int (*open_one)(PosixStore *, int, const char *) =
        create ? open_or_make_directory : open_directory;
    char name[VJ_POSIX_TOP_NAME_BYTES];
    VJ_AUTO_FD top_fd = -1;

    vj_posix_top_name(id, name);
    top_fd = open_one(p, p->root_fd, name);
    if (top_fd < 0) {
        return vj_fd_steal(&top_fd);
    }
    if (create) {
        spread_directories(top_fd);
    }
    vj_posix_middle_name(id, name);
    return open_one(p, top_fd, name);
}

static uint64_t dir_number(uint64_t id)
{
    return id / VJ_POSIX_DIR_IDS;
}

/*
 * A shared directory that this store has only read from may have been made by another one
 * that has not made it durable: put opens it once more.
 */
static VjFdKey dir_key(const PosixStore *p, uint64_t id, bool for_put)
{
    return (VjFdKey){.id = dir_number(id), .nonce = p->shared && for_put};
}

/* Another store may have made the directory: it is made durable before what this one puts
 * there. */
static void note_foreign_directory(PosixStore *p)
{
    vj_posix_sync_dir_begin(&p->sync);
    vj_posix_sync_dir_end(&p->sync);
}

/* 0 and @use, to be released; or -errno. */
static int use_directory(PosixStore *p, uint64_t id, bool create, VjFdUse *use)
{
    uint64_t drops;
    int fd;

    *use = (VjFdUse){.fd = -1, .slot = -1};
    if (vj_fd_cache_get(&p->dirs, dir_key(p, id, create), use)) {
        return 0;
    }
    drops = vj_fd_cache_drops(&p->dirs);
    fd = open_object_directory(p, id, create);
    if (fd < 0) {
        return fd;
    }
    if (create && p->shared) {
        note_foreign_directory(p);
    }
    vj_fd_cache_add(&p->dirs, dir_key(p, id, create), fd, drops, use);
    return 0;
}

/* ---- Put, get, remove -------------------------------------------------------------- */

/* An empty file under a name that was not there: 0, *fd and @dir; -EEXIST; or a
 * data_error(). */
static int create_named(PosixStore *p, VjFdKey key, int *fd, VjFdUse *dir)
{
    char name[VJ_POSIX_OBJECT_NAME_BYTES];

    vj_posix_object_name(key.id, key.nonce, name);
    for (int tries = 0;; tries++) {
        int failed = use_directory(p, key.id, true, dir);

        if (failed == 0) {
            *fd = open_below(p, dir->fd, name, O_WRONLY | O_CREAT | O_EXCL);
            if (*fd >= 0) {
                return 0;
            }
            failed = *fd;
            vj_fd_cache_release(&p->dirs, dir);
        }
        if (failed == -EEXIST) {
            return failed;
        }
        if (failed != -ENOENT || tries >= TRIES_MAX) {
            return data_error(p, "create", key.id, -failed);
        }
        /* each() has removed the directory meanwhile. */
        vj_fd_cache_drop(&p->dirs, dir_key(p, key.id, true));
    }
}

/* Under a new name: 0, *fd, key->nonce and @dir; or a data_error(). */
static int create_object(PosixStore *p, VjFdKey *key, int *fd, VjFdUse *dir)
{
    int result = -EEXIST;

    for (int tries = 0; result == -EEXIST && tries < TRIES_MAX; tries++) {
        key->nonce = vj_random_u64();
        result = create_named(p, *key, fd, dir);
    }
    return result == -EEXIST ? data_error(p, "create", key->id, EEXIST) : result;
}

/* After a failed put; @dir is still in use. */
static void forget_object(PosixStore *p, VjFdKey key, int dir_fd)
{
    char name[VJ_POSIX_OBJECT_NAME_BYTES];

    vj_fd_cache_drop(&p->objects, key); /* a reader may have opened it */
    vj_posix_object_name(key.id, key.nonce, name);
    if (unlinkat(dir_fd, name, 0) != 0) {
        vj_log_warn("store posix %s: %s is left of a failed put: %s", p->path, name,
                    g_strerror(errno));
    }
}

static int write_object(const PosixStore *p, uint64_t id, int fd, const struct iovec *iov,
                        int iov_count)
{
    int result = vj_fd_pwritev_all(fd, iov, iov_count, 0);

    if (result == 0 && vj_store_iov_bytes(iov, iov_count) >= WRITE_OUT_LEAST) {
        /* The caller will flush: a large object is on its way meanwhile. */
        result = vj_posix_sync_begin(fd);
    }
    return result < 0 ? data_error(p, "write", id, -result) : 0;
}

/* Into the file @fd of @key, which was made just now.  After a failure it is gone. */
static int fill_object(PosixStore *p, VjFdKey key, const struct iovec *iov, int iov_count,
                       uint64_t failures, int *fd, VjFdUse *dir)
{
    int result = write_object(p, key.id, *fd, iov, iov_count);
    int dir_fd = dir->fd;

    if (result == 0) {
        result = vj_posix_sync_put_done(&p->sync, key, failures, fd, dir);
        if (result < 0) {
            g_assert(dir->fd == dir_fd);
            result = data_error(p, "keep", key.id, -result);
        }
    }
    if (result < 0) {
        forget_object(p, key, dir->fd);
    }
    return result;
}

static int posix_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                     VjPut *out)
{
    PosixStore *p = (PosixStore *)s;
    VjFdUse dir = {.fd = -1, .slot = -1};
    VjFdKey key = {.id = id};
    VJ_AUTO_FD fd = -1;
    uint64_t failures = 0;
    int result;

    if (p->read_only) {
        return -EROFS;
    }
    vj_posix_sync_put_begin(&p->sync, &failures);
    result = create_object(p, &key, &fd, &dir);
    if (result < 0) {
        return result;
    }
    result = fill_object(p, key, iov, iov_count, failures, &fd, &dir);
    vj_fd_cache_release(&p->dirs, &dir);
    if (result == 0) {
        *out = (VjPut){.id = id,
                       .loc = vj_posix_loc_encode(key.nonce),
                       .stored_bytes = vj_store_iov_bytes(iov, iov_count)};
    }
    return result;
}

/* Nobody else puts under the name of @key until end_named(). */
static void begin_named(PosixStore *p, VjFdKey *key)
{
    vj_mutex_lock(&p->named_lock);
    while (g_hash_table_contains(p->named, key)) {
        vj_cond_wait(&p->named_changed, &p->named_lock);
    }
    g_hash_table_add(p->named, key);
    vj_mutex_unlock(&p->named_lock);
}

static void end_named(PosixStore *p, VjFdKey *key)
{
    vj_mutex_lock(&p->named_lock);
    g_hash_table_remove(p->named, key);
    vj_cond_broadcast(&p->named_changed);
    vj_mutex_unlock(&p->named_lock);
}

/* The synced file of @from takes the name of @to. */
static int take_name(PosixStore *p, VjFdKey from, VjFdKey to, int dir_fd)
{
    char old_name[VJ_POSIX_OBJECT_NAME_BYTES], new_name[VJ_POSIX_OBJECT_NAME_BYTES];

    vj_posix_object_name(from.id, from.nonce, old_name);
    vj_posix_object_name(to.id, to.nonce, new_name);
    if (renameat(dir_fd, old_name, dir_fd, new_name) != 0) {
        return data_error(p, "replace", to.id, errno);
    }
    vj_fd_cache_drop(&p->objects, to);
    /* What may have been in doubt has no name any more. */
    vj_posix_sync_removed(&p->sync, to);
    return 0;
}

static int replace_object(PosixStore *p, VjFdKey key, const struct iovec *iov,
                          int iov_count, uint64_t failures)
{
    VjFdUse dir = {.fd = -1, .slot = -1};
    VjFdKey other = {.id = key.id};
    VJ_AUTO_FD fd = -1;
    int result = create_object(p, &other, &fd, &dir);

    if (result < 0) {
        return result;
    }
    result = write_object(p, key.id, fd, iov, iov_count);
    if (result == 0 && p->sync.calls.sync_file(fd) != 0) {
        result = data_error(p, "sync", key.id, errno);
    }
    if (result == 0) {
        result = take_name(p, other, key, dir.fd);
    }
    if (result < 0) {
        forget_object(p, other, dir.fd);
    } else {
        result = vj_posix_sync_put_done(&p->sync, key, failures, &fd, &dir);
        result = result < 0 ? data_error(p, "keep", key.id, -result) : 0;
    }
    vj_fd_cache_release(&p->dirs, &dir);
    return result;
}

static int posix_put_as(VjStore *s, uint64_t id, uint64_t nonce, const struct iovec *iov,
                        int iov_count, VjPut *out)
{
    PosixStore *p = (PosixStore *)s;
    VjFdUse dir = {.fd = -1, .slot = -1};
    VjFdKey key = {.id = id, .nonce = nonce};
    VJ_AUTO_FD fd = -1;
    uint64_t failures = 0;
    int result;

    if (p->read_only) {
        return -EROFS;
    }
    begin_named(p, &key);
    vj_posix_sync_put_begin(&p->sync, &failures);
    result = create_named(p, key, &fd, &dir);
    if (result == 0) {
        result = fill_object(p, key, iov, iov_count, failures, &fd, &dir);
        vj_fd_cache_release(&p->dirs, &dir);
    } else if (result == -EEXIST) {
        result = replace_object(p, key, iov, iov_count, failures);
    }
    end_named(p, &key);
    if (result == 0) {
        *out = (VjPut){.id = id,
                       .loc = vj_posix_loc_encode(nonce),
                       .stored_bytes = vj_store_iov_bytes(iov, iov_count)};
    }
    return result;
}

static VjLoc posix_loc_of_nonce(VjStore *s, uint64_t nonce)
{
    (void)s;
    return vj_posix_loc_encode(nonce);
}

static bool posix_nonce_of_loc(VjStore *s, VjLoc loc, uint64_t *nonce)
{
    (void)s;
    return vj_posix_loc_decode(loc, nonce);
}

/*
 * What open and unlink of objects have in common: @act on the object's name in its
 * directory.  -ENOENT is believed only of a directory that was opened just now: one from
 * the cache may have been removed, and made again, meanwhile.
 */
static int with_directory(PosixStore *p, VjFdKey key,
                          int (*act)(PosixStore *, int dir_fd, const char *name))
{
    char name[VJ_POSIX_OBJECT_NAME_BYTES];
    int result = -ENOENT;

    vj_posix_object_name(key.id, key.nonce, name);
    for (int tries = 0; tries < 2 && result == -ENOENT; tries++) {
        VjFdUse dir;

        if (tries > 0) {
            vj_fd_cache_drop(&p->dirs, dir_key(p, key.id, false));
        }
        result = use_directory(p, key.id, false, &dir);
        if (result == 0) {
            result = act(p, dir.fd, name);
            vj_fd_cache_release(&p->dirs, &dir);
        }
    }
    return result;
}

/* A descriptor to read from, or -errno. */
static int open_object(PosixStore *p, int dir_fd, const char *name)
{
    /* O_NONBLOCK: what stands there may be a fifo without a writer. */
    VJ_AUTO_FD fd = open_below(p, dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOATIME);
    struct stat st;

    if (fd == -EPERM) {
        /* The files are another user's, and readable for us. */
        fd = open_below(p, dir_fd, name, O_RDONLY | O_NONBLOCK);
    }
    if (fd < 0) {
        int failed = vj_fd_steal(&fd);

        return failed == -ELOOP || failed == -ENXIO ? -EBADMSG : failed;
    }
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    return S_ISREG(st.st_mode) ? vj_fd_steal(&fd) : -EBADMSG;
}

static int unlink_object(PosixStore *p, int dir_fd, const char *name)
{
    (void)p;
    return unlinkat(dir_fd, name, 0) != 0 ? -errno : 0;
}

/* Zeroes over its bytes.  What has another name is somebody's copy, and stays what it
 * is. */
static int overwrite_object(PosixStore *p, int dir_fd, const char *name)
{
    VJ_AUTO_FD fd = open_below(p, dir_fd, name, O_WRONLY | O_NONBLOCK);
    struct stat st;

    if (fd < 0) {
        return fd == -ELOOP || fd == -ENXIO ? 0 : vj_fd_steal(&fd);
    }
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    return S_ISREG(st.st_mode) && st.st_nlink == 1
               ? vj_fd_overwrite(fd, (uint64_t)st.st_size)
               : 0;
}

/* Its length, which VJ_STORE_OBJECT_MAX bounds, or -errno. */
static int object_bytes(PosixStore *p, int dir_fd, const char *name)
{
    struct stat st;

    (void)p;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return -errno;
    }
    return S_ISREG(st.st_mode) && st.st_size <= (off_t)VJ_STORE_OBJECT_MAX
               ? (int)st.st_size
               : -EBADMSG;
}

static int posix_length(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes)
{
    PosixStore *p = (PosixStore *)s;
    VjFdKey key = {.id = id};
    int result;

    if (!vj_posix_loc_decode(loc, &key.nonce)) {
        return -EBADMSG;
    }
    result = with_directory(p, key, object_bytes);
    if (result < 0) {
        return result == -ENOENT ? -ENOENT : data_error(p, "stat", id, -result);
    }
    *stored_bytes = (uint64_t)result;
    return 0;
}

/* 0 and @object, to be released; or -errno. */
static int use_object(PosixStore *p, VjFdKey key, VjFdUse *object)
{
    uint64_t drops;
    int fd;

    if (vj_fd_cache_get(&p->objects, key, object)) {
        return 0;
    }
    drops = vj_fd_cache_drops(&p->objects);
    fd = with_directory(p, key, open_object);
    if (fd < 0) {
        return fd;
    }
    vj_fd_cache_add(&p->objects, key, fd, drops, object);
    return 0;
}

/* 0: vj_fd_cache_release; else what reading it is to return. */
static int open_to_read(PosixStore *p, uint64_t id, VjLoc loc, VjFdUse *object)
{
    VjFdKey key = {.id = id};
    int result;

    *object = (VjFdUse){.fd = -1, .slot = -1};
    if (!vj_posix_loc_decode(loc, &key.nonce)) {
        return -EBADMSG;
    }
    result = use_object(p, key, object);
    return result < 0 && result != -ENOENT ? data_error(p, "open", id, -result) : result;
}

static int posix_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                     size_t len)
{
    PosixStore *p = (PosixStore *)s;
    VjFdUse object;
    int result = open_to_read(p, id, loc, &object);

    if (result < 0) {
        return result;
    }
    result = vj_fd_pread_all(object.fd, dst, len, offset);
    vj_fd_cache_release(&p->objects, &object);
    vj_trace(store,
             "posix get id=%" G_GINT64_MODIFIER "x offset=%" G_GUINT64_FORMAT
             " len=%zu result=%d",
             id, offset, len, result);
    return result < 0 ? data_error(p, "read", id, -result) : 0;
}

static int posix_with_file(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset,
                           size_t len, VjStoreUseFile *use, void *opaque)
{
    PosixStore *p = (PosixStore *)s;
    VjFdUse object;
    int result = open_to_read(p, id, loc, &object);

    if (result < 0) {
        return result;
    }
    result = use(opaque, object.fd, offset, len);
    vj_fd_cache_release(&p->objects, &object);
    return result < 0 && result != -EOPNOTSUPP ? data_error(p, "read", id, -result)
                                               : result;
}

/* Where bytes come from a device, all of the object is asked of it in one go. */
static void posix_expect(VjStore *s, uint64_t id, VjLoc loc)
{
    PosixStore *p = (PosixStore *)s;
    VjFdKey key = {.id = id};
    VjFdUse object = {.fd = -1, .slot = -1};

    if (!vj_posix_loc_decode(loc, &key.nonce) || use_object(p, key, &object) < 0) {
        return;
    }
    (void)posix_fadvise(object.fd, 0, 0, POSIX_FADV_WILLNEED);
    vj_fd_cache_release(&p->objects, &object);
}

/* The directory of @id has lost a name; @now: in this call. */
static void note_removed(PosixStore *p, uint64_t id, bool now)
{
    bool is_known = false;

    vj_mutex_lock(&p->removed_lock);
    if (now && dir_number(id) == p->newest_dir) {
        p->newest_removes++;
    }
    for (unsigned i = 0; i < p->removed_count; i++) {
        is_known = is_known || dir_number(p->removed_dirs[i]) == dir_number(id);
    }
    if (!is_known && p->removed_count < REMOVED_DIRS_MAX) {
        p->removed_dirs[p->removed_count++] = id;
    } else if (!is_known) {
        p->removed_anywhere = true;
    }
    vj_mutex_unlock(&p->removed_lock);
}

/*
 * Where many names went a file system may be slow to make others: an ext4 without a
 * journal looks at each inode that was freed near a directory in the last minutes before
 * it makes a file there.
 */
static uint64_t posix_prefer(VjStore *s, uint64_t id)
{
    PosixStore *p = (PosixStore *)s;
    uint64_t dir = dir_number(id);
    bool crowded;

    vj_mutex_lock(&p->removed_lock);
    if (dir > p->newest_dir) {
        p->newest_dir = dir;
        p->newest_removes = 0;
    }
    crowded = dir == p->newest_dir && p->newest_removes >= CROWDED_REMOVES;
    vj_mutex_unlock(&p->removed_lock);
    return crowded && dir < dir_number(UINT64_MAX) ? (dir + 1) * VJ_POSIX_DIR_IDS : id;
}

/* Names went that note_removed() has no place for. */
static void note_removed_anywhere(PosixStore *p)
{
    vj_mutex_lock(&p->removed_lock);
    p->removed_anywhere = true;
    vj_mutex_unlock(&p->removed_lock);
}

/*
 * Through descriptors of its own: the kernel reports an error once to each descriptor,
 * and those of put and flush have to get theirs.
 */
static int sync_directory_of(PosixStore *p, uint64_t id)
{
    VJ_AUTO_FD fd = open_object_directory(p, id, false);

    if (fd < 0) {
        return vj_fd_steal(&fd);
    }
    return p->sync.calls.sync_directory(fd) != 0 ? -errno : 0;
}

static int sync_anywhere(PosixStore *p)
{
    VJ_AUTO_FD fd = open_directory(p, p->root_fd, ".");

    if (fd < 0) {
        return vj_fd_steal(&fd);
    }
    return p->sync.calls.sync_all(fd) != 0 ? -errno : 0;
}

static int posix_flush_removes(VjStore *s)
{
    PosixStore *p = (PosixStore *)s;
    uint64_t ids[REMOVED_DIRS_MAX];
    unsigned count;
    bool anywhere;
    int result = 0;

    vj_mutex_lock(&p->removed_lock);
    count = p->removed_count;
    memcpy(ids, p->removed_dirs, sizeof ids);
    anywhere = p->removed_anywhere;
    p->removed_count = 0;
    p->removed_anywhere = false;
    vj_mutex_unlock(&p->removed_lock);
    for (unsigned i = 0; !anywhere && result == 0 && i < count; i++) {
        result = sync_directory_of(p, ids[i]);
        if (result == -ENOENT) { /* each() has removed it: a name in another directory */
            anywhere = true;
            result = 0;
        }
    }
    if (result == 0 && anywhere) {
        result = sync_anywhere(p);
    }
    if (result < 0) {
        note_removed_anywhere(p);
        vj_log_warn("store posix %s: removed objects may come back after a crash: %s",
                    p->path, g_strerror(-result));
        return -EIO;
    }
    return 0;
}

/* What the device said of the zeroes of @key.  0: the object goes as it is.  A file
 * system that takes new space for them and has none must not keep objects from being
 * removed: only then there is some. */
static int not_overwritten(PosixStore *p, VjFdKey key, int error)
{
    bool is_full = error == -ENOSPC || error == -EDQUOT;
    unsigned try = 0;

    vj_mutex_lock(&p->removed_lock);
    if (is_full) {
        vj_erasures_give_up(&p->erasures, key.id, key.nonce);
    } else {
        try = vj_erasures_failed(&p->erasures, key.id, key.nonce);
    }
    vj_mutex_unlock(&p->removed_lock);
    if (try == 1) {
        vj_log_error("store posix %s: object %016" G_GINT64_MODIFIER
                     "x was removed and cannot be overwritten: %s; tried again",
                     p->path, key.id, g_strerror(-error));
    } else if (try == 0) {
        vj_log_error("store posix %s: object %016" G_GINT64_MODIFIER
                     "x is removed without being overwritten, its bytes may be left on "
                     "the device: %s",
                     p->path, key.id, g_strerror(-error));
    }
    return try == 0 ? 0 : -EIO;
}

/* 0, also where there is nothing: it may be unlinked. */
static int erase_object(PosixStore *p, VjFdKey key)
{
    bool is_due;
    int rc;

    vj_mutex_lock(&p->removed_lock);
    is_due = vj_erasures_is_due(&p->erasures, key.id, key.nonce);
    vj_mutex_unlock(&p->removed_lock);
    if (!is_due) {
        return -EIO;
    }
    rc = with_directory(p, key, overwrite_object);
    if (rc < 0 && rc != -ENOENT) {
        return not_overwritten(p, key, rc);
    }
    vj_mutex_lock(&p->removed_lock);
    vj_erasures_done(&p->erasures, key.id, key.nonce);
    vj_mutex_unlock(&p->removed_lock);
    return 0;
}

static int posix_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    PosixStore *p = (PosixStore *)s;
    VjFdKey key = {.id = id};
    int result;

    if (p->read_only) {
        return -EROFS;
    }
    if (!vj_posix_loc_decode(loc, &key.nonce)) {
        return -EBADMSG;
    }
    result = p->erases ? erase_object(p, key) : 0;
    if (result < 0) {
        /* Nobody waits for bytes that are to be zeroes. */
        vj_posix_sync_removed(&p->sync, key);
        return result;
    }
    result = with_directory(p, key, unlink_object);
    if (result < 0 && result != -ENOENT) {
        return data_error(p, "remove", id, -result);
    }
    vj_fd_cache_drop(&p->objects, key);
    vj_posix_sync_removed(&p->sync, key);
    note_removed(p, id, result == 0);
    return 0;
}

static void posix_erasures(VjStore *s, VjStoreErasures *out)
{
    PosixStore *p = (PosixStore *)s;

    vj_mutex_lock(&p->removed_lock);
    *out = (VjStoreErasures){.waiting = g_hash_table_size(p->erasures.waiting),
                             .given_up = p->erasures.given_up};
    vj_mutex_unlock(&p->removed_lock);
}

static int posix_flush(VjStore *s)
{
    PosixStore *p = (PosixStore *)s;

    return vj_posix_sync_flush(&p->sync);
}

/* ---- Each -------------------------------------------------------------------------- */

typedef struct Walk {
    PosixStore *p;
    uint64_t first_id, last_id;
    VjStoreVisit *visit;
    void *opaque;
    bool stopped;
    uint64_t foreign_count;
    char *foreign_name; /* of the first, escaped */
} Walk;

/* One entry of a directory of the walk.  *gone: it was removed.  0 or -errno. */
typedef int EachName(Walk *walk, int dir_fd, const char *name, uint64_t id_above,
                     bool *gone);

static void note_foreign(Walk *walk, const char *name)
{
    walk->foreign_count++;
    if (walk->foreign_name == NULL) {
        walk->foreign_name = g_strescape(name, NULL);
    }
}

/* Calls @each_name for every name.  *empty: there is none, or none any more. */
static int each_name_of(Walk *walk, int dir_fd, EachName *each_name, uint64_t id_above,
                        bool *empty)
{
    VJ_AUTO_FD fd = open_below(walk->p, dir_fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    int result = 0;

    *empty = true;
    if (dir == NULL) {
        return fd < 0 ? vj_fd_steal(&fd) : -errno;
    }
    (void)vj_fd_steal(&fd); /* dir owns it */
    while (result == 0 && !walk->stopped) {
        const struct dirent *entry;

        errno = 0;
        entry = readdir(dir);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            bool gone = false;

            result = each_name(walk, dir_fd, entry->d_name, id_above, &gone);
            *empty = *empty && gone;
        }
    }
    closedir(dir);
    if (walk->stopped) {
        *empty = false;
    }
    return result;
}

static int each_object(Walk *walk, int dir_fd, const char *name, uint64_t id_above,
                       bool *gone)
{
    uint64_t id = 0, nonce = 0;
    struct stat st;
    VjPut object;

    (void)gone; /* the visitor may have removed it; the next walk will see */
    if (!vj_posix_parse_object(name, &id, &nonce) ||
        id / VJ_POSIX_DIR_IDS != id_above / VJ_POSIX_DIR_IDS) {
        note_foreign(walk, name);
        return 0;
    }
    if (id < walk->first_id || id > walk->last_id) {
        return 0;
    }
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        note_foreign(walk, name);
        return 0;
    }
    object = (VjPut){.id = id,
                     .loc = vj_posix_loc_encode(nonce),
                     .stored_bytes = (uint64_t)st.st_size};
    walk->stopped = !walk->visit(walk->opaque, &object,
                                 (int64_t)st.st_mtim.tv_sec * G_USEC_PER_SEC +
                                     st.st_mtim.tv_nsec / 1000);
    return 0;
}

/* Ids from @lowest on, @count of them: is any of them asked for? */
static bool wants(const Walk *walk, uint64_t lowest, uint64_t count)
{
    return lowest <= walk->last_id && lowest + (count - 1) >= walk->first_id;
}

/* Walks the directory @name and removes it if nothing is in it.  0 or -errno. */
static int each_below(Walk *walk, int dir_fd, const char *name, EachName *each_name,
                      uint64_t id_above, bool *gone)
{
    VJ_AUTO_FD fd = open_directory(walk->p, dir_fd, name);
    bool empty = false;
    int result;

    if (fd == -ENOTDIR) {
        note_foreign(walk, name);
        return 0;
    }
    if (fd < 0) {
        result = vj_fd_steal(&fd);
        return result == -ENOENT ? 0 : result;
    }
    result = each_name_of(walk, fd, each_name, id_above, &empty);
    if (result == 0 && empty && !walk->p->read_only) {
        /* Fails when a put was faster; then the directory is needed. */
        *gone = unlinkat(dir_fd, name, AT_REMOVEDIR) == 0;
        if (*gone) {
            note_removed_anywhere(walk->p);
        }
    }
    return result;
}

static int each_middle(Walk *walk, int dir_fd, const char *name, uint64_t id_above,
                       bool *gone)
{
    uint64_t middle = 0;
    int result;

    if (!vj_posix_parse_middle(name, &middle)) {
        note_foreign(walk, name);
        return 0;
    }
    id_above |= middle << 12;
    if (!wants(walk, id_above, VJ_POSIX_DIR_IDS)) {
        return 0;
    }
    result = each_below(walk, dir_fd, name, each_object, id_above, gone);
    if (*gone) {
        vj_fd_cache_drop(&walk->p->dirs, dir_key(walk->p, id_above, false));
        vj_fd_cache_drop(&walk->p->dirs, dir_key(walk->p, id_above, true));
    }
    return result;
}

static int each_top(Walk *walk, int dir_fd, const char *name, uint64_t id_above,
                    bool *gone)
{
    uint64_t top = 0;

    g_assert(id_above == 0);
    if (strcmp(name, VJ_POSIX_FORMAT_NAME) == 0) {
        return 0;
    }
    if (!vj_posix_parse_top(name, &top)) {
        note_foreign(walk, name);
        return 0;
    }
    if (!wants(walk, top << 24, (uint64_t)1 << 24)) {
        return 0;
    }
    return each_below(walk, dir_fd, name, each_middle, top << 24, gone);
}

static int posix_each(VjStore *s, uint64_t first_id, uint64_t last_id,
                      VjStoreVisit *visit, void *opaque)
{
    PosixStore *p = (PosixStore *)s;
    Walk walk = {.p = p,
                 .first_id = first_id,
                 .last_id = last_id,
                 .visit = visit,
                 .opaque = opaque};
    bool empty = false;
    int result = each_name_of(&walk, p->root_fd, each_top, 0, &empty);

    if (walk.foreign_count > 0) {
        vj_log_warn("store posix %s: %" G_GUINT64_FORMAT
                    " entries are not objects and were left alone, among them \"%s\"",
                    p->path, walk.foreign_count, walk.foreign_name);
    }
    g_free(walk.foreign_name);
    if (result < 0) {
        vj_log_error("store posix %s: cannot list objects: %s", p->path,
                     g_strerror(-result));
        return -EIO;
    }
    return 0;
}

/* ---- Space, open, close ------------------------------------------------------------ */

static int posix_space(VjStore *s, VjStoreSpace *out)
{
    PosixStore *p = (PosixStore *)s;
    struct statvfs st;

    if (fstatvfs(p->root_fd, &st) != 0) {
        vj_log_error("store posix %s: cannot ask for space: %s", p->path,
                     g_strerror(errno));
        return -EIO;
    }
    out->total_bytes = (uint64_t)st.f_blocks * st.f_frsize;
    out->free_bytes = MIN((uint64_t)st.f_bfree * st.f_frsize, out->total_bytes);
    out->available_bytes = MIN((uint64_t)st.f_bavail * st.f_frsize, out->free_bytes);
    /* Some file systems have no table of inodes, and say 0 of 0. */
    out->available_objects = st.f_files == 0 ? UINT64_MAX : st.f_favail;
    return 0;
}

static bool make_format(const PosixStore *p, const char *volume, GError **error)
{
    g_autofree char *text = volume == NULL
                                ? g_strdup(VJ_POSIX_FORMAT_TEXT)
                                : g_strconcat(VJ_POSIX_FORMAT_TEXT VJ_POSIX_FORMAT_VOLUME,
                                              volume, "\n", NULL);

    g_assert(strlen(text) <= VJ_POSIX_FORMAT_MAX);
    return vj_file_replace_contents(p->root_fd, VJ_POSIX_FORMAT_NAME, text, strlen(text),
                                    0600, error);
}

/* The text is one that make_format writes, and names the volume that is asked for. */
static bool read_format(const PosixStore *p, char *text, const char *volume,
                        GError **error)
{
    char *rest = text + strlen(VJ_POSIX_FORMAT_TEXT), *end;

    if (!g_str_has_prefix(text, VJ_POSIX_FORMAT_TEXT) ||
        (*rest != '\0' && !g_str_has_prefix(rest, VJ_POSIX_FORMAT_VOLUME))) {
        return vj_error_set(error, EINVAL,
                            "%s/%s: a format that this version cannot read", p->path,
                            VJ_POSIX_FORMAT_NAME);
    }
    if (volume == NULL) {
        return true;
    }
    if (*rest == '\0') {
        return vj_error_set(error, EBADMSG, "%s/%s: these objects belong to no volume",
                            p->path, VJ_POSIX_FORMAT_NAME);
    }
    rest += strlen(VJ_POSIX_FORMAT_VOLUME);
    end = strchr(rest, '\n');
    if (end == NULL || end[1] != '\0') {
        return vj_error_set(error, EINVAL,
                            "%s/%s: a format that this version cannot read", p->path,
                            VJ_POSIX_FORMAT_NAME);
    }
    *end = '\0';
    if (strcmp(rest, volume) != 0) {
        return vj_error_set(error, EBADMSG,
                            "%s: these objects belong to the volume %s, not to %s",
                            p->path, rest, volume);
    }
    return true;
}

/* Without the file "format" this is not our directory, or its file system is not mounted.
 */
static bool check_format(const PosixStore *p, const VjStorePlace *place, GError **error)
{
    g_autofree char *text = NULL;
    size_t len = 0;

    if (faccessat(p->root_fd, VJ_POSIX_FORMAT_NAME, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT) {
            return vj_error_set_errno(error, errno, "%s/%s", p->path,
                                      VJ_POSIX_FORMAT_NAME);
        }
        if (!place->create) {
            return vj_error_set(error, ENOENT,
                                "%s holds no objects of ours: it has no file \"%s\"",
                                p->path, VJ_POSIX_FORMAT_NAME);
        }
        return make_format(p, place->volume, error);
    }
    text = vj_file_read_small(p->root_fd, VJ_POSIX_FORMAT_NAME, VJ_POSIX_FORMAT_MAX, &len,
                              error);
    if (text == NULL) {
        return vj_error_prefix(error, "%s", p->path);
    }
    return read_format(p, text, place->volume, error);
}

/* Half of what the process may have open is for everything else in it. */
static uint32_t most_open(uint64_t asked)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        asked = MIN(asked, limit.rlim_cur / 2);
    }
    return (uint32_t)asked;
}

static guint named_hash(gconstpointer opaque)
{
    const VjFdKey *key = opaque;

    return (guint)(key->nonce ^ key->nonce >> 32);
}

static gboolean named_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, sizeof(VjFdKey)) == 0;
}

static bool posix_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                       GError **error)
{
    PosixStore *p = (PosixStore *)s;
    VJ_AUTO_FD fd = -1;
    struct stat st;

    g_assert(place->dir_fd >= 0 && place->path != NULL);
    g_assert(!(place->create && place->read_only));
    fd = openat(place->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        return vj_error_set_errno(error, errno, "%s", place->path);
    }
    p->root_fd = fd;
    p->device = st.st_dev;
    p->read_only = place->read_only;
    p->shared = place->shared;
    p->path = g_strdup(place->path);
    if (!check_format(p, place, error)) {
        g_free(p->path);
        return false;
    }
    (void)vj_fd_steal(&fd); /* p owns it */
    s->timeout_us = (int64_t)vj_opts_number(opts, "timeout") * G_USEC_PER_SEC;
    p->erases = strcmp(vj_opts_string(opts, "erase"), "yes") == 0;
    p->named = g_hash_table_new(named_hash, named_equal);
    vj_mutex_init(&p->named_lock, VJ_RANK_STORE, "store.posix.named");
    vj_cond_init(&p->named_changed);
    vj_mutex_init(&p->removed_lock, VJ_RANK_STORE, "store.posix.removed");
    vj_erasures_init(&p->erasures);
    vj_fd_cache_init(&p->dirs, DIR_CACHE_SLOTS, "store.posix.dirs");
    vj_fd_cache_init(&p->objects, most_open(vj_opts_number(opts, "open_files")),
                     "store.posix.objects");
    vj_posix_sync_init(&p->sync, p->root_fd, &p->dirs,
                       (uint32_t)vj_opts_number(opts, "sync_batch"), !place->create);
    return true;
}

static void posix_close(VjStore *s)
{
    PosixStore *p = (PosixStore *)s;

    vj_posix_sync_clear(&p->sync);
    vj_fd_cache_clear(&p->objects);
    vj_fd_cache_clear(&p->dirs);
    g_hash_table_unref(p->named);
    vj_cond_clear(&p->named_changed);
    vj_mutex_clear(&p->named_lock);
    vj_erasures_clear(&p->erasures);
    vj_mutex_clear(&p->removed_lock);
    vj_fd_close(&p->root_fd);
    g_free(p->path);
}

void vj_store_posix_set_calls(VjStore *s, const VjPosixSyncCalls *calls)
{
    PosixStore *p = (PosixStore *)s;

    g_assert(s->ops == &vj_store_posix_ops && p->sync.returned == 0);
    p->sync.calls = *calls;
}

VjPosixSyncCounts vj_store_posix_counts(VjStore *s)
{
    PosixStore *p = (PosixStore *)s;
    VjPosixSyncCounts counts;

    g_assert(s->ops == &vj_store_posix_ops);
    vj_mutex_lock(&p->sync.lock);
    counts = p->sync.counts;
    vj_mutex_unlock(&p->sync.lock);
    return counts;
}

static const VjOptSpec posix_options[] = {
    {.name = "sync_batch",
     .type = VJ_OPT_NUMBER,
     .fallback = "2",
     .min = 0,
     .max = VJ_POSIX_SYNC_BATCH_MAX,
     .help = "most objects that a flush syncs one by one; more are synced by syncfs"},
    {.name = "open_files",
     .type = VJ_OPT_NUMBER,
     .fallback = "1024",
     .min = 0,
     .max = VJ_FD_CACHE_MAX,
     .help = "most objects kept open for reading"},
    {.name = "timeout",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .min = 0,
     .max = 86400,
     .help = "seconds after which a call that hangs fails; 0: never"},
    {.name = "erase",
     .type = VJ_OPT_CHOICE,
     .fallback = "no",
     .choices = "no|yes",
     .help = "overwrite objects with zeroes before they are removed"},
    {.name = NULL},
};

const VjStoreOps vj_store_posix_ops = {
    .name = "posix",
    .options = posix_options,
    .instance_size = sizeof(PosixStore),
    .needs = VJ_NEEDS_FILES,
    .align_bytes = 1,
    .is_shareable = true,
    .open = posix_open,
    .close = posix_close,
    .put = posix_put,
    .put_as = posix_put_as,
    .loc_of_nonce = posix_loc_of_nonce,
    .nonce_of_loc = posix_nonce_of_loc,
    .length = posix_length,
    .get = posix_get,
    .with_file = posix_with_file,
    .expect = posix_expect,
    .prefer = posix_prefer,
    .remove = posix_remove,
    .erasures = posix_erasures,
    .flush = posix_flush,
    .flush_removes = posix_flush_removes,
    .each = posix_each,
    .space = posix_space,
};
