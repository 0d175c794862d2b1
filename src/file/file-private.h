/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * file-private.h - what the files of this room share
 *
 * The file (the edit buffer of one inode and its write-back), and the table of open files
 * with what all of them use.
 */
#ifndef VJ_FILE_FILE_PRIVATE_H
#define VJ_FILE_FILE_PRIVATE_H

#include "file/append-private.h"
#include "file/committed-private.h"
#include "file/fragment-private.h"
#include "file/pieces-private.h"
#include "file/records.h"
#include "file/space-private.h"
#include "file/table.h"

/* ---- file (file.c, read.c, write-back.c) ------------------------------------------- */

/* A sequence that is being written back; no thread changes its pieces. */
typedef struct VjFrozen {
    gint refs;
    VjPieces *pieces;
    uint64_t base_version; /* of the map that its BASE pieces are ranges of */
    /* Its file lets go of it without a commit: a newer map has nothing to do with it.
     * Atomic; set under the file's lock, before another thread can commit. */
    gint given_up;
    uint64_t seq; /* the last change in it */
    uint64_t reserved_bytes;
    /* Where the last change of the round before ends, if it brought bytes, and of this
     * one (write-back.c); 0: none. */
    uint64_t stream_from, changed_to;
    /* An attempt found no space: the next keeps parts of old objects as parts. */
    bool was_short;
    gint times_valid; /* until a utimens takes them; atomic */
    struct timespec changed;
    int64_t frozen_us;
    /* Memory that follows and is not part of it, for the chunker to look at; NULL:
     * none. */
    VjPieces *ahead;
} VjFrozen;

/* Reads that follow one another (read-ahead.c). */
typedef struct VjStream {
    uint64_t start, next; /* from where, and where the next one is to begin */
    uint64_t run;         /* bytes that were read; 0: no stream */
    uint64_t ahead;       /* asked for up to there */
    uint64_t used_at;
} VjStream;
#define VJ_STREAMS 4u

struct VjFile {
    VjFileTable *table;
    uint64_t ino;
    gint refs; /* 1 → 0 under the table's lock */

    VjMutex lock; /* VJ_RANK_FILE; never held across I/O */
    VjCond idle;  /* writing became false */
    /* guarded by lock: */
    VjPieces *active; /* over the frozen sequence's output, or the committed map */
    VjMem *tail;      /* where a sequential writer goes on; referenced */
    VjFrozen *frozen;
    uint64_t base_version;   /* of the committed map below frozen, or below active */
    uint64_t dirty_seq;      /* of the last change */
    uint64_t committed_seq;  /* every change up to it is committed */
    uint64_t reserved_bytes; /* for active */
    /* It was so long when it was changed last otherwise than by appending, and when a
     * round began last. */
    uint64_t append_from, round_bytes;
    uint64_t changed_to; /* of the last round that was committed */
    /* Since the last round that took all of it: nothing is held back (hold.c). */
    bool closed;
    struct timespec changed; /* of the last change in active */
    bool times_pending;
    bool writing;
    bool committing; /* a commit of the content has begun, and may be visible */
    gint holds_much; /* active does (hold.c); atomic: read without the lock too */
    VjCommitted
        *committed;     /* of base_version, while not committing; NULL: nothing is kept */
    VjAppend *append;   /* NULL: no caller has appended in parts */
    uint64_t appenders; /* as vj_file_append_who has counted */
    unsigned utimens_now;   /* calls under way */
    uint64_t utimens_count; /* calls that have begun */
    /* The number of the call under way that took pending times last; 0: none are taken,
     * or later ones are set. */
    uint64_t times_taken_by;
    uint32_t times_dropped; /* how often a utimens was later than those that were taken */
    bool discarded;         /* an orphan being dropped: changes go nowhere */
    uint32_t error_count;
    int last_error;        /* -errno */
    VjTransform transform; /* what holds for it (settings.c) */
    VjChunkSizes sizes;    /* of its objects */
    bool is_unwritable; /* this build does not know its transformation, or has no key */
    uint64_t settings_seq; /* of the last look at its settings */
    gint settings_are_old; /* atomic: another session changed its record since */
    VjStream streams[VJ_STREAMS];
    uint64_t stream_tick;
    VjFlushLink flush_link; /* the flusher's */
};

