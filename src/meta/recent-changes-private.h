/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * recent-changes-private.h - which keys were changed lately
 *
 * A ring of the last keys whose changes were reported to a session, numbered from 1 on.
 * A reader that took the last number before it read something finds out which changes
 * were reported since.
 *
 * Threads, locks: those of the structure that it is part of.
 */
#ifndef VJ_META_RECENT_CHANGES_PRIVATE_H
#define VJ_META_RECENT_CHANGES_PRIVATE_H

#include "meta/engine.h"

/* So many keys are remembered. */
#define VJ_RECENT_CHANGES_MAX 1024u

typedef struct VjRecentChange {
    VjKey key;
    uint8_t *bytes; /* of key; owned */
    bool own;       /* changed by the session itself */
} VjRecentChange;

typedef struct VjRecentChanges {
    VjRecentChange ring[VJ_RECENT_CHANGES_MAX];
    uint64_t count; /* the last number; read by others atomically */
    uint64_t floor; /* nothing is known of what came up to this number */
} VjRecentChanges;

/* @key NULL: any may have been changed. */
void vj_recent_add(VjRecentChanges *t, const VjKey *key, bool own);
void vj_recent_clear(VjRecentChanges *t);

/* False: what came since @number is not remembered. */
static inline bool vj_recent_covers(const VjRecentChanges *t, uint64_t number)
{
    return number >= t->floor && t->count - number <= VJ_RECENT_CHANGES_MAX;
}

/* @number is among those that are remembered. */
static inline const VjRecentChange *vj_recent_at(const VjRecentChanges *t,
                                                 uint64_t number)
{
    return &t->ring[number % VJ_RECENT_CHANGES_MAX];
}

static inline bool vj_key_is(const VjKey *a, VjSpace space, VjSlice key)
{
    return a->space == space && vj_slice_compare(a->key, key) == 0;
}

#endif
