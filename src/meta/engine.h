/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * engine.h - where ordered keys live: what stands behind a session
 *
 * A session (session-private.h) has the transactions, what is visible and not yet
 * durable, and the flushes; it is one code above every engine.  An engine keeps keys with
 * values, finds them in order, and changes many of them in one step.  It knows no
 * transactions.
 *
 * Two ways to use one:
 * - Exclusive: the session is the only writer.  What it commits is visible at
 *   once in its overlay, and reaches the engine one generation after another, by one
 *   apply() each, without checks.  Reads go to a snapshot where the engine has such.
 *   Where it has none they go to what is there now, and the session makes a reading body
 *   run again when an apply() has gone beyond the commit that the body sees.
 * - Shared: several sessions.  A transaction keeps the versions of what it read and is
 *   one apply() that checks them; on -EAGAIN it runs again with the values that came
 *   back.  What other sessions change is reported by watch().
 *
 * The fence of either is the session's own record: a session that changes the record of
 * another has shut that one out.  What an exclusive session applies has its fence and no
 * checks, and numbers that never fall: an engine to which a batch may come late refuses
 * one with the same fence and a smaller number than the last one that it has applied.
 *
 * Wherever a deadline is given: microseconds on the clock of vj_clock_mono_us, INT64_MAX:
 * none.  A call that is late returns -ETIMEDOUT; a read has then done nothing, an apply()
 * may have been done or not, and may still be done later.  A read that waits ends with
 * -ECANCELED when its thread's VjCancel is fired (base/cancel.h).
 */
#ifndef VJ_META_ENGINE_H
#define VJ_META_ENGINE_H

#include "meta/meta.h"

#define VJ_NO_DEADLINE INT64_MAX
/* Items that one scan returns at most. */
#define VJ_SCAN_ITEMS_MAX 1024u

typedef struct VjEngineOps VjEngineOps;
typedef struct VjEngine VjEngine;

struct VjEngine {
    const VjEngineOps *ops;
    VjEngine *next; /* the wrapped engine; NULL for a driver */
};

/* One key as it is in the engine. */
typedef struct VjItem {
    VjSpace space;
    VjSlice key, value;
    /*
     * 0: there is no such key.  Two equal versions of a key that are not 0 mean that its
     * value is the same; a change to another value, which may come back, is another.
     */
    uint64_t version;
} VjItem;

/* A list that owns the bytes of its items.  All zero: empty. */
typedef struct VjItems {
    VjItem *at;
    size_t count, room;
} VjItems;

/* Appends a copy of @item.  0; -ENOMEM. */
int vj_items_add(VjItems *items, const VjItem *item) G_GNUC_WARN_UNUSED_RESULT;
/* Frees them; @items is then empty, and may be used again. */
void vj_items_clear(VjItems *items);

/* The keys of one space that a scan goes through. */
typedef struct VjRange {
    VjSpace space;
    bool backward;
    /* Behind it, in the direction of the scan; empty: from the end of the space. */
    VjSlice from;
    VjSlice to; /* not as far as it; empty: to the other end */
} VjRange;

/* True: @key, which comes in the direction of the scan, is not in @range any more. */
static inline bool vj_range_ends(const VjRange *range, VjSlice key)
{
    int order = range->to.len == 0 ? 0 : vj_slice_compare(key, range->to);

    return range->to.len > 0 && (range->backward ? order <= 0 : order >= 0);
}

typedef struct VjChange {
    VjSpace space;
    bool is_delete; /* of a key that need not be there */
    VjSlice key, value;
} VjChange;

/* A key, and the version that it must have. */
typedef struct VjCheck {
    VjKey key;
    uint64_t version;
} VjCheck;

/*
 * What an engine needs to know of a set of changes to bound the pages that they touch.
 * Counted for LMDB with pages of 4 KiB; with larger pages the bound is only less tight.
 */
typedef struct VjTally {
    uint64_t puts;      /* keys whose newest version is a value */
    uint64_t dels;      /* keys whose newest version is a tombstone */
    uint64_t bytes;     /* nodes of the puts as they stand in leaf pages */
    uint64_t pages;     /* values with a page of their own */
    uint64_t run_pages; /* pages of values that need several in a row */
} VjTally;

/* What one change of a space adds to its tally; the value's bytes are not looked at. */
void vj_tally_add(VjTally *to, const VjChange *change);

