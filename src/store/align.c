/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * align.c - what a driver wants of buffers, offsets and lengths
 */
#include "store/store-private.h"

uint32_t vj_store_align_bytes(VjStore *s)
{
    g_assert(s != NULL);
    return s->align_bytes;
}

size_t vj_store_room_bytes(size_t len)
{
    g_assert(len <= VJ_STORE_OBJECT_MAX + VJ_BUF_ALIGN);
    return MAX(len + VJ_BUF_ALIGN - 1, VJ_BUF_ALIGN) / VJ_BUF_ALIGN * VJ_BUF_ALIGN;
}

void vj_store_gather(VjBuf *buf, const struct iovec *iov, int iov_count)
{
    g_assert(buf->len == 0);
    for (int i = 0; i < iov_count; i++) {
        if (iov[i].iov_len > 0) {
            memcpy(buf->data + buf->len, iov[i].iov_base, iov[i].iov_len);
            buf->len += iov[i].iov_len;
        }
    }
    memset(buf->data + buf->len, 0, buf->cap - buf->len);
}
