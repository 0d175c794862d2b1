/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * recode.c - content that does not change, stored anew under the file's settings
 *
 * A step goes through the old map from an offset on, cuts its bytes as the file's object
 * sizes say, and replaces what is not an object of exactly such a chunk under the
 * transformation asked for:
 *
 *   old   …|------|------|------|------|…      '|' old boundaries
 *   new   …|---KKKKKK|KKKKKK|KKK~~~~~~~|…      K stored anew, ~ the rest of an old object
 *            from             to
 *
 * It ends with a chunk of the new cuts and not with an old boundary: then every step cuts
 * where a writer of the whole file would have cut, and a second run finds nothing to do.
 * What is left of the old object there is named by the map until the next step takes it.
 * Holes, and what cannot be read, are barriers as in recut.c and stay.
 */
#include "file/write-back-private.h"

/* A step is over behind so many entries of the old map. */
#define STEP_ENTRIES 4096u
/* Entries that wait for one cut: more make one. */
#define WAITING_ENTRIES 16384u

typedef struct Step {
    VjRecut *c;
    VjRecodePlan *plan;
    VjRuns runs;
    uint64_t pos;    /* in the map, of the next chunk */
    uint64_t source; /* of the next entry to read */
    guint entries;   /* read so far */
    bool is_open;    /* region has begun */
    VjRegion region;
} Step;

/* @at is an old boundary. */
static void region_close(Step *s, uint64_t at)
{
    if (s->is_open) {
        s->region.old_to = at;
        s->region.out_count = s->c->outs->len - s->region.first_out;
        g_array_append_val(s->c->regions, s->region);
        s->is_open = false;
    }
}

static int store_chunk(Step *s, size_t len)
{
    const VjPutQueue *q = s->c->queue;
    VjPlain content;
    VjOut *out;
    int r;

    if (!s->is_open) {
        g_assert(s->runs.head == 0);
        s->region = (VjRegion){.old_from = s->pos, .first_out = s->c->outs->len};
        s->is_open = true;
    }
    out = vj_out_new(s->c, VJ_ENTRY_OBJECT, len);
    r = vj_runs_take(&s->runs, len, vj_objects_take_two(q->table->objects, &q->want),
                     &content);
    if (r == 0) {
        s->plan->rewritten_bytes += len;
        r = vj_put_queue_add(s->c->queue, out, &content, NULL, 0);
    }
    return r;
}

/* The first @len bytes of the runs are one chunk. */
static int chunk(Step *s, size_t len)
{
    const VjRun *first = vj_runs_first(&s->runs);
    int r = 0;

    if (s->runs.head == 0 && first->is_current && first->len == len) {
        region_close(s, s->pos);
        vj_runs_drop(&s->runs, len);
    } else {
        r = store_chunk(s, len);
    }
    s->pos += len;
    return r;
}

/* Cuts the runs up entirely, as at the end of a file. */
static int cut_all(Step *s)
{
    int r = 0;

    while (r == 0 && s->runs.bytes > 0) {
        uint64_t cut;

        if (!vj_runs_scan(&s->runs, s->runs.bytes, true, &cut)) {
            g_assert_not_reached();
        }
        r = chunk(s, cut);
    }
    return r;
}

static int barrier(Step *s, const VjOldEntry *e)
{
    int r = cut_all(s);

    if (r == 0) {
        g_assert(s->pos == e->at);
        region_close(s, s->pos);
        s->pos += e->entry.length;
    }
    return r;
}

/* An object of exactly this content under what is asked for. */
static bool is_current(const Step *s, const VjOldEntry *e)
{
    const VjTransform *want = &s->c->queue->want;
    const VjObject *o = &e->object;

    return e->entry.kind == VJ_ENTRY_OBJECT && e->entry.start == 0 &&
           e->entry.length == o->plain_bytes && o->requested_codec == want->codec &&
           o->param == want->param && o->key_id == want->key_id &&
           (o->flags & VJ_OBJECT_DAMAGED) == 0;
}

/* The content of @e joins the runs. */
static int read_entry(Step *s, const VjOldEntry *e)
{
    VjRun run = {
        .len = e->entry.length,
        .boundary = true,
        .old_off = e->at,
        .entry = e->entry,
        .is_current = is_current(s, e),
        .holder = vj_buf_new(e->entry.length),
    };
    int r;

    if (run.holder == NULL) {
        return -ENOMEM;
    }
    r = vj_old_entry_read(s->c->old, e, 0, run.holder->data, run.len);
    if (r < 0) {
        vj_buf_unref(run.holder);
        return r;
    }
    run.holder->len = run.len;
    run.data = run.holder->data;
    vj_runs_add(&s->runs, &run);
    return 0;
}

static int take_entry(Step *s)
{
    VjOldEntry e;
    int r = vj_old_map_at(s->c->old, s->source, &e);

    if (r < 0) {
        return r == -ENOENT ? -EBADMSG : r;
    }
    g_assert(e.at == s->source);
    if (e.entry.kind == VJ_ENTRY_HOLE) {
        r = barrier(s, &e);
    } else {
        r = read_entry(s, &e);
        if (vj_is_damage(r)) {
            s->plan->unreadable_bytes += e.entry.length;
            r = barrier(s, &e);
        }
    }
    s->source += e.entry.length;
    s->entries++;
    return r < 0 || s->runs.runs->len < WAITING_ENTRIES ? r : cut_all(s);
}

static bool is_enough(const Step *s)
{
    return s->pos - s->plan->from >= s->c->table->recode_step_bytes ||
           (s->entries >= STEP_ENTRIES && s->pos > s->plan->from);
}

/* The step ends here; the rest of an old entry that was begun goes on being named. */
static void finish(Step *s)
{
    const VjRun *first = vj_runs_first(&s->runs);
    uint64_t rest = 0;

    if (first != NULL && s->runs.head > 0) {
        VjOut *out;

        rest = first->len - s->runs.head;
        out = vj_out_new(s->c, first->entry.kind, rest);
        out->stored = first->entry.id;
        out->start = first->entry.start + (uint32_t)s->runs.head;
    }
    region_close(s, s->pos + rest);
    s->plan->to = s->pos;
}

int vj_recode_plan(VjRecut *c, VjRecodePlan *plan)
{
    Step s = {.c = c, .plan = plan};
    VjOldEntry e;
    int r;

    plan->rewritten_bytes = plan->unreadable_bytes = 0;
    plan->to = c->old->root.bytes;
    if (plan->from >= c->old->root.bytes) {
        return 0;
    }
    r = vj_old_map_at(c->old, plan->from, &e);
    if (r < 0) {
        return r == -ENOENT ? -EBADMSG : r;
    }
    plan->from = s.pos = s.source = e.at;
    vj_runs_init(&s.runs, c->chunker);
    while (r == 0 && !is_enough(&s)) {
        uint64_t cut;

        if (vj_runs_scan(&s.runs, s.runs.bytes, false, &cut)) {
            r = chunk(&s, cut);
        } else if (s.source < c->old->root.bytes) {
            r = take_entry(&s);
        } else {
            r = cut_all(&s);
            break;
        }
    }
    if (r == 0) {
        finish(&s);
    }
    vj_runs_clear(&s.runs);
    return r;
}
