/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-private.h - what the files of the lmdb driver share
 *
 *   lmdb.c        open, close, options, the ops table
 *   lmdb-lock.c   LMDB's table of readers, in memory
 *   lmdb-txn.c    transactions: reading and writing through the layers
 *   lmdb-move.c   durability: the thread that moves generations into the file, and flush
 *   lmdb-redo.c   the log in front of the file: writing it, replaying it
 *   lmdb-reopen.c a second environment where LMDB has given the first one up
 *   lmdb-renew.c  a second file where a write of the first one failed
 *   lmdb-space.c  room in the file for what was acknowledged
 *   lmdb-walk.c   reading a file without believing it
 *   lmdb-image.c  examining a file, copying one in use, putting a copy in its place
 *   lmdb-compact.c  the file without its free pages, when it is closed
 *
 * Layers, from above: the writer's own changes, the active generation, the frozen one,
 * the LMDB file.  A generation's entries hide those of the layers below.
 */
#ifndef VJ_META_LMDB_PRIVATE_H
#define VJ_META_LMDB_PRIVATE_H

#include <lmdb.h>

#include "meta/lmdb-format.h"
#include "meta/lmdb-walk.h"
#include "meta/meta-private.h"
#include "meta/overlay-private.h"
#include "meta/redo-private.h"

/* Transactions open at one time; one more fails with -EIO. */
#define VJ_LMDB_READERS_MAX 1024u
/* The file below SOURCE/meta, and the one that is to take its place. */
#define VJ_LMDB_FILE "data.mdb"
#define VJ_LMDB_NEW_FILE "data.mdb.new"
/* The directory that LMDB is given, and what it calls its lock file. */
#define VJ_LMDB_ENV_DIR "lmdb"
#define VJ_LMDB_LOCK_FILE "lock.mdb"
/* Changes of one transaction, bytes of memory; one more fails with -ENOMEM. */
#define VJ_LMDB_TXN_BYTES_MAX ((uint64_t)64 << 20)
/* How long a move that is short of space waits for transactions which pin free pages. */
#define VJ_LMDB_VIEWS_WAIT_US ((int64_t)1000 * 1000)
/* Pause after a failed move, doubled up to the second; a flush ends it. */
#define VJ_LMDB_RETRY_FIRST_US ((int64_t)100 * 1000)
#define VJ_LMDB_RETRY_MAX_US ((int64_t)5 * 1000 * 1000)
/* Where that needs a new file a flush waits for so much of it, or for as long as the try
 * took. */
#define VJ_LMDB_RENEW_PAUSE_US ((int64_t)50 * 1000)
/* How long a new transaction waits while LMDB opens its file again. */
#define VJ_LMDB_REOPEN_WAIT_US (2 * VJ_LMDB_VIEWS_WAIT_US)

/* A set of commits on their way to the file. */
typedef struct VjGeneration VjGeneration;
struct VjGeneration {
    /* guarded by state while active; never changes once frozen: */
    VjOverlay overlay;
    int64_t first_us;  /* when its first commit came */
    uint64_t last_seq; /* set when frozen */
    uint64_t
        after_round; /* set when frozen: of the log, the first that counts after the move */
    bool retires_log; /* set when frozen: none counts after the move */
    /* guarded by state: */
    uint32_t refs;
    VjGeneration *next_dropped;
};

/* The shape of one B+tree of the file. */
typedef struct VjLmdbTree {
    uint64_t depth, branch_pages, leaf_pages, run_pages;
} VjLmdbTree;

/* What is known of the file, as of the last move. */
typedef struct VjLmdbFile {
    VjLmdbTree spaces[VJ_SPACE_COUNT];
    VjLmdbTree freelist;  /* the tree in which LMDB keeps its free pages */
    uint64_t end_page;    /* behind the last page in use */
    uint64_t free_pages;  /* below end_page, and for the next move to use */
    uint64_t fresh_pages; /* freed by the last move: for the one after the next */
} VjLmdbFile;

/* What a transaction sees of what is committed.  Kept in a pool between transactions. */
typedef struct VjLmdbView VjLmdbView;
struct VjLmdbView {
    VjLmdbView *next_idle;         /* guarded by state */
    VjSnapshot snapshot;           /* links guarded by state; seq fixed while in use */
    VjGeneration *active, *frozen; /* referenced; frozen may be NULL */
    uint64_t move_count;           /* moves when it was taken */
    MDB_txn *lmdb;                 /* read-only; keeps its reader slot while idle */
    MDB_cursor *cursors[VJ_SPACE_COUNT];
    uint32_t cursors_bound; /* bit per space: renewed for this transaction */
};

