/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * hold.c - what a round in the background leaves to the next one: the end of a growing
 * file
 *
 * A round cuts its sequence as if the file ended there.  While a program still appends,
 * the last object of it would be put only to be cut anew by the next round, and a second
 * copy of content that is stored already would bring an object that the first has not.
 * So a round that no caller waits for ends at a cut that the chunker has decided, and the
 * bytes behind it stay in the active sequence.
 *
 * No reader may see by that a state that the file never had: what stays was only
 * appended, after every other change (append_from).  And nothing may stay for ever: a
 * round holds back only what came since the one before, of a file that grew by a good
 * deal meanwhile.
 */
#include "file/file-private.h"

/* A file that grew by less since its last round is taken whole, bytes. */
#define HOLD_LEAST (8 * VJ_MIB)
/* A file with so many pieces is written back before its age. */
#define PIECES_MANY 16384u
/* From wherever the chunker begins, after so many chunks it cuts as from the start of the
 * file. */
#define HOLD_SCAN_CHUNKS 16u

/* What was appended since the last round and every other change begins here.  Under
 * f->lock. */
static uint64_t grown_from(const VjFile *f)
{
    return MAX(f->append_from, f->round_bytes);
}

uint64_t vj_file_grown_locked(const VjFile *f)
{
    return vj_pieces_length(f->active) - MIN(grown_from(f), vj_pieces_length(f->active));
}

static bool may_hold_locked(const VjFile *f)
{
    return !f->closed && !f->writing && f->frozen == NULL && !f->discarded &&
           vj_file_grown_locked(f) >= HOLD_LEAST;
}

typedef struct Tail {
    GArray *pieces; /* VjPiece, MEMORY, referenced */
    bool is_memory;
} Tail;

static bool take_piece(void *opaque, const VjPiece *piece, uint64_t at)
{
    Tail *t = opaque;

    (void)at;
    if (piece->kind != VJ_PIECE_MEMORY) {
        t->is_memory = false;
        return false;
    }
    vj_mem_ref(piece->mem);
    g_array_append_val(t->pieces, *piece);
    return true;
}

static void tail_clear(Tail *t)
{
    for (guint i = 0; i < t->pieces->len; i++) {
        vj_mem_unref(g_array_index(t->pieces, VjPiece, i).mem);
    }
    g_array_unref(t->pieces);
}

/* The last cut of the tail, from its start; 0: none. */
static uint64_t last_cut(VjChunker *chunker, const Tail *t)
{
    uint64_t chunk = 0, cut, end = 0; /* where the chunk under way begins; fed */

    for (guint i = 0; i < t->pieces->len; i++) {
        end += g_array_index(t->pieces, VjPiece, i).length;
    }
    for (uint64_t fed = 0; fed < end;) {
        uint64_t at = 0;
        guint i = 0;
        const VjPiece *p = &g_array_index(t->pieces, VjPiece, 0);

        while (at + p->length <= fed) {
            at += p->length;
            p = &g_array_index(t->pieces, VjPiece, ++i);
        }
        if (vj_chunker_scan(chunker, p->mem->data + p->start + (fed - at),
                            p->length - (fed - at), false, &cut)) {
            chunk += cut; /* it may lie before what was fed last: that is fed again */
            fed = chunk;
        } else {
            fed = at + p->length;
        }
    }
    return chunk;
}

uint64_t vj_file_hold_from(VjFile *f)
{
    Tail tail = {.pieces = g_array_new(FALSE, FALSE, sizeof(VjPiece)), .is_memory = true};
    g_autoptr(VjChunker) chunker = NULL;
    VjFileTable *table = f->table;
    VjChunkSizes sizes = {0};
    uint64_t from = 0, cut = 0;

    vj_mutex_lock(&f->lock);
    if (may_hold_locked(f)) {
        uint64_t size = vj_pieces_length(f->active);

        sizes = f->sizes;
        from = size -
               MIN((uint64_t)HOLD_SCAN_CHUNKS * sizes.avg_bytes, vj_file_grown_locked(f));
        vj_pieces_visit(f->active, from, size - from, take_piece, &tail);
    }
    vj_mutex_unlock(&f->lock);
    if (tail.pieces->len > 0 && tail.is_memory &&
        vj_chunker_new(table->chunker, sizes, table->chunk_seed, &chunker) == 0) {
        cut = last_cut(chunker, &tail);
    }
    tail_clear(&tail);
    return cut > 0 ? from + cut : 0;
}

bool vj_file_may_hold_locked(const VjFile *f, uint64_t from)
{
    return from > 0 && may_hold_locked(f) && from >= grown_from(f) &&
           from < vj_pieces_length(f->active);
}

VjPieces *vj_file_hold_locked(VjFile *f, VjFrozen *z, uint64_t from)
{
    Tail tail = {.pieces = g_array_new(FALSE, FALSE, sizeof(VjPiece)), .is_memory = true};
    VjPieces *active = vj_pieces_new(&f->table->dirty, f->table->objects, from);
    uint64_t len = vj_pieces_length(z->pieces) - from;
    const VjPiece *pieces;

    vj_pieces_visit(z->pieces, from, len, take_piece, &tail);
    g_assert(tail.is_memory && tail.pieces->len > 0);
    pieces = (const VjPiece *)(const void *)tail.pieces->data;
    vj_pieces_replace(active, from, 0, pieces, tail.pieces->len);
    z->ahead = vj_pieces_new(&f->table->dirty, f->table->objects, 0);
    vj_pieces_replace(z->ahead, 0, 0, pieces, tail.pieces->len);
    vj_pieces_replace(z->pieces, from, len, NULL, 0);
    tail_clear(&tail);
    return active;
}

void vj_file_weigh_locked(VjFile *f)
{
    uint64_t least =
        MIN(VJ_FILE_MUCH_LEAST, f->table->dirty.limit_bytes / VJ_FILE_MUCH_PART);

    g_atomic_int_set(&f->holds_much, vj_pieces_memory_bytes(f->active) >= least);
}

bool vj_file_holds_much(VjFile *f)
{
    return g_atomic_int_get(&f->holds_much) != 0;
}

/*
 * The file is not to wait for its age; a thread that writes it back looks again.  Where
 * memory is short that holds for files that have much of it alone: a round of any other
 * one gives nearly nothing back, and whoever makes that file durable would wait for its
 * objects and its flush, behind those of the stream that has the memory.  Under f->lock.
 */
bool vj_file_is_much_locked(const VjFile *f)
{
    return !f->writing && (vj_pieces_count(f->active) > PIECES_MANY ||
                           vj_file_grown_locked(f) >= VJ_FILE_GROWN_MOST ||
                           (g_atomic_int_get(&f->holds_much) != 0 &&
                            vj_budget_is_tight(&f->table->dirty)));
}

bool vj_file_is_much(VjFile *f)
{
    bool is_much;

    vj_mutex_lock(&f->lock);
    is_much = vj_file_is_much_locked(f);
    vj_mutex_unlock(&f->lock);
    return is_much;
}
