/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * write-back.c - a frozen sequence becomes objects and one commit
 *
 * Order of durability: objects are put, the store is flushed, then one transaction brings
 * the map, the references, the size and the times; never a part of them.  On failure
 * nothing of it is visible, what was put is removed, and the sequence stays frozen: the
 * next attempt does it all again.
 */
#include "file/write-back-private.h"

/* How often content that was found may die before its commit. */
#define STALE_TRIES 16u

struct VjWriteBack {
    VjFileTable *table;
    uint64_t ino;
    VjFrozen *frozen;
    VjInode before;  /* the record when it began */
    GArray *spans;   /* VjPiece, borrowed from frozen (or from base_mem) */
    VjMem *base_mem; /* inline content below the sequence */
    uint64_t size;
    VjContent content;            /* what it becomes */
    VjInlineRecord inline_record; /* content INLINE */
    VjRecut recut;
    VjRecodePlan *recode; /* nothing changes but how it is stored; borrowed.  NULL: no */
    bool as_fragments;    /* new bytes become fragments, no object is put */
    uint32_t reserved_fragments;
    uint32_t made_fragments, dropped_fragments; /* by the last run of the transaction */
    GPtrArray *mems; /* VjMem that spans name and that is kept here alone; NULL: none */
    bool gone;       /* the inode's record is not there any more */
    bool freed;      /* references were dropped or subtrees cut off */
    bool committed;
    GArray *detached; /* VjMapDetached of the last run of the transaction */
    VjOldMap old;
};

typedef VjWriteBack WriteBack;

/* ---- what the new content consists of ---------------------------------------------- */

static bool collect_span(void *opaque, const VjPiece *piece, uint64_t at)
{
    WriteBack *w = opaque;
    VjPiece span = *piece;

    if (piece->kind == VJ_PIECE_MEMORY) {
        w->frozen->changed_to = at + piece->length;
    }
    if (piece->kind == VJ_PIECE_BASE && w->before.content == VJ_CONTENT_EMPTY) {
        span = (VjPiece){.kind = VJ_PIECE_HOLE, .length = piece->length};
    } else if (piece->kind == VJ_PIECE_BASE && w->before.content == VJ_CONTENT_INLINE) {
        span.kind = VJ_PIECE_MEMORY;
        span.mem = w->base_mem;
    }
    if (w->spans->len > 0) {
        VjPiece *last = &g_array_index(w->spans, VjPiece, w->spans->len - 1);

        if (last->kind == span.kind &&
            ((span.kind == VJ_PIECE_BASE && last->start + last->length == span.start) ||
             span.kind == VJ_PIECE_HOLE)) {
            last->length += span.length;
            return true;
        }
    }
    g_array_append_val(w->spans, span);
    return true;
}

static int load_before_body(VjTxn *txn, void *opaque)
{
    WriteBack *w = opaque;
    int r = vj_inode_get(txn, w->ino, &w->before);

    vj_mem_unref(g_steal_pointer(&w->base_mem));
    w->gone = r == -ENOENT;
    if (r == 0 && w->before.map_version != w->frozen->base_version) {
        vj_log_error("inode %" G_GUINT64_FORMAT
                     ": its map is at version %" G_GUINT64_FORMAT
                     ", changes are over %" G_GUINT64_FORMAT,
                     w->ino, w->before.map_version, w->frozen->base_version);
        r = -EIO;
    }
    if (r == 0 && w->before.content == VJ_CONTENT_INLINE) {
        w->base_mem = vj_mem_new(&w->table->dirty, VJ_FILE_INLINE_MAX);
        r = w->base_mem == NULL ? -ENOMEM
                                : vj_inline_get(txn, &w->before, w->base_mem->data,
                                                VJ_FILE_INLINE_MAX, NULL);
    }
    return r;
}

static int load_before(WriteBack *w)
{
    return vj_meta_view(w->table->meta, load_before_body, w);
}

static bool is_all_hole(const GArray *spans)
{
    return spans->len == 0 ||
           (spans->len == 1 && g_array_index(spans, VjPiece, 0).kind == VJ_PIECE_HOLE);
}

