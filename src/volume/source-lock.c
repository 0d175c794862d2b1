/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * source-lock.c - one process at a time uses a SOURCE, or several that share it
 *
 * flock(2) on the directory SOURCE itself: the kernel lets go of it however the process
 * ends, there is no name that could be removed with it, and it is the same lock by
 * whatever path, bind mount or link one comes.
 *
 * A user who may open the directory may lock it too, so a SOURCE that is served for
 * writing is closed to other users.
 *
 * A volume file is locked likewise.  That keeps apart two processes of this machine that
 * use the same file, and lets umount wait; what keeps others from the volume is the lease
 * of its session.  So a file system where it cannot be locked will do, and its mode is
 * its owner's affair.  One that was renewed while it was mounted is another file than
 * the daemon has locked, which has a second name until then: that lock is waited for.
 */
#include "volume/place-private.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHERS_MAY_OPEN (S_IRGRP | S_IROTH)
/* Another one that shares it may have it exclusively for a moment. */
#define SHARED_WAIT_LEAST_US ((int64_t)1000 * 1000)

/* A daemon that was started before its program was replaced may still have the lock of
 * then. */
static bool has_old_lock(int dir_fd)
{
    VJ_AUTO_FD fd = openat(dir_fd, VJ_OLD_LOCK_NAME,
                           O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

void vj_place_close_to_others(const VjPlace *p)
{
    struct stat st;

    if (p->dir_fd < 0 ||
        (fstat(p->dir_fd, &st) == 0 && (st.st_mode & OTHERS_MAY_OPEN) == 0)) {
        return;
    }
    if (fchmod(p->dir_fd, st.st_mode & (mode_t)(07777 & ~OTHERS_MAY_OPEN)) < 0) {
        vj_log_warn("%s: others may open it, and keep it locked: %s", p->name,
                    g_strerror(errno));
    } else {
        vj_log_info("%s: its mode was %04o; others may not open it any more", p->name,
                    st.st_mode & 07777);
    }
}

/*
 * What was opened by that name, and perhaps waited for, still has it.  Root's daemon has
 * given up what would let it through the directories of others: there the kernel says
 * what @fd is called.
 */
static bool is_still(int fd, const struct stat *st, const char *source)
{
    g_autofree char *link = NULL;
    g_autofree char *name = NULL;
    struct stat now;

    if (stat(source, &now) == 0) {
        return now.st_dev == st->st_dev && now.st_ino == st->st_ino;
    }
    if (errno != EACCES) {
        return false;
    }
    link = g_strdup_printf("/proc/self/fd/%d", fd);
    name = g_file_read_link(link, NULL);
    return g_strcmp0(name, source) == 0;
}

static int lock_fd(VjPlace *p, int fd, bool shared, int64_t wait_us)
{
    int64_t now_us = vj_clock_mono_us();
    bool alone = true;
    VjFdTaken *old = p->dir_fd >= 0 ? has_old_lock : NULL;
    int r = shared ? vj_fd_lock_shared(
                         fd, old, now_us + MAX(wait_us, SHARED_WAIT_LEAST_US), &alone)
                   : vj_fd_lock(fd, old, now_us + wait_us);

    p->has_others = !alone;
    return r;
}

/* A description of its own: the lock goes with its last descriptor. */
static int open_again(const VjPlace *p)
{
    g_autofree char *link = NULL;

    if (p->dir_fd >= 0) {
        return openat(p->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    link = g_strdup_printf("/proc/self/fd/%d", p->file_fd);
    return open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* NFS wants a file to be open for writing, others lock none. */
static bool locks_no_files(const VjPlace *p, int r)
{
    bool cannot = p->file_fd >= 0 && (r == -EBADF || r == -ENOLCK || r == -EINVAL ||
                                      r == -EOPNOTSUPP || r == -ENOSYS);

    if (cannot) {
        vj_log_info("%s: its file system does not lock it (%s): other processes are kept "
                    "out by the lease of the session alone",
                    p->name, g_strerror(-r));
    }
    return cannot;
}

/* The daemon that has locked what the file was before is gone. */
static bool is_replaced_free(VjPlace *p, int64_t wait_us)
{
    int r;

    if (p->replaced_fd < 0) {
        return true;
    }
    r = vj_fd_lock(p->replaced_fd, NULL, vj_clock_mono_us() + wait_us);
    (void)flock(p->replaced_fd, LOCK_UN);
    return r != -EWOULDBLOCK;
}

static bool lock(VjPlace *p, bool shared, int64_t wait_us, GError **error)
{
    VJ_AUTO_FD fd = open_again(p);
    struct stat st;
    int r;

    if (fd < 0) {
        return vj_error_set_errno(error, errno, "%s", p->name);
    }
    r = is_replaced_free(p, wait_us) ? lock_fd(p, fd, shared, wait_us) : -EWOULDBLOCK;
    if (locks_no_files(p, r)) {
        return true;
    }
    if (r == -EWOULDBLOCK) {
        return vj_error_set(error, EBUSY, "%s is in use by another varjfs process",
                            p->name);
    }
    if (r < 0 || fstat(fd, &st) < 0) {
        return vj_error_set_errno(error, r < 0 ? -r : errno, "%s: cannot be locked",
                                  p->name);
    }
    if (!is_still(fd, &st, p->name)) {
        return vj_error_set(error, EBUSY, "%s was replaced by something else meanwhile",
                            p->name);
    }
    p->lock_fd = vj_fd_steal(&fd);
    return true;
}

bool vj_place_lock(VjPlace *p, bool shared, int64_t wait_us, GError **error)
{
    if (p->users > 1 && p->is_shared != shared) {
        return vj_error_set(error, EBUSY, "%s is in use in this process, and %s", p->name,
                            shared ? "not to be shared" : "shared");
    }
    if (p->users <= 1 && p->is_shared != shared) {
        vj_fd_close(&p->lock_fd);
    }
    p->is_shared = shared;
    return (p->dir_fd < 0 && p->file_fd < 0) || p->lock_fd >= 0 ||
           lock(p, shared, wait_us, error);
}

bool vj_place_is_last(VjPlace *p)
{
    return !p->is_shared || p->lock_fd < 0 || vj_fd_lock(p->lock_fd, NULL, 0) == 0;
}
