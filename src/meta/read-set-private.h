/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * read-set-private.h - what one transaction of a shared session has read
 *
 * Each key with the version that it had, each key once.  A commit has them checked by the
 * engine; where the engine has no snapshots, they also say whether all of it is of one
 * state, and a key that is read again is the one that was read before.
 *
 * Threads: that of the transaction.  Locks: none.
 */
#ifndef VJ_META_READ_SET_PRIVATE_H
#define VJ_META_READ_SET_PRIVATE_H

#include "meta/engine.h"

/* Memory of one; a transaction that reads more fails with -ENOMEM. */
#define VJ_READ_SET_BYTES_MAX ((uint64_t)64 << 20)

typedef struct VjRead {
    VjKey key;
    VjSlice value; /* borrowed from what it was read of; empty: not read again */
    uint64_t version;
} VjRead;

typedef struct VjReadSet {
    GHashTable *reads; /* of VjRead, in blocks */
    GArray *ranges;    /* of Range: between their ends nothing else was there */
    GPtrArray *blocks; /* of memory; owned */
    uint8_t *at;       /* in the last block */
    size_t left;
    uint64_t bytes;
    /* Calls of the engine and items of the cache from which it comes. */
    unsigned sources;
    /* Of an item cache: up to this report all of it is one state. */
    uint64_t checked_report;
} VjReadSet;

VjReadSet *vj_read_set_new(void);
void vj_read_set_free(VjReadSet *r); /* NULL is fine */
void vj_read_set_clear(VjReadSet *r);
/* NULL: it was not read. */
const VjRead *vj_read_set_find(const VjReadSet *r, VjSpace space, VjSlice key);
/*
 * @item was read.  Its key is copied unless @key_stays as long as the transaction; its
 * value is borrowed.  0; -ENOMEM; -EAGAIN: it had another version when it was read first.
 */
int vj_read_set_add(VjReadSet *r, const VjItem *item,
                    bool key_stays) G_GNUC_WARN_UNUSED_RESULT;
/* From @from to the key @to, which is the next one; @to empty: the space ends.  0;
 * -ENOMEM. */
int vj_read_set_add_range(VjReadSet *r, VjSpace space, VjSlice from, VjSlice to,
                          bool forward) G_GNUC_WARN_UNUSED_RESULT;
/* A change of @key changes what was read. */
bool vj_read_set_has(const VjReadSet *r, const VjKey *key);
/* One for each read, and room for @more behind them; *count is of the reads.  Owned.
 * NULL: no memory. */
VjCheck *vj_read_set_checks(const VjReadSet *r, size_t more, size_t *count);

#endif
