/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-private.h - a session: transactions, and what is visible and not yet durable
 *
 *   session.c      open, close, the ops table
 *   session-number.c  its number, its record and its fence
 *   leased.c       the same with a lease, where the engine is elsewhere
 *   events.c       what it reports to its listener
 *   txn.c          write transactions; the members of the ops table for one key
 *   view.c         what a transaction sees of what is committed, through the layers
 *   far-view.c     reading an engine without snapshots
 *   generation.c   commits on their way to the engine; room for them
 *   applier.c        the thread that applies generations to the engine
 *   flush.c        waiting for durability, joined flushes
 *   send.c         waiting until another machine has them
 *   redo-write.c   the log in front of the engine: writing records
 *   redo-replay.c  what is in it when the session begins
 *
 * Layers, from above: the writer's own changes, the active generation, the frozen one,
 * the engine.  A generation's entries hide those of the layers below.
 */
#ifndef VJ_META_SESSION_PRIVATE_H
#define VJ_META_SESSION_PRIVATE_H

#include "meta/engine.h"
#include "meta/item-cache-private.h"
#include "meta/meta-private.h"
#include "meta/overlay-private.h"
#include "meta/read-set-private.h"
#include "meta/redo-private.h"
#include "meta/session-format.h"

/* Changes of one transaction, bytes of memory, unless its opener says another number; one
 * more fails with -ENOMEM. */
#define VJ_TXN_BYTES_MAX ((uint64_t)64 << 20)
/* What it may have beyond that: one change. */
#define VJ_TXN_BYTES_SLACK ((uint64_t)VJ_MIB)
/* Pause after a failed move, doubled up to the second; a flush ends it. */
#define VJ_MOVE_RETRY_FIRST_US ((int64_t)100 * 1000)
#define VJ_MOVE_RETRY_MAX_US ((int64_t)5 * 1000 * 1000)
/* How often a transaction asks for a snapshot that an engine in trouble does not give. */
#define VJ_SNAPSHOT_TRIES 3u
/* A shared one, while others commit. */
#define VJ_SHARED_SNAPSHOT_TRIES VJ_META_RUN_TRIES
/* Keys that a step through an engine without snapshots fetches at once. */
#define VJ_VIEW_RUN_KEYS 64u
/* Memory for what was read from an engine that is far away. */
#define VJ_ITEM_CACHE_BYTES ((uint64_t)64 << 20)
/* A lease is renewed after this part of it. */
#define VJ_LEASE_PARTS 3
/* Keys that are asked for in one call ahead of their readers. */
#define VJ_VIEW_EXPECT_KEYS 1024u

/* A set of commits on their way to the engine. */
typedef struct VjGeneration VjGeneration;
struct VjGeneration {
    /* guarded by state while active; never changes once frozen: */
    VjOverlay overlay;
    int64_t first_us;  /* when its first commit came */
    uint64_t last_seq; /* set when frozen */
    /* While active: up to which commit the engine has received it; 0: nothing of it. */
    uint64_t sent_seq;
    /* Set when frozen: of the log, the first that counts after the move. */
    uint64_t after_round;
    bool retires_log; /* set when frozen: none counts after the move */
    /* guarded by state: */
    uint32_t refs;
    VjGeneration *next_dropped;
};

/* What was read in one call from an engine without snapshots. */
typedef struct VjViewRun VjViewRun;
struct VjViewRun {
    VjViewRun *older;
    VjItems items;
    /* of a scan: */
    VjSpace space;
    bool forward, more;
    size_t next; /* the item that was found last */
};

/* What a transaction sees of what is committed.  Kept in a pool between transactions. */
typedef struct VjView VjView;
struct VjView {
    VjView *next_idle;             /* guarded by state */
    VjSnapshot snapshot;           /* links guarded by state; seq fixed while in use */
    VjGeneration *active, *frozen; /* referenced; frozen may be NULL */
    VjEngineSnapshot *engine;      /* owned; NULL: the engine has none */
    VjViewRun *runs;               /* owned; what was read, the last first */
    VjViewRun *scan;               /* of them: the last scan; NULL: there was none */
    VjReadSet *reads;              /* owned; NULL: of an exclusive session */
};

typedef struct VjSessionTxn {
    VjTxn txn;
    VjView *view;
} VjSessionTxn;

