/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* state.c - a file as a sequence of words, a directory as a table of names */
#include "history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void state_init(State *s)
{
    *s = (State){.runs = g_array_new(FALSE, FALSE, sizeof(Run))};
}

void state_copy(State *dst, const State *src)
{
    GArray *runs = dst->runs;

    g_array_set_size(runs, 0);
    if (src->runs->len > 0) {
        g_array_append_vals(runs, src->runs->data, src->runs->len);
    }
    *dst = *src;
    dst->runs = runs;
}

void state_clear(State *s)
{
    g_clear_pointer(&s->runs, g_array_unref);
}

static const Run *run_at(const State *s, unsigned i)
{
    return &g_array_index(s->runs, Run, i);
}

/* The rest of a run that begins @skip words later. */
static Run run_from(Run r, uint64_t skip)
{
    return (Run){.op = r.op,
                 .index = r.op == OP_HOLE ? 0 : r.index + (uint32_t)skip,
                 .len = r.len - (uint32_t)skip};
}

static bool continues(const Run *a, const Run *b)
{
    return a->op == b->op && (a->op == OP_HOLE || a->index + a->len == b->index);
}

static void append(GArray *runs, Run r)
{
    Run *last = runs->len > 0 ? &g_array_index(runs, Run, runs->len - 1) : NULL;

    if (r.len == 0) {
        return;
    }
    if (last != NULL && continues(last, &r)) {
        last->len += r.len;
    } else {
        g_array_append_val(runs, r);
    }
}

static void append_part(GArray *out, const State *s, uint64_t from, uint64_t to)
{
    uint64_t at = 0;

    for (unsigned i = 0; i < s->runs->len && at < to; i++) {
        Run r = *run_at(s, i);
        uint64_t end = at + r.len;

        if (end > from) {
            Run part = run_from(r, from > at ? from - at : 0);

            part.len -= (uint32_t)(end > to ? end - to : 0);
            append(out, part);
        }
        at = end;
    }
}

void state_replace(State *s, uint64_t at, uint64_t old_len, Run with)
{
    GArray *runs = g_array_sized_new(FALSE, FALSE, sizeof(Run), s->runs->len + 3);
    uint64_t old_end = MIN(s->size, at + old_len);

    append_part(runs, s, 0, MIN(at, s->size));
    if (at > s->size) {
        append(runs, (Run){.op = OP_HOLE, .len = (uint32_t)(at - s->size)});
    }
    append(runs, with);
    if (old_end < s->size) {
        append_part(runs, s, MAX(old_end, at), s->size);
    }
    s->size = MAX(at, s->size) - (old_end > at ? old_end - at : 0) + with.len;
    g_array_unref(s->runs);
    s->runs = runs;
}

static bool is_among(const GArray *ops, uint32_t op)
{
    for (unsigned i = 0; ops != NULL && i < ops->len; i++) {
        if (g_array_index(ops, uint32_t, i) == op) {
            return true;
        }
    }
    return false;
}

static bool has_loose_data(const Event *e)
{
    for (unsigned i = 0; e->loose_ops != NULL && i < e->loose_ops->len; i++) {
        if (g_array_index(e->loose_ops, uint32_t, i) != OP_HOLE) {
            return true;
        }
    }
    return false;
}

static bool may_be_seen(const Event *e, const Run *seen, const Run *stands)
{
    if (seen->op == stands->op && (seen->op == OP_HOLE || seen->index == stands->index)) {
        return true;
    }
    /* Bytes of two operations in one word: one of them was under way. */
    return is_among(e->loose_ops, seen->op) || is_among(e->late_ops, stands->op) ||
           (seen->op == OP_BROKEN && has_loose_data(e));
}

static uint64_t seen_words(const Event *e)
{
    uint64_t words = 0;

    for (unsigned i = 0; i < e->seen_count; i++) {
        words += e->seen[i].len;
    }
    return words;
}

