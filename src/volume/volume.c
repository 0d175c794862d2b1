/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume.c - a file system from open to close
 *
 * Opening: lock, superblock, metadata, store, objects (recovery of what the last crash
 * left in the store), background threads, orphans.  Closing is the reverse, after
 * everything was written back and made durable; whatever fails on the way is reported and
 * the next mount recovers as after a crash.
 */
#include "meta/session.h"
#include "volume/volume-private.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS_MOST 64u

/* ---- engines ----------------------------------------------------------------------- */

static bool wrap_all(VjVolume *v, const VjVolumeOpen *how, GError **error)
{
    g_auto(GStrv) metas =
        g_strsplit(how->wrap_meta != NULL ? how->wrap_meta : "", ";", 16);
    g_auto(GStrv) stores =
        g_strsplit(how->wrap_store != NULL ? how->wrap_store : "", ";", 16);

    for (size_t i = 0; metas[i] != NULL; i++) {
        if (*metas[i] != '\0' && !vj_meta_wrap(metas[i], v->meta, &v->meta, error)) {
            return false;
        }
    }
    for (size_t i = 0; stores[i] != NULL; i++) {
        if (*stores[i] != '\0' && !vj_store_wrap(stores[i], v->store, &v->store, error)) {
            return false;
        }
    }
    return vj_meta_wrap("stats", v->meta, &v->meta, error) &&
           vj_store_wrap("stats", v->store, &v->store, error);
}

/* Nothing on the device may change. */
static bool only_reads(const VjVolumeOpen *how)
{
    return how->read_only || (how->check && !how->repair);
}

static bool open_meta_dir(const VjVolume *v, VjPlaceDir *out, GError **error)
{
    g_autoptr(GError) local = NULL;

    if (vj_place_dir_open(v->place, VJ_META_DIR, vj_meta_needs(v->super.meta), false, out,
                          &local)) {
        return true;
    }
    if (local->code == ENOENT) {
        return vj_error_set(error, EBADMSG,
                            "%s is missing: fsck.varjfs --restore puts the newest "
                            "checkpoint in its place",
                            out->path);
    }
    g_propagate_error(error, g_steal_pointer(&local));
    return false;
}

static bool update_copy(VjVolume *v, const VjVolumeOpen *how)
{
    if (!only_reads(how)) {
        vj_superblock_record_update(v);
    }
    return true;
}

static bool open_store(VjVolume *v, const VjVolumeOpen *how, GError **error)
{
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    VjStoreKeys keys = vj_object_store_keys(v->meta);
    VjStorePlace place = {.volume = v->super.uuid,
                          .keys = &keys,
                          .read_only = only_reads(how),
                          .adopt = how->repair,
                          .shared = how->shared};

    if (!vj_place_dir_open(v->place, VJ_OBJECTS_DIR, vj_store_needs(v->super.store),
                           false, &dir, error)) {
        return false;
    }
    vj_place_store_at(v->place, &dir, &place);
    return vj_store_open(v->super.store, &place, &v->store, error);
}

static bool claim_store(VjVolume *v, const VjVolumeOpen *how, GError **error)
{
    int rc = only_reads(how) ? 0 : vj_object_claim_store(v->meta, v->store);

    return rc == 0 ||
           vj_error_set_errno(error, -rc, "%s: claiming the store", v->super.store);
}

/* Of metadata of another volume, which a repair may find, nothing is taken. */
static bool take_newer(VjVolume *v)
{
    vj_superblock_record_take_newer(v);
    return true;
}

/* The metadata and the store are those of this volume.  A repair believes the store where
 * the metadata say nothing. */
static bool open_both(VjVolume *v, const VjVolumeOpen *how, const VjMetaPlace *place,
                      GError **error)
{
    const char *uuid = v->super.uuid;

    return vj_meta_open(v->super.meta, place, &v->meta, error) &&
           (how->repair || vj_volume_record_check(v->meta, uuid, place->path, error)) &&
           take_newer(v) && open_store(v, how, error) &&
           (!how->repair ||
            (vj_volume_record_mend(v->meta, uuid, &v->record_mended, error) &&
             vj_volume_record_check(v->meta, uuid, place->path, error)));
}

static bool open_engines(VjVolume *v, const VjVolumeOpen *how, GError **error)
{
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    VjSessionOpen session = {
        .name = how->session_name, .shared = how->shared, .lease_us = how->lease_us};
    VjMetaPlace place = {.volume = v->super.uuid,
                         .read_only = only_reads(how),
                         .salvage = how->repair,
                         .session = how->session_name != NULL ? &session : NULL};

    if (!open_meta_dir(v, &dir, error)) {
        return false;
    }
    vj_place_meta_at(v->place, &dir, &place);
    return vj_examine_before_open(v->place, &v->super, how->examine, &place, error) &&
           (only_reads(how) || vj_place_mark(v->place, error)) &&
           open_both(v, how, &place, error) && update_copy(v, how) &&
           claim_store(v, how, error) && wrap_all(v, how, error);
}