typedef struct VjLmdbTxn {
    VjTxn txn;
    VjLmdbView *view;
} VjLmdbTxn;

/* Tests: called by a move before it commits; what it returns (0, -errno) decides. */
typedef int VjLmdbMoveHook(void *opaque);

/* See lmdb-redo.c. */
typedef struct VjLmdbRedo {
    /* changes while it does not serve: */
    VjRedo *log;           /* NULL: there is none */
    uint64_t wanted_bytes; /* never changes after open; 0: there is to be none */
    /* of setup and the mover: */
    bool claimed;       /* the file says that there is one */
    bool point_is_lost; /* it ought to say which, and does not */
    VjRedoPoint point;  /* what it said when it was opened; the id is kept true */
    /* guarded by state: */
    bool serves;          /* a flush may use it */
    bool busy;            /* somebody writes a record */
    bool recovering;      /* moves leave the log what it was */
    bool retiring;        /* the next move makes it count no more */
    uint64_t round;       /* of the active generation */
    uint64_t offset;      /* in its half: where the next record goes */
    uint64_t after_seq;   /* may be used when the file has this commit, */
    uint64_t after_round; /* and the round is not before this one */
    unsigned misfortune;  /* failures in a row */
    bool spoiled;         /* a write of its file failed: it gets a new one, */
    int64_t renew_us;     /* not before this */
    int64_t renew_pause_us;
    VjMetaLogStats stats;
    /* of who is busy: */
    VjUnlogged *items; /* owned */
    uint8_t *bytes;    /* owned */
    uint64_t item_room, byte_room;
} VjLmdbRedo;

typedef struct VjLmdb {
    VjMeta meta;

    /* never change after open, but by a reopening: it is alone (lmdb-reopen.c) */
    MDB_env *env; /* NULL: a reopening failed */
    MDB_dbi dbi[VJ_SPACE_COUNT];
    MDB_dbi unnamed; /* holds the format record */
    /* Read-only, with slots of their own: setup and the mover use the first, a save the other. */
    MDB_txn *measure_txn, *save_txn;
    gint broken;          /* atomic: LMDB refuses all work until it is opened again */
    uint64_t good_commit; /* of setup and the mover: the last one that succeeded */

    /* never change after open: */
    char *path;
    bool read_only;
    uint64_t generation_max_bytes; /* of keys and values; its pages: twice that */
    int64_t commit_interval_us;
    uint64_t map_bytes;
    int fd; /* of the data file, opened apart from LMDB's: it hears of each failed write */
    int dir_fd;          /* of the directory that it is in, our own */
    int env_fd, lock_fd; /* see lmdb-lock.c; -1 when read_only */
    uint32_t page_bytes;
    uint64_t reserve_bytes, reserve_pages;
    GThread *mover; /* NULL when read_only */
    VjLmdbMoveHook *hook;
    void *hook_opaque;

    /* Held from begin to the end of a write transaction. */
    VjMutex writer;
    /* guarded by writer: */
    VjOverlay changes; /* of the open write transaction */
    bool no_fallocate; /* this file system cannot set space aside */

    /* Brief; never across a call into LMDB that does I/O. */
    VjMutex state;
    VjCond mover_wake; /* there may be something to do for the mover */
    VjCond moved;      /* a move ended, well or badly, or a generation was frozen */
    /* guarded by state: */
    VjGeneration *active, *frozen; /* frozen: NULL when nothing is being moved */
    VjGeneration *dropped;         /* without references, to be freed by the mover */
    VjSnapshots snapshots;         /* of read transactions */
    VjLmdbView *idle;
    uint64_t seq;         /* of the last commit */
    uint64_t durable_seq; /* every commit up to it is in the file or in the log */
    uint64_t moved_seq;   /* every commit up to it is in the file */
    uint64_t move_seq;    /* up to which a move was asked for */
    bool turn_wanted;     /* a move is asked for although nothing waits to be moved */
    int move_error;       /* 0, or why the last move failed */
    int last_failure;     /* why the last move that failed did; not reset by others */
    uint64_t move_failures, moves; /* counts */
    int64_t retry_us;              /* not before; 0: at once */
    int64_t retry_pause_us;
    bool retry_when_asked; /* tests: a failed move waits for a flush */
    bool stopping;
    uint64_t old_views, views; /* in use: taken before the last move, and since */
    uint64_t making;           /* views that are being made, without the lock; held */
    VjLmdbFile file;
    uint64_t file_pages;  /* that the device has set aside for the file */
    uint64_t file_number; /* counts the files that fd was: see lmdb-renew.c */
    bool suspect;      /* a write of the file failed: a new one has to take its place, */
    int64_t renew_us;  /* not before this */
    bool reopening;    /* new transactions wait until LMDB has its file again */
    bool saving;       /* vj_lmdb_save runs */
    bool save_yields;  /* it is to end: its pages are needed */
    uint64_t pin;      /* the commit that it reads, or one before it; 0: none */
    uint64_t overruns; /* moves that needed more than was set aside: 0, or the bound is
                            wrong */
    bool map_warned;
    VjLmdbRedo redo;
    /* Borrowed: who is to be told what is durable.  Not NULL: somebody writes the log, or is about
     * to look here. */
    VjFlushWait *joined;
} VjLmdb;

