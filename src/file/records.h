/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * records.h - the records in which contents are kept, for the rooms that check and repair
 * them
 *
 * Inodes and their numbers (inode.c), inline contents (inline.c), fragments (fragment.c)
 * and orphans (orphan-record.c).
 */
#ifndef VJ_FILE_RECORDS_H
#define VJ_FILE_RECORDS_H

#include "file/file.h"

/* ---- inodes ------------------------------------------------------------------------ */

/* Inode numbers stay below, so that front can pack them. */
#define VJ_INO_MAX ((uint64_t)1 << 48)

/* The first inode number that was never given out.  -EBADMSG. */
int vj_ino_next(VjTxn *txn, uint64_t *next) G_GNUC_WARN_UNUSED_RESULT;
/* One number, and the counter behind it: for a repair, and for tests. */
int vj_ino_take(VjTxn *txn, uint64_t *ino) G_GNUC_WARN_UNUSED_RESULT;
/* The record of that counter. */
#define VJ_NEXT_INO_BYTES 24u
void vj_ino_next_encode(uint64_t next, uint8_t out[VJ_NEXT_INO_BYTES]);
#define VJ_INO_KEY_BYTES 8u
VjSlice vj_ino_key(uint64_t ino, uint8_t bytes[VJ_INO_KEY_BYTES]);
int vj_inode_decode(VjSlice value, uint64_t ino, VjInode *out) G_GNUC_WARN_UNUSED_RESULT;

/* ---- inline contents --------------------------------------------------------------- */

/* Inline contents in a transaction.  *stored_bytes of the encoded content; NULL: not
 * wanted. */
int vj_inline_get(VjTxn *txn, const VjInode *inode, void *dst, size_t cap,
                  uint64_t *stored_bytes) G_GNUC_WARN_UNUSED_RESULT;
/* What the record of @ino has of a content, without that of the inode. */
typedef struct VjInlineParts {
    uint16_t plain_bytes; /* of all of it; 0: the record says nothing that can be used */
    uint16_t rest_bytes;  /* of these, that are in the record of the inode */
    uint32_t rest_checksum;
    uint64_t stored_bytes;             /* in this record */
    uint8_t first[VJ_FILE_INLINE_MAX]; /* those before the rest */
} VjInlineParts;

/* -ENOENT, -EBADMSG; -EOPNOTSUPP a transformation that is not in this build: all but
 * first is set. */
int vj_inline_parts(VjTxn *txn, uint64_t ino,
                    VjInlineParts *out) G_GNUC_WARN_UNUSED_RESULT;
/* These bytes are the rest that it lacks, as they are stored. */
bool vj_inline_is_rest(const VjInlineParts *parts, const void *bytes, size_t len);
/* A record, and what does not go into it: made before the transaction, as encoding takes
 * time. */
typedef struct VjInlineRecord {
    uint64_t stored_bytes;
    size_t len;
    uint8_t bytes[VJ_META_VALUE_CHEAP];
    uint8_t rest_bytes;
    uint8_t rest[VJ_FILE_INLINE_REST_MAX];
} VjInlineRecord;
void vj_inline_make(uint64_t ino, const VjTransform *want, const void *src, size_t len,
                    VjInlineRecord *out);
/* Sets content, stored bytes and rest of @inode, which the caller then puts. */
int vj_inline_put(VjTxn *txn, VjInode *inode,
                  const VjInlineRecord *record) G_GNUC_WARN_UNUSED_RESULT;
/* *is_same: that very record and rest are there. */
int vj_inline_is(VjTxn *txn, const VjInode *inode, const VjInlineRecord *record,
                 bool *is_same) G_GNUC_WARN_UNUSED_RESULT;
int vj_inline_del(VjTxn *txn, uint64_t ino) G_GNUC_WARN_UNUSED_RESULT;

/* ---- fragments: bytes that one map entry names and that are no object -------------- */

/*
 * Fragments (fragment.c): bytes that one map entry names and that are no object.
 * get: @len bytes of the entry from its @skip on.  -EBADMSG; -EOPNOTSUPP an unknown
 * transformation.
 */
int vj_fragment_get(VjTxn *txn, uint64_t ino, const VjEntry *entry, uint64_t skip,
                    void *dst, size_t len) G_GNUC_WARN_UNUSED_RESULT;
int vj_fragment_put(VjTxn *txn, uint64_t ino, uint32_t number, const VjTransform *want,
                    const void *src, size_t len) G_GNUC_WARN_UNUSED_RESULT;
/* Most bytes of one that this version makes: its record takes one page of the
 * metadata. */
#define VJ_FRAGMENT_MOST (VJ_META_VALUE_CHEAP - 32u)
/* One that is made before its transaction: encoding takes time. */
typedef struct VjFragment {
    bool is_plain;     /* it is encoded when its number is known, as want says */
    VjTransform want;  /* is_plain */
    VjRecordCodec how; /* else */
    uint16_t plain_bytes, len;
    uint8_t bytes[]; /* len, as encoded if it is */
} VjFragment;
/* Owned; g_free. */
VjFragment *vj_fragment_new(const VjTransform *want, const void *src, size_t len);
/* Under a number that no fragment of @ino has.  -EFBIG: there is none; errors of meta. */
int vj_fragment_add(VjTxn *txn, uint64_t ino, const VjFragment *fragment,
                    uint32_t *number) G_GNUC_WARN_UNUSED_RESULT;
/* In a transaction: what an entry that left a map named loses that name. */
int vj_entry_drop(VjTxn *txn, uint64_t ino,
                  const VjEntry *entry) G_GNUC_WARN_UNUSED_RESULT;

/* ---- orphans ----------------------------------------------------------------------- */

/* A record of VJ_SPACE_ORPHAN: what has lost its name, and which session drops it. */
typedef struct VjOrphan {
    uint64_t ino;
    VjMapRoot root; /* node 0: the inode itself, else a subtree */
    /* Others leave it alone while that session lives.  0: of one that has ended. */
    uint64_t session;
    uint32_t flags; /* VJ_ORPHAN_* */
} VjOrphan;

/* On disk.  Another session took the name of what @session has open: that one drops it
 * when it closes the content. */
#define VJ_ORPHAN_LEFT_OPEN 1u
#define VJ_ORPHAN_FLAGS VJ_ORPHAN_LEFT_OPEN

#define VJ_ORPHAN_BYTES 56u
#define VJ_ORPHAN_KEY_BYTES 12u
VjSlice vj_orphan_key(uint64_t ino, uint32_t node, uint8_t bytes[VJ_ORPHAN_KEY_BYTES]);
void vj_orphan_encode(const VjOrphan *orphan, uint8_t out[VJ_ORPHAN_BYTES]);
/* Of an inode.  -ENOENT, -EBADMSG. */
int vj_orphan_get(VjTxn *txn, uint64_t ino, VjOrphan *out) G_GNUC_WARN_UNUSED_RESULT;
/* -EBADMSG */
int vj_orphan_decode(VjSlice key, VjSlice value, VjOrphan *out) G_GNUC_WARN_UNUSED_RESULT;
/* In a transaction: a subtree that a replace cut off. */
int vj_orphan_put_tree(VjTxn *txn, uint64_t ino,
                       const VjMapRoot *root) G_GNUC_WARN_UNUSED_RESULT;

#endif
