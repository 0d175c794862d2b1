/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-private.h - what the files of the lmdb engine share
 *
 *   lmdb.c        open, close, options, the ops table
 *   lmdb-env.c    LMDB's environment: errors, the format record, opening it
 *   lmdb-lock.c   LMDB's table of readers, in memory
 *   lmdb-snapshot.c  reading
 *   lmdb-apply.c  one batch into the file, in one synchronous commit
 *   lmdb-log.c    what the file says of the log beside it
 *   lmdb-reopen.c a second environment where LMDB has given the first one up
 *   lmdb-renew.c  a second file where a write of the first one failed
 *   lmdb-space.c  room in the file for what was acknowledged
 *   lmdb-walk.c   reading a file without believing it
 *   lmdb-image.c  examining a file, copying one in use, putting a copy in its place
 *   lmdb-compact.c  the file without its free pages, when it is closed
 *   lmdb-copy.c, lmdb-rewrite.c  the same while it is open: the copy; when, and the
 *                 exchange
 *   lmdb-erase.c  overwriting what was removed
 */
#ifndef VJ_META_LMDB_PRIVATE_H
#define VJ_META_LMDB_PRIVATE_H

#include <lmdb.h>

#include "meta/lmdb-format.h"
#include "meta/lmdb-walk.h"
#include "meta/meta-private.h"
#include "meta/redo-private.h"

/* Less address space than this is of no use. */
#define VJ_LMDB_MAP_MIN_BYTES (64 * VJ_MIB)
/* Snapshots in use at one time; one more fails with -EIO. */
#define VJ_LMDB_READERS_MAX 1024u
/* The file below SOURCE/meta, and those that are to take its place: the second while it
 * goes on being written to. */
#define VJ_LMDB_FILE "data.mdb"
#define VJ_LMDB_NEW_FILE "data.mdb.new"
#define VJ_LMDB_COPY_FILE "data.mdb.copy"
/* What is to be overwritten: another file has taken its place. */
#define VJ_LMDB_OLD_FILE "data.mdb.old"
/* The directory that LMDB is given, and what it calls its lock file. */
#define VJ_LMDB_ENV_DIR "lmdb"
#define VJ_LMDB_LOCK_FILE "lock.mdb"
/* How long an apply that is short of space waits for snapshots which pin free pages. */
#define VJ_LMDB_SNAPSHOTS_WAIT_US ((int64_t)1000 * 1000)
/* Before a new file is made, or for as long as the last try took. */
#define VJ_LMDB_RENEW_PAUSE_US ((int64_t)50 * 1000)
/* How long a new snapshot waits while LMDB opens its file again. */
#define VJ_LMDB_REOPEN_WAIT_US (2 * VJ_LMDB_SNAPSHOTS_WAIT_US)

/* How long the readers of an open file are made to wait for those of before, so that
 * another file can take its place; and how long they go on between two tries. */
#define VJ_LMDB_HOLD_US ((int64_t)50 * 1000)
#define VJ_LMDB_HOLD_PAUSE_US ((int64_t)100 * 1000)

/* The shape of one B+tree of the file. */
typedef struct VjLmdbTree {
    uint64_t depth, branch_pages, leaf_pages, run_pages;
} VjLmdbTree;

/* What is known of the file, as of the last apply. */
typedef struct VjLmdbFile {
    VjLmdbTree spaces[VJ_SPACE_COUNT];
    VjLmdbTree freelist;       /* the tree in which LMDB keeps its free pages */
    uint64_t end_page;         /* behind the last page in use */
    uint64_t free_pages;       /* below end_page, and for the next apply to use */
    uint64_t just_freed_pages; /* freed by the last one: for the one after the next */
} VjLmdbFile;

/* Kept by the session between transactions. */
typedef struct VjLmdbSnapshot VjLmdbSnapshot;
struct VjLmdbSnapshot {
    VjEngineSnapshot base;
    VjLmdbSnapshot *older, *newer; /* of all; guarded by lock */
    gint in_use;                   /* atomic: taken, or about to be */
    gint move;                     /* atomic: which moves it sees */
    /* of the thread that uses it, and of a reopening when it is not in use: */
    MDB_txn *lmdb; /* read-only; keeps its reader slot while idle; NULL: to be prepared */
    MDB_cursor *cursors[VJ_SPACE_COUNT];
    uint32_t bound;  /* bit per space: the cursor was renewed since it was taken */
    uint32_t stands; /* bit per space: the cursor stands at the key */
    MDB_val at[VJ_SPACE_COUNT]; /* that key */
};

