/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-move.c - from visible to durable
 *
 * One thread, the mover, freezes the active generation (a flush wants it, it fills half
 * of the memory or of the log, or it is as old as the commit interval), puts an empty one in its place,
 * and moves the frozen one into the file in one synchronous LMDB transaction.  A
 * generation is a run of whole commits and generations move in order, so the file always
 * holds a prefix of the commits.
 *
 * A failed move loses nothing: LMDB's transaction is dropped, the generation stays
 * (lmdb-reopen.c: and where LMDB gives up, it is opened anew), readers go on seeing it,
 * and the next try writes all of it into a new file (lmdb-renew.c), as the pages of the
 * old one cannot be relied upon any more.
 *
 * Readers take (generations, LMDB snapshot) under the state lock.  After LMDB's commit
 * and before the frozen generation is dropped a reader sees its changes twice, which is
 * the same as once; the other order would hide them.
 *
 * With a redo log (lmdb-redo.c) a flush writes what is not durable yet to that, and does not wait
 * for a move; a move says in the file which part of the log counts after it.
 */
#include "meta/lmdb-format.h"
#include "meta/lmdb-private.h"

/* ---- Generations ----------------------------------------------------------------- */

VjGeneration *vj_generation_new(void)
{
    VjGeneration *g = g_new0(VjGeneration, 1);

    vj_overlay_init(&g->overlay);
    g->refs = 1;
    return g;
}

void vj_generation_free(VjGeneration *g)
{
    g_assert(g->refs == 0);
    vj_overlay_clear(&g->overlay);
    g_free(g);
}

void vj_generation_unref(VjLmdb *d, VjGeneration *g)
{
    vj_mutex_assert_held(&d->state);
    g_assert(g->refs > 0);
    if (--g->refs == 0) {
        g->next_dropped = d->dropped;
        d->dropped = g;
        vj_cond_signal(&d->mover_wake);
    }
}

/*
 * LMDB keeps the pages that a move changes in memory until it commits.  Keys at random
 * touch a page each, so that these may weigh more than keys and values: both are counted.
 */
bool vj_lmdb_active_is_full(const VjLmdb *d)
{
    return d->active->overlay.bytes > d->generation_max_bytes ||
           vj_lmdb_likely_pages(d) * d->page_bytes > 2 * d->generation_max_bytes;
}

/* ---- One move -------------------------------------------------------------------- */

static int write_entry(VjLmdb *d, MDB_txn *txn, VjSpace space, const VjOverlayEntry *e)
{
    const VjVersion *v = e->newest;
    VjSlice slice = vj_entry_key(e);
    MDB_val key = {.mv_size = slice.len, .mv_data = (void *)slice.data};
    MDB_val value = {.mv_size = v->value_bytes, .mv_data = (void *)v->value};
    int rc;

    if (!v->tombstone) {
        rc = mdb_put(txn, d->dbi[space], &key, &value, 0);
        return rc == 0 ? 0 : vj_lmdb_errno(d, rc, "mdb_put");
    }
    rc = mdb_del(txn, d->dbi[space], &key, NULL);
    return rc == 0 || rc == MDB_NOTFOUND ? 0 : vj_lmdb_errno(d, rc, "mdb_del");
}

/* LMDB commits nothing where nothing was written. */
static int write_turn(VjLmdb *d, MDB_txn *txn, uint64_t number)
{
    MDB_val key = {.mv_size = strlen(VJ_LMDB_TURN_KEY), .mv_data = VJ_LMDB_TURN_KEY};
    MDB_val value = {.mv_size = sizeof number, .mv_data = &number};
    int rc = mdb_put(txn, d->unnamed, &key, &value, 0);

    return rc == 0 ? 0 : vj_lmdb_errno(d, rc, "mdb_put");
}

static int write_entries(VjLmdb *d, MDB_txn *txn, const VjGeneration *g)
{
    int rc = g->overlay.entry_count > 0 ? 0 : write_turn(d, txn, g->last_seq);

    if (rc < 0) {
        return rc;
    }
    for (VjSpace space = 0; space < VJ_SPACE_COUNT; space++) {
        for (const VjOverlayEntry *e = vj_overlay_first(&g->overlay, space); e != NULL;
             e = e->forward[0]) {
            rc = write_entry(d, txn, space, e);
            if (rc < 0) {
                return rc;
            }
        }
    }
    rc = vj_lmdb_redo_note(d, txn, g);
    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_put");
    }
    return d->hook == NULL ? 0 : d->hook(d->hook_opaque);
}

