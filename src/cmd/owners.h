/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * owners.h - whose SOURCE is it?
 */
#ifndef VJ_CMD_OWNERS_H
#define VJ_CMD_OWNERS_H

#include "base/base.h"

typedef struct VjSourceOwners {
    bool has_others;       /* something there belongs to another user than us */
    bool others_may_write; /* or may be changed by another one than root */
} VjSourceOwners;

/*
 * Looks at SOURCE, what is in it, and what is in meta/ and objects/ (not at the objects: those of
 * one directory have one owner).  What cannot be looked at is another user's.
 */
VjSourceOwners vj_source_owners(int source_fd);

#endif
