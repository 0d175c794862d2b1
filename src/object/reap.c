/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * reap.c - one pass over the dead
 *
 * The reaper removes bytes only when nobody can name the object any more:
 *
 *   1. take dead records out of a snapshot: what begins later does not find them by index
 *      or map;
 *   2. meta flush: their death survives a crash;
 *   3. begin a new epoch and wait until the guards of the old one have left: nobody who
 *      saw them alive can still pin them;
 *   4. of those that have no pin, say in their records that they are being removed
 *      (VJ_OBJECT_REMOVING): nothing revives them from that commit on.  One may have been
 *      revived by a pin that is gone now, even died again since, and then younger
 *      snapshots may name it: only the death that was seen in 1 (VjObject.deaths) counts;
 *   5. remove the bytes so that they stay away, then delete the records.  What a crash
 *      cuts off is done again, from 1 on.
 *
 * The commit of 4 is not made durable for its own sake: after a crash no snapshot and no
 * pin is left that could name what was dead in 2.
 */
#include "object/object-private.h"

/* Objects removed per transaction. */
#define VJ_REAP_BATCH 256u

typedef struct VjDeadBatch {
    uint64_t after_id;
    GArray *dead; /* of VjObject */
} VjDeadBatch;

/* Up to VJ_REAP_BATCH dead records behind @after_id, in order of ids. */
static int scan_body(VjTxn *txn, void *opaque)
{
    const VjDeadBatch *b = opaque;
    GArray *dead = b->dead;
    uint8_t after[VJ_OBJECT_KEY_BYTES];
    VjScan scan;

    g_array_set_size(dead, 0);
    vj_be64_set(after, b->after_id);
    vj_scan_begin(&scan, txn, VJ_SPACE_DEAD, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(after, sizeof after));
    while (dead->len < VJ_REAP_BATCH && vj_scan_next(&scan)) {
        VjObject object;
        uint64_t id;

        if (scan.key.len != VJ_OBJECT_KEY_BYTES) {
            return -EBADMSG;
        }
        id = vj_be64_get(scan.key.data);
        if (vj_object_decode(scan.value, VJ_SPACE_DEAD, id, &object) == 0) {
            g_array_append_val(dead, object);
        } else { /* fsck tells more; the others can go */
            vj_log_error("object %" G_GUINT64_FORMAT ": its dead record is damaged", id);
        }
    }
    return scan.error;
}

typedef struct VjMarkRemoving {
    const GArray *seen; /* of VjObject */
    GArray *dead;       /* those of @seen that are as dead as they were seen */
} VjMarkRemoving;

/* One of them.  0 also when it stays. */
static int mark_one(VjTxn *txn, const VjObject *seen, GArray *dead)
{
    VjObject now;
    int rc = vj_object_record_get(txn, VJ_SPACE_DEAD, seen->id, &now);

    if (rc == -ENOENT || rc == -EBADMSG || (rc == 0 && now.deaths != seen->deaths)) {
        return 0;
    }
    if (rc == 0 && (now.flags & VJ_OBJECT_REMOVING) == 0) {
        now.flags |= VJ_OBJECT_REMOVING;
        rc = vj_object_record_put(txn, VJ_SPACE_DEAD, &now);
    }
    if (rc == 0) {
        g_array_append_val(dead, now);
    }
    return rc;
}

static int mark_body(VjTxn *txn, void *opaque)
{
    const VjMarkRemoving *m = opaque;
    int rc = 0;

    g_array_set_size(m->dead, 0);
    for (guint i = 0; rc == 0 && i < m->seen->len; i++) {
        rc = mark_one(txn, &g_array_index(m->seen, VjObject, i), m->dead);
    }
    return rc;
}

/* Those that are as dead as they were @seen come into @dead; from now on nothing revives
 * them, and nobody pins them. */
static int mark_removing(VjObjects *o, const GArray *seen, GArray *dead)
{
    VjDead *d = &o->dead;
    int rc = vj_meta_run(o->meta, VJ_RUN_RELEASE, mark_body,
                         &(VjMarkRemoving){.seen = seen, .dead = dead});

    if (rc < 0) {
        return rc;
    }
    vj_mutex_lock(&d->lock);
    for (guint i = 0; i < dead->len; i++) {
        guint64 id = g_array_index(dead, VjObject, i).id;

        g_assert(g_hash_table_lookup(d->pins, &id) == NULL);
        g_hash_table_add(d->removing, g_memdup2(&id, sizeof id));
    }
    vj_mutex_unlock(&d->lock);
    return 0;
}

