/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * check-private.h - what check-contents.c and check-trees.c share
 */
#ifndef VJ_FSCK_CHECK_PRIVATE_H
#define VJ_FSCK_CHECK_PRIVATE_H

#include "file/records.h"
#include "fsck/fsck.h"
#include "map/map-format.h"
#include "meta/session.h"

typedef struct VjContentsCheck {
    VjVolume *v;
    VjMeta *meta; /* of v */
    VjCheckSay *say;
    void *opaque;
    VjCheckReport *report;
    GHashTable *counts;    /* id → entries, both gint64*; the keys own */
    GHashTable *suspects;  /* gint64*, owned: objects that have a problem */
    GHashTable *fragments; /* vj_contents_fragment(), owned: named by an entry */
    uint64_t next_ino;     /* no number from here on was ever given out */
    /* check-trees.c: */
    uint64_t ino;        /* whose trees are being walked, in one view: */
    VjTxn *txn;          /* this run of it */
    uint64_t step;       /* that this run has come to; */
    uint64_t steps_done; /* those that were taken, by any run */
    int failed;          /* why this run cannot go on */
    unsigned reported;   /* ranges of ino */
} VjContentsCheck;

void vj_contents_problem(VjContentsCheck *c, uint64_t ino, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* What c->fragments has of a fragment; owned. */
static inline char *vj_contents_fragment(uint64_t ino, uint64_t number)
{
    return g_strdup_printf("%" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT, ino, number);
}

/* A scan of the map nodes of @ino, or of the orphans among them, from node 1 on. */
void vj_contents_scan_begin(VjScan *s, VjTxn *txn, VjSpace space, uint64_t ino);
/* As vj_scan_next; *@node: which. */
bool vj_contents_scan_next(VjScan *s, uint32_t *node) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_contents_trees - everything in VJ_SPACE_NODE that belongs to @ino
 *
 * @inode      NULL: there is no usable record
 * @is_known   no record of a tree is lost
 */
int vj_contents_trees(VjContentsCheck *c, uint64_t ino, const VjInode *inode,
                      bool is_known) G_GNUC_WARN_UNUSED_RESULT;

/* Says which ranges of @inode, which has a map, lie in c->suspects. */
int vj_contents_tell_ranges(VjContentsCheck *c,
                            const VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;

#endif
