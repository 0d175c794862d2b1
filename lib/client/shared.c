/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shared.c - descriptors that come from the daemon, and memory that is one
 *
 * Memory must be sealed against being made shorter, else a daemon could end the program
 * by a signal.
 */
#include "client-private.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_safe(int fd, size_t bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 &&
           st.st_size >= (off_t)bytes;
}

int vjc_fd_ask(varjfs *v, uint16_t op, int *fd)
{
    VjcRequest r = {.op = op};
    uint8_t head[VJC_HEAD_BYTES];
    int rc;

    v->awaits_fd = true;
    rc = vjc_send(v, &r, head, sizeof head, NULL, 0);
    if (rc == 0 || r.done) {
        rc = vjc_wait(v, &r);
    }
    v->awaits_fd = false;
    *fd = v->passed_fd;
    v->passed_fd = -1;
    if (*fd >= 0 && rc != 0) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

void *vjc_shared_ask(varjfs *v, uint16_t op, size_t bytes, int protection)
{
    void *at = MAP_FAILED;
    int fd;

    (void)vjc_fd_ask(v, op, &fd);
    if (fd < 0) {
        return NULL;
    }
    if (is_safe(fd, bytes)) {
        at = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    }
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}
