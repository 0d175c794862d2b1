/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * certificates.c - a CA of a lab, and what it signs
 *
 * The extensions are made from values, not from text of a configuration, so that no name
 * can become a second extension.  A client's certificate is of no use to a server, and
 * the other way round: each has the one purpose that it is for.
 */
#include "rpc/certificates.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/credentials-private.h"

#define CURVE "P-256"
/* RFC 5280, 4.1.2.2: at most 20 bytes, and positive. */
#define SERIAL_BITS 127
#define KEY_SUFFIX "-key"

G_DEFINE_AUTOPTR_CLEANUP_FUNC(BIO, BIO_vfree)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(BIGNUM, BN_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(X509, X509_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(EVP_PKEY, EVP_PKEY_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(GENERAL_NAMES, GENERAL_NAMES_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(GENERAL_NAME, GENERAL_NAME_free)

static bool openssl_error(GError **error, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    vj_error_set(error, EIO, "%s: %s", what,
                 reason != NULL ? reason : "refused by OpenSSL");
    ERR_clear_error();
    return false;
}

/* ---- files ------------------------------------------------------------------------- */

/* What is in @bio becomes a file. */
static bool write_bio(int dir_fd, const char *name, BIO *bio, mode_t mode, GError **error)
{
    char *text;
    long len = BIO_get_mem_data(bio, &text);

    return len > 0 ? vj_credential_write(dir_fd, name, text, (size_t)len, mode, error)
                   : openssl_error(error, name);
}

/* NAME-key.pem, then NAME.pem; none of the two where one is there already. */
static bool write_pair(int dir_fd, const char *name, X509 *certificate, EVP_PKEY *key,
                       GError **error)
{
    g_autoptr(BIO) public_text = BIO_new(BIO_s_mem());
    g_autoptr(BIO) secret_text = BIO_new(BIO_s_secmem());
    g_autofree char *public_name = g_strconcat(name, ".pem", NULL);
    g_autofree char *secret_name = g_strconcat(name, KEY_SUFFIX ".pem", NULL);

    if (public_text == NULL || secret_text == NULL ||
        PEM_write_bio_X509(public_text, certificate) != 1 ||
        PEM_write_bio_PrivateKey(secret_text, key, NULL, NULL, 0, NULL, NULL) != 1) {
        return openssl_error(error, name);
    }
    if (vj_fd_has(dir_fd, public_name)) {
        return vj_error_set_errno(error, EEXIST, "%s", public_name);
    }
    if (!write_bio(dir_fd, secret_name, secret_text, 0600, error)) {
        return false;
    }
    if (!write_bio(dir_fd, public_name, public_text, 0644, error)) {
        unlinkat(dir_fd, secret_name, 0);
        return false;
    }
    return fsync(dir_fd) == 0 || vj_error_set_errno(error, errno, "%s", name);
}

/* A file of the CA's, for a decoder of PEM; NULL with @error. */
static BIO *open_pem(int dir_fd, const char *name, bool is_secret, char **text,
                     size_t *len, GError **error)
{
    *text =
        vj_credential_read(dir_fd, name, is_secret, VJ_CREDENTIAL_FILE_MAX, len, error);
    return *text != NULL ? BIO_new_mem_buf(*text, (int)*len) : NULL;
}

static bool load_ca(int dir_fd, X509 **certificate, EVP_PKEY **key, GError **error)
{
    static const char public_name[] = VJ_CA_FILE ".pem";
    static const char secret_name[] = VJ_CA_FILE KEY_SUFFIX ".pem";
    char *public_text = NULL, *secret_text = NULL;
    size_t public_len = 0, secret_len = 0;
    g_autoptr(BIO) from_public =
        open_pem(dir_fd, public_name, false, &public_text, &public_len, error);
    g_autoptr(BIO) from_secret =
        from_public != NULL
            ? open_pem(dir_fd, secret_name, true, &secret_text, &secret_len, error)
            : NULL;
    bool done = false;

    if (from_secret != NULL) {
        *certificate = PEM_read_bio_X509(from_public, NULL, NULL, (void *)"");
        *key = PEM_read_bio_PrivateKey(from_secret, NULL, NULL, (void *)"");
        done = *certificate != NULL && *key != NULL &&
               X509_check_private_key(*certificate, *key) == 1;
        if (!done) {
            vj_error_set(error, EINVAL, "%s and %s are not those of a CA", public_name,
                         secret_name);
            ERR_clear_error();
        }
    } else {
        vj_error_prefix(error, "the CA");
    }
    vj_credential_free(public_text, public_len);
    vj_credential_free(secret_text, secret_len);
    return done;
}

/* ---- certificates ------------------------------------------------------------------ */

static bool set_serial(X509 *x)
{
    g_autoptr(BIGNUM) number = BN_new();

    return number != NULL &&
           BN_rand(number, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
           BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x)) != NULL;
}

static bool set_subject(X509 *x, const char *name)
{
    return X509_NAME_add_entry_by_NID(X509_get_subject_name(x), NID_commonName,
                                      MBSTRING_UTF8, (const unsigned char *)name, -1, -1,
                                      0) == 1;
}

/* What each certificate has, but for its names and purposes. */
static X509 *certificate_new(EVP_PKEY *key, const char *name,
                             const VjCertificateTimes *times)
{
    g_autoptr(X509) x = X509_new();
    time_t begins = (time_t)times->begins_s, ends = (time_t)times->ends_s;

    if (x == NULL || X509_set_version(x, X509_VERSION_3) != 1 || !set_serial(x) ||
        ASN1_TIME_adj(X509_getm_notBefore(x), begins, 0, 0) == NULL ||
        ASN1_TIME_adj(X509_getm_notAfter(x), ends, 0, 0) == NULL ||
        X509_set_pubkey(x, key) != 1 || !set_subject(x, name)) {
        return NULL;
    }
    return g_steal_pointer(&x);
}

static bool add_constraints(X509 *x, bool is_ca)
{
    BASIC_CONSTRAINTS *constraints = BASIC_CONSTRAINTS_new();
    ASN1_BIT_STRING *usage = ASN1_BIT_STRING_new();
    bool done = false;

    if (constraints != NULL && usage != NULL) {
        constraints->ca = is_ca ? 0xff : 0;
        if (is_ca) {
            constraints->pathlen = ASN1_INTEGER_new(); /* 0: it signs no other CA */
        }
        /* RFC 5280, 4.2.1.3: 0 digitalSignature, 5 keyCertSign, 6 cRLSign */
        done = (!is_ca || constraints->pathlen != NULL) &&
               ASN1_BIT_STRING_set_bit(usage, is_ca ? 5 : 0, 1) == 1 &&
               (!is_ca || ASN1_BIT_STRING_set_bit(usage, 6, 1) == 1) &&
               X509_add1_ext_i2d(x, NID_basic_constraints, constraints, 1, 0) == 1 &&
               X509_add1_ext_i2d(x, NID_key_usage, usage, 1, 0) == 1;
    }
    BASIC_CONSTRAINTS_free(constraints);
    ASN1_BIT_STRING_free(usage);
    return done;
}

/* The identifiers by which a chain is found: of its own key, and of the issuer's. */
static bool add_key_ids(X509 *x, const X509 *issuer)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len;
    ASN1_OCTET_STRING *own = ASN1_OCTET_STRING_new();
    AUTHORITY_KEYID *authority = AUTHORITY_KEYID_new();
    const ASN1_OCTET_STRING *of_issuer;
    bool done;

    done = own != NULL && authority != NULL &&
           X509_pubkey_digest(x, EVP_sha1(), digest, &len) == 1 &&
           ASN1_OCTET_STRING_set(own, digest, (int)len) == 1 &&
           X509_add1_ext_i2d(x, NID_subject_key_identifier, own, 0, 0) == 1;
    of_issuer = done ? X509_get0_subject_key_id((X509 *)issuer) : NULL;
    if (of_issuer != NULL) {
        authority->keyid = ASN1_OCTET_STRING_dup(of_issuer);
        done = authority->keyid != NULL &&
               X509_add1_ext_i2d(x, NID_authority_key_identifier, authority, 0, 0) == 1;
    }
    ASN1_OCTET_STRING_free(own);
    AUTHORITY_KEYID_free(authority);
    return done;
}

static bool add_purpose(X509 *x, VjCertificateKind kind)
{
    EXTENDED_KEY_USAGE *purposes = sk_ASN1_OBJECT_new_null();
    ASN1_OBJECT *purpose =
        OBJ_nid2obj(kind == VJ_CERTIFICATE_NODE ? NID_server_auth : NID_client_auth);
    bool done = purposes != NULL && purpose != NULL &&
                sk_ASN1_OBJECT_push(purposes, purpose) > 0 &&
                X509_add1_ext_i2d(x, NID_ext_key_usage, purposes, 0, 0) == 1;

    sk_ASN1_OBJECT_pop_free(purposes, ASN1_OBJECT_free);
    return done;
}

static GENERAL_NAME *name_new(const char *name)
{
    g_autoptr(GENERAL_NAME) one = GENERAL_NAME_new();
    ASN1_OCTET_STRING *ip = a2i_IPADDRESS(name);

    if (ip == NULL) {
        ERR_clear_error();
    }
    if (one == NULL) {
        ASN1_OCTET_STRING_free(ip);
        return NULL;
    }
    if (ip != NULL) {
        GENERAL_NAME_set0_value(one, GEN_IPADD, ip);
    } else {
        ASN1_IA5STRING *dns = ASN1_IA5STRING_new();

        if (dns == NULL || ASN1_STRING_set(dns, name, -1) != 1) {
            ASN1_IA5STRING_free(dns);
            return NULL;
        }
        GENERAL_NAME_set0_value(one, GEN_DNS, dns);
    }
    return g_steal_pointer(&one);
}

static bool add_names(X509 *x, const char *const *names)
{
    g_autoptr(GENERAL_NAMES) all = GENERAL_NAMES_new();

    if (all == NULL) {
        return false;
    }
    for (size_t i = 0; names[i] != NULL; i++) {
        GENERAL_NAME *one = name_new(names[i]);

        if (one == NULL || sk_GENERAL_NAME_push(all, one) <= 0) {
            GENERAL_NAME_free(one);
            return false;
        }
    }
    return X509_add1_ext_i2d(x, NID_subject_alt_name, all, 0, 0) == 1;
}

/* ---- public ------------------------------------------------------------------------ */

bool vj_certificate_make_ca(int dir_fd, const char *name, const VjCertificateTimes *times,
                            GError **error)
{
    g_autoptr(EVP_PKEY) key = EVP_EC_gen(CURVE);
    g_autoptr(X509) x = NULL;

    if (*name == '\0' || strlen(name) > VJ_CERTIFICATE_NAME_MAX ||
        !g_utf8_validate(name, -1, NULL)) {
        return vj_error_set(error, EINVAL, "\"%s\" is no name of a CA", name);
    }
    x = key != NULL ? certificate_new(key, name, times) : NULL;
    if (x == NULL || X509_set_issuer_name(x, X509_get_subject_name(x)) != 1 ||
        !add_constraints(x, true) || !add_key_ids(x, x) ||
        X509_sign(x, key, EVP_sha256()) <= 0) {
        return openssl_error(error, "a certificate of a CA");
    }
    return write_pair(dir_fd, VJ_CA_FILE, x, key, error);
}

static bool check_name(const char *name, GError **error)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < len; i++) {
        if (!g_ascii_isalnum(name[i]) && strchr(i == 0 ? ":" : "._:-", name[i]) == NULL) {
            len = 0;
        }
    }
    return (len > 0 && len <= VJ_CERTIFICATE_NAME_MAX) ||
           vj_error_set(error, EINVAL,
                        "\"%s\" is no name: letters, digits, and . _ : - behind the "
                        "first, at most %u",
                        name, VJ_CERTIFICATE_NAME_MAX);
}

