/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * source-lock.c - one process at a time uses a SOURCE
 *
 * flock(2) on SOURCE/varjfs.lock: the kernel lets go of it however the process ends.  A
 * waiter is woken by inotify when somebody closes that file.
 */
#include "file/source-lock-private.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME "varjfs.lock"
/* The kernel announces a close just before it releases the lock; so a waiter looks again
 * after this time even without another event. */
#define LOOK_AGAIN_MS 20
/* What open_lock says of a fifo. */
#define NOT_A_FILE ENOTBLK

/* 1 locked, 0 somebody else has it, -errno. */
static int try_lock(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return 1;
    }
    return errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
}

static int wait_and_lock(int fd, const char *path, int64_t until_us)
{
    VJ_AUTO_FD watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char events[4096];
    int r;

    if (watch < 0 || inotify_add_watch(watch, path, IN_CLOSE) < 0) {
        return -errno;
    }
    while ((r = try_lock(fd)) == 0) {
        struct pollfd p = {.fd = watch, .events = POLLIN};

        if (vj_clock_mono_us() >= until_us) {
            return 0;
        }
        if (poll(&p, 1, LOOK_AGAIN_MS) > 0 && read(watch, events, sizeof events) < 0 &&
            errno != EAGAIN) {
            return -errno;
        }
    }
    return r;
}

/* Whatever somebody else put there under that name: neither waits for it nor follows it. */
static int open_lock(int dir_fd, int flags)
{
    VJ_AUTO_FD fd = openat(dir_fd, LOCK_NAME,
                           flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return -1;
    }
    if (!S_ISREG(st.st_mode)) {
        errno = NOT_A_FILE;
        return -1;
    }
    return vj_fd_steal(&fd);
}

static bool refuse_lock(const char *source, int failed, GError **error)
{
    /* ELOOP: a link; EISDIR, ENXIO, ENODEV: a directory, a socket, a device without a driver. */
    bool is_odd = failed == ELOOP || failed == EISDIR || failed == ENXIO ||
                  failed == ENODEV || failed == NOT_A_FILE;

    return is_odd ? vj_error_set(error, EBADMSG, "%s/" LOCK_NAME ": not a regular file",
                                 source)
                  : vj_error_set_errno(error, failed, "%s/" LOCK_NAME, source);
}

bool vj_source_lock(int dir_fd, const char *source, bool read_only, int64_t wait_us,
                    int *lock_fd, GError **error)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d/" LOCK_NAME, dir_fd);
    VJ_AUTO_FD fd = open_lock(dir_fd, (read_only ? O_RDONLY : O_RDWR) | O_CREAT);
    int r;

    if (fd < 0 && errno == EROFS) {
        fd = open_lock(dir_fd, O_RDONLY);
    }
    if (fd < 0) {
        return refuse_lock(source, errno, error);
    }
    r = try_lock(fd);
    if (r == 0 && wait_us > 0) {
        r = wait_and_lock(fd, path, vj_clock_mono_us() + wait_us);
    }
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s/" LOCK_NAME, source);
    }
    if (r == 0) {
        return vj_error_set(error, EBUSY, "%s is in use by another varjfs process",
                            source);
    }
    *lock_fd = vj_fd_steal(&fd);
    return true;
}

/*
 * Of a directory that a mount table names, so perhaps of one that its user chose: nothing is
 * made there, and what is no lock of ours is none.
 */
bool vj_volume_wait_released(const char *source, int64_t wait_us, bool *foreign,
                             GError **error)
{
    g_autofree char *path = NULL;
    VJ_AUTO_FD dir = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    VJ_AUTO_FD fd = -1;
    struct stat st;
    int r;

    *foreign = false;
    if (dir < 0) {
        return vj_error_set_errno(error, errno, "%s", source);
    }
    fd = open_lock(dir, O_RDONLY);
    if (fd < 0 && errno == ENOENT) {
        return true;
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        return refuse_lock(source, errno, error);
    }
    *foreign = st.st_uid != geteuid();
    path = g_strdup_printf("/proc/self/fd/%d/" LOCK_NAME, dir);
    r = wait_and_lock(fd, path, vj_clock_mono_us() + wait_us);
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s/" LOCK_NAME, source);
    }
    return r > 0 || vj_error_set(error, ETIMEDOUT, "%s is still in use", source);
}
