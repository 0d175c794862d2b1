/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * file.c - the content of one inode in memory: its life and its attributes
 *
 * Layers, top down: active (changed by writers, change.c) over frozen (being written
 * back, if any, round.c) over the committed map.  base_version says which version of the
 * map the lowest layer in memory lies on; a reader compares it with the version in its
 * snapshot (resolve.c), so no thread has to hold the lock while a commit becomes visible.
 *
 * Invariants, under lock:
 *   committed_seq <= (frozen ? frozen->seq : committed_seq) <= dirty_seq
 *   frozen == NULL and dirty_seq == committed_seq: active is the identity
 *   at most one thread writes back (writing), and only it replaces frozen
 *   no call of utimens is under way: no times are taken (times_taken_by == 0)
 */
#include "file/file-private.h"
#include "meta/session.h"

#include <sys/stat.h>

bool vj_file_table_read_only(const VjFileTable *table)
{
    return g_atomic_int_get(&table->read_only) != 0;
}

void vj_file_table_set_read_only(VjFileTable *table, bool read_only)
{
    g_atomic_int_set(&table->read_only, read_only);
}

/* ---- life -------------------------------------------------------------------------- */

VjFrozen *vj_frozen_ref(VjFrozen *z)
{
    g_atomic_int_inc(&z->refs);
    return z;
}

void vj_frozen_unref(VjFrozen *z)
{
    if (z != NULL && g_atomic_int_dec_and_test(&z->refs)) {
        vj_pieces_free(z->pieces);
        if (z->ahead != NULL) {
            vj_pieces_free(z->ahead);
        }
        g_free(z);
    }
}

static void file_free(VjFile *f)
{
    g_assert(f->frozen == NULL && !f->writing && f->flush_link.queue == NULL);
    if (f->reserved_bytes > 0) {
        vj_space_release(&f->table->space, f->reserved_bytes);
    }
    g_free(f->append);
    vj_committed_unref(f->committed);
    vj_pieces_free(f->active);
    vj_mem_unref(f->tail);
    vj_cond_clear(&f->idle);
    vj_mutex_clear(&f->lock);
    g_free(f);
}

static VjFile *file_new(VjFileTable *table, const VjInode *inode)
{
    VjFile *f = g_new0(VjFile, 1);

    f->table = table;
    f->ino = inode->ino;
    f->refs = 1;
    vj_mutex_init(&f->lock, VJ_RANK_FILE, "file");
    vj_cond_init(&f->idle);
    f->active = vj_pieces_new(&table->dirty, table->objects, inode->size);
    f->base_version = inode->map_version;
    f->append_from = f->round_bytes = inode->size;
    vj_file_take_settings(f, inode);
    return f;
}

/* The file in the table, referenced; waits for a thread that reads its record and puts it
 * there.  NULL: there is none. */
static VjFile *find_locked(VjFileTable *table, uint64_t ino)
{
    VjFile *f;

    vj_mutex_assert_held(&table->lock);
    while (g_hash_table_contains(table->opening, &ino)) {
        vj_cond_wait(&table->opened, &table->lock);
    }
    f = g_hash_table_lookup(table->files, &ino);
    if (f != NULL) {
        g_atomic_int_inc(&f->refs);
    }
    return f;
}

VjFile *vj_file_find(VjFileTable *table, uint64_t ino)
{
    VjFile *f;

    vj_mutex_lock(&table->lock);
    f = find_locked(table, ino);
    vj_mutex_unlock(&table->lock);
    return f;
}

GPtrArray *vj_file_table_list(VjFileTable *table)
{
    GPtrArray *files = g_ptr_array_new_with_free_func((GDestroyNotify)vj_file_unref);
    GHashTableIter iter;
    gpointer file;

    vj_mutex_lock(&table->lock);
    g_hash_table_iter_init(&iter, table->files);
    while (g_hash_table_iter_next(&iter, NULL, &file)) {
        g_ptr_array_add(files, vj_file_ref(file));
    }
    vj_mutex_unlock(&table->lock);
    return files;
}

typedef struct Record {
    uint64_t ino;
    VjInode *inode;
} Record;

static int record_body(VjTxn *txn, void *opaque)
{
    const Record *record = opaque;

    return vj_inode_get(txn, record->ino, record->inode);
}

int vj_file_record(VjFileTable *table, uint64_t ino, VjInode *out)
{
    Record record = {.ino = ino, .inode = out};

    return vj_meta_view(table->meta, record_body, &record);
}

void vj_file_commit_begins(VjFile *f)
{
    VjCommitted *outdated;

    vj_mutex_lock(&f->lock);
    f->committing = true;
    outdated = g_steal_pointer(&f->committed);
    vj_mutex_unlock(&f->lock);
    vj_committed_unref(outdated);
}

