/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * drivers.c - the table of drivers: one row each, in the order in which messages name
 * them
 */
#include "store/store-private.h"

const VjStoreOps *const vj_store_drivers[] = {
    &vj_store_posix_ops,  &vj_store_block_ops, &vj_store_remote_ops,
    &vj_store_memory_ops, &vj_store_null_ops,  NULL,
};
