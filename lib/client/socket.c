/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * socket.c - unix and TCP sockets with deadlines
 *
 * Sockets are closed on exec, raise no SIGPIPE and are no standard descriptor.  Nothing
 * here waits longer than its deadline; reading waits for at most a second at once
 * (SO_RCVTIMEO), so that a wait in most cases is a single call.
 */
#include "client-private.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
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

static ssize_t receive(int fd, struct msghdr *message, bool may_wait)
{
    ssize_t got = recvmsg(fd, message, (may_wait ? 0 : MSG_DONTWAIT) | MSG_CMSG_CLOEXEC);

    if (got < 0) {
        return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
    return got;
}

ssize_t vjc_recv(int fd, struct iovec *iov, int iov_count, bool may_wait)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)iov_count};

    return receive(fd, &message, may_wait);
}

/* The last of them stays. */
static void take_fds(const struct cmsghdr *from, int *passed)
{
    size_t count = (from->cmsg_len - CMSG_LEN(0)) / sizeof(int);

    for (size_t i = 0; i < count; i++) {
        if (*passed >= 0) {
            close(*passed);
        }
        memcpy(passed, CMSG_DATA(from) + i * sizeof(int), sizeof(int));
    }
}

ssize_t vjc_recv_fd(int fd, struct iovec *iov, int iov_count, bool may_wait, int *passed)
{
    union {
        struct cmsghdr head; /* its alignment */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = iov,
                             .msg_iovlen = (size_t)iov_count,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got = receive(fd, &message, may_wait);

    for (struct cmsghdr *at = got > 0 ? CMSG_FIRSTHDR(&message) : NULL; at != NULL;
         at = CMSG_NXTHDR(&message, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            take_fds(at, passed);
        }
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

/* One that is gone already is no matter. */
void vjc_shut_down(int fd)
{
    (void)shutdown(fd, SHUT_RDWR);
}

/* ---- connecting -------------------------------------------------------------------- */

/* Or -errno.  None of the first three: what a program prints that has closed those would
 * go to the daemon. */
static int new_socket(int domain, int type)
{
    int fd = socket(domain, type | SOCK_CLOEXEC, 0), other;

    if (fd < 0 || fd > STDERR_FILENO) {
        return fd < 0 ? -errno : fd;
    }
    other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    other = other < 0 ? -errno : other;
    close(fd);
    return other;
}

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

/* A bulk of the usual length goes in by one call: the kernel's buffers of a unix socket
 * do not grow by themselves. */
#define SEND_BUFFER_BYTES (1 << 20)

static int connect_address(const struct sockaddr_un *address, int64_t deadline)
{
    int fd = new_socket(AF_UNIX, SOCK_STREAM), bytes = SEND_BUFFER_BYTES, rc;

    if (fd < 0) {
        return fd;
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

/* ---- hosts ------------------------------------------------------------------------- */

/* 1 to 65535, in decimal. */
static bool is_port(const char *text)
{
    char *end;
    long port;

    if (*text < '0' || *text > '9' || strlen(text) > 5) {
        return false;
    }
    port = strtol(text, &end, 10);
    return *end == '\0' && port >= 1 && port <= 65535;
}

static bool is_host_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";

    return *name != '\0' && name[strspn(name, letters)] == '\0';
}

bool vjc_host_parse(const char *text, VjcHost *out)
{
    bool is_bracketed = *text == '[';
    const char *end = is_bracketed ? strchr(text, ']') : text + strcspn(text, ":");
    const char *begin = text + (is_bracketed ? 1 : 0), *port;
    struct in6_addr bytes;
    size_t len;

    if (end == NULL) {
        return false;
    }
    len = (size_t)(end - begin);
    port = is_bracketed ? end + 1 : end;
    if (len >= sizeof out->name || (*port != '\0' && *port != ':') ||
        (*port == ':' && !is_port(port + 1))) {
        return false;
    }
    memcpy(out->name, begin, len);
    out->name[len] = '\0';
    if (*port == ':') {
        snprintf(out->port, sizeof out->port, "%s", port + 1);
    } else {
        snprintf(out->port, sizeof out->port, "%u", (unsigned)VARJFS_WIRE_PORT);
    }
    out->is_numeric =
        inet_pton(is_bracketed ? AF_INET6 : AF_INET, out->name, &bytes) == 1;
    return is_bracketed ? out->is_numeric : is_host_name(out->name);
}

/* Within @deadline; from then on the socket blocks for a second at once, as others. */
static int finish_connect(int fd, const struct addrinfo *at, int64_t deadline)
{
    static const int on = 1;
    socklen_t len = sizeof(int);
    int rc = connect(fd, at->ai_addr, at->ai_addrlen) != 0 ? -errno : 0, error, flags;

    while (rc == -EINPROGRESS || rc == -EINTR || rc == -EAGAIN) {
        rc = vjc_poll(fd, POLLOUT, deadline, VJC_PING_MS);
    }
    if (rc != 0) {
        return rc;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) {
        return -errno;
    }
    flags = fcntl(fd, F_GETFL);
    if (error != 0) {
        return -error;
    }
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0) {
        return -errno;
    }
    return set_timeout(fd, SO_RCVTIMEO, VJC_PING_MS);
}

static int connect_one(const struct addrinfo *at, int64_t deadline)
{
    int fd = new_socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK), rc;

    if (fd < 0) {
        return fd;
    }
    rc = finish_connect(fd, at, deadline);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    return fd;
}

static int name_error(int why, int error)
{
    const char *text = why == EAI_SYSTEM ? NULL : gai_strerror(why);

    if (why == EAI_MEMORY) {
        return -ENOMEM;
    }
    if (text != NULL) {
        vjc_set_open_error("the name of the host is not known", text, strlen(text));
    }
    return why == EAI_SYSTEM && error != 0 ? -error : -EHOSTUNREACH;
}

int vjc_connect_host(const VjcHost *host, int64_t deadline)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct addrinfo *all = NULL;
    int fd = -EHOSTUNREACH, left = 0, rc;

    hints.ai_flags = AI_NUMERICSERV | (host->is_numeric ? AI_NUMERICHOST : 0);
    rc = getaddrinfo(host->name, host->port, &hints, &all);
    if (rc != 0) {
        return name_error(rc, errno);
    }
    for (const struct addrinfo *at = all; at != NULL; at = at->ai_next) {
        left++;
    }
    for (const struct addrinfo *at = all; at != NULL && fd < 0; at = at->ai_next) {
        int64_t until = deadline;

        if (deadline != VJC_NEVER && left > 1) {
            until = vjc_now_ms() + vjc_left_ms(deadline, INT_MAX) / left;
        }
        left--;
        fd = connect_one(at, until);
        if (fd == -ENOMEM || fd == -EMFILE || fd == -ENFILE) {
            break; /* no matter of the address */
        }
    }
    freeaddrinfo(all);
    return fd;
}
