/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lease.c - the lease of a shared session, and those of others
 *
 * One thread renews the lease at a third of its time, and looks at all sessions then, and
 * when the engine reports that one's record was changed.  A session that has not renewed
 * its lease in time, by the engine's clock, is shut out: its record says that it has
 * ended.  A session that cannot renew its own for so long takes itself to be shut out.
 *
 * Another thread calls the session's listener, which releases what ended sessions owned:
 * that may take longer than a lease.
 */
#include "meta/session-join-private.h"
#include "meta/shared-private.h"

/* How often a session without a watch says that anything may have changed, and one with
 * a commit in doubt asks what became of it. */
#define TICK_US ((int64_t)1000 * 1000)

/* What is kept of @key is not to be believed, whenever its change is reported. */
static void forget_kept(VjSession *s, VjSlice key)
{
    VjKey changed = {VJ_SPACE_SESSION, key};

    if (s->cache != NULL) {
        vj_item_cache_report(s->cache, &changed, false);
    }
}

/* ---- Renewing -------------------------------------------------------------------- */

static int put_lease(VjSession *s, int64_t expires_us, int64_t deadline_us)
{
    VjSessionKey key = vj_session_sub_key(s->number, VJ_SESSION_SUB_LEASE);
    uint8_t bytes[VJ_NUMBER_BYTES];
    VjChange change = {.space = VJ_SPACE_SESSION,
                       .key = vj_session_key_slice(&key),
                       .value = vj_slice(bytes, sizeof bytes)};
    VjChanges all = {.at = &change, .count = 1};
    VjBatch batch = {
        .next = vj_changes_next, .changes = &all, .count = 1, .fence = &s->fence.check};

    int rc;

    vj_number_encode(VJ_NUMBER_LEASE, change.key, (uint64_t)expires_us, bytes);
    rc = vj_engine_apply(s->engine, &batch, NULL, deadline_us);
    forget_kept(s, change.key);
    return rc;
}

/* @now_us: of the engine, which was asked at @begun_us. */
static void renew(VjSession *s, int64_t begun_us, int64_t now_us, int64_t deadline_us)
{
    VjShared *sh = s->shared;
    int rc = now_us < 0 ? (int)now_us : put_lease(s, now_us + sh->lease_us, deadline_us);
    bool is_over;

    vj_mutex_lock(&s->state);
    if (rc == 0) {
        sh->renewed_us = begun_us;
    }
    sh->next_us = begun_us + sh->lease_us / VJ_LEASE_PARTS;
    is_over = begun_us >= sh->renewed_us + sh->lease_us;
    vj_mutex_unlock(&s->state);
    if (rc == -ESTALE) {
        vj_shared_shut_out(s, "another session shut it out");
    } else if (is_over) {
        vj_shared_shut_out(s, "its lease cannot be renewed");
    }
}

/* ---- The others ------------------------------------------------------------------ */

/* Its record says that it has ended, unless it renews its lease before that. */
static bool shut_out_other(VjSession *s, const VjItem *item, const VjItem *lease,
                           VjSessionRecord *record, int64_t deadline_us)
{
    uint8_t bytes[VJ_SESSION_RECORD_BYTES];
    VjCheck checks[] = {
        {{VJ_SPACE_SESSION, item->key}, item->version},
        {{VJ_SPACE_SESSION, lease != NULL ? lease->key : item->key},
         lease != NULL ? lease->version : item->version},
    };
    VjChange change = {.space = VJ_SPACE_SESSION,
                       .key = item->key,
                       .value = vj_slice(bytes, sizeof bytes)};
    VjChanges all = {.at = &change, .count = 1};
    VjBatch batch = {.next = vj_changes_next,
                     .changes = &all,
                     .count = 1,
                     .checks = checks,
                     .check_count = lease != NULL ? 2 : 1,
                     .fence = &s->fence.check};
    VjItems fresh = {0};
    int rc;

    record->state = VJ_SESSION_ENDED;
    vj_session_encode(record, bytes);
    rc = vj_engine_apply(s->engine, &batch, &fresh, deadline_us);
    vj_items_clear(&fresh);
    if (rc == 0) {
        vj_log_warn("meta %s: session %" G_GUINT64_FORMAT
                    " (%s) has not renewed its lease, and is shut out",
                    s->label, record->id, record->name);
    }
    return rc == 0;
}