/* Of lmdb-rewrite.c. */
typedef struct VjLmdbRewrite {
    int64_t erase_us; /* never changes: what was removed is overwritten then; 0: not */
    int64_t hold_us, hold_pause_us; /* VJ_LMDB_HOLD_US, …; shorter in tests */
    /* guarded by VjLmdb.lock: */
    int64_t changed_since_us; /* the first change that no copy covers; 0: there is none */
    int64_t wait_us;          /* how long most of the file has to be free; 0: never */
    int64_t free_since_us;    /* 0: it is not */
    int64_t not_before_us, pause_us;
    bool is_wanted;    /* whatever is free */
    bool runs, yields; /* a copy is made; it is to end: a writer needs space */
    bool stopping;
    int last_error;       /* that was logged */
    uint64_t times;       /* that the file was written anew, */
    uint64_t freed_bytes; /* and what the device got back by it */
    /* Of VJ_LMDB_OLD_FILE: */
    unsigned erase_tries;  /* that failed; 0: there is none, or it waits for the first */
    int64_t erase_next_us; /* the next one is not before this */
    uint64_t erasures_given_up; /* files that went as they were */
    /* made by apply, under lock; joined when no apply runs any more: */
    GThread *thread;
} VjLmdbRewrite;

/* Tests: called by an apply before it commits; what it returns (0, -errno) decides. */
typedef int VjLmdbMoveHook(void *opaque);

typedef struct VjLmdb {
    VjEngine engine;

    /* never change after open, but by a reopening: it is alone (lmdb-reopen.c) */
    MDB_env *env; /* NULL: a reopening failed */
    MDB_dbi dbi[VJ_SPACE_COUNT];
    MDB_dbi unnamed; /* holds the format record */
    /* Read-only, with slots of their own: of setup and apply, and of a save. */
    MDB_txn *measure_txn, *save_txn;
    gint broken;    /* atomic: LMDB refuses all work until it is opened again */
    gint reopening; /* atomic: new snapshots wait until LMDB has its file again */
    gint waiting;   /* atomic: apply waits for snapshots to be released */
    gint moves;     /* atomic: counts what was applied */
    /* of setup and apply: */
    uint64_t good_commit; /* the last one that succeeded */
    bool claimed;         /* the file says that there is a log */
    bool point_is_lost;   /* it ought to say which, and does not */
    VjRedoPoint point;    /* what it said when it was opened */

    /* never change after open: */
    char *path;
    bool read_only;
    uint64_t map_bytes;
    uint64_t redo_bytes; /* of a log, at most */
    /* Of the data file, opened apart from LMDB's: it hears of each failed write. */
    int fd;
    int dir_fd;          /* of the directory that it is in, our own */
    int env_fd, lock_fd; /* see lmdb-lock.c; -1 when read_only */
    uint32_t page_bytes;
    uint64_t reserve_bytes, reserve_pages;
    VjLmdbMoveHook *hook;
    void *hook_opaque;
    bool no_fallocate; /* of the writer: this file system cannot set space aside */

    /* Brief; never across I/O. */
    VjMutex lock;
    VjCond changed; /* a snapshot was released; a save, an apply, … ended */
    /* guarded by lock: */
    VjLmdbSnapshot *newest;
    VjLmdbFile file;
    uint64_t file_pages;  /* that the device has set aside for the file */
    uint64_t file_number; /* counts the files that fd was: see lmdb-renew.c */
    bool suspect;      /* a write of the file failed: a new one has to take its place, */
    int64_t renew_us;  /* not before this */
    VjLoad promised;   /* what there was room to be for, when that was asked last */
    bool applying;     /* an apply is beyond its waiting */
    bool claiming;     /* room is being set aside */
    bool exchanging;   /* another file takes its place: applies and saves wait, */
    bool claims_wait;  /* and so do claims of room */
    GByteArray *notes; /* owned; keys that were applied.  NULL: there is no copy */
    int notes_error;   /* 0; they are not complete: -ECANCELED, -EBUSY */
    VjLmdbRewrite rewrite;
    bool saving;       /* vj_lmdb_save runs */
    bool save_yields;  /* it is to end: its pages are needed */
    uint64_t pin;      /* the commit that it reads, or one before it; 0: none */
    uint64_t overruns; /* batches that needed more than was set aside: 0, or the bound is
                             wrong */
    bool map_warned;
} VjLmdb;

/* ---- lmdb-env.c ------------------------------------------------------------------ */

