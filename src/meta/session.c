/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session.c - memory in front of an engine: opening, closing, the ops table
 *
 * Commits are visible at once, and durable after flush() or the commit interval; what the
 * engine holds is always a prefix of the commits.
 */
#include "meta/leased-private.h"
#include "meta/shared-private.h"

/* ---- Engines --------------------------------------------------------------------- */

static void use_engine(VjSession *s, VjEngine *e, bool shared)
{
    bool is_far = !vj_engine_has_snapshots(e) &&
                  (shared || (e->ops->flags & VJ_ENGINE_IS_NEAR) == 0);

    s->engine = e;
    if (is_far && s->cache == NULL) {
        s->cache = vj_item_cache_new(VJ_ITEM_CACHE_BYTES, shared);
    }
}

bool vj_session_wrap_engine(VjMeta *m, const VjEngineOps *ops, const VjOpts *opts,
                            GError **error)
{
    VjSession *s = vj_session_of(m);
    bool shared = vj_session_is_shared(s);
    VjEngine *e = vj_engine_open(ops, s->engine, NULL, opts, error);

    if (e == NULL) {
        return false;
    }
    if (shared) {
        vj_lease_stop(s);
        vj_shared_unwatch(s);
    } else if (s->leased != NULL) {
        vj_leased_stop(s);
    }
    vj_views_clear(s);
    vj_mutex_lock(&s->state);
    g_assert(s->views == 0);
    while (s->moving) {
        vj_cond_wait(&s->moved, &s->state);
    }
    use_engine(s, e, shared);
    vj_mutex_unlock(&s->state);
    if (shared) {
        vj_shared_watch(s);
        vj_lease_start(s);
    } else if (s->leased != NULL) {
        vj_leased_start(s);
    }
    return true;
}

/* ---- Open and close -------------------------------------------------------------- */

/* Of keys and values, so that a generation with one transaction more is no longer than a
 * batch of the engine's may be: in memory it takes more than there. */
static uint64_t most_of_generation(const VjEngine *e, uint64_t wanted, uint64_t txn_bytes)
{
    uint64_t most = e->ops->apply_max_bytes;

    G_STATIC_ASSERT(sizeof(VjOverlayEntry) + sizeof(VjVersion) >= VJ_CHANGE_HEAD_BYTES);
    g_assert(most == 0 || most > txn_bytes);
    return most == 0 ? wanted : MIN(wanted, most - txn_bytes);
}

static VjSession *session_new(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts)
{
    VjSession *s = g_new0(VjSession, 1);

    s->meta.ops = &vj_session_ops;
    use_engine(s, e, place->session != NULL && place->session->shared);
    s->path = g_strdup(place->path != NULL ? place->path : e->ops->name);
    s->label = g_strdup_printf("%s: %s", e->ops->name, s->path);
    s->read_only = place->read_only;
    s->txn_max_bytes = place->txn_bytes_max > 0 ? place->txn_bytes_max : VJ_TXN_BYTES_MAX;
    s->generation_max_bytes = most_of_generation(e, vj_opts_number(opts, "overlay") / 2,
                                                 s->txn_max_bytes + VJ_TXN_BYTES_SLACK);
    s->commit_interval_us = (int64_t)vj_opts_number(opts, "commit") * 1000 * 1000;
    s->active = vj_generation_new();
    vj_overlay_init(&s->changes);
    vj_mutex_init(&s->writer, VJ_RANK_META_WRITER, "meta writer");
    vj_mutex_init(&s->state, VJ_RANK_META_STATE, "meta state");
    vj_cond_init(&s->applier_wake);
    vj_cond_init(&s->moved);
    vj_cond_init(&s->writer_ended);
    vj_cond_init(&s->writer_idle);
    vj_cond_init(&s->listener.idle);
    s->has_log = vj_engine_log(e, &s->redo.place, &s->redo.point);
    s->redo.claimed = s->redo.place.claimed;
    return s;
}