/* Frozen generations do not change, so no lock is needed to walk one. */
static int write_generation(VjLmdb *d, const VjGeneration *g)
{
    uint64_t commit;
    MDB_txn *txn;
    int rc = mdb_txn_begin(d->env, NULL, 0, &txn);

    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_txn_begin");
    }
    commit = mdb_txn_id(txn);
    rc = write_entries(d, txn, g);
    if (rc < 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    rc = mdb_txn_commit(txn);
    if (rc == 0) {
        /* Blocks that are written for the first time need the journal of the file
         * system. */
        rc = -vj_fd_check_alive(d->dir_fd);
    }
    if (rc == 0) {
        d->redo.claimed = !g->retires_log;
        d->good_commit = commit;
    }
    return rc == 0 ? 0 : vj_lmdb_errno(d, rc, "mdb_txn_commit");
}

/* ---- The mover ------------------------------------------------------------------- */

static bool freeze_due(const VjLmdb *d, int64_t now_us)
{
    const VjGeneration *g = d->active;

    if (d->frozen != NULL || g->overlay.entry_count == 0) {
        return d->frozen == NULL && d->turn_wanted;
    }
    return (d->move_seq > d->moved_seq || now_us >= g->first_us + d->commit_interval_us ||
            vj_lmdb_active_is_full(d) || vj_lmdb_redo_is_full(d));
}

static void freeze(VjLmdb *d) VJ_REQUIRES(&d->state)
{
    g_assert(d->frozen == NULL);
    d->frozen = d->active;
    d->frozen->last_seq = d->seq;
    d->active = vj_generation_new();
    vj_lmdb_redo_frozen(d, d->frozen);
    d->turn_wanted = false;
    d->retry_us = d->suspect ? d->renew_us : 0;
    d->retry_pause_us = VJ_LMDB_RETRY_FIRST_US;
    vj_cond_broadcast(&d->moved);
}

/* Transactions are short; one that is not costs a move its patience, not its life. */
static void wait_for_old_views(VjLmdb *d) VJ_REQUIRES(&d->state)
{
    int64_t until_us = vj_clock_mono_us() + VJ_LMDB_VIEWS_WAIT_US;

    while (d->old_views > 0 && !d->stopping && vj_lmdb_space_is_tight(d) &&
           vj_cond_wait_until(&d->mover_wake, &d->state, until_us)) {
    }
}

static void move_succeeded(VjLmdb *d, VjGeneration *g, const VjLmdbFile *file)
    VJ_REQUIRES(&d->state)
{
    d->moves++;
    d->old_views += d->views;
    d->views = 0;
    d->moved_seq = g->last_seq;
    d->durable_seq = MAX(d->durable_seq, d->moved_seq);
    d->frozen = NULL;
    vj_lmdb_redo_moved(d);
    vj_generation_unref(d, g);
    vj_lmdb_file_update(d, file);
}

static void move_failed(VjLmdb *d, const VjGeneration *g, int rc) VJ_REQUIRES(&d->state)
{
    d->move_failures++;
    d->last_failure = rc;
    d->retry_us = vj_clock_mono_us() + d->retry_pause_us;
    if (d->suspect) {
        d->retry_us = MAX(d->retry_us, d->renew_us);
    }
    d->retry_pause_us = MIN(d->retry_pause_us * 2, VJ_LMDB_RETRY_MAX_US);
    if (d->retry_when_asked) {
        d->retry_us = INT64_MAX;
    }
    vj_log_error("meta lmdb: %s: the changes of %" G_GUINT64_FORMAT
                 " keys are not durable yet: %s; trying again",
                 d->path, g->overlay.entry_count, g_strerror(-rc));
}

/* @file counts when @rc is 0. */
static void end_move(VjLmdb *d, VjGeneration *g, int rc, const VjLmdbFile *file)
    VJ_REQUIRES(&d->state)
{
    g_assert(d->frozen == g);
    d->move_error = rc;
    if (rc == 0) {
        move_succeeded(d, g, file);
    } else {
        move_failed(d, g, rc);
    }
    vj_cond_broadcast(&d->moved);
}

/* Gives the state lock up while it writes. */
static void move(VjLmdb *d) VJ_REQUIRES(&d->state)
{
    VjGeneration *g = d->frozen;
    VjLmdbFile file;
    bool broken, lost;
    int rc;

    rc = g_atomic_int_get(&d->broken) != 0 ? vj_lmdb_mend(d) : 0;
    if (rc == 0 && d->suspect) {
        rc = vj_lmdb_renew(d);
    }
    if (rc < 0) {
        end_move(d, g, rc, NULL);
        return;
    }
    wait_for_old_views(d);
    vj_mutex_unlock(&d->state);
    vj_trace(meta, "move: %" G_GUINT64_FORMAT " keys up to commit %" G_GUINT64_FORMAT,
             g->overlay.entry_count, g->last_seq);
    rc = write_generation(d, g);
    if (rc == 0) {
        rc = vj_lmdb_file_measure(d, &file);
    }
    lost = rc < 0 && vj_lmdb_write_was_lost(d, rc);
    broken = rc < 0 && vj_lmdb_is_broken(d);
    vj_mutex_lock(&d->state);
    if (lost) {
        vj_lmdb_suspect(d, rc);
    }
    if (broken && vj_lmdb_mend(d) < 0) {
        vj_log_error("meta lmdb: %s: cannot be read until it has been opened again",
                     d->path);
    }
    end_move(d, g, rc, &file);
}

