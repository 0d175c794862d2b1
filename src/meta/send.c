/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * send.c - waiting until what is visible is in the memory of the engine's machine
 *
 * The applier applies an advance copy of the active generation, which stays as it is: all
 * of it comes again in the move that makes it durable.  Of a generation that has been
 * sent before, only what changed since is, and the batch names the commit on which it
 * stands; an engine that has begun anew meanwhile does not have that, says so, and gets
 * all of the generation.  What was moved before is durable there.
 *
 * Advance copies and moves are never under way at one time, and no generation is frozen
 * when a copy is sent: so the numbers of the batches only grow.  A generation that waits
 * to be moved goes first, and then a send waits for that.
 */
#include "meta/session-private.h"

/* What an advance copy has, in order of space and key. */
typedef struct Copy {
    VjUnlogged *items; /* owned */
    uint64_t count;
} Copy;

static bool next_item(const VjBatch *batch, const void **at, VjChange *out)
{
    const Copy *c = batch->changes;
    const VjUnlogged *next = *at == NULL ? c->items : (const VjUnlogged *)*at + 1;

    if (next == c->items + c->count) {
        return false;
    }
    *at = next;
    *out = (VjChange){.space = (VjSpace)next->entry->space,
                      .is_delete = next->version->tombstone,
                      .key = vj_entry_key(next->entry),
                      .value = vj_version_value(next->version)};
    return true;
}

static int compare_items(const void *one, const void *two)
{
    const VjOverlayEntry *a = ((const VjUnlogged *)one)->entry;
    const VjOverlayEntry *b = ((const VjUnlogged *)two)->entry;

    return a->space != b->space ? (a->space < b->space ? -1 : 1)
                                : vj_slice_compare(vj_entry_key(a), vj_entry_key(b));
}

/* Everything in it, whether it was sent before or not. */
static void take_all(VjOverlay *o, Copy *out)
{
    uint64_t i = 0;

    vj_overlay_take_unlogged(o, out->items);
    for (VjSpace space = 0; space < VJ_SPACE_COUNT; space++) {
        for (const VjOverlayEntry *e = vj_overlay_first(o, space); e != NULL;
             e = e->forward[0]) {
            out->items[i++] = (VjUnlogged){.entry = e, .version = e->newest};
        }
    }
    g_assert(i == out->count);
}

/* -ENOMEM */
static int take_copy(VjGeneration *g, Copy *out)
{
    VjOverlay *o = &g->overlay;
    bool is_first = g->sent_seq == 0;

    g_assert(o->unlogged_count <= o->entry_count);
    out->count = is_first ? o->entry_count : o->unlogged_count;
    out->items = g_try_new(VjUnlogged, out->count);
    if (out->items == NULL) {
        return -ENOMEM;
    }
    if (is_first) {
        take_all(o, out);
    } else {
        vj_overlay_take_unlogged(o, out->items);
    }
    return 0;
}

/* Without a lock: entries, and versions that a snapshot sees, do not change. */
static int apply_copy(VjSession *s, Copy *c, uint64_t number, uint64_t after)
{
    VjBatch batch = {.next = next_item,
                     .changes = c,
                     .count = c->count,
                     .number = number,
                     .is_received = true,
                     .after = after,
                     .fence = vj_session_fence(s)};

    if (after > 0) {
        qsort(c->items, c->count, sizeof *c->items, compare_items);
    }
    vj_trace(meta, "send: %" G_GUINT64_FORMAT " keys up to commit %" G_GUINT64_FORMAT,
             batch.count, batch.number);
    return vj_engine_apply(s->engine, &batch, NULL, VJ_NO_DEADLINE);
}

static void end_send(VjSession *s, VjGeneration *g, uint64_t seq, int rc)
    VJ_REQUIRES(&s->state)
{
    bool is_missing = rc == -EAGAIN && g->sent_seq > 0;

    g_assert(s->active == g);
    g->sent_seq = rc == 0 ? seq : 0;
    if (rc == 0) {
        s->received_seq = seq;
        s->sends++;
    } else if (!is_missing) {
        s->send_seq = 0; /* the waiters are told; who comes later asks again */
        s->send_failures++;
        s->send_error = rc;
        if (rc == -ESTALE && !s->is_shut_out) {
            vj_session_was_shut_out(s);
        }
    }
    vj_cond_broadcast(&s->moved);
}

bool vj_session_send_due(const VjSession *s)
{
    return s->frozen == NULL && s->active->overlay.entry_count > 0 &&
           s->send_seq > MAX(s->received_seq, s->moved_seq);
}

/* The latest view that reads the engine and has not the commits that are on their way
 * begins anew, as with a move. */
void vj_session_send_now(VjSession *s)
{
    VjGeneration *g = s->active;
    VjSnapshot snapshot = {.seq = s->seq};
    Copy copy = {.items = NULL};
    int rc = take_copy(g, &copy);

    g_assert(s->frozen == NULL && !s->moving);
    if (rc == 0) {
        uint64_t after = g->sent_seq;

        g->refs++;
        vj_snapshots_add(&s->snapshots, &snapshot);
        s->applied_seq = MAX(s->applied_seq, snapshot.seq);
        s->moving = true;
        vj_mutex_unlock(&s->state);
        rc = apply_copy(s, &copy, snapshot.seq, after);
        vj_mutex_lock(&s->state);
        s->moving = false;
        vj_snapshots_remove(&s->snapshots, &snapshot);
        vj_generation_unref(s, g);
    }
    g_free(copy.items);
    end_send(s, g, snapshot.seq, rc);
}

/* ---- Waiting ----------------------------------------------------------------------- */

/* One waiter's part: what it saw when it asked. */
typedef struct Ask {
    bool asked;
    uint64_t move_failures, send_failures;
} Ask;

/* As of a flush: a failure while one waits is that waiter's error. */
static int wait_for_send(VjSession *s, uint64_t wanted, Ask *ask) VJ_REQUIRES(&s->state)
{
    if (s->is_shut_out) {
        return -ESTALE;
    }
    if (!ask->asked) {
        *ask = (Ask){true, s->move_failures, s->send_failures};
        s->send_seq = MAX(s->send_seq, wanted);
        s->retry_us = 0;
    }
    if (s->send_failures != ask->send_failures) {
        g_assert(s->send_error < 0);
        return s->send_error;
    }
    if (s->move_failures != ask->move_failures) {
        g_assert(s->last_failure < 0);
        return s->last_failure;
    }
    if (!vj_applier_help(s)) {
        vj_cond_wait(&s->moved, &s->state);
    }
    return 0;
}

int vj_session_send(VjMeta *m)
{
    VjSession *s = (VjSession *)m;
    Ask ask = {.asked = false};
    uint64_t wanted;
    int rc = 0;

    if (s->leased == NULL || !vj_engine_receives(s->engine)) {
        return 0;
    }
    vj_mutex_lock(&s->state);
    wanted = s->seq;
    while (rc == 0 && wanted > MAX(s->received_seq, s->moved_seq)) {
        rc = wait_for_send(s, wanted, &ask);
    }
    rc = wanted <= MAX(s->received_seq, s->moved_seq) ? 0 : rc;
    vj_mutex_unlock(&s->state);
    return rc;
}

uint64_t vj_session_sends_for_test(VjMeta *m)
{
    VjSession *s = vj_session_of(m);
    uint64_t sends;

    vj_mutex_lock(&s->state);
    sends = s->sends;
    vj_mutex_unlock(&s->state);
    return sends;
}
