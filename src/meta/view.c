/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * view.c - what a transaction sees, and looking for keys through the layers
 *
 * A view holds references on the generations that there were when it began, a snapshot of
 * the engine that fits them, and the number of the last commit that it sees.  So nothing
 * that it borrowed goes away before its end, whatever is frozen, moved or committed
 * meanwhile.  That of a read transaction is enlisted as a snapshot, so that the versions
 * which it sees are kept; that of a write transaction need not be, as nobody else commits
 * while it runs.
 *
 * Generations, snapshot and number are taken in one step under the state lock, and a
 * moved generation is dropped under it, after the engine has it.  Between the two a
 * reader sees the same changes in both places, which is the same as once; the other order
 * would hide them.
 *
 * Where the engine has no snapshots, a read finds what is there now.  That is what the
 * view may see as long as no commit beyond its number is on its way to the engine, which
 * is asked after each read; later the body runs again.
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
    int rc = -EAGAIN;

    for (unsigned tries = 0; rc == -EAGAIN && tries < VJ_SNAPSHOT_TRIES; tries++) {
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
    *out = v;
    return 0;
}

static void runs_clear(VjView *v)
{
    v->scan = NULL;
    while (v->runs != NULL) {
        VjViewRun *run = v->runs;

        v->runs = run->older;
        vj_items_clear(&run->items);
        g_free(run);
    }
}

