/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfs/ioctl.h - edits in the middle of a file, without librwrite
 *
 * An edit takes two calls of one thread on one descriptor.  VARJFS_IOC_EDIT stages it: it
 * says what is to happen, and the answer says which call carries it out.  That call,
 * fallocate(2) or ftruncate(2), the kernel makes under the lock of the inode, so that no
 * write, append or truncation gets between an edit and what the kernel knows of the file.
 *
 * The kernel passes at most 16383 bytes with an ioctl, and sizes the transfer by the
 * command number, so a command exists for each length: build it with the macros below.
 * Data that does not fit is sent first (VARJFS_IOC_STAGE) and then named by the edit.
 *
 * All integers are in host order; the structures have no padding and the same layout for
 * 32- and 64-bit callers.  Unknown flags and versions are EINVAL.  On a file that is not
 * on varjfs the kernel answers ENOTTY.  See varjfs-ioctl(2).
 */
#ifndef VARJFS_IOCTL_H
#define VARJFS_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Not in the kernel's list of ioctl numbers: a command that hits another kind of file by
 * mistake means nothing there. */
#define VARJFS_IOC_MAGIC 0x96
#define VARJFS_IOC_VERSION 3

/* Largest argument that the kernel passes, bytes, header included. */
#define VARJFS_IOC_MAX 16383
/* Most data of one edit: it happens entirely or not at all. */
#define VARJFS_EDIT_MAX (8u << 20)

/* varjfs_edit.flags, and varjfs_shift.flags where it says so */
#define VARJFS_EDIT_APPEND (1u << 0) /* at the end of the file; offset is ignored */
#define VARJFS_EDIT_STAGED (1u << 1) /* the data is what was staged under stage_id */
#define VARJFS_EDIT_HOLE (1u << 2) /* there is no data: len bytes of hole come instead */
#define VARJFS_EDIT_INSIDE                                                               \
    (1u << 3) /* EINVAL unless offset + old_len is below the size */
/* Carried out whatever becomes of the file's size until then, and of its pages; but for
 * growth with VARJFS_EDIT_LIMITED, and an edit that leaves the size as it is. */
#define VARJFS_EDIT_ANY_SIZE (1u << 4)
/* The process has a limit of file sizes (RLIMIT_FSIZE). */
#define VARJFS_EDIT_LIMITED (1u << 5)

/*
 * How a staged edit is carried out, by the same thread on the same descriptor.  The
 * call's own result is that of the edit: 0, or -1 and errno, and then nothing has
 * happened.  EAGAIN: the size of the file has changed since the edit was staged, or pages
 * of it have come into the page cache, or after a second may have; stage it again, and
 * after some tries with VARJFS_EDIT_ANY_SIZE, or a program that appends, or reads the
 * end, without end keeps it from happening.
 */
struct varjfs_carry {
    __u32 call;   /* VARJFS_CARRY_* */
    __u32 mode;   /* of fallocate(2), FALLOC_FL_*, for the calls named so */
    __u64 offset; /* likewise */
    __u64 len;    /* likewise; of ftruncate(2) for the calls named so */
};

#define VARJFS_CARRY_NOTHING 0   /* nothing is staged: no bytes become none */
#define VARJFS_CARRY_FALLOCATE 1 /* fallocate(fd, mode, offset, len) */
#define VARJFS_CARRY_FTRUNCATE 2 /* ftruncate(fd, len) */
/* As FALLOCATE; then lseek(fd, INT64_MIN, SEEK_END), which fails with EINVAL and moves
 * nothing: the kernel asks for the size by it. */
#define VARJFS_CARRY_FALLOCATE_SEEK 3
/* fallocate(fd, mode, offset, 1), which writes pages back, then ftruncate(fd, len). */
#define VARJFS_CARRY_FALLOCATE_FTRUNCATE 4