/* Freeing a large generation takes milliseconds: without the lock. */
static void free_dropped(VjLmdb *d) VJ_REQUIRES(&d->state)
{
    while (d->dropped != NULL) {
        VjGeneration *g = d->dropped;

        d->dropped = g->next_dropped;
        vj_mutex_unlock(&d->state);
        vj_generation_free(g);
        vj_mutex_lock(&d->state);
    }
}

static void wait_for_work(VjLmdb *d) VJ_REQUIRES(&d->state)
{
    int64_t until_us = INT64_MAX;

    if (d->frozen != NULL) {
        until_us = d->retry_us;
    } else if (d->active->overlay.entry_count > 0) {
        until_us = d->active->first_us + d->commit_interval_us;
    }
    if (vj_lmdb_redo_renew_due(d, INT64_MAX)) {
        until_us = MIN(until_us, d->redo.renew_us);
    }
    if (until_us < INT64_MAX) {
        (void)vj_cond_wait_until(&d->mover_wake, &d->state, until_us);
    } else {
        vj_cond_wait(&d->mover_wake, &d->state);
    }
}

static gpointer mover_main(gpointer opaque)
{
    VjLmdb *d = opaque;

    vj_mutex_lock(&d->state);
    while (!d->stopping) {
        int64_t now_us = vj_clock_mono_us();

        if (freeze_due(d, now_us)) {
            freeze(d);
        }
        if (d->frozen != NULL && d->retry_us <= now_us) {
            move(d);
        } else if (vj_lmdb_redo_renew_due(d, now_us)) {
            vj_lmdb_redo_renew(d);
        } else if (d->dropped != NULL) {
            free_dropped(d);
        } else {
            wait_for_work(d);
        }
    }
    vj_mutex_unlock(&d->state);
    return NULL;
}

void vj_lmdb_mover_start(VjLmdb *d)
{
    g_assert(!d->read_only && d->mover == NULL);
    d->mover = g_thread_new("vj-meta-move", mover_main, d);
}

void vj_lmdb_mover_stop(VjLmdb *d)
{
    if (d->mover == NULL) {
        return;
    }
    vj_mutex_lock(&d->state);
    d->stopping = true;
    vj_cond_signal(&d->mover_wake);
    vj_mutex_unlock(&d->state);
    g_thread_join(d->mover);
    d->mover = NULL;
}

/* ---- Flush ----------------------------------------------------------------------- */

/* One waiter's part of a move: what it saw when it asked. */
typedef struct Ask {
    bool asked;
    uint64_t failures;
} Ask;

/*
 * Waiters whose commits are in the running move wait for that one; all others share the
 * next. A move that fails while one waits is that waiter's error: moves go in order, so
 * its own commits were not made durable either.  Before the waiter runs again the mover may
 * have moved that generation after all, but not yet the waiter's: hence last_failure.
 */
static int wait_for_move(VjLmdb *d, uint64_t wanted, Ask *ask) VJ_REQUIRES(&d->state)
{
    if (!ask->asked) {
        ask->asked = true;
        ask->failures = d->move_failures;
        d->move_seq = MAX(d->move_seq, wanted);
        d->retry_us = d->suspect ? d->renew_us : 0;
        vj_cond_signal(&d->mover_wake);
    }
    if (d->move_failures != ask->failures) {
        g_assert(d->last_failure < 0);
        return d->last_failure;
    }
    vj_cond_wait(&d->moved, &d->state);
    return 0;
}

int vj_lmdb_flush_moved(VjLmdb *d)
{
    Ask ask = {.asked = false};
    uint64_t wanted;
    int rc = 0;

    vj_mutex_lock(&d->state);
    wanted = d->seq;
    while (rc == 0 && wanted > d->moved_seq) {
        rc = wait_for_move(d, wanted, &ask);
    }
    rc = wanted <= d->moved_seq ? 0 : rc;
    vj_mutex_unlock(&d->state);
    return rc;
}

/*
 * Tells those who joined and have what they want; @all: the others that they are to flush for themselves.
 * True: there were some, and the lock was dropped meanwhile.
 */
