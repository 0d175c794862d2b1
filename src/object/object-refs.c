/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * object-refs.c - references to objects, in the transactions of the files that hold them
 *
 * Everything here reads and changes the transaction alone, so that it may run again.
 *
 *   - refs > 0: the record is in OBJECT.  The last reference moves it to DEAD, the first
 *     new one back.  It is never in both.
 *   - a record in OBJECT without VJ_OBJECT_UNINDEXED is what the index names under its
 *     key, and the index names nothing else.
 *   - deaths grows with each move to DEAD: the reaper distinguishes an old death from a
 *     new one.
 *   - a dead record that says VJ_OBJECT_REMOVING is as good as none: it does not come
 *     back.
 */
#include "object/object-private.h"

int vj_object_get(VjTxn *txn, uint64_t id, VjObject *out)
{
    int rc = vj_object_record_get(txn, VJ_SPACE_OBJECT, id, out);

    return rc == -ENOENT ? vj_object_record_get(txn, VJ_SPACE_DEAD, id, out) : rc;
}

static int apply_change(VjTxn *txn, const VjStoreChange *change)
{
    VjSlice key = vj_slice(change->key, change->key_len);
    int rc;

    g_assert(change->key_len > 0 && change->key_len <= sizeof change->key);
    g_assert(change->value_len <= sizeof change->value);
    if (change->value_len > 0) {
        return vj_txn_put(txn, VJ_SPACE_STORE, key,
                          vj_slice(change->value, change->value_len));
    }
    rc = vj_txn_del(txn, VJ_SPACE_STORE, key);
    return rc == -ENOENT ? 0 : rc;
}

static int apply_changes(VjTxn *txn, const GArray *changes)
{
    int rc = 0;

    for (guint i = 0; rc == 0 && i < changes->len; i++) {
        rc = apply_change(txn, &g_array_index(changes, VjStoreChange, i));
    }
    return rc;
}

int vj_object_stage(VjObjects *o, VjTxn *txn, const VjPut *added, size_t added_count,
                    const VjPut *removed, size_t removed_count)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    int rc =
        vj_store_stage(o->store, added, added_count, removed, removed_count, changes);

    return rc < 0 ? rc : apply_changes(txn, changes);
}

static int read_store_keys(void *from, VjStoreKeyVisit *visit, void *opaque)
{
    VjListing l;

    vj_listing_begin(&l, from, VJ_SPACE_STORE);
    while (vj_listing_next(&l) && visit(opaque, l.key, l.value)) {
        continue;
    }
    return vj_listing_end(&l);
}

VjStoreKeys vj_object_store_keys(VjMeta *meta)
{
    return (VjStoreKeys){.each = read_store_keys, .from = meta};
}

static int changes_body(VjTxn *txn, void *opaque)
{
    return apply_changes(txn, opaque);
}

int vj_object_claim_store(VjMeta *meta, VjStore *store)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    int rc = vj_store_claim(store, changes);

    if (rc < 0 || changes->len == 0) {
        return rc;
    }
    rc = vj_meta_run(meta, VJ_RUN_RELEASE, changes_body, changes);
    if (rc == 0) {
        rc = vj_meta_flush(meta);
    }
    return rc < 0 ? rc : vj_store_claimed(store);
}

int vj_object_mend_store_keys(VjObjects *o, VjStoreBadKeys *out)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));

    vj_store_bad_keys(o->store, changes, out);
    return changes->len > 0 ? vj_meta_run(o->meta, VJ_RUN_RELEASE, changes_body, changes)
                            : 0;
}

int vj_object_remove_unnamed(VjObjects *o, const VjPut *put)
{
    g_autoptr(GArray) changes = g_array_new(FALSE, FALSE, sizeof(VjStoreChange));
    int rc = vj_store_remove(o->store, put->id, put->loc);

    if (rc == 0) {
        rc = vj_store_stage(o->store, NULL, 0, put, 1, changes);
    }
    if (rc == 0 && changes->len > 0) {
        rc = vj_meta_run(o->meta, VJ_RUN_RELEASE, changes_body, changes);
    }
    if (rc == 0) {
        vj_store_removes_committed(o->store, put, 1);
    }
    return rc;
}

