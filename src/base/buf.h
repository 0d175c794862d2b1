/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * buf.h - reference-counted memory, aligned for direct I/O
 *
 * A buffer is written by one owner; from the moment a second reference exists the bytes
 * below @len that both know are read-only.  Threads: ref/unref any; writing by the owner
 * alone.  Locks: none (the count is atomic).
 */
#ifndef VJ_BASE_BUF_H
#define VJ_BASE_BUF_H

#define VJ_BUF_ALIGN 4096u

typedef struct VjBuf {
    uint8_t *data; /* aligned to VJ_BUF_ALIGN when cap >= VJ_BUF_ALIGN, else to 16 */
    size_t cap;    /* bytes */
    size_t len;    /* bytes in use, kept by the owner */
    gint refs;     /* vj_buf_ref, vj_buf_unref alone */
} VjBuf;

/* Returns owned, len 0, contents undefined; NULL when memory is short (failing
 * allocator). */
VjBuf *vj_buf_new(size_t cap);
/* Returns owned with a copy of the bytes, len set; NULL when memory is short. */
VjBuf *vj_buf_new_copy(const void *src, size_t len);
VjBuf *vj_buf_ref(VjBuf *b);
void vj_buf_unref(VjBuf *b); /* NULL is fine */

/* Bytes that all buffers of the process hold (cap and header). */
uint64_t vj_buf_total_bytes(void);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjBuf, vj_buf_unref)

#endif
