/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * order.c - the search for an order (after Wing and Gong, and Lowe's memory of where it
 * was)
 *
 * A node of the search is the set of the events that have been put in order and the state
 * behind them; a node is looked at once.  A read that fits is taken at once: it changes
 * nothing, so whatever follows from here without it follows with it.  Hence there is only
 * a choice among changes.  An event that was killed may be left out.
 */
#include "history.h"

#include <stdio.h>
#include <string.h>

typedef struct Search {
    const Event *events;
    unsigned count;
    unsigned words;    /* of a set */
    uint64_t *before;  /* by event: the set of those that come before it */
    unsigned *changes; /* in the order in which they are tried */
    unsigned change_count;
    GHashTable *visited;
    uint64_t states_max;
    Found *found;
} Search;

typedef struct Node {
    uint64_t a, b;
} Node;

static guint node_hash(gconstpointer node)
{
    return (guint)((const Node *)node)->a;
}

static gboolean node_equal(gconstpointer x, gconstpointer y)
{
    return memcmp(x, y, sizeof(Node)) == 0;
}

static bool has(const uint64_t *set, unsigned i)
{
    return set[i / 64] >> i % 64 & 1;
}

static void put(uint64_t *set, unsigned i)
{
    set[i / 64] |= (uint64_t)1 << i % 64;
}

static bool is_change(const Event *e)
{
    return e->kind != READ && e->kind != SLICE && e->kind != LOOK_UP;
}

/*
 * While an edit is under way a mapping may have some pages from before it and some from
 * behind it, whatever else was seen meanwhile.  So a store is ordered to edits, and to
 * what reads it, but not to what only shows that the edit has begun.
 */
static bool has_order_to_store(const Event *a, const Event *b)
{
    return a->kind == EDIT || b->kind == EDIT || b->kind == READ || b->kind == SLICE ||
           (a->kind == b->kind && a->at == b->at);
}