int vj_object_create(VjObjects *o, VjTxn *txn, const VjObject *object, VjObject *out)
{
    VjPut added = vj_object_as_put(object);
    VjIndexKey key;
    int rc;

    g_assert(object->refs == 0 && object->deaths == 0 &&
             (object->flags & ~(uint32_t)(VJ_OBJECT_BY_NODE | VJ_OBJECT_ON_WIRE)) == 0);
    *out = *object;
    out->refs = 1;
    vj_index_key_of(out, &key);
    rc = vj_object_record_put(txn, VJ_SPACE_OBJECT, out);
    if (rc == 0) {
        rc = vj_index_put(txn, &key, out->id);
    }
    return rc < 0 ? rc : vj_object_stage(o, txn, &added, 1, NULL, 0);
}

int vj_object_add_ref(VjTxn *txn, VjObject *object)
{
    g_assert(object->refs > 0);
    if (object->refs == UINT64_MAX) {
        return -EMLINK;
    }
    object->refs++;
    return vj_object_record_put(txn, VJ_SPACE_OBJECT, object);
}

int vj_object_revive(VjTxn *txn, VjObject *object)
{
    VjIndexKey key;
    uint64_t other;
    int rc;

    g_assert(object->refs == 0 && (object->flags & VJ_OBJECT_REMOVING) == 0);
    object->refs = 1;
    if ((object->flags & VJ_OBJECT_DAMAGED) == 0) {
        vj_index_key_of(object, &key);
        rc = vj_index_get(txn, &key, &other);
        if (rc == -ENOENT || (rc == 0 && other == object->id)) {
            /* Its own entry: read before the object died, by a transaction that cannot
             * commit any more. */
            object->flags &= ~(uint32_t)VJ_OBJECT_UNINDEXED;
            rc = vj_index_put(txn, &key, object->id);
        } else if (rc == 0 || rc == -EBADMSG) {
            object->flags |= VJ_OBJECT_UNINDEXED;
            rc = 0;
        }
        if (rc < 0) {
            return rc;
        }
    }
    rc = vj_object_record_del(txn, VJ_SPACE_DEAD, object->id);
    return rc < 0 ? rc : vj_object_record_put(txn, VJ_SPACE_OBJECT, object);
}

int vj_object_ref(VjTxn *txn, uint64_t id, VjObject *out)
{
    int rc = vj_object_record_get(txn, VJ_SPACE_OBJECT, id, out);

    if (rc == 0) {
        return vj_object_add_ref(txn, out);
    }
    if (rc == -ENOENT) {
        rc = vj_object_record_get(txn, VJ_SPACE_DEAD, id, out);
        if (rc == 0) {
            rc = (out->flags & VJ_OBJECT_REMOVING) == 0 ? vj_object_revive(txn, out)
                                                        : -ESTALE;
        }
    }
    return rc;
}

static int die(VjTxn *txn, VjObject *object)
{
    VjIndexKey key;
    uint64_t named;
    int rc = 0;

    object->deaths++;
    if ((object->flags & VJ_OBJECT_UNINDEXED) == 0) {
        vj_index_key_of(object, &key);
        rc = vj_index_get(txn, &key, &named);
        if (rc == -EBADMSG || (rc == 0 && named == object->id)) {
            rc = vj_index_del(txn, &key);
        } else if (rc == -ENOENT) {
            rc = 0; /* its entry was damaged and is gone, or is a successor's by now */
        }
    }
    if (rc == 0) {
        rc = vj_object_record_del(txn, VJ_SPACE_OBJECT, object->id);
    }
    return rc < 0 ? rc : vj_object_record_put(txn, VJ_SPACE_DEAD, object);
}

int vj_object_unref(VjTxn *txn, uint64_t id, VjObject *out)
{
    int rc = vj_object_record_get(txn, VJ_SPACE_OBJECT, id, out);

    if (rc < 0) {
        return rc;
    }
    out->refs--;
    return out->refs == 0 ? die(txn, out)
                          : vj_object_record_put(txn, VJ_SPACE_OBJECT, out);
}

typedef struct VjCondemn {
    const VjIndexKey *key;
    uint64_t id; /* 0: unknown, whatever the index says is not to be believed */
} VjCondemn;

static int condemn_body(VjTxn *txn, void *opaque)
{
    const VjCondemn *c = opaque;
    VjObject object;
    uint64_t id;
    int rc = vj_index_get(txn, c->key, &id);

    if (rc == -ENOENT || (rc == 0 && id != c->id)) {
        return 0; /* another commit has seen to it */
    }
    if (rc < 0 && rc != -EBADMSG) {
        return rc;
    }
    rc = vj_index_del(txn, c->key);
    if (rc < 0 || c->id == 0) {
        return rc;
    }
    rc = vj_object_record_get(txn, VJ_SPACE_OBJECT, c->id, &object);
    if (rc == -ENOENT || rc == -EBADMSG) {
        return 0; /* nothing to mark; fsck reports it */
    }
    if (rc < 0) {
        return rc;
    }
    object.flags |= VJ_OBJECT_UNINDEXED | VJ_OBJECT_DAMAGED;
    return vj_object_record_put(txn, VJ_SPACE_OBJECT, &object);
}

