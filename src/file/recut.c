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
 * Where content follows that stays, and a change brings at most 40 chunks, a region that
 * is not canonical sends less: it begins and ends with what the change cuts,
 *
 *   new   …|------|------|AA|NNNNNNNNNN|----|------|…      A: a part of an old object
 *
 * A part goes on being named if it is sound: at least half of its object and a quarter of
 * the mean chunk.  So objects hold at most as many dead bytes as living ones, and pieces
 * stay large however many edits there are.  What is not sound is cut anew together with
 * the new bytes, which are chunked by themselves.  A change of less than a quarter of a
 * chunk takes in the parts on both sides: one object instead of three pieces.
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
/* Beyond so many chunks of new bytes a region is canonical. */
#define PARTS_CHUNKS 40u
/* No piece is made that is shorter than the mean chunk by this factor. */
#define PARTS_SHARE 4u

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
    bool by_parts;        /* sound parts of old objects stay; else canonical */
    bool keep_left;       /* by_parts: the part before the change stays */
    bool goes_on;         /* by_parts: the cuts before the change are canonical */
    uint64_t new_bytes;   /* by_parts: in the runs or cut, since the last barrier */
    uint64_t old_behind;  /* by_parts: old bytes since the last changed byte */
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
    const VjPutQueue *q = g->c->queue;
    VjPlain content;
    int r = vj_runs_take(&g->runs, len, vj_objects_take_two(q->table->objects, &q->want),
                         &content);

    return r < 0 ? r
                 : vj_put_queue_add(g->c->queue, out, &content, g->neighbours,
                                    g->neighbour_count);
}

/* ---- parts of old objects ---------------------------------------------------------- */

static uint64_t least_piece(const Region *g)
{
    return vj_chunker_sizes(g->c->chunker).avg_bytes / PARTS_SHARE;
}

/* @len bytes of @e may be named by themselves. */
static bool is_sound(const Region *g, const VjOldEntry *e, uint64_t len)
{
    switch ((VjEntryKind)e->entry.kind) {
    case VJ_ENTRY_HOLE:
        return true;
    case VJ_ENTRY_OBJECT:
        return len >= least_piece(g) && len >= e->object.plain_bytes - len;
    case VJ_ENTRY_FRAGMENT:
        break;
    }
    return false;
}

