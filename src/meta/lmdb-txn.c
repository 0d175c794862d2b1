/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-txn.c - transactions of the lmdb driver
 *
 * A transaction holds references on the generations that there were when it began, an
 * LMDB snapshot that fits them, and the sequence number up to which it sees the active
 * one.  So nothing that it borrowed goes away before its end, whatever is frozen, moved
 * or committed meanwhile.  A read transaction is registered as a snapshot, so that the
 * versions which it sees are kept; a write transaction need not be, as nobody else
 * commits while it runs.
 *
 * The state lock is taken to look into the active generation, which grows; frozen ones
 * are read without a lock, and LMDB (which may fault pages in) never under one.
 */
#include "meta/lmdb-private.h"

static VjLmdb *driver_of(const VjTxn *txn)
{
    return (VjLmdb *)txn->meta;
}

static VjLmdbView *view_of(const VjTxn *txn)
{
    return ((const VjLmdbTxn *)txn)->view;
}

/* ---- The pool of views ----------------------------------------------------------- */

static void view_free(VjLmdbView *v)
{
    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        if (v->cursors[i] != NULL) {
            mdb_cursor_close(v->cursors[i]);
        }
    }
    mdb_txn_abort(v->lmdb);
    g_free(v);
}

static int view_new(VjLmdb *d, VjLmdbView **out)
{
    VjLmdbView *v = g_try_new0(VjLmdbView, 1);
    int rc;

    *out = NULL;
    if (v == NULL) {
        return -ENOMEM;
    }
    rc = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &v->lmdb);
    if (rc != 0) {
        g_free(v);
        return vj_lmdb_errno(d, rc, "mdb_txn_begin");
    }
    mdb_txn_reset(v->lmdb);
    *out = v;
    return 0;
}

void vj_lmdb_views_clear(VjLmdb *d)
{
    vj_mutex_lock(&d->state);
    while (d->idle != NULL) {
        VjLmdbView *v = d->idle;

        d->idle = v->next_idle;
        view_free(v);
    }
    vj_mutex_unlock(&d->state);
}

static void push_idle(VjLmdb *d, VjLmdbView *v) VJ_REQUIRES(&d->state)
{
    v->next_idle = d->idle;
    d->idle = v;
}

/* Generations, LMDB snapshot and sequence number in one step.  The slot is there already,
 * so that the renewal takes no lock and does no I/O. */
static int view_renew(VjLmdb *d, VjLmdbView *v, bool enlist) VJ_REQUIRES(&d->state)
{
    int rc = mdb_txn_renew(v->lmdb);

    if (rc != 0) {
        push_idle(d, v);
        return vj_lmdb_errno(d, rc, "mdb_txn_renew");
    }
    v->cursors_bound = 0;
    v->active = d->active;
    v->active->refs++;
    v->frozen = d->frozen;
    if (v->frozen != NULL) {
        v->frozen->refs++;
    }
    v->move_count = d->moves;
    d->views++;
    v->snapshot.seq = d->seq;
    if (enlist) {
        vj_snapshots_add(&d->snapshots, &v->snapshot);
    }
    return 0;
}

/* It waits until there are no views. */
static void wake_mender(VjLmdb *d) VJ_REQUIRES(&d->state)
{
    if (g_atomic_int_get(&d->broken) != 0 || d->reopening) {
        vj_cond_signal(&d->mover_wake);
    }
}

/* The mover opens it again, which takes as long as the transactions that there are. */
static int wait_for_file(VjLmdb *d, int64_t until_us) VJ_REQUIRES(&d->state)
{
    while (g_atomic_int_get(&d->broken) != 0 || d->reopening) {
        if (!vj_cond_wait_until(&d->moved, &d->state, until_us)) {
            return -EIO;
        }
    }
    return 0;
}

static int view_try(VjLmdb *d, bool enlist, VjLmdbView **out) VJ_REQUIRES(&d->state)
{
    VjLmdbView *v = d->idle;
    int rc = 0;

    if (v != NULL) {
        d->idle = v->next_idle;
    } else {
        d->making++;
        vj_mutex_unlock(&d->state);
        rc = view_new(d, &v);
        vj_mutex_lock(&d->state);
        d->making--;
        wake_mender(d);
    }
    if (rc == 0) {
        rc = view_renew(d, v, enlist);
    }
    *out = rc == 0 ? v : NULL;
    return rc;
}

