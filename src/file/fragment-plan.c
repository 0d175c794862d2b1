/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fragment-plan.c - from a few small changes to the regions of the map that change
 *
 * A caller of fsync shall not wait for objects: new bytes become fragments, and the old
 * objects that a change cuts are named in parts.
 *
 *   old   …|------------------|-----------------|…        '|' old boundaries
 *   new   …|-----A1-----|NNNN|--A2--|-----------|…  A1, A2: parts of an object, N:
 *         fragments
 *
 * Every cut through an object has a fragment beside it, for a mere delete one of a few
 * old bytes: remap.c finds by them what is to be cut as objects later, and nothing else
 * has to be remembered.  A fragment is named by one entry: what is left of one that is
 * cut becomes part of the new ones.  Short neighbours are taken in, so that what grows
 * byte by byte does not leave a record for each.
 */
#include "file/write-back-private.h"

/* Old bytes beside a delete that become a fragment. */
#define MARK_BYTES 64u
/* As in recut.c: shorter holes become zero bytes. */
#define HOLE_LEAST 4096u
/* Outs of one commit, against a sequence of many holes. */
#define OUTS_MOST 1024u

typedef struct Plan {
    VjRecut *c;
    const VjTransform *want;
    GByteArray *data;  /* joins the next fragments */
    size_t data_bytes; /* of all fragments so far */
    size_t span;       /* the next byte is at offset in that span */
    uint64_t offset;
    VjRegion region;
    VjOldEntry cut; /* what the last out is a part of, whose end was cut off */
    bool owes;      /* that out has no fragment behind it yet */
} Plan;

/* ---- output ------------------------------------------------------------------------ */

static void flush_data(Plan *p)
{
    const uint8_t *data = p->data->data;
    size_t left = p->data->len;

    while (left > 0) {
        size_t len = MIN(left, VJ_FRAGMENT_MOST);
        VjOut *out = vj_out_new(p->c, VJ_ENTRY_FRAGMENT, len);

        out->fragment = vj_fragment_new(p->want, data, len);
        p->data_bytes += len;
        p->owes = false;
        data += len;
        left -= len;
    }
    g_byte_array_set_size(p->data, 0);
}

static VjOut *last_out(const Plan *p)
{
    GPtrArray *outs = p->c->outs;

    return outs->len > p->region.first_out ? outs->pdata[outs->len - 1] : NULL;
}

/* Old bytes join the data.  Damage: vj_is_damage(). */
static int take_old(Plan *p, const VjOldEntry *e, uint64_t skip, uint64_t len)
{
    guint before = p->data->len;
    int r;

    g_byte_array_set_size(p->data, before + (guint)len);
    r = vj_old_entry_read(p->c->old, e, skip, p->data->data + before, len);
    if (r < 0) {
        g_byte_array_set_size(p->data, before);
    }
    return r;
}

/* What follows is no data: the end of a part that was cut becomes a fragment. */
static int place_cut(Plan *p)
{
    VjOut *out = last_out(p);
    uint64_t mark;
    int r;

    if (!p->owes || p->data->len > 0) {
        flush_data(p);
        return 0;
    }
    p->owes = false;
    mark = MIN(out->length, MARK_BYTES);
    r = take_old(p, &p->cut, out->start - p->cut.entry.start + out->length - mark, mark);
    if (r < 0) {
        return vj_is_damage(r) ? 0 : r;
    }
    out->length -= mark;
    if (out->length == 0) {
        g_free(out);
        g_ptr_array_set_size(p->c->outs, (gint)p->c->outs->len - 1);
    }
    flush_data(p);
    return 0;
}

static void put_stored(Plan *p, VjEntryKind kind, uint64_t id, uint64_t start,
                       uint64_t len)
{
    VjOut *out = vj_out_new(p->c, kind, len);

    out->stored = id;
    out->start = (uint32_t)start;
}

