/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-private.h - what VjObjects is made of
 *
 *     object-store.c  content → object: in-flight table, index, put, pending objects
 *     object-refs.c   reference counts, in the caller's transactions
 *     form.c          content to stored bytes and back, without a volume
 *     object-load.c   the same for what the store has, errors reported
 *     heal.c          replicas
 *     object-read.c   verified reads      object-cache.c  what readers keep
 *     id-block.c      object ids          dead.c          guards, pins, the thread
 *     reap.c          one pass over the dead
 *     epoch.c         what other sessions read of them
 *     object-check.c  fsck                objects.c       open, close, counts
 */
#ifndef VJ_OBJECT_OBJECT_PRIVATE_H
#define VJ_OBJECT_OBJECT_PRIVATE_H

#include "object/form.h"
#include "object/object-check.h"

/* ---- id-block.c -------------------------------------------------------------------- */

typedef struct VjIdBlock {
    uint64_t first_id, last_id;
    uint64_t next_id;    /* last_id + 1: used up */
    uint64_t unresolved; /* ids given out, their bytes neither referenced nor removed */
    bool doubtful;       /* bytes may lie there that no record names: the next open
                          * looks */
} VjIdBlock;

typedef struct VjIdBlocks {
    uint64_t block_ids;
    GThread *thread;
    VjMutex lock; /* VJ_RANK_OBJECT_IDS */
    VjCond changed;
    /* guarded by lock: */
    GPtrArray *open;    /* of VjIdBlock, owned; durable, all with a record */
    VjIdBlock *current; /* one of open */
    VjIdBlock *next;    /* one of open; NULL: not there yet */
    bool wanted;        /* the thread shall fetch next */
    uint64_t attempts;
    int error; /* of the last attempt */
    bool stop;
} VjIdBlocks;

/* Removes what crashed puts left, forgets the old id blocks, takes a durable new one,
 * starts the thread. */
bool vj_id_blocks_open(VjObjects *o, GError **error);
/* Forgets each id block without open questions.  Not durable by itself. */
int vj_id_blocks_close(VjObjects *o) G_GNUC_WARN_UNUSED_RESULT;
/* An id for one put.  Blocks only when id blocks end faster than they are made
 * durable. */
int vj_id_take(VjObjects *o, uint64_t *id) G_GNUC_WARN_UNUSED_RESULT;
/* The put of @id is over: visibly referenced or removed; or (@doubtful) it is not known
 * which. */
void vj_id_resolve(VjObjects *o, uint64_t id, bool doubtful);

/* ---- dead.c ------------------------------------------------------------------------ */

typedef struct VjDead {
    GThread *thread;
    VjMutex lock; /* VJ_RANK_OBJECT_DEAD */
    VjCond changed;
    /* guarded by lock: */
    GHashTable *pins;      /* id → VjPin */
    GHashTable *removing;  /* ids whose bytes are being removed */
    GHashTable *holds;     /* ids of which this session has a hold, or may have one */
    unsigned epoch;        /* the parity of new guards */
    uint64_t guards[2];    /* how many are inside, by parity */
    uint64_t kicks;        /* passes asked for */
    uint64_t passes_begun; /* the kicks that the last begun pass answers */
    uint64_t passes_done;
    bool hurry; /* do not wait for more to die */
    int error;  /* of the last pass */
    bool stop;
    /* of a shared session: */
    bool must_look;   /* the epoch has changed, or a hold is not needed any more */
    int look_error;   /* of the last look */
    uint64_t changes; /* what others did that a pass may wait for */
    /* the thread's: */
    uint64_t published;  /* the last epoch that need not be published any more */
    bool may_have_claim; /* of the reaper */
} VjDead;

void vj_dead_init(VjDead *d);
void vj_dead_clear(VjDead *d);
bool vj_dead_start(VjObjects *o, GError **error);
/* 0, or why holds are left. */
int vj_dead_stop(VjObjects *o) G_GNUC_WARN_UNUSED_RESULT;
/* The guards that were there when it was called have left when it returns.  False: stop.
 * The thread alone. */
bool vj_dead_wait_for_older_guards(VjDead *d) G_GNUC_WARN_UNUSED_RESULT;
/* Keeps in @dead (VjObject) what has no pin; notes for the others that the reaper
 * waits. */
void vj_dead_keep_unpinned(VjDead *d, GArray *dead);
bool vj_dead_must_stop(VjDead *d);
bool vj_dead_is_pinned(VjDead *d, uint64_t id);
/* Of uint64_t: this session may have holds of @ids from now on. */
void vj_dead_note_holds(VjDead *d, const GArray *ids);
/* Those that are not pinned any more. */
void vj_dead_list_needless_holds(VjDead *d, GArray *ids);
void vj_dead_forget_holds(VjDead *d, const GArray *ids);
/* Another session changed something; @epoch: perhaps the epoch. */
void vj_dead_note_change(VjDead *d, bool epoch);
/* How often, since open; and until it is more than @seen, or @until_us.  False: stop. */
uint64_t vj_dead_changes(VjDead *d);
bool vj_dead_wait_for_change(VjDead *d, uint64_t seen,
                             int64_t until_us) G_GNUC_WARN_UNUSED_RESULT;

