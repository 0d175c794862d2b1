/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * applier.c - from visible to durable
 *
 * A thread, the applier, freezes the active generation (a flush wants it, it fills half
 * of the memory or of the log, or it is as old as the commit interval), puts an empty one
 * in its place, and applies the frozen one to the engine in one step.  A generation is a
 * run of whole commits and generations move in order, so the engine always holds a prefix
 * of the commits.
 *
 * A thread that flushes without a log would only wait for that: while the applier has
 * nothing to do it does the applier's work itself, one thread at a time.
 *
 * A failed move loses nothing: the generation stays, readers go on seeing it, and the
 * next try applies all of it.
 *
 * An advance copy for another machine's memory (send.c) is sent between two moves.
 *
 * With a log (redo-write.c) a flush writes what is not durable yet to that, and does not
 * wait for a move; a move says to the engine which part of the log counts after it.
 */
#include "meta/leased-private.h"

/* ---- The applier ------------------------------------------------------------------- */

static bool freeze_due(const VjSession *s, int64_t now_us)
{
    const VjGeneration *g = s->active;

    if (s->frozen != NULL || g->overlay.entry_count == 0) {
        return s->frozen == NULL && s->empty_wanted;
    }
    return (s->move_seq > s->moved_seq || now_us >= g->first_us + s->commit_interval_us ||
            vj_session_is_full(s) || vj_session_redo_is_full(s));
}

static void freeze(VjSession *s) VJ_REQUIRES(&s->state)
{
    g_assert(s->frozen == NULL);
    s->frozen = s->active;
    s->frozen->last_seq = s->seq;
    s->active = vj_generation_new();
    vj_session_redo_frozen(s, s->frozen);
    s->empty_wanted = false;
    s->retry_us = 0;
    s->retry_pause_us = VJ_MOVE_RETRY_FIRST_US;
    vj_cond_broadcast(&s->moved);
}

static void move_succeeded(VjSession *s, VjGeneration *g) VJ_REQUIRES(&s->state)
{
    s->moves++;
    s->moved_seq = g->last_seq;
    s->durable_seq = MAX(s->durable_seq, s->moved_seq);
    s->frozen = NULL;
    vj_session_redo_moved(s);
    vj_generation_unref(s, g);
}

static uint64_t keys_on_their_way(const VjSession *s)
{
    return s->active->overlay.entry_count +
           (s->frozen != NULL ? s->frozen->overlay.entry_count : 0);
}

void vj_session_was_shut_out(VjSession *s)
{
    g_assert(!s->is_shut_out);
    s->is_shut_out = true;
    s->redo.serves = false;
    s->retry_us = INT64_MAX;
    vj_log_error("meta %s: another session has taken over from session %" G_GUINT64_FORMAT
                 "; the changes of %" G_GUINT64_FORMAT
                 " keys that were not durable are lost",
                 s->label, s->number, keys_on_their_way(s));
    vj_cond_broadcast(&s->moved);
    vj_cond_signal(&s->applier_wake);
    if (s->leased != NULL) {
        vj_cond_broadcast(&s->leased->wake);
        vj_cond_broadcast(&s->leased->looked);
    }
}

static void move_failed(VjSession *s, const VjGeneration *g, int rc)
    VJ_REQUIRES(&s->state)
{
    s->move_failures++;
    s->last_failure = rc;
    if (rc == -ESTALE) {
        if (!s->is_shut_out) {
            vj_session_was_shut_out(s);
        }
        s->retry_us = INT64_MAX;
        return;
    }
    s->retry_us = vj_clock_mono_us() + s->retry_pause_us;
    s->retry_pause_us = MIN(s->retry_pause_us * 2, VJ_MOVE_RETRY_MAX_US);
    if (s->retry_when_asked) {
        s->retry_us = INT64_MAX;
    }
    vj_log_error("meta %s: the changes of %" G_GUINT64_FORMAT
                 " keys are not durable yet: %s; trying again",
                 s->label, g->overlay.entry_count, g_strerror(-rc));
}

static void end_move(VjSession *s, VjGeneration *g, int rc) VJ_REQUIRES(&s->state)
{
    g_assert(s->frozen == g);
    s->moving = false;
    s->move_error = rc;
    if (rc == 0) {
        move_succeeded(s, g);
    } else {
        move_failed(s, g, rc);
    }
    vj_cond_broadcast(&s->moved);
}

/* Gives the state lock up meanwhile.  Frozen generations do not change. */
static void move(VjSession *s) VJ_REQUIRES(&s->state)
{
    VjGeneration *g = s->frozen;
    VjRedoPoint point;
    VjLoad load;
    VjBatch batch = {.next = vj_overlay_next_change,
                     .changes = &g->overlay,
                     .count = g->overlay.entry_count,
                     .number = g->last_seq,
                     .fence = vj_session_fence(s),
                     .load = &load};
    int rc;

    if (vj_session_redo_point(s, g, &point)) {
        batch.log = &point;
    }
    vj_session_load(s, NULL, &load);
    s->applied_seq = g->last_seq;
    s->moving = true;
    vj_mutex_unlock(&s->state);
    vj_trace(meta, "move: %" G_GUINT64_FORMAT " keys up to commit %" G_GUINT64_FORMAT,
             batch.count, batch.number);
    rc = vj_engine_apply(s->engine, &batch, NULL, VJ_NO_DEADLINE);
    if (rc == 0 && s->cache != NULL) {
        vj_item_cache_apply(s->cache, &batch); /* while the generation still hides it */
    }
    if (rc == 0) {
        vj_session_fence_moved(s, g->last_seq);
    }
    vj_mutex_lock(&s->state);
    if (rc == 0) {
        s->redo.claimed = batch.log != NULL;
    }
    end_move(s, g, rc);
}

