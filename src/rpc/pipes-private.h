/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * pipes-private.h - pipes through which parts of files go to sockets
 *
 *     file ── splice ──> pipe: pages of the page cache ── splice ──> socket
 *
 * No byte is copied or looked at in this process.  Who fills a pipe waits for the device,
 * and finds out whether the file is too short or cannot be read, before anything is sent.
 * The pages stay in the pipe whatever becomes of the file, and sending them does not
 * block.
 *
 * A server keeps VJ_PIPES_MAX at most.  One that was not emptied is closed: it is never
 * used again.
 */
#ifndef VJ_RPC_PIPES_PRIVATE_H
#define VJ_RPC_PIPES_PRIVATE_H

#include "base/base.h"

#define VJ_PIPES_MAX 56u
/* Of one, where the kernel lets it be so long. */
#define VJ_PIPE_BYTES (1 << 20)
/* What is shorter is copied, which takes less time than the calls for a pipe. */
#define VJ_PIPE_BYTES_MIN ((uint32_t)16 << 10)

/* Its ends do not block. */
typedef struct VjPipe {
    int read_fd, write_fd;
    uint32_t room_bytes; /* what a file's pages at any offset fit into */
} VjPipe;

/* Threads: any but for init and clear. */
typedef struct VjPipes {
    VjMutex lock; /* VJ_RANK_RPC */
    /* guarded by lock: */
    GQueue unused;  /* of VjPipe: empty ones */
    unsigned count; /* those and others */
} VjPipes;

void vj_pipes_init(VjPipes *p);
/* All have been returned. */
void vj_pipes_clear(VjPipes *p);
/* One with [@offset, @offset + @bytes) of @fd, which is borrowed.  0; -EOPNOTSUPP: all
 * are in use, or not so many bytes, or not of such a file, which may have fewer; -EIO.
 * Blocks as read(2) does. */
int vj_pipes_fill(VjPipes *p, int fd, uint64_t offset, uint32_t bytes,
                  VjPipe **out) G_GNUC_WARN_UNUSED_RESULT;
/* @pipe is not used any more. */
void vj_pipes_return(VjPipes *p, VjPipe *pipe, bool is_empty);

#endif
