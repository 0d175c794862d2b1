/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fsck.h - check and repair of a volume: the face of the room fsck
 *
 * The volume was opened with check, and no other process uses it.
 *
 * A repair walks spaces of a volume that no other process uses (opened with check and
 * repair).  Each thing that is mended is one ordinary transaction, and each leaves the
 * volume no worse than it was: it may be cut off anywhere and run again.
 *
 * Rules: nothing is deleted whose content can be kept; content that is lost is never
 * replaced (reading it fails); a record with a right checksum that this version does not
 * understand is left alone.
 *
 * Threads: one.  Locks: none.
 */
#ifndef VJ_FSCK_FSCK_H
#define VJ_FSCK_FSCK_H

#include "base/check.h"
#include "volume/volume.h"

/* ---- check ------------------------------------------------------------------------- */

/*
 * vj_fsck_contents - verify every invariant of records, maps, references, index and store
 *
 * @read_data   also read every object and compare checksums and digests
 * The volume was opened with check = true.  0 even with problems; -EIO when it cannot
 * run.
 */
int vj_fsck_contents(VjVolume *v, bool read_data, VjCheckSay *say, void *opaque,
                     VjCheckReport *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_fsck_names - verify every name, link count and attribute of a volume
 *
 * Adds to names and problems of @out.  The volume is open and at rest: no thread, also
 * none of its own, changes anything meanwhile.  Blocks.
 */
int vj_fsck_names(VjVolume *volume, VjCheckSay *say, void *opaque,
                  VjCheckReport *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- repair ------------------------------------------------------------------------ */

typedef struct VjRepair VjRepair;

/* @say gets a line for each thing that was mended; it begins as those of the check do. */
VjRepair *vj_repair_new(VjVolume *v, VjCheckSay *say, void *opaque);
void vj_repair_free(VjRepair *r);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjRepair, vj_repair_free)

/* How much was mended so far. */
uint64_t vj_repair_count(const VjRepair *r);

/*
 * vj_repair_records, _contents, _objects - the steps of vj_repair_all, in this order
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

/*
 * vj_repair_all - put right what vj_fsck_contents and vj_fsck_names found
 *
 * Everything but the store's unreferenced puts (vj_repair_store).  What could not be put
 * right, the next check finds.  0, or what kept it from going on.
 */
int vj_repair_all(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;

#endif