typedef struct VjForgetDead {
    VjObjects *objects;
    const GArray *puts; /* of VjPut */
} VjForgetDead;

static int forget_body(VjTxn *txn, void *opaque)
{
    const VjForgetDead *f = opaque;

    for (guint i = 0; i < f->puts->len; i++) {
        int rc =
            vj_object_record_del(txn, VJ_SPACE_DEAD, g_array_index(f->puts, VjPut, i).id);

        if (rc < 0) { /* -ENOENT: no one else deletes it */
            return rc == -ENOENT ? -EBADMSG : rc;
        }
    }
    return vj_object_stage(f->objects, txn, NULL, 0, (const VjPut *)(void *)f->puts->data,
                           f->puts->len);
}

/* The bytes first, the records of those that went second. */
static int remove_all(VjObjects *o, const GArray *dead)
{
    g_autoptr(GArray) puts = g_array_sized_new(FALSE, FALSE, sizeof(VjPut), dead->len);
    VjForgetDead f = {.objects = o, .puts = puts};
    uint64_t bytes = 0;
    int failed = 0, rc;

    for (guint i = 0; i < dead->len; i++) {
        VjPut put = vj_object_as_put(&g_array_index(dead, VjObject, i));

        rc = vj_store_remove(o->store, put.id, put.loc);
        if (rc ==
            -EBADMSG) { /* nothing of this store: bytes, if any, are for fsck or gc */
            vj_log_error("object %" G_GUINT64_FORMAT
                         ": it is dead, and its record says nothing of where it was",
                         put.id);
            rc = 0;
        }
        if (rc == 0) {
            vj_cache_drop(&o->cache, put.id);
            g_array_append_val(puts, put);
            bytes += put.stored_bytes;
        } else {
            vj_log_warn("object %" G_GUINT64_FORMAT ": cannot be removed yet: %s", put.id,
                        g_strerror(-rc));
            failed = rc;
        }
    }
    if (puts->len == 0) {
        return failed;
    }
    rc = vj_store_flush_removes(o->store);
    if (rc < 0) {
        return rc;
    }
    rc = vj_meta_run(o->meta, VJ_RUN_RELEASE, forget_body, &f);
    if (rc < 0) {
        return rc;
    }
    vj_store_removes_committed(o->store, (const VjPut *)(void *)puts->data, puts->len);
    vj_objects_count(o, removed, puts->len);
    vj_objects_count(o, removed_bytes, bytes);
    return failed;
}

static int reap_batch(VjObjects *o, GArray *seen)
{
    g_autoptr(GArray) dead = g_array_new(FALSE, FALSE, sizeof(VjObject));
    VjDead *d = &o->dead;
    int rc = vj_meta_flush(o->meta);

    if (rc < 0) {
        return rc;
    }
    vj_dead_wait_for_older_guards(d);
    vj_dead_keep_unpinned(d, seen);
    rc = mark_removing(o, seen, dead);
    if (rc < 0) {
        return rc;
    }
    rc = remove_all(o, dead);
    vj_mutex_lock(&d->lock);
    g_hash_table_remove_all(d->removing);
    vj_mutex_unlock(&d->lock);
    return rc;
}

/* All the dead, unless the volume is being closed: the next mount goes on. */
int vj_reap(VjObjects *o)
{
    uint64_t after = 0;
    int failed = 0;

    while (!vj_dead_must_stop(&o->dead)) {
        g_autoptr(GArray) dead = g_array_new(FALSE, FALSE, sizeof(VjObject));
        VjDeadBatch b = {.after_id = after, .dead = dead};
        int rc = vj_meta_view(o->meta, scan_body, &b);

        if (rc < 0 || dead->len == 0) {
            return rc < 0 ? rc : failed;
        }
        after = g_array_index(dead, VjObject, dead->len - 1).id;
        rc = reap_batch(o, dead);
        failed = rc < 0 ? rc : failed;
    }
    return failed;
}
