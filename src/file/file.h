/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * file.h - contents of files as content-defined objects: the face of the room file
 *
 * A volume is one file system: its metadata engine, its store, its chunker and digest.  A
 * VjFile is the content of one inode that is open, changed or being written back.  This
 * room knows inodes by number and contents by offset; names, permissions and handles
 * belong to the room fs, which runs its own transactions over VJ_SPACE_INODE (through
 * vj_inode_get/put), VJ_SPACE_DENTRY, VJ_SPACE_COOKIE and VJ_SPACE_XATTR.
 */
#ifndef VJ_FILE_FILE_H
#define VJ_FILE_FILE_H

#include "base/check.h"
#include "map/map.h"
#include "object/object.h"

/* The largest file, bytes: larger numbers name staged edits. */
#define VJ_FILE_SIZE_MAX (((uint64_t)1 << 62) - 1)
/* One replace that is a single visible and crash-atomic step, bytes. */
#define VJ_FILE_EDIT_MAX ((size_t)8 << 20)
/* Contents up to this length live in VJ_SPACE_INLINE, bytes. */
#define VJ_FILE_INLINE_MAX 4080u
/* A write transaction drops at most so many map entries; the rest is an orphan's. */
#define VJ_FILE_DROP_BATCH 1000u

#define VJ_INO_ROOT ((uint64_t)1)

/* ---- inode records ------------------------------------------------------------------ */

/* Where the committed content of an inode is. */
typedef enum VjContent {
    VJ_CONTENT_EMPTY = 0,  /* size 0 or one hole of size bytes */
    VJ_CONTENT_INLINE = 1, /* the value of VJ_SPACE_INLINE */
    VJ_CONTENT_MAP = 2,    /* the tree at root */
} VjContent;

/* On disk. */
enum {
    VJ_INODE_TRANSFORM = 1 << 0, /* transform was set explicitly or inherited */
    VJ_INODE_OBJECTS = 1 << 1,   /* object sizes likewise */
    VJ_INODE_MODE = 1 << 2,      /* transform.mode likewise */
    VJ_INODE_SETTINGS = VJ_INODE_TRANSFORM | VJ_INODE_OBJECTS | VJ_INODE_MODE,
    /* Bits 3 to 5: VJ_INODE_INHERITED.  Then what chattr(1) sets; the first two of
     * regular files and directories alone. */
    VJ_INODE_IMMUTABLE = 1 << 6,
    VJ_INODE_APPEND_ONLY = 1 << 7,
    VJ_INODE_NODUMP = 1 << 8,
    VJ_INODE_NOATIME = 1 << 9,
    VJ_INODE_PROTECTED = VJ_INODE_IMMUTABLE | VJ_INODE_APPEND_ONLY,
    VJ_INODE_CHATTR = VJ_INODE_PROTECTED | VJ_INODE_NODUMP | VJ_INODE_NOATIME,
};
/* Which of them came from the directory and were not set here: not listed. */
#define VJ_INODE_INHERITED(settings) ((uint32_t)(settings) << 3)

/*
 * An inode as it is committed.  fs owns the POSIX part, file the content part; both change
 * a record only by reading it and writing it back in one transaction, so that neither
 * carries the other's older values.
 */
typedef struct VjInode {
    uint64_t ino;
    uint64_t generation;
    /* fs's part */
    uint32_t mode; /* type and permissions, S_IF* */
    uint32_t uid, gid;
    uint32_t nlink;
    uint64_t rdev;
    struct timespec atime, mtime, ctime, btime;
    uint64_t parent;      /* directories: the inode that ".." names */
    uint64_t entry_count; /* directories: written by every create and unlink */
    uint64_t next_cookie; /* directories: starts at 3; 1 and 2 are "." and ".." */
    /* both: what is set applies to what is written from then on */
    uint32_t flags; /* VJ_INODE_* */
    VjTransform transform;
    uint32_t object_min, object_avg, object_max; /* bytes; 0: the volume's */
    /* file's part; a symlink's target is its inline content */
    uint64_t size;         /* bytes */
    uint64_t stored_bytes; /* for st_blocks */
    VjContent content;
    uint64_t map_version; /* grows with every commit of content */
    VjMapRoot root;
    /* in memory alone: vj_file_getattr sets it when changes wait for write-back */
    bool dirty;
} VjInode;

