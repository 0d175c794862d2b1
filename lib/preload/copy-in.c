/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * copy-in.c - read the caller's buffer without dying of it
 *
 * write(2) answers a bad address with EFAULT, and so must rwrite.  An ioctl argument is
 * one piece of memory, header and data, so the data is copied, and the kernel does the
 * copying.  process_vm_readv() on ourselves is one call for any length.  Where it does
 * not work (a seccomp filter, a kernel without it) or does not succeed (it cannot read
 * device memory, which write(2) can) the bytes go through a pipe.
 */
#include "rwrite-private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

/* Fits an empty pipe of any capacity, so that no write blocks. */
#define PIPE_STEP_BYTES 4096u

static int copy_through_pipe(char *dst, const char *src, size_t len)
{
    int ends[2];
    int result = 0;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return -errno;
    }
    while (len > 0 && result == 0) {
        size_t step = len < PIPE_STEP_BYTES ? len : PIPE_STEP_BYTES;
        ssize_t sent = write(ends[1], src, step);

        if (sent < 0) {
            result = -errno;
        } else if (read(ends[0], dst, (size_t)sent) != sent) {
            result = -EIO;
        } else {
            src += sent;
            dst += sent;
            len -= (size_t)sent;
        }
    }
    close(ends[0]);
    close(ends[1]);
    return result;
}

int vj_copy_from_caller(void *dst, const char *src, size_t len)
{
    struct iovec to = {.iov_base = dst, .iov_len = len};
    /* An iovec has no const; process_vm_readv only reads this one. */
    struct iovec from = {.iov_base = (void *)(uintptr_t)src, .iov_len = len};

    if (len == 0 || process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)len) {
        return 0;
    }
    return copy_through_pipe(dst, src, len);
}
