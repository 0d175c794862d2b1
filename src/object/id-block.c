/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * id-block.c - object ids, and what a crash leaves behind in the store
 *
 * An id block is a range of ids with a record in VJ_SPACE_ID_BLOCK that says which
 * session takes ids of it.
 *
 *   - The record is durable before the first id of the id block is used: so after a crash
 *     each put that no commit names has its id in an open block, and is removed by the
 *     next open, or by another session that notices that this one has ended.
 *   - The record goes when all ids were given out and each is resolved: its object is
 *     referenced by a visible commit, or removed from the store so that it stays away
 *     after a crash.  Commits become durable in order, so the deletion is never durable
 *     before the references.
 *   - An id block with an id of which it is not known whether bytes lie there stays until
 *     its session has ended.
 *   - Ids only grow: the counter is written with each block, so no id is ever used twice.
 *     Those that the store would rather not have are passed over and never given out.
 */
#include "object/object-private.h"

/* ---- records ----------------------------------------------------------------------- */

typedef struct VjIdBlockNew {
    uint64_t ids;
    VjIdRange range; /* the owner is set before the transaction */
} VjIdBlockNew;

static int block_new_body(VjTxn *txn, void *opaque)
{
    VjIdBlockNew *n = opaque;
    VjSlice counter = vj_slice(VJ_NEXT_ID_KEY, strlen(VJ_NEXT_ID_KEY));
    uint8_t key[VJ_OBJECT_KEY_BYTES], next[VJ_NEXT_ID_BYTES], record[VJ_ID_BLOCK_BYTES];
    VjSlice value;
    int rc = vj_txn_get(txn, VJ_SPACE_SYSTEM, counter, &value);

    n->range.first_id = 1;
    if (rc == 0) {
        rc = vj_next_id_decode(value, &n->range.first_id);
    } else if (rc == -ENOENT) {
        rc = 0;
    }
    if (rc < 0) {
        return rc;
    }
    if (!vj_add_u64(n->range.first_id, n->ids - 1, &n->range.last_id) ||
        n->range.last_id == UINT64_MAX) {
        return -EOVERFLOW;
    }
    vj_next_id_encode(n->range.last_id + 1, next);
    rc = vj_txn_put(txn, VJ_SPACE_SYSTEM, counter, vj_slice(next, sizeof next));
    if (rc < 0) {
        return rc;
    }
    vj_be64_set(key, n->range.first_id);
    vj_id_block_encode(&n->range, record);
    return vj_txn_put(txn, VJ_SPACE_ID_BLOCK, vj_slice(key, sizeof key),
                      vj_slice(record, sizeof record));
}

/* Durable when it returns 0. */
static int block_new(VjObjects *o, VjIdBlock **out)
{
    VjIdBlockNew n = {.ids = o->id_blocks.block_ids,
                      .range.owner = vj_meta_session(o->meta)};
    int rc;

    *out = NULL;
    rc = vj_meta_run(o->meta, VJ_RUN_DEFAULT, block_new_body, &n);
    if (rc == 0) {
        rc = vj_meta_flush(o->meta);
    }
    if (rc < 0) {
        return rc;
    }
    *out = g_new0(VjIdBlock, 1);
    (*out)->first_id = (*out)->next_id = n.range.first_id;
    (*out)->last_id = n.range.last_id;
    return 0;
}

/* @opaque: GArray of VjIdRange. */
static int forget_body(VjTxn *txn, void *opaque)
{
    const GArray *ranges = opaque;

    for (guint i = 0; i < ranges->len; i++) {
        uint8_t key[VJ_OBJECT_KEY_BYTES];
        int rc;

        vj_be64_set(key, g_array_index(ranges, VjIdRange, i).first_id);
        rc = vj_txn_del(txn, VJ_SPACE_ID_BLOCK, vj_slice(key, sizeof key));
        if (rc < 0 && rc != -ENOENT) {
            return rc;
        }
    }
    return 0;
}

