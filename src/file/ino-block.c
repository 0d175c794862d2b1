/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * ino-block.c - inode numbers in blocks: a create does not write the counter
 *
 * A session takes VJ_INO_BLOCK numbers from the counter by one transaction of its own,
 * and gives them out from memory.
 *
 *   - The counter is behind every number of a block before the first one is given out.
 *     Commits become durable in order, so it is so after a crash, too.
 *   - A number is given out once.  One whose create failed is lost, and so is what a
 *     session has left of a block when it ends; at a close in order the rest goes back,
 *     where no session has taken a block behind it.
 */
#include "file/file-private.h"
#include "file/inode-format.h"

/* Numbers from first on, as far as end. */
typedef struct InoRange {
    uint64_t first, end;
} InoRange;

static int counter_put(VjTxn *txn, uint64_t next)
{
    uint8_t value[VJ_NEXT_INO_BYTES];

    vj_ino_next_encode(next, value);
    return vj_txn_put(txn, VJ_SPACE_SYSTEM,
                      vj_slice(VJ_NEXT_INO_KEY, strlen(VJ_NEXT_INO_KEY)),
                      vj_slice(value, sizeof value));
}

/* @most numbers, or those that are left.  -ENOSPC: none is. */
static int take(VjTxn *txn, uint64_t most, InoRange *out)
{
    int r = vj_ino_next(txn, &out->first);

    if (r < 0) {
        return r;
    }
    out->end = out->first + MIN(most, VJ_INO_MAX - out->first);
    return out->end == out->first ? -ENOSPC : counter_put(txn, out->end);
}

int vj_ino_take(VjTxn *txn, uint64_t *ino)
{
    InoRange one;
    int r = take(txn, 1, &one);

    if (r == 0) {
        *ino = one.first;
    }
    return r;
}

typedef struct InoTake {
    uint64_t most;
    InoRange taken; /* out */
} InoTake;

static int take_body(VjTxn *txn, void *opaque)
{
    InoTake *t = opaque;

    return take(txn, t->most, &t->taken);
}

/* The thread that finds the block used up takes another one; those that come meanwhile
 * wait for it. */
static int next_block_locked(VjFileTable *table) VJ_REQUIRES(table->lock)
{
    InoTake t = {.most = table->ino_block};
    int r;

    if (table->taking_inos) {
        return vj_cond_wait_or_cancel(&table->inos_taken, &table->lock,
                                      vj_cancel_deadline_us());
    }
    table->taking_inos = true;
    vj_mutex_unlock(&table->lock);
    r = vj_meta_run(table->meta, VJ_RUN_DEFAULT, take_body, &t);
    vj_mutex_lock(&table->lock);
    table->taking_inos = false;
    if (r == 0) {
        table->next_ino = t.taken.first;
        table->end_ino = t.taken.end;
    }
    vj_cond_broadcast(&table->inos_taken);
    return r;
}

int vj_ino_new(VjFileTable *table, uint64_t *ino)
{
    int r = 0;

    vj_mutex_lock(&table->lock);
    while (r == 0 && table->next_ino == table->end_ino) {
        r = next_block_locked(table);
    }
    if (r == 0) {
        *ino = table->next_ino++;
    }
    vj_mutex_unlock(&table->lock);
    return r;
}

static int give_back_body(VjTxn *txn, void *opaque)
{
    const InoRange *rest = opaque;
    uint64_t next;
    int r = vj_ino_next(txn, &next);

    return r < 0 || next != rest->end ? r : counter_put(txn, rest->first);
}

void vj_inos_give_back(VjFileTable *table)
{
    InoRange rest;
    int r = 0;

    vj_mutex_lock(&table->lock);
    g_assert(!table->taking_inos);
    rest = (InoRange){table->next_ino, table->end_ino};
    table->next_ino = table->end_ino;
    vj_mutex_unlock(&table->lock);
    if (rest.first != rest.end) {
        r = vj_meta_run(table->meta, VJ_RUN_RELEASE, give_back_body, &rest);
    }
    if (r < 0) {
        vj_log_warn("%" G_GUINT64_FORMAT " inode numbers are not used: %s",
                    rest.end - rest.first, g_strerror(-r));
    }
}
