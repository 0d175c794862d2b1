/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * check-private.h - what check.c wants of the maps beside their faces
 */
#ifndef VJ_FILE_CHECK_PRIVATE_H
#define VJ_FILE_CHECK_PRIVATE_H

#include "file/volume-private.h"

static inline void vj_check_tick(const VjCheckReport *report)
{
    if (report->tick != NULL) {
        report->tick(report->tick_opaque, report);
    }
}

/*
 * vj_map_check_shared - vj_map_check of one of several trees of an inode
 *
 * @seen     the node numbers that were met (GUINT_TO_POINTER); a node that stands in it
 *           already has two parents; borrowed
 */
int vj_map_check_shared(VjTxn *txn, uint64_t ino, const VjMapRoot *root, GHashTable *seen,
                        VjMapVisit *visit, VjCheckSay *say, void *opaque, uint64_t *nodes,
                        uint64_t *problems) G_GNUC_WARN_UNUSED_RESULT;

#endif
