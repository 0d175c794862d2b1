/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * recut.c - from a changed sequence to the regions of the map that change
 *
 * The new content is a list of spans; BASE spans are ranges of the old map.  Wherever two
 * consecutive spans do not continue the old content, a region begins:
 *
 *   old   …|------|------|--x      y--|------|------|…      '|' old boundaries
 *   new   …|------|------|--NNNNNNNN--|------|------|…
 *                 r                   q
 *
 * r is the last old boundary whose cut was decided without looking at bytes behind x.
 * From r on the new bytes are chunked until a cut falls on an old boundary q behind the
 * change: from there on the old cuts are the right ones.  After FORCE_AFTER chunks behind
 * the change without such a cut, the next old boundary is made one, so that an edit costs
 * a bounded number of objects for any data.
 *
 * Holes and shared ranges of objects are barriers: data before them is cut as at the end
 * of a file, data behind them as at its beginning.  So are old objects and fragments that
 * cannot be read: the map goes on naming what is left of them, and their loss keeps no
 * other change from becoming durable.
 */
#include "file/write-back-private.h"

#define FORCE_AFTER 8u
/* Old boundaries that a restart goes back at the most. */
#define RESTART_STEPS 8u
/* Shorter holes become zero bytes. */
#define HOLE_LEAST 4096u

static const uint8_t zeroes[HOLE_LEAST];

/* What next_source() found. */
typedef enum SourceKind {
    SOURCE_DATA,
    SOURCE_HOLE,
    SOURCE_STORED,
    SOURCE_END
} SourceKind;

typedef struct Source {
    SourceKind kind;
    VjRun run;               /* DATA */
    uint64_t length;         /* bytes of the span that it covers */
    VjEntryKind stored_kind; /* STORED: what goes on naming it, with number and start */
    uint64_t stored;
    uint32_t start;
    bool old; /* from the old map */
} Source;

/* One region in the making. */
typedef struct Region {
    VjRecut *c;
    VjRuns runs;
    size_t span; /* the source: the next byte is at offset in that span */
    uint64_t offset;
    unsigned cuts_behind; /* since the last changed byte */
    VjObject neighbours[VJ_NEIGHBOURS];
    size_t neighbour_count;
    bool agreed;
    uint64_t agreed_at; /* old offset */
    size_t agreed_span;
} Region;

/* ---- output ------------------------------------------------------------------------ */

VjOut *vj_out_new(VjRecut *c, VjEntryKind kind, uint64_t length)
{
    VjOut *out = g_new0(VjOut, 1);

    out->kind = kind;
    out->length = length;
    g_ptr_array_add(c->outs, out);
    return out;
}

static void remember_neighbour(Region *g, const VjObject *object)
{
    if (g->neighbour_count == VJ_NEIGHBOURS) {
        memmove(g->neighbours, g->neighbours + 1,
                (VJ_NEIGHBOURS - 1) * sizeof g->neighbours[0]);
        g->neighbour_count--;
    }
    g->neighbours[g->neighbour_count++] = *object;
}

/* The first @len bytes of the runs become an object. */
static int put_chunk(Region *g, size_t len)
{
    VjOut *out = vj_out_new(g->c, VJ_ENTRY_OBJECT, len);
    const uint8_t *data;
    VjBuf *holder;
    int r = vj_runs_take(&g->runs, len, &data, &holder);

    return r < 0 ? r
                 : vj_put_queue_add(g->c->queue, out, data, len, holder, g->neighbours,
                                    g->neighbour_count);
}

/* ---- the chunker over the runs ----------------------------------------------------- */

/* Cuts the first @limit bytes of the runs up entirely: a file could end there. */
static int cut_all(Region *g, uint64_t limit)
{
    int r = 0;

    while (r == 0 && limit > 0) {
        uint64_t cut;

        if (!vj_runs_scan(&g->runs, limit, true, &cut)) {
            g_assert_not_reached();
        }
        g_assert(cut > 0 && cut <= limit);
        limit -= cut;
        r = put_chunk(g, cut);
    }
    return r;
}

