/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * slices.c - what a read through the page cache promises
 *
 * The kernel has a page as the daemon had it at some moment, and with what writes through
 * the cache have put on top since, which reach the daemon later.  Once an operation has
 * returned, all pages are as if they had been read after it.  So
 *
 * - each page of a read(2), each word of a mapping is of one moment, which lies behind
 *   all that had returned when the read was called.  It may lie before the call;
 * - while writes through the cache are under way, their words may be seen before their
 *   turn, and over a page that is still from before another operation under way;
 * - a store into a mapping beside an edit lies in a page that comes back when the edit
 *   ends: until then the page to which the edit moves it may be read without it.
 */
#include "history.h"

#define PAGE 4096u
#define WORD 8u

static bool is_change(const Event *e)
{
    return e->kind < READ;
}

static bool overlaps(const Event *e, uint64_t from_ns, uint64_t to_ns)
{
    return e->called_ns <= to_ns && e->returned_ns >= from_ns;
}

/*
 * When the oldest of the changes that were under way at the call was called.  With
 * @strict only of those that the kernel makes: it drops the pages behind an answer
 * (copy_file_range, a cut, a direct write), when an edit behind it may have returned
 * already.
 */
static uint64_t oldest_under_way(const Event *read, const Event *others, unsigned count,
                                 bool strict)
{
    uint64_t since = read->called_ns;

    for (unsigned i = 0; i < count; i++) {
        if (is_change(&others[i]) && !(strict && others[i].kind == EDIT) &&
            overlaps(&others[i], read->called_ns, read->called_ns)) {
            since = MIN(since, others[i].called_ns);
        }
    }
    return since;
}

/* false: nothing was under way. */
static bool find_loose(Event *slice, const Event *read, const Event *others,
                       unsigned count, bool strict)
{
    for (unsigned i = 0; i < count; i++) {
        const Event *o = &others[i];
        uint32_t op = o->kind == TRUNCATE || o->kind == EDIT ? OP_HOLE : o->op;

        if (!is_change(o) || !overlaps(o, slice->since_ns, read->returned_ns)) {
            continue;
        }
        slice->end_is_loose = true;
        /* The kernel clears its last page when it hears of a size, whatever the page
         * holds. */
        if (op == OP_HOLE || !strict) {
            g_array_append_val(slice->loose_ops, op);
        }
    }
    return slice->end_is_loose;
}

/* Stores beside an edit that is under way. */
static void find_late(Event *slice, const Event *read, const Event *others,
                      unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        for (unsigned k = 0; others[i].kind == STORE && k < count; k++) {
            if (others[k].kind == EDIT &&
                overlaps(&others[k], others[i].called_ns, others[i].returned_ns) &&
                overlaps(&others[k], slice->since_ns, read->returned_ns)) {
                g_array_append_val(slice->late_ops, others[i].op);
                break;
            }
        }
    }
}

static unsigned page_of(uint64_t word, unsigned phase)
{
    uint64_t byte = phase + word * WORD;

    /* Of two pages: of neither. */
    return byte % PAGE > PAGE - WORD ? UINT_MAX : (unsigned)(byte / PAGE);
}

static void add_slice(const Event *like, GArray *runs, uint64_t at, GArray *out)
{
    Event slice = *like;

    slice.at = at;
    slice.seen = (const Run *)(const void *)runs->data;
    slice.seen_count = runs->len;
    g_array_append_val(out, slice);
}

void history_slices(const Event *read, const Event *others, unsigned count,
                    unsigned phase, bool sizes, bool strict, GPtrArray *keep, GArray *out)
{
    Event like = *read;
    uint64_t word = read->at, begin = word;
    GArray *runs = NULL;
    unsigned page = UINT_MAX;

    like.kind = SLICE;
    like.is_weak = true;
    like.since_ns = oldest_under_way(read, others, count, strict);
    like.loose_ops = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    like.late_ops = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    g_ptr_array_add(keep, like.loose_ops);
    g_ptr_array_add(keep, like.late_ops);
    if (!find_loose(&like, read, others, count, strict)) { /* nobody did anything else */
        like.to_the_end = like.to_the_end && !sizes;
        like.end_is_loose = sizes;
        if (sizes) {
            uint32_t hole = OP_HOLE;

            g_array_append_val(like.loose_ops, hole);
        }
        g_array_append_val(out, like);
        return;
    }
    find_late(&like, read, others, count);
    like.to_the_end = false;
    if (sizes) {
        uint32_t hole = OP_HOLE;

        g_array_append_val(like.loose_ops, hole);
    }
    for (unsigned i = 0; i < read->seen_count; i++) {
        for (unsigned k = 0; k < read->seen[i].len; k++, word++) {
            Run r = read->seen[i];
            unsigned in_page = page_of(word, phase);

            /* A copy from a mapping may be interrupted anywhere. */
            if (in_page != page || read->is_mapped) {
                if (runs != NULL) {
                    add_slice(&like, runs, begin, out);
                    runs = NULL;
                }
                page = in_page;
                begin = word;
            }
            if (page == UINT_MAX) {
                continue;
            }
            if (runs == NULL) {
                runs = g_array_new(FALSE, FALSE, sizeof(Run));
                g_ptr_array_add(keep, runs);
            }
            r.index += r.op == OP_HOLE || r.op == OP_BROKEN ? 0 : k;
            r.len = read->is_mapped ? 1 : MIN(read->seen[i].len - k, PAGE / WORD);
            while (page_of(word + r.len - 1, phase) != page) {
                r.len--;
            }
            g_array_append_val(runs, r);
            k += r.len - 1;
            word += r.len - 1;
        }
    }
    if (runs != NULL) {
        add_slice(&like, runs, begin, out);
    }
}
