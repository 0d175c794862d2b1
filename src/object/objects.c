/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * objects.c - open and close, counts, sums
 */
#include "object/object-private.h"

static void objects_free(VjObjects *o)
{
    vj_inflight_clear(&o->inflight);
    vj_verified_clear(&o->verified);
    vj_healing_clear(&o->healing);
    vj_dead_clear(&o->dead);
    vj_cache_clear(&o->cache);
    g_free(o);
}

bool vj_objects_open(const VjObjectsConfig *config, VjObjects **out, GError **error)
{
    VjObjects *o;

    *out = NULL;
    g_assert(config->meta != NULL && config->store != NULL && config->digest != NULL);
    if (config->read_only && vj_meta_is_shared(config->meta)) {
        /* It could not say what it still reads. */
        return vj_error_set(error, EOPNOTSUPP,
                            "reading alone beside other sessions is not possible");
    }
    o = g_new0(VjObjects, 1);
    o->meta = config->meta;
    o->store = config->store;
    o->digest = config->digest;
    o->read_only = config->read_only;
    o->is_shared = vj_meta_is_shared(config->meta);
    o->id_blocks.block_ids = config->block_ids > 0 ? config->block_ids : VJ_ID_BLOCK_IDS;
    vj_cache_init(&o->cache, config->cache_bytes);
    vj_dead_init(&o->dead);
    vj_inflight_init(&o->inflight);
    vj_verified_init(&o->verified);
    vj_healing_init(&o->healing);
    if (!vj_id_blocks_open(o, error) || (!o->read_only && !vj_dead_start(o, error))) {
        int rc = vj_id_blocks_close(o);

        if (rc < 0) {
            vj_log_warn("blocks of object ids stay until the next mount: %s",
                        g_strerror(-rc));
        }
        objects_free(o);
        return false;
    }
    *out = o;
    return true;
}

int vj_objects_close(VjObjects *o)
{
    int rc, holds;

    g_assert(o->inflight.pending_count == 0);
    holds = vj_dead_stop(o);
    rc = vj_id_blocks_close(o);
    rc = rc < 0 ? rc : holds;
    if (rc == 0 && !o->read_only) {
        rc = vj_meta_flush(o->meta);
    }
    objects_free(o);
    return rc;
}

void vj_objects_stats(VjObjects *o, VjObjectsStats *out)
{
    vj_mutex_lock(&o->cache.lock);
    *out = o->cache.stats;
    out->cache_bytes = o->cache.bytes;
    vj_mutex_unlock(&o->cache.lock);
}

int vj_objects_sum(VjTxn *txn, uint64_t *objects, uint64_t *plain_bytes,
                   uint64_t *stored_bytes)
{
    VjScan scan;

    *objects = *plain_bytes = *stored_bytes = 0;
    vj_scan_begin(&scan, txn, VJ_SPACE_OBJECT, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        VjObject object;

        if (scan.key.len != VJ_OBJECT_KEY_BYTES) {
            return -EBADMSG;
        }
        if (vj_object_decode(scan.value, VJ_SPACE_OBJECT, vj_be64_get(scan.key.data),
                             &object) < 0) {
            continue; /* fsck reports it; a sum without it is better than none */
        }
        *objects += 1;
        *plain_bytes += object.plain_bytes;
        *stored_bytes += object.stored_bytes;
    }
    return scan.error;
}

int vj_objects_space(VjObjects *o, VjStoreSpace *out)
{
    return vj_store_space(o->store, out);
}

bool vj_objects_can_expect(VjObjects *o)
{
    return vj_store_can_expect(o->store);
}
