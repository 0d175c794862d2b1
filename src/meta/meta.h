/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * meta.h - ordered keys in named spaces, under transactions: the face of the room meta
 *
 * Visible and durable are two things.  commit() makes a transaction visible to every
 * later transaction; flush() makes all visible ones durable.  Between the two, send()
 * brings all visible ones to the memory of another machine, where the keys are on one: a
 * crash of this one does not lose them then.  Order: if a commit is
 * durable, each commit before it is durable.  A crash loses a suffix of the commits,
 * never one out of the middle and never a part of one.
 *
 * A write transaction is a function that may run again (vj_meta_run): it reads a frozen
 * input, changes nothing but the transaction, and its caller changes memory only after
 * vj_meta_run returned 0.
 */
#ifndef VJ_META_META_H
#define VJ_META_META_H

#include "base/base.h"

#define VJ_META_KEY_MAX 511u          /* bytes */
#define VJ_META_VALUE_MAX (96u << 10) /* bytes */
/* Values above this cost an engine an extra page; formats stay below. */
#define VJ_META_VALUE_CHEAP 4080u
/* How often vj_meta_run and vj_meta_view try before they give up with -EIO and a log
 * line. */
#define VJ_META_RUN_TRIES 1000u

/* The spaces; numbers are on disk and never reused.  Which room owns which space is said
 * in the READMEs of the rooms, src/file/README.md first. */
typedef enum VjSpace {
    VJ_SPACE_SYSTEM = 0,    /* counters, volume state */
    VJ_SPACE_INODE = 1,     /* inode records */
    VJ_SPACE_DENTRY = 2,    /* names by (directory, name) */
    VJ_SPACE_COOKIE = 3,    /* names by (directory, cookie): readdir order */
    VJ_SPACE_XATTR = 4,     /* extended attributes by (inode, name) */
    VJ_SPACE_NODE = 5,      /* map nodes by (inode, node number) */
    VJ_SPACE_INLINE = 6,    /* small contents by inode */
    VJ_SPACE_FRAGMENT = 7,  /* bytes that are not yet an object */
    VJ_SPACE_OBJECT = 8,    /* object records by object id */
    VJ_SPACE_INDEX = 9,     /* digest and transformation → object id */
    VJ_SPACE_DEAD = 10,     /* objects without references, not yet removed */
    VJ_SPACE_ORPHAN = 11,   /* contents without a name, not yet dropped */
    VJ_SPACE_ID_BLOCK = 12, /* blocks of object ids */
    VJ_SPACE_STORE = 13,    /* the store driver's own keys */
    VJ_SPACE_SESSION = 14,  /* sessions: session.h */
    VJ_SPACE_CLAIM = 15,    /* what a session has alone, by kind and number */
    VJ_SPACE_COUNT = 16,
} VjSpace;

typedef struct VjMeta VjMeta;
typedef struct VjTxn VjTxn;

typedef struct VjKey {
    VjSpace space;
    VjSlice key;
} VjKey;

/* See session.h. */
typedef struct VjSessionOpen VjSessionOpen;

typedef struct VjMetaPlace {
    int dir_fd;       /* the directory SOURCE/meta, borrowed; -1: the driver needs none */
    const char *path; /* its path, for messages and for engines that want one; borrowed */
    /* The directory against which the spec's relative names of credential files are
     * resolved, and its path, for messages; borrowed.  NULL: there is none, such a name
     * is refused, and the descriptor, which is -1 then, is not looked at. */
    int credentials_dir_fd;
    const char *credentials_dir;
    /* The volume whose keys it keeps, as of VjStorePlace, for engines that are elsewhere.
     * Borrowed; NULL: not compared. */
    const char *volume;
    bool create;  /* mkfs: make what is missing; else a missing engine is an error */
    bool destroy; /* with create: a volume elsewhere that has the place is removed */
    bool read_only;
    bool salvage; /* a repair: what a damaged log does not give is given up */
    /* Changes of one transaction, bytes of memory; 0: 64 MiB.  A node takes more: one of
     * its own is all that a client has gathered. */
    uint64_t txn_bytes_max;
    const VjSessionOpen *session; /* borrowed; NULL: exclusive, without a name */
} VjMetaPlace;

