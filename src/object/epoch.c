/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * epoch.c - what other sessions may still read of what has died
 *
 * Only its own session knows a guard or a pin.  So a pass over the dead asks the other
 * sessions, by a number that all of them see, the epoch:
 *
 *   - the reaper, which is one session at a time by a claim, has seen dead records.  It
 *     begins the next epoch;
 *   - each session that sees it waits until the guards have left that it had before: what
 *     its views show from now on is younger than those deaths.  For what it has pinned
 *     and finds dead it puts a hold.  Then it publishes that epoch;
 *   - when all that live have published it, the reaper goes on with what no session
 *     holds.
 *
 * A pin of something dead that comes later comes from a pin that was there, so that there
 * is a hold.  A session that begins later publishes what it finds before its first guard.
 *
 * All of this is done by the reaper threads.  In an exclusive session nothing is.
 */
#include "meta/session-format.h"
#include "object/object-private.h"

/* Holds that one transaction puts or drops. */
#define HOLD_BATCH 256u
/* How often the reaper looks for sessions that have not published, where no change is
 * reported. */
#define LOOK_US ((int64_t)1000 * 1000)

/* ---- the epoch --------------------------------------------------------------------- */

static VjSlice epoch_key(void)
{
    return vj_slice(VJ_EPOCH_KEY, strlen(VJ_EPOCH_KEY));
}

static int epoch_get(VjTxn *txn, uint64_t *epoch)
{
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_SYSTEM, epoch_key(), &value);

    *epoch = 1; /* no pass has begun one */
    return rc == 0 ? vj_epoch_decode(value, epoch) : rc == -ENOENT ? 0 : rc;
}

static int epoch_body(VjTxn *txn, void *opaque)
{
    return epoch_get(txn, opaque);
}

/* @opaque: gets the epoch. */
static int publish_first_body(VjTxn *txn, void *opaque)
{
    uint64_t *epoch = opaque;
    int rc = epoch_get(txn, epoch);

    return rc < 0 ? rc : vj_session_publish(txn, *epoch);
}

bool vj_epoch_open(VjObjects *o, GError **error)
{
    int rc = vj_meta_run(o->meta, VJ_RUN_DEFAULT, publish_first_body, &o->dead.published);

    return rc == 0 || vj_error_set_errno(error, -rc, "the epoch of this session");
}

/* ---- holds ------------------------------------------------------------------------- */

typedef struct VjHoldBatch {
    const uint64_t *ids;
    size_t count;
    bool is_put;
    uint64_t publish; /* an epoch; 0: none */
} VjHoldBatch;

static int hold_body(VjTxn *txn, void *opaque)
{
    const VjHoldBatch *b = opaque;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < b->count; i++) {
        rc = b->is_put ? vj_hold_put(txn, b->ids[i]) : vj_hold_del(txn, b->ids[i]);
    }
    return rc == 0 && b->publish > 0 ? vj_session_publish(txn, b->publish) : rc;
}

/* Puts or drops holds of all @ids, and publishes with the last of them. */
static int change_holds(VjObjects *o, const GArray *ids, bool is_put, uint64_t publish)
{
    guint i = 0;
    int rc;

    do {
        VjHoldBatch b = {.ids = &g_array_index(ids, uint64_t, i),
                         .count = MIN(ids->len - i, HOLD_BATCH),
                         .is_put = is_put};

        i += (guint)b.count;
        b.publish = i == ids->len ? publish : 0;
        rc = vj_meta_run(o->meta, VJ_RUN_RELEASE, hold_body, &b);
    } while (rc == 0 && i < ids->len);
    return rc;
}

/* What is dead and has a pin here. */
static int list_pinned_dead(VjObjects *o, GArray *ids)
{
    VjListing l;

    vj_listing_begin(&l, o->meta, VJ_SPACE_DEAD);
    while (vj_listing_next(&l)) {
        uint64_t id;

        if (l.key.len == VJ_OBJECT_KEY_BYTES) {
            id = vj_be64_get(l.key.data);
            if (vj_dead_is_pinned(&o->dead, id)) {
                g_array_append_val(ids, id);
            }
        }
    }
    return vj_listing_end(&l);
}

/* Those that are not pinned any more. */
static int drop_holds(VjObjects *o)
{
    g_autoptr(GArray) ids = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    int rc;

    vj_dead_list_needless_holds(&o->dead, ids);
    if (ids->len == 0) {
        return 0;
    }
    rc = change_holds(o, ids, false, 0);
    if (rc == 0) {
        vj_dead_forget_holds(&o->dead, ids);
        vj_objects_kick(o);
    }
    return rc;
}

/* ---- each session ------------------------------------------------------------------ */

