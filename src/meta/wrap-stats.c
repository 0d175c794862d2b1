/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-stats.c - count and time what passes
 *
 * Counts calls, not successes; commits and conflicts by their result.  Counters are
 * atomic and relaxed: a sum read while calls run is a sum of slightly different moments.
 *
 * Calls about keys are mostly as short as a look at the clock, so one in VJ_CALL_SAMPLE
 * of them is timed; all are counted.
 */
#include <stdatomic.h>

#include "meta/meta-private.h"

typedef _Atomic uint64_t Counter;

/* view, update: a transaction from its beginning to its end. */
typedef enum Call {
    CALL_VIEW,
    CALL_UPDATE,
    CALL_COMMIT,
    CALL_FLUSH, /* one that was sent away counts again when it comes to flush */
    CALL_SEND,
    CALL_GET,
    CALL_NEXT,
    CALL_PREV,
    CALL_PUT,
    CALL_DEL,
    CALL_EXPECT,
    CALLS,
} Call;

static const char *const call_names[CALLS] = {
    [CALL_VIEW] = "view",   [CALL_UPDATE] = "update", [CALL_COMMIT] = "commit",
    [CALL_FLUSH] = "flush", [CALL_SEND] = "send",     [CALL_GET] = "get",
    [CALL_NEXT] = "next",   [CALL_PREV] = "prev",     [CALL_PUT] = "put",
    [CALL_DEL] = "del",     [CALL_EXPECT] = "expect",
};

typedef struct Stats {
    VjMeta meta;
    VjCallStats *calls;
    Counter commits, conflicts; /* by their results */
    /* By space; gets: also next and prev. */
    Counter gets[VJ_SPACE_COUNT], puts[VJ_SPACE_COUNT], dels[VJ_SPACE_COUNT];
} Stats;

typedef struct StatsTxn {
    VjTxn txn;
    uint64_t begun_ns;
} StatsTxn;

/* A flush that another thread may answer. */
typedef struct StatsFlush {
    VjFlushWait wait; /* the first member */
    VjFlushWait *of_caller;
    VjCallStats *calls;
    uint64_t begun_ns;
} StatsFlush;

static const VjOptSpec stats_options[] = {{.name = NULL}};

static void count(Counter *c)
{
    atomic_fetch_add_explicit(c, 1, memory_order_relaxed);
}

static uint64_t counted(const Counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

static Stats *stats_of(VjTxn *txn)
{
    return (Stats *)txn->meta;
}

/* ---- calls about keys -------------------------------------------------------------- */

/* What is not there, or has changed meanwhile, is an answer. */
static bool is_failure(int rc)
{
    return rc < 0 && rc != -ENOENT && rc != -EAGAIN;
}

/* 0: it is not timed. */
static uint64_t key_call_begins(VjTxn *txn, Call call)
{
    vj_call_begins(stats_of(txn)->calls, call);
    return vj_call_is_sampled() ? vj_clock_mono_ns() : 0;
}

/* Passes @rc on. */
static int key_call_ends(VjTxn *txn, Call call, uint64_t begun_ns, int rc, size_t bytes)
{
    VjCallStats *calls = stats_of(txn)->calls;

    vj_call_result(calls, call, rc < 0 ? 0 : bytes, is_failure(rc));
    if (begun_ns != 0) {
        vj_call_took(calls, call, vj_clock_mono_ns() - begun_ns);
    }
    return rc;
}

static int stats_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    uint64_t begun_ns = key_call_begins(txn, CALL_GET);
    int rc;

    count(&stats_of(txn)->gets[space]);
    rc = vj_wrap_read(txn, vj_txn_get(txn->next, space, key, value));
    return key_call_ends(txn, CALL_GET, begun_ns, rc, rc == 0 ? value->len : 0);
}

static int stats_put(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value)
{
    uint64_t begun_ns = key_call_begins(txn, CALL_PUT);

    count(&stats_of(txn)->puts[space]);
    return key_call_ends(txn, CALL_PUT, begun_ns,
                         vj_txn_put(txn->next, space, key, value), value.len);
}

