/* SPDX-License-Identifier: LGPL-3.0-or-later */
#ifndef VJ_BASE_SHARED_H
#define VJ_BASE_SHARED_H
/*
 * shared.h - memory that goes to another process as a descriptor
 *
 * It is sealed (memfd_create(2)): nobody can make it shorter or longer, so who has mapped
 * it gets no signal.  All its pages are there from the beginning.
 */
#include <stddef.h>
#include <stdint.h>

/*
 * vj_shared_new - new memory of zeros, mapped for reading and writing
 *
 * @name    of /proc, for who looks there
 * @seals   more seals of fcntl(2), set when it is mapped: with F_SEAL_FUTURE_WRITE who
 *          gets the descriptor can map it for reading alone
 * @fd      to be passed on; owned
 * @data    owned, until munmap(2)
 * Returns  0 or -errno      Threads  any; does not block
 */
int vj_shared_new(const char *name, size_t bytes, int seals, int *fd, uint8_t **data);

#endif