/* A part of an old object: it does not begin there, or it does not end there, or both. */
static int add_object_part(Plan *p, const VjOldEntry *e, uint64_t skip, uint64_t len)
{
    bool cut_behind = skip + len < e->entry.length;
    int r = 0;

    if (skip > 0 && p->data->len == 0) {
        VjOut *last;

        r = place_cut(p); /* the part before may owe one: then it is behind that */
        last = last_out(p);
        if (r == 0 && (last == NULL || last->kind != VJ_ENTRY_FRAGMENT)) {
            uint64_t mark = MIN(len, MARK_BYTES);

            r = take_old(p, e, skip, mark);
            if (r == 0) {
                skip += mark;
                len -= mark;
            } else if (vj_is_damage(r)) {
                r = 0;
            }
        }
    }
    if (r < 0) {
        return r;
    }
    flush_data(p);
    if (len > 0) {
        put_stored(p, VJ_ENTRY_OBJECT, e->entry.id, e->entry.start + skip, len);
        p->owes = cut_behind;
        p->cut = *e;
    }
    return 0;
}

/* [skip, skip + len) of old entry @e, which is not all of it. */
static int add_part(Plan *p, const VjOldEntry *e, uint64_t skip, uint64_t len)
{
    int r;

    switch ((VjEntryKind)e->entry.kind) {
    case VJ_ENTRY_OBJECT:
        return add_object_part(p, e, skip, len);
    case VJ_ENTRY_HOLE:
        r = place_cut(p);
        if (r == 0) {
            put_stored(p, VJ_ENTRY_HOLE, 0, 0, len);
        }
        return r;
    case VJ_ENTRY_FRAGMENT:
        break;
    }
    r = take_old(p, e, skip, len);
    if (vj_is_damage(r)) { /* the map goes on naming what cannot be read */
        r = place_cut(p);
        if (r == 0) {
            put_stored(p, VJ_ENTRY_FRAGMENT, e->entry.id, e->entry.start + skip, len);
        }
    }
    return r;
}

/* ---- regions ----------------------------------------------------------------------- */

static bool may_join(const Plan *p, const VjOldEntry *e)
{
    return e->entry.kind == VJ_ENTRY_FRAGMENT && p->data->len > 0 &&
           p->data->len + e->entry.length <= VJ_FRAGMENT_MOST;
}

/* Bytes of memory at the current place of the spans: what a neighbour could be joined
 * with. */
static uint64_t memory_here(const Plan *p)
{
    const VjPiece *span = &p->c->spans[p->span];

    return p->span < p->c->span_count && span->kind == VJ_PIECE_MEMORY ? span->length : 0;
}

/* The region begins at the start of the old entry that @x cuts, or that may be joined. */
static int begin_region(Plan *p, uint64_t x)
{
    uint64_t here = memory_here(p);
    VjOldEntry e;
    int r;

    p->region = (VjRegion){.old_from = x, .first_out = p->c->outs->len};
    p->owes = false;
    if (x == 0) {
        return 0;
    }
    r = vj_old_map_at(p->c->old, x - 1, &e);
    if (r < 0) {
        return r;
    }
    if (e.at + e.entry.length > x) {
        p->region.old_from = e.at;
        return add_part(p, &e, 0, x - e.at);
    }
    if (e.entry.kind == VJ_ENTRY_FRAGMENT && here > 0 &&
        e.entry.length + here <= VJ_FRAGMENT_MOST) {
        r = take_old(p, &e, 0, e.entry.length);
        if (r == 0) {
            p->region.old_from = e.at;
        }
        return vj_is_damage(r) ? 0 : r;
    }
    return 0;
}

static void advance(Plan *p, uint64_t len)
{
    p->offset += len;
    if (p->offset == p->c->spans[p->span].length) {
        p->span++;
        p->offset = 0;
    }
}

/* A range of the old map within a region.  *at_end: the region ends before it. */
static int take_base(Plan *p, const VjPiece *span, bool *at_end)
{
    uint64_t from = span->start + p->offset, left = span->length - p->offset, take;
    VjOldEntry e;
    int r = vj_old_map_at(p->c->old, from, &e);

    if (r < 0) {
        return r == -ENOENT ? -EBADMSG : r;
    }
    take = MIN(e.at + e.entry.length - from, left);
    if (from > e.at) {
        r = add_part(p, &e, from - e.at, take);
    } else if (take == e.entry.length && may_join(p, &e)) {
        r = take_old(p, &e, 0, take);
        if (vj_is_damage(r)) {
            *at_end = true;
            r = 0;
        }
    } else {
        *at_end = true;
    }
    if (r == 0 && !*at_end) {
        advance(p, take);
    }
    return r;
}

