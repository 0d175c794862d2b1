/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * redo-private.h - the redo log as a file: made, written to, read without believing it
 *
 * redo-format.h says what is in it, redo-write.c which thread writes what and when.
 */
#ifndef VJ_META_REDO_PRIVATE_H
#define VJ_META_REDO_PRIVATE_H

#include "meta/engine.h"
#include "meta/meta-private.h"
#include "meta/redo-format.h"

#define VJ_REDO_FILE "redo.log"

typedef struct VjRedo {
    int fd;
    bool is_direct; /* fd writes past the page cache */
    uint8_t id[VJ_REDO_ID_BYTES];
    uint64_t half_bytes;
} VjRedo;

/* What an engine says about its log. */
struct VjRedoPoint {
    uint8_t id[VJ_REDO_ID_BYTES];
    uint64_t round, seq;
};

/* The first bytes of the file. */
void vj_redo_head_encode(const VjRedo *log, VjRedoHead *out);
void vj_redo_point_encode(const VjRedoPoint *p, VjRedoState *out);
/* -EBADMSG. */
int vj_redo_point_decode(VjSlice bytes, VjRedoPoint *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_redo_open - the log below a directory
 *
 * Returns   0 and *out owned (vj_redo_close); -ENOENT; -EBADMSG: it is none, or its head
 *           is damaged; -EPROTONOSUPPORT: of a later version; -EIO, …
 */
int vj_redo_open(int dir_fd, bool write, VjRedo **out) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_redo_open_as - a repair: a log whose head is damaged or whose end is missing, only
 * to be read
 *
 * The head says nothing that cannot be known without it: @id, from the metadata file, and
 * the length of the halves, from the file's.  Each record still has to prove that it is
 * one of @id.
 * Returns   0; -ENOENT; -EBADMSG: it has neither a head nor the length of a log; -EIO
 */
int vj_redo_open_as(int dir_fd, const uint8_t id[VJ_REDO_ID_BYTES],
                    VjRedo **out) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_redo_keep - "redo.log.damaged-TIME" beside it: the same file, which is then never
 * written again
 *
 * Returns   0, durable; -ENOENT, -EEXIST, -EPERM (no hard links), -EIO
 */
int vj_redo_keep(int dir_fd) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_redo_begin - an empty log with an id of its own, for which the blocks are there
 *
 * Uses the file that there is, when it is one of about @bytes; nothing in it counts any
 * more.  Durable when it returns.  -ENOSPC, -EIO, -EINVAL: @bytes is too little.
 */
int vj_redo_begin(int dir_fd, uint64_t bytes, VjRedo **out) G_GNUC_WARN_UNUSED_RESULT;
/* What vj_redo_open returned: the records are gone, or may be, and asking again is no
 * use. */
bool vj_redo_is_lost(int rc);
/* Of the log that @point names: why what vj_redo_open gave is not it.  NULL: it is. */
const char *vj_redo_why_not(const VjRedo *log, int rc, const VjRedoPoint *point);
void vj_redo_close(VjRedo *log); /* NULL is fine */
/* Then vj_redo_begin makes a new file.  0, also where there is none; -errno. */
int vj_redo_remove(int dir_fd) G_GNUC_WARN_UNUSED_RESULT;

/* Bytes of the file that a record with so many bytes of changes takes. */
static inline uint64_t vj_redo_record_bytes(uint64_t body_bytes)
{
    uint64_t bytes = sizeof(VjRedoRecord) + body_bytes;

    return (bytes + VJ_REDO_BLOCK_BYTES - 1) / VJ_REDO_BLOCK_BYTES * VJ_REDO_BLOCK_BYTES;
}

typedef struct VjRedoRun {
    uint64_t round;
    uint64_t offset; /* in its half */
    uint64_t first_seq, last_seq;
    uint32_t change_count;
    uint32_t body_bytes;
} VjRedoRun;

/* Room for a record of so many bytes, as vj_redo_record_bytes gives them, to be freed by
 * free(3); NULL: there is none. */
uint8_t *vj_redo_room_new(uint64_t record_bytes) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_redo_append - one record, durable when it returns
 *
 * @bytes    from vj_redo_room_new: room for the head, then the body; the rest is made
 *           zero
 * Threads   one at a time; blocks      Locks   none
 */
int vj_redo_append(VjRedo *log, const VjRedoRun *run,
                   uint8_t *bytes) G_GNUC_WARN_UNUSED_RESULT;

/* Adds one change to a body; @value NULL: the key is deleted. */
void vj_redo_change_encode(VjWriter *w, VjSpace space, VjSlice key, const VjSlice *value);

/* One change at a time; @value NULL: the key is deleted.  Negative ends the reading. */
typedef int VjRedoVisit(void *opaque, VjSpace space, VjSlice key, const VjSlice *value);

/* What to do with records; both may be NULL. */
typedef struct VjRedoReader {
    VjRedoVisit *change;
    int (*end)(void *opaque, const VjRedoRun *run); /* of a record */
    VjMetaFlaw *say;
    void *opaque;
} VjRedoReader;

typedef struct VjRedoFound {
    uint64_t records, bytes, last_seq;
    uint64_t flaws; /* 0, or the log is damaged: nothing behind that was visited */
    uint64_t
        torn_at; /* 0, or where the last record stands of which the head alone is there */
} VjRedoFound;

/*
 * vj_redo_read - the records that count, in their order
 *
 * A record is decoded as a whole before its first change is visited.  What the log says
 * is bounded before it is used; memory: one body.
 * Returns   0, also when there are flaws; what a function of @reader returned; -EIO,
 *           -ENOMEM
 */
int vj_redo_read(const VjRedo *log, const VjRedoPoint *from, const VjRedoReader *reader,
                 VjRedoFound *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
