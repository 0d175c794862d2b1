/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * meta-private.h - what sessions, engines and wrappers share
 */
#ifndef VJ_META_META_PRIVATE_H
#define VJ_META_META_PRIVATE_H

#include "meta/engine.h"

extern const VjEngineOps vj_engine_lmdb_ops;
extern const VjEngineOps vj_engine_memory_ops;
extern const VjEngineOps vj_engine_remote_ops;
/* The clock of the keys that @e, wrapped or not, shares with others goes forward. */
void vj_memory_clock_advance_for_test(VjEngine *e, int64_t us);
/* Around an engine; not in the table of drivers. */
extern const VjEngineOps vj_engine_latency_ops;
extern const VjEngineOps vj_engine_crash_ops;
extern const VjMetaOps vj_meta_fault_ops;
extern const VjMetaOps vj_meta_stats_ops;

/*
 * Asserting callers of the members that vj_meta_view and vj_meta_run hide: for them and
 * for wrappers.
 * begin allocates the transaction (zeroed, txn_size bytes, its first members as in @like)
 * and commit and abort free it, so that no engine does.
 */
int vj_meta_begin(VjMeta *m, const VjTxn *like, VjTxn **txn) G_GNUC_WARN_UNUSED_RESULT;
int vj_txn_commit(VjTxn *txn) G_GNUC_WARN_UNUSED_RESULT;
/* 0: what the transaction read is one state; -EAGAIN: it is not, and the body has to run
 * again; others: why it cannot be decided. */
int vj_txn_abort(VjTxn *txn);

/* Of a wrapper: what the wrapped transaction's read returned, which may end the body. */
static inline int vj_wrap_read(VjTxn *txn, int rc)
{
    if (txn->verdict == 0) {
        txn->verdict = txn->next->verdict;
    }
    return rc;
}

/* The members of a wrapper that passes hints on. */
void vj_wrap_expect(VjTxn *txn, const VjKey *keys, size_t count);
bool vj_wrap_is_far(VjTxn *txn, VjKey key);
void vj_wrap_expect_run(VjTxn *txn, VjSpace space, VjSlice after, size_t count);

void vj_meta_log_stats(VjMeta *m, VjMetaLogStats *out);

/* Calls since it was put around an engine; @e is itself. */
uint64_t vj_engine_crash_calls_for_test(VjEngine *e);
/* When the wrapper crash, which @e is or wraps, lets nothing pass any more. */
typedef struct VjEngineCrash {
    uint64_t calls; /* that pass before that, from now on */
    bool is_done; /* the call behind them, if it is an apply, is done without an answer */
    /* Called by the first thread that gets no answer, once and without locks. */
    void (*crashed)(void *opaque);
    void *opaque;
} VjEngineCrash;

/* Once it has come to that call, another one changes nothing.  Any thread. */
void vj_engine_crash_at(VjEngine *e, const VjEngineCrash *how);
bool vj_engine_has_crashed(VjEngine *e);
/* All zero where @e is not wrapped. */
void vj_engine_latency_calls(const VjEngine *e, VjMetaCalls *out);

/* The outermost wrapper in the chain of @m with these ops; NULL: there is none. */
VjMeta *vj_meta_find(VjMeta *m, const VjMetaOps *ops);

#endif
