/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * frame-format.h - what goes over a connection: frames, as varjfs-protocol(7) has them
 *
 * A frame is a head, a message and a bulk, in this order and without padding between
 * them.  The message is small and has the fields of its operation (messages.h); the bulk
 * is bytes of an object, which neither side looks into on the way.  Little-endian.
 *
 * Nothing of a head counts before its checksum has been compared, nothing of a message
 * or a bulk before body_checksum has; but a bulk that its receiver compares with
 * checksums of its own may come without (VJ_FRAME_BARE).  Lengths are compared with what
 * the operation may have before memory is taken for them.
 *
 * HELLO and its reply have this head for ever.  What a later version or a feature changes
 * of it, it changes from the next frame on: the six flags and the four bytes that are
 * zero now.
 */
#ifndef VJ_RPC_FRAME_FORMAT_H
#define VJ_RPC_FRAME_FORMAT_H

#include "base/base.h"

#define VJ_FRAME_MAGIC 0x52464a56u /* "VJFR" */
#define VJ_FRAME_VERSION 1u
#define VJ_FRAME_HEAD_BYTES 48u

enum {
    VJ_FRAME_REPLY = 1 << 0, /* else a request */
    /* body_checksum is of the message alone.  Of the request GET: the bulk of its reply
     * may be so, which that reply's flag says.  VJ_FEATURE_BARE.  Of the request BATCH
     * the same, and its own bulk is.  VJ_FEATURE_BARE_BATCH. */
    VJ_FRAME_BARE = 1 << 3,
    VJ_FRAME_FLAGS = VJ_FRAME_REPLY | VJ_FRAME_BARE,
};

/* As it is on the wire. */
typedef struct VjFrameFormat {
    uint8_t magic[4];
    uint8_t version;
    uint8_t flags;
    uint8_t op[2];  /* VjWireOp; a reply has its request's */
    uint8_t tag[8]; /* chosen by who asks; a reply has its request's */
    /* Of a request: how long its sender waits, milliseconds; 0: it does not say.  Of a
     * reply: VjWireStatus. */
    uint8_t timeout_or_status[4];
    uint8_t message_bytes[4];
    uint8_t bulk_bytes[4];
    uint8_t reserved[4]; /* zero */
    uint8_t
        body_checksum[8]; /* XXH3-64, seed 0, as vj_frame_sum_bytes says; no byte: 0 */
    uint8_t head_checksum[8]; /* likewise, of the 40 bytes before it */
} VjFrameFormat;

G_STATIC_ASSERT(sizeof(VjFrameFormat) == VJ_FRAME_HEAD_BYTES);
G_STATIC_ASSERT(offsetof(VjFrameFormat, tag) == 8);
G_STATIC_ASSERT(offsetof(VjFrameFormat, timeout_or_status) == 16);
G_STATIC_ASSERT(offsetof(VjFrameFormat, body_checksum) == 32);
G_STATIC_ASSERT(offsetof(VjFrameFormat, head_checksum) == 40);

/* The same in memory. */
typedef struct VjFrame {
    uint8_t flags;
    uint16_t op;
    uint64_t tag;
    uint32_t timeout_ms; /* of a request */
    uint32_t status;     /* of a reply */
    uint32_t message_bytes, bulk_bytes;
    uint64_t body_checksum;
} VjFrame;

/* The bulk of @frame has no checksum. */
static inline bool vj_frame_is_bare(const VjFrame *frame)
{
    return (frame->flags & VJ_FRAME_BARE) != 0;
}

/* How many bytes of the body, from its first one on, body_checksum is of: message and
 * bulk as one string, or the message alone. */
static inline uint64_t vj_frame_sum_bytes(const VjFrame *frame)
{
    return (uint64_t)frame->message_bytes +
           (vj_frame_is_bare(frame) ? 0 : frame->bulk_bytes);
}

