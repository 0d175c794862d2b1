/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-private.h - what the repair*.c files of this room share
 *
 *     repair.c          changes, walks, bits
 *     repair-records.c  spaces record by record, counters
 *     repair-salvage.c, repair-map.c, repair-inline.c, repair-content.c
 *                       (repair-map-private.h)  maps and inline bytes
 *     repair-objects.c, repair-needs.c  objects, index, store
 */
#ifndef VJ_FSCK_REPAIR_PRIVATE_H
#define VJ_FSCK_REPAIR_PRIVATE_H

#include "file/records.h"
#include "fsck/fsck.h"
#include "map/map-format.h"
#include "meta/session.h"
#include "object/object-check.h"
#include "object/stored-form.h"

/* Damaged records of which each bit is tried; those after it are taken for lost. */
#define VJ_REPAIR_TRIES_MAX 20000u
/* Longest value whose bits are tried, bytes. */
#define VJ_REPAIR_TRY_BYTES 4200u

struct VjRepair {
    VjVolume *v;
    VjMeta *meta; /* the next four: of v, borrowed */
    VjStore *store;
    VjObjects *objects;
    const VjDigestOps *digest;
    VjCheckSay *say;
    void *opaque;
    GArray *changes;    /* Change of repair.c */
    GByteArray *got;    /* of vj_repair_get */
    GHashTable *unread; /* gint64*, owned: objects whose record the check could not use */
    /* Likewise: no record, and bytes that another build can read, or this one another
     * time. */
    GHashTable *foreign;
    int store_error; /* why bytes could not be read that may be whole; 0: they could */
    uint64_t mended;
    unsigned tries;
    VjObject lost_object; /* stands for lost ranges of maps; id 0: not there yet */
};

VjVolume *vj_repair_volume(VjRepair *r);
/* Something was mended: counted, and reported. */
void vj_repair_say(VjRepair *r, const char *format, ...) G_GNUC_PRINTF(2, 3);

/*
 * Within a visit: key changes that vj_repair_each commits in one transaction after the
 * visit returned 0.  Both are copied.
 */
void vj_repair_put(VjRepair *r, VjSpace space, VjSlice key, VjSlice value);
void vj_repair_del(VjRepair *r, VjSpace space, VjSlice key);
/* Commits them now; outside of a visit. */
int vj_repair_commit(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;

/* @key and @value are borrowed for the call.  No transaction is open: what the visit does
 * is done once, and what it reads it reads in views, which see all earlier changes. */
typedef int VjRepairVisit(VjRepair *r, VjSlice key, VjSlice value, void *opaque);

/* Each record of @space in order of keys.  0, or what @visit or the engine returned. */
int vj_repair_each(VjRepair *r, VjSpace space, VjRepairVisit *visit,
                   void *opaque) G_GNUC_WARN_UNUSED_RESULT;

/* A record of @space, in a view: *value is the repair's own until the next call.
 * -ENOENT. */
int vj_repair_get(VjRepair *r, VjSpace space, VjSlice key,
                  VjSlice *value) G_GNUC_WARN_UNUSED_RESULT;

/* The record is as it was written. */
typedef bool VjRepairIsGood(VjSlice key, VjSlice value);

/*
 * vj_repair_bit - a record with one flipped bit is put right
 *
 * @value    not good
 * Returns   true: the right value is queued (vj_repair_put), and reported; its
 *           checksum proves it.  False: more than that is wrong.
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

/* The store's own keys. */
int vj_repair_store_keys(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;

#endif
