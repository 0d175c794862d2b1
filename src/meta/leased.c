/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * leased.c - an exclusive session where no lock of a directory keeps others out
 *
 * The session's first batch, which the engine gets before there is any transaction, has
 * its record, its lease, and which process has it.  It checks that no other session has a
 * lease that runs, and says that those which had one have ended: the version of their
 * record is their fence, so that nothing of theirs is done from then on.
 *
 * A thread renews the lease at a third of its time.  When it cannot, the session goes on:
 * an engine that is away has been away for others too, and what one of them has done
 * meanwhile the fence says.  Until then what this session reads may be old, and what it
 * commits may be lost; what it flushed is not.
 *
 * The lease is renewed by batches that check the version of its key, so that one which
 * comes late does nothing.
 */
#include "meta/leased-private.h"
#include "meta/session-join-private.h"

/* Conflicts with sessions that join at the same time, of one open; and of one renewal
 * with those of this session that came late. */
#define JOIN_TRIES 100u
#define RENEW_TRIES 3u

/* ---- Joining --------------------------------------------------------------------- */

/* How a session tries to join. */
typedef struct Try {
    VjJoin join;
    VjHolder self;
    const char *name;
    /* which session keeps it from that: */
    VjSessionRecord other;
    int64_t other_left_us; /* until its lease ends */
} Try;

static bool read_holder(const VjItems *sessions, uint64_t id, VjHolder *out)
{
    const VjItem *item = vj_join_find(sessions, id, VJ_SESSION_SUB_HOLDER);

    return item != NULL && vj_holder_decode(item->key, item->value, out) == 0;
}

/* One that is live: it has ended, or keeps this one out (-EBUSY); *is_own: it is this
 * session, of which the engine did not say that it has joined. */
static int look_at_one(Try *t, const VjItem *item, VjSessionRecord *record,
                       int64_t now_us, bool *is_own)
{
    VjJoin *j = &t->join;
    const VjItem *lease;
    int64_t left_us = vj_join_lease_of(&j->sessions, record->id, &lease) - now_us;
    VjHolder holder;
    bool has_holder = read_holder(&j->sessions, record->id, &holder);

    *is_own = has_holder && memcmp(holder.nonce, t->self.nonce, sizeof holder.nonce) == 0;
    if (*is_own) {
        j->number = record->id;
        return 0;
    }
    if (left_us >= 0 && (!has_holder || !vj_holder_is_gone(&holder))) {
        t->other = *record;
        t->other_left_us = left_us;
        return -EBUSY;
    }
    if (left_us >= 0) {
        vj_log_info("meta %s: session %" G_GUINT64_FORMAT
                    " (%s) is of a process that is gone",
                    j->s->label, record->id, record->name);
    }
    return vj_join_end(j, item, lease, record);
}

static int look_at_others(Try *t, int64_t now_us, bool *is_joined)
{
    const VjItems *all = &t->join.sessions;
    int rc = 0;

    *is_joined = false;
    for (size_t i = 0; rc == 0 && !*is_joined && i < all->count; i++) {
        VjSessionRecord record;

        if (vj_session_decode(all->at[i].key, all->at[i].value, &record) == 0 &&
            record.state == VJ_SESSION_LIVE) {
            rc = look_at_one(t, &all->at[i], &record, now_us, is_joined);
        }
    }
    return rc;
}

static int set_own(Try *t, int64_t now_us)
{
    VjJoin *j = &t->join;
    VjSessionRecord record =
        vj_session_record_of(j->number, VJ_SESSION_EXCLUSIVE, t->name);
    VjSessionKey lease = vj_session_sub_key(j->number, VJ_SESSION_SUB_LEASE);
    VjSessionKey holder = vj_session_sub_key(j->number, VJ_SESSION_SUB_HOLDER);
    uint8_t bytes[VJ_HOLDER_BYTES];
    int rc = vj_join_set_record(&j->changes, &record);

    if (rc == 0) {
        rc = vj_join_set_number(&j->changes, VJ_NUMBER_LEASE, &lease,
                                (uint64_t)(now_us + j->s->leased->lease_us));
    }
    vj_holder_encode(&t->self, vj_session_key_slice(&holder), bytes);
    return rc < 0 ? rc : vj_join_set(&j->changes, &holder, bytes, sizeof bytes);
}

