/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * redo-write.c - the log in front of the engine: which thread writes what and when
 *
 * A flush writes one record with all that changed since the last one: keys and the values
 * that the last commit left them, out of both generations.  One flushing thread writes,
 * with no lock held; threads that flush meanwhile wait, and the next record is for all of
 * them.  What does not fit, or is too much for a record, is moved into the file instead,
 * as without a log.
 *
 * The rounds of the log (redo-format.h) are the generations.  Records go to the round of
 * the active one.  A generation is frozen when the one before it has been moved; by then
 * no record of the round before counts, and its half takes those of the new round.
 * Records of a round may hold commits of the generation before: that is moved first.
 *
 * The first move of a mount says in the file that there is a log, by a version that older
 * programs refuse, and only then the log is used; closing takes that back.
 *
 * A failed write or sync: no record is written to this log any more.  Where the failed
 * one stands, records of that round end; it may be there or not, as no flush has reported
 * anything of it as durable.  The next move takes every commit into the file and says
 * there that no log counts; when that is durable the log gets a new file with an id of
 * its own, written from end to end and synced, and the move after that says that it
 * counts.  So at every instant the log that the file names is the one that is there, and
 * has what was promised.
 */
#include <sys/statvfs.h>

#include "meta/session-private.h"

/* ---- Writing ----------------------------------------------------------------------- */

static uint64_t unlogged_bytes(const VjSession *s)
{
    return s->active->overlay.unlogged_bytes +
           (s->frozen != NULL ? s->frozen->overlay.unlogged_bytes : 0);
}

static uint64_t unlogged_count(const VjSession *s)
{
    return s->active->overlay.unlogged_count +
           (s->frozen != NULL ? s->frozen->overlay.unlogged_count : 0);
}

bool vj_session_redo_fits(const VjSession *s)
{
    uint64_t bytes = unlogged_bytes(s);

    return bytes <= VJ_REDO_BODY_MAX &&
           s->redo.offset + vj_redo_record_bytes(bytes) <= s->redo.log->half_bytes;
}

bool vj_session_redo_is_full(const VjSession *s)
{
    return s->redo.serves && s->redo.offset > s->redo.log->half_bytes / 4 * 3;
}

/* Memory for @count changes; false: there is none. */
static bool make_item_room(VjSessionRedo *r, uint64_t count)
{
    if (count > r->item_room) {
        g_free(r->items);
        r->items = g_try_new(VjUnlogged, count);
        r->item_room = r->items != NULL ? count : 0;
    }
    return r->items != NULL;
}

/* The frozen generation's first: what a later commit left has to come later. */
static void take_items(VjSession *s) VJ_REQUIRES(&s->state)
{
    uint64_t first = 0;

    if (s->frozen != NULL) {
        first = s->frozen->overlay.unlogged_count;
        vj_overlay_take_unlogged(&s->frozen->overlay, s->redo.items);
    }
    vj_overlay_take_unlogged(&s->active->overlay, s->redo.items + first);
}

/* Without a lock: entries, and versions that a snapshot sees, do not change. */
static int write_items(VjSession *s, const VjRedoRun *run)
{
    VjSessionRedo *r = &s->redo;
    uint64_t need = vj_redo_record_bytes(run->body_bytes);
    VjWriter w;

    if (need > r->byte_room) {
        free(r->bytes);
        r->bytes = vj_redo_room_new(need);
        r->byte_room = r->bytes != NULL ? need : 0;
    }
    if (r->bytes == NULL) {
        return -ENOMEM;
    }
    w = vj_writer(r->bytes + sizeof(VjRedoRecord), run->body_bytes);
    for (uint32_t i = 0; i < run->change_count; i++) {
        const VjUnlogged *u = &r->items[i];
        VjSlice value = vj_version_value(u->version);

        vj_redo_change_encode(&w, (VjSpace)u->entry->space, vj_entry_key(u->entry),
                              u->version->tombstone ? NULL : &value);
    }
    g_assert(!w.bad && w.used == run->body_bytes);
    return vj_redo_append(r->log, run, r->bytes);
}

static void release_memory(VjSessionRedo *r, bool all)
{
    if (all || r->byte_room > VJ_SESSION_REDO_KEPT_BYTES) {
        g_clear_pointer(&r->bytes, free);
        r->byte_room = 0;
    }
    if (all || r->item_room * sizeof *r->items > VJ_SESSION_REDO_KEPT_BYTES) {
        g_clear_pointer(&r->items, g_free);
        r->item_room = 0;
    }
}

static void write_failed(VjSession *s, int rc) VJ_REQUIRES(&s->state)
{
    VjSessionRedo *r = &s->redo;

    r->serves = false;
    r->after_seq = s->seq;
    r->after_round = r->round + 1;
    if (rc == -ENOMEM) {
        return;
    }
    r->spoiled = true;
    r->renew_us = 0;
    r->renew_pause_us = VJ_SESSION_REDO_RENEW_FIRST_US;
    r->stats.failures++;
    r->misfortune++;
    vj_log_error("meta %s/" VJ_REDO_FILE ": %s; %s", s->label, g_strerror(-rc),
                 r->misfortune < VJ_SESSION_REDO_FAILURES_MAX
                     ? "a new one is made when the engine has everything"
                     : "not used any more until the next mount");
}

static void write_succeeded(VjSession *s, const VjRedoRun *run) VJ_REQUIRES(&s->state)
{
    VjSessionRedo *r = &s->redo;
    uint64_t bytes = vj_redo_record_bytes(run->body_bytes);

    /* Else the next round began meanwhile. */
    if (r->round == run->round) {
        g_assert(r->offset == run->offset);
        r->offset += bytes;
    }
    r->misfortune = 0;
    r->stats.records++;
    r->stats.bytes += bytes;
    s->durable_seq = MAX(s->durable_seq, run->last_seq);
    if (vj_session_redo_is_full(s)) {
        vj_cond_signal(&s->applier_wake);
    }
}