/* One line about damage: "page 7: …". */
typedef void VjMetaFlaw(void *opaque, const char *text);

/* What was found in a file of metadata that no session uses. */
typedef struct VjMetaExam {
    uint64_t flaws;       /* 0: the engine can read it */
    uint64_t log_flaws;   /* of the log in front of it: the last commits are lost */
    uint64_t commit;      /* the engine's number of the state that is in it */
    uint64_t entries;     /* keys */
    uint64_t used_bytes;  /* of the file, without what is free inside */
    uint64_t total_bytes; /* as far as it is in use, with that */
} VjMetaExam;

/* A copy that was made. */
typedef struct VjMetaSaved {
    uint64_t bytes;      /* length of the copy, holes included */
    uint64_t used_bytes; /* that were written */
    uint64_t commit;     /* the engine's number of the state that is in it */
} VjMetaSaved;

/* What an engine did for durability since it was opened. */
typedef struct VjMetaLogStats {
    uint64_t records, bytes, failures; /* of the log in front of the file */
    uint64_t moves;                    /* synchronous commits of the file */
    uint64_t replayed;                 /* records found when it was opened */
    /* The file was written anew while it was in use, and the device got so much back. */
    uint64_t rewrites, freed_bytes;
    /* Files of it that could not be overwritten yet, and those that went so. */
    uint64_t erasures_waiting, erasures_given_up;
} VjMetaLogStats;

/*
 * VjFlushWait - a flush whose caller does not wait, and its answer
 *
 * Owned by the caller; it stays valid until @done is called, which may free it.
 */
typedef struct VjFlushWait VjFlushWait;
struct VjFlushWait {
    /*
     * Called once, perhaps before the call that took @w returns.  0: as flush.  -EAGAIN:
     * the thread that synced did not do it for @w, and the caller is to call flush;
     * others as flush.  Threads: any, also one of the engine's callers that syncs.
     * Locks: none.  Must not call flush.
     */
    void (*done)(VjFlushWait *w, int rc);
    /* the engine's: */
    uint64_t wanted;
    VjFlushWait *next;
};

