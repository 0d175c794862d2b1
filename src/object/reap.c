/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * reap.c - one pass over the dead
 *
 * The reaper removes bytes only when no snapshot and no pin can name the object any more:
 *
 *   1. take dead records out of a snapshot: what begins later does not find them by index
 *      or map;
 *   2. meta flush: their death survives a crash;
 *   3. wait until the guards have left that are there now, and, where other sessions
 *      share the volume, until those have said the same of theirs (epoch.c): no thread
 *      that saw the objects alive can still pin them;
 *   4. of those that have no pin here and no hold of another session, say in their
 *      records that they are being removed (VJ_OBJECT_REMOVING): nothing revives them
 *      from that commit on.  One may have been revived by a pin that is gone now, even
 *      died again since, and then younger snapshots may name it: only the death that was
 *      seen in 1 (VjObject.deaths) counts;
 *   5. remove the bytes so that they stay away, then delete the records.  What a crash
 *      cuts off is done again, from 1 on.
 *
 * The commit of 4 is not made durable for its own sake: after a crash no snapshot and no
 * pin is left that could name what was dead in 2.  Where the session is alone by a lease,
 * it is: a session that takes over while this one is slow, and is not heard of, would
 * revive what is being removed here.
 */
#include "object/object-private.h"

/* Objects that are waited for together, and removed per transaction. */
#define VJ_REAP_SEEN 4096u
#define VJ_REAP_BATCH 256u

typedef struct VjPass {
    VjObjects *objects;
    bool is_left;   /* others hold some */
    bool says_each; /* the pass before did not fail: what fails is new */
} VjPass;

/* *held: another session needs it still. */
static int look_for_hold(VjTxn *txn, const VjPass *p, const VjObject *object, bool *held)
{
    *held = false;
    if (!p->objects->is_shared || (object->flags & VJ_OBJECT_REMOVING) != 0) {
        return 0;
    }
    return vj_hold_any(txn, object->id, held);
}

typedef struct VjDeadSeen {
    VjPass *pass;
    uint64_t after_id;
    GArray *dead; /* of VjObject */
    bool is_left;
} VjDeadSeen;

static int add_seen(VjTxn *txn, VjDeadSeen *b, const VjObject *object)
{
    bool held;
    int rc = look_for_hold(txn, b->pass, object, &held);

    if (rc == 0 && !held) {
        g_array_append_vals(b->dead, object, 1);
    }
    b->is_left = b->is_left || held;
    return rc;
}

/* Up to VJ_REAP_SEEN dead records behind @after_id that no session holds, in order of
 * ids. */
static int scan_body(VjTxn *txn, void *opaque)
{
    VjDeadSeen *b = opaque;
    uint8_t after[VJ_OBJECT_KEY_BYTES];
    VjScan scan;
    int rc = 0;

    g_array_set_size(b->dead, 0);
    b->is_left = false;
    vj_be64_set(after, b->after_id);
    vj_scan_begin(&scan, txn, VJ_SPACE_DEAD, VJ_SCAN_ALL);
    vj_scan_behind(&scan, vj_slice(after, sizeof after));
    while (rc == 0 && b->dead->len < VJ_REAP_SEEN && vj_scan_next(&scan)) {
        VjObject object;
        uint64_t id;

        if (scan.key.len != VJ_OBJECT_KEY_BYTES) {
            return -EBADMSG;
        }
        id = vj_be64_get(scan.key.data);
        if (vj_object_decode(scan.value, VJ_SPACE_DEAD, id, &object) == 0) {
            rc = add_seen(txn, b, &object);
        } else { /* fsck reports more; the others can go */
            vj_log_error("object %" G_GUINT64_FORMAT ": its dead record is damaged", id);
        }
    }
    return rc < 0 ? rc : scan.error;
}

typedef struct VjMarkRemoving {
    VjPass *pass;
    const GArray *seen; /* of VjObject */
    GArray *dead;       /* those of @seen that are as dead as they were seen */
    bool is_left;
} VjMarkRemoving;

/* One of them.  0 also when it stays. */
static int mark_one(VjTxn *txn, VjMarkRemoving *m, const VjObject *seen)
{
    VjObject now;
    bool held;
    int rc = vj_object_record_get(txn, VJ_SPACE_DEAD, seen->id, &now);

    if (rc == -ENOENT || rc == -EBADMSG || (rc == 0 && now.deaths != seen->deaths)) {
        return 0;
    }
    if (rc == 0) {
        rc = look_for_hold(txn, m->pass, &now, &held);
    }
    if (rc < 0 || held) {
        m->is_left = m->is_left || rc == 0;
        return rc;
    }
    if ((now.flags & VJ_OBJECT_REMOVING) == 0) {
        now.flags |= VJ_OBJECT_REMOVING;
        rc = vj_object_record_put(txn, VJ_SPACE_DEAD, &now);
    }
    if (rc == 0) {
        g_array_append_val(m->dead, now);
    }
    return rc;
}

static int mark_body(VjTxn *txn, void *opaque)
{
    VjMarkRemoving *m = opaque;
    int rc = 0;

    g_array_set_size(m->dead, 0);
    m->is_left = false;
    for (guint i = 0; rc == 0 && i < m->seen->len; i++) {
        rc = mark_one(txn, m, &g_array_index(m->seen, VjObject, i));
    }
    return rc;
}

/* Those that are as dead as they were @seen come into @dead; from now on nothing revives
 * them, and no thread pins them. */