static bool add_ahead_piece(void *opaque, const VjPiece *piece, uint64_t at)
{
    Region *g = opaque;
    VjRun run = {.data = piece->mem->data + piece->start, .len = piece->length};

    (void)at;
    g_assert(piece->kind == VJ_PIECE_MEMORY);
    vj_runs_add(&g->runs, &run);
    return true;
}

static void add_ahead(Region *g)
{
    const VjPieces *ahead = g->c->ahead;

    vj_pieces_visit(ahead, 0, vj_pieces_length(ahead), add_ahead_piece, g);
}

/* Cuts the runs up where the spans end but more is known to follow. */
static int cut_before_ahead(Region *g)
{
    uint64_t left = g->runs.bytes, cut;
    int r = 0;

    add_ahead(g);
    while (r == 0 && left > 0 && vj_runs_scan(&g->runs, g->runs.bytes, false, &cut) &&
           cut <= left) {
        left -= cut;
        r = put_chunk(g, cut);
    }
    return r < 0 ? r : cut_all(g, left);
}

static void agree(Region *g, uint64_t old_off, size_t span)
{
    g->agreed = true;
    g->agreed_at = old_off;
    g->agreed_span = span;
}

/* After a cut: does the next chunk begin on an old boundary? */
static bool check_agreement(Region *g)
{
    const VjRun *run = vj_runs_first(&g->runs);

    if (run != NULL && g->runs.head == 0 && run->boundary) {
        agree(g, run->old_off, run->span);
    }
    return g->agreed;
}

/* Cuts the runs as far as the chunker decides; stops at an agreement. */
static int cut_decided(Region *g)
{
    uint64_t cut, distance;
    const VjRun *run;
    int r = 0;

    while (r == 0 && !g->agreed && vj_runs_scan(&g->runs, g->runs.bytes, false, &cut)) {
        r = put_chunk(g, cut);
        if (r < 0 || check_agreement(g)) {
            break;
        }
        run = vj_runs_first(&g->runs);
        if (run != NULL && run->holder != NULL && ++g->cuts_behind >= FORCE_AFTER &&
            vj_runs_next_boundary(&g->runs, &distance)) {
            vj_count(&g->c->table->counters.forced_cuts, 1);
            r = cut_all(g, distance);
            if (r == 0) {
                check_agreement(g);
            }
        }
    }
    return r;
}

/* ---- the source -------------------------------------------------------------------- */

/* [from, from + len) of old entry @e as a source. */
static int source_from_entry(Region *g, const VjOldEntry *e, uint64_t from, uint64_t len,
                             Source *s)
{
    uint64_t start = e->entry.start + (from - e->at);
    int r;

    s->old = true;
    s->length = len;
    s->stored_kind = e->entry.kind;
    s->stored = e->entry.id;
    s->start = (uint32_t)start;
    if (e->entry.kind == VJ_ENTRY_HOLE) {
        s->kind = SOURCE_HOLE;
        return 0;
    }
    if (g->c->frugal) {
        s->kind = SOURCE_STORED;
        return 0;
    }
    s->kind = SOURCE_DATA;
    s->run.holder = vj_buf_new(len);
    if (s->run.holder == NULL) {
        return -ENOMEM;
    }
    if (e->entry.kind == VJ_ENTRY_OBJECT) {
        remember_neighbour(g, &e->object);
    }
    r = vj_old_entry_read(g->c->old, e, from - e->at, s->run.holder->data, len);
    if (r < 0) {
        vj_buf_unref(g_steal_pointer(&s->run.holder));
        if (vj_is_damage(r)) {
            s->kind = SOURCE_STORED;
            return 0;
        }
        return r;
    }
    s->run.holder->len = len;
    s->run.data = s->run.holder->data;
    s->run.len = len;
    return 0;
}

