/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object.h - content under its digest: stored form, records, index, references, removal
 *
 * Plaintext goes in, an object id with a reference comes out; equal content under the
 * same requested transformation is one object.  The order of durability of design section
 * 4 is kept here and in write-back:
 *     bytes put → store flushed → commit that refers to them;
 *     commit that drops the last reference, durable → bytes removed.
 *
 * An object lives in VJ_SPACE_OBJECT (record, reference count) and VJ_SPACE_INDEX while
 * it is referenced, in VJ_SPACE_DEAD from the commit that dropped the last reference
 * until its bytes are removed.  A pinned dead object is not removed and may be referenced
 * again, until a commit says in its record that it is being removed.
 */
#ifndef VJ_OBJECT_OBJECT_H
#define VJ_OBJECT_OBJECT_H

#include "base/base.h"
#include "base/check.h"
#include "meta/meta.h"
#include "meta/session.h"
#include "store/store.h"

/* Plaintext of one object, bytes. */
#define VJ_OBJECT_PLAIN_MAX ((uint32_t)16 << 20)
/* Ids of one id block. */
#define VJ_ID_BLOCK_IDS ((uint64_t)65536)

typedef struct VjObjects VjObjects;

/* How a file's bytes are transformed; decode needs codec and param alone. */
typedef struct VjTransform {
    uint8_t codec;   /* VjCodecOps.id; 0 = none */
    uint8_t param;   /* what decoding needs (xor: the byte) */
    int8_t level;    /* what encoding wants; 0 = the codec's default */
    uint8_t mode;    /* VJ_MODE_* */
    uint32_t key_id; /* 0: no key */
} VjTransform;

enum { VJ_MODE_CLIENT = 0, VJ_MODE_SERVER = 1, VJ_MODE_TRANSPORT = 2 };

/*
 * The setting user.varjfs.transform: @text is what mkfs takes as transform=.  Changes all
 * of @t but its mode.  Unknown: EINVAL and one line that names what there is.
 */
bool vj_transform_parse(const char *text, VjTransform *t, GError **error);
/* The shortest text that means @t; "unknown-N" when codec N is not in this build;
 * owned. */
char *vj_transform_text(const VjTransform *t);
/* It is in this build, and needs no key: there are none yet. */
bool vj_transform_is_known(const VjTransform *t);
/* What is stored has as many bytes as what it is made of. */
bool vj_transform_keeps_length(const VjTransform *t);

/* Why a range cannot be read, for a line of the log that names the file: a caller that
 * knows the file's name writes it. */
typedef struct VjFault {
    uint64_t object; /* 0: it is not about one */
    uint64_t offset; /* of the range in the file */
    char why[160];   /* "": nothing is known, or it has been logged already */
} VjFault;

/* An object record in memory. */
typedef struct VjObject {
    uint64_t id;
    VjLoc loc;
    uint32_t plain_bytes;
    uint32_t stored_bytes; /* data and trailer */
    uint8_t codec; /* what the bytes are encoded with; none when it did not shrink */
    uint8_t requested_codec; /* with param and key_id: what the index knows it under */
    uint8_t param;
    uint32_t key_id;
    uint32_t flags;  /* VJ_OBJECT_* */
    uint32_t deaths; /* how often its last reference went: distinguishes its deaths */
    uint64_t trailer_checksum;
    uint64_t refs;
    VjDigest digest;
    VjFault *fault; /* takes why it cannot be read; NULL, as decoded: the log does */
} VjObject;

enum {
    /* The index does not name it: another object holds its key, or it is damaged. */
    VJ_OBJECT_UNINDEXED = 1 << 0,
    /* Its bytes were found damaged: readable where they are whole, never shared again. */
    VJ_OBJECT_DAMAGED = 1 << 1,
    /* A node made the stored form, and takes it apart for reads of a part. */
    VJ_OBJECT_BY_NODE = 1 << 3,
    /* It is encoded on its way from a node, if that is shorter. */
    VJ_OBJECT_ON_WIRE = 1 << 4,
    /* Of a dead one: its bytes are being removed, or are gone.  Nothing revives it. */
    VJ_OBJECT_REMOVING = 1 << 2,
};

/* What an entry of @length bytes of @o counts as stored, rounded up: at most all
 * of it. */
