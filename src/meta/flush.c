/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * flush.c - waiting until what is visible is durable
 *
 * With a log a flush writes it itself (no wake-up lies between fsync and the write), for
 * all that is visible by then; without one, or where that has no room or failed, it says
 * under the state lock up to where it wants a move, and makes it itself, or waits where
 * another thread is at it.
 */
#include "meta/session-private.h"

/* ---- Flush ----------------------------------------------------------------------- */

/* One waiter's part of a move: what it saw when it asked. */
typedef struct Ask {
    bool asked;
    uint64_t failures;
} Ask;

/*
 * Waiters whose commits are in the running move wait for that one; all others share the
 * next. A move that fails while one waits is that waiter's error: moves go in order, so
 * its own commits were not made durable either.  Before the waiter runs again the applier
 * may have moved that generation after all, but not yet the waiter's: hence last_failure.
 */
static int wait_for_move(VjSession *s, uint64_t wanted, Ask *ask) VJ_REQUIRES(&s->state)
{
    if (s->is_shut_out) {
        return -ESTALE;
    }
    if (!ask->asked) {
        ask->asked = true;
        ask->failures = s->move_failures;
        s->move_seq = MAX(s->move_seq, wanted);
        s->retry_us = 0;
    }
    if (s->move_failures != ask->failures) {
        g_assert(s->last_failure < 0);
        return s->last_failure;
    }
    if (!vj_applier_help(s)) {
        vj_cond_wait(&s->moved, &s->state);
    }
    return 0;
}

int vj_session_flush_moved(VjSession *s)
{
    Ask ask = {.asked = false};
    uint64_t wanted;
    int rc = 0;

    vj_mutex_lock(&s->state);
    wanted = s->seq;
    while (rc == 0 && wanted > s->moved_seq) {
        rc = wait_for_move(s, wanted, &ask);
    }
    rc = wanted <= s->moved_seq ? 0 : rc;
    vj_mutex_unlock(&s->state);
    return rc;
}

/*
 * Answers the joined flushes whose commits are durable; @all: the others too, with
 * -EAGAIN: their callers are to flush for themselves.  True: there were some, and the
 * lock was dropped meanwhile.
 */
static bool tell_joined(VjSession *s, bool all) VJ_REQUIRES(&s->state)
{
    uint64_t durable_seq = s->durable_seq;
    VjFlushWait *taken = NULL, **at = &s->joined, *w;

    while ((w = *at) != NULL) {
        if (all || w->wanted <= durable_seq) {
            *at = w->next;
            w->next = taken;
            taken = w;
        } else {
            at = &w->next;
        }
    }
    if (taken == NULL) {
        return false;
    }
    vj_mutex_unlock(&s->state);
    while ((w = taken) != NULL) {
        taken = w->next;
        w->done(w, w->wanted <= durable_seq ? 0 : -EAGAIN);
    }
    vj_mutex_lock(&s->state);
    return true;
}

/*
 * The first thread that flushes writes the log for all that is visible by then.  Threads
 * that flush meanwhile wait, and one of them then writes for all of them.  Where the log
 * has no room or failed, the thread waits until the engine has the commits.
 */
int vj_session_flush(VjMeta *m)
{
    VjSession *s = (VjSession *)m;
    Ask ask = {.asked = false};
    uint64_t wanted;
    int rc = 0;

    vj_mutex_lock(&s->state);
    wanted = s->seq;
    while (rc == 0 && wanted > s->durable_seq) {
        if (s->redo.busy) {
            vj_cond_wait(&s->moved, &s->state);
        } else if (s->redo.serves && vj_session_redo_fits(s)) {
            vj_session_redo_write(s);
            (void)tell_joined(s, true);
        } else {
            rc = wait_for_move(s, wanted, &ask);
        }
    }
    rc = wanted <= s->durable_seq ? 0 : rc;
    vj_mutex_unlock(&s->state);
    g_assert(rc <= 0);
    return rc;
}

/*
 * A caller that comes while another thread writes the log leaves @w in the list of joined
 * flushes and does not wait.  The thread that serves the list writes again as long as
 * there are some in it.
 */
void vj_session_flush_join(VjMeta *m, VjFlushWait *w)
{
    VjSession *s = (VjSession *)m;
    bool is_durable, joins;

    vj_mutex_lock(&s->state);
    w->wanted = s->seq;
    is_durable = w->wanted <= s->durable_seq;
    joins = !is_durable && (s->redo.busy || (s->redo.serves && vj_session_redo_fits(s)));
    if (joins) {
        w->next = s->joined;
        s->joined = w;
    }
    while (joins && s->joined != NULL && !s->redo.busy) {
        bool can = s->redo.serves && vj_session_redo_fits(s);

        if (!tell_joined(s, !can) && can) {
            vj_session_redo_write(s);
        }
    }
    vj_mutex_unlock(&s->state);
    if (!joins) {
        w->done(w, is_durable ? 0 : vj_session_flush(m));
    }
}

int vj_session_apply_empty(VjSession *s)
{
    uint64_t moves, failures;
    int rc;

    vj_mutex_lock(&s->state);
    g_assert(s->moved_seq == s->seq);
    moves = s->moves;
    failures = s->move_failures;
    s->empty_wanted = true;
    vj_cond_signal(&s->applier_wake);
    while (s->moves == moves && s->move_failures == failures && !s->is_shut_out) {
        vj_cond_wait(&s->moved, &s->state);
    }
    rc = s->moves > moves ? 0 : s->is_shut_out ? -ESTALE : s->move_error;
    vj_mutex_unlock(&s->state);
    return rc;
}