/* What the record says of transformation and sizes.  Under f->lock, or before another
 * thread has @f. */
void vj_file_take_settings(VjFile *f, const VjInode *inode);
/* The same where another session changed the record; reads it then. */
void vj_file_renew_settings(VjFile *f);

VjFrozen *vj_frozen_ref(VjFrozen *z);
void vj_frozen_unref(VjFrozen *z);

/* Map entries that one commit may bring at the most: a transaction of the engine is
 * bounded, and a sequence is committed as a whole.  A writer that comes to it writes back
 * first. */
#define VJ_FILE_ENTRIES_MOST 65536u

/* Of the cache= of a mount, for what is kept of committed maps: one part in so many. */
#define VJ_COMMITTED_PART 8u

/* A commit of the content begins; over: it has been made, or not.  over: under
 * f->lock. */
void vj_file_commit_begins(VjFile *f);
void vj_file_commit_is_over_locked(VjFile *f);

/* Changes that are not committed.  Under f->lock. */
static inline bool vj_file_dirty_locked(const VjFile *f)
{
    return f->dirty_seq > f->committed_seq;
}

/* ---- content in a shared session (content-claim.c) --------------------------------- */

/* An inode whose record is being read for a VjFile, or whose last VjFile is being closed:
 * a thread that wants one waits. */
typedef struct VjOpening {
    uint64_t ino;
    bool has_changed; /* another session changed its record meanwhile */
} VjOpening;

/*
 * @ino is among those that are being opened.  *out as committed, and no other session
 * commits its content until it is dropped.  -EBUSY: *holder has it open; -ESTALE: it has
 * no name and is another session's, or about to be dropped; else as vj_file_record.
 */
int vj_content_claim(VjFileTable *table, uint64_t ino, VjInode *out,
                     uint64_t *holder) G_GNUC_WARN_UNUSED_RESULT;
/* A transaction that may have taken the claim of @ino ended with @r, and the inode is not
 * opened: where it is not known whether the claim was taken, it is dropped later. */
void vj_content_claim_failed(VjFileTable *table, uint64_t ino, int r);
/* A line about -EBUSY. */
void vj_content_tell_busy(VjFileTable *table, uint64_t ino, uint64_t holder);
/* @closing is among those that are being opened, and leaves them.  May wait for the
 * orphan purge, and so for the round of a file. */
void vj_content_drop(VjFileTable *table, VjOpening *closing);

/* ---- the end of a growing file stays for the next round (hold.c) ------------------- */

/* Memory that was appended to a file in one go and no round has taken; more of it is
 * written back without waiting for its age, so that a stream is cut, hashed and put while
 * it comes. */
#define VJ_FILE_GROWN_MOST (16 * VJ_MIB)
/* Changes that take so much memory are worth a round when that is short, bytes; of a
 * small budget one part in VJ_FILE_MUCH_PART. */
#define VJ_FILE_MUCH_LEAST VJ_MIB
#define VJ_FILE_MUCH_PART 32u

/* Bytes at the end that were only appended, and since the last round began.  Under
 * f->lock. */
uint64_t vj_file_grown_locked(const VjFile *f);
bool vj_file_is_much_locked(const VjFile *f);
/* After each change of what is active.  Under f->lock. */
void vj_file_weigh_locked(VjFile *f);
/* The cut before which a round may end, or 0: it takes the whole file.  Reads some
 * MiB. */
uint64_t vj_file_hold_from(VjFile *f);
/* It still may, after what was done to the file meanwhile.  Under f->lock. */
bool vj_file_may_hold_locked(const VjFile *f, uint64_t from);
/* Takes what lies from @from on off @z, which sees it as ahead.  Returns the sequence
 * over @z that has it.  Under f->lock. */
VjPieces *vj_file_hold_locked(VjFile *f, VjFrozen *z, uint64_t from);

/*
 * A frozen sequence on its way into a commit (write-back.c): objects, then the caller
 * flushes the store if that is needed, then the commit.  *out is owned also on failure.
 * Both: -ENOENT the inode is gone, and nothing else is; -EBADMSG what the change lies
 * over is damaged or missing; -ENOSPC, -EIO, -ENOMEM.
 */