/* The record by which the driver knows its own file. */
VjLmdbFormat vj_lmdb_format_encode(uint32_t version);
/* What the tree of @space is called in the file; @name. */
const char *vj_lmdb_space_name(VjSpace space, char name[8]);
/* Opens d->env with a map of so many bytes; a code of LMDB's.  NULL on failure. */
int vj_lmdb_env_open(VjLmdb *d, uint64_t map_bytes);
/* A descriptor of the file that stands under the name, or -errno. */
int vj_lmdb_open_own(const VjLmdb *d);
/* -errno for what an mdb_ call returned; logs what is not an ordinary error. */
int vj_lmdb_errno(VjLmdb *d, int rc, const char *call);

/* ---- lmdb-lock.c ----------------------------------------------------------------- */

/* Setup, before the environment: makes env_fd and lock_fd. */
bool vj_lmdb_lock_open(VjLmdb *d, GError **error);
/* Of the directory that LMDB is to open. */
int vj_lmdb_env_fd(const VjLmdb *d);

/* ---- lmdb-txn.c: members of the ops table, contracts there ----------------------- */

int vj_lmdb_begin(VjMeta *m, VjTxn *txn);
int vj_lmdb_commit(VjTxn *txn);
void vj_lmdb_abort(VjTxn *txn);
int vj_lmdb_get(VjTxn *txn, VjSpace space, VjSlice key, VjSlice *value);
int vj_lmdb_put(VjTxn *txn, VjSpace space, VjSlice key, VjSlice value);
int vj_lmdb_del(VjTxn *txn, VjSpace space, VjSlice key);
int vj_lmdb_next(VjTxn *txn, VjSpace space, VjSlice after, VjSlice *key, VjSlice *value);
int vj_lmdb_prev(VjTxn *txn, VjSpace space, VjSlice before, VjSlice *key, VjSlice *value);
/* Makes the writer's changes visible.  Needs the writer lock. */
void vj_lmdb_publish(VjLmdb *d);
/* LMDB keeps its file until it is released.  0; -EIO: it has none at the moment. */
int vj_lmdb_hold(VjLmdb *d);
void vj_lmdb_release(VjLmdb *d);
/* Frees the pool; no transaction is open. */
void vj_lmdb_views_clear(VjLmdb *d);

/* ---- lmdb-move.c ----------------------------------------------------------------- */

VjGeneration *vj_generation_new(void);
/* Needs the state lock.  The last reference hands it to the mover for freeing. */
void vj_generation_unref(VjLmdb *d, VjGeneration *g) VJ_REQUIRES(&d->state);
/* No references are left. */
void vj_generation_free(VjGeneration *g);

/* Starts and stops the mover; stopping moves nothing: flush before. */
void vj_lmdb_mover_start(VjLmdb *d);
void vj_lmdb_mover_stop(VjLmdb *d);
int vj_lmdb_flush(VjMeta *m);
void vj_lmdb_flush_join(VjMeta *m, VjFlushWait *w);
/* As flush, and in the file. */
int vj_lmdb_flush_moved(VjLmdb *d);
/*
 * vj_lmdb_turn - commit to the file once more, so that what the last move freed can be
 * used
 *
 * Threads   the writer      Locks   writer held; the pages of one such commit are there
 */
