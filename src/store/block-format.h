/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * block-format.h - what the driver block keeps on its device, and its keys
 *
 * The device is blocks of 4 KiB.  VJ_BLOCK_ZONE_BLOCKS of them are a zone.  The first
 * VJ_BLOCK_HEAD_BLOCKS are the driver's: the first and the last of these are superblocks,
 * the others are zero.  All others hold objects, each in blocks that follow one another;
 * behind its last byte its last block has anything.
 *
 * Where an object is stands in a key of the driver's, which the caller commits with the
 * object's record.  The locator has the nonce of the key.
 */
#ifndef VJ_STORE_BLOCK_FORMAT_H
#define VJ_STORE_BLOCK_FORMAT_H

#include "store/store.h"

#define VJ_BLOCK_BYTES 4096u
#define VJ_BLOCK_ZONE_BLOCKS 16384u
#define VJ_BLOCK_HEAD_BLOCKS 256u
/* The superblocks' own blocks. */
#define VJ_BLOCK_FIRST_SUPER 0u
#define VJ_BLOCK_SECOND_SUPER (VJ_BLOCK_HEAD_BLOCKS - 1)
/* The head and an object of the largest size. */
#define VJ_BLOCK_COUNT_MIN (VJ_BLOCK_HEAD_BLOCKS + VJ_STORE_OBJECT_MAX / VJ_BLOCK_BYTES)
/* VjBlockValueFormat.place has room for so many, and for the length behind. */
#define VJ_BLOCK_COUNT_MAX ((uint64_t)1 << 38)
#define VJ_BLOCK_PLACE_SHIFT 26u

#define VJ_BLOCK_LOC_MAGIC 0x564a424bu /* "VJBK" */
#define VJ_BLOCK_MAGIC "varjfsBK"
#define VJ_BLOCK_VERSION 1u
#define VJ_BLOCK_UUID_BYTES 40u /* with a NUL */

/* On the device; little-endian. */
typedef struct VjBlockSuperFormat {
    uint8_t magic[8];
    uint8_t version[4];
    uint8_t block_bytes[4];
    uint8_t zone_blocks[4];
    uint8_t zero[4];
    uint8_t sequence[8]; /* the higher one counts */
    /* Of the device; of a file that grows, that it may have at most. */
    uint8_t block_count[8];
    uint8_t volume[VJ_BLOCK_UUID_BYTES]; /* its uuid, as text, and zeros */
    uint8_t mount[8];                    /* VjBlockSuper.mount */
    uint8_t rest[4000];                  /* zeros */
    uint8_t checksum[8];                 /* XXH3-64 of all before */
} VjBlockSuperFormat;
G_STATIC_ASSERT(sizeof(VjBlockSuperFormat) == VJ_BLOCK_BYTES);
G_STATIC_ASSERT(offsetof(VjBlockSuperFormat, sequence) == 24);
G_STATIC_ASSERT(offsetof(VjBlockSuperFormat, checksum) == 4088);

/* In the driver's keys; big-endian. */
typedef struct VjBlockKeyFormat {
    uint8_t id[8];
    uint8_t nonce[4]; /* a number of this one put */
} VjBlockKeyFormat;
G_STATIC_ASSERT(sizeof(VjBlockKeyFormat) == 12);
G_STATIC_ASSERT(offsetof(VjBlockKeyFormat, nonce) == 8);

typedef struct VjBlockValueFormat {
    uint8_t place[8];    /* the first block << VJ_BLOCK_PLACE_SHIFT | bytes */
    uint8_t put_s[4];    /* seconds since 1970 */
    uint8_t checksum[8]; /* XXH3-64 of the key and what is before */
} VjBlockValueFormat;
G_STATIC_ASSERT(sizeof(VjBlockValueFormat) == 20);
G_STATIC_ASSERT(offsetof(VjBlockValueFormat, checksum) == 12);

