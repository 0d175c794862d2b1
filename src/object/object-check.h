/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-check.h - what checking, repair, gc and scrub ask of objects beside the face
 *
 * Threads: any, unless a function says otherwise.  Locks: none.
 */
#ifndef VJ_OBJECT_OBJECT_CHECK_H
#define VJ_OBJECT_OBJECT_CHECK_H

#include "codec/codec.h"
#include "object/object-format.h"

/* A record names the bytes of @put, or may: a damaged one.  Errors of meta. */
int vj_object_put_is_named(VjObjects *o, VjTxn *txn, const VjPut *put,
                           bool *is_named) G_GNUC_WARN_UNUSED_RESULT;
/* Keeps in @puts (VjPut, of the store) what no record names, by a snapshot that is
 * younger than the listing.  What may still be committed is the caller's to leave out,
 * before.  Errors of meta. */
int vj_objects_keep_unnamed(VjObjects *o, GArray *puts) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_objects_keep_garbage - keeps in @puts, besides, what no session will name
 *
 * Beside writers: what is on its way to a commit lies in an open id block of a session
 * that lives.  @puts were listed before the call; what is in no such block any more has
 * its record by now, or never will.
 * Returns   0; -EBADMSG an id block is damaged, and what it covers is not known; errors
 *           of meta
 */
int vj_objects_keep_garbage(VjObjects *o, GArray *puts) G_GNUC_WARN_UNUSED_RESULT;
/* From the store: all of it, each block verified; the cache is not asked and not
 * filled. */
int vj_object_load(VjObjects *o, const VjObject *object,
                   VjBuf **plain) G_GNUC_WARN_UNUSED_RESULT;
/* The same; where a replica is damaged, by way of the others. */
int vj_object_load_any(VjObjects *o, const VjObject *object,
                       VjBuf **plain) G_GNUC_WARN_UNUSED_RESULT;
/* *out: @object as if node @index alone had it.  False: the store has no such node. */
bool vj_object_at(VjObjects *o, const VjObject *object, unsigned index, VjObject *out);
/* A read of @object failed with @rc: true, it is worth another try, as its store had a
 * good replica of it. */
bool vj_object_mend(VjObjects *o, const VjObject *object, int rc);

/* Equal content shall be put afresh: out of the index, marked damaged.  Its own
 * commit. */
int vj_object_condemn(VjObjects *o, const VjIndexKey *key,
                      uint64_t id) G_GNUC_WARN_UNUSED_RESULT;
/* Puts what the store stages for these into @txn. */
int vj_object_stage(VjObjects *o, VjTxn *txn, const VjPut *added, size_t added_count,
                    const VjPut *removed, size_t removed_count) G_GNUC_WARN_UNUSED_RESULT;

/* The store's keys that are damaged are made right, or deleted, in a commit of its
 * own. */
int vj_object_mend_store_keys(VjObjects *o,
                              VjStoreBadKeys *out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_object_remove_unnamed - bytes that no record names, or will name
 *
 * From the store, and what the driver keeps of them in its own keys by a commit of its
 * own.
 * Returns   0, also when they are gone; errors of the store and of meta: try again later
 * Threads   any; blocks      Locks   none
 */
int vj_object_remove_unnamed(VjObjects *o, const VjPut *put) G_GNUC_WARN_UNUSED_RESULT;

static inline VjPut vj_object_as_put(const VjObject *object)
{
    return (VjPut){
        .id = object->id, .loc = object->loc, .stored_bytes = object->stored_bytes};
}

#endif
