/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-redo.c - the log in front of the file: who writes what and when, and replaying it
 *
 * A flush writes one record with all that changed since the last one: keys and the values that the
 * last commit left them, out of both generations.  One waiter writes, with no lock held; those
 * who come meanwhile wait, and the next record is for all of them.  What does not fit, or is too
 * much for a record, is moved into the file instead, as without a log.
 *
 * The rounds of the log (redo-format.h) are the generations.  Records go to the round of the
 * active one.  A generation is frozen when the one before it has been moved; by then no record of
 * the round before counts, and its half takes those of the new round.  Records of a round may hold
 * commits of the generation before: that is moved first.
 *
 * The first move of a mount says in the file that there is a log, by a version that older programs
 * refuse, and only then the log is used; closing takes that back.
 *
 * A failed write or sync: no record is written to this log any more.  Where the failed
 * one stands, records of that round end; it may be there or not, as nobody was promised
 * anything of it.  The next move takes every commit into the file and says there that no
 * log counts; when that is durable the log gets a new file with an id of its own, written
 * from end to end and synced, and the move after that says that it counts.  So at every
 * instant the log that the file names is the one that is there, and has what was
 * promised.
 *
 * Replaying (open): each record becomes one commit of the overlay, and these are moved as always;
 * meanwhile the file goes on saying that the same rounds count, with the number of the last commit
 * that it has.  So it can be cut off anywhere and done again.  Who may not write keeps them in
 * the overlay.
 */
#include <fcntl.h>
#include <sys/statvfs.h>

#include "meta/lmdb-format.h"
#include "meta/lmdb-private.h"

/* ---- What the file says ---------------------------------------------------------------- */

static MDB_val text_val(const char *text)
{
    return (MDB_val){.mv_size = strlen(text), .mv_data = (void *)(uintptr_t)text};
}

static int put_version(MDB_txn *txn, MDB_dbi unnamed, uint32_t version)
{
    VjLmdbFormat format = vj_lmdb_format_encode(version);
    MDB_val key = text_val(VJ_LMDB_FORMAT_KEY);
    MDB_val value = {.mv_size = sizeof format, .mv_data = &format};

    return mdb_put(txn, unnamed, &key, &value, 0);
}

static int put_retired(MDB_txn *txn, MDB_dbi unnamed)
{
    MDB_val key = text_val(VJ_LMDB_REDO_KEY);
    int rc = mdb_del(txn, unnamed, &key, NULL);

    return rc == 0 || rc == MDB_NOTFOUND
               ? put_version(txn, unnamed, VJ_LMDB_FORMAT_VERSION)
               : rc;
}

int vj_lmdb_redo_note(VjLmdb *d, MDB_txn *txn, const VjGeneration *g)
{
    VjRedoPoint point = d->redo.point;
    MDB_val key = text_val(VJ_LMDB_REDO_KEY);
    VjRedoState state;
    MDB_val value = {.mv_size = sizeof state, .mv_data = &state};
    int rc = 0;

    if (g->retires_log) {
        return d->redo.claimed ? put_retired(txn, d->unnamed) : 0;
    }
    point.round = g->after_round;
    point.seq = g->last_seq;
    vj_redo_point_encode(&point, &state);
    if (!d->redo.claimed) {
        rc = put_version(txn, d->unnamed, VJ_LMDB_FORMAT_LOGGED);
    }
    return rc == 0 ? mdb_put(txn, d->unnamed, &key, &value, 0) : rc;
}

int vj_lmdb_redo_read_point(MDB_txn *txn, MDB_dbi unnamed, VjRedoPoint *point)
{
    MDB_val key = text_val(VJ_LMDB_REDO_KEY);
    MDB_val value;
    int rc = mdb_get(txn, unnamed, &key, &value);

    *point = (VjRedoPoint){.round = 1};
    if (rc != 0) {
        return rc == MDB_NOTFOUND ? -EBADMSG : -EIO;
    }
    return vj_redo_point_decode(vj_slice(value.mv_data, value.mv_size), point);
}

