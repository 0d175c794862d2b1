/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * append.c - see append-private.h
 *
 * Threads that serve take the parts in the order in which they were sent, and may be
 * overtaken after that; so what follows a part may be there before it, even when nothing
 * else of the append is under way.  The next append of the same caller begins where the
 * one before it ended, or behind, as long as the file has not become shorter: then what
 * is known is forgotten.  With RWF_NOAPPEND it begins wherever the caller likes; that the
 * earlier one is over shows as soon as a number comes twice.  Not seen: one whose numbers
 * are all lower; nor, of one that is longer, a part that comes first and begins just
 * where the earlier one ended.
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

static void drop(VjAppend *a, unsigned i)
{
    a->count--;
    memmove(&a->runs[i], &a->runs[i + 1], (a->count - i) * sizeof a->runs[0]);
}

static bool overlaps(const VjAppendRun *run, uint64_t from, uint64_t to)
{
    return run->from < to && from < run->to;
}

/* When the last part came of those that stand together with run @i without a gap. */
static uint64_t last_came(const VjAppend *a, unsigned i)
{
    uint64_t came = a->runs[i].came;

    for (unsigned k = i; k > 0 && a->runs[k - 1].to == a->runs[k].from; k--) {
        came = MAX(came, a->runs[k - 1].came);
    }
    for (unsigned k = i; k + 1 < a->count && a->runs[k].to == a->runs[k + 1].from; k++) {
        came = MAX(came, a->runs[k + 1].came);
    }
    return came;
}

/* Numbers within [from, to) that are known are those of an append that is over; so are
 * its other parts, and whatever came before them. */
static void forget_older(VjAppend *a, uint64_t from, uint64_t to)
{
    uint64_t over = 0;

    for (unsigned i = 0; i < a->count; i++) {
        if (overlaps(&a->runs[i], from, to)) {
            over = MAX(over, last_came(a, i));
        }
    }
    for (unsigned i = a->count; i > 0; i--) {
        if (a->runs[i - 1].came <= over) {
            drop(a, i - 1);
        }
    }
}

uint64_t vj_append_place(VjAppend *a, uint64_t from, uint64_t len, uint64_t size)
{
    uint64_t end;
    unsigned i;

    if (!vj_add_u64(from, len, &end)) {
        return size;
    }
    forget_older(a, from, end);
    i = behind(a, from);
    return i < a->count ? a->runs[i].at : size;
}

static void merge(VjAppend *a, unsigned i)
{
    VjAppendRun *run = &a->runs[i];

    if (i + 1 < a->count && run->to == run[1].from &&
        run->at + run_bytes(run) == run[1].at) {
        run->to = run[1].to;
        run->came = MAX(run->came, run[1].came);
        drop(a, i + 1);
    }
}

/* Runs are merged only now: each is remembered by when it came, as long as there is
 * room. */
static void make_room(VjAppend *a)
{
    unsigned oldest = 0;

    for (unsigned i = a->count; i > 0; i--) {
        merge(a, i - 1);
    }
    if (a->count < VJ_APPEND_RUNS) {
        return;
    }
    for (unsigned i = 1; i < a->count; i++) {
        if (a->runs[i].came < a->runs[oldest].came) {
            oldest = i;
        }
    }
    drop(a, oldest);
}

void vj_append_placed(VjAppend *a, uint64_t from, uint64_t len, uint64_t at)
{
    unsigned i;

    if (a->count == VJ_APPEND_RUNS) {
        make_room(a);
    }
    i = behind(a, from);
    memmove(&a->runs[i + 1], &a->runs[i], (a->count - i) * sizeof a->runs[0]);
    a->runs[i] =
        (VjAppendRun){.from = from, .to = from + len, .at = at, .came = ++a->parts};
    a->count++;
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
