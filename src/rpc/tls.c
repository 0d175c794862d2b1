/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * tls.c - TLS 1.3 on a socket that never blocks
 *
 * A server that is shown an identity it has no key for goes on with a key that nobody
 * has.  So the handshake fails where it fails with a wrong key, by the same alert and
 * after the same work, and a peer learns no identities.
 *
 * What OpenSSL has begun to write is a record that cannot be taken back: send_pending
 * says how many bytes it has of what was given.
 *
 * A stream that failed stays failed, with the same error.
 */
#include "rpc/stream-private.h"

/* The face of OpenSSL 3.0; later ones call the readers of BIO_METHOD deprecated. */
#define OPENSSL_API_COMPAT 30000

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "rpc/credentials-private.h"

#define RECORD_BYTES ((size_t)16384) /* plain text of the largest record */
/* A hello of ours has one identity, and there are at most two hellos; a hostile one may
 * have thousands. */
#define KEY_LOOKUPS_MAX 4u
/* Sent under one key; then there is a new one.  RFC 8446, 5.5: 2^24.5 full records. */
#define KEY_BYTES_MAX ((uint64_t)128 << 30)

typedef struct TlsStream {
    VjStream s; /* the first member: freed as that */
    VjCredentials *credentials;
    SSL *ssl;
    int rc; /* 0, or why it failed */
    bool is_ready;
    bool is_drained;      /* recv has found nothing, and since then none was tried */
    unsigned key_lookups; /* of a server */
    char key_identity[VJ_RPC_KEY_IDENTITY_MAX + 1]; /* that the client offers; "" */
    uint64_t key_bytes;
} TlsStream;

/* ---- the socket -------------------------------------------------------------------- */

/*
 * OpenSSL's own socket BIO, which kTLS needs, writes by write(2), which raises SIGPIPE.
 * Ours is that one with another write.
 */
static BIO_METHOD *socket_method;
static int (*plain_socket_write)(BIO *, const char *, int);

/* For kTLS, whose records other than data OpenSSL sends with an ancillary message. */
static int write_without_sigpipe(BIO *bio, const char *src, int len)
{
    static const struct timespec at_once = {0, 0};
    sigset_t pipe_set, old_set, pending;
    int done, why;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old_set);
    done = plain_socket_write(bio, src, len);
    why = errno;
    if (done < 0 && why == EPIPE && !sigismember(&pending, SIGPIPE)) {
        /* None is there where the process ignores it. */
        sigtimedwait(&pipe_set, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &old_set, NULL);
    errno = why;
    return done;
}

static int socket_write(BIO *bio, const char *src, int len)
{
    int fd = -1;
    ssize_t sent;

    if (BIO_get_ktls_send(bio)) {
        return write_without_sigpipe(bio, src, len);
    }
    BIO_get_fd(bio, &fd);
    BIO_clear_retry_flags(bio);
    sent = send(fd, src, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0 && BIO_sock_should_retry((int)sent)) {
        BIO_set_retry_write(bio);
    }
    return (int)sent;
}

static void make_socket_method(void)
{
    const BIO_METHOD *plain = BIO_s_socket();
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOCKET, "varjfs socket");

    plain_socket_write = BIO_meth_get_write(plain);
    if (m != NULL && BIO_meth_set_write(m, socket_write) == 1 &&
        BIO_meth_set_read(m, BIO_meth_get_read(plain)) == 1 &&
        BIO_meth_set_puts(m, BIO_meth_get_puts(plain)) == 1 &&
        BIO_meth_set_ctrl(m, BIO_meth_get_ctrl(plain)) == 1 &&
        BIO_meth_set_create(m, BIO_meth_get_create(plain)) == 1 &&
        BIO_meth_set_destroy(m, BIO_meth_get_destroy(plain)) == 1) {
        socket_method = m;
    } else {
        BIO_meth_free(m);
    }
}

