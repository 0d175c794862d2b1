/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * slab-private.h - mappings out of which blocks of a stream are taken
 *
 * Blocks stand close together in a mapping, so that huge pages can hold them: 512 pages
 * that are touched first one by one cost as much as what is read into them.  A block that
 * is given back has no pages.
 *
 * Threads: one at a time for each slab, but for vj_slab_drop_pages.  Locks: none.
 */
#ifndef VJ_FILE_SLAB_PRIVATE_H
#define VJ_FILE_SLAB_PRIVATE_H

#include "base/base.h"

/* Blocks of a slab. */
#define VJ_SLAB_BLOCKS 16u
/* The one size of memory that is kept: the largest write, and the buffer of a stream;
 * bytes. */
#define VJ_BUDGET_BLOCK ((size_t)1 << 20)
/* What is allocated for it: a request's head stands in the page before (front). */
#define VJ_BUDGET_BLOCK_ALLOCATED (VJ_BUDGET_BLOCK + 4096)

typedef struct VjSlab VjSlab;

/* Returns owned, all of it free; NULL: no memory.  @huge: of huge pages where the kernel
 * has them, for blocks that are filled; one that is touched at its start alone has all of
 * its pages then. */
VjSlab *vj_slab_new(bool huge);
/* All of it is free. */
void vj_slab_free(VjSlab *s);
/* The lowest free block, at a page boundary; NULL: there is none. */
void *vj_slab_take(VjSlab *s);
bool vj_slab_has(const VjSlab *s, const void *block);
/* @block's pages are gone, or were never touched.  True: all of @s is free now. */
bool vj_slab_give(VjSlab *s, void *block);
/* Gives the pages of a block that is taken to the system.  Threads: any. */
void vj_slab_drop_pages(void *block);

#endif
