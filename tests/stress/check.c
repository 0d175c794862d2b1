/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* check.c - the histories of one window: one for each file, one for the directory */
#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define STATES_MAX 300000u
#define PRINTED_MAX 500u
#define PAGE_WORDS 512u

typedef struct History {
    GArray *events;  /* of Event */
    GPtrArray *keep; /* what the slices point into */
    bool is_whole;
} History;

static gint by_call(gconstpointer x, gconstpointer y)
{
    const Event *a = x, *b = y;

    return a->called_ns < b->called_ns ? -1 : a->called_ns > b->called_ns;
}

static bool is_change(const Event *e)
{
    return e->kind != READ && e->kind != SLICE && e->kind != LOOK_UP;
}

/*
 * After an edit beside a change of size that the kernel makes itself, the kernel may go
 * on with another size until somebody calls stat, and may clear the rest of a page behind
 * the smaller one: a caller that has not yet looked at its answer comes late
 * (doc/page-cache.md).
 */
static bool is_size_loose(const GArray *changes)
{
    for (unsigned i = 0; i < changes->len; i++) {
        const Event *a = &g_array_index(changes, Event, i);

        for (unsigned k = 0; a->kind == EDIT && k < changes->len; k++) {
            const Event *b = &g_array_index(changes, Event, k);

            if (b->kind != EDIT && b->kind != STORE && a->called_ns <= b->returned_ns &&
                b->called_ns <= a->returned_ns) {
                return true;
            }
        }
    }
    return false;
}

/* The kernel sends a write through the cache in pieces that end at pages. */
static void add_parts(const Event *e, GArray *events)
{
    Event part = *e;
    uint64_t done = 0;

    for (part.part = 1; done < e->len; part.part++) {
        part.at = e->at + done;
        part.index = e->index + (uint32_t)done;
        part.len = MIN(e->len - done, PAGE_WORDS - part.at % PAGE_WORDS);
        done += part.len;
        g_array_append_val(events, part);
    }
}

/*
 * Of several stores into mappings beside one edit some may be lost (doc/page-cache.md):
 * a page that is written back brings all its bytes.
 */
static void forgive_stores(GArray *changes)
{
    for (unsigned i = 0; i < changes->len; i++) {
        Event *store = &g_array_index(changes, Event, i);

        for (unsigned k = 0; store->kind == STORE && k < changes->len; k++) {
            const Event *e = &g_array_index(changes, Event, k);

            if (e->kind == EDIT && e->called_ns <= store->returned_ns &&
                store->called_ns <= e->returned_ns) {
                store->has_returned = false;
            }
        }
    }
}

/*
 * Where attributes are asked for while a name of the inode goes, the kernel counts that
 * name twice and refuses the next link, until it asks again: such a failure says nothing
 * about the directory.
 */
static void forgive_links(GArray *events)
{
    for (unsigned i = 0; i < events->len; i++) {
        const Event *link = &g_array_index(events, Event, i);

        for (unsigned k = 0;
             link->kind == LINK && link->error == ENOENT && k < events->len; k++) {
            const Event *e = &g_array_index(events, Event, k);

            if ((e->kind == UNLINK || e->kind == RENAME) && e->error == 0 &&
                e->called_ns <= link->returned_ns && link->since_ns <= e->returned_ns) {
                g_array_remove_index(events, i);
                i--;
                break;
            }
        }
    }
}

/* All that was done to one file; what came through the page cache page by page. */
static void gather(const Load *l, const Window *w, unsigned file, History *h)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(Event));
    bool strict = file < l->files && w->files[file].mix == EDITS, sizes;

    *h = (History){.events = g_array_new(FALSE, FALSE, sizeof(Event)),
                   .keep = g_ptr_array_new_with_free_func((GDestroyNotify)g_array_unref),
                   .is_whole = true};
    for (unsigned pass = 0; pass < 2; pass++) {
        sizes = pass == 1 && !l->strict && is_size_loose(changes);
        if (pass == 1) {
            forgive_stores(changes);
        }
        for (unsigned t = 0; t <= l->processes * l->threads; t++) {
            const Log *log = &w->logs[t < l->processes * l->threads ? t : THREADS_MAX];

            for (unsigned i = 0; i < log->count; i++) {
                const struct Logged *entry = &log->entries[i];
                const Event *e = &entry->e;

                if (entry->file != file) {
                    continue;
                }
                if (pass == 0 && is_change(e)) {
                    /* Which inode it is nobody knows. */
                    h->is_whole = h->is_whole && (e->kind != CREATE || e->has_returned);
                    if (e->kind == WRITE && entry->through_cache) {
                        add_parts(e, changes);
                    } else {
                        g_array_append_val(changes, *e);
                    }
                } else if (pass == 1 && e->kind == READ && e->has_returned &&
                           entry->through_cache) {
                    history_slices(e, (const Event *)(const void *)changes->data,
                                   changes->len, w->files[file].phase, sizes, strict,
                                   h->keep, h->events);
                } else if (pass == 1 && e->has_returned && !is_change(e)) {
                    g_array_append_val(h->events, *e);
                }
            }
        }
    }
    forgive_links(changes);
    g_array_append_vals(h->events, changes->data, changes->len);
    g_array_sort(h->events, by_call);
}

