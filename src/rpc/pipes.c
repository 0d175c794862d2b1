/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* pipes.c - see pipes-private.h */
#include "rpc/pipes-private.h"

#include <fcntl.h>
#include <unistd.h>

void vj_pipes_init(VjPipes *p)
{
    *p = (VjPipes){.count = 0};
    vj_mutex_init(&p->lock, VJ_RANK_RPC, "rpc.pipes");
    g_queue_init(&p->unused);
}

static void pipe_free(VjPipe *pipe)
{
    vj_fd_close(&pipe->read_fd);
    vj_fd_close(&pipe->write_fd);
    g_free(pipe);
}

void vj_pipes_clear(VjPipes *p)
{
    VjPipe *pipe;

    while ((pipe = g_queue_pop_head(&p->unused)) != NULL) {
        pipe_free(pipe);
        p->count--;
    }
    g_assert(p->count == 0);
    vj_mutex_clear(&p->lock);
}

/* NULL: the process, or its user, has no more. */
static VjPipe *pipe_new(void)
{
    int fds[2], bytes, page_bytes = (int)sysconf(_SC_PAGESIZE);
    VjPipe *pipe;

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        return NULL;
    }
    pipe = g_new(VjPipe, 1);
    *pipe = (VjPipe){.read_fd = fds[0], .write_fd = fds[1]};
    /* Who has many pipes gets no more than a page, which is of no use. */
    (void)!fcntl(fds[1], F_SETPIPE_SZ, VJ_PIPE_BYTES);
    bytes = fcntl(fds[1], F_GETPIPE_SZ);
    /* A place of a pipe holds a page, or a part of one as at both ends. */
    pipe->room_bytes = (uint32_t)MAX(bytes - 2 * page_bytes, 0);
    if (pipe->room_bytes < VJ_PIPE_BYTES_MIN) {
        pipe_free(pipe);
        return NULL;
    }
    return pipe;
}

static VjPipe *take(VjPipes *p)
{
    VjPipe *pipe;
    bool is_new = false;

    vj_mutex_lock(&p->lock);
    pipe = g_queue_pop_head(&p->unused);
    if (pipe == NULL && p->count < VJ_PIPES_MAX) {
        p->count++;
        is_new = true;
    }
    vj_mutex_unlock(&p->lock);
    if (is_new) {
        pipe = pipe_new();
    }
    if (is_new && pipe == NULL) {
        vj_mutex_lock(&p->lock);
        p->count--;
        vj_mutex_unlock(&p->lock);
    }
    return pipe;
}

void vj_pipes_return(VjPipes *p, VjPipe *pipe, bool is_empty)
{
    vj_mutex_lock(&p->lock);
    if (is_empty) {
        g_queue_push_head(&p->unused, pipe);
    } else {
        p->count--;
    }
    vj_mutex_unlock(&p->lock);
    if (!is_empty) {
        pipe_free(pipe);
    }
}

static int fill(const VjPipe *pipe, int fd, uint64_t offset, uint32_t bytes)
{
    loff_t at = (loff_t)offset;

    while (bytes > 0) {
        ssize_t got = splice(fd, &at, pipe->write_fd, NULL, bytes, SPLICE_F_NONBLOCK);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            /* Whether it is too short is for read(2) to say, which asks the file. */
            return got < 0 && errno == EIO ? -EIO : -EOPNOTSUPP;
        }
        bytes -= (uint32_t)got;
    }
    return 0;
}

int vj_pipes_fill(VjPipes *p, int fd, uint64_t offset, uint32_t bytes, VjPipe **out)
{
    VjPipe *pipe;
    int rc;

    *out = NULL;
    if (bytes < VJ_PIPE_BYTES_MIN || bytes > VJ_PIPE_BYTES) {
        return -EOPNOTSUPP;
    }
    pipe = take(p);
    if (pipe == NULL) {
        return -EOPNOTSUPP;
    }
    if (bytes > pipe->room_bytes) {
        vj_pipes_return(p, pipe, true);
        return -EOPNOTSUPP;
    }
    rc = fill(pipe, fd, offset, bytes);
    if (rc < 0) {
        vj_pipes_return(p, pipe, false);
        return rc;
    }
    *out = pipe;
    return 0;
}
