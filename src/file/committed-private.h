/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * committed-private.h - what is committed of open files, kept by map version
 *
 * A VjCommitted is the record, map entries and object records of one file as one commit
 * left them.  It is filled by readers as they go, in runs of neighbouring entries; the
 * runs of all files of a table share a budget, and the one that was used longest ago goes
 * first.  A file has one (VjFile.committed), and drops it when a commit of its content
 * begins.
 *
 * A reader without a transaction takes the VjCommitted of a file under the file's lock,
 * inside of a guard that it entered before: no commit that could let go of its objects
 * had begun then.
 *
 * Threads: any.  Locks: VJ_RANK_FILE_COMMITTED inside.
 */
#ifndef VJ_FILE_COMMITTED_PRIVATE_H
#define VJ_FILE_COMMITTED_PRIVATE_H

#include "file/file.h"

/* Entries that are kept together: what one load brings at most. */
#define VJ_COMMITTED_RUN 24u

/* Of a table. */
typedef struct VjCommittedBudget {
    uint64_t limit_bytes; /* never changes */
    VjMutex lock;         /* VJ_RANK_FILE_COMMITTED */
    /* guarded by lock: */
    GQueue used; /* runs, the last one used first; and the runs of each VjCommitted */
    uint64_t bytes;
} VjCommittedBudget;

typedef struct VjCommitted VjCommitted;
typedef struct VjCommittedRun VjCommittedRun;

void vj_committed_budget_init(VjCommittedBudget *b, uint64_t limit_bytes);
void vj_committed_budget_clear(VjCommittedBudget *b);

/* @inode: the record; its content part alone is used.  Owned. */
VjCommitted *vj_committed_new(VjCommittedBudget *budget, const VjInode *inode);
VjCommitted *vj_committed_ref(VjCommitted *c);
void vj_committed_unref(VjCommitted *c); /* NULL is fine */
const VjInode *vj_committed_inode(const VjCommitted *c);

/* A place in the map: an entry of a run, which is referenced. */
typedef struct VjCommittedAt {
    VjCommittedRun *run; /* NULL: none */
    unsigned index;
} VjCommittedAt;

void vj_committed_at_clear(VjCommittedAt *a);
const VjEntry *vj_committed_entry(const VjCommittedAt *a, uint64_t *at);
/* To the entry behind it; false: another run has it. */
bool vj_committed_next(VjCommittedAt *a);

/* The entry that holds @offset; false: it is not kept. */
bool vj_committed_find(VjCommitted *c, uint64_t offset, VjCommittedAt *out);
/* The same, read with @cursor in @txn, whose snapshot has the version of @c.  -ENOENT:
 * @offset is behind the end; -EBADMSG, errors of meta. */
int vj_committed_load(VjCommitted *c, VjTxn *txn, VjMapCursor *cursor, uint64_t offset,
                      VjCommittedAt *out) G_GNUC_WARN_UNUSED_RESULT;
/* The record of the entry's object.  @txn: of a snapshot as above; NULL: -EAGAIN where it
 * is not kept. */
int vj_committed_object(const VjCommittedAt *a, VjTxn *txn,
                        VjObject *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
