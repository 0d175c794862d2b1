/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * socket.c - unix sockets with deadlines
 *
 * Sockets are closed on exec and raise no SIGPIPE.  Nothing here waits longer than its
 * deadline; reading waits for at most a second at once (SO_RCVTIMEO), so that a wait in
 * most cases is a single call.
 */
#include "client-private.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int64_t vjc_now_ms(void)
{
    struct timespec now = {0, 0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t vjc_deadline(int timeout_ms)
{
    return timeout_ms < 0 ? VJC_NEVER : vjc_now_ms() + timeout_ms;
}

int vjc_left_ms(int64_t deadline, int most)
{
    int64_t left;

    if (deadline == VJC_NEVER) {
        return most;
    }
    left = deadline - vjc_now_ms();
    if (left <= 0) {
        return 0;
    }
    return left < most ? (int)left : most;
}

int vjc_poll(int fd, short events, int64_t deadline, int most_ms)
{
    struct pollfd wait = {.fd = fd, .events = events};
    int left = vjc_left_ms(deadline, most_ms);
    int ready = poll(&wait, 1, left);

    if (ready > 0) {
        return 0;
    }
    if (ready < 0 && errno != EINTR) {
        return -errno;
    }
    return deadline != VJC_NEVER && vjc_left_ms(deadline, 1) == 0 ? -ETIMEDOUT : -EAGAIN;
}

ssize_t vjc_recv(int fd, struct iovec *iov, int iov_count, bool may_wait)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)iov_count};
    ssize_t got = recvmsg(fd, &message, may_wait ? 0 : MSG_DONTWAIT);

    if (got < 0) {
        return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
    return got;
}

ssize_t vjc_send_some(int fd, struct iovec *iov, size_t iov_count)
{
    struct msghdr message = {.msg_iov = iov};
    ssize_t sent;

    message.msg_iovlen = iov_count < IOV_MAX ? iov_count : IOV_MAX;
    sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
        return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
    return sent;
}

/* ---- connecting -------------------------------------------------------------------- */

static int set_timeout(int fd, int option, int ms)
{
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

    return setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) != 0 ? -errno : 0;
}

/* Where @path, or @base below the directory @dir_fd, fits an address. */
static int set_address(struct sockaddr_un *address, const char *path, int dir_fd)
{
    int len;

    address->sun_family = AF_UNIX;
    len = dir_fd < 0 ? snprintf(address->sun_path, sizeof address->sun_path, "%s", path)
                     : snprintf(address->sun_path, sizeof address->sun_path,
                                "/proc/self/fd/%d/%s", dir_fd, path);
    return len < 0 || (size_t)len >= sizeof address->sun_path ? -ENAMETOOLONG : 0;
}

/* A bulk of the usual length goes in by one call: the kernel's buffers of a unix socket do
 * not grow by themselves. */
#define SEND_BUFFER_BYTES (1 << 20)

static int connect_address(const struct sockaddr_un *address, int64_t deadline)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), bytes = SEND_BUFFER_BYTES;
    int rc;

    if (fd < 0) {
        return -errno;
    }
    /* What the kernel refuses costs speed alone. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    rc = set_timeout(fd, SO_RCVTIMEO, VJC_PING_MS);
    /* A listener whose queue is full makes connect wait, for the time of SO_SNDTIMEO. */
    do {
        int left = vjc_left_ms(deadline, VJC_PING_MS);

        if (rc == 0) {
            rc = left > 0 ? set_timeout(fd, SO_SNDTIMEO, left) : -ETIMEDOUT;
        }
        if (rc == 0 &&
            connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
            rc = -errno;
        }
        if (rc != -EAGAIN && rc != -EINTR) {
            break;
        }
        rc = 0;
    } while (true);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    return fd;
}

/* The directory of @path, opened; *base is the rest. */
static int open_parent(const char *path, const char **base)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    int fd;

    if (slash == NULL || len >= sizeof parent) {
        return -ENAMETOOLONG;
    }
    memcpy(parent, path, len);
    parent[len] = '\0';
    *base = slash + 1;
    fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int vjc_connect(const char *path, int64_t deadline)
{
    struct sockaddr_un address = {0};
    int rc = set_address(&address, path, -1);
    int dir_fd = -1, fd;

    if (rc != 0) {
        const char *base;

        dir_fd = open_parent(path, &base);
        rc = dir_fd < 0 ? dir_fd : set_address(&address, base, dir_fd);
    }
    fd = rc != 0 ? rc : connect_address(&address, deadline);
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    return fd;
}
