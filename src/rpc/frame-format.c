/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* frame-format.c - heads of frames, and the statuses of replies */
#include "rpc/frame-format.h"

#define CHECKED_BYTES offsetof(VjFrameFormat, head_checksum)

void vj_frame_encode(const VjFrame *frame, uint8_t head[VJ_FRAME_HEAD_BYTES])
{
    VjWriter w = vj_writer(head, VJ_FRAME_HEAD_BYTES);
    bool is_reply = (frame->flags & VJ_FRAME_REPLY) != 0;

    vj_write_u32(&w, VJ_FRAME_MAGIC);
    vj_write_u8(&w, VJ_FRAME_VERSION);
    vj_write_u8(&w, frame->flags);
    vj_write_u16(&w, frame->op);
    vj_write_u64(&w, frame->tag);
    vj_write_u32(&w, is_reply ? frame->status : frame->timeout_ms);
    vj_write_u32(&w, frame->message_bytes);
    vj_write_u32(&w, frame->bulk_bytes);
    vj_write_u32(&w, 0);
    vj_write_u64(&w, frame->body_checksum);
    vj_write_u64(&w, vj_checksum64(head, CHECKED_BYTES));
    g_assert(!w.bad && w.used == VJ_FRAME_HEAD_BYTES);
}

int vj_frame_decode(const uint8_t head[VJ_FRAME_HEAD_BYTES], VjFrame *out)
{
    VjReader r = vj_reader(vj_slice(head, VJ_FRAME_HEAD_BYTES));
    uint32_t magic = vj_read_u32(&r), timeout_or_status, reserved;
    uint8_t version = vj_read_u8(&r);
    bool is_reply;

    if (magic != VJ_FRAME_MAGIC || version != VJ_FRAME_VERSION) {
        return -EPROTO;
    }
    *out = (VjFrame){.flags = vj_read_u8(&r)};
    is_reply = (out->flags & VJ_FRAME_REPLY) != 0;
    out->op = vj_read_u16(&r);
    out->tag = vj_read_u64(&r);
    timeout_or_status = vj_read_u32(&r);
    out->status = is_reply ? timeout_or_status : 0;
    out->timeout_ms = is_reply ? 0 : timeout_or_status;
    out->message_bytes = vj_read_u32(&r);
    out->bulk_bytes = vj_read_u32(&r);
    reserved = vj_read_u32(&r);
    out->body_checksum = vj_read_u64(&r);
    if (vj_read_u64(&r) != vj_checksum64(head, CHECKED_BYTES) || !vj_reader_done(&r) ||
        reserved != 0 || (out->flags & ~VJ_FRAME_FLAGS) != 0) {
        return -EPROTO;
    }
    if (vj_frame_sum_bytes(out) == 0 && out->body_checksum != 0) {
        return -EPROTO;
    }
    return 0;
}

/* ---- statuses ---------------------------------------------------------------------- */

static const int errnos[VJ_WIRE_STATUS_COUNT] = {
    [VJ_WIRE_OK] = 0,
    [VJ_WIRE_ABSENT] = ENOENT,
    [VJ_WIRE_DAMAGED] = EBADMSG,
    [VJ_WIRE_DEVICE] = EIO,
    [VJ_WIRE_FULL] = ENOSPC,
    [VJ_WIRE_QUOTA] = EDQUOT,
    [VJ_WIRE_READ_ONLY] = EROFS,
    [VJ_WIRE_LATE] = ETIMEDOUT,
    [VJ_WIRE_CONFLICT] = EAGAIN,
    [VJ_WIRE_FENCED] = ESTALE,
    [VJ_WIRE_NO_MEMORY] = ENOMEM,
    [VJ_WIRE_UNSUPPORTED] = EOPNOTSUPP,
    [VJ_WIRE_REFUSED] = EACCES,
    [VJ_WIRE_PROTOCOL] = EPROTO,
    [VJ_WIRE_BUSY] = EBUSY,
    [VJ_WIRE_CANCELED] = ECANCELED,
    [VJ_WIRE_TOO_LARGE] = EFBIG,
    [VJ_WIRE_FOREIGN] = ENXIO,
    [VJ_WIRE_EMPTY] = ENODATA,
    [VJ_WIRE_LEAVING] = ESHUTDOWN,
};

VjWireStatus vj_wire_status(int rc)
{
    g_assert(rc <= 0);
    for (unsigned i = 0; i < VJ_WIRE_STATUS_COUNT; i++) {
        if (errnos[i] == -rc) {
            return (VjWireStatus)i;
        }
    }
    return VJ_WIRE_DEVICE;
}

int vj_wire_errno(uint32_t status)
{
    return status < VJ_WIRE_STATUS_COUNT ? -errnos[status] : -EIO;
}