static void free_generations(VjSession *s)
{
    g_assert(s->frozen == NULL || s->frozen->refs == 1);
    for (VjGeneration *g = s->dropped; g != NULL;) {
        VjGeneration *next = g->next_dropped;

        vj_generation_free(g);
        g = next;
    }
    if (s->frozen != NULL) {
        s->frozen->refs = 0;
        vj_generation_free(s->frozen);
    }
    g_assert(s->active->refs == 1);
    s->active->refs = 0;
    vj_generation_free(s->active);
}

/* 0, or what the engine says. */
static int session_free(VjSession *s, bool in_order)
{
    int rc;

    vj_session_redo_close(s);
    vj_views_clear(s);
    rc = vj_engine_close(s->engine, in_order);
    free_generations(s);
    vj_overlay_clear(&s->changes);
    vj_item_cache_free(s->cache);
    vj_shared_free(s->shared);
    vj_leased_free(s->leased);
    vj_cond_clear(&s->moved);
    vj_cond_clear(&s->applier_wake);
    vj_mutex_clear(&s->state);
    vj_mutex_clear(&s->writer);
    vj_cond_clear(&s->writer_ended);
    vj_cond_clear(&s->writer_idle);
    vj_cond_clear(&s->listener.idle);
    g_free(s->label);
    g_free(s->path);
    return rc;
}

/* A shared session wants an engine that can be shared, and a place that it can write. */
static bool check_place(const VjEngineOps *ops, const VjMetaPlace *place, GError **error)
{
    if (place->session == NULL || !place->session->shared) {
        return true;
    }
    if ((ops->flags & VJ_ENGINE_IS_SHAREABLE) == 0) {
        return vj_error_set(error, EOPNOTSUPP,
                            "it cannot be used by several sessions at one time");
    }
    return !place->read_only ||
           vj_error_set(error, EINVAL, "a session among others has to write its record");
}

/* It is alone by a lease, not by a lock of its opener's. */
static bool wants_lease(const VjEngineOps *ops, const VjMetaPlace *place)
{
    return (ops->flags & VJ_ENGINE_IS_LEASED) != 0 &&
           (place->session != NULL ? !place->session->shared : !place->read_only);
}

/* Setup, after all else. */
static bool join(VjSession *s, const VjMetaPlace *place, GError **error)
{
    const VjSessionOpen *how = place->session;

    if (wants_lease(s->engine->ops, place)) {
        return vj_leased_join(s, how, error);
    }
    if (how == NULL || s->read_only) {
        return true;
    }
    if (!how->shared) {
        return vj_session_join(s, how->name, error);
    }
    if (!vj_shared_join(s, how, error)) {
        return false;
    }
    vj_shared_watch(s);
    vj_lease_start(s);
    return true;
}

bool vj_session_open(const VjEngineOps *ops, const VjMetaPlace *place, const VjOpts *opts,
                     VjMeta **out, GError **error)
{
    VjMetaPlace engine_place = *place;
    VjEngine *e;
    VjSession *s;

    *out = NULL;
    if (!check_place(ops, place, error)) {
        return false;
    }
    if (wants_lease(ops, place)) {
        engine_place.read_only = false; /* it writes its record */
    }
    e = vj_engine_open(ops, NULL, &engine_place, opts, error);
    if (e == NULL) {
        return false;
    }
    s = session_new(e, place, opts);
    if (!s->read_only && (place->session == NULL || !place->session->shared)) {
        vj_applier_start(s);
    }
    if ((s->has_log && !vj_session_redo_open(s, place, error)) ||
        !join(s, place, error)) {
        vj_applier_stop(s);
        (void)session_free(s, false);
        g_free(s);
        return false;
    }
    *out = &s->meta;
    return true;
}

/* What was flushed may be in the log alone; and what was not the last move may take. */
static int end_exclusive(VjSession *s)
{
    int flushed = vj_session_flush(&s->meta), left = vj_session_leave(s);
    int rc = s->read_only ? flushed : vj_session_redo_retire(s);

    vj_applier_stop(s);
    return rc != 0 ? rc : left;
}

