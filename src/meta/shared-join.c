/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shared-join.c - the record of a shared session: its first, and its last
 *
 * The engine is asked directly: there are no transactions yet, or no more.  An exclusive
 * session can have no other beside it, so that one whose record says that it lives has
 * ended without giving the record up; its record says so from then on.
 */
#include "meta/session-join-private.h"
#include "meta/shared-private.h"

/* ---- Joining --------------------------------------------------------------------- */

/* Those that are exclusive have ended. */
static int end_exclusive(VjJoin *j)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < j->sessions.count; i++) {
        const VjItem *item = &j->sessions.at[i];
        VjSessionRecord record;

        if (vj_session_decode(item->key, item->value, &record) == 0 &&
            record.kind == VJ_SESSION_EXCLUSIVE && record.state == VJ_SESSION_LIVE) {
            rc = vj_join_end(j, item, NULL, &record);
        }
    }
    return rc;
}

static int set_own(VjJoin *j, const char *name)
{
    VjShared *sh = j->s->shared;
    VjSessionKey lease = vj_session_sub_key(j->number, VJ_SESSION_SUB_LEASE);
    int64_t now_us = vj_engine_clock_us(j->s->engine, VJ_NO_DEADLINE);
    int rc = now_us < 0 ? (int)now_us : 0;

    sh->record = vj_session_record_of(j->number, VJ_SESSION_SHARED, name);
    sh->commit_key = vj_session_sub_key(j->number, VJ_SESSION_SUB_COMMIT);
    sh->commit.key = (VjKey){VJ_SPACE_SESSION, vj_session_key_slice(&sh->commit_key)};
    if (rc == 0) {
        rc = vj_join_set_record(&j->changes, &sh->record);
    }
    if (rc == 0) {
        rc = vj_join_set_number(&j->changes, VJ_NUMBER_COMMIT, &sh->commit_key, 0);
    }
    return rc < 0 ? rc
                  : vj_join_set_number(&j->changes, VJ_NUMBER_LEASE, &lease,
                                       (uint64_t)(now_us + sh->lease_us));
}

/* -EAGAIN: another session joined meanwhile. */
static int try_to_join(VjJoin *j, const char *name, uint64_t *version)
{
    int rc = vj_join_read(j);

    if (rc == 0) {
        rc = end_exclusive(j);
    }
    if (rc == 0) {
        rc = vj_join_choose_number(j);
    }
    if (rc == 0) {
        rc = set_own(j, name);
    }
    return rc < 0 ? rc : vj_join_apply(j, version);
}

static VjShared *shared_new(const VjSessionOpen *how)
{
    VjShared *sh = g_new0(VjShared, 1);

    sh->lease_us = how->lease_us > 0 ? how->lease_us : VJ_LEASE_DEFAULT_US;
    vj_overlay_init(&sh->doubted);
    vj_cond_init(&sh->wake);
    vj_cond_init(&sh->looked);
    sh->ended = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    return sh;
}

void vj_shared_free(VjShared *sh)
{
    if (sh != NULL) {
        g_assert(sh->lease_thread == NULL && sh->release_thread == NULL);
        vj_overlay_clear(&sh->doubted);
        vj_cond_clear(&sh->wake);
        vj_cond_clear(&sh->looked);
        g_array_unref(sh->ended);
        g_free(sh);
    }
}

bool vj_shared_join(VjSession *s, const VjSessionOpen *how, GError **error)
{
    VjJoin j;
    uint64_t version = 0;
    int rc = -EAGAIN;

    s->shared = shared_new(how);
    vj_join_init(&j, s);
    for (unsigned tries = 0; rc == -EAGAIN && tries < VJ_META_RUN_TRIES; tries++) {
        rc = try_to_join(&j, how->name, &version);
    }
    vj_join_clear(&j);
    if (rc < 0) {
        return vj_error_set_errno(error, rc == -EAGAIN ? EIO : -rc,
                                  "%s: the record of this session", s->path);
    }
    s->number = j.number;
    s->fence.key = vj_session_key(j.number);
    s->fence.check =
        (VjCheck){{VJ_SPACE_SESSION, vj_session_key_slice(&s->fence.key)}, version};
    s->shared->commit.version = version;
    s->shared->renewed_us = vj_clock_mono_us();
    vj_trace(meta, "shared session %" G_GUINT64_FORMAT " of %s: %s", s->number, s->label,
             s->shared->record.name);
    return true;
}