static inline uint32_t vj_object_share(const VjObject *o, uint64_t length)
{
    if (length == o->plain_bytes) {
        return o->stored_bytes;
    }
    return (uint32_t)(((uint64_t)o->stored_bytes * length + o->plain_bytes - 1) /
                      o->plain_bytes);
}

typedef struct VjObjectsConfig {
    VjMeta *meta;   /* borrowed */
    VjStore *store; /* borrowed */
    const VjDigestOps *digest;
    uint64_t cache_bytes; /* plaintext kept for readers */
    /* Ids of one id block; 0: VJ_ID_BLOCK_IDS; tests make them short. */
    uint64_t block_ids;
    bool read_only; /* no recovery, no threads, no vj_object_store */
} VjObjectsConfig;

/*
 * vj_objects_open - recovery and background work
 *
 * Unless read_only: objects that have no record and whose id lies in an open id block of
 * a session which has ended are removed from the store, what it left dead is removed, a
 * new id block is taken durably.  Starts the reaper thread.  Setup only.
 */
bool vj_objects_open(const VjObjectsConfig *config, VjObjects **out, GError **error);
/* For the open of a store whose objects' records are in @meta: the driver's own keys
 * there.  Valid as long as @meta is open. */
VjStoreKeys vj_object_store_keys(VjMeta *meta);
/* The volume is opened by who may write: the store says so where others would see it
 * (VjStoreOps.claim).  Setup only; blocks. */
int vj_object_claim_store(VjMeta *meta, VjStore *store) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_objects_release_session - session @id has ended: what it put and did not commit goes
 *
 * Its id blocks with it.  An open has done so for the sessions that had ended by then.
 * Returns   0, also when nothing is left of it; errors of store and meta: to be called
 *           again.  Idempotent, also beside other sessions that do the same
 * Threads   any; blocks      Locks   none
 */
int vj_objects_release_session(VjObjects *o, uint64_t id) G_GNUC_WARN_UNUSED_RESULT;
/* Stops the reaper, closes id blocks (durable), frees.  0 or what failed. */
int vj_objects_close(VjObjects *o) G_GNUC_WARN_UNUSED_RESULT;

/* ---- reading ----------------------------------------------------------------------- */

/*
 * A guard keeps every object that a snapshot taken under it names from being removed.
 * Enter before vj_meta_view, leave after what it saw was used.  Short: one request.
 */
typedef struct VjReadGuard {
    unsigned epoch;
} VjReadGuard;
void vj_objects_guard_enter(VjObjects *o, VjReadGuard *g);
void vj_objects_guard_leave(VjObjects *o, VjReadGuard *g);

/* A pin keeps one object for longer (pieces in memory).  Taken under a guard or a pin. */
void vj_object_pin(VjObjects *o, uint64_t id);
void vj_object_unpin(VjObjects *o, uint64_t id);

/* The record of @id, referenced or dead.  -ENOENT; -EBADMSG. */
int vj_object_get(VjTxn *txn, uint64_t id, VjObject *out) G_GNUC_WARN_UNUSED_RESULT;
/* These records will be asked for: as vj_txn_expect. */
void vj_object_expect_records(VjTxn *txn, const uint64_t *ids, size_t count);

/*
 * vj_object_read - plaintext bytes [start, start + len), verified
 *
 * @whole    a hint: the rest will be wanted soon, cache all of it; not followed where
 *           that would be out of proportion to @len or to the cache
 * Returns   0; -EBADMSG damaged (logged with object id; other ranges stay readable);
 *           -EOPNOTSUPP a transformation that is not in this build (logged);
 *           -ENOENT not in the store; -EIO, -ENOMEM
 * Threads   any, under a guard or pin; blocks      Locks   none
 */
int vj_object_read(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                   uint32_t len, bool whole) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_object_hold - the plaintext in the cache's own memory, for a read of
 * [start, start + len)
 *
 * Waits where it is being loaded.
 * Returns   owned, all plaintext of @object, verified, for reading alone; NULL: it is
 *           not there, or @len is short: then vj_object_read, which reports errors too
 * Threads   any, under a guard or pin; blocks as vj_object_read      Locks   none
 */
VjBuf *vj_object_hold(VjObjects *o, const VjObject *object, uint32_t start, uint32_t len);