/* What has transactions: a session, and the wrappers of one. */
typedef struct VjMetaOps {
    const char *name;         /* of a wrapper: what vj_meta_wrap selects */
    const VjOptSpec *options; /* ends with a NULL name */
    size_t instance_size;     /* bytes; the instance begins with VjMeta */
    size_t txn_size;          /* bytes; a transaction begins with VjTxn */

    /* Of a wrapper.  Setup only. */
    bool (*open)(VjMeta *m, const VjOpts *opts, GError **error);
    /* Setup only; no transaction is open.  Makes everything visible durable first. */
    int (*close)(VjMeta *m);
    /*
     * Read: a snapshot of all commits so far; never waits for a writer or a device.
     * Write: alone among writers or optimistic; may wait while the engine's memory for
     * what is not yet durable is full.  @release: the transaction only gives space back
     * and may use the reserve that is kept for such.  @background: waits while others
     * want to write, and leaves them most of that memory.  Threads: any; a transaction
     * stays on its thread, and a thread has at most one write transaction and no begin()
     * of a second kind within it.  -ENOSPC, -EIO, -ENOMEM, -EROFS, -ESTALE (session.h).
     * @txn: @txn_size bytes, zeroed but for its first members, which say what it is; the
     * room allocates it and frees it after commit, abort or a failure.  End a read
     * transaction soon: it keeps memory and pages of the engine from being used again.
     */
    int (*begin)(VjMeta *m, VjTxn *txn);
    /*
     * Ends @txn even on failure; visible on 0; nothing of it on failure.  -EAGAIN:
     * conflict, run again.  -ENOSPC: checked here, so that what was acknowledged can be
     * made durable.
     */
    int (*commit)(VjTxn *txn);
    /* Also ends a read transaction.  May set @txn->verdict. */
    void (*abort)(VjTxn *txn);
    /*
     * Setup only, before the first write transaction: how many keys @space holds.  Takes
     * a time that does not grow with their number.  -EIO, -ENOMEM.
     */
    int (*count)(VjMeta *m, VjSpace space, uint64_t *out);
    /* Every commit that returned before it survives; callers that overlap share one
     * sync. */
    int (*flush)(VjMeta *m);
    /*
     * As flush, but where another thread syncs already it does not wait: that one calls
     * @w->done.  The calling thread may sync for other callers as long as some join: a
     * user of it has other threads for other work.  NULL: flush, then @w->done.  Threads:
     * any.
     */
    void (*flush_join)(VjMeta *m, VjFlushWait *w);
    /*
     * Every commit that returned before it has reached the engine's machine, durable or
     * not, and survives the end of this one; callers that overlap share one request.
     * Returns at once where the engine is in this process or knows no difference between
     * the two (NULL: likewise): nothing is durable by it.  As flush.
     */
    int (*send)(VjMeta *m);
    /*
     * @value is borrowed until the next put/del in @txn, or its end.  -ENOENT; -EIO;
     * -EAGAIN, as of next and prev: @txn->verdict is that, and the body will run once
     * more.
     */
    int (*get)(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value);
    /* Replaces what is there.  Both are copied.  -ENOMEM (also: too large), -ENOSPC. */
    int (*put)(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value);
    int (*del)(VjTxn *txn, VjSpace space, VjSlice key); /* -ENOENT; as get */
    /* The first key > @after (empty: the first of all), both borrowed as in get.
     * -ENOENT. */
    int (*next)(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key, VjSlice *value);
    /* The last key < @before (empty: the last of all).  -ENOENT. */
    int (*prev)(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key, VjSlice *value);
    /* Reading @key now would be a round trip.  NULL: none is. */
    bool (*is_far)(VjTxn *txn, VjKey key);
    /*
     * Hints: what will be read soon, in this transaction or a later one, and is far, is
     * brought nearer by one round trip.  No failure is reported, and none changes what
     * get and next return.  May block as get.  expect_run: if the key next behind @after
     * is far, @count keys from there on.  NULL: nothing is far.
     */
    void (*expect)(VjTxn *txn, const VjKey *keys, size_t count);
    void (*expect_run)(VjTxn *txn, VjSpace space, VjSlice after, size_t count);

    /* NULL: it counts nothing.  Any thread. */
    void (*log_stats)(VjMeta *m, VjMetaLogStats *out);

    /* As vj_meta_save. */
    int (*save)(VjMeta *m, int fd, VjMetaSaved *out);
} VjMetaOps;

struct VjMeta {
    const VjMetaOps *ops;
    VjMeta *next; /* what is wrapped; NULL for a session */
};

struct VjTxn {
    VjMeta *meta;
    bool write;
    bool release;
    bool background;
    /* When its caller's time is over, which vj_meta_run counts from its first run on. */
    int64_t until_us;
    /* Of what it read: 0; -EAGAIN it is not one state, the body has to run again; others:
     * why it cannot be decided whether it is. */
    int verdict;
    VjTxn *next; /* the wrapped transaction; NULL for a session's */
};

/* @spec: an engine, "name" or "name:K=V,…".  Setup only.  *out owned (vj_meta_close). */
bool vj_meta_open(const char *spec, const VjMetaPlace *place, VjMeta **out,
                  GError **error);
/*
 * @spec: "stats" or "fault:K=V,…", around transactions, or "latency:K=V,…" or
 * "crash:K=V,…", around the engine: *out is then @next.  Setup only: no transaction is
 * open.  Takes @next on success.
 */