/* Everything that is promised and not applied yet: at most two batches. */
typedef struct VjLoad {
    VjTally
        first[VJ_SPACE_COUNT]; /* of the one that comes next; all zero: there is none */
    VjTally second[VJ_SPACE_COUNT]; /* of the one after it */
} VjLoad;

/* See redo-private.h. */
typedef struct VjRedoPoint VjRedoPoint;

typedef struct VjBatch VjBatch;
struct VjBatch {
    /* Each key at most once; borrowed for the call. */
    const VjCheck *checks;
    size_t check_count;
    const VjCheck *fence; /* NULL: none */
    /*
     * One change after another, in order of space and key, each key at most once.  *at is
     * NULL before the first and is next's own.  False: there is no other.  What @out has
     * is borrowed for the call of apply().  Threads: any, one at a time.
     */
    bool (*next)(const VjBatch *batch, const void **at, VjChange *out);
    const void *changes; /* of next */
    uint64_t count;      /* of changes; 0 is no reason to do nothing */
    uint64_t number;     /* of the last commit in it */
    /* An advance copy, of an engine that receives: it has a fence, a number and no
     * checks, and need not survive a crash of the engine's machine. */
    bool is_received;
    uint64_t after; /* of those: the commit it stands on; 0: none that was received */
    /* Of an engine with log(): what part of the log counts after it.  NULL: none does. */
    const VjRedoPoint *log;
    const VjLoad *load; /* of an engine with reserve(); its first is this batch */
    /* Of an engine that can be shared, may be NULL: gets on 0 the version that each key
     * has which was put. */
    uint64_t *version;
};

/* The changes of an array, for callers that have them in one. */
typedef struct VjChanges {
    const VjChange *at;
    size_t count;
} VjChanges;
bool vj_changes_next(const VjBatch *batch, const void **at, VjChange *out);

/* What an engine says of the log beside it; borrowed from it until it is closed. */
typedef struct VjEngineLog {
    int dir_fd;            /* where it is */
    uint64_t wanted_bytes; /* at most; 0: there is to be none */
    bool claimed;          /* the engine says that there is one */
    bool point_is_lost;    /* it ought to say which, and does not */
} VjEngineLog;

/* Times that an engine wrote its file anew without what was free in it, while it was in
 * use, and the bytes that the device got back. */
typedef struct VjEngineRewrites {
    uint64_t times, freed_bytes;
    /* Files that could not be overwritten yet, and those that went so. */
    uint64_t erasures_waiting, erasures_given_up;
} VjEngineRewrites;

/* One state of an engine, for reading.  Begins the engine's own structure. */
typedef struct VjEngineSnapshot {
    VjEngine *engine;
} VjEngineSnapshot;

enum {
    VJ_ENGINE_FORGETS = 1 << 0, /* nothing is left when the process ends */
    VJ_ENGINE_IS_NEAR = 1 << 1, /* a read costs no round trip: nothing is kept of it */
    VJ_ENGINE_IS_SHAREABLE = 1 << 2,     /* several sessions may use it at one time */
    VJ_ENGINE_PASSES_SNAPSHOTS = 1 << 3, /* a wrapper: it has them if what it wraps has */
    /* No lock of a directory keeps other processes out: an exclusive session has a lease
     * (leased.c). */
    VJ_ENGINE_IS_LEASED = 1 << 4,
    /* Commits are safe from the death of this machine before they are durable
     * (VjBatch.is_received). */
    VJ_ENGINE_RECEIVES = 1 << 5,
};

/* What a change counts besides key and value, where an engine limits a batch. */
#define VJ_CHANGE_HEAD_BYTES 16u

/*
 * VjEngineWatch - hears of changes; a callback of the session's
 *
 * @key   was changed; NULL: some may have been missed
 * @own   by the session itself.  From a prompt engine alone
 * Threads: of the engine's, or that of an apply().  Locks: none.  Asks the engine
 * nothing, and does not block.
 */
typedef void VjEngineWatch(void *opaque, const VjKey *key, bool own);

