/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * map.h - the file map: a counted B+tree from offset to entries
 *
 * Leaves hold entries in file order, inner nodes hold (child, bytes below child, stored
 * bytes below child); no node holds an absolute offset, so an insert in the middle
 * rewrites one path, and a subtree can be cut off whole with both sums known.  Nodes are
 * values of at most VJ_META_VALUE_CHEAP bytes in VJ_SPACE_NODE under (inode, node
 * number), both big-endian; layout in map-format.h.  A node carries its inode and number
 * and a checksum.
 *
 * The map does not count references: it reports which entries went, and the caller drops
 * and takes references in the same transaction.
 *
 * Threads: any; a transaction stays on its thread.  Locks: none.
 */
#ifndef VJ_MAP_MAP_H
#define VJ_MAP_MAP_H

#include "base/base.h"
#include "base/check.h"
#include "meta/meta.h"

/* The largest sum of the entries' lengths, and so the largest size in an inode record:
 * files could be longer once than VJ_FILE_SIZE_MAX, and stay readable. */
#define VJ_MAP_BYTES_MAX (((uint64_t)1 << 63) - 1 - 4096)

/* The root of a counted B+tree in VJ_SPACE_NODE. */
typedef struct VjMapRoot {
    uint32_t node;         /* 0: the tree is empty */
    uint32_t next_node;    /* node numbers below were used; starts at 1 */
    uint8_t height;        /* levels; 0 when empty, 1 when the root is a leaf */
    uint64_t bytes;        /* sum of the entries' lengths */
    uint64_t stored_bytes; /* sum of the entries' stored_bytes */
} VjMapRoot;

/* Root values that can be: -EBADMSG otherwise. */
int vj_map_root_check(const VjMapRoot *root) G_GNUC_WARN_UNUSED_RESULT;

typedef enum VjEntryKind {
    VJ_ENTRY_OBJECT = 1,   /* bytes [start, start + length) of object id */
    VJ_ENTRY_FRAGMENT = 2, /* bytes [start, start + length) of fragment id */
    VJ_ENTRY_HOLE = 3,     /* zeroes; id and start are 0 */
} VjEntryKind;

typedef struct VjEntry {
    uint64_t id;
    uint64_t length;       /* bytes, > 0 */
    uint32_t start;        /* bytes */
    uint32_t stored_bytes; /* its share of what is stored; summed up to the root */
    uint8_t kind;          /* VjEntryKind */
} VjEntry;

/* A subtree that a replace cut off whole; its nodes stay until vj_map_drop. */
typedef struct VjMapDetached {
    VjMapRoot root; /* next_node is 0: no node is ever added to it */
} VjMapDetached;

/* Walks entries of one snapshot or transaction in either direction. */
typedef struct VjMapCursor VjMapCursor;

/*
 * Owned by the caller; borrows @txn and copies @root.  It stands before the first entry;
 * when next or prev ran off an end, the other one gives the last or first entry.  After a
 * replace or drop of this map in the same transaction make a new one.
 */
VjMapCursor *vj_map_cursor_new(VjTxn *txn, uint64_t ino, const VjMapRoot *root);
void vj_map_cursor_free(VjMapCursor *c);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjMapCursor, vj_map_cursor_free)

/*
 * vj_map_cursor_seek - the entry that holds byte @offset
 *
 * @entry, @at  the entry and the offset of its first byte in the file
 * Returns   0; -ENOENT when offset >= bytes of the map (prev then gives the last entry);
 *           -EBADMSG damaged node (the place then is undefined until the next seek)
 *
 * Near the last place it reads only the nodes that differ on the path.
 */
int vj_map_cursor_seek(VjMapCursor *c, uint64_t offset, VjEntry *entry,
                       uint64_t *at) G_GNUC_WARN_UNUSED_RESULT;
int vj_map_cursor_next(VjMapCursor *c, VjEntry *entry,
                       uint64_t *at) G_GNUC_WARN_UNUSED_RESULT; /* -ENOENT at the end */
int vj_map_cursor_prev(VjMapCursor *c, VjEntry *entry,
                       uint64_t *at) G_GNUC_WARN_UNUSED_RESULT; /* -ENOENT at the start */