/* One that has ended, perhaps only now. */
static bool has_ended(VjSession *s, const VjItems *all, const VjItem *item,
                      int64_t now_us, int64_t deadline_us)
{
    VjSessionRecord record;
    const VjItem *lease;

    if (vj_session_decode(item->key, item->value, &record) < 0 ||
        record.state == VJ_SESSION_ENDED) {
        return true;
    }
    return vj_join_lease_of(all, record.id, &lease) < now_us &&
           shut_out_other(s, item, lease, &record, deadline_us);
}

static void look_at_others(VjSession *s, int64_t now_us, int64_t deadline_us)
{
    g_autoptr(GArray) ended = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    VjItems all = {0};
    int rc = now_us < 0 ? (int)now_us : vj_join_scan_sessions(s, &all, deadline_us);

    for (size_t i = 0; rc == 0 && i < all.count; i++) {
        uint64_t id = all.at[i].key.len == VJ_SESSION_KEY_BYTES
                          ? vj_be64_get(all.at[i].key.data)
                          : s->number;

        if (id != s->number && has_ended(s, &all, &all.at[i], now_us, deadline_us)) {
            g_array_append_val(ended, id);
            forget_kept(s, all.at[i].key);
        }
    }
    vj_items_clear(&all);
    if (rc == 0) {
        vj_mutex_lock(&s->state);
        g_array_set_size(s->shared->ended, 0);
        g_array_append_vals(s->shared->ended, ended->data, ended->len);
        vj_mutex_unlock(&s->state);
    }
}

/* ---- The thread of the lease ----------------------------------------------------- */

/* Gives the lock up meanwhile. */
static void look(VjSession *s, bool renews) VJ_REQUIRES(&s->state)
{
    VjShared *sh = s->shared;
    int64_t begun_us = vj_clock_mono_us(), now_us;
    int64_t deadline_us = begun_us + sh->lease_us / VJ_LEASE_PARTS;

    renews = renews && !sh->never_renews;
    sh->look_wanted = sh->renew_wanted = false;
    sh->is_looking = true;
    vj_mutex_unlock(&s->state);
    now_us = vj_engine_clock_us(s->engine, deadline_us);
    if (renews) {
        renew(s, begun_us, now_us, deadline_us);
    }
    look_at_others(s, now_us, deadline_us);
    vj_mutex_lock(&s->state);
    sh->is_looking = false;
    sh->looks++;
    vj_cond_broadcast(&sh->looked);
    vj_cond_broadcast(&sh->wake); /* there may be something to release */
}

/* Unless another thread is the writer, this one resolves the commit in doubt, so that the
 * next writer does not have to. */
static void try_to_resolve(VjSession *s) VJ_REQUIRES(&s->state)
{
    int64_t deadline_us = vj_clock_mono_us() + TICK_US;

    vj_mutex_unlock(&s->state);
    if (vj_session_writer_try(s)) {
        if (vj_shared_resolve(s, deadline_us) < 0) {
            vj_trace(meta, "session %" G_GUINT64_FORMAT ": a commit is in doubt",
                     s->number);
        }
        vj_session_writer_end(s);
    }
    vj_mutex_lock(&s->state);
}

/* Once a second, where there is something to do. */
static void tick(VjSession *s) VJ_REQUIRES(&s->state)
{
    if (s->shared->is_in_doubt) {
        try_to_resolve(s);
    }
    if (!s->shared->watches) {
        vj_mutex_unlock(&s->state);
        vj_session_tell_changed(s, NULL);
        vj_mutex_lock(&s->state);
    }
}