/* What is left to do for an object that will be read soon. */
typedef enum VjExpect {
    /* Nothing: the store has got the hint; or it is in the cache, or would not stay
     * there. */
    VJ_EXPECT_DONE,
    VJ_EXPECT_LOAD, /* vj_object_load_ahead(), which takes as long as decoding does */
    VJ_EXPECT_GET   /* vj_object_get_ahead(): a store that only a get brings it from */
} VjExpect;

/*
 * vj_object_expect - all of @object will be read soon
 *
 * Threads   any, under a guard or pin      Locks   none
 */
VjExpect vj_object_expect(VjObjects *o, const VjObject *object);
/* Into the cache.  Under a pin; blocks; what cannot be read is left to the reader to
 * report. */
void vj_object_load_ahead(VjObjects *o, const VjObject *object);

/*
 * VjGetAhead - one object on its way into the cache, for whose get no thread waits
 *
 * A reader that wants the object meanwhile waits for this get.
 */
typedef struct VjGetAhead VjGetAhead;
struct VjGetAhead {
    /* The caller's; do not change between begin and end. */
    VjObject object; /* pinned */
    /* The get is over; called once, perhaps before vj_object_get_ahead returns, by any
     * thread.  Must not block, submit or close; no lock is held. */
    void (*got)(VjGetAhead *ahead);
    void *opaque;
    /* From got() on: there is nothing to decode, and what came waits for a reader. */
    bool is_over;
    /* the room's: */
    VjObjects *objects;
    struct VjCacheEntry *entry;
};

/*
 * vj_object_get_ahead - begin to get all of an object
 *
 * Returns   true: got() is called, and, unless it is over then, vj_object_get_ahead_end
 *           after it, which verifies and decodes what came; an error is left to the
 *           reader to report.  False:
 *           nothing was begun: it is there or coming, or the store has no room for a
 *           request
 * Threads   any, under a pin that lasts until the end      Locks   none
 */
bool vj_object_get_ahead(VjObjects *o, VjGetAhead *ahead) G_GNUC_WARN_UNUSED_RESULT;
void vj_object_get_ahead_end(VjGetAhead *ahead);

/* An error of vj_object_read() that will be the same next time, or cannot be told from
 * that. */
static inline bool vj_is_damage(int r)
{
    return r == -EBADMSG || r == -ENOENT || r == -EIO || r == -EOPNOTSUPP;
}

/* ---- replicas ---------------------------------------------------------------------- */

/*
 * vj_object_heal - one object gets its full number of verified replicas
 *
 * Returns   0; -EAGAIN too few nodes are there, and what could be done is done; -ENOENT,
 *           -EBADMSG no good one is left on the nodes that are there; -EROFS, also of a
 *           store without replicas; errors of store and meta
 * Threads   any, under a guard or pin; blocks      Locks   none
 */
int vj_object_heal(VjObjects *o, const VjObject *object) G_GNUC_WARN_UNUSED_RESULT;
/* Until it is called with false, vj_object_heal is -EBUSY; none that has begun is left,
 * and records in the transactions from then on say where the replicas are.  Blocks. */
void vj_objects_pause_healing(VjObjects *o, bool is_paused);

/* Objects that one step looks at. */
#define VJ_HEAL_SURVEY_OBJECTS 1024u

/* One step of healing all objects: the caller begins with zeroes and goes on until the
 * end. */
typedef struct VjHealStep {
    uint64_t cursor; /* in/out; UINT64_MAX: that was the last step */
    /* added to: objects looked at, brought to their number, and not; of the latter, those
     * without any good replica */
    uint64_t examined, healed, failed, lost;
    bool (*stop)(void *opaque); /* asked now and then; NULL: goes on */
    void *opaque;
} VjHealStep;

/* 0; the first error: the step went on all the same, unless its cursor is as before;
 * -ECANCELED: stop; -EOPNOTSUPP: a store without replicas. */
int vj_objects_heal_step(VjObjects *o, VjHealStep *step) G_GNUC_WARN_UNUSED_RESULT;
bool vj_objects_have_replicas(const VjObjects *o);
/* The modes server and transport have an effect: there is a node to do the work. */
bool vj_objects_have_modes(const VjObjects *o);
/* How many objects, the dead ones that wait for their removal included, may have a
 * replica at that node.  Looks at all records.  -ECANCELED: stop; errors of meta. */
int vj_objects_count_at_node(VjObjects *o, unsigned node, bool (*stop)(void *opaque),
                             void *opaque, uint64_t *out) G_GNUC_WARN_UNUSED_RESULT;
