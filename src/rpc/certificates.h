/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * certificates.h - a CA of a lab, and what it signs: varjfsctl keygen
 *
 * No more than what the peers of a volume need to believe each other; who has a CA
 * already uses that.  Keys are those of P-256.  Files are new ones, and never replaced:
 * NAME.pem, and NAME-key.pem, which nobody but its owner may read.
 *
 * Threads: any; they write files.  Locks: none.
 */
#ifndef VJ_RPC_CERTIFICATES_H
#define VJ_RPC_CERTIFICATES_H

#include "base/base.h"

/* The names of the files of a CA begin so. */
#define VJ_CA_FILE "ca"
/* Of a common name, bytes (X.520). */
#define VJ_CERTIFICATE_NAME_MAX 64u
#define VJ_CERTIFICATE_NAMES_MAX 64u

typedef enum VjCertificateKind {
    VJ_CERTIFICATE_NODE,   /* of a server: its names are what clients connect to */
    VJ_CERTIFICATE_CLIENT, /* its name is what a server knows the client by */
} VjCertificateKind;

typedef struct VjCertificateTimes {
    int64_t begins_s, ends_s; /* of the wall clock */
} VjCertificateTimes;

/* VJ_CA_FILE.pem and VJ_CA_FILE-key.pem in @dir_fd, for certificates of @name. */
bool vj_certificate_make_ca(int dir_fd, const char *name, const VjCertificateTimes *times,
                            GError **error);

/*
 * vj_certificate_make - one that the CA in @dir_fd signs
 *
 * @names    DNS names or IP addresses, ends with NULL; the first is the common name, and
 *           that of the files: letters, digits, ':', and "._-" behind the first
 * Returns   false with @error: -EEXIST there is such a file; -EINVAL a name is none
 */
bool vj_certificate_make(int dir_fd, VjCertificateKind kind, const char *const *names,
                         const VjCertificateTimes *times, GError **error);

#endif