/* Bytes of the old map. */
static int gather_old(WriteBack *w, uint64_t offset, uint8_t *dst, size_t len)
{
    int r = 0;

    while (r == 0 && len > 0) {
        VjOldEntry e;
        size_t take = 0;

        r = vj_old_map_at(w->recut.old, offset, &e);
        if (r == 0) {
            take = (size_t)MIN(len, e.at + e.entry.length - offset);
            r = vj_old_entry_read(w->recut.old, &e, offset - e.at, dst, take);
        }
        offset += take;
        dst += take;
        len -= take;
    }
    return r;
}

typedef struct GetObject {
    uint64_t id;
    VjObject found;
} GetObject;

static int get_object_body(VjTxn *txn, void *opaque)
{
    GetObject *g = opaque;

    return vj_object_get(txn, g->id, &g->found);
}

/* Bytes of a pinned object. */
static int gather_object(WriteBack *w, const VjPiece *span, uint8_t *dst)
{
    GetObject get = {.id = span->object};
    int r = vj_meta_view(w->table->meta, get_object_body, &get);

    return r < 0 ? r
                 : vj_object_read(w->table->objects, &get.found, (uint32_t)span->start,
                                  dst, (uint32_t)span->length, false);
}

static void make_inline(WriteBack *w, const uint8_t *bytes)
{
    const VjTransform want = vj_file_transform(w->table, &w->before);

    vj_inline_make(w->ino, &want, bytes, w->size, &w->inline_record);
}

/* The bytes of a small file, from wherever they are. */
static int gather_inline(WriteBack *w)
{
    uint8_t bytes[VJ_FILE_INLINE_MAX] = {0}, *dst = bytes;
    int r = 0;

    for (guint i = 0; r == 0 && i < w->spans->len; i++) {
        const VjPiece *span = &g_array_index(w->spans, VjPiece, i);

        switch (span->kind) {
        case VJ_PIECE_MEMORY:
            memcpy(dst, span->mem->data + span->start, span->length);
            break;
        case VJ_PIECE_HOLE:
            break; /* zeroes already */
        case VJ_PIECE_OBJECT:
            r = gather_object(w, span, dst);
            break;
        case VJ_PIECE_BASE:
            r = gather_old(w, span->start, dst, span->length);
            break;
        }
        dst += span->length;
    }
    if (r == 0) {
        make_inline(w, bytes);
    }
    return r;
}

/* ---- the transaction --------------------------------------------------------------- */

/* Numbers of the damaged fragments that new entries go on naming. */
static bool is_kept(const GArray *kept, uint64_t number)
{
    for (guint i = 0; i < kept->len; i++) {
        if (g_array_index(kept, uint64_t, i) == number) {
            return true;
        }
    }
    return false;
}

static int add_fragment(WriteBack *w, VjTxn *txn, const VjFragment *fragment, VjEntry *e)
{
    uint32_t number;
    int r = vj_fragment_add(txn, w->ino, fragment, &number);

    e->id = number;
    e->start = 0;
    w->made_fragments += r == 0;
    return r;
}

/*
 * A part of an old fragment becomes one of its own: the old one goes with its entry,
 * which may lie in a subtree that is dropped later.
 */
static int copy_fragment(WriteBack *w, VjTxn *txn, GArray *kept, VjEntry *e)
{
    const VjTransform want = vj_file_transform(w->table, &w->before);
    g_autofree VjFragment *copy = NULL;
    uint8_t bytes[VJ_FILE_INLINE_MAX];
    int r = e->length > sizeof bytes
                ? -EBADMSG
                : vj_fragment_get(txn, w->ino, e, 0, bytes, e->length);

    if (vj_is_damage(r)) { /* the map goes on naming what cannot be read */
        g_array_append_val(kept, e->id);
        return 0;
    }
    if (r < 0) {
        return r;
    }
    copy = vj_fragment_new(&want, bytes, e->length);
    return add_fragment(w, txn, copy, e);
}

static int take_fragment(WriteBack *w, VjTxn *txn, const VjOut *out, GArray *kept,
                         VjEntry *e)
{
    e->id = out->stored;
    e->start = out->start;
    e->stored_bytes = (uint32_t)out->length;
    return out->fragment != NULL ? add_fragment(w, txn, out->fragment, e)
                                 : copy_fragment(w, txn, kept, e);
}