/* Freeing a large generation takes milliseconds: without the lock. */
static void free_dropped(VjSession *s) VJ_REQUIRES(&s->state)
{
    while (s->dropped != NULL) {
        VjGeneration *g = s->dropped;

        s->dropped = g->next_dropped;
        vj_mutex_unlock(&s->state);
        vj_generation_free(g);
        vj_mutex_lock(&s->state);
    }
}

static void wait_for_work(VjSession *s) VJ_REQUIRES(&s->state)
{
    int64_t until_us = INT64_MAX;

    if (s->has_worker) {
        s->applier_waits_for_worker = true;
    } else if (s->frozen != NULL) {
        until_us = s->retry_us;
    } else if (s->active->overlay.entry_count > 0) {
        until_us = s->active->first_us + s->commit_interval_us;
    }
    if (!s->has_worker && vj_session_redo_renew_due(s, INT64_MAX)) {
        until_us = MIN(until_us, s->redo.renew_us);
    }
    s->applier_until_us = until_us;
    if (until_us < INT64_MAX) {
        (void)vj_cond_wait_until(&s->applier_wake, &s->state, until_us);
    } else {
        vj_cond_wait(&s->applier_wake, &s->state);
    }
    s->applier_until_us = INT64_MAX;
    s->applier_waits_for_worker = false;
}

/* False: nothing is to be moved or sent now. */
static bool move_or_send(VjSession *s, int64_t now_us) VJ_REQUIRES(&s->state)
{
    bool does = true;

    g_assert(s->has_worker);
    if (freeze_due(s, now_us)) {
        freeze(s);
    }
    if (s->frozen != NULL && s->retry_us <= now_us) {
        move(s);
    } else if (vj_session_send_due(s)) {
        vj_session_send_now(s);
    } else {
        does = false;
    }
    return does;
}

/* False: there is nothing to do now. */
static bool do_next(VjSession *s) VJ_REQUIRES(&s->state)
{
    int64_t now_us = vj_clock_mono_us();
    bool does = true;

    if (move_or_send(s, now_us)) {
        /* the rest the next time */
    } else if (vj_session_redo_renew_due(s, now_us)) {
        vj_session_redo_renew(s);
    } else if (s->dropped != NULL) {
        free_dropped(s);
    } else if (vj_session_tell_due(s)) {
        vj_session_tell_shut_out(s);
    } else {
        does = false;
    }
    return does;
}

/* More dropped entries than these are left to the applier. */
#define HELPER_FREES_MAX 1024u

static bool frees_itself(const VjSession *s)
{
    uint64_t entries = 0;

    for (const VjGeneration *g = s->dropped; g != NULL; g = g->next_dropped) {
        entries += g->overlay.entry_count;
    }
    return entries <= HELPER_FREES_MAX;
}

bool vj_applier_help(VjSession *s)
{
    VjCancel *own;
    bool does, leaves_rest = false;

    if (s->has_worker || s->applier == NULL) {
        return false;
    }
    s->has_worker = true;
    own = vj_cancel_leave(); /* others wait for what it does, too */
    vj_before_wait();
    does = move_or_send(s, vj_clock_mono_us());
    if (does && frees_itself(s)) {
        free_dropped(s);
    } else {
        leaves_rest = s->dropped != NULL;
    }
    vj_cancel_enter(own);
    s->has_worker = false;
    if (s->applier_waits_for_worker || s->frozen != NULL || leaves_rest ||
        freeze_due(s, vj_clock_mono_us()) || vj_session_send_due(s) ||
        vj_session_redo_renew_due(s, vj_clock_mono_us())) {
        vj_cond_signal(&s->applier_wake);
    }
    return does;
}

static gpointer applier_main(gpointer opaque)
{
    VjSession *s = opaque;

    vj_mutex_lock(&s->state);
    while (!s->stopping) {
        bool does = false;

        if (!s->has_worker) {
            s->has_worker = true;
            does = do_next(s);
            s->has_worker = false;
        }
        if (!does) {
            wait_for_work(s);
        }
    }
    vj_mutex_unlock(&s->state);
    return NULL;
}

void vj_applier_start(VjSession *s)
{
    g_assert(!s->read_only && s->applier == NULL);
    s->applier = g_thread_new("vj-meta-apply", applier_main, s);
}

void vj_applier_stop(VjSession *s)
{
    if (s->applier == NULL) {
        return;
    }
    vj_mutex_lock(&s->state);
    s->stopping = true;
    vj_cond_signal(&s->applier_wake);
    vj_mutex_unlock(&s->state);
    g_thread_join(s->applier);
    s->applier = NULL;
}

/* ---- Tests ----------------------------------------------------------------------- */

void vj_session_retry_when_asked_for_test(VjMeta *m)
{
    VjSession *s = vj_session_of(m);

    vj_mutex_lock(&s->state);
    s->retry_when_asked = true;
    vj_mutex_unlock(&s->state);
}

uint64_t vj_session_moves_for_test(VjMeta *m)
{
    VjSession *s = vj_session_of(m);
    uint64_t moves;

    vj_mutex_lock(&s->state);
    moves = s->moves;
    vj_mutex_unlock(&s->state);
    return moves;
}