static BIO *socket_new(int fd)
{
    /* Not GLib's, whose order of things race checkers do not see. */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *bio;

    pthread_once(&once, make_socket_method);
    bio = socket_method != NULL ? BIO_new(socket_method) : NULL;
    if (bio != NULL) {
        BIO_set_fd(bio, fd, BIO_NOCLOSE);
    }
    return bio;
}

/* Where the peer is, for people; owned. */
static char *peer_text(int fd)
{
    union {
        struct sockaddr_storage any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t len = sizeof at;
    char text[INET6_ADDRSTRLEN];

    if (getpeername(fd, (struct sockaddr *)&at, &len) < 0) {
        return g_strdup("a peer that is gone");
    }
    switch (at.any.ss_family) {
    case AF_INET:
        inet_ntop(AF_INET, &at.v4.sin_addr, text, sizeof text);
        return g_strdup_printf("%s:%u", text, ntohs(at.v4.sin_port));
    case AF_INET6:
        inet_ntop(AF_INET6, &at.v6.sin6_addr, text, sizeof text);
        return g_strdup_printf("[%s]:%u", text, ntohs(at.v6.sin6_port));
    default:
        return g_strdup("a peer on a unix socket");
    }
}

static void report(const TlsStream *t, const char *what, const char *why)
{
    g_autofree char *peer = peer_text(t->s.fd);

    vj_log_warn("rpc: %s: %s: %s", peer, what, why);
}

/* ---- errors ------------------------------------------------------------------------ */

/* What OpenSSL has for an alert that the peer has sent. */
#define REASON_OF_ALERT 1000
#define ALERTS 256

/* The peer says by @alert that it does not believe us, or has nothing in common. */
static bool alert_refuses(const TlsStream *t, int alert)
{
    switch (alert) {
    case SSL_AD_HANDSHAKE_FAILURE:
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_DECRYPT_ERROR:
    case SSL_AD_UNKNOWN_PSK_IDENTITY:
    case SSL_AD_CERTIFICATE_REQUIRED:
        return true;
    case SSL_AD_ILLEGAL_PARAMETER:
        /* What OpenSSL says to a wrong key. */
        return !t->is_ready && t->credentials->identity != NULL;
    default:
        return false;
    }
}

static bool reason_refuses(int reason)
{
    switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
        return true;
    default:
        return false;
    }
}

/* -errno for what is in OpenSSL's queue, after a line in the log. */
static int protocol_error(const TlsStream *t)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    const char *text = ERR_reason_error_string(code);
    const char *what = t->is_ready ? "TLS" : "TLS handshake";

    if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
        reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        return -ECONNRESET;
    }
    if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        report(t, "certificate not accepted",
               X509_verify_cert_error_string(SSL_get_verify_result(t->ssl)));
        return -EACCES;
    }
    if (reason >= REASON_OF_ALERT && reason < REASON_OF_ALERT + ALERTS) {
        report(t, "the peer ends the connection",
               SSL_alert_desc_string_long(reason - REASON_OF_ALERT));
        return alert_refuses(t, reason - REASON_OF_ALERT) ? -EACCES : -EPROTO;
    }
    if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
        g_autofree char *who =
            g_strdup_printf("\"%.64s\": no such name, or another key", t->key_identity);

        report(t, "key not accepted", who);
        return -EACCES;
    }
    report(t, what, text != NULL ? text : "broken protocol");
    return reason_refuses(reason) ? -EACCES : -EPROTO;
}

/* After a call of OpenSSL that returned @result and not success. */
static int failed(TlsStream *t, int result, short *wants)
{
    int rc;

    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        *wants = POLLIN;
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *wants = POLLOUT;
        return -EAGAIN;
    case SSL_ERROR_SSL:
        rc = protocol_error(t);
        break;
    default: /* the end of the peer's, or the socket's error */
        rc = -ECONNRESET;
    }
    ERR_clear_error();
    t->rc = rc;
    return rc;
}

/* ---- who the peer is --------------------------------------------------------------- */