/* References for all new entries, before any old one is dropped: what both name stays. */
static int take_all(WriteBack *w, VjTxn *txn, GArray *kept, VjEntry *entries)
{
    int r = 0;

    for (guint i = 0; r == 0 && i < w->recut.outs->len; i++) {
        const VjOut *out = w->recut.outs->pdata[i];
        VjEntry *e = &entries[i];
        VjObject object;

        *e = (VjEntry){.kind = out->kind, .length = out->length};
        if (out->kind == VJ_ENTRY_HOLE) {
            continue;
        }
        if (out->kind == VJ_ENTRY_FRAGMENT) {
            r = take_fragment(w, txn, out, kept, e);
            continue;
        }
        r = out->pending != NULL ? vj_pending_take(txn, out->pending, &object)
                                 : vj_object_ref(txn, out->stored, &object);
        if (r == 0 && out->start + out->length > object.plain_bytes) {
            vj_log_error("inode %" G_GUINT64_FORMAT ": object %" G_GUINT64_FORMAT
                         " is shorter than its map says",
                         w->ino, object.id);
            r = -EBADMSG;
        }
        if (r == 0) {
            e->id = object.id;
            e->start = out->start;
            e->stored_bytes = vj_object_share(&object, out->length);
        }
    }
    return r;
}

/* @kept: old fragments that new entries name. */
static int drop_removed(WriteBack *w, VjTxn *txn, const GArray *removed,
                        const GArray *kept)
{
    int r = 0;

    for (guint i = 0; r == 0 && i < removed->len; i++) {
        const VjEntry *e = &g_array_index(removed, VjEntry, i);
        bool is_fragment = e->kind == VJ_ENTRY_FRAGMENT;

        if (!is_fragment || !is_kept(kept, e->id)) {
            r = vj_entry_drop(txn, w->ino, e);
            w->freed = true;
            w->dropped_fragments += is_fragment;
        }
    }
    for (guint i = 0; r == 0 && i < w->detached->len; i++) {
        r = vj_orphan_put_tree(txn, w->ino,
                               &g_array_index(w->detached, VjMapDetached, i).root);
    }
    return r;
}

/* The regions, last first, so that the offsets of the others stay right. */
static int apply_regions(WriteBack *w, VjTxn *txn, VjInode *inode)
{
    g_autofree VjEntry *entries = g_new0(VjEntry, w->recut.outs->len + 1);
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) kept = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_autoptr(VjMapEdit) edit = NULL;
    int r = take_all(w, txn, kept, entries);

    if (r == 0) {
        r = vj_map_edit_new(txn, w->ino, &inode->root, removed, w->detached, &edit);
    }
    for (guint i = w->recut.regions->len; r == 0 && i > 0; i--) {
        const VjRegion *g = &g_array_index(w->recut.regions, VjRegion, i - 1);

        r = vj_map_edit_replace(edit, g->old_from, g->old_to - g->old_from,
                                entries + g->first_out, g->out_count);
    }
    if (r == 0) {
        r = vj_map_edit_commit(edit, &inode->root);
    }
    return r < 0 ? r : drop_removed(w, txn, removed, kept);
}

/* The old map goes as a whole. */
static int drop_map(WriteBack *w, VjTxn *txn, VjInode *inode)
{
    g_autoptr(GArray) removed = g_array_new(FALSE, FALSE, sizeof(VjEntry));
    g_autoptr(GArray) none = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    int r = 0;

    if (inode->root.node != 0) {
        r = vj_map_replace(txn, w->ino, &inode->root, 0, inode->root.bytes, NULL, 0,
                           removed, w->detached);
    }
    return r < 0 ? r : drop_removed(w, txn, removed, none);
}

static void set_times(const WriteBack *w, VjInode *inode)
{
    struct timespec t = w->frozen->changed;

    if (!g_atomic_int_get(&w->frozen->times_valid)) {
        return;
    }
    inode->mtime = t;
    if (t.tv_sec > inode->ctime.tv_sec ||
        (t.tv_sec == inode->ctime.tv_sec && t.tv_nsec > inode->ctime.tv_nsec)) {
        inode->ctime = t;
    }
}