/* Publishes @epoch: no view of this session is older any more. */
static int publish(VjObjects *o, uint64_t epoch)
{
    g_autoptr(GArray) ids = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    VjDead *d = &o->dead;
    int rc;

    if (!vj_dead_wait_for_older_guards(d)) {
        return 0; /* it is being closed */
    }
    rc = list_pinned_dead(o, ids);
    if (rc == 0) {
        /* Before they are there: one that failed may be there all the same. */
        vj_dead_note_holds(d, ids);
        rc = change_holds(o, ids, true, epoch);
    }
    if (rc == 0) {
        d->published = epoch;
    }
    return rc;
}

int vj_epoch_attend(VjObjects *o)
{
    uint64_t epoch;
    int rc = vj_meta_view(o->meta, epoch_body, &epoch);

    if (rc == 0 && epoch > o->dead.published) {
        rc = publish(o, epoch);
    }
    return rc < 0 ? rc : drop_holds(o);
}

int vj_epoch_close(VjObjects *o)
{
    int rc = drop_holds(o), ended = vj_epoch_end(o);

    return rc < 0 ? rc : ended;
}

/* ---- the reaper -------------------------------------------------------------------- */

static int begin_body(VjTxn *txn, void *opaque)
{
    uint64_t *epoch = opaque, holder;
    uint8_t value[VJ_EPOCH_BYTES];
    int rc = vj_claim_take(txn, VJ_CLAIM_REAPER, 0, &holder);

    if (rc == 0) {
        rc = epoch_get(txn, epoch);
    }
    if (rc < 0) {
        return rc;
    }
    *epoch += 1;
    vj_epoch_encode(*epoch, value);
    return vj_txn_put(txn, VJ_SPACE_SYSTEM, epoch_key(), vj_slice(value, sizeof value));
}

int vj_epoch_begin(VjObjects *o, uint64_t *epoch)
{
    int rc = vj_meta_run(o->meta, VJ_RUN_RELEASE, begin_body, epoch);

    /* One that failed may have been done all the same. */
    o->dead.may_have_claim = o->dead.may_have_claim || rc != -EBUSY;
    return rc;
}

static int end_body(VjTxn *txn, void *opaque)
{
    (void)opaque;
    return vj_claim_drop(txn, VJ_CLAIM_REAPER, 0);
}

int vj_epoch_end(VjObjects *o)
{
    int rc = 0;

    if (o->dead.may_have_claim) {
        rc = vj_meta_run(o->meta, VJ_RUN_RELEASE, end_body, NULL);
        o->dead.may_have_claim = rc < 0;
    }
    return rc;
}

/* *all: each other session that lives has published @epoch.  -ESTALE: this one does
 * not. */
static int all_have_published(VjObjects *o, uint64_t epoch, bool *all)
{
    g_autoptr(GArray) sessions = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));
    uint64_t own = vj_meta_session(o->meta);
    int rc = vj_meta_sessions(o->meta, sessions);

    *all = rc == 0;
    for (guint i = 0; rc == 0 && i < sessions->len; i++) {
        const VjSessionInfo *s = &g_array_index(sessions, VjSessionInfo, i);

        if (s->id == own) {
            rc = s->has_ended ? -ESTALE : 0;
        } else {
            *all = *all && (s->has_ended || s->epoch >= epoch);
        }
    }
    return rc;
}

int vj_epoch_wait(VjObjects *o, uint64_t epoch)
{
    VjDead *d = &o->dead;
    bool all;

    for (;;) {
        uint64_t seen = vj_dead_changes(d);
        int rc = all_have_published(o, epoch, &all);

        if (rc < 0 || all) {
            return rc;
        }
        if (!vj_dead_wait_for_change(d, seen, vj_clock_mono_us() + LOOK_US)) {
            return -ECANCELED;
        }
    }
}

/* ---- changes that the engine reports ----------------------------------------------- */

static bool is_epoch_key(const VjKey *key)
{
    return key->space == VJ_SPACE_SYSTEM && vj_slice_compare(key->key, epoch_key()) == 0;
}

/* A record of a session, its epoch, or the reaper's claim: not its leases and commits,
 * which change all the time. */
static bool is_of_passes(const VjKey *key)
{
    const uint8_t *bytes = key->key.data;

    if (key->space == VJ_SPACE_CLAIM) {
        return key->key.len == VJ_CLAIM_KEY_BYTES && bytes[0] == VJ_CLAIM_REAPER;
    }
    return key->space == VJ_SPACE_SESSION &&
           (key->key.len == VJ_SESSION_KEY_BYTES ||
            (key->key.len == VJ_SESSION_SUB_KEY_BYTES &&
             bytes[VJ_SESSION_KEY_BYTES] == VJ_SESSION_SUB_EPOCH));
}

void vj_objects_changed(VjObjects *o, const VjKey *key)
{
    bool epoch = key == NULL || is_epoch_key(key);

    if (o->is_shared && (epoch || is_of_passes(key))) {
        vj_dead_note_change(&o->dead, epoch);
    }
}
