/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * redo-replay.c - taking over the log when a session begins, and giving it up at the end
 *
 * Each record becomes one commit of the overlay, and these are moved as always; meanwhile
 * the engine goes on saying that the same rounds count, with the number of the last
 * commit that it has.  So it can be cut off anywhere and done again.  A session that may
 * not write keeps them in the overlay.
 */
#include "meta/session-private.h"

/* ---- Replaying ------------------------------------------------------------------- */

typedef struct Replay {
    VjSession *s;
    char *flaw; /* owned; the first */
} Replay;

static void note_flaw(void *opaque, const char *text)
{
    Replay *r = opaque;

    vj_log_error("meta %s/" VJ_REDO_FILE ": %s", r->s->label, text);
    if (r->flaw == NULL) {
        r->flaw = g_strdup(text);
    }
}

static int replay_change(void *opaque, VjSpace space, VjSlice key, const VjSlice *value)
{
    VjSession *s = ((Replay *)opaque)->s;

    return vj_overlay_set(&s->changes, space, key, value);
}

/*
 * When they were acknowledged, space was set aside for these commits.  If that did not
 * survive, and the device is full by now, a move may fail; nothing is lost by that.
 */
static int replay_room(VjSession *s)
{
    bool full;
    int rc;

    vj_mutex_lock(&s->state);
    full = vj_session_is_full(s);
    vj_mutex_unlock(&s->state);
    rc = full ? vj_session_flush_moved(s) : 0;
    if (rc == 0) {
        rc = vj_session_reserve(s, true);
    }
    if (rc == -ENOSPC) {
        rc = vj_session_flush_moved(s);
    }
    return rc;
}

static int replay_end(void *opaque, const VjRedoRun *run)
{
    VjSession *s = ((Replay *)opaque)->s;
    int rc = s->read_only ? 0 : replay_room(s);

    if (rc < 0) {
        return rc;
    }
    vj_mutex_lock(&s->state);
    s->seq = run->last_seq - 1;
    vj_mutex_unlock(&s->state);
    vj_session_make_visible(s);
    vj_mutex_lock(&s->state);
    s->durable_seq = s->seq;
    s->redo.stats.replayed++;
    vj_mutex_unlock(&s->state);
    return 0;
}

/* Before anything of a damaged log is given up. */
static void keep_log(const VjSession *s)
{
    int rc = vj_redo_keep(s->redo.place.dir_fd);

    if (rc < 0 && rc != -ENOENT) {
        vj_log_error("meta %s/" VJ_REDO_FILE ": no copy of it can be kept: %s", s->label,
                     g_strerror(-rc));
    }
}

static bool replay(VjSession *s, const VjRedo *log, bool salvage, GError **error)
{
    Replay r = {.s = s};
    VjRedoReader reader = {
        .change = replay_change, .end = replay_end, .say = note_flaw, .opaque = &r};
    g_autofree char *flaw = NULL;
    VjRedoFound found;
    int rc;

    rc = vj_session_writer_begin(s, INT64_MAX, false);
    g_assert(rc == 0); /* there is no other writer yet */
    rc = vj_redo_read(log, &s->redo.point, &reader, &found);
    vj_overlay_clear(&s->changes);
    vj_session_writer_end(s);
    flaw = r.flaw;
    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s/" VJ_REDO_FILE ": replaying it",
                                  s->path);
    }
    if (found.records > 0) {
        vj_log_info("meta %s/" VJ_REDO_FILE ": replayed %" G_GUINT64_FORMAT
                    " records, %" G_GUINT64_FORMAT " bytes",
                    s->label, found.records, found.bytes);
    }
    if (found.torn_at > 0 && found.flaws == 0) {
        vj_log_warn(
            "meta %s/" VJ_REDO_FILE ": the last record, at byte %" G_GUINT64_FORMAT
            ", is there in part: it was being written when the power went, and nobody was"
            " promised it, or it is damaged, and what its fsync promised is missing",
            s->label, found.torn_at);
    }
    if (found.flaws > 0 && salvage) {
        keep_log(s);
        vj_log_error("meta %s/" VJ_REDO_FILE ": %s; what is behind that is given up",
                     s->label, flaw);
    }
    return found.flaws == 0 || salvage ||
           vj_error_set(error, EBADMSG,
                        "%s/" VJ_REDO_FILE " is damaged (%s); see fsck.varjfs(8)",
                        s->path, flaw);
}

