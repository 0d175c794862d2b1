/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* address.c - addresses as text, resolved, and sockets of them */
#include "rpc/address-private.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rpc/rpc.h"

#define UNIX_PREFIX "unix:"
/* Connections that wait to be accepted. */
#define BACKLOG 1024
/* Of a unix socket, whose kernel buffers do not grow by themselves: a bulk of the usual
 * length goes in by one call. */
#define UNIX_BUFFER_BYTES (1 << 20)
/* A peer that is silent for so long is asked by the kernel, so often, so many times. */
#define KEEPALIVE_IDLE_S 30
#define KEEPALIVE_INTERVAL_S 10
#define KEEPALIVE_COUNT 3
/* Of what was sent and the other machine has not acknowledged. */
#define UNACKNOWLEDGED_MS 60000

/* ---- text -------------------------------------------------------------------------- */

static bool parse_port(const char *text, uint16_t *out)
{
    guint64 port;

    if (!g_ascii_string_to_unsigned(text, 10, 0, UINT16_MAX, &port, NULL)) {
        return false;
    }
    *out = (uint16_t)port;
    return true;
}

static bool is_host_name(const char *host)
{
    if (host[0] == '\0' || strlen(host) > 253) {
        return false;
    }
    for (const char *p = host; *p != '\0'; p++) {
        if (!g_ascii_isalnum(*p) && strchr("-._", *p) == NULL) {
            return false;
        }
    }
    return true;
}

static bool is_ip(const char *host, int family)
{
    uint8_t bytes[sizeof(struct in6_addr)];

    return inet_pton(family, host, bytes) == 1;
}

static bool parse_unix(const char *path, VjAddress *out, GError **error)
{
    struct sockaddr_un at;

    if (path[0] == '\0' || strlen(path) >= sizeof at.sun_path) {
        return vj_error_set(error, EINVAL, "the path of a unix socket has 1 to %zu bytes",
                            sizeof at.sun_path - 1);
    }
    out->path = g_strdup(path);
    return true;
}

/* "[V6]" or "[V6]:PORT" */
static bool parse_bracketed(const char *text, VjAddress *out)
{
    const char *end = strchr(text, ']');

    if (end == NULL || (end[1] != '\0' && end[1] != ':')) {
        return false;
    }
    out->host = g_strndup(text + 1, (gsize)(end - text) - 1);
    out->is_numeric = true;
    return is_ip(out->host, AF_INET6) &&
           (end[1] == '\0' || parse_port(end + 2, &out->port));
}

static bool parse_host(const char *text, VjAddress *out)
{
    const char *colon = strchr(text, ':');

    out->host = colon == NULL ? g_strdup(text) : g_strndup(text, (gsize)(colon - text));
    out->is_numeric = is_ip(out->host, AF_INET);
    return is_host_name(out->host) &&
           (colon == NULL || parse_port(colon + 1, &out->port));
}

bool vj_address_parse(const char *text, VjAddress *out, GError **error)
{
    bool good;

    *out = (VjAddress){.port = VJ_RPC_PORT};
    if (strlen(text) > VJ_ADDRESS_TEXT_MAX) {
        return vj_error_set(error, EINVAL, "an address has at most %u bytes",
                            VJ_ADDRESS_TEXT_MAX);
    }
    if (g_str_has_prefix(text, UNIX_PREFIX)) {
        good = parse_unix(text + strlen(UNIX_PREFIX), out, error);
        return good || vj_error_prefix(error, "address \"%s\"", text);
    }
    good = text[0] == '[' ? parse_bracketed(text, out) : parse_host(text, out);
    if (!good) {
        vj_address_clear(out);
        return vj_error_set(error, EINVAL,
                            "address \"%s\": it is none: unix:PATH, HOST, HOST:PORT or "
                            "[IPV6]:PORT",
                            text);
    }
    return true;
}

void vj_address_clear(VjAddress *a)
{
    g_clear_pointer(&a->path, g_free);
    g_clear_pointer(&a->host, g_free);
}

bool vj_rpc_address_check(const char *address, GError **error)
{
    VjAddress a;
    bool good = vj_address_parse(address, &a, error);

    vj_address_clear(&a);
    return good;
}

uint32_t vj_rpc_address_needs(const char *address)
{
    return g_str_has_prefix(address, UNIX_PREFIX) ? VJ_NEEDS_UNIX : VJ_NEEDS_TCP;
}

/* ---- socket addresses -------------------------------------------------------------- */

static void add_unix(const char *path, GArray *to)
{
    VjSocketAddress at = {.len = sizeof(struct sockaddr_un)};
    struct sockaddr_un *un = (struct sockaddr_un *)&at.storage;

    un->sun_family = AF_UNIX;
    g_strlcpy(un->sun_path, path, sizeof un->sun_path);
    g_array_append_val(to, at);
}

GArray *vj_address_resolve(const VjAddress *a, bool is_listener, GError **error)
{
    GArray *to = g_array_new(FALSE, FALSE, sizeof(VjSocketAddress));
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[8];
    int rc;

    if (a->path != NULL) {
        add_unix(a->path, to);
        return to;
    }
    hints.ai_flags = AI_NUMERICSERV | (a->is_numeric ? AI_NUMERICHOST : 0) |
                     (is_listener ? AI_PASSIVE : 0);
    g_snprintf(port, sizeof port, "%u", a->port);
    rc = getaddrinfo(a->host, port, &hints, &found);
    if (rc != 0) {
        g_array_unref(to);
        vj_error_set(error, EHOSTUNREACH, "host \"%s\": %s", a->host,
                     rc == EAI_SYSTEM ? g_strerror(errno) : gai_strerror(rc));
        return NULL;
    }
    for (struct addrinfo *i = found; i != NULL && to->len < VJ_SOCKET_ADDRESSES_MAX;
         i = i->ai_next) {
        VjSocketAddress at = {.len = i->ai_addrlen};

        if (i->ai_addrlen <= sizeof at.storage) {
            memcpy(&at.storage, i->ai_addr, i->ai_addrlen);
            g_array_append_val(to, at);
        }
    }
    freeaddrinfo(found);
    if (to->len == 0) {
        g_array_unref(to);
        vj_error_set(error, EHOSTUNREACH, "host \"%s\": no address", a->host);
        return NULL;
    }
    return to;
}