static int forget(VjObjects *o, GArray *ranges)
{
    int rc = 0;

    if (ranges->len > 0) {
        rc = vj_store_flush_removes(o->store);
        rc = rc < 0 ? rc : vj_meta_run(o->meta, VJ_RUN_RELEASE, forget_body, ranges);
    }
    return rc;
}

/* ---- recovery ---------------------------------------------------------------------- */

/* Takes over an id block with @owner. */
typedef struct VjEndedBlocks {
    uint64_t owner; /* 0: of each session that has ended */
    GArray *ranges; /* of VjIdRange */
} VjEndedBlocks;

static int is_wanted(VjTxn *txn, const VjEndedBlocks *e, const VjIdRange *range,
                     bool *wanted)
{
    *wanted = range->owner == e->owner;
    return e->owner > 0 ? 0 : vj_session_has_ended(txn, range->owner, wanted);
}

static int list_blocks_body(VjTxn *txn, void *opaque)
{
    const VjEndedBlocks *e = opaque;
    VjScan scan;

    g_array_set_size(e->ranges, 0);
    vj_scan_begin(&scan, txn, VJ_SPACE_ID_BLOCK, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        bool wanted = false;
        VjIdRange range;
        int rc = 0;

        if (vj_id_block_decode(scan.key, scan.value, &range) == 0) {
            rc = is_wanted(txn, e, &range, &wanted);
        } else { /* its numbers are not used again; what it covered is for fsck or gc */
            vj_log_error("a block of object ids is damaged and is passed over; "
                         "fsck.varjfs -y removes it");
        }
        if (rc < 0) {
            return rc;
        }
        if (wanted) {
            g_array_append_val(e->ranges, range);
        }
    }
    return scan.error;
}

static bool collect_put(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)mtime_us;
    g_array_append_vals(opaque, object, 1);
    return true;
}

/* What its session put under ids of @range and did not commit is removed. */
static int recover_range(VjObjects *o, const VjIdRange *range)
{
    g_autoptr(GArray) puts = g_array_new(FALSE, FALSE, sizeof(VjPut));
    int rc = vj_store_each(o->store, range->first_id, range->last_id, collect_put, puts);

    if (rc == 0) {
        rc = vj_objects_keep_unnamed(o, puts);
    }
    for (guint i = 0; rc == 0 && i < puts->len; i++) {
        rc = vj_object_remove_unnamed(o, &g_array_index(puts, VjPut, i));
        if (rc == 0) {
            vj_objects_count(o, removed, 1);
        }
    }
    if (rc == 0 && puts->len > 0) {
        vj_log_info("removed %u objects that were being written when their session ended",
                    puts->len);
    }
    return rc;
}

/*
 * Removes what lies in id blocks of sessions that have ended: of @owner, or, when that is
 * 0, of all.  *left: the last error of those that stay for another try.
 */
static int recover(VjObjects *o, uint64_t owner, int *left)
{
    g_autoptr(GArray) ranges = g_array_new(FALSE, FALSE, sizeof(VjIdRange));
    VjEndedBlocks e = {.owner = owner, .ranges = ranges};
    int rc = vj_meta_view(o->meta, list_blocks_body, &e);

    *left = 0;
    for (guint i = 0; rc == 0 && i < ranges->len;) {
        const VjIdRange *range = &g_array_index(ranges, VjIdRange, i);
        int failed = recover_range(o, range);

        if (failed < 0) { /* the volume is usable all the same */
            vj_log_warn("objects %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT
                        ": leftovers of a crash stay until the next try: %s",
                        range->first_id, range->last_id, g_strerror(-failed));
            *left = failed;
            g_array_remove_index(ranges, i);
        } else {
            i++;
        }
    }
    if (rc == 0 && ranges->len > 0 && vj_store_flush_removes(o->store) < 0) {
        *left = -EIO; /* the store has said why */
        return 0;
    }
    return rc < 0 ? rc : forget(o, ranges);
}