/*
 * Replace old_len bytes at offset by len bytes.  The ioctl returns 0 and fills offset
 * (where it will happen), old_len (as clipped), size (of the file after it, if that stays
 * as it is until then) and carry.
 *
 * With len 0 and offset at or beyond the end nothing happens.  Beyond the end a hole
 * comes first, as with pwrite.  Errors, each with the file unchanged: EBADF the
 * descriptor is not open for writing; EISDIR; EPERM the file is immutable, or append only
 * and the edit is no append (chattr(1)); EINVAL not a regular file, unknown version or
 * flag, an offset above 2^63 - 1, len above VARJFS_EDIT_MAX or not what follows or was
 * staged; ENOENT no such stage; ENOMEM too many edits are staged; EAGAIN threads outside
 * of the daemon's PID namespace have staged as many edits for that size as can be told
 * apart; EFBIG, ENOSPC, EROFS, EIO as write(2), those also from the call that carries the
 * edit out.
 *
 * A thread has one edit staged on a descriptor: the next one takes its place.  It ends
 * with the call that carries it out, whatever comes of it if the kernel has let it reach
 * varjfs (RLIMIT_FSIZE), with VARJFS_IOC_EDIT_DROP, or when the description is closed.
 *
 * A hole reads as zeros, takes no space, and may be of any length: len is not bounded by
 * VARJFS_EDIT_MAX then.  VARJFS_EDIT_HOLE | VARJFS_EDIT_INSIDE is fallocate(2) by bytes:
 * with old_len 0 INSERT_RANGE, with len 0 COLLAPSE_RANGE.
 *
 * VARJFS_IOC_EDIT_DROP returns where VARJFS_EDIT_APPEND | VARJFS_EDIT_ANY_SIZE was
 * carried out.
 */
struct varjfs_edit {
    __u32 version; /* in: VARJFS_IOC_VERSION */
    __u32 flags;   /* in: VARJFS_EDIT_* */
    __u64 offset;  /* in/out: bytes */
    __u64 old_len; /* in: bytes; out: clipped at the end of the file */
    __u64 len; /* in: bytes of data; not staged: exactly what is behind this structure */
    __u64 stage_id;            /* in: with VARJFS_EDIT_STAGED, else 0 */
    __u64 size;                /* out: bytes */
    struct varjfs_carry carry; /* out */
};

/*
 * Add data to a stage.  A stage belongs to the open file description, holds at most
 * VARJFS_EDIT_MAX bytes, and ends when the edit that names it is carried out (also if
 * that fails, but for EAGAIN), with VARJFS_STAGE_DROP, or when the description is closed.
 */
#define VARJFS_STAGE_DROP (1u << 0)

struct varjfs_stage {
    __u32 version;  /* in: VARJFS_IOC_VERSION */
    __u32 flags;    /* in: VARJFS_STAGE_* */
    __u64 stage_id; /* in: 0 makes a stage; out: its id */
    __u64 offset;   /* in: bytes from the start of the stage; must be its length so far */
    __u64 len;      /* in: bytes of data behind this structure */
};

#define VARJFS_EDIT_INLINE_MAX (VARJFS_IOC_MAX - sizeof(struct varjfs_edit))
#define VARJFS_STAGE_DATA_MAX (VARJFS_IOC_MAX - sizeof(struct varjfs_stage))

/*
 * ftruncate(fd, VARJFS_DELETE_SIZE(offset, len)) deletes len bytes at offset at once,
 * without staging, if an edit of the file was carried out within the last second and
 * varjfs knows that the kernel holds no page behind offset.  Else it is EFBIG as for any
 * size as large, and nothing has happened: stage the delete.  @offset: below 2^40; @len:
 * 1 to VARJFS_DELETE_SIZE_LEN.  On another file system the file may get that size: be
 * sure that it is varjfs.
 */
#define VARJFS_DELETE_SIZE_LEN 8192
#define VARJFS_DELETE_SIZE_OFFSET_BITS 40
#define VARJFS_DELETE_SIZE_LEN_BITS 13
#define VARJFS_DELETE_SIZE_MARK ((__u64)0x96 << 53 | (__u64)1 << 62)
#define VARJFS_DELETE_SIZE(offset, len)                                                  \
    (VARJFS_DELETE_SIZE_MARK | (__u64)(offset) << VARJFS_DELETE_SIZE_LEN_BITS |          \
     (__u64)((len)-1))

/* @n: bytes of data behind the structure */
#define VARJFS_IOC_EDIT(n)                                                               \
    _IOC(_IOC_READ | _IOC_WRITE, VARJFS_IOC_MAGIC, 1, sizeof(struct varjfs_edit) + (n))