static gpointer lease_main(gpointer opaque)
{
    VjSession *s = opaque;
    VjShared *sh = s->shared;
    int64_t tick_us = vj_clock_mono_us() + TICK_US;

    vj_mutex_lock(&s->state);
    while (!sh->is_stopping) {
        int64_t now_us = vj_clock_mono_us();
        bool ticks = !s->is_shut_out && (!sh->watches || sh->is_in_doubt);
        int64_t until_us =
            MIN(s->is_shut_out ? INT64_MAX : sh->next_us, ticks ? tick_us : INT64_MAX);

        if (vj_session_tell_due(s)) {
            vj_session_tell_shut_out(s);
        } else if (!s->is_shut_out && (now_us >= sh->next_us || sh->renew_wanted)) {
            sh->next_us = now_us + sh->lease_us / VJ_LEASE_PARTS;
            look(s, true);
        } else if (!s->is_shut_out && sh->look_wanted) {
            look(s, false);
        } else if (ticks && now_us >= tick_us) {
            tick_us = now_us + TICK_US;
            tick(s);
        } else if (until_us == INT64_MAX) {
            vj_cond_wait(&sh->wake, &s->state);
        } else {
            (void)vj_cond_wait_until(&sh->wake, &s->state, until_us);
        }
    }
    vj_mutex_unlock(&s->state);
    return NULL;
}

/* ---- The thread that has others released ----------------------------------------- */

static gpointer release_main(gpointer opaque)
{
    VjSession *s = opaque;
    VjShared *sh = s->shared;

    vj_mutex_lock(&s->state);
    while (!sh->is_stopping) {
        const VjMetaEvents *events = s->listener.events;

        if (sh->ended->len > 0 && events != NULL && events->session_ended != NULL &&
            !s->is_shut_out) {
            uint64_t id = g_array_index(sh->ended, uint64_t, 0);

            g_array_remove_index(sh->ended, 0);
            vj_session_tell_ended(s, id);
        } else {
            vj_cond_wait(&sh->wake, &s->state);
        }
    }
    vj_mutex_unlock(&s->state);
    return NULL;
}

/* ---- Start and stop -------------------------------------------------------------- */

void vj_lease_start(VjSession *s)
{
    VjShared *sh = s->shared;

    vj_mutex_lock(&s->state);
    sh->is_stopping = false;
    sh->next_us = sh->renewed_us + sh->lease_us / VJ_LEASE_PARTS;
    vj_mutex_unlock(&s->state);
    sh->lease_thread = g_thread_new("vj-meta-lease", lease_main, s);
    sh->release_thread = g_thread_new("vj-meta-release", release_main, s);
}

void vj_lease_stop(VjSession *s)
{
    VjShared *sh = s->shared;

    if (sh->lease_thread == NULL) {
        return;
    }
    vj_mutex_lock(&s->state);
    sh->is_stopping = true;
    vj_cond_broadcast(&sh->wake);
    vj_mutex_unlock(&s->state);
    g_thread_join(g_steal_pointer(&sh->lease_thread));
    g_thread_join(g_steal_pointer(&sh->release_thread));
}

void vj_lease_look_soon(VjSession *s)
{
    vj_mutex_lock(&s->state);
    s->shared->look_wanted = true;
    vj_cond_broadcast(&s->shared->wake);
    vj_mutex_unlock(&s->state);
}

/* ---- Tests ----------------------------------------------------------------------- */

void vj_lease_look_for_test(VjMeta *m)
{
    VjSession *s = vj_session_of(m);
    VjShared *sh = s->shared;
    uint64_t wanted;

    vj_mutex_lock(&s->state);
    wanted = sh->looks + 1 + sh->is_looking;
    while (sh->looks < wanted && !s->is_shut_out) {
        sh->renew_wanted = true;
        vj_cond_broadcast(&sh->wake);
        vj_cond_wait(&sh->looked, &s->state);
    }
    vj_mutex_unlock(&s->state);
}

void vj_lease_resolve_for_test(VjMeta *m)
{
    VjSession *s = vj_session_of(m);

    vj_mutex_lock(&s->state);
    try_to_resolve(s);
    vj_mutex_unlock(&s->state);
}

void vj_lease_never_renew_for_test(VjMeta *m)
{
    VjSession *s = vj_session_of(m);

    vj_mutex_lock(&s->state);
    s->shared->never_renews = true;
    vj_mutex_unlock(&s->state);
}
