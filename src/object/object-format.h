/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-format.h - how objects, index, dead and id blocks are written down
 *
 * Values are little-endian, without padding, each with magic, version and a checksum that
 * is compared before anything else is used.  Keys are big-endian so that they sort by
 * number.
 *
 * VJ_SPACE_OBJECT and VJ_SPACE_DEAD: key BE64 id; value, VJ_OBJECT_RECORD_BYTES:
 *      0   4  magic "VJob" (referenced) or "VJde" (dead)
 *      4   1  version, 1; of the dead 2
 *      5   1  codec: what the bytes are encoded with
 *      6   1  requested codec   7   1  its parameter
 *      8   8  id, as in the key
 *     16   4  plain bytes      20   4  stored bytes (data and trailer)
 *     24   4  key id
 *     28   4  flags, VJ_OBJECT_*; VJ_OBJECT_REMOVING in DEAD alone
 *     32   4  deaths           36   4  zero
 *     40   8  references: > 0 in OBJECT, 0 in DEAD
 *     48   8  checksum of the trailer (stored-form.h)
 *     56  16  locator          72  32  digest, zero behind its length
 *    104   8  checksum of bytes 0..103
 *
 * VJ_SPACE_INDEX: key, VJ_INDEX_KEY_BYTES:
 *      0  32  digest, zero behind its length     32   4  plain bytes
 *     36   1  requested codec  37   1  its parameter   38   4  key id
 *   value, VJ_INDEX_VALUE_BYTES:
 *      0   4  magic "VJix"      4   1  version, 1       5   3  zero
 *      8   8  object id        16   8  checksum of the key followed by bytes 0..15
 *
 * VJ_SPACE_ID_BLOCK: key BE64 first id; value, VJ_ID_BLOCK_BYTES:
 *      0   4  magic "VJib"      4   1  version, 2       5   3  zero
 *      8   8  first id         16   8  last id
 *     24   8  owner: the session that takes ids of it; 0: one that has no number
 *     32   8  checksum of bytes 0..31
 *
 * VJ_SPACE_SYSTEM, key VJ_NEXT_ID_KEY; value, VJ_NEXT_ID_BYTES:
 *      0   4  magic "VJno"      4   1  version, 1       5   3  zero
 *      8   8  first id that no id block has held          16   8  checksum of bytes 0..15
 *
 * VJ_SPACE_SYSTEM, key VJ_EPOCH_KEY; value, VJ_EPOCH_BYTES; shared sessions alone:
 *      0   4  magic "VJep"      4   1  version, 1       5   3  zero
 *      8   8  the epoch that the last pass over the dead began  16  8  checksum of 0..15
 */
#ifndef VJ_OBJECT_OBJECT_FORMAT_H
#define VJ_OBJECT_OBJECT_FORMAT_H

#include "object/object.h"

#define VJ_OBJECT_KEY_BYTES 8u
#define VJ_OBJECT_RECORD_BYTES 112u
#define VJ_INDEX_KEY_BYTES 42u
#define VJ_INDEX_VALUE_BYTES 24u
#define VJ_ID_BLOCK_BYTES 40u
#define VJ_NEXT_ID_BYTES 24u
#define VJ_NEXT_ID_KEY "object-next-id"
#define VJ_EPOCH_BYTES 24u
#define VJ_EPOCH_KEY "epoch"

/* Of object records, the index and counters; of dead records; of id blocks. */
#define VJ_OBJECT_FORMAT_VERSION 1u
#define VJ_DEAD_FORMAT_VERSION 2u
#define VJ_ID_BLOCK_FORMAT_VERSION 2u

G_STATIC_ASSERT(VJ_OBJECT_RECORD_BYTES == 72u + VJ_DIGEST_MAX_BYTES + 8u);
G_STATIC_ASSERT(VJ_INDEX_KEY_BYTES == VJ_DIGEST_MAX_BYTES + 4u + 1u + 1u + 4u);
G_STATIC_ASSERT(VJ_LOC_BYTES == 16u);

typedef struct VjIndexKey {
    uint8_t bytes[VJ_INDEX_KEY_BYTES];
} VjIndexKey;

/* The key under which the index knows content with this digest. */
void vj_index_key(const VjDigest *digest, uint32_t plain_bytes, uint8_t requested_codec,
                  uint8_t param, uint32_t key_id, VjIndexKey *out);
/* The same, of an object. */
void vj_index_key_of(const VjObject *object, VjIndexKey *out);

/* @space is VJ_SPACE_OBJECT or VJ_SPACE_DEAD; refs must fit it. */
void vj_object_encode(const VjObject *object, VjSpace space,
                      uint8_t out[VJ_OBJECT_RECORD_BYTES]);
/* -EBADMSG: not a record of @id in @space. */
int vj_object_decode(VjSlice value, VjSpace space, uint64_t id,
                     VjObject *out) G_GNUC_WARN_UNUSED_RESULT;

void vj_index_encode(const VjIndexKey *key, uint64_t id,
                     uint8_t out[VJ_INDEX_VALUE_BYTES]);
int vj_index_decode(const VjIndexKey *key, VjSlice value,
                    uint64_t *id) G_GNUC_WARN_UNUSED_RESULT;

/* An id block as its record says it. */
typedef struct VjIdRange {
    uint64_t first_id, last_id;
    uint64_t owner; /* vj_meta_session() of the session that takes ids of it */
} VjIdRange;

void vj_id_block_encode(const VjIdRange *range, uint8_t out[VJ_ID_BLOCK_BYTES]);
int vj_id_block_decode(VjSlice key, VjSlice value,
                       VjIdRange *range) G_GNUC_WARN_UNUSED_RESULT;

void vj_next_id_encode(uint64_t next_id, uint8_t out[VJ_NEXT_ID_BYTES]);
int vj_next_id_decode(VjSlice value, uint64_t *next_id) G_GNUC_WARN_UNUSED_RESULT;

void vj_epoch_encode(uint64_t epoch, uint8_t out[VJ_EPOCH_BYTES]);
int vj_epoch_decode(VjSlice value, uint64_t *epoch) G_GNUC_WARN_UNUSED_RESULT;

/* In a transaction.  get: -ENOENT, -EBADMSG, errors of meta. */
int vj_object_record_get(VjTxn *txn, VjSpace space, uint64_t id,
                         VjObject *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_object_record_put(VjTxn *txn, VjSpace space,
                         const VjObject *object) G_GNUC_WARN_UNUSED_RESULT;
int vj_object_record_del(VjTxn *txn, VjSpace space,
                         uint64_t id) G_GNUC_WARN_UNUSED_RESULT;
/* As vj_txn_expect. */
void vj_index_expect(VjTxn *txn, const VjIndexKey *keys, size_t count);
int vj_index_get(VjTxn *txn, const VjIndexKey *key,
                 uint64_t *id) G_GNUC_WARN_UNUSED_RESULT;
int vj_index_put(VjTxn *txn, const VjIndexKey *key,
                 uint64_t id) G_GNUC_WARN_UNUSED_RESULT;
int vj_index_del(VjTxn *txn, const VjIndexKey *key) G_GNUC_WARN_UNUSED_RESULT;

/* As get, in a view of their own. */
int vj_object_record_view(VjMeta *m, VjSpace space, uint64_t id,
                          VjObject *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_index_view(VjMeta *m, const VjIndexKey *key,
                  uint64_t *id) G_GNUC_WARN_UNUSED_RESULT;

#endif
