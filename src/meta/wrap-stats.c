/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * wrap-stats.c - count what passes
 *
 * Counts calls, not successes; commits and conflicts by their result.  Counters are
 * atomic and relaxed: a sum read while calls run is a sum of slightly different moments.
 */
#include <stdatomic.h>

#include "meta/meta-private.h"

typedef _Atomic uint64_t Counter;

typedef struct Stats {
    VjMeta meta;
    Counter reads, writes, commits, conflicts;
    Counter flushes; /* one that was sent away counts again when it comes to flush */
    Counter gets[VJ_SPACE_COUNT], puts[VJ_SPACE_COUNT], dels[VJ_SPACE_COUNT];
} Stats;

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

static bool stats_open(VjMeta *m, const VjOpts *opts, GError **error)
{
    (void)opts;
    (void)error;
    g_assert(m->next != NULL);
    return true;
}

static int stats_close(VjMeta *m)
{
    (void)m;
    return 0;
}

static int stats_begin(VjMeta *m, VjTxn *txn)
{
    Stats *s = (Stats *)m;

    count(txn->write ? &s->writes : &s->reads);
    return vj_meta_begin(m->next, txn, &txn->next);
}

static int stats_commit(VjTxn *txn)
{
    Stats *s = stats_of(txn);
    int rc = vj_txn_commit(txn->next);

    if (rc == 0) {
        count(&s->commits);
    } else if (rc == -EAGAIN) {
        count(&s->conflicts);
    }
    return rc;
}

static void stats_abort(VjTxn *txn)
{
    txn->verdict = vj_txn_abort(txn->next);
}

static int stats_keys(VjMeta *m, VjSpace space, uint64_t *out)
{
    return vj_meta_count(m->next, space, out);
}

static int stats_flush(VjMeta *m)
{
    count(&((Stats *)m)->flushes);
    return vj_meta_flush(m->next);
}

static int stats_send(VjMeta *m)
{
    return vj_meta_send(m->next);
}

static void stats_flush_join(VjMeta *m, VjFlushWait *w)
{
    count(&((Stats *)m)->flushes);
    vj_meta_flush_join(m->next, w);
}

static int stats_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    count(&stats_of(txn)->gets[space]);
    return vj_wrap_read(txn, vj_txn_get(txn->next, space, key, value));
}

static int stats_put(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value)
{
    count(&stats_of(txn)->puts[space]);
    return vj_txn_put(txn->next, space, key, value);
}

static int stats_del(VjTxn *txn, VjSpace space, VjSlice key)
{
    count(&stats_of(txn)->dels[space]);
    return vj_wrap_read(txn, vj_txn_del(txn->next, space, key));
}

static int stats_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key,
                      VjSlice *value)
{
    count(&stats_of(txn)->gets[space]);
    return vj_wrap_read(txn, vj_txn_next(txn->next, space, after, key, value));
}

static int stats_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key,
                      VjSlice *value)
{
    count(&stats_of(txn)->gets[space]);
    return vj_wrap_read(txn, vj_txn_prev(txn->next, space, before, key, value));
}

void vj_meta_stats(VjMeta *m, VjMetaStats *out)
{
    const Stats *s = (const Stats *)vj_meta_find(m, &vj_meta_stats_ops);

    memset(out, 0, sizeof *out);
    vj_meta_log_stats(m, &out->log);
    if (s == NULL) {
        return;
    }
    out->reads = counted(&s->reads);
    out->writes = counted(&s->writes);
    out->commits = counted(&s->commits);
    out->conflicts = counted(&s->conflicts);
    out->flushes = counted(&s->flushes);
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
    .txn_size = sizeof(VjTxn),
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
    .expect = vj_wrap_expect,
    .expect_run = vj_wrap_expect_run,
};
