/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * scrub-format.h - how far a scrub has come, and what the last complete one found
 *
 * VJ_SPACE_SYSTEM, key VJ_SCRUB_KEY.  Little-endian; the last byte of the magic is the
 * version.  A volume without the record was never scrubbed.  Programs that do not know it
 * leave it alone.
 */
#ifndef VJ_VOLUME_SCRUB_FORMAT_H
#define VJ_VOLUME_SCRUB_FORMAT_H

#include "volume/volume.h"

#define VJ_SCRUB_KEY "scrub"
#define VJ_SCRUB_MAGIC 0x31435356u /* "VSC1" */

/* One pass over all objects. */
typedef struct VjScrubPassDisk {
    uint64_t begun_s; /* seconds since 1970 */
    uint64_t objects; /* that were read */
    uint64_t bytes;   /* stored bytes of them */
    uint64_t damaged; /* objects, and records of objects */
} VjScrubPassDisk;

typedef struct VjScrubDisk {
    uint32_t magic;
    uint32_t reserved; /* 0 */
    uint64_t
        place; /* of the pass under way: the last object looked at; 0: there is none */
    VjScrubPassDisk pass; /* under way; zeroes when there is none */
    uint64_t finished_s;  /* when the last complete pass ended; 0: there was none */
    VjScrubPassDisk last; /* the last complete one; zeroes when there was none */
    uint64_t checksum;    /* vj_checksum64 of the bytes before */
} VjScrubDisk;

G_STATIC_ASSERT(sizeof(VjScrubDisk) == 96);
G_STATIC_ASSERT(offsetof(VjScrubDisk, pass) == 16);
G_STATIC_ASSERT(offsetof(VjScrubDisk, last) == 56);
G_STATIC_ASSERT(offsetof(VjScrubDisk, checksum) == 88);

void vj_scrub_encode(const VjScrubStatus *status, VjScrubDisk *out);
/* -EBADMSG: no such record. */
int vj_scrub_decode(VjSlice value, VjScrubStatus *out) G_GNUC_WARN_UNUSED_RESULT;
/* The record; zeroes when there is none.  -EBADMSG: it is damaged; errors of meta. */
int vj_scrub_get(VjTxn *txn, VjScrubStatus *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_scrub_note - one step was done: the place moves on
 *
 * @from     where the step began; 0 begins a pass.  Another place than that of the
 *           record: the step belongs to a pass that another one has overtaken, and
 *           nothing is noted
 * @to       where the next step begins; UINT64_MAX: the pass is complete, and that is
 *           durable when this returns
 * @step     its figures
 * Returns   0; errors of meta
 */
int vj_scrub_note(VjMeta *m, uint64_t from, uint64_t to,
                  const VjScrubPass *step) G_GNUC_WARN_UNUSED_RESULT;

#endif
