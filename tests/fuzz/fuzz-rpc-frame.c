/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Frames of varjfs-protocol(7) from any bytes: the head, and the message and bulk of each
 * operation, request and reply.  Each input is tried as it is, and with the lengths that
 * it has and with right checksums.  What is accepted is encoded again and is the same
 * bytes; of HELLO and its reply, which may be longer, the first of them.
 */
#include "../lib/rpc-recode.h"
#include "fuzz.h"

static void try_head(const uint8_t head[VJ_FRAME_HEAD_BYTES])
{
    uint8_t again[VJ_FRAME_HEAD_BYTES];
    VjFrame frame;

    if (vj_frame_decode(head, &frame) < 0) {
        return;
    }
    g_assert((frame.flags & ~VJ_FRAME_FLAGS) == 0);
    g_assert(vj_frame_sum_bytes(&frame) > 0 || frame.body_checksum == 0);
    g_assert((frame.flags & VJ_FRAME_REPLY) != 0 ? frame.timeout_ms == 0
                                                 : frame.status == 0);
    vj_frame_encode(&frame, again);
    g_assert(memcmp(again, head, sizeof again) == 0);
    g_assert(vj_wire_errno(frame.status) <= 0);
}

static bool may_be_longer(const VjFrame *frame)
{
    bool is_reply = (frame->flags & VJ_FRAME_REPLY) != 0;

    return frame->op == VJ_OP_HELLO && (!is_reply || frame->status == VJ_WIRE_OK);
}

static void try_body(const VjFrame *frame, VjSlice message, VjSlice bulk)
{
    g_autoptr(GByteArray) again = g_byte_array_new();
    const uint8_t *at;

    if (rpc_recode(frame, message, bulk, again) < 0) {
        return;
    }
    g_assert(again->len == message.len + bulk.len ||
             (may_be_longer(frame) && again->len < message.len));
    at = again->data;
    if (message.len > 0) {
        size_t len = MIN(message.len, again->len);

        g_assert(memcmp(at, message.data, len) == 0);
        at += len;
    }
    g_assert(bulk.len == 0 || memcmp(at, bulk.data, bulk.len) == 0);
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    const uint8_t *body = data + VJ_FRAME_HEAD_BYTES;
    size_t body_bytes = len - VJ_FRAME_HEAD_BYTES, sum_bytes;
    VjFrame frame = {0};

    if (len < VJ_FRAME_HEAD_BYTES) {
        return 0;
    }
    try_head(data);
    frame.flags = data[5] & VJ_FRAME_FLAGS;
    frame.op = vj_le16_get(data + 6);
    frame.tag = vj_le64_get(data + 8);
    frame.timeout_ms = frame.status = vj_le32_get(data + 16);
    frame.message_bytes = (uint32_t)MIN(vj_le32_get(data + 20), body_bytes);
    frame.bulk_bytes = (uint32_t)(body_bytes - frame.message_bytes);
    sum_bytes = vj_frame_sum_bytes(&frame);
    frame.body_checksum = sum_bytes > 0 ? vj_checksum64(body, sum_bytes) : 0;
    vj_frame_encode(&frame, head);
    g_assert(vj_frame_decode(head, &frame) == 0);
    try_head(head);
    try_body(&frame, vj_slice(body, frame.message_bytes),
             vj_slice(body + frame.message_bytes, frame.bulk_bytes));
    return 0;
}
