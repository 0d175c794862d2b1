/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume-private.h - what the files of this room share
 *
 * The volume (what mkfs decided, the engines, the background threads) and the file (the
 * edit buffer of one inode and its write-back).
 */
#ifndef VJ_FILE_VOLUME_PRIVATE_H
#define VJ_FILE_VOLUME_PRIVATE_H

#include "chunk/chunk.h"
#include "file/file.h"
#include "file/pieces-private.h"
#include "map/map.h"
#include "object/object.h"

/* Inode numbers stay below, so that front can pack them. */
#define VJ_INO_MAX ((uint64_t)1 << 48)

/* Defaults of the mount options, bytes and seconds. */
#define VJ_CACHE_DEFAULT (256 * VJ_MIB)
#define VJ_DIRTY_DEFAULT (256 * VJ_MIB)
#define VJ_DIRTY_LEAST (32 * VJ_MIB)
#define VJ_COMMIT_SECONDS_DEFAULT 1u

/* ---- superblock (superblock.c) ------------------------------------------------------- */

/* varjfs.conf in memory.  Strings are owned. */
typedef struct VjSuperblock {
    char *uuid, *label;
    char *store, *meta; /* driver specs */
    const VjDigestOps *digest;
    const VjChunkerOps *chunker;
    VjChunkSizes sizes;
    uint64_t chunk_seed;
    VjTransform transform;
    char *text; /* of the file that it was read from; NULL: it is new */
} VjSuperblock;

#define VJ_SUPERBLOCK_NAME "varjfs.conf"
/* It is called so until all that it describes is there (make.c). */
#define VJ_MAKING_NAME "varjfs.making"
#define VJ_SUPERBLOCK_MAX ((size_t)16 << 10)
#define VJ_FORMAT_VERSION 1u

void vj_superblock_clear(VjSuperblock *s);
/* Owned text that ends with the checksum line. */
char *vj_superblock_format(const VjSuperblock *s);
bool vj_superblock_parse(const char *text, size_t len, VjSuperblock *out, GError **error);
/* From the directory: varjfs.conf and what it says.  @text: as far as it could be read;
 * owned.  On failure the line begins with "varjfs.conf". */
bool vj_superblock_read(int dir_fd, char **text, VjSuperblock *out, GError **error);
/* Whether @error of vj_superblock_read is damage of a file system that was there. */
bool vj_superblock_is_lost(int dir_fd, const GError *error);
/* The 16 bytes of "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; false: that is none. */
bool vj_uuid_parse(const char *text, uint8_t bytes[16]);

/* ---- copies of varjfs.conf (superblock-copy.c) ------------------------------------- */

/* In the transaction that makes the root directory. */
int vj_superblock_record_put(VjTxn *txn, const char *text) G_GNUC_WARN_UNUSED_RESULT;
/* @text owned.  -ENOENT, -EBADMSG. */
int vj_superblock_record_get(VjTxn *txn, char **text) G_GNUC_WARN_UNUSED_RESULT;
/* The record says what varjfs.conf says.  What fails is logged: no volume is refused for
 * a copy. */
void vj_superblock_record_update(VjVolume *v);

/* ---- whose metadata this is (volume-record.c) ----------------------------------------- */

/* In the transaction that makes the root directory. */
int vj_volume_record_put(VjTxn *txn, const char *uuid) G_GNUC_WARN_UNUSED_RESULT;
/* -ENOENT, -EBADMSG */
int vj_volume_record_get(VjMeta *m, uint8_t uuid[16]) G_GNUC_WARN_UNUSED_RESULT;
/* The metadata at @path belong to the volume @uuid; else one line that says whose they are. */
bool vj_volume_record_check(VjMeta *m, const char *uuid, const char *path,
                            GError **error);
/* A record that is missing or damaged is written anew; the store has agreed with @uuid. */
bool vj_volume_record_mend(VjMeta *m, const char *uuid, bool *mended, GError **error);

/* ---- whether the last user ended in order (in-use.c) ---------------------------------- */

