/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shared.c - commits of a shared session, and finding out what became of one
 *
 * A commit is one apply(), which checks the session's fence, the versions of all that the
 * transaction has read, and that of a key which has the number of the session's last
 * commit, and which it changes.
 *
 * When the engine does not say what became of it, it may be done later still.  So the
 * session applies nothing but the next number, checked against the same version: of all
 * tries only one can succeed.  If it is this one, the commit will never be; if a check
 * fails, the number that is there says which one it was.  Nothing of the session is read
 * or written before that is known.
 *
 * A caller that does not wait for that (its request was given up, or is late) gets an
 * error.  When the commit turns out to have been done, its keys are reported as if
 * another session had changed them.
 */
#include "meta/shared-private.h"

static bool is_shut_out(VjSession *s)
{
    bool shut_out;

    vj_mutex_lock(&s->state);
    shut_out = s->is_shut_out;
    vj_mutex_unlock(&s->state);
    return shut_out;
}

void vj_shared_shut_out(VjSession *s, const char *why)
{
    vj_mutex_lock(&s->state);
    if (!s->is_shut_out) {
        s->is_shut_out = true;
        vj_log_error("meta %s: session %" G_GUINT64_FORMAT " has ended: %s", s->label,
                     s->number, why);
    }
    vj_cond_broadcast(&s->shared->wake);
    vj_mutex_unlock(&s->state);
}

/* ---- Applying -------------------------------------------------------------------- */

/* The engine answered, and did nothing. */
static bool is_refusal(int rc)
{
    return rc == -ENOSPC || rc == -ENOMEM || rc == -EROFS;
}

static int put_number(const VjShared *sh, VjOverlay *changes, uint64_t number)
{
    VjSlice key = vj_session_key_slice(&sh->commit_key);
    uint8_t bytes[VJ_NUMBER_BYTES];
    VjSlice value = vj_slice(bytes, sizeof bytes);

    vj_number_encode(VJ_NUMBER_COMMIT, key, number, bytes);
    return vj_overlay_set(changes, VJ_SPACE_SESSION, key, &value);
}

static VjBatch batch_of(const VjSession *s, const VjOverlay *changes,
                        const VjCheck *checks, size_t count, uint64_t number)
{
    return (VjBatch){.checks = checks,
                     .check_count = count,
                     .fence = &s->fence.check,
                     .next = vj_overlay_next_change,
                     .changes = changes,
                     .count = changes->entry_count,
                     .number = number};
}

/* Of one call: no longer than the time after which the lease is renewed, so that a thread
 * that waits for an engine that hangs learns that the session was shut out. */
static int64_t deadline_of_try(const VjSession *s, int64_t until_us)
{
    return MIN(until_us, vj_clock_mono_us() + s->shared->lease_us / VJ_LEASE_PARTS);
}

/* ---- What became of it ----------------------------------------------------------- */

/* Each key that the commit would have changed. */
static void report_doubted(VjSession *s, bool up)
{
    VjBatch batch = batch_of(s, &s->shared->doubted, NULL, 0, 0);
    const void *at = NULL;
    VjChange change;

    while (batch.next(&batch, &at, &change)) {
        VjKey key = {change.space, change.key};

        if (s->cache != NULL) {
            vj_item_cache_report(s->cache, &key, false);
        }
        if (up) {
            vj_session_tell_changed(s, &key);
        }
    }
}

/* It is known: it was @done, or never will be. */
static void resolved(VjSession *s, bool done, uint64_t number, uint64_t version)
{
    VjShared *sh = s->shared;

    sh->commit_number = number;
    sh->commit.version = version;
    sh->was_done = done;
    if (done) {
        report_doubted(s, sh->was_given_up);
    }
    vj_overlay_clear(&sh->doubted);
    vj_mutex_lock(&s->state);
    s->seq += done;
    s->durable_seq = s->moved_seq = s->seq;
    sh->is_in_doubt = false;
    vj_mutex_unlock(&s->state);
    vj_trace(meta, "commit %" G_GUINT64_FORMAT " of session %" G_GUINT64_FORMAT ": %s",
             sh->doubted_number, s->number, done ? "done after all" : "not done");
}

