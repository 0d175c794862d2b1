/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bounce.c - put and get of bytes that do not stand as the driver wants them
 *
 * Where the driver has no wish, or the request meets it, these are put and get
 * themselves.
 */
#include "store/store-private.h"

int vj_store_put_unaligned(VjStore *s, uint64_t id, const struct iovec *iov,
                           int iov_count, VjPut *out)
{
    uint32_t align_bytes = vj_store_align_bytes(s);
    uint64_t put_bytes = vj_store_iov_bytes(iov, iov_count);
    g_autoptr(VjBuf) bounce = NULL;
    struct iovec whole;

    if (align_bytes == 1) {
        return vj_store_put(s, id, iov, iov_count, out);
    }
    /* Even when all is aligned: whether there is room behind the last piece is not known.
     */
    bounce = vj_buf_new(vj_store_room_bytes(put_bytes));
    if (bounce == NULL) {
        return -ENOMEM;
    }
    vj_store_gather(bounce, iov, iov_count);
    whole = (struct iovec){.iov_base = bounce->data, .iov_len = bounce->len};
    return vj_store_put_held(s, id, bounce, &whole, 1, out);
}

int vj_store_get_unaligned(VjStore *s, uint64_t id, VjLoc loc, uint64_t offset, void *dst,
                           size_t len)
{
    uint32_t align_bytes = vj_store_align_bytes(s);
    size_t skip = offset & (align_bytes - 1);
    g_autoptr(VjBuf) bounce = NULL;
    int result;

    if ((((uintptr_t)dst | offset | len) & (align_bytes - 1)) == 0) {
        return vj_store_get(s, id, loc, offset, dst, len);
    }
    g_assert(offset <= VJ_STORE_OBJECT_MAX && len <= VJ_STORE_OBJECT_MAX - offset);
    bounce = vj_buf_new(vj_store_room_bytes(skip + len));
    if (bounce == NULL) {
        return -ENOMEM;
    }
    result = vj_store_get(s, id, loc, offset - skip, bounce->data, skip + len);
    if (result == 0 && len > 0) {
        memcpy(dst, bounce->data + skip, len);
    }
    return result;
}
