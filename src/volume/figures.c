/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * figures.c - what an open volume has, and its calls that need no thread of their own
 *
 * Background threads use these too; they know nothing of open and close (volume.c).
 */
#include "meta/session.h"
#include "volume/volume-private.h"

VjFileTable *vj_volume_files(VjVolume *v)
{
    return v->files;
}

VjObjects *vj_volume_objects(VjVolume *v)
{
    return v->objects;
}

VjMeta *vj_volume_meta(VjVolume *v)
{
    return v->meta;
}

VjStore *vj_volume_store(VjVolume *v)
{
    return v->store;
}

const char *vj_volume_uuid(const VjVolume *v)
{
    return v->super.uuid;
}

const char *vj_volume_label(const VjVolume *v)
{
    return v->super.label != NULL ? v->super.label : "";
}

const VjDigestOps *vj_volume_digest(VjVolume *v)
{
    return v->super.digest;
}

bool vj_volume_is_checked(const VjVolume *v)
{
    return v->check;
}

uint64_t vj_volume_mended_at_open(const VjVolume *v)
{
    return (uint64_t)v->record_mended + v->copy_mended;
}

GHashTable *vj_volume_bytes_found(VjVolume *v)
{
    return v->bytes_found;
}

bool vj_volume_is_shared(const VjVolume *v)
{
    return v->is_shared;
}

bool vj_volume_read_only(const VjVolume *v)
{
    return vj_file_table_read_only(v->files);
}

uint64_t vj_volume_inodes_at_open(const VjVolume *v)
{
    return v->inodes_at_open;
}

void vj_volume_set_read_only(VjVolume *v, bool read_only)
{
    vj_file_table_set_read_only(v->files, read_only);
}

void vj_volume_reap(VjVolume *v, uint64_t ino)
{
    if (v->purge != NULL) {
        vj_orphan_purge_add(v->purge, ino, 0);
    }
}

int vj_volume_sync(VjVolume *v)
{
    int r = vj_file_table_write_back(v->files), flushed = vj_meta_flush(v->meta);

    return r < 0 ? r : flushed;
}

int vj_volume_purge(VjVolume *v)
{
    if (v->purge == NULL) {
        return -EROFS;
    }
    vj_orphan_purge_drain(v->purge);
    return vj_objects_reap_now(v->objects);
}

int vj_volume_space(VjVolume *v, VjStoreSpace *out, uint64_t *reserved_bytes)
{
    int r = vj_store_space(v->store, out);

    *reserved_bytes = vj_file_table_reserved(v->files);
    if (r == 0) {
        out->available_bytes -= MIN(out->available_bytes, VJ_SPACE_MARGIN);
    }
    return r;
}

void vj_volume_describe_store(VjVolume *v, VjStoreTell *tell, void *opaque)
{
    vj_store_describe(v->store, tell, opaque);
}

int vj_volume_grow_store(VjVolume *v, uint64_t *gained)
{
    *gained = 0;
    return vj_volume_read_only(v) ? -EROFS : vj_store_grow(v->store, gained);
}

bool vj_volume_has_modes(const VjVolume *v)
{
    return vj_objects_have_modes(v->objects);
}

bool vj_volume_node(VjVolume *v, unsigned index, VjStoreNode *out)
{
    return vj_store_has_replicas(v->store) && vj_store_node(v->store, index, out);
}

bool vj_volume_drain(VjVolume *v, unsigned index, bool drained)
{
    return vj_store_has_replicas(v->store) && vj_store_drain(v->store, index, drained);
}

static int walk_usage_body(VjTxn *txn, void *opaque)
{
    VjUsageSums *out = opaque;
    VjScan scan;
    int r;

    *out = (VjUsageSums){0};
    r = vj_objects_sum(txn, &out->objects, &out->plain_bytes, &out->stored_bytes);
    if (r < 0) {
        return r;
    }
    vj_scan_begin(&scan, txn, VJ_SPACE_INODE, VJ_SCAN_ALL);
    while (vj_scan_next(&scan)) {
        if (scan.key.len != 8) {
            return -EBADMSG;
        }
        out->inodes++;
    }
    return scan.error;
}

/* What is only known by walking all records. */
static int walk_usage(VjVolume *v, VjUsageSums *out)
{
    return vj_meta_view(v->meta, walk_usage_body, out);
}

/*
 * Any user may ask, as often as he likes: so the result of a walk that took long is good
 * for many times as long, and only one walk is under way.  On a small volume the figures
 * are always fresh.
 */
static bool last_usage_is_good(VjVolume *v, VjUsageSums *out)
{
    int64_t age_us;
    bool good;

    vj_mutex_lock(&v->usage_lock);
    age_us = vj_clock_mono_us() - v->usage_at_us;
    good = v->usage_cost_us > VJ_USAGE_CHEAP_US &&
           (v->usage_walking || age_us < VJ_USAGE_REST * v->usage_cost_us);
    *out = v->usage;
    v->usage_walking = v->usage_walking || !good;
    vj_mutex_unlock(&v->usage_lock);
    return good;
}

static int sum_usage(VjVolume *v, VjUsageSums *out)
{
    int64_t begun_us = vj_clock_mono_us();
    int r;

    if (last_usage_is_good(v, out)) {
        return 0;
    }
    r = walk_usage(v, out);
    vj_mutex_lock(&v->usage_lock);
    v->usage_walking = false;
    if (r == 0) {
        v->usage = *out;
        v->usage_at_us = vj_clock_mono_us();
        v->usage_cost_us = v->usage_at_us - begun_us;
    }
    vj_mutex_unlock(&v->usage_lock);
    return r;
}