/* What TLS calls a session: the key, and the cipher suite that it is for. */
static SSL_SESSION *key_session(SSL *ssl, const VjKey256 *key)
{
    static const unsigned char suite[] = {0x13, 0x02}; /* TLS_AES_256_GCM_SHA384 */
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session != NULL && cipher != NULL &&
        SSL_SESSION_set1_master_key(session, key->bytes, sizeof key->bytes) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
        return session;
    }
    SSL_SESSION_free(session);
    return NULL;
}

int vj_tls_use_key(SSL *ssl, const EVP_MD *digest, const unsigned char **identity,
                   size_t *identity_len, SSL_SESSION **out)
{
    const TlsStream *t = SSL_get_app_data(ssl);
    const VjCredentials *c = t->credentials;

    *identity = NULL;
    *identity_len = 0;
    *out = NULL;
    if (digest != NULL && EVP_MD_get_type(digest) != NID_sha384) {
        return 1; /* the server has chosen another suite: goes on without, and fails */
    }
    *out = key_session(ssl, &c->key);
    *identity = (const unsigned char *)c->identity;
    *identity_len = strlen(c->identity);
    return *out != NULL;
}

int vj_tls_find_key(SSL *ssl, const unsigned char *identity, size_t identity_len,
                    SSL_SESSION **out)
{
    TlsStream *t = SSL_get_app_data(ssl);
    const VjCredentials *c = t->credentials;
    VjKey256 key = {{0}};
    bool is_name = identity_len > 0 && identity_len <= VJ_RPC_KEY_IDENTITY_MAX &&
                   memchr(identity, '\0', identity_len) == NULL;

    *out = NULL;
    if (++t->key_lookups > KEY_LOOKUPS_MAX) {
        return 0;
    }
    t->key_identity[0] = '\0';
    if (is_name) {
        memcpy(t->key_identity, identity, identity_len);
        t->key_identity[identity_len] = '\0';
    }
    if (!is_name || !c->find(c->opaque, t->key_identity, &key)) {
        key = c->decoy;
    }
    *out = key_session(ssl, &key);
    vj_key_forget(&key, sizeof key);
    return *out != NULL;
}

/* Sets the identity to "cert:" and @name, which is ours to free; false: it is none. */
static bool take_name(TlsStream *t, const ASN1_STRING *name)
{
    unsigned char *text = NULL;
    int len = ASN1_STRING_to_UTF8(&text, name);
    bool is_name = len > 0 && (size_t)len + strlen("cert:") <= VJ_RPC_IDENTITY_MAX &&
                   g_utf8_validate((const char *)text, len, NULL);

    for (int i = 0; is_name && i < len; i++) {
        is_name = text[i] >= ' ' && text[i] != 0x7f;
    }
    if (is_name) {
        g_snprintf(t->s.identity, sizeof t->s.identity, "cert:%s", (const char *)text);
    }
    OPENSSL_free(text);
    return is_name;
}

/* The common name, of which there is one; where there is none, the first DNS name. */
static bool name_of_certificate(TlsStream *t, const X509 *certificate)
{
    X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    GENERAL_NAMES *names;
    bool found = false;

    if (at >= 0) {
        return X509_NAME_get_index_by_NID(subject, NID_commonName, at) < 0 &&
               take_name(t, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    }
    names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
        const GENERAL_NAME *one = sk_GENERAL_NAME_value(names, i);

        if (one->type == GEN_DNS) {
            found = true;
            if (!take_name(t, one->d.dNSName)) {
                break;
            }
        }
    }
    GENERAL_NAMES_free(names);
    return found && t->s.identity[0] != '\0';
}

static int refuse(TlsStream *t, int rc, const char *why)
{
    report(t, "TLS handshake", why);
    t->rc = rc;
    return rc;
}

