/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-crash.c - an engine that stops answering, or loses answers
 *
 * For tests.  From a chosen call on nothing reaches the engine any more, as if the
 * session had ended there; that one may still be done.  Or one apply() gets no answer: it
 * is done all the same, or never, or later, in front of another call.
 */
#include "meta/meta-private.h"

/* An apply() that is done later: its batch, with all that it borrows. */
typedef struct Late {
    VjItems changes; /* a version that is not 0: a put */
    VjItems checks;
    VjItems fence; /* of one, or none */
    GArray *change_list, *check_list;
    VjChanges all;
    VjBatch batch;
    VjCheck fence_check;
} Late;

typedef struct Crash {
    VjEngine engine;
    VjMutex lock;
    /* never change after open: */
    uint64_t lose, drop, late, by;
    /* guarded by lock: */
    uint64_t at;
    bool at_is_done; /* that call is, if it is an apply, and its answer is lost */
    bool is_over;    /* it has come to that call */
    void (*crashed)(void *opaque); /* NULL: none, or called already */
    void *opaque;
    uint64_t calls, applies;
    Late *waits;  /* owned */
    uint64_t due; /* the call in front of which it is done */
} Crash;

typedef struct CrashSnapshot {
    VjEngineSnapshot base;
    VjEngineSnapshot *inner;
} CrashSnapshot;

static const VjOptSpec crash_options[] = {
    {.name = "at",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "from the N-th call on none reaches the engine; 0: all do"},
    {.name = "lose",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "the N-th batch is applied, and its answer is lost; 0: none"},
    {.name = "drop",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "the N-th batch is lost; 0: none"},
    {.name = "late",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .help = "the N-th batch is applied some calls later, without an answer; 0: none"},
    {.name = "by",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .min = 1,
     .help = "how many calls later"},
    {.name = NULL},
};

/* ---- A batch that is late -------------------------------------------------------- */

static void late_free(Late *late)
{
    if (late != NULL) {
        vj_items_clear(&late->changes);
        vj_items_clear(&late->checks);
        vj_items_clear(&late->fence);
        g_array_unref(late->change_list);
        g_array_unref(late->check_list);
        g_free(late);
    }
}

static void copy_check(VjItems *to, const VjCheck *check)
{
    VjItem item = {
        .space = check->key.space, .key = check->key.key, .version = check->version};
    int rc = vj_items_add(to, &item);

    g_assert(rc == 0);
}

static VjCheck check_of(const VjItem *item)
{
    return (VjCheck){.key = {item->space, item->key}, .version = item->version};
}

static Late *late_new(const VjBatch *batch)
{
    Late *late = g_new0(Late, 1);
    const void *at = NULL;
    VjChange change;

    late->change_list = g_array_new(FALSE, FALSE, sizeof(VjChange));
    late->check_list = g_array_new(FALSE, FALSE, sizeof(VjCheck));
    while (batch->next(batch, &at, &change)) {
        VjItem item = {.space = change.space,
                       .key = change.key,
                       .value = change.value,
                       .version = change.is_delete ? 0 : 1};
        int rc = vj_items_add(&late->changes, &item);

        g_assert(rc == 0);
    }
    for (size_t i = 0; i < late->changes.count; i++) {
        const VjItem *item = &late->changes.at[i];

        change = (VjChange){item->space, item->version == 0, item->key, item->value};
        g_array_append_val(late->change_list, change);
    }
    for (size_t i = 0; i < batch->check_count; i++) {
        copy_check(&late->checks, &batch->checks[i]);
    }
    for (size_t i = 0; i < late->checks.count; i++) {
        VjCheck check = check_of(&late->checks.at[i]);

        g_array_append_val(late->check_list, check);
    }
    late->all = (VjChanges){(const VjChange *)(void *)late->change_list->data,
                            late->change_list->len};
    late->batch = (VjBatch){.checks = (const VjCheck *)(void *)late->check_list->data,
                            .check_count = batch->check_count,
                            .next = vj_changes_next,
                            .changes = &late->all,
                            .count = batch->count,
                            .number = batch->number};
    if (batch->fence != NULL) {
        copy_check(&late->fence, batch->fence);
        late->fence_check = check_of(&late->fence.at[0]);
        late->batch.fence = &late->fence_check;
    }
    return late;
}

/* No thread gets its result. */
static void late_apply(VjEngine *e, Late *late)
{
    VjItems fresh = {0};
    int rc = vj_engine_apply(e, &late->batch, &fresh, VJ_NO_DEADLINE);

    vj_trace(meta, "crash: a late batch: %d", rc);
    vj_items_clear(&fresh);
    late_free(late);
}

