/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * drivers.c - the table of metadata engines
 */
#include "meta/meta-private.h"

const VjMetaOps *const vj_meta_drivers[] = {
    &vj_meta_lmdb_ops,
    NULL,
};
