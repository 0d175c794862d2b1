/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * settings.c - files that change their transformation and object sizes, and are recoded
 *
 * Settings hold for what is written from then on, so files of several transformations and
 * sizes are what all the other operations work on.  Recoding changes no byte: the
 * comparisons of the other operations are what checks it.
 */
#include "model.h"

#include "volume/volume-private.h"

typedef struct Choice {
    VjVolume *v;
    uint64_t ino;
    VjTransform transform;
    bool has_transform; /* else the volume's */
    char *objects;      /* NULL: the volume's */
} Choice;

static int choose_body(VjTxn *txn, void *opaque)
{
    const Choice *choice = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, choice->ino, &inode);

    if (r < 0) {
        return r;
    }
    inode.flags &= ~(uint32_t)(VJ_INODE_TRANSFORM | VJ_INODE_OBJECTS);
    inode.flags |= choice->has_transform ? VJ_INODE_TRANSFORM : 0;
    inode.transform = choice->transform;
    if (choice->objects != NULL &&
        vj_file_sizes_set(vj_volume_files(choice->v), &inode, choice->objects, NULL)) {
        inode.flags |= VJ_INODE_OBJECTS;
    }
    return vj_inode_put(txn, &inode);
}

/* Half, all, or twice the volume's sizes. */
static char *any_sizes(Worker *w)
{
    const VjChunkSizes s = w->m->v->super.sizes;
    unsigned shift = (unsigned)vj_rng_below(&w->rng, 3);

    if (strcmp(w->m->o.chunker, "mincdc") == 0) {
        return g_strdup_printf("%u", s.avg_bytes / 2 << shift);
    }
    return g_strdup_printf("%u:%u:%u", s.min_bytes, s.avg_bytes / 2 << shift,
                           s.max_bytes);
}

void choose_settings(Worker *w, unsigned number, uint64_t ino)
{
    const char *text = any_transform(&w->rng);
    g_autofree char *objects = vj_rng_below(&w->rng, 3) > 0 ? any_sizes(w) : NULL;
    Choice choice = {.v = w->m->v,
                     .ino = ino,
                     .has_transform = vj_rng_below(&w->rng, 8) > 0,
                     .objects = objects};

    /* A build may lack it. */
    if (choice.has_transform && !vj_transform_parse(text, &choice.transform, NULL)) {
        return;
    }
    say(w, "choose %u: transformation %s, objects %s", number,
        choice.has_transform ? text : "of the volume",
        objects != NULL ? objects : "of the volume");
    MUST(w, "choose",
         vj_meta_run(vj_volume_meta(w->m->v), VJ_RUN_DEFAULT, choose_body, &choice));
    MUST(w, "choose", vj_file_settings_changed(vj_volume_files(w->m->v), ino));
}

void op_choose(Worker *w, ModelFile *f)
{
    choose_settings(w, f->number, f->ino);
}

/* ---- recoding ---------------------------------------------------------------------- */

/* A few steps from where the last ones ended; other operations come in between. */
void op_recode(Worker *w, ModelFile *f)
{
    unsigned steps = (unsigned)vj_rng_below(&w->rng, 3) + 1;

    if (f->recode.done) {
        f->recode = (VjRecode){.offset = 0};
    }
    for (unsigned i = 0; i < steps && !f->recode.done; i++) {
        say(w, "recode %u from %" G_GUINT64_FORMAT, f->number, f->recode.offset);
        MUST(w, "recode", vj_file_recode(f->f, &f->recode));
    }
}

/* Bytes that were stored anew. */
static uint64_t recode_all(Worker *w, ModelFile *f, bool *changed)
{
    VjRecode step = {.offset = 0};
    uint64_t rewritten = 0;

    *changed = false;
    while (!step.done) {
        MUST(w, "recode", vj_file_recode(f->f, &step));
        rewritten += step.rewritten_bytes;
        *changed = *changed || step.changed;
        if (step.unreadable_bytes > 0 && w->m->o.faults == 0) {
            fail(w, "file %u: %" G_GUINT64_FORMAT " bytes cannot be read, says recode",
                 f->number, step.unreadable_bytes);
        }
    }
    return rewritten;
}

/* All of it; then nothing is left to do. */
void op_recode_all(Worker *w, ModelFile *f)
{
    uint64_t again;
    bool changed, changed_again;

    say(w, "recode all of %u", f->number);
    (void)recode_all(w, f, &changed);
    again = recode_all(w, f, &changed_again);
    /* A store that fails makes objects unreadable for a while; another thread recodes
     * too. */
    if (again > 0 && !changed && !changed_again && w->m->o.faults == 0 &&
        w->m->o.recoders == 0) {
        fail(w,
             "file %u: recoded once more, %" G_GUINT64_FORMAT " bytes were stored anew",
             f->number, again);
    }
}

/* ---- beside the writers ------------------------------------------------------------ */

static void recode_beside(Worker *w, ModelFile *f)
{
    g_autoptr(VjFile) file = NULL;
    VjRecode step = {.offset = 0};
    unsigned steps = (unsigned)vj_rng_below(&w->rng, 4) + 1;
    uint64_t ino;
    int r = 0;

    pthread_rwlock_rdlock(&f->alive);
    pthread_mutex_lock(&f->lock);
    ino = f->ino;
    pthread_mutex_unlock(&f->lock);
    must(w, vj_file_open(vj_volume_files(w->m->v), ino, &file), "open of a recoder");
    for (unsigned i = 0; r == 0 && i < steps && !step.done; i++) {
        r = vj_file_recode(file, &step);
    }
    if (r != 0 && !(r == -EIO && w->m->o.faults > 0)) {
        must(w, r, "recode beside a writer");
    }
    g_clear_pointer(&file, vj_file_unref);
    pthread_rwlock_unlock(&f->alive);
    __atomic_fetch_add(&w->m->recodings, 1, __ATOMIC_RELAXED);
}

gpointer recoder_main(gpointer worker)
{
    Worker *w = worker;

    while (!g_atomic_int_get(&w->m->stop_readers)) {
        w->op++;
        recode_beside(
            w, &w->m->files[vj_rng_below(&w->rng, w->m->o.threads * w->m->o.files)]);
    }
    return NULL;
}