static bool tell_joined(VjLmdb *d, bool all) VJ_REQUIRES(&d->state)
{
    uint64_t durable_seq = d->durable_seq;
    VjFlushWait *taken = NULL, **at = &d->joined, *w;

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
    vj_mutex_unlock(&d->state);
    while ((w = taken) != NULL) {
        taken = w->next;
        w->done(w, w->wanted <= durable_seq ? 0 : -EAGAIN);
    }
    vj_mutex_lock(&d->state);
    return true;
}

/*
 * The first who comes writes the log for all that is visible by then; who comes meanwhile waits,
 * and one of those writes for all of them.  Where the log has no room or failed, the move is
 * waited for.
 */
int vj_lmdb_flush(VjMeta *m)
{
    VjLmdb *d = (VjLmdb *)m;
    Ask ask = {.asked = false};
    uint64_t wanted;
    int rc = 0;

    vj_mutex_lock(&d->state);
    wanted = d->seq;
    while (rc == 0 && wanted > d->durable_seq) {
        if (d->redo.busy) {
            vj_cond_wait(&d->moved, &d->state);
        } else if (d->redo.serves && vj_lmdb_redo_fits(d)) {
            vj_lmdb_redo_write(d);
            (void)tell_joined(d, true);
        } else {
            rc = wait_for_move(d, wanted, &ask);
        }
    }
    rc = wanted <= d->durable_seq ? 0 : rc;
    vj_mutex_unlock(&d->state);
    g_assert(rc <= 0);
    return rc;
}

/*
 * Who comes while somebody writes the log leaves a note and goes.  Who writes for such notes writes again
 * as long as there are some.
 */
void vj_lmdb_flush_join(VjMeta *m, VjFlushWait *w)
{
    VjLmdb *d = (VjLmdb *)m;
    bool is_durable, joins;

    vj_mutex_lock(&d->state);
    w->wanted = d->seq;
    is_durable = w->wanted <= d->durable_seq;
    joins = !is_durable && (d->redo.busy || (d->redo.serves && vj_lmdb_redo_fits(d)));
    if (joins) {
        w->next = d->joined;
        d->joined = w;
    }
    while (joins && d->joined != NULL && !d->redo.busy) {
        bool can = d->redo.serves && vj_lmdb_redo_fits(d);

        if (!tell_joined(d, !can) && can) {
            vj_lmdb_redo_write(d);
        }
    }
    vj_mutex_unlock(&d->state);
    if (!joins) {
        w->done(w, is_durable ? 0 : vj_lmdb_flush(m));
    }
}

int vj_lmdb_turn(VjLmdb *d)
{
    uint64_t moves, failures;
    int rc;

    vj_mutex_lock(&d->state);
    g_assert(d->moved_seq == d->seq);
    moves = d->moves;
    failures = d->move_failures;
    d->turn_wanted = true;
    vj_cond_signal(&d->mover_wake);
    while (d->moves == moves && d->move_failures == failures) {
        vj_cond_wait(&d->moved, &d->state);
    }
    rc = d->moves > moves ? 0 : d->move_error;
    vj_mutex_unlock(&d->state);
    return rc;
}

/* ---- Tests ----------------------------------------------------------------------- */

void vj_lmdb_set_move_hook_for_test(VjMeta *m, VjLmdbMoveHook *hook, void *opaque)
{
    VjLmdb *d = (VjLmdb *)m;

    g_assert(m->ops == &vj_meta_lmdb_ops);
    vj_mutex_lock(&d->state);
    d->hook_opaque = opaque;
    d->hook = hook;
    vj_mutex_unlock(&d->state);
}

void vj_lmdb_retry_when_asked_for_test(VjMeta *m)
{
    VjLmdb *d = (VjLmdb *)m;

    g_assert(m->ops == &vj_meta_lmdb_ops);
    vj_mutex_lock(&d->state);
    d->retry_when_asked = true;
    vj_mutex_unlock(&d->state);
}

uint64_t vj_lmdb_overruns_for_test(VjMeta *m)
{
    VjLmdb *d = (VjLmdb *)m;
    uint64_t overruns;

    g_assert(m->ops == &vj_meta_lmdb_ops);
    vj_mutex_lock(&d->state);
    overruns = d->overruns;
    vj_mutex_unlock(&d->state);
    return overruns;
}

uint64_t vj_lmdb_moves_for_test(VjMeta *m)
{
    VjLmdb *d = (VjLmdb *)m;
    uint64_t moves;

    g_assert(m->ops == &vj_meta_lmdb_ops);
    vj_mutex_lock(&d->state);
    moves = d->moves;
    vj_mutex_unlock(&d->state);
    return moves;
}
