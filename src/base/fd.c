/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fd.c - whole transfers, and small files that change in one step
 */
#include "base/base.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH_IOV 64 /* elements handed to the kernel at once */
/* The kernel announces a close just before it releases the lock; so a waiter looks again
 * after this time even without another event. */
#define LOOK_AGAIN_MS 20

void vj_fd_close(int *fd)
{
    int saved = errno;

    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    errno = saved;
}

/* Directories between one and the root: more than a path that fits into PATH_MAX can
 * name. */
#define DEPTH_MAX 4096u

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int vj_fd_is_inside(int dir_fd, int root_fd, bool *out)
{
    VJ_AUTO_FD at = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat root, here, above;

    if (at < 0 || fstat(root_fd, &root) < 0 || fstat(at, &here) < 0) {
        return -errno;
    }
    for (unsigned depth = 0; depth < DEPTH_MAX; depth++) {
        int up;

        *out = is_same(&here, &root);
        if (*out) {
            return 0;
        }
        up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0) {
            return -errno;
        }
        vj_fd_close(&at);
        at = up;
        if (fstat(at, &above) < 0) {
            return -errno;
        }
        if (is_same(&above, &here)) {
            return 0; /* the root is above itself */
        }
        here = above;
    }
    return -ELOOP;
}

/* The range is one that off_t can name. */
static bool range_is_valid(uint64_t offset, size_t len)
{
    uint64_t end;

    return vj_add_u64(offset, len, &end) && end <= INT64_MAX;
}

int vj_fd_pread_all(int fd, void *dst, size_t len, uint64_t offset)
{
    uint8_t *at = dst;

    if (!range_is_valid(offset, len)) {
        return -EFBIG;
    }
    while (len > 0) {
        ssize_t got = pread(fd, at, len, (off_t)offset);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -errno;
        }
        if (got == 0) {
            return -EBADMSG;
        }
        at += got;
        len -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

/* The part of @iov from element @first, byte @skip on, as far as @batch holds it. */
static int fill_batch(struct iovec *batch, const struct iovec *iov, int iov_count,
                      int first, size_t skip)
{
    int n = 0;

    for (int i = first; i < iov_count && n < BATCH_IOV; i++) {
        batch[n].iov_base = (uint8_t *)iov[i].iov_base + skip;
        batch[n].iov_len = iov[i].iov_len - skip;
        n++;
        skip = 0;
    }
    return n;
}

int vj_fd_pwritev_all(int fd, const struct iovec *iov, int iov_count, uint64_t offset)
{
    struct iovec batch[BATCH_IOV];
    size_t left = 0, skip = 0;
    int first = 0;

    for (int i = 0; i < iov_count; i++) {
        if (!vj_add_size(left, iov[i].iov_len, &left)) {
            return -EFBIG;
        }
    }
    if (!range_is_valid(offset, left)) {
        return -EFBIG;
    }
    while (left > 0) {
        ssize_t put;

        while (skip == iov[first].iov_len) {
            first++;
            skip = 0;
        }
        put = pwritev(fd, batch, fill_batch(batch, iov, iov_count, first, skip),
                      (off_t)offset);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return -errno;
        }
        if (put == 0) {
            return -EIO; /* bytes were asked for: a device that takes none never will */
        }
        offset += (uint64_t)put;
        left -= (size_t)put;
        skip += (size_t)put;
        while (left > 0 && skip >= iov[first].iov_len) {
            skip -= iov[first].iov_len;
            first++;
        }
    }
    return 0;
}

#define OVERWRITE_PIECE_BYTES VJ_MIB
#define OVERWRITE_SYNC_PIECES 16u