/* ---- Writing --------------------------------------------------------------------------- */

static uint64_t unlogged_bytes(const VjLmdb *d)
{
    return d->active->overlay.unlogged_bytes +
           (d->frozen != NULL ? d->frozen->overlay.unlogged_bytes : 0);
}

static uint64_t unlogged_count(const VjLmdb *d)
{
    return d->active->overlay.unlogged_count +
           (d->frozen != NULL ? d->frozen->overlay.unlogged_count : 0);
}

bool vj_lmdb_redo_fits(const VjLmdb *d)
{
    uint64_t bytes = unlogged_bytes(d);

    return bytes <= VJ_REDO_BODY_MAX &&
           d->redo.offset + vj_redo_record_bytes(bytes) <= d->redo.log->half_bytes;
}

bool vj_lmdb_redo_is_full(const VjLmdb *d)
{
    return d->redo.serves && d->redo.offset > d->redo.log->half_bytes / 4 * 3;
}

/* Memory for @count changes; false: there is none. */
static bool make_item_room(VjLmdbRedo *r, uint64_t count)
{
    if (count > r->item_room) {
        g_free(r->items);
        r->items = g_try_new(VjUnlogged, count);
        r->item_room = r->items != NULL ? count : 0;
    }
    return r->items != NULL;
}

/* The frozen generation's first: what a later commit left has to come later. */
static void take_items(VjLmdb *d) VJ_REQUIRES(&d->state)
{
    uint64_t first = 0;

    if (d->frozen != NULL) {
        first = d->frozen->overlay.unlogged_count;
        vj_overlay_take_unlogged(&d->frozen->overlay, d->redo.items);
    }
    vj_overlay_take_unlogged(&d->active->overlay, d->redo.items + first);
}

