/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-latency.c - an engine that is far away
 *
 * For tests.  Each call that would be a round trip takes a set time and is counted.  A
 * thread that makes one with a lock held ends the process: on the way to another machine
 * everybody who wants that lock would wait.  The session's writer lock does not count: it
 * is held across a body, and LOCKS.md says so.
 *
 * It has no snapshots, as an engine on another machine has none.  What a session asks
 * without a round trip (reserve, apply_bytes, the log, copies) is passed on.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "meta/meta-private.h"

typedef enum LatencyCall {
    CALL_GET_MANY,
    CALL_SCAN,
    CALL_APPLY,
    CALL_CLOCK,
    CALL_COUNT,
    CALL_KINDS,
} LatencyCall;

static const char *const call_names[] = {"get_many", "scan", "apply", "clock", "count"};

typedef struct Latency {
    VjEngine engine;
    int64_t cost_us; /* never changes after open */
    _Atomic uint64_t calls[CALL_KINDS];
} Latency;

static const VjOptSpec latency_options[] = {
    {.name = "us",
     .type = VJ_OPT_NUMBER,
     .fallback = "1000",
     .max = 10 * 1000 * 1000,
     .help = "microseconds that each call of the engine takes"},
    {.name = NULL},
};

static bool latency_open(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                         GError **error)
{
    (void)place;
    (void)error;
    g_assert(e->next != NULL);
    ((Latency *)e)->cost_us = (int64_t)vj_opts_number(opts, "us");
    return true;
}

static int latency_close(VjEngine *e, bool in_order)
{
    (void)e;
    (void)in_order;
    return 0;
}

/* The way there and back.  -ETIMEDOUT: it is too long, and nothing is asked. */
static int travel(VjEngine *e, LatencyCall call, int64_t deadline_us)
{
    Latency *l = (Latency *)e;
    const char *held = vj_lock_held_besides(VJ_RANK_META_RUN);
    int64_t left_us;

    if (held != NULL) {
        vj_log_error("meta latency: %s is called with lock \"%s\" held", call_names[call],
                     held);
        abort();
    }
    atomic_fetch_add_explicit(&l->calls[call], 1, memory_order_relaxed);
    if (l->cost_us == 0) {
        return 0;
    }
    left_us =
        deadline_us == VJ_NO_DEADLINE ? VJ_NO_DEADLINE : deadline_us - vj_clock_mono_us();
    g_usleep((gulong)CLAMP(left_us, 0, l->cost_us));
    return left_us < l->cost_us ? -ETIMEDOUT : 0;
}

static int latency_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                            int64_t deadline_us)
{
    int rc = travel(e, CALL_GET_MANY, deadline_us);

    return rc < 0 ? rc : vj_engine_get_many(e->next, keys, count, out, deadline_us);
}

static int latency_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                        bool *more, int64_t deadline_us)
{
    int rc = travel(e, CALL_SCAN, deadline_us);

    return rc < 0 ? rc : vj_engine_scan(e->next, range, limit, out, more, deadline_us);
}

static int latency_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh,
                         int64_t deadline_us)
{
    int rc = travel(e, CALL_APPLY, deadline_us);

    return rc < 0 ? rc : vj_engine_apply(e->next, batch, fresh, deadline_us);
}

static int64_t latency_clock_us(VjEngine *e, int64_t deadline_us)
{
    int rc = travel(e, CALL_CLOCK, deadline_us);

    return rc < 0 ? rc : vj_engine_clock_us(e->next, deadline_us);
}

static int latency_count(VjEngine *e, VjSpace space, uint64_t *out)
{
    int rc = travel(e, CALL_COUNT, VJ_NO_DEADLINE);

    return rc < 0 ? rc : vj_engine_count(e->next, space, out);
}

static int latency_reserve(VjEngine *e, const VjLoad *load, bool release)
{
    return vj_engine_reserve(e->next, load, release);
}

static bool latency_empty_apply_helps(VjEngine *e)
{
    return vj_engine_empty_apply_helps(e->next);
}

static uint64_t latency_apply_bytes(VjEngine *e, const VjTally tally[VJ_SPACE_COUNT])
{
    return vj_engine_apply_bytes(e->next, tally);
}

static int latency_save(VjEngine *e, int fd, VjMetaSaved *out)
{
    return vj_engine_save(e->next, fd, out);
}

static uint64_t counted(const Latency *l, LatencyCall call)
{
    return atomic_load_explicit(&l->calls[call], memory_order_relaxed);
}

void vj_engine_latency_calls(const VjEngine *e, VjMetaCalls *out)
{
    const Latency *l = (const Latency *)e;

    *out = (VjMetaCalls){0};
    if (e->ops == &vj_engine_latency_ops) {
        out->get_many = counted(l, CALL_GET_MANY);
        out->scan = counted(l, CALL_SCAN);
        out->apply = counted(l, CALL_APPLY);
        out->clock = counted(l, CALL_CLOCK);
        out->count = counted(l, CALL_COUNT);
    }
}

const VjEngineOps vj_engine_latency_ops = {
    .name = "latency",
    .options = latency_options,
    .instance_size = sizeof(Latency),
    .open = latency_open,
    .close = latency_close,
    .get_many = latency_get_many,
    .scan = latency_scan,
    .apply = latency_apply,
    .clock_us = latency_clock_us,
    .count = latency_count,
    .reserve = latency_reserve,
    .empty_apply_helps = latency_empty_apply_helps,
    .apply_bytes = latency_apply_bytes,
    .save = latency_save,
};
