/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * history.c - readers beside the writers
 *
 * The owner says when a change begins and publishes the state when it has returned.
 * What a reader gets has to be one of the states between the last one published before
 * its read and the last one begun before its read returned.
 */
#include "model.h"

#include <stdio.h>

void history_init(ModelFile *f)
{
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->published_changed, NULL);
    pthread_rwlock_init(&f->alive, NULL);
}

void history_clear(ModelFile *f)
{
    for (unsigned i = 0; i < STATES; i++) {
        g_free(f->states[i].bytes);
    }
    pthread_rwlock_destroy(&f->alive);
    pthread_cond_destroy(&f->published_changed);
    pthread_mutex_destroy(&f->lock);
}

void change_begin(Model *m, ModelFile *f)
{
    if (m->o.readers > 0) {
        pthread_mutex_lock(&f->lock);
        f->begun++;
        pthread_mutex_unlock(&f->lock);
    }
}

void change_end(Model *m, ModelFile *f)
{
    State *s;

    if (m->o.readers > 0) {
        pthread_mutex_lock(&f->lock);
        s = &f->states[f->begun % STATES];
        s->ino = f->ino;
        s->len = f->shadow.len;
        s->bytes = g_realloc(s->bytes, f->shadow.len + 1);
        if (f->shadow.len > 0) {
            memcpy(s->bytes, f->shadow.bytes, f->shadow.len);
        }
        f->published = f->begun;
        pthread_cond_broadcast(&f->published_changed);
        pthread_mutex_unlock(&f->lock);
    }
}

static bool is_state(const State *s, uint64_t ino, size_t offset, size_t len,
                     const uint8_t *got, size_t got_len)
{
    size_t want = offset < s->len ? MIN(len, s->len - offset) : 0;

    return s->ino == ino && got_len == want &&
           (want == 0 || memcmp(s->bytes + offset, got, want) == 0);
}

/* What the bytes of a read are like that shows none of the states it may show. */
static void explain(const ModelFile *f, uint64_t before, uint64_t after, uint64_t ino,
                    size_t offset, size_t len, const uint8_t *got, size_t got_len)
{
    for (uint64_t i = before; i <= after; i++) {
        const State *t = &f->states[i % STATES];
        size_t want = offset < t->len ? MIN(len, t->len - offset) : 0;
        size_t common = MIN(want, got_len),
               same = shadow_difference(t->bytes + offset, got, common);
        size_t back = 0;

        while (back < common &&
               t->bytes[offset + want - 1 - back] == got[got_len - 1 - back]) {
            back++;
        }
        fprintf(stderr,
                "model: change %" G_GUINT64_FORMAT ": inode %" G_GUINT64_FORMAT
                " of %zu bytes: %zu to compare, the first %zu are equal, the last %zu\n",
                i, t->ino, t->len, want, same, back);
    }
    for (uint64_t age = 1; age < STATES && age <= before; age++) {
        if (before - age + STATES > after && is_state(&f->states[(before - age) % STATES],
                                                      ino, offset, len, got, got_len)) {
            fprintf(stderr,
                    "model: it is as it was behind change %" G_GUINT64_FORMAT "\n",
                    before - age);
        }
    }
    for (uint64_t i = before - MIN(before, STATES - 1); i <= after; i++) {
        const State *t = &f->states[i % STATES];
        const uint8_t *at = i + STATES > after && t->ino == ino && got_len >= 16
                                ? memmem(t->bytes, t->len, got, 16)
                                : NULL;

        if (at != NULL) {
            fprintf(stderr,
                    "model: its first 16 bytes are those at %zu behind change "
                    "%" G_GUINT64_FORMAT "\n",
                    (size_t)(at - t->bytes), i);
        }
    }

    fprintf(stderr, "model: it begins with");
    for (size_t i = 0; i < MIN(got_len, 16); i++) {
        fprintf(stderr, " %02x", got[i]);
    }
    fprintf(stderr, "\n");
}

/* A read that began behind change @before and has returned. */
static void compare(Worker *w, ModelFile *f, uint64_t before, uint64_t ino, size_t offset,
                    size_t len, const uint8_t *got, size_t got_len)
{
    uint64_t after;

    pthread_mutex_lock(&f->lock);
    after = f->begun;
    while (f->published < after) {
        pthread_cond_wait(&f->published_changed, &f->lock);
    }
    if (f->published - before >= STATES) {
        pthread_mutex_unlock(&f->lock);
        __atomic_fetch_add(&w->m->reads_skipped, 1, __ATOMIC_RELAXED);
        return;
    }
    for (uint64_t i = before; i <= after; i++) {
        if (is_state(&f->states[i % STATES], ino, offset, len, got, got_len)) {
            pthread_mutex_unlock(&f->lock);
            __atomic_fetch_add(&w->m->reads_checked, 1, __ATOMIC_RELAXED);
            return;
        }
    }
    explain(f, before, after, ino, offset, len, got, got_len);
    fail(w,
         "file %u: a read of %zu bytes at %zu beside its writer gave %zu bytes of no "
         "state "
         "between change %" G_GUINT64_FORMAT " and %" G_GUINT64_FORMAT,
         f->number, len, offset, got_len, before, after);
}

static void read_once(Worker *w, ModelFile *f)
{
    g_autoptr(VjFile) file = NULL;
    size_t len = data_length(&w->rng, 16384), got, offset, size;
    uint64_t before, ino;
    int r;

    pthread_rwlock_rdlock(&f->alive);
    pthread_mutex_lock(&f->lock);
    before = f->published;
    ino = f->ino;
    size = f->states[before % STATES].len;
    pthread_mutex_unlock(&f->lock);
    offset = vj_rng_below(&w->rng, size + 100);
    must(w, vj_file_open(vj_volume_files(w->m->v), ino, &file), "open of a reader");
    do {
        r = vj_file_read(file, offset, w->back, len, &got);
    } while (r == -EIO && w->m->o.faults > 0);
    must(w, r, "read of a reader");
    g_clear_pointer(&file, vj_file_unref);
    pthread_rwlock_unlock(&f->alive);
    compare(w, f, before, ino, offset, len, w->back, got);
}

gpointer reader_main(gpointer worker)
{
    Worker *w = worker;

    while (!g_atomic_int_get(&w->m->stop_readers)) {
        w->op++;
        read_once(w,
                  &w->m->files[vj_rng_below(&w->rng, w->m->o.threads * w->m->o.files)]);
    }
    return NULL;
}
