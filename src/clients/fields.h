/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fields.h - the fields of varjfs/client-protocol.h, decoded and encoded
 *
 * Decoders are -EPROTO for what no client of this version sends; what they give is
 * borrowed from the message.  Names are looked at later: one that is none fails its
 * operation alone.  Threads: any.  Locks: none.
 */
#ifndef VJ_CLIENTS_FIELDS_H
#define VJ_CLIENTS_FIELDS_H

#include "base/base.h"
#include "varjfs/client-protocol.h"

typedef struct VjClientBatch {
    uint8_t flags;  /* VARJFS_WIRE_ATOMIC, … */
    uint8_t safety; /* VARJFS_WIRE_SAFETY_… */
    uint32_t count;
    VjReader ops; /* behind the head */
    VjSlice bulk; /* what operations bring that are not decoded yet */
} VjClientBatch;

typedef struct VjClientOp {
    uint8_t kind, flags;
    VjSlice space, name;
    uint64_t offset, old_len;
    VjSlice brings;
    uint32_t most; /* bytes that it may return */
} VjClientOp;

/*
 * The head, and all of the operations, which are looked at once: vj_client_op_decode
 * does not fail then.
 * @most   bytes that all of them may return together
 */
int vj_client_batch_decode(VjSlice message, VjSlice bulk, VjClientBatch *out,
                           uint64_t *most) G_GNUC_WARN_UNUSED_RESULT;
/* The next one. */
int vj_client_op_decode(VjClientBatch *batch, VjClientOp *out) G_GNUC_WARN_UNUSED_RESULT;

/* @status: VjWireStatus or VARJFS_WIRE_EXISTS, …. */
void vj_client_result_encode(GByteArray *to, uint32_t status, uint64_t value);

typedef struct VjClientIterate {
    uint8_t what; /* VARJFS_WIRE_ITERATE_… */
    VjSlice space, prefix, behind;
    uint32_t entries_max, bytes_max;
} VjClientIterate;
int vj_client_iterate_decode(VjSlice message,
                             VjClientIterate *out) G_GNUC_WARN_UNUSED_RESULT;
void vj_client_iterate_reply_encode(GByteArray *to, bool more, uint32_t count);

#endif