/* vj_store_health of the store, which has replicas. */
void vj_objects_health(VjObjects *o, VjStoreHealth *out);

/* ---- writing ----------------------------------------------------------------------- */

/* Content on its way to a reference: found, or put and not yet committed. */
typedef struct VjPendingObject VjPendingObject;

/* Bytes in one place, or in two where vj_objects_take_two says so; borrowed,
 * 1..VJ_OBJECT_PLAIN_MAX of them. */
typedef struct VjPlain {
    const void *plain;
    uint32_t len;       /* of all */
    uint32_t first_len; /* at plain, where there is rest */
    const void *rest;   /* where those behind them are; NULL: all are at plain */
    VjBuf *holder;      /* in which they are, borrowed; NULL, also where there is rest */
    VjDigest digest;    /* vj_plain_digest */
} VjPlain;

/* Content that is stored as @want may lie in two places: what is put is the bytes
 * themselves. */
bool vj_objects_take_two(const VjObjects *o, const VjTransform *want);
int vj_plain_digest(VjObjects *o, VjPlain *content) G_GNUC_WARN_UNUSED_RESULT;
/* A hint: these will be stored under @want.  Where the index is far, one question for all
 * of them.  Threads: any; blocks. */
void vj_plain_expect(VjObjects *o, const VjTransform *want,
                     const VjPlain *const *contents, size_t count);

/*
 * vj_object_store - make @content storable: neighbours, in flight, index, put
 *
 * @content      with its digest
 * @want         the requested transformation
 * @neighbours   the file's old objects around (fast track); may be NULL
 * @out          owned; give it to vj_pending_free when its commit is over
 * An index hit that was neither written nor verified since open is read and compared
 * first; a damaged one leaves the index and the content is put afresh.
 * Returns   0; -ENOSPC, -EDQUOT, -EIO, -ENOMEM; nothing is kept on failure
 * Threads   any; blocks; equal content in flight is put once      Locks   none
 * Crash     a put without a commit lies in an open id block: the next open removes it
 */
int vj_object_store(VjObjects *o, const VjPlain *content, const VjTransform *want,
                    const VjObject *neighbours, size_t neighbour_count,
                    VjPendingObject **out) G_GNUC_WARN_UNUSED_RESULT;

/*
 * vj_pending_take - in a write transaction: one reference for one map entry
 *
 * Insert-if-absent: when another commit brought equal content first, that object is taken
 * (the one put here dies when the pending object is freed).  The caller has flushed the
 * store since vj_object_store if vj_pending_is_put says so.
 * @out       the object referenced, with its new count
 * Returns    0; -ESTALE the object that was found has died since: store the bytes again;
 *            errors of meta
 */
int vj_pending_take(VjTxn *txn, VjPendingObject *pending,
                    VjObject *out) G_GNUC_WARN_UNUSED_RESULT;

/* Bytes were put for it by this or an overlapping caller: flush the store before
 * taking. */
bool vj_pending_is_put(const VjPendingObject *pending);

/*
 * vj_pending_free - the commit that took it is visible (@committed), or was given up
 *
 * An object that was put and is named by no commit is removed from the store, when its
 * last holder frees it.  NULL is fine.
 */
void vj_pending_free(VjObjects *o, VjPendingObject *pending, bool committed);

/*
 * In a write transaction: one more entry names @id.  Revives a dead one.  -ESTALE: its
 * bytes are being removed, which does not happen to one that has been pinned since it was
 * alive.
 */
int vj_object_ref(VjTxn *txn, uint64_t id, VjObject *out) G_GNUC_WARN_UNUSED_RESULT;
/* In a write transaction: one entry less.  The last one moves it to the dead. */
int vj_object_unref(VjTxn *txn, uint64_t id, VjObject *out) G_GNUC_WARN_UNUSED_RESULT;

/* References were dropped: let the reaper look soon.  Any thread; does not block. */
void vj_objects_kick(VjObjects *o);
/* What VjMetaEvents.changed says, of any key or NULL: without it a shared session looks
 * once a second what others wait for.  Any thread; does not block. */
void vj_objects_changed(VjObjects *o, const VjKey *key);
/*
 * vj_objects_flush - vj_store_flush, when nothing stands in its way that shall go
 *
 * After a failed flush a store stays failed until the puts that it may have lost are
 * removed (store.h).  Those that could not be removed then are tried once more.  Any
 * thread; blocks.
 */