#define VARJFS_IOC_STAGE(n)                                                              \
    _IOC(_IOC_READ | _IOC_WRITE, VARJFS_IOC_MAGIC, 2, sizeof(struct varjfs_stage) + (n))

/* Everything that the mount accepted before the call is durable when it returns 0. */
#define VARJFS_IOC_SYNC _IO(VARJFS_IOC_MAGIC, 3)

/*
 * Takes back what this thread has staged on the descriptor; the data that it names stays.
 * Returns 0 and fills offset with where an edit with VARJFS_EDIT_APPEND |
 * VARJFS_EDIT_ANY_SIZE went, once it was carried out.  ENOENT: there is nothing.
 */
#define VARJFS_IOC_EDIT_DROP _IOWR(VARJFS_IOC_MAGIC, 11, struct varjfs_edit)

/*
 * Does nothing: the cost of a round trip, and "is this varjfs?".  Returns
 * VARJFS_IOC_VERSION as the daemon understands it.  (0 would be the answer of a file
 * system that says yes to everything.)
 */
#define VARJFS_IOC_PING _IO(VARJFS_IOC_MAGIC, 4)

/*
 * Text about the file or the mount, page by page, for varjfsctl and monitors.
 *
 * @what is the kind.  @cursor starts at 0; a call fills text[0 … len) with whole lines,
 * each ending in '\n' (no NUL follows), and sets @cursor to where the next call goes on,
 * or to VARJFS_TEXT_END after the last line.  Cursors are opaque.  A page before the last
 * holds at least one line; the whole text may be empty (the map of an empty file).  Each
 * page is a snapshot of its own.  Any descriptor of the mount will do, also one opened
 * read-only and, except for MAP, one of a directory.  Numbers are decimal and unsigned.
 *
 * DF and STATS: lines "key=value", keys of [a-z0-9_].  Keys may be added, readers skip
 * those that they do not know; none is taken away or changes its unit.
 *
 *   DF, always all of these, in this order (bytes unless the name says otherwise):
 *     total_bytes         size of the store
 *     free_bytes          not used by anything in the store
 *     available_bytes     what may still be written (never above free_bytes)
 *     reserved_bytes      promised to data that waits for write-back
 *     inodes              number of inodes
 *     objects             number of objects
 *     object_plain_bytes  content of the objects, each counted once
 *     object_stored_bytes the same as stored, trailers included
 *     dirty_bytes         waiting for write-back
 *     cache_bytes         in the daemon's cache of objects
 *
 *   STATS: one line per counter of the daemon, counted since the mount.
 *
 * CALLS: one line per kind of call since the mount, all kinds in one order, of fields
 * "key=value" with one space between:
 *
 *     group=request kind=read calls=9 failures=0 bytes=36864 total_ns=171310 max_ns=40211
 *     latencies=35:7,41:2
 *
 *   group      request (that the kernel has sent), store, meta
 *   kind       of [a-z0-9_]
 *   calls      that have begun
 *   failures   of them, those that ended with an error
 *   bytes      of content, of those that ended well
 *   total_ns, max_ns, latencies   of those that are over and were timed: all, but one in
 *              32 of get, next, prev, put, del and expect of meta.  latencies: bucket,
 *              number.  Bucket 0 is below 32 ns; from there on each doubling has four of
 *              one width (1: from 32 ns, 2: from 40, 3: from 48, 4: from 56, 5: from 64,
 *              6: from 80), and 124, from 56 << 30 ns on, is the last one
 *
 * What a request did and how many bytes it had is counted before its answer, so whoever
 * has the answer finds it here; latencies come right behind the answer.
 *
 * BUSIEST: the inodes that most requests were about, and the threads that most came from,
 * since the mount: up to 256 of each, in no order, a line each.
 *
 *     of=file id=257 requests=1200 over=3 bytes=4915200 path=/mail/inbox
 *     of=thread id=4711 requests=99 over=0 bytes=0
 *
 *   id        inode number; or what gettid(2) says in the daemon's namespace
 *   requests  hardly ever below their number (where threads meet at one moment), and
 *             above it by at most over: so many were of what had its place before.
 *             While over stays the same, the growth is exact
 *   bytes     that reads asked for and writes brought, since it has its place
 *   path      one of its names, as it was some seconds ago; absent: not known.  Control
 *             characters and backslashes are \xNN.  The last field: it may have spaces
 *
 * VOLUME: lines "key=value" of text: uuid, and label (may be empty).
 *
 * CONF: the text of the volume file, or of varjfs.conf, as it has to be for the next
 * mount: newer than the file where the list of storage nodes was changed.
 *
 * STORE: lines "key=value": store, the name of its driver, and what that says; size_bytes
 * and the like are numbers, others text.
 *
 * SCRUB, as DF; times are seconds since 1970.  pass_* is 0 when no scrub is under way,
 * last_* and finished when none was complete.  An older daemon answers EINVAL.
 *     place          cursor with which VARJFS_TEND_SCRUB goes on; 0: begin a new one
 *     pass_begun     when the one under way began, then what it has read so far
 *     pass_objects, pass_bytes, pass_damaged
 *     finished       when the last complete one ended
 *     last_begun     when that one began, then what it read
 *     last_objects, last_bytes, last_damaged
 *
 * MAP: one line per entry of the file's map as it was last written back (VARJFS_IOC_SYNC
 * or fsync first to see all), ascending and without gaps; ten fields with one space
 * between:
 *
 *     offset length kind object_id object_start object_bytes stored_bytes refs digest
 *     codec
 *
 *   offset        bytes from the start of the file
 *   length        bytes of the file that this entry covers
 *   kind          object, inline, hole or fragment
 *   object_id     16 lower-case hexadecimal digits, or "-" where kind is not object; then
 *                 object_start and object_bytes are 0 and digest is "-"
 *   object_start  first byte of the object's content that this entry uses
 *   object_bytes  length of the object's content
 *   stored_bytes  bytes that the entry's data takes where it is kept; 0 for a hole
 *   refs          entries in all files that name the object; 1 for inline and fragment,
 *                 0 for a hole
 *   digest        of the object's content, lower-case hexadecimal
 *   codec         number of the transformation under which the data is stored; 0 is none
 *
 * A caller that is neither root nor the user who mounted does not get what depends on the
 * files of other users: object_id, refs and digest of objects are "-", as are objects,
 * object_plain_bytes, object_stored_bytes and cache_bytes of DF; STATS, CALLS,
 * BUSIEST, SCRUB, NODES, CONF and STORE are EPERM.
 *
 * EINVAL: unknown kind, version or cursor; EISDIR: MAP of a directory.
 */
