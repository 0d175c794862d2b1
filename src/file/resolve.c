/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * resolve.c - from a range of a file to the bytes: the layers in memory over a snapshot
 *
 * Under the file's lock the active pieces of the range are copied, with the version of
 * the map that they lie on; everything else happens on things that do not change: the
 * frozen sequence, one state of the committed content, immutable objects.
 *
 * That state is what the file keeps of it (committed.c) where it keeps enough: then no
 * transaction is begun.  Else it is read, and its version compared: if the map is one
 * version newer than the frozen sequence's base, the frozen sequence is in it already and
 * is skipped, unless its file gave it up without a commit; any other version is that of a
 * later commit, and all is looked at again.
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
    VjTxn *txn; /* NULL: what is not kept is missing */
    VjCommitted *committed;
    bool missing;
    const VjInode *inode;   /* of committed */
    const VjPieces *frozen; /* NULL: BASE pieces of active are ranges of the map */
    GArray *segments;
    size_t most;
    uint64_t shift; /* file offset minus position in the layer being visited; modular */
    VjMapCursor *cursor;
} Resolve;

/* Something is not kept, and there is no transaction to read it in.  false: enough. */
static bool miss(Resolve *r)
{
    r->missing = true;
    return false;
}

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
        if (r->txn == NULL) {
            return miss(r);
        }
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
        s.error = vj_fragment_get(r->txn, r->inode->ino, entry, skip, s.mem->data, len);
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
static bool add_entry(Resolve *r, const VjCommittedAt *place, uint64_t skip, uint64_t len,
                      uint64_t at)
{
    VjSegment s = {.kind = VJ_SEGMENT_HOLE, .at = at, .length = len};
    uint64_t entry_at;
    const VjEntry *entry = vj_committed_entry(place, &entry_at);

    if (entry->kind == VJ_ENTRY_OBJECT) {
        s.kind = VJ_SEGMENT_OBJECT;
        s.start = entry->start + skip;
        s.error = vj_committed_object(place, r->txn, &s.object);
        if (s.error == -EAGAIN) {
            return miss(r);
        }
        if (s.error == 0 && s.start + len > s.object.plain_bytes) {
            s.error = -EBADMSG;
        }
        if (s.error < 0) {
            s.object = (VjObject){.id = entry->id}; /* the read of it reports that */
            s.error = s.error == -ENOENT ? -EBADMSG : s.error;
            s.kind = VJ_SEGMENT_DAMAGED;
        }
    } else if (entry->kind == VJ_ENTRY_FRAGMENT) {
        return r->txn != NULL ? add_fragment(r, entry, skip, len, at) : miss(r);
    }
    return add_segment(r, &s);
}

/* The entry that holds @start, kept or read.  -EAGAIN: neither. */
static int find_entry(Resolve *r, uint64_t start, VjCommittedAt *out)
{
    if (vj_committed_find(r->committed, start, out)) {
        return 0;
    }
    if (r->txn == NULL) {
        return -EAGAIN;
    }
    if (r->cursor == NULL) {
        r->cursor = vj_map_cursor_new(r->txn, r->inode->ino, &r->inode->root);
    }
    return vj_committed_load(r->committed, r->txn, r->cursor, start, out);
}

/* [*start, *start + *len) as far as one run of entries has it. */
static int add_run(Resolve *r, uint64_t *start, uint64_t *len, uint64_t *at, bool *enough)
{
    VjCommittedAt place;
    int e = find_entry(r, *start, &place);

    if (e < 0) {
        return e;
    }
    do {
        uint64_t entry_at;
        const VjEntry *entry = vj_committed_entry(&place, &entry_at);
        uint64_t skip = *start - entry_at, take = MIN(entry->length - skip, *len);

        *enough = !add_entry(r, &place, skip, take, *at);
        *start += take;
        *at += take;
        *len -= take;
    } while (*len > 0 && !*enough && vj_committed_next(&place));
    vj_committed_at_clear(&place);
    return 0;
}

