/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * txn.c - write transactions of a session: alone, on a frozen input, visible as a whole
 */
#include "meta/shared-private.h"

static VjSession *session_of(const VjTxn *txn)
{
    return (VjSession *)txn->meta;
}

/* What work in the background leaves to others of the memory for commits: it goes on up
 * to one of so many parts of a generation, and of one beside another that is being
 * moved. */
#define BACKGROUND_PARTS 2u
#define BACKGROUND_PARTS_BESIDE 4u
/* It lets so many go first, if they wait. */
#define BACKGROUND_WRITERS_AHEAD 16u

/* ---- Begin and end --------------------------------------------------------------- */

/* Back-pressure: 0 when there is memory for one more write transaction. */
static int wait_for_memory(VjSession *s, int64_t until_us)
{
    int rc;

    vj_mutex_lock(&s->state);
    rc = s->is_shut_out ? -ESTALE : 0;
    while (rc == 0 && vj_session_is_full(s)) {
        if (s->move_error != 0) {
            rc = s->move_error;
        } else {
            vj_cond_signal(&s->applier_wake);
            rc = vj_cond_wait_or_cancel(&s->moved, &s->state, until_us);
        }
    }
    vj_mutex_unlock(&s->state);
    return rc;
}

/*
 * The same for one in the background.  While a generation is moved all that others write
 * goes to the active one, and when that is full they wait for the device: so one in the
 * background has what it wrote moved early, and waits for that.
 */
static int leave_memory(VjSession *s, int64_t until_us)
{
    int rc;

    vj_mutex_lock(&s->state);
    rc = s->is_shut_out ? -ESTALE : 0;
    while (rc == 0 && vj_session_is_full_to(s, s->frozen != NULL ? BACKGROUND_PARTS_BESIDE
                                                                 : BACKGROUND_PARTS)) {
        if (s->move_error != 0) {
            rc = s->move_error;
        } else {
            if (s->frozen == NULL) {
                s->move_seq = s->seq;
                vj_cond_signal(&s->applier_wake);
            }
            s->yielding++;
            rc = vj_cond_wait_or_cancel(&s->moved, &s->state, until_us);
            s->yielding--;
        }
    }
    vj_mutex_unlock(&s->state);
    return rc;
}

/* The next writer goes on; wait_for_others() says when one in the background does. */
static void wake_next_writer(VjSession *s)
{
    vj_cond_signal(&s->writer_ended);
    vj_cond_broadcast(&s->writer_idle);
}

static int wait_for_writer(VjSession *s, int64_t until_us) VJ_REQUIRES(s->writer)
{
    int rc = 0;

    s->writers_wait++;
    while (rc == 0 && s->has_writer) {
        rc = vj_cond_wait_or_cancel(&s->writer_ended, &s->writer, until_us);
    }
    s->writers_wait--;
    return rc;
}

static int wait_for_others(VjSession *s, int64_t until_us) VJ_REQUIRES(s->writer)
{
    uint64_t after = s->writer_count + BACKGROUND_WRITERS_AHEAD;
    int rc = 0;

    while (rc == 0 &&
           (s->has_writer || (s->writers_wait > 0 && s->writer_count < after))) {
        rc = vj_cond_wait_or_cancel(&s->writer_idle, &s->writer, until_us);
    }
    return rc;
}

int vj_session_writer_begin(VjSession *s, int64_t until_us, bool background)
{
    int rc;

    vj_mutex_lock(&s->writer);
    rc = background ? wait_for_others(s, until_us) : wait_for_writer(s, until_us);
    if (rc == 0) {
        s->has_writer = true;
        s->writer_count++;
    }
    vj_mutex_unlock(&s->writer);
    if (rc < 0) {
        wake_next_writer(s); /* this one may have been woken for it */
    }
    return rc;
}

bool vj_session_writer_try(VjSession *s)
{
    bool is_ours;

    vj_mutex_lock(&s->writer);
    is_ours = !s->has_writer;
    s->has_writer = true;
    s->writer_count += is_ours;
    vj_mutex_unlock(&s->writer);
    return is_ours;
}

void vj_session_writer_end(VjSession *s)
{
    vj_mutex_lock(&s->writer);
    g_assert(s->has_writer && s->changes.entry_count == 0);
    s->has_writer = false;
    vj_mutex_unlock(&s->writer);
    /* The thread that wakes up finds the lock free. */
    wake_next_writer(s);
}

