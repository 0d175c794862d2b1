/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * owners.h - whose SOURCE is it?
 */
#ifndef VJ_CMD_OWNERS_H
#define VJ_CMD_OWNERS_H

#include "base/base.h"
#include "volume/volume.h"

typedef struct VjSourceOwners {
    bool has_others;       /* something there belongs to another user than us */
    bool others_may_write; /* or may be changed by another one than root */
} VjSourceOwners;

/*
 * Looks at SOURCE, what is in it, and what is in meta/, objects/ and checkpoints/ (not at
 * the objects: those of one directory have one owner).  Of a volume file: at it and the
 * directory in which it stands.  What cannot be looked at is another user's.
 */
VjSourceOwners vj_source_owners(const VjPlace *source);

/* Directories between objects/ and an object. */
#define VJ_SOURCE_DEPTH 4u

/*
 * vj_source_is_ours - nothing that is needed belongs to another user and is closed to us
 *
 * As when root has served a user's SOURCE: what was made then is root's.
 * A volume file, once it is open, needs nothing else here.
 * @write    it has to be written too
 * @depth    directories below objects/ that are looked into: 0, its entries alone
 */
bool vj_source_is_ours(const VjPlace *place, const char *source, bool write,
                       unsigned depth, GError **error);

#endif