static bool add_map_range(Resolve *r, uint64_t start, uint64_t len, uint64_t at)
{
    VjSegment damaged = {.kind = VJ_SEGMENT_DAMAGED};
    bool enough = false;
    int e = 0;

    while (e == 0 && len > 0 && !enough) {
        e = add_run(r, &start, &len, &at, &enough);
    }
    if (e == 0) {
        return !enough;
    }
    if (e == -EAGAIN) {
        return miss(r);
    }
    /* The map ends early or cannot be read: the rest of the range is damaged. */
    damaged.at = at;
    damaged.length = len;
    damaged.error = e == -ENOENT ? -EBADMSG : e;
    return add_segment(r, &damaged);
}

static bool add_inline_range(Resolve *r, uint64_t start, uint64_t len, uint64_t at)
{
    VjSegment s = {.kind = VJ_SEGMENT_MEMORY, .at = at, .length = len, .start = start};
    VjMem *mem = NULL;
    bool more;
    int e = -ENOMEM;

    if (r->txn == NULL) {
        return miss(r);
    }
    mem = vj_mem_new(&r->table->dirty, VJ_FILE_INLINE_MAX);
    if (mem != NULL) {
        e = vj_inline_get(r->txn, r->inode, mem->data, VJ_FILE_INLINE_MAX, NULL);
        mem->len = r->inode->size;
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

    switch (r->inode->content) {
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

/* Pieces that a short read has at most, most times; they take no memory of their own. */
#define FEW_PIECES 4u

typedef struct Copy {
    VjPiece few[FEW_PIECES]; /* the first ones; all have references of their own */
    GArray *others;          /* VjPiece; NULL: none */
    size_t count, most;
    VjObjects *objects;
} Copy;

static const VjPiece *copied(const Copy *c, size_t i)
{
    return i < FEW_PIECES ? &c->few[i]
                          : &g_array_index(c->others, VjPiece, i - FEW_PIECES);
}

static bool copy_piece(void *opaque, const VjPiece *piece, uint64_t at)
{
    Copy *c = opaque;

    (void)at;
    if (piece->kind == VJ_PIECE_MEMORY) {
        vj_mem_ref(piece->mem);
    } else if (piece->kind == VJ_PIECE_OBJECT) {
        vj_object_pin(c->objects, piece->object);
    }
    if (c->count < FEW_PIECES) {
        c->few[c->count] = *piece;
    } else {
        if (c->others == NULL) {
            c->others = g_array_new(FALSE, FALSE, sizeof(VjPiece));
        }
        g_array_append_val(c->others, *piece);
    }
    c->count++;
    return c->count < c->most;
}

static void copies_free(Copy *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const VjPiece *piece = copied(c, i);

        if (piece->kind == VJ_PIECE_MEMORY) {
            vj_mem_unref(piece->mem);
        } else if (piece->kind == VJ_PIECE_OBJECT) {
            vj_object_unpin(c->objects, piece->object);
        }
    }
    g_clear_pointer(&c->others, g_array_unref);
}

/* A file as it is at one instant. */
typedef struct Look {
    Copy copy;
    VjFrozen *frozen; /* referenced; NULL: none */
    uint64_t size;
    uint64_t version; /* of the map that all of it lies on */
    bool any_version; /* nothing lies on it: the inode is being dropped */
    VjCommitted
        *kept; /* of that version, referenced; NULL: none, or it may be outdated */
} Look;

static void look(VjFile *f, uint64_t offset, uint64_t len, size_t most, Look *l)
{
    *l = (Look){.copy = {.objects = f->table->objects, .most = most}};
    vj_mutex_lock(&f->lock);
    l->size = vj_pieces_length(f->active);
    l->frozen = f->frozen != NULL ? vj_frozen_ref(f->frozen) : NULL;
    l->version = f->base_version;
    l->any_version = f->discarded;
    if (!f->committing && !f->discarded && f->committed != NULL) {
        l->kept = vj_committed_ref(f->committed);
    }
    vj_pieces_visit(f->active, offset, len, copy_piece, &l->copy);
    vj_mutex_unlock(&f->lock);
}

static void look_clear(Look *l)
{
    copies_free(&l->copy);
    vj_frozen_unref(l->frozen);
    vj_committed_unref(l->kept);
}

/* The layers over @c, whose version is one that @l can lie on. */
static void expand(Resolve *r, const Look *l, uint64_t offset, VjCommitted *c)
{
    uint64_t at = offset;

    r->committed = c;
    r->inode = vj_committed_inode(c);
    if (l->frozen != NULL && r->inode->map_version == l->frozen->base_version) {
        r->frozen = l->frozen->pieces;
    }
    for (size_t i = 0; i < l->copy.count; i++) {
        const VjPiece *piece = copied(&l->copy, i);

        if (!expand_active(r, piece, at)) {
            break;
        }
        at += piece->length;
    }
}

typedef struct View {
    VjFile *file;
    const Look *look;
    uint64_t offset;
    size_t most;
    GArray *segments;
    /* out: */
    VjCommitted *read; /* referenced; NULL: the snapshot has another version */
} View;

static int view_body(VjTxn *txn, void *opaque)
{
    View *v = opaque;
    const Look *l = v->look;
    Resolve r = {
        .table = v->file->table, .txn = txn, .segments = v->segments, .most = v->most};
    VjInode inode;
    int rc = vj_inode_get(txn, v->file->ino, &inode);

    g_array_set_size(v->segments, 0);
    vj_committed_unref(g_steal_pointer(&v->read));
    if (rc < 0) {
        return rc;
    }
    if (l->kept != NULL && inode.map_version == l->version) {
        v->read = vj_committed_ref(l->kept);
    } else if (l->any_version || inode.map_version == l->version ||
               (l->frozen != NULL && inode.map_version == l->version + 1 &&
                !g_atomic_int_get(&l->frozen->given_up))) {
        v->read = vj_committed_new(&r.table->committed, &inode);
    } else {
        return 0;
    }
    expand(&r, l, v->offset, v->read);
    vj_map_cursor_free(r.cursor);
    return 0;
}

/* The file keeps @c, unless it has something else by now. */
static void keep(VjFile *f, VjCommitted *c)
{
    vj_mutex_lock(&f->lock);
    if (f->committed == NULL && !f->committing && !f->discarded &&
        f->base_version == vj_committed_inode(c)->map_version) {
        f->committed = vj_committed_ref(c);
    }
    vj_mutex_unlock(&f->lock);
}

/* One try.  *done: the segments are there, or the error is the result. */
static int resolve_once(VjFile *f, uint64_t offset, uint64_t len, View *v, uint64_t *size,
                        bool *done)
{
    Look l;
    int e = 0;

    look(f, offset, len, v->most, &l);
    *size = l.size;
    *done = false;
    if (l.kept != NULL) {
        Resolve r = {.table = f->table, .segments = v->segments, .most = v->most};

        expand(&r, &l, offset, l.kept);
        *done = !r.missing;
    }
    if (!*done) {
        v->look = &l;
        e = vj_meta_view(f->table->meta, view_body, v);
        *done = e < 0 || v->read != NULL;
    }
    if (v->read != NULL) {
        keep(f, v->read);
        vj_committed_unref(g_steal_pointer(&v->read));
    }
    look_clear(&l);
    return e;
}

int vj_file_resolve(VjFile *f, uint64_t offset, uint64_t len, size_t most,
                    GArray *segments, uint64_t *size)
{
    View v = {.file = f, .offset = offset, .most = most, .segments = segments};

    g_assert(most > 0 && segments->len == 0);
    for (unsigned i = 0; i < VJ_META_RUN_TRIES; i++) {
        bool done;
        int e = resolve_once(f, offset, len, &v, size, &done);

        if (done) {
            return e;
        }
        g_array_set_size(segments, 0);
    }
    vj_log_error("inode %" G_GUINT64_FORMAT
                 ": its content was committed %u times while it was looked at",
                 f->ino, VJ_META_RUN_TRIES);
    return -EIO;
}
