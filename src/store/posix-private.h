/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * posix-private.h - the posix driver as its own tests see it
 */
#ifndef VJ_STORE_POSIX_PRIVATE_H
#define VJ_STORE_POSIX_PRIVATE_H

#include "store/posix-sync.h"
#include "store/store-private.h"

/* Another way to the device, before the first put.  @s is a posix store. */
void vj_store_posix_set_calls(VjStore *s, const VjPosixSyncCalls *calls);
VjPosixSyncCounts vj_store_posix_counts(VjStore *s);

#endif