/* ---- reap.c ------------------------------------------------------------------------ */

/*
 * Removes all dead objects that no guard, pin or hold keeps.  0, or what failed; the rest
 * is gone.  -EBUSY: another session does it now; -ECANCELED: stop.  *is_left: other
 * sessions hold some.
 */
int vj_reap(VjObjects *o, bool *is_left) G_GNUC_WARN_UNUSED_RESULT;

/* ---- epoch.c: shared sessions alone ------------------------------------------------ */

/* Before the first guard. */
bool vj_epoch_open(VjObjects *o, GError **error);
/* Drops all holds, since no pin is left, and a claim that could not be dropped. */
int vj_epoch_close(VjObjects *o) G_GNUC_WARN_UNUSED_RESULT;
/* Publishes an epoch that another session has begun, drops what is not needed. */
int vj_epoch_attend(VjObjects *o) G_GNUC_WARN_UNUSED_RESULT;
/* Takes the claim of the reaper and begins an epoch.  -EBUSY: another session has it. */
int vj_epoch_begin(VjObjects *o, uint64_t *epoch) G_GNUC_WARN_UNUSED_RESULT;
/* Waits until each other session that lives has published it.  -ECANCELED: stop. */
int vj_epoch_wait(VjObjects *o, uint64_t epoch) G_GNUC_WARN_UNUSED_RESULT;
/* Drops the claim, if there is one. */
int vj_epoch_end(VjObjects *o) G_GNUC_WARN_UNUSED_RESULT;

/* ---- object-cache.c ---------------------------------------------------------------- */

typedef struct VjCacheEntry VjCacheEntry;

/* What is not in the cache any more: as many are remembered as it has entries, 16 bytes
 * each, and no more than these slots. */
#define VJ_CACHE_GONE_SLOTS 4096u

typedef struct VjCacheGone {
    uint64_t id;
    uint64_t number; /* how many had gone by then */
} VjCacheGone;

typedef struct VjObjectCache {
    uint64_t budget_bytes;
    VjMutex lock; /* VJ_RANK_OBJECT_CACHE */
    VjCond changed;
    /* guarded by lock: */
    GHashTable *entries;        /* id → VjCacheEntry */
    GQueue small, main, passed; /* of VjCacheEntry, the head came last */
    uint64_t bytes, small_bytes, passed_bytes;
    VjCacheGone *gone; /* left the small queue, by id modulo VJ_CACHE_GONE_SLOTS */
    uint64_t gone_count;
    VjObjectsStats stats;
} VjObjectCache;

void vj_cache_init(VjObjectCache *c, uint64_t budget_bytes);
void vj_cache_clear(VjObjectCache *c);
/* Its plaintext is there, or a thread loads it. */
bool vj_cache_has(VjObjectCache *c, uint64_t id);
typedef enum VjCacheFind {
    VJ_CACHE_NONE,
    VJ_CACHE_FOUND,      /* the content is in *@plain */
    VJ_CACHE_COMING,     /* it is being loaded ahead: vj_cache_use waits for it */
    VJ_CACHE_WORTH_WHOLE /* it is not there, but should be loaded whole now */
} VjCacheFind;

/*
 * vj_cache_find - a read of content bytes [@start, @start + @len) of an object that is
 * read past the cache
 *
 * Pieces that do not follow one another are counted.  When as much as the whole object
 * has been read in pieces and it is asked for again, then no cache above keeps it, and it
 * is worth its place here, if there is room: nothing else is put out for it.
 * @plain    owned, of all content; NULL where it was not found
 */
VjCacheFind vj_cache_find(VjObjectCache *c, const VjObject *object, uint32_t start,
                          uint32_t len, VjBuf **plain);
/* A get of @len bytes was made. */
void vj_cache_count_get(VjObjectCache *c, uint64_t len);
/* @id is gone. */
void vj_cache_drop(VjObjectCache *c, uint64_t id);

typedef struct VjCacheRead {
    uint32_t start, len; /* of the content; 0, 0: of a later reader */
    bool whole; /* the plaintext is wanted; it may be missing when a part is damaged */
} VjCacheRead;

