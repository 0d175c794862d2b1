/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * posix-sync.c - see posix-sync.h
 *
 * One device sync runs at a time.  It covers all puts that returned before it started;
 * callers that come later wait and the first of them syncs for all, so that N callers
 * that overlap cost two syncs.
 *
 * A few puts are synced one by one through the descriptors that wrote them (which see
 * each error of their file), many by syncfs through a descriptor that is as old as the
 * store (which sees each error of the file system).  New directories are left to syncfs.
 *
 * An error that a sync reports may be that of a put which returned, or wrote, while it
 * ran, and no later sync would report it again.  So a failed sync puts all of them in
 * doubt.
 */
#include "store/posix-sync.h"

#include <fcntl.h>
#include <unistd.h>

typedef struct Put {
    VjFdKey key;
    uint64_t number; /* of returned, from 1 */
} Put;

static guint put_hash(gconstpointer opaque)
{
    const Put *put = opaque;

    return (guint)(put->key.nonce ^ put->key.nonce >> 32);
}

static gboolean put_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(&((const Put *)a)->key, &((const Put *)b)->key, sizeof(VjFdKey)) == 0;
}

static const VjPosixSyncCalls kernel_calls = {
    .sync_file = fdatasync,
    .sync_directory = fsync,
    .sync_all = syncfs,
};

void vj_posix_sync_init(VjPosixSync *y, int root_fd, VjFdCache *dirs, uint32_t batch_max,
                        bool inherits)
{
    g_assert(root_fd >= 0 && batch_max <= VJ_POSIX_SYNC_BATCH_MAX);
    *y = (VjPosixSync){
        .root_fd = root_fd,
        .dirs = dirs,
        .batch_max = batch_max,
        .inherits = inherits,
        .calls = kernel_calls,
        /* An earlier process may have made directories and not synced them. */
        .dirs_made = 1};
    y->unsynced = g_hash_table_new_full(put_hash, put_equal, g_free, NULL);
    y->doubtful = g_hash_table_new_full(put_hash, put_equal, g_free, NULL);
    vj_mutex_init(&y->lock, VJ_RANK_STORE_FLUSH, "store.posix.sync");
    vj_cond_init(&y->changed);
}

/* Puts that left pending, to be closed after the lock is released. */
typedef struct Taken {
    VjPosixPending puts[VJ_POSIX_SYNC_BATCH_MAX];
    uint32_t count;
} Taken;

static void take_pending(VjPosixSync *y, Taken *taken) VJ_REQUIRES(y->lock)
{
    taken->count = y->pending_count;
    memcpy(taken->puts, y->pending, y->pending_count * sizeof y->pending[0]);
    y->pending_count = 0;
}

/* 0, or what the last close() of a written file had to say: some file systems write then.
 */
static int close_written(int *fd)
{
    return close(vj_fd_steal(fd)) != 0 && errno != EINTR ? -errno : 0;
}

static int close_taken(VjPosixSync *y, Taken *taken)
{
    int result = 0;

    for (uint32_t i = 0; i < taken->count; i++) {
        int failed = close_written(&taken->puts[i].fd);

        vj_fd_cache_release(y->dirs, &taken->puts[i].dir);
        if (result == 0) {
            result = failed;
        }
    }
    taken->count = 0;
    return result;
}

/* Puts everything that is not durable in doubt.  The caller closes @taken. */
static void doubt_all(VjPosixSync *y, int error, Taken *taken) VJ_REQUIRES(y->lock)
{
    GHashTableIter iter;
    gpointer put = NULL;

    g_assert(error < 0);
    y->failures++;
    y->doubt_error = error == -ENOSPC || error == -EDQUOT ? error : -EIO;
    g_hash_table_iter_init(&iter, y->unsynced);
    while (g_hash_table_iter_next(&iter, &put, NULL)) {
        g_hash_table_iter_steal(&iter);
        g_hash_table_add(y->doubtful, put);
    }
    if (g_hash_table_size(y->doubtful) > VJ_POSIX_DOUBTFUL_MAX) {
        g_hash_table_remove_all(y->doubtful);
        y->broken = true;
    }
    y->decided = y->returned;
    y->overflowed = false;
    take_pending(y, taken);
    vj_cond_broadcast(&y->changed);
}

/* As doubt_all, from outside the lock. */
static void fail(VjPosixSync *y, int error)
{
    Taken taken;

    vj_log_error("store posix: what was put since the last flush may be lost: %s",
                 g_strerror(-error));
    vj_mutex_lock(&y->lock);
    doubt_all(y, error, &taken);
    vj_mutex_unlock(&y->lock);
    /* They are in doubt already; another error makes them no worse. */
    (void)close_taken(y, &taken);
}

