/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * pieces-private.h - the edit buffer: a changed file as a sequence of pieces
 *
 * A piece is a range of what lies below (the committed map, or the frozen sequence that
 * is being written back), a range of memory, a hole, or a range of an object that
 * copy_file_range shared.  The sequence is a counted tree (a treap), so cutting and
 * joining costs O(log pieces) wherever it happens.  Ranges of what lies below never
 * change order.
 *
 * Memory and tree nodes are charged to a VjBudget while they live.
 *
 * Threads: one at a time (the file's lock), and any number of readers of a sequence that
 * no thread changes any more (frozen).  VjMem: ref and unref any thread.  Locks: none.
 */
#ifndef VJ_FILE_PIECES_PRIVATE_H
#define VJ_FILE_PIECES_PRIVATE_H

#include "file/budget-private.h"
#include "object/object.h"

/* Bytes that writers wrote; those below len that a piece names never change. */
typedef struct VjMem {
    gint refs;
    size_t cap; /* bytes, charged */
    size_t len; /* bytes in use; the file's lock */
    VjBudget *budget;
    uint8_t *data;
    void *block; /* that data lies in (budget.c); NULL: none */
} VjMem;

/* Returns owned with len 0; NULL when memory is short. */
VjMem *vj_mem_new(VjBudget *budget, size_t cap);
/* @len bytes at @data, which lies in @block of the budget's: takes that.  NULL: memory is
 * short. */
VjMem *vj_mem_new_from(VjBudget *budget, void *block, const void *data, size_t len);
VjMem *vj_mem_ref(VjMem *m);
void vj_mem_unref(VjMem *m);

typedef enum VjPieceKind {
    VJ_PIECE_BASE,   /* start: offset in what lies below */
    VJ_PIECE_MEMORY, /* start: offset in mem */
    VJ_PIECE_HOLE,
    VJ_PIECE_OBJECT, /* start: offset in the object, which is pinned */
} VjPieceKind;

typedef struct VjPiece {
    VjPieceKind kind;
    uint64_t length; /* bytes, > 0 */
    uint64_t start;  /* bytes */
    VjMem *mem;      /* MEMORY: the sequence holds a reference */
    uint64_t object; /* OBJECT: the sequence holds a pin */
} VjPiece;

typedef struct VjPieces VjPieces;

/* A sequence of one BASE piece of @base_bytes (none when 0).  @objects: where pins
 * are. */
VjPieces *vj_pieces_new(VjBudget *budget, VjObjects *objects, uint64_t base_bytes);
void vj_pieces_free(VjPieces *p);

uint64_t vj_pieces_length(const VjPieces *p); /* bytes */
size_t vj_pieces_count(const VjPieces *p);
uint64_t vj_pieces_memory_bytes(const VjPieces *p); /* lengths of MEMORY pieces */
/* Nothing was changed: one BASE piece from 0 of exactly the length given at birth. */
bool vj_pieces_is_identity(const VjPieces *p);

/*
 * vj_pieces_replace - [offset, offset + old_len) becomes @pieces
 *
 * References and pins of @pieces are taken anew by the sequence; the caller keeps its
 * own.
 */
void vj_pieces_replace(VjPieces *p, uint64_t offset, uint64_t old_len,
                       const VjPiece *pieces, size_t count);

/*
 * vj_pieces_extend_memory - grow the MEMORY piece that ends at @offset by @len bytes
 *
 * True when the piece that ends there is the last use of @mem (ends at mem->len) and the
 * bytes [offset, offset + over) of the sequence, which the growth covers, were dropped.
 */
bool vj_pieces_extend_memory(VjPieces *p, uint64_t offset, uint64_t over, VjMem *mem,
                             size_t len);

/* The piece that holds the byte before @offset; false when there is none. */
bool vj_pieces_before(const VjPieces *p, uint64_t offset, VjPiece *out);

/* Visits pieces of [offset, offset + len), trimmed; borrowed.  false from @visit:
 * stop. */
typedef bool VjPieceVisit(void *opaque, const VjPiece *piece, uint64_t at);
void vj_pieces_visit(const VjPieces *p, uint64_t offset, uint64_t len,
                     VjPieceVisit *visit, void *opaque);

#endif
