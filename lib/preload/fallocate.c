/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fallocate.c - FALLOC_FL_INSERT_RANGE and FALLOC_FL_COLLAPSE_RANGE on varjfs
 *
 * Every call goes to the kernel first, as it is: it applies the rules of fallocate(2)
 * about descriptors and arguments, and on other file systems that is all.  Its FUSE
 * client then answers these two modes with EOPNOTSUPP without asking the daemon; that
 * answer, for a file on varjfs, is what is turned into an edit.  What depends on the
 * file's size the daemon decides, in the same step as the edit.
 */
#include "next.h"
#include "rwrite-private.h"

#include <errno.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>

#define RANGE_MODES (FALLOC_FL_INSERT_RANGE | FALLOC_FL_COLLAPSE_RANGE)

/* 0 or -errno; -EOPNOTSUPP: not varjfs, the kernel's answer holds. */
static int edit_range(VjEdit *e, int mode)
{
    VjDevice device = 0;
    int result = vj_edit_check_descriptor(e, &device);

    if (result != 0) {
        return -EOPNOTSUPP;
    }
    if (mode != FALLOC_FL_INSERT_RANGE && mode != FALLOC_FL_COLLAPSE_RANGE) {
        /* Some kernels say EOPNOTSUPP to a mixture of flags, others what the manual
         * says. */
        return vj_is_varjfs(e->fd, device) ? -EINVAL : -EOPNOTSUPP;
    }
    return (int)vj_edit_by_ioctl(e, device);
}

/* The kernel has refused the call with EOPNOTSUPP.  @saved_errno: of before the call. */
static int instead(int fd, int mode, int64_t offset, int64_t len, int saved_errno)
{
    VjEdit e = {.fd = fd, .offset = (uint64_t)offset, .hole = true};
    int cancel_state, ignored, result;

    if ((mode & FALLOC_FL_INSERT_RANGE) != 0) {
        e.len = (uint64_t)len;
    } else {
        e.old_len = (uint64_t)len;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    result = edit_range(&e, mode);
    pthread_setcancelstate(cancel_state, &ignored);
    if (result < 0) {
        if (e.over_limit) {
            raise(SIGXFSZ);
        }
        errno = -result;
        return -1;
    }
    errno = saved_errno;
    return 0;
}

static bool is_ours(int result, int mode)
{
    return result != 0 && (mode & RANGE_MODES) != 0 && errno == EOPNOTSUPP;
}

/* The headers may give the names fallocate and fallocate64 to one function: these are the
 * symbols themselves. */
VJ_PUBLIC int vj_fallocate(int fd, int mode, long offset, long len) __asm__("fallocate");
VJ_PUBLIC int vj_fallocate64(int fd, int mode, int64_t offset,
                             int64_t len) __asm__("fallocate64");

int vj_fallocate(int fd, int mode, long offset, long len)
{
    int saved_errno = errno;
    int result = vj_next_fallocate()(fd, mode, offset, len);

    return is_ours(result, mode) ? instead(fd, mode, offset, len, saved_errno) : result;
}

int vj_fallocate64(int fd, int mode, int64_t offset, int64_t len)
{
    int saved_errno = errno;
    int result = vj_next_fallocate64()(fd, mode, offset, len);

    return is_ours(result, mode) ? instead(fd, mode, offset, len, saved_errno) : result;
}