static int stats_del(VjTxn *txn, VjSpace space, VjSlice key)
{
    uint64_t begun_ns = key_call_begins(txn, CALL_DEL);

    count(&stats_of(txn)->dels[space]);
    return key_call_ends(txn, CALL_DEL, begun_ns,
                         vj_wrap_read(txn, vj_txn_del(txn->next, space, key)), 0);
}

static int stats_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key,
                      VjSlice *value)
{
    uint64_t begun_ns = key_call_begins(txn, CALL_NEXT);
    int rc;

    count(&stats_of(txn)->gets[space]);
    rc = vj_wrap_read(txn, vj_txn_next(txn->next, space, after, key, value));
    return key_call_ends(txn, CALL_NEXT, begun_ns, rc, rc == 0 ? value->len : 0);
}

static int stats_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key,
                      VjSlice *value)
{
    uint64_t begun_ns = key_call_begins(txn, CALL_PREV);
    int rc;

    count(&stats_of(txn)->gets[space]);
    rc = vj_wrap_read(txn, vj_txn_prev(txn->next, space, before, key, value));
    return key_call_ends(txn, CALL_PREV, begun_ns, rc, rc == 0 ? value->len : 0);
}

static void stats_expect(VjTxn *txn, const VjKey *keys, size_t key_count)
{
    uint64_t begun_ns = key_call_begins(txn, CALL_EXPECT);

    vj_wrap_expect(txn, keys, key_count);
    (void)key_call_ends(txn, CALL_EXPECT, begun_ns, 0, 0);
}

static void stats_expect_run(VjTxn *txn, VjSpace space, VjSlice after, size_t key_count)
{
    uint64_t begun_ns = key_call_begins(txn, CALL_EXPECT);

    vj_wrap_expect_run(txn, space, after, key_count);
    (void)key_call_ends(txn, CALL_EXPECT, begun_ns, 0, 0);
}

/* ---- transactions ------------------------------------------------------------------ */

static bool stats_open(VjMeta *m, const VjOpts *opts, GError **error)
{
    (void)opts;
    (void)error;
    g_assert(m->next != NULL);
    ((Stats *)m)->calls = vj_call_stats_new(CALLS);
    return true;
}

static int stats_close(VjMeta *m)
{
    vj_call_stats_free(((Stats *)m)->calls);
    return 0;
}

static int stats_begin(VjMeta *m, VjTxn *txn)
{
    VjCallStats *calls = ((Stats *)m)->calls;
    Call call = txn->write ? CALL_UPDATE : CALL_VIEW;
    uint64_t begun_ns = vj_clock_mono_ns();
    int rc;

    ((StatsTxn *)txn)->begun_ns = begun_ns;
    vj_call_begins(calls, call);
    rc = vj_meta_begin(m->next, txn, &txn->next);
    if (rc < 0) {
        vj_call_result(calls, call, 0, true);
        vj_call_took(calls, call, vj_clock_mono_ns() - begun_ns);
    }
    return rc;
}

/* After the last use of what @txn wraps. */
static void txn_is_over(const VjTxn *txn, VjCallStats *calls, int rc, uint64_t now_ns)
{
    Call call = txn->write ? CALL_UPDATE : CALL_VIEW;

    vj_call_result(calls, call, 0, is_failure(rc));
    vj_call_took(calls, call, now_ns - ((const StatsTxn *)txn)->begun_ns);
}

static int stats_commit(VjTxn *txn)
{
    Stats *s = stats_of(txn);
    uint64_t begun_ns = vj_clock_mono_ns(), now_ns;
    int rc = vj_txn_commit(txn->next);

    if (rc == 0) {
        count(&s->commits);
    } else if (rc == -EAGAIN) {
        count(&s->conflicts);
    }
    now_ns = vj_clock_mono_ns();
    vj_call_begins(s->calls, CALL_COMMIT);
    vj_call_result(s->calls, CALL_COMMIT, 0, is_failure(rc));
    vj_call_took(s->calls, CALL_COMMIT, now_ns - begun_ns);
    txn_is_over(txn, s->calls, rc, now_ns);
    return rc;
}

