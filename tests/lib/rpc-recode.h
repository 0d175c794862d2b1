/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rpc-recode.h - the body of a frame, decoded by its operation and encoded again
 */
#ifndef VJ_TESTS_LIB_RPC_RECODE_H
#define VJ_TESTS_LIB_RPC_RECODE_H

#include "rpc/messages.h"

/*
 * rpc_recode - decode what a peer sent, and encode what was understood
 *
 * @frame    says which operation, whether it is a reply, and its status
 * @again    message and bulk behind one another, appended.  The same bytes as before; of
 *           HELLO and its reply the first of them, as they may be longer than what this
 *           version knows; of bytes without fields they are copied
 * Returns   0; -EPROTO: refused
 * Aborts    where a decoder gave what its header does not allow
 */
int rpc_recode(const VjFrame *frame, VjSlice message, VjSlice bulk, GByteArray *again);

/* A reply's body is items, as GET_MANY, SCAN and APPLY have them. */
bool rpc_has_items(const VjFrame *frame);

#endif
