/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * raw-edit.h - an edit by varjfs/ioctl.h alone: staged, and carried out as is answered
 */
#ifndef VARJFS_TESTS_RAW_EDIT_H
#define VARJFS_TESTS_RAW_EDIT_H

#include "varjfs/ioctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static inline int raw_carry_out(int fd, const struct varjfs_carry *carry)
{
    switch (carry->call) {
    case VARJFS_CARRY_NOTHING:
        return 0;
    case VARJFS_CARRY_FTRUNCATE:
        return ftruncate(fd, (off_t)carry->len);
    case VARJFS_CARRY_FALLOCATE_FTRUNCATE:
        return fallocate(fd, (int)carry->mode, (off_t)carry->offset, 1) == 0
                   ? ftruncate(fd, (off_t)carry->len)
                   : -1;
    default:
        return fallocate(fd, (int)carry->mode, (off_t)carry->offset, (off_t)carry->len);
    }
}

/* Changes that come between the two calls of an edit, before it is given up. */
#define RAW_EDIT_TRIES 100000u

/*
 * @edit with @inside bytes of data behind it, again while others change the size of the
 * file or read its end: each third time it is carried out all the same where it takes
 * more than it brings.  0, and @edit as the ioctl fills it; -1 and errno.
 */
static inline int raw_edit(int fd, struct varjfs_edit *edit, size_t inside)
{
    struct varjfs_edit asked = *edit;
    unsigned tries = 0;
    int result;

    do {
        *edit = asked;
        if (++tries % 3 == 0 && asked.len < asked.old_len) {
            edit->flags |= VARJFS_EDIT_ANY_SIZE;
        }
        result = ioctl(fd, VARJFS_IOC_EDIT(inside), edit);
        if (result == 0) {
            result = raw_carry_out(fd, &edit->carry);
        }
    } while (result != 0 && errno == EAGAIN && tries < RAW_EDIT_TRIES);
    return result;
}

#endif