static int view_take(VjLmdb *d, bool enlist, VjLmdbView **out)
{
    int64_t until_us = 0;
    int rc;

    *out = NULL;
    vj_mutex_lock(&d->state);
    do {
        rc = 0;
        if (g_atomic_int_get(&d->broken) != 0 || d->reopening) {
            until_us =
                until_us != 0 ? until_us : vj_clock_mono_us() + VJ_LMDB_REOPEN_WAIT_US;
            rc = wait_for_file(d, until_us);
        }
        if (rc == 0) {
            rc = view_try(d, enlist, out);
        }
        /* LMDB may have given up just now. */
    } while (rc == -EIO && g_atomic_int_get(&d->broken) != 0 &&
             (until_us == 0 || vj_clock_mono_us() < until_us));
    vj_mutex_unlock(&d->state);
    return rc;
}

int vj_lmdb_hold(VjLmdb *d)
{
    int rc;

    vj_mutex_lock(&d->state);
    rc = wait_for_file(d, vj_clock_mono_us() + VJ_LMDB_REOPEN_WAIT_US);
    d->making += rc == 0;
    vj_mutex_unlock(&d->state);
    return rc;
}

void vj_lmdb_release(VjLmdb *d)
{
    vj_mutex_lock(&d->state);
    d->making--;
    wake_mender(d);
    vj_mutex_unlock(&d->state);
}

static void view_drop(VjLmdb *d, VjLmdbView *v, bool enlisted)
{
    mdb_txn_reset(v->lmdb);
    vj_mutex_lock(&d->state);
    if (enlisted) {
        vj_snapshots_remove(&d->snapshots, &v->snapshot);
    }
    vj_generation_unref(d, v->active);
    if (v->frozen != NULL) {
        vj_generation_unref(d, v->frozen);
    }
    v->active = v->frozen = NULL;
    if (v->move_count == d->moves) {
        d->views--;
    } else if (--d->old_views == 0) {
        vj_cond_signal(&d->mover_wake);
    }
    push_idle(d, v);
    wake_mender(d);
    vj_mutex_unlock(&d->state);
}

/* ---- Begin and end --------------------------------------------------------------- */

/* Back-pressure: 0 when there is memory for one more write transaction. */
static int wait_for_memory(VjLmdb *d)
{
    int rc = 0;

    vj_mutex_lock(&d->state);
    while (rc == 0 && vj_lmdb_active_is_full(d)) {
        if (d->move_error != 0) {
            rc = d->move_error;
        } else {
            vj_cond_signal(&d->mover_wake);
            vj_cond_wait(&d->moved, &d->state);
        }
    }
    vj_mutex_unlock(&d->state);
    return rc;
}

/* The writer mutex stays locked until the transaction ends: more than the analysis can
 * see. */
static int begin_write(VjLmdb *d, VjLmdbTxn *t) VJ_TSA(no_thread_safety_analysis);
static int begin_write(VjLmdb *d, VjLmdbTxn *t)
{
    int rc;

    if (d->read_only) {
        return -EROFS;
    }
    vj_mutex_lock(&d->writer);
    g_assert(d->changes.entry_count == 0);
    rc = wait_for_memory(d);
    if (rc == 0) {
        rc = view_take(d, false, &t->view);
    }
    if (rc < 0) {
        vj_mutex_unlock(&d->writer);
    }
    return rc;
}

static void end_write(VjLmdb *d, VjLmdbTxn *t) VJ_TSA(no_thread_safety_analysis);
static void end_write(VjLmdb *d, VjLmdbTxn *t)
{
    vj_mutex_assert_held(&d->writer);
    g_assert(d->changes.entry_count == 0);
    if (t->view != NULL) {
        view_drop(d, t->view, false);
    }
    vj_mutex_unlock(&d->writer);
}

int vj_lmdb_begin(VjMeta *m, VjTxn *txn)
{
    VjLmdb *d = (VjLmdb *)m;
    VjLmdbTxn *t = (VjLmdbTxn *)txn;

    return txn->write ? begin_write(d, t) : view_take(d, true, &t->view);
}

