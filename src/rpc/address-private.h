/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * address-private.h - where a peer is, and sockets to it
 *
 * Threads: any.  Locks: none.  Sockets are non-blocking, closed on exec, and raise no
 * SIGPIPE.
 */
#ifndef VJ_RPC_ADDRESS_PRIVATE_H
#define VJ_RPC_ADDRESS_PRIVATE_H

#include <sys/socket.h>

#include "base/base.h"

/* Of the text, so that messages stay short. */
#define VJ_ADDRESS_TEXT_MAX 512u
/* That one name may resolve to; more are left out. */
#define VJ_SOCKET_ADDRESSES_MAX 16u

typedef struct VjAddress {
    char *path;    /* of a unix socket; NULL: tcp */
    char *host;    /* a name, or an IP address without brackets */
    uint16_t port; /* 0: of a listener: any */
    bool is_numeric;
} VjAddress;

typedef struct VjSocketAddress {
    struct sockaddr_storage storage;
    socklen_t len;
} VjSocketAddress;

bool vj_address_parse(const char *text, VjAddress *out, GError **error);
void vj_address_clear(VjAddress *a);

/*
 * vj_address_resolve - the socket addresses of @a, in the order in which to try them
 *
 * Asks the resolver, and may block for as long as that does, unless @a is a unix socket
 * or a numeric address.
 * @is_listener  for bind, not for connect
 * Returns       owned, of VjSocketAddress, at least one; NULL with @error
 */
GArray *vj_address_resolve(const VjAddress *a, bool is_listener, GError **error);

/* Of a unix socket, or of an IP address that stays inside the machine. */
bool vj_socket_address_is_local(const struct sockaddr *at);

/* *fd: owned.  0: connected; -EINPROGRESS: it is when the socket becomes writable;
 * -errno. */
int vj_socket_connect(const VjSocketAddress *to, int *fd) G_GNUC_WARN_UNUSED_RESULT;
/* Of a connection that was connected or accepted: latency before throughput, and a peer
 * that is gone without a word is found out by the kernel. */
void vj_socket_tune(int fd);

/* Sockets that listen at all addresses of @a, appended to @fds (of int, owned by the
 * caller).  A socket file that no process listens on is replaced. */
bool vj_socket_listen(const VjAddress *a, GArray *fds, GError **error);
/* 0 of a unix socket */
unsigned vj_socket_port(int fd);

#endif
