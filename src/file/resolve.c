/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * resolve.c - from a range of a file to the bytes: the layers in memory over a snapshot
 *
 * Under the file's lock only the active pieces of the range are copied and a snapshot is
 * begun; everything else happens on things that do not change: the frozen sequence, the
 * snapshot, immutable objects.  If the snapshot's map is one version newer than the frozen
 * sequence's base, the frozen sequence is in it already and is skipped.
 */
#include "file/file-private.h"

static void segment_clear(gpointer p)
{
    VjSegment *s = p;

    if (s->kind == VJ_SEGMENT_MEMORY) {
        vj_mem_unref(s->mem);
    }
    if (s->pinned_in != NULL) {
        vj_object_unpin(s->pinned_in, s->object.id);
    }
}

GArray *vj_segments_new(void)
{
    GArray *a = g_array_new(FALSE, FALSE, sizeof(VjSegment));

    g_array_set_clear_func(a, segment_clear);
    return a;
}

typedef struct Resolve {
    VjFileTable *table;
    VjTxn *txn;
    VjInode inode;
    const VjPieces *frozen; /* NULL: BASE pieces of active are ranges of the map */
    GArray *segments;
    size_t most;
    uint64_t shift; /* file offset minus position in the layer being visited; modular */
    uint8_t *inline_bytes; /* loaded once; NULL: not yet */
    VjMapCursor *cursor;
    int error;
} Resolve;

static bool add_segment(Resolve *r, VjSegment *s)
{
    if (r->segments->len >= r->most) {
        return false;
    }
    if (s->kind == VJ_SEGMENT_MEMORY) {
        vj_mem_ref(s->mem);
    }
    if (s->pinned_in != NULL) {
        vj_object_pin(s->pinned_in, s->object.id);
    }
    g_array_append_val(r->segments, *s);
    return true;
}

/* A piece that is not BASE, as a segment at file offset @at.  false: enough. */
static bool add_piece(Resolve *r, const VjPiece *piece, uint64_t at)
{
    VjSegment s = {.at = at, .length = piece->length, .start = piece->start};

    switch (piece->kind) {
    case VJ_PIECE_MEMORY:
        s.kind = VJ_SEGMENT_MEMORY;
        s.mem = piece->mem;
        break;
    case VJ_PIECE_HOLE:
        s.kind = VJ_SEGMENT_HOLE;
        break;
    case VJ_PIECE_OBJECT:
        s.kind = VJ_SEGMENT_OBJECT;
        s.error = vj_object_get(r->txn, piece->object, &s.object);
        if (s.error < 0) {
            s.object = (VjObject){.id = piece->object};
            s.error = s.error == -ENOENT ? -EBADMSG : s.error;
            s.kind = VJ_SEGMENT_DAMAGED;
        } else {
            /* It may be dead in the snapshot already: the guard does not keep it. */
            s.pinned_in = r->table->objects;
        }
        break;
    case VJ_PIECE_BASE:
        g_assert_not_reached();
    }
    return add_segment(r, &s);
}

static bool add_fragment(Resolve *r, const VjEntry *entry, uint64_t skip, uint64_t len,
                         uint64_t at)
{
    VjSegment s = {.kind = VJ_SEGMENT_MEMORY, .at = at, .length = len};
    bool more;

    s.mem = len <= VJ_FILE_INLINE_MAX ? vj_mem_new(&r->table->dirty, len) : NULL;
    if (s.mem == NULL) {
        s.error = len <= VJ_FILE_INLINE_MAX ? -ENOMEM : -EBADMSG;
    } else {
        s.mem->len = len;
        s.error = vj_fragment_get(r->txn, r->inode.ino, entry, skip, s.mem->data, len);
    }
    if (s.error < 0) {
        vj_mem_unref(g_steal_pointer(&s.mem));
        s.kind = VJ_SEGMENT_DAMAGED;
    }
    more = add_segment(r, &s);
    vj_mem_unref(s.mem);
    return more;
}

/* One entry of the map, trimmed to @skip .. @skip + @len of it. */
static bool add_entry(Resolve *r, const VjEntry *entry, uint64_t skip, uint64_t len,
                      uint64_t at)
{
    VjSegment s = {.kind = VJ_SEGMENT_HOLE, .at = at, .length = len};

    if (entry->kind == VJ_ENTRY_OBJECT) {
        s.kind = VJ_SEGMENT_OBJECT;
        s.start = entry->start + skip;
        s.error = vj_object_get(r->txn, entry->id, &s.object);
        if (s.error == 0 && s.start + len > s.object.plain_bytes) {
            s.error = -EBADMSG;
        }
        if (s.error < 0) {
            s.object = (VjObject){.id = entry->id}; /* who reads it tells of it */
            s.error = s.error == -ENOENT ? -EBADMSG : s.error;
            s.kind = VJ_SEGMENT_DAMAGED;
        }
    } else if (entry->kind == VJ_ENTRY_FRAGMENT) {
        return add_fragment(r, entry, skip, len, at);
    }
    return add_segment(r, &s);
}

static bool add_map_range(Resolve *r, uint64_t start, uint64_t len, uint64_t at)
{
    VjEntry entry;
    uint64_t entry_at;
    int e;

    if (r->cursor == NULL) {
        r->cursor = vj_map_cursor_new(r->txn, r->inode.ino, &r->inode.root);
    }
    for (e = vj_map_cursor_seek(r->cursor, start, &entry, &entry_at); e == 0;
         e = vj_map_cursor_next(r->cursor, &entry, &entry_at)) {
        uint64_t skip = start > entry_at ? start - entry_at : 0;
        uint64_t take = MIN(entry.length - skip, len);

        if (!add_entry(r, &entry, skip, take, at)) {
            return false;
        }
        at += take;
        len -= take;
        if (len == 0) {
            return true;
        }
    }
    /* The map ends early or cannot be read: the rest of the range is damaged. */
    VjSegment s = {.kind = VJ_SEGMENT_DAMAGED,
                   .at = at,
                   .length = len,
                   .error = e == -ENOENT ? -EBADMSG : e};

    return add_segment(r, &s);
}

