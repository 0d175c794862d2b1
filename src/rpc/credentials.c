/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * credentials.c - what two peers believe each other by, as a context of OpenSSL
 *
 * A context speaks TLS 1.3 and nothing older, always with an ephemeral Diffie-Hellman
 * exchange: what was recorded stays secret when a key is lost later.  It has neither
 * session tickets nor early data, so each connection is believed by itself, and nothing
 * that was recorded can be sent again.  All files are read here, before a process gives
 * up the right to open any.
 */
#include "rpc/credentials-private.h"
#include "rpc/stream-private.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

/* The first is the one that pre-shared keys are for (tls.c). */
#define CIPHERS                                                                          \
    "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define KEY_CIPHERS "TLS_AES_256_GCM_SHA384"
#define GROUPS "X25519:P-256:P-384"

#define CA_CERTIFICATES_MAX 64u
#define CHAIN_MAX 8u               /* certificates between ours and the CA's */
#define CHAIN_BYTES_MAX (64 << 10) /* of a peer's certificates */
#define SECURITY_LEVEL 2           /* of OpenSSL: 112 bits */

/* Before its end a certificate that we use is reported. */
#define EXPIRY_WARNING_S ((time_t)14 * 24 * 3600)

G_DEFINE_AUTOPTR_CLEANUP_FUNC(BIO, BIO_vfree)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(X509, X509_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(EVP_PKEY, EVP_PKEY_free)

/* With what OpenSSL says, and its queue empty. */
static bool ssl_error(GError **error, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(code);

    vj_error_set(error, ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE ? ENOMEM : EINVAL,
                 "%s: %s", what, reason != NULL ? reason : "refused by OpenSSL");
    ERR_clear_error();
    return false;
}

/* ---- which files are given --------------------------------------------------------- */

static bool check_certificate_files(const VjCredentialsFiles *files, GError **error)
{
    const char *missing = files->ca == NULL                ? "ca"
                          : files->certificate == NULL     ? "certificate"
                          : files->certificate_key == NULL ? "certificate_key"
                                                           : NULL;

    return missing == NULL ||
           vj_error_set(error, EINVAL,
                        "certificates need certificate=, certificate_key= and ca=: %s= "
                        "is missing",
                        missing);
}

static bool has_certificate(const VjCredentialsFiles *files)
{
    return files->certificate != NULL || files->certificate_key != NULL ||
           files->ca != NULL;
}

static bool check_client_files(const VjCredentialsFiles *files, GError **error)
{
    if ((files->key != NULL) + has_certificate(files) + files->insecure > 1) {
        return vj_error_set(error, EINVAL,
                            "give one of a key, certificates, and insecure");
    }
    if (has_certificate(files)) {
        return check_certificate_files(files, error);
    }
    if (files->key == NULL && !files->insecure) {
        return vj_error_set(error, EINVAL,
                            "no credentials: give key= (a file that varjfsctl keygen "
                            "makes), or certificate=, certificate_key= and ca=, or, "
                            "within this machine, insecure");
    }
    if (files->key != NULL && (files->identity == NULL || *files->identity == '\0' ||
                               strlen(files->identity) > VJ_RPC_KEY_IDENTITY_MAX)) {
        return vj_error_set(error, EINVAL,
                            "%s: a key needs the name that it is known by, of at most %u "
                            "bytes",
                            files->key, VJ_RPC_KEY_IDENTITY_MAX);
    }
    return true;
}

static bool check_server_files(const VjCredentialsFiles *files, bool has_keys,
                               GError **error)
{
    g_assert(files->key == NULL);
    if (files->insecure) {
        return !has_certificate(files) ||
               vj_error_set(error, EINVAL, "give one of certificates and insecure");
    }
    if (has_certificate(files)) {
        return check_certificate_files(files, error);
    }
    return has_keys || vj_error_set(error, EINVAL,
                                    "no credentials: give keys of volumes, or "
                                    "certificate=, certificate_key= and ca=, or, for "
                                    "peers of this machine, insecure");
}

/* ---- certificates ------------------------------------------------------------------ */

/* A private key of ours is not encrypted: nobody is there to be asked. */
static int no_password(char *buf, int size, int is_written, void *opaque)
{
    (void)buf;
    (void)size;
    (void)is_written;
    (void)opaque;
    return -1;
}

/* The next certificate of @text; NULL at its end, or with @error. */
static X509 *next_certificate(BIO *text, const char *path, GError **error)
{
    X509 *found = PEM_read_bio_X509(text, NULL, no_password, NULL);
    unsigned long code = ERR_peek_last_error();

    if (found == NULL && (ERR_GET_LIB(code) != ERR_LIB_PEM ||
                          ERR_GET_REASON(code) != PEM_R_NO_START_LINE)) {
        ssl_error(error, path);
    }
    ERR_clear_error();
    return found;
}

/* @text, borrowed by it; NULL with @error. */
static BIO *open_text(const char *text, size_t len, GError **error)
{
    BIO *bio = BIO_new_mem_buf(text, (int)len);

    if (bio == NULL) {
        ssl_error(error, "certificates");
    }
    return bio;
}

static void warn_of_expiry(const char *path, const X509 *certificate)
{
    time_t now = vj_clock_real().tv_sec, soon = now + EXPIRY_WARNING_S;

    if (X509_cmp_time(X509_get0_notAfter(certificate), &now) < 0) {
        vj_log_warn("rpc: %s: a certificate has expired", path);
    } else if (X509_cmp_time(X509_get0_notAfter(certificate), &soon) < 0) {
        vj_log_warn("rpc: %s: a certificate expires within two weeks", path);
    }
}

static bool add_authorities(SSL_CTX *context, const char *path, const char *text,
                            size_t len, GError **error)
{
    g_autoptr(BIO) bio = open_text(text, len, error);
    g_autoptr(GError) why = NULL;
    unsigned count = 0;

    if (bio == NULL) {
        return false;
    }
    if (strstr(text, "-----BEGIN X509 CRL-----") != NULL) {
        return vj_error_set(error, EINVAL,
                            "%s: has a list of revoked certificates, which this version "
                            "does not look at",
                            path);
    }
    for (;;) {
        g_autoptr(X509) one = next_certificate(bio, path, &why);

        if (one == NULL) {
            break;
        }
        if (++count > CA_CERTIFICATES_MAX) {
            return vj_error_set(error, EFBIG, "%s: has more than %u certificates", path,
                                CA_CERTIFICATES_MAX);
        }
        warn_of_expiry(path, one);
        if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one) != 1) {
            return ssl_error(error, path);
        }
    }
    if (why != NULL) {
        g_propagate_error(error, g_steal_pointer(&why));
        return false;
    }
    return count > 0 || vj_error_set(error, EINVAL, "%s: has no certificate", path);
}