/* Are the words from e->at on those that @e saw? */
static bool reads_as(const State *s, const Event *e)
{
    uint64_t words = seen_words(e), at = 0;
    unsigned i = 0, k = 0;
    Run stands, seen;

    if (e->at + words > s->size && !e->end_is_loose && !e->is_mapped && words > 0) {
        return false;
    }
    if (e->to_the_end && (words > 0 ? e->at + words != s->size : s->size > e->at)) {
        return false;
    }
    while (i < s->runs->len && at + run_at(s, i)->len <= e->at) {
        at += run_at(s, i++)->len;
    }
    stands = i < s->runs->len ? run_from(*run_at(s, i), e->at - at) : (Run){0};
    seen = e->seen_count > 0 ? e->seen[0] : (Run){0};
    while (k < e->seen_count) {
        Run behind = {.op = OP_HOLE, .len = seen.len};
        const Run *here = i < s->runs->len ? &stands : &behind;
        uint32_t step = MIN(here->len, seen.len);

        if (!may_be_seen(e, &seen, here) && !(here == &behind && e->is_mapped)) {
            return false;
        }
        seen = run_from(seen, step);
        if (seen.len == 0 && ++k < e->seen_count) {
            seen = e->seen[k];
        }
        if (i < s->runs->len) {
            stands = run_from(stands, step);
            if (stands.len == 0 && ++i < s->runs->len) {
                stands = *run_at(s, i);
            }
        }
    }
    return true;
}

static bool apply_to_file(State *s, const Event *e)
{
    Run data = {.op = e->op, .index = e->index, .len = (uint32_t)e->len};

    switch (e->kind) {
    case EDIT:
        if (e->len > 0 || e->at < s->size) {
            state_replace(s, e->at, e->old_len, data);
        }
        break;
    case WRITE:
        if (e->len > 0) {
            state_replace(s, e->at, e->len, data);
        }
        break;
    case APPEND:
        state_replace(s, s->size, 0, data);
        break;
    case TRUNCATE:
        if (e->at < s->size) {
            state_replace(s, e->at, s->size - e->at, (Run){0});
        } else {
            state_replace(s, e->at, 0, (Run){0});
        }
        break;
    case STORE:
        if (e->at < s->size) {
            state_replace(s, e->at, e->len, data);
        }
        break;
    default:
        return reads_as(s, e);
    }
    return !e->has_returned || e->size_after == NO_SIZE || s->size == e->size_after;
}

static bool has_name(const State *s, uint64_t inode)
{
    for (unsigned i = 0; i < NAMES; i++) {
        if (s->inodes[i] == inode) {
            return true;
        }
    }
    return false;
}

/* The error that @e gets, or 0 and it is done. */
static int apply_to_names(State *s, const Event *e)
{
    uint64_t *a = &s->inodes[e->a], *b = &s->inodes[e->b], swap = *a;

    switch (e->kind) {
    case CREATE:
        if (*a != 0) {
            return EEXIST;
        }
        *a = e->inode;
        break;
    case UNLINK:
        if (*a == 0) {
            return ENOENT;
        }
        *a = 0;
        break;
    case RENAME:
        if (*a == 0) {
            return ENOENT;
        }
        if (*a != *b) { /* else: rename(2) does nothing with two links to one inode */
            *b = *a;
            *a = 0;
        }
        break;
    case LINK:
        if (*b != 0 || !has_name(s, e->inode)) {
            return *b != 0 ? EEXIST : ENOENT;
        }
        *b = e->inode;
        break;
    default:
        if (*a == 0 || *b == 0) {
            return ENOENT;
        }
        *a = *b;
        *b = swap;
    }
    return 0;
}

bool state_apply(State *s, const Event *e)
{
    int error;

    if (e->kind < LOOK_UP) {
        return apply_to_file(s, e);
    }
    if (e->kind == LOOK_UP) {
        return s->inodes[e->a] == e->inode;
    }
    error = apply_to_names(s, e);
    return !e->has_returned || error == e->error;
}