static bool add_inline_range(Resolve *r, uint64_t start, uint64_t len, uint64_t at)
{
    VjSegment s = {.kind = VJ_SEGMENT_MEMORY, .at = at, .length = len, .start = start};
    VjMem *mem = vj_mem_new(&r->table->dirty, VJ_FILE_INLINE_MAX);
    bool more;
    int e = -ENOMEM;

    if (mem != NULL) {
        e = vj_inline_get(r->txn, &r->inode, mem->data, VJ_FILE_INLINE_MAX, NULL);
        mem->len = r->inode.size;
        if (e == 0 && start + len > mem->len) {
            e = -EBADMSG;
        }
    }
    if (e < 0) {
        s = (VjSegment){.kind = VJ_SEGMENT_DAMAGED, .at = at, .length = len, .error = e};
    }
    s.mem = mem;
    more = add_segment(r, &s);
    vj_mem_unref(mem);
    return more;
}

/* A range of the committed content, at file offset @at. */
static bool add_committed(Resolve *r, uint64_t start, uint64_t len, uint64_t at)
{
    VjSegment hole = {.kind = VJ_SEGMENT_HOLE, .at = at, .length = len};

    switch (r->inode.content) {
    case VJ_CONTENT_MAP:
        return add_map_range(r, start, len, at);
    case VJ_CONTENT_INLINE:
        return add_inline_range(r, start, len, at);
    case VJ_CONTENT_EMPTY:
        break;
    }
    return add_segment(r, &hole);
}

/* A piece of the frozen sequence; @position is in its output. */
static bool visit_frozen(void *opaque, const VjPiece *piece, uint64_t position)
{
    Resolve *r = opaque;
    uint64_t at = position + r->shift;

    if (piece->kind == VJ_PIECE_BASE) {
        return add_committed(r, piece->start, piece->length, at);
    }
    return add_piece(r, piece, at);
}

/* A piece of the active sequence that was copied under the lock. */
static bool expand_active(Resolve *r, const VjPiece *piece, uint64_t at)
{
    if (piece->kind != VJ_PIECE_BASE) {
        return add_piece(r, piece, at);
    }
    if (r->frozen == NULL) {
        return add_committed(r, piece->start, piece->length, at);
    }
    guint before = r->segments->len;

    r->shift = at - piece->start;
    vj_pieces_visit(r->frozen, piece->start, piece->length, visit_frozen, r);
    return r->segments->len < r->most || before == r->segments->len;
}

typedef struct Copy {
    GArray *pieces; /* VjPiece with references of their own */
    VjObjects *objects;
    size_t most;
} Copy;

static bool copy_piece(void *opaque, const VjPiece *piece, uint64_t at)
{
    Copy *c = opaque;

    (void)at;
    if (piece->kind == VJ_PIECE_MEMORY) {
        vj_mem_ref(piece->mem);
    } else if (piece->kind == VJ_PIECE_OBJECT) {
        vj_object_pin(c->objects, piece->object);
    }
    g_array_append_val(c->pieces, *piece);
    return c->pieces->len < c->most;
}

static void copies_free(Copy *c)
{
    for (guint i = 0; i < c->pieces->len; i++) {
        const VjPiece *piece = &g_array_index(c->pieces, VjPiece, i);

        if (piece->kind == VJ_PIECE_MEMORY) {
            vj_mem_unref(piece->mem);
        } else if (piece->kind == VJ_PIECE_OBJECT) {
            vj_object_unpin(c->objects, piece->object);
        }
    }
    g_array_unref(c->pieces);
}

/* What the lock is needed for.  *frozen is referenced. */
static int look(VjFile *f, uint64_t offset, uint64_t len, Copy *copy, VjTxn **txn,
                VjFrozen **frozen, uint64_t *size)
{
    int r;

    vj_mutex_lock(&f->lock);
    r = vj_meta_begin_read(f->table->meta, txn);
    if (r == 0) {
        *size = vj_pieces_length(f->active);
        *frozen = f->frozen != NULL ? vj_frozen_ref(f->frozen) : NULL;
        vj_pieces_visit(f->active, offset, len, copy_piece, copy);
    }
    vj_mutex_unlock(&f->lock);
    return r;
}

int vj_file_resolve(VjFile *f, uint64_t offset, uint64_t len, size_t most,
                    GArray *segments, uint64_t *size)
{
    Resolve r = {.table = f->table, .segments = segments, .most = most};
    Copy copy = {.pieces = g_array_new(FALSE, FALSE, sizeof(VjPiece)),
                 .objects = f->table->objects,
                 .most = most};
    VjFrozen *frozen = NULL;
    uint64_t at = offset;
    int e;

    g_assert(most > 0);
    e = look(f, offset, len, &copy, &r.txn, &frozen, size);
    if (e == 0) {
        e = vj_inode_get(r.txn, f->ino, &r.inode);
    }
    if (e == 0 && frozen != NULL && r.inode.map_version == frozen->base_version) {
        r.frozen = frozen->pieces;
    }
    for (guint i = 0; e == 0 && i < copy.pieces->len; i++) {
        const VjPiece *piece = &g_array_index(copy.pieces, VjPiece, i);

        if (!expand_active(&r, piece, at)) {
            break;
        }
        at += piece->length;
    }
    vj_map_cursor_free(r.cursor);
    vj_txn_end(r.txn);
    copies_free(&copy);
    vj_frozen_unref(frozen);
    return e;
}
