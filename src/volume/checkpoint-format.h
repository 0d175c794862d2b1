/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * checkpoint-format.h - the end of a checkpoint
 *
 * A checkpoint is what the metadata engine saved, the text of varjfs.conf, then this
 * record.  Little-endian.
 */
#ifndef VJ_VOLUME_CHECKPOINT_FORMAT_H
#define VJ_VOLUME_CHECKPOINT_FORMAT_H

#include "base/base.h"

#define VJ_CHECKPOINT_MAGIC "VJFSCKPT"
#define VJ_CHECKPOINT_VERSION 2u
/* The image is summed up in pieces of so many bytes, the last one what is left: the
 * checksum of a piece is that of the checksum before it (0 at first; 8 bytes), then the
 * piece. */
#define VJ_CHECKPOINT_PIECE_BYTES ((size_t)1 << 20)

typedef struct VjCheckpointDisk {
    uint8_t magic[8];
    uint8_t version[4];
    uint8_t conf_bytes[4]; /* of the text */
    uint8_t uuid[16];      /* of varjfs.conf */
    uint8_t made_s[8];     /* seconds since 1970 */
    uint8_t commit[8];     /* the engine's number of the state */
    uint8_t image_bytes[8];
    uint8_t image_checksum[8];
    uint8_t checksum[8]; /* of the bytes before it */
} VjCheckpointDisk;

G_STATIC_ASSERT(sizeof(VjCheckpointDisk) == 72);
G_STATIC_ASSERT(offsetof(VjCheckpointDisk, uuid) == 16);
G_STATIC_ASSERT(offsetof(VjCheckpointDisk, image_bytes) == 48);
G_STATIC_ASSERT(offsetof(VjCheckpointDisk, checksum) == 64);

#endif