/* This thread is the writer; what was committed before is known, or there is memory for
 * one more; a view. */
static int begin_write(VjSession *s, VjSessionTxn *t)
{
    int64_t until_us = t->txn.until_us;
    int rc = s->read_only ? -EROFS : 0;

    if (rc == 0 && t->txn.background && !vj_session_is_shared(s)) {
        rc = leave_memory(s, until_us);
    }
    if (rc == 0) {
        rc = vj_session_writer_begin(s, until_us, t->txn.background);
    }
    if (rc < 0) {
        return rc;
    }
    rc = vj_session_is_shared(s) ? vj_shared_begin(s, &t->txn)
                                 : wait_for_memory(s, until_us);
    if (rc == 0) {
        rc = vj_view_take(s, false, &t->view);
    }
    if (rc < 0) {
        vj_session_writer_end(s); /* the next one may do what this one does not */
    }
    return rc;
}

static void end_write(VjSession *s, VjSessionTxn *t)
{
    if (t->view != NULL) {
        vj_view_drop(s, t->view, false);
    }
    vj_session_writer_end(s);
}

int vj_session_begin(VjMeta *m, VjTxn *txn)
{
    VjSession *s = (VjSession *)m;
    VjSessionTxn *t = (VjSessionTxn *)txn;

    int rc;

    if (txn->write) {
        return begin_write(s, t);
    }
    rc = vj_session_is_shared(s) ? vj_shared_begin(s, txn) : 0;
    return rc < 0 ? rc : vj_view_take(s, true, &t->view);
}

/*
 * With what waits to be moved out of the way there may be room after all: the bound for
 * it is generous.  The transaction's own view must not pin pages meanwhile, and is not
 * needed any more.
 */
static int make_room(VjSession *s, VjSessionTxn *t)
{
    int rc;

    vj_view_drop(s, t->view, false);
    t->view = NULL;
    rc = vj_session_flush_moved(s);
    if (rc == 0) {
        rc = vj_session_reserve(s, t->txn.release);
    }
    if (rc == -ENOSPC && vj_engine_empty_apply_helps(s->engine)) {
        rc = vj_session_apply_empty(s);
        rc = rc < 0 ? rc : vj_session_reserve(s, t->txn.release);
    }
    return rc;
}

int vj_session_commit(VjTxn *txn)
{
    VjSession *s = session_of(txn);
    VjSessionTxn *t = (VjSessionTxn *)txn;
    int rc = 0;

    if (vj_session_is_shared(s)) {
        rc = vj_shared_commit(s, txn);
        vj_overlay_clear(&s->changes);
    } else if (s->changes.entry_count > 0) {
        rc = vj_session_reserve(s, txn->release);
        if (rc == -ENOSPC) {
            rc = make_room(s, t);
        }
        if (rc == 0) {
            vj_session_make_visible(s);
        } else {
            vj_overlay_clear(&s->changes);
        }
    }
    end_write(s, t);
    return rc;
}

void vj_session_abort(VjTxn *txn)
{
    VjSession *s = session_of(txn);
    VjSessionTxn *t = (VjSessionTxn *)txn;

    if (vj_session_is_shared(s) && txn->verdict == 0) {
        txn->verdict = vj_far_validate(s, txn);
    }
    if (txn->write) {
        vj_overlay_clear(&s->changes);
        end_write(s, t);
    } else {
        vj_view_drop(s, t->view, true);
    }
}

/* ---- One key --------------------------------------------------------------------- */

static int set(VjSession *s, VjSpace space, VjSlice key, const VjSlice *value)
{
    if (s->changes.bytes > s->txn_max_bytes) {
        vj_log_error("meta %s: a transaction of more than %" G_GUINT64_FORMAT " bytes",
                     s->engine->ops->name, s->txn_max_bytes);
        return -ENOMEM;
    }
    return vj_overlay_set(&s->changes, space, key, value);
}

int vj_session_put(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value)
{
    return set(session_of(txn), space, key, &value);
}

int vj_session_del(VjTxn *txn, VjSpace space, VjSlice key)
{
    VjSlice value;
    int rc = vj_view_get(txn, space, key, &value);

    return rc < 0 ? rc : set(session_of(txn), space, key, NULL);
}