typedef struct VjWriteBack VjWriteBack;
/* @may_be_small: a caller waits for it; a few small changes become fragments, not
 * objects. */
int vj_write_back_objects(VjFileTable *table, uint64_t ino, VjFrozen *z,
                          bool may_be_small, VjWriteBack **out) G_GNUC_WARN_UNUSED_RESULT;
/* The same for content that stays and is stored anew (write-back-private.h); @z is the
 * identity. */
typedef struct VjRecodePlan VjRecodePlan;
int vj_write_back_recode(VjFileTable *table, uint64_t ino, VjFrozen *z,
                         VjRecodePlan *plan, VjWriteBack **out) G_GNUC_WARN_UNUSED_RESULT;
/* The same for content some of which is in fragments, which become objects. */
typedef struct VjRemapPlan VjRemapPlan;
int vj_write_back_remap(VjFileTable *table, uint64_t ino, VjFrozen *z, VjRemapPlan *plan,
                        VjWriteBack **out) G_GNUC_WARN_UNUSED_RESULT;
/* After vj_write_back_recode and _remap: false: there is nothing to commit. */
bool vj_write_back_changes(const VjWriteBack *w);
bool vj_write_back_needs_flush(const VjWriteBack *w);
int vj_write_back_commit(VjWriteBack *w) G_GNUC_WARN_UNUSED_RESULT;
/* It stands beside its inode, or has no bytes, and so it was before. */
bool vj_write_back_is_beside(const VjWriteBack *w);
/* Such contents in one transaction.  Fails where one of them fails, with nothing done:
 * then each is to be committed alone.  Who is gone is done. */
int vj_write_back_commit_beside(VjWriteBack *const *all,
                                size_t count) G_GNUC_WARN_UNUSED_RESULT;
/* Once, before the round ends: what was put and not committed is removed. */
void vj_write_back_end(VjWriteBack *w);
/* Reports to the volume what a commit cut off (VjFileEvents.orphaned), which may wait for
 * the round of a file: so after all rounds of this thread have ended. */
void vj_write_back_free(VjWriteBack *w);

/* A step of recoding is over behind so many bytes. */
#define VJ_RECODE_STEP_BYTES (8 * VJ_MIB)

/* ---- space for a change and its write-back (reserve.c) ----------------------------- */

/* @len bytes as objects of this file, with their trailers and records.  Under f->lock. */
uint64_t vj_file_stored_at_worst(const VjFile *f, uint64_t len);
/* What write-back may have to put for a change of @len bytes, at worst.  Under
 * f->lock. */
uint64_t vj_file_worst_case(const VjFile *f, uint64_t len, bool sequential);
/* Reserves for one more change.  -ENOSPC.  Under f->lock. */
int vj_file_reserve_locked(VjFile *f, size_t len,
                           bool sequential) G_GNUC_WARN_UNUSED_RESULT;
/* Waits until what was deleted is removed from the store; what fails is tried again
 * later. */
void vj_file_table_reclaim(VjFileTable *table);
/* When a reserve was refused: what is dirty is put (round.c), what is dead is removed. */
int vj_file_table_make_space(VjFileTable *table) G_GNUC_WARN_UNUSED_RESULT;

/* ---- resolved ranges (resolve.c) --------------------------------------------------- */

typedef enum VjSegmentKind {
    VJ_SEGMENT_MEMORY, /* bytes at start of mem */
    VJ_SEGMENT_HOLE,
    VJ_SEGMENT_OBJECT,  /* bytes at start of object */
    VJ_SEGMENT_DAMAGED, /* the map or a record there cannot be read: error */
} VjSegmentKind;

/* A range of a file with everything that is needed to read it. */
typedef struct VjSegment {
    VjSegmentKind kind;
    uint64_t at, length; /* in the file, bytes */
    uint64_t start;
    VjMem *mem; /* referenced */
    VjObject object;
    VjObjects *pinned_in; /* of a piece: no snapshot need name it.  NULL: the guard's */
    int error;
} VjSegment;

/* GArray of VjSegment that gives back its references. */
GArray *vj_segments_new(void);