void vj_view_drop(VjSession *s, VjView *v, bool enlisted)
{
    if (v->engine != NULL) {
        vj_engine_snapshot_release(v->engine);
    }
    runs_clear(v);
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

/* ---- The engine without snapshots ------------------------------------------------- */

/* After a read: was it of the state that the view is to see? */
static int still_sees(VjSession *s, VjTxn *txn)
{
    vj_mutex_lock(&s->state);
    txn->again = s->applied_seq > view_of(txn)->snapshot.seq;
    vj_mutex_unlock(&s->state);
    g_assert(!txn->again || !txn->write);
    return txn->again ? -EAGAIN : 0;
}

static VjViewRun *run_add(VjView *v)
{
    VjViewRun *run = g_try_new0(VjViewRun, 1);

    if (run != NULL) {
        run->older = v->runs;
        v->runs = run;
    }
    return run;
}

/* Items for @keys, from the engine, and kept. */
static int ask(VjSession *s, const VjKey *keys, size_t count, VjItems *out)
{
    uint64_t ticket = s->cache != NULL ? vj_item_cache_ticket(s->cache) : 0;
    int rc = vj_engine_get_many(s->engine, keys, count, out, vj_cancel_deadline_us());

    if (rc == 0 && s->cache != NULL) {
        vj_item_cache_add(s->cache, ticket, keys, &out->at[out->count - count], count);
    }
    return rc;
}

/* The same for a scan to the end of the space. */
static int ask_range(VjSession *s, const VjRange *range, size_t limit, VjItems *out,
                     bool *more)
{
    uint64_t ticket = s->cache != NULL ? vj_item_cache_ticket(s->cache) : 0;
    int rc = vj_engine_scan(s->engine, range, limit, out, more, vj_cancel_deadline_us());

    if (rc == 0 && s->cache != NULL) {
        vj_item_cache_add_run(s->cache, ticket, range, out->at, out->count, *more);
    }
    return rc;
}

static int fetch(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    VjSession *s = session_of(txn);
    VjKey wanted = {.space = space, .key = key};
    VjViewRun *run = run_add(view_of(txn));
    int rc = -EAGAIN, seen;

    if (run == NULL) {
        return -ENOMEM;
    }
    if (s->cache != NULL) {
        rc = vj_item_cache_get(s->cache, wanted, &run->items);
    }
    if (rc == -EAGAIN) {
        rc = ask(s, &wanted, 1, &run->items);
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    seen = still_sees(s, txn);
    if (seen < 0 || rc < 0) {
        return seen < 0 ? seen : rc;
    }
    *value = run->items.at[0].value;
    return run->items.at[0].version == 0 ? -ENOENT : 0;
}

/* The item behind @from of the last scan, where that has it; *ended: there is none. */
static const VjItem *scanned_behind(const VjView *v, VjSpace space, VjSlice from,
                                    bool forward, bool *ended)
{
    VjViewRun *run = v->scan;

    *ended = false;
    if (run == NULL || run->space != space || run->forward != forward ||
        run->next == run->items.count ||
        vj_slice_compare(run->items.at[run->next].key, from) != 0) {
        return NULL;
    }
    if (run->next + 1 == run->items.count) {
        *ended = !run->more;
        return NULL;
    }
    return &run->items.at[++run->next];
}

/* The first item behind @from, NULL when there is none. */
static int scan(VjTxn *txn, VjSpace space, VjSlice from, bool forward,
                const VjItem **item)
{
    VjSession *s = session_of(txn);
    VjView *v = view_of(txn);
    VjRange range = {.space = space, .backward = !forward, .from = from};
    VjViewRun *run = run_add(v);
    int rc = -EAGAIN;

    *item = NULL;
    if (run == NULL) {
        return -ENOMEM;
    }
    run->space = space;
    run->forward = forward;
    if (s->cache != NULL) {
        rc = vj_item_cache_near(s->cache, space, from, forward, &run->items);
    }
    if (rc == -EAGAIN) {
        rc = ask_range(s, &range, VJ_VIEW_RUN_KEYS, &run->items, &run->more);
        v->scan = rc == 0 ? run : NULL;
    }
    if (rc == 0 || rc == -ENOENT) {
        rc = still_sees(s, txn);
    }
    if (rc == 0) {
        *item = run->items.count > 0 ? &run->items.at[0] : NULL;
    }
    return rc;
}

static int fetch_near(VjTxn *txn, VjSpace space, VjSlice from, bool forward, VjSlice *key,
                      VjSlice *value)
{
    bool ended;
    const VjItem *item = scanned_behind(view_of(txn), space, from, forward, &ended);
    int rc = item == NULL && !ended ? scan(txn, space, from, forward, &item) : 0;

    if (rc < 0) {
        return rc;
    }
    if (item == NULL) {
        return -ENOENT;
    }
    *key = item->key;
    *value = item->value;
    return 0;
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

int vj_view_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value)
{
    const VjVersion *v = find_in_memory(txn, space, key);
    VjEngineSnapshot *engine = view_of(txn)->engine;

    if (v != NULL) {
        *value = vj_version_value(v);
        return v->tombstone ? -ENOENT : 0;
    }
    return engine != NULL ? vj_engine_snapshot_get(engine, space, key, value)
                          : fetch(txn, space, key, value);
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
        int rc = ask(s, far + i, MIN(n - i, VJ_VIEW_EXPECT_KEYS), &items);

        vj_items_clear(&items);
        if (rc < 0) {
            break; /* whoever reads finds out */
        }
    }
}

void vj_view_expect_run(VjTxn *txn, VjSpace space, VjSlice after, size_t count)
{
    VjSession *s = session_of(txn);
    VjRange range = {.space = space, .from = after};

    if (s->cache != NULL && !vj_item_cache_knows_next(s->cache, space, after)) {
        VjItems items = {0};
        bool more;

        /* A failure is for whoever reads. */
        (void)ask_range(s, &range, MIN(count, VJ_SCAN_ITEMS_MAX), &items, &more);
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

static int engine_near(Walk *w, VjSlice from)
{
    VjEngineSnapshot *engine = w->view->engine;
    int rc;

    rc = engine != NULL ? vj_engine_snapshot_near(engine, w->space, from, w->forward,
                                                  &w->engine_key, &w->engine_value)
                        : fetch_near(w->txn, w->space, from, w->forward, &w->engine_key,
                                     &w->engine_value);
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
