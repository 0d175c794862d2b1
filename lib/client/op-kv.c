/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * op-kv.c - operations on keys
 */
#include "client-private.h"

int varjfs_kv_put(varjfs_batch *b, const char *space, const void *key, size_t key_len,
                  const void *value, size_t len, unsigned flags, int *result)
{
    VjcOperation *op;
    int rc =
        (value == NULL && len > 0) || (flags & ~VARJFS_EXCLUSIVE) != 0
            ? -EINVAL
            : vjc_batch_add(b, VARJFS_WIRE_KEY_PUT, space, key, key_len, result, &op);

    if (rc == 0 && len > VARJFS_VALUE_MAX) {
        rc = -EFBIG;
    }
    if (rc == 0) {
        op->flags = (uint8_t)flags;
        op->src = value;
        op->len = len;
        vjc_batch_added(b);
    }
    return rc;
}

int varjfs_kv_get(varjfs_batch *b, const char *space, const void *key, size_t key_len,
                  void *dst, size_t cap, size_t *len, int *result)
{
    VjcOperation *op;
    int rc = dst == NULL && cap > 0 ? -EINVAL
                                    : vjc_batch_add(b, VARJFS_WIRE_KEY_GET, space, key,
                                                    key_len, result, &op);

    if (rc == 0) {
        op->dst = dst;
        op->len = cap < VARJFS_VALUE_MAX ? cap : VARJFS_VALUE_MAX;
        op->got = len;
        vjc_batch_added(b);
    }
    return rc;
}

int varjfs_kv_delete(varjfs_batch *b, const char *space, const void *key, size_t key_len,
                     int *result)
{
    VjcOperation *op;
    int rc = vjc_batch_add(b, VARJFS_WIRE_KEY_DELETE, space, key, key_len, result, &op);

    if (rc == 0) {
        vjc_batch_added(b);
    }
    return rc;
}
