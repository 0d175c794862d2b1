/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * item-cache-private.h - what a session has read from an engine that is far away
 *
 * Keys with their values, keys that are known not to be there, and between which of them
 * the engine has nothing: so a key, a key that is missing and the next key of a scan are
 * each found without a round trip.
 *
 * Of an exclusive session, the engine's only writer: what is kept is true until the
 * session itself changes it, by apply().  What that changes is entered when it has
 * succeeded.  An answer of the engine that was asked for before that may be older, and is
 * not taken any more: each carries the ticket of the time when it was asked for.
 *
 * Of a shared session: what is kept is true until the engine reports a change, or for a
 * time.  An answer is taken but for the keys of which a change was reported since its
 * ticket, and so is what the session itself commits.
 *
 * Threads: any.  Locks: VJ_RANK_META_ENGINE inside; no call waits.
 */
#ifndef VJ_META_ITEM_CACHE_PRIVATE_H
#define VJ_META_ITEM_CACHE_PRIVATE_H

#include "meta/engine.h"
#include "meta/recent-changes-private.h"

typedef struct VjItemCache VjItemCache;

/* @limit_bytes: of memory; what was used longest ago goes first. */
VjItemCache *vj_item_cache_new(uint64_t limit_bytes, bool shared);
/* Of a shared session: no change is reported, and what is kept is good for @us; 0:
 * until one is.  Setup only. */
void vj_item_cache_set_good(VjItemCache *c, int64_t us);
void vj_item_cache_free(VjItemCache *c); /* NULL is fine */

/*
 * The item of @key, or the one next to @from in that direction (empty: the first, the
 * last), appended to @out, which owns it; of an exclusive session its version says
 * nothing but that it is there.  0; -ENOENT there is none; -EAGAIN not known; -ENOMEM.
 */
int vj_item_cache_get(VjItemCache *c, VjKey key, VjItems *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_item_cache_near(VjItemCache *c, VjSpace space, VjSlice from, bool forward,
                       VjItems *out) G_GNUC_WARN_UNUSED_RESULT;
/* Get would not return -EAGAIN. */
bool vj_item_cache_knows(VjItemCache *c, VjKey key);
/* Nor would near, forward. */
bool vj_item_cache_knows_next(VjItemCache *c, VjSpace space, VjSlice from);

/* Before the engine is asked. */
uint64_t vj_item_cache_ticket(VjItemCache *c);
/* What get_many answered to @keys. */
void vj_item_cache_add(VjItemCache *c, uint64_t ticket, const VjKey *keys,
                       const VjItem *items, size_t count);
/* What scan answered to @range, which has no end of its own. */
void vj_item_cache_add_run(VjItemCache *c, uint64_t ticket, const VjRange *range,
                           const VjItem *items, size_t count, bool more);
/* The engine has applied @batch: of an exclusive session. */
void vj_item_cache_apply(VjItemCache *c, const VjBatch *batch);

/* Of a shared one: what @batch put has @version, and the ticket is of before it. */
void vj_item_cache_commit(VjItemCache *c, uint64_t ticket, const VjBatch *batch,
                          uint64_t version);
/* @key was changed; NULL: any may have been. */
void vj_item_cache_report(VjItemCache *c, const VjKey *key, bool own);
/* The number of the last report.  Takes no lock. */
uint64_t vj_item_cache_last_report(VjItemCache *c);

/* True: no more is to be visited. */
typedef bool VjReportVisit(void *opaque, const VjKey *key);
/*
 * @visit for each key that was reported since *@number, which becomes the last one.  0,
 * also when @visit wanted no more; -EAGAIN: some are not remembered.  @visit runs with
 * the cache's lock held.
 */
int vj_item_cache_each_reported(VjItemCache *c, uint64_t *number, VjReportVisit *visit,
                                void *opaque) G_GNUC_WARN_UNUSED_RESULT;

#endif
