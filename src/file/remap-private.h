/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remap-private.h - which inodes have fragments, and how many
 *
 * fragment-use.c counts them; remap.c makes objects of them.
 */
#ifndef VJ_FILE_REMAP_PRIVATE_H
#define VJ_FILE_REMAP_PRIVATE_H

#include "file/file-private.h"

/* Of one inode that has fragments. */
typedef struct VjFragmentUse {
    uint64_t ino;
    uint32_t count;
    uint32_t reserved;
    uint64_t offset; /* where the next step goes on */
    uint64_t change; /* x->changes of its last change */
    int64_t due_us;
    GList *link; /* in due */
    bool urgent; /* has more than half of what a file may have */
    bool busy;   /* the thread has it */
    /* The inode was not there when the thread looked (the orphan purge has it, or a
     * program that has it open), or another session had it. */
    bool gone;
} VjFragmentUse;

struct VjRemapper {
    VjFileTable *table;
    GThread *thread;
    VjMutex lock; /* VJ_RANK_FILE_QUEUE */
    VjCond wake;
    /* guarded by lock: */
    GHashTable *uses; /* uint64_t* in VjFragmentUse → VjFragmentUse, owned */
    GQueue due;       /* VjFragmentUse: the urgent first, then rising by due_us */
    uint32_t count, reserved;
    VjRemapLimits limits;
    uint32_t most; /* that there may be now: space may be short */
    uint64_t changes;
    uint64_t looks;   /* of the thread at what is due, from the beginning */
    int64_t wakes_us; /* when it looks again by itself; INT64_MIN: it rests or works */
    bool stop;
};

/* All under x->lock.  The inode's, which is made where it is missing. */
VjFragmentUse *vj_fragment_use_locked(VjRemapper *x, uint64_t ino);
void vj_fragment_use_unqueue_locked(VjRemapper *x, VjFragmentUse *u);
/* It is the thread's turn at @due_us. */
void vj_fragment_use_queue_locked(VjRemapper *x, VjFragmentUse *u, int64_t due_us);
/* Forgets an inode that has no fragments. */
void vj_fragment_use_release_locked(VjRemapper *x, VjFragmentUse *u);

#endif