int vj_fd_overwrite(int fd, uint64_t bytes)
{
    size_t room = (size_t)MIN(bytes, OVERWRITE_PIECE_BYTES);
    g_autofree uint8_t *zeroes = g_try_malloc0(room);
    unsigned pieces = 0;
    int rc = zeroes == NULL && room > 0 ? -ENOMEM : 0;

    for (uint64_t at = 0; rc == 0 && at < bytes; at += room) {
        struct iovec iov = {.iov_base = zeroes, .iov_len = (size_t)MIN(room, bytes - at)};

        rc = vj_fd_pwritev_all(fd, &iov, 1, at);
        if (rc == 0 && ++pieces % OVERWRITE_SYNC_PIECES == 0 && fdatasync(fd) != 0) {
            rc = -errno;
        }
    }
    return rc == 0 && fdatasync(fd) != 0 ? -errno : rc;
}

int vj_fd_write_all(int fd, const void *src, size_t len)
{
    const uint8_t *at = src;

    while (len > 0) {
        ssize_t put = write(fd, at, len);

        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return put < 0 ? -errno : -EIO;
        }
        at += put;
        len -= (size_t)put;
    }
    return 0;
}

bool vj_fd_has(int dir_fd, const char *name)
{
    return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* 1 locked, 0 another process has it, -errno. */
static int try_lock(int fd, VjFdTaken *is_taken)
{
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        return errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    }
    if (is_taken != NULL && is_taken(fd)) {
        return flock(fd, LOCK_UN) < 0 ? -errno : 0;
    }
    return 1;
}

/* Until a process closes the file of @fd, or it is time to look again. */
static int await_close(int fd, int *watch)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    struct pollfd p = {.events = POLLIN};
    char events[4096];

    if (*watch < 0) {
        *watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        return *watch < 0 || inotify_add_watch(*watch, path, IN_CLOSE) < 0 ? -errno : 0;
    }
    p.fd = *watch;
    return poll(&p, 1, LOOK_AGAIN_MS) > 0 && read(*watch, events, sizeof events) < 0 &&
                   errno != EAGAIN
               ? -errno
               : 0;
}

/* The same, shared with other processes.  *alone: no other process had it. */
static int try_share(int fd, VjFdTaken *is_taken, bool *alone)
{
    int r = try_lock(fd, is_taken);

    *alone = r == 1;
    if (r < 0) {
        return r;
    }
    /* Another one may get in between, also where we have had it alone. */
    if (flock(fd, LOCK_SH | LOCK_NB) < 0) {
        return errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    }
    if (!*alone && is_taken != NULL && is_taken(fd)) {
        return flock(fd, LOCK_UN) < 0 ? -errno : 0;
    }
    return 1;
}

/* @alone NULL: exclusively. */
static int lock(int fd, VjFdTaken *is_taken, int64_t until_us, bool *alone)
{
    VJ_AUTO_FD watch = -1;
    int r;

    while ((r = alone == NULL ? try_lock(fd, is_taken)
                              : try_share(fd, is_taken, alone)) == 0) {
        if (vj_clock_mono_us() >= until_us) {
            return -EWOULDBLOCK;
        }
        r = await_close(fd, &watch);
        if (r < 0) {
            return r;
        }
    }
    return r < 0 ? r : 0;
}

int vj_fd_lock(int fd, VjFdTaken *is_taken, int64_t until_us)
{
    return lock(fd, is_taken, until_us, NULL);
}

int vj_fd_lock_shared(int fd, VjFdTaken *is_taken, int64_t until_us, bool *alone)
{
    return lock(fd, is_taken, until_us, alone);
}

int vj_fd_check_alive(int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && fchmod(fd, st.st_mode & 07777) == 0) {
        return 0;
    }
    return errno == EIO || errno == EROFS ? -errno : 0;
}

/* The new file @temporary, complete and durable, not yet under its name. */
static int write_temporary(int dir_fd, const char *temporary, const void *src, size_t len,
                           mode_t mode)
{
    VJ_AUTO_FD fd =
        openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int failed;

    if (fd < 0) {
        return -errno;
    }
    failed = vj_fd_write_all(fd, src, len);
    if (failed) {
        return failed;
    }
    if (fsync(fd) != 0) {
        return -errno;
    }
    /* Some file systems report a failed write only here. */
    return close(vj_fd_steal(&fd)) != 0 ? -errno : 0;
}