/* Without a lock: entries, and versions that a snapshot sees, do not change. */
static int write_items(VjLmdb *d, const VjRedoRun *run)
{
    VjLmdbRedo *r = &d->redo;
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

static void release_memory(VjLmdbRedo *r, bool all)
{
    if (all || r->byte_room > VJ_LMDB_REDO_KEPT_BYTES) {
        g_clear_pointer(&r->bytes, free);
        r->byte_room = 0;
    }
    if (all || r->item_room * sizeof *r->items > VJ_LMDB_REDO_KEPT_BYTES) {
        g_clear_pointer(&r->items, g_free);
        r->item_room = 0;
    }
}

static void write_failed(VjLmdb *d, int rc) VJ_REQUIRES(&d->state)
{
    VjLmdbRedo *r = &d->redo;

    r->serves = false;
    r->after_seq = d->seq;
    r->after_round = r->round + 1;
    if (rc == -ENOMEM) {
        return;
    }
    r->spoiled = true;
    r->renew_us = 0;
    r->renew_pause_us = VJ_LMDB_REDO_RENEW_FIRST_US;
    r->stats.failures++;
    r->misfortune++;
    vj_log_error("meta lmdb: %s/" VJ_REDO_FILE ": %s; %s", d->path, g_strerror(-rc),
                 r->misfortune < VJ_LMDB_REDO_FAILURES_MAX
                     ? "a new one is made when " VJ_LMDB_FILE " has everything"
                     : "not used any more until the next mount");
}

static void write_succeeded(VjLmdb *d, const VjRedoRun *run) VJ_REQUIRES(&d->state)
{
    VjLmdbRedo *r = &d->redo;
    uint64_t bytes = vj_redo_record_bytes(run->body_bytes);

    /* Else the next round began meanwhile. */
    if (r->round == run->round) {
        g_assert(r->offset == run->offset);
        r->offset += bytes;
    }
    r->misfortune = 0;
    r->stats.records++;
    r->stats.bytes += bytes;
    d->durable_seq = MAX(d->durable_seq, run->last_seq);
    if (vj_lmdb_redo_is_full(d)) {
        vj_cond_signal(&d->mover_wake);
    }
}

void vj_lmdb_redo_write(VjLmdb *d)
{
    VjLmdbRedo *r = &d->redo;
    VjGeneration *active = d->active, *frozen = d->frozen;
    VjSnapshot snapshot = {.seq = d->seq};
    VjRedoRun run = {.round = r->round,
                     .offset = r->offset,
                     .first_seq = d->durable_seq + 1,
                     .last_seq = d->seq,
                     .change_count = (uint32_t)unlogged_count(d),
                     .body_bytes = (uint32_t)unlogged_bytes(d)};
    int rc;

    g_assert(r->serves && !r->busy && run.first_seq <= run.last_seq);
    g_assert(run.change_count > 0 && d->moved_seq >= r->after_seq);
    g_assert(r->round >= r->after_round);
    if (!make_item_room(r, run.change_count)) {
        write_failed(d, -ENOMEM);
        return;
    }
    take_items(d);
    r->busy = true;
    active->refs++;
    if (frozen != NULL) {
        frozen->refs++;
    }
    vj_snapshots_add(&d->snapshots, &snapshot);
    vj_mutex_unlock(&d->state);
    rc = write_items(d, &run);
    release_memory(r, false);
    vj_mutex_lock(&d->state);
    vj_snapshots_remove(&d->snapshots, &snapshot);
    vj_generation_unref(d, active);
    if (frozen != NULL) {
        vj_generation_unref(d, frozen);
    }
    r->busy = false;
    if (rc == 0) {
        write_succeeded(d, &run);
    } else {
        write_failed(d, rc);
    }
    vj_cond_broadcast(&d->moved);
}

/* ---- Beside moves ---------------------------------------------------------------------- */

void vj_lmdb_redo_frozen(VjLmdb *d, VjGeneration *g)
{
    VjLmdbRedo *r = &d->redo;

    if (r->recovering) {
        g->after_round = r->point.round;
        return;
    }
    r->round++;
    r->offset = 0;
    g->after_round = r->round;
    g->retires_log = r->retiring || r->log == NULL || r->spoiled;
}

void vj_lmdb_redo_moved(VjLmdb *d)
{
    VjLmdbRedo *r = &d->redo;

    r->stats.moves++;
    r->serves = r->log != NULL && !r->recovering && !r->retiring && !r->spoiled &&
                r->misfortune < VJ_LMDB_REDO_FAILURES_MAX && r->claimed &&
                d->moved_seq >= r->after_seq && r->round >= r->after_round;
}

/* A small or full file system gets a small one, or none.  0: none. */
static uint64_t fitting_bytes(const VjLmdb *d, uint64_t bytes)
{
    uint64_t total, available;
    struct statvfs st;

    if (fstatvfs(d->fd, &st) != 0) {
        return 0;
    }
    total = (uint64_t)st.f_blocks * st.f_frsize;
    available = (uint64_t)st.f_bavail * st.f_frsize;
    bytes =
        MIN(bytes, total / VJ_LMDB_REDO_SHARE / VJ_REDO_BYTES_MIN * VJ_REDO_BYTES_MIN);
    if (!vj_fd_has(d->dir_fd, VJ_REDO_FILE) && bytes > available / 8) {
        return 0;
    }
    return bytes;
}

bool vj_lmdb_redo_renew_due(const VjLmdb *d, int64_t now_us)
{
    const VjLmdbRedo *r = &d->redo;

    return r->spoiled && !r->busy && !r->retiring && !r->claimed &&
           d->moved_seq >= r->after_seq && r->misfortune < VJ_LMDB_REDO_FAILURES_MAX &&
           now_us >= r->renew_us;
}

void vj_lmdb_redo_renew(VjLmdb *d)
{
    VjLmdbRedo *r = &d->redo;
    VjRedo *old = r->log, *log = NULL;
    uint64_t bytes;
    int rc;

    g_assert(r->spoiled && !r->serves && !r->busy);
    r->log = NULL;
    vj_mutex_unlock(&d->state);
    vj_redo_close(old);
    bytes = fitting_bytes(d, r->wanted_bytes);
    rc = vj_redo_remove(d->dir_fd);
    if (rc == 0) {
        rc = bytes < VJ_REDO_BYTES_MIN ? -ENOSPC : vj_redo_begin(d->dir_fd, bytes, &log);
    }
    vj_mutex_lock(&d->state);
    if (rc < 0) {
        r->renew_us = vj_clock_mono_us() + r->renew_pause_us;
        r->renew_pause_us = MIN(r->renew_pause_us * 2, VJ_LMDB_REDO_RENEW_MAX_US);
        vj_log_warn("meta lmdb: %s: works without " VJ_REDO_FILE ": %s; trying again",
                    d->path, g_strerror(-rc));
        return;
    }
    memcpy(r->point.id, log->id, VJ_REDO_ID_BYTES);
    r->log = log;
    r->spoiled = false;
    d->turn_wanted = true; /* the file has to name it first */
    vj_log_info("meta lmdb: %s/" VJ_REDO_FILE ": a new one has taken its place", d->path);
}

int vj_lmdb_redo_retire(VjLmdb *d)
{
    int rc;

    if (d->read_only) {
        return 0;
    }
    vj_mutex_lock(&d->state);
    d->redo.retiring = true;
    d->redo.serves = false;
    vj_mutex_unlock(&d->state);
    rc = vj_lmdb_flush_moved(d);
    if (rc == 0 && d->redo.claimed) {
        rc = vj_lmdb_turn(d);
    }
    return rc;
}

/* ---- Replaying ------------------------------------------------------------------------- */

typedef struct Replay {
    VjLmdb *d;
    char *flaw; /* owned; the first */
} Replay;

static void note_flaw(void *opaque, const char *text)
{
    Replay *r = opaque;

    vj_log_error("meta lmdb: %s/" VJ_REDO_FILE ": %s", r->d->path, text);
    if (r->flaw == NULL) {
        r->flaw = g_strdup(text);
    }
}

static int replay_change(void *opaque, VjSpace space, VjSlice key, const VjSlice *value)
{
    VjLmdb *d = ((Replay *)opaque)->d;

    return vj_overlay_set(&d->changes, space, key, value);
}

/*
 * When they were acknowledged, space was set aside for these commits.  If that did not survive, and
 * the device is full by now, a move may fail; nothing is lost by that.
 */
static int replay_room(VjLmdb *d)
{
    bool full;
    int rc;

    vj_mutex_lock(&d->state);
    full = vj_lmdb_active_is_full(d);
    vj_mutex_unlock(&d->state);
    rc = full ? vj_lmdb_flush_moved(d) : 0;
    if (rc == 0) {
        rc = vj_lmdb_space_claim(d, true);
    }
    if (rc == -ENOSPC) {
        rc = vj_lmdb_flush_moved(d);
    }
    return rc;
}

static int replay_end(void *opaque, const VjRedoRun *run)
{
    VjLmdb *d = ((Replay *)opaque)->d;
    int rc = d->read_only ? 0 : replay_room(d);

    if (rc < 0) {
        return rc;
    }
    vj_mutex_lock(&d->state);
    d->seq = run->last_seq - 1;
    vj_mutex_unlock(&d->state);
    vj_lmdb_publish(d);
    vj_mutex_lock(&d->state);
    d->durable_seq = d->seq;
    d->redo.stats.replayed++;
    vj_mutex_unlock(&d->state);
    return 0;
}

/* Before anything of a damaged log is given up. */
static void keep_log(const VjLmdb *d)
{
    int rc = vj_redo_keep(d->dir_fd);

    if (rc < 0 && rc != -ENOENT) {
        vj_log_error("meta lmdb: %s/" VJ_REDO_FILE ": no copy of it can be kept: %s",
                     d->path, g_strerror(-rc));
    }
}

/* The writer's lock: more than the analysis can see. */
static bool replay(VjLmdb *d, const VjRedo *log, bool salvage, GError **error)
    VJ_TSA(no_thread_safety_analysis);
static bool replay(VjLmdb *d, const VjRedo *log, bool salvage, GError **error)
{
    Replay r = {.d = d};
    VjRedoReader reader = {
        .change = replay_change, .end = replay_end, .say = note_flaw, .opaque = &r};
    g_autofree char *flaw = NULL;
    VjRedoFound found;
    int rc;

    vj_mutex_lock(&d->writer);
    rc = vj_redo_read(log, &d->redo.point, &reader, &found);
    vj_overlay_clear(&d->changes);
    vj_mutex_unlock(&d->writer);
    flaw = r.flaw;
    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s/" VJ_REDO_FILE ": replaying it",
                                  d->path);
    }
    if (found.records > 0) {
        vj_log_info("meta lmdb: %s/" VJ_REDO_FILE ": replayed %" G_GUINT64_FORMAT
                    " records, %" G_GUINT64_FORMAT " bytes",
                    d->path, found.records, found.bytes);
    }
    if (found.torn_at > 0 && found.flaws == 0) {
        vj_log_warn(
            "meta lmdb: %s/" VJ_REDO_FILE ": the last record, at byte %" G_GUINT64_FORMAT
            ", is there in part: it was being written when the power went, and nobody was"
            " promised it, or it is damaged, and what its fsync promised is missing",
            d->path, found.torn_at);
    }
    if (found.flaws > 0 && salvage) {
        keep_log(d);
        vj_log_error("meta lmdb: %s/" VJ_REDO_FILE
                     ": %s; what is behind that is given up",
                     d->path, flaw);
    }
    return found.flaws == 0 || salvage ||
           vj_error_set(error, EBADMSG,
                        "%s/" VJ_REDO_FILE " is damaged (%s); see fsck.varjfs(8)",
                        d->path, flaw);
}

