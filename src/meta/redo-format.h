/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * redo-format.h - the log in front of the metadata file: meta/redo.log
 *
 * A head in the first block, then two halves of half_bytes each.  Round r of the log is a
 * row of records from the start of half r % 2; a record begins at a block, so that
 * writing one never touches a block of another, and zeroes fill its last block.
 *
 * A record holds all that a run of commits changed, with the values that the last of them
 * left: replaying it twice is the same as once.  It is written when every record before
 * it, of this round and of the round before, is known to be durable; after a write or a
 * sync that failed the round gets no record any more, nor does the next one until the
 * file has all that the failed round held.  Hence:
 *
 * - Behind what does not decode there is no record of that round: the log was cut off
 *   there, and no flush has reported anything of it as durable.
 * - If there is one, or if the commits of the records do not follow one another, what was
 *   there had been durable: the log is damaged.
 * - A later round than those two: the metadata file is an old one.
 *
 * Which rounds count the metadata file says, in a record of its own (VjRedoState) that
 * each move into it writes: those from @round on, hence at most two, of the log with @id;
 * and of their commits those behind @seq.  Every log has an id of its own, a mount that
 * finds the last one empty begins a new one, and round numbers only grow: what an earlier
 * one left in the blocks is never taken for a record of this one.
 *
 * Little-endian.  vj_checksum64 throughout; that of a record's head covers the id before
 * it.
 */
#ifndef VJ_META_REDO_FORMAT_H
#define VJ_META_REDO_FORMAT_H

#include "base/base.h"

#define VJ_REDO_MAGIC "VJFSREDO"
#define VJ_REDO_VERSION 1u
#define VJ_REDO_ID_BYTES 16u
#define VJ_REDO_BLOCK_BYTES 4096u
/* Of a file; less is no use, and more only makes recovery longer. */
#define VJ_REDO_BYTES_MIN (UINT64_C(256) << 10)
#define VJ_REDO_BYTES_MAX (UINT64_C(1) << 30)
/* The changes of one record; more of them are moved into the metadata file at once. */
#define VJ_REDO_BODY_MAX (4u << 20)

typedef struct VjRedoHead {
    uint8_t magic[8];
    uint8_t version[4];
    uint8_t block_bytes[4];
    uint8_t id[VJ_REDO_ID_BYTES];
    uint8_t half_bytes[8]; /* a multiple of block_bytes */
    uint8_t reserved[16];  /* zero */
    uint8_t checksum[8];   /* of the bytes before it */
} VjRedoHead;

G_STATIC_ASSERT(sizeof(VjRedoHead) == 64);
G_STATIC_ASSERT(offsetof(VjRedoHead, id) == 16);
G_STATIC_ASSERT(offsetof(VjRedoHead, half_bytes) == 32);
G_STATIC_ASSERT(offsetof(VjRedoHead, checksum) == 56);

#define VJ_REDO_RECORD_MAGIC "VRR1"

/* The body follows it: changes in a row, each a VjRedoChange, its key and its value. */
typedef struct VjRedoRecord {
    uint8_t magic[4];
    uint8_t body_bytes[4];
    uint8_t round[8];
    uint8_t place[8];     /* where in the file it stands, bytes */
    uint8_t first_seq[8]; /* its commits */
    uint8_t last_seq[8];
    uint8_t change_count[4];
    uint8_t reserved[4]; /* zero */
    uint8_t body_checksum[8];
    uint8_t checksum[8]; /* of the id and of the bytes before it */
} VjRedoRecord;

G_STATIC_ASSERT(sizeof(VjRedoRecord) == 64);
G_STATIC_ASSERT(offsetof(VjRedoRecord, place) == 16);
G_STATIC_ASSERT(offsetof(VjRedoRecord, change_count) == 40);
G_STATIC_ASSERT(offsetof(VjRedoRecord, checksum) == 56);

typedef struct VjRedoChange {
    uint8_t space;
    uint8_t kind; /* VJ_REDO_PUT, VJ_REDO_DELETE */
    uint8_t key_bytes[2];
    uint8_t value_bytes[4]; /* 0 of a deletion */
} VjRedoChange;

G_STATIC_ASSERT(sizeof(VjRedoChange) == 8);

#define VJ_REDO_PUT 1u
#define VJ_REDO_DELETE 2u

/* In the metadata file: with which log it belongs together, and up to where it needs
 * none. */
#define VJ_REDO_STATE_MAGIC "VRS1"

typedef struct VjRedoState {
    uint8_t magic[4];
    uint8_t reserved[4]; /* zero */
    uint8_t id[VJ_REDO_ID_BYTES];
    uint8_t round[8]; /* the first whose records count */
    uint8_t seq[8];   /* the last commit that the file has */
    uint8_t checksum[8];
} VjRedoState;

G_STATIC_ASSERT(sizeof(VjRedoState) == 48);
G_STATIC_ASSERT(offsetof(VjRedoState, round) == 24);
G_STATIC_ASSERT(offsetof(VjRedoState, checksum) == 40);

#endif
