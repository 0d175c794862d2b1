/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * round.c - write-back by rounds: one thread at a time freezes a file and writes it back
 *
 * The first thread that needs it does it (fsync, a flusher thread, a writer that is short
 * of space); other threads wait for that round and look whether it covered them.  Several
 * files share one flush of the store.
 */
#include "file/write-back-private.h"

/*
 * active becomes frozen, an identity over it becomes active.  @hold: but what lies there
 * and behind, which comes after everything else, stays in active; 0: nothing.  Under
 * f->lock.
 */
static void freeze_locked(VjFile *f, uint64_t hold)
{
    VjFrozen *z = g_new0(VjFrozen, 1);

    g_assert(f->frozen == NULL);
    z->refs = 1;
    z->pieces = f->active;
    z->base_version = f->base_version;
    z->seq = f->dirty_seq;
    z->reserved_bytes = f->reserved_bytes;
    z->times_valid = f->times_pending;
    z->changed = f->changed;
    z->frozen_us = vj_clock_mono_us();
    z->stream_from = f->changed_to;
    f->frozen = z;
    if (hold > 0) {
        uint64_t held = vj_pieces_length(z->pieces) - hold;

        /* None of these changes is known to be in it entirely. */
        z->seq = f->committed_seq;
        f->active = vj_file_hold_locked(f, z, hold);
        f->reserved_bytes = MIN(f->reserved_bytes, vj_file_worst_case(f, held, false));
        z->reserved_bytes -= f->reserved_bytes;
        f->round_bytes = hold;
        vj_file_weigh_locked(f);
        return;
    }
    f->active =
        vj_pieces_new(&f->table->dirty, f->table->objects, vj_pieces_length(z->pieces));
    f->reserved_bytes = 0;
    f->times_pending = false;
    f->round_bytes = vj_pieces_length(z->pieces);
    f->closed = false;
    vj_mem_unref(f->tail);
    f->tail = NULL;
    vj_file_weigh_locked(f);
}

/* The frozen sequence is the committed map now.  Under f->lock; returns it to be
 * freed. */
static VjFrozen *thaw_locked(VjFile *f)
{
    VjFrozen *z = f->frozen;

    f->frozen = NULL;
    f->base_version = z->base_version + 1;
    f->committed_seq = z->seq;
    f->changed_to = z->changed_to;
    return z;
}

/* It will stand beside its inode, if it stays like that.  Under f->lock. */
static bool is_small_locked(const VjFile *f)
{
    return vj_pieces_length(f->active) <= VJ_FILE_INLINE_MAX;
}

/* This thread writes @f back now; *z is referenced.  False: nothing to do, or not now. */
static bool round_begin(VjFile *f, bool may_hold, VjFrozen **z)
{
    uint64_t hold = may_hold ? vj_file_hold_from(f) : 0;
    bool begun = false;

    vj_mutex_lock(&f->lock);
    if (vj_file_dirty_locked(f) && !f->writing && !f->discarded) {
        if (f->frozen == NULL) {
            freeze_locked(f, vj_file_may_hold_locked(f, hold) ? hold : 0);
        }
        f->writing = true;
        *z = vj_frozen_ref(f->frozen);
        begun = true;
    }
    vj_mutex_unlock(&f->lock);
    return begun;
}

/* The round is over with @r; takes @z.  @again: its caller tries once more at once.
 * @is_measured: nothing was put, and the store is looked at later. */
static void round_end(VjFile *f, VjFrozen *z, int r, bool again, bool is_measured)
{
    VjFileTable *table = f->table;
    VjFrozen *done = NULL;
    bool changed_since = false;

    if (!again) {
        vj_budget_set_failing(&table->dirty, r);
    }
    if (r == 0 && is_measured) {
        vj_space_release(&table->space, z->reserved_bytes);
    } else if (r == 0) {
        vj_space_release_measured(&table->space, z->reserved_bytes);
    } else if (!again) {
        vj_count(&table->counters.write_back_errors, 1);
        vj_log_error("inode %" G_GUINT64_FORMAT
                     ": write-back failed: %s; it stays in memory "
                     "and is tried again",
                     f->ino, g_strerror(-r));
    }
    vj_mutex_lock(&f->lock);
    f->writing = false;
    vj_file_commit_is_over_locked(f);
    if (r == 0) {
        /* Not where the end of what was frozen is held back: that is older. */
        changed_since = z->seq > f->committed_seq && z->seq < f->dirty_seq;
        done = thaw_locked(f);
    } else if (!again) {
        f->error_count++;
        f->last_error = r;
    }
    vj_cond_broadcast(&f->idle);
    vj_mutex_unlock(&f->lock);
    if (changed_since) {
        table->events->committed(table->opaque, f, z->frozen_us);
    }
    vj_frozen_unref(done); /* frees memory: not under the lock */
    vj_frozen_unref(z);
}

