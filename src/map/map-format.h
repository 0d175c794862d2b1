/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map-format.h - a map node on disk, and the same decoded
 *
 * A value of VJ_SPACE_NODE, little-endian, no padding:
 *
 *     head       VjMapHeadFormat
 *     items      head.count × VjMapEntryFormat (level 0) or VjMapChildFormat (level > 0)
 *     checksum   8 bytes: vj_checksum64 of everything before it
 *
 * The key is (inode, node number), both big-endian, and both are repeated in the head: a
 * node that was stored under a foreign key is found out.  Levels count from the leaves
 * and a child is exactly one level below its parent, so damaged nodes can neither form a
 * cycle nor make a walk deeper than VJ_MAP_HEIGHT_MAX.
 *
 * Threads: any; plain values.  Locks: none.
 */
#ifndef VJ_MAP_MAP_FORMAT_H
#define VJ_MAP_MAP_FORMAT_H

#include "map/map.h"

#define VJ_MAP_MAGIC 0x4e4d4a56u /* "VJMN" */
#define VJ_MAP_VERSION 1u
#define VJ_MAP_KEY_BYTES 12u
/* Levels of a tree.  At a quarter full 16 levels hold more than 2^64 entries. */
#define VJ_MAP_HEIGHT_MAX 16u
/* The sum of stored_bytes below one node: far from overflow when entries are added. */
#define VJ_MAP_STORED_MAX ((uint64_t)1 << 62)

typedef struct __attribute__((packed)) VjMapHeadFormat {
    uint32_t magic;
    uint8_t version;
    uint8_t level;
    uint16_t count; /* > 0 */
    uint64_t ino;
    uint32_t node; /* > 0 */
} VjMapHeadFormat;

typedef struct __attribute__((packed)) VjMapEntryFormat {
    uint64_t id; /* > 0, in a hole 0 */
    uint64_t length;
    uint32_t start;
    uint32_t stored_bytes;
    uint8_t kind;
} VjMapEntryFormat;

typedef struct __attribute__((packed)) VjMapChildFormat {
    uint32_t node;
    uint64_t bytes; /* sums over the entries below */
    uint64_t stored_bytes;
} VjMapChildFormat;

#define VJ_MAP_CHECKSUM_BYTES 8u
#define VJ_MAP_ITEMS_BYTES                                                               \
    (VJ_META_VALUE_CHEAP - sizeof(VjMapHeadFormat) - VJ_MAP_CHECKSUM_BYTES)
#define VJ_MAP_LEAF_MAX (VJ_MAP_ITEMS_BYTES / sizeof(VjMapEntryFormat))
#define VJ_MAP_INNER_MAX (VJ_MAP_ITEMS_BYTES / sizeof(VjMapChildFormat))

G_STATIC_ASSERT(sizeof(VjMapHeadFormat) == 20);
G_STATIC_ASSERT(offsetof(VjMapHeadFormat, version) == 4);
G_STATIC_ASSERT(offsetof(VjMapHeadFormat, level) == 5);
G_STATIC_ASSERT(offsetof(VjMapHeadFormat, count) == 6);
G_STATIC_ASSERT(offsetof(VjMapHeadFormat, ino) == 8);
G_STATIC_ASSERT(offsetof(VjMapHeadFormat, node) == 16);
G_STATIC_ASSERT(sizeof(VjMapEntryFormat) == 25);
G_STATIC_ASSERT(offsetof(VjMapEntryFormat, length) == 8);
G_STATIC_ASSERT(offsetof(VjMapEntryFormat, start) == 16);
G_STATIC_ASSERT(offsetof(VjMapEntryFormat, stored_bytes) == 20);
G_STATIC_ASSERT(offsetof(VjMapEntryFormat, kind) == 24);
G_STATIC_ASSERT(sizeof(VjMapChildFormat) == 20);
G_STATIC_ASSERT(offsetof(VjMapChildFormat, bytes) == 4);
G_STATIC_ASSERT(offsetof(VjMapChildFormat, stored_bytes) == 12);
G_STATIC_ASSERT(VJ_MAP_LEAF_MAX == 162);
G_STATIC_ASSERT(VJ_MAP_INNER_MAX == 202);

/* What is added up from the entries to the root. */
typedef struct VjMapSums {
    uint64_t bytes;
    uint64_t stored_bytes;
} VjMapSums;

typedef struct VjMapChild {
    uint32_t node;
    VjMapSums sums;
} VjMapChild;

/* One node, decoded.  About 5 KiB. */
typedef struct VjMapImage {
    uint64_t ino;
    uint32_t node;
    uint8_t level; /* 0: a leaf */
    uint16_t count;
    VjMapSums sums; /* of the items; set by decode, not used by encode */
    union {
        VjEntry entries[VJ_MAP_LEAF_MAX];
        VjMapChild children[VJ_MAP_INNER_MAX];
    };
} VjMapImage;

/* What can stand in a leaf: a known kind, some bytes, a range that fits its object. */
bool vj_map_entry_is_valid(const VjEntry *entry);

void vj_map_key_encode(uint64_t ino, uint32_t node, uint8_t key[VJ_MAP_KEY_BYTES]);

/*
 * vj_map_image_decode - the node @node of @ino from stored bytes, which are hostile
 *
 * Accepts exactly what vj_map_image_encode makes; -EBADMSG for anything else.
 */
int vj_map_image_decode(VjSlice value, uint64_t ino, uint32_t node,
                        VjMapImage *out) G_GNUC_WARN_UNUSED_RESULT;

/* Returns the bytes used of @dst.  The image is valid. */
size_t vj_map_image_encode(const VjMapImage *image, uint8_t dst[VJ_META_VALUE_CHEAP]);

#endif