/* See redo-write.c. */
typedef struct VjSessionRedo {
    /* changes while it does not serve: */
    VjRedo *log; /* NULL: there is none */
    /* never changes after open: */
    VjEngineLog place;
    /* of setup and the applier: */
    bool claimed;      /* the engine says that there is one */
    VjRedoPoint point; /* what it said when it was opened; the id is kept true */
    /* guarded by state: */
    bool serves;          /* a flush may use it */
    bool busy;            /* a flush writes a record */
    bool recovering;      /* moves leave the log what it was */
    bool retiring;        /* the next move makes it count no more */
    uint64_t round;       /* of the active generation */
    uint64_t offset;      /* in its half: where the next record goes */
    uint64_t after_seq;   /* may be used when the engine has this commit, */
    uint64_t after_round; /* and the round is not before this one */
    unsigned misfortune;  /* failures in a row */
    bool spoiled;         /* a write of its file failed: it gets a new one, */
    int64_t renew_us;     /* not before this */
    int64_t renew_pause_us;
    VjMetaLogStats stats;
    /* of the flush that is busy: */
    VjUnlogged *items; /* owned */
    uint8_t *bytes;    /* owned */
    uint64_t item_room, byte_room;
} VjSessionRedo;

/* The record by which an engine knows the session.  See session-number.c. */
typedef struct VjFence {
    /* never change after open: */
    VjSessionKey key;
    VjCheck check; /* of that key; its version is the applier's */
    /* of the applier: */
    bool stands; /* the engine has the record, and each batch is checked against it */
    /* guarded by state: */
    uint64_t join_seq;  /* the commit that has the record; 0: none yet */
    uint64_t leave_seq; /* the commit that takes it away; 0: none yet */
    bool stays;         /* at the end the record is left */
} VjFence;

/* What a shared session has besides.  See shared-private.h. */
typedef struct VjShared VjShared;
/* What an exclusive one with a lease has.  See leased-private.h. */
typedef struct VjLeased VjLeased;

/* The one listener of a session.  See events.c. */
typedef struct VjListener {
    /* guarded by state: */
    const VjMetaEvents *events; /* borrowed; NULL: none */
    void *opaque;
    unsigned calls; /* that run */
    VjCond idle;    /* none does */
    bool knows;     /* that the session was shut out */
} VjListener;

typedef struct VjSession {
    VjMeta meta;

    /* never change after open, but by vj_session_wrap_engine: */
    VjEngine *engine;   /* owned */
    VjItemCache *cache; /* owned; NULL: reading the engine costs no round trip */
    /* never change after open: */
    char *path;  /* where the engine is, for messages; */
    char *label; /* and with its name */
    bool read_only;
    bool has_log;
    uint64_t number;               /* 0: it has no record */
    uint64_t txn_max_bytes;        /* of changes of one transaction */
    uint64_t generation_max_bytes; /* of keys and values; apply_bytes: twice that */
    int64_t commit_interval_us;
    GThread *applier; /* NULL when read_only */

    VjOverlay changes; /* the writer's: of the open write transaction */

    /* Of its own: readers take state for each key. */
    VjMutex writer;
    VjCond writer_ended; /* for those who go first */
    VjCond writer_idle;  /* for the background */
    /* guarded by writer: */
    bool has_writer;       /* a write transaction is open */
    unsigned writers_wait; /* threads, not in the background */
    uint64_t writer_count; /* since open, those that have begun */

    /* Brief; never across a call of the engine that may block. */
    VjMutex state;
    VjCond applier_wake; /* there may be something to do for the applier */
    VjCond moved;        /* a move ended, well or badly, or a generation was frozen */
    /* guarded by state: */
    unsigned yielding; /* threads in the background that wait for more memory */
    VjGeneration *active, *frozen; /* frozen: NULL when nothing is being moved */
    VjGeneration *dropped;         /* without references, to be freed by the applier */
    VjSnapshots snapshots;         /* of read transactions */
    VjView *idle;
    uint64_t views;       /* in use */
    uint64_t seq;         /* of the last commit */
    uint64_t durable_seq; /* every commit up to it is in the engine or in the log */
    uint64_t moved_seq;   /* every commit up to it is in the engine */
    uint64_t applied_seq; /* no commit beyond it is in the engine, nor on its way there */
    uint64_t move_seq;    /* up to which a move was asked for */
    uint64_t
        received_seq;  /* every commit up to it was received by the engine's machine */
    uint64_t send_seq; /* up to which that was asked for */
    int send_error;    /* why the last advance copy that failed did */
    uint64_t send_failures, sends; /* counts */
    bool moving;                   /* a thread is in apply() */
    bool has_worker; /* a thread does the applier's work: itself, or one that flushes */
    bool applier_waits_for_worker; /* that is to end */
    int64_t applier_until_us;      /* it waits until then; INT64_MAX: or does not */
    bool empty_wanted; /* a move is asked for although nothing waits to be moved */
    int move_error;    /* 0, or why the last move failed */
    int last_failure;  /* why the last move that failed did; not reset by others */
    uint64_t move_failures, moves; /* counts */
    int64_t retry_us;              /* not before; 0: at once */
    int64_t retry_pause_us;
    bool retry_when_asked; /* tests: a failed move waits for a flush */
    bool is_shut_out;      /* the engine takes nothing from it any more */
    bool stopping;
    VjFence fence;
    VjListener listener;
    VjShared *shared; /* owned; never changes after open; NULL: it is exclusive */
    VjLeased *leased; /* likewise; NULL: it is shared, or has no lease */
    VjSessionRedo redo;
    /* Borrowed: the joined flushes that have no answer yet.  Not NULL: a flush writes the
     * log, or is about to look here. */
    VjFlushWait *joined;
} VjSession;

