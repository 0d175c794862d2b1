/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * cancel.h - a request that no caller waits for any more need not be finished
 *
 * A thread that serves a request has a VjCancel, and enters it.  Code below that may wait
 * for long (for an engine on another machine, or for the end of another write
 * transaction) waits by vj_cond_wait_or_cancel, and gives the request up with -ECANCELED
 * when another thread has fired it.  Threads without one wait on.
 *
 * A VjCancel serves one request after the other.  They have numbers, so that what is
 * meant for one that has just ended does not reach the next.
 */
#ifndef VJ_BASE_CANCEL_H
#define VJ_BASE_CANCEL_H

#include "base/lock.h"

typedef struct VjCancel {
    guint64 fired;      /* atomic: the number that was fired last; 0: none */
    guint64 stall;      /* atomic: 4 * number + what the request does (cancel.c) */
    uint64_t number;    /* of the request; only its thread looks at it */
    unsigned depth;     /* of stalls, likewise */
    int64_t timeout_us; /* of each wait, likewise */
    VjMutex lock;       /* VJ_RANK_BASE */
    /* guarded by lock; where the thread waits, NULL: it does not */
    VjCond *cond;
    VjMutex *mutex;
} VjCancel;

void vj_cancel_init(VjCancel *c);
void vj_cancel_clear(VjCancel *c); /* no thread uses it, none is about to fire it */
/* For the next request, @number, which is not 0 and below 2^62.  @timeout_us: how long
 * each of its waits may take; INT64_MAX: for ever.  In the thread that enters it. */
void vj_cancel_reset(VjCancel *c, uint64_t number, int64_t timeout_us);

/*
 * What the calling thread does is for the request of @c, until leave, which returns it.
 * NULL: for no request.  What is done for others besides (a round of write-back) stands
 * between a leave and an enter.
 */
void vj_cancel_enter(VjCancel *c);
VjCancel *vj_cancel_leave(void);
/* The one that the calling thread has entered; NULL: none. */
VjCancel *vj_cancel_current(void);
/* True: the calling thread's has been fired. */
bool vj_cancel_is_fired(void);
/* Of a wait of the calling thread's that begins now, on the clock of vj_clock_mono_us();
 * INT64_MAX without a VjCancel. */
int64_t vj_cancel_deadline_us(void);

/* Nothing happens where @c is of another request than @number by now.  Threads: any.
 * Locks: none that its thread may wait with. */
void vj_cancel_fire(VjCancel *c, uint64_t number);

/*
 * Stalls: what cannot be cancelled, as a read(2) of a disk that hangs.  Between begin and
 * end the calling thread may wait for ever, and another one may abandon the request: give
 * its caller the answer, an error.  So before a stall nothing of the request has been
 * done that its caller would have to know of, and behind one that ends with -ECANCELED
 * nothing is.  They may lie in one another; the outermost one counts.  Without a
 * VjCancel they do nothing.
 */
void vj_stall_begin(void);
/* Returns @r, or -ECANCELED: the request was fired or abandoned, and is given up. */
int vj_stall_end(int r) G_GNUC_WARN_UNUSED_RESULT;
/* True: request @number stands in a stall, and is the caller's from now on.  Once.
 * Threads: any. */
bool vj_cancel_abandon(VjCancel *c, uint64_t number) G_GNUC_WARN_UNUSED_RESULT;
/* The request was abandoned.  In the thread that entered it, until the next reset. */
bool vj_cancel_was_abandoned(const VjCancel *c);

/*
 * vj_cond_wait_or_cancel - wait on a condition, until cancelled
 *
 * @until_us of vj_cancel_deadline_us(), before the first of several waits
 * Returns   0 woken, perhaps for nothing; -ETIMEDOUT; -ECANCELED.  After these
 *           two it may have been woken too: where one waiter is woken at a time, it wakes
 *           the next one
 * Cond and mutex stay as long as a thread may fire the VjCancel.
 */
int vj_cond_wait_or_cancel(VjCond *cond, VjMutex *mutex, int64_t until_us)
    VJ_REQUIRES(mutex) G_GNUC_WARN_UNUSED_RESULT;

#endif