typedef struct Round {
    VjFile *f;
    VjFrozen *z;
    VjWriteBack *w;
    bool is_over;
    int r;
} Round;

static bool is_no_space(int r)
{
    return r == -ENOSPC || r == -EDQUOT;
}

/* What a caller wants of a round. */
typedef enum RoundFor {
    ROUND_FOR_ALL,    /* everything that is changed */
    ROUND_FOR_WAITER, /* that, and a caller waits for it to become durable */
    ROUND_FOR_GROWN,  /* what is old enough, or too much */
} RoundFor;

/* A caller's tries.  A failure after which it tries again at once is not reported. */
typedef struct Tries {
    unsigned made; /* with the one under way */
    bool has_reclaimed;
    bool was_short; /* the last one found no space: the caller makes some */
    bool was_lost;  /* the nodes have lost what it had put, and it is put anew */
} Tries;

/* Others' puts may be lost too, and make a flush fail until these have seen it. */
#define LOST_TRIES 4u

/* True: there is one more. */
static bool next_try(VjFileTable *table, Tries *t)
{
    bool is_wanted = t->made == 0 || t->was_short || t->was_lost;

    /* What was deleted a moment ago is removed in the background: a full device is full
     * only when that is done. */
    if (t->was_short) {
        vj_file_table_reclaim(table);
    }
    *t = (Tries){.made = t->made + 1, .has_reclaimed = t->has_reclaimed || t->was_short};
    return is_wanted;
}

/* A round failed with @r, its flush with @flushed. */
static bool is_to_try_again(const VjFileTable *table, Tries *t, int r, int flushed)
{
    bool is_short = is_no_space(r) && !t->has_reclaimed;
    bool is_lost = r == -EIO && flushed == -EIO && t->made < LOST_TRIES &&
                   vj_objects_have_replicas(table->objects);

    t->was_short = t->was_short || is_short;
    t->was_lost = t->was_lost || is_lost;
    return is_short || is_lost;
}

/* What @t commits is committed, or not (its r). */
static void end(VjFileTable *table, Round *t, int flushed, Tries *tries)
{
    bool is_measured = vj_write_back_is_beside(t->w);

    if (is_no_space(t->r)) {
        t->z->was_short = true;
    }
    if (t->r == -ENOENT) {
        t->r = 0; /* the inode was dropped: no program can see its content any more */
    }
    vj_write_back_end(t->w);
    round_end(t->f, t->z, t->r, is_to_try_again(table, tries, t->r, flushed),
              is_measured);
    t->is_over = true;
}

/*
 * What @t has put is durable, or @flushed says why not: its commit, and the end of the
 * round.
 */
static void conclude(VjFileTable *table, Round *t, int flushed, Tries *tries)
{
    if (t->r == 0 && flushed < 0) {
        t->r = flushed;
    }
    if (t->r == 0) {
        vj_file_commit_begins(t->f);
        t->r = vj_write_back_commit(t->w);
    }
    end(table, t, flushed, tries);
}

/* Contents that stand beside their inodes, in one transaction.  Callers of others wait
 * for that: it is not long. */
#define TOGETHER 32u

typedef struct Together {
    Round *rounds[TOGETHER];
    unsigned count;
} Together;