/* -ENOENT; -EBADMSG when the record's checksum or values are wrong. */
int vj_inode_get(VjTxn *txn, uint64_t ino, VjInode *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_inode_put(VjTxn *txn, const VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;
/* Removes the record alone. -ENOENT. */
int vj_inode_del(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/* The longest target of a symlink, bytes, without a NUL. */
#define VJ_SYMLINK_MAX 4095u

/*
 * A symlink's target, in the caller's transaction: put stores it as inline content and sets
 * content and size of @inode, which the caller then puts.  get: @dst holds VJ_SYMLINK_MAX
 * bytes, @len is set, nothing is terminated; -EBADMSG.
 */
int vj_symlink_put(VjTxn *txn, VjInode *inode, const char *target,
                   size_t len) G_GNUC_WARN_UNUSED_RESULT;
int vj_symlink_get(VjTxn *txn, const VjInode *inode, char *dst,
                   size_t *len) G_GNUC_WARN_UNUSED_RESULT;

/* ---- volume ------------------------------------------------------------------------- */

typedef struct VjVolume VjVolume;

/* What mkfs decides for ever; text of varjfs.conf.  Strings are borrowed. */
typedef struct VjVolumeMake {
    const char *source;  /* directory (created if missing) */
    const char *options; /* "K=V,…" of mkfs.varjfs -o; NULL: defaults */
    bool force;          /* overwrite a file system that is there */
    /* SOURCE is there and has not been looked into; @is_new: it was made.  NULL: nothing
     * to do. */
    void (*opened)(void *opaque, int source_fd, bool is_new);
    /* Asked now and then; true ends it as a failure does.  NULL: it goes on to the
     * end. */
    bool (*cancelled)(void *opaque);
    void *opaque;
} VjVolumeMake;

/* When the metadata are examined before they are believed. */
typedef enum VjExamine {
    VJ_EXAMINE_AUTO, /* after a crash, and when they are few */
    VJ_EXAMINE_ALWAYS,
    VJ_EXAMINE_NEVER,
} VjExamine;

typedef struct VjVolumeOpen {
    const char *source;
    VjExamine examine;
    /* The directory itself where has_source_fd: borrowed, and the name is for messages alone. */
    int source_fd;
    bool has_source_fd;
    bool read_only;
    bool check;              /* fsck: do not start background work, do not recover */
    bool repair;             /* with check: the volume may be changed (repair.h) */
    uint64_t cache_bytes;    /* 0: default */
    uint64_t dirty_bytes;    /* 0: default */
    uint64_t fragment_bytes; /* 0: default */
    bool no_fragments; /* small changes that somebody waits for become objects too */
    unsigned workers;  /* 0: from the CPU count */
    unsigned commit_seconds; /* 0: default (1) */
    /* Of new files whose directory says nothing; as vj_transform_parse.  NULL: the volume's. */
    const char *transform;
    const char
        *wrap_store; /* wrapper specs separated by ';', innermost first; NULL: none */
    const char *wrap_meta;
    unsigned checkpoint_seconds; /* age at which the metadata are copied; 0: never */
    bool restoring;              /* with repair: vj_volume_restore has just been */
    int64_t close_retry_us; /* how long close tries when the device is full or fails */
    int64_t lock_wait_us;   /* how long to wait for another daemon to let go of SOURCE */
} VjVolumeOpen;

extern const VjOptSpec vj_volume_make_options[];

/*
 * vj_volume_make - a file system with an empty root directory owned by the caller
 *
 * Returns   false: of what it made nothing is left but, where it was made, SOURCE itself,
 *           for the caller to remove.  What of an older file system was destroyed by then
 *           is gone.
 * Crash     the next one takes what is left for what it is, without force
 * Threads   setup only
 */
bool vj_volume_make(const VjVolumeMake *how, GError **error);

/*
 * vj_volume_open - lock SOURCE, read its superblock, recover, start background work
 *
 * Crash     safe at any point; recovery is idempotent
 * Threads   setup only; may wait lock_wait_us for the lock
 */
bool vj_volume_open(const VjVolumeOpen *how, VjVolume **out, GError **error);

/* The directory SOURCE, for VjVolumeOpen.source_fd; -1 and why not. */
int vj_source_open(const char *source, GError **error);

/* Writes everything back and makes it durable.  0 or the first error; frees @v all the same. */
int vj_volume_close(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* Its last user closed it in order, and since then nobody has used it. */
bool vj_volume_is_clean(const char *source);

/*
 * vj_volume_wait_released - until no process holds SOURCE (umount.fuse.varjfs)
 *
 * True when it was free; false with ETIMEDOUT after wait_us, or what kept it from looking.
 * @source may be anybody's.  @foreign: another user may open it, and so hold it as long as
 * he likes.
 */
bool vj_volume_wait_released(const char *source, int64_t wait_us, bool *foreign,
                             GError **error);

/*
 * vj_volume_examine - whether the metadata engine can read what is in SOURCE
 *
 * Reads all of its pages without believing any; @say gets a line for each flaw.
 * Returns   true, with out->flaws; false: it could not look
 * Threads   setup only; may wait lock_wait_us for the lock, which it lets go of again
 */
bool vj_volume_examine(const char *source, int64_t lock_wait_us, VjMetaFlaw *say,
                       void *opaque, VjMetaExam *out, GError **error);

typedef enum VjSuperblockState {
    VJ_SUPERBLOCK_WHOLE, /* or no copy can mend what is wrong, and opening it tells */
    VJ_SUPERBLOCK_RESTORED,
    VJ_SUPERBLOCK_DAMAGED, /* or missing, and it still is */
} VjSuperblockState;

/*
 * vj_volume_mend_superblock - is varjfs.conf there and whole, and what could replace it
 *
 * @say gets a line for each thing that is wrong.  With @repair the copy in the metadata,
 * else the one in the newest checkpoint that has one, takes its place; what was there is
 * kept beside it.
 * Returns   true, with *out; false: it could not look, or write
 * Crash     the one or the other
 * Threads   setup only; may wait lock_wait_us for the lock, which it lets go of again
 */
bool vj_volume_mend_superblock(const char *source, bool repair, int64_t lock_wait_us,
                               VjMetaFlaw *say, void *opaque, VjSuperblockState *out,
                               GError **error);

/* ---- checkpoints (checkpoint.c, restore.c) ------------------------------------------ */

/* Copies of the metadata that stay; older ones go when a new one is made. */
#define VJ_CHECKPOINTS_KEPT 2u
/* "20261120T201903Z" */
#define VJ_CHECKPOINT_NAME_BYTES 17u

typedef struct VjCheckpoint {
    char name[VJ_CHECKPOINT_NAME_BYTES];
    int64_t made_s; /* seconds since 1970 */
    uint64_t commit;
    uint64_t stored_bytes;
} VjCheckpoint;

/*
 * vj_volume_checkpoint - copy the metadata as they are now
 *
 * Everything accepted before is in it.  Others go on meanwhile.
 * Returns   0; -EROFS; -ENOSPC: too little would be left; -EBADMSG, -EIO
 * Threads   any; blocks      Locks   none
 */
int vj_volume_checkpoint(VjVolume *v, uint64_t *stored_bytes) G_GNUC_WARN_UNUSED_RESULT;

/* Those of @source, newest first; GArray of VjCheckpoint, owned; NULL with @error. */
GArray *vj_volume_checkpoints(const char *source, GError **error);

/*
 * vj_volume_restore - put a checkpoint in the place of the metadata
 *
 * What was there is kept beside it.  Afterwards the volume is refused until it has been opened with
 * restoring and closed (vj_volume_restored): the store is newer than the metadata then.
 * @name     NULL: the newest that is whole
 * @out      which one it was
 * @kept     what the metadata are called now; owned
 * Crash     the one or the other; the restore is begun again
 */
bool vj_volume_restore(const char *source, const char *name, int64_t lock_wait_us,
                       VjCheckpoint *out, char **kept, GError **error);

/*
 * vj_volume_restored - nothing that is made from now on has a number that the store or a client
 * has seen
 *
 * @v is open with restoring.  The next close without an error makes the volume usable.
 */
int vj_volume_restored(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

VjMeta *vj_volume_meta(VjVolume *v);
VjStore *vj_volume_store(VjVolume *v);
bool vj_volume_read_only(const VjVolume *v);
/* Of the superblock, borrowed; the label may be empty. */
const char *vj_volume_uuid(const VjVolume *v);
const char *vj_volume_label(const VjVolume *v);
/* Inodes with a name when the volume was opened. */
uint64_t vj_volume_inodes_at_open(const VjVolume *v);
void vj_volume_set_read_only(VjVolume *v, bool read_only); /* remount */

/* Everything accepted before the call is durable on 0.  Any thread; blocks. */
int vj_volume_sync(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_volume_settle - nothing waits to be removed any more
 *
 * Orphans that nobody has open are dropped, the dead that are not pinned are removed.  What
 * fails is told and tried again later; then its error.  Any thread; blocks.
 */
int vj_volume_settle(VjVolume *v) G_GNUC_WARN_UNUSED_RESULT;

/* Damaged objects that one step of a scrub can name. */
#define VJ_TEND_BAD_MOST 16u

/* One step of gc or scrub: the caller begins with zeroes and goes on until the end. */
typedef struct VjTend {
    uint64_t cursor;         /* in/out; UINT64_MAX: that was the last step */
    uint64_t total;          /* out, gc: the cursor grows to about this */
    uint64_t examined;       /* added to: objects that were looked at */
    uint64_t examined_bytes; /* added to, scrub: bytes that were read */
    uint64_t found;          /* added to: objects that were removed, or are damaged */
    uint64_t found_bytes;    /* added to */
    unsigned bad_count;      /* added to, scrub: ids in bad, and more that had no place */
    uint64_t bad[VJ_TEND_BAD_MOST];
} VjTend;

/*
 * vj_volume_gc - remove what the store has and no record names
 *
 * The first step also waits until orphans are dropped and the dead removed.  Beside anything
 * else that happens; never touches what is, or is about to be, referenced.
 * Returns   0; -EROFS; what the store says: then nothing of that step was removed unseen
 * Threads   any; blocks      Locks   none
 */
int vj_volume_gc(VjVolume *v, VjTend *t) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_volume_scrub - read and verify some objects, past all caches
 *
 * What is damaged is put into the log, into @t, and out of the index.  -ENOMEM, errors of meta.
 * Unless the volume is read only, the place is kept with the metadata: a pass that was cut off
 * goes on when the caller begins with it (vj_volume_scrub_status).  With cursor 0 a new one begins.
 * Threads   any; blocks      Locks   none
 */
int vj_volume_scrub(VjVolume *v, VjTend *t) G_GNUC_WARN_UNUSED_RESULT;

/* What one pass of scrub over all objects has read, or a part of it. */
typedef struct VjScrubPass {
    uint64_t begun_s; /* seconds since 1970 */
    uint64_t objects, bytes, damaged;
} VjScrubPass;

typedef struct VjScrubStatus {
    uint64_t place;   /* cursor with which the pass under way goes on; 0: there is none */
    VjScrubPass pass; /* the one under way; zeroes without */
    uint64_t finished_s; /* when the last complete pass ended; 0: never */
    VjScrubPass last;    /* that one; zeroes without */
} VjScrubStatus;

/* 0; -EBADMSG: the record of it is damaged; errors of meta.  Any thread; blocks. */
int vj_volume_scrub_status(VjVolume *v, VjScrubStatus *out) G_GNUC_WARN_UNUSED_RESULT;

typedef struct VjVolumeUsage {
    VjStoreSpace space;
    uint64_t reserved_bytes; /* promised to dirty data */
    uint64_t objects;        /* object records */
    uint64_t object_plain_bytes, object_stored_bytes;
    uint64_t inodes;
    uint64_t dirty_bytes, cache_bytes;
} VjVolumeUsage;

/* Walks all records, on a large volume now and then alone: for varjfsctl df, not for statfs. */
int vj_volume_usage(VjVolume *v, VjVolumeUsage *out) G_GNUC_WARN_UNUSED_RESULT;
/* The store's space, and what is promised to dirty data: cheap, for statfs.  What is available
 * is without the margin that no data may take. */
int vj_volume_space(VjVolume *v, VjStoreSpace *out,
                    uint64_t *reserved_bytes) G_GNUC_WARN_UNUSED_RESULT;

/* Name → value counters since mount, for varjfsctl stats and tests; visits in fixed order. */
typedef void VjCounterVisit(void *opaque, const char *name, uint64_t value);
void vj_volume_counters(VjVolume *v, VjCounterVisit *visit, void *opaque);

/* A fresh inode number, never used before.  In the caller's transaction. */
int vj_ino_new(VjTxn *txn, uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_orphan_put - in the caller's transaction: @ino has no name any more
 *
 * The record that survives a crash; the content stays until vj_volume_reap() or the next
 * mount.  vj_orphan_del takes it back (linkat of an O_TMPFILE).  -ENOENT from del.
 */
int vj_orphan_put(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;
int vj_orphan_del(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_volume_reap - nobody can reach the orphan @ino any more
 *
 * Its content, xattrs and record are dropped in the background, VJ_FILE_DROP_BATCH entries
 * a transaction.  Does nothing when there is no orphan record.  Any thread; waits only while
 * 65536 others wait to be dropped.
 */
void vj_volume_reap(VjVolume *v, uint64_t ino);

/*
 * The setting user.varjfs.objects of an inode: @text is what mkfs takes as objects=.  set
 * changes the three sizes of @inode alone.  Not possible with the volume's chunker:
 * EINVAL and one line that says what is.
 */
bool vj_volume_sizes_set(const VjVolume *v, VjInode *inode, const char *text,
                         GError **error);
/* What holds for @inode, as AVG or MIN:AVG:MAX in bytes; owned. */
char *vj_volume_sizes_text(const VjVolume *v, const VjInode *inode);

/* The setting user.varjfs.transform, likewise; as vj_transform_parse and vj_transform_text. */
bool vj_volume_transform_set(VjInode *inode, const char *text, GError **error);
char *vj_volume_transform_text(const VjVolume *v, const VjInode *inode);
/* What holds for @inode: its own, else the volume's. */
VjTransform vj_volume_transform(const VjVolume *v, const VjInode *inode);

/*
 * vj_volume_inherit - the settings with which @inode, whose mode is set, is made in @dir
 *
 * Files and directories begin with the directory's.  A file in a directory that has no
 * transformation of its own begins with the mount's, if the mount was given one.
 */
void vj_volume_inherit(const VjVolume *v, const VjInode *dir, VjInode *inode);

/* ---- contents ----------------------------------------------------------------------- */

typedef struct VjFile VjFile;

/* The content of @ino; one VjFile per inode.  -ENOENT, -EBADMSG, -EIO.  Owned. */
int vj_file_open(VjVolume *v, uint64_t ino, VjFile **out) G_GNUC_WARN_UNUSED_RESULT;
VjFile *vj_file_ref(VjFile *f);
/* The last unref starts write-back; it does not wait.  NULL is fine. */
void vj_file_unref(VjFile *f);
uint64_t vj_file_ino(const VjFile *f);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjFile, vj_file_unref)

/*
 * vj_file_getattr - the inode with its visible size, times and stored bytes
 *
 * The committed record, overlaid with what is changed in memory.  Any thread; no device
 * wait beyond reading metadata.
 */
int vj_file_getattr(VjVolume *v, uint64_t ino, VjInode *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_forget_times - an explicit utimens wins over the mtime of earlier writes
 *
 * Called before the transaction that sets the times.
 */
void vj_file_forget_times(VjVolume *v, uint64_t ino);

/*
 * vj_file_settings_changed - a transaction that changed the settings of @ino is visible
 *
 * What is written back from now on follows them.  0 also when the file is not open; errors of
 * reading its record.  Any thread.
 */
int vj_file_settings_changed(VjVolume *v, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_read - bytes as they are visible now
 *
 * @got      bytes read; short only at end of file
 * Returns   0; -EBADMSG stored bytes are damaged; -EIO, -ENOMEM
 * Threads   any; blocks on the store      Locks   none
 */
int vj_file_read(VjFile *f, uint64_t offset, void *dst, size_t len,
                 size_t *got) G_GNUC_WARN_UNUSED_RESULT;

/* The same; @fault takes what would be logged with the number of the object alone. */
int vj_file_read_or_tell(VjFile *f, uint64_t offset, void *dst, size_t len, size_t *got,
                         VjFault *fault) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_replace - one visible step: @old_len bytes at @offset become @len bytes
 *
 * Clipped at the end; beyond the end a hole comes first, as with pwrite; with len 0 beyond
 * the end nothing happens.  len <= VJ_FILE_EDIT_MAX.
 * @append   the offset is ignored: the end of the file, atomically
 * @at       where it happened (NULL: not wanted)
 * Returns   0; -ENOSPC, -EFBIG, -EIO (write-back keeps failing and memory is full), -EROFS
 * Threads   any; may wait for memory      Crash: whole or not at all, after fsync whole
 */
int vj_file_replace(VjFile *f, uint64_t offset, uint64_t old_len, const void *src,
                    size_t len, bool append, uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_replace_by_hole - as replace, by a hole of @len bytes, however long
 *
 * With len 0 a delete.  @inside: -EINVAL unless offset + old_len is below the size, decided
 * in the same step (what fallocate(2) demands).
 */
int vj_file_replace_by_hole(VjFile *f, uint64_t offset, uint64_t old_len, uint64_t len,
                            bool inside) G_GNUC_WARN_UNUSED_RESULT;

/* A write of bytes most of which stand there already, src_len bytes further down or up. */
typedef struct VjFileShift {
    uint64_t offset, len; /* the range that is written */
    const void *src;      /* the bytes that do not stand there: first if up, else last */
    size_t src_len;       /* above 0, below len, at most VJ_FILE_EDIT_MAX */
    bool down;            /* the others move to lower offsets */
    uint64_t change;      /* as vj_file_change_count() said before they were compared */
} VjFileShift;

/*
 * vj_file_shift - one visible step; no byte is read or copied but @src
 *
 * Returns   0; -EBUSY the content was changed since, nothing happened; -EINVAL the bytes that
 *           are to move are not all in the file; else as replace
 */
int vj_file_shift(VjFile *f, const VjFileShift *shift) G_GNUC_WARN_UNUSED_RESULT;

uint64_t vj_file_size(VjFile *f); /* bytes, with what is not written back yet */
/* Another number after each change of the content, while the file is open. */
uint64_t vj_file_change_count(VjFile *f);

/* As replace with old_len = len: a write. */
int vj_file_write(VjFile *f, uint64_t offset, const void *src, size_t len, bool append,
                  uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Blocks: memory for a write that the file may keep instead of a copy.  They are handed round: the
 * kernel clears a page only once.  new: at a page boundary; NULL: no memory.
 */
#define VJ_FILE_BLOCK_BYTES ((size_t)VJ_MIB + 4096)
void *vj_volume_block_new(VjVolume *v);
void vj_volume_block_free(VjVolume *v, void *block); /* NULL is fine */
/* As vj_file_write, of 1 to VJ_MIB bytes; @src lies in *block, not above the second page.  *block is NULL
 * when it was taken, also on failure. */
int vj_file_write_block(VjFile *f, uint64_t offset, void **block, const void *src,
                        size_t len, bool append, uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;

/* Cut or extend with a hole.  Updates mtime and ctime. */
int vj_file_truncate(VjFile *f, uint64_t size) G_GNUC_WARN_UNUSED_RESULT;

/* The range becomes a hole; @grow: up to offset + len even beyond the end. */
int vj_file_punch(VjFile *f, uint64_t offset, uint64_t len,
                  bool grow) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_copy - copy_file_range within the volume; shares objects where it may
 *
 * @copied   may be short; 0 only at the end of the source
 * Returns   0; -EINVAL overlapping ranges of one file; else as read and replace
 */
int vj_file_copy(VjFile *src, uint64_t src_offset, VjFile *dst, uint64_t dst_offset,
                 uint64_t len, uint64_t *copied) G_GNUC_WARN_UNUSED_RESULT;

/* SEEK_DATA (@data) or SEEK_HOLE from @offset, in blocks of 4 KiB: one with a byte of data in it
 * is no hole.  -ENXIO as lseek(2). */
int vj_file_seek(VjFile *f, uint64_t offset, bool data,
                 uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_sync - everything accepted before the call is durable on 0
 *
 * Any thread; blocks; overlapping callers share write-backs and device syncs.  The error
 * is that of this attempt; what failed stays dirty.
 */
int vj_file_sync(VjFile *f) G_GNUC_WARN_UNUSED_RESULT;
/* The same, but @w is told, as by vj_meta_flush_join, until when @f stays open.  Any thread; waits for
 * the write-back. */
void vj_file_sync_join(VjFile *f, VjFlushWait *w);

/* As sync, but visible in metadata is enough: for the order of a rename after its data. */
int vj_file_commit(VjFile *f) G_GNUC_WARN_UNUSED_RESULT;

/* Start write-back, do not wait (close). */
void vj_file_kick(VjFile *f);

/* One step of storing a content anew. */
typedef struct VjRecode {
    uint64_t offset;  /* in: 0 at first; out: where the next step goes on */
    uint64_t version; /* in: 0 at first, then what the step before left; out */
    bool changed;     /* out: another commit came between the step before and this one */
    bool done;        /* out: this was the last */
    uint64_t size;    /* out: bytes of the file, as committed */
    uint64_t examined_bytes, rewritten_bytes, unreadable_bytes; /* out: of this step */
} VjRecode;

/*
 * vj_file_recode - store the content from @step->offset on as the file's settings say
 *
 * Writes back first when the offset is 0.  About 8 MiB a step, which is one commit; content,
 * size and times stay what they are.  What is stored right already is read and left alone, what
 * cannot be read stays as it is.  Offsets are those of the committed content: when it changed
 * between two steps, what moved to before the offset was not looked at.
 * Returns   0; -EROFS, -ENOSPC, -ENOENT the inode is gone; -EBADMSG its map is damaged; -EIO,
 *           -ENOMEM; nothing of the step is visible on failure
 * Threads   any; blocks; other write-backs of the file wait for the step
 * Crash     the step is there or not
 */
int vj_file_recode(VjFile *f, VjRecode *step) G_GNUC_WARN_UNUSED_RESULT;

/* Changed bytes wait for write-back. */
bool vj_file_is_dirty(VjFile *f);

/*
 * Write-back errors reach each handle once: a handle takes a mark when it opens the file
 * and asks with it at fsync and close.
 */
uint32_t vj_file_error_mark(VjFile *f);
int vj_file_error_since(VjFile *f, uint32_t *mark) G_GNUC_WARN_UNUSED_RESULT;

/* One entry of the committed map, for varjfsctl map and status. */
typedef struct VjFileExtent {
    uint64_t offset, length; /* in the file, bytes */
    enum { VJ_EXTENT_OBJECT, VJ_EXTENT_INLINE, VJ_EXTENT_HOLE, VJ_EXTENT_FRAGMENT } kind;
    uint64_t object_id;
    uint64_t object_start; /* first byte used of the object */
    uint64_t object_bytes, stored_bytes;
    uint64_t refs; /* map entries that name the object, in all files */
    VjDigest digest;
    uint8_t digest_len;
    uint8_t codec;
} VjFileExtent;

typedef bool VjExtentVisit(void *opaque, const VjFileExtent *extent); /* false: stop */

/* The committed map from @offset; sync first to see all.  One snapshot per call. */
int vj_file_extents(VjFile *f, uint64_t offset, VjExtentVisit *visit,
                    void *opaque) G_GNUC_WARN_UNUSED_RESULT;

/* ---- check -------------------------------------------------------------------------- */

/*
 * vj_volume_check - verify every invariant of records, maps, references, index and store
 *
 * @read_data   also read every object and compare checksums and digests
 * The volume was opened with check = true.  0 even with problems; -EIO when it cannot run.
 */
int vj_volume_check(VjVolume *v, bool read_data, VjCheckSay *say, void *opaque,
                    VjCheckReport *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