/* Of the log that the file names.  @rc: what opening it gave.  NULL: it is that one. */
static const char *why_not(const VjLmdb *d, const VjRedo *log, int rc)
{
    if (rc == -ENOENT) {
        return "it is missing";
    }
    if (rc == -EBADMSG) {
        return "its head is damaged, or its end is missing";
    }
    if (rc < 0) {
        return g_strerror(-rc);
    }
    return memcmp(log->id, d->redo.point.id, VJ_REDO_ID_BYTES) == 0
               ? NULL
               : "it is not the one that " VJ_LMDB_FILE " needs";
}

/* Of a log whose head is damaged, or whose end is missing; it is not written to again. */
static bool recover_rest(VjLmdb *d, const char *why, GError **error)
{
    VjRedo *log = NULL;
    int rc = vj_redo_open_as(d->dir_fd, d->redo.point.id, &log);
    bool ok;

    keep_log(d);
    if (rc < 0) {
        vj_log_error("meta lmdb: %s/" VJ_REDO_FILE
                     ": %s, nor has it the length of a log; what was in it is given up",
                     d->path, why);
        return true;
    }
    vj_log_warn("meta lmdb: %s/" VJ_REDO_FILE ": %s; what records it has are read",
                d->path, why);
    d->seq = d->durable_seq = d->moved_seq = d->redo.point.seq;
    d->redo.recovering = true;
    ok = replay(d, log, true, error);
    vj_redo_close(log);
    return ok;
}