void vj_lmdb_publish(VjLmdb *d)
{
    VjOverlay *to;

    vj_mutex_lock(&d->state);
    to = &d->active->overlay;
    if (to->entry_count == 0) {
        d->active->first_us = vj_clock_mono_us();
        vj_cond_signal(&d->mover_wake);
    }
    d->seq++;
    vj_overlay_merge(to, &d->changes, d->seq, &d->snapshots);
    if (vj_lmdb_active_is_full(d)) {
        vj_cond_signal(&d->mover_wake);
    }
    vj_mutex_unlock(&d->state);
}

/*
 * With what waits to be moved out of the way there may be room after all: the bound for
 * it is generous.  The transaction's own view must not pin pages meanwhile, and is not
 * needed any more.
 */
static int make_room(VjLmdb *d, VjLmdbTxn *t)
{
    int rc;

    view_drop(d, t->view, false);
    t->view = NULL;
    vj_lmdb_save_yield(d);
    rc = vj_lmdb_flush_moved(d);
    if (rc == 0) {
        rc = vj_lmdb_space_claim(d, t->txn.release);
    }
    if (rc == -ENOSPC && vj_lmdb_turn_helps(d)) {
        rc = vj_lmdb_turn(d);
        rc = rc < 0 ? rc : vj_lmdb_space_claim(d, t->txn.release);
    }
    return rc;
}

int vj_lmdb_commit(VjTxn *txn)
{
    VjLmdb *d = driver_of(txn);
    VjLmdbTxn *t = (VjLmdbTxn *)txn;
    int rc = 0;

    if (d->changes.entry_count > 0) {
        rc = vj_lmdb_space_claim(d, txn->release);
        if (rc == -ENOSPC) {
            rc = make_room(d, t);
        }
        if (rc == 0) {
            vj_lmdb_publish(d);
        } else {
            vj_overlay_clear(&d->changes);
        }
    }
    end_write(d, t);
    return rc;
}

void vj_lmdb_abort(VjTxn *txn)
{
    VjLmdb *d = driver_of(txn);

    if (txn->write) {
        vj_overlay_clear(&d->changes);
        end_write(d, (VjLmdbTxn *)txn);
    } else {
        view_drop(d, view_of(txn), true);
    }
}

/* ---- One key --------------------------------------------------------------------- */

/* What the memory layers say of @key; NULL: nothing, ask the file. */
static const VjVersion *find_in_memory(const VjTxn *txn, VjSpace space, VjSlice key)
{
    VjLmdb *d = driver_of(txn);
    const VjLmdbView *view = view_of(txn);
    const VjVersion *v = NULL;
    const VjOverlayEntry *e;

    if (txn->write) {
        e = vj_overlay_find(&d->changes, space, key);
        if (e != NULL) {
            return e->newest;
        }
    }
    vj_mutex_lock(&d->state);
    e = vj_overlay_find(&view->active->overlay, space, key);
    if (e != NULL) {
        v = vj_entry_visible(e, view->snapshot.seq);
    }
    vj_mutex_unlock(&d->state);
    if (v == NULL && view->frozen != NULL) {
        e = vj_overlay_find(&view->frozen->overlay, space, key);
        v = e == NULL ? NULL : e->newest;
    }
    return v;
}

/* LMDB has no checksums: lengths that this driver never wrote come from a damaged page. */
static int check_read(const VjLmdb *d, const MDB_val *key, const MDB_val *value)
{
    if (value->mv_size <= VJ_META_VALUE_MAX && key->mv_size <= VJ_META_KEY_MAX &&
        key->mv_size > 0) {
        return 0;
    }
    vj_log_error("meta lmdb: %s: a page is damaged", d->path);
    return -EBADMSG;
}

int vj_lmdb_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    VjLmdb *d = driver_of(txn);
    const VjVersion *v = find_in_memory(txn, space, key);
    MDB_val file_key = {.mv_size = key.len, .mv_data = (void *)key.data};
    MDB_val file_value;
    int rc;

    if (v != NULL) {
        *value = vj_version_value(v);
        return v->tombstone ? -ENOENT : 0;
    }
    rc = mdb_get(view_of(txn)->lmdb, d->dbi[space], &file_key, &file_value);
    if (rc != 0) {
        return rc == MDB_NOTFOUND ? -ENOENT : vj_lmdb_errno(d, rc, "mdb_get");
    }
    rc = check_read(d, &file_key, &file_value);
    if (rc < 0) {
        return rc;
    }
    *value = vj_slice(file_value.mv_data, file_value.mv_size);
    return 0;
}