/* Of a log whose head is damaged, or whose end is missing; it is not written to again. */
static bool recover_rest(VjSession *s, const char *why, GError **error)
{
    VjRedo *log = NULL;
    int rc = vj_redo_open_as(s->redo.place.dir_fd, s->redo.point.id, &log);
    bool ok;

    keep_log(s);
    if (rc < 0) {
        vj_log_error("meta %s/" VJ_REDO_FILE
                     ": %s, nor has it the length of a log; what was in it is given up",
                     s->label, why);
        return true;
    }
    vj_log_warn("meta %s/" VJ_REDO_FILE ": %s; what records it has are read", s->label,
                why);
    s->seq = s->durable_seq = s->moved_seq = s->redo.point.seq;
    s->redo.recovering = true;
    ok = replay(s, log, true, error);
    vj_redo_close(log);
    return ok;
}

/* Takes over the log that the file names.  *log: NULL when there is none to go on
 * with. */
static bool recover(VjSession *s, bool salvage, VjRedo **log, GError **error)
{
    bool lost = s->redo.place.point_is_lost;
    int rc = vj_redo_open(s->redo.place.dir_fd, !s->read_only, log);
    const char *why = lost ? "the engine does not say which"
                           : vj_redo_why_not(*log, rc, &s->redo.point);

    if (why != NULL) {
        vj_redo_close(*log);
        *log = NULL;
        if (!salvage || (!vj_redo_is_lost(rc) && !lost)) {
            return vj_error_set(error, vj_redo_is_lost(rc) ? EBADMSG : -rc,
                                "%s/" VJ_REDO_FILE
                                ", which has the last commits: %s; see fsck.varjfs(8)",
                                s->path, why);
        }
        if (rc == -EBADMSG && !lost) {
            return recover_rest(s, why, error);
        }
        keep_log(s);
        vj_log_error("meta %s/" VJ_REDO_FILE ": %s; what was in it is given up", s->label,
                     why);
        return true;
    }
    s->seq = s->durable_seq = s->moved_seq = s->redo.point.seq;
    s->redo.recovering = true;
    if (!replay(s, *log, salvage, error)) {
        return false;
    }
    return true;
}

/* ---- Open and close ---------------------------------------------------------------- */

static void begin_log(VjSession *s, VjRedo **log)
{
    uint64_t bytes = vj_session_redo_fitting(s);
    int rc = bytes < VJ_REDO_BYTES_MIN ? -ENOSPC
                                       : vj_redo_begin(s->redo.place.dir_fd, bytes, log);

    if (rc < 0) {
        vj_log_info("meta %s: works without " VJ_REDO_FILE ": %s", s->label,
                    g_strerror(-rc));
        return;
    }
    memcpy(s->redo.point.id, (*log)->id, VJ_REDO_ID_BYTES);
}

/* What is in it has been replayed; @log goes on, NULL: there is none. */
static void begin_rounds(VjSession *s, VjRedo *log)
{
    vj_mutex_lock(&s->state);
    s->redo.log = log;
    s->redo.recovering = false;
    s->redo.round = s->redo.point.round + 2;
    /* A move of what was replayed may still run: the engine has the old rounds when it
     * ends. */
    s->redo.after_round = s->redo.round + 1;
    if (s->read_only) {
        s->moved_seq = s->seq;
    }
    vj_mutex_unlock(&s->state);
}

bool vj_session_redo_open(VjSession *s, const VjMetaPlace *place, GError **error)
{
    const VjEngineLog *l = &s->redo.place;
    VjRedo *log = NULL;
    bool had_log;
    int rc = 0;

    if (l->wanted_bytes > 0 && l->wanted_bytes < VJ_REDO_BYTES_MIN) {
        return vj_error_set(error, EINVAL,
                            "redo=%" G_GUINT64_FORMAT ": at least %" G_GUINT64_FORMAT
                            " bytes, or 0",
                            l->wanted_bytes, VJ_REDO_BYTES_MIN);
    }
    if (l->claimed && !recover(s, place->salvage, &log, error)) {
        vj_redo_close(log);
        return false;
    }
    had_log = log != NULL;
    if (s->read_only || l->wanted_bytes == 0) {
        vj_redo_close(log);
        log = NULL;
    } else if (!l->claimed) {
        begin_log(s, &log);
    }
    begin_rounds(s, log);
    if (!s->read_only && l->claimed) {
        rc = vj_session_flush_moved(s);
        if (rc == 0 && (place->salvage || !had_log)) {
            rc = vj_session_apply_empty(s);
        }
    }
    return rc == 0 ||
           vj_error_set_errno(error, -rc, "%s/" VJ_REDO_FILE ": moving what was in it",
                              s->path);
}

int vj_session_redo_retire(VjSession *s)
{
    int rc;

    if (s->read_only) {
        return 0;
    }
    vj_mutex_lock(&s->state);
    s->redo.retiring = true;
    s->redo.serves = false;
    vj_mutex_unlock(&s->state);
    rc = vj_session_flush_moved(s);
    if (rc == 0 && s->redo.claimed) {
        rc = vj_session_apply_empty(s);
    }
    return rc;
}
