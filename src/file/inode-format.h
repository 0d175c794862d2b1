/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * inode-format.h - bytes of inode, inline and orphan records, and of the inode counter
 *
 * Integers are little-endian.  Keys are big-endian, so that they sort by number:
 *   VJ_SPACE_INODE   ino (8): VjInodeDisk, with the rest of an inline content before its
 *                    checksum
 *   VJ_SPACE_INLINE  ino (8): VjInlineHead, the bytes but the rest, checksum (8) of all
 *                    before it
 *   VJ_SPACE_FRAGMENT  ino (8), number (4): VjFragmentHead, the bytes, checksum (8); the
 *                    number is above 0 and no other fragment of the inode has it
 *   VJ_SPACE_ORPHAN  ino (8), node (4): node 0 is a whole inode, else a cut-off subtree
 *   VJ_SPACE_SYSTEM  VJ_NEXT_INO_KEY: VjNextInoDisk; VJ_VOLUME_KEY: VjVolumeDisk;
 *                    VJ_SUPERBLOCK_KEY: VjSuperblockHead, the text of varjfs.conf,
 *                    checksum (8) of all before it
 *
 * The last byte of a magic is the version of its record.  A record repeats its key and
 * its checksum covers both, so one that lies under another's key is found out.  What is
 * reserved is 0; a decoder refuses anything else, because only a later version gives it a
 * meaning.
 */
#ifndef VJ_FILE_INODE_FORMAT_H
#define VJ_FILE_INODE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define VJ_INODE_MAGIC 0x314e4956u      /* "VIN1" */
#define VJ_INLINE_MAGIC 0x314c4956u     /* "VIL1" */
#define VJ_FRAGMENT_MAGIC 0x31524656u   /* "VFR1" */
#define VJ_ORPHAN_MAGIC 0x32524f56u     /* "VOR2" */
#define VJ_NEXT_INO_MAGIC 0x314e4e56u   /* "VNN1" */
#define VJ_VOLUME_MAGIC 0x314c5656u     /* "VVL1" */
#define VJ_SUPERBLOCK_MAGIC 0x31425356u /* "VSB1" */

#define VJ_NEXT_INO_KEY "next-ino"
#define VJ_VOLUME_KEY "volume"
#define VJ_SUPERBLOCK_KEY "superblock"

typedef struct VjInodeDisk {
    uint32_t magic;
    uint8_t content; /* VjContent */
    uint8_t height;  /* of the map */
    uint16_t flags;  /* VJ_INODE_*; unknown bits are a newer format: refused */
    uint64_t ino;    /* as in the key */
    uint64_t generation;
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    uint32_t nlink;
    uint64_t rdev;
    int64_t atime_sec, mtime_sec, ctime_sec, btime_sec;
    uint32_t atime_nsec, mtime_nsec, ctime_nsec, btime_nsec;
    uint64_t parent;
    uint64_t entry_count;
    uint64_t next_cookie;
    uint8_t codec;
    uint8_t param;
    int8_t level;
    uint8_t transform_mode;
    uint32_t key_id;
    uint32_t object_min, object_avg, object_max;
    uint32_t root_node;
    uint64_t size;
    uint64_t stored_bytes;
    uint64_t map_version;
    uint32_t root_next_node;
    uint8_t safety; /* VjSafety */
    uint8_t inline_rest_bytes;
    uint8_t reserved[2]; /* 0 */
    uint64_t root_bytes;
    /* The rest of an inline content stands here. */
    uint64_t checksum; /* vj_checksum64 of the bytes before */
} VjInodeDisk;

_Static_assert(sizeof(VjInodeDisk) == 192, "inode record layout");
_Static_assert(offsetof(VjInodeDisk, atime_sec) == 48, "inode record layout");
_Static_assert(offsetof(VjInodeDisk, size) == 144, "inode record layout");
_Static_assert(offsetof(VjInodeDisk, safety) == 172, "inode record layout");
_Static_assert(offsetof(VjInodeDisk, checksum) == 184, "inode record layout");

/* In front of inline content. */
typedef struct VjInlineHead {
    uint32_t magic;
    uint8_t codec; /* of the bytes that follow; 0 = none */
    uint8_t param;
    uint16_t plain_bytes;
    uint64_t ino;    /* as in the key */
    uint32_t key_id; /* 0: no key */
    /* Of the bytes that follow as they would be, those that stand in the record of the
     * inode: the lower half of their vj_checksum64, 1 where that is 0.  0: none do. */
    uint32_t rest_checksum;
} VjInlineHead;

_Static_assert(sizeof(VjInlineHead) == 24, "inline head has a fixed size");
_Static_assert(offsetof(VjInlineHead, ino) == 8, "inline head layout");
#define VJ_INLINE_CHECKSUM_BYTES 8u

/* In front of a fragment's bytes: content that one map entry names and that is no
 * object. */
typedef struct VjFragmentHead {
    uint32_t magic;
    uint8_t codec; /* of the bytes that follow; 0 = none */
    uint8_t param;
    uint16_t plain_bytes; /* at most VJ_FILE_INLINE_MAX */
    uint64_t ino;         /* as in the key */
    uint32_t number;      /* as in the key */
    uint32_t key_id;      /* 0: no key */
} VjFragmentHead;

_Static_assert(sizeof(VjFragmentHead) == 24, "fragment head has a fixed size");
_Static_assert(offsetof(VjFragmentHead, number) == 16, "fragment head layout");

typedef struct VjOrphanDisk {
    uint32_t magic;
    uint32_t node;  /* as in the key */
    uint64_t ino;   /* as in the key */
    uint64_t bytes; /* of a subtree; 0 for an inode */
    uint64_t stored_bytes;
    uint64_t session; /* whose it is; 0: of one that has ended */
    uint8_t height;
    uint8_t flags;       /* VJ_ORPHAN_*; unknown bits are refused */
    uint8_t reserved[6]; /* 0 */
    uint64_t checksum;   /* vj_checksum64 of the bytes before */
} VjOrphanDisk;

_Static_assert(sizeof(VjOrphanDisk) == 56, "orphan records have a fixed size");
_Static_assert(offsetof(VjOrphanDisk, session) == 32, "orphan record layout");
_Static_assert(offsetof(VjOrphanDisk, height) == 40, "orphan record layout");

/* The first inode number that was never given out. */
typedef struct VjNextInoDisk {
    uint32_t magic;
    uint32_t reserved; /* 0 */
    uint64_t next;
    uint64_t checksum; /* vj_checksum64 of the bytes before */
} VjNextInoDisk;

_Static_assert(sizeof(VjNextInoDisk) == 24, "the inode counter has a fixed size");

/* Which volume this metadata belongs to. */
typedef struct VjVolumeDisk {
    uint32_t magic;
    uint32_t reserved; /* 0 */
    uint8_t uuid[16];  /* in the order of its text */
    uint64_t checksum; /* vj_checksum64 of the bytes before */
} VjVolumeDisk;

_Static_assert(sizeof(VjVolumeDisk) == 32, "the volume's record has a fixed size");

/* In front of the copy of varjfs.conf. */
typedef struct VjSuperblockHead {
    uint32_t magic;
    uint32_t reserved; /* 0 */
} VjSuperblockHead;

_Static_assert(sizeof(VjSuperblockHead) == 8, "superblock head has a fixed size");

#endif
