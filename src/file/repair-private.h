/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-private.h - what the repair*.c files of this room share
 *
 *     repair.c          changes, walks, bits
 *     repair-records.c  spaces record by record, counters
 *     repair-salvage.c, repair-map.c, repair-content.c (repair-map.h)  maps and inline bytes
 *     repair-objects.c  objects, index, store
 */
#ifndef VJ_FILE_REPAIR_PRIVATE_H
#define VJ_FILE_REPAIR_PRIVATE_H

#include "file/repair.h"
#include "file/volume-private.h"
#include "map/map-format.h"
#include "object/object-check.h"
#include "object/stored-form.h"

struct VjRepair {
    VjVolume *v;
    VjCheckSay *say;
    void *opaque;
    GArray *changes;    /* Change of repair.c */
    GHashTable *unread; /* gint64*, owned: objects whose record the check could not use */
    /* Likewise: no record, and bytes that another build can read, or this one another time. */
    GHashTable *foreign;
    int store_error; /* why bytes could not be read that may be whole; 0: they could */
    uint64_t mended;
    unsigned tries;
    VjObject lost_object; /* stands for lost ranges of maps; id 0: not there yet */
};

/* What the entries of all maps say of one object. */
typedef struct VjNeed {
    gint64 id;
    uint64_t entries;
    uint64_t end; /* behind the last byte that any of them uses */
} VjNeed;

/*
 * vj_repair_needs - walk all maps: id → VjNeed (owned table, keys in the values)
 *
 * Counts the entries of every leaf that can be read, also of those that no tree leads to.
 * @whole    there was no other: then an object without entries is not needed
 * Memory: one VjNeed for each object.
 */
int vj_repair_needs(VjRepair *r, GHashTable **needs,
                    bool *whole) G_GNUC_WARN_UNUSED_RESULT;

/* The record of @id is usable now: its bytes are still to be verified. */
void vj_repair_note_unread(VjRepair *r, uint64_t id);

/* The counter is above each number that a record has. */
int vj_repair_next_ino(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;

/* Each object that a map names has a usable record afterwards. */
int vj_repair_object_records(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_repair_lost_object - an object that has VJ_OBJECT_PLAIN_MAX bytes, none readable
 *
 * Map entries name it where content is lost: reading them fails.  It is there for good
 * (durable) when this returns, with one reference that is counted anew later.
 */
int vj_repair_lost_object(VjRepair *r, VjObject *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