void vj_session_redo_write(VjSession *s)
{
    VjSessionRedo *r = &s->redo;
    VjGeneration *active = s->active, *frozen = s->frozen;
    VjSnapshot snapshot = {.seq = s->seq};
    VjRedoRun run = {.round = r->round,
                     .offset = r->offset,
                     .first_seq = s->durable_seq + 1,
                     .last_seq = s->seq,
                     .change_count = (uint32_t)unlogged_count(s),
                     .body_bytes = (uint32_t)unlogged_bytes(s)};
    int rc;

    g_assert(r->serves && !r->busy && run.first_seq <= run.last_seq);
    g_assert(run.change_count > 0 && s->moved_seq >= r->after_seq);
    g_assert(r->round >= r->after_round);
    if (!make_item_room(r, run.change_count)) {
        write_failed(s, -ENOMEM);
        return;
    }
    take_items(s);
    r->busy = true;
    active->refs++;
    if (frozen != NULL) {
        frozen->refs++;
    }
    vj_snapshots_add(&s->snapshots, &snapshot);
    vj_mutex_unlock(&s->state);
    vj_before_wait();
    rc = write_items(s, &run);
    release_memory(r, false);
    vj_mutex_lock(&s->state);
    vj_snapshots_remove(&s->snapshots, &snapshot);
    vj_generation_unref(s, active);
    if (frozen != NULL) {
        vj_generation_unref(s, frozen);
    }
    r->busy = false;
    if (rc == 0) {
        write_succeeded(s, &run);
    } else {
        write_failed(s, rc);
    }
    vj_cond_broadcast(&s->moved);
}

/* ---- Beside moves ------------------------------------------------------------------ */

void vj_session_redo_frozen(VjSession *s, VjGeneration *g)
{
    VjSessionRedo *r = &s->redo;

    if (r->recovering) {
        g->after_round = r->point.round;
        return;
    }
    r->round++;
    r->offset = 0;
    g->after_round = r->round;
    g->retires_log = r->retiring || r->log == NULL || r->spoiled;
}

void vj_session_redo_moved(VjSession *s)
{
    VjSessionRedo *r = &s->redo;

    r->stats.moves++;
    r->serves = r->log != NULL && !r->recovering && !r->retiring && !r->spoiled &&
                r->misfortune < VJ_SESSION_REDO_FAILURES_MAX && r->claimed &&
                s->moved_seq >= r->after_seq && r->round >= r->after_round;
}

uint64_t vj_session_redo_fitting(const VjSession *s)
{
    const VjEngineLog *place = &s->redo.place;
    uint64_t total, available, bytes;
    struct statvfs st;

    if (fstatvfs(place->dir_fd, &st) != 0) {
        return 0;
    }
    total = (uint64_t)st.f_blocks * st.f_frsize;
    available = (uint64_t)st.f_bavail * st.f_frsize;
    bytes = MIN(place->wanted_bytes,
                total / VJ_SESSION_REDO_SHARE / VJ_REDO_BYTES_MIN * VJ_REDO_BYTES_MIN);
    if (!vj_fd_has(place->dir_fd, VJ_REDO_FILE) && bytes > available / 8) {
        return 0;
    }
    return bytes;
}

bool vj_session_redo_renew_due(const VjSession *s, int64_t now_us)
{
    const VjSessionRedo *r = &s->redo;

    return r->spoiled && !r->busy && !r->retiring && !r->claimed &&
           s->moved_seq >= r->after_seq && r->misfortune < VJ_SESSION_REDO_FAILURES_MAX &&
           now_us >= r->renew_us;
}

void vj_session_redo_renew(VjSession *s)
{
    VjSessionRedo *r = &s->redo;
    VjRedo *old = r->log, *log = NULL;
    uint64_t bytes;
    int rc;

    g_assert(r->spoiled && !r->serves && !r->busy);
    r->log = NULL;
    vj_mutex_unlock(&s->state);
    vj_redo_close(old);
    bytes = vj_session_redo_fitting(s);
    rc = vj_redo_remove(r->place.dir_fd);
    if (rc == 0) {
        rc = bytes < VJ_REDO_BYTES_MIN ? -ENOSPC
                                       : vj_redo_begin(r->place.dir_fd, bytes, &log);
    }
    vj_mutex_lock(&s->state);
    if (rc < 0) {
        r->renew_us = vj_clock_mono_us() + r->renew_pause_us;
        r->renew_pause_us = MIN(r->renew_pause_us * 2, VJ_SESSION_REDO_RENEW_MAX_US);
        vj_log_warn("meta %s: works without " VJ_REDO_FILE ": %s; trying again", s->label,
                    g_strerror(-rc));
        return;
    }
    memcpy(r->point.id, log->id, VJ_REDO_ID_BYTES);
    r->log = log;
    r->spoiled = false;
    s->empty_wanted = true; /* the file has to name it first */
    vj_log_info("meta %s/" VJ_REDO_FILE ": a new one has taken its place", s->label);
}

bool vj_session_redo_point(const VjSession *s, const VjGeneration *g, VjRedoPoint *out)
{
    *out = s->redo.point;
    out->round = g->after_round;
    out->seq = g->last_seq;
    return s->has_log && !g->retires_log;
}

void vj_session_redo_close(VjSession *s)
{
    VjSessionRedo *r = &s->redo;

    g_assert(!r->busy);
    release_memory(r, true);
    vj_redo_close(r->log);
    r->log = NULL;
}