/* ---- Leaving --------------------------------------------------------------------- */

/* The session has a claim that was not given up, or the engine does not say. */
static bool has_claims(VjSession *s, int64_t deadline_us)
{
    VjSessionKey from = vj_claim_index_key(s->number, 0, 0);
    VjSessionKey to = vj_claim_index_key(s->number + 1, 0, 0);
    VjRange range = {.space = VJ_SPACE_CLAIM};
    VjItems items = {0};
    bool more, has;
    int rc;

    from.len = to.len = VJ_CLAIM_KEY_BYTES; /* as far as the session's number */
    range.from = vj_session_key_slice(&from);
    range.to = vj_session_key_slice(&to);
    rc = vj_engine_scan(s->engine, &range, 1, &items, &more, deadline_us);
    has = rc < 0 || items.count > 0;
    vj_items_clear(&items);
    return has;
}

/* Its record goes, or says that it has ended. */
static int set_last(const VjSession *s, VjOverlay *changes, bool stays)
{
    static const char subs[] = {VJ_SESSION_SUB_COMMIT, VJ_SESSION_SUB_EPOCH,
                                VJ_SESSION_SUB_LEASE};
    VjSessionRecord record = s->shared->record;
    int rc;

    if (stays) {
        record.state = VJ_SESSION_ENDED;
        return vj_join_set_record(changes, &record);
    }
    rc = vj_join_set(changes, &s->fence.key, NULL, 0);
    for (size_t i = 0; rc == 0 && i < G_N_ELEMENTS(subs); i++) {
        VjSessionKey key = vj_session_sub_key(s->number, subs[i]);

        rc = vj_join_set(changes, &key, NULL, 0);
    }
    return rc;
}

int vj_shared_leave(VjSession *s)
{
    int64_t deadline_us = vj_clock_mono_us() + s->shared->lease_us;
    VjBatch batch = {.next = vj_overlay_next_change, .fence = &s->fence.check};
    int resolved = vj_shared_resolve(s, deadline_us);
    bool stays = s->fence.stays || resolved < 0 || has_claims(s, deadline_us);
    VjOverlay changes;
    int rc;

    vj_overlay_init(&changes);
    rc = set_last(s, &changes, stays);
    if (rc == 0) {
        batch.changes = &changes;
        batch.count = changes.entry_count;
        rc = vj_engine_apply(s->engine, &batch, NULL, deadline_us);
    }
    vj_overlay_clear(&changes);
    return resolved < 0 ? resolved : rc;
}

/* ---- What is changed ------------------------------------------------------------- */

static void on_changed(void *opaque, const VjKey *key, bool own)
{
    VjSession *s = opaque;
    bool is_session = key != NULL && key->space == VJ_SPACE_SESSION;

    if (is_session && key->key.len == VJ_SESSION_SUB_KEY_BYTES &&
        ((const uint8_t *)key->key.data)[VJ_SESSION_KEY_BYTES] == VJ_SESSION_SUB_COMMIT) {
        return; /* no transaction reads it */
    }
    if (s->cache != NULL) {
        vj_item_cache_report(s->cache, key, own);
    }
    if (own) {
        return;
    }
    vj_session_tell_changed(s, key);
    if (key == NULL || (is_session && key->key.len == VJ_SESSION_KEY_BYTES)) {
        vj_lease_look_soon(s);
    }
}

void vj_shared_watch(VjSession *s)
{
    VjShared *sh = s->shared;
    int rc = vj_engine_watch(s->engine, on_changed, s, &sh->is_prompt);

    sh->watches = rc == 0;
    sh->is_prompt = sh->watches && sh->is_prompt;
    if (s->cache != NULL) {
        vj_item_cache_set_good(s->cache, sh->watches ? 0 : VJ_SHARED_GOOD_US);
    }
}

void vj_shared_unwatch(VjSession *s)
{
    bool is_prompt;

    if (s->shared->watches) {
        int rc = vj_engine_watch(s->engine, NULL, NULL, &is_prompt);

        g_assert(rc == 0);
        s->shared->watches = s->shared->is_prompt = false;
    }
}