/*
 * vj_map_replace - entries covering [offset, offset + old_bytes) become @entries
 *
 * Both ends lie on entry boundaries (else -EINVAL): the caller cuts an entry itself and
 * passes the remainders in @entries.  Adjacent holes are merged; a hole beside the range
 * that is merged counts as removed.  Inserting between two entries is old_bytes 0.  After
 * a failure the transaction has to be aborted; @root, @removed and @detached are as
 * they were.
 * @root      updated in memory; the caller commits it with the inode record
 * @removed   entries that went one by one are appended (VjEntry); four leaves of them at
 *            most, when whole subtrees go
 * @detached  subtrees that went whole are appended (VjMapDetached), so that removing
 *            10^6 entries costs a few nodes; at most 2 * height of them
 * Returns    0; -EBADMSG, -EFBIG (size beyond VJ_MAP_BYTES_MAX), -ENOMEM, errors of meta
 */
int vj_map_replace(VjTxn *txn, uint64_t ino, VjMapRoot *root, uint64_t offset,
                   uint64_t old_bytes, const VjEntry *entries, size_t count,
                   GArray *removed, GArray *detached) G_GNUC_WARN_UNUSED_RESULT;

/*
 * VjMapEdit - several replaces in one transaction, each node read and written once
 *
 * Offsets of a replace are those after the replaces before it.  A failed edit can only be
 * freed, and then @removed and @detached are as they were; after a failed commit the
 * transaction has to be aborted.  Holds what it has looked at, 5 KiB a node.
 */
typedef struct VjMapEdit VjMapEdit;

/* Borrows all but @root; *out owned.  -EBADMSG, -ENOMEM, errors of meta. */
int vj_map_edit_new(VjTxn *txn, uint64_t ino, const VjMapRoot *root, GArray *removed,
                    GArray *detached, VjMapEdit **out) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_map_replace, in memory. */
int vj_map_edit_replace(VjMapEdit *e, uint64_t offset, uint64_t old_bytes,
                        const VjEntry *entries, size_t count) G_GNUC_WARN_UNUSED_RESULT;
/* Writes and deletes nodes, sets *root.  Once. */
int vj_map_edit_commit(VjMapEdit *e, VjMapRoot *root) G_GNUC_WARN_UNUSED_RESULT;
void vj_map_edit_free(VjMapEdit *e); /* NULL is fine */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VjMapEdit, vj_map_edit_free)

/*
 * vj_map_drop - remove up to @most entries from the end of a tree, and their nodes
 *
 * Reads and deletes about most / 160 leaves.
 * @root      updated; node 0 when nothing is left
 * @removed   the entries (VjEntry), appended
 * Returns    0; -EBADMSG, errors of meta: then abort the transaction
 */
int vj_map_drop(VjTxn *txn, uint64_t ino, VjMapRoot *root, size_t most,
                GArray *removed) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_map_check - walk a whole tree and verify each invariant
 *
 * Levels, fill, checksums, keys, sums, numbers, adjacent holes; @say (NULL: not wanted)
 * gets one line per violation, @visit (NULL: not wanted) each entry; false from it ends
 * the walk.  Behind a damaged node the walk goes on.  About 50 bytes of memory a node.
 * Returns 0 also with problems; @problems counts them, @nodes those that could be read.
 */
typedef bool VjMapVisit(void *opaque, const VjEntry *entry, uint64_t at);
int vj_map_check(VjTxn *txn, uint64_t ino, const VjMapRoot *root, VjMapVisit *visit,
                 VjCheckSay *say, void *opaque, uint64_t *nodes,
                 uint64_t *problems) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_map_check_shared - vj_map_check of one of several trees of an inode
 *
 * @seen     the node numbers that were met (GUINT_TO_POINTER); a node that stands in it
 *           already has two parents; borrowed
 */
int vj_map_check_shared(VjTxn *txn, uint64_t ino, const VjMapRoot *root, GHashTable *seen,
                        VjMapVisit *visit, VjCheckSay *say, void *opaque, uint64_t *nodes,
                        uint64_t *problems) G_GNUC_WARN_UNUSED_RESULT;

#endif