int vj_lmdb_turn(VjLmdb *d);
/* True when the active generation has its share of memory.  Needs the state lock. */
bool vj_lmdb_active_is_full(const VjLmdb *d);

/* ---- lmdb-redo.c ----------------------------------------------------------------- */

/* The file system of the log is not to be taken up by it: a log has at most this share. */
#define VJ_LMDB_REDO_SHARE 64u
/* After so many failures in a row it is not used any more. */
#define VJ_LMDB_REDO_FAILURES_MAX 3u
/* Pause after a new log could not be made, doubled up to the second. */
#define VJ_LMDB_REDO_RENEW_FIRST_US ((int64_t)100 * 1000)
#define VJ_LMDB_REDO_RENEW_MAX_US ((int64_t)60 * 1000 * 1000)
/* Beyond it a record's memory is given back. */
#define VJ_LMDB_REDO_KEPT_BYTES (256u << 10)

/*
 * vj_lmdb_redo_open - setup: takes over what is in the log, and makes one if it can
 *
 * The mover runs unless read_only.  @bytes: of the log at most; 0: there is to be none.
 */
bool vj_lmdb_redo_open(VjLmdb *d, const VjMetaPlace *place, uint64_t bytes,
                       GError **error);
void vj_lmdb_redo_close(VjLmdb *d);
/* Moves all that is visible, after which the file needs no log.  Close, before the mover ends. */
int vj_lmdb_redo_retire(VjLmdb *d);
/* True when there is room in the log for all that is visible and not durable. */
bool vj_lmdb_redo_fits(const VjLmdb *d) VJ_REQUIRES(&d->state);
/* Writes what is visible and not durable; sets durable_seq, or serves to false. */
void vj_lmdb_redo_write(VjLmdb *d) VJ_REQUIRES(&d->state);
/* A new file for a log whose writes failed, once the data file needs none.  By the
 * mover. */
bool vj_lmdb_redo_renew_due(const VjLmdb *d, int64_t now_us) VJ_REQUIRES(&d->state);
void vj_lmdb_redo_renew(VjLmdb *d) VJ_REQUIRES(&d->state);
/* True when what is left of the active generation's half is little. */
bool vj_lmdb_redo_is_full(const VjLmdb *d);
void vj_lmdb_redo_frozen(VjLmdb *d, VjGeneration *g) VJ_REQUIRES(&d->state);
void vj_lmdb_redo_moved(VjLmdb *d) VJ_REQUIRES(&d->state);
/* In the transaction of a move: which part of the log counts after it.  An LMDB code. */
int vj_lmdb_redo_note(VjLmdb *d, MDB_txn *txn, const VjGeneration *g);
/* What stands in the unnamed database of a file with a log.  -EBADMSG, -EIO. */
int vj_lmdb_redo_read_point(MDB_txn *txn, MDB_dbi unnamed, VjRedoPoint *point);
/* Of a file that nobody has open, and that the walk found sound. */
int vj_lmdb_redo_examine(const VjMetaPlace *place, VjMetaFlaw *say, void *opaque,
                         VjMetaExam *out);
/* The same, below @dir_fd: it is to need no log. */
int vj_lmdb_redo_forget(int dir_fd, const char *name, uint64_t bytes);

/* ---- lmdb-reopen.c --------------------------------------------------------------- */

/* Asks LMDB; sets broken.  By the mover. */
bool vj_lmdb_is_broken(VjLmdb *d);
/*
 * vj_lmdb_mend - make a broken environment work again
 *
 * Waits a moment until no transaction is open; new ones fail with -EIO until it is done.
 * Returns   0; -EIO, -ENOMEM: not yet
 * Threads   the mover      Locks   state, given up meanwhile
 */
int vj_lmdb_mend(VjLmdb *d) VJ_REQUIRES(&d->state);
/* The same of one that works: LMDB gets the file that stands under the name now. */
int vj_lmdb_reopen(VjLmdb *d) VJ_REQUIRES(&d->state);

/* ---- lmdb-renew.c ---------------------------------------------------------------- */

/* Did a write or a sync of the file that failed with @rc lose something?  The mover or
 * the writer. */
