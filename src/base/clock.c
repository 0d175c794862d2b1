/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * clock.c - time
 *
 * The wall clock is the fine one: two changes of a file then have two timestamps in
 * order, which the coarse clock (a tick of 1 to 4 ms) cannot promise.
 */
#include "base/base.h"

#include <stdatomic.h>

static _Atomic bool frozen;
static struct timespec frozen_real;
static _Atomic int64_t frozen_mono_us;

int64_t vj_clock_mono_us(void)
{
    struct timespec now;
    int failed;

    if (frozen) {
        return frozen_mono_us;
    }
    failed = clock_gettime(CLOCK_MONOTONIC, &now);
    g_assert(!failed);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

uint64_t vj_clock_mono_ns(void)
{
    struct timespec now;
    int failed;

    if (frozen) {
        return (uint64_t)frozen_mono_us * 1000;
    }
    failed = clock_gettime(CLOCK_MONOTONIC, &now);
    g_assert(!failed);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct timespec vj_clock_real(void)
{
    struct timespec now;
    int failed;

    if (frozen) {
        return frozen_real;
    }
    failed = clock_gettime(CLOCK_REALTIME, &now);
    g_assert(!failed);
    return now;
}

void vj_clock_set_for_test(const struct timespec *real, int64_t mono_us)
{
    if (real != NULL) {
        g_assert(real->tv_nsec >= 0 && real->tv_nsec < 1000000000);
        frozen_real = *real;
        frozen_mono_us = mono_us;
    }
    frozen = real != NULL;
}
