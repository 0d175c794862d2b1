/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * drivers.c - the table of metadata engines
 */
#include "meta/engine.h"
#include "meta/meta-private.h"

const VjEngineOps *const vj_engine_drivers[] = {
    &vj_engine_lmdb_ops,
    &vj_engine_memory_ops,
    &vj_engine_remote_ops,
    NULL,
};