extern const VjMetaOps vj_session_ops;

static inline bool vj_session_is_shared(const VjSession *s)
{
    return s->shared != NULL;
}

/* ---- session.c ------------------------------------------------------------------- */

/* @ops and @opts: of the engine, read from its spec.  Setup only.  *out owned. */
bool vj_session_open(const VjEngineOps *ops, const VjMetaPlace *place, const VjOpts *opts,
                     VjMeta **out, GError **error);
/* Puts a wrapper between @m's session and its engine.  Setup only: no transaction is
 * open. */
bool vj_session_wrap_engine(VjMeta *m, const VjEngineOps *ops, const VjOpts *opts,
                            GError **error);

/* ---- session-number.c ------------------------------------------------------------ */

/* Setup, after all else: the session gets a number and a record named @name. */
bool vj_session_join(VjSession *s, const char *name, GError **error);
/* The key of the counter of sessions. */
VjSlice vj_session_next_key(void);
/* The next number, where the counter's value is @value (NULL: it is not there) and the
 * largest number that has a record is @last. */
uint64_t vj_session_choose_number(const VjSession *s, const VjSlice *value,
                                  uint64_t last);
/* Setup, before the last move: takes the record away, where it has one. */
int vj_session_leave(VjSession *s) G_GNUC_WARN_UNUSED_RESULT;

/* ---- fence.c; by the thread that moves or sends ------------------------------------ */

/* What a batch has to check; NULL: nothing. */
const VjCheck *vj_session_fence(const VjSession *s);
/* What an apply of a batch up to commit @last_seq makes of it. */
void vj_session_fence_moved(VjSession *s, uint64_t last_seq);

/* ---- events.c -------------------------------------------------------------------- */

/* The session behind @m, which may be wrapped. */
VjSession *vj_session_of(VjMeta *m);
/* That of a transaction, which may be wrapped; NULL: it is none of a session's. */
VjSession *vj_session_of_txn(VjTxn *txn);
/* Another session changed @key; NULL: any may have been. */
void vj_session_tell_changed(VjSession *s, const VjKey *key);
/* Session @id has ended: the listener is to release what it owned.  Gives the lock up
 * meanwhile. */
void vj_session_tell_ended(VjSession *s, uint64_t id) VJ_REQUIRES(&s->state);
/* True: the session was shut out and its listener has not been called for that. */
bool vj_session_tell_due(const VjSession *s) VJ_REQUIRES(&s->state);
/* Calls the listener for it; gives the lock up meanwhile. */
void vj_session_tell_shut_out(VjSession *s) VJ_REQUIRES(&s->state);

/* ---- generation.c ---------------------------------------------------------------- */