struct VjEngineOps {
    const char *name; /* what "meta=" selects; also names its man page */
    const VjOptSpec
        *options;   /* ends with a NULL name; a driver's begin with VJ_SESSION_OPTIONS */
    uint32_t flags; /* VJ_ENGINE_… */
    /* VJ_NEEDS_… of the process; FILES: the directory of VjMetaPlace.  A wrapper: 0. */
    uint32_t needs;
    /* The same, where options decide it; NULL: needs. */
    uint32_t (*needs_of)(const VjOpts *opts);
    /* Whether the options go together, beyond what their table says.  Touches nothing.
     * NULL: any do; else open() checks them too. */
    bool (*check)(const VjOpts *opts, GError **error);
    /* What the changes of one apply() may have together, VJ_CHANGE_HEAD_BYTES for each
     * included; the session keeps to it.  0: no limit. */
    uint64_t apply_max_bytes;
    /* The file of the directory that has the keys; NULL: it keeps none there. */
    const char *file;
    size_t instance_size; /* bytes; the instance begins with VjEngine */

    /*
     * Setup only; may block.  Recovers whatever the last crash left, to the state after
     * some apply() that is not before the last one which returned 0.  @place borrowed;
     * NULL for a wrapper.  On false nothing is left open, and close is not called.
     */
    bool (*open)(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                 GError **error);
    /*
     * Setup only; no call is running, no snapshot left.  @in_order: what was committed
     * has been applied, so there is time to tidy up.  0, or what keeps the next open from
     * it.
     */
    int (*close)(VjEngine *e, bool in_order);

    /*
     * Items for @keys, in their order, appended to @out, which owns them; one that is not
     * there has version 0 and an empty value.  They are of one state, and later than each
     * apply() that returned before the call.  Threads: any; may block.  Locks: none.
     * -EIO, -EBADMSG, -ENOMEM, -ETIMEDOUT; @out is then as before.
     */
    int (*get_many)(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                    int64_t deadline_us);
    /*
     * The next keys of @range with their values, at most @limit (1 … VJ_SCAN_ITEMS_MAX),
     * fewer only at the end of the range or where the engine thinks that it is enough for
     * one call; at least one while there is one.  *more: keys of the range may be left.
     * Otherwise as get_many.
     */
    int (*scan)(VjEngine *e, const VjRange *range, size_t limit, VjItems *out, bool *more,
                int64_t deadline_us);
    /*
     * All of @batch or nothing.  On 0 it is there for every call that begins later, and
     * survives a crash (of an engine that forgets: it does not).  -ESTALE: the fence's
     * key has another version.  -EAGAIN: a check failed, and @fresh (may be NULL without
     * checks) has got an item for each key that was checked, of one state.  Both: nothing
     * was done.  -EIO, -ENOSPC, -ENOMEM, -ETIMEDOUT, -EROFS: what a crash finds is the
     * state before or after it; the same batch, or one that contains it, may be applied
     * again.  Where the engine can be shared, nothing was done on -ENOSPC, -ENOMEM and
     * -EROFS; -ECANCELED is as -EIO.  With is_received, 0 says that it is there for every
     * call, and -EAGAIN (no @fresh) that commits are missing on which it stands: all of
     * them are to be applied again; what was received comes again in a later batch, and
     * is durable with that.  After a failure it may wait as long as the last
     * try took, so that an engine in trouble is not asked without a pause.  Threads: any
     * where the engine can be shared, else one at a time; blocks.  Locks: none.
     */
    int (*apply)(VjEngine *e, const VjBatch *batch, VjItems *fresh, int64_t deadline_us);
    /*
     * Microseconds since 1970 by the engine's own clock, the same for all sessions; for
     * the ends of their leases.  Negative: -EIO, -ETIMEDOUT.  Threads: any.  Locks: none.
     */
    int64_t (*clock_us)(VjEngine *e, int64_t deadline_us);
    /*
     * From now on calls @changed for each key that an apply() of another session changes.
     * A call that reads what was changed and begins after @changed was called finds the
     * change.  *is_prompt: that is called, for own changes too, before a read of what was
     * changed returns and before the apply() does, to whomever.  NULL @changed ends it,
     * and waits for a call that runs.  -EOPNOTSUPP, or NULL: it cannot; what is cached of
     * a shared engine is then good for a second.  Setup only.
     */
    int (*watch)(VjEngine *e, VjEngineWatch *changed, void *opaque, bool *is_prompt);
    /* How many keys @space has; takes a time that does not grow with them.  As
     * get_many. */
    int (*count)(VjEngine *e, VjSpace space, uint64_t *out);

