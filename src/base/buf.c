/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * buf.c - reference-counted memory
 *
 * A small buffer is one allocation, header and bytes together; one that may go to a
 * device (cap >= VJ_BUF_ALIGN) keeps its bytes apart, aligned.  Buffers are sized by
 * requests and files, so every allocation here may fail and says so with NULL.
 */
#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>

G_STATIC_ASSERT(sizeof(VjBuf) % 16 == 0);

static _Atomic uint64_t total_bytes;

static bool lives_apart(size_t cap)
{
    return cap >= VJ_BUF_ALIGN;
}

VjBuf *vj_buf_new(size_t cap)
{
    size_t whole;
    VjBuf *b;

    if (!vj_add_size(sizeof(VjBuf), cap, &whole) || whole > PTRDIFF_MAX) {
        return NULL; /* no object of C is longer */
    }
    b = malloc(lives_apart(cap) ? sizeof(VjBuf) : whole);
    if (b == NULL) {
        return NULL;
    }
    b->data = (uint8_t *)(b + 1);
    if (lives_apart(cap)) {
        void *data = NULL;

        if (posix_memalign(&data, VJ_BUF_ALIGN, cap) != 0) {
            free(b);
            return NULL;
        }
        b->data = data;
    }
    b->cap = cap;
    b->len = 0;
    b->refs = 1;
    atomic_fetch_add_explicit(&total_bytes, whole, memory_order_relaxed);
    return b;
}

VjBuf *vj_buf_new_copy(const void *src, size_t len)
{
    VjBuf *b = vj_buf_new(len);

    if (b == NULL) {
        return NULL;
    }
    if (len > 0) {
        memcpy(b->data, src, len);
    }
    b->len = len;
    return b;
}

VjBuf *vj_buf_ref(VjBuf *b)
{
    g_assert(b != NULL);
    g_atomic_int_inc(&b->refs);
    return b;
}

void vj_buf_unref(VjBuf *b)
{
    if (b == NULL || !g_atomic_int_dec_and_test(&b->refs)) {
        return;
    }
    g_assert(b->len <= b->cap);
    atomic_fetch_sub_explicit(&total_bytes, sizeof(VjBuf) + b->cap, memory_order_relaxed);
    if (lives_apart(b->cap)) {
        free(b->data);
    }
    free(b);
}

uint64_t vj_buf_total_bytes(void)
{
    return atomic_load_explicit(&total_bytes, memory_order_relaxed);
}