/* Ours is the first of the file; those behind it lead to the CA. */
static bool use_chain(SSL_CTX *context, const char *path, const char *text, size_t len,
                      GError **error)
{
    g_autoptr(BIO) bio = open_text(text, len, error);
    g_autoptr(GError) why = NULL;
    unsigned count = 0;

    if (bio == NULL) {
        return false;
    }
    for (;;) {
        g_autoptr(X509) one = next_certificate(bio, path, &why);

        if (one == NULL) {
            break;
        }
        if (count > CHAIN_MAX) {
            return vj_error_set(error, EFBIG, "%s: has more than %u certificates", path,
                                CHAIN_MAX + 1);
        }
        if (count == 0) {
            warn_of_expiry(path, one);
        }
        if ((count == 0 ? SSL_CTX_use_certificate(context, one)
                        : (int)SSL_CTX_add1_chain_cert(context, one)) != 1) {
            return ssl_error(error, path);
        }
        count++;
    }
    if (why != NULL) {
        g_propagate_error(error, g_steal_pointer(&why));
        return false;
    }
    return count > 0 || vj_error_set(error, EINVAL, "%s: has no certificate", path);
}

static bool use_private_key(SSL_CTX *context, const VjCredentialsFiles *files,
                            const char *text, size_t len, GError **error)
{
    g_autoptr(BIO) bio = open_text(text, len, error);
    g_autoptr(EVP_PKEY) key = NULL;

    if (bio == NULL) {
        return false;
    }
    key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    if (key == NULL) {
        ERR_clear_error();
        return vj_error_set(error, EINVAL,
                            "%s: has no private key in PEM that is not encrypted",
                            files->certificate_key);
    }
    if (SSL_CTX_use_PrivateKey(context, key) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        ERR_clear_error();
        return vj_error_set(error, EINVAL, "%s: is not the key of the certificate in %s",
                            files->certificate_key, files->certificate);
    }
    return true;
}

typedef bool UseText(SSL_CTX *context, const char *path, const char *text, size_t len,
                     GError **error);

static bool use_file(SSL_CTX *context, int dir_fd, const char *path, UseText *use,
                     GError **error)
{
    size_t len;
    char *text =
        vj_credential_read(dir_fd, path, false, VJ_CREDENTIAL_FILE_MAX, &len, error);
    bool done = text != NULL && use(context, path, text, len, error);

    vj_credential_free(text, len);
    return done;
}

static bool use_certificates(SSL_CTX *context, int dir_fd,
                             const VjCredentialsFiles *files, GError **error)
{
    size_t len;
    char *text;
    bool done;

    if (!use_file(context, dir_fd, files->ca, add_authorities, error) ||
        !use_file(context, dir_fd, files->certificate, use_chain, error)) {
        return false;
    }
    text = vj_credential_read(dir_fd, files->certificate_key, true,
                              VJ_CREDENTIAL_FILE_MAX, &len, error);
    done = text != NULL && use_private_key(context, files, text, len, error);
    vj_credential_free(text, len);
    return done;
}