void vj_posix_sync_clear(VjPosixSync *y)
{
    Taken taken;

    g_assert(!y->syncing && y->dirs_in_making == 0);
    vj_mutex_lock(&y->lock);
    take_pending(y, &taken);
    vj_mutex_unlock(&y->lock);
    if (close_taken(y, &taken) != 0) {
        vj_log_error("store posix: what was put since the last flush may be lost");
    }
    g_hash_table_unref(y->unsynced);
    g_hash_table_unref(y->doubtful);
    vj_cond_clear(&y->changed);
    vj_mutex_clear(&y->lock);
}

void vj_posix_sync_put_begin(VjPosixSync *y, uint64_t *failures)
{
    bool full;

    vj_mutex_lock(&y->lock);
    full = g_hash_table_size(y->unsynced) >= VJ_POSIX_UNSYNCED_MAX;
    vj_mutex_unlock(&y->lock);
    if (full) {
        /* A failure is not this put's: it stays in doubtful, for callers of flush(). */
        (void)(vj_posix_sync_flush(y) == 0);
    }
    vj_mutex_lock(&y->lock);
    *failures = y->failures;
    vj_mutex_unlock(&y->lock);
}

int vj_posix_sync_put_done(VjPosixSync *y, VjFdKey key, uint64_t failures, int *fd,
                           VjFdUse *dir)
{
    Taken taken = {.count = 0};
    bool sync_failed = false;
    Put *put = g_new(Put, 1);
    int failed = 0;

    g_assert(*fd >= 0 && dir->fd >= 0);
    vj_mutex_lock(&y->lock);
    sync_failed = y->failures != failures;
    if (!sync_failed) {
        *put = (Put){.key = key, .number = ++y->returned};
        g_hash_table_add(y->unsynced, put);
        if (!y->overflowed && y->pending_count < y->batch_max) {
            y->pending[y->pending_count++] =
                (VjPosixPending){.fd = vj_fd_steal(fd), .dir = *dir};
            *dir = (VjFdUse){.fd = -1, .slot = -1};
        } else {
            y->overflowed = true;
            take_pending(y, &taken);
        }
    }
    vj_mutex_unlock(&y->lock);

    if (sync_failed) {
        g_free(put);
        vj_fd_close(fd);
        return -EIO;
    }
    failed = close_taken(y, &taken);
    if (failed) {
        fail(y, failed);
    }
    if (*fd >= 0) {
        int close_failed = close_written(fd);

        failed = failed != 0 ? failed : close_failed;
    }
    if (failed) {
        vj_posix_sync_removed(y, key);
    }
    return failed;
}

void vj_posix_sync_removed(VjPosixSync *y, VjFdKey key)
{
    Put put = {.key = key};

    vj_mutex_lock(&y->lock);
    g_hash_table_remove(y->unsynced, &put);
    g_hash_table_remove(y->doubtful, &put);
    vj_mutex_unlock(&y->lock);
}

void vj_posix_sync_dir_begin(VjPosixSync *y)
{
    vj_mutex_lock(&y->lock);
    y->dirs_in_making++;
    vj_mutex_unlock(&y->lock);
}

void vj_posix_sync_dir_end(VjPosixSync *y)
{
    vj_mutex_lock(&y->lock);
    g_assert(y->dirs_in_making > 0);
    y->dirs_in_making--;
    y->dirs_made++;
    vj_mutex_unlock(&y->lock);
}

int vj_posix_sync_begin(int fd)
{
    if (sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0 || errno == ENOSYS ||
        errno == EINVAL || errno == EOPNOTSUPP || errno == ESPIPE) {
        return 0; /* where there is no such thing the sync does it all */
    }
    return -errno;
}

/* Each file, then each directory once. */
static int sync_one_by_one(VjPosixSync *y, const Taken *batch, VjPosixSyncCounts *counts)
{
    /* Lets the device work on all of them at once. */
    for (uint32_t i = 0; batch->count > 1 && i < batch->count; i++) {
        int r = vj_posix_sync_begin(batch->puts[i].fd);

        if (r < 0) {
            return r;
        }
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        counts->files++;
        if (y->calls.sync_file(batch->puts[i].fd) != 0) {
            return -errno;
        }
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        bool done = false;

        for (uint32_t k = 0; k < i; k++) {
            done = done || batch->puts[k].dir.fd == batch->puts[i].dir.fd;
        }
        if (done) {
            continue;
        }
        counts->directories++;
        if (y->calls.sync_directory(batch->puts[i].dir.fd) != 0) {
            return -errno;
        }
    }
    return 0;
}