int vj_objects_release_session(VjObjects *o, uint64_t id)
{
    int left, rc;

    g_assert(id > 0 && id != vj_meta_session(o->meta));
    if (o->read_only) {
        return -EROFS;
    }
    rc = recover(o, id, &left);
    if (rc == 0) {
        rc = left;
    }
    vj_objects_kick(o); /* what it held may go */
    return rc;
}

/* ---- in use ------------------------------------------------------------------------ */

static bool is_over(const VjIdBlocks *l, const VjIdBlock *block)
{
    return block != l->current && block != l->next && block->unresolved == 0 &&
           !block->doubtful;
}

/* Takes id blocks that are over out of the table; returns their ranges. */
static GArray *take_over(VjIdBlocks *l)
{
    GArray *ranges = g_array_new(FALSE, FALSE, sizeof(VjIdRange));

    vj_mutex_assert_held(&l->lock);
    for (guint i = 0; i < l->open->len;) {
        const VjIdBlock *block = g_ptr_array_index(l->open, i);

        if (is_over(l, block)) {
            VjIdRange range = {.first_id = block->first_id, .last_id = block->last_id};

            g_array_append_val(ranges, range);
            g_ptr_array_remove_index_fast(l->open, i);
        } else {
            i++;
        }
    }
    return ranges;
}

/* One round of the thread, with the lock held on entry and return.  False:
 * nothing to do. */
static bool work(VjObjects *o, VjIdBlocks *l) VJ_REQUIRES(l->lock)
{
    g_autoptr(GArray) over = take_over(l);
    VjIdBlock *block;
    int rc;

    if (over->len > 0) {
        vj_mutex_unlock(&l->lock);
        rc = forget(o, over);
        if (rc < 0) {
            vj_log_warn("blocks of object ids stay until the next mount: %s",
                        g_strerror(-rc));
        }
        vj_mutex_lock(&l->lock);
        return true;
    }
    if (!l->wanted || l->next != NULL) {
        return false;
    }
    vj_mutex_unlock(&l->lock);
    rc = block_new(o, &block);
    vj_mutex_lock(&l->lock);
    l->wanted = false;
    l->error = rc;
    l->attempts++;
    if (rc == 0) {
        g_ptr_array_add(l->open, block);
        l->next = block;
    }
    vj_cond_broadcast(&l->changed);
    return true;
}

static gpointer id_block_thread(gpointer opaque)
{
    VjObjects *o = opaque;
    VjIdBlocks *l = &o->id_blocks;

    vj_mutex_lock(&l->lock);
    while (!l->stop) {
        if (!work(o, l)) {
            vj_cond_wait(&l->changed, &l->lock);
        }
    }
    vj_mutex_unlock(&l->lock);
    return NULL;
}

/* Ask at a half, a quarter, … of the id block: after a failure again, but not each
 * time. */
static bool is_time_for_next(const VjIdBlocks *l, uint64_t left)
{
    return l->next == NULL && left <= l->block_ids / 2 && (left & (left - 1)) == 0;
}

static void want_next(VjIdBlocks *l)
{
    l->wanted = true;
    vj_cond_broadcast(&l->changed);
}

/* The next id is not below @preferred, or the first of another id block. */
static void pass_over(VjIdBlocks *l, uint64_t preferred)
{
    VjIdBlock *block;

    vj_mutex_lock(&l->lock);
    block = l->current;
    if (preferred > block->next_id) {
        block->next_id = MIN(preferred, block->last_id + 1);
        if (l->next == NULL && block->last_id + 1 - block->next_id <= l->block_ids / 2) {
            want_next(l);
        }
    }
    vj_mutex_unlock(&l->lock);
}

