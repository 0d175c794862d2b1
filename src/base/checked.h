/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * checked.h - sums and products of sizes that came from outside
 *
 * Each returns true and sets *out when the result fits; false otherwise, *out undefined.
 * Threads: any.  Locks: none.
 */
#ifndef VJ_BASE_CHECKED_H
#define VJ_BASE_CHECKED_H

static inline bool vj_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool vj_sub_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_sub_overflow(a, b, out);
}

static inline bool vj_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool vj_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool vj_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* @align_bytes is a power of two. */
static inline bool vj_round_up_u64(uint64_t v, uint64_t align_bytes, uint64_t *out)
{
    uint64_t sum;

    if (!vj_add_u64(v, align_bytes - 1, &sum)) {
        return false;
    }
    *out = sum & ~(align_bytes - 1);
    return true;
}

#endif
