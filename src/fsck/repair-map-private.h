/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-map-private.h - what the files that repair the content of inodes share
 *
 *     repair-salvage.c  reading: what can be reached of a damaged map, and what leads
 *                       nowhere
 *     repair-map.c      the map of one inode is made anew, what is left of it goes
 *     repair-inline.c   inline bytes
 *     repair-content.c  values, content without an inode; each inode in turn
 */
#ifndef VJ_FSCK_REPAIR_MAP_PRIVATE_H
#define VJ_FSCK_REPAIR_MAP_PRIVATE_H

#include "fsck/repair-private.h"

/* Stands for a lost range in a list of entries. */
#define VJ_SALVAGE_LOST 0

/* ---- repair-salvage.c -------------------------------------------------------------- */

/* Walks over trees of one inode; the caller sets what says so. */
typedef struct VjSalvage {
    VjTxn *txn;
    uint64_t ino;
    GArray *entries;       /* VjEntry; VJ_SALVAGE_LOST: a range; NULL: only look */
    GHashTable *fragments; /* numbers that an entry named, as pointers */
    GHashTable *foreign;   /* VjRepair.foreign; NULL: none */
    uint64_t old_end;      /* behind the entry before, as the damaged map counts */
    uint64_t lost_bytes;
    bool wrong; /* something is not as it has to be */
    bool loose; /* of nodes without a place: lost ranges are not kept */
} VjSalvage;

/* Walks @root; @seen gets its nodes. */
int vj_salvage_tree(VjSalvage *s, const VjMapRoot *root,
                    GHashTable *seen) G_GNUC_WARN_UNUSED_RESULT;
/* Walks the subtrees that wait to be dropped. */
int vj_salvage_orphans(VjSalvage *s, GHashTable *seen) G_GNUC_WARN_UNUSED_RESULT;

/* A map node that no tree leads to. */
typedef struct VjLooseNode {
    uint32_t node;
    uint8_t level;
    bool has_parent; /* among the loose */
    bool readable;
    VjMapSums sums;
} VjLooseNode;

/* The nodes of @ino that are not in @seen, as VjLooseNode by number. */
int vj_salvage_list_loose(VjTxn *txn, uint64_t ino, GHashTable *seen,
                          GArray *loose) G_GNUC_WARN_UNUSED_RESULT;
/* Entries of loose subtrees with numbers below @below, in the order in which their roots
 * were made. */
int vj_salvage_loose_entries(VjSalvage *s, const GArray *loose, uint32_t below,
                             GHashTable *seen) G_GNUC_WARN_UNUSED_RESULT;

/* ---- repair-map.c ------------------------------------------------------------------ */

/* Writes the nodes of a map with these entries behind *root; *root says where. */
int vj_repair_build_map(VjRepair *r, uint64_t ino, const GArray *entries,
                        VjMapRoot *root) G_GNUC_WARN_UNUSED_RESULT;

/* A map that was built and is to be that of its inode; an empty one means no content. */
typedef struct VjLay {
    uint64_t ino;
    VjMapRoot root;
    bool clear_inline;
} VjLay;

int vj_repair_lay_map(VjRepair *r, VjLay *lay) G_GNUC_WARN_UNUSED_RESULT;

/* A file without a name; fs finds it one. */
VjInode vj_repair_nameless(uint64_t ino);
int vj_repair_put_inode(VjRepair *r, const VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;
/* An inode of their own for @entries, which were found below inode @of. */
int vj_repair_keep_entries(VjRepair *r, uint64_t of,
                           const GArray *entries) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_repair_map - nodes, entries and fragments of one inode, and what is being dropped of
 * it
 *
 * @inode    its record, or what was made up for one that is gone
 */
int vj_repair_map(VjRepair *r, const VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;

/* ---- repair-inline.c --------------------------------------------------------------- */

/* Of an inode with such content; *inode is its record afterwards. */
int vj_repair_inline(VjRepair *r, VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;
/* Of what cannot have content: it becomes a file without a name, unless only another
 * build can read it. */
int vj_repair_evict_inline(VjRepair *r, VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_repair_content, where there is no map. */
int vj_repair_content_inline(VjTxn *txn, uint64_t ino, VjInode *inode,
                             bool *found) G_GNUC_WARN_UNUSED_RESULT;

#endif
