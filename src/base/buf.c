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

/* Buffers of so many times VJ_BUF_ALIGN are kept for the thread that has freed them: what
 * is aligned costs the allocator much, and its neighbours are merged each time. */
#define KEPT_UNITS_MAX 4u
/* Of each length, by a thread: 160 KiB in all. */
#define KEPT_MAX 4u

/* A sanitizer is to see what is used after it was freed. */
#define KEEPS (!VJ_IS_SANITIZED)

static _Atomic uint64_t total_bytes;

typedef struct Kept {
    VjBuf *bufs[KEPT_UNITS_MAX][KEPT_MAX];
    unsigned counts[KEPT_UNITS_MAX];
    bool is_noticed; /* kept_free is called when the thread ends */
} Kept;

static _Thread_local Kept kept;

static bool lives_apart(size_t cap)
{
    return cap >= VJ_BUF_ALIGN;
}

static void free_one(VjBuf *b)
{
    if (lives_apart(b->cap)) {
        free(b->data);
    }
    free(b);
}

/* The thread ends. */
static void kept_free(gpointer unused)
{
    (void)unused;
    for (unsigned i = 0; i < KEPT_UNITS_MAX; i++) {
        while (kept.counts[i] > 0) {
            free_one(kept.bufs[i][--kept.counts[i]]);
        }
    }
    kept.is_noticed = false;
}

static bool may_keep(size_t cap)
{
    return KEEPS && cap > 0 && cap % VJ_BUF_ALIGN == 0 &&
           cap / VJ_BUF_ALIGN <= KEPT_UNITS_MAX;
}

static VjBuf *take_kept(size_t cap)
{
    unsigned i = (unsigned)(cap / VJ_BUF_ALIGN) - 1;

    return kept.counts[i] > 0 ? kept.bufs[i][--kept.counts[i]] : NULL;
}

/* False: enough are kept. */
static bool keep(VjBuf *b)
{
    static GPrivate at_end = G_PRIVATE_INIT(kept_free);
    unsigned i = (unsigned)(b->cap / VJ_BUF_ALIGN) - 1;

    if (kept.counts[i] == KEPT_MAX) {
        return false;
    }
    if (!kept.is_noticed) {
        kept.is_noticed = true;
        g_private_set(&at_end, &kept);
    }
    kept.bufs[i][kept.counts[i]++] = b;
    return true;
}

static VjBuf *allocate(size_t cap, size_t whole)
{
    VjBuf *b = malloc(lives_apart(cap) ? sizeof(VjBuf) : whole);

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
    return b;
}

VjBuf *vj_buf_new(size_t cap)
{
    VjBuf *b = NULL;
    size_t whole;

    if (!vj_add_size(sizeof(VjBuf), cap, &whole) || whole > PTRDIFF_MAX) {
        return NULL; /* no object of C is longer */
    }
    if (may_keep(cap)) {
        b = take_kept(cap);
    }
    if (b == NULL) {
        b = allocate(cap, whole);
    }
    if (b == NULL) {
        return NULL;
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
    if (!may_keep(b->cap) || !keep(b)) {
        free_one(b);
    }
}

uint64_t vj_buf_total_bytes(void)
{
    return atomic_load_explicit(&total_bytes, memory_order_relaxed);
}