#define VARJFS_TEXT_MAP 1    /* the file's map */
#define VARJFS_TEXT_DF 2     /* the volume: space, objects, stored bytes */
#define VARJFS_TEXT_STATS 3  /* counters since mount */
#define VARJFS_TEXT_VOLUME 4 /* uuid, label */
#define VARJFS_TEXT_SCRUB 5  /* how far a scrub has come; the last complete one */
#define VARJFS_TEXT_NODES 6  /* of a volume on storage nodes: each of them, a line */

#define VARJFS_TEXT_CONF 7 /* the text of the volume file */

#define VARJFS_TEXT_CALLS 8   /* requests and calls by kind, with latencies */
#define VARJFS_TEXT_BUSIEST 9 /* which files and threads had most requests */
#define VARJFS_TEXT_STORE 10  /* the store: driver, place, what is in it */

#define VARJFS_TEXT_END (~(__u64)0) /* cursor: there is no more */

struct varjfs_text {
    __u32 version; /* in: VARJFS_IOC_VERSION */
    __u32 what;    /* in: VARJFS_TEXT_* */
    __u64 cursor;  /* in/out: VARJFS_TEXT_END after the last page */
    __u64 len;     /* out: bytes of text */
    char text[8192];
};

#define VARJFS_IOC_TEXT _IOWR(VARJFS_IOC_MAGIC, 5, struct varjfs_text)

/*
 * One step of storing a file anew, under the transformation and the object sizes that its
 * attributes user.varjfs.* say.  What was written before they were set is stored as it
 * was until then.  A step is one commit of about 8 MiB of the file; it changes neither
 * content nor times, and other users of the file go on meanwhile.
 *
 * @cursor and @state are 0 at first; each call sets them for the next, and @cursor to
 * VARJFS_RECODE_END after the last step.  The first one writes the file back.  To run
 * again from 0 is harmless at any time: what is stored right is left alone.  The
 * descriptor is open for writing, or the caller is the file's owner or root.
 *
 * Errors, each with nothing done: EBADF neither of these; EISDIR; EINVAL unknown version
 * or flags, or a cursor that is no offset; EROFS, ENOSPC, EIO as write(2).
 */