/* What comes at the current position of the spans. */
static int next_source(Region *g, Source *s)
{
    const VjPiece *span;
    VjOldEntry e;
    uint64_t from;
    int r;

    *s = (Source){.kind = SOURCE_END};
    if (g->span == g->c->span_count) {
        return 0;
    }
    span = &g->c->spans[g->span];
    s->length = span->length - g->offset;
    switch (span->kind) {
    case VJ_PIECE_MEMORY:
        s->kind = SOURCE_DATA;
        s->run.data = span->mem->data + span->start + g->offset;
        s->run.len = s->length;
        return 0;
    case VJ_PIECE_HOLE:
        s->kind = s->length < HOLE_LEAST ? SOURCE_DATA : SOURCE_HOLE;
        s->run.data = zeroes;
        s->run.len = s->length;
        return 0;
    case VJ_PIECE_OBJECT:
        s->kind = SOURCE_STORED;
        s->stored_kind = VJ_ENTRY_OBJECT;
        s->stored = span->object;
        s->start = (uint32_t)(span->start + g->offset);
        return 0;
    case VJ_PIECE_BASE:
        break;
    }
    from = span->start + g->offset;
    r = vj_old_map_at(g->c->old, from, &e);
    if (r < 0) {
        return r == -ENOENT ? -EBADMSG : r;
    }
    if (from == e.at) {
        s->run.boundary = true;
        s->run.old_off = from;
        s->run.span = g->span;
        /* A barrier of the old map, or nothing left to chunk: this is where it agrees. */
        if (e.entry.kind == VJ_ENTRY_HOLE || g->runs.bytes == 0 || g->c->frugal) {
            s->old = true;
            s->kind = SOURCE_HOLE;
            return 0;
        }
    }
    return source_from_entry(g, &e, from, MIN(e.at + e.entry.length - from, s->length),
                             s);
}

static void advance(Region *g, uint64_t length)
{
    g->offset += length;
    if (g->offset == g->c->spans[g->span].length) {
        g->span++;
        g->offset = 0;
    }
}

static void add_barrier(Region *g, const Source *s)
{
    if (s->kind == SOURCE_HOLE) {
        vj_out_new(g->c, VJ_ENTRY_HOLE, s->length);
    } else {
        VjOut *out = vj_out_new(g->c, s->stored_kind, s->length);

        out->stored = s->stored;
        out->start = s->start;
    }
}

/* Takes one source in.  The region is over when g->agreed. */
static int take_source(Region *g, Source *s)
{
    int r;

    if (s->kind == SOURCE_DATA) {
        vj_runs_add(&g->runs, &s->run);
        advance(g, s->length);
        if (!s->old) {
            g->cuts_behind = 0;
        }
        return cut_decided(g);
    }
    r = s->kind == SOURCE_END && g->c->ahead != NULL ? cut_before_ahead(g)
                                                     : cut_all(g, g->runs.bytes);
    if (r < 0) {
        return r;
    }
    if (s->kind == SOURCE_END) {
        agree(g, g->c->old->root.bytes, g->span);
    } else if (s->run.boundary) {
        agree(g, s->run.old_off, s->run.span);
    } else {
        add_barrier(g, s);
        advance(g, s->length);
    }
    return 0;
}

/* ---- the start of a region --------------------------------------------------------- */

/* True when the byte behind the change belongs to no run: no cut before it depends on
 * it. */
static bool barrier_follows(const Region *g)
{
    const VjPiece *span;

    if (g->span == g->c->span_count) {
        return true;
    }
    span = &g->c->spans[g->span];
    return span->kind == VJ_PIECE_OBJECT ||
           (span->kind == VJ_PIECE_HOLE && span->length >= HOLE_LEAST);
}

