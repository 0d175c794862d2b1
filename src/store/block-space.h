/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * block-space.h - which blocks of the driver block are free
 *
 * Objects are put one behind the other, into zones that have been emptied or not used yet
 * as long as there are any: so what is written together lies together, and zones become
 * free as a whole.  A zone that has lost most of what was in it is filled again first.
 *
 * A bit of memory for each block of a zone in which something is.  Threads: one at a
 * time.
 */
#ifndef VJ_STORE_BLOCK_SPACE_H
#define VJ_STORE_BLOCK_SPACE_H

#include "store/block-format.h"

typedef struct VjBlockZone {
    uint64_t *used;   /* a bit each; NULL: all are free */
    uint32_t count;   /* of blocks: the last zone may have fewer */
    uint32_t free;    /* of these */
    uint32_t longest; /* no run of free ones is longer */
    uint32_t room; /* its first ones, that are taken; all unless VjBlockSpace.is_short */
    /* Something is, or was, in it since it was given back to what is below. */
    bool has_space;
    bool is_leaving; /* is being given back, and not to be used */
} VjBlockZone;

typedef struct VjBlockSpace {
    GArray *zones;        /* of VjBlockZone */
    uint64_t block_count; /* of all zones */
    uint64_t most_blocks; /* up to which zones are added; block_count: none is */
    uint64_t used_count;
    uint32_t zone;           /* where the search goes on, */
    uint32_t in_zone;        /* from this block */
    uint32_t emptied;        /* zones that are empty and have space below; */
    uint32_t leaving;        /* of these, being given back */
    uint64_t unbacked_count; /* how often space below was begun to be used */
    bool is_short;           /* only what is known to have space below is taken */
} VjBlockSpace;

/* @block_count, of which VJ_BLOCK_HEAD_BLOCKS are used. */
void vj_block_space_init(VjBlockSpace *s, uint64_t block_count, uint64_t most_blocks);
void vj_block_space_clear(VjBlockSpace *s);
/* It becomes larger: as vj_block_space_init. */
void vj_block_space_grow(VjBlockSpace *s, uint64_t block_count, uint64_t most_blocks);

/* @count blocks that follow one another.  *unbacked: so many from there on have had no
 * space below until now; 0: they have.  False: there are none. */
bool vj_block_space_take(VjBlockSpace *s, uint64_t count, uint64_t *first,
                         uint64_t *unbacked);
void vj_block_space_give(VjBlockSpace *s, uint64_t first, uint64_t count);
/* There was no space below for what was taken at @first: it and what is behind it in its
 * zone is not taken, nor is a zone begun, until vj_block_space_try_all. */
void vj_block_space_short(VjBlockSpace *s, uint64_t first);
void vj_block_space_try_all(VjBlockSpace *s);
/* These are used; what is behind block_count is added.  False: some were already. */
bool vj_block_space_mark(VjBlockSpace *s, uint64_t first, uint64_t count);

/* Nothing is in zone @number, or there is none yet. */
bool vj_block_space_is_empty(const VjBlockSpace *s, uint64_t number);
/* A zone that is empty and has space below is not used until vj_block_space_left.
 * @first, @count: its blocks.  False: there is none. */
bool vj_block_space_leave(VjBlockSpace *s, uint32_t *zone, uint64_t *first,
                          uint64_t *count);
/* @is_gone: it has no space below any more. */
void vj_block_space_left(VjBlockSpace *s, uint32_t zone, bool is_gone);

#endif
