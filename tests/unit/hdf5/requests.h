/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * requests.h - what a test does before each request of the connector
 *
 * The connector is loaded into the test's process, whose functions come first: sendmsg
 * here sees each request, as there is no mailbox.
 */
#ifndef VJ_TESTS_UNIT_HDF5_REQUESTS_H
#define VJ_TESTS_UNIT_HDF5_REQUESTS_H

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/base.h"

#include <varjfs/client-protocol.h>

/* The test's. */
static void before_each_request(void);

/* Each begins with this text, version and flags, and what it is; the rest of a long one
 * is sent by another call.  Those for the library's own use do not count. */
static bool is_request(const void *bytes)
{
    uint16_t op = vj_le16_get((const uint8_t *)bytes + 6);

    return memcmp(bytes, "VJFR", 4) == 0 && op >= VARJFS_WIRE_BATCH &&
           op != VARJFS_WIRE_SHARE && op != VARJFS_WIRE_MAILBOX && op != VARJFS_WIRE_BELL;
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *m,
                                                       int flags)
{
    static ssize_t (*next)(int, const struct msghdr *, int);

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "sendmsg");
    }
    if (m->msg_iovlen > 0 && m->msg_iov[0].iov_len >= 8 &&
        is_request(m->msg_iov[0].iov_base)) {
        before_each_request();
    }
    return next(fd, m, flags);
}

/* The memory of a mailbox cannot be had. */
__attribute__((visibility("default"))) void *mmap(void *at, size_t bytes, int protection,
                                                  int flags, int fd, off_t offset)
{
    static void *(*next)(void *, size_t, int, int, int, off_t);

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    }
    if (bytes == VARJFS_WIRE_MAILBOX_BYTES && fd >= 0 && (flags & MAP_SHARED) != 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return next(at, bytes, protection, flags, fd, offset);
}

#endif
