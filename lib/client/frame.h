/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * frame.h - frames of varjfs-protocol(7), and cursors over bytes that nobody has checked
 *
 * A cursor never goes beyond its end: what would, sets its failure, and numbers are 0
 * from then on.  So a decoder reads all of its fields and asks once.
 */
#ifndef VARJFS_CLIENT_FRAME_H
#define VARJFS_CLIENT_FRAME_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VJC_HEAD_BYTES 48u
#define VJC_FRAME_REPLY 1u
/* Of a batch and its reply: the bulk has no checksum. */
#define VJC_FRAME_BARE 8u
/* Of hello: both sides know that flag. */
#define VJC_FEATURE_BARE_BATCH (UINT64_C(1) << 9)
/* Both know SHARE. */
#define VJC_FEATURE_SHARE (UINT64_C(1) << 10)
#define VJC_FEATURE_MAILBOX (UINT64_C(1) << 11)
#define VJC_FEATURES (VJC_FEATURE_BARE_BATCH | VJC_FEATURE_SHARE | VJC_FEATURE_MAILBOX)

enum {
    VJC_OP_HELLO = 0x0001,
    VJC_OP_PING = 0x0002,
    VJC_OP_CANCEL = 0x0003,
};

/* Statuses of frames; those of the role client stand in varjfs/client-protocol.h. */
enum {
    VJC_STATUS_OK = 0,
    VJC_STATUS_LATE = 7,
    VJC_STATUS_CANCELED = 15,
    VJC_STATUS_LEAVING = 19,
};

/* Limits of the protocol for what comes from the daemon, bytes. */
#define VJC_MESSAGE_MAX 65536u
#define VJC_BULK_MAX 83886080u
#define VJC_TEXT_MAX 256u
#define VJC_HELLO_MESSAGE_MAX 4096u

typedef struct VjcFrame {
    uint8_t flags;
    uint16_t op;
    uint64_t tag;
    uint32_t timeout_or_status;
    uint32_t message_bytes, bulk_bytes;
    uint64_t body_checksum;
} VjcFrame;

void vjc_frame_encode(const VjcFrame *frame, uint8_t head[VJC_HEAD_BYTES]);
/* 0; -EPROTO: no head of this version, a damaged one, or a body's checksum without a
 * body.  Lengths are not compared. */
int vjc_frame_decode(const uint8_t head[VJC_HEAD_BYTES], VjcFrame *out);

/* ---- what is read ------------------------------------------------------------------ */

typedef struct VjcReader {
    const uint8_t *at;
    size_t left;
    bool failed;
} VjcReader;

static inline VjcReader vjc_reader(const void *bytes, size_t len)
{
    VjcReader r = {.at = (const uint8_t *)bytes, .left = len, .failed = false};

    return r;
}

/* @len bytes, or NULL. */
static inline const uint8_t *vjc_get_bytes(VjcReader *r, size_t len)
{
    const uint8_t *bytes = r->at;

    if (r->failed || len > r->left) {
        r->failed = true;
        return NULL;
    }
    r->at += len;
    r->left -= len;
    return bytes;
}

static inline uint64_t vjc_get_number(VjcReader *r, size_t bytes)
{
    const uint8_t *at = vjc_get_bytes(r, bytes);
    uint64_t value = 0;

    for (size_t i = bytes; at != NULL && i > 0; i--) {
        value = value << 8 | at[i - 1];
    }
    return value;
}

static inline uint8_t vjc_get8(VjcReader *r)
{
    return (uint8_t)vjc_get_number(r, 1);
}

static inline uint16_t vjc_get16(VjcReader *r)
{
    return (uint16_t)vjc_get_number(r, 2);
}

static inline uint32_t vjc_get32(VjcReader *r)
{
    return (uint32_t)vjc_get_number(r, 4);
}

static inline uint64_t vjc_get64(VjcReader *r)
{
    return vjc_get_number(r, 8);
}

/* All was there, and nothing is left. */
static inline bool vjc_reader_is_done(const VjcReader *r)
{
    return !r->failed && r->left == 0;
}

/* ---- what is written --------------------------------------------------------------- */

typedef struct VjcWriter {
    uint8_t *at;
    size_t left;
    bool failed; /* a bug of ours: the room is counted before */
} VjcWriter;

static inline VjcWriter vjc_writer(void *bytes, size_t room)
{
    VjcWriter w = {.at = (uint8_t *)bytes, .left = room, .failed = false};

    return w;
}

static inline void vjc_put_bytes(VjcWriter *w, const void *src, size_t len)
{
    if (w->failed || len > w->left) {
        w->failed = true;
        return;
    }
    if (len > 0) {
        memcpy(w->at, src, len);
    }
    w->at += len;
    w->left -= len;
}

static inline void vjc_put_number(VjcWriter *w, uint64_t value, size_t bytes)
{
    uint8_t little[8];

    for (size_t i = 0; i < bytes; i++) {
        little[i] = (uint8_t)(value >> 8 * i);
    }
    vjc_put_bytes(w, little, bytes);
}

#endif
