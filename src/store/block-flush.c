/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * block-flush.c - what is durable, what is in doubt, and what goes back to the file
 * system below
 *
 * One thread syncs at a time, for all who came before it began.  After a sync that failed
 * the kernel takes the pages for clean: what was put since the last good one is in doubt,
 * and flush fails as long as one such object is there.
 */
#include "store/block-private.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

void vj_block_doubt(VjBlockStore *b, VjBlockEntry *entry, int error)
{
    if (!entry->is_doubtful) {
        entry->is_doubtful = true;
        b->doubtful++;
        b->doubt_error = error;
    }
}

void vj_block_end_doubt(VjBlockStore *b, VjBlockEntry *entry)
{
    if (entry->is_doubtful) {
        entry->is_doubtful = false;
        b->doubtful--;
    }
}

/* The sync met, or may have met, all that returned and was not decided. */
static void doubt_all(VjBlockStore *b, int error) VJ_REQUIRES(b->lock)
{
    for (guint i = 0; i < b->unsynced->len; i++) {
        const VjBlockUnsynced *u = &g_array_index(b->unsynced, VjBlockUnsynced, i);
        VjBlockEntry *entry = vj_block_table_find(&b->objects, u->id, u->nonce);

        if (entry != NULL && !entry->is_removed) {
            vj_block_doubt(b, entry, error);
        }
    }
    b->decided += b->unsynced->len;
    g_array_set_size(b->unsynced, 0);
    b->failures++;
}

static void decide(VjBlockStore *b, uint64_t covered) VJ_REQUIRES(b->lock)
{
    if (covered > b->decided) {
        g_array_remove_range(b->unsynced, 0, (guint)(covered - b->decided));
        b->decided = covered;
    }
}

static int sync_device(const VjBlockStore *b)
{
    int rc = fdatasync(b->fd) == 0 ? 0 : -errno;

    if (rc < 0) {
        vj_log_error("store block %s: cannot sync: %s", b->path, g_strerror(-rc));
        return rc == -ENOSPC || rc == -EDQUOT ? rc : -EIO;
    }
    return b->is_file ? vj_fd_check_alive(b->fd) : 0;
}

/* 0 or -errno. */
static int punch(const VjBlockStore *b, uint64_t first, uint64_t count)
{
    int rc;

    do {
        rc = fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       (off_t)(first * VJ_BLOCK_BYTES), (off_t)(count * VJ_BLOCK_BYTES));
    } while (rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : -errno;
}

/* Nobody reads there: no key names anything in it. */
void vj_block_give_back_left(VjBlockStore *b)
{
    off_t length = b->discards && b->is_file ? lseek(b->fd, 0, SEEK_END) : -1;
    uint64_t end = length > 0 ? vj_block_count_of((uint64_t)length) : 0;

    for (uint64_t first = 0; first < end; first += VJ_BLOCK_ZONE_BLOCKS) {
        uint64_t count = MIN(VJ_BLOCK_ZONE_BLOCKS, end - first);
        uint64_t next = (first + count) * VJ_BLOCK_BYTES;
        bool is_empty;
        int rc;

        vj_mutex_lock(&b->lock);
        is_empty = vj_block_space_is_empty(&b->space, first / VJ_BLOCK_ZONE_BLOCKS);
        vj_mutex_unlock(&b->lock);
        if (!is_empty || vj_block_data_from(b, first * VJ_BLOCK_BYTES, next) == next) {
            continue;
        }
        rc = punch(b, first, count);
        if (rc < 0) {
            vj_log_info("store block %s: space that is free stays here: %s", b->path,
                        g_strerror(-rc));
            return;
        }
    }
}

/* What cannot be given back stays, and is used again. */
unsigned vj_block_give_back_zones(VjBlockStore *b, unsigned most)
{
    unsigned given = 0;
    uint64_t first, count;
    uint32_t zone;

    for (unsigned i = 0; i < most && b->discards &&
                         vj_block_space_leave(&b->space, &zone, &first, &count);
         i++) {
        int rc;

        vj_mutex_unlock(&b->lock);
        rc = punch(b, first, count);
        vj_mutex_lock(&b->lock);
        vj_block_space_left(&b->space, zone, rc == 0);
        given += rc == 0;
        vj_cond_broadcast(&b->changed);
        if (rc != 0) {
            b->discards = false;
            vj_log_warn("store block %s: what becomes free cannot be given back to what "
                        "is below: %s",
                        b->path, g_strerror(-rc));
        }
    }
    if (given > 0) {
        vj_block_space_try_all(&b->space);
    }
    return given;
}

/* The caller's turn: covers all that returned until now. */
static void sync_once(VjBlockStore *b) VJ_REQUIRES(b->lock)
{
    uint64_t covered = b->decided + b->unsynced->len, order = b->write_order;
    int rc;

    b->is_syncing = true;
    vj_block_wait_for_writes(b, order);
    vj_mutex_unlock(&b->lock);
    rc = sync_device(b);
    vj_mutex_lock(&b->lock);
    if (rc == 0) {
        decide(b, covered);
        b->must_sync = false;
        (void)vj_block_give_back_zones(b, VJ_BLOCK_GIVEN_BACK_MAX);
        /* Others may have left some of what is below. */
        vj_block_space_try_all(&b->space);
    } else {
        doubt_all(b, rc);
    }
    b->is_syncing = false;
    vj_cond_broadcast(&b->changed);
}

int vj_block_flush(VjStore *s)
{
    VjBlockStore *b = (VjBlockStore *)s;
    uint64_t wanted, failures;
    int rc;

    if (b->read_only) {
        return 0;
    }
    vj_mutex_lock(&b->lock);
    wanted = b->decided + b->unsynced->len;
    failures = b->failures;
    while (b->decided < wanted || (b->must_sync && b->failures == failures)) {
        if (b->is_syncing) {
            vj_cond_wait(&b->changed, &b->lock);
        } else {
            sync_once(b);
        }
    }
    rc = b->doubtful > 0 ? b->doubt_error : b->must_sync ? -EIO : 0;
    vj_mutex_unlock(&b->lock);
    return rc;
}

int vj_block_sync_now(VjBlockStore *b)
{
    uint64_t failures;
    int rc;

    vj_mutex_lock(&b->lock);
    while (b->is_syncing) {
        vj_cond_wait(&b->changed, &b->lock); /* it may have begun before */
    }
    b->must_sync = true;
    failures = b->failures;
    while (b->must_sync && b->failures == failures) {
        if (b->is_syncing) {
            vj_cond_wait(&b->changed, &b->lock);
        } else {
            sync_once(b);
        }
    }
    rc = b->failures != failures ? -EIO : 0;
    vj_mutex_unlock(&b->lock);
    return rc;
}

/* That a removed object stays away is what the caller commits.  What has become free
 * since is given back. */
int vj_block_flush_removes(VjStore *s)
{
    VjBlockStore *b = (VjBlockStore *)s;

    vj_mutex_lock(&b->lock);
    (void)vj_block_give_back_zones(b, VJ_BLOCK_GIVEN_BACK_MAX);
    vj_mutex_unlock(&b->lock);
    return 0;
}