/* -EAGAIN: another session joined meanwhile, or this one has, and was not told. */
static int try_to_join(Try *t)
{
    VjJoin *j = &t->join;
    bool is_joined = false;
    int64_t now_us;
    int rc = vj_join_read(j);

    if (rc < 0) {
        return rc;
    }
    now_us = vj_engine_clock_us(j->s->engine, VJ_NO_DEADLINE);
    rc = now_us < 0 ? (int)now_us : look_at_others(t, now_us, &is_joined);
    if (rc < 0 || is_joined) {
        return rc;
    }
    rc = vj_join_choose_number(j);
    if (rc == 0) {
        rc = set_own(t, now_us);
    }
    return rc < 0 ? rc : vj_join_apply(j, NULL);
}

/* The version that the engine has given the record. */
static int ask_for_fence(VjSession *s)
{
    uint8_t bytes[VJ_SESSION_RECORD_BYTES];
    VjItems items = {0};
    int rc =
        vj_engine_get_many(s->engine, &s->fence.check.key, 1, &items, VJ_NO_DEADLINE);

    vj_session_encode(&s->leased->record, bytes);
    if (rc == 0 &&
        (items.at[0].version == 0 ||
         vj_slice_compare(items.at[0].value, vj_slice(bytes, sizeof bytes)) != 0)) {
        rc = -ESTALE; /* shut out already */
    }
    if (rc == 0) {
        s->fence.check.version = items.at[0].version;
        s->fence.stands = true;
    }
    vj_items_clear(&items);
    return rc;
}

static void take_number(VjSession *s, uint64_t number, const char *name)
{
    s->number = number;
    s->leased->record = vj_session_record_of(number, VJ_SESSION_EXCLUSIVE, name);
    s->leased->lease_key = vj_session_sub_key(number, VJ_SESSION_SUB_LEASE);
    s->fence.key = vj_session_key(number);
    s->fence.check.key = (VjKey){VJ_SPACE_SESSION, vj_session_key_slice(&s->fence.key)};
}

static VjLeased *leased_new(const VjSessionOpen *how)
{
    VjLeased *l = g_new0(VjLeased, 1);

    l->lease_us = how != NULL && how->lease_us > 0 ? how->lease_us : VJ_LEASE_DEFAULT_US;
    vj_cond_init(&l->wake);
    vj_cond_init(&l->looked);
    return l;
}

void vj_leased_free(VjLeased *l)
{
    if (l != NULL) {
        g_assert(l->thread == NULL);
        vj_cond_clear(&l->wake);
        vj_cond_clear(&l->looked);
        g_free(l);
    }
}

static bool refuse(const VjSession *s, const Try *t, int rc, GError **error)
{
    if (rc == -EBUSY) {
        return vj_error_set(
            error, EBUSY, "%s is in use by %s; its lease ends in %" G_GINT64_FORMAT " s",
            s->path, t->other.name, t->other_left_us / 1000000 + 1);
    }
    return vj_error_set_errno(error, rc == -EAGAIN ? EIO : -rc,
                              "%s: the record of this session", s->path);
}

bool vj_leased_join(VjSession *s, const VjSessionOpen *how, GError **error)
{
    g_autofree char *unnamed =
        g_strdup_printf("process %ld on %s", (long)getpid(), g_get_host_name());
    Try t = {.name = how != NULL && how->name != NULL ? how->name : unnamed};
    int64_t begun_us = vj_clock_mono_us();
    int rc = -EAGAIN;

    s->leased = leased_new(how);
    vj_holder_self(&t.self);
    vj_join_init(&t.join, s);
    for (unsigned tries = 0; rc == -EAGAIN && tries < JOIN_TRIES; tries++) {
        begun_us = vj_clock_mono_us();
        rc = try_to_join(&t);
    }
    if (rc == 0) {
        take_number(s, t.join.number, t.name);
        rc = ask_for_fence(s);
        if (rc < 0) {
            (void)!vj_leased_leave(s, VJ_LEASED_RETRY_US);
        }
    }
    vj_join_clear(&t.join);
    if (rc < 0) {
        return refuse(s, &t, rc, error);
    }
    s->leased->renewed_us = begun_us;
    s->leased->next_us = begun_us + s->leased->lease_us / VJ_LEASE_PARTS;
    vj_trace(meta, "session %" G_GUINT64_FORMAT " of %s: %s", s->number, s->label,
             s->leased->record.name);
    vj_leased_start(s);
    return true;
}