/* The record by which the driver knows its own file. */
VjLmdbFormat vj_lmdb_format_encode(uint32_t version);
/* What the tree of @space is called in the file; @name. */
const char *vj_lmdb_space_name(VjSpace space, char name[8]);
/* Opens d->env with a map of so many bytes; a code of LMDB's.  NULL on failure. */
int vj_lmdb_env_open(VjLmdb *d, uint64_t map_bytes);
/* As large a map as there is address space for, of @map_bytes at most. */
bool vj_lmdb_env_open_first(VjLmdb *d, uint64_t map_bytes, GError **error);
/* The format record is there, or made, and each space is opened. */
bool vj_lmdb_databases_open(VjLmdb *d, bool create, GError **error);
/* So many bytes may be read ahead: they would stay in memory until they are used. */
bool vj_lmdb_fits_memory(uint64_t bytes);
/* A descriptor of the file that stands under the name, or -errno. */
int vj_lmdb_open_own(const VjLmdb *d);
/* -errno for what an mdb_ call returned; logs what is not an ordinary error. */
int vj_lmdb_errno(VjLmdb *d, int rc, const char *call);

/* ---- lmdb-lock.c ----------------------------------------------------------------- */

/* Setup, before the environment: makes env_fd and lock_fd. */
bool vj_lmdb_lock_open(VjLmdb *d, GError **error);
/* Of the directory that LMDB is to open. */
int vj_lmdb_env_fd(const VjLmdb *d);

/* ---- lmdb-expect.c --------------------------------------------------------------- */

/* Setup: all keys of @space are about to be read: has them read ahead.  How many leaves
 * were asked for. */
uint64_t vj_lmdb_expect(VjLmdb *d, VjSpace space);

/* ---- lmdb-snapshot.c: members of the ops table, contracts there ------------------ */

int vj_lmdb_snapshot_new(VjEngine *e, VjEngineSnapshot **out);
int vj_lmdb_snapshot_prepare(VjEngineSnapshot *s);
int vj_lmdb_snapshot_take(VjEngineSnapshot *s);
void vj_lmdb_snapshot_release(VjEngineSnapshot *s);
void vj_lmdb_snapshot_free(VjEngineSnapshot *s);
int vj_lmdb_snapshot_get(VjEngineSnapshot *s, VjSpace space, VjSlice key, VjSlice *value,
                         uint64_t *version);
int vj_lmdb_snapshot_near(VjEngineSnapshot *s, VjSpace space, VjSlice from, bool forward,
                          VjSlice *key, VjSlice *value, uint64_t *version);
int vj_lmdb_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                     int64_t deadline_us);
int vj_lmdb_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                 bool *more, int64_t deadline_us);
int vj_lmdb_count(VjEngine *e, VjSpace space, uint64_t *out);
/* A version that follows from the value; never 0. */
uint64_t vj_lmdb_version(VjSlice value);
/* True: one that was taken before the last apply, or with @any one at all, is in use. */
bool vj_lmdb_snapshots_in_use(const VjLmdb *d, bool any) VJ_REQUIRES(&d->lock);
/* None is in use; each must be prepared anew. */
void vj_lmdb_snapshots_reset(VjLmdb *d);

/* ---- lmdb-apply.c ---------------------------------------------------------------- */

int vj_lmdb_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh, int64_t deadline_us);

/* ---- lmdb-log.c ------------------------------------------------------------------ */

/* In the transaction of a batch: which part of the log counts after it.  An LMDB code. */
int vj_lmdb_log_note(VjLmdb *d, MDB_txn *txn, const VjRedoPoint *point);
/* What stands in the unnamed database of a file with a log.  -EBADMSG, -EIO. */
int vj_lmdb_log_read_point(MDB_txn *txn, MDB_dbi unnamed, VjRedoPoint *point);
/* Of a file that no session has open, and that the walk found sound. */
int vj_lmdb_log_examine(const VjMetaPlace *place, VjMetaFlaw *say, void *opaque,
                        VjMetaExam *out);
/* The same, below @dir_fd: it is to need no log. */
int vj_lmdb_log_forget(int dir_fd, const char *name, uint64_t bytes);

/* ---- lmdb-reopen.c --------------------------------------------------------------- */

/* Asks LMDB; sets broken.  By apply. */
bool vj_lmdb_is_broken(VjLmdb *d);
/*
 * vj_lmdb_mend - make a broken environment work again
 *
 * Waits a moment until no transaction is open; new ones fail with -EIO until it is done.
 * Returns   0; -EIO, -ENOMEM: not yet
 * Threads   apply      Locks   lock, given up meanwhile
 */
