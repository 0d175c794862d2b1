/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * seed.c - the numbers that algorithms derive from a seed
 */
#include "chunk/chunk-private.h"

uint64_t vj_chunk_seed_next(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}