/* One file in SOURCE under one of two names. */
#define VJ_IN_USE_NAME "varjfs.inuse"
#define VJ_CLEAN_NAME "varjfs.clean"
/* There from before a restore changes anything until the volume is usable again. */
#define VJ_RESTORING_NAME "varjfs.restoring"

/* False with EBADMSG: a restore was cut off. */
bool vj_in_use_check_restore(const VjVolumeOpen *how, int dir_fd, GError **error);
/* Under the lock of SOURCE.  When it is due: EBADMSG and one line if the engine could not read
 * its file; the rest goes into the log. */
bool vj_in_use_examine(const VjSuperblock *super, VjExamine when, int dir_fd,
                       const char *source, const VjMetaPlace *place, GError **error);
/* Durable before anything else in SOURCE is changed. */
bool vj_in_use_begin(VjVolume *v, int dir_fd, const char *source, GError **error);
/* After the last change is durable.  -errno. */
int vj_in_use_end(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* What lies in SOURCE: a descriptor, -1 with @error; and what varjfs.conf says. */
int vj_volume_open_sub_dir(int dir_fd, const char *source, const char *name, bool create,
                           GError **error);
bool vj_volume_read_superblock(int dir_fd, const char *source, VjSuperblock *out,
                               GError **error);

/* ---- checkpoints (checkpoint.c) -------------------------------------------------------- */

#define VJ_CHECKPOINTS_NAME "checkpoints"

typedef struct VjCheckpointer VjCheckpointer;
/* @interval_s 0: none is made but on demand. */
VjCheckpointer *vj_checkpointer_open(VjVolume *v, unsigned interval_s);
/* In this order; NULL is fine.  last: makes one if it is due, when all is written back. */
void vj_checkpointer_stop(VjCheckpointer *c);
void vj_checkpointer_last(VjCheckpointer *c);
void vj_checkpointer_free(VjCheckpointer *c);

/* ---- space for what was accepted (space.c) ------------------------------------------- */

/* Kept free of data for metadata and rounding, bytes. */
#define VJ_SPACE_MARGIN (8 * VJ_MIB)
/* Kept free of objects for a store's own directories and for checkpoints. */
#define VJ_SPACE_OBJECTS_MARGIN 64u
/* Every object takes as much at least, beside its content: the rest of its last block, metadata. */
#define VJ_SPACE_OBJECT_OVERHEAD 5120u

typedef struct VjSpaceKeeper {
    VjStore *store;
    VjMutex lock;
    /* guarded by lock: */
    /* as measured last, less where objects run out before bytes */
    uint64_t available_bytes;
    /* for n objects never less than n * VJ_SPACE_OBJECT_OVERHEAD */
    uint64_t reserved_bytes;
} VjSpaceKeeper;

int vj_space_init(VjSpaceKeeper *k, VjStore *store) G_GNUC_WARN_UNUSED_RESULT;
void vj_space_clear(VjSpaceKeeper *k);
/* Compares and adds; no I/O, so a file's lock may be held.  -ENOSPC. */
int vj_space_try(VjSpaceKeeper *k, uint64_t bytes) G_GNUC_WARN_UNUSED_RESULT;
/* Measures the store again, then gives @bytes back.  Blocks. */
void vj_space_settle(VjSpaceKeeper *k, uint64_t bytes);
/* Gives back without measuring: what was never put. */
void vj_space_release(VjSpaceKeeper *k, uint64_t bytes);
uint64_t vj_space_reserved(VjSpaceKeeper *k);
/* As measured last, less what is promised. */
uint64_t vj_space_available(VjSpaceKeeper *k);

/* ---- file (file.c, read.c, write-back.c) --------------------------------------------- */

/* A sequence that is being written back; nobody changes its pieces. */
typedef struct VjFrozen {
    gint refs;
    VjPieces *pieces;
    uint64_t base_version; /* of the map that its BASE pieces are ranges of */
    uint64_t seq;          /* the last change in it */
    uint64_t reserved_bytes;
    bool
        was_short; /* an attempt found no space: the next keeps parts of old objects as parts */
    gint times_valid; /* cleared by an explicit utimens; atomic */
    struct timespec changed;
    int64_t frozen_us;
    VjPieces *
        ahead; /* memory that follows and is not part of it, for the chunker to look at; NULL: none */
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
    VjVolume *volume;
    uint64_t ino;
    gint refs; /* 1 → 0 under the volume's table lock */

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
    /* It was so long when it was changed last otherwise than by appending, and when a turn
     * began last. */
    uint64_t append_from, turn_bytes;
    bool
        closed; /* since the last turn that took all of it: nothing is held back (hold.c) */
    struct timespec changed; /* of the last change in active */
    bool times_pending;
    bool writing;
    bool discarded; /* an orphan being dropped: changes go nowhere */
    uint32_t error_count;
    int last_error;        /* -errno */
    VjTransform transform; /* what holds for it (settings.c) */
    VjChunkSizes sizes;    /* of its objects */
    bool is_unwritable;    /* its transformation is not in this build */
    uint64_t settings_seq; /* of the last look at its settings */
    VjStream streams[VJ_STREAMS];
    uint64_t stream_tick;
    /* guarded by the flusher's lock: */
    GQueue *due_queue; /* NULL: in none */
    int64_t due_us;
    GList *due_link; /* its place in the queue */
};

/* What the record says of transformation and sizes.  Under f->lock, or before anybody else has
 * @f. */
void vj_file_settle_settings(VjFile *f, const VjInode *inode);

VjFrozen *vj_frozen_ref(VjFrozen *z);
void vj_frozen_unref(VjFrozen *z);

/* Map entries that one commit may bring at the most: a transaction of the engine is bounded,
 * and a sequence is committed as a whole.  A writer that comes to it writes back first. */
#define VJ_FILE_ENTRIES_MOST 65536u

/* Changes that are not committed.  Under f->lock. */
static inline bool vj_file_dirty_locked(const VjFile *f)
{
    return f->dirty_seq > f->committed_seq;
}

/* Everything up to now is committed on 0; the flusher's and fsync's common step. */
int vj_file_write_back(VjFile *f) G_GNUC_WARN_UNUSED_RESULT;

/* Throws away what is changed and everything changed from now on: an orphan is dropped. */
void vj_file_discard(VjFile *f);

/*
 * One turn of write-back for each of @files that has changes and is in nobody's hands, with
 * one flush of the store for all of them.  *first_error; which one failed is in its
 * last_error.  At most VJ_WRITE_BACK_BATCH files.
 */
#define VJ_WRITE_BACK_BATCH 128u
int vj_file_write_back_many(VjVolume *v, VjFile *const *files,
                            size_t count) G_GNUC_WARN_UNUSED_RESULT;
/* The same, for a file that grows without its end (hold.c), which stays dirty then. */
int vj_file_write_back_grown(VjVolume *v, VjFile *const *files,
                             size_t count) G_GNUC_WARN_UNUSED_RESULT;

/* ---- the end of a growing file stays for the next turn (hold.c) ------------------------- */

/* Memory that was appended to a file in one go and no turn has taken; more of it is written back
 * without waiting for its age, so that a stream is cut, hashed and put while it comes. */
#define VJ_FILE_GROWN_MOST (16 * VJ_MIB)

/* Bytes at the end that were only appended, and since the last turn began.  Under f->lock. */
uint64_t vj_file_grown_locked(const VjFile *f);
/* It has so many changes that it is not to wait for its age, and nobody writes it back. */
bool vj_file_is_much(VjFile *f);
/* The cut before which a turn may end, or 0: it takes the whole file.  Reads some MiB. */
uint64_t vj_file_hold_from(VjFile *f);
/* It still may, after what was done to the file meanwhile.  Under f->lock. */
bool vj_file_may_hold_locked(const VjFile *f, uint64_t from);
/* Takes what lies from @from on off @z, which sees it as ahead.  Returns the sequence over @z that
 * has it.  Under f->lock. */
VjPieces *vj_file_hold_locked(VjFile *f, VjFrozen *z, uint64_t from);

/*
 * A frozen sequence on its way into a commit (write-back.c): objects, then the caller
 * flushes the store if that is needed, then the commit.  *out is owned also on failure.
 * Both: -ENOENT the inode is gone, and nothing else is; -EBADMSG what the change lies over is
 * damaged or missing; -ENOSPC, -EIO, -ENOMEM.
 */
typedef struct VjWriteBack VjWriteBack;
/* @may_be_small: somebody waits for it; a few small changes become fragments, not objects. */
int vj_write_back_objects(VjVolume *v, uint64_t ino, VjFrozen *z, bool may_be_small,
                          VjWriteBack **out) G_GNUC_WARN_UNUSED_RESULT;
/* The same for content that stays and is stored anew (write-back-private.h); @z is the identity. */
typedef struct VjRecodePlan VjRecodePlan;
int vj_write_back_recode(VjVolume *v, uint64_t ino, VjFrozen *z, VjRecodePlan *plan,
                         VjWriteBack **out) G_GNUC_WARN_UNUSED_RESULT;
/* The same for content some of which is in fragments, which become objects. */
typedef struct VjRemapPlan VjRemapPlan;
int vj_write_back_remap(VjVolume *v, uint64_t ino, VjFrozen *z, VjRemapPlan *plan,
                        VjWriteBack **out) G_GNUC_WARN_UNUSED_RESULT;
/* After vj_write_back_recode and _remap: false: there is nothing to commit. */
bool vj_write_back_changes(const VjWriteBack *w);
bool vj_write_back_needs_flush(const VjWriteBack *w);
int vj_write_back_commit(VjWriteBack *w) G_GNUC_WARN_UNUSED_RESULT;
/* Once, before the turn ends: what was put and not committed is removed. */
void vj_write_back_end(VjWriteBack *w);
/* Hands what a commit cut off to the dropper, which may have to be waited for, and which may
 * wait for the turn of a file: so after all turns of this thread have ended. */
void vj_write_back_free(VjWriteBack *w);

/* A step of recoding is over behind so many bytes. */
#define VJ_RECODE_STEP_BYTES (8 * VJ_MIB)

/* Waits until what was deleted is removed from the store; what fails is tried again later. */
void vj_volume_reclaim(VjVolume *v);

/* @len bytes as objects of this file, with their trailers and records.  Under f->lock. */
uint64_t vj_file_stored_at_worst(const VjFile *f, uint64_t len);
/* What write-back may have to put for a change of @len bytes, at worst.  Under f->lock. */
uint64_t vj_file_worst_case(const VjFile *f, uint64_t len, bool sequential);
/* Makes room when a reserve was refused: what is dirty is put, what is dead is removed. */
int vj_volume_make_space(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* ---- resolved ranges (resolve.c) ------------------------------------------------------ */

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
int vj_segment_read(VjVolume *v, const VjSegment *s, uint64_t skip, void *dst, size_t len,
                    bool whole) G_GNUC_WARN_UNUSED_RESULT;

/* ---- what comes next (read-ahead.c) ---------------------------------------------------- */

typedef struct VjReadAhead VjReadAhead;
/* @cache_bytes: of the object cache. */
VjReadAhead *vj_read_ahead_open(VjVolume *v, uint64_t cache_bytes);
/* Nobody reads any more.  NULL is fine. */
void vj_read_ahead_close(VjReadAhead *a);
/* @f is about to be read there.  Does not wait. */
void vj_read_ahead(VjFile *f, uint64_t offset, size_t len);
/* Waits until nothing is under way. */
void vj_read_ahead_drain(VjReadAhead *a);
/* Tests: while @hold, what is pushed waits. */
void vj_read_ahead_hold(VjReadAhead *a, bool hold);

/* ---- orphans (orphan.c) --------------------------------------------------------------- */

/* A record of VJ_SPACE_ORPHAN; root->node 0: an inode.  decode: -EBADMSG. */
#define VJ_ORPHAN_BYTES 48u
void vj_orphan_encode(uint64_t ino, const VjMapRoot *root, uint8_t out[VJ_ORPHAN_BYTES]);
int vj_orphan_decode(VjSlice key, VjSlice value, uint64_t *ino,
                     VjMapRoot *root) G_GNUC_WARN_UNUSED_RESULT;
/* In a transaction: a subtree that a replace cut off. */
int vj_orphan_put_tree(VjTxn *txn, uint64_t ino,
                       const VjMapRoot *root) G_GNUC_WARN_UNUSED_RESULT;

/* How long after a failure an orphan is dropped again. */
#define VJ_DROP_RETRY_US ((int64_t)5 * 1000 * 1000)

typedef struct VjDropper VjDropper;
/* Lists the orphans of earlier mounts, which start() hands to the thread.  A thread uses what
 * the volume has of both, so both are opened before either is started. */
bool vj_dropper_open(VjVolume *v, VjDropper **out, GError **error);
void vj_dropper_start(VjDropper *d);
void vj_dropper_close(VjDropper *d);
/* @node 0: an inode. */
void vj_dropper_add(VjDropper *d, uint64_t ino, uint32_t node);
/* Waits until everything that was added is dropped or has failed once. */
void vj_dropper_drain(VjDropper *d);

/* ---- background write-back (flusher.c) ------------------------------------------------ */

typedef struct VjFlusher VjFlusher;
VjFlusher *vj_flusher_open(VjVolume *v, int64_t age_us);
void vj_flusher_close(VjFlusher *x);
typedef enum VjFlushWhen {
    VJ_FLUSH_AGED, /* after age_us */
    VJ_FLUSH_ANEW, /* after age_us from now, also where an earlier change that is committed by now
                    * asked for less */
    VJ_FLUSH_SOON, /* with others that are closed within the same few milliseconds */
    VJ_FLUSH_NOW,
} VjFlushWhen;

/* The file has changes. */
void vj_flusher_add(VjFlusher *x, VjFile *f, VjFlushWhen when);
/* What was changed by @since_us is committed: what is not has no more than age_us from then on. */
void vj_flusher_committed(VjFlusher *x, VjFile *f, int64_t since_us);
/* Memory is short: write back without waiting for age. */
void vj_flusher_pressure(VjFlusher *x);
/* Memory was freed elsewhere: what the allocator keeps of it is given back within seconds. */
void vj_flusher_settle_soon(VjFlusher *x);

/* ---- fragments in the background (remap.c) -------------------------------------------- */

/* Metadata that fragments of a volume may take; one file may have half of it. */
#define VJ_FRAGMENTS_DEFAULT (256 * VJ_MIB)
/* A fragment takes a page of it at most. */
#define VJ_FRAGMENT_PAGE 4096u
/* The metadata may take so much of the space that is left for them: one part in so many. */
#define VJ_FRAGMENTS_SPACE_PART 16u
/* A file whose fragments did not change for so long has them made into objects. */
#define VJ_REMAP_IDLE_US ((int64_t)5 * 1000 * 1000)
/* What could not be made into objects is tried again after so long. */
#define VJ_REMAP_RETRY_US ((int64_t)30 * 1000 * 1000)
/* A step is over behind so many bytes of objects. */
#define VJ_REMAP_STEP_BYTES (2 * VJ_MIB)

typedef struct VjRemapLimits {
    uint32_t most, file_most;  /* fragments */
    int64_t idle_us, retry_us; /* VJ_REMAP_IDLE_US, VJ_REMAP_RETRY_US */
    uint64_t step_bytes;
} VjRemapLimits;

typedef struct VjRemapper VjRemapper;
/* Counts the fragments of earlier mounts: before the dropper is started, which takes away
 * from them. */
bool vj_remapper_open(VjVolume *v, uint64_t most_bytes, VjRemapper **out, GError **error);
void vj_remapper_start(VjRemapper *x);
/* In this order; NULL is fine.  Between the two it only counts. */
void vj_remapper_stop(VjRemapper *x);
void vj_remapper_free(VjRemapper *x);
/* True: @count more of @ino may be made; the caller settles them.  Any thread; no I/O. */
bool vj_remapper_reserve(VjRemapper *x, uint64_t ino, uint32_t count);
/* After a commit or none: what was reserved is given back, @made and @dropped are counted. */
void vj_remapper_settle(VjRemapper *x, uint64_t ino, uint32_t reserved, uint32_t made,
                        uint32_t dropped);
/* Tests: other limits than the ones above; files that wait do so for the new time, from now. */
void vj_remapper_limit(VjRemapper *x, const VjRemapLimits *limits);
/* As counted: of @ino, and of all. */
uint32_t vj_remapper_count(VjRemapper *x, uint64_t ino, uint32_t *all);

/* One step of making fragments into objects: content, size and times stay what they are. */
typedef struct VjRemap {
    uint64_t offset;     /* in: 0 at first; out: where the next step goes on */
    uint64_t most_bytes; /* in: of objects, about */
    bool done;           /* out: nothing is left behind the offset */
    uint32_t found;      /* out: fragments that became objects */
} VjRemap;
/* -EROFS, -ENOSPC, -ENOENT the inode is gone or has no name; -EBADMSG; -EIO, -ENOMEM. */
int vj_file_remap(VjFile *f, VjRemap *step) G_GNUC_WARN_UNUSED_RESULT;
/* All fragments of the volume become objects, now: the first error.  Blocks. */
int vj_volume_remap(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* ---- volume (volume.c) ----------------------------------------------------------------- */

/* Sums over all records, which take a walk. */
typedef struct VjUsageSums {
    uint64_t inodes, objects, plain_bytes, stored_bytes;
} VjUsageSums;

/* A walk that took longer than CHEAP is not repeated before REST times as long is over. */
#define VJ_USAGE_CHEAP_US ((int64_t)50 * 1000)
#define VJ_USAGE_REST 20

struct VjVolume {
    /* never change after open: */
    VjSuperblock super;
    VjMeta *meta;
    VjStore *store;
    VjObjects *objects;
    VjFlusher *flusher;
    VjDropper *dropper;
    VjRemapper *remapper; /* NULL: read-only, or a check */
    VjReadAhead *read_ahead;
    GThreadPool *workers;
    unsigned worker_count;
    int lock_fd;
    int dir_fd;                   /* of SOURCE, while it is marked as in use; else -1 */
    VjCheckpointer *checkpointer; /* NULL: read-only, or a check */
    bool restored;                /* vj_volume_restored has been */
    bool check;
    bool record_mended;      /* repair: that of volume-record.c */
    bool copy_mended;        /* likewise of superblock-copy.c */
    GHashTable *bytes_found; /* check: of vj_objects_check; kept for a repair */
    int64_t close_retry_us;
    gint last_chance;           /* atomic: closing, and space was short */
    int64_t drop_retry_us;      /* VJ_DROP_RETRY_US; tests make it short */
    uint64_t recode_step_bytes; /* VJ_RECODE_STEP_BYTES; tests make it short */
    bool new_is_set;            /* the mount chose new_transform for new files */
    VjTransform new_transform;
    uint64_t inodes_at_open; /* but for those that the last mount left without a name */
    gint read_only;          /* atomic */
    VjBudget dirty;
    VjSpaceKeeper space;

    VjMutex table_lock; /* VJ_RANK_FILE_TABLE */
    VjCond opened;      /* a number left opening */
    /* guarded by table_lock: */
    GHashTable *files;   /* uint64_t* in VjFile → VjFile, not referenced */
    GHashTable *opening; /* uint64_t*, borrowed: inodes whose record is being read */
    VjUsageSums usage;   /* of the last walk */
    int64_t usage_at_us, usage_cost_us;
    bool usage_walking;

    /* counters, atomic (vj_count): */
    guint64 commits, regions, forced_cuts, write_back_errors;
    guint64 fragments_made, fragments_dropped, small_commits, remap_steps;
    guint64 bytes_in, shifts, shifted_bytes;
};

/* Atomic add to a counter of the volume. */
static inline void vj_count(guint64 *counter, uint64_t add)
{
    __atomic_fetch_add(counter, add, __ATOMIC_RELAXED);
}

/* How the content of @inode is cut: its own sizes if the chunker can keep them, else the
 * volume's. */
VjChunkSizes vj_volume_sizes(const VjVolume *v, const VjInode *inode);

/* The first inode number that was never given out.  -EBADMSG. */
int vj_ino_next(VjTxn *txn, uint64_t *next) G_GNUC_WARN_UNUSED_RESULT;
/* The record of that counter. */
#define VJ_NEXT_INO_BYTES 24u
void vj_ino_next_encode(uint64_t next, uint8_t out[VJ_NEXT_INO_BYTES]);
VjSlice vj_ino_key(uint64_t ino, uint8_t bytes[8]);
int vj_inode_decode(VjSlice value, uint64_t ino, VjInode *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- bytes in records (record-codec.c, inline.c, fragment.c) --------------------------- */

/* How the bytes of a record are encoded. */
typedef struct VjRecordCodec {
    uint8_t codec, param;
    uint32_t key_id;
} VjRecordCodec;

/* @len > 0 bytes as @want says, or as none (also with NULL); into at most @len bytes at @dst. */
VjRecordCodec vj_record_encode(const VjTransform *want, const void *src, size_t len,
                               void *dst, size_t *dst_len);
/* -EBADMSG; -EOPNOTSUPP a transformation that is not in this build. */
int vj_record_decode(VjRecordCodec how, const void *src, size_t len, void *dst,
                     size_t plain_len) G_GNUC_WARN_UNUSED_RESULT;

/* Inline contents in a transaction.  *stored_bytes of the encoded content; NULL: not wanted. */
int vj_inline_get(VjTxn *txn, const VjInode *inode, void *dst, size_t cap,
                  uint64_t *stored_bytes) G_GNUC_WARN_UNUSED_RESULT;
/* A record, made before its transaction: encoding takes time. */
typedef struct VjInlineRecord {
    uint64_t stored_bytes;
    size_t len;
    uint8_t bytes[24 + VJ_SYMLINK_MAX + 8];
} VjInlineRecord;
void vj_inline_make(uint64_t ino, const VjTransform *want, const void *src, size_t len,
                    VjInlineRecord *out);
int vj_inline_put(VjTxn *txn, uint64_t ino,
                  const VjInlineRecord *record) G_GNUC_WARN_UNUSED_RESULT;
/* *is_same: that very record is there. */
int vj_inline_is(VjTxn *txn, uint64_t ino, const VjInlineRecord *record,
                 bool *is_same) G_GNUC_WARN_UNUSED_RESULT;
int vj_inline_del(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/* Every file in memory, referenced; owned (GPtrArray of VjFile). */
GPtrArray *vj_volume_files(VjVolume *v);
/* Everything accepted so far is committed on 0, else the first error. */
int vj_volume_write_back(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;
/* The worker's function of the put queue (put-queue.c). */
void vj_put_worker(gpointer job, gpointer volume);

/*
 * Fragments (fragment.c): bytes that one map entry names and that are no object.
 * get: @len bytes of the entry from its @skip on.  -EBADMSG; -EOPNOTSUPP an unknown
 * transformation.
 */
int vj_fragment_get(VjTxn *txn, uint64_t ino, const VjEntry *entry, uint64_t skip,
                    void *dst, size_t len) G_GNUC_WARN_UNUSED_RESULT;
int vj_fragment_put(VjTxn *txn, uint64_t ino, uint32_t number, const VjTransform *want,
                    const void *src, size_t len) G_GNUC_WARN_UNUSED_RESULT;
/* Most bytes of one that this version makes: its record takes one page of the metadata. */
#define VJ_FRAGMENT_MOST (VJ_META_VALUE_CHEAP - 32u)
/* One that is made before its transaction: encoding takes time. */
typedef struct VjFragment {
    VjRecordCodec how;
    uint16_t plain_bytes, len;
    uint8_t bytes[]; /* len, as encoded */
} VjFragment;
/* Owned; g_free. */
VjFragment *vj_fragment_new(const VjTransform *want, const void *src, size_t len);
/* Under a number that no fragment of @ino has.  -EFBIG: there is none; errors of meta. */
int vj_fragment_add(VjTxn *txn, uint64_t ino, const VjFragment *fragment,
                    uint32_t *number) G_GNUC_WARN_UNUSED_RESULT;
/* In a transaction: what an entry that left a map named loses that name. */
int vj_entry_drop(VjTxn *txn, uint64_t ino,
                  const VjEntry *entry) G_GNUC_WARN_UNUSED_RESULT;

/* The open file of @ino, referenced; NULL when it is not in memory. */
VjFile *vj_volume_find(VjVolume *v, uint64_t ino);

#endif