/* What waits to be cut may end before sound old content. */
static bool may_end(const Region *g)
{
    return g->runs.bytes >= least_piece(g);
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

/* As cut_all() of all runs, but the last chunk is not shorter than the least piece if
 * that can be avoided. */
static int cut_even(Region *g)
{
    const uint64_t least = least_piece(g);
    const uint64_t most = vj_chunker_sizes(g->c->chunker).max_bytes;
    int r = 0;

    while (r == 0 && g->runs.bytes > 0) {
        uint64_t left = g->runs.bytes, cut;

        if (!vj_runs_scan(&g->runs, left, true, &cut)) {
            g_assert_not_reached();
        }
        if (left - cut < least) {
            cut = left <= most ? left : left / 2;
        }
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

/* By parts: so much waits that what is left behind a cut is not shorter than the least
 * piece. */
static bool may_cut(const Region *g)
{
    uint64_t most = vj_chunker_sizes(g->c->chunker).max_bytes;

    return !g->by_parts || g->runs.bytes >= most + least_piece(g);
}

/* Cuts the runs as far as the chunker decides; stops at an agreement. */
static int cut_decided(Region *g)
{
    uint64_t cut, distance;
    const VjRun *run;
    int r = 0;

    while (r == 0 && !g->agreed && may_cut(g) &&
           vj_runs_scan(&g->runs, g->runs.bytes, false, &cut)) {
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

/* [from, from + len) of old entry @e as a source; @keep: by its name. */
static int source_from_entry(Region *g, const VjOldEntry *e, uint64_t from, uint64_t len,
                             bool keep, Source *s)
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
    if (g->c->frugal || keep) {
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

/* By parts: @len bytes of @e come next, from its middle on.  They go on being named. */
static bool keep_right(const Region *g, const VjOldEntry *e, uint64_t len)
{
    bool is_small = g->new_bytes > 0 && g->new_bytes < least_piece(g);

    return g->by_parts && is_sound(g, e, len) &&
           (g->runs.bytes == 0 || (may_end(g) && !is_small));
}

/* By parts: @len bytes of @e come next, from its start on.  The region ends there. */
static bool end_before(const Region *g, const VjOldEntry *e, uint64_t len)
{
    return g->by_parts && may_end(g) &&
           (is_sound(g, e, len) || g->old_behind >= least_piece(g));
}

/* What comes at the current position of the spans. */
static int next_source(Region *g, Source *s)
{
    const VjPiece *span;
    VjOldEntry e;
    uint64_t from, len;
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
        if (e.entry.kind == VJ_ENTRY_HOLE || g->runs.bytes == 0 || g->c->frugal ||
            end_before(g, &e, MIN(e.entry.length, s->length))) {
            s->old = true;
            s->kind = SOURCE_HOLE;
            return 0;
        }
    }
    len = MIN(e.at + e.entry.length - from, s->length);
    return source_from_entry(g, &e, from, len, from > e.at && keep_right(g, &e, len), s);
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

/* Cuts the runs up where something else than data comes. */
static int cut_rest(Region *g, const Source *s)
{
    if (s->kind == SOURCE_END) {
        return g->c->ahead != NULL ? cut_before_ahead(g) : cut_all(g, g->runs.bytes);
    }
    return g->by_parts ? cut_even(g) : cut_all(g, g->runs.bytes);
}

/* Takes one source in.  The region is over when g->agreed. */
static int take_source(Region *g, Source *s)
{
    int r;

    if (s->kind == SOURCE_DATA) {
        vj_runs_add(&g->runs, &s->run);
        advance(g, s->length);
        if (s->old) {
            g->old_behind += s->length;
        } else {
            g->cuts_behind = 0;
            g->old_behind = 0;
            g->new_bytes += s->length;
        }
        return cut_decided(g);
    }
    r = cut_rest(g, s);
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
        g->new_bytes = g->old_behind = 0;
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

/* By parts: the last old boundary before @x, or one before short neighbours. */
static int find_parts_restart(Region *g, uint64_t x, uint64_t lower, uint64_t *restart)
{
    const uint64_t least = least_piece(g);
    uint64_t from = x;
    VjOldEntry e;
    int r;

    *restart = x;
    if (x == lower || x == 0) {
        return 0;
    }
    r = vj_old_map_at(g->c->old, x - 1, &e);
    if (r < 0) {
        return r;
    }
    if (e.at + e.entry.length > x) {
        g->keep_left = g->keep_left && is_sound(g, &e, x - e.at);
        from = e.at;
    } else {
        g->keep_left = false;
    }
    while (!g->keep_left && g->new_bytes > 0 && x - from < least && from > lower) {
        r = vj_old_map_at(g->c->old, from - 1, &e);
        if (r < 0 || is_sound(g, &e, e.entry.length)) {
            break;
        }
        from = e.at;
    }
    g_assert(from >= lower);
    *restart = from;
    return r;
}

/*
 * Whether the region that the source begins is made by parts: content that stays follows
 * the change.  Where the file grows, at its end or into a hole, the cuts shall be those
 * of a file that was written at once; so shall those of a stream that overwrites a file,
 * but for one at the end of each round.  Sets what is by_parts, and new_bytes.
 */
static int choose_parts(Region *g, uint64_t x)
{
    const VjRecut *c = g->c;
    const VjPiece *span = NULL;
    uint64_t most = (uint64_t)PARTS_CHUNKS * vj_chunker_sizes(c->chunker).avg_bytes;
    uint64_t new_bytes = 0;
    VjOldEntry e;
    int r;

    if (!c->by_parts || c->frugal) {
        return 0;
    }
    for (size_t i = g->span; i < c->span_count && new_bytes <= most; i++) {
        span = &c->spans[i];
        if (span->kind != VJ_PIECE_MEMORY &&
            (span->kind != VJ_PIECE_HOLE || span->length >= HOLE_LEAST)) {
            break;
        }
        new_bytes += span->length;
    }
    if (span == NULL || span->kind != VJ_PIECE_BASE || new_bytes > most) {
        return 0;
    }
    r = vj_old_map_at(c->old, span->start, &e);
    if (r < 0) {
        return r == -ENOENT ? -EBADMSG : r;
    }
    if (e.entry.kind == VJ_ENTRY_HOLE) {
        return 0;
    }
    g->by_parts = true;
    g->new_bytes = new_bytes;
    g->goes_on = x > 0 && x == c->stream_from && span->start - x == new_bytes;
    if (g->goes_on) {
        g->keep_left = false;
    } else if (new_bytes == 0) {
        uint64_t skip = span->start - e.at;

        g->keep_left =
            skip == 0 || is_sound(g, &e, MIN(e.entry.length - skip, span->length));
    } else {
        g->keep_left = new_bytes >= least_piece(g);
    }
    return 0;
}

static int find_start(Region *g, uint64_t x, uint64_t lower, uint64_t *restart)
{
    int r = choose_parts(g, x);

    if (r < 0) {
        return r;
    }
    return g->by_parts && !g->goes_on ? find_parts_restart(g, x, lower, restart)
                                      : find_restart(g, x, lower, restart);
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
            r = source_from_entry(g, &e, from, MIN(e.at + e.entry.length, x) - from,
                                  g->keep_left, &s);
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
    g->new_bytes = 0; /* counted as they come */
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
    r = find_start(&g, x, lower, &region.old_from);
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