/*
 * vj_cache_use - the entry of @id, with at least its trailer
 *
 * Loads what is missing; a thread that asks meanwhile waits for that load, or is given up
 * (-ECANCELED).  What is being loaded ahead is waited for until its get is over, and
 * unpacked by the first thread that comes.
 * @read     what for
 * @plain, @trailer   one of them is set; plain is owned (vj_buf_unref), trailer lives
 *           until vj_cache_done
 */
int vj_cache_use(VjObjects *o, const VjObject *object, const VjCacheRead *read,
                 VjCacheEntry **entry, VjBuf **plain,
                 const VjTrailer **trailer) G_GNUC_WARN_UNUSED_RESULT;
void vj_cache_done(VjObjectCache *c, VjCacheEntry *entry);

/*
 * A load ahead of readers: begin marks the entry of @object as loading; _got says that
 * its get is over, and how; _end unpacks what came, unless a reader did, and lets go of
 * the entry.  From begin to end the entry stays.
 */
/* @is_passing: keep it until a reader has come by.  False: there is nothing to load: it
 * is there or coming, or a part of it is damaged. */
bool vj_cache_ahead_begin(VjObjectCache *c, const VjObject *object, bool is_passing,
                          VjCacheEntry **entry);
/* @io: a get of all stored bytes, which is over, a reference more is taken; NULL: there
 * was none.  @is_left: there is no _end, what came waits for a reader.  Does not
 * block. */
void vj_cache_ahead_got(VjObjectCache *c, VjCacheEntry *entry, VjIo *io, bool is_left);
void vj_cache_ahead_end(VjObjects *o, const VjObject *object, VjCacheEntry *entry);

/* ---- object-load.c ----------------------------------------------------------------- */

/* As the functions of form.h with these names, but that what is wrong is reported. */
int vj_object_load_shape(VjObjects *o, const VjObject *object, VjCodecSpec *spec,
                         bool *varying) G_GNUC_WARN_UNUSED_RESULT;
/* Stored bytes [@offset, @offset + @len) as they are; errors are reported. */
int vj_object_load_stored(VjObjects *o, const VjObject *object, uint32_t offset,
                          void *dst, uint32_t len) G_GNUC_WARN_UNUSED_RESULT;
/*
 * vj_object_unpack - the content out of all stored bytes
 *
 * @stored   stored_bytes of it, as the store gave them; no other thread uses it any more
 * @plain    owned; @stored itself, with its len set, where the bytes are the content
 * Returns   0; -EBADMSG, -EOPNOTSUPP, reported; -ENOMEM
 */
int vj_object_unpack(VjObjects *o, const VjObject *object, VjBuf *stored,
                     VjBuf **plain) G_GNUC_WARN_UNUSED_RESULT;
/* All of the content, as vj_object_load, or by a node that takes the form apart. */
int vj_object_load_content(VjObjects *o, const VjObject *object,
                           VjBuf **plain) G_GNUC_WARN_UNUSED_RESULT;
/* From the store: the trailer alone. */
int vj_object_load_trailer(VjObjects *o, const VjObject *object,
                           VjTrailer **out) G_GNUC_WARN_UNUSED_RESULT;
/* Blocks [@first, @last], which begin at @stored, are what was stored; else -EBADMSG,
 * reported. */
int vj_object_verify_blocks(VjObjects *o, const VjObject *object, const VjTrailer *t,
                            uint32_t first, uint32_t last,
                            const uint8_t *stored) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Content bytes [@start, @start + @len) out of the verified blocks from @first on.  A
 * block that is wanted in part is decoded into a block of its own.
 */
int vj_object_decode_blocks(VjObjects *o, const VjObject *object, const VjCodecSpec *spec,
                            const VjTrailer *t, uint32_t first, const uint8_t *stored,
                            uint32_t start, uint8_t *dst,
                            uint32_t len) G_GNUC_WARN_UNUSED_RESULT;

/* ---- by-node.c --------------------------------------------------------------------- */

/* What @want asks for is done by a node. */
bool vj_by_node_applies(const VjObjects *o, const VjTransform *want);
/* How the object is stored then: what the index knows it under. */
VjTransform vj_by_node_stored(const VjTransform *want);
/* As vj_form_encode and a put: fills in all that a record says. */
int vj_by_node_put(VjObjects *o, const void *plain, const VjTransform *want,
                   VjObject *object) G_GNUC_WARN_UNUSED_RESULT;
/* A range of the content, on the node's word; errors are not reported. */
int vj_by_node_read(VjObjects *o, const VjObject *object, uint32_t start, void *dst,
                    uint32_t len) G_GNUC_WARN_UNUSED_RESULT;
/* All of it, compared with the digest.  *plain owned. */
int vj_by_node_load(VjObjects *o, const VjObject *object,
                    VjBuf **plain) G_GNUC_WARN_UNUSED_RESULT;

