/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * in-use.c - did the last user of SOURCE end in order?
 *
 * An empty file in SOURCE says whether its last user closed it in order: it is called
 * varjfs.inuse from before the first change until after the last one is durable, and
 * varjfs.clean otherwise.  Only its name changes, which takes no space: a full device can
 * be mounted.  A mount that finds the first name while it holds the lock comes after a
 * crash, and has the metadata examined (examine.c).
 */
#include "volume/place-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int make_mark(int dir_fd)
{
    VJ_AUTO_FD fd = -1;

    if (renameat(dir_fd, VJ_CLEAN_NAME, dir_fd, VJ_IN_USE_NAME) == 0) {
        return 0;
    }
    if (errno != ENOENT) {
        return -errno;
    }
    /* It is never written: opened for reading, it can be made in a sandbox that allows
     * names alone. */
    fd =
        openat(dir_fd, VJ_IN_USE_NAME, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : 0;
}

bool vj_place_was_left_in_use(const VjPlace *p)
{
    if (p->is_marked || p->has_others) {
        return p->has_failed;
    }
    return p->dir_fd >= 0 && vj_fd_has(p->dir_fd, VJ_IN_USE_NAME);
}

bool vj_place_check_restore(const VjPlace *p, GError **error)
{
    return p->dir_fd < 0 || !vj_fd_has(p->dir_fd, VJ_RESTORING_NAME) ||
           vj_error_set(error, EBADMSG,
                        "%s: a restore of its metadata was cut off: begin it again with "
                        "fsck.varjfs --restore",
                        p->name);
}

bool vj_place_mark(VjPlace *p, GError **error)
{
    int r;

    if (p->dir_fd < 0 || p->is_marked) {
        return true;
    }
    r = make_mark(p->dir_fd);
    if (r == -ENOSPC || r == -EDQUOT) {
        vj_log_warn("%s/" VJ_IN_USE_NAME ": %s; after a crash nobody will know of it",
                    p->name, g_strerror(-r));
        return true;
    }
    if (r == 0 && fsync(p->dir_fd) != 0) {
        r = -errno;
    }
    p->is_marked = r == 0;
    return r == 0 || vj_error_set_errno(error, -r, "%s/" VJ_IN_USE_NAME, p->name);
}

int vj_place_unmark(VjPlace *p)
{
    g_assert(p->is_marked);
    if (renameat(p->dir_fd, VJ_IN_USE_NAME, p->dir_fd, VJ_CLEAN_NAME) != 0 ||
        (p->is_restored && unlinkat(p->dir_fd, VJ_RESTORING_NAME, 0) != 0 &&
         errno != ENOENT) ||
        fsync(p->dir_fd) != 0) {
        return -errno;
    }
    p->is_marked = false;
    return 0;
}
