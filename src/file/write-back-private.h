/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * write-back-private.h - one frozen sequence on its way into objects
 *
 * old-map.c    looks at the committed map through short snapshots
 * runs.c       bytes that wait to be cut, and the chunker over them
 * recut.c      decides what changes: where to start again, where to cut, where to stop
 * recode.c     the same for content that does not change, and is stored anew
 * fragment-plan.c  the same for a few small changes that a caller waits for: no object is
 *                  made
 * put-queue.c  hands finished chunks to the volume's workers
 * write-back.c puts it together and commits
 */
#ifndef VJ_FILE_WRITE_BACK_PRIVATE_H
#define VJ_FILE_WRITE_BACK_PRIVATE_H

#include "file/file-private.h"

/* ---- the old map (old-map.c) ------------------------------------------------------- */

typedef struct VjOldEntry {
    VjEntry entry;
    uint64_t at;     /* offset of its first byte in the file */
    VjObject object; /* kind OBJECT */
} VjOldEntry;

/* The committed map below the sequence.  Only this write-back may change it. */
typedef struct VjOldMap {
    VjFileTable *table;
    uint64_t ino;
    VjMapRoot root;
    GArray *window; /* VjOldEntry, consecutive */
} VjOldMap;

void vj_old_map_init(VjOldMap *m, VjFileTable *table, uint64_t ino,
                     const VjMapRoot *root);
void vj_old_map_clear(VjOldMap *m);
/* The entry that holds @offset.  -ENOENT at or beyond the end; -EBADMSG. */
int vj_old_map_at(VjOldMap *m, uint64_t offset,
                  VjOldEntry *out) G_GNUC_WARN_UNUSED_RESULT;
/* Content of @e, which is of this map, from its @skip on.  Damage: vj_is_damage(). */
int vj_old_entry_read(VjOldMap *m, const VjOldEntry *e, uint64_t skip, void *dst,
                      size_t len) G_GNUC_WARN_UNUSED_RESULT;

/* ---- what is put (put-queue.c) ----------------------------------------------------- */

/* One entry of the new map. */
typedef struct VjOut {
    VjEntryKind kind;
    uint64_t length;
    VjPendingObject *pending; /* OBJECT from bytes; owned */
    VjFragment *fragment;     /* FRAGMENT that is new; owned */
    uint64_t stored; /* OBJECT that exists, when pending is NULL; FRAGMENT of this file */
    uint32_t start;
} VjOut;

/* Bytes of one write-back that were cut and are not put. */
#define VJ_PUT_QUEUE_MAX ((size_t)8 << 20)
/* Chunks that a worker's call takes before it lets other write-backs' calls go first. */
#define VJ_PUT_CALL_JOBS 4u
#define VJ_NEIGHBOURS 12u

typedef struct VjPutQueue {
    /* What a worker is given; atomic: checkers of races do not know GLib's queue. */
    struct VjPutQueue *self;
    VjFileTable *table;
    VjTransform want;
    struct VjPutJob *held; /* not handed to a worker yet; of the thread that adds */
    VjMutex lock;          /* VJ_RANK_FILE_QUEUE */
    VjCond done;
    /* guarded by lock: */
    GQueue jobs;  /* of VjPutJob, not begun */
    size_t calls; /* of vj_put_worker, to come or running; one for each thread at most */
    size_t waiting_bytes;
    size_t waiting_jobs; /* begun or not, with the one that is held */
    int error;
} VjPutQueue;

void vj_put_queue_init(VjPutQueue *q, VjFileTable *table, const VjTransform *want);
void vj_put_queue_clear(VjPutQueue *q);
/*
 * Stores @content as @out->pending in a worker, the last one in vj_put_queue_drain; waits
 * while too much waits.  Its holder keeps it alive (taken; NULL: it outlives the queue).
 * The error of an earlier job.
 */
int vj_put_queue_add(VjPutQueue *q, VjOut *out, const VjPlain *content,
                     const VjObject *neighbours,
                     size_t neighbour_count) G_GNUC_WARN_UNUSED_RESULT;
/* Waits for all jobs; the first error. */
int vj_put_queue_drain(VjPutQueue *q) G_GNUC_WARN_UNUSED_RESULT;

/* ---- what is cut (runs.c) ---------------------------------------------------------- */

typedef struct VjRun {
    const uint8_t *data;
    size_t len;
    VjBuf *holder;    /* of old bytes; NULL: the frozen sequence keeps them */
    bool boundary;    /* begins on an old boundary; recut.c: behind the change */
    uint64_t old_off; /* of its first byte, when boundary */
    size_t span;      /* recut.c: that it came from, when boundary */
    VjEntry entry;    /* recode.c: whose content it is, from its start */
    bool is_current;  /* recode.c: that entry may stay as it is */
} VjRun;

typedef struct VjRuns {
    VjChunker *chunker; /* borrowed */
    GArray *runs;       /* VjRun; the first is cut next */
    size_t head;        /* bytes of the first run that were cut already */
    uint64_t bytes;     /* in all runs, from head on */
    uint64_t fed_bytes; /* of them, what the chunker has seen since the last cut */
} VjRuns;