static inline VjStoreForm vj_object_store_form(const VjObject *object)
{
    return (VjStoreForm){.codec = object->codec,
                         .param = object->param,
                         .key_id = object->key_id,
                         .plain_bytes = object->plain_bytes,
                         .stored_bytes = object->stored_bytes,
                         .trailer_checksum = object->trailer_checksum};
}

/* ---- heal.c ------------------------------------------------------------------------ */

typedef struct VjHealing {
    VjMutex lock; /* VJ_RANK_OBJECT_VERIFIED */
    VjCond changed;
    /* guarded by lock: */
    GHashTable *ids; /* of objects that are being healed (gint64*) */
    bool is_paused;  /* none begins */
} VjHealing;

void vj_healing_init(VjHealing *h);
void vj_healing_clear(VjHealing *h);

/* ---- verified.c -------------------------------------------------------------------- */

/* Ids remembered, 8 bytes each. */
#define VJ_VERIFIED_SLOTS 65536u

typedef struct VjVerified {
    VjMutex lock; /* VJ_RANK_OBJECT_VERIFIED */
    /* guarded by lock: */
    uint64_t *ids; /* VJ_VERIFIED_SLOTS of them, each at its value modulo that */
} VjVerified;

void vj_verified_init(VjVerified *v);
void vj_verified_clear(VjVerified *v);
/* The bytes of @id are what the record says. */
void vj_verified_add(VjVerified *v, uint64_t id);
/* They were found damaged: they are verified before the next use. */
void vj_verified_drop(VjVerified *v, uint64_t id);
/* True: added and not dropped since.  False also when another took its slot. */
bool vj_verified_has(VjVerified *v, uint64_t id);

/* ---- object-store.c ---------------------------------------------------------------- */

typedef struct VjInflight {
    VjMutex lock; /* VJ_RANK_OBJECT_INFLIGHT */
    VjCond changed;
    /* guarded by lock: */
    GHashTable *contents; /* VjIndexKey → VjContentPut */
    uint64_t pending_count;
    /* Of VjUnreferencedPut: put, named by no record, and not removed yet. */
    GArray *unreferenced;
} VjInflight;

/* Bytes that are to go; without an id block that covers them they would be a leak. */
typedef struct VjUnreferencedPut {
    uint64_t id;
    VjLoc loc;
    bool is_taken; /* a transaction tried to name them: a record may */
} VjUnreferencedPut;

/* As many are remembered; what is beyond waits for the next mount. */
#define VJ_UNREFERENCED_PUTS_MAX 65536u

void vj_inflight_init(VjInflight *t);
void vj_inflight_clear(VjInflight *t);

/* ---- unreferenced-put.c ------------------------------------------------------------ */

/* Removes bytes that no record names, now or later.  Any thread; blocks. */
void vj_unreferenced_put_end(VjObjects *o, const VjUnreferencedPut *put);
/* Tries again what could not be removed.  Any thread; blocks. */
void vj_unreferenced_puts_retry(VjObjects *o);

/* ---- object-refs.c ----------------------------------------------------------------- */

/* The first reference to bytes that were put: record, index and what the store
 * stages. */
int vj_object_create(VjObjects *o, VjTxn *txn, const VjObject *object,
                     VjObject *out) G_GNUC_WARN_UNUSED_RESULT;
/* One more reference to a record of OBJECT. */
int vj_object_add_ref(VjTxn *txn, VjObject *object) G_GNUC_WARN_UNUSED_RESULT;
/* From DEAD back to OBJECT with one reference; into the index unless another has
 * its key. */
int vj_object_revive(VjTxn *txn, VjObject *object) G_GNUC_WARN_UNUSED_RESULT;
/* ---- objects.c --------------------------------------------------------------------- */

/*
 * Whether encoding for the wire is worth a try (by-node.c).  Each miss after the first
 * few doubles how many contents go as they are before the next try.
 */
typedef struct VjWireTrial {
    uint32_t misses; /* in a row */
    uint32_t skip;   /* so many are not tried */
} VjWireTrial;

struct VjObjects {
    VjMeta *meta;
    VjStore *store;
    const VjDigestOps *digest;
    bool read_only;
    bool is_shared; /* other sessions are, or may be, beside this one */
    VjIdBlocks id_blocks;
    VjDead dead;
    VjObjectCache cache;
    VjInflight inflight;
    VjVerified verified;
    VjHealing healing;
    /* guarded by cache.lock: */
    VjWireTrial wire_put, wire_get;
};

/* Adds to one of the counts. */
#define vj_objects_count(o, field, n)                                                    \
    do {                                                                                 \
        vj_mutex_lock(&(o)->cache.lock);                                                 \
        (o)->cache.stats.field += (n);                                                   \
        vj_mutex_unlock(&(o)->cache.lock);                                               \
    } while (0)

#endif
