/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * random.h - bytes from the kernel, and a seeded generator for tests and balancing
 *
 * Threads: vj_random_* any; a VjRng one at a time.  Locks: none.
 */
#ifndef VJ_BASE_RANDOM_H
#define VJ_BASE_RANDOM_H

/* Fills @dst from the kernel's generator; aborts only if the kernel has none. */
void vj_random_bytes(void *dst, size_t len);
uint64_t vj_random_u64(void);

/* xoshiro256** seeded through splitmix64: the same seed gives the same numbers for
 * ever. */
typedef struct VjRng {
    uint64_t s[4];
} VjRng;

void vj_rng_init(VjRng *r, uint64_t seed);
uint64_t vj_rng_u64(VjRng *r);
/* Uniform in [0, bound); bound > 0. */
uint64_t vj_rng_below(VjRng *r, uint64_t bound);
void vj_rng_bytes(VjRng *r, void *dst, size_t len);

#endif
