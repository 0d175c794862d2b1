/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rwrite.c - rwrite and rpwrite: the checks, the descriptor's offset, and which way
 *
 * Invariants: nothing in the file changes before all checks have passed; errno changes
 * only when a call fails; the calls that these stand for (write, pwrite) are used
 * wherever they mean the same.
 */
#include "varjfs/rwrite.h"
#include "rwrite-private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

static bool strict;

/* Once, before there are threads that could call setenv. */
__attribute__((constructor)) static void read_environment(void)
{
    const char *value = getenv("RWRITE_STRICT");

    strict = value != NULL && strcmp(value, "1") == 0;
}

int vj_edit_check_limit(VjEdit *e, uint64_t reach)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        reach > limit.rlim_cur) {
        e->over_limit = true;
        return -EFBIG;
    }
    return 0;
}

/* Linux 6.8 and later; older headers have neither the bit nor the member of struct
 * statx. */
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x00004000u
#endif
#define STX_MNT_ID_AT 0x90

static uint64_t mount_of(const struct statx *stx)
{
    uint64_t mount = 0;

    if ((stx->stx_mask & STATX_MNT_ID_UNIQUE) != 0) {
        memcpy(&mount, (const char *)stx + STX_MNT_ID_AT, sizeof mount);
    }
    return mount;
}

/*
 * Type, device, mount and number of an open file, without asking a FUSE daemon: fstat may
 * send it a request, which would double the cost of a small edit.
 */
static int look_at(VjEdit *e, mode_t *mode, VjDevice *device)
{
    struct statx stx;
    struct stat st;
    unsigned int major_number, minor_number;

    if (statx(e->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
              STATX_TYPE | STATX_INO | STATX_MNT_ID_UNIQUE, &stx) == 0) {
        *mode = stx.stx_mode;
        e->ino = stx.stx_ino;
        e->mount = mount_of(&stx);
        major_number = stx.stx_dev_major;
        minor_number = stx.stx_dev_minor;
    } else if (fstat(e->fd, &st) == 0) {
        *mode = st.st_mode;
        major_number = major(st.st_dev);
        minor_number = minor(st.st_dev);
    } else {
        return -errno;
    }
    *device = major_number << 20 | (minor_number & 0xfffff);
    return 0;
}

int vj_edit_check_descriptor(VjEdit *e, VjDevice *device)
{
    mode_t mode = 0;
    int result;

    e->flags = fcntl(e->fd, F_GETFL);
    if (e->flags < 0) {
        return -errno;
    }
    if ((e->flags & O_PATH) != 0) {
        return -EBADF;
    }
    result = look_at(e, &mode, device);
    if (result != 0) {
        return result;
    }
    if (S_ISDIR(mode)) {
        return -EISDIR;
    }
    if (!S_ISREG(mode)) {
        return -EINVAL;
    }
    result = e->flags & O_ACCMODE;
    return result == O_WRONLY || result == O_RDWR ? 0 : -EBADF;
}

/* The sums that later code forms must fit; old bytes beyond the largest offset do not
 * exist. */
static int check_range(VjEdit *e)
{
    if (e->len > SSIZE_MAX) {
        return -EINVAL;
    }
    if (e->len > INT64_MAX - e->offset) {
        return -EFBIG;
    }
    if (e->old_len > INT64_MAX - e->offset) {
        e->old_len = INT64_MAX - e->offset;
    }
    return 0;
}

static int64_t edit(VjEdit *e, VjDevice device)
{
    int64_t done = vj_edit_by_ioctl(e, device);

    if (done != -EOPNOTSUPP || strict) {
        return done;
    }
    return vj_edit_by_tail(e);
}

static int64_t edit_at_descriptor(VjEdit *e)
{
    bool as_write = e->old_len == e->len;
    VjDevice device = 0;
    int64_t done = vj_edit_check_descriptor(e, &device);

    if (done != 0) {
        return done;
    }
    e->append = (e->flags & O_APPEND) != 0;
    if (!e->append) {
        off_t offset = lseek(e->fd, 0, SEEK_CUR);

        if (offset < 0) {
            return -errno;
        }
        e->offset = (uint64_t)offset;
    } else {
        e->old_len = 0;
    }
    done = check_range(e);
    if (done != 0 || (e->len == 0 && e->old_len == 0)) {
        return done;
    }
    if (as_write) {
        done = write(e->fd, e->src, e->len);
        return done < 0 ? -errno : done;
    }
    done = edit(e, device);
    if (done > 0 && lseek(e->fd, (off_t)(e->at + (uint64_t)done), SEEK_SET) < 0) {
        return -errno;
    }
    return done;
}

static int64_t edit_at_offset(VjEdit *e, off_t offset)
{
    bool as_pwrite = e->old_len == e->len;
    VjDevice device = 0;
    int64_t done = vj_edit_check_descriptor(e, &device);

    if (done != 0) {
        return done;
    }
    if (offset < 0) {
        return -EINVAL;
    }
    e->offset = (uint64_t)offset;
    done = check_range(e);
    if (done != 0 || (e->len == 0 && e->old_len == 0)) {
        return done;
    }
    /* Linux appends with pwrite too when the descriptor has O_APPEND: not what rpwrite
     * says. */
    if (as_pwrite && (e->flags & O_APPEND) == 0) {
        done = pwrite(e->fd, e->src, e->len, offset);
        return done < 0 ? -errno : done;
    }
    return edit(e, device);
}

/* What both functions do around the work: @offset is NULL for rwrite. */
static ssize_t run(VjEdit *e, const off_t *offset)
{
    int saved_errno = errno;
    int cancel_state, ignored;
    int64_t done;

    /* A thread cancelled in the middle would leave half an edit and a buffer behind. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    done = offset == NULL ? edit_at_descriptor(e) : edit_at_offset(e, *offset);
    pthread_setcancelstate(cancel_state, &ignored);
    if (done < 0) {
        if (e->over_limit) {
            raise(SIGXFSZ);
        }
        errno = (int)-done;
        return -1;
    }
    errno = saved_errno;
    return (ssize_t)done;
}

PUBLIC ssize_t rwrite(int fd, const void *buf, size_t nbyte, size_t mbyte)
{
    VjEdit e = {.fd = fd, .src = buf, .len = nbyte, .old_len = mbyte};

    return run(&e, NULL);
}

PUBLIC ssize_t rpwrite(int fd, const void *buf, size_t nbyte, off_t offset, size_t mbyte)
{
    VjEdit e = {.fd = fd, .src = buf, .len = nbyte, .old_len = mbyte};

    return run(&e, &offset);
}
