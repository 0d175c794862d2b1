/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * credentials-private.h - what credentials.c has loaded and tls.c uses
 */
#ifndef VJ_RPC_CREDENTIALS_PRIVATE_H
#define VJ_RPC_CREDENTIALS_PRIVATE_H

#include <openssl/ssl.h>

#include "base/base.h"
#include "rpc/rpc.h"

/* Of the peers' application protocol (RFC 7301): a certificate that the same CA made for
 * another service, and a peer of another protocol, are of no use here. */
#define VJ_TLS_PROTOCOL "varjfs"

/* Of a file with certificates, or with the private key of one; bytes. */
#define VJ_CREDENTIAL_FILE_MAX ((size_t)256 << 10)

/* Does not change once it is loaded, but for refs. */
struct VjCredentials {
    gint refs;
    bool is_server;
    bool is_insecure; /* then there is nothing else */
    SSL_CTX *context;
    /* Of a client; identity NULL: it has a certificate. */
    VjKey256 key;
    char *identity;
    /* Of a server; NULL: it takes no keys. */
    VjCredentialsFind *find;
    void *opaque;
    VjKey256 decoy; /* taken for the key of identities that are not there */
};

/* tls.c: the callbacks of contexts, by the two sides. */
int vj_tls_use_key(SSL *ssl, const EVP_MD *digest, const unsigned char **identity,
                   size_t *identity_len, SSL_SESSION **out);
int vj_tls_find_key(SSL *ssl, const unsigned char *identity, size_t identity_len,
                    SSL_SESSION **out);

/* key-file.c: a whole file, of at most @max bytes, NUL-terminated, to be given back by
 * vj_credential_free; NULL with @error.  @is_secret: nobody but the owner may read it. */
char *vj_credential_read(int dir_fd, const char *path, bool is_secret, size_t max,
                         size_t *len, GError **error);
void vj_credential_free(char *text, size_t len); /* NULL is fine */
/* A new file, durable but for its name; false with @error, and no file: EEXIST. */
bool vj_credential_write(int dir_fd, const char *path, const char *src, size_t len,
                         mode_t mode, GError **error);

#endif