void vj_file_commit_is_over_locked(VjFile *f)
{
    f->committing = false;
}

/*
 * A file enters the table with the state of a snapshot that was taken while no other
 * VjFile of the inode could commit.  While it is read the number stands in
 * table->opening, and a thread that asks for that inode waits; the lock itself is not
 * held meanwhile.  So it is with the last close, where the claim that other sessions see
 * is dropped.
 */
static VjFile *end_opening(VjFileTable *table, const VjOpening *opening, int r,
                           const VjInode *inode)
{
    VjFile *f = r == 0 ? file_new(table, inode) : NULL;

    vj_mutex_lock(&table->lock);
    if (f != NULL) {
        f->settings_are_old = opening->has_changed;
        g_hash_table_insert(table->files, &f->ino, f);
    }
    g_hash_table_remove(table->opening, &opening->ino);
    vj_cond_broadcast(&table->opened);
    vj_mutex_unlock(&table->lock);
    if (table->is_shared) {
        vj_content_claim_failed(table, opening->ino, r);
    }
    return f;
}

static int open_file(VjFileTable *table, uint64_t ino, VjFile **out, uint64_t *holder)
{
    VjOpening opening = {.ino = ino};
    VjInode inode;
    int r;

    vj_mutex_lock(&table->lock);
    *out = find_locked(table, ino);
    if (*out == NULL) {
        g_hash_table_insert(table->opening, &opening.ino, &opening);
    }
    vj_mutex_unlock(&table->lock);
    if (*out != NULL) {
        return 0;
    }
    r = table->is_shared ? vj_content_claim(table, ino, &inode, holder)
                         : vj_file_record(table, ino, &inode);
    *out = end_opening(table, &opening, r, &inode);
    return r;
}

struct VjFileMaking {
    VjFileTable *table;
    VjOpening opening;
};

VjFileMaking *vj_file_make_begin(VjFileTable *table, uint64_t ino)
{
    VjFileMaking *m = g_new0(VjFileMaking, 1);

    m->table = table;
    m->opening.ino = ino;
    vj_mutex_lock(&table->lock);
    g_hash_table_insert(table->opening, &m->opening.ino, &m->opening);
    vj_mutex_unlock(&table->lock);
    return m;
}

int vj_file_make_claim(VjTxn *txn, const VjFileMaking *m)
{
    return m->table->is_shared ? vj_claim_take_new(txn, VJ_CLAIM_CONTENT, m->opening.ino)
                               : 0;
}

int vj_file_make_end(VjFileMaking *m, int r, const VjInode *inode, VjFile **out)
{
    *out = end_opening(m->table, &m->opening, r, inode);
    g_free(m);
    return r;
}

int vj_file_open_quietly(VjFileTable *table, uint64_t ino, VjFile **out)
{
    uint64_t holder;

    return open_file(table, ino, out, &holder);
}

int vj_file_open(VjFileTable *table, uint64_t ino, VjFile **out)
{
    uint64_t holder;
    int r = open_file(table, ino, out, &holder);

    if (r == -EBUSY) {
        vj_content_tell_busy(table, ino, holder);
    }
    return r;
}

VjFile *vj_file_ref(VjFile *f)
{
    g_atomic_int_inc(&f->refs);
    return f;
}

void vj_file_unref(VjFile *f)
{
    VjOpening closing;
    VjFileTable *table;
    bool last;

    if (f == NULL) {
        return;
    }
    table = f->table;
    closing = (VjOpening){.ino = f->ino};
    for (;;) {
        int refs = g_atomic_int_get(&f->refs);

        if (refs == 1) {
            break;
        }
        if (g_atomic_int_compare_and_exchange(&f->refs, refs, refs - 1)) {
            return;
        }
    }
    vj_lock_assert_none(); /* the last one of a shared session runs a transaction */
    /* The flusher's queue holds a reference while there are changes. */
    vj_mutex_lock(&table->lock);
    last = g_atomic_int_dec_and_test(&f->refs);
    if (last) {
        g_hash_table_remove(table->files, &f->ino);
    }
    if (last && table->is_shared) {
        g_hash_table_insert(table->opening, &closing.ino, &closing);
    }
    vj_mutex_unlock(&table->lock);
    if (last) {
        file_free(f);
    }
    if (last && table->is_shared) {
        vj_content_drop(table, &closing);
    }
}

VjFlushLink *vj_file_flush_link(VjFile *f)
{
    return &f->flush_link;
}

uint64_t vj_file_ino(const VjFile *f)
{
    return f->ino;
}

/* ---- attributes -------------------------------------------------------------------- */

