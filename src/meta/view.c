/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * view.c - what a transaction sees, and looking for keys through the layers
 *
 * A view holds references on the generations that there were when it began, a snapshot of
 * the engine that fits them, and the number of the last commit that it sees.  So nothing
 * that it borrowed goes away before its end, whatever is frozen, moved or committed
 * meanwhile.  That of a read transaction is enlisted as a snapshot, so that the versions
 * which it sees are kept; that of a write transaction need not be, as no other thread
 * commits while it runs.
 *
 * Generations, snapshot and number are taken in one step under the state lock, and a
 * moved generation is dropped under it, after the engine has it.  Between the two a
 * reader sees the same changes in both places, which is the same as once; the other order
 * would hide them.
 *
 * Where the engine has no snapshots, a read finds what is there now (far-view.c).
 *
 * In a shared session there are no generations, and the snapshot is all; a write
 * transaction notes which versions it has read.
 *
 * The state lock is taken to look into the active generation, which grows; frozen ones
 * are read without a lock, and the engine never under one.
 */
#include "meta/session-private.h"

static VjSession *session_of(const VjTxn *txn)
{
    return (VjSession *)txn->meta;
}

static VjView *view_of(const VjTxn *txn)
{
    return ((const VjSessionTxn *)txn)->view;
}

/* ---- The pool of views ----------------------------------------------------------- */

static void view_free(VjView *v)
{
    g_assert(v->runs == NULL);
    vj_read_set_free(v->reads);
    if (v->engine != NULL) {
        vj_engine_snapshot_free(v->engine);
    }
    g_free(v);
}

static int view_new(VjSession *s, VjView **out)
{
    VjView *v = g_try_new0(VjView, 1);
    int rc = v != NULL ? 0 : -ENOMEM;

    if (rc == 0) {
        rc = vj_engine_snapshot_new(s->engine, &v->engine);
    }
    if (rc == 0 && vj_session_is_shared(s)) {
        v->reads = vj_read_set_new();
    }
    if (rc < 0) {
        g_free(v);
        v = NULL;
    }
    *out = v;
    return rc;
}

void vj_views_clear(VjSession *s)
{
    vj_mutex_lock(&s->state);
    while (s->idle != NULL) {
        VjView *v = s->idle;

        s->idle = v->next_idle;
        view_free(v);
    }
    vj_mutex_unlock(&s->state);
}

/* -EAGAIN: its snapshot must be prepared. */
static int view_begin(VjSession *s, VjView *v, bool enlist) VJ_REQUIRES(&s->state)
{
    if (s->leased != NULL && s->is_shut_out) {
        return -ESTALE; /* what is there is of another session */
    }
    if (v->engine != NULL) {
        int rc = vj_engine_snapshot_take(v->engine);

        if (rc < 0) {
            return rc;
        }
    }
    v->active = s->active;
    v->active->refs++;
    v->frozen = s->frozen;
    if (v->frozen != NULL) {
        v->frozen->refs++;
    }
    v->snapshot.seq = s->seq;
    s->views++;
    if (enlist) {
        vj_snapshots_add(&s->snapshots, &v->snapshot);
    }
    return 0;
}

/* Where the pool has none, or none that the engine would take now. */
static int view_prepare(VjSession *s, VjView *v, bool enlist)
{
    unsigned most =
        vj_session_is_shared(s) ? VJ_SHARED_SNAPSHOT_TRIES : VJ_SNAPSHOT_TRIES;
    int rc = -EAGAIN;

    for (unsigned tries = 0; rc == -EAGAIN && tries < most; tries++) {
        rc = v->engine == NULL ? 0 : vj_engine_snapshot_prepare(v->engine);
        if (rc == 0) {
            vj_mutex_lock(&s->state);
            rc = view_begin(s, v, enlist);
            vj_mutex_unlock(&s->state);
        }
    }
    return rc == -EAGAIN ? -EIO : rc;
}

static void view_put_back(VjSession *s, VjView *v)
{
    vj_mutex_lock(&s->state);
    v->next_idle = s->idle;
    s->idle = v;
    vj_mutex_unlock(&s->state);
}

