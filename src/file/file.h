/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * file.h - contents of files as content-defined objects: the face of the room file
 *
 * A VjFile is the content of one inode that is open, changed or being written back; a
 * VjFileTable has those of one volume.  This room knows inodes by number and contents by
 * offset; names, permissions and handles belong to the room fs, which runs its own
 * transactions over VJ_SPACE_INODE (through vj_inode_get/put), VJ_SPACE_DENTRY,
 * VJ_SPACE_COOKIE and VJ_SPACE_XATTR.
 */
#ifndef VJ_FILE_FILE_H
#define VJ_FILE_FILE_H

#include "chunk/chunk.h"
#include "map/map.h"
#include "object/object.h"

/* The largest file, bytes: larger numbers name staged edits. */
#define VJ_FILE_SIZE_MAX (((uint64_t)1 << 62) - 1)
/* One replace that is a single visible and crash-atomic step, bytes. */
#define VJ_FILE_EDIT_MAX ((size_t)8 << 20)
/* Contents up to this length live in VJ_SPACE_INLINE, bytes: a page of memory, and what
 * programs like to write at once. */
#define VJ_FILE_INLINE_MAX 4096u
/* What does not go into one page of the engine there, with head and checksum, stands in
 * the record of the inode: a record of more than VJ_META_VALUE_CHEAP takes two pages. */
#define VJ_FILE_INLINE_REST_MAX 48u
/* A write transaction drops at most so many map entries; the rest is an orphan's. */
#define VJ_FILE_DROP_BATCH 250u

#define VJ_INO_ROOT ((uint64_t)1)

/* ---- inode records ----------------------------------------------------------------- */

/* Where the committed content of an inode is. */
typedef enum VjContent {
    VJ_CONTENT_EMPTY = 0,  /* size 0 or one hole of size bytes */
    VJ_CONTENT_INLINE = 1, /* the value of VJ_SPACE_INLINE, and inline_rest */
    VJ_CONTENT_MAP = 2,    /* the tree at root */
} VjContent;

/* On disk. */
enum {
    VJ_INODE_TRANSFORM = 1 << 0, /* transform was set or inherited */
    VJ_INODE_OBJECTS = 1 << 1,   /* object sizes likewise */
    VJ_INODE_MODE = 1 << 2,      /* transform.mode likewise */
    VJ_INODE_SAFETY = 1 << 10,   /* safety likewise */
    VJ_INODE_SETTINGS =
        VJ_INODE_TRANSFORM | VJ_INODE_OBJECTS | VJ_INODE_MODE | VJ_INODE_SAFETY,
    /* Bits 3 to 5, and 13: VJ_INODE_INHERITED.  Then what chattr(1) sets; the first two
     * of regular files and directories alone. */
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
 * What a call that changes a name or an attribute, and close(2) of a file that was
 * written, wait for.  On disk.
 */
typedef enum VjSafety {
    VJ_SAFETY_NONE = 0,    /* the change can be seen */
    VJ_SAFETY_NETWORK = 1, /* the machines that keep it have it: the death of this one
                            * loses nothing */
    VJ_SAFETY_STORAGE = 2, /* it is durable */
} VjSafety;

/*
 * An inode as it is committed.  fs owns the POSIX part, file the content part; both
 * change a record only by reading it and writing it back in one transaction, so that
 * neither carries the other's older values.
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
    VjSafety safety; /* VJ_SAFETY_NONE unless VJ_INODE_SAFETY is set */
    /* file's part; a symlink's target is its inline content */
    uint64_t size;         /* bytes */
    uint64_t stored_bytes; /* for st_blocks */
    VjContent content;
    /* content INLINE: the last bytes of what is stored, under the transformation */
    uint8_t inline_rest_bytes;
    uint8_t inline_rest[VJ_FILE_INLINE_REST_MAX];
    uint64_t map_version; /* grows with every commit of content */
    VjMapRoot root;
    /* in memory alone, of vj_file_getattr: changes wait for write-back, which does not
     * alter what is shown, as far as that may be said now */
    bool dirty, is_final;
    bool has_fragments; /* likewise: some of it becomes objects, without a change */
} VjInode;

