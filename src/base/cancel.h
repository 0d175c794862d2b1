/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * cancel.h - a request that nobody waits for any more need not be finished
 *
 * Whoever serves a request has a VjCancel, and says so for its thread.  Code below that
 * may wait for long (an engine on another machine, a turn to write) waits by
 * vj_cond_wait_or_cancel, and gives the request up with -ECANCELED when another thread
 * has fired it.  Threads without one wait on.
 */
#ifndef VJ_BASE_CANCEL_H
#define VJ_BASE_CANCEL_H

#include "base/lock.h"

typedef struct VjCancel {
    gint fired;          /* atomic */
    int64_t deadline_us; /* of its thread; on the clock of vj_clock_mono_us() */
    VjMutex lock;        /* VJ_RANK_BASE */
    /* guarded by lock; where the thread waits, NULL: it does not */
    VjCond *cond;
    VjMutex *mutex;
} VjCancel;

void vj_cancel_init(VjCancel *c);
void vj_cancel_clear(VjCancel *c); /* no thread uses it, nobody is about to fire it */
/* For the next request, which may take until then; INT64_MAX: for ever. */
void vj_cancel_reset(VjCancel *c, int64_t deadline_us);

/* What the calling thread does is for the request of @c, until leave.  NULL is fine. */
void vj_cancel_enter(VjCancel *c);
void vj_cancel_leave(void);
/* True: the calling thread's has been fired. */
bool vj_cancel_is_fired(void);
/* Of the calling thread's; INT64_MAX without one. */
int64_t vj_cancel_deadline_us(void);

/* Threads: any.  Locks: none that its thread may wait with. */
void vj_cancel_fire(VjCancel *c);

/*
 * vj_cond_wait_or_cancel - wait, or be told that it is in vain
 *
 * Returns   0 woken, perhaps for nothing; -ETIMEDOUT at vj_cancel_deadline_us();
 *           -ECANCELED.  After these two it may have been woken too: who is woken
 *           one at a time wakes the next one
 * Cond and mutex stay as long as anybody may fire the thread's VjCancel.
 */
int vj_cond_wait_or_cancel(VjCond *cond, VjMutex *mutex)
    VJ_REQUIRES(mutex) G_GNUC_WARN_UNUSED_RESULT;

#endif