bool vj_socket_address_is_local(const struct sockaddr *at)
{
    if (at->sa_family == AF_UNIX) {
        return true;
    }
    if (at->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)at;

        return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (at->sa_family == AF_INET6) {
        const struct in6_addr *a6 = &((const struct sockaddr_in6 *)at)->sin6_addr;

        return IN6_IS_ADDR_LOOPBACK(a6) ||
               (IN6_IS_ADDR_V4MAPPED(a6) && a6->s6_addr[12] == IN_LOOPBACKNET);
    }
    return false;
}

/* ---- sockets ----------------------------------------------------------------------- */

static int socket_of(const VjSocketAddress *at)
{
    int fd = socket(at->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd >= 0 ? fd : -errno;
}

/* What a kernel refuses costs speed alone. */
static void set_option(int fd, int level, int option, int value)
{
    if (setsockopt(fd, level, option, &value, sizeof value) < 0) {
        vj_trace(rpc, "fd %d: option %d/%d: %s", fd, level, option, g_strerror(errno));
    }
}

static int family_of(int fd)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;

    return getsockname(fd, (struct sockaddr *)&at, &len) < 0 ? AF_UNSPEC : at.ss_family;
}

void vj_socket_tune(int fd)
{
    if (family_of(fd) == AF_UNIX) {
        set_option(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER_BYTES);
        set_option(fd, SOL_SOCKET, SO_RCVBUF, UNIX_BUFFER_BYTES);
        return;
    }
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS);
}

int vj_socket_connect(const VjSocketAddress *to, int *out)
{
    VJ_AUTO_FD fd = socket_of(to);
    int rc = 0;

    *out = -1;
    if (fd < 0) {
        rc = fd;
        fd = -1;
        return rc;
    }
    vj_socket_tune(fd);
    if (connect(fd, (const struct sockaddr *)&to->storage, to->len) < 0) {
        rc = errno == EINTR ? -EINPROGRESS : -errno;
    }
    if (rc == 0 || rc == -EINPROGRESS) {
        *out = vj_fd_steal(&fd);
    }
    return rc;
}

/* A socket file that a process listens on takes a connection, or has no room for one. */
static bool is_left_over(const VjSocketAddress *at, const char *path)
{
    VJ_AUTO_FD fd = -1;
    struct stat st;

    return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) &&
           vj_socket_connect(at, &fd) == -ECONNREFUSED;
}

static int bind_and_listen(int fd, const VjSocketAddress *at)
{
    if (bind(fd, (const struct sockaddr *)&at->storage, at->len) < 0 ||
        listen(fd, BACKLOG) < 0) {
        return -errno;
    }
    return 0;
}

static int listen_at(const VjAddress *a, const VjSocketAddress *at, int *out)
{
    VJ_AUTO_FD fd = socket_of(at);
    int rc;

    if (fd < 0) {
        rc = fd;
        fd = -1;
        return rc;
    }
    if (a->path == NULL) {
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    }
    if (at->storage.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at->storage;

        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY,
                   !IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr));
    }
    rc = bind_and_listen(fd, at);
    if (rc == -EADDRINUSE && a->path != NULL && is_left_over(at, a->path) &&
        unlink(a->path) == 0) {
        rc = bind_and_listen(fd, at);
    }
    *out = rc == 0 ? vj_fd_steal(&fd) : -1;
    return rc;
}

static void set_port(VjSocketAddress *at, unsigned port)
{
    if (at->storage.ss_family == AF_INET) {
        ((struct sockaddr_in *)&at->storage)->sin_port = htons((uint16_t)port);
    } else if (at->storage.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&at->storage)->sin6_port = htons((uint16_t)port);
    }
}

bool vj_socket_listen(const VjAddress *a, GArray *fds, GError **error)
{
    GArray *addresses = vj_address_resolve(a, true, error);
    unsigned port = a->port, opened = 0;
    int failed = 0;

    if (addresses == NULL) {
        return false;
    }
    for (guint i = 0; i < addresses->len; i++) {
        VjSocketAddress *at = &g_array_index(addresses, VjSocketAddress, i);
        int fd = -1, rc;

        set_port(at, port);
        rc = listen_at(a, at, &fd);
        if (rc == 0) {
            g_array_append_val(fds, fd);
            opened++;
            port = vj_socket_port(fd);
        } else if (rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL) {
            /* A family that the machine does not have, of a name that has both. */
            failed = failed == 0 ? rc : failed;
        } else {
            failed = rc;
            break;
        }
    }
    g_array_unref(addresses);
    if (opened == 0 ||
        (failed != 0 && failed != -EAFNOSUPPORT && failed != -EADDRNOTAVAIL)) {
        for (unsigned i = 0; i < opened; i++) {
            vj_fd_close(&g_array_index(fds, int, fds->len - 1));
            g_array_set_size(fds, fds->len - 1);
        }
        return vj_error_set_errno(error, -failed, "cannot listen");
    }
    return true;
}

unsigned vj_socket_port(int fd)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;

    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
        return 0;
    }
    if (at.ss_family == AF_INET) {
        return ntohs(((struct sockaddr_in *)&at)->sin_port);
    }
    return at.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port) : 0;
}
