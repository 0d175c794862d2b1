/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * tls.c - TLS 1.3 over a socket, as varjfs-protocol(7) has it
 *
 * OpenSSL is used as a guest of the program's: with its default settings of the process,
 * nothing of which is changed, and with a BIO of our own, which raises no SIGPIPE and
 * leaves nothing behind.  What OpenSSL has in its queue of errors for the thread is lost
 * by each call, as by any other use of it.
 *
 * A connection speaks TLS 1.3 and nothing older, always with an ephemeral Diffie-Hellman
 * exchange, without tickets and early data.  Either both sides prove that they have the
 * same key, or both have a certificate, and the daemon's names the host that was to be
 * connected to.
 *
 * A stream that failed stays failed, with the same error.
 */
#include "tls.h"

#ifdef VARJFS_CLIENT_TLS

/* The face of OpenSSL 3.0. */
#define OPENSSL_API_COMPAT 30000

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROTOCOL "\x06varjfs" /* ALPN: its length and itself */
#define CIPHERS                                                                          \
    "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define KEY_CIPHERS "TLS_AES_256_GCM_SHA384"
#define GROUPS "X25519:P-256:P-384"
#define SECURITY_LEVEL 2 /* of OpenSSL: 112 bits */

#define KEY_PREFIX "varjfs-key-1:"
#define KEY_BYTES 32u
#define KEY_FILE_MAX ((size_t)4096)
#define PEM_FILE_MAX ((size_t)256 << 10)
#define IDENTITY_MAX 250u
#define CA_CERTIFICATES_MAX 64u
#define CHAIN_MAX 8u /* certificates between ours and the CA's */
#define PEER_CHAIN_BYTES_MAX (64 << 10)

#define RECORD_BYTES ((size_t)16384) /* plain text of the largest record */
/* Sent under one key; then there is a new one.  RFC 8446, 5.5: 2^24.5 full records. */
#define SENT_BYTES_MAX ((uint64_t)128 << 30)

struct VjcTls {
    int fd; /* borrowed */
    SSL_CTX *context;
    SSL *ssl;
    BIO_METHOD *method;
    bool has_key;
    uint8_t key[KEY_BYTES];
    char identity[IDENTITY_MAX + 1];

    int rc; /* 0, or why it failed */
    const char *why;
    bool is_ready;
    bool may_wait;    /* the read that is going on */
    bool is_drained;  /* the socket had nothing more, and since then none was tried */
    int socket_error; /* errno of the last call for the socket; 0: it worked */
    uint64_t sent_bytes;
    uint8_t record[RECORD_BYTES]; /* what stands in several buffers, as one */
};

/* ---- the socket -------------------------------------------------------------------- */

static int socket_read(BIO *bio, char *dst, int len)
{
    VjcTls *t = BIO_get_data(bio);
    struct iovec iov = {.iov_base = dst, .iov_len = (size_t)len};
    ssize_t got = vjc_recv(t->fd, &iov, 1, t->may_wait);

    BIO_clear_retry_flags(bio);
    t->may_wait = false; /* it has waited */
    t->socket_error = got < 0 ? (int)-got : 0;
    if (got == -EAGAIN) {
        t->is_drained = true;
        BIO_set_retry_read(bio);
    }
    return got < 0 ? -1 : (int)got;
}

static int socket_write(BIO *bio, const char *src, int len)
{
    VjcTls *t = BIO_get_data(bio);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)src, .iov_len = (size_t)len};
    ssize_t sent = vjc_send_some(t->fd, &iov, 1);

    BIO_clear_retry_flags(bio);
    t->socket_error = sent < 0 ? (int)-sent : 0;
    if (sent == -EAGAIN) {
        BIO_set_retry_write(bio);
    }
    return sent < 0 ? -1 : (int)sent;
}

