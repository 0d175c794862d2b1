/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * run.c - the runs of bodies, which may be several
 *
 * After a conflict a body runs again at once; after more of them its thread pauses, for a
 * random time that grows with what one run takes, so that threads whose transactions
 * conflicted do not conflict again.  A view makes no other body run again, and so runs
 * again at once, but for one that many commits have overtaken.  A body of vj_meta_run
 * does not run again when its caller's time is over.
 */
#include "meta/meta-private.h"

/* A pause is at most so many times what the last run took, doubled for each conflict up
 * to this power, */
#define BACK_OFF_DOUBLINGS_MAX 4u
/* and never longer than this. */
#define BACK_OFF_MAX_US ((int64_t)50 * 1000)

/* A view pauses from so many runs on: what overtakes it may come to an end. */
#define VIEW_TRIES_AT_ONCE 100u

/* A thread that pauses waits on these.  Static, because a thread that fires a VjCancel
 * may still use them when the waiting one has gone on. */
static VjMutex pause_lock = VJ_MUTEX_INIT(VJ_RANK_META_STATE, "meta pause");
static VjCond pause_end;

/* For @us.  -ECANCELED, -ETIMEDOUT. */
static int pause_for(int64_t us, int64_t until_us)
{
    static gsize is_set_up;
    int64_t end_us = vj_clock_mono_us() + us;
    bool is_late = until_us <= end_us;
    int rc = 0;

    if (g_once_init_enter(&is_set_up)) {
        vj_cond_init(&pause_end);
        g_once_init_leave(&is_set_up, 1);
    }
    vj_mutex_lock(&pause_lock);
    while (rc == 0) {
        rc = vj_cond_wait_or_cancel(&pause_end, &pause_lock, MIN(end_us, until_us));
    }
    vj_mutex_unlock(&pause_lock);
    return rc == -ETIMEDOUT && !is_late ? 0 : rc;
}

/* Before the run after @conflicts of them; the last one took @took_us. */
static int back_off(unsigned conflicts, int64_t took_us, int64_t until_us)
{
    unsigned doublings = MIN(conflicts, BACK_OFF_DOUBLINGS_MAX);
    int64_t most_us = MIN(MAX(took_us, 1) << doublings, BACK_OFF_MAX_US);

    return pause_for((int64_t)(vj_random_u64() % (uint64_t)most_us), until_us);
}

/* Before a run at once. */
static int check_time(int64_t until_us)
{
    if (vj_cancel_is_fired()) {
        return -ECANCELED;
    }
    return until_us < INT64_MAX && vj_clock_mono_us() >= until_us ? -ETIMEDOUT : 0;
}

static int give_up(const VjMeta *m)
{
    vj_log_error("meta %s: a transaction met a conflict %u times and was given up",
                 m->ops->name, VJ_META_RUN_TRIES);
    return -EIO;
}

int vj_meta_view(VjMeta *m, VjTxnBody *body, void *opaque)
{
    g_assert(m != NULL && body != NULL);
    vj_lock_assert_none();
    for (unsigned tries = 0; tries < VJ_META_RUN_TRIES; tries++) {
        int64_t begun_us = tries >= VIEW_TRIES_AT_ONCE ? vj_clock_mono_us() : 0;
        VjTxn *txn;
        int rc = vj_meta_begin(m, &(VjTxn){.write = false}, &txn), verdict;

        if (rc < 0) {
            return rc;
        }
        rc = body(txn, opaque);
        g_assert(rc <= 0);
        verdict = vj_txn_abort(txn);
        if (verdict != -EAGAIN) {
            g_assert(verdict < 0 || rc != -EAGAIN);
            return verdict < 0 ? verdict : rc;
        }
        vj_trace(meta, "view: run again, try %u", tries + 1);
        if (tries >= VIEW_TRIES_AT_ONCE) {
            rc = back_off(tries, vj_clock_mono_us() - begun_us, vj_cancel_deadline_us());
            if (rc < 0) {
                return rc;
            }
        }
    }
    return give_up(m);
}

/* -EAGAIN: it has to run again. */
static int run_once(VjMeta *m, const VjTxn *kind, VjTxnBody *body, void *opaque)
{
    VjTxn *txn;
    int rc = vj_meta_begin(m, kind, &txn), verdict;

    if (rc < 0) {
        return rc;
    }
    rc = body(txn, opaque);
    g_assert(rc <= 0);
    if (rc == 0) {
        return vj_txn_commit(txn);
    }
    verdict = vj_txn_abort(txn);
    g_assert(verdict < 0 || rc != -EAGAIN);
    return verdict < 0 ? verdict : rc;
}

int vj_meta_run(VjMeta *m, VjRunFlags flags, VjTxnBody *body, void *opaque)
{
    const VjTxn kind = {.write = true,
                        .release = (flags & VJ_RUN_RELEASE) != 0,
                        .background = (flags & VJ_RUN_BACKGROUND) != 0,
                        .until_us = vj_cancel_deadline_us()};

    g_assert(m != NULL && body != NULL);
    vj_lock_assert_none();
    for (unsigned tries = 1; tries <= VJ_META_RUN_TRIES; tries++) {
        int64_t begun_us = tries > 1 ? vj_clock_mono_us() : 0;
        int rc = run_once(m, &kind, body, opaque);

        if (rc != -EAGAIN) {
            return rc;
        }
        vj_trace(meta, "run: conflict, try %u", tries);
        rc = tries > 1 ? back_off(tries, vj_clock_mono_us() - begun_us, kind.until_us)
                       : check_time(kind.until_us);
        if (rc < 0) {
            return rc;
        }
    }
    return give_up(m);
}