/* varjfs_recode.flags, out: the file was changed since the step before, so what moved to
 * before the cursor was not looked at.  Begin again to be sure of all. */
#define VARJFS_RECODE_CHANGED (1u << 0)
#define VARJFS_RECODE_END (~(__u64)0)

struct varjfs_recode {
    __u32 version;    /* in: VARJFS_IOC_VERSION */
    __u32 flags;      /* in: 0; out: VARJFS_RECODE_CHANGED */
    __u64 cursor;     /* in/out */
    __u64 state;      /* in/out */
    __u64 size;       /* out: of the file, bytes */
    __u64 examined;   /* out: bytes of the file that this step looked at */
    __u64 rewritten;  /* out: of these, bytes that it stored anew */
    __u64 unreadable; /* out: of these, bytes that cannot be read and stay as they are */
};

#define VARJFS_IOC_RECODE _IOWR(VARJFS_IOC_MAGIC, 6, struct varjfs_recode)

/*
 * One step of looking after the whole volume; for root and the user who mounted.  Any
 * descriptor of the mount will do.
 *
 *   GC     objects in the store that belong to nothing are removed, and what waits for
 *          its removal
 *   SCRUB  objects are read and verified, about 8 MiB a step; the ids of up to 16 that
 *          are damaged are in bad (more of them are counted).  The daemon keeps the place
 *          in the metadata unless the mount is read only: VARJFS_TEXT_SCRUB has the
 *          cursor with which a scrub that was cut off, by whatever, goes on
 *   CHECKPOINT  the metadata are copied into SOURCE/checkpoints, in one step; found_bytes
 *          is what the copy has. ENOSPC: too little space would be left
 *   HEAL   of a volume on storage nodes: all objects are brought to their number of
 *          replicas, in one step: examined, found were healed, bad_count could not be.
 *          EAGAIN: too few nodes are there; EOPNOTSUPP: the volume has no replicas
 *
 *   GROW   a device that has become longer is used to its end, in one step; found_bytes
 *          is what was gained. EBUSY: another caller does it
 *
 * @cursor is 0 at first; each call sets it for the next, VARJFS_TEND_END after the last
 * step.  The figures are those of the one step.
 *
 * Errors: EPERM the caller is neither; EINVAL unknown version or kind; EROFS (GC,
 * CHECKPOINT, GROW); EIO.
 */
#define VARJFS_TEND_GC 1
#define VARJFS_TEND_SCRUB 2
#define VARJFS_TEND_CHECKPOINT 3
#define VARJFS_TEND_HEAL 4
#define VARJFS_TEND_GROW 5
#define VARJFS_TEND_END (~(__u64)0)
#define VARJFS_TEND_BAD 16

struct varjfs_tend {
    __u32 version;        /* in: VARJFS_IOC_VERSION */
    __u32 what;           /* in: VARJFS_TEND_* */
    __u64 cursor;         /* in/out */
    __u64 total;          /* out: GC: the cursor grows to about this; else 0 */
    __u64 examined;       /* out: objects that were looked at */
    __u64 examined_bytes; /* out: SCRUB: bytes that were read */
    __u64 found;          /* out: objects removed (GC), damaged (SCRUB) */
    __u64 found_bytes;    /* out: their bytes */
    __u64 bad_count;      /* out: SCRUB: ids in bad; above 16: so many were found */
    __u64 bad[VARJFS_TEND_BAD];
};

#define VARJFS_IOC_TEND _IOWR(VARJFS_IOC_MAGIC, 7, struct varjfs_tend)