static int set(VjLmdb *d, VjSpace space, VjSlice key, const VjSlice *value)
{
    if (d->changes.bytes > VJ_LMDB_TXN_BYTES_MAX) {
        vj_log_error("meta lmdb: a transaction of more than %" G_GUINT64_FORMAT " bytes",
                     VJ_LMDB_TXN_BYTES_MAX);
        return -ENOMEM;
    }
    return vj_overlay_set(&d->changes, space, key, value);
}

int vj_lmdb_put(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value)
{
    return set(driver_of(txn), space, key, &value);
}

int vj_lmdb_del(VjTxn *txn, VjSpace space, VjSlice key)
{
    VjSlice value;
    int rc = vj_lmdb_get(txn, space, key, &value);

    return rc < 0 ? rc : set(driver_of(txn), space, key, NULL);
}

/* ---- Walks ----------------------------------------------------------------------- */

/*
 * The places in the four layers from which a walk goes on.  @file_key.mv_data is NULL
 * when the file has nothing more.
 */
typedef struct Walk {
    VjLmdb *d;
    VjLmdbView *view;
    VjSpace space;
    bool forward;
    const VjOverlayEntry *own, *active, *frozen;
    const VjVersion *active_version; /* what is visible of @active */
    MDB_cursor *cursor;
    MDB_val file_key, file_value;
} Walk;

static const VjOverlayEntry *step(const Walk *w, const VjOverlayEntry *e)
{
    return w->forward ? e->forward[0] : e->back;
}

static const VjOverlayEntry *seek(const Walk *w, const VjOverlay *o, VjSlice from)
{
    return w->forward ? vj_overlay_after(o, w->space, from)
                      : vj_overlay_before(o, w->space, from);
}

/* From @e on, the first entry of the active generation of which something is visible. */
static void settle_active(Walk *w, const VjOverlayEntry *e) VJ_REQUIRES(&w->d->state)
{
    w->active_version = NULL;
    while (e != NULL) {
        w->active_version = vj_entry_visible(e, w->view->snapshot.seq);
        if (w->active_version != NULL) {
            break;
        }
        e = step(w, e);
    }
    w->active = e;
}

static int file_cursor(Walk *w)
{
    VjLmdbView *view = w->view;
    MDB_cursor **cursor = &view->cursors[w->space];
    uint32_t bit = 1u << w->space;
    int rc = 0;

    G_STATIC_ASSERT(VJ_SPACE_COUNT <= 32);
    if (*cursor == NULL) {
        rc = mdb_cursor_open(view->lmdb, w->d->dbi[w->space], cursor);
    } else if ((view->cursors_bound & bit) == 0) {
        rc = mdb_cursor_renew(view->lmdb, *cursor);
    }
    if (rc != 0) {
        return vj_lmdb_errno(w->d, rc, "mdb_cursor_open");
    }
    view->cursors_bound |= bit;
    w->cursor = *cursor;
    return 0;
}

static int file_result(Walk *w, int rc)
{
    if (rc == MDB_NOTFOUND) {
        w->file_key.mv_data = NULL;
        return 0;
    }
    return rc == 0 ? check_read(w->d, &w->file_key, &w->file_value)
                   : vj_lmdb_errno(w->d, rc, "mdb_cursor_get");
}

static int file_op(Walk *w, MDB_cursor_op op)
{
    return mdb_cursor_get(w->cursor, &w->file_key, &w->file_value, op);
}

static int file_seek(Walk *w, VjSlice from)
{
    int rc = file_cursor(w);

    if (rc < 0) {
        return rc;
    }
    if (from.len == 0) {
        return file_result(w, file_op(w, w->forward ? MDB_FIRST : MDB_LAST));
    }
    w->file_key = (MDB_val){.mv_size = from.len, .mv_data = (void *)from.data};
    rc = file_op(w, MDB_SET_RANGE);
    if (!w->forward) {
        rc = rc == MDB_NOTFOUND ? file_op(w, MDB_LAST)
             : rc == 0          ? file_op(w, MDB_PREV)
                                : rc;
    } else if (rc == 0 && w->file_key.mv_size == from.len &&
               memcmp(w->file_key.mv_data, from.data, from.len) == 0) {
        rc = file_op(w, MDB_NEXT);
    }
    return file_result(w, rc);
}