static bool is_lost(int rc)
{
    return rc == 0 || rc == -ENOENT || rc == -EBADMSG;
}

/* Takes over the log that the file names.  *log: NULL when there is none to go on with. */
static bool recover(VjLmdb *d, bool salvage, VjRedo **log, GError **error)
{
    int rc = vj_redo_open(d->dir_fd, !d->read_only, log);
    const char *why =
        d->redo.point_is_lost ? VJ_LMDB_FILE " does not say which" : why_not(d, *log, rc);

    if (why != NULL) {
        vj_redo_close(*log);
        *log = NULL;
        if (!salvage || (!is_lost(rc) && !d->redo.point_is_lost)) {
            return vj_error_set(error, is_lost(rc) ? EBADMSG : -rc,
                                "%s/" VJ_REDO_FILE
                                ", which has the last commits: %s; see fsck.varjfs(8)",
                                d->path, why);
        }
        if (rc == -EBADMSG && !d->redo.point_is_lost) {
            return recover_rest(d, why, error);
        }
        keep_log(d);
        vj_log_error("meta lmdb: %s/" VJ_REDO_FILE ": %s; what was in it is given up",
                     d->path, why);
        return true;
    }
    d->seq = d->durable_seq = d->moved_seq = d->redo.point.seq;
    d->redo.recovering = true;
    if (!replay(d, *log, salvage, error)) {
        return false;
    }
    return true;
}

