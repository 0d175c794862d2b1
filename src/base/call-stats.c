/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * call-stats.c - counters and latencies of calls, in shards
 *
 * A thread keeps to one shard, so that two that run at the same time seldom write to the
 * same cache line.  Counters are relaxed atomics.  Pages of shards and kinds that were
 * never used are not there.
 */
#include "base/base.h"

#include <stdatomic.h>

#define SHARDS 4u
#define LINE_BYTES 64u
/* Four buckets for each doubling. */
#define STEPS 4u
#define STEP_BITS 2u
#define LEAST_BIT 5u

G_STATIC_ASSERT(VJ_LATENCY_LEAST_NS == 1u << LEAST_BIT);

typedef struct Kind {
    _Alignas(LINE_BYTES) _Atomic uint64_t calls;
    _Atomic uint64_t failures, bytes, total_ns, max_ns;
    _Atomic uint64_t buckets[VJ_LATENCY_BUCKETS];
} Kind;

struct VjCallStats {
    unsigned kinds;
    Kind *all; /* SHARDS times as many, within `memory` */
    void *memory;
};

/* ---- latencies --------------------------------------------------------------------- */

unsigned vj_latency_bucket(uint64_t ns)
{
    unsigned bit, bucket;

    if (ns < VJ_LATENCY_LEAST_NS) {
        return 0;
    }
    bit = 63u - (unsigned)__builtin_clzll(ns);
    bucket = 1 + (bit - LEAST_BIT) * STEPS +
             ((unsigned)(ns >> (bit - STEP_BITS)) & (STEPS - 1));
    return MIN(bucket, VJ_LATENCY_BUCKETS - 1);
}

uint64_t vj_latency_bucket_end(unsigned bucket)
{
    unsigned doubling, step;

    g_assert(bucket < VJ_LATENCY_BUCKETS);
    if (bucket == VJ_LATENCY_BUCKETS - 1) {
        return UINT64_MAX;
    }
    doubling = bucket / STEPS;
    step = bucket % STEPS;
    return ((uint64_t)VJ_LATENCY_LEAST_NS << doubling) / STEPS * (STEPS + step);
}

uint64_t vj_latency_rank_ns(const uint64_t *buckets, unsigned permille)
{
    uint64_t all = 0, rank, seen = 0;

    g_assert(permille >= 1 && permille <= 1000);
    for (unsigned i = 0; i < VJ_LATENCY_BUCKETS; i++) {
        all += buckets[i];
    }
    /* Rounded up, and no product that overflows. */
    rank = all / 1000 * permille + (all % 1000 * permille + 999) / 1000;
    for (unsigned i = 0; i < VJ_LATENCY_BUCKETS; i++) {
        seen += buckets[i];
        if (seen >= rank && all > 0) {
            return vj_latency_bucket_end(i);
        }
    }
    return 0;
}

/* ---- calls ------------------------------------------------------------------------- */

VjCallStats *vj_call_stats_new(unsigned kinds)
{
    VjCallStats *s = g_new(VjCallStats, 1);

    g_assert(kinds > 0);
    s->kinds = kinds;
    s->memory = g_malloc0(SHARDS * kinds * sizeof(Kind) + LINE_BYTES);
    s->all = (Kind *)(((uintptr_t)s->memory + LINE_BYTES) & ~(uintptr_t)(LINE_BYTES - 1));
    return s;
}

void vj_call_stats_free(VjCallStats *s)
{
    if (s != NULL) {
        g_free(s->memory);
        g_free(s);
    }
}

static Kind *kind_of(VjCallStats *s, unsigned kind)
{
    static _Atomic unsigned threads;
    static _Thread_local unsigned own; /* 0: not yet chosen */

    g_assert(kind < s->kinds);
    if (own == 0) {
        own = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % SHARDS + 1;
    }
    return &s->all[(own - 1) * s->kinds + kind];
}

static void add(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static void raise_to(_Atomic uint64_t *most, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(most, memory_order_relaxed);

    while (value > seen && !atomic_compare_exchange_weak_explicit(most, &seen, value,
                                                                  memory_order_relaxed,
                                                                  memory_order_relaxed)) {
    }
}

void vj_call_begins(VjCallStats *s, unsigned kind)
{
    add(&kind_of(s, kind)->calls, 1);
}

void vj_call_result(VjCallStats *s, unsigned kind, uint64_t bytes, bool failed)
{
    if (failed) {
        add(&kind_of(s, kind)->failures, 1);
    } else if (bytes > 0) {
        add(&kind_of(s, kind)->bytes, bytes);
    }
}

void vj_call_took(VjCallStats *s, unsigned kind, uint64_t ns)
{
    Kind *k = kind_of(s, kind);

    add(&k->buckets[vj_latency_bucket(ns)], 1);
    add(&k->total_ns, ns);
    raise_to(&k->max_ns, ns);
}

void vj_call_done(VjCallStats *s, unsigned kind, uint64_t begun_ns, uint64_t bytes,
                  bool failed)
{
    vj_call_begins(s, kind);
    vj_call_result(s, kind, bytes, failed);
    vj_call_took(s, kind, vj_clock_mono_ns() - begun_ns);
}

bool vj_call_is_sampled(void)
{
    static _Thread_local unsigned calls;

    return calls++ % VJ_CALL_SAMPLE == 0;
}

void vj_call_stats_read(const VjCallStats *s, unsigned kind, VjCallSums *out)
{
    g_assert(kind < s->kinds);
    *out = (VjCallSums){0};
    for (unsigned shard = 0; shard < SHARDS; shard++) {
        const Kind *k = &s->all[shard * s->kinds + kind];

        out->calls += atomic_load_explicit(&k->calls, memory_order_relaxed);
        out->failures += atomic_load_explicit(&k->failures, memory_order_relaxed);
        out->bytes += atomic_load_explicit(&k->bytes, memory_order_relaxed);
        out->total_ns += atomic_load_explicit(&k->total_ns, memory_order_relaxed);
        out->max_ns =
            MAX(out->max_ns, atomic_load_explicit(&k->max_ns, memory_order_relaxed));
        for (unsigned i = 0; i < VJ_LATENCY_BUCKETS; i++) {
            uint64_t n = atomic_load_explicit(&k->buckets[i], memory_order_relaxed);

            out->buckets[i] += n;
            out->timed += n;
        }
    }
}
