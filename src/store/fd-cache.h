/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fd-cache.h - a bounded number of descriptors kept open, least recently used goes first
 *
 * A descriptor in use is never closed under its user; one that was dropped while in use
 * is closed by the last user.  Threads: any.  Locks: its own (VJ_RANK_STORE), never
 * across I/O but close().
 */
#ifndef VJ_STORE_FD_CACHE_H
#define VJ_STORE_FD_CACHE_H

#include "base/base.h"

#define VJ_FD_CACHE_MAX 1024u

typedef struct VjFdKey {
    uint64_t id, nonce;
} VjFdKey;

typedef struct VjFdSlot {
    VjFdKey key;
    int fd;           /* -1: free */
    uint32_t users;   /* vj_fd_cache_get or _add, not yet _release */
    bool dropped;     /* not found any more; closed when users is 0 */
    uint64_t used_at; /* tick of the last use */
} VjFdSlot;

typedef struct VjFdCache {
    uint32_t slot_count;

    VjMutex lock;
    /* guarded by lock: */
    VjFdSlot *slots;
    uint64_t tick;
    uint64_t drops; /* see vj_fd_cache_drops */
} VjFdCache;

/* A descriptor in use; release it with vj_fd_cache_release. */
typedef struct VjFdUse {
    int fd;       /* -1: none */
    int32_t slot; /* -1: not in the cache, closed at release */
} VjFdUse;

/* @slot_count 0: nothing is kept. */
void vj_fd_cache_init(VjFdCache *c, uint32_t slot_count, const char *lock_name);
/* No thread uses a descriptor any more. */
void vj_fd_cache_clear(VjFdCache *c);

/* True and @use when it is there. */
bool vj_fd_cache_get(VjFdCache *c, VjFdKey key, VjFdUse *use);
/*
 * Takes @fd, which was opened after vj_fd_cache_drops() returned @drops: if something was
 * dropped since, it could have been this key, and @fd is used once and not kept.
 */
void vj_fd_cache_add(VjFdCache *c, VjFdKey key, int fd, uint64_t drops, VjFdUse *use);
void vj_fd_cache_release(VjFdCache *c, VjFdUse *use);

/* @key names something that is gone. */
void vj_fd_cache_drop(VjFdCache *c, VjFdKey key);
uint64_t vj_fd_cache_drops(VjFdCache *c);
/* Closes all that no thread uses: the process has no descriptors left.  True: it
 * closed some. */
bool vj_fd_cache_shrink(VjFdCache *c);

#endif
