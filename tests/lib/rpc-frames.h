/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * rpc-frames.h - one frame of each operation and of its reply, with fields that are told
 * apart: what tests/compat/rpc-*.hex has, and what protocol tests begin with
 */
#ifndef VJ_TESTS_LIB_RPC_FRAMES_H
#define VJ_TESTS_LIB_RPC_FRAMES_H

#include "rpc/messages.h"

#define RPC_EXAMPLE_TAG UINT64_C(0x0807060504030201)

/* Where a frame is also shown in varjfs-protocol(7), its heading there. */
typedef struct RpcExample {
    const char *name;    /* of tests/compat/rpc-NAME-v1.hex */
    const char *heading; /* NULL: it is not shown */
    uint16_t op;
    bool is_reply;
    uint32_t timeout_or_status;
    uint8_t flags; /* besides that of a reply */
    void (*fill)(GByteArray *message, GByteArray *bulk);
} RpcExample;

extern const RpcExample rpc_examples[]; /* ends with a NULL name */

/* The whole frame, owned. */
GByteArray *rpc_example_frame(const RpcExample *e);
/* A frame of any fields around @message and @bulk, with its checksums; owned. */
GByteArray *rpc_frame(VjFrame frame, VjSlice message, VjSlice bulk);

#endif