static int sync_device(VjPosixSync *y, const Taken *batch, bool all,
                       VjPosixSyncCounts *counts)
{
    int r;

    vj_lock_assert_none();
    counts->batches++;
    if (!all) {
        r = sync_one_by_one(y, batch, counts);
    } else {
        counts->alls++;
        r = y->calls.sync_all(y->root_fd) != 0 ? -errno : 0;
    }
    /* New files are nothing without the journal of the file system. */
    return r < 0 ? r : vj_fd_check_alive(y->root_fd);
}

/* The puts up to @covered are durable. */
static void decide(VjPosixSync *y, uint64_t covered) VJ_REQUIRES(y->lock)
{
    GHashTableIter iter;
    gpointer put = NULL;

    if (covered == y->returned) {
        g_hash_table_remove_all(y->unsynced);
    }
    g_hash_table_iter_init(&iter, y->unsynced);
    while (g_hash_table_iter_next(&iter, &put, NULL)) {
        if (((const Put *)put)->number <= covered) {
            g_hash_table_iter_remove(&iter);
        }
    }
    g_assert(y->decided <= covered);
    y->decided = covered;
}

/* Runs one device sync for all callers; the lock is released meanwhile. */
static void lead(VjPosixSync *y) VJ_REQUIRES(y->lock)
{
    uint64_t covered = y->returned, dirs_covered = y->dirs_made, failures = y->failures;
    /* One by one is several waits in turn: not while others queue up behind them. */
    bool all = y->overflowed || y->crowd > 0 || y->dirs_in_making > 0 ||
               y->dirs_made != y->dirs_synced || y->inherits;
    VjPosixSyncCounts counts = {0};
    Taken batch, late = {.count = 0};
    int failed, close_failed;

    g_assert(!y->syncing);
    g_assert(y->overflowed || y->pending_count == covered - y->decided);
    y->syncing = true;
    y->overflowed = false;
    y->crowd -= y->crowd > 0;
    take_pending(y, &batch);
    vj_mutex_unlock(&y->lock);

    failed = sync_device(y, &batch, all, &counts);
    close_failed = close_taken(y, &batch);
    failed = failed != 0 ? failed : close_failed;
    if (failed) {
        vj_log_error("store posix: cannot make objects durable: %s", g_strerror(-failed));
    }
    vj_trace(store, "posix sync all=%d covered=%" G_GUINT64_FORMAT " result=%d", all,
             covered, failed);

    vj_mutex_lock(&y->lock);
    y->syncing = false;
    y->counts.batches += counts.batches;
    y->counts.alls += counts.alls;
    y->counts.files += counts.files;
    y->counts.directories += counts.directories;
    if (failed) {
        doubt_all(y, failed, &late);
    } else if (y->failures == failures) {
        decide(y, covered);
    }
    if (!failed && all) {
        y->dirs_synced = dirs_covered;
        y->inherits = false;
    }
    vj_cond_broadcast(&y->changed);
    if (late.count > 0) {
        vj_mutex_unlock(&y->lock);
        /* They are in doubt already; another error makes them no worse. */
        (void)close_taken(y, &late);
        vj_mutex_lock(&y->lock);
    }
}

int vj_posix_sync_flush(VjPosixSync *y)
{
    uint64_t wanted, failures;
    int result = 0;

    vj_mutex_lock(&y->lock);
    wanted = y->returned;
    failures = y->failures;
    while ((y->decided < wanted || y->inherits) && y->failures == failures) {
        if (y->syncing) {
            y->crowd = VJ_POSIX_CROWD_SYNCS;
            vj_cond_wait(&y->changed, &y->lock);
        } else {
            lead(y);
        }
    }
    if (y->failures != failures || y->broken || g_hash_table_size(y->doubtful) > 0) {
        result = y->doubt_error;
    }
    vj_mutex_unlock(&y->lock);
    return result;
}

bool vj_posix_sync_shrink(VjPosixSync *y)
{
    Taken taken;
    bool closed_some;
    int failed;

    vj_mutex_lock(&y->lock);
    take_pending(y, &taken);
    closed_some = taken.count > 0;
    y->overflowed = y->overflowed || closed_some;
    vj_mutex_unlock(&y->lock);
    failed = close_taken(y, &taken);
    if (failed) {
        fail(y, failed);
    }
    return closed_some;
}