static bool check_names(const char *const *names, GError **error)
{
    size_t count = 0;

    for (; names[count] != NULL; count++) {
        if (count == VJ_CERTIFICATE_NAMES_MAX) {
            return vj_error_set(error, E2BIG, "more than %u names",
                                VJ_CERTIFICATE_NAMES_MAX);
        }
        if (!check_name(names[count], error)) {
            return false;
        }
    }
    g_assert(count > 0);
    /* The files of one name are those of no other. */
    return !g_str_has_suffix(names[0], KEY_SUFFIX) ||
           vj_error_set(error, EINVAL, "\"%s\": a first name does not end with \"%s\"",
                        names[0], KEY_SUFFIX);
}

bool vj_certificate_make(int dir_fd, VjCertificateKind kind, const char *const *names,
                         const VjCertificateTimes *times, GError **error)
{
    g_autoptr(X509) ca = NULL;
    g_autoptr(EVP_PKEY) ca_key = NULL;
    g_autoptr(EVP_PKEY) key = NULL;
    g_autoptr(X509) x = NULL;

    if (!check_names(names, error) || !load_ca(dir_fd, &ca, &ca_key, error)) {
        return false;
    }
    key = EVP_EC_gen(CURVE);
    x = key != NULL ? certificate_new(key, names[0], times) : NULL;
    if (x == NULL || X509_set_issuer_name(x, X509_get_subject_name(ca)) != 1 ||
        !add_constraints(x, false) || !add_key_ids(x, ca) || !add_purpose(x, kind) ||
        (kind == VJ_CERTIFICATE_NODE && !add_names(x, names)) ||
        X509_sign(x, ca_key, EVP_sha256()) <= 0) {
        return openssl_error(error, names[0]);
    }
    return write_pair(dir_fd, names[0], x, key, error);
}
