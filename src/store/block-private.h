/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * block-private.h - the driver block, between its files
 *
 * Three ways lead to the device.  Puts go there through libaio where it is opened with
 * O_DIRECT: the buffer is held until its write is over, and put() does not wait for that.
 * Else they are copied into the page cache.  Gets read in the caller's thread.  flush()
 * waits for the writes, syncs, and gives back to the file system below what has become
 * free.
 *
 * Nothing of the locks is held across I/O.
 */
#ifndef VJ_STORE_BLOCK_PRIVATE_H
#define VJ_STORE_BLOCK_PRIVATE_H

#include "store/block-space.h"
#include "store/block-table.h"
#include "store/erase.h"
#include "store/store-private.h"

/* Writes in flight, and their bytes; a single one may be longer. */
#define VJ_BLOCK_WRITES_MAX 64u
#define VJ_BLOCK_WRITE_BYTES_MAX ((size_t)32 << 20)
/* Puts not yet durable above which a put flushes first. */
#define VJ_BLOCK_UNSYNCED_MAX 65536u

/* A put that is not durable yet. */
typedef struct VjBlockUnsynced {
    uint64_t id;
    uint32_t nonce;
} VjBlockUnsynced;

/* A write in flight. */
typedef struct VjBlockWrite {
    uint64_t id;
    uint32_t nonce;
    uint64_t order; /* of the writes of the store */
    VjBuf *buf;     /* a reference; NULL: the slot is free */
    size_t len;     /* rounded up to blocks */
    uint64_t first_block;
} VjBlockWrite;

typedef struct VjBlockStore {
    VjStore base;
    int fd;
    bool read_only;
    bool is_direct;
    bool is_file;        /* that grows, and not a device */
    bool erases;         /* objects are overwritten before their blocks are free */
    bool is_named;       /* by the options: a copy of SOURCE names it, too */
    uint64_t most_bytes; /* of it that are used, as the options say; 0: all */
    char *path;          /* for messages */
    void *aio;           /* io_context_t; NULL: none */

    VjMutex lock;
    /* A write is begun or over, a sync is over, nobody reaps any more, or a zone has been
     * given back. */
    VjCond changed;
    /* guarded by lock: */
    VjBlockSuper super;
    VjBlockMounts mounts; /* as the metadata say; what is not there is 0 */
    uint64_t end_block;   /* at open: what keys name is before it */
    VjBlockTable objects;
    VjBlockSpace space;
    VjStoreBadKeys bad_keys; /* of the keys */
    GArray *bad_key_changes; /* of VjStoreChange: what makes them right */
    bool discards;           /* emptied zones are given back to what is below */
    unsigned zone_waits;     /* puts that wait until one has been */
    bool is_growing;         /* a thread finds out how long the device is */
    bool reserves_each;      /* what is below had no room for a whole zone */
    uint32_t last_nonce;
    VjErasures erasures;

    GArray *unsynced; /* of VjBlockUnsynced: those that returned and are not decided */
    uint64_t decided; /* so many puts are durable or in doubt */
    bool must_sync;   /* what an earlier process put may be in no sync */
    bool is_syncing;
    uint64_t failures; /* syncs that failed */
    uint32_t doubtful; /* objects that are in doubt */
    int doubt_error;   /* what flush says of them */

    VjBlockWrite writes[VJ_BLOCK_WRITES_MAX];
    unsigned write_count;
    unsigned unsubmitted; /* writes that the kernel does not have yet, nor has refused */
    size_t write_bytes;
    uint64_t write_order; /* of the last one */
    bool is_reaping;
} VjBlockStore;

/* ---- block-put.c ------------------------------------------------------------------- */

int vj_block_put(VjStore *s, uint64_t id, const struct iovec *iov, int iov_count,
                 VjPut *out);
int vj_block_put_held(VjStore *s, uint64_t id, VjBuf *holder, const struct iovec *iov,
                      int iov_count, VjPut *out);
/* Its blocks are free, when nothing is written to them any more.  It is no object. */
void vj_block_forget(VjBlockStore *b, VjBlockEntry *entry) VJ_REQUIRES(b->lock);
/* The buffer in which the bytes of an object stand that is being written; a reference, or
 * NULL. */
VjBuf *vj_block_being_written(const VjBlockStore *b, const VjBlockObject *object)
    VJ_REQUIRES(b->lock);
/* Until the writes up to @order are over.  The lock is given up meanwhile. */
void vj_block_wait_for_writes(VjBlockStore *b, uint64_t order) VJ_REQUIRES(b->lock);
bool vj_block_writes_open(VjBlockStore *b, GError **error);
void vj_block_writes_close(VjBlockStore *b);

/* ---- block-flush.c ----------------------------------------------------------------- */

int vj_block_flush(VjStore *s);
int vj_block_flush_removes(VjStore *s);
/* What is written to the device now is on it when this returns 0, whatever is in doubt of
 * what was written before. */
int vj_block_sync_now(VjBlockStore *b);
/* Setup: what a crash has left below zones that are empty. */
void vj_block_give_back_left(VjBlockStore *b);
/* Zones that are empty, to what is below; where `discard` says so: how many.  The lock is
 * given up meanwhile. */
unsigned vj_block_give_back_zones(VjBlockStore *b, unsigned most) VJ_REQUIRES(b->lock);
/* Zones that one flush gives back at most. */
#define VJ_BLOCK_GIVEN_BACK_MAX 8u
/* It is not known whether @entry is on the device, and no sync will tell. */
void vj_block_doubt(VjBlockStore *b, VjBlockEntry *entry, int error) VJ_REQUIRES(b->lock);
/* It is removed: nobody waits for its bytes. */
void vj_block_end_doubt(VjBlockStore *b, VjBlockEntry *entry) VJ_REQUIRES(b->lock);

/* ---- block-super.c ----------------------------------------------------------------- */

/* Where a file has something from byte @from on: not in a hole.  @end: nowhere before. */
uint64_t vj_block_data_from(const VjBlockStore *b, uint64_t from, uint64_t end);

/* Opens the device, or the file: sets fd, is_file, is_direct. */
bool vj_block_device_open(VjBlockStore *b, const VjStorePlace *place, const VjOpts *opts,
                          GError **error);
/* Makes the superblocks. */
bool vj_block_super_make(VjBlockStore *b, const VjStorePlace *place, GError **error);
/* A device that has become longer is used to its end, or to most_bytes.  As
 * VjStoreOps.grow, by one thread. */
int vj_block_super_grow(VjBlockStore *b, uint64_t *gained) G_GNUC_WARN_UNUSED_RESULT;
/* The mount that begins has this number.  -errno. */
int vj_block_super_claim(VjBlockStore *b, uint64_t mount) G_GNUC_WARN_UNUSED_RESULT;
/* Reads them.  Unless read_only: one that is damaged is mended, and of a device that has
 * become longer the rest is used too. */
bool vj_block_super_load(VjBlockStore *b, const VjStorePlace *place, GError **error);
/* Blocks of the device; of a file: that it has now. */
int vj_block_count_blocks(const VjBlockStore *b, uint64_t *out);

#endif