static int commit_body(VjTxn *txn, void *opaque)
{
    WriteBack *w = opaque;
    VjInode inode;
    int r = vj_inode_get(txn, w->ino, &inode);

    w->gone = r == -ENOENT;
    if (r < 0) {
        return r;
    }
    if (inode.map_version != w->frozen->base_version) {
        return -EIO;
    }
    w->freed = false;
    w->made_fragments = w->dropped_fragments = 0;
    g_array_set_size(w->detached, 0);
    if (inode.content == VJ_CONTENT_INLINE && w->content != VJ_CONTENT_INLINE) {
        r = vj_inline_del(txn, w->ino);
    }
    if (r == 0) {
        r = w->content == VJ_CONTENT_MAP ? apply_regions(w, txn, &inode)
                                         : drop_map(w, txn, &inode);
    }
    if (r == 0 && w->content == VJ_CONTENT_INLINE) {
        r = vj_inline_put(txn, &inode, &w->inline_record);
    }
    if (r < 0) {
        return r;
    }
    inode.content = w->content;
    inode.size = w->size;
    inode.stored_bytes = w->content == VJ_CONTENT_MAP      ? inode.root.stored_bytes
                         : w->content == VJ_CONTENT_INLINE ? w->inline_record.stored_bytes
                                                           : 0;
    inode.map_version++;
    g_assert(w->content != VJ_CONTENT_MAP || inode.root.bytes == w->size);
    set_times(w, &inode);
    return vj_inode_put(txn, &inode);
}

/* ---- putting it together ----------------------------------------------------------- */

static bool any_put(const GPtrArray *outs)
{
    for (guint i = 0; i < outs->len; i++) {
        const VjOut *out = outs->pdata[i];

        if (out->pending != NULL && vj_pending_is_put(out->pending)) {
            return true;
        }
    }
    return false;
}

/*
 * The content is what was there, less of it, or holes: such a commit may use the reserve.
 * One that brings bytes or shares objects may not, although it stores nothing afresh: its
 * entries would take what a full file system needs for deleting.
 */
static bool only_gives_back(const WriteBack *w)
{
    for (guint i = 0; i < w->recut.outs->len; i++) {
        if (((const VjOut *)w->recut.outs->pdata[i])->pending != NULL) {
            return false;
        }
    }
    for (guint i = 0; i < w->spans->len; i++) {
        const VjPiece *span = &g_array_index(w->spans, VjPiece, i);

        if (span->kind == VJ_PIECE_OBJECT ||
            (span->kind == VJ_PIECE_MEMORY && span->mem != w->base_mem)) {
            return false;
        }
    }
    return true;
}

static void outs_free(WriteBack *w, bool committed)
{
    for (guint i = 0; i < w->recut.outs->len; i++) {
        VjOut *out = w->recut.outs->pdata[i];

        vj_pending_free(w->table->objects, out->pending, committed);
        g_free(out->fragment);
        g_free(out);
    }
    g_ptr_array_set_size(w->recut.outs, 0);
    g_array_set_size(w->recut.regions, 0);
}

static int new_chunker(WriteBack *w);

static void give_back_fragments(WriteBack *w)
{
    if (w->reserved_fragments > 0) {
        vj_remapper_made(w->table->remapper, w->ino, w->reserved_fragments, 0, 0);
        w->reserved_fragments = 0;
    }
}

/* False, and nothing is planned: it is to be objects after all. */
static int make_fragments(WriteBack *w, const VjTransform *want, bool *made)
{
    uint32_t count = 0;
    int r = vj_fragment_plan(&w->recut, want);

    *made = false;
    for (guint i = 0; i < w->recut.outs->len; i++) {
        count += ((const VjOut *)w->recut.outs->pdata[i])->fragment != NULL;
    }
    if (r == 0 && vj_remapper_reserve(w->table->remapper, w->ino, count)) {
        w->reserved_fragments = count;
        *made = true;
        return 0;
    }
    outs_free(w, false);
    return r == -E2BIG ? 0 : r;
}