/*
 * vj_file_resolve - what [offset, offset + len) consists of now
 *
 * @most      stop after so many segments (the last then ends before offset + len)
 * @size      the file's size at the same instant
 * The caller has entered a guard and leaves it after reading the objects.
 */
int vj_file_resolve(VjFile *f, uint64_t offset, uint64_t len, size_t most,
                    GArray *segments, uint64_t *size) G_GNUC_WARN_UNUSED_RESULT;

/* Bytes of one segment from its @skip on.  -EBADMSG damaged or missing; -EIO, -ENOMEM. */
int vj_segment_read(VjFileTable *table, const VjSegment *s, uint64_t skip, void *dst,
                    size_t len, bool whole) G_GNUC_WARN_UNUSED_RESULT;

/* ---- what comes next (read-ahead.c) ------------------------------------------------ */

typedef struct VjReadAhead VjReadAhead;
/* @cache_bytes: of the object cache.  @is_far: the store cannot expect. */
VjReadAhead *vj_read_ahead_open(VjFileTable *table, uint64_t cache_bytes, bool is_far);
/* No thread reads any more.  NULL is fine. */
void vj_read_ahead_close(VjReadAhead *a);
/* @f is about to be read there.  Does not wait. */
void vj_read_ahead(VjFile *f, uint64_t offset, size_t len);
/* As vj_file_table_drain_read_ahead and _hold_read_ahead. */
void vj_read_ahead_drain(VjReadAhead *a);
void vj_read_ahead_hold(VjReadAhead *a, bool hold);

/* ---- the table (file.c, table.c) --------------------------------------------------- */

struct VjFileTable {
    /* never change after open: */
    VjMeta *meta;
    VjObjects *objects;
    VjRemapper *remapper; /* NULL: read-only, or a check; nothing is removed then */
    VjReadAhead *read_ahead;
    bool is_shared; /* others have sessions: contents are claimed (content-claim.c) */
    GThreadPool *workers;
    unsigned worker_count;
    unsigned put_workers; /* threads of the pool */
    const VjDigestOps *digest;
    const VjChunkerOps *chunker;
    VjChunkSizes sizes; /* of files that have none of their own */
    uint64_t chunk_seed;
    VjTransform transform; /* likewise */
    bool new_is_set;       /* the mount chose new_transform for new files */
    VjTransform new_transform;
    const VjFileEvents *events;
    void *opaque;               /* of events */
    uint64_t recode_step_bytes; /* VJ_RECODE_STEP_BYTES; tests make it short */
    VjBudget dirty;
    VjSpaceKeeper space;
    VjCommittedBudget committed;
    /* atomic: */
    gint read_only;
    gint last_chance; /* closing, and space was short */

    VjMutex lock;      /* VJ_RANK_FILE_TABLE */
    VjCond opened;     /* a number left opening */
    VjCond inos_taken; /* taking_inos became false */
    /* guarded by lock: */
    GHashTable *files;          /* uint64_t* in VjFile → VjFile, not referenced */
    GHashTable *opening;        /* uint64_t* in VjOpening → VjOpening, borrowed */
    GArray *claims_left;        /* uint64_t: inodes whose claims could not be dropped */
    uint64_t next_ino, end_ino; /* what is left of the block of inode numbers */
    uint64_t ino_block;         /* VJ_INO_BLOCK; tests make it short */
    bool taking_inos;           /* a thread takes another block */

    VjFileCounters counters; /* atomic (vj_count) */
};

/* Atomic add to a counter of the table. */
static inline void vj_count(guint64 *counter, uint64_t add)
{
    __atomic_fetch_add(counter, add, __ATOMIC_RELAXED);
}

/* The worker's function of the put queue (put-queue.c). */
void vj_put_worker(gpointer queue, gpointer table);
/* The record of @ino as it is committed. */
int vj_file_record(VjFileTable *table, uint64_t ino,
                   VjInode *out) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_file_open, but -EBUSY is not logged. */
int vj_file_open_quietly(VjFileTable *table, uint64_t ino,
                         VjFile **out) G_GNUC_WARN_UNUSED_RESULT;
/* The open file of @ino, referenced; NULL when it is not in memory. */
VjFile *vj_file_find(VjFileTable *table, uint64_t ino);

#endif
