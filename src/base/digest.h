/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * digest.h - names of contents
 *
 * BLAKE3-256 where the library is built in, SHA-256, SHA-1 (to match the VarFS paper).
 * Ids are on disk and never reused.  Threads: any.  Locks: none.
 */
#ifndef VJ_BASE_DIGEST_H
#define VJ_BASE_DIGEST_H

#define VJ_DIGEST_MAX_BYTES 32u

typedef enum VjDigestId {
    VJ_DIGEST_SHA1 = 1,   /* 20 bytes */
    VJ_DIGEST_SHA256 = 2, /* 32 bytes */
    VJ_DIGEST_BLAKE3 = 3, /* 32 bytes */
} VjDigestId;

/* A digest in memory; bytes beyond the algorithm's length are zero, so memcmp
 * compares. */
typedef struct VjDigest {
    uint8_t bytes[VJ_DIGEST_MAX_BYTES];
} VjDigest;

typedef struct VjDigestOps {
    const char *name; /* "blake3", "sha256", "sha1": what hash= selects */
    VjDigestId id;
    uint8_t len; /* bytes */
    /* Hash the bytes of @iov in order.  0; -EIO when the library fails. */
    int (*hash)(const struct iovec *iov, int iov_count, VjDigest *out);
} VjDigestOps;

/* NULL: unknown to the format, or known but not in this build (@is_known says which). */
const VjDigestOps *vj_digest_by_id(uint8_t id, bool *is_known);
const VjDigestOps *vj_digest_by_name(const char *name, bool *is_known);
/* BLAKE3 when built in, else SHA-256. */
const VjDigestOps *vj_digest_default(void);

int vj_digest_hash(const VjDigestOps *ops, const struct iovec *iov, int iov_count,
                   VjDigest *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