/* The handshake is done: that it did what it was to. */
static int check_peer(TlsStream *t)
{
    const unsigned char *protocol;
    unsigned len;
    X509 *certificate = SSL_get0_peer_certificate(t->ssl);

    g_assert(SSL_version(t->ssl) == TLS1_3_VERSION);
    SSL_get0_alpn_selected(t->ssl, &protocol, &len);
    if (len != strlen(VJ_TLS_PROTOCOL) || memcmp(protocol, VJ_TLS_PROTOCOL, len) != 0) {
        return refuse(t, -EPROTO, "the peer speaks another protocol (ALPN)");
    }
    if (SSL_session_reused(t->ssl)) {
        const char *name = t->s.is_server ? t->key_identity : t->credentials->identity;

        g_assert(name != NULL);
        g_snprintf(t->s.identity, sizeof t->s.identity, "key:%s", name);
        return 0;
    }
    if (certificate == NULL || SSL_get_verify_result(t->ssl) != X509_V_OK ||
        t->credentials->identity != NULL) {
        return refuse(t, -EACCES, "the peer has proved nothing");
    }
    return name_of_certificate(t, certificate)
               ? 0
               : refuse(t, -EACCES, "the certificate has no name that is one");
}

/* ---- the stream -------------------------------------------------------------------- */

static int tls_handshake(VjStream *s)
{
    TlsStream *t = (TlsStream *)s;
    int result;

    if (t->rc != 0 || t->is_ready) {
        return t->rc;
    }
    ERR_clear_error();
    result = SSL_do_handshake(t->ssl);
    if (result != 1) {
        return failed(t, result, &s->handshake_wants);
    }
    if (check_peer(t) != 0) {
        return t->rc;
    }
    t->is_ready = true;
    vj_trace(rpc, "tls fd=%d peer=\"%s\" ktls_send=%d ktls_recv=%d", s->fd, s->identity,
             (int)BIO_get_ktls_send(SSL_get_wbio(t->ssl)),
             (int)BIO_get_ktls_recv(SSL_get_rbio(t->ssl)));
    return 0;
}

/* What is still to be sent. */
typedef struct Source {
    const struct iovec *iov;
    int count;
    size_t skip; /* bytes of the first one */
} Source;

static void source_skip(Source *from, size_t len)
{
    from->skip += len;
    while (from->count > 0 && from->skip >= from->iov->iov_len) {
        from->skip -= from->iov->iov_len;
        from->iov++;
        from->count--;
    }
}

/* What the next record is made of: of one part where it has enough, else of a copy. */
static VjSlice source_next(const Source *from, uint8_t copy[RECORD_BYTES])
{
    size_t used = from->iov->iov_len - from->skip;
    const uint8_t *first = (const uint8_t *)from->iov->iov_base + from->skip;

    if (used >= RECORD_BYTES || from->count == 1) {
        return vj_slice(first, MIN(used, RECORD_BYTES));
    }
    memcpy(copy, first, used);
    for (int i = 1; i < from->count && used < RECORD_BYTES; i++) {
        size_t len = MIN(from->iov[i].iov_len, RECORD_BYTES - used);

        if (len > 0) {
            memcpy(copy + used, from->iov[i].iov_base, len);
            used += len;
        }
    }
    return vj_slice(copy, used);
}

/* A new key before the old one has encrypted too much; the kernel's stays. */
static void renew_key(TlsStream *t)
{
    if (t->key_bytes >= KEY_BYTES_MAX && t->s.send_pending == 0 &&
        !BIO_get_ktls_send(SSL_get_wbio(t->ssl)) &&
        SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
        t->key_bytes = 0;
    }
}

static ssize_t tls_send(VjStream *s, const struct iovec *iov, int iov_count)
{
    TlsStream *t = (TlsStream *)s;
    Source from = {.iov = iov, .count = iov_count};
    uint8_t copy[RECORD_BYTES];
    size_t taken = 0;

    if (t->rc != 0) {
        return t->rc;
    }
    g_assert(t->is_ready);
    ERR_clear_error();
    source_skip(&from, 0);
    g_assert(from.count > 0);
    while (from.count > 0) {
        VjSlice next = source_next(&from, copy);
        size_t done = 0;
        int result;

        g_assert(next.len >= s->send_pending);
        renew_key(t);
        result = SSL_write_ex(t->ssl, next.data, next.len, &done);
        if (result != 1) {
            int rc = failed(t, result, &s->send_wants);

            s->send_pending = rc == -EAGAIN ? next.len : 0;
            return taken > 0 ? (ssize_t)taken : rc;
        }
        g_assert(done > 0 && done <= next.len);
        s->send_pending = 0;
        t->key_bytes += done;
        taken += done;
        source_skip(&from, done);
    }
    return (ssize_t)taken;
}