/* VjBatch.next of the changes of an overlay, which is VjBatch.changes. */
bool vj_overlay_next_change(const VjBatch *batch, const void **at, VjChange *out);
VjGeneration *vj_generation_new(void);
/* The last reference hands it to the applier for freeing. */
void vj_generation_unref(VjSession *s, VjGeneration *g) VJ_REQUIRES(&s->state);
/* No references are left. */
void vj_generation_free(VjGeneration *g);
/* True when the active generation has its share of memory; to: one of so many parts of
 * it. */
bool vj_session_is_full(const VjSession *s);
bool vj_session_is_full_to(const VjSession *s, unsigned parts);
/* Makes the writer's changes visible. */
void vj_session_make_visible(VjSession *s);
/* What waits to be moved; with @changes, as if they were visible. */
void vj_session_load(const VjSession *s, const VjOverlay *changes, VjLoad *out)
    VJ_REQUIRES(&s->state);
/*
 * vj_session_reserve - make sure that s->changes can become durable when they are visible
 *
 * @release  may use what the engine keeps back
 * Returns   0; -ENOSPC: not without moving what waits first, and perhaps not then
 * Threads   the writer      Locks   none
 */
int vj_session_reserve(VjSession *s, bool release) G_GNUC_WARN_UNUSED_RESULT;

/* ---- view.c ---------------------------------------------------------------------- */

/* @enlist: versions that it sees are kept; not for the writer, as no other thread commits
 * beside it. */
int vj_view_take(VjSession *s, bool enlist, VjView **out) G_GNUC_WARN_UNUSED_RESULT;
void vj_view_drop(VjSession *s, VjView *v, bool enlisted);
/* Frees the pool; no transaction is open. */
void vj_views_clear(VjSession *s);
/* Members of the ops table, contracts there. */
int vj_view_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value);
int vj_view_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key, VjSlice *value);
int vj_view_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key, VjSlice *value);
void vj_view_expect(VjTxn *txn, const VjKey *keys, size_t count);
bool vj_view_is_far(VjTxn *txn, VjKey key);
void vj_view_expect_run(VjTxn *txn, VjSpace space, VjSlice after, size_t count);

/* ---- far-view.c ------------------------------------------------------------------ */

/* Items for @keys, from the engine, and kept. */
int vj_far_ask(VjSession *s, const VjKey *keys, size_t count,
               VjItems *out) G_GNUC_WARN_UNUSED_RESULT;
/* The same for a scan to the end of the space. */
int vj_far_ask_range(VjSession *s, const VjRange *range, size_t limit, VjItems *out,
                     bool *more);
/* As get, next and prev, of what the engine has. */
int vj_far_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value);
int vj_far_near(VjTxn *txn, VjSpace space, VjSlice from, bool forward, VjSlice *key,
                VjSlice *value);
/* What is kept says which key is the next one, too. */
bool vj_far_keeps_walks(const VjSession *s);
/* Of a shared session, before the first read. */
void vj_far_begin(VjSession *s, VjView *v);
/* Of a shared session, after the last one: 0 what was read is of one state; -EAGAIN;
 * others: why it cannot be decided. */
int vj_far_validate(VjSession *s, VjTxn *txn) G_GNUC_WARN_UNUSED_RESULT;
/* Frees what was read. */
void vj_far_clear(VjView *v);

/* ---- txn.c ----------------------------------------------------------------------- */

/* The calling thread is the writer from now on, when the one before has ended;
 * @background: and when others have gone first.  -ECANCELED, -ETIMEDOUT.  try:
 * false: another thread is. */
int vj_session_writer_begin(VjSession *s, int64_t until_us,
                            bool background) G_GNUC_WARN_UNUSED_RESULT;
bool vj_session_writer_try(VjSession *s) G_GNUC_WARN_UNUSED_RESULT;
void vj_session_writer_end(VjSession *s);
/* Members of the ops table, contracts there. */

int vj_session_begin(VjMeta *m, VjTxn *txn);
int vj_session_commit(VjTxn *txn);
void vj_session_abort(VjTxn *txn);
int vj_session_put(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value);
int vj_session_del(VjTxn *txn, VjSpace space, VjSlice key);

/* ---- applier.c ------------------------------------------------------------------- */

