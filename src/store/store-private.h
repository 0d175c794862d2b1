/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * store-private.h - what the files of the room share, and what its own tests look at
 */
#ifndef VJ_STORE_STORE_PRIVATE_H
#define VJ_STORE_STORE_PRIVATE_H

#include "store/store.h"

extern const VjStoreOps vj_store_posix_ops;
extern const VjStoreOps vj_store_null_ops;
extern const VjStoreOps vj_store_memory_ops;
extern const VjStoreOps vj_store_aligned_ops;

/* Wrappers: open() gets a NULL place, and s->next is set before it. */
extern const VjStoreOps vj_store_fault_ops;
extern const VjStoreOps vj_store_stats_ops;

/* The first store of @s's chain whose ops are @ops; NULL when there is none. */
VjStore *vj_store_find(VjStore *s, const VjStoreOps *ops);

/* Bytes of all pieces.  The caller has checked that they are at most VJ_STORE_OBJECT_MAX.
 */
static inline uint64_t vj_store_iov_bytes(const struct iovec *iov, int iov_count)
{
    uint64_t sum_bytes = 0;

    for (int i = 0; i < iov_count; i++) {
        sum_bytes += iov[i].iov_len;
    }
    return sum_bytes;
}

#endif