static int take_span(Plan *p, bool *at_end)
{
    const VjPiece *span = &p->c->spans[p->span];
    int r;

    if (p->data_bytes + p->data->len > 2 * VJ_SMALL_BYTES ||
        p->c->outs->len > OUTS_MOST) {
        return -E2BIG;
    }
    switch (span->kind) {
    case VJ_PIECE_BASE:
        return take_base(p, span, at_end);
    case VJ_PIECE_MEMORY:
        g_byte_array_append(p->data, span->mem->data + span->start, (guint)span->length);
        break;
    case VJ_PIECE_HOLE:
        if (span->length < HOLE_LEAST) {
            guint before = p->data->len;

            g_byte_array_set_size(p->data, before + (guint)span->length);
            memset(p->data->data + before, 0, span->length);
            break;
        }
        r = place_cut(p);
        if (r < 0) {
            return r;
        }
        put_stored(p, VJ_ENTRY_HOLE, 0, 0, span->length);
        break;
    case VJ_PIECE_OBJECT:
        r = place_cut(p);
        if (r < 0) {
            return r;
        }
        put_stored(p, VJ_ENTRY_OBJECT, span->object, span->start, span->length);
        break;
    }
    advance(p, span->length);
    return 0;
}

/* One region that begins with a change at old offset @x.  *region_end: where it ends. */
static int plan_region(Plan *p, uint64_t x, uint64_t *region_end)
{
    bool at_end = false;
    int r = begin_region(p, x);

    while (r == 0 && !at_end && p->span < p->c->span_count) {
        r = take_span(p, &at_end);
    }
    if (r == 0) {
        r = place_cut(p);
    }
    if (r < 0) {
        return r;
    }
    *region_end = at_end ? p->c->spans[p->span].start + p->offset : p->c->old->root.bytes;
    p->region.old_to = *region_end;
    p->region.out_count = p->c->outs->len - p->region.first_out;
    g_assert(p->region.old_to >= p->region.old_from);
    g_array_append_val(p->c->regions, p->region);
    vj_count(&p->c->table->counters.regions, 1);
    return 0;
}

static int plan_all(Plan *p)
{
    VjRecut *c = p->c;
    uint64_t expected = 0, region_end;
    int r = 0;

    while (r == 0 && (p->span < c->span_count || expected < c->old->root.bytes)) {
        if (p->span < c->span_count && c->spans[p->span].kind == VJ_PIECE_BASE &&
            c->spans[p->span].start == expected) {
            expected += c->spans[p->span++].length;
            continue;
        }
        r = plan_region(p, expected, &region_end);
        expected = region_end;
        if (r == 0 && p->span < c->span_count) { /* the rest of a BASE span stands */
            const VjPiece *span = &c->spans[p->span++];

            expected = span->start + span->length;
            p->offset = 0;
        }
    }
    return r;
}

/* ---- public ------------------------------------------------------------------------ */

bool vj_spans_are_small(const VjPiece *spans, size_t count, size_t most_bytes)
{
    size_t places = 0, bytes = 0;

    for (size_t i = 0; i < count; i++) {
        if (spans[i].kind == VJ_PIECE_BASE) {
            continue;
        }
        if (spans[i].kind == VJ_PIECE_MEMORY) {
            if (spans[i].length > most_bytes - bytes) {
                return false;
            }
            bytes += spans[i].length;
        }
        if (++places > VJ_SMALL_PLACES) {
            return false;
        }
    }
    return count <= 2 * VJ_SMALL_PLACES + 1;
}

int vj_fragment_plan(VjRecut *c, const VjTransform *want)
{
    Plan p = {.c = c, .want = want, .data = g_byte_array_new()};
    int r = plan_all(&p);

    g_byte_array_unref(p.data);
    return r;
}