/* ---- Leaving --------------------------------------------------------------------- */

int vj_leased_leave(VjSession *s, int64_t patience_us)
{
    static const char subs[] = {VJ_SESSION_SUB_HOLDER, VJ_SESSION_SUB_LEASE};
    VjBatch batch = {.next = vj_overlay_next_change,
                     .fence = s->fence.stands ? &s->fence.check : NULL};
    VjSessionRecord record = s->leased->record;
    VjOverlay changes;
    int rc = 0;

    if (s->is_shut_out) {
        return 0;
    }
    vj_overlay_init(&changes);
    for (size_t i = 0; rc == 0 && i < G_N_ELEMENTS(subs); i++) {
        VjSessionKey key = vj_session_sub_key(s->number, subs[i]);

        rc = vj_join_set(&changes, &key, NULL, 0);
    }
    if (rc == 0 && s->fence.stays) {
        record.state = VJ_SESSION_ENDED;
        rc = vj_join_set_record(&changes, &record);
    } else if (rc == 0) {
        rc = vj_join_set(&changes, &s->fence.key, NULL, 0);
    }
    if (rc == 0) {
        batch.changes = &changes;
        batch.count = changes.entry_count;
        rc = vj_engine_apply(s->engine, &batch, NULL, vj_clock_mono_us() + patience_us);
    }
    vj_overlay_clear(&changes);
    return rc == -ESTALE ? 0 : rc; /* it was done, and the answer was lost */
}

/* ---- Renewing -------------------------------------------------------------------- */

static void shut_out(VjSession *s)
{
    vj_mutex_lock(&s->state);
    if (!s->is_shut_out) {
        vj_session_was_shut_out(s);
    }
    vj_mutex_unlock(&s->state);
}

/* The version of the lease's key.  -ESTALE: this session was shut out. */
static int ask_for_lease(VjSession *s, uint64_t *version, int64_t deadline_us)
{
    VjKey keys[] = {s->fence.check.key,
                    {VJ_SPACE_SESSION, vj_session_key_slice(&s->leased->lease_key)}};
    VjItems items = {0};
    int rc = vj_engine_get_many(s->engine, keys, G_N_ELEMENTS(keys), &items, deadline_us);

    if (rc == 0 && items.at[0].version != s->fence.check.version) {
        rc = -ESTALE;
    }
    *version = rc == 0 ? items.at[1].version : 0;
    vj_items_clear(&items);
    return rc;
}

static int put_lease(VjSession *s, uint64_t version, int64_t expires_us,
                     int64_t deadline_us)
{
    VjSlice key = vj_session_key_slice(&s->leased->lease_key);
    VjCheck check = {{VJ_SPACE_SESSION, key}, version};
    uint8_t bytes[VJ_NUMBER_BYTES];
    VjChange change = {
        .space = VJ_SPACE_SESSION, .key = key, .value = vj_slice(bytes, sizeof bytes)};
    VjChanges all = {.at = &change, .count = 1};
    VjBatch batch = {.next = vj_changes_next,
                     .changes = &all,
                     .count = 1,
                     .checks = &check,
                     .check_count = 1,
                     .fence = &s->fence.check};
    VjItems fresh = {0};
    int rc;

    vj_number_encode(VJ_NUMBER_LEASE, key, (uint64_t)expires_us, bytes);
    rc = vj_engine_apply(s->engine, &batch, &fresh, deadline_us);
    vj_items_clear(&fresh);
    return rc;
}

static int try_to_renew(VjSession *s, int64_t deadline_us)
{
    int64_t now_us = vj_engine_clock_us(s->engine, deadline_us);
    uint64_t version;
    int rc = now_us < 0 ? (int)now_us : -EAGAIN;

    for (unsigned tries = 0; rc == -EAGAIN && tries < RENEW_TRIES; tries++) {
        rc = ask_for_lease(s, &version, deadline_us);
        if (rc == 0) {
            rc = put_lease(s, version, now_us + s->leased->lease_us, deadline_us);
        }
    }
    return rc;
}