int vj_view_take(VjSession *s, bool enlist, VjView **out)
{
    VjView *v;
    int rc = -EAGAIN;

    *out = NULL;
    vj_mutex_lock(&s->state);
    v = s->idle;
    if (v != NULL) {
        s->idle = v->next_idle;
        rc = view_begin(s, v, enlist);
    }
    vj_mutex_unlock(&s->state);
    if (v == NULL) {
        rc = view_new(s, &v);
        if (rc < 0) {
            return rc;
        }
        rc = -EAGAIN;
    }
    if (rc == -EAGAIN) {
        rc = view_prepare(s, v, enlist);
    }
    if (rc < 0) {
        view_put_back(s, v);
        return rc;
    }
    if (v->reads != NULL && s->cache != NULL) {
        vj_far_begin(s, v);
    }
    *out = v;
    return 0;
}

void vj_view_drop(VjSession *s, VjView *v, bool enlisted)
{
    if (v->engine != NULL) {
        vj_engine_snapshot_release(v->engine);
    }
    if (v->runs != NULL) {
        vj_far_clear(v);
    }
    if (v->reads != NULL) {
        vj_read_set_clear(v->reads);
    }
    vj_mutex_lock(&s->state);
    if (enlisted) {
        vj_snapshots_remove(&s->snapshots, &v->snapshot);
    }
    vj_generation_unref(s, v->active);
    if (v->frozen != NULL) {
        vj_generation_unref(s, v->frozen);
    }
    v->active = v->frozen = NULL;
    s->views--;
    v->next_idle = s->idle;
    s->idle = v;
    vj_mutex_unlock(&s->state);
}

/* ---- One key --------------------------------------------------------------------- */

/* What the memory layers say of @key; NULL: nothing, ask the engine. */
static const VjVersion *find_in_memory(const VjTxn *txn, VjSpace space, VjSlice key)
{
    VjSession *s = session_of(txn);
    const VjView *view = view_of(txn);
    const VjVersion *v = NULL;
    const VjOverlayEntry *e;

    if (txn->write) {
        e = vj_overlay_find(&s->changes, space, key);
        if (e != NULL) {
            return e->newest;
        }
    }
    vj_mutex_lock(&s->state);
    e = vj_overlay_find(&view->active->overlay, space, key);
    if (e != NULL) {
        v = vj_entry_visible(e, view->snapshot.seq);
    }
    vj_mutex_unlock(&s->state);
    if (v == NULL && view->frozen != NULL) {
        e = vj_overlay_find(&view->frozen->overlay, space, key);
        v = e == NULL ? NULL : e->newest;
    }
    return v;
}

/* In a shared session the commit has what was read checked. */
static int get_and_note(VjView *v, VjSpace space, VjSlice key, VjSlice *value)
{
    VjItem item = {.space = space, .key = key};
    int rc = vj_engine_snapshot_get(v->engine, space, key, value, &item.version), noted;

    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    noted = vj_read_set_add(v->reads, &item, false);
    return noted < 0 ? noted : rc;
}

int vj_view_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    const VjVersion *v = find_in_memory(txn, space, key);
    VjView *view = view_of(txn);

    if (v != NULL) {
        *value = vj_version_value(v);
        return v->tombstone ? -ENOENT : 0;
    }
    if (view->engine == NULL) {
        return vj_far_get(txn, space, key, value);
    }
    return view->reads != NULL && txn->write
               ? get_and_note(view, space, key, value)
               : vj_engine_snapshot_get(view->engine, space, key, value, NULL);
}

/* ---- Hints ------------------------------------------------------------------------ */

bool vj_view_is_far(VjTxn *txn, VjKey key)
{
    VjItemCache *cache = session_of(txn)->cache;

    return cache != NULL && find_in_memory(txn, key.space, key.key) == NULL &&
           !vj_item_cache_knows(cache, key);
}

void vj_view_expect(VjTxn *txn, const VjKey *keys, size_t count)
{
    VjSession *s = session_of(txn);
    g_autofree VjKey *far = s->cache != NULL ? g_try_new(VjKey, count) : NULL;
    size_t n = 0;

    for (size_t i = 0; far != NULL && i < count; i++) {
        if (vj_view_is_far(txn, keys[i])) {
            far[n++] = keys[i];
        }
    }
    for (size_t i = 0; i < n; i += VJ_VIEW_EXPECT_KEYS) {
        VjItems items = {0};
        int rc = vj_far_ask(s, far + i, MIN(n - i, VJ_VIEW_EXPECT_KEYS), &items);

        vj_items_clear(&items);
        if (rc < 0) {
            break; /* the read itself will fail */
        }
    }
}