static long socket_control(BIO *bio, int command, long number, void *opaque)
{
    (void)bio;
    (void)number;
    (void)opaque;
    return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

/* Of this connection alone, so that nothing of it stays in the process. */
static BIO *socket_new(VjcTls *t)
{
    BIO *bio;

    t->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "libvarjfs");
    if (t->method == NULL || BIO_meth_set_read(t->method, socket_read) != 1 ||
        BIO_meth_set_write(t->method, socket_write) != 1 ||
        BIO_meth_set_ctrl(t->method, socket_control) != 1) {
        return NULL;
    }
    bio = BIO_new(t->method);
    if (bio != NULL) {
        BIO_set_data(bio, t);
        BIO_set_init(bio, 1);
    }
    return bio;
}

/* ---- errors ------------------------------------------------------------------------ */

/* What OpenSSL has for an alert that the peer has sent. */
#define REASON_OF_ALERT 1000
#define ALERTS 256

/* The last error of the queue, which is empty afterwards; *no_memory: one says so. */
static unsigned long take_error(bool *no_memory)
{
    unsigned long code, first = 0;

    *no_memory = false;
    while ((code = ERR_get_error()) != 0) {
        first = first == 0 ? code : first;
        if (ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE) {
            *no_memory = true;
        }
    }
    return first;
}

/* -errno for what OpenSSL refuses of what was given, with a text about @what. */
static int setting_error(const char *what)
{
    bool no_memory;
    const char *reason = ERR_reason_error_string(take_error(&no_memory));

    if (no_memory || reason == NULL) {
        return -ENOMEM;
    }
    vjc_set_open_error(what, reason, strlen(reason));
    return -EINVAL;
}

/* The daemon says by @alert that it does not believe us, or has nothing in common. */
static bool alert_refuses(const VjcTls *t, int alert)
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
        return !t->is_ready && t->has_key;
    default:
        return false;
    }
}

static bool error_refuses(unsigned long code)
{
    if (ERR_GET_LIB(code) != ERR_LIB_SSL) {
        return false;
    }
    switch (ERR_GET_REASON(code)) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
        return true;
    default:
        return false;
    }
}

/* What OpenSSL says of itself: mostly memory was missing, which it does not pass on. */
static bool is_internal(unsigned long code)
{
    int reason = ERR_GET_REASON(code);

    switch (ERR_GET_LIB(code)) {
    case ERR_LIB_EVP:
    case ERR_LIB_PROV:
    case ERR_LIB_RAND:
        return true;
    default:
        return reason == ERR_R_INTERNAL_ERROR || reason == ERR_R_EVP_LIB;
    }
}

/* -errno and t->why for what is in OpenSSL's queue. */
static int protocol_error(VjcTls *t)
{
    bool no_memory;
    unsigned long code = take_error(&no_memory);
    int reason = ERR_GET_REASON(code);

    if (no_memory || is_internal(code)) {
        /* Later nobody knows what the daemon has done. */
        t->why = no_memory ? "no memory for TLS" : ERR_reason_error_string(code);
        return t->is_ready ? -ECONNRESET : -ENOMEM;
    }
    if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
        reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        return -ECONNRESET;
    }
    if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        long why = SSL_get_verify_result(t->ssl);

        t->why = X509_verify_cert_error_string(why);
        return why == X509_V_ERR_OUT_OF_MEM ? -ENOMEM : -EACCES;
    }
    if (reason >= REASON_OF_ALERT && reason < REASON_OF_ALERT + ALERTS) {
        t->why = SSL_alert_desc_string_long(reason - REASON_OF_ALERT);
        return alert_refuses(t, reason - REASON_OF_ALERT) ? -EACCES : -EPROTO;
    }
    t->why = ERR_reason_error_string(code);
    return error_refuses(code) ? -EACCES : -EPROTO;
}

/* After a call of OpenSSL that returned @result and not success; -EAGAIN, and *wants,
 * where the socket has to become ready. */
static int failed(VjcTls *t, int result, short *wants)
{
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        *wants = POLLIN;
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *wants = POLLOUT;
        return -EAGAIN;
    case SSL_ERROR_SSL:
        t->rc = protocol_error(t);
        break;
    case SSL_ERROR_SYSCALL:
        t->rc = t->socket_error != 0 && t->socket_error != EPIPE ? -t->socket_error
                                                                 : -ECONNRESET;
        break;
    default: /* the daemon has said goodbye */
        t->rc = -ECONNRESET;
    }
    ERR_clear_error();
    return t->rc;
}