static int make_objects(WriteBack *w)
{
    const VjTransform want = vj_file_transform(w->table, &w->before);
    VjPutQueue queue;
    int r = 0, drained;

    if (w->as_fragments) {
        r = make_fragments(w, &want, &w->as_fragments);
        if (r < 0 || w->as_fragments) {
            return r;
        }
    }
    if (w->recut.chunker == NULL) {
        r = new_chunker(w);
        if (r < 0) {
            return r;
        }
    }
    vj_put_queue_init(&queue, w->table, &want);
    w->recut.queue = &queue;
    r = w->recode != NULL ? vj_recode_plan(&w->recut, w->recode) : vj_recut(&w->recut);
    drained = vj_put_queue_drain(&queue);
    vj_put_queue_clear(&queue);
    w->recut.queue = NULL;
    return drained < 0 ? drained : r;
}

static int commit(WriteBack *w)
{
    /* At the unmount the reserve is better used up than what was accepted is lost. */
    bool may_use_reserve =
        only_gives_back(w) || g_atomic_int_get(&w->table->last_chance) != 0;
    VjRunFlags flags = may_use_reserve ? VJ_RUN_RELEASE : VJ_RUN_DEFAULT;

    return vj_meta_run(w->table->meta, flags, commit_body, w);
}

/* Objects once more, with a flush of their own. */
static int objects_again(WriteBack *w)
{
    int r;

    give_back_fragments(w);
    outs_free(w, false);
    r = make_objects(w);
    if (r == 0 && any_put(w->recut.outs)) {
        r = vj_objects_flush(w->table->objects);
    }
    return r;
}

/*
 * A commit is bounded (VJ_FILE_ENTRIES_MOST).  Object sizes that were set small for a
 * file after much of it was changed give way: this write-back cuts larger ones.
 */
static VjChunkSizes fit_sizes(const WriteBack *w, VjChunkSizes sizes)
{
    uint64_t bytes = vj_pieces_memory_bytes(w->frozen->pieces);
    uint32_t avg_bytes = sizes.avg_bytes;

    while (bytes / (avg_bytes / 2) > 2 * VJ_FILE_ENTRIES_MOST &&
           avg_bytes <= VJ_CHUNK_AVG_MOST / 2) {
        avg_bytes *= 2;
    }
    if (avg_bytes != sizes.avg_bytes) {
        char text[16];

        g_snprintf(text, sizeof text, "%u", avg_bytes);
        if (!vj_chunk_sizes_parse(w->table->chunker, text, &sizes, NULL)) {
            /* Within the limits, and twice a size that was valid. */
            g_assert_not_reached();
        }
    }
    return sizes;
}

static int new_chunker(WriteBack *w)
{
    VjChunkSizes sizes = vj_file_sizes(w->table, &w->before);

    return vj_chunker_new(w->table->chunker, fit_sizes(w, sizes), w->table->chunk_seed,
                          &w->recut.chunker);
}

static void open_old_map(WriteBack *w)
{
    vj_old_map_init(&w->old, w->table, w->ino, &w->before.root);
    w->recut.table = w->table;
    w->recut.old = &w->old;
}

/* Few small changes of a file whose new bytes may lie beside the metadata. */
static bool may_be_fragments(const WriteBack *w)
{
    const VjTransform want = vj_file_transform(w->table, &w->before);

    size_t most =
        w->before.content == VJ_CONTENT_MAP ? VJ_SMALL_BYTES : VJ_SMALL_FILE_BYTES;

    return w->table->remapper != NULL && want.key_id == 0 &&
           vj_spans_are_small(w->recut.spans, w->recut.span_count, most);
}

static int prepare(WriteBack *w, bool may_be_small)
{
    int r = load_before(w);

    if (r < 0) {
        return r;
    }
    vj_pieces_visit(w->frozen->pieces, 0, w->size, collect_span, w);
    open_old_map(w);
    w->recut.spans = (const VjPiece *)(const void *)w->spans->data;
    w->recut.span_count = w->spans->len;
    w->content = VJ_CONTENT_MAP;
    if (is_all_hole(w->spans)) {
        w->content = VJ_CONTENT_EMPTY;
    } else if (w->size <= VJ_FILE_INLINE_MAX) {
        r = gather_inline(w);
        /* What cannot be read stays where it is. */
        if (!vj_is_damage(r)) {
            w->content = VJ_CONTENT_INLINE;
            return r;
        }
    }
    w->as_fragments = may_be_small && !w->recut.frugal && w->content == VJ_CONTENT_MAP &&
                      may_be_fragments(w);
    return 0;
}