int vj_object_condemn(VjObjects *o, const VjIndexKey *key, uint64_t id)
{
    VjCondemn c = {.key = key, .id = id};

    return vj_meta_run(o->meta, VJ_RUN_RELEASE, condemn_body, &c);
}

int vj_object_put_is_named(VjObjects *o, VjTxn *txn, const VjPut *put, bool *is_named)
{
    VjObject object;
    int rc = vj_object_get(txn, put->id, &object);

    /* Damaged, but a record: the bytes stay. */
    *is_named =
        rc == -EBADMSG || (rc == 0 && vj_store_same_loc(o->store, object.loc, put->loc));
    return rc == -ENOENT || rc == -EBADMSG ? 0 : rc;
}

/* Puts that are looked for in one view. */
#define KEEP_BATCH 1024u

typedef struct VjKeepUnnamed {
    VjObjects *objects;
    const VjPut *puts;
    size_t count;
    GArray *kept;   /* of VjPut */
    GArray *blocks; /* of VjIdRange: what lies there is not kept */
} VjKeepUnnamed;

static bool lies_in(const GArray *blocks, uint64_t id)
{
    for (guint i = 0; i < blocks->len; i++) {
        const VjIdRange *range = &g_array_index(blocks, VjIdRange, i);

        if (id >= range->first_id && id <= range->last_id) {
            return true;
        }
    }
    return false;
}

static int keep_unnamed_body(VjTxn *txn, void *opaque)
{
    const VjKeepUnnamed *k = opaque;
    int rc = 0;

    g_array_set_size(k->kept, 0);
    for (size_t i = 0; rc == 0 && i < k->count; i++) {
        const VjPut *put = &k->puts[i];
        bool is_named;

        if (lies_in(k->blocks, put->id)) {
            continue;
        }
        rc = vj_object_put_is_named(k->objects, txn, put, &is_named);
        if (rc == 0 && !is_named) {
            g_array_append_vals(k->kept, put, 1);
        }
    }
    return rc;
}

/* The id blocks of sessions that live, among them this one. */
static int list_live_blocks(VjTxn *txn, const VjKeepUnnamed *k)
{
    uint64_t own = vj_meta_session(k->objects->meta);
    VjScan scan;

    g_array_set_size(k->blocks, 0);
    vj_scan_begin(&scan, txn, VJ_SPACE_ID_BLOCK, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        bool has_ended = false;
        VjIdRange range;
        int rc = vj_id_block_decode(scan.key, scan.value, &range);

        if (rc == 0 && range.owner != own) {
            rc = vj_session_has_ended(txn, range.owner, &has_ended);
        }
        if (rc < 0) {
            return rc;
        }
        if (!has_ended) {
            g_array_append_val(k->blocks, range);
        }
    }
    return scan.error;
}

static int keep_garbage_body(VjTxn *txn, void *opaque)
{
    int rc = list_live_blocks(txn, opaque);

    return rc < 0 ? rc : keep_unnamed_body(txn, opaque);
}

static int keep(VjObjects *o, GArray *puts, VjTxnBody *body)
{
    g_autoptr(GArray) kept = g_array_new(FALSE, FALSE, sizeof(VjPut));
    g_autoptr(GArray) blocks = g_array_new(FALSE, FALSE, sizeof(VjIdRange));
    VjKeepUnnamed k = {.objects = o, .kept = kept, .blocks = blocks};
    guint all = 0;

    for (guint i = 0; i < puts->len; i += KEEP_BATCH) {
        int rc;

        k.puts = &g_array_index(puts, VjPut, i);
        k.count = MIN(puts->len - i, KEEP_BATCH);
        rc = vj_meta_view(o->meta, body, &k);
        if (rc < 0) {
            return rc;
        }
        for (guint j = 0; j < kept->len; j++) {
            g_array_index(puts, VjPut, all++) = g_array_index(kept, VjPut, j);
        }
    }
    g_array_set_size(puts, all);
    return 0;
}

int vj_objects_keep_unnamed(VjObjects *o, GArray *puts)
{
    return keep(o, puts, keep_unnamed_body);
}

int vj_objects_keep_garbage(VjObjects *o, GArray *puts)
{
    return keep(o, puts, keep_garbage_body);
}
