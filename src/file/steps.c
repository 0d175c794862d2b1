/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * steps.c - content that stays and is stored otherwise: recoding, and fragments that
 * become objects
 *
 * One step is one commit.  It has the file to itself as a round of write-back has
 * (round.c), but changes nothing that a reader could see, so changes go on meanwhile.
 */
#include "file/write-back-private.h"

/*
 * This thread may commit now, and no other: *version is that of the map.  What an earlier
 * write-back could not commit goes first.
 */
static int claim(VjFile *f, uint64_t *version)
{
    int r = 0;

    vj_mutex_lock(&f->lock);
    while (r == 0 && (f->writing || f->frozen != NULL)) {
        if (f->writing) {
            vj_cond_wait(&f->idle, &f->lock);
        } else {
            vj_mutex_unlock(&f->lock);
            r = vj_file_write_back_many(f->table, &f, 1);
            vj_mutex_lock(&f->lock);
        }
    }
    if (r == 0 && f->discarded) {
        r = -ENOENT;
    }
    if (r == 0 && f->is_unwritable) {
        r = -EIO;
    }
    if (r == 0) {
        f->writing = true;
        *version = f->base_version;
    }
    vj_mutex_unlock(&f->lock);
    return r;
}

/* An identity between the active sequence and the map, which readers pass over either
 * way: they need it to distinguish the map before the commit from the one after it. */
static VjFrozen *lay_identity(VjFile *f, uint64_t size)
{
    VjFrozen *z = g_new0(VjFrozen, 1);

    z->refs = 1;
    z->pieces = vj_pieces_new(&f->table->dirty, f->table->objects, size);
    vj_mutex_lock(&f->lock);
    z->base_version = f->base_version;
    z->seq = f->committed_seq;
    f->frozen = vj_frozen_ref(z);
    vj_mutex_unlock(&f->lock);
    return z;
}

static void give_up_claim(VjFile *f, bool committed)
{
    VjFrozen *z;

    vj_mutex_lock(&f->lock);
    z = g_steal_pointer(&f->frozen);
    if (z != NULL && !committed) {
        g_atomic_int_set(&z->given_up, 1);
    }
    f->base_version += committed;
    f->writing = false;
    vj_file_commit_is_over_locked(f);
    vj_cond_broadcast(&f->idle);
    vj_mutex_unlock(&f->lock);
    vj_frozen_unref(z);
}

/* Space for what one step of @most bytes puts at worst; 0 bytes are reserved on
 * failure. */
static int reserve_step(VjFile *f, uint64_t most, uint64_t size, uint64_t *bytes)
{
    int r;

    vj_mutex_lock(&f->lock);
    most += 4 * (uint64_t)f->sizes.avg_bytes;
    most = vj_file_stored_at_worst(f, MIN(most, size));
    r = vj_space_try(&f->table->space, most);
    vj_mutex_unlock(&f->lock);
    *bytes = r == 0 ? most : 0;
    return r;
}

typedef struct Step {
    /* Plans and puts the step over @z, the identity; the write-back is owned also on
     * failure. */
    int (*plan)(VjFileTable *table, uint64_t ino, VjFrozen *z, void *plan,
                VjWriteBack **w);
    void *its;           /* VjRecodePlan or VjRemapPlan */
    uint64_t most_bytes; /* that it puts, about */
    bool insists;        /* makes space when there is none */
    /* out: */
    bool begun;
    bool committed;
    uint64_t version, size; /* of the map that it began with, once begun */
} Step;

/* With the round in this thread's hands. */
static int step_in_round(VjFile *f, Step *s, VjWriteBack **w)
{
    VjFileTable *table = f->table;
    VjFrozen *z = lay_identity(f, s->size);
    VjCancel *callers = vj_cancel_leave(); /* as in round.c */
    int r = s->plan(table, f->ino, z, s->its, w);

    if (r == 0 && vj_write_back_needs_flush(*w)) {
        r = vj_objects_flush(table->objects);
    }
    if (r == 0 && vj_write_back_changes(*w)) {
        vj_file_commit_begins(f);
        r = vj_write_back_commit(*w);
        s->committed = r == 0;
    }
    vj_write_back_end(*w);
    vj_frozen_unref(z);
    vj_cancel_enter(callers);
    return r;
}

static int step_run(VjFile *f, Step *s)
{
    VjFileTable *table = f->table;
    VjWriteBack *w = NULL;
    uint64_t reserved = 0;
    VjInode inode;
    int r = vj_file_record(f->table, f->ino, &inode);

    if (r == 0) {
        r = reserve_step(f, s->most_bytes, inode.size, &reserved);
    }
    if (r == -ENOSPC && s->insists && vj_file_table_make_space(table) == 0) {
        r = reserve_step(f, s->most_bytes, inode.size, &reserved);
    }
    if (r == 0) {
        r = claim(f, &s->version);
    }
    if (r == 0) {
        r = vj_file_record(f->table, f->ino, &inode);
        if (r == 0) {
            s->begun = true;
            s->size = inode.size;
            r = step_in_round(f, s, &w);
        }
        give_up_claim(f, s->committed);
    }
    vj_space_release_measured(&table->space, reserved);
    if (w != NULL) {
        vj_write_back_free(w);
    }
    return r == -ESTALE ? -EIO : r;
}

static int plan_recode(VjFileTable *table, uint64_t ino, VjFrozen *z, void *plan,
                       VjWriteBack **w)
{
    return vj_write_back_recode(table, ino, z, plan, w);
}

int vj_file_recode(VjFile *f, VjRecode *step)
{
    VjFileTable *table = f->table;
    VjRecodePlan plan = {.from = step->offset};
    Step s = {.plan = plan_recode,
              .its = &plan,
              .most_bytes = table->recode_step_bytes,
              .insists = true};
    int r;

    if (vj_file_table_read_only(table)) {
        return -EROFS;
    }
    r = step->offset == 0 ? vj_file_write_back(f) : 0;
    if (r == 0) {
        r = step_run(f, &s);
    }
    if (s.begun) {
        step->changed = step->version != 0 && step->version != s.version;
        step->version = s.version + s.committed;
        step->size = s.size;
    }
    if (r == 0) {
        step->examined_bytes = plan.to - MIN(plan.from, plan.to);
        step->offset = plan.to;
        step->rewritten_bytes = plan.rewritten_bytes;
        step->unreadable_bytes = plan.unreadable_bytes;
        step->done = plan.to >= step->size;
    }
    return r;
}

static int plan_remap(VjFileTable *table, uint64_t ino, VjFrozen *z, void *plan,
                      VjWriteBack **w)
{
    return vj_write_back_remap(table, ino, z, plan, w);
}

int vj_file_remap(VjFile *f, VjRemap *step)
{
    VjRemapPlan plan = {.from = step->offset, .most_bytes = step->most_bytes};
    Step s = {.plan = plan_remap, .its = &plan, .most_bytes = 2 * step->most_bytes};
    VjInode inode;
    int r;

    if (vj_file_table_read_only(f->table)) {
        return -EROFS;
    }
    r = vj_file_record(f->table, f->ino, &inode);
    if (r == 0) {
        /* What is being dropped is left to the orphan purge. */
        r = inode.nlink == 0 ? -ENOENT : step_run(f, &s);
    }
    if (r == 0) {
        step->offset = plan.to;
        step->found = plan.found;
        step->done = plan.to >= s.size;
    }
    return r;
}
