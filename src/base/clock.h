/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * clock.h - the only source of time, so that tests can set it
 *
 * Threads: any; the setter is for tests, and only threads that do not read the wall clock
 * run meanwhile.  Locks: none.
 */
#ifndef VJ_BASE_CLOCK_H
#define VJ_BASE_CLOCK_H

#include <time.h>

/* Microseconds of a clock that never steps back. */
int64_t vj_clock_mono_us(void);
/* The same clock, nanoseconds; for what is measured and not for deadlines. */
uint64_t vj_clock_mono_ns(void);

/* Wall clock for timestamps, nanoseconds; what the kernel would stamp (coarse or finer).
 */
struct timespec vj_clock_real(void);

/* Tests: freeze both clocks at these values; NULL lets them run again. */
void vj_clock_set_for_test(const struct timespec *real, int64_t mono_us);

#endif