bool vj_file_replace_contents(int dir_fd, const char *name, const void *src, size_t len,
                              mode_t mode, GError **error)
{
    g_autofree char *temporary = NULL;
    int failed;

    g_assert(dir_fd >= 0);
    g_assert(strchr(name, '/') == NULL);
    temporary = g_strdup_printf(".%s.%016" G_GINT64_MODIFIER "x", name, vj_random_u64());
    failed = write_temporary(dir_fd, temporary, src, len, mode);
    if (!failed && renameat(dir_fd, temporary, dir_fd, name) != 0) {
        failed = -errno;
    }
    if (failed) {
        if (failed != -EEXIST) {
            /* It may not exist; what went wrong before is what the caller hears. */
            (void)unlinkat(dir_fd, temporary, 0);
        }
        return vj_error_set_errno(error, -failed, "%s: cannot write", name);
    }
    if (fsync(dir_fd) != 0) {
        failed = -errno;
    } else {
        failed = vj_fd_check_alive(dir_fd);
    }
    return failed == 0 ||
           vj_error_set_errno(error, -failed, "%s: cannot make its directory durable",
                              name);
}

/* Up to @cap bytes from the start of @fd. */
static int read_some(int fd, char *dst, size_t cap, size_t *got)
{
    *got = 0;
    while (*got < cap) {
        ssize_t part = read(fd, dst + *got, cap - *got);

        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part < 0) {
            return -errno;
        }
        if (part == 0) {
            break;
        }
        *got += (size_t)part;
    }
    return 0;
}

bool vj_fd_is_in_place(int fd)
{
    int flags;

    return ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_NOCOW_FL) != 0;
}

void vj_fd_ask_in_place(int dir_fd)
{
    int flags;

    if (ioctl(dir_fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_NOCOW_FL) == 0) {
        flags |= FS_NOCOW_FL;
        /* Most file systems have nothing of the kind, and do not copy on write. */
        (void)ioctl(dir_fd, FS_IOC_SETFLAGS, &flags);
    }
}

char *vj_file_read_small(int dir_fd, const char *name, size_t max_bytes, size_t *len,
                         GError **error)
{
    g_autofree char *text = NULL;
    /* O_NONBLOCK: a fifo under that name must not hang the caller. */
    VJ_AUTO_FD fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    size_t cap, got;
    int failed;

    if (fd < 0 || fstat(fd, &st) != 0) {
        vj_error_set_errno(error, errno, "%s: cannot open", name);
        return NULL;
    }
    if (!S_ISREG(st.st_mode)) {
        vj_error_set(error, S_ISDIR(st.st_mode) ? EISDIR : EINVAL,
                     "%s: not a regular file", name);
        return NULL;
    }
    if (!vj_add_size(max_bytes, 1, &cap) || (text = g_try_malloc(cap)) == NULL) {
        vj_error_set_errno(error, ENOMEM, "%s: cannot read", name);
        return NULL;
    }
    failed = read_some(fd, text, cap, &got);
    if (failed) {
        vj_error_set_errno(error, -failed, "%s: cannot read", name);
        return NULL;
    }
    if (got > max_bytes) {
        vj_error_set(error, EFBIG, "%s: longer than %zu bytes", name, max_bytes);
        return NULL;
    }
    text[got] = '\0';
    if (len != NULL) {
        *len = got;
    }
    return g_steal_pointer(&text);
}

void vj_fd_drop_pages(int fd)
{
    /* What cannot be written does not count, and whether it could the reader will see. */
    (void)!fdatasync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* Of what one call asks for the kernel reads so much at least; what is longer than a
 * request of the device, or than its read-ahead, it cuts off. */
#define READ_AHEAD_PIECE_BYTES (128u << 10)

void vj_fd_read_ahead(int fd, uint64_t offset, uint64_t len)
{
    while (len > 0) {
        uint64_t piece = MIN(len, READ_AHEAD_PIECE_BYTES);

        if (posix_fadvise(fd, (off_t)offset, (off_t)piece, POSIX_FADV_WILLNEED) != 0) {
            return;
        }
        offset += piece;
        len -= piece;
    }
}
