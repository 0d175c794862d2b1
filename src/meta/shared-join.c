/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shared-join.c - the record of a shared session: its first, and its last
 *
 * The engine is asked directly: there are no transactions yet, or no more.  An exclusive
 * session can have no other beside it, so that one whose record says that it lives has
 * ended without giving the record up; its record says so from then on.
 */
#include "meta/shared-private.h"

/* What joining puts, and what must not have changed meanwhile. */
typedef struct Join {
    VjSession *s;
    VjItems counter, sessions;
    VjOverlay changes;
    GArray *checks; /* of VjCheck */
    uint64_t number;
} Join;

static int set(VjOverlay *o, VjSpace space, VjSlice key, const uint8_t *bytes, size_t len)
{
    VjSlice value = vj_slice(bytes, len);

    return vj_overlay_set(o, space, key, bytes != NULL ? &value : NULL);
}

static int set_number(VjOverlay *o, VjNumber what, const VjSessionKey *key,
                      uint64_t number)
{
    uint8_t bytes[VJ_NUMBER_BYTES];

    vj_number_encode(what, vj_session_key_slice(key), number, bytes);
    return set(o, VJ_SPACE_SESSION, vj_session_key_slice(key), bytes, sizeof bytes);
}

static int set_record(VjOverlay *o, const VjSessionRecord *record)
{
    VjSessionKey key = vj_session_key(record->id);
    uint8_t bytes[VJ_SESSION_RECORD_BYTES];

    vj_session_encode(record, bytes);
    return set(o, VJ_SPACE_SESSION, vj_session_key_slice(&key), bytes, sizeof bytes);
}

/* ---- Joining --------------------------------------------------------------------- */

static void join_clear(Join *j)
{
    vj_items_clear(&j->counter);
    vj_items_clear(&j->sessions);
    vj_overlay_clear(&j->changes);
    g_array_set_size(j->checks, 0);
}

int vj_shared_scan_sessions(VjSession *s, VjItems *out, int64_t deadline_us)
{
    VjRange range = {.space = VJ_SPACE_SESSION};
    bool more = true;
    int rc = 0;

    while (rc == 0 && more) {
        if (out->count > 0) {
            range.from = out->at[out->count - 1].key;
        }
        rc =
            vj_engine_scan(s->engine, &range, VJ_SCAN_ITEMS_MAX, out, &more, deadline_us);
    }
    return rc;
}

static int read_all(Join *j)
{
    VjKey key = {VJ_SPACE_SYSTEM, vj_session_next_key()};
    int rc = vj_engine_get_many(j->s->engine, &key, 1, &j->counter, VJ_NO_DEADLINE);

    return rc < 0 ? rc : vj_shared_scan_sessions(j->s, &j->sessions, VJ_NO_DEADLINE);
}

/* Those that are exclusive have ended.  *last: the largest number that has a record. */
static int end_exclusive(Join *j, uint64_t *last)
{
    int rc = 0;

    *last = 0;
    for (size_t i = 0; rc == 0 && i < j->sessions.count; i++) {
        const VjItem *item = &j->sessions.at[i];
        VjSessionRecord record;

        if (vj_session_decode(item->key, item->value, &record) < 0) {
            continue;
        }
        *last = MAX(*last, record.id);
        if (record.kind == VJ_SESSION_EXCLUSIVE && record.state == VJ_SESSION_LIVE) {
            VjCheck check = {{VJ_SPACE_SESSION, item->key}, item->version};

            record.state = VJ_SESSION_ENDED;
            g_array_append_val(j->checks, check);
            rc = set_record(&j->changes, &record);
        }
    }
    return rc;
}

static int choose_number(Join *j, uint64_t last)
{
    const VjItem *item = &j->counter.at[0];
    VjSlice counter = vj_session_next_key();
    VjCheck check = {{VJ_SPACE_SYSTEM, counter}, item->version};
    uint8_t bytes[VJ_NUMBER_BYTES];

    j->number =
        vj_session_choose_number(j->s, item->version != 0 ? &item->value : NULL, last);
    vj_number_encode(VJ_NUMBER_NEXT_SESSION, counter, j->number + 1, bytes);
    g_array_append_val(j->checks, check);
    return set(&j->changes, VJ_SPACE_SYSTEM, counter, bytes, sizeof bytes);
}

static int set_own(Join *j, const char *name)
{
    VjShared *sh = j->s->shared;
    VjSessionKey lease = vj_session_sub_key(j->number, VJ_SESSION_SUB_LEASE);
    int64_t now_us = vj_engine_clock_us(j->s->engine, VJ_NO_DEADLINE);
    int rc = now_us < 0 ? (int)now_us : 0;

    sh->record = vj_session_record_of(j->number, VJ_SESSION_SHARED, name);
    sh->commit_key = vj_session_sub_key(j->number, VJ_SESSION_SUB_COMMIT);
    sh->commit.key = (VjKey){VJ_SPACE_SESSION, vj_session_key_slice(&sh->commit_key)};
    if (rc == 0) {
        rc = set_record(&j->changes, &sh->record);
    }
    if (rc == 0) {
        rc = set_number(&j->changes, VJ_NUMBER_COMMIT, &sh->commit_key, 0);
    }
    return rc < 0 ? rc
                  : set_number(&j->changes, VJ_NUMBER_LEASE, &lease,
                               (uint64_t)(now_us + sh->lease_us));
}

/* -EAGAIN: another session joined meanwhile. */
static int try_to_join(Join *j, const char *name, uint64_t *version)
{
    VjBatch batch = {.next = vj_overlay_next_change, .changes = &j->changes};
    VjItems fresh = {0};
    uint64_t last;
    int rc = read_all(j);

    if (rc == 0) {
        rc = end_exclusive(j, &last);
    }
    if (rc == 0) {
        rc = choose_number(j, last);
    }
    if (rc == 0) {
        rc = set_own(j, name);
    }
    if (rc < 0) {
        return rc;
    }
    batch.checks = (const VjCheck *)(void *)j->checks->data;
    batch.check_count = j->checks->len;
    batch.count = j->changes.entry_count;
    batch.version = version;
    rc = vj_engine_apply(j->s->engine, &batch, &fresh, VJ_NO_DEADLINE);
    vj_items_clear(&fresh);
    return rc;
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
    Join j = {.s = s, .checks = g_array_new(FALSE, FALSE, sizeof(VjCheck))};
    uint64_t version = 0;
    int rc = -EAGAIN;

    s->shared = shared_new(how);
    vj_overlay_init(&j.changes);
    for (unsigned tries = 0; rc == -EAGAIN && tries < VJ_META_RUN_TRIES; tries++) {
        join_clear(&j);
        rc = try_to_join(&j, how->name, &version);
    }
    join_clear(&j);
    g_array_unref(j.checks);
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
        return set_record(changes, &record);
    }
    rc = set(changes, VJ_SPACE_SESSION, s->fence.check.key.key, NULL, 0);
    for (size_t i = 0; rc == 0 && i < G_N_ELEMENTS(subs); i++) {
        VjSessionKey key = vj_session_sub_key(s->number, subs[i]);

        rc = set(changes, VJ_SPACE_SESSION, vj_session_key_slice(&key), NULL, 0);
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
