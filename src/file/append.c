/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * append.c - see append-private.h
 *
 * Threads that serve take the parts in the order in which they were sent, and may be
 * overtaken after that; so what follows a part may be there before it, even when nothing
 * else of the append is under way.  The next append of the same caller begins where the
 * one before it ended, or behind, as long as the file has not become shorter: then what
 * is known is forgotten.
 */
#include "file/append-private.h"

static uint64_t run_bytes(const VjAppendRun *run)
{
    return run->to - run->from;
}

static void forget(VjAppend *a)
{
    a->count = 0;
    a->was_cut = false;
}

bool vj_append_enter(VjAppend *a, uint64_t who)
{
    g_assert(who != 0);
    if (a->who != who) {
        if (a->active > 0) {
            return false;
        }
        *a = (VjAppend){.who = who};
    }
    a->active++;
    return true;
}

void vj_append_leave(VjAppend *a, uint64_t from, bool has_failed)
{
    g_assert(a->active > 0);
    if (has_failed) {
        a->failed = a->has_failed ? MIN(a->failed, from) : from;
        a->has_failed = true;
    }
    a->active--;
    if (a->active == 0 && a->was_cut) {
        forget(a);
    }
}

/* The first run that follows @from. */
static unsigned behind(const VjAppend *a, uint64_t from)
{
    unsigned i = 0;

    while (i < a->count && a->runs[i].from < from) {
        i++;
    }
    return i;
}

uint64_t vj_append_place(const VjAppend *a, uint64_t from, uint64_t len, uint64_t size)
{
    unsigned i = behind(a, from);
    uint64_t end;

    if (i == a->count || !vj_add_u64(from, len, &end) || end > a->runs[i].from ||
        (i > 0 && a->runs[i - 1].to > from)) {
        return size;
    }
    return a->runs[i].at;
}

static void merge(VjAppend *a, unsigned i)
{
    VjAppendRun *run = &a->runs[i];

    if (i + 1 < a->count && run->to == run[1].from &&
        run->at + run_bytes(run) == run[1].at) {
        run->to = run[1].to;
        a->count--;
        memmove(&run[1], &run[2], (a->count - i - 1) * sizeof *run);
    }
}

void vj_append_placed(VjAppend *a, uint64_t from, uint64_t len, uint64_t at)
{
    unsigned i;

    if (a->count == VJ_APPEND_RUNS) { /* the lowest: of an append of long ago, mostly */
        a->count--;
        memmove(&a->runs[0], &a->runs[1], a->count * sizeof a->runs[0]);
    }
    i = behind(a, from);
    memmove(&a->runs[i + 1], &a->runs[i], (a->count - i) * sizeof a->runs[0]);
    a->runs[i] = (VjAppendRun){.from = from, .to = from + len, .at = at};
    a->count++;
    merge(a, i);
    if (i > 0) {
        merge(a, i - 1);
    }
}

void vj_append_changed(VjAppend *a, uint64_t at, uint64_t old_len, uint64_t len)
{
    if (a->count == 0 || old_len == len) {
        return;
    }
    if (len < old_len) {
        a->was_cut = true;
        if (a->active == 0) {
            forget(a);
        }
    }
    for (unsigned i = 0; i < a->count; i++) {
        VjAppendRun *run = &a->runs[i];

        if (at + old_len <= run->at) {
            run->at = run->at - old_len + len;
        } else if (at < run->at + run_bytes(run)) {
            forget(a); /* it was edited itself */
        }
    }
}

bool vj_append_undo(VjAppend *a, uint64_t from, uint64_t *at, uint64_t *len)
{
    uint64_t lowest = a->count > 0 ? MIN(a->runs[0].from, a->failed) : a->failed;
    bool together = true;

    *at = *len = 0;
    if (!a->has_failed || from < lowest || from > a->failed) {
        return false;
    }
    a->has_failed = false;
    for (unsigned i = 0; i < a->count; i++) {
        const VjAppendRun *run = &a->runs[i];
        uint64_t skip = from > run->from ? from - run->from : 0;

        if (run->to <= from) {
            continue;
        }
        if (*len == 0) {
            *at = run->at + skip;
        }
        together = together && run->at + skip == *at + *len;
        *len += run_bytes(run) - skip;
    }
    *len = together ? *len : 0;
    return true;
}