/* ---- files ------------------------------------------------------------------------- */

typedef struct Text {
    char *bytes; /* ends with a NUL that is not counted */
    size_t len;
} Text;

static void text_free(Text *text)
{
    if (text->bytes != NULL) {
        OPENSSL_cleanse(text->bytes, text->len);
        free(text->bytes);
    }
    text->bytes = NULL;
}

static int file_error(const char *path, int rc, const char *text)
{
    vjc_set_open_error(text, path, strlen(path));
    return rc;
}

static int check_file(const char *path, const struct stat *st, bool is_secret, size_t max)
{
    if (!S_ISREG(st->st_mode)) {
        return file_error(path, -EINVAL, "no regular file");
    }
    if (is_secret && (st->st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return file_error(path, -EACCES,
                          "others than its owner must not read or write a key (chmod "
                          "600)");
    }
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return file_error(path, -EACCES,
                          "others than its owner must not write this file (chmod go-w)");
    }
    return st->st_size < 0 || (uint64_t)st->st_size > max
               ? file_error(path, -EFBIG, "the file is too long")
               : 0;
}

static int read_all(int fd, char *dst, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t got = read(fd, dst + done, len - done);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? -errno : -EIO; /* shorter than it was */
        }
        done += (size_t)got;
    }
    return 0;
}

/* What is examined is what is read. */
static int read_open_file(int fd, const char *path, bool is_secret, size_t max, Text *out)
{
    struct stat st;
    int rc = fstat(fd, &st) != 0 ? -errno : check_file(path, &st, is_secret, max);

    if (rc != 0) {
        return rc;
    }
    out->len = (size_t)st.st_size;
    out->bytes = malloc(out->len + 1);
    if (out->bytes == NULL) {
        return -ENOMEM;
    }
    out->bytes[out->len] = '\0';
    rc = read_all(fd, out->bytes, out->len);
    return rc != 0 ? file_error(path, rc, varjfs_strerror(rc)) : 0;
}