/* -ENOENT; -EBADMSG when the record's checksum or values are wrong. */
int vj_inode_get(VjTxn *txn, uint64_t ino, VjInode *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_inode_put(VjTxn *txn, const VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;
/* Removes the record alone. -ENOENT. */
int vj_inode_del(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/* The longest target of a symlink, bytes, without a NUL. */
#define VJ_SYMLINK_MAX 4095u

/*
 * A symlink's target, in the caller's transaction: put stores it as inline content and
 * sets content and size of @inode, which the caller then puts.  get: @dst holds
 * VJ_SYMLINK_MAX bytes, @len is set, nothing is terminated; -EBADMSG.
 */
int vj_symlink_put(VjTxn *txn, VjInode *inode, const char *target,
                   size_t len) G_GNUC_WARN_UNUSED_RESULT;
int vj_symlink_get(VjTxn *txn, const VjInode *inode, char *dst,
                   size_t *len) G_GNUC_WARN_UNUSED_RESULT;

/* ---- the table of open files ------------------------------------------------------- */

/* Opened and closed with the volume (table.h). */
typedef struct VjFileTable VjFileTable;

bool vj_file_table_read_only(const VjFileTable *table);

/* ---- inode numbers, and inodes without a name -------------------------------------- */

/*
 * vj_ino_new - an inode number that was never given out
 *
 * Before the transaction that uses it.  Mostly from memory; now and then it runs a
 * transaction of its own, which takes a block of them (ino-block.c).
 * Returns   0; -ENOSPC, also: all were given out; -EBADMSG, -EIO; -ECANCELED, -ETIMEDOUT
 * Threads   any; blocks as vj_meta_run      Locks   none
 */
int vj_ino_new(VjFileTable *table, uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_orphan_put - in the caller's transaction: @ino has no name
 *
 * The record that survives a crash; the content stays until it is dropped.
 * _put_unlinked: it had one.  *left_open: another session has its content open, and drops
 * it when it closes that; the caller's session leaves it alone.
 * _take_back: it gets a name (linkat of an O_TMPFILE).  -ENOENT: it is not this session's
 * to name, or being dropped.  _del: the record alone.  -ENOENT.
 */
int vj_orphan_put(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;
int vj_orphan_put_unlinked(VjTxn *txn, uint64_t ino,
                           bool *left_open) G_GNUC_WARN_UNUSED_RESULT;
int vj_orphan_take_back(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;
int vj_orphan_del(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/* ---- settings (settings.c) --------------------------------------------------------- */

/*
 * The setting user.varjfs.objects of an inode: @text is what mkfs takes as objects=.  set
 * changes the three sizes of @inode alone.  Not possible with the volume's chunker:
 * EINVAL and one line that says what is.
 */
bool vj_file_sizes_set(const VjFileTable *table, VjInode *inode, const char *text,
                       GError **error);
/* How the content of @inode is cut: its own sizes if the chunker can keep them, else the
 * volume's. */
VjChunkSizes vj_file_sizes(const VjFileTable *table, const VjInode *inode);
/* What holds for @inode, as AVG or MIN:AVG:MAX in bytes; owned. */
char *vj_file_sizes_text(const VjFileTable *table, const VjInode *inode);

/* The setting user.varjfs.transform, likewise; as vj_transform_parse and
 * vj_transform_text. */
bool vj_file_transform_set(VjInode *inode, const char *text, GError **error);
char *vj_file_transform_text(const VjFileTable *table, const VjInode *inode);
/* What holds for @inode: its own, else the volume's. */
VjTransform vj_file_transform(const VjFileTable *table, const VjInode *inode);

/*
 * vj_file_inherit - the settings with which @inode, whose mode is set, is made in @dir
 *
 * Files and directories begin with the directory's.  A file in a directory that has no
 * transformation of its own begins with the mount's, if the mount was given one.
 */
void vj_file_inherit(const VjFileTable *table, const VjInode *dir, VjInode *inode);

/* ---- contents ---------------------------------------------------------------------- */

typedef struct VjFile VjFile;

/*
 * The content of @ino; one VjFile per inode.  Owned.  -ENOENT, -EBADMSG, -EIO.  In a
 * shared session also -EBUSY: another session has it open, which a line in the log
 * names; -ESTALE: it has no name and is being dropped, or another session has it.
 */
int vj_file_open(VjFileTable *table, uint64_t ino,
                 VjFile **out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * A file that is open as soon as it is there: its number, of vj_ino_new, is among those
 * that are being opened from begin to end, and a thread that wants it waits.
 *
 * claim   in the transaction that makes the record
 * end     frees @m.  @r: of that transaction, and returned; 0: *out is as in @inode,
 *         which that has put; owned
 */
typedef struct VjFileMaking VjFileMaking;
VjFileMaking *vj_file_make_begin(VjFileTable *table, uint64_t ino);
int vj_file_make_claim(VjTxn *txn, const VjFileMaking *m) G_GNUC_WARN_UNUSED_RESULT;
int vj_file_make_end(VjFileMaking *m, int r, const VjInode *inode,
                     VjFile **out) G_GNUC_WARN_UNUSED_RESULT;
VjFile *vj_file_ref(VjFile *f);
/* In a shared session the last one drops the claim that other sessions see, and blocks
 * for that.  NULL is fine.  Locks: none. */
void vj_file_unref(VjFile *f);
uint64_t vj_file_ino(const VjFile *f);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjFile, vj_file_unref)

/*
 * vj_file_getattr - the inode with its visible size, times and stored bytes
 *
 * The committed record, overlaid with what is changed in memory.  Any thread; no device
 * wait beyond reading metadata.
 */
int vj_file_getattr(VjFileTable *table, uint64_t ino,
                    VjInode *out) G_GNUC_WARN_UNUSED_RESULT;
/* The same for each of @inos, whose records are read in one transaction.  @results: of
 * each. */
#define VJ_FILE_LOOKS_MOST 64u
void vj_file_getattr_many(VjFileTable *table, const uint64_t *inos, size_t count,
                          VjInode *out, int *results);
/* @inode is the record as its caller's transaction has left it: becomes what
 * vj_file_getattr would say.  False: there may be a newer one, which is to be read. */
bool vj_file_lay_over(VjFileTable *table, VjInode *inode);

/* A call of utimens under way. */
typedef struct VjUtimens {
    VjFile *f;       /* referenced; NULL: it was not open, and the call has no end */
    uint64_t number; /* of the calls for f, from 1 */
} VjUtimens;

/*
 * vj_file_utimens_begin - an explicit utimens wins over the mtime of earlier writes
 *
 * Stands around the transaction that sets the times, which has failed with @r or is
 * visible at the end.  In between no write-back commits the times of those writes, and
 * they are still shown.  What every call that took them has failed for is pending again;
 * of a file that is clean by then it makes another round.  Several calls may be under
 * way at once.
 * Threads   any; the end as vj_file_unref      Locks   none
 */
void vj_file_utimens_begin(VjFileTable *table, uint64_t ino, VjUtimens *out);
void vj_file_utimens_end(VjUtimens *u, int r);

/*
 * vj_file_settings_changed - a transaction that changed the settings of @ino is visible
 *
 * What is written back from now on follows them.  0 also when the file is not open;
 * errors of reading its record.  Any thread.
 */
int vj_file_settings_changed(VjFileTable *table, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_fill - the first content of a file that this transaction of the caller's makes
 *
 * Nobody has it open yet.  It is stored beside the inode, so it is there with the name.
 * @len      at most VJ_FILE_INLINE_MAX
 * Returns   0; -EBUSY it has content already; errors of meta
 */
int vj_file_fill(VjTxn *txn, VjFileTable *table, uint64_t ino, const void *src,
                 size_t len) G_GNUC_WARN_UNUSED_RESULT;

/* Another session changed the record of @ino (all: of any inode): what is written back
 * from now on looks at it again.  Neither blocks nor reads.  Any thread. */
void vj_file_record_changed(VjFileTable *table, uint64_t ino);
void vj_file_records_changed(VjFileTable *table);

/*
 * vj_file_read - bytes as they are visible now
 *
 * @got      bytes read; short only at end of file
 * Returns   0; -EBADMSG stored bytes are damaged; -EIO, -ENOMEM
 * Threads   any; blocks on the store      Locks   none
 */
int vj_file_read(VjFile *f, uint64_t offset, void *dst, size_t len,
                 size_t *got) G_GNUC_WARN_UNUSED_RESULT;

/* Where the bytes of a read are, in their order. */
#define VJ_READ_PARTS_MOST 64u
typedef struct VjReadParts {
    struct iovec iov[VJ_READ_PARTS_MOST];
    VjBuf *held[VJ_READ_PARTS_MOST]; /* with iov[i] in it, a reference; NULL: dst */
    unsigned count;
} VjReadParts;

void vj_read_parts_clear(VjReadParts *parts);

/* The same; @fault takes what would be logged with the number of the object alone.
 * @parts, empty: whatever is in memory that stays is not copied to @dst; NULL: all is. */
int vj_file_read_or_tell(VjFile *f, uint64_t offset, void *dst, size_t len, size_t *got,
                         VjFault *fault, VjReadParts *parts) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_replace - one visible step: @old_len bytes at @offset become @len bytes
 *
 * Clipped at the end; beyond the end a hole comes first, as with pwrite; with len 0
 * beyond the end nothing happens.  len <= VJ_FILE_EDIT_MAX.
 * @append   the offset is ignored: the end of the file, atomically
 * @at       where it happened (NULL: not wanted)
 * Returns   0; -ENOSPC, -EFBIG, -EIO (write-back keeps failing and memory is full),
 *           -EROFS
 * Threads   any; may wait for memory      Crash: whole or not at all, after fsync whole
 */
int vj_file_replace(VjFile *f, uint64_t offset, uint64_t old_len, const void *src,
                    size_t len, bool append, uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_replace_by_hole - as replace, by a hole of @len bytes, however long
 *
 * With len 0 a delete.  @inside: -EINVAL unless offset + old_len is below the size,
 * decided in the same step (what fallocate(2) demands).
 */
int vj_file_replace_by_hole(VjFile *f, uint64_t offset, uint64_t old_len, uint64_t len,
                            bool inside) G_GNUC_WARN_UNUSED_RESULT;

/* A write of bytes most of which stand there already, src_len bytes further down or
 * up. */
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
 * Returns   0; -EBUSY the content was changed since, nothing happened; -EINVAL the bytes
 *           that are to move are not all in the file; else as replace
 */
int vj_file_shift(VjFile *f, const VjFileShift *shift) G_GNUC_WARN_UNUSED_RESULT;

uint64_t vj_file_size(VjFile *f); /* bytes, with what is not written back yet */
/* Another number after each change of the content, while the file is open. */
uint64_t vj_file_change_count(VjFile *f);

/* As replace with old_len = len: a write. */
int vj_file_write(VjFile *f, uint64_t offset, const void *src, size_t len, bool append,
                  uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Blocks: memory for a write that the file may keep instead of a copy.  They are handed
 * round: the kernel clears a page only once.  new: at a page boundary; NULL: no memory.
 */
#define VJ_FILE_BLOCK_BYTES ((size_t)VJ_MIB + 4096)
void *vj_file_block_new(VjFileTable *table);
void vj_file_block_free(VjFileTable *table, void *block); /* NULL is fine */
/* As vj_file_write, of 1 to VJ_MIB bytes; @src lies in *block, not above the second page.
 * *block is NULL when it was taken, also on failure. */
int vj_file_write_block(VjFile *f, uint64_t offset, void **block, const void *src,
                        size_t len, bool append, uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;

/* One request of an append that comes as several at the same time (append-private.h). */
typedef struct VjFilePart {
    uint64_t who;    /* in: of vj_file_append_who */
    uint64_t offset; /* in: says the order of the parts alone */
    uint64_t at;     /* out: where it went */
    bool moved; /* out: what stands behind it now was there before, and is further down */
} VjFilePart;

/* A number for one caller whose appends follow one another. */
uint64_t vj_file_append_who(VjFile *f);
/* As vj_file_write_block; @block NULL: @src is copied. */
int vj_file_append_part(VjFile *f, VjFilePart *part, void **block, const void *src,
                        size_t len) G_GNUC_WARN_UNUSED_RESULT;
/*
 * The kernel cuts a file to where it believes that an append began of which a part has
 * failed.  True: @size is that; what is left of the append was cut off if it stands at
 * the very end.  False: it is a truncation like any other, nothing was done.
 */
bool vj_file_append_undo(VjFile *f, uint64_t who, uint64_t size);

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

/* SEEK_DATA (@data) or SEEK_HOLE from @offset, in blocks of 4 KiB: one with a byte of
 * data in it is no hole.  -ENXIO as lseek(2). */
int vj_file_seek(VjFile *f, uint64_t offset, bool data,
                 uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_file_sync - everything accepted before the call is durable on 0
 *
 * Any thread; blocks; overlapping callers share write-backs and device syncs.  The error
 * is that of this attempt; what failed stays dirty.
 */
int vj_file_sync(VjFile *f) G_GNUC_WARN_UNUSED_RESULT;
/* The same, but the answer goes to @w, as of vj_meta_flush_join; @f stays open until
 * then.  Any thread; waits for the write-back. */
void vj_file_sync_join(VjFile *f, VjFlushWait *w);

/* As sync, but visible in metadata is enough: for the order of a rename after its
 * data. */
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
 * Writes back first when the offset is 0.  About 8 MiB a step, which is one commit;
 * content, size and times stay what they are.  What is stored right already is read and
 * left alone, what cannot be read stays as it is.  Offsets are those of the committed
 * content: when it changed between two steps, what moved to before the offset was not
 * looked at.
 * Returns   0; -EROFS, -ENOSPC, -ENOENT the inode is gone; -EBADMSG its map is damaged;
 *           -EIO, -ENOMEM; nothing of the step is visible on failure
 * Threads   any; blocks; other write-backs of the file wait for the step
 * Crash     the step is there or not
 */
int vj_file_recode(VjFile *f, VjRecode *step) G_GNUC_WARN_UNUSED_RESULT;

/* Changed bytes wait for write-back. */
bool vj_file_is_dirty(VjFile *f);

/*
 * Write-back errors reach each handle once: a handle takes a mark when it opens the file
 * and asks with it at fsync, which moves the mark.
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

/* The committed map from @offset; sync first to see all.  Some thousand entries are of
 * one state, those behind them may be of a later one. */
int vj_file_extents(VjFile *f, uint64_t offset, VjExtentVisit *visit,
                    void *opaque) G_GNUC_WARN_UNUSED_RESULT;

#endif
