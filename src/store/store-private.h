/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * store-private.h - what the files of the room share, and what its own tests look at
 */
#ifndef VJ_STORE_STORE_PRIVATE_H
#define VJ_STORE_STORE_PRIVATE_H

#include "store/store.h"

extern const VjStoreOps vj_store_posix_ops;
extern const VjStoreOps vj_store_block_ops;
extern const VjStoreOps vj_store_null_ops;
extern const VjStoreOps vj_store_memory_ops;
extern const VjStoreOps vj_store_remote_ops;

/* Wrappers: open() gets a NULL place, and s->next is set before it. */
extern const VjStoreOps vj_store_fault_ops;
extern const VjStoreOps vj_store_latency_ops;
extern const VjStoreOps vj_store_stats_ops;

/* As vj_store_wrap, of ops that stand in no table: for tests. */
bool vj_store_wrap_with(const VjStoreOps *ops, const char *options, VjStore *next,
                        VjStore **out, GError **error);

/* The first store of @s's chain whose ops are @ops; NULL when there is none. */
VjStore *vj_store_find(VjStore *s, const VjStoreOps *ops);

/* align.c: how long a buffer is that any driver can take @len bytes from, or put them
 * into. */
size_t vj_store_room_bytes(size_t len);
/* The bytes of all pieces into the empty @buf, and zeros behind them up to its end. */
void vj_store_gather(VjBuf *buf, const struct iovec *iov, int iov_count);

/* What a data path member may return. */
static inline bool vj_store_result_is_sound(int result)
{
    return result <= 0 && result != -EINTR && result != -EAGAIN;
}

/* store.c, for io.c: the driver's own call for @io, which puts to @put and into @io's
 * space; submit; cancel, push and help, if any. */
int vj_store_call(VjStore *s, VjIo *io, VjPut *put);
void vj_store_call_submit(VjStore *s, VjIo *io);
void vj_store_call_cancel(VjStore *s, VjIo *io);
void vj_store_call_push(VjStore *s);
bool vj_store_call_can_help(const VjStore *s);
void vj_store_call_help(VjStore *s, bool (*is_over)(void *opaque), void *opaque,
                        int64_t until_us);

/* ---- space.c: the last answer about free space ------------------------------------- */

typedef struct VjSpaceCache VjSpaceCache;

/* What was known when the driver was asked. */
typedef struct VjSpaceAsk {
    int64_t at_us;
    uint64_t put_bytes, puts;
} VjSpaceAsk;

VjSpaceCache *vj_space_cache_new(void);
void vj_space_cache_free(VjSpaceCache *c);
/* So many bytes were put. */
void vj_space_cache_put(VjSpaceCache *c, uint64_t bytes);
/* False: the driver is to be asked, and vj_space_cache_set gets its answer with *ask. */
bool vj_space_cache_get(VjSpaceCache *c, VjStoreSpace *out, VjSpaceAsk *ask);
/* *space becomes what is left of it now, if it was given with @result 0. */
void vj_space_cache_set(VjSpaceCache *c, const VjSpaceAsk *ask, int result,
                        VjStoreSpace *space);

/* A put went well: of store.c or io.c. */
void vj_store_count_put(VjStore *s, uint64_t bytes);

/* ---- io.c: requests in flight of one store ----------------------------------------- */

typedef struct VjIoQueue VjIoQueue;

/* A request without operands: VJ_IO_FLUSH_REMOVES, VJ_IO_SPACE.  Returns owned. */
VjIo *vj_io_new_call(VjIoOp op);
/* Starts no thread yet.  Setup only. */
VjIoQueue *vj_io_queue_new(VjStore *s);
/* Waits until the driver has let go of each request.  NULL is fine. */
void vj_io_queue_free(VjIoQueue *q);
/* Submits, waits, and drops the reference of @io's caller, when @io is not wanted any
 * more. Returns io->rc. */
int vj_io_run(VjStore *s, VjIo *io);
/* As vj_store_remove_all, by submit. */
void vj_io_remove_all(VjStore *s, const VjPut *puts, size_t count, int *results);
/* For wrappers: the same request to s->next; @done gets the child, whose opaque is @io.
 */
void vj_io_forward(VjStore *s, VjIo *io, void (*done)(VjIo *child));

/* Bytes of all pieces.  The caller has checked that they are at most VJ_STORE_OBJECT_MAX.
 */
static inline uint64_t vj_store_iov_bytes(const struct iovec *iov, int iov_count)
{
    uint64_t sum_bytes = 0;

    for (int i = 0; i < iov_count; i++) {
        sum_bytes += iov[i].iov_len;
    }
    return sum_bytes;
}

#endif