int vj_volume_usage(VjVolume *v, VjVolumeUsage *out)
{
    VjObjectsStats objects;
    VjUsageSums sums = {0};
    int r;

    *out = (VjVolumeUsage){.dirty_bytes = vj_file_table_dirty(v->files)};
    vj_objects_stats(v->objects, &objects);
    out->cache_bytes = objects.cache_bytes;
    r = vj_volume_space(v, &out->space, &out->reserved_bytes);
    if (r == 0) {
        r = sum_usage(v, &sums);
    }
    out->inodes = sums.inodes;
    out->objects = sums.objects;
    out->object_plain_bytes = sums.plain_bytes;
    out->object_stored_bytes = sums.stored_bytes;
    return r;
}

/* Of the store's nodes together, since open. */
static VjStoreNode store_traffic(VjVolume *v)
{
    VjStoreNode all = {.requests = 0}, node;

    for (unsigned i = 0; vj_volume_node(v, i, &node); i++) {
        all.requests += node.requests;
        all.sent_bytes += node.sent_bytes;
        all.received_bytes += node.received_bytes;
    }
    return all;
}

void vj_volume_counters(VjVolume *v, VjCounterVisit *visit, void *opaque)
{
    VjFileCounters f;
    VjObjectsStats o;
    VjMetaStats m;
    VjStoreHealth health = {0};
    VjStoreErasures e;
    VjStoreStats s;
    VjStoreNode to_store = store_traffic(v);
    VjMetaTraffic to_meta;

    vj_meta_traffic(v->meta, &to_meta);
    if (vj_store_has_replicas(v->store)) {
        vj_store_health(v->store, &health);
    }
    vj_file_table_counters(v->files, &f);
    vj_objects_stats(v->objects, &o);
    vj_meta_stats(v->meta, &m);
    vj_store_stats(v->store, &s);
    vj_store_erasures(v->store, &e);
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"write_back_commits", f.commits},
        {"write_back_regions", f.regions},
        {"write_back_forced_cuts", f.forced_cuts},
        {"write_back_errors", f.write_back_errors},
        {"write_back_small", f.small_commits},
        {"fragments_made", f.fragments_made},
        {"fragments_dropped", f.fragments_dropped},
        {"remap_steps", f.remap_steps},
        {"bytes_in", f.bytes_in},
        {"shifts", f.shifts},
        {"shifted_bytes", f.shifted_bytes},
        {"dirty_bytes", vj_file_table_dirty(v->files)},
        {"reserved_bytes", vj_file_table_reserved(v->files)},
        {"hashed_bytes", o.hashed_bytes},
        {"dedup_fast_hits", o.fast_hits},
        {"dedup_inflight_hits", o.inflight_hits},
        {"dedup_index_hits", o.index_hits},
        {"objects_put", o.puts},
        {"object_bytes_put", o.put_bytes},
        {"encoded_in_bytes", o.encoded_in_bytes},
        {"encoded_out_bytes", o.encoded_out_bytes},
        {"encoded_unshrunk", o.unshrunk},
        {"decoded_blocks", o.decoded_blocks},
        {"decoded_bytes", o.decoded_bytes},
        {"objects_removed", o.removed},
        {"object_bytes_removed", o.removed_bytes},
        {"objects_verified", o.verified},
        {"objects_damaged", o.damaged},
        {"cache_hits", o.cache_hits},
        {"cache_misses", o.cache_misses},
        {"cache_bytes", o.cache_bytes},
        {"objects_healed", o.healed},
        {"wire_saved_bytes", o.wire_saved_bytes},
        {"wire_encoded", o.wire_encoded},
        {"wire_unshrunk", o.wire_unshrunk},
        {"wire_untried", o.wire_untried},
        {"objects_expected", o.expected},
        {"nodes", health.nodes},
        {"nodes_live", health.live},
        {"degraded_puts", health.degraded_puts},
        {"store_puts", s.puts},
        {"store_put_bytes", s.put_bytes},
        {"store_gets", s.gets},
        {"store_get_bytes", s.get_bytes},
        {"store_removes", s.removes},
        {"store_flushes", s.flushes},
        {"store_failures", s.failures},
        {"store_requests", to_store.requests},
        {"store_sent_bytes", to_store.sent_bytes},
        {"store_received_bytes", to_store.received_bytes},
        {"meta_requests", to_meta.requests},
        {"meta_sent_bytes", to_meta.sent_bytes},
        {"meta_received_bytes", to_meta.received_bytes},
        {"meta_commits", m.commits},
        {"meta_conflicts", m.conflicts},
        {"meta_flushes", m.flushes},
        {"meta_moves", m.log.moves},
        {"meta_log_records", m.log.records},
        {"meta_log_bytes", m.log.bytes},
        {"meta_log_failures", m.log.failures},
        {"meta_log_replayed", m.log.replayed},
        {"meta_rewrites", m.log.rewrites},
        {"meta_freed_bytes", m.log.freed_bytes},
        {"erasures_waiting", e.waiting + m.log.erasures_waiting},
        {"erasures_given_up", e.given_up + m.log.erasures_given_up},
        {"map_nodes_read", m.gets[VJ_SPACE_NODE]},
        {"map_nodes_written", m.puts[VJ_SPACE_NODE]},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(counters); i++) {
        visit(opaque, counters[i].name, counters[i].value);
    }
}

void vj_volume_calls(VjVolume *v, VjCallVisit *visit, void *opaque)
{
    vj_store_calls(v->store, visit, opaque);
    vj_meta_calls_by_kind(v->meta, visit, opaque);
}