int vj_objects_flush(VjObjects *o) G_GNUC_WARN_UNUSED_RESULT;
/* vj_store_space and vj_store_can_expect of the store, for rooms that do not see it.  Any
 * thread; the first one blocks. */
int vj_objects_space(VjObjects *o, VjStoreSpace *out) G_GNUC_WARN_UNUSED_RESULT;
bool vj_objects_can_expect(VjObjects *o);

/* Waits until everything that is dead now, durable and not pinned is removed.
 * Tests, gc. */
int vj_objects_reap_now(VjObjects *o) G_GNUC_WARN_UNUSED_RESULT;

typedef struct VjObjectsStats {
    uint64_t hashed_bytes;
    uint64_t fast_hits, inflight_hits, index_hits, puts, put_bytes;
    uint64_t removed, removed_bytes, verified, damaged, healed;
    uint64_t wire_saved_bytes; /* not sent, as they were encoded for the way */
    /* Contents that were encoded for it, those that did not become shorter by that, and
     * those for which it was not tried, as others lately did not. */
    uint64_t wire_encoded, wire_unshrunk, wire_untried;
    uint64_t cache_hits, cache_misses, cache_bytes;
    uint64_t reads, read_bytes; /* gets from the store */
    uint64_t expected;          /* objects that were asked for ahead of readers */
    /* Plain bytes given to a transformation and the data bytes that came out; objects
     * that did not shrink and were stored as none are counted apart. */
    uint64_t encoded_in_bytes, encoded_out_bytes, unshrunk;
    uint64_t decoded_blocks, decoded_bytes; /* plain; not those of none */
} VjObjectsStats;
void vj_objects_stats(VjObjects *o, VjObjectsStats *out);

/*
 * Sums over all object records by walking them: a running total would be one key that
 * every commit writes, and remote engines would conflict on it.
 */
int vj_objects_sum(VjTxn *txn, uint64_t *objects, uint64_t *plain_bytes,
                   uint64_t *stored_bytes) G_GNUC_WARN_UNUSED_RESULT;

/* What a check found of an object's bytes that its record does not say. */
typedef enum VjCheckBytes {
    VJ_CHECK_BYTES_BAD = 1,   /* missing, damaged or others */
    VJ_CHECK_BYTES_WHOLE = 2, /* the record says that they are damaged */
} VjCheckBytes;

/*
 * vj_objects_check - records, index and store agree, and with @counts
 *
 * @counts   object id → references found in all maps (GHashTable of gint64*, keys
 *           gint64*), borrowed; entries that have no record are reported
 * @found    gets id (gint64*, owned) → VjCheckBytes; NULL: not wanted
 * Threads: one, and no other changes anything.  Locks: none.
 */
int vj_objects_check(VjObjects *o, GHashTable *counts, bool read_data, GHashTable *found,
                     VjCheckSay *say, void *opaque,
                     VjCheckReport *report) G_GNUC_WARN_UNUSED_RESULT;

/* ---- bytes in records of other rooms (record-codec.c) ------------------------------ */

/* How the bytes of a record are encoded. */
typedef struct VjRecordCodec {
    uint8_t codec, param;
    uint32_t key_id;
} VjRecordCodec;

/* Which record it is: no two that are there are the same. */
typedef enum VjRecordKind { VJ_RECORD_INLINE, VJ_RECORD_FRAGMENT } VjRecordKind;

typedef struct VjRecordPlace {
    VjRecordKind kind;
    uint64_t ino;
    uint32_t number; /* of the fragment; 0 for inline content */
} VjRecordPlace;

/* What comes out depends on the place too.  NULL: no transformation. */
bool vj_record_needs_place(const VjTransform *want);
/* @len > 0 bytes as @want says, or as none (also with NULL); into at most @len bytes at
 * @dst.  @place: NULL where it is not needed. */
VjRecordCodec vj_record_encode(const VjTransform *want, const VjRecordPlace *place,
                               const void *src, size_t len, void *dst, size_t *dst_len);
/* @place: as it was encoded.  -EBADMSG; -EOPNOTSUPP a transformation that is not in this
 * build. */
int vj_record_decode(VjRecordCodec how, const VjRecordPlace *place, const void *src,
                     size_t len, void *dst, size_t plain_len) G_GNUC_WARN_UNUSED_RESULT;

#endif
