/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fragment-private.h - fragments that become objects in the background (remap.c)
 */
#ifndef VJ_FILE_FRAGMENT_PRIVATE_H
#define VJ_FILE_FRAGMENT_PRIVATE_H

#include "file/table.h"

typedef struct VjRemapper VjRemapper;
/* Counts the fragments of earlier mounts: before the orphan purge is started, which takes
 * away from them. */
bool vj_remapper_open(VjFileTable *table, uint64_t most_bytes, VjRemapper **out,
                      GError **error);
void vj_remapper_start(VjRemapper *x);
/* In this order; NULL is fine.  Between the two it only counts. */
void vj_remapper_stop(VjRemapper *x);
void vj_remapper_free(VjRemapper *x);
/* True: @count more of @ino may be made; vj_remapper_made follows.  Any thread; no
 * I/O. */
bool vj_remapper_reserve(VjRemapper *x, uint64_t ino, uint32_t count);
/* After a commit or none: what was reserved is given back, @made and @dropped are
 * counted. */
void vj_remapper_made(VjRemapper *x, uint64_t ino, uint32_t reserved, uint32_t made,
                      uint32_t dropped);
/* As vj_file_table_limit_fragments. */
void vj_remapper_limit(VjRemapper *x, const VjRemapLimits *limits);
/* As counted: of @ino, and of all. */
uint32_t vj_remapper_count(VjRemapper *x, uint64_t ino, uint32_t *all);

/* One step of making fragments into objects: content, size and times stay what they
 * are. */
typedef struct VjRemap {
    uint64_t offset;     /* in: 0 at first; out: where the next step goes on */
    uint64_t most_bytes; /* in: of objects, about */
    bool done;           /* out: nothing is left behind the offset */
    uint32_t found;      /* out: fragments that became objects */
} VjRemap;
/* -EROFS, -ENOSPC, -ENOENT the inode is gone or has no name; -EBADMSG; -EIO, -ENOMEM. */
int vj_file_remap(VjFile *f, VjRemap *step) G_GNUC_WARN_UNUSED_RESULT;

#endif