bool vj_meta_wrap(const char *spec, VjMeta *next, VjMeta **out, GError **error);
/* @spec names an engine that keeps nothing when the process ends. */
bool vj_meta_forgets(const char *spec);
/* VJ_NEEDS_… of the engine that @spec names; 0 also where there is no such engine, which
 * opening it reports.  Touches nothing. */
uint32_t vj_meta_needs(const char *spec);
/* As vj_store_files. */
void vj_meta_files(const char *spec, VjOptFiles *files);
/* 0, or what kept the last commits from becoming durable.  Frees @m all the same. */
int vj_meta_close(VjMeta *m) G_GNUC_WARN_UNUSED_RESULT;

/* Reads from its engine take round trips, of no bounded length. */
bool vj_meta_is_far(VjMeta *m);
/*
 * It is alone by a lease: another session can take over while this one has not heard of
 * it.  So what this one has committed and not flushed says nothing to that one: whatever
 * it does outside of the metadata for good is flushed first.
 */
bool vj_meta_is_leased(VjMeta *m);
/* @spec names an engine of this build and options that it has.  Touches nothing. */
bool vj_meta_spec_check(const char *spec, GError **error);

/* The next five: @spec as for vj_meta_open; -EOPNOTSUPP, NULL: the engine keeps no file
 * of its own. */
/* The name of the file below VjMetaPlace that has the keys: for messages, and for callers
 * that keep the file or look whether it is another one. */
const char *vj_meta_file(const char *spec);
/* Its length, 0 where it is no regular file.  No session need have opened it.
 * -ENOENT. */
int vj_meta_file_bytes(const char *spec, const VjMetaPlace *place,
                       uint64_t *bytes) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Reads @fd (-1: the engine's own files below @place) without believing any of it, and
 * calls @say for what is damaged; of the engine's own files a line begins with the
 * file's name.  No session has it open.  What has no flaw can be opened and read; single
 * records in it may still be damaged.  -EIO, -ENOENT, -ENOMEM; -EOPNOTSUPP also: there is
 * no such file but something else, which open refuses.
 */
int vj_meta_examine(const char *spec, const VjMetaPlace *place, int fd, VjMetaFlaw *say,
                    void *opaque, VjMetaExam *out) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Puts the first @bytes of @fd, which save wrote, in the place of what is below @place;
 * what was there is kept as @keep in the same directory.  No session has it open.
 * Durable on true; a crash leaves the one or the other, and so does a failure: *replaced
 * says which.
 */
bool vj_meta_restore(const char *spec, const VjMetaPlace *place, int fd, uint64_t bytes,
                     const char *keep, bool *replaced, GError **error);
/*
 * Writes all that is durable, as one state, to the empty file @fd; not synced.  Readers
 * and writers go on meanwhile, and none waits for it.  Any thread; one at a time; blocks.
 * -EBADMSG what is there is damaged; -ENOSPC also: a writer needs the space; -EIO,
 * -ENOMEM.
 */
int vj_meta_save(VjMeta *m, int fd, VjMetaSaved *out) G_GNUC_WARN_UNUSED_RESULT;

/* Asserting callers; contracts as in VjMetaOps. */
int vj_meta_flush(VjMeta *m) G_GNUC_WARN_UNUSED_RESULT;
void vj_meta_flush_join(VjMeta *m, VjFlushWait *w);
int vj_meta_send(VjMeta *m) G_GNUC_WARN_UNUSED_RESULT;
int vj_meta_count(VjMeta *m, VjSpace space, uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_txn_get(VjTxn *txn, VjSpace space, VjSlice key,
               VjSlice *value) G_GNUC_WARN_UNUSED_RESULT;
int vj_txn_put(VjTxn *txn, VjSpace space, VjSlice key,
               VjSlice value) G_GNUC_WARN_UNUSED_RESULT;
int vj_txn_del(VjTxn *txn, VjSpace space, VjSlice key) G_GNUC_WARN_UNUSED_RESULT;
int vj_txn_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key,
                VjSlice *value) G_GNUC_WARN_UNUSED_RESULT;
int vj_txn_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key,
                VjSlice *value) G_GNUC_WARN_UNUSED_RESULT;