int vj_lmdb_mend(VjLmdb *d) VJ_REQUIRES(&d->lock);
/* The same of one that works: LMDB gets the file that stands under the name now. */
int vj_lmdb_reopen(VjLmdb *d) VJ_REQUIRES(&d->lock);
/*
 * vj_lmdb_hold - no snapshot is in use, and new ones wait until vj_lmdb_let_go
 *
 * Returns   false: not within @wait_us; new ones go on
 * Threads   apply, or one that keeps it out      Locks   lock, given up meanwhile
 */
bool vj_lmdb_hold(VjLmdb *d, int64_t wait_us) VJ_REQUIRES(&d->lock);
void vj_lmdb_let_go(VjLmdb *d) VJ_REQUIRES(&d->lock);
/* While it is held: LMDB gets the file that stands under the name.  -errno: none. */
int vj_lmdb_open_again(VjLmdb *d);

/* ---- lmdb-renew.c ---------------------------------------------------------------- */

/* Did a write or a sync of the file that failed with @rc lose something?  Apply or
 * the writer. */
bool vj_lmdb_write_was_lost(VjLmdb *d, int rc);
/* It did: nothing more is written to this file.  @rc is why. */
void vj_lmdb_suspect(VjLmdb *d, int rc) VJ_REQUIRES(&d->lock);
/*
 * vj_lmdb_renew - the last commit that succeeded in a new file, in place of a suspect one
 *
 * Returns   0, durable and read back; -EIO, -ENOSPC, -ENOMEM: not before d->renew_us
 * Threads   apply      Locks   lock, given up meanwhile
 */
int vj_lmdb_renew(VjLmdb *d) VJ_REQUIRES(&d->lock);

/* ---- lmdb-space.c ---------------------------------------------------------------- */

/* Setup: looks at the file and sets the reserve aside. */
bool vj_lmdb_space_open(VjLmdb *d, bool create, GError **error);
/* Gives back what is set aside beyond the reserve; everything has been applied. */
void vj_lmdb_space_close(VjLmdb *d);
/* Reads the shape of the file; by apply and setup, without locks. */
int vj_lmdb_file_measure(VjLmdb *d, VjLmdbFile *file);
/* The same of the file that @env has open, as @txn sees it. */
int vj_lmdb_measure(VjLmdb *d, MDB_env *env, const MDB_dbi dbi[VJ_SPACE_COUNT],
                    MDB_txn *txn, VjLmdbFile *file);
/* Takes over what was measured.  */
void vj_lmdb_file_update(VjLmdb *d, const VjLmdbFile *file) VJ_REQUIRES(&d->lock);
/* True when applying @load may have to use pages that old snapshots pin. */
bool vj_lmdb_space_is_tight(const VjLmdb *d, const VjLoad *load) VJ_REQUIRES(&d->lock);

/* Members of the ops table, contracts there. */
int vj_lmdb_reserve(VjEngine *e, const VjLoad *load, bool release);
bool vj_lmdb_empty_apply_helps(VjEngine *e);
uint64_t vj_lmdb_apply_bytes(VjEngine *e, const VjTally tally[VJ_SPACE_COUNT]);
/*
 * Sets aside in another file, @fd of the shape @file, what was promised and the reserve:
 * *pages from its start.  Without locks; whether it is still enough says the next.
 */
int vj_lmdb_space_carry(VjLmdb *d, const VjLmdbFile *file, int fd, uint64_t *pages);
bool vj_lmdb_space_suffices(const VjLmdb *d, const VjLmdbFile *file, uint64_t pages)
    VJ_REQUIRES(&d->lock);
/* Sets aside in a new file of @pages what was set aside in the old one.  By apply. */
int vj_lmdb_space_follow(VjLmdb *d, uint64_t pages, uint64_t want);

/* ---- lmdb-image.c: members of the ops table ---------------------------------------- */

int vj_lmdb_examine(const VjMetaPlace *place, int fd, VjMetaFlaw *say, void *opaque,
                    VjMetaExam *out);
int vj_lmdb_save(VjEngine *e, int fd, VjMetaSaved *out);
bool vj_lmdb_restore(const VjMetaPlace *place, int fd, uint64_t bytes, const char *keep,
                     bool *replaced, GError **error);
/* The meta pages of a file that holds this one commit.  @pages: room for them, of
 * zeroes. */
void vj_lmdb_metas_encode(const VjLmdbWalk *w, uint8_t *pages);
/* Whether the pages of the last commit are sound, before the file is written anew.  0;
 * -EBADMSG, -EIO, -ENOMEM; what vj_lmdb_rewrite_must_end says, -ECANCELED. */