static void finish(WriteBack *w)
{
    vj_count(&w->table->counters.commits, 1);
    vj_count(&w->table->counters.small_commits, w->as_fragments);
    vj_count(&w->table->counters.fragments_made, w->made_fragments);
    vj_count(&w->table->counters.fragments_dropped, w->dropped_fragments);
    if (w->reserved_fragments + w->made_fragments + w->dropped_fragments > 0) {
        vj_remapper_made(w->table->remapper, w->ino, w->reserved_fragments,
                         w->made_fragments, w->dropped_fragments);
        w->reserved_fragments = 0;
    }
    if (w->freed) {
        vj_objects_kick(w->table->objects);
    }
    w->committed = true;
}

/*
 * The one -ENOENT that callers see says that the inode is gone.  An object, a record or a
 * map node that is missing is damage below the change: it must not pass for that.
 */
static int tell(const WriteBack *w, int r)
{
    if (r == -ENOENT && !w->gone) {
        return -EBADMSG;
    }
    return r == -ESTALE ? -EIO : r;
}

static WriteBack *write_back_new(VjFileTable *table, uint64_t ino, VjFrozen *z)
{
    WriteBack *w = g_new0(WriteBack, 1);

    w->table = table;
    w->ino = ino;
    w->frozen = z;
    w->size = vj_pieces_length(z->pieces);
    w->spans = g_array_new(FALSE, FALSE, sizeof(VjPiece));
    w->detached = g_array_new(FALSE, FALSE, sizeof(VjMapDetached));
    w->recut.outs = g_ptr_array_new();
    w->recut.regions = g_array_new(FALSE, FALSE, sizeof(VjRegion));
    w->recut.frugal = z->was_short;
    w->recut.ahead = z->ahead;
    return w;
}

int vj_write_back_objects(VjFileTable *table, uint64_t ino, VjFrozen *z,
                          bool may_be_small, VjWriteBack **out)
{
    WriteBack *w = write_back_new(table, ino, z);
    int r;

    *out = w;
    w->recut.by_parts = true;
    w->recut.stream_from = z->stream_from;
    r = prepare(w, may_be_small);
    if (r == 0 && w->content == VJ_CONTENT_MAP) {
        r = make_objects(w);
        if (r == -ENOSPC || r == -EDQUOT) {
            w->recut.frugal = true; /* deleting needs no byte of space then */
            outs_free(w, false);
            r = make_objects(w);
        }
    }
    return tell(w, r);
}

typedef struct InlineIs {
    const WriteBack *w;
    bool is_same;
} InlineIs;

static int inline_is_body(VjTxn *txn, void *opaque)
{
    InlineIs *i = opaque;

    i->is_same = false;
    return vj_inline_is(txn, &i->w->before, &i->w->inline_record, &i->is_same);
}

/* Leaves no inline record when it would be what is there. */
static int recode_inline(WriteBack *w)
{
    InlineIs i = {.w = w};
    int r;

    make_inline(w, w->base_mem->data);
    r = vj_meta_view(w->table->meta, inline_is_body, &i);
    if (i.is_same) {
        w->inline_record.len = 0;
    } else {
        w->recode->rewritten_bytes = w->size;
    }
    return r;
}

int vj_write_back_recode(VjFileTable *table, uint64_t ino, VjFrozen *z,
                         VjRecodePlan *plan, VjWriteBack **out)
{
    WriteBack *w = write_back_new(table, ino, z);
    int r;

    *out = w;
    w->recode = plan;
    r = load_before(w);
    if (r < 0) {
        return tell(w, r);
    }
    g_assert(w->size == w->before.size);
    w->content = w->before.content;
    plan->to = w->size;
    if (plan->from >= w->size) {
        return 0;
    }
    if (w->content == VJ_CONTENT_INLINE) {
        r = recode_inline(w);
    } else if (w->content == VJ_CONTENT_MAP) {
        open_old_map(w);
        r = make_objects(w);
    }
    return tell(w, r);
}