static int mark_removing(VjPass *p, const GArray *seen, GArray *dead)
{
    VjMarkRemoving m = {.pass = p, .seen = seen, .dead = dead};
    VjDead *d = &p->objects->dead;
    int rc =
        vj_meta_run(p->objects->meta, VJ_RUN_RELEASE | VJ_RUN_BACKGROUND, mark_body, &m);

    if (rc < 0) {
        return rc;
    }
    p->is_left = p->is_left || m.is_left;
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
static int remove_all(VjPass *p, const GArray *dead)
{
    VjObjects *o = p->objects;
    g_autoptr(GArray) puts = g_array_sized_new(FALSE, FALSE, sizeof(VjPut), dead->len);
    g_autofree VjPut *all = g_new(VjPut, dead->len);
    g_autofree int *results = g_new(int, dead->len);
    VjForgetDead f = {.objects = o, .puts = puts};
    uint64_t bytes = 0;
    int failed = 0, rc;

    for (guint i = 0; i < dead->len; i++) {
        all[i] = vj_object_as_put(&g_array_index(dead, VjObject, i));
    }
    vj_store_remove_all(o->store, all, dead->len, results);
    for (guint i = 0; i < dead->len; i++) {
        VjPut put = all[i];

        rc = results[i];
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
            if (p->says_each) {
                vj_log_warn("object %" G_GUINT64_FORMAT ": cannot be removed yet: %s",
                            put.id, g_strerror(-rc));
            }
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
    rc = vj_meta_run(o->meta, VJ_RUN_RELEASE | VJ_RUN_BACKGROUND, forget_body, &f);
    if (rc < 0) {
        return rc;
    }
    vj_store_removes_committed(o->store, (const VjPut *)(void *)puts->data, puts->len);
    vj_objects_count(o, removed, puts->len);
    vj_objects_count(o, removed_bytes, bytes);
    return failed;
}

static int reap_batch(VjPass *p, GArray *seen)
{
    g_autoptr(GArray) dead = g_array_new(FALSE, FALSE, sizeof(VjObject));
    VjDead *d = &p->objects->dead;
    int rc;

    vj_dead_keep_unpinned(d, seen);
    rc = mark_removing(p, seen, dead);
    if (rc < 0) {
        return rc;
    }
    if (vj_meta_is_leased(p->objects->meta)) {
        rc = vj_meta_flush(p->objects->meta);
    }
    rc = rc < 0 ? rc : remove_all(p, dead);
    vj_mutex_lock(&d->lock);
    g_hash_table_remove_all(d->removing);
    vj_mutex_unlock(&d->lock);
    return rc;
}

/* 0: no session reads any more what was dead before, unless it is pinned or held. */
static int wait_for_readers(VjPass *p)
{
    VjObjects *o = p->objects;
    uint64_t epoch = 0;
    int rc;

    if (o->is_shared) {
        rc = vj_epoch_begin(o, &epoch);
    } else {
        rc = vj_meta_flush(o->meta);
    }
    if (rc < 0) {
        return rc;
    }
    if (!vj_dead_wait_for_older_guards(&o->dead)) {
        return -ECANCELED;
    }
    if (!o->is_shared) {
        return 0;
    }
    o->dead.published = epoch; /* to itself */
    return vj_epoch_wait(o, epoch);
}

/* All of @seen. */
static int reap_seen(VjPass *p, const GArray *seen)
{
    int failed = 0, rc = wait_for_readers(p);

    for (guint i = 0; rc == 0 && i < seen->len; i += VJ_REAP_BATCH) {
        g_autoptr(GArray) batch = g_array_new(FALSE, FALSE, sizeof(VjObject));
        int removed;

        g_array_append_vals(batch, &g_array_index(seen, VjObject, i),
                            MIN(seen->len - i, VJ_REAP_BATCH));
        removed = reap_batch(p, batch);
        failed = removed < 0 ? removed : failed;
        rc = vj_dead_must_stop(&p->objects->dead) ? -ECANCELED : rc;
    }
    return rc < 0 ? rc : failed;
}

static int reap(VjPass *p)
{
    VjObjects *o = p->objects;
    uint64_t after = 0;
    int failed = 0;

    while (!vj_dead_must_stop(&o->dead)) {
        g_autoptr(GArray) dead = g_array_new(FALSE, FALSE, sizeof(VjObject));
        VjDeadSeen b = {.pass = p, .after_id = after, .dead = dead};
        int rc = vj_meta_view(o->meta, scan_body, &b);

        p->is_left = p->is_left || b.is_left;
        if (rc < 0 || dead->len == 0) {
            return rc < 0 ? rc : failed;
        }
        after = g_array_index(dead, VjObject, dead->len - 1).id;
        rc = reap_seen(p, dead);
        if (rc == -EBUSY) {
            return rc;
        }
        failed = rc < 0 ? rc : failed;
    }
    return failed;
}

/* All the dead, unless the volume is being closed: the next mount goes on. */
int vj_reap(VjObjects *o, bool *is_left)
{
    VjPass p = {.objects = o};
    int rc, ended;

    vj_mutex_lock(&o->dead.lock);
    p.says_each = o->dead.error == 0;
    vj_mutex_unlock(&o->dead.lock);
    rc = reap(&p);
    ended = vj_epoch_end(o);
    *is_left = p.is_left;
    return rc < 0 ? rc : ended;
}