static void renewed(VjSession *s, int64_t begun_us) VJ_REQUIRES(&s->state)
{
    VjLeased *l = s->leased;

    l->renewed_us = begun_us;
    l->next_us = begun_us + l->lease_us / VJ_LEASE_PARTS;
    if (l->is_over) {
        l->is_over = false;
        vj_log_info("meta %s: the lease was renewed, and no other session had taken over",
                    s->label);
    }
}

static void not_renewed(VjSession *s, int rc) VJ_REQUIRES(&s->state)
{
    VjLeased *l = s->leased;
    int64_t now_us = vj_clock_mono_us();

    l->next_us = now_us + MIN(VJ_LEASED_RETRY_US, l->lease_us / VJ_LEASE_PARTS);
    if (!l->is_over && now_us >= l->renewed_us + l->lease_us) {
        l->is_over = true;
        vj_log_warn("meta %s: the lease has ended and cannot be renewed: %s; another "
                    "session may take over, and what is not durable by then is lost",
                    s->label, g_strerror(-rc));
    }
}

/* Gives the lock up meanwhile. */
static void renew(VjSession *s) VJ_REQUIRES(&s->state)
{
    VjLeased *l = s->leased;
    int64_t begun_us = vj_clock_mono_us();
    bool renews = !l->never_renews;
    int rc = 0;

    l->renew_wanted = false;
    vj_mutex_unlock(&s->state);
    if (renews) {
        rc = try_to_renew(s, begun_us + l->lease_us / VJ_LEASE_PARTS);
    }
    if (rc == -ESTALE) {
        shut_out(s);
    }
    vj_mutex_lock(&s->state);
    if (rc == 0) {
        renewed(s, begun_us);
    } else if (rc != -ESTALE) {
        not_renewed(s, rc == -EAGAIN ? -EIO : rc);
    }
    l->looks++;
    vj_cond_broadcast(&l->looked);
}

static gpointer lease_main(gpointer opaque)
{
    VjSession *s = opaque;
    VjLeased *l = s->leased;

    vj_mutex_lock(&s->state);
    while (!l->is_stopping) {
        bool is_due = vj_clock_mono_us() >= l->next_us || l->renew_wanted;

        if (!s->is_shut_out && is_due) {
            renew(s);
        } else if (s->applier == NULL && vj_session_tell_due(s)) {
            vj_session_tell_shut_out(s);
        } else if (s->is_shut_out) {
            vj_cond_wait(&l->wake, &s->state);
        } else {
            (void)vj_cond_wait_until(&l->wake, &s->state, l->next_us);
        }
    }
    vj_mutex_unlock(&s->state);
    return NULL;
}

void vj_leased_start(VjSession *s)
{
    VjLeased *l = s->leased;

    vj_mutex_lock(&s->state);
    l->is_stopping = false;
    vj_mutex_unlock(&s->state);
    l->thread = g_thread_new("vj-meta-lease", lease_main, s);
}

void vj_leased_stop(VjSession *s)
{
    VjLeased *l = s->leased;

    if (l->thread == NULL) {
        return;
    }
    vj_mutex_lock(&s->state);
    l->is_stopping = true;
    vj_cond_broadcast(&l->wake);
    vj_mutex_unlock(&s->state);
    g_thread_join(g_steal_pointer(&l->thread));
}

/* ---- Tests ----------------------------------------------------------------------- */

void vj_leased_renew_for_test(VjMeta *m)
{
    VjSession *s = vj_session_of(m);
    VjLeased *l = s->leased;
    uint64_t wanted;

    vj_mutex_lock(&s->state);
    wanted = l->looks + 1;
    while (l->looks < wanted && !s->is_shut_out) {
        l->renew_wanted = true;
        vj_cond_broadcast(&l->wake);
        vj_cond_wait(&l->looked, &s->state);
    }
    vj_mutex_unlock(&s->state);
}

void vj_leased_never_renew_for_test(VjMeta *m)
{
    VjSession *s = vj_session_of(m);

    vj_mutex_lock(&s->state);
    s->leased->never_renews = true;
    vj_mutex_unlock(&s->state);
}