/* ---- Calls ----------------------------------------------------------------------- */

/* What becomes of a call. */
typedef struct Fate {
    bool is_over;   /* the engine is not there any more; */
    bool is_done;   /* it was when this apply reached it */
    uint64_t apply; /* which one this is */
} Fate;

/* Batches of all wrappers of the process that lose=, drop= or late= has met; atomic. */
static uint64_t hits;

uint64_t vj_meta_crash_hits(void)
{
    return __atomic_load_n(&hits, __ATOMIC_RELAXED);
}

static bool is_met(const Crash *c, uint64_t apply)
{
    return apply == c->lose || apply == c->drop || apply == c->late;
}

/* True: the engine is not there any more. */
static bool count_call(Crash *c) VJ_REQUIRES(&c->lock)
{
    c->calls++;
    c->is_over = c->is_over || (c->at > 0 && c->calls >= c->at);
    return c->is_over;
}

static Fate pass(VjEngine *e, bool is_apply)
{
    Crash *c = (Crash *)e;
    void (*crashed)(void *) = NULL;
    void *opaque;
    Late *late = NULL;
    Fate fate;

    vj_mutex_lock(&c->lock);
    fate.is_over = count_call(c);
    fate.is_done = is_apply && c->at_is_done && c->calls == c->at;
    c->applies += is_apply;
    fate.apply = c->applies;
    if (fate.is_over) {
        crashed = c->crashed;
        c->crashed = NULL;
    }
    opaque = c->opaque;
    if (c->waits != NULL && c->calls >= c->due) {
        late = g_steal_pointer(&c->waits);
    }
    vj_mutex_unlock(&c->lock);
    if (late != NULL) {
        late_apply(e->next, late);
    }
    if (crashed != NULL) {
        crashed(opaque);
    }
    return fate;
}

/* As pass(), of a call that is no apply: 0, or that it does not reach the engine. */
static int pass_read(VjEngine *e)
{
    return pass(e, false).is_over ? -EIO : 0;
}

static int crash_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                          int64_t deadline_us)
{
    int rc = pass_read(e);

    return rc < 0 ? rc : vj_engine_get_many(e->next, keys, count, out, deadline_us);
}

static int crash_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                      bool *more, int64_t deadline_us)
{
    int rc = pass_read(e);

    return rc < 0 ? rc : vj_engine_scan(e->next, range, limit, out, more, deadline_us);
}

static int crash_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh,
                       int64_t deadline_us)
{
    Crash *c = (Crash *)e;
    Fate fate = pass(e, true);
    int rc;

    if (fate.is_over && !fate.is_done) {
        return -EIO;
    }
    if (is_met(c, fate.apply)) {
        (void)__atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
    }
    if (fate.apply == c->drop) {
        return -ETIMEDOUT;
    }
    if (fate.apply == c->late) {
        vj_mutex_lock(&c->lock);
        g_assert(c->waits == NULL);
        c->waits = late_new(batch);
        c->due = c->calls + c->by;
        vj_mutex_unlock(&c->lock);
        return -ETIMEDOUT;
    }
    rc = vj_engine_apply(e->next, batch, fresh, deadline_us);
    if (fate.is_over) {
        return -EIO;
    }
    return rc == 0 && fate.apply == c->lose ? -ETIMEDOUT : rc;
}

static int crash_watch(VjEngine *e, VjEngineWatch *changed, void *opaque, bool *is_prompt)
{
    return vj_engine_watch(e->next, changed, opaque, is_prompt);
}

static int64_t crash_clock_us(VjEngine *e, int64_t deadline_us)
{
    int rc = pass_read(e);

    return rc < 0 ? rc : vj_engine_clock_us(e->next, deadline_us);
}

static int crash_count(VjEngine *e, VjSpace space, uint64_t *out)
{
    int rc = pass_read(e);

    return rc < 0 ? rc : vj_engine_count(e->next, space, out);
}

/* ---- Snapshots ------------------------------------------------------------------- */

static VjEngineSnapshot *inner(VjEngineSnapshot *s)
{
    return ((CrashSnapshot *)s)->inner;
}

static int crash_snapshot_new(VjEngine *e, VjEngineSnapshot **out)
{
    CrashSnapshot *s = g_new0(CrashSnapshot, 1);
    int rc = vj_engine_snapshot_new(e->next, &s->inner);

    *out = NULL;
    s->base.engine = e;
    if (rc < 0 || s->inner == NULL) {
        g_free(s);
        return rc;
    }
    *out = &s->base;
    return 0;
}