void vj_txn_expect(VjTxn *txn, const VjKey *keys, size_t count);
void vj_txn_expect_run(VjTxn *txn, VjSpace space, VjSlice after, size_t count);
bool vj_txn_is_far(VjTxn *txn, VjKey key) G_GNUC_WARN_UNUSED_RESULT;

/*
 * VjScan - the keys of a space in order, or those of it that go on behind a prefix
 *
 *     vj_scan_begin(&s, txn, VJ_SPACE_INODE, VJ_SCAN_ALL);
 *     while (vj_scan_next(&s)) {
 *         …s.key, s.value…
 *     }
 *     return s.error;
 *
 * The key is the scan's own, and stays until the next step; the value is borrowed as by
 * vj_txn_get.  The caller may put and del meanwhile, also the key where it stands.
 */
typedef struct VjScan {
    VjTxn *txn; /* borrowed */
    VjSpace space;
    size_t prefix_bytes;
    uint8_t at[VJ_META_KEY_MAX];
    VjSlice key; /* in at; before the first step what it begins behind */
    VjSlice value;
    int error; /* after the last step: 0 at the end, else as vj_txn_next */
} VjScan;

#define VJ_SCAN_ALL vj_slice(NULL, 0)

/* @prefix is copied; a key that is no longer than it is not visited. */
void vj_scan_begin(VjScan *s, VjTxn *txn, VjSpace space, VjSlice prefix);
/* The next step is to the first key behind @key, which is copied and begins with the
 * prefix. */
void vj_scan_behind(VjScan *s, VjSlice key);
/* False: there is no other, or it failed. */
bool vj_scan_next(VjScan *s) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Returns 0, or what the caller of vj_meta_view or vj_meta_run is to get; for the latter
 * 0 commits and anything negative aborts.
 */
typedef int VjTxnBody(VjTxn *txn, void *opaque);

/*
 * vj_meta_view - run @body in a read transaction, on one state of all keys
 *
 * @body     reads only, and may run several times: each run begins anew and forgets what
 *           the one before has put into @opaque.  What it borrowed it copies before it
 *           returns.  When a read fails it ends, with any error: -EAGAIN says that the
 *           engine cannot give it that state any more, and is never the caller's result.
 *           In a shared session, on an engine that reports changes late or not at all, a
 *           run may see what is no state: its result is not the caller's either
 * Returns   what the last run of @body returned; -ENOMEM, -EIO
 * Threads   any; waits for no writer and no device of an embedded engine
 * Locks     none may be held
 */
int vj_meta_view(VjMeta *m, VjTxnBody *body, void *opaque) G_GNUC_WARN_UNUSED_RESULT;

/*
 * VjListing - the records of a space in order, copied out of views, a batch each
 *
 *     vj_listing_begin(&l, meta, VJ_SPACE_INODE);
 *     while (vj_listing_next(&l)) {
 *         …l.key, l.value…
 *     }
 *     return vj_listing_end(&l);
 *
 * For long walks of which each step counts once.  Key and value are the listing's own,
 * and stay until the next step.  No transaction is open in between, so the caller may
 * run views and bodies, and block; batches are of different states, if others commit.
 * Threads: one at a time.  Locks: none may be held.
 */
typedef struct VjListing {
    VjMeta *meta; /* borrowed */
    VjSpace space;
    uint8_t at[VJ_META_KEY_MAX]; /* the next batch begins behind it */
    size_t at_bytes;
    GByteArray *bytes; /* of the batch, and where its records lie in them */
    GArray *places;
    guint next; /* of places */
    bool at_end;
    VjSlice key, value;
    int error;
} VjListing;