/* How long the end of a session that failed to flush waits for its record to go. */
#define LEAVE_PATIENCE_US ((int64_t)1000 * 1000)

static int end_leased(VjSession *s)
{
    int flushed = vj_session_flush(&s->meta), left;

    vj_leased_stop(s);
    vj_applier_stop(s);
    left = vj_leased_leave(s, flushed == 0 ? s->leased->lease_us : LEAVE_PATIENCE_US);
    return flushed != 0 ? flushed : left;
}

static int end_shared(VjSession *s)
{
    int rc;

    vj_lease_stop(s);
    rc = vj_shared_leave(s);
    vj_shared_unwatch(s);
    return rc;
}

static int session_close(VjMeta *m)
{
    VjSession *s = (VjSession *)m;
    int rc = vj_session_is_shared(s) ? end_shared(s)
             : s->leased != NULL     ? end_leased(s)
                                     : end_exclusive(s);
    int closed;

    g_assert(s->snapshots.newest == NULL && s->views == 0 && s->joined == NULL);
    closed = session_free(s, rc == 0 && !s->read_only);
    return rc != 0 ? rc : closed;
}

/* ---- Members ---------------------------------------------------------------------- */

/* @e hides what the engine has. */
static int count_entry(VjSession *s, VjSpace space, const VjOverlayEntry *e,
                       uint64_t *count)
{
    VjKey key = {.space = space, .key = vj_entry_key(e)};
    VjItems items = {0};
    int rc = vj_engine_get_many(s->engine, &key, 1, &items, VJ_NO_DEADLINE);

    if (rc == 0) {
        *count -= items.at[0].version != 0 && e->newest->tombstone;
        *count += items.at[0].version == 0 && !e->newest->tombstone;
    }
    vj_items_clear(&items);
    return rc;
}

/* What is in memory is what was replayed. */
static int session_count(VjMeta *m, VjSpace space, uint64_t *out)
{
    VjSession *s = (VjSession *)m;
    int rc = vj_engine_count(s->engine, space, out);

    for (const VjOverlayEntry *e = vj_overlay_first(&s->active->overlay, space);
         rc == 0 && e != NULL; e = e->forward[0]) {
        rc = count_entry(s, space, e, out);
    }
    return rc;
}

static int session_save(VjMeta *m, int fd, VjMetaSaved *out)
{
    VjSession *s = (VjSession *)m;
    int rc = s->read_only ? -EROFS : vj_session_flush_moved(s);

    *out = (VjMetaSaved){0};
    return rc < 0 ? rc : vj_engine_save(s->engine, fd, out);
}

static void session_log_stats(VjMeta *m, VjMetaLogStats *out)
{
    VjSession *s = (VjSession *)m;
    VjEngineRewrites rewrites;

    vj_mutex_lock(&s->state);
    *out = s->redo.stats;
    vj_mutex_unlock(&s->state);
    vj_engine_rewritten(s->engine, &rewrites);
    out->rewrites = rewrites.times;
    out->freed_bytes = rewrites.freed_bytes;
    out->erasures_waiting = rewrites.erasures_waiting;
    out->erasures_given_up = rewrites.erasures_given_up;
}

const VjMetaOps vj_session_ops = {
    .name = "session",
    .txn_size = sizeof(VjSessionTxn),
    .close = session_close,
    .begin = vj_session_begin,
    .commit = vj_session_commit,
    .abort = vj_session_abort,
    .count = session_count,
    .flush = vj_session_flush,
    .flush_join = vj_session_flush_join,
    .send = vj_session_send,
    .log_stats = session_log_stats,
    .save = session_save,
    .get = vj_view_get,
    .put = vj_session_put,
    .del = vj_session_del,
    .next = vj_view_next,
    .prev = vj_view_prev,
    .is_far = vj_view_is_far,
    .expect = vj_view_expect,
    .expect_run = vj_view_expect_run,
};
