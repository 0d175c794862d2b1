/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-page-format.h - how LMDB 0.9 lays out its file, as far as we read it ourselves
 *
 * Everything is in the byte order of the host.  Pages are numbered from 0; the first two
 * hold a meta record each, of the last commit and of the one before it: that of commit n
 * lies in page n & 1.
 *
 *   page    number (8), unused (2), flags (2), then
 *           branch, leaf: end of the offsets (2), start of nodes (2), offsets (2 each)
 *           overflow: number of pages of the run (4); the value follows from byte 16
 *   node    low and high half of a number (2 each), flags (2), key length (2), the key,
 *           then in a leaf the value, or the page where its run begins (8).  The number
 *           is the value's length; in a branch that of the child, whose top are the
 *           flags.
 *   tree    key length or page size (4), flags (2), depth (2), branch, leaf and overflow
 *           pages, entries, root (8 each)
 *   meta    magic (4), version (4), address (8), map size (8), the trees of the free
 *           pages and of the names of the others (48 each), last page (8), number of the
 *           commit (8)
 */
#ifndef VJ_META_LMDB_PAGE_FORMAT_H
#define VJ_META_LMDB_PAGE_FORMAT_H

#include "base/base.h"

#define VJ_LMDB_PAGE_HEAD 16u
#define VJ_LMDB_NODE_HEAD 8u
#define VJ_LMDB_TREE_BYTES 48u
#define VJ_LMDB_META_BYTES 136u
#define VJ_LMDB_META_PAGES 2u
#define VJ_LMDB_MAGIC 0xBEEFC0DEu
#define VJ_LMDB_DATA_VERSION 1u
#define VJ_LMDB_KEY_MAX 511u
#define VJ_LMDB_NO_PAGE UINT64_MAX
/* Levels of a tree: LMDB's cursors have no room for more. */
#define VJ_LMDB_DEPTH_MAX 32u
#define VJ_LMDB_PAGE_BYTES_MIN 512u
#define VJ_LMDB_PAGE_BYTES_MAX 65536u

/* Flags of a page; exactly one of them is set in a file of ours. */
enum {
    VJ_LMDB_BRANCH = 1,
    VJ_LMDB_LEAF = 2,
    VJ_LMDB_OVERFLOW = 4,
    VJ_LMDB_META = 8,
};

/* Flags of a leaf's node. */
enum {
    VJ_LMDB_NODE_RUN = 1,  /* the value lies in overflow pages */
    VJ_LMDB_NODE_TREE = 2, /* the value is a tree */
};

/* Flags of the tree of free pages: its keys are integers. */
#define VJ_LMDB_INTEGER_KEYS 8u

typedef struct VjLmdbTreeRecord {
    uint32_t page_bytes;
    uint16_t flags, depth;
    uint64_t branch_pages, leaf_pages, run_pages, entries, root;
} VjLmdbTreeRecord;

G_STATIC_ASSERT(sizeof(VjLmdbTreeRecord) == VJ_LMDB_TREE_BYTES);

typedef struct VjLmdbMetaRecord {
    uint32_t magic, version;
    uint64_t address, map_bytes;
    VjLmdbTreeRecord free, main;
    uint64_t last_page, commit;
} VjLmdbMetaRecord;

G_STATIC_ASSERT(sizeof(VjLmdbMetaRecord) == VJ_LMDB_META_BYTES);
G_STATIC_ASSERT(offsetof(VjLmdbMetaRecord, free) == 24);
G_STATIC_ASSERT(offsetof(VjLmdbMetaRecord, last_page) == 120);

typedef struct VjLmdbPageHead {
    uint64_t number;
    uint16_t unused, flags;
    union {
        struct {
            uint16_t lower, upper;
        } nodes;
        uint32_t run_pages;
    };
} VjLmdbPageHead;

G_STATIC_ASSERT(sizeof(VjLmdbPageHead) == VJ_LMDB_PAGE_HEAD);

typedef struct VjLmdbNodeHead {
    uint16_t low, high, flags, key_bytes;
} VjLmdbNodeHead;

G_STATIC_ASSERT(sizeof(VjLmdbNodeHead) == VJ_LMDB_NODE_HEAD);

#endif
