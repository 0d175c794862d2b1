/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stream.c - plain streams, and who may have one
 *
 * Plain text goes over unix sockets, and over tcp where both ends are loopback addresses:
 * whoever could listen there could read the memory of the two processes as well.
 */
#include "rpc/stream-private.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "rpc/address-private.h"

static int plain_handshake(VjStream *s)
{
    (void)s;
    return 0;
}

static ssize_t plain_error(void)
{
    switch (errno) {
    case EAGAIN:
    case EINTR:
        return -EAGAIN;
    default:
        return -ECONNRESET;
    }
}

static ssize_t plain_send_message(VjStream *s, const struct msghdr *message)
{
    int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (s->more_follows ? MSG_MORE : 0);
    ssize_t sent = sendmsg(s->fd, message, flags);

    s->send_wants = POLLOUT;
    return sent > 0 ? sent : plain_error();
}

static ssize_t plain_send(VjStream *s, const struct iovec *iov, int iov_count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)iov,
                             .msg_iovlen = (size_t)iov_count};

    return plain_send_message(s, &message);
}

static ssize_t plain_send_fd(VjStream *s, const struct iovec *iov, int iov_count, int fd)
{
    union {
        struct cmsghdr head; /* its alignment */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = (struct iovec *)iov,
                             .msg_iovlen = (size_t)iov_count,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);

    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(passed), &fd, sizeof fd);
    return plain_send_message(s, &message);
}

/* The socket, and the pipe, do not block. */
static ssize_t plain_send_pipe(VjStream *s, int pipe_fd, size_t len)
{
    ssize_t sent = splice(pipe_fd, NULL, s->fd, NULL, len, SPLICE_F_NONBLOCK);

    s->send_wants = POLLOUT;
    if (sent == 0) {
        return -EIO;
    }
    return sent > 0 ? sent : plain_error();
}

static ssize_t plain_recv(VjStream *s, void *dst, size_t len)
{
    ssize_t got = recv(s->fd, dst, len, MSG_DONTWAIT);

    g_assert(len > 0);
    s->recv_wants = POLLIN;
    if (got == 0) {
        return -ECONNRESET;
    }
    return got > 0 ? got : plain_error();
}

static bool plain_has_more(VjStream *s)
{
    (void)s;
    return false;
}

static void plain_close(VjStream *s)
{
    (void)s;
}

static const VjStreamOps plain_ops = {
    .name = "plain",
    .both_at_once = true,
    .handshake = plain_handshake,
    .send = plain_send,
    .send_pipe = plain_send_pipe,
    .send_fd = plain_send_fd,
    .recv = plain_recv,
    .has_more = plain_has_more,
    .close = plain_close,
};

static bool is_unix(int fd)
{
    int domain;
    socklen_t len = sizeof domain;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

VjStream *vj_plain_stream_new(int fd, bool is_server)
{
    VjStream *s = g_new0(VjStream, 1);

    s->ops = &plain_ops;
    s->fd = fd;
    s->is_server = is_server;
    s->is_unix = is_unix(fd);
    s->recv_wants = POLLIN;
    s->send_wants = POLLOUT;
    return s;
}

static bool is_local(int fd)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;

    return getpeername(fd, (struct sockaddr *)&at, &len) == 0 &&
           vj_socket_address_is_local((const struct sockaddr *)&at);
}

VjStream *vj_stream_new(int fd, bool is_server, VjCredentials *credentials,
                        const char *host, int *rc)
{
    *rc = 0;
    if (!vj_credentials_is_insecure(credentials)) {
        return vj_tls_stream_new(fd, is_server, credentials, host, rc);
    }
    if (!is_local(fd)) {
        *rc = -EACCES;
        return NULL;
    }
    return vj_plain_stream_new(fd, is_server);
}

void vj_stream_free(VjStream *s)
{
    if (s != NULL) {
        s->ops->close(s);
        g_free(s);
    }
}

int vj_stream_handshake(VjStream *s)
{
    int rc = s->ops->handshake(s);

    g_assert(rc <= 0 && (rc != -EAGAIN || s->handshake_wants != 0));
    return rc;
}

ssize_t vj_stream_send(VjStream *s, const struct iovec *iov, int iov_count)
{
    ssize_t sent;

    g_assert(iov_count > 0);
    sent = s->ops->send(s, iov, iov_count);
    g_assert(sent != 0 && (sent != -EAGAIN || s->send_wants != 0));
    return sent;
}

ssize_t vj_stream_send_pipe(VjStream *s, int pipe_fd, size_t len)
{
    ssize_t sent;

    g_assert(s->ops->send_pipe != NULL && len > 0);
    sent = s->ops->send_pipe(s, pipe_fd, len);
    g_assert(sent != 0 && sent <= (ssize_t)len);
    g_assert(sent != -EAGAIN || s->send_wants != 0);
    return sent;
}

bool vj_stream_takes_fd(const VjStream *s)
{
    return s->is_unix && s->ops->send_fd != NULL;
}

ssize_t vj_stream_send_fd(VjStream *s, const struct iovec *iov, int iov_count, int fd)
{
    ssize_t sent;

    g_assert(vj_stream_takes_fd(s) && iov_count > 0 && fd >= 0);
    sent = s->ops->send_fd(s, iov, iov_count, fd);
    g_assert(sent != 0 && (sent != -EAGAIN || s->send_wants != 0));
    return sent;
}

ssize_t vj_stream_recv(VjStream *s, void *dst, size_t len)
{
    ssize_t got;

    g_assert(len > 0);
    got = s->ops->recv(s, dst, len);
    g_assert(got != 0 && got <= (ssize_t)len && (got != -EAGAIN || s->recv_wants != 0));
    return got;
}

bool vj_stream_has_more(VjStream *s)
{
    return s->ops->has_more(s);
}