/* What memory says of a file at one instant. */
typedef struct Overlay {
    uint64_t size, memory_bytes;
    uint64_t version; /* of the map that it lies on */
    bool has_frozen;  /* or the version behind it */
    bool any_version; /* nothing lies on it: the inode is being dropped */
    bool dirty, is_final, has_fragments;
    bool pending; /* changed is later than the record's times */
    struct timespec changed;
    uint32_t times_dropped;
} Overlay;

/*
 * Whatever happens until it is written back, it will take the bytes that it has: all of
 * it is in memory, stays beside the inode, and is stored as it is.  Under f->lock.
 */
static bool is_final_locked(const VjFile *f)
{
    const VjPieces *newest = f->active;

    if (f->frozen != NULL && vj_pieces_is_identity(newest)) {
        newest = f->frozen->pieces;
    }
    return vj_pieces_length(newest) <= VJ_FILE_INLINE_MAX &&
           vj_pieces_memory_bytes(newest) == vj_pieces_length(newest) &&
           vj_transform_keeps_length(&f->transform) &&
           g_atomic_int_get(&f->settings_are_old) == 0;
}

/* As committed: none where the volume is read-only. */
static bool has_fragments(VjFileTable *table, uint64_t ino)
{
    uint32_t all;

    return table->remapper != NULL && vj_remapper_count(table->remapper, ino, &all) > 0;
}

static void look(VjFile *f, Overlay *o)
{
    *o = (Overlay){.has_fragments = has_fragments(f->table, f->ino)};
    vj_mutex_lock(&f->lock);
    o->size = vj_pieces_length(f->active);
    o->version = f->base_version;
    o->has_frozen = f->frozen != NULL;
    o->any_version = f->discarded;
    o->dirty = vj_file_dirty_locked(f);
    o->is_final = is_final_locked(f);
    o->memory_bytes = vj_pieces_memory_bytes(f->active);
    o->times_dropped = f->times_dropped;
    if (f->times_pending || f->times_taken_by != 0) {
        o->pending = true;
        o->changed = f->changed;
    } else if (f->frozen != NULL && g_atomic_int_get(&f->frozen->times_valid)) {
        o->pending = true;
        o->changed = f->frozen->changed;
    }
    if (f->frozen != NULL) {
        o->memory_bytes += vj_pieces_memory_bytes(f->frozen->pieces);
    }
    vj_mutex_unlock(&f->lock);
}

/* The record that was read after @o was looked at is the one below it. */
static bool fits(VjFile *f, const Overlay *o, const VjInode *inode)
{
    bool same_times;

    vj_mutex_lock(&f->lock);
    same_times = f->times_dropped == o->times_dropped;
    vj_mutex_unlock(&f->lock);
    return same_times && (o->any_version || inode->map_version == o->version ||
                          (o->has_frozen && inode->map_version == o->version + 1));
}

static void lay_over(const Overlay *o, VjInode *out)
{
    out->dirty = o->dirty;
    out->is_final = o->is_final;
    out->has_fragments = o->has_fragments;
    if (o->dirty) {
        out->size = o->size;
        out->stored_bytes =
            o->is_final ? o->size : MAX(out->stored_bytes, MIN(o->memory_bytes, o->size));
    }
    if (!o->pending) {
        return;
    }
    out->mtime = o->changed;
    /* A chmod or rename since then was committed at once, and is later. */
    if (o->changed.tv_sec > out->ctime.tv_sec ||
        (o->changed.tv_sec == out->ctime.tv_sec &&
         o->changed.tv_nsec > out->ctime.tv_nsec)) {
        out->ctime = o->changed;
    }
}

/*
 * Memory first, then the record: either the record has the commit of the frozen sequence,
 * then applying its times again changes nothing, or it has not.  With a later one all is
 * looked at again.
 */
int vj_file_getattr(VjFileTable *table, uint64_t ino, VjInode *out)
{
    g_autoptr(VjFile) f = vj_file_find(table, ino);

    if (f == NULL) {
        /* Before the record is read, which may be the one that still has some. */
        bool before = has_fragments(table, ino);
        int r = vj_file_record(table, ino, out);

        out->has_fragments = before;
        return r;
    }
    for (unsigned i = 0; i < VJ_META_RUN_TRIES; i++) {
        Overlay overlay;
        int r;

        look(f, &overlay);
        r = vj_file_record(table, ino, out);
        if (r < 0) {
            return r;
        }
        if (fits(f, &overlay, out)) {
            lay_over(&overlay, out);
            return 0;
        }
    }
    vj_log_error("inode %" G_GUINT64_FORMAT
                 ": its content was committed %u times while it was looked at",
                 ino, VJ_META_RUN_TRIES);
    return -EIO;
}

bool vj_file_lay_over(VjFileTable *table, VjInode *inode)
{
    g_autoptr(VjFile) f = S_ISREG(inode->mode) ? vj_file_find(table, inode->ino) : NULL;
    Overlay overlay;

    if (f == NULL) {
        return !S_ISREG(inode->mode); /* one that has been closed since has committed */
    }
    look(f, &overlay);
    if (!fits(f, &overlay, inode)) {
        return false;
    }
    lay_over(&overlay, inode);
    return true;
}

