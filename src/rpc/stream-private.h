/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * stream-private.h - bytes to and from a peer over a socket that never blocks
 *
 * A stream is plain (stream.c), or TLS 1.3 on top of the same socket (tls.c).  Its user
 * waits, in its event loop, for what the fields …_wants say, and calls again.  One stream
 * is used by one thread at a time, but for both_at_once.
 */
#ifndef VJ_RPC_STREAM_PRIVATE_H
#define VJ_RPC_STREAM_PRIVATE_H

#include <sys/uio.h>

#include "base/base.h"
#include "rpc/rpc.h"

#define VJ_RPC_IDENTITY_MAX 255u /* bytes */

typedef struct VjStream VjStream;

typedef struct VjStreamOps {
    const char *name; /* "plain", "tls" */
    /* One thread may receive while another one sends; else a lock of the connection's
     * lets one thread in. */
    bool both_at_once;
    /* 0: both sides believe each other; -EAGAIN: go on when wants() is there; -EACCES:
     * the peer is not who it ought to be; -EPROTO, -ECONNRESET. */
    int (*handshake)(VjStream *s);
    /* Bytes taken, > 0; -EAGAIN; -ECONNRESET, also at the end of the peer's; -EPROTO; of
     * TLS -EACCES: the peer refuses us, which a client hears after its handshake only.
     * Of what it has not taken, the first send_pending bytes must come again, with others
     * behind them or not. */
    ssize_t (*send)(VjStream *s, const struct iovec *iov, int iov_count);
    /* As send, of the next @len bytes that are in a pipe, which are not copied.  -EIO: it
     * has fewer.  The calling thread has SIGPIPE blocked or ignored.  NULL: cannot be. */
    ssize_t (*send_pipe)(VjStream *s, int pipe_fd, size_t len);
    /* As send; a descriptor goes along with the first byte.  NULL: cannot be; with a
     * stream that has it, only where is_unix. */
    ssize_t (*send_fd)(VjStream *s, const struct iovec *iov, int iov_count, int fd);
    ssize_t (*recv)(VjStream *s, void *dst, size_t len);
    /* Bytes were received already which recv() would give without the socket; it may give
     * -EAGAIN nevertheless, and then there are none. */
    bool (*has_more)(VjStream *s);
    /* Frees what is the driver's, but not @s, which vj_stream_free does by g_free.  The
     * socket stays open; never blocks. */
    void (*close)(VjStream *s);
} VjStreamOps;

struct VjStream {
    const VjStreamOps *ops;
    int fd;         /* borrowed; non-blocking */
    bool is_server; /* of the two sides */
    bool is_unix;   /* the socket is */
    /* After -EAGAIN: which events of the socket the last send or recv waits for: POLLIN,
     * POLLOUT. */
    short send_wants, recv_wants, handshake_wants;
    /* After send: bytes that it was given, has not taken, but has begun to send. */
    size_t send_pending;
    /* For send: other bytes follow at once, so what it is given need not go out alone. */
    bool more_follows;
    /* After handshake: what the peer proved, "key:NAME", "cert:NAME"; "" without TLS. */
    char identity[VJ_RPC_IDENTITY_MAX + 1];
};

/*
 * vj_stream_new - a stream over a socket that is connected
 *
 * @credentials  decide whether it is plain or TLS
 * @host         of a client with certificates: whom the certificate must name
 * Returns       owned (vj_stream_free); NULL: -EACCES in *rc, as plain text is not
 *               allowed to that address; -ENOMEM
 */
VjStream *vj_stream_new(int fd, bool is_server, VjCredentials *credentials,
                        const char *host, int *rc);
void vj_stream_free(VjStream *s); /* NULL is fine */
/* What VjStreamOps says. */
int vj_stream_handshake(VjStream *s) G_GNUC_WARN_UNUSED_RESULT;
ssize_t vj_stream_send(VjStream *s, const struct iovec *iov,
                       int iov_count) G_GNUC_WARN_UNUSED_RESULT;
ssize_t vj_stream_send_pipe(VjStream *s, int pipe_fd,
                            size_t len) G_GNUC_WARN_UNUSED_RESULT;
ssize_t vj_stream_send_fd(VjStream *s, const struct iovec *iov, int iov_count,
                          int fd) G_GNUC_WARN_UNUSED_RESULT;
/* It may be called. */
bool vj_stream_takes_fd(const VjStream *s);
ssize_t vj_stream_recv(VjStream *s, void *dst, size_t len) G_GNUC_WARN_UNUSED_RESULT;
bool vj_stream_has_more(VjStream *s);

/* stream.c: the plain one.  tls.c: of @credentials that are not insecure, and of the same
 * side; NULL: -ENOMEM, or -EACCES as a client with certificates has no @host. */
VjStream *vj_plain_stream_new(int fd, bool is_server);
VjStream *vj_tls_stream_new(int fd, bool is_server, VjCredentials *credentials,
                            const char *host, int *rc);
/* credentials.c: they say that there is no TLS. */
bool vj_credentials_is_insecure(const VjCredentials *c);

#endif
