/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lock.h - mutexes that know their rank, conditions and reader-writer locks
 *
 * A thread takes locks in rising rank only (outermost = smallest number); two locks of
 * one rank are never held together.  src/LOCKS.md lists them all.  Debug builds
 * (VJ_LOCK_DEBUG, set by --enable-developer) abort with both names on a wrong order.  No
 * lock is held across I/O or a callback into another room.
 */
#ifndef VJ_BASE_LOCK_H
#define VJ_BASE_LOCK_H

#include <pthread.h>

#if defined(__clang__)
#define VJ_TSA(x) __attribute__((x))
#else
#define VJ_TSA(x)
#endif
#define VJ_GUARDED_BY(x) VJ_TSA(guarded_by(x))
#define VJ_REQUIRES(x) VJ_TSA(requires_capability(x))
#define VJ_EXCLUDES(x) VJ_TSA(locks_excluded(x))

/* Every lock of the project has its rank here and its line in src/LOCKS.md. */
typedef enum VjLockRank {
    VJ_RANK_FRONT = 10,           /* front: request tables, edits in flight */
    VJ_RANK_FRONT_COHERENCE = 11, /* front: what the kernel may hold */
    VJ_RANK_FRONT_INODE = 12,     /* front: lookup counts */
    VJ_RANK_CLIENTS = 18,         /* clients: inodes of namespaces, open objects */
    VJ_RANK_FS = 20,              /* fs: open inodes, handles */
    VJ_RANK_FS_HANDLE = 22,       /* fs: one handle */
    VJ_RANK_FILE_TABLE = 30,      /* file: open files by inode */
    VJ_RANK_FILE = 32,            /* file: pieces of one file */
    VJ_RANK_FILE_COMMITTED = 33,  /* file: kept entries of maps */
    VJ_RANK_FILE_BUDGET = 34,     /* file: dirty bytes, waiters */
    VJ_RANK_VOLUME = 35,          /* volume: queues of its threads */
    VJ_RANK_FILE_QUEUE = 36,      /* file: puts, fragments, read-ahead */
    VJ_RANK_NODE = 37,            /* node: volumes, peers, batches of keys */
    VJ_RANK_OBJECT_INFLIGHT = 38, /* object: contents being put */
    VJ_RANK_OBJECT_VERIFIED = 39, /* object: ids verified since open */
    VJ_RANK_OBJECT_IDS = 40,      /* object: object ids */
    VJ_RANK_OBJECT_DEAD = 42,     /* object: dead objects, pins, epochs */
    VJ_RANK_CLIENTS_STATS = 43,   /* clients: what was asked for */
    VJ_RANK_OBJECT_CACHE = 44,    /* object: object cache */
    VJ_RANK_META_WRITER = 50,     /* meta: whether a session writes */
    VJ_RANK_META_STATE = 52,      /* meta: generations, sequence numbers */
    VJ_RANK_META_ENGINE = 54,     /* meta: one engine's state */
    VJ_RANK_META_WRAPPER = 56,    /* meta: wrappers' own counters */
    VJ_RANK_STORE_WRAPPER = 60,   /* store: wrappers' own counters */
    VJ_RANK_STORE_IO = 61,        /* store: requests in flight */
    VJ_RANK_STORE = 62,           /* store: one driver's state */
    VJ_RANK_STORE_FLUSH = 64,     /* store: waiters for durability */
    VJ_RANK_RPC = 70,             /* rpc: calls in flight, queues of threads */
    VJ_RANK_RPC_RECEIVE = 71,     /* rpc: where a bulk is received to */
    VJ_RANK_RPC_CONNECTION = 72,  /* rpc: what goes out on one connection */
    VJ_RANK_RPC_LOOP = 74,        /* rpc: what a loop thread is to do */
    VJ_RANK_NODE_KEYS = 80,       /* node: keys by which peers are believed */
    VJ_RANK_BASE = 90,            /* log, trace: may be taken under any other */
} VjLockRank;

typedef struct VJ_TSA(capability("mutex")) VjMutex {
    pthread_mutex_t mutex;
    const char *name;
    int rank;
} VjMutex;

/* For locks with static storage; no vj_mutex_clear needed. */
#define VJ_MUTEX_INIT(rank_, name_)                                                      \
    {                                                                                    \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .name = (name_), .rank = (rank_)             \
    }

void vj_mutex_init(VjMutex *m, VjLockRank rank, const char *name);
void vj_mutex_clear(VjMutex *m);
void vj_mutex_lock(VjMutex *m) VJ_TSA(acquire_capability(*m));
void vj_mutex_unlock(VjMutex *m) VJ_TSA(release_capability(*m));
/* The rules of rank hold here too, although it cannot wait. */
bool vj_mutex_trylock(VjMutex *m) VJ_TSA(try_acquire_capability(true, *m));
/* Debug builds abort when the calling thread does not hold @m; else nothing. */
void vj_mutex_assert_held(VjMutex *m) VJ_TSA(assert_capability(*m));

typedef struct VjCond {
    pthread_cond_t cond; /* CLOCK_MONOTONIC */
} VjCond;

void vj_cond_init(VjCond *c);
void vj_cond_clear(VjCond *c);
/* @m is the innermost lock that the thread holds (debug builds abort otherwise). */
void vj_cond_wait(VjCond *c, VjMutex *m) VJ_REQUIRES(m);
/* False on timeout; @until_mono_us is on the clock of vj_clock_mono_us(). */
bool vj_cond_wait_until(VjCond *c, VjMutex *m, int64_t until_mono_us) VJ_REQUIRES(m);
void vj_cond_signal(VjCond *c);
void vj_cond_broadcast(VjCond *c);

/*
 * vj_before_wait_set - what this thread calls before it may wait for long
 *
 * It is called before each wait for a condition, and by rooms whose calls may wait (a
 * store, a flush, a test's delay), perhaps with locks held: so it takes none, and does
 * not wait.
 * @call     NULL: nothing, as at the start
 * Threads   of the calling thread alone
 */
void vj_before_wait_set(void (*call)(void *opaque), void *opaque);
void vj_before_wait(void);

/* Readers share; the same rank rules.  May be held across I/O only where LOCKS.md says
 * so. */
typedef struct VJ_TSA(capability("rwlock")) VjRwLock {
    pthread_rwlock_t rwlock;
    const char *name;
    int rank;
} VjRwLock;

void vj_rwlock_init(VjRwLock *l, VjLockRank rank, const char *name);
void vj_rwlock_clear(VjRwLock *l);
void vj_rwlock_read_lock(VjRwLock *l) VJ_TSA(acquire_shared_capability(*l));
void vj_rwlock_read_unlock(VjRwLock *l) VJ_TSA(release_shared_capability(*l));
void vj_rwlock_write_lock(VjRwLock *l) VJ_TSA(acquire_capability(*l));
void vj_rwlock_write_unlock(VjRwLock *l) VJ_TSA(release_capability(*l));

/* Debug builds abort when the calling thread holds any VjMutex: put it before I/O.  A
 * VjRwLock does not count: LOCKS.md says which of them may be held there. */
void vj_lock_assert_none(void);
/* The name of a VjMutex that the calling thread holds, for a message.  NULL: none, or not
 * a debug build, which does not know. */
const char *vj_lock_held(void);

#endif