int vj_lmdb_check(VjLmdb *d);
/* When a save runs: ends it and waits for that, so that its pages become free. */
void vj_lmdb_save_yield(VjLmdb *d);

/* ---- lmdb-compact.c ---------------------------------------------------------------- */

/* More than so many bytes, and more than half of the file, are free: it is written
 * anew. */
#define VJ_LMDB_COMPACT_MIN_BYTES (64 * VJ_MIB)

/*
 * vj_lmdb_compact - a new file without free pages, beside the old one
 *
 * Everything has been applied and no thread reads.  *ready: the caller renames it after
 * the environment is closed (vj_lmdb_compact_finish).  What keeps it from being made is
 * logged; nothing is lost by that.
 * Returns   0; -EBADMSG: the file is damaged
 */
int vj_lmdb_compact(VjLmdb *d, bool *ready);
int vj_lmdb_compact_finish(int dir_fd, const char *path);

/* ---- lmdb-copy.c: notes, by apply ------------------------------------------------ */

/* @batch was applied.  Without locks. */
void vj_lmdb_notes_add(VjLmdb *d, const VjBatch *batch);
/* A batch was applied or not. */
void vj_lmdb_notes_spoil(VjLmdb *d) VJ_REQUIRES(&d->lock);

/* ---- lmdb-rewrite.c -------------------------------------------------------------- */

uint64_t vj_lmdb_used_pages(const VjLmdbFile *file);
/* It is worth writing the file anew. */
bool vj_lmdb_is_mostly_free(const VjLmdb *d, const VjLmdbFile *file);
/* By apply, when the shape of the file is known anew. */
void vj_lmdb_rewrite_look(VjLmdb *d, bool changed) VJ_REQUIRES(&d->lock);
/* 0, or why what is being done is to be given up; the second without locks. */
static inline int vj_lmdb_rewrite_may_go_on(VjLmdb *d)
{
    const VjLmdbRewrite *r = &d->rewrite;

    vj_mutex_assert_held(&d->lock);
    if (r->stopping || d->suspect || g_atomic_int_get(&d->broken) != 0) {
        return -ECANCELED;
    }
    return r->yields ? -ENOSPC : d->notes != NULL ? d->notes_error : 0;
}

static inline int vj_lmdb_rewrite_must_end(VjLmdb *d)
{
    int rc;

    vj_mutex_lock(&d->lock);
    rc = vj_lmdb_rewrite_may_go_on(d);
    vj_mutex_unlock(&d->lock);
    return rc;
}

/* Before close: no apply comes any more. */
void vj_lmdb_rewrite_stop(VjLmdb *d);
/* After that, where nobody reads: what was removed is not to be left behind. */
void vj_lmdb_rewrite_last(VjLmdb *d);
void vj_lmdb_rewritten(VjEngine *e, VjEngineRewrites *out);

/* ---- lmdb-erase.c ---------------------------------------------------------------- */

/*
 * Tries of a file that cannot be overwritten, with pauses that double: about nine
 * minutes.  Then it goes with its bytes, so that neither space nor the next file waits
 * for ever.
 */
#define VJ_LMDB_ERASE_TRIES_MAX 10u
#define VJ_LMDB_ERASE_PAUSE_FIRST_US ((int64_t)1000 * 1000)

/*
 * vj_lmdb_erase_file - overwrite the file @name beside the engine's, and remove it
 *
 * What cannot be overwritten becomes VJ_LMDB_OLD_FILE, if there is none, and is tried
 * again: by the thread that writes the file anew, at close, by the next open.
 * Threads   one at a time: setup, that thread, close      Locks   none
 */
void vj_lmdb_erase_file(VjLmdb *d, const char *name);
/* VJ_LMDB_OLD_FILE could not be overwritten and is still there. */
bool vj_lmdb_erase_is_left(VjLmdb *d);

/* Tests; @e is the engine itself.  Set the hook before the first commit. */
/* Writes the file anew, whatever is free; waits until that is done or given up. */
void vj_lmdb_rewrite_for_test(VjEngine *e);
void vj_lmdb_set_move_hook_for_test(VjEngine *e, VjLmdbMoveHook *hook, void *opaque);
uint64_t vj_lmdb_overruns_for_test(VjEngine *e); /* as the member */
/* Pages that the file must have for applying @load; and those in use. */
void vj_lmdb_pages_for_test(VjEngine *e, const VjLoad *load, uint64_t *needed,
                            uint64_t *used);

#endif
