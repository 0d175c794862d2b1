/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * remote-format.h - locators of the remote driver, as they are in object records
 *
 * The nonce is the object's number at each node.  The nodes are those of which the driver
 * knew that they have a replica when it made the locator: bit I is the node at place I of
 * the list, from 0.  Another set of nodes with the same nonce names the same object.
 */
#ifndef VJ_STORE_REMOTE_FORMAT_H
#define VJ_STORE_REMOTE_FORMAT_H

#include "store/placement.h"
#include "store/store.h"

/* Layout of VjLoc.bytes; integers are little-endian. */
typedef struct VjRemoteLoc {
    uint64_t nonce;
    uint64_t nodes; /* not 0 */
} VjRemoteLoc;
G_STATIC_ASSERT(sizeof(VjRemoteLoc) == VJ_LOC_BYTES);
G_STATIC_ASSERT(G_STRUCT_OFFSET(VjRemoteLoc, nodes) == 8);

static inline VjLoc vj_remote_loc_encode(uint64_t nonce, VjNodeSet nodes)
{
    VjRemoteLoc fields = {.nonce = GUINT64_TO_LE(nonce), .nodes = GUINT64_TO_LE(nodes)};
    VjLoc loc;

    memcpy(loc.bytes, &fields, sizeof loc.bytes);
    return loc;
}

/* False: not a locator of this driver. */
static inline bool vj_remote_loc_decode(VjLoc loc, uint64_t *nonce, VjNodeSet *nodes)
{
    *nonce = vj_le64_get(loc.bytes);
    *nodes = vj_le64_get(loc.bytes + G_STRUCT_OFFSET(VjRemoteLoc, nodes));
    return *nodes != 0;
}

#endif
