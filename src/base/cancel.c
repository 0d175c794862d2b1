/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * cancel.c - see cancel.h
 *
 * No wake-up is lost: a thread that begins to wait stores where it waits, with the mutex
 * of that place held, and looks for `fired` after that; the thread that cancels sets
 * `fired` first, then looks where the other one waits, and wakes it with that mutex held.
 */
#include "base/base.h"

/* What a request does, in the lowest bits of VjCancel.stall. */
#define RUNS 0u
#define STALLS 1u
#define ABANDONED 2u

static _Thread_local VjCancel *current;

static guint64 stall_word(uint64_t number, unsigned what)
{
    return 4 * number + what;
}

static bool stall_moves(VjCancel *c, uint64_t number, unsigned from, unsigned to)
{
    guint64 expected = stall_word(number, from);

    return __atomic_compare_exchange_n(&c->stall, &expected, stall_word(number, to),
                                       false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void vj_cancel_init(VjCancel *c)
{
    *c = (VjCancel){.number = 1, .stall = stall_word(1, RUNS), .timeout_us = INT64_MAX};
    vj_mutex_init(&c->lock, VJ_RANK_BASE, "base.cancel");
}

void vj_cancel_clear(VjCancel *c)
{
    g_assert(c->cond == NULL && current != c);
    vj_mutex_clear(&c->lock);
}

void vj_cancel_reset(VjCancel *c, uint64_t number, int64_t timeout_us)
{
    g_assert(c->cond == NULL && c->depth == 0 && number != 0 && number < UINT64_MAX / 4);
    c->number = number;
    c->timeout_us = timeout_us;
    __atomic_store_n(&c->stall, stall_word(number, RUNS), __ATOMIC_RELAXED);
}

void vj_cancel_enter(VjCancel *c)
{
    g_assert(current == NULL);
    current = c;
}

VjCancel *vj_cancel_leave(void)
{
    VjCancel *c = current;

    current = NULL;
    return c;
}

VjCancel *vj_cancel_current(void)
{
    return current;
}

bool vj_cancel_is_fired(void)
{
    return current != NULL &&
           __atomic_load_n(&current->fired, __ATOMIC_SEQ_CST) == current->number;
}

int64_t vj_cancel_deadline_us(void)
{
    return current == NULL || current->timeout_us == INT64_MAX
               ? INT64_MAX
               : vj_clock_mono_us() + current->timeout_us;
}

void vj_cancel_fire(VjCancel *c, uint64_t number)
{
    VjCond *cond;
    VjMutex *mutex;

    __atomic_store_n(&c->fired, number, __ATOMIC_SEQ_CST);
    vj_mutex_lock(&c->lock);
    cond = c->cond;
    mutex = c->mutex;
    vj_mutex_unlock(&c->lock);
    if (cond != NULL) {
        vj_mutex_lock(mutex);
        vj_cond_broadcast(cond);
        vj_mutex_unlock(mutex);
    }
}

static void stand_at(VjCancel *c, VjCond *cond, VjMutex *mutex)
{
    if (c != NULL) {
        vj_mutex_lock(&c->lock);
        c->cond = cond;
        c->mutex = mutex;
        vj_mutex_unlock(&c->lock);
    }
}

int vj_cond_wait_or_cancel(VjCond *cond, VjMutex *mutex, int64_t until_us)
{
    int rc = 0;

    stand_at(current, cond, mutex);
    if (!vj_cancel_is_fired()) {
        if (until_us == INT64_MAX) {
            vj_cond_wait(cond, mutex);
        } else if (!vj_cond_wait_until(cond, mutex, until_us)) {
            rc = -ETIMEDOUT;
        }
    }
    stand_at(current, NULL, NULL);
    return vj_cancel_is_fired() ? -ECANCELED : rc;
}

/* ---- stalls ------------------------------------------------------------------------ */

void vj_stall_begin(void)
{
    VjCancel *c = current;

    if (c != NULL && c->depth++ == 0) {
        /* Not where it was abandoned before: that stays. */
        (void)stall_moves(c, c->number, RUNS, STALLS);
    }
}

int vj_stall_end(int r)
{
    VjCancel *c = current;

    if (c == NULL) {
        return r;
    }
    g_assert(c->depth > 0);
    if (--c->depth == 0) {
        (void)stall_moves(c, c->number, STALLS, RUNS);
    }
    return vj_cancel_is_fired() || vj_cancel_was_abandoned(c) ? -ECANCELED : r;
}

bool vj_cancel_abandon(VjCancel *c, uint64_t number)
{
    return stall_moves(c, number, STALLS, ABANDONED);
}

bool vj_cancel_was_abandoned(const VjCancel *c)
{
    return __atomic_load_n(&c->stall, __ATOMIC_RELAXED) ==
           stall_word(c->number, ABANDONED);
}
