/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * cancel.c - see cancel.h
 *
 * No wake-up is lost: a thread that begins to wait stores where it waits, with the mutex
 * of that place held, and looks for `fired` after that; the thread that cancels sets
 * `fired` first, then looks where the other one waits, and wakes it with that mutex held.
 */
#include "base/base.h"

static _Thread_local VjCancel *current;

void vj_cancel_init(VjCancel *c)
{
    *c = (VjCancel){.timeout_us = INT64_MAX};
    vj_mutex_init(&c->lock, VJ_RANK_BASE, "base.cancel");
}

void vj_cancel_clear(VjCancel *c)
{
    g_assert(c->cond == NULL && current != c);
    vj_mutex_clear(&c->lock);
}

void vj_cancel_reset(VjCancel *c, int64_t timeout_us)
{
    g_assert(c->cond == NULL);
    c->timeout_us = timeout_us;
    g_atomic_int_set(&c->fired, 0);
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

bool vj_cancel_is_fired(void)
{
    return current != NULL && g_atomic_int_get(&current->fired) != 0;
}

int64_t vj_cancel_deadline_us(void)
{
    return current == NULL || current->timeout_us == INT64_MAX
               ? INT64_MAX
               : vj_clock_mono_us() + current->timeout_us;
}

void vj_cancel_fire(VjCancel *c)
{
    VjCond *cond;
    VjMutex *mutex;

    g_atomic_int_set(&c->fired, 1);
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
