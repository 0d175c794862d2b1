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
    uint16_t slot;  /* of the area, for what is returned, from 1 on; 0: none */
    uint32_t count;
    VjReader ops; /* behind the head */
    VjSlice bulk; /* what operations bring that are not decoded yet */
} VjClientBatch;

typedef struct VjClientOp {
    uint8_t kind, flags;
    VjSlice space, name, second; /* second: VARJFS_WIRE_OBJECT_RENAME, attributes */
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

/* What an OBJECT_CREATE brings behind its settings: the next attribute is taken off
 * @from; false: it is none. */
bool vj_client_attribute_decode(VjSlice *from, VjSlice *name,
                                VjSlice *value) G_GNUC_WARN_UNUSED_RESULT;

/* @status: VjWireStatus or VARJFS_WIRE_EXISTS, …. */
void vj_client_result_encode(GByteArray *to, uint32_t status, uint64_t value);

typedef struct VjClientIterate {
    uint8_t what; /* VARJFS_WIRE_ITERATE_… */
    VjSlice space, prefix, behind;
    VjSlice object; /* whose attributes are wanted */
    uint32_t entries_max, bytes_max;
    uint16_t attribute_count;
    VjSlice attributes[VARJFS_WIRE_ITERATE_ATTRIBUTES_MAX]; /* that items come with */
} VjClientIterate;
int vj_client_iterate_decode(VjSlice message,
                             VjClientIterate *out) G_GNUC_WARN_UNUSED_RESULT;
void vj_client_iterate_reply_encode(GByteArray *to, bool more, uint32_t count);

typedef struct VjClientEmpty {
    bool keys; /* else objects */
    VjSlice space;
    uint32_t most;
} VjClientEmpty;
int vj_client_empty_decode(VjSlice message, VjClientEmpty *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