    /*
     * Snapshots: all of the next seven, or NULL for all of them, and then the session
     * reads with get_many and scan.  A snapshot is made once and used many times, by one
     * thread at a time; while it is taken it sees one state.
     */
    /* 0 and *out owned (snapshot_free); -ENOMEM.  Threads: any. */
    int (*snapshot_new)(VjEngine *e, VjEngineSnapshot **out);
    /*
     * Makes that the next snapshot_take can succeed: may wait for the engine to recover,
     * and do I/O.  -EIO, -ENOMEM.  Threads: any.  Locks: none.
     */
    int (*snapshot_prepare)(VjEngineSnapshot *s);
    /*
     * From now on @s sees the state after the last apply() that returned 0, or one that
     * is running.  Called with the session's state lock held: does no I/O and waits for
     * no other thread.  -EAGAIN: it must be prepared.
     */
    int (*snapshot_take)(VjEngineSnapshot *s);
    /* Ends what was taken; all that was borrowed from it is void.  Threads: any. */
    void (*snapshot_release)(VjEngineSnapshot *s);
    void (*snapshot_free)(VjEngineSnapshot *s); /* it is not taken */
    /* @value is borrowed from @s until it is released; @version NULL: it is not asked
     * for.  -ENOENT; -EBADMSG, -EIO. */
    int (*snapshot_get)(VjEngineSnapshot *s, VjSpace space, VjSlice key, VjSlice *value,
                        uint64_t *version);
    /*
     * The first key behind @from in that direction (empty: the first, the last of all),
     * with its value, borrowed as in snapshot_get.  Asked for the key behind the one that
     * it gave last, it does not search again.  -ENOENT; -EBADMSG, -EIO.
     */
    int (*snapshot_near)(VjEngineSnapshot *s, VjSpace space, VjSlice from, bool forward,
                         VjSlice *key, VjSlice *value, uint64_t *version);

    /*
     * Room: NULL where an apply() cannot fail for want of space.
     *
     * Sees to it that all of @load can be applied, now or after a crash; @release: may
     * use what is kept back so that deleting works when the device is full.  -ENOSPC: not
     * before what was promised earlier has been applied, and perhaps not then; a save()
     * that was running has ended by then.  -EIO.  Threads: the writer.  Locks: none.
     */
    int (*reserve)(VjEngine *e, const VjLoad *load, bool release);
    /* With reserve: an apply() of no changes would gain space.  Any thread, no locks. */
    bool (*empty_apply_helps)(VjEngine *e);
    /*
     * Bytes of memory that applying changes of @tally takes besides theirs.  NULL: few.
     * Called with the session's state lock held: waits for no other thread.
     */
    uint64_t (*apply_bytes)(VjEngine *e, const VjTally tally[VJ_SPACE_COUNT]);

    /*
     * A log beside the engine, in which the session makes durable what is not applied
     * yet: what is known of it, and with *point (undefined when not claimed) which part
     * of it counts.  Setup only.  NULL: flushes wait for an apply().
     */
    void (*log)(VjEngine *e, VjEngineLog *out, VjRedoPoint *point);

    /* What was sent and received since open.  NULL: it sends nothing.  Threads: any; does
     * not block. */
    void (*traffic)(VjEngine *e, VjMetaTraffic *out);

    /* How often its file was written anew since open, to give space back.  NULL: never.
     * Threads: any; does not block. */
    void (*rewritten)(VjEngine *e, VjEngineRewrites *out);

    /* As the members of the same names of VjMetaOps; NULL: it keeps no file of its
     * own. */
    int (*examine)(const VjMetaPlace *place, int fd, VjMetaFlaw *say, void *opaque,
                   VjMetaExam *out);
    int (*save)(VjEngine *e, int fd, VjMetaSaved *out); /* what has been applied */
    bool (*restore)(const VjMetaPlace *place, int fd, uint64_t bytes, const char *keep,
                    bool *replaced, GError **error);
};

/* Asserting callers; contracts as in VjEngineOps. */
/* @next: to be wrapped, NULL for a driver; taken on success.  NULL: not opened. */
VjEngine *vj_engine_open(const VjEngineOps *ops, VjEngine *next, const VjMetaPlace *place,
                         const VjOpts *opts, GError **error);