int vj_id_take(VjObjects *o, uint64_t *id)
{
    VjIdBlocks *l = &o->id_blocks;
    int rc = 0;

    vj_mutex_lock(&l->lock);
    while (rc == 0 && l->current->next_id > l->current->last_id) {
        if (l->next != NULL) {
            l->current = l->next;
            l->next = NULL;
            vj_cond_broadcast(&l->changed); /* the old one may be over */
        } else {
            uint64_t seen = l->attempts;

            want_next(l);
            while (l->attempts == seen && l->next == NULL) {
                vj_cond_wait(&l->changed, &l->lock);
            }
            /* Another taker may have moved on to what this attempt brought. */
            rc = l->attempts != seen ? l->error : 0;
        }
    }
    if (rc == 0) {
        VjIdBlock *block = l->current;

        *id = block->next_id++;
        block->unresolved++;
        if (is_time_for_next(l, block->last_id + 1 - block->next_id)) {
            want_next(l);
        }
    }
    vj_mutex_unlock(&l->lock);
    if (rc == 0) {
        uint64_t preferred = vj_store_prefer(o->store, *id);

        if (preferred > *id) { /* from the next one on: this one is taken */
            pass_over(l, preferred);
        }
    }
    return rc;
}

void vj_id_resolve(VjObjects *o, uint64_t id, bool doubtful)
{
    VjIdBlocks *l = &o->id_blocks;
    VjIdBlock *block = NULL;

    vj_mutex_lock(&l->lock);
    for (guint i = 0; block == NULL; i++) {
        g_assert(i < l->open->len);
        block = g_ptr_array_index(l->open, i);
        if (id < block->first_id || id > block->last_id) {
            block = NULL;
        }
    }
    g_assert(block->unresolved > 0 && id < block->next_id);
    block->unresolved--;
    block->doubtful = block->doubtful || doubtful;
    if (is_over(l, block)) {
        vj_cond_broadcast(&l->changed);
    }
    vj_mutex_unlock(&l->lock);
}

/* ---- open and close ---------------------------------------------------------------- */

bool vj_id_blocks_open(VjObjects *o, GError **error)
{
    VjIdBlocks *l = &o->id_blocks;
    int left, rc; /* what is left over is tried again by the next open */

    l->open = g_ptr_array_new_with_free_func(g_free);
    vj_mutex_init(&l->lock, VJ_RANK_OBJECT_IDS, "object-ids");
    vj_cond_init(&l->changed);
    if (o->read_only) {
        return true;
    }
    rc = recover(o, 0, &left);
    if (rc == 0) {
        rc = block_new(o, &l->current);
    }
    if (rc == -EBADMSG) {
        return vj_error_set(
            error, EBADMSG,
            "the counter of object numbers is damaged: fsck.varjfs -y sets "
            "it anew, and a mount with ro does not need it");
    }
    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "blocks of object ids");
    }
    g_ptr_array_add(l->open, l->current);
    l->thread = g_thread_try_new("vj-ids", id_block_thread, o, error);
    return l->thread != NULL;
}

int vj_id_blocks_close(VjObjects *o)
{
    VjIdBlocks *l = &o->id_blocks;
    g_autoptr(GArray) over = NULL;
    bool is_left;
    int rc;

    vj_mutex_lock(&l->lock);
    l->stop = true;
    vj_cond_broadcast(&l->changed);
    vj_mutex_unlock(&l->lock);
    if (l->thread != NULL) {
        g_thread_join(l->thread);
    }
    vj_mutex_lock(&l->lock);
    l->current = l->next = NULL;
    over = take_over(l);
    is_left = l->open->len > 0;
    vj_mutex_unlock(&l->lock);
    rc = forget(o, over);
    if (rc < 0 || is_left) { /* others see to it */
        vj_meta_leave_record(o->meta);
    }
    g_ptr_array_free(l->open, TRUE);
    vj_cond_clear(&l->changed);
    vj_mutex_clear(&l->lock);
    return rc;
}