/* ---- Open and close -------------------------------------------------------------------- */

static void begin_log(VjLmdb *d, uint64_t wanted, VjRedo **log)
{
    uint64_t bytes = fitting_bytes(d, wanted);
    int rc = bytes < VJ_REDO_BYTES_MIN ? -ENOSPC : vj_redo_begin(d->dir_fd, bytes, log);

    if (rc < 0) {
        vj_log_info("meta lmdb: %s: works without " VJ_REDO_FILE ": %s", d->path,
                    g_strerror(-rc));
        return;
    }
    memcpy(d->redo.point.id, (*log)->id, VJ_REDO_ID_BYTES);
}

bool vj_lmdb_redo_open(VjLmdb *d, const VjMetaPlace *place, uint64_t bytes,
                       GError **error)
{
    VjRedo *log = NULL;
    bool claimed = d->redo.claimed, had_log;
    int rc = 0;

    if (bytes > 0 && bytes < VJ_REDO_BYTES_MIN) {
        return vj_error_set(error, EINVAL,
                            "redo=%" G_GUINT64_FORMAT ": at least %" G_GUINT64_FORMAT
                            " bytes, or 0",
                            bytes, VJ_REDO_BYTES_MIN);
    }
    if (claimed && !recover(d, place->salvage, &log, error)) {
        vj_redo_close(log);
        return false;
    }
    had_log = log != NULL;
    if (d->read_only || bytes == 0) {
        vj_redo_close(log);
        log = NULL;
    } else if (!claimed) {
        begin_log(d, bytes, &log);
    }
    vj_mutex_lock(&d->state);
    d->redo.log = log;
    d->redo.wanted_bytes = bytes;
    d->redo.recovering = false;
    d->redo.round = d->redo.point.round + 2;
    /* A move of what was replayed may still run: the file has the old rounds when it ends. */
    d->redo.after_round = d->redo.round + 1;
    if (d->read_only) {
        d->moved_seq = d->seq;
    }
    vj_mutex_unlock(&d->state);
    if (!d->read_only && claimed) {
        rc = vj_lmdb_flush_moved(d);
        if (rc == 0 && (place->salvage || !had_log)) {
            rc = vj_lmdb_turn(d);
        }
    }
    return rc == 0 ||
           vj_error_set_errno(error, -rc, "%s/" VJ_REDO_FILE ": moving what was in it",
                              d->path);
}

void vj_lmdb_redo_close(VjLmdb *d)
{
    g_assert(!d->redo.busy);
    release_memory(&d->redo, true);
    vj_redo_close(d->redo.log);
    d->redo.log = NULL;
}

/* ---- Files that nobody has open -------------------------------------------------------- */

/* An environment of one file and one transaction. */
typedef struct Peek {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi unnamed;
    bool claimed;
} Peek;

static void peek_end(Peek *p)
{
    if (p->txn != NULL) {
        mdb_txn_abort(p->txn);
    }
    if (p->env != NULL) {
        mdb_env_close(p->env);
    }
    *p = (Peek){0};
}