static ssize_t tls_recv(VjStream *s, void *dst, size_t len)
{
    TlsStream *t = (TlsStream *)s;
    size_t got = 0;

    g_assert(len > 0);
    if (t->rc != 0) {
        return t->rc;
    }
    g_assert(t->is_ready);
    ERR_clear_error();
    while (got < len) {
        size_t more = 0;
        int result = SSL_read_ex(t->ssl, (uint8_t *)dst + got, len - got, &more);

        if (result != 1) {
            int rc = failed(t, result, &s->recv_wants);

            t->is_drained = rc == -EAGAIN;
            return got > 0 ? (ssize_t)got : rc;
        }
        got += more;
    }
    t->is_drained = false;
    return (ssize_t)got;
}

static bool tls_has_more(VjStream *s)
{
    const TlsStream *t = (const TlsStream *)s;

    return t->rc == 0 && t->is_ready && !t->is_drained && SSL_has_pending(t->ssl) == 1;
}

static void tls_close(VjStream *s)
{
    TlsStream *t = (TlsStream *)s;

    /* Says goodbye when that is possible at once; nobody waits for the answer. */
    if (t->is_ready && t->rc == 0 && s->send_pending == 0) {
        ERR_clear_error();
        (void)SSL_shutdown(t->ssl);
        ERR_clear_error();
    }
    SSL_free(t->ssl);
    vj_credentials_unref(t->credentials);
}

static const VjStreamOps tls_ops = {
    .name = "tls",
    .handshake = tls_handshake,
    .send = tls_send,
    .recv = tls_recv,
    .has_more = tls_has_more,
    .close = tls_close,
};

/* A client with certificates: whom the server's must name. */
static bool expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    /* Without the interface that a link-local address may have. */
    g_autofree char *ip = g_strndup(host, strcspn(host, "%"));

    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                               X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return X509_VERIFY_PARAM_set1_ip_asc(param, ip) == 1 || SSL_set1_host(ssl, host) == 1;
}

static bool set_up(TlsStream *t, const char *host)
{
    BIO *bio;

    t->ssl = SSL_new(t->credentials->context);
    if (t->ssl == NULL) {
        return false;
    }
    SSL_set_app_data(t->ssl, t);
    bio = socket_new(t->s.fd);
    if (bio == NULL) {
        return false;
    }
    SSL_set_bio(t->ssl, bio, bio); /* takes it */
    if (t->s.is_server) {
        SSL_set_accept_state(t->ssl);
        return true;
    }
    SSL_set_connect_state(t->ssl);
    return t->credentials->identity != NULL || expect_host(t->ssl, host);
}

VjStream *vj_tls_stream_new(int fd, bool is_server, VjCredentials *credentials,
                            const char *host, int *rc)
{
    TlsStream *t;

    g_assert(!credentials->is_insecure && credentials->is_server == is_server);
    *rc = 0;
    if (!is_server && credentials->identity == NULL && (host == NULL || *host == '\0')) {
        vj_log_warn("rpc: a client with certificates needs the name of a host, which a "
                    "unix socket does not have: give key=");
        *rc = -EACCES;
        return NULL;
    }
    t = g_new0(TlsStream, 1);
    t->s.ops = &tls_ops;
    t->s.fd = fd;
    t->s.is_server = is_server;
    t->s.recv_wants = POLLIN;
    t->s.send_wants = POLLOUT;
    t->s.handshake_wants = is_server ? POLLIN : POLLOUT;
    t->credentials = vj_credentials_ref(credentials);
    if (!set_up(t, host)) {
        ERR_clear_error();
        tls_close(&t->s);
        g_free(t);
        *rc = -ENOMEM;
        return NULL;
    }
    return &t->s;
}