/* @chunker is borrowed, and begins afresh. */
void vj_runs_init(VjRuns *r, VjChunker *chunker);
void vj_runs_clear(VjRuns *r);
/* Takes over @run's holder. */
void vj_runs_add(VjRuns *r, const VjRun *run);
/* NULL: there is none. */
const VjRun *vj_runs_first(const VjRuns *r);
/* Bytes before the first old boundary that is not at their very front. */
bool vj_runs_next_boundary(const VjRuns *r, uint64_t *distance);
void vj_runs_drop(VjRuns *r, size_t len);
/* The first @len bytes, which leave the runs: in one piece, or in two where @in_two
 * allows it and the frozen sequence keeps them.  out->holder is owned.  -ENOMEM. */
int vj_runs_take(VjRuns *r, size_t len, bool in_two,
                 VjPlain *out) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Feeds the first @limit bytes, as far as they were not fed before.  True: *cut is set,
 * and the chunker has forgotten everything.  @at_end: nothing follows them.
 */
bool vj_runs_scan(VjRuns *r, uint64_t limit, bool at_end, uint64_t *cut);

/* ---- what changes (recut.c) -------------------------------------------------------- */

/* [old_from, old_to) of the old map becomes outs[first_out .. first_out + out_count). */
typedef struct VjRegion {
    uint64_t old_from, old_to;
    guint first_out, out_count;
} VjRegion;

typedef struct VjRecut {
    VjFileTable *table;
    VjOldMap *old;
    VjChunker *chunker;
    VjPutQueue *queue;
    bool frugal;   /* the store is full: share parts of old objects, put no old byte */
    bool by_parts; /* sound parts of old objects stay (recut.c); else canonical */
    /* by_parts: a writer that goes on there goes on with its cuts */
    uint64_t stream_from;
    const VjPiece *spans; /* the new content; BASE pieces merged, in rising order */
    size_t span_count;
    const VjPieces
        *ahead;      /* memory that follows the spans, to be looked at; NULL: none */
    GPtrArray *outs; /* VjOut, owned */
    GArray *regions; /* VjRegion, rising */
} VjRecut;

/* One more at the end of @c->outs. */
VjOut *vj_out_new(VjRecut *c, VjEntryKind kind, uint64_t length);

/*
 * vj_recut - fill outs and regions
 *
 * Jobs are queued while it runs; on failure the caller drains the queue all the same.
 */
int vj_recut(VjRecut *c) G_GNUC_WARN_UNUSED_RESULT;

/* ---- what becomes fragments (fragment-plan.c) -------------------------------------- */

/* New bytes, and changed places, that one commit may bring as fragments; bytes of a file
 * that has no objects yet: nothing would be cut anew for them. */
#define VJ_SMALL_BYTES ((size_t)128 << 10)
#define VJ_SMALL_PLACES 128u
#define VJ_SMALL_FILE_BYTES ((size_t)16 << 10)

/* Few enough and small enough, by what the sequence says. */
bool vj_spans_are_small(const VjPiece *spans, size_t count, size_t most_bytes);
/*
 * vj_fragment_plan - fill outs and regions; no object is made, but existing ones are
 * named in parts
 *
 * @want     the transformation of new fragments
 * Returns   0; -E2BIG: it is too much after all; else as vj_recut
 */
int vj_fragment_plan(VjRecut *c, const VjTransform *want) G_GNUC_WARN_UNUSED_RESULT;

/* ---- what fragments become (remap.c) ----------------------------------------------- */

struct VjRemapPlan {
    uint64_t from;       /* in the map */
    uint64_t most_bytes; /* of objects, about */
    uint64_t to;         /* out: where the next step begins; the size: it is done */
    uint32_t found;      /* out: fragments in between that can be read */
};

/*
 * vj_remap_plan - the content as spans: fragments of one step are memory, all else is the
 * map's
 *
 * @spans    VjPiece, appended; @mems (VjMem) keeps what they name
 */
int vj_remap_plan(VjOldMap *old, VjRemapPlan *plan, uint32_t avg_bytes, GArray *spans,
                  GPtrArray *mems) G_GNUC_WARN_UNUSED_RESULT;

/* ---- what is stored anew (recode.c) ------------------------------------------------ */

struct VjRecodePlan {
    uint64_t from; /* in the old map; becomes the start of the entry that holds it */
    uint64_t to;   /* out: where the next step begins; the size: it is done */
    uint64_t rewritten_bytes, unreadable_bytes; /* out: of the content in between */
};

/*
 * vj_recode_plan - fill outs and regions with one step; jobs are queued as by vj_recut
 *
 * Takes the settings from the queue and the chunker.  Content stays what it is.
 */
int vj_recode_plan(VjRecut *c, VjRecodePlan *plan) G_GNUC_WARN_UNUSED_RESULT;

#endif