int vj_write_back_remap(VjFileTable *table, uint64_t ino, VjFrozen *z, VjRemapPlan *plan,
                        VjWriteBack **out)
{
    WriteBack *w = write_back_new(table, ino, z);
    int r;

    *out = w;
    w->mems = g_ptr_array_new_with_free_func((GDestroyNotify)vj_mem_unref);
    r = load_before(w);
    plan->to = w->size;
    plan->found = 0;
    if (r == 0 && w->before.content == VJ_CONTENT_MAP) {
        w->content = VJ_CONTENT_MAP;
        open_old_map(w);
        r = vj_remap_plan(&w->old, plan, vj_file_sizes(table, &w->before).avg_bytes,
                          w->spans, w->mems);
        w->recut.spans = (const VjPiece *)(const void *)w->spans->data;
        w->recut.span_count = w->spans->len;
        if (r == 0 && plan->found > 0) {
            r = make_objects(w);
        }
    }
    return tell(w, r);
}

bool vj_write_back_changes(const VjWriteBack *w)
{
    return w->inline_record.len > 0 || w->recut.regions->len > 0;
}

bool vj_write_back_needs_flush(const VjWriteBack *w)
{
    return any_put(w->recut.outs);
}

int vj_write_back_commit(VjWriteBack *w)
{
    int r = commit(w);

    /* Fragments are not worth the last space of the metadata. */
    if (w->as_fragments && (r == -ENOSPC || r == -EDQUOT || r == -EFBIG)) {
        w->as_fragments = false;
        r = objects_again(w);
        if (r == 0) {
            r = commit(w);
        }
    }

    for (unsigned i = 0; i < STALE_TRIES && r == -ESTALE; i++) {
        r = objects_again(w);
        if (r == 0) {
            r = commit(w);
        }
    }
    if (r == 0) {
        outs_free(w, true);
        finish(w);
    }
    return tell(w, r);
}

bool vj_write_back_is_beside(const VjWriteBack *w)
{
    return w->content != VJ_CONTENT_MAP && w->before.content != VJ_CONTENT_MAP;
}

typedef struct Beside {
    VjWriteBack *const *all;
    size_t count;
} Beside;

static int beside_body(VjTxn *txn, void *opaque)
{
    const Beside *b = opaque;
    int r = 0;

    for (size_t i = 0; r == 0 && i < b->count; i++) {
        r = commit_body(txn, b->all[i]);
        if (b->all[i]->gone) {
            r = 0; /* it was dropped */
        }
    }
    return r;
}

int vj_write_back_commit_beside(VjWriteBack *const *all, size_t count)
{
    Beside b = {.all = all, .count = count};
    VjFileTable *table = all[0]->table;
    VjRunFlags flags =
        g_atomic_int_get(&table->last_chance) != 0 ? VJ_RUN_RELEASE : VJ_RUN_DEFAULT;
    int r = vj_meta_run(table->meta, flags, beside_body, &b);

    for (size_t i = 0; r == 0 && i < count; i++) {
        if (!all[i]->gone) {
            finish(all[i]);
        }
    }
    return r;
}

void vj_write_back_end(VjWriteBack *w)
{
    give_back_fragments(w);
    outs_free(w, false);
}

void vj_write_back_free(VjWriteBack *w)
{
    for (guint i = 0; w->committed && i < w->detached->len; i++) {
        w->table->events->orphaned(
            w->table->opaque, w->ino,
            g_array_index(w->detached, VjMapDetached, i).root.node);
    }
    g_assert(w->recut.outs->len == 0);
    vj_chunker_free(w->recut.chunker);
    if (w->old.window != NULL) {
        vj_old_map_clear(&w->old);
    }
    g_array_unref(w->recut.regions);
    g_ptr_array_unref(w->recut.outs);
    g_array_unref(w->detached);
    g_array_unref(w->spans);
    if (w->mems != NULL) {
        g_ptr_array_unref(w->mems);
    }
    vj_mem_unref(w->base_mem);
    g_free(w);
}
