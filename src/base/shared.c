/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* shared.c - see shared.h */
#include "base/base.h"

#include <fcntl.h>
#include <sys/mman.h>

int vj_shared_new(const char *name, size_t bytes, int seals, int *fd, uint8_t **data)
{
    VJ_AUTO_FD memory = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *at;
    int rc;

    if (memory < 0) {
        return -errno;
    }
    /* All of it now: a page that is lacking later would be a signal. */
    rc = -posix_fallocate(memory, 0, (off_t)bytes);
    if (rc < 0) {
        return rc;
    }
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (at == MAP_FAILED) {
        return -errno;
    }
    if (fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | seals) !=
        0) {
        rc = -errno;
        munmap(at, bytes);
        return rc;
    }
    *data = at;
    *fd = vj_fd_steal(&memory);
    return 0;
}