static void conclude_together(VjFileTable *table, Together *all, Tries *tries)
{
    VjWriteBack *contents[TOGETHER];
    bool is_done = false;

    for (unsigned i = 0; all->count > 1 && i < all->count; i++) {
        vj_file_commit_begins(all->rounds[i]->f);
        contents[i] = all->rounds[i]->w;
    }
    if (all->count > 1) {
        is_done = vj_write_back_commit_beside(contents, all->count) == 0;
    }
    for (unsigned i = 0; i < all->count; i++) {
        if (is_done) {
            end(table, all->rounds[i], 0, tries);
        } else {
            conclude(table, all->rounds[i], 0, tries); /* one of them has failed */
        }
    }
    if (all->count > 0) {
        vj_space_release_measured(&table->space, 0);
    }
    all->count = 0;
}

/* Begins a round of @f and puts what it has to put; false: there is none. */
static bool put(VjFileTable *table, VjFile *f, RoundFor what, Round *t)
{
    vj_file_renew_settings(f);
    if (!round_begin(f, what == ROUND_FOR_GROWN, &t->z)) {
        return false;
    }
    t->f = f;
    t->is_over = false;
    t->r = vj_write_back_objects(table, f->ino, t->z, what == ROUND_FOR_WAITER, &t->w);
    return true;
}

/* What needs no flush is concluded at once, small files first: a thread that waits for
 * that file waits for no other one's objects. */
static int write_back_many(VjFileTable *table, VjFile *const *files, size_t count,
                           RoundFor what, Tries *tries)
{
    Round rounds[VJ_WRITE_BACK_BATCH];
    bool small[VJ_WRITE_BACK_BATCH];
    Together together = {.count = 0};
    bool flush = false;
    size_t begun = 0;
    int flushed = 0, first = 0;
    /* A round serves every caller: it does not end with the one that began it. */
    VjCancel *callers = vj_cancel_leave();

    g_assert(count <= VJ_WRITE_BACK_BATCH);
    for (size_t i = 0; i < count; i++) {
        vj_mutex_lock(&files[i]->lock);
        small[i] = is_small_locked(files[i]);
        vj_mutex_unlock(&files[i]->lock);
    }
    for (size_t i = 0; i < 2 * count; i++) {
        Round *t = &rounds[begun];

        if (i == count) {
            conclude_together(table, &together, tries);
        }
        if (small[i % count] != (i < count) || !put(table, files[i % count], what, t)) {
            continue;
        }
        begun++;
        if (t->r == 0 && vj_write_back_needs_flush(t->w)) {
            flush = true;
        } else if (t->r == 0 && vj_write_back_is_beside(t->w)) {
            together.rounds[together.count++] = t;
        } else if (t->r == 0) {
            conclude(table, t, 0, tries);
        }
        if (together.count == TOGETHER || i >= count) {
            conclude_together(table, &together, tries);
        }
    }
    if (flush) {
        flushed = vj_objects_flush(table->objects);
    }
    for (size_t i = 0; i < begun; i++) {
        Round *t = &rounds[i];

        if (!t->is_over) {
            conclude(table, t, flushed, tries);
        }
        first = first == 0 ? t->r : first;
    }
    for (size_t i = 0; i < begun; i++) {
        vj_write_back_free(rounds[i].w);
    }
    for (size_t i = 0; i < begun && table->is_shared; i++) {
        if (rounds[i].r == 0 && !vj_file_is_dirty(rounds[i].f)) {
            table->events->clean(table->opaque, rounds[i].f);
        }
    }
    vj_cancel_enter(callers);
    return first;
}

static int write_back_files(VjFileTable *table, VjFile *const *files, size_t count,
                            RoundFor what)
{
    Tries tries = {0};
    int r = 0;

    while (next_try(table, &tries)) {
        r = write_back_many(table, files, count, what, &tries);
    }
    return r;
}

int vj_file_write_back_many(VjFileTable *table, VjFile *const *files, size_t count)
{
    return write_back_files(table, files, count, ROUND_FOR_ALL);
}

int vj_file_write_back_grown(VjFileTable *table, VjFile *const *files, size_t count)
{
    return write_back_files(table, files, count, ROUND_FOR_GROWN);
}