/* Must @a stand before @b? */
static bool is_before(const Event *a, const Event *b)
{
    if (a->part != b->part && a->op == b->op && a->op != 0) {
        return a->part < b->part;
    }
    if ((a->kind == STORE || b->kind == STORE) && !has_order_to_store(a, b)) {
        return false;
    }
    if (b->is_weak) {
        return is_change(a) && a->returned_ns < b->since_ns;
    }
    if (a->is_weak) {
        return is_change(b) && a->returned_ns < b->called_ns;
    }
    return a->returned_ns < b->called_ns;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static Node node_of(const Search *s, const uint64_t *done, const State *state)
{
    Node n = {.a = 0x1234567, .b = state->size};
    const uint32_t *runs = (const uint32_t *)(const void *)state->runs->data;

    for (unsigned i = 0; i < s->words; i++) {
        n.a = mix(n.a, done[i]);
        n.b = mix(n.b, done[i] + i);
    }
    for (unsigned i = 0; i < state->runs->len * 3; i++) {
        n.a = mix(n.a, runs[i]);
        n.b = mix(n.b, runs[i] + (uint64_t)i);
    }
    for (unsigned i = 0; i < NAMES; i++) {
        n.a = mix(n.a, state->inodes[i]);
        n.b = mix(n.b, state->inodes[i] + i);
    }
    return n;
}

static bool is_ready(const Search *s, const uint64_t *done, unsigned i)
{
    const uint64_t *before = s->before + (size_t)i * s->words;

    for (unsigned w = 0; w < s->words; w++) {
        if ((before[w] & ~done[w]) != 0) {
            return false;
        }
    }
    /*
     * What was killed stands before nothing by force, but not behind changes that came
     * after it.  (Reads that came after it have been taken for granted without asking.)
     */
    for (unsigned k = 0; !s->events[i].has_returned && k < s->count; k++) {
        if (has(done, k) && is_change(&s->events[k]) &&
            is_before(&s->events[i], &s->events[k])) {
            return false;
        }
    }
    return true;
}

static void take_reads(const Search *s, uint64_t *done, State *state)
{
    bool again = true;

    while (again) {
        again = false;
        for (unsigned i = 0; i < s->count; i++) {
            const Event *e = &s->events[i];

            if (!is_change(e) && !has(done, i) && is_ready(s, done, i) &&
                state_apply(state, e)) {
                put(done, i);
                again = true;
            }
        }
    }
}

/* Are all done that have returned?  Remembers how far it came. */
static bool is_complete(Search *s, const uint64_t *done, const State *state)
{
    unsigned explained = 0;
    bool all = true;

    for (unsigned i = 0; i < s->count; i++) {
        explained += has(done, i);
        all = all && (has(done, i) || !s->events[i].has_returned);
    }
    if (explained > s->found->explained_most || s->found->missing->len == 0) {
        s->found->explained_most = explained;
        g_array_set_size(s->found->missing, 0);
        for (unsigned i = 0; i < s->count; i++) {
            if (!has(done, i)) {
                g_array_append_val(s->found->missing, i);
            }
        }
        state_copy(&s->found->state, state);
    }
    return all;
}

static Verdict search(Search *s, const uint64_t *done_before, const State *before)
{
    g_autofree uint64_t *done = g_memdup2(done_before, s->words * sizeof(uint64_t));
    g_autofree uint64_t *next = g_new(uint64_t, s->words);
    State state, changed;
    Verdict verdict = UNEXPLAINED;
    Node node;

    state_init(&state);
    state_init(&changed);
    state_copy(&state, before);
    take_reads(s, done, &state);
    node = node_of(s, done, &state);
    if (is_complete(s, done, &state)) {
        verdict = EXPLAINED;
    } else if (s->found->states >= s->states_max) {
        verdict = UNDECIDED;
    } else if (g_hash_table_add(s->visited, g_memdup2(&node, sizeof(node)))) {
        s->found->states++;
        for (unsigned k = 0; k < s->change_count && verdict == UNEXPLAINED; k++) {
            unsigned i = s->changes[k];

            if (has(done, i) || !is_ready(s, done, i)) {
                continue;
            }
            state_copy(&changed, &state);
            if (state_apply(&changed, &s->events[i])) {
                memcpy(next, done, s->words * sizeof(uint64_t));
                put(next, i);
                verdict = search(s, next, &changed);
            }
        }
    }
    state_clear(&state);
    state_clear(&changed);
    return verdict;
}

static gint by_return(gconstpointer x, gconstpointer y, gpointer events)
{
    const Event *a = (const Event *)events + *(const unsigned *)x,
                *b = (const Event *)events + *(const unsigned *)y;

    if (a->has_returned != b->has_returned) {
        return a->has_returned ? -1 : 1;
    }
    return a->returned_ns < b->returned_ns ? -1 : a->returned_ns > b->returned_ns;
}

Verdict history_check(const State *first, const Event *events, unsigned count,
                      uint64_t states_max, Found *found)
{
    unsigned words = count / 64 + 1;
    g_autofree uint64_t *before = g_new0(uint64_t, (size_t)words * (count + 1));
    g_autofree uint64_t *done = g_new0(uint64_t, words);
    g_autofree unsigned *changes = g_new(unsigned, count + 1);
    g_autoptr(GHashTable) visited =
        g_hash_table_new_full(node_hash, node_equal, g_free, NULL);
    Search s = {.events = events,
                .count = count,
                .words = words,
                .before = before,
                .changes = changes,
                .visited = visited,
                .states_max = states_max,
                .found = found};

    *found = (Found){.missing = g_array_new(FALSE, FALSE, sizeof(unsigned))};
    state_init(&found->state);
    for (unsigned i = 0; i < count; i++) {
        for (unsigned k = 0; k < count; k++) {
            if (events[k].has_returned && is_before(&events[k], &events[i])) {
                put(before + (size_t)i * words, k);
            }
        }
        if (is_change(&events[i])) {
            changes[s.change_count++] = i;
        }
    }
    g_qsort_with_data(changes, (gint)s.change_count, sizeof(unsigned), by_return,
                      (gpointer)events);
    return search(&s, done, first);
}

void found_clear(Found *found)
{
    g_clear_pointer(&found->missing, g_array_unref);
    state_clear(&found->state);
}