/* Starts and stops the applier; stopping moves nothing: flush before. */
void vj_applier_start(VjSession *s);
void vj_applier_stop(VjSession *s);
/* Moves or sends what is due in the calling thread, without the lock meanwhile.  False:
 * nothing was, or another thread does so and signals `moved`. */
bool vj_applier_help(VjSession *s) VJ_REQUIRES(&s->state);

/* For good: what is not in the engine by now never will be.  It was not before. */
void vj_session_was_shut_out(VjSession *s) VJ_REQUIRES(&s->state);

/* ---- send.c ---------------------------------------------------------------------- */

int vj_session_send(VjMeta *m);
/* Of the applier: an advance copy is wanted and can be sent; sends it, and gives the lock
 * up meanwhile. */
bool vj_session_send_due(const VjSession *s) VJ_REQUIRES(&s->state);
void vj_session_send_now(VjSession *s) VJ_REQUIRES(&s->state);
uint64_t vj_session_sends_for_test(VjMeta *m);

/* ---- flush.c --------------------------------------------------------------------- */

int vj_session_flush(VjMeta *m);
void vj_session_flush_join(VjMeta *m, VjFlushWait *w);
/* As flush, and in the engine. */
int vj_session_flush_moved(VjSession *s) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_session_apply_empty - apply() once more, without changes
 *
 * Nothing waits to be moved.  For what the engine gains by it, or is to remember.
 * Threads   the writer, or setup      Locks   none
 */
int vj_session_apply_empty(VjSession *s) G_GNUC_WARN_UNUSED_RESULT;

/* ---- redo-write.c ---------------------------------------------------------------- */

/* The file system of the log is not to be taken up by it: a log has at most this
 * share. */
#define VJ_SESSION_REDO_SHARE 64u
/* After so many failures in a row it is not used any more. */
#define VJ_SESSION_REDO_FAILURES_MAX 3u
/* Pause after a new log could not be made, doubled up to the second. */
#define VJ_SESSION_REDO_RENEW_FIRST_US ((int64_t)100 * 1000)
#define VJ_SESSION_REDO_RENEW_MAX_US ((int64_t)60 * 1000 * 1000)
/* Beyond it a record's memory is given back. */
#define VJ_SESSION_REDO_KEPT_BYTES (256u << 10)

/* A small or full file system gets a small one, or none.  0: none. */
uint64_t vj_session_redo_fitting(const VjSession *s);
/* Frees the log; no thread writes it. */
void vj_session_redo_close(VjSession *s);
/* True when there is room in the log for all that is visible and not durable. */
bool vj_session_redo_fits(const VjSession *s) VJ_REQUIRES(&s->state);
/* Writes what is visible and not durable; sets durable_seq, or serves to false. */
void vj_session_redo_write(VjSession *s) VJ_REQUIRES(&s->state);
/* A new file for a log whose writes failed, once the engine needs none.  By the
 * applier. */
bool vj_session_redo_renew_due(const VjSession *s, int64_t now_us) VJ_REQUIRES(&s->state);
void vj_session_redo_renew(VjSession *s) VJ_REQUIRES(&s->state);
/* True when what is left of the active generation's half is little. */
bool vj_session_redo_is_full(const VjSession *s);
void vj_session_redo_frozen(VjSession *s, VjGeneration *g) VJ_REQUIRES(&s->state);
void vj_session_redo_moved(VjSession *s) VJ_REQUIRES(&s->state);
/* What the engine is to say of the log when it has @g.  False: that none counts. */
bool vj_session_redo_point(const VjSession *s, const VjGeneration *g, VjRedoPoint *out);

/* ---- redo-replay.c --------------------------------------------------------------- */

/*
 * vj_session_redo_open - setup: takes over what is in the log, and makes one if it can
 *
 * The applier runs unless read_only.
 */
bool vj_session_redo_open(VjSession *s, const VjMetaPlace *place, GError **error);
/* Moves all that is visible, after which the engine needs no log.  Before the applier
 * ends. */
int vj_session_redo_retire(VjSession *s) G_GNUC_WARN_UNUSED_RESULT;

/* Tests: a move that failed is repeated when a flush asks, and not after a time. */
void vj_session_retry_when_asked_for_test(VjMeta *m);
uint64_t vj_session_moves_for_test(VjMeta *m); /* that succeeded */

#endif
