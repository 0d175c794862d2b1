/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * call-stats.h - how many calls of each kind there were, their bytes, and how long they
 * took
 *
 * Always on: a call costs a few atomic additions to memory that its processor has mostly
 * to itself.  Latencies go into buckets whose edges never change, so that two readings
 * can be subtracted, and sums of several made.
 */
#ifndef VJ_BASE_CALL_STATS_H
#define VJ_BASE_CALL_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* ---- latencies --------------------------------------------------------------------- */

/*
 * Bucket 0 is below 32 ns.  From there on each doubling has four buckets of one width:
 * 32, 40, 48, 56, 64, 80, … ns.  The last one has no end: it begins at 56 · 2^30 ns, a
 * minute.
 * (include/varjfs/ioctl.h says the same to programs.)
 */
#define VJ_LATENCY_BUCKETS 125u
#define VJ_LATENCY_LEAST_NS 32u

unsigned vj_latency_bucket(uint64_t ns);
/* The first nanosecond that is beyond it; UINT64_MAX: the last one. */
uint64_t vj_latency_bucket_end(unsigned bucket);
/*
 * The end of the bucket that has the call of rank @permille/1000 (nearest rank, 1 to
 * 1000): never below the true figure, and less than a quarter above it.  @buckets:
 * VJ_LATENCY_BUCKETS.  0: there is no call.
 */
uint64_t vj_latency_rank_ns(const uint64_t *buckets, unsigned permille);

/* ---- calls ------------------------------------------------------------------------- */

typedef struct VjCallSums {
    uint64_t calls;    /* that began */
    uint64_t failures; /* of them, those that ended with an error */
    uint64_t bytes;    /* of content, of those that ended well */
    uint64_t timed;    /* calls whose latencies are in the buckets */
    uint64_t total_ns; /* of these */
    uint64_t max_ns;   /* of these */
    uint64_t buckets[VJ_LATENCY_BUCKETS];
} VjCallSums;

/* Called for each kind: "store", "put". */
typedef void VjCallVisit(void *opaque, const char *group, const char *kind,
                         const VjCallSums *sums);

typedef struct VjCallStats VjCallStats;

/* Kinds are 0 to @kinds - 1. */
VjCallStats *vj_call_stats_new(unsigned kinds);
void vj_call_stats_free(VjCallStats *s); /* NULL is fine */

/*
 * A call has three events, each told at most once, by any threads, without locks: it
 * begins; its result is known; it is over, @ns after it began.  What was told is seen by
 * whoever reads after it.
 */
void vj_call_begins(VjCallStats *s, unsigned kind);
void vj_call_result(VjCallStats *s, unsigned kind, uint64_t bytes, bool failed);
void vj_call_took(VjCallStats *s, unsigned kind, uint64_t ns);
/* All three, of a call that began at vj_clock_mono_ns() = @begun_ns. */
void vj_call_done(VjCallStats *s, unsigned kind, uint64_t begun_ns, uint64_t bytes,
                  bool failed);

/*
 * For calls that are shorter than a look at the clock: true for one in
 * VJ_CALL_SAMPLE calls of the thread, which is to be timed.
 */
#define VJ_CALL_SAMPLE 32u
bool vj_call_is_sampled(void);

/* Each figure is right; together they are not of one instant. */
void vj_call_stats_read(const VjCallStats *s, unsigned kind, VjCallSums *out);

#endif