/*
 * A change of the list of storage nodes; for root and the user who mounted.  Any
 * descriptor of the mount will do.
 *
 *   ADD     host takes a place of the volume, and objects from then on, in the proportion
 *           of weight (1 to 1000) to those of the others; objects whose place it is now
 *           move there.  Of a host in the list: it has that weight, and is not drained
 *           any more
 *   DRAIN   it gets no new objects, and those that it has are copied to others
 *   REMOVE  of one that was drained, and has nothing that is needed; with
 *           VARJFS_NODE_FORCE of one that is dead for good: what it had is brought to its
 *           number of replicas first
 *   COUNT   changes nothing: left is how many objects may have a replica there
 *
 * The ioctl returns 0 when the daemon has answered: error is 0, or an errno with a line
 * for people in message, and then nothing is changed.  The new list is durable then; the
 * volume file has to be written by the caller (VARJFS_TEXT_CONF).
 *
 * Errors of the ioctl itself: EPERM; EINVAL unknown version, kind or flags, a host
 * without an end, a weight out of its range.
 */
#define VARJFS_NODE_ADD 1
#define VARJFS_NODE_DRAIN 2
#define VARJFS_NODE_REMOVE 3
#define VARJFS_NODE_COUNT 4

#define VARJFS_NODE_FORCE (1u << 0)
#define VARJFS_NODE_WEIGHT_MAX 1000

struct varjfs_node {
    __u32 version;     /* in: VARJFS_IOC_VERSION */
    __u32 what;        /* in: VARJFS_NODE_* */
    __u32 flags;       /* in: VARJFS_NODE_FORCE, of REMOVE */
    __u32 weight;      /* in: of ADD, else 0 */
    __u64 left;        /* out: COUNT: objects */
    __u32 error;       /* out: 0, or an errno */
    __u32 reserved;    /* 0 */
    char host[256];    /* in: as the list has it; ends with a NUL */
    char message[256]; /* out: where error is not 0; ends with a NUL */
};

#define VARJFS_IOC_NODE _IOWR(VARJFS_IOC_MAGIC, 8, struct varjfs_node)

/*
 * A write of bytes most of which stand there already, a little further up or down.  (A
 * program that inserts by reading the tail of a file and writing it back makes such
 * writes; librwrite recognises them when RWRITE_DETECT=1.)
 *
 * [offset, offset + len) becomes what pwrite(2) of these len bytes would make of it:
 *   up (no flag)   the data, then what stood in [offset, offset + len - data_len)
 *   DOWN           what stood in [offset + data_len, offset + len), then the data
 * What lies behind offset + len stays where it is; up, the file grows if its end was
 * passed.
 *
 * It is staged as an edit is, and carried out by the call that carry names.
 *
 * LOOK changes and stages nothing: it fills change and size, and needs offset, len,
 * data_len and stage_id to be 0.  A caller looks, then reads and compares, then shifts
 * with the number that it got: the call that carries it out is EBUSY, and nothing has
 * happened, if the file's content was changed in between.  change means nothing to
 * another open of the file.
 *
 * Up to VARJFS_EDIT_MAX bytes of data stand behind the structure or were staged.  Errors
 * as VARJFS_IOC_EDIT, and EINVAL where the bytes that are to move are not all in the
 * file, or data_len is 0 or not below len.
 */
#define VARJFS_SHIFT_LOOK (1u << 0)
#define VARJFS_SHIFT_DOWN (1u << 1)
#define VARJFS_SHIFT_STAGED (1u << 2)

struct varjfs_shift {
    __u32 version;  /* in: VARJFS_IOC_VERSION */
    __u32 flags;    /* in: VARJFS_SHIFT_* */
    __u64 offset;   /* in: bytes */
    __u64 len;      /* in: bytes of the range */
    __u64 data_len; /* in: bytes of data, and of the way that the others move */
    __u64 stage_id; /* in: with VARJFS_SHIFT_STAGED, else 0 */
    __u64 change;   /* of the content; LOOK: out, else in */
    __u64 size;     /* out: of the file, bytes */
    struct varjfs_carry carry; /* out, but for LOOK */
};

#define VARJFS_SHIFT_INLINE_MAX (VARJFS_IOC_MAX - sizeof(struct varjfs_shift))
/* @n: bytes of data behind the structure */
#define VARJFS_IOC_SHIFT(n)                                                              \
    _IOC(_IOC_READ | _IOC_WRITE, VARJFS_IOC_MAGIC, 10, sizeof(struct varjfs_shift) + (n))

#ifdef __cplusplus
}
#endif

#endif
