/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * digest.c - BLAKE3, OpenSSL's SHA-256 and SHA-1, XXH3
 *
 * The only file that knows these libraries, but for digest-avx2.c.  The SHA contexts are
 * kept per thread and algorithm: OpenSSL allocates inside each new one, and a digest is
 * taken of every object.
 */
#include "base/base.h"

#include "base/digest-private.h"

#ifdef HAVE_BLAKE3
#include <blake3.h>
#endif
#include <openssl/evp.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef HAVE_BLAKE3
static int hash_blake3(const struct iovec *iov, int iov_count, VjDigest *out)
{
    blake3_hasher hasher;

    blake3_hasher_init(&hasher);
    for (int i = 0; i < iov_count; i++) {
        blake3_hasher_update(&hasher, iov[i].iov_base, iov[i].iov_len);
    }
    blake3_hasher_finalize(&hasher, out->bytes, VJ_DIGEST_MAX_BYTES);
    return 0;
}
#endif

static void free_context(gpointer context)
{
    EVP_MD_CTX_free(context);
}

/* This thread's context behind @key; NULL when memory is short. */
static EVP_MD_CTX *thread_context(GPrivate *key)
{
    EVP_MD_CTX *context = g_private_get(key);

    if (context == NULL) {
        context = EVP_MD_CTX_new();
        g_private_set(key, context);
    }
    return context;
}

static int hash_evp(EVP_MD_CTX *context, const EVP_MD *md, const struct iovec *iov,
                    int iov_count, VjDigest *out)
{
    if (context == NULL || md == NULL || EVP_DigestInit_ex(context, md, NULL) != 1) {
        return -EIO;
    }
    for (int i = 0; i < iov_count; i++) {
        if (EVP_DigestUpdate(context, iov[i].iov_base, iov[i].iov_len) != 1) {
            return -EIO;
        }
    }
    return EVP_DigestFinal_ex(context, out->bytes, NULL) == 1 ? 0 : -EIO;
}

static int hash_sha256(const struct iovec *iov, int iov_count, VjDigest *out)
{
    static GPrivate key = G_PRIVATE_INIT(free_context);
    static gsize md; /* const EVP_MD *: fetched once, kept for the life of the process */

    if (g_once_init_enter(&md)) {
        const EVP_MD *fetched = EVP_MD_fetch(NULL, "SHA256", NULL);

        g_once_init_leave(&md, (gsize)(fetched != NULL ? fetched : EVP_sha256()));
    }
    return hash_evp(thread_context(&key), (const EVP_MD *)md, iov, iov_count, out);
}

static int hash_sha1(const struct iovec *iov, int iov_count, VjDigest *out)
{
    static GPrivate key = G_PRIVATE_INIT(free_context);
    static gsize md; /* as in hash_sha256 */

    if (g_once_init_enter(&md)) {
        const EVP_MD *fetched = EVP_MD_fetch(NULL, "SHA1", NULL);

        g_once_init_leave(&md, (gsize)(fetched != NULL ? fetched : EVP_sha1()));
    }
    return hash_evp(thread_context(&key), (const EVP_MD *)md, iov, iov_count, out);
}

/* In order of preference; a row without hash() is known to the format, not to this build.
 */
static const VjDigestOps digests[] = {
#ifdef HAVE_BLAKE3
    {"blake3", VJ_DIGEST_BLAKE3, 32, hash_blake3},
#else
    {"blake3", VJ_DIGEST_BLAKE3, 32, NULL},
#endif
    {"sha256", VJ_DIGEST_SHA256, 32, hash_sha256},
    {"sha1", VJ_DIGEST_SHA1, 20, hash_sha1},
};

static const VjDigestOps *found(const VjDigestOps *row, bool *is_known)
{
    *is_known = row != NULL;
    return row != NULL && row->hash != NULL ? row : NULL;
}

const VjDigestOps *vj_digest_by_id(uint8_t id, bool *is_known)
{
    for (size_t i = 0; i < G_N_ELEMENTS(digests); i++) {
        if (digests[i].id == id) {
            return found(&digests[i], is_known);
        }
    }
    return found(NULL, is_known);
}

const VjDigestOps *vj_digest_by_name(const char *name, bool *is_known)
{
    for (size_t i = 0; i < G_N_ELEMENTS(digests); i++) {
        if (strcmp(digests[i].name, name) == 0) {
            return found(&digests[i], is_known);
        }
    }
    return found(NULL, is_known);
}

const VjDigestOps *vj_digest_default(void)
{
    return digests[0].hash != NULL ? &digests[0] : &digests[1];
}

int vj_digest_hash(const VjDigestOps *ops, const struct iovec *iov, int iov_count,
                   VjDigest *out)
{
    g_assert(ops != NULL && ops->hash != NULL);
    g_assert(iov_count >= 0 && (iov != NULL || iov_count == 0));
    memset(out, 0, sizeof *out);
    return ops->hash(iov, iov_count, out);
}

/* What is shorter takes no loop that vectors make faster. */
#define VECTOR_BYTES_MIN 256u

#ifdef VJ_CHECKSUM_AVX2
static bool goes_by_avx2(size_t len)
{
    return len >= VECTOR_BYTES_MIN && __builtin_cpu_supports("avx2");
}
#endif

uint64_t vj_checksum64_plain(const void *src, size_t len)
{
    return XXH3_64bits(src, len);
}

uint64_t vj_checksum64(const void *src, size_t len)
{
#ifdef VJ_CHECKSUM_AVX2
    if (goes_by_avx2(len)) {
        return vj_checksum64_avx2(src, len);
    }
#endif
    return vj_checksum64_plain(src, len);
}

G_STATIC_ASSERT(sizeof(VjChecksum) >= sizeof(XXH3_state_t));
G_STATIC_ASSERT(_Alignof(VjChecksum) >= _Alignof(XXH3_state_t));

void vj_checksum_init(VjChecksum *c)
{
    XXH_errorcode failed;

    XXH3_INITSTATE((XXH3_state_t *)(void *)c->state);
    failed = XXH3_64bits_reset((XXH3_state_t *)(void *)c->state);
    g_assert(failed == XXH_OK);
}

void vj_checksum_add_plain(void *state, const void *src, size_t len)
{
    XXH_errorcode failed = XXH3_64bits_update(state, src, len);

    g_assert(failed == XXH_OK);
}

void vj_checksum_add(VjChecksum *c, const void *src, size_t len)
{
#ifdef VJ_CHECKSUM_AVX2
    if (goes_by_avx2(len)) {
        vj_checksum_add_avx2(c->state, src, len);
        return;
    }
#endif
    vj_checksum_add_plain(c->state, src, len);
}

uint64_t vj_checksum_get(const VjChecksum *c)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)c->state);
}