/* @last: what the engine has in place of what this session has put there last. */
static int resolve_by(VjSession *s, const VjItem *last)
{
    VjShared *sh = s->shared;
    uint64_t number;

    if (vj_number_decode(VJ_NUMBER_COMMIT, last->key, last->value, &number) < 0 ||
        (number != sh->doubted_number && number != sh->doubted_number + 1)) {
        return -ESTALE;
    }
    resolved(s, number == sh->doubted_number, number, last->version);
    return 0;
}

/* The session was shut out, so that nothing can be done later. */
static int resolve_fenced(VjSession *s, int64_t deadline_us)
{
    VjItems items = {0};
    int rc =
        vj_engine_get_many(s->engine, &s->shared->commit.key, 1, &items, deadline_us);

    vj_shared_shut_out(s, "another session shut it out");
    if (rc == 0 && items.at[0].version == s->shared->commit.version) {
        resolved(s, false, s->shared->commit_number, s->shared->commit.version);
    } else if (rc == 0) {
        (void)resolve_by(s, &items.at[0]);
    }
    vj_items_clear(&items);
    return -ESTALE;
}

/* Once. */
static int ask(VjSession *s, int64_t deadline_us)
{
    VjShared *sh = s->shared;
    uint64_t number = sh->doubted_number + 1, version = 0;
    VjItems fresh = {0};
    VjOverlay changes;
    VjBatch batch;
    int rc;

    vj_overlay_init(&changes);
    rc = put_number(sh, &changes, number);
    if (rc == 0) {
        batch = batch_of(s, &changes, &sh->commit, 1, number);
        batch.version = &version;
        rc = vj_engine_apply(s->engine, &batch, &fresh, deadline_us);
    }
    vj_overlay_clear(&changes);
    if (rc == 0) {
        resolved(s, false, number, version);
    } else if (rc == -EAGAIN) {
        rc = resolve_by(s, &fresh.at[0]);
        if (rc == -ESTALE) {
            vj_shared_shut_out(s, "its own records were changed");
        }
    } else if (rc == -ESTALE) {
        rc = resolve_fenced(s, deadline_us);
    }
    vj_items_clear(&fresh);
    return rc;
}

static bool is_in_doubt(VjSession *s)
{
    bool in_doubt;

    vj_mutex_lock(&s->state);
    in_doubt = s->shared->is_in_doubt;
    vj_mutex_unlock(&s->state);
    return in_doubt;
}

/* Another thread may have found it out, and have committed, before this one became the
 * writer. */
int vj_shared_resolve(VjSession *s, int64_t deadline_us)
{
    return is_in_doubt(s) ? ask(s, deadline_us) : 0;
}

/* Between two tries.  0; -ECANCELED, -ETIMEDOUT, -ESTALE. */
static int pause_for(VjSession *s, int64_t us, int64_t until_us)
{
    int64_t end_us = vj_clock_mono_us() + us;
    bool is_late = until_us < end_us;
    int rc = 0;

    vj_mutex_lock(&s->state);
    while (rc == 0 && !s->is_shut_out) {
        rc = vj_cond_wait_or_cancel(&s->shared->wake, &s->state, MIN(end_us, until_us));
    }
    if (s->is_shut_out) {
        rc = -ESTALE;
    }
    vj_mutex_unlock(&s->state);
    return rc == -ETIMEDOUT && !is_late ? 0 : rc;
}

/* The engine said @why to the commit that s->changes are.  0: it was done after all. */
static int find_out(VjSession *s, uint64_t number, int why, int64_t resolve_until_us)
{
    VjShared *sh = s->shared;
    int64_t pause_us = VJ_RESOLVE_PAUSE_FIRST_US;
    int rc;

    sh->doubted = s->changes;
    vj_overlay_init(&s->changes);
    sh->doubted_number = number;
    sh->was_done = sh->was_given_up = false;
    vj_mutex_lock(&s->state);
    g_assert(!sh->is_in_doubt);
    sh->is_in_doubt = true;
    vj_mutex_unlock(&s->state);
    while ((rc = vj_shared_resolve(s, deadline_of_try(s, resolve_until_us))) < 0 &&
           rc != -ESTALE) {
        int paused = pause_for(s, pause_us, resolve_until_us);

        if (paused < 0) {
            rc = paused;
            break;
        }
        pause_us = MIN(2 * pause_us, VJ_RESOLVE_PAUSE_MAX_US);
    }
    if (sh->was_done) {
        return 0;
    }
    if (rc == 0) {
        /* It was not done: as after a conflict, where the caller has time left. */
        return why == -ETIMEDOUT ? -EAGAIN : why;
    }
    sh->was_given_up = true;
    vj_mutex_lock(&s->state);
    vj_cond_broadcast(&sh->wake); /* the lease's thread finds it out */
    vj_mutex_unlock(&s->state);
    return rc;
}