static int crash_snapshot_prepare(VjEngineSnapshot *s)
{
    int rc = pass_read(s->engine);

    return rc < 0 ? rc : vj_engine_snapshot_prepare(inner(s));
}

/* An engine that is not there has none to take: asking it is what fails. */
static int crash_snapshot_take(VjEngineSnapshot *s)
{
    Crash *c = (Crash *)s->engine;
    bool is_over;

    vj_mutex_lock(&c->lock);
    is_over = count_call(c);
    vj_mutex_unlock(&c->lock);
    return is_over ? -EAGAIN : vj_engine_snapshot_take(inner(s));
}

static void crash_snapshot_release(VjEngineSnapshot *s)
{
    vj_engine_snapshot_release(inner(s));
}

static void crash_snapshot_free(VjEngineSnapshot *s)
{
    vj_engine_snapshot_free(inner(s));
    g_free(s);
}

static int crash_snapshot_get(VjEngineSnapshot *s, VjSpace space, VjSlice key,
                              VjSlice *value, uint64_t *version)
{
    return vj_engine_snapshot_get(inner(s), space, key, value, version);
}

static int crash_snapshot_near(VjEngineSnapshot *s, VjSpace space, VjSlice from,
                               bool forward, VjSlice *key, VjSlice *value,
                               uint64_t *version)
{
    return vj_engine_snapshot_near(inner(s), space, from, forward, key, value, version);
}

/* ---- Open and close -------------------------------------------------------------- */

static bool crash_open(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                       GError **error)
{
    Crash *c = (Crash *)e;

    (void)place;
    (void)error;
    g_assert(e->next != NULL);
    c->at = vj_opts_number(opts, "at");
    c->lose = vj_opts_number(opts, "lose");
    c->drop = vj_opts_number(opts, "drop");
    c->late = vj_opts_number(opts, "late");
    c->by = vj_opts_number(opts, "by");
    vj_mutex_init(&c->lock, VJ_RANK_META_WRAPPER, "meta crash");
    return true;
}

static int crash_close(VjEngine *e, bool in_order)
{
    Crash *c = (Crash *)e;

    (void)in_order;
    late_free(c->waits);
    vj_mutex_clear(&c->lock);
    return 0;
}

uint64_t vj_engine_crash_calls_for_test(VjEngine *e)
{
    Crash *c = (Crash *)e;
    uint64_t calls;

    g_assert(e->ops == &vj_engine_crash_ops);
    vj_mutex_lock(&c->lock);
    calls = c->calls;
    vj_mutex_unlock(&c->lock);
    return calls;
}

/* The wrapper that is around @e. */
static Crash *find_crash(VjEngine *e)
{
    while (e->ops != &vj_engine_crash_ops) {
        g_assert(e->next != NULL);
        e = e->next;
    }
    return (Crash *)e;
}

void vj_engine_crash_at(VjEngine *e, const VjEngineCrash *how)
{
    Crash *c = find_crash(e);

    vj_mutex_lock(&c->lock);
    if (!c->is_over) {
        c->at = c->calls + how->calls + 1;
        c->at_is_done = how->is_done;
        c->crashed = how->crashed;
        c->opaque = how->opaque;
    }
    vj_mutex_unlock(&c->lock);
}

bool vj_engine_has_crashed(VjEngine *e)
{
    Crash *c = find_crash(e);
    bool is_over;

    vj_mutex_lock(&c->lock);
    is_over = c->is_over;
    vj_mutex_unlock(&c->lock);
    return is_over;
}

const VjEngineOps vj_engine_crash_ops = {
    .name = "crash",
    .options = crash_options,
    .flags = VJ_ENGINE_PASSES_SNAPSHOTS,
    .instance_size = sizeof(Crash),
    .open = crash_open,
    .close = crash_close,
    .get_many = crash_get_many,
    .scan = crash_scan,
    .apply = crash_apply,
    .watch = crash_watch,
    .clock_us = crash_clock_us,
    .count = crash_count,
    .snapshot_new = crash_snapshot_new,
    .snapshot_prepare = crash_snapshot_prepare,
    .snapshot_take = crash_snapshot_take,
    .snapshot_release = crash_snapshot_release,
    .snapshot_free = crash_snapshot_free,
    .snapshot_get = crash_snapshot_get,
    .snapshot_near = crash_snapshot_near,
};