/* All changes of before the call, whichever thread writes them back. */
static int write_back(VjFile *f, bool waits, Tries *tries)
{
    uint64_t want;
    int r = 0;

    vj_mutex_lock(&f->lock);
    want = f->dirty_seq;
    while (r == 0 && f->committed_seq < want) {
        if (f->writing) {
            vj_cond_wait(&f->idle, &f->lock);
        } else {
            vj_mutex_unlock(&f->lock);
            r = write_back_many(f->table, &f, 1, waits ? ROUND_FOR_WAITER : ROUND_FOR_ALL,
                                tries);
            vj_mutex_lock(&f->lock);
        }
    }
    vj_mutex_unlock(&f->lock);
    return r;
}

static int write_back_all(VjFile *f, bool waits)
{
    Tries tries = {0};
    int r = 0;

    while (next_try(f->table, &tries)) {
        r = write_back(f, waits, &tries);
    }
    return r;
}

int vj_file_write_back(VjFile *f)
{
    return write_back_all(f, false);
}

int vj_file_table_write_back(VjFileTable *table)
{
    g_autoptr(GPtrArray) files = vj_file_table_list(table);
    int r = 0;

    for (guint i = 0; i < files->len; i += VJ_WRITE_BACK_BATCH) {
        int one = vj_file_write_back_many(table, (VjFile *const *)files->pdata + i,
                                          MIN(files->len - i, VJ_WRITE_BACK_BATCH));

        r = r == 0 ? one : r;
    }
    for (guint i = 0; i < files->len; i++) { /* those that were in other hands */
        int one = vj_file_write_back(files->pdata[i]);

        r = r == 0 ? one : r;
    }
    return r;
}

int vj_file_table_make_space(VjFileTable *table)
{
    int r = vj_file_table_write_back(table);

    vj_file_table_reclaim(table);
    return r;
}

/* ---- the rest ---------------------------------------------------------------------- */

void vj_file_discard(VjFile *f)
{
    VjCommitted *committed;
    VjPieces *active;
    VjFrozen *frozen;
    uint64_t reserved;

    vj_mutex_lock(&f->lock);
    f->discarded = true;
    while (f->writing) {
        vj_cond_wait(&f->idle, &f->lock);
    }
    committed = g_steal_pointer(&f->committed);
    active = f->active;
    frozen = f->frozen;
    reserved = f->reserved_bytes + (frozen != NULL ? frozen->reserved_bytes : 0);
    f->active = vj_pieces_new(&f->table->dirty, f->table->objects, 0);
    f->frozen = NULL;
    f->reserved_bytes = 0;
    f->times_pending = false;
    f->times_taken_by = 0;
    f->committed_seq = f->dirty_seq;
    vj_mutex_unlock(&f->lock);
    vj_committed_unref(committed);
    vj_pieces_free(active);
    vj_frozen_unref(frozen);
    vj_space_release(&f->table->space, reserved);
}

void vj_file_discard_ino(VjFileTable *table, uint64_t ino)
{
    g_autoptr(VjFile) f = vj_file_find(table, ino);

    if (f != NULL) {
        vj_file_discard(f);
    }
}

int vj_file_commit(VjFile *f)
{
    return vj_file_write_back(f);
}

int vj_file_sync(VjFile *f)
{
    int r = write_back_all(f, true);

    return r < 0 ? r : vj_meta_flush(f->table->meta);
}

void vj_file_sync_join(VjFile *f, VjFlushWait *w)
{
    int r = write_back_all(f, true);

    if (r < 0) {
        w->done(w, r);
    } else {
        vj_meta_flush_join(f->table->meta, w);
    }
}

/* With so many bytes in memory a file that is closed can wait for others a while: their
 * objects become durable by one flush of the store. */
#define GATHERED_MOST ((uint64_t)256 * VJ_KIB)

void vj_file_kick(VjFile *f)
{
    VjFlushWhen when;
    bool dirty;

    vj_mutex_lock(&f->lock);
    when = vj_pieces_memory_bytes(f->active) <= GATHERED_MOST ? VJ_FLUSH_GATHERED
                                                              : VJ_FLUSH_SOON;
    dirty = vj_file_dirty_locked(f);
    f->closed = dirty;
    vj_mutex_unlock(&f->lock);
    if (dirty) {
        f->table->events->changed(f->table->opaque, f, when);
    }
}
