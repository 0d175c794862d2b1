/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * session-format.h - how sessions and what they claim are written down
 *
 * Values are little-endian, without padding, each with magic, version and a checksum that
 * covers the key too.  Keys are big-endian, so that they sort by number.
 *
 * VJ_SPACE_SESSION, key BE64 id: the record of a session, VJ_SESSION_RECORD_BYTES:
 *      0   4  magic "VJss"      4   1  version, 1
 *      5   1  state, VjSessionState               6   1  kind, VjSessionKind
 *      7   1  bytes of the name                   8   8  id, as in the key
 *     16  64  name, zero behind its length
 *     80   8  checksum of the key followed by bytes 0..79
 * It is written when the session begins, and again only when another one shuts it out:
 * the version that the engine gives it is the session's fence.
 *
 * VJ_SPACE_SESSION, key BE64 id, 'H': the process that has the session, where it is an
 * exclusive one with a lease, VJ_HOLDER_BYTES:
 *      0   4  magic "VJsh"      4   1  version, 1       5   3  zero
 *      8  16  boot id of its machine; all zero: not known
 *     24  16  random
 *     40   8  its PID namespace                        48   8  its PID there
 *     56   8  when it began, clock ticks after boot; 0: not known
 *     64   8  checksum of the key followed by bytes 0..63
 *
 * All others are a number, VJ_NUMBER_BYTES:
 *      0   4  magic             4   1  version, 1       5   3  zero
 *      8   8  the number       16   8  checksum of the key followed by bytes 0..15
 *
 *   space     key                           magic    number
 *   SYSTEM    "next-session"                "VJsn"   the first id that was never given
 *   SESSION   BE64 id, 'C'                  "VJsc"   of its last commit; shared ones
 *   SESSION   BE64 id, 'E'                  "VJse"   the epoch that it published
 *   SESSION   BE64 id, 'L'                  "VJsl"   when its lease ends, microseconds;
 *                                                    of those that have one
 *   CLAIM     0, BE64 id, kind, BE64 number "VJci"   id: what a session has
 *   CLAIM     kind, BE64 number             "VJcl"   id of the session that has it
 *   CLAIM     3, BE64 object                "VJch"   how many hold the object, > 0
 *   CLAIM     3, BE64 object, BE64 id       "VJcl"   id of one that does
 */
#ifndef VJ_META_SESSION_FORMAT_H
#define VJ_META_SESSION_FORMAT_H

#include "meta/session.h"

#define VJ_SESSION_FORMAT_VERSION 1u
#define VJ_SESSION_RECORD_BYTES 88u
#define VJ_NUMBER_BYTES 24u
#define VJ_HOLDER_BYTES 72u
#define VJ_NEXT_SESSION_KEY "next-session"

#define VJ_SESSION_KEY_BYTES 8u
#define VJ_SESSION_SUB_KEY_BYTES 9u
#define VJ_CLAIM_KEY_BYTES 9u
#define VJ_HOLD_KEY_BYTES 17u
#define VJ_CLAIM_INDEX_KEY_BYTES 18u
G_STATIC_ASSERT(VJ_SESSION_RECORD_BYTES == 16u + (VJ_SESSION_NAME_MAX + 1u) + 8u);
G_STATIC_ASSERT(VJ_NUMBER_BYTES == 16u + 8u);
G_STATIC_ASSERT(VJ_HOLDER_BYTES == 8u + 2u * 16u + 3u * 8u + 8u);
G_STATIC_ASSERT(VJ_CLAIM_INDEX_KEY_BYTES == 1u + 8u + VJ_CLAIM_KEY_BYTES);
/* The kind of the keys that say what a session has. */
#define VJ_CLAIM_INDEX 0u

typedef enum VjSessionState {
    VJ_SESSION_LIVE = 1,
    VJ_SESSION_ENDED = 2,
} VjSessionState;

typedef enum VjSessionKind {
    VJ_SESSION_EXCLUSIVE = 1,
    VJ_SESSION_SHARED = 2,
} VjSessionKind;

typedef struct VjSessionRecord {
    uint64_t id;
    VjSessionState state;
    VjSessionKind kind;
    char name[VJ_SESSION_NAME_MAX + 1];
} VjSessionRecord;

/* What a number says. */
typedef enum VjNumber {
    VJ_NUMBER_NEXT_SESSION,
    VJ_NUMBER_COMMIT,
    VJ_NUMBER_EPOCH,
    VJ_NUMBER_LEASE,
    VJ_NUMBER_INDEX,
    VJ_NUMBER_CLAIM,
    VJ_NUMBER_HOLDS,
} VjNumber;

/* The process that has a session. */
typedef struct VjHolder {
    uint8_t boot[16], nonce[16];
    uint64_t pid_namespace, pid, started;
} VjHolder;

/* Behind the id, in the keys of what else a session has. */
#define VJ_SESSION_SUB_COMMIT 'C'
#define VJ_SESSION_SUB_EPOCH 'E'
#define VJ_SESSION_SUB_HOLDER 'H'
#define VJ_SESSION_SUB_LEASE 'L'

/* A key with its bytes. */
typedef struct VjSessionKey {
    uint8_t bytes[VJ_CLAIM_INDEX_KEY_BYTES];
    uint8_t len;
} VjSessionKey;

static inline VjSlice vj_session_key_slice(const VjSessionKey *key)
{
    return vj_slice(key->bytes, key->len);
}

VjSessionKey vj_session_key(uint64_t id);
/* @sub: VJ_SESSION_SUB_… */
VjSessionKey vj_session_sub_key(uint64_t id, char sub);
VjSessionKey vj_claim_key(VjClaimKind kind, uint64_t number);
VjSessionKey vj_hold_key(uint64_t object, uint64_t session);
VjSessionKey vj_claim_index_key(uint64_t session, VjClaimKind kind, uint64_t number);

/* @name: cut at VJ_SESSION_NAME_MAX bytes. */
VjSessionRecord vj_session_record_of(uint64_t id, VjSessionKind kind, const char *name);
void vj_session_encode(const VjSessionRecord *record,
                       uint8_t out[VJ_SESSION_RECORD_BYTES]);
/* -EBADMSG. */
int vj_session_decode(VjSlice key, VjSlice value,
                      VjSessionRecord *out) G_GNUC_WARN_UNUSED_RESULT;

void vj_number_encode(VjNumber what, VjSlice key, uint64_t number,
                      uint8_t out[VJ_NUMBER_BYTES]);
/* -EBADMSG. */
int vj_number_decode(VjNumber what, VjSlice key, VjSlice value,
                     uint64_t *number) G_GNUC_WARN_UNUSED_RESULT;

void vj_holder_encode(const VjHolder *holder, VjSlice key, uint8_t out[VJ_HOLDER_BYTES]);
/* -EBADMSG. */
int vj_holder_decode(VjSlice key, VjSlice value, VjHolder *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
