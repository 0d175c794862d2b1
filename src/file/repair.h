/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair.h - what fsck -y does to records, shared by the rooms file and fs
 *
 * A repair walks spaces of a volume that nobody else uses (opened with check and repair).
 * Each thing that is mended is one ordinary transaction, and each leaves the volume no
 * worse than it was: it may be cut off anywhere and run again.
 *
 * Rules: nothing is deleted whose content can be kept; content that is lost is never
 * replaced (reading it fails); a record with a right checksum that this version does not
 * understand is left alone.
 *
 * Threads: one.  Locks: none.
 */
#ifndef VJ_FILE_REPAIR_H
#define VJ_FILE_REPAIR_H

#include "file/file.h"

/* Damaged records of which each bit is tried; those after it are taken for lost. */
#define VJ_REPAIR_TRIES_MAX 20000u
/* Longest value whose bits are tried, bytes. */
#define VJ_REPAIR_TRY_BYTES 4200u

typedef struct VjRepair VjRepair;

/* @say gets a line for each thing that was mended; it begins as those of the check do. */
VjRepair *vj_repair_new(VjVolume *v, VjCheckSay *say, void *opaque);
void vj_repair_free(VjRepair *r);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjRepair, vj_repair_free)

VjVolume *vj_repair_volume(VjRepair *r);
/* How much was mended so that the volume could be opened. */
uint64_t vj_repair_at_open(const VjVolume *v);
/* How much was mended so far. */
uint64_t vj_repair_count(const VjRepair *r);

/* Something was mended: counted, and told. */
void vj_repair_say(VjRepair *r, const char *format, ...) G_GNUC_PRINTF(2, 3);

/*
 * Within a visit: key changes that vj_repair_each commits in one transaction after the
 * visit returned 0.  Both are copied.
 */
void vj_repair_put(VjRepair *r, VjSpace space, VjSlice key, VjSlice value);
void vj_repair_del(VjRepair *r, VjSpace space, VjSlice key);
/* Commits them now; outside of a visit. */
int vj_repair_commit(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;

/* @key and @value are borrowed for the call; @txn is a snapshot with all earlier changes. */
typedef int VjRepairVisit(VjRepair *r, VjTxn *txn, VjSlice key, VjSlice value,
                          void *opaque);

/* Each record of @space in order of keys.  0, or what @visit or the engine returned. */
int vj_repair_each(VjRepair *r, VjSpace space, VjRepairVisit *visit,
                   void *opaque) G_GNUC_WARN_UNUSED_RESULT;

/* The record is as it was written. */
typedef bool VjRepairIsGood(VjSlice key, VjSlice value);

/*
 * vj_repair_bit - a record with one flipped bit is put right
 *
 * @value    not good
 * Returns   true: the right value is queued (vj_repair_put), and told; its checksum proves
 *           it.  False: more than that is wrong.
 */
bool vj_repair_bit(VjRepair *r, VjSpace space, VjSlice key, VjSlice value,
                   VjRepairIsGood *is_good, const char *what);

/* The checksum at the end of the value is right: what is wrong with it is no damage. */
bool vj_repair_is_sealed(VjSlice value);

/*
 * vj_repair_content - what is left of the content of @ino, whose record is lost
 *
 * Sets the content part of @inode from map nodes or inline bytes.  False: there is none.
 */
int vj_repair_content(VjTxn *txn, uint64_t ino, VjInode *inode,
                      bool *found) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_repair_records, _contents, _objects - the steps of the room file, in this order
 *
 * records: bits, counters, keys that cannot be.  Then fs sees to names and lost inodes.
 * contents: maps and inline bytes; what cannot be reached any more is kept as an inode
 * without a name.  objects: references, index, and what the last check on the same open
 * volume found of bytes.
 */
int vj_repair_records(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;
int vj_repair_contents(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;
int vj_repair_objects(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;
/* Last, when all else is sound: bytes in the store that no record names go. */
int vj_repair_store(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;

#endif
