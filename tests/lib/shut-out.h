/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * shut-out.h - a session of a volume has ended by the word of another
 */
#ifndef VJ_TESTS_LIB_SHUT_OUT_H
#define VJ_TESTS_LIB_SHUT_OUT_H

#include "meta/session.h"

static inline int shut_out_body(VjTxn *txn, void *opaque)
{
    return vj_session_shut_out(txn, *(const uint64_t *)opaque);
}

/* @by: as vj_session_shut_out() and vj_meta_run(). */
static inline int vj_test_shut_out(VjMeta *by, uint64_t id)
{
    return vj_meta_run(by, VJ_RUN_RELEASE, shut_out_body, &id);
}

#endif