static int walk_start(Walk *w, bool write, VjSlice from)
{
    const VjLmdbView *view = w->view;

    if (write) {
        w->own = seek(w, &w->d->changes, from);
    }
    if (view->frozen != NULL) {
        w->frozen = seek(w, &view->frozen->overlay, from);
    }
    vj_mutex_lock(&w->d->state);
    settle_active(w, seek(w, &view->active->overlay, from));
    vj_mutex_unlock(&w->d->state);
    return file_seek(w, from);
}

static bool file_has_more(const Walk *w)
{
    return w->file_key.mv_data != NULL;
}

static VjSlice file_key(const Walk *w)
{
    return vj_slice(w->file_key.mv_data, w->file_key.mv_size);
}

static void take_nearer(const Walk *w, VjSlice key, VjSlice *nearest)
{
    int order = nearest->len == 0 ? -1 : vj_slice_compare(key, *nearest);

    if (nearest->len == 0 || (w->forward ? order < 0 : order > 0)) {
        *nearest = key;
    }
}

/* The nearest key of all layers; empty when none has one. */
static VjSlice walk_key(const Walk *w)
{
    VjSlice nearest = vj_slice(NULL, 0);

    if (w->own != NULL) {
        take_nearer(w, vj_entry_key(w->own), &nearest);
    }
    if (w->active != NULL) {
        take_nearer(w, vj_entry_key(w->active), &nearest);
    }
    if (w->frozen != NULL) {
        take_nearer(w, vj_entry_key(w->frozen), &nearest);
    }
    if (file_has_more(w)) {
        take_nearer(w, file_key(w), &nearest);
    }
    return nearest;
}

static bool stands_at(const VjOverlayEntry *e, VjSlice key)
{
    return e != NULL && vj_slice_compare(vj_entry_key(e), key) == 0;
}

/* The version that the highest memory layer has of @key; NULL: it is the file's. */
static const VjVersion *walk_version(const Walk *w, VjSlice key)
{
    if (stands_at(w->own, key)) {
        return w->own->newest;
    }
    if (stands_at(w->active, key)) {
        return w->active_version;
    }
    return stands_at(w->frozen, key) ? w->frozen->newest : NULL;
}

/* Moves every layer that stands at @key past it. */
static int walk_past(Walk *w, VjSlice key)
{
    bool file = file_has_more(w) && vj_slice_compare(file_key(w), key) == 0;
    bool active = stands_at(w->active, key);

    if (stands_at(w->own, key)) {
        w->own = step(w, w->own);
    }
    if (stands_at(w->frozen, key)) {
        w->frozen = step(w, w->frozen);
    }
    if (active) {
        vj_mutex_lock(&w->d->state);
        settle_active(w, step(w, w->active));
        vj_mutex_unlock(&w->d->state);
    }
    return file ? file_result(w, file_op(w, w->forward ? MDB_NEXT : MDB_PREV)) : 0;
}

/* One search in each layer, then steps over what was deleted. */
static int walk(VjTxn *txn, VjSpace space, bool forward, VjSlice from, VjSlice *key,
                VjSlice *value)
{
    Walk w = {
        .d = driver_of(txn), .view = view_of(txn), .space = space, .forward = forward};
    int rc = walk_start(&w, txn->write, from);

    while (rc == 0) {
        const VjVersion *v;

        *key = walk_key(&w);
        if (key->len == 0) {
            return -ENOENT;
        }
        v = walk_version(&w, *key);
        if (v == NULL) {
            *value = vj_slice(w.file_value.mv_data, w.file_value.mv_size);
            return 0;
        }
        if (!v->tombstone) {
            *value = vj_version_value(v);
            return 0;
        }
        rc = walk_past(&w, *key);
    }
    return rc;
}

int vj_lmdb_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key, VjSlice *value)
{
    return walk(txn, space, true, after, key, value);
}

int vj_lmdb_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key, VjSlice *value)
{
    return walk(txn, space, false, before, key, value);
}