void vj_view_expect_run(VjTxn *txn, VjSpace space, VjSlice after, size_t count)
{
    VjSession *s = session_of(txn);
    VjRange range = {.space = space, .from = after};

    if (vj_far_keeps_walks(s) && !vj_item_cache_knows_next(s->cache, space, after)) {
        VjItems items = {0};
        bool more;

        /* A failure here is none of the hint: the read itself returns it. */
        (void)vj_far_ask_range(s, &range, MIN(count, VJ_SCAN_ITEMS_MAX), &items, &more);
        vj_items_clear(&items);
    }
}

/* ---- Walks ----------------------------------------------------------------------- */

/* The places in the four layers from which a walk goes on. */
typedef struct Walk {
    VjTxn *txn;
    VjView *view;
    VjSession *s;
    VjSpace space;
    bool forward;
    const VjOverlayEntry *own, *active, *frozen;
    const VjVersion *active_version; /* what is visible of @active */
    VjSlice engine_key;              /* empty: the engine has nothing more */
    VjSlice engine_value;
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
static void find_visible(Walk *w, const VjOverlayEntry *e) VJ_REQUIRES(&w->s->state)
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

static int near_and_note(Walk *w, VjSlice from)
{
    VjItem item = {.space = w->space};
    int rc = vj_engine_snapshot_near(w->view->engine, w->space, from, w->forward,
                                     &w->engine_key, &w->engine_value, &item.version);

    if (rc == 0) {
        item.key = w->engine_key;
        rc = vj_read_set_add(w->view->reads, &item, true);
    }
    return rc;
}

static int engine_near(Walk *w, VjSlice from)
{
    int rc;

    if (w->view->engine == NULL) {
        rc = vj_far_near(w->txn, w->space, from, w->forward, &w->engine_key,
                         &w->engine_value);
    } else if (w->view->reads != NULL && w->txn->write) {
        rc = near_and_note(w, from);
    } else {
        rc = vj_engine_snapshot_near(w->view->engine, w->space, from, w->forward,
                                     &w->engine_key, &w->engine_value, NULL);
    }
    if (rc == -ENOENT) {
        w->engine_key = vj_slice(NULL, 0);
        rc = 0;
    }
    return rc;
}

static int walk_start(Walk *w, VjSlice from)
{
    const VjView *view = w->view;

    if (w->txn->write) {
        w->own = seek(w, &w->s->changes, from);
    }
    if (view->frozen != NULL) {
        w->frozen = seek(w, &view->frozen->overlay, from);
    }
    vj_mutex_lock(&w->s->state);
    find_visible(w, seek(w, &view->active->overlay, from));
    vj_mutex_unlock(&w->s->state);
    return engine_near(w, from);
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
    if (w->engine_key.len > 0) {
        take_nearer(w, w->engine_key, &nearest);
    }
    return nearest;
}

static bool stands_at(const VjOverlayEntry *e, VjSlice key)
{
    return e != NULL && vj_slice_compare(vj_entry_key(e), key) == 0;
}

/* The version that the highest memory layer has of @key; NULL: it is the engine's. */
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
    bool engine = vj_slice_compare(w->engine_key, key) == 0;
    bool active = stands_at(w->active, key);

    if (stands_at(w->own, key)) {
        w->own = step(w, w->own);
    }
    if (stands_at(w->frozen, key)) {
        w->frozen = step(w, w->frozen);
    }
    if (active) {
        vj_mutex_lock(&w->s->state);
        find_visible(w, step(w, w->active));
        vj_mutex_unlock(&w->s->state);
    }
    return engine ? engine_near(w, w->engine_key) : 0;
}

/* One search in each layer, then steps over what was deleted. */
static int walk(VjTxn *txn, VjSpace space, bool forward, VjSlice from, VjSlice *key,
                VjSlice *value)
{
    Walk w = {.txn = txn,
              .view = view_of(txn),
              .s = session_of(txn),
              .space = space,
              .forward = forward};
    int rc = walk_start(&w, from);

    while (rc == 0) {
        const VjVersion *v;

        *key = walk_key(&w);
        if (key->len == 0) {
            return -ENOENT;
        }
        v = walk_version(&w, *key);
        if (v == NULL) {
            *value = w.engine_value;
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

int vj_view_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key, VjSlice *value)
{
    return walk(txn, space, true, after, key, value);
}

int vj_view_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key, VjSlice *value)
{
    return walk(txn, space, false, before, key, value);
}
