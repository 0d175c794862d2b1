/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * frame.c - heads of frames
 */
#include "frame.h"

#include <errno.h>

#define MAGIC 0x52464a56u /* "VJFR" */
#define VERSION 1u
#define SUMMED_BYTES 40u

void vjc_frame_encode(const VjcFrame *frame, uint8_t head[VJC_HEAD_BYTES])
{
    VjcWriter w = vjc_writer(head, VJC_HEAD_BYTES);

    vjc_put_number(&w, MAGIC, 4);
    vjc_put_number(&w, VERSION, 1);
    vjc_put_number(&w, frame->flags, 1);
    vjc_put_number(&w, frame->op, 2);
    vjc_put_number(&w, frame->tag, 8);
    vjc_put_number(&w, frame->timeout_or_status, 4);
    vjc_put_number(&w, frame->message_bytes, 4);
    vjc_put_number(&w, frame->bulk_bytes, 4);
    vjc_put_number(&w, 0, 4);
    vjc_put_number(&w, frame->body_checksum, 8);
    vjc_put_number(&w, XXH3_64bits(head, SUMMED_BYTES), 8);
}

int vjc_frame_decode(const uint8_t head[VJC_HEAD_BYTES], VjcFrame *out)
{
    VjcReader r = vjc_reader(head, VJC_HEAD_BYTES);
    uint32_t magic = vjc_get32(&r);
    uint8_t version = vjc_get8(&r);
    uint32_t zero;

    out->flags = vjc_get8(&r);
    out->op = vjc_get16(&r);
    out->tag = vjc_get64(&r);
    out->timeout_or_status = vjc_get32(&r);
    out->message_bytes = vjc_get32(&r);
    out->bulk_bytes = vjc_get32(&r);
    zero = vjc_get32(&r);
    out->body_checksum = vjc_get64(&r);
    if (magic != MAGIC || version != VERSION ||
        vjc_get64(&r) != XXH3_64bits(head, SUMMED_BYTES)) {
        return -EPROTO;
    }
    if ((out->flags & ~(VJC_FRAME_REPLY | VJC_FRAME_BARE)) != 0 || zero != 0) {
        return -EPROTO;
    }
    if (out->message_bytes == 0 && out->bulk_bytes == 0 && out->body_checksum != 0) {
        return -EPROTO;
    }
    return vjc_reader_is_done(&r) ? 0 : -EPROTO;
}