/*
 * The engine, or in front of one the wrapper ("latency:K=V,…", "crash:K=V,…"), that @spec
 * names, as vj_meta_open and vj_meta_wrap have it, for users that want no session.  A
 * wrapper takes @next on success.  NULL: not opened, and why.
 */
VjEngine *vj_engine_open_spec(const char *spec, const VjMetaPlace *place, GError **error);
VjEngine *vj_engine_wrap(const char *spec, VjEngine *next, GError **error);
/* With all that it wraps; frees them. */
int vj_engine_close(VjEngine *e, bool in_order);
int vj_engine_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                       int64_t deadline_us) G_GNUC_WARN_UNUSED_RESULT;
int vj_engine_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                   bool *more, int64_t deadline_us) G_GNUC_WARN_UNUSED_RESULT;
int vj_engine_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh,
                    int64_t deadline_us) G_GNUC_WARN_UNUSED_RESULT;
int64_t vj_engine_clock_us(VjEngine *e, int64_t deadline_us) G_GNUC_WARN_UNUSED_RESULT;
/* -EOPNOTSUPP where it cannot. */
int vj_engine_watch(VjEngine *e, VjEngineWatch *changed, void *opaque,
                    bool *is_prompt) G_GNUC_WARN_UNUSED_RESULT;
bool vj_engine_has_snapshots(const VjEngine *e);
bool vj_engine_receives(const VjEngine *e);
int vj_engine_count(VjEngine *e, VjSpace space, uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;
/* *out NULL: it has no snapshots. */
int vj_engine_snapshot_new(VjEngine *e, VjEngineSnapshot **out) G_GNUC_WARN_UNUSED_RESULT;
int vj_engine_snapshot_prepare(VjEngineSnapshot *s) G_GNUC_WARN_UNUSED_RESULT;
int vj_engine_snapshot_take(VjEngineSnapshot *s) G_GNUC_WARN_UNUSED_RESULT;
void vj_engine_snapshot_release(VjEngineSnapshot *s);
void vj_engine_snapshot_free(VjEngineSnapshot *s);
int vj_engine_snapshot_get(VjEngineSnapshot *s, VjSpace space, VjSlice key,
                           VjSlice *value, uint64_t *version) G_GNUC_WARN_UNUSED_RESULT;
int vj_engine_snapshot_near(VjEngineSnapshot *s, VjSpace space, VjSlice from,
                            bool forward, VjSlice *key, VjSlice *value,
                            uint64_t *version) G_GNUC_WARN_UNUSED_RESULT;
/* 0 where it needs none. */
int vj_engine_reserve(VjEngine *e, const VjLoad *load,
                      bool release) G_GNUC_WARN_UNUSED_RESULT;
bool vj_engine_empty_apply_helps(VjEngine *e);
uint64_t vj_engine_apply_bytes(VjEngine *e, const VjTally tally[VJ_SPACE_COUNT]);
/* False: it has none. */
bool vj_engine_log(VjEngine *e, VjEngineLog *out, VjRedoPoint *point);
/* Of the driver below all wrappers; all zero: it sends nothing. */
void vj_engine_traffic(VjEngine *e, VjMetaTraffic *out);
/* As traffic. */
void vj_engine_rewritten(VjEngine *e, VjEngineRewrites *out);
/* -EOPNOTSUPP: it keeps no file of its own. */
int vj_engine_save(VjEngine *e, int fd, VjMetaSaved *out) G_GNUC_WARN_UNUSED_RESULT;

/* Options that every driver has, because the session reads them. */
#define VJ_SESSION_OPTIONS                                                               \
    {.name = "overlay",                                                                  \
     .type = VJ_OPT_SIZE,                                                                \
     .fallback = "32M",                                                                  \
     .min = 1 * VJ_MIB,                                                                  \
     .max = 64 * VJ_GIB,                                                                 \
     .help = "bytes of memory for changes that are visible but not yet durable"},        \
    {                                                                                    \
        .name = "commit", .type = VJ_OPT_NUMBER, .fallback = "1", .min = 1, .max = 3600, \
        .help = "seconds after which a visible change is made durable unasked"           \
    }

/* The table of engines, NULL-terminated; wrappers are not in it. */
extern const VjEngineOps *const vj_engine_drivers[];

#endif