/* ---- what the table of files reports ----------------------------------------------- */

static void on_changed(void *opaque, VjFile *f, VjFlushWhen when)
{
    VjVolume *v = opaque;

    vj_flusher_add(v->flusher, f, when);
}

static void on_committed(void *opaque, VjFile *f, int64_t since_us)
{
    VjVolume *v = opaque;

    vj_flusher_committed(v->flusher, f, since_us);
}

static void on_clean(void *opaque, VjFile *f)
{
    VjVolume *v = opaque;

    vj_flusher_clean(v->flusher, f);
}

static void on_pressure(void *opaque, bool any)
{
    VjVolume *v = opaque;

    if (v->flusher != NULL) {
        vj_flusher_pressure(v->flusher, any);
    }
}

static void on_memory_freed(void *opaque)
{
    VjVolume *v = opaque;

    vj_flusher_trim_soon(v->flusher);
}

static void on_orphaned(void *opaque, uint64_t ino, uint32_t node)
{
    VjVolume *v = opaque;

    vj_orphan_purge_add(v->purge, ino, node);
}

static void on_drop_orphans(void *opaque)
{
    VjVolume *v = opaque;

    vj_orphan_purge_drain(v->purge);
}

static const VjFileEvents file_events = {
    .changed = on_changed,
    .committed = on_committed,
    .clean = on_clean,
    .pressure = on_pressure,
    .memory_freed = on_memory_freed,
    .orphaned = on_orphaned,
    .drop_orphans = on_drop_orphans,
};

/* ---- open and close ---------------------------------------------------------------- */

static uint64_t cache_bytes(const VjVolumeOpen *how)
{
    return how->cache_bytes != 0 ? how->cache_bytes : VJ_CACHE_DEFAULT;
}

static unsigned worker_count(unsigned wanted)
{
    unsigned cpus = g_get_num_processors();

    return wanted != 0 ? MIN(wanted, WORKERS_MOST) : CLAMP(cpus, 2, 16);
}

static bool open_files(VjVolume *v, const VjVolumeOpen *how,
                       const VjTransform *new_transform, GError **error)
{
    uint64_t dirty = how->dirty_bytes != 0 ? how->dirty_bytes : VJ_DIRTY_DEFAULT;
    VjFileTableConfig config = {
        .meta = v->meta,
        .objects = v->objects,
        .events = &file_events,
        .opaque = v,
        .digest = v->super.digest,
        .chunker = v->super.chunker,
        .sizes = v->super.sizes,
        .chunk_seed = v->super.chunk_seed,
        .transform = v->super.transform,
        .new_transform = new_transform,
        .dirty_bytes = MAX(dirty, VJ_DIRTY_LEAST),
        .cache_bytes = cache_bytes(how),
        .fragment_bytes =
            how->fragment_bytes != 0 ? how->fragment_bytes : VJ_FRAGMENTS_DEFAULT,
        .workers = worker_count(how->workers),
        .read_only = only_reads(how),
        .is_check = how->check,
    };

    if (how->no_fragments) {
        config.fragment_bytes = 0;
    }
    if (!vj_file_table_open(&config, &v->files, error)) {
        vj_error_prefix(error, "%s: ", v->place->name);
        return false;
    }
    return true;
}

static bool start(VjVolume *v, const VjVolumeOpen *how, const VjTransform *new_transform,
                  GError **error)
{
    VjObjectsConfig config = {
        .meta = v->meta,
        .store = v->store,
        .digest = v->super.digest,
        .cache_bytes = cache_bytes(how),
        .read_only = how->read_only || how->check,
    };
    unsigned seconds =
        how->commit_seconds != 0 ? how->commit_seconds : VJ_COMMIT_SECONDS_DEFAULT;
    int r = vj_meta_count(v->meta, VJ_SPACE_INODE, &v->inodes_at_open);

    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s: cannot count its inodes",
                                  v->place->name);
    }
    if (!vj_objects_open(&config, &v->objects, error) ||
        !open_files(v, how, new_transform, error)) {
        return false;
    }
    v->flusher = vj_flusher_open(v->files, (int64_t)seconds * G_USEC_PER_SEC);
    if (config.read_only) {
        return true;
    }
    if (!vj_orphan_purge_open(v, &v->purge, error)) {
        return false;
    }
    vj_orphan_purge_start(v->purge);
    vj_file_table_start(v->files);
    r = vj_sessions_open(v);
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s: the sessions that it has",
                                  v->place->name);
    }
    if (vj_objects_have_replicas(v->objects)) {
        v->healer = vj_healer_open(v);
    }
    if (v->place->is_marked && vj_meta_file(v->super.meta) != NULL) {
        v->checkpointer = vj_checkpointer_open(v, how->checkpoint_seconds);
    }
    return true;
}