/* ---- Transactions ---------------------------------------------------------------- */

int vj_shared_begin(VjSession *s, const VjTxn *txn)
{
    int rc;

    if (is_shut_out(s)) {
        return -ESTALE;
    }
    if (!is_in_doubt(s)) {
        return 0;
    }
    rc = txn->write ? 0 : vj_session_writer_begin(s, txn->until_us, false);
    if (rc < 0) {
        return rc;
    }
    rc = vj_shared_resolve(s, deadline_of_try(s, txn->until_us));
    if (!txn->write) {
        vj_session_writer_end(s);
    }
    return rc;
}

/* What is there now, in place of what was read. */
static void keep_fresh(VjSession *s, uint64_t ticket, const VjItems *fresh)
{
    g_autofree VjKey *keys = s->cache != NULL ? g_try_new(VjKey, fresh->count) : NULL;

    for (size_t i = 0; keys != NULL && i < fresh->count; i++) {
        keys[i] = (VjKey){fresh->at[i].space, fresh->at[i].key};
    }
    if (keys != NULL) {
        vj_item_cache_add(s->cache, ticket, keys, fresh->at, fresh->count);
    }
}

static void committed(VjSession *s, uint64_t ticket, const VjBatch *batch)
{
    s->shared->commit_number = batch->number;
    s->shared->commit.version = *batch->version;
    if (s->cache != NULL) {
        vj_item_cache_commit(s->cache, ticket, batch, *batch->version);
    }
    vj_mutex_lock(&s->state);
    s->seq++;
    s->durable_seq = s->moved_seq = s->seq;
    vj_mutex_unlock(&s->state);
}

static int apply_changes(VjSession *s, const VjCheck *checks, size_t count,
                         int64_t resolve_until_us)
{
    VjShared *sh = s->shared;
    uint64_t ticket = s->cache != NULL ? vj_item_cache_ticket(s->cache) : 0;
    uint64_t number = sh->commit_number + 1, version = 0;
    VjBatch batch = batch_of(s, &s->changes, checks, count, number);
    VjItems fresh = {0};
    int rc;

    batch.version = &version;
    rc = vj_engine_apply(s->engine, &batch, &fresh,
                         deadline_of_try(s, vj_cancel_deadline_us()));
    if (rc == 0) {
        committed(s, ticket, &batch);
    } else if (rc == -EAGAIN) {
        keep_fresh(s, ticket, &fresh);
    } else if (rc == -ESTALE) {
        vj_shared_shut_out(s, "another session shut it out");
    } else if (!is_refusal(rc)) {
        rc = find_out(s, number, rc, resolve_until_us);
    }
    vj_items_clear(&fresh);
    return rc;
}

int vj_shared_commit(VjSession *s, VjTxn *txn)
{
    VjShared *sh = s->shared;
    g_autofree VjCheck *checks = NULL;
    size_t count;
    int rc;

    if (txn->verdict < 0) {
        return txn->verdict;
    }
    if (s->changes.entry_count == 0) {
        return vj_far_validate(s, txn);
    }
    if (is_shut_out(s)) {
        return -ESTALE;
    }
    rc = put_number(sh, &s->changes, sh->commit_number + 1);
    if (rc < 0) {
        return rc;
    }
    checks = vj_read_set_checks(((VjSessionTxn *)txn)->view->reads, 1, &count);
    if (checks == NULL) {
        return -ENOMEM;
    }
    checks[count++] = sh->commit;
    return apply_changes(s, checks, count, txn->until_us);
}