/* The last old boundary >= @lower whose cut did not look at bytes behind @x. */
static int find_restart(Region *g, uint64_t x, uint64_t lower, uint64_t *restart)
{
    VjRecut *c = g->c;
    VjOldEntry e;
    int r;

    *restart = x;
    if (x == lower || x == 0) {
        return 0;
    }
    r = vj_old_map_at(c->old, x - 1, &e);
    if (r < 0) {
        return r;
    }
    bool on_boundary = e.at + e.entry.length == x;

    if (on_boundary &&
        (barrier_follows(g) || c->frugal || e.entry.kind == VJ_ENTRY_HOLE)) {
        return 0;
    }
    *restart = e.at;
    for (unsigned i = 0; i < RESTART_STEPS; i++) {
        VjChunkSizes sizes = vj_chunker_sizes(c->chunker);
        uint64_t length;

        if (c->frugal || *restart <= lower || e.entry.kind == VJ_ENTRY_HOLE) {
            break;
        }
        r = vj_old_map_at(c->old, *restart - 1, &e);
        if (r < 0) {
            return r;
        }
        length = CLAMP(e.entry.length, sizes.min_bytes, sizes.max_bytes);
        if (e.entry.kind == VJ_ENTRY_HOLE ||
            e.at + vj_chunker_decision_bytes(c->chunker, length) <= x) {
            break;
        }
        *restart = e.at;
    }
    g_assert(*restart >= lower);
    return 0;
}

/* Old bytes [from, x) lead the region in. */
static int lead_in(Region *g, uint64_t from, uint64_t x)
{
    int r = 0;

    while (r == 0 && from < x) {
        Source s = {.kind = SOURCE_END};
        VjOldEntry e;

        r = vj_old_map_at(g->c->old, from, &e);
        if (r == 0) {
            r = source_from_entry(g, &e, from, MIN(e.at + e.entry.length, x) - from, &s);
        }
        if (r < 0) {
            break;
        }
        from += s.length;
        if (s.kind == SOURCE_DATA) {
            vj_runs_add(&g->runs, &s.run);
            r = cut_decided(g);
        } else {
            r = cut_all(g, g->runs.bytes);
            add_barrier(g, &s);
        }
    }
    g->cuts_behind = 0;
    return r;
}

/*
 * One region that begins with a change at old offset @x; the source stands behind it.
 * *next_span, *agreed_to: where to go on.
 */
static int recut_region(VjRecut *c, uint64_t x, uint64_t lower, size_t *span,
                        uint64_t *agreed_to)
{
    Region g = {.c = c, .span = *span};
    VjRegion region = {.first_out = c->outs->len};
    int r;

    vj_runs_init(&g.runs, c->chunker);
    r = find_restart(&g, x, lower, &region.old_from);
    if (r == 0) {
        r = lead_in(&g, region.old_from, x);
    }
    while (r == 0 && !g.agreed) {
        Source s;

        r = next_source(&g, &s);
        if (r == 0) {
            r = take_source(&g, &s);
        }
    }
    if (r == 0) {
        region.old_to = g.agreed_at;
        region.out_count = c->outs->len - region.first_out;
        g_array_append_val(c->regions, region);
        vj_count(&c->table->counters.regions, 1);
        *span = g.agreed_span;
        *agreed_to = g.agreed_at;
    }
    vj_runs_clear(&g.runs);
    return r;
}

int vj_recut(VjRecut *c)
{
    uint64_t agreed_to = 0, expected = 0;
    size_t i = 0;
    int r = 0;

    while (r == 0 && (i < c->span_count || expected < c->old->root.bytes)) {
        if (i < c->span_count && c->spans[i].kind == VJ_PIECE_BASE &&
            c->spans[i].start == expected) {
            expected = c->spans[i].start + c->spans[i].length;
            i++;
            continue;
        }
        r = recut_region(c, expected, agreed_to, &i, &agreed_to);
        expected = agreed_to;
        if (i < c->span_count) { /* agreed inside a BASE span: the rest of it stands */
            const VjPiece *span = &c->spans[i];

            g_assert(r < 0 || (span->kind == VJ_PIECE_BASE && agreed_to >= span->start &&
                               agreed_to < span->start + span->length));
            expected = span->start + span->length;
            i++;
        }
    }
    return r;
}
