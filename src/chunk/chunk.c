/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * chunk.c - the wrappers around an algorithm
 *
 * They keep fed_bytes, the bytes of the chunk under way, and hold every cut against the
 * promises of chunk.h.
 */
#include "chunk/chunk-private.h"

int vj_chunker_new(const VjChunkerOps *ops, VjChunkSizes sizes, uint64_t seed,
                   VjChunker **out)
{
    g_autoptr(VjChunker) c = NULL;
    int ret;

    g_assert(ops != NULL && out != NULL);
    *out = NULL;
    if (!vj_chunk_sizes_allowed(sizes)) {
        return -EINVAL;
    }
    c = g_malloc0(sizeof *c + ops->state_size);
    c->ops = ops;
    c->sizes = sizes;
    c->seed = seed;
    c->code = vj_chunk_code_best();
    ret = ops->init(c, sizes.min_bytes, sizes.avg_bytes, sizes.max_bytes);
    g_assert(ret == 0 || ret == -EINVAL);
    if (ret == 0) {
        *out = g_steal_pointer(&c);
    }
    return ret;
}

void vj_chunker_free(VjChunker *c)
{
    g_free(c);
}

bool vj_chunker_scan(VjChunker *c, const void *src, size_t len, bool at_end,
                     uint64_t *cut)
{
    uint64_t bytes_so_far;

    g_assert(src != NULL || len == 0);
    g_assert(cut != NULL);
    bytes_so_far = c->fed_bytes + len;
    g_assert(bytes_so_far >= len);
    if (bytes_so_far == 0) {
        return false;
    }
    if (!c->ops->scan(c, src, len, at_end, cut)) {
        g_assert(!at_end);
        g_assert(bytes_so_far < c->sizes.max_bytes);
        c->fed_bytes = bytes_so_far;
        return false;
    }
    g_assert(*cut > 0 && *cut <= bytes_so_far && *cut <= c->sizes.max_bytes);
    g_assert(*cut >= c->sizes.min_bytes || (at_end && *cut == bytes_so_far));
    c->fed_bytes = 0;
    return true;
}

void vj_chunker_reset(VjChunker *c)
{
    c->fed_bytes = 0;
}

VjChunkSizes vj_chunker_sizes(const VjChunker *c)
{
    return c->sizes;
}

uint32_t vj_chunker_lookahead_bytes(const VjChunker *c)
{
    uint32_t bytes = c->ops->lookahead_bytes(c);

    g_assert(bytes < c->sizes.max_bytes);
    return bytes;
}

uint64_t vj_chunker_decision_bytes(const VjChunker *c, uint64_t cut)
{
    g_assert(cut >= c->sizes.min_bytes && cut <= c->sizes.max_bytes);
    return MIN(cut + vj_chunker_lookahead_bytes(c), c->sizes.max_bytes);
}
