/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * slab.c - see slab-private.h
 */
#include "file/slab-private.h"

#include <sys/mman.h>

#define SLAB_BYTES (VJ_SLAB_BLOCKS * VJ_BUDGET_BLOCK_ALLOCATED)
/* A slab begins at a multiple of this, as huge pages of 2 MiB do; where they are larger,
 * the kernel may find no place for one. */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define ALL_FREE ((1u << VJ_SLAB_BLOCKS) - 1)

struct VjSlab {
    uint8_t *mapping; /* of SLAB_BYTES + HUGE_PAGE_BYTES, of which blocks begin at base */
    uint8_t *base;
    uint32_t free; /* a bit for each block */
};

VjSlab *vj_slab_new(bool huge)
{
    VjSlab *s = g_try_malloc(sizeof *s);
    uint8_t *mapping;

    if (s == NULL) {
        return NULL;
    }
    mapping = mmap(NULL, SLAB_BYTES + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        g_free(s);
        return NULL;
    }
    *s = (VjSlab){.mapping = mapping,
                  .base =
                      mapping + (HUGE_PAGE_BYTES - (uintptr_t)mapping % HUGE_PAGE_BYTES),
                  .free = ALL_FREE};
#ifdef MADV_HUGEPAGE
    if (huge) {
        /* A kernel without them has small ones. */
        (void)madvise(s->base, SLAB_BYTES, MADV_HUGEPAGE);
    }
#else
    (void)huge;
#endif
    return s;
}

void vj_slab_free(VjSlab *s)
{
    g_assert(s->free == ALL_FREE);
    if (munmap(s->mapping, SLAB_BYTES + HUGE_PAGE_BYTES) != 0) {
        vj_log_warn("memory of a stream is not given back: %s", g_strerror(errno));
    }
    g_free(s);
}

void *vj_slab_take(VjSlab *s)
{
    unsigned i;

    if (s->free == 0) {
        return NULL;
    }
    i = (unsigned)__builtin_ctz(s->free);
    s->free &= ~(1u << i);
    return s->base + i * VJ_BUDGET_BLOCK_ALLOCATED;
}

bool vj_slab_has(const VjSlab *s, const void *block)
{
    const uint8_t *at = block;

    return at >= s->base && at < s->base + SLAB_BYTES;
}

bool vj_slab_give(VjSlab *s, void *block)
{
    size_t offset = (size_t)((uint8_t *)block - s->base);
    uint32_t bit = 1u << offset / VJ_BUDGET_BLOCK_ALLOCATED;

    g_assert(vj_slab_has(s, block) && offset % VJ_BUDGET_BLOCK_ALLOCATED == 0);
    g_assert((s->free & bit) == 0);
    s->free |= bit;
    return s->free == ALL_FREE;
}

void vj_slab_drop_pages(void *block)
{
    if (madvise(block, VJ_BUDGET_BLOCK_ALLOCATED, MADV_DONTNEED) != 0) {
        vj_log_warn("memory of a stream is not given back: %s", g_strerror(errno));
    }
}