bool vj_lmdb_write_was_lost(VjLmdb *d, int rc);
/* It did: nothing more is written to this file.  @rc is why. */
void vj_lmdb_suspect(VjLmdb *d, int rc) VJ_REQUIRES(&d->state);
/*
 * vj_lmdb_renew - the last commit that succeeded in a new file, in place of a suspect one
 *
 * Returns   0, durable and read back; -EIO, -ENOSPC, -ENOMEM: not before d->renew_us
 * Threads   the mover      Locks   state, given up meanwhile
 */
int vj_lmdb_renew(VjLmdb *d) VJ_REQUIRES(&d->state);

/* ---- lmdb-space.c ---------------------------------------------------------------- */

/* Setup: looks at the file and sets the reserve aside. */
bool vj_lmdb_space_open(VjLmdb *d, bool create, GError **error);
/* Gives back what is set aside beyond the reserve; nothing is waiting to be moved. */
void vj_lmdb_space_close(VjLmdb *d);
/* Reads the shape of the file; by the mover alone, without locks. */
int vj_lmdb_file_measure(VjLmdb *d, VjLmdbFile *file);
/* Takes over what was measured.  Needs the state lock. */
void vj_lmdb_file_update(VjLmdb *d, const VjLmdbFile *file) VJ_REQUIRES(&d->state);
/* Pages that a move of the active generation takes if nothing unlikely happens. */
uint64_t vj_lmdb_likely_pages(const VjLmdb *d);
/* True when a move of the frozen generation may have to use pages that old views pin. */
bool vj_lmdb_space_is_tight(const VjLmdb *d);

/*
 * vj_lmdb_space_claim - make sure that @d->changes can become durable when they are
 * visible
 *
 * @release  may use the reserve
 * Returns   0; -ENOSPC: not without moving what waits first, and perhaps not then
 * Threads   the writer      Locks   writer held
 */
int vj_lmdb_space_claim(VjLmdb *d, bool release);
/* True when vj_lmdb_turn would gain pages, and may be called. */
bool vj_lmdb_turn_helps(VjLmdb *d);
/* Sets aside in a new file of @pages what was set aside in the old one.  By the mover. */
int vj_lmdb_space_follow(VjLmdb *d, uint64_t pages, uint64_t want);

/* ---- lmdb-image.c: members of the ops table ---------------------------------------- */

int vj_lmdb_examine(const VjMetaPlace *place, int fd, VjMetaFlaw *say, void *opaque,
                    VjMetaExam *out);
int vj_lmdb_save(VjMeta *m, int fd, VjMetaSaved *out);
bool vj_lmdb_restore(const VjMetaPlace *place, int fd, uint64_t bytes, const char *keep,
                     bool *replaced, GError **error);
/* The meta pages of a file that holds this one commit.  @pages: room for them, of
 * zeroes. */
void vj_lmdb_metas_encode(const VjLmdbWalk *w, uint8_t *pages);
/* When a save runs: ends it and waits for that, so that its pages become free. */
void vj_lmdb_save_yield(VjLmdb *d);

/* ---- lmdb-compact.c ------------------------------------------------------------------ */

/* More than so many bytes, and more than half of the file, are free: it is written anew. */
#define VJ_LMDB_COMPACT_MIN_BYTES (64 * VJ_MIB)

/*
 * vj_lmdb_compact - a new file without free pages, beside the old one
 *
 * Nothing waits to be moved and nobody reads.  *ready: the caller renames it after the
 * environment is closed (vj_lmdb_compact_finish).  What keeps it from being made is
 * logged; nothing is lost by that.
 * Returns   0; -EBADMSG: the file is damaged
 */
int vj_lmdb_compact(VjLmdb *d, bool *ready);
int vj_lmdb_compact_finish(int dir_fd, const char *path);

/* Tests: @m is the driver itself.  Set the hook before the first commit. */
void vj_lmdb_set_move_hook_for_test(VjMeta *m, VjLmdbMoveHook *hook, void *opaque);
/* A move that failed is repeated when a flush asks, and not after a time. */
void vj_lmdb_retry_when_asked_for_test(VjMeta *m);
uint64_t vj_lmdb_moves_for_test(VjMeta *m);    /* synchronous LMDB commits by the mover */
uint64_t vj_lmdb_overruns_for_test(VjMeta *m); /* as the member */
/* Pages that the file must have for a move of all that is visible; and those in use. */
void vj_lmdb_pages_for_test(VjMeta *m, uint64_t *needed, uint64_t *used);

#endif