void vj_frame_encode(const VjFrame *frame, uint8_t head[VJ_FRAME_HEAD_BYTES]);
/* 0; -EPROTO: no head of this version, or a damaged one.  Lengths are not compared. */
int vj_frame_decode(const uint8_t head[VJ_FRAME_HEAD_BYTES],
                    VjFrame *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- the numbers of the protocol, which never change ------------------------------- */

typedef enum VjWireOp {
    /* any role */
    VJ_OP_HELLO = 0x0001,  /* the first request of a connection, and no other one */
    VJ_OP_PING = 0x0002,   /* empty; answered at once */
    VJ_OP_CANCEL = 0x0003, /* the tag of a request; has no reply */
    VJ_OP_STATS = 0x0004,
    /* object */
    VJ_OP_PUT = 0x0100,
    VJ_OP_GET = 0x0101,
    VJ_OP_REMOVE = 0x0102, /* many */
    VJ_OP_FLUSH = 0x0103,
    VJ_OP_FLUSH_REMOVES = 0x0104,
    VJ_OP_HAVE = 0x0105, /* many */
    VJ_OP_LIST = 0x0106,
    VJ_OP_SPACE = 0x0107,
    VJ_OP_DIGEST = 0x0109,
    VJ_OP_PUT_PLAIN = 0x0110,
    VJ_OP_GET_PLAIN = 0x0111,
    /* meta */
    VJ_OP_GET_MANY = 0x0200,
    VJ_OP_SCAN = 0x0201,
    VJ_OP_APPLY = 0x0202,
    VJ_OP_CLOCK = 0x0203,
    VJ_OP_COUNT = 0x0204,
    /* client: include/varjfs/client-protocol.h */
    VJ_OP_BATCH = 0x0300,
    VJ_OP_ITERATE = 0x0301,
    VJ_OP_SYNC = 0x0302,
    VJ_OP_EMPTY = 0x0303,
    VJ_OP_SHARE = 0x0304,
    VJ_OP_MAILBOX = 0x0305,
    VJ_OP_BELL = 0x0306,
} VjWireOp;

/* Never the host's errno; frame-format.c has the one table. */
typedef enum VjWireStatus {
    VJ_WIRE_OK = 0,
    VJ_WIRE_ABSENT = 1,       /* ENOENT */
    VJ_WIRE_DAMAGED = 2,      /* EBADMSG: stored bytes are not what was stored */
    VJ_WIRE_DEVICE = 3,       /* EIO */
    VJ_WIRE_FULL = 4,         /* ENOSPC */
    VJ_WIRE_QUOTA = 5,        /* EDQUOT */
    VJ_WIRE_READ_ONLY = 6,    /* EROFS */
    VJ_WIRE_LATE = 7,         /* ETIMEDOUT: the sender waits no more */
    VJ_WIRE_CONFLICT = 8,     /* EAGAIN: of APPLY: a check failed, or commits lack */
    VJ_WIRE_FENCED = 9,       /* ESTALE: the session was shut out */
    VJ_WIRE_NO_MEMORY = 10,   /* ENOMEM */
    VJ_WIRE_UNSUPPORTED = 11, /* EOPNOTSUPP: no such operation, version or role here */
    VJ_WIRE_REFUSED = 12,     /* EACCES: who asks may not */
    VJ_WIRE_PROTOCOL = 13,    /* EPROTO: the request cannot be understood */
    VJ_WIRE_BUSY = 14,        /* EBUSY: a limit: the same here, later */
    VJ_WIRE_CANCELED = 15,    /* ECANCELED */
    VJ_WIRE_TOO_LARGE = 16,   /* EFBIG */
    VJ_WIRE_FOREIGN = 17,     /* ENXIO: the place belongs to another volume */
    VJ_WIRE_EMPTY = 18,       /* ENODATA: the place belongs to no volume yet */
    VJ_WIRE_LEAVING = 19,     /* ESHUTDOWN: the node goes down, it has done nothing */
    VJ_WIRE_STATUS_COUNT
} VjWireStatus;

/* The status for 0 or -errno; what has none is VJ_WIRE_DEVICE. */
VjWireStatus vj_wire_status(int rc);
/* 0 or -errno; a status of a later version is -EIO. */
int vj_wire_errno(uint32_t status);

#endif
