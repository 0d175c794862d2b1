/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * sessions.c - other sessions of the volume: what they change, and what they leave
 *
 * What a session owned when it ended without giving that up is released by another one:
 * contents without a name are dropped, its blocks of object numbers are recovered, its
 * claims go, and its record last.  Each step may be cut off and is done again, also by
 * several sessions at a time: they conflict, and one of them comes first.
 *
 * Alone, a session does so when it is opened, for all that ended before: the room object
 * has recovered their blocks by then, and the orphans wait for the purge, which needs no
 * record to know that their owners have ended.
 */
#include "meta/session.h"
#include "volume/volume-private.h"

/* Claims that one transaction drops. */
#define CLAIM_BATCH 1000u

/* ---- which volumes may be shared --------------------------------------------------- */

static bool refuse(const VjVolume *v, const char *what, GError **error)
{
    return vj_error_set(error, EOPNOTSUPP, "%s: %s cannot be shared yet", v->place->name,
                        what);
}

bool vj_sessions_may_share(const VjVolume *v, const VjVolumeOpen *how, GError **error)
{
    if (!how->shared) {
        return true;
    }
    if (how->check || how->repair) {
        return refuse(v, "a check", error);
    }
    if (how->read_only) { /* it could not say which contents it has open */
        return refuse(v, "a file system that is only read", error);
    }
    return how->checkpoint_seconds == 0 || refuse(v, "one with checkpoints", error);
}

/* ---- releasing --------------------------------------------------------------------- */

typedef struct Release {
    uint64_t session;
    bool more; /* out */
} Release;

static int claims_body(VjTxn *txn, void *opaque)
{
    Release *r = opaque;

    return vj_claims_release(txn, r->session, CLAIM_BATCH, &r->more);
}

static int release_claims(VjVolume *v, uint64_t session)
{
    Release release = {.session = session, .more = true};
    int r = 0;

    while (r == 0 && release.more) {
        r = vj_meta_run(v->meta, VJ_RUN_RELEASE, claims_body, &release);
    }
    return r;
}

static int forget_body(VjTxn *txn, void *opaque)
{
    const uint64_t *session = opaque;

    return vj_session_forget(txn, *session);
}

static int release(VjVolume *v, uint64_t session)
{
    int r = 0;

    if (v->is_shared) {
        r = vj_orphan_purge_session(v->purge, session);
        r = r < 0 ? r : vj_objects_release_session(v->objects, session);
    }
    r = r < 0 ? r : release_claims(v, session);
    return r < 0 ? r : vj_meta_run(v->meta, VJ_RUN_RELEASE, forget_body, &session);
}

/* What fails is logged: it is tried again, at the latest by the next session that opens
 * the volume. */
static void release_ended(VjVolume *v, uint64_t session, const char *name)
{
    int r = release(v, session);

    if (r < 0) {
        vj_log_warn("session %" G_GUINT64_FORMAT
                    " (%s) did not end in order, and what it had cannot be released "
                    "now: %s",
                    session, name, g_strerror(-r));
    } else {
        vj_log_info("session %" G_GUINT64_FORMAT
                    " (%s) did not end in order: what it had was released",
                    session, name);
    }
}

/* Those that have ended: @only, or all. */
static int release_listed(VjVolume *v, uint64_t only)
{
    g_autoptr(GArray) sessions = g_array_new(FALSE, FALSE, sizeof(VjSessionInfo));
    int r = vj_meta_sessions(v->meta, sessions);

    for (guint i = 0; r == 0 && i < sessions->len; i++) {
        const VjSessionInfo *s = &g_array_index(sessions, VjSessionInfo, i);

        if (s->has_ended && s->id != vj_meta_session(v->meta) &&
            (only == 0 || s->id == only)) {
            release_ended(v, s->id, s->name);
        }
    }
    return r;
}

/* ---- what the metadata report ------------------------------------------------------ */

static void on_changed(void *opaque, const VjKey *key)
{
    VjVolume *v = opaque;

    vj_objects_changed(v->objects, key);
    if (key == NULL) {
        vj_file_records_changed(v->files);
    } else if (key->space == VJ_SPACE_INODE && key->key.len == VJ_INO_KEY_BYTES) {
        vj_file_record_changed(v->files, vj_be64_get(key->key.data));
    }
    if (v->events != NULL && v->events->changed != NULL) {
        v->events->changed(v->events_opaque, key);
    }
}

static void on_session_ended(void *opaque, uint64_t session)
{
    (void)!release_listed(opaque, session); /* else it is reported again */
}

static void on_shut_out(void *opaque)
{
    VjVolume *v = opaque;

    g_atomic_int_set(&v->is_shut_out, 1);
    vj_log_error("%s: another session has shut this one out: what is not written back "
                 "yet is lost, and the file system is to be opened anew",
                 v->place->name);
}

static const VjMetaEvents events = {
    .changed = on_changed,
    .session_ended = on_session_ended,
    .shut_out = on_shut_out,
};

bool vj_volume_is_shut_out(VjVolume *v)
{
    return g_atomic_int_get(&v->is_shut_out) != 0;
}

void vj_volume_listen(VjVolume *v, const VjVolumeEvents *listener, void *opaque)
{
    vj_meta_listen(v->meta, NULL, NULL);
    v->events = listener;
    v->events_opaque = opaque;
    vj_meta_listen(v->meta, &events, v);
    if (listener != NULL && listener->changed != NULL && v->is_shared) {
        listener->changed(opaque, NULL); /* what was changed in between had no listener */
    }
}

/* ---- open and close ---------------------------------------------------------------- */

int vj_sessions_open(VjVolume *v)
{
    int r = release_listed(v, 0);

    if (r == 0) {
        vj_meta_listen(v->meta, &events, v);
    }
    return r;
}

int vj_sessions_close(VjVolume *v)
{
    uint64_t self;
    int r;

    vj_meta_listen(v->meta, NULL, NULL);
    if (!v->is_shared) {
        return 0;
    }
    self = vj_meta_session(v->meta);
    r = vj_orphan_purge_session(v->purge, self);
    r = r < 0 ? r : release_claims(v, self);
    if (r < 0) {
        vj_meta_leave_record(v->meta);
    }
    return r;
}