static void stats_abort(VjTxn *txn)
{
    txn->verdict = vj_txn_abort(txn->next);
    txn_is_over(txn, stats_of(txn)->calls, 0, vj_clock_mono_ns());
}

static int stats_keys(VjMeta *m, VjSpace space, uint64_t *out)
{
    return vj_meta_count(m->next, space, out);
}

/* ---- durability -------------------------------------------------------------------- */

static int stats_flush(VjMeta *m)
{
    uint64_t begun_ns = vj_clock_mono_ns();
    int rc = vj_meta_flush(m->next);

    vj_call_done(((Stats *)m)->calls, CALL_FLUSH, begun_ns, 0, rc < 0);
    return rc;
}

static int stats_send(VjMeta *m)
{
    uint64_t begun_ns = vj_clock_mono_ns();
    int rc = vj_meta_send(m->next);

    vj_call_done(((Stats *)m)->calls, CALL_SEND, begun_ns, 0, rc < 0);
    return rc;
}

static void flush_joined(VjFlushWait *wait, int rc)
{
    StatsFlush *flush = (StatsFlush *)wait;
    VjFlushWait *of_caller = flush->of_caller;

    vj_call_result(flush->calls, CALL_FLUSH, 0, is_failure(rc));
    vj_call_took(flush->calls, CALL_FLUSH, vj_clock_mono_ns() - flush->begun_ns);
    g_free(flush);
    of_caller->done(of_caller, rc);
}

static void stats_flush_join(VjMeta *m, VjFlushWait *w)
{
    StatsFlush *flush = g_new0(StatsFlush, 1);

    flush->wait.done = flush_joined;
    flush->of_caller = w;
    flush->calls = ((Stats *)m)->calls;
    flush->begun_ns = vj_clock_mono_ns();
    vj_call_begins(flush->calls, CALL_FLUSH);
    vj_meta_flush_join(m->next, &flush->wait);
}

/* ---- figures ----------------------------------------------------------------------- */

static uint64_t calls_of(const Stats *s, Call call)
{
    VjCallSums sums;

    vj_call_stats_read(s->calls, call, &sums);
    return sums.calls;
}

void vj_meta_calls_by_kind(VjMeta *m, VjCallVisit *visit, void *opaque)
{
    const Stats *s = (const Stats *)vj_meta_find(m, &vj_meta_stats_ops);

    for (unsigned i = 0; s != NULL && i < CALLS; i++) {
        VjCallSums sums;

        vj_call_stats_read(s->calls, i, &sums);
        visit(opaque, "meta", call_names[i], &sums);
    }
}

void vj_meta_stats(VjMeta *m, VjMetaStats *out)
{
    const Stats *s = (const Stats *)vj_meta_find(m, &vj_meta_stats_ops);

    memset(out, 0, sizeof *out);
    vj_meta_log_stats(m, &out->log);
    if (s == NULL) {
        return;
    }
    out->reads = calls_of(s, CALL_VIEW);
    out->writes = calls_of(s, CALL_UPDATE);
    out->commits = counted(&s->commits);
    out->conflicts = counted(&s->conflicts);
    out->flushes = calls_of(s, CALL_FLUSH);
    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        out->gets[i] = counted(&s->gets[i]);
        out->puts[i] = counted(&s->puts[i]);
        out->dels[i] = counted(&s->dels[i]);
    }
}

const VjMetaOps vj_meta_stats_ops = {
    .name = "stats",
    .options = stats_options,
    .instance_size = sizeof(Stats),
    .txn_size = sizeof(StatsTxn),
    .open = stats_open,
    .close = stats_close,
    .begin = stats_begin,
    .commit = stats_commit,
    .abort = stats_abort,
    .count = stats_keys,
    .flush = stats_flush,
    .flush_join = stats_flush_join,
    .send = stats_send,
    .get = stats_get,
    .put = stats_put,
    .del = stats_del,
    .next = stats_next,
    .prev = stats_prev,
    .is_far = vj_wrap_is_far,
    .expect = stats_expect,
    .expect_run = stats_expect_run,
};
