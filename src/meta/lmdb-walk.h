/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-walk.h - reading an LMDB file without believing it
 */
#ifndef VJ_META_LMDB_WALK_H
#define VJ_META_LMDB_WALK_H

#include "meta/lmdb-page-format.h"
#include "meta/meta-private.h"

/* Trees with names in a file; more of them are a flaw. */
#define VJ_LMDB_TREES_MAX 64u
/* Flaws that are listed one by one. */
#define VJ_LMDB_FLAWS_LISTED 50u

typedef struct VjLmdbWalk {
    VjLmdbMetaRecord meta; /* the one that was followed */
    uint32_t page_bytes;
    uint64_t end_page;   /* behind the last page in use */
    uint64_t used_pages; /* meta pages included */
    uint64_t free_pages; /* that the file says are free */
    uint64_t lost_pages; /* neither */
    uint64_t entries;    /* keys of all trees, those of the free pages apart */
    uint64_t flaws;
    uint8_t *used; /* a bit for each page below end_page; owned */
} VjLmdbWalk;

/* Whether to go on, asked before each page.  0, or what the walk returns then. */
typedef int VjLmdbWalkAsk(void *opaque);

/*
 * vj_lmdb_walk - follow every page that a commit refers to, and compare what is there
 *
 * Reads with pread(2), trusts no number, follows no page twice; needs memory for two bits
 * a page and a page a level.
 * @commit    which one; UINT64_MAX: the last
 * @say       is called for each flaw, up to VJ_LMDB_FLAWS_LISTED; NULL: flaws are only
 *            counted
 * @ask       NULL: it goes on to the end
 * Returns    0, also when there are flaws; -EIO the device; -ENOMEM; -ESTALE the file has
 *            no meta record of @commit (any more); what @ask said
 * Threads    any; beside an LMDB that writes, while a reader of @commit pins it
 */
int vj_lmdb_walk(int fd, uint64_t commit, VjMetaFlaw *say, VjLmdbWalkAsk *ask,
                 void *opaque, VjLmdbWalk *out) G_GNUC_WARN_UNUSED_RESULT;
void vj_lmdb_walk_clear(VjLmdbWalk *w);

/* Bit @page of @bits. */
static inline bool vj_lmdb_bit(const uint8_t *bits, uint64_t page)
{
    return (bits[page / 8] >> (page % 8) & 1) != 0;
}

#endif