/* Of the key VJ_BLOCK_MOUNT_KEY, which no object has; big-endian. */
#define VJ_BLOCK_MOUNT_KEY "mount"
typedef struct VjBlockMountFormat {
    uint8_t last[8], next[8];
    uint8_t checksum[8]; /* XXH3-64 of what is before */
} VjBlockMountFormat;
G_STATIC_ASSERT(sizeof(VjBlockMountFormat) == 24);

/* Big-endian. */
typedef struct VjBlockLocFormat {
    uint8_t magic[4];
    uint8_t zero[8];
    uint8_t nonce[4];
} VjBlockLocFormat;
G_STATIC_ASSERT(sizeof(VjBlockLocFormat) == VJ_LOC_BYTES);
G_STATIC_ASSERT(offsetof(VjBlockLocFormat, nonce) == 12);

typedef struct VjBlockSuper {
    uint64_t sequence;
    uint64_t block_count;
    char volume[VJ_BLOCK_UUID_BYTES]; /* empty: of none */
    uint64_t mount; /* a random number of the last one that might write; 0: none yet */
} VjBlockSuper;

/* Which mounts the metadata know of: the device has the number of one of them, unless it
 * was used with another copy of the metadata. */
typedef struct VjBlockMounts {
    uint64_t last; /* what the device had when it was opened */
    uint64_t next; /* what it was about to get then */
} VjBlockMounts;

/* What a key says, and what is known of an object. */
typedef struct VjBlockObject {
    uint64_t id;
    uint64_t first_block;
    uint32_t nonce;
    uint32_t bytes;
    uint32_t put_s; /* of the wall clock */
} VjBlockObject;

static inline uint64_t vj_block_place_encode(const VjBlockObject *object)
{
    return object->first_block << VJ_BLOCK_PLACE_SHIFT | object->bytes;
}

static inline void vj_block_place_decode(uint64_t place, VjBlockObject *out)
{
    out->first_block = place >> VJ_BLOCK_PLACE_SHIFT;
    out->bytes = (uint32_t)(place & ((UINT64_C(1) << VJ_BLOCK_PLACE_SHIFT) - 1));
}

/* One at least. */
static inline uint64_t vj_block_count_of(uint64_t bytes)
{
    return MAX((bytes + VJ_BLOCK_BYTES - 1) / VJ_BLOCK_BYTES, 1);
}

/* @dst: VJ_BLOCK_BYTES. */
void vj_block_super_encode(const VjBlockSuper *super, uint8_t *dst);
/* 0; -ENODATA: it is no superblock; -EBADMSG: a damaged one; -EINVAL: of a version or
 * kind that is not known here. */
int vj_block_super_decode(const uint8_t *src,
                          VjBlockSuper *out) G_GNUC_WARN_UNUSED_RESULT;

VjLoc vj_block_loc_encode(uint32_t nonce);
/* False: not a locator of this driver. */
bool vj_block_loc_decode(VjLoc loc, uint32_t *nonce);

bool vj_block_is_mount_key(VjSlice key);
/* A change that sets that key. */
void vj_block_mounts_encode(const VjBlockMounts *mounts, VjStoreChange *out);
/* False: it is damaged. */
bool vj_block_mounts_decode(VjSlice value, VjBlockMounts *out);
/* A change that sets the key of @object. */
void vj_block_key_encode(const VjBlockObject *object, VjStoreChange *out);
/* A change that deletes a key. */
void vj_block_key_delete(uint64_t id, uint32_t nonce, VjStoreChange *out);
/* False: it is damaged, or names what is not on a device of @block_count blocks. */
bool vj_block_key_decode(VjSlice key, VjSlice value, uint64_t block_count,
                         VjBlockObject *out);
/* One that has one wrong bit, in key or value: the checksum proves which. */
bool vj_block_key_mend(VjSlice key, VjSlice value, uint64_t block_count,
                       VjBlockObject *out);

#endif
