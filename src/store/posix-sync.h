/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * posix-sync.h - which puts of the posix driver are durable, and which caller syncs for
 * the others
 *
 * Each put is in one of three states from its return on: not yet durable, durable, or in
 * doubt: a device sync failed that may have met its bytes, and the kernel, having said so
 * once, takes the pages for clean.  A put in doubt stays so until it is removed, and
 * while there is one, flush() fails.  So success always means that every put that
 * returned before, and was not removed, is on the device.
 *
 * Threads: any.  Locks: its own (VJ_RANK_STORE_FLUSH), never across I/O.
 */
#ifndef VJ_STORE_POSIX_SYNC_H
#define VJ_STORE_POSIX_SYNC_H

#include "store/fd-cache.h"

/* Most objects that a flush syncs one by one; the option sync_batch is at most this. */
#define VJ_POSIX_SYNC_BATCH_MAX 64u
/* Syncs that expect a crowd after a caller had to wait for another one's. */
#define VJ_POSIX_CROWD_SYNCS 16u
/* Puts not yet durable above which a put flushes first. */
#define VJ_POSIX_UNSYNCED_MAX 65536u
/* Puts in doubt above which the store stays failed until it is opened again. */
#define VJ_POSIX_DOUBTFUL_MAX (4 * VJ_POSIX_UNSYNCED_MAX)

/* How the device is reached; tests put their own in.  Each returns 0, or -1 and errno. */
typedef struct VjPosixSyncCalls {
    int (*sync_file)(int fd);
    int (*sync_directory)(int fd);
    int (*sync_all)(int fd); /* of the whole file system below */
} VjPosixSyncCalls;

typedef struct VjPosixSyncCounts {
    uint64_t batches; /* device syncs of either kind */
    uint64_t alls;    /* of these, by sync_all */
    uint64_t files;   /* calls of sync_file */
    uint64_t directories;
} VjPosixSyncCounts;

/* A put whose descriptor is still open, so that it can be synced by itself. */
typedef struct VjPosixPending {
    int fd;
    VjFdUse dir;
} VjPosixPending;

typedef struct VjPosixSync {
    int root_fd; /* borrowed; opened before the first put, so that it sees each error */
    VjFdCache *dirs; /* borrowed; where the uses in pending are released */
    uint32_t batch_max;
    VjPosixSyncCalls calls;

    VjMutex lock;
    VjCond changed; /* durable or failures */
    /* guarded by lock: */
    VjPosixPending pending[VJ_POSIX_SYNC_BATCH_MAX];
    uint32_t pending_count;
    bool overflowed;      /* a put since the last sync's start is not in pending */
    uint64_t returned;    /* puts that came here, ever */
    uint64_t decided;     /* the first so many are durable or in doubt */
    GHashTable *unsynced; /* set of Put: returned and not decided */
    GHashTable *doubtful; /* set of Put */
    int doubt_error;      /* what flush() says of them */
    bool broken;          /* too many in doubt to know them one by one */
    uint64_t failures;    /* device syncs that failed */
    bool inherits;        /* there may be files of an earlier process that no sync met */
    bool syncing;
    uint32_t
        crowd; /* so many syncs from now on expect that others queue up behind them */
    uint32_t dirs_in_making;
    uint64_t dirs_made,
        dirs_synced; /* directories created; so many of them are durable */
    VjPosixSyncCounts counts;
} VjPosixSync;

/* @inherits: there may be objects that an earlier process put.  Who finds them counts on
 * flush() for them as for others, so the first one covers them. */
void vj_posix_sync_init(VjPosixSync *y, int root_fd, VjFdCache *dirs, uint32_t batch_max,
                        bool inherits);
void vj_posix_sync_clear(VjPosixSync *y);

/* The file's bytes are on their way to the device.  -errno: they may be lost, and no
 * later call says so again. */
int vj_posix_sync_begin(int fd) G_GNUC_WARN_UNUSED_RESULT;
/* Before the first byte is written; *@failures goes to _put_done.  May flush. */
void vj_posix_sync_put_begin(VjPosixSync *y, uint64_t *failures);
/*
 * The bytes are written.  May take *@fd and *@dir (then they are -1); closes *@fd when it
 * does not.  0: flush() answers for this put from now on.  Else the put has failed, a
 * sync may have met its bytes: the caller unlinks it.
 */
int vj_posix_sync_put_done(VjPosixSync *y, VjFdKey key, uint64_t failures, int *fd,
                           VjFdUse *dir) G_GNUC_WARN_UNUSED_RESULT;
/* The object's file is gone. */
void vj_posix_sync_removed(VjPosixSync *y, VjFdKey key);

/* Around the creation of a directory, so that it is made durable before what is in it. */
void vj_posix_sync_dir_begin(VjPosixSync *y);
void vj_posix_sync_dir_end(VjPosixSync *y);

int vj_posix_sync_flush(VjPosixSync *y) G_GNUC_WARN_UNUSED_RESULT;

/* Closes the descriptors of pending puts: the process has none left.  True: closed some.
 */
bool vj_posix_sync_shrink(VjPosixSync *y);

#endif