/* *out is the caller's to free, also on failure. */
static int read_file(const char *path, bool is_secret, size_t max, Text *out)
{
    /* Neither a fifo without a writer nor a terminal holds it up or becomes ours. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc;

    *out = (Text){.bytes = NULL};
    if (fd < 0) {
        rc = -errno;
        return file_error(path, rc == -ENOENT ? -EINVAL : rc,
                          rc == -ENOENT ? "there is no such file" : varjfs_strerror(rc));
    }
    rc = read_open_file(fd, path, is_secret, max, out);
    close(fd);
    return rc;
}

/* ---- the key ----------------------------------------------------------------------- */

static int digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One line, whose end may be missing. */
static bool parse_key(const Text *text, uint8_t key[KEY_BYTES])
{
    size_t prefix = sizeof KEY_PREFIX - 1, len = text->len;

    if (len > 0 && text->bytes[len - 1] == '\n') {
        len--;
    }
    if (len != prefix + (size_t)2 * KEY_BYTES ||
        memcmp(text->bytes, KEY_PREFIX, prefix) != 0) {
        return false;
    }
    for (size_t i = 0; i < KEY_BYTES; i++) {
        int high = digit(text->bytes[prefix + 2 * i]);
        int low = digit(text->bytes[prefix + 2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        key[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static int load_key(VjcTls *t, const struct varjfs_options *o)
{
    const char *identity = o->identity != NULL ? o->identity : o->volume;
    size_t len = strlen(identity);
    Text text;
    int rc;

    if (len == 0 || len > IDENTITY_MAX) {
        vjc_set_open_error("options.identity has no name of 1 to 250 bytes", NULL, 0);
        return -EINVAL;
    }
    memcpy(t->identity, identity, len + 1);
    t->has_key = true;
    rc = read_file(o->key, true, KEY_FILE_MAX, &text);
    if (rc == 0 && !parse_key(&text, t->key)) {
        rc = file_error(o->key, -EINVAL, "no key as varjfsctl keygen writes it");
    }
    text_free(&text);
    return rc;
}

/* What TLS calls a session: the key, and the cipher suite that it is for. */
static int use_key(SSL *ssl, const EVP_MD *digest, const unsigned char **identity,
                   size_t *identity_len, SSL_SESSION **out)
{
    static const unsigned char suite[] = {0x13, 0x02}; /* TLS_AES_256_GCM_SHA384 */
    const VjcTls *t = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session;

    *identity = NULL;
    *identity_len = 0;
    *out = NULL;
    if (digest != NULL && EVP_MD_get_type(digest) != NID_sha384) {
        return 1; /* the daemon has chosen another suite: goes on without, and fails */
    }
    session = SSL_SESSION_new();
    if (session == NULL || cipher == NULL ||
        SSL_SESSION_set1_master_key(session, t->key, sizeof t->key) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(session);
        return 0;
    }
    *out = session;
    *identity = (const unsigned char *)t->identity;
    *identity_len = strlen(t->identity);
    return 1;
}

/* ---- certificates ------------------------------------------------------------------ */

/* A private key of ours is not encrypted: nobody is there to be asked. */
static int no_password(char *dst, int size, int is_written, void *opaque)
{
    (void)dst;
    (void)size;
    (void)is_written;
    (void)opaque;
    return -1;
}

typedef int UseCertificate(VjcTls *t, X509 *certificate, unsigned index);

/* Those that are believed. */
static int use_authority(VjcTls *t, X509 *certificate, unsigned index)
{
    if (index >= CA_CERTIFICATES_MAX) {
        return -EFBIG;
    }
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(t->context), certificate) == 1
               ? 0
               : -EINVAL;
}

/* Ours is the first of the file; those behind it lead to the CA. */
static int use_link(VjcTls *t, X509 *certificate, unsigned index)
{
    if (index > CHAIN_MAX) {
        return -EFBIG;
    }
    return (index == 0 ? SSL_CTX_use_certificate(t->context, certificate)
                       : (int)SSL_CTX_add1_chain_cert(t->context, certificate)) == 1
               ? 0
               : -EINVAL;
}

static int each_certificate(VjcTls *t, BIO *bio, const char *path, UseCertificate *use)
{
    unsigned count = 0;
    int rc = 0;

    while (rc == 0) {
        X509 *one = PEM_read_bio_X509(bio, NULL, no_password, NULL);

        if (one == NULL) {
            unsigned long code = ERR_peek_last_error();
            bool is_end = ERR_GET_LIB(code) == ERR_LIB_PEM &&
                          ERR_GET_REASON(code) == PEM_R_NO_START_LINE;

            if (is_end) {
                ERR_clear_error();
                return count > 0 ? 0
                                 : file_error(path, -EINVAL, "there is no certificate");
            }
            return setting_error(path);
        }
        rc = use(t, one, count++);
        X509_free(one);
    }
    return rc == -EFBIG ? file_error(path, rc, "there are too many certificates")
                        : setting_error(path);
}

static int use_file(VjcTls *t, const char *path, UseCertificate *use)
{
    Text text;
    int rc = read_file(path, false, PEM_FILE_MAX, &text);
    BIO *bio = NULL;

    if (rc == 0 && strstr(text.bytes, "-----BEGIN X509 CRL-----") != NULL) {
        rc = file_error(path, -EINVAL,
                        "has a list of revoked certificates, which is not looked at");
    }
    if (rc == 0) {
        bio = BIO_new_mem_buf(text.bytes, (int)text.len);
        rc = bio != NULL ? each_certificate(t, bio, path, use) : setting_error(path);
    }
    BIO_free(bio);
    text_free(&text);
    return rc;
}

static int use_private_key(VjcTls *t, const char *path)
{
    Text text;
    int rc = read_file(path, true, PEM_FILE_MAX, &text);
    EVP_PKEY *key = NULL;
    BIO *bio = NULL;

    if (rc == 0) {
        bool no_memory;

        bio = BIO_new_mem_buf(text.bytes, (int)text.len);
        if (bio != NULL) {
            key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
        }
        if (key == NULL || SSL_CTX_use_PrivateKey(t->context, key) != 1 ||
            SSL_CTX_check_private_key(t->context) != 1) {
            take_error(&no_memory);
            rc = no_memory || bio == NULL
                     ? -ENOMEM
                     : file_error(path, -EINVAL,
                                  key == NULL ? "no private key in PEM that is not "
                                                "encrypted"
                                              : "not the key of the certificate");
        }
    }
    EVP_PKEY_free(key);
    BIO_free(bio);
    text_free(&text);
    return rc;
}

static int use_certificates(VjcTls *t, const struct varjfs_options *o)
{
    int rc = use_file(t, o->ca, use_authority);

    if (rc == 0) {
        rc = use_file(t, o->certificate, use_link);
    }
    return rc == 0 ? use_private_key(t, o->certificate_key) : rc;
}

/* ---- opening ----------------------------------------------------------------------- */

/* What is given has to be one of the two. */
static int check_options(const struct varjfs_options *o)
{
    bool has_certificate =
        o->certificate != NULL || o->certificate_key != NULL || o->ca != NULL;
    const char *why = NULL;

    if (o->key != NULL && has_certificate) {
        why = "options.key and certificates: give one of them";
    } else if (has_certificate &&
               (o->certificate == NULL || o->certificate_key == NULL || o->ca == NULL)) {
        why = "options.certificate, certificate_key and ca go together";
    } else if (o->key == NULL && !has_certificate) {
        why = "no credentials: give options.key (a file that varjfsctl keygen makes), or "
              "options.certificate, certificate_key and ca; to programs a configuration "
              "with them";
    } else if (o->key == NULL && o->identity != NULL) {
        why = "options.identity is for a key: a certificate has its name";
    }
    if (why != NULL) {
        vjc_set_open_error(why, NULL, 0);
        return -EINVAL;
    }
    return 0;
}

/* Says all of it, because the machine's openssl.cnf may have said something else. */
static bool set_up_context(SSL_CTX *context, bool has_key)
{
    SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_NO_TLSv1_3 |
                                       SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    /* Buffers stay, so that no reply needs memory; and what is no data comes back to who
     * has the deadline. */
    SSL_CTX_clear_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_security_level(context, SECURITY_LEVEL);
    SSL_CTX_set_verify_depth(context, (int)CHAIN_MAX);
    SSL_CTX_set_max_cert_list(context, PEER_CHAIN_BYTES_MAX);
    /* Who has a key trusts no CA, so a daemon that shows a certificate instead of proving
     * the key fails here too. */
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (has_key) {
        SSL_CTX_set_psk_use_session_callback(context, use_key);
    }
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_early_data(context, 0) == 1 &&
           SSL_CTX_set_recv_max_early_data(context, 0) == 1 &&
           SSL_CTX_set_ciphersuites(context, has_key ? KEY_CIPHERS : CIPHERS) == 1 &&
           SSL_CTX_set1_groups_list(context, GROUPS) == 1 &&
           SSL_CTX_set_alpn_protos(context, (const unsigned char *)PROTOCOL,
                                   sizeof PROTOCOL - 1) == 0;
}

/* A daemon with a certificate: whom it must name. */
static bool expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                               X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1) {
        return true;
    }
    ERR_clear_error();
    return SSL_set1_host(ssl, host) == 1;
}

static int set_up(VjcTls *t, const struct varjfs_options *o, const char *host)
{
    BIO *bio;
    int rc = o->key != NULL ? load_key(t, o) : 0;

    if (rc != 0) {
        return rc;
    }
    t->context = SSL_CTX_new(TLS_client_method());
    if (t->context == NULL || !set_up_context(t->context, t->has_key)) {
        return setting_error("TLS 1.3 of OpenSSL");
    }
    rc = t->has_key ? 0 : use_certificates(t, o);
    if (rc != 0) {
        return rc;
    }
    t->ssl = SSL_new(t->context);
    bio = t->ssl != NULL ? socket_new(t) : NULL;
    if (bio == NULL) {
        ERR_clear_error();
        return -ENOMEM;
    }
    SSL_set_bio(t->ssl, bio, bio); /* takes it */
    if (SSL_set_app_data(t->ssl, t) != 1) {
        ERR_clear_error();
        return -ENOMEM;
    }
    SSL_set_connect_state(t->ssl);
    return t->has_key || expect_host(t->ssl, host) ? 0 : setting_error(host);
}

int vjc_tls_new(const struct varjfs_options *o, const char *host, VjcTls **out)
{
    VjcTls *t;
    int rc = check_options(o);

    *out = NULL;
    if (rc != 0) {
        return rc;
    }
    t = calloc(1, sizeof *t);
    if (t == NULL) {
        return -ENOMEM;
    }
    ERR_clear_error();
    t->fd = -1;
    rc = set_up(t, o, host);
    if (rc != 0) {
        vjc_tls_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void vjc_tls_free(VjcTls *t)
{
    if (t == NULL) {
        return;
    }
    SSL_free(t->ssl);
    BIO_meth_free(t->method);
    SSL_CTX_free(t->context);
    OPENSSL_cleanse(t, sizeof *t);
    free(t);
}

void vjc_tls_goodbye(VjcTls *t)
{
    /* When that is possible at once; nobody waits for the answer. */
    if (t->is_ready && t->rc == 0) {
        ERR_clear_error();
        (void)SSL_shutdown(t->ssl);
        ERR_clear_error();
    }
    t->rc = t->rc != 0 ? t->rc : -ECONNRESET;
}

const char *vjc_tls_why(const VjcTls *t)
{
    return t->why;
}

/* ---- the stream -------------------------------------------------------------------- */

/* The handshake is done: that it did what it was to. */
static int check_peer(VjcTls *t)
{
    const unsigned char *protocol;
    unsigned len;

    SSL_get0_alpn_selected(t->ssl, &protocol, &len);
    if (len != sizeof PROTOCOL - 2 || memcmp(protocol, &PROTOCOL[1], len) != 0) {
        t->why = "the other side speaks another protocol (ALPN)";
        return -EPROTO;
    }
    if (SSL_session_reused(t->ssl)
            ? !t->has_key
            : t->has_key || SSL_get0_peer_certificate(t->ssl) == NULL ||
                  SSL_get_verify_result(t->ssl) != X509_V_OK) {
        t->why = "the other side has proved nothing";
        return -EACCES;
    }
    return 0;
}

int vjc_tls_handshake(VjcTls *t, int fd, int64_t deadline)
{
    t->fd = fd;
    while (t->rc == 0 && !t->is_ready) {
        short wants = 0;
        int result, rc;

        ERR_clear_error();
        result = SSL_do_handshake(t->ssl);
        if (result == 1) {
            t->rc = check_peer(t);
            t->is_ready = t->rc == 0;
            continue;
        }
        if (failed(t, result, &wants) != -EAGAIN) {
            continue;
        }
        rc = vjc_poll(fd, wants, deadline, VJC_PING_MS);
        if (rc != 0 && rc != -EAGAIN) {
            t->rc = rc;
        }
    }
    return t->rc;
}

/* What the next record is made of: of one buffer where it has enough, else of a copy. */
static const void *next_record(VjcTls *t, const struct iovec *iov, size_t count,
                               size_t skip, size_t *len)
{
    const uint8_t *first = (const uint8_t *)iov->iov_base + skip;
    size_t used = iov->iov_len - skip;

    if (used >= RECORD_BYTES || count == 1) {
        *len = used < RECORD_BYTES ? used : RECORD_BYTES;
        return first;
    }
    memcpy(t->record, first, used);
    for (size_t i = 1; i < count && used < RECORD_BYTES; i++) {
        size_t more = RECORD_BYTES - used;

        more = iov[i].iov_len < more ? iov[i].iov_len : more;
        if (more > 0) {
            memcpy(t->record + used, iov[i].iov_base, more);
            used += more;
        }
    }
    *len = used;
    return t->record;
}

/* A new key before the old one has encrypted too much. */
static void renew_key(VjcTls *t, bool is_between_records)
{
    if (t->sent_bytes >= SENT_BYTES_MAX && is_between_records &&
        SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
        t->sent_bytes = 0;
    }
}

ssize_t vjc_tls_send(VjcTls *t, const struct iovec *iov, size_t count)
{
    size_t taken = 0, skip = 0;

    if (t->rc != 0) {
        return t->rc;
    }
    ERR_clear_error();
    while (true) {
        const void *record;
        size_t len, done = 0;
        short wants;
        int result;

        while (count > 0 && skip >= iov->iov_len) {
            skip -= iov->iov_len;
            iov++;
            count--;
        }
        if (count == 0) {
            return (ssize_t)taken;
        }
        renew_key(t, taken > 0);
        record = next_record(t, iov, count, skip, &len);
        result = SSL_write_ex(t->ssl, record, len, &done);
        if (result != 1) {
            int rc = failed(t, result, &wants);

            /* What the daemon said before it closed can be received. */
            t->rc = t->socket_error != 0 ? 0 : t->rc;
            return taken > 0 ? (ssize_t)taken : rc;
        }
        t->sent_bytes += done;
        taken += done;
        skip += done;
    }
}

/* As much as fits; the first byte is waited for, if any is. */
static ssize_t recv_into(VjcTls *t, uint8_t *dst, size_t len)
{
    size_t got = 0;

    while (got < len) {
        size_t more = 0;
        short wants;
        int result = SSL_read_ex(t->ssl, dst + got, len - got, &more);

        if (result != 1) {
            int rc = failed(t, result, &wants);

            return got > 0 ? (ssize_t)got : rc;
        }
        t->may_wait = false;
        got += more;
    }
    return (ssize_t)got;
}

ssize_t vjc_tls_recv(VjcTls *t, const struct iovec *iov, int count, bool may_wait)
{
    ssize_t sum = 0;

    if (t->rc != 0) {
        return t->rc;
    }
    ERR_clear_error();
    t->may_wait = may_wait;
    t->is_drained = false;
    for (int i = 0; i < count; i++) {
        ssize_t got;

        if (iov[i].iov_len == 0) {
            continue;
        }
        got = recv_into(t, iov[i].iov_base, iov[i].iov_len);
        if (got < 0) {
            return sum > 0 ? sum : got;
        }
        sum += got;
        if ((size_t)got < iov[i].iov_len) {
            break;
        }
    }
    return sum;
}

bool vjc_tls_has_more(const VjcTls *t)
{
    return t->rc != 0 || (!t->is_drained && SSL_has_pending(t->ssl) == 1);
}

#else /* without OpenSSL */

int vjc_tls_new(const struct varjfs_options *o, const char *host, VjcTls **out)
{
    (void)o;
    (void)host;
    *out = NULL;
    vjc_set_open_error("this libvarjfs was built without TLS", NULL, 0);
    return -EPROTONOSUPPORT;
}

void vjc_tls_free(VjcTls *t)
{
    (void)t;
}

void vjc_tls_goodbye(VjcTls *t)
{
    (void)t;
}

const char *vjc_tls_why(const VjcTls *t)
{
    (void)t;
    return NULL;
}

int vjc_tls_handshake(VjcTls *t, int fd, int64_t deadline)
{
    (void)t;
    (void)fd;
    (void)deadline;
    return -EPROTONOSUPPORT;
}

ssize_t vjc_tls_send(VjcTls *t, const struct iovec *iov, size_t count)
{
    (void)t;
    (void)iov;
    (void)count;
    return -EPROTONOSUPPORT;
}

ssize_t vjc_tls_recv(VjcTls *t, const struct iovec *iov, int count, bool may_wait)
{
    (void)t;
    (void)iov;
    (void)count;
    (void)may_wait;
    return -EPROTONOSUPPORT;
}

bool vjc_tls_has_more(const VjcTls *t)
{
    (void)t;
    return false;
}

#endif