typedef struct Records {
    const uint64_t *inos;
    size_t count;
    const bool *is_open;
    VjInode *out;
    int *results;
} Records;

static int records_body(VjTxn *txn, void *opaque)
{
    const Records *a = opaque;

    for (size_t i = 0; i < a->count; i++) {
        if (!a->is_open[i]) {
            a->results[i] = vj_inode_get(txn, a->inos[i], &a->out[i]);
        }
    }
    return 0;
}

/* As for one: which are in memory is looked at first, and what is not has no changes. */
void vj_file_getattr_many(VjFileTable *table, const uint64_t *inos, size_t count,
                          VjInode *out, int *results)
{
    bool is_open[VJ_FILE_LOOKS_MOST], have_fragments[VJ_FILE_LOOKS_MOST];
    Records all = {
        .inos = inos, .count = count, .is_open = is_open, .out = out, .results = results};
    int r;

    g_assert(count <= VJ_FILE_LOOKS_MOST);
    vj_mutex_lock(&table->lock);
    for (size_t i = 0; i < count; i++) {
        is_open[i] = g_hash_table_contains(table->files, &inos[i]);
    }
    vj_mutex_unlock(&table->lock);
    for (size_t i = 0; i < count; i++) {
        have_fragments[i] = has_fragments(table, inos[i]);
    }
    r = vj_meta_view(table->meta, records_body, &all);
    for (size_t i = 0; i < count; i++) {
        out[i].has_fragments = have_fragments[i];
        if (r < 0 || is_open[i]) {
            results[i] = vj_file_getattr(table, inos[i], &out[i]);
        }
    }
}

void vj_file_utimens_begin(VjFileTable *table, uint64_t ino, VjUtimens *out)
{
    VjFile *f = vj_file_find(table, ino);

    *out = (VjUtimens){.f = f};
    if (f == NULL) {
        return;
    }
    vj_mutex_lock(&f->lock);
    f->utimens_now++;
    out->number = ++f->utimens_count;
    if (f->times_pending) {
        f->times_pending = false;
        f->times_taken_by = out->number;
    }
    if (f->frozen != NULL && g_atomic_int_get(&f->frozen->times_valid)) {
        g_atomic_int_set(&f->frozen->times_valid, 0);
        f->times_taken_by = out->number;
    }
    vj_mutex_unlock(&f->lock);
}

/*
 * The times that were taken are pending again.  What is frozen may be committed without
 * them by now: where nothing else was changed it takes another round.  True: the caller
 * tells the volume.
 */
static bool give_times_back_locked(VjFile *f)
{
    uint64_t below_seq = f->frozen != NULL ? f->frozen->seq : f->committed_seq;

    f->times_taken_by = 0;
    f->times_pending = true;
    if (f->dirty_seq > below_seq) {
        return false;
    }
    f->dirty_seq++;
    return true;
}

void vj_file_utimens_end(VjUtimens *u, int r)
{
    VjFile *f = g_steal_pointer(&u->f);
    bool is_changed = false;

    if (f == NULL) {
        return;
    }
    vj_mutex_lock(&f->lock);
    g_assert(f->utimens_now > 0 && u->number <= f->utimens_count);
    f->utimens_now--;
    /* What a later call has taken may come of a write after this one's transaction. */
    if (r == 0 && f->times_taken_by != 0 && f->times_taken_by <= u->number) {
        f->times_taken_by = 0;
        f->times_dropped++;
    }
    if (f->utimens_now == 0 && f->times_taken_by != 0) {
        is_changed = give_times_back_locked(f);
    }
    vj_mutex_unlock(&f->lock);
    if (is_changed) {
        f->table->events->changed(f->table->opaque, f, VJ_FLUSH_SOON);
    }
    vj_file_unref(f);
}

bool vj_file_is_dirty(VjFile *f)
{
    bool dirty;

    vj_mutex_lock(&f->lock);
    dirty = vj_file_dirty_locked(f);
    vj_mutex_unlock(&f->lock);
    return dirty;
}

uint32_t vj_file_error_mark(VjFile *f)
{
    uint32_t mark;

    vj_mutex_lock(&f->lock);
    mark = f->error_count;
    vj_mutex_unlock(&f->lock);
    return mark;
}

int vj_file_error_since(VjFile *f, uint32_t *mark)
{
    int error = 0;

    vj_mutex_lock(&f->lock);
    if (*mark != f->error_count) {
        *mark = f->error_count;
        error = f->last_error;
    }
    vj_mutex_unlock(&f->lock);
    return error;
}