void runs_add(Run *runs, unsigned *count, uint32_t op, uint32_t index)
{
    Run r = {.op = op, .index = op == OP_HOLE || op == OP_BROKEN ? 0 : index, .len = 1};

    if (*count > 0 && (op == OP_BROKEN ? runs[*count - 1].op == op
                                       : continues(&runs[*count - 1], &r))) {
        runs[*count - 1].len++;
    } else {
        runs[(*count)++] = r;
    }
}

static Run word_in(const Run *runs, unsigned count, uint64_t word)
{
    for (unsigned i = 0; i < count; i++) {
        if (word < runs[i].len) {
            return run_from(runs[i], word);
        }
        word -= runs[i].len;
    }
    return (Run){.op = OP_BROKEN};
}

void state_print_differences(const State *s, const Event *e, FILE *out)
{
    uint64_t words = seen_words(e);
    unsigned printed = 0;

    for (uint64_t i = 0; i < words && printed < 40; i++) {
        Run stands =
            word_in((const Run *)(const void *)s->runs->data, s->runs->len, e->at + i);
        Run seen = word_in(e->seen, e->seen_count, i);

        if (stands.op != seen.op || stands.index != seen.index) {
            fprintf(out, "  word %" PRIu64 ": %u.%u stands there, %u.%u was seen\n",
                    e->at + i, stands.op, stands.index, seen.op, seen.index);
            printed++;
        }
    }
}

static void runs_print(const Run *runs, unsigned count, FILE *out)
{
    for (unsigned i = 0; i < count; i++) {
        fprintf(out, " %u.%u+%u", runs[i].op, runs[i].index, runs[i].len);
        if (i == 39 && count > 60) {
            fprintf(out, " ... %u more", count - i - 1);
            break;
        }
    }
}

void state_print(const State *s, FILE *out)
{
    fprintf(out, "%" PRIu64 " words:", s->size);
    runs_print((const Run *)(const void *)s->runs->data, s->runs->len, out);
    for (unsigned i = 0; i < NAMES; i++) {
        if (s->inodes[i] != 0) {
            fprintf(out, " name %u is %" PRIu64, i, s->inodes[i]);
        }
    }
    fprintf(out, "\n");
}

void event_print(const Event *e, uint64_t origin_ns, FILE *out)
{
    static const char *const kinds[] = {
        "edit",    "write",  "append", "truncate", "store", "read",    "page",
        "look up", "create", "unlink", "rename",   "link",  "exchange"};

    fprintf(out, "%9.1f %9.1f us  thread %u  %-8s",
            (double)(e->called_ns - origin_ns) / 1e3,
            (double)(e->returned_ns - origin_ns) / 1e3, e->thread, kinds[e->kind]);
    if (e->kind >= LOOK_UP) {
        fprintf(out, " name %u, %u, inode %" PRIu64 ", error %d", e->a, e->b, e->inode,
                e->error);
    } else {
        fprintf(out, " at %" PRIu64 ", %" PRIu64 " old, %" PRIu64 " words, data %u.%u",
                e->at, e->old_len, e->len, e->op, e->index);
        if (e->size_after != NO_SIZE) {
            fprintf(out, ", size then %" PRIu64, e->size_after);
        }
        if (e->kind == READ || e->kind == SLICE) {
            fprintf(out, "%s:", e->to_the_end ? ", to the end" : "");
            runs_print(e->seen, e->seen_count, out);
        }
    }
    if (e->loose_ops != NULL && e->loose_ops->len > 0) {
        fprintf(out, "; under way:");
        for (unsigned i = 0; i < e->loose_ops->len; i++) {
            fprintf(out, " %u", g_array_index(e->loose_ops, uint32_t, i));
        }
    }
    fprintf(out, "%s\n", e->has_returned ? "" : "  (killed)");
}