/* ---- contexts ---------------------------------------------------------------------- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *offered, unsigned offered_len,
                           void *opaque)
{
    static const unsigned char ours[] = VJ_TLS_PROTOCOL;
    size_t ours_len = sizeof ours - 1;

    (void)ssl;
    (void)opaque;
    for (unsigned at = 0; at < offered_len; at += 1u + offered[at]) {
        if (offered[at] == ours_len && offered_len - at > ours_len &&
            memcmp(offered + at + 1, ours, ours_len) == 0) {
            *out = ours;
            *out_len = (unsigned char)ours_len;
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static bool set_protocol(SSL_CTX *context, bool is_server)
{
    static const unsigned char list[] = "\x06" VJ_TLS_PROTOCOL;

    if (is_server) {
        /* Without a name for its sessions a server that verifies takes no key. */
        SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
        return SSL_CTX_set_session_id_context(context, list + 1, sizeof list - 2) == 1;
    }
    return SSL_CTX_set_alpn_protos(context, list, sizeof list - 1) == 0;
}

/* Says all of it, because the machine's openssl.cnf may have said something else. */
static bool set_up(SSL_CTX *context, bool is_server, bool has_key)
{
    SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_NO_TLSv1_3);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE |
                                     SSL_OP_ENABLE_KTLS);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_AUTO_RETRY | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_security_level(context, SECURITY_LEVEL);
    SSL_CTX_set_verify_depth(context, (int)CHAIN_MAX);
    SSL_CTX_set_max_cert_list(context, CHAIN_BYTES_MAX);
    /* A client with a key trusts no CA, so a server that shows a certificate instead of
     * proving the key fails here too. */
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_num_tickets(context, 0) == 1 &&
           SSL_CTX_set_max_early_data(context, 0) == 1 &&
           SSL_CTX_set_recv_max_early_data(context, 0) == 1 &&
           SSL_CTX_set_ciphersuites(context,
                                    has_key && !is_server ? KEY_CIPHERS : CIPHERS) == 1 &&
           SSL_CTX_set1_groups_list(context, GROUPS) == 1 &&
           set_protocol(context, is_server);
}

static bool make_context(VjCredentials *c, int dir_fd, const VjCredentialsFiles *files,
                         GError **error)
{
    bool has_key = files->key != NULL || c->find != NULL;

    c->context = SSL_CTX_new(c->is_server ? TLS_server_method() : TLS_client_method());
    if (c->context == NULL || !set_up(c->context, c->is_server, has_key)) {
        return ssl_error(error, "TLS 1.3");
    }
    if (has_key && c->is_server) {
        SSL_CTX_set_psk_find_session_callback(c->context, vj_tls_find_key);
    } else if (has_key) {
        SSL_CTX_set_psk_use_session_callback(c->context, vj_tls_use_key);
    }
    return !has_certificate(files) || use_certificates(c->context, dir_fd, files, error);
}

/* ---- public ------------------------------------------------------------------------ */

bool vj_credentials_load(int dir_fd, const VjCredentialsFiles *files, VjCredentials **out,
                         GError **error)
{
    g_autoptr(VjCredentials) c = g_new0(VjCredentials, 1);

    *out = NULL;
    c->refs = 1;
    c->is_insecure = files->insecure;
    if (!check_client_files(files, error) ||
        (files->key != NULL && !vj_key_load(dir_fd, files->key, &c->key, error)) ||
        (!c->is_insecure && !make_context(c, dir_fd, files, error))) {
        return false;
    }
    c->identity = files->key != NULL ? g_strdup(files->identity) : NULL;
    *out = g_steal_pointer(&c);
    return true;
}

bool vj_credentials_load_server(int dir_fd, const VjCredentialsFiles *files,
                                VjCredentialsFind *find, void *opaque,
                                VjCredentials **out, GError **error)
{
    g_autoptr(VjCredentials) c = g_new0(VjCredentials, 1);

    *out = NULL;
    c->refs = 1;
    c->is_server = true;
    c->is_insecure = files->insecure;
    c->find = find;
    c->opaque = opaque;
    vj_random_bytes(&c->decoy, sizeof c->decoy);
    if (!check_server_files(files, find != NULL, error) ||
        (!c->is_insecure && !make_context(c, dir_fd, files, error))) {
        return false;
    }
    *out = g_steal_pointer(&c);
    return true;
}

VjCredentials *vj_credentials_ref(VjCredentials *c)
{
    g_assert(g_atomic_int_get(&c->refs) > 0);
    g_atomic_int_inc(&c->refs);
    return c;
}

void vj_credentials_unref(VjCredentials *c)
{
    if (c != NULL && g_atomic_int_dec_and_test(&c->refs)) {
        SSL_CTX_free(c->context);
        g_free(c->identity);
        vj_key_forget(c, sizeof *c);
        g_free(c);
    }
}

bool vj_credentials_is_insecure(const VjCredentials *c)
{
    return c->is_insecure;
}
