/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * space-private.h - space for what was accepted (space.c)
 */
#ifndef VJ_FILE_SPACE_PRIVATE_H
#define VJ_FILE_SPACE_PRIVATE_H

#include "file/file.h"

/* Kept free of objects for a store's own directories and for checkpoints. */
#define VJ_SPACE_OBJECTS_MARGIN 64u
/* Every object takes as much at least, beside its content: the rest of its last block,
 * metadata. */
#define VJ_SPACE_OBJECT_OVERHEAD 5120u

typedef struct VjSpaceKeeper {
    VjObjects *objects;
    VjMutex lock;
    /* guarded by lock: */
    /* as measured last, less where objects run out before bytes */
    uint64_t available_bytes;
    /* for n objects never less than n * VJ_SPACE_OBJECT_OVERHEAD */
    uint64_t reserved_bytes;
} VjSpaceKeeper;

int vj_space_init(VjSpaceKeeper *k, VjObjects *objects) G_GNUC_WARN_UNUSED_RESULT;
void vj_space_clear(VjSpaceKeeper *k);
/* Compares and adds; no I/O, so a file's lock may be held.  -ENOSPC. */
int vj_space_try(VjSpaceKeeper *k, uint64_t bytes) G_GNUC_WARN_UNUSED_RESULT;
/* Measures the store again, then gives @bytes back.  Blocks. */
void vj_space_release_measured(VjSpaceKeeper *k, uint64_t bytes);
/* Gives back without measuring: what was never put. */
void vj_space_release(VjSpaceKeeper *k, uint64_t bytes);
uint64_t vj_space_reserved(VjSpaceKeeper *k);
/* As measured last, less what is promised. */
uint64_t vj_space_available(VjSpaceKeeper *k);

#endif
