/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * runs.c - bytes on their way into chunks: runs in memory, and the chunker over them
 *
 * Bytes come in runs (a written range, the content of an old entry) and leave in chunks,
 * which are copied only where they are scattered over several runs.  The chunker looks
 * ahead: it may have seen more bytes than were cut, and what is given up before its cut
 * is fed to it anew.
 */
#include "file/write-back-private.h"

static void run_clear(gpointer p)
{
    vj_buf_unref(((VjRun *)p)->holder);
}

void vj_runs_init(VjRuns *r, VjChunker *chunker)
{
    *r = (VjRuns){.chunker = chunker, .runs = g_array_new(FALSE, FALSE, sizeof(VjRun))};
    g_array_set_clear_func(r->runs, run_clear);
    vj_chunker_reset(chunker);
}

void vj_runs_clear(VjRuns *r)
{
    g_array_unref(r->runs);
}

void vj_runs_add(VjRuns *r, const VjRun *run)
{
    g_assert(run->len > 0);
    g_array_append_vals(r->runs, run, 1);
    r->bytes += run->len;
}

const VjRun *vj_runs_first(const VjRuns *r)
{
    return r->runs->len > 0 ? &g_array_index(r->runs, VjRun, 0) : NULL;
}

bool vj_runs_next_boundary(const VjRuns *r, uint64_t *distance)
{
    uint64_t bytes = 0;

    for (guint i = 0; i < r->runs->len; i++) {
        const VjRun *run = &g_array_index(r->runs, VjRun, i);

        if (i > 0 && run->boundary) {
            *distance = bytes - r->head;
            return true;
        }
        bytes += run->len;
    }
    return false;
}

void vj_runs_drop(VjRuns *r, size_t len)
{
    guint gone = 0;

    g_assert(len <= r->bytes);
    r->bytes -= len;
    r->head += len;
    while (gone < r->runs->len && r->head >= g_array_index(r->runs, VjRun, gone).len) {
        r->head -= g_array_index(r->runs, VjRun, gone).len;
        gone++;
    }
    if (gone > 0) {
        g_array_remove_range(r->runs, 0, gone);
    }
}

static VjBuf *gather(const VjRuns *r, size_t len)
{
    VjBuf *all = vj_buf_new(len);
    size_t head = r->head, done = 0;

    if (all == NULL) {
        return NULL;
    }
    for (guint i = 0; done < len; i++, head = 0) {
        const VjRun *run = &g_array_index(r->runs, VjRun, i);
        size_t take = MIN(run->len - head, len - done);

        memcpy(all->data + done, run->data + head, take);
        done += take;
    }
    all->len = len;
    return all;
}

/* The first @len bytes lie in two runs that need no holder. */
static bool are_two(const VjRuns *r, size_t len)
{
    const VjRun *run = vj_runs_first(r);

    return r->runs->len > 1 && run[0].holder == NULL && run[1].holder == NULL &&
           run[0].len - r->head + run[1].len >= len;
}

int vj_runs_take(VjRuns *r, size_t len, bool in_two, VjPlain *out)
{
    const VjRun *first = vj_runs_first(r);
    size_t have = first->len - r->head;

    g_assert(len > 0 && len <= r->bytes && len <= VJ_OBJECT_PLAIN_MAX);
    *out = (VjPlain){.plain = first->data + r->head, .len = (uint32_t)len};
    if (have >= len) {
        out->holder = first->holder != NULL ? vj_buf_ref(first->holder) : NULL;
    } else if (in_two && are_two(r, len)) {
        out->first_len = (uint32_t)have;
        out->rest = first[1].data;
    } else {
        out->holder = gather(r, len);
        if (out->holder == NULL) {
            return -ENOMEM;
        }
        out->plain = out->holder->data;
    }
    vj_runs_drop(r, len);
    return 0;
}

bool vj_runs_scan(VjRuns *r, uint64_t limit, bool at_end, uint64_t *cut)
{
    uint64_t skip, left;
    size_t head = r->head;
    bool found = false;

    if (limit < r->fed_bytes) {
        vj_chunker_reset(r->chunker);
        r->fed_bytes = 0;
    }
    skip = r->fed_bytes;
    left = limit - skip;
    for (guint i = 0; i < r->runs->len && left > 0 && !found; i++, head = 0) {
        const VjRun *run = &g_array_index(r->runs, VjRun, i);
        size_t have = run->len - head, take;

        if (skip >= have) {
            skip -= have;
            continue;
        }
        take = (size_t)MIN(have - skip, left);
        found = vj_chunker_scan(r->chunker, run->data + head + skip, take, false, cut);
        r->fed_bytes += take;
        left -= take;
        skip = 0;
    }
    if (!found && at_end) {
        found = vj_chunker_scan(r->chunker, NULL, 0, true, cut);
    }
    if (found) {
        r->fed_bytes = 0;
    }
    return found;
}