/* @place is taken where it is not the caller's. */
static VjVolume *volume_new(const VjVolumeOpen *how, VjPlace *place)
{
    VjVolume *v = g_new0(VjVolume, 1);

    v->place = place;
    v->owns_place = how->place == NULL;
    vj_place_enter(place);
    v->check = how->check;
    v->is_shared = how->shared;
    v->bytes_found = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    v->close_retry_us = how->close_retry_us;
    v->drop_retry_us = VJ_DROP_RETRY_US;
    vj_mutex_init(&v->usage_lock, VJ_RANK_VOLUME, "volume.usage");
    vj_mutex_init(&v->super_lock, VJ_RANK_VOLUME, "volume.superblock");
    return v;
}

/*
 * Everything is durable or has been reported (@r); frees whatever start() got to.  Where
 * something failed the mark stays: the next mount looks closer.
 */
static int teardown(VjVolume *v, int r)
{
    int one;

    vj_file_table_stop(v->files);
    vj_healer_close(v->healer);
    vj_checkpointer_stop(v->checkpointer);
    if (r == 0) {
        vj_checkpointer_last(v->checkpointer);
    }
    vj_checkpointer_free(v->checkpointer);
    vj_flusher_close(v->flusher); /* its threads add to the orphan purge */
    if (v->purge != NULL) {
        one = vj_sessions_close(v);
        r = r < 0 ? r : one;
    }
    vj_orphan_purge_close(v->purge);
    vj_file_table_close(v->files);
    if (v->objects != NULL) {
        one = vj_objects_close(v->objects);
        r = r < 0 ? r : one;
    }
    if (v->meta != NULL) {
        one = vj_meta_close(v->meta);
        r = r < 0 ? r : one;
    }
    vj_store_close(v->store);
    vj_place_leave(v->place, r == 0);
    one = v->owns_place ? vj_place_close(v->place) : 0;
    r = r < 0 ? r : one;
    g_hash_table_unref(v->bytes_found);
    vj_mutex_clear(&v->usage_lock);
    vj_mutex_clear(&v->super_lock);
    vj_superblock_clear(&v->super);
    g_free(v);
    return r;
}

bool vj_volume_open(const VjVolumeOpen *how, VjVolume **out, GError **error)
{
    VjTransform new_transform;
    VjPlace *place = how->place;
    VjVolume *v;

    *out = NULL;
    g_assert(!how->shared || how->session_name != NULL);
    if (how->transform != NULL &&
        !vj_transform_parse(how->transform, &new_transform, error)) {
        return false;
    }
    if (place == NULL && !vj_place_open(how->source, &place, error)) {
        return false;
    }
    v = volume_new(how, place);
    if (!vj_sessions_may_share(v, how, error) ||
        !vj_place_read_superblock(place, &v->super, error) ||
        !vj_place_lock(place, how->shared, how->lock_wait_us, error) ||
        (!how->restoring && !vj_place_check_restore(place, error)) ||
        !open_engines(v, how, error) ||
        !start(v, how, how->transform != NULL ? &new_transform : NULL, error)) {
        (void)!teardown(v, -EIO); /* the first error is the one to report */
        return false;
    }
    if (!vj_volume_read_only(v)) {
        vj_place_close_to_others(place);
    }
    *out = v;
    return true;
}

/*
 * The last chance of what is in memory: when the device is full from outside, or fails,
 * it may come back.  Waits between attempts with nothing to be woken by but the time.
 */
static int last_sync(VjVolume *v)
{
    int64_t until_us = vj_clock_mono_us() + v->close_retry_us;
    int r = vj_volume_sync(v);
    VjMutex lock;
    VjCond never;

    if (r == -ENOSPC) {
        vj_file_table_set_last_chance(v->files);
        r = vj_volume_sync(v);
    }
    if (r == 0) {
        return 0;
    }
    vj_log_error("what is in memory cannot be written back: %s; trying again for %d s",
                 g_strerror(-r), (int)(v->close_retry_us / G_USEC_PER_SEC));
    vj_mutex_init(&lock, VJ_RANK_VOLUME, "volume.close");
    vj_cond_init(&never);
    while (r < 0 && r != -EBADMSG && r != -ESTALE && vj_clock_mono_us() < until_us) {
        vj_mutex_lock(&lock);
        (void)vj_cond_wait_until(&never, &lock, vj_clock_mono_us() + G_USEC_PER_SEC);
        vj_mutex_unlock(&lock);
        r = vj_volume_sync(v);
    }
    vj_cond_clear(&never);
    vj_mutex_clear(&lock);
    if (r < 0) {
        vj_log_error("what was in memory is lost: %s", g_strerror(-r));
    }
    return r;
}

int vj_volume_close(VjVolume *v)
{
    vj_inos_give_back(v->files);
    return teardown(v, last_sync(v));
}
