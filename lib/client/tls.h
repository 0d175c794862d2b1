/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * tls.h - TLS over a connected socket
 *
 * Nothing of OpenSSL is seen here: without it there is the same face, and vjc_tls_new is
 * -EPROTONOSUPPORT.  Threads: as the connection.
 */
#ifndef VARJFS_CLIENT_TLS_H
#define VARJFS_CLIENT_TLS_H

#include "client-private.h"

/*
 * vjc_tls_new - credentials of @o, read from their files, for a daemon at @host
 *
 * Returns   0 and *out owned; -EINVAL, -EACCES, -EFBIG, ... with the text of
 *           varjfs_open_error; -ENOMEM; -EPROTONOSUPPORT built without
 */
int vjc_tls_new(const struct varjfs_options *o, const char *host, VjcTls **out);
void vjc_tls_free(VjcTls *t); /* NULL is fine */
/* Tells the daemon that nothing more comes, if the socket takes it at once.  Afterwards
 * the socket is not used any more. */
void vjc_tls_goodbye(VjcTls *t);
/*
 * Over @fd, which stays the caller's.  0; -EACCES one side does not believe the other
 * one; -EPROTO; -ETIMEDOUT; -ECONNRESET; -ENOMEM.
 */
int vjc_tls_handshake(VjcTls *t, int fd, int64_t deadline);
/* What the other side, or OpenSSL, said when it failed; NULL: nothing.  Static. */
const char *vjc_tls_why(const VjcTls *t);
/* As vjc_send_some() and vjc_recv(); behind -EAGAIN the next bytes to send begin with
 * the same ones. */
ssize_t vjc_tls_send(VjcTls *t, const struct iovec *iov, size_t count);
ssize_t vjc_tls_recv(VjcTls *t, const struct iovec *iov, int count, bool may_wait);
/* There may be bytes to receive for which the socket does not become readable. */
bool vjc_tls_has_more(const VjcTls *t);

#endif