void vj_listing_begin(VjListing *l, VjMeta *m, VjSpace space);
/* The next step is to the first record behind @key, which is copied, as it is then. */
void vj_listing_behind(VjListing *l, VjSlice key);
/* False: there is no other, or it failed. */
bool vj_listing_next(VjListing *l) G_GNUC_WARN_UNUSED_RESULT;
/* 0, also before the end; or what failed, as vj_meta_view. */
int vj_listing_end(VjListing *l) G_GNUC_WARN_UNUSED_RESULT;

typedef enum VjRunFlags {
    VJ_RUN_DEFAULT = 0,
    VJ_RUN_RELEASE =
        1, /* gives space back: may use the reserve (unlink, truncate, drop) */
    VJ_RUN_BACKGROUND =
        2, /* nobody waits for it: others go first, and keep most of the memory */
} VjRunFlags;

/*
 * vj_meta_run - run @body in a write transaction until it commits
 *
 * @body     may run several times; see the top of this file
 * Returns   0 committed and visible; what @body returned; -ENOSPC, -EIO; -ETIMEDOUT,
 *           -ECANCELED: the thread's VjCancel says so, of all runs together
 * Threads   any; may wait for other writers' bodies, never for a device unless the
 *           engine's
 *           memory is full      Locks   none may be held
 */
int vj_meta_run(VjMeta *m, VjRunFlags flags, VjTxnBody *body,
                void *opaque) G_GNUC_WARN_UNUSED_RESULT;

/* Counts since open, of the outermost stats wrapper (zero without one), and of the
 * session. */
typedef struct VjMetaStats {
    uint64_t reads, writes, commits, conflicts, flushes;
    uint64_t gets[VJ_SPACE_COUNT], puts[VJ_SPACE_COUNT], dels[VJ_SPACE_COUNT];
    VjMetaLogStats log;
} VjMetaStats;

void vj_meta_stats(VjMeta *m, VjMetaStats *out);
/* The same by kind of call, in fixed order, with latencies; none without the stats
 * wrapper. */
void vj_meta_calls_by_kind(VjMeta *m, VjCallVisit *visit, void *opaque);

/* What went to an engine on another machine, and came from there, since open. */
typedef struct VjMetaTraffic {
    uint64_t requests;                   /* each of them a round trip */
    uint64_t sent_bytes, received_bytes; /* frames, before TLS */
} VjMetaTraffic;

/* All zero where the engine is on this machine.  Threads: any; does not block. */
void vj_meta_traffic(VjMeta *m, VjMetaTraffic *out);

/* Round trips since the latency wrapper was put around the engine; all zero without
 * one. */
typedef struct VjMetaCalls {
    uint64_t get_many, scan, apply, clock, count;
    uint64_t own; /* those that the calling thread has made, of any such engine */
} VjMetaCalls;

void vj_meta_calls(VjMeta *m, VjMetaCalls *out);

/*
 * vj_meta_crash_after - no call reaches the engine after @calls more of them, as if the
 *                       machine of the session, a shared one, had gone
 *
 * The wrapper crash was put around its engine.
 * @is_done   the first that gets no answer is done all the same, if it is an apply()
 * The session takes itself to be shut out then: no thread waits for what its engine would
 * say, and its user can close it.  Any thread.
 */
void vj_meta_crash_after(VjMeta *m, uint64_t calls, bool is_done);
/* It has come to that call. */
bool vj_meta_has_crashed(VjMeta *m);
/* Batches that its options lose, drop and late have met, of all such engines of the
 * process.  Any thread. */
uint64_t vj_meta_crash_hits(void);

extern const VjOptSpec vj_meta_fault_options[];
/* Fault wrapper, for tests: as vj_store_fault_set, _calls and _hits. */
bool vj_meta_fault_set(VjMeta *m, const char *options, GError **error);
uint64_t vj_meta_fault_calls(VjMeta *m);
uint64_t vj_meta_fault_hits(void);

#endif