static void print_difference(const Load *l, const Window *w, unsigned file,
                             const State *first, const GArray *events, const Found *found)
{
    static const char *const mixes[] = {"edits", "writes", "mixed", "mapped"};
    uint64_t origin = events->len > 0 ? g_array_index(events, Event, 0).called_ns : 0;

    flockfile(stderr);
    if (file < l->files) {
        fprintf(stderr, "window %" PRIu64 ", file %u (%s, phase %u): ", w->number, file,
                mixes[w->files[file].mix], w->files[file].phase);
    } else {
        fprintf(stderr, "window %" PRIu64 ", names: ", w->number);
    }
    fprintf(stderr, "no order explains all %u events (%u at most, %" PRIu64 " states)\n",
            events->len, found->explained_most, found->states);
    fprintf(stderr, "at first: ");
    state_print(first, stderr);
    fprintf(stderr, "behind the longest order: ");
    state_print(&found->state, stderr);
    fprintf(stderr, "which leaves over:\n");
    for (unsigned i = 0; i < MIN(found->missing->len, 40); i++) {
        event_print(
            &g_array_index(events, Event, g_array_index(found->missing, unsigned, i)),
            origin, stderr);
    }
    for (unsigned i = 0; i < MIN(found->missing->len, 40); i++) {
        const Event *e =
            &g_array_index(events, Event, g_array_index(found->missing, unsigned, i));

        if (e->kind == READ || e->kind == SLICE) {
            fprintf(stderr, "the read called at %.1f us:\n",
                    (double)(e->called_ns - origin) / 1e3);
            state_print_differences(&found->state, e, stderr);
        }
    }
    fprintf(stderr, "all events:\n");
    for (unsigned i = 0; i < MIN(events->len, PRINTED_MAX); i++) {
        event_print(&g_array_index(events, Event, i), origin, stderr);
    }
    funlockfile(stderr);
}

static void first_state(const Load *l, const Window *w, unsigned file, State *s)
{
    state_init(s);
    if (file == l->files) {
        memcpy(s->inodes, w->first_names, sizeof(s->inodes));
        return;
    }
    s->size = w->files[file].first_size;
    g_array_append_vals(s->runs, w->files[file].first, w->files[file].first_count);
}

static void count(Totals *t, const History *h, const Found *found, Verdict verdict)
{
    for (unsigned i = 0; i < h->events->len; i++) {
        const Event *e = &g_array_index(h->events, Event, i);

        __atomic_fetch_add(&t->events, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&t->reads, e->kind == READ || e->kind == LOOK_UP,
                           __ATOMIC_RELAXED);
        __atomic_fetch_add(&t->slices, e->kind == SLICE, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&t->explained, verdict == EXPLAINED, __ATOMIC_RELAXED);
    __atomic_fetch_add(&t->undecided, verdict == UNDECIDED, __ATOMIC_RELAXED);
    __atomic_fetch_add(&t->states, found->states, __ATOMIC_RELAXED);
    if (found->states > __atomic_load_n(&t->states_most, __ATOMIC_RELAXED)) {
        __atomic_store_n(&t->states_most, found->states, __ATOMIC_RELAXED);
    }
}

static bool check_one(const Load *l, const Window *w, unsigned file)
{
    Totals *t = &l->shared->totals;
    Verdict verdict = EXPLAINED;
    History h;
    State first;

    gather(l, w, file, &h);
    if (h.is_whole) {
        Found found;

        first_state(l, w, file, &first);
        verdict = history_check(&first, (const Event *)(const void *)h.events->data,
                                h.events->len, STATES_MAX, &found);
        count(t, &h, &found, verdict);
        if (verdict == UNEXPLAINED) {
            print_difference(l, w, file, &first, h.events, &found);
        }
        found_clear(&found);
        state_clear(&first);
    } else {
        __atomic_fetch_add(&t->skipped, 1, __ATOMIC_RELAXED);
    }
    g_array_unref(h.events);
    g_ptr_array_unref(h.keep);
    return verdict != UNEXPLAINED;
}

bool window_check(const Load *l, const Window *w)
{
    bool all = true;

    for (unsigned file = 0; file <= l->files; file++) {
        all = check_one(l, w, file) && all;
    }
    return all;
}
