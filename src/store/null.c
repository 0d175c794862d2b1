/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * null.c - the driver that keeps nothing, for measuring what stands above it
 *
 * Durability: none.  put() forgets the bytes, get() finds no object, each() visits none;
 * memory does not grow with the number of puts.  A file system on it loses every file
 * that does not live in the metadata.  Limits: none but those of the interface.
 */
#include "store/store-private.h"

typedef struct NullStore {
    VjStore base;
    bool read_only;
    uint64_t size_bytes;
    uint64_t puts; /* atomic; the next locator */
} NullStore;

static bool null_open(VjStore *s, const VjStorePlace *place, const VjOpts *opts,
                      GError **error)
{
    NullStore *n = (NullStore *)s;

    (void)error;
    n->read_only = place->read_only;
    n->size_bytes = vj_opts_number(opts, "size");
    return true;
}

static void null_close(VjStore *s)
{
    (void)s;
}

static VjLoc null_loc_of_nonce(VjStore *s, uint64_t nonce)
{
    VjLoc loc = {0};

    (void)s;
    vj_be64_set(loc.bytes, nonce);
    return loc;
}

static bool null_nonce_of_loc(VjStore *s, VjLoc loc, uint64_t *nonce)
{
    (void)s;
    *nonce = vj_be64_get(loc.bytes);
    return vj_be64_get(loc.bytes + 8) == 0;
}

static int null_length(VjStore *s, uint64_t id, VjLoc loc, uint64_t *stored_bytes)
{
    (void)s, (void)id, (void)loc, (void)stored_bytes;
    return -ENOENT;
}

static int null_put_as(VjStore *s, uint64_t id, uint64_t nonce, const struct iovec *iov,
                       int iov_count, VjPut *out)
{
    if (((const NullStore *)s)->read_only) {
        return -EROFS;
    }
    *out = (VjPut){.id = id,
                   .loc = null_loc_of_nonce(s, nonce),
                   .stored_bytes = vj_store_iov_bytes(iov, iov_count)};
    return 0;
}

static int null_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                    VjPut *out)
{
    NullStore *n = (NullStore *)s;

    return null_put_as(s, id, __atomic_add_fetch(&n->puts, 1, __ATOMIC_RELAXED), iov,
                       iov_count, out);
}

static int null_get(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                    size_t len)
{
    (void)s, (void)id, (void)loc, (void)offset, (void)dst, (void)len;
    return -ENOENT;
}

static int null_remove(VjStore *s, uint64_t id, VjLoc loc)
{
    const NullStore *n = (const NullStore *)s;

    (void)id, (void)loc;
    return n->read_only ? -EROFS : 0;
}

static int null_flush(VjStore *s)
{
    (void)s;
    return 0;
}

static int null_each(VjStore *s, uint64_t first_id, uint64_t last_id, VjStoreVisit *visit,
                     void *opaque)
{
    (void)s, (void)first_id, (void)last_id, (void)visit, (void)opaque;
    return 0;
}

static int null_space(VjStore *s, VjStoreSpace *out)
{
    const NullStore *n = (const NullStore *)s;

    *out = (VjStoreSpace){.total_bytes = n->size_bytes,
                          .free_bytes = n->size_bytes,
                          .available_bytes = n->size_bytes,
                          .available_objects = UINT64_MAX};
    return 0;
}

static const VjOptSpec null_options[] = {
    {.name = "size",
     .type = VJ_OPT_SIZE,
     .fallback = "1024T",
     .min = 1,
     .max = (uint64_t)1 << 50,
     .help = "bytes that the store claims to have, all of them free"},
    {.name = NULL},
};

const VjStoreOps vj_store_null_ops = {
    .name = "null",
    .options = null_options,
    .instance_size = sizeof(NullStore),
    .align_bytes = 1,
    .is_shareable = true,
    .open = null_open,
    .close = null_close,
    .put = null_put,
    .put_as = null_put_as,
    .loc_of_nonce = null_loc_of_nonce,
    .nonce_of_loc = null_nonce_of_loc,
    .length = null_length,
    .get = null_get,
    .remove = null_remove,
    .flush = null_flush,
    .each = null_each,
    .space = null_space,
};