/* An LMDB code. */
static int peek_begin(Peek *p, int dir_fd, const char *name, bool write, uint64_t bytes)
{
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d/%s", dir_fd, name);
    unsigned flags = write ? 0 : MDB_RDONLY;
    MDB_val key = text_val(VJ_LMDB_FORMAT_KEY);
    MDB_val value;
    int rc;

    *p = (Peek){0};
    rc = mdb_env_create(&p->env);
    if (rc != 0) {
        return rc;
    }
    rc = mdb_env_set_mapsize(p->env, (bytes + VJ_MIB) / VJ_MIB * VJ_MIB + VJ_MIB);
    if (rc == 0) {
        rc = mdb_env_open(p->env, path, flags | MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS,
                          0600);
    }
    if (rc == 0) {
        rc = mdb_txn_begin(p->env, NULL, flags, &p->txn);
    }
    if (rc == 0) {
        rc = mdb_dbi_open(p->txn, NULL, 0, &p->unnamed);
    }
    if (rc == 0) {
        rc = mdb_get(p->txn, p->unnamed, &key, &value);
    }
    if (rc == 0) {
        p->claimed = value.mv_size == sizeof(VjLmdbFormat) &&
                     vj_le32_get(((const VjLmdbFormat *)value.mv_data)->version) ==
                         VJ_LMDB_FORMAT_LOGGED;
    }
    return rc;
}

/* What LMDB does not take, or is none of ours, opening will tell. */
static int peek_error(int rc)
{
    return rc == 0 || rc == MDB_NOTFOUND ? 0 : rc == ENOMEM ? -ENOMEM : -EIO;
}

static int examine_log(const VjMetaPlace *place, const VjRedoPoint *point,
                       const VjRedoReader *reader, VjMetaExam *out)
{
    VjRedoFound found = {0};
    VjLmdb like = {.redo = {.point = *point}};
    VjRedo *log;
    int rc = vj_redo_open(place->dir_fd, false, &log);
    const char *why = why_not(&like, log, rc);

    if (rc < 0 && !is_lost(rc)) {
        return rc;
    }
    rc = 0;
    if (why != NULL) {
        out->log_flaws = 1;
        if (reader->say != NULL) {
            reader->say(reader->opaque, why);
        }
    } else {
        rc = vj_redo_read(log, point, reader, &found);
        out->log_flaws = found.flaws;
    }
    vj_redo_close(log);
    return rc;
}

typedef struct Teller {
    VjMetaFlaw *say;
    void *opaque;
} Teller;

static void tell(void *opaque, const char *text)
{
    const Teller *t = opaque;
    g_autofree char *line = g_strdup_printf(VJ_REDO_FILE ": %s", text);

    if (t->say != NULL) {
        t->say(t->opaque, line);
    }
}

int vj_lmdb_redo_examine(const VjMetaPlace *place, VjMetaFlaw *say, void *opaque,
                         VjMetaExam *out)
{
    Teller teller = {.say = say, .opaque = opaque};
    VjRedoReader reader = {.say = tell, .opaque = &teller};
    VjRedoPoint point;
    Peek p;
    int rc = peek_error(peek_begin(&p, place->dir_fd, VJ_LMDB_FILE, false, 0));
    bool claimed = p.claimed;
    int found = claimed ? vj_lmdb_redo_read_point(p.txn, p.unnamed, &point) : 0;

    peek_end(&p);
    if (rc < 0 || !claimed) {
        return rc;
    }
    if (found == -EBADMSG) {
        out->log_flaws = 1;
        tell(&teller, VJ_LMDB_FILE " does not say which");
        return 0;
    }
    return found < 0 ? found : examine_log(place, &point, &reader, out);
}

int vj_lmdb_redo_forget(int dir_fd, const char *name, uint64_t bytes)
{
    Peek p;
    int rc = peek_begin(&p, dir_fd, name, true, bytes);

    if (rc == 0 && p.claimed) {
        rc = put_retired(p.txn, p.unnamed);
        if (rc == 0) {
            rc = mdb_txn_commit(p.txn);
            p.txn = NULL;
        }
    }
    peek_end(&p);
    return rc == ENOSPC ? -ENOSPC : peek_error(rc);
}
