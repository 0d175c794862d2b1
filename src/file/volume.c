/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * volume.c - a file system from open to close
 *
 * Opening: lock, superblock, metadata, store, objects (recovery of what the last crash left
 * in the store), background threads, orphans.  Closing is the reverse, after everything was
 * written back and made durable; whatever fails on the way is reported and the next mount
 * recovers as after a crash.
 */
#include "file/source-lock-private.h"
#include "file/volume-private.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS_MOST 64u

/* ---- small things -------------------------------------------------------------------------- */

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

bool vj_volume_read_only(const VjVolume *v)
{
    return g_atomic_int_get(&v->read_only) != 0;
}

uint64_t vj_volume_inodes_at_open(const VjVolume *v)
{
    return v->inodes_at_open;
}

void vj_volume_set_read_only(VjVolume *v, bool read_only)
{
    g_atomic_int_set(&v->read_only, read_only);
}

void vj_volume_reap(VjVolume *v, uint64_t ino)
{
    if (v->dropper != NULL) {
        vj_dropper_add(v->dropper, ino, 0);
    }
}

GPtrArray *vj_volume_files(VjVolume *v)
{
    GPtrArray *files = g_ptr_array_new_with_free_func((GDestroyNotify)vj_file_unref);
    GHashTableIter iter;
    gpointer file;

    vj_mutex_lock(&v->table_lock);
    g_hash_table_iter_init(&iter, v->files);
    while (g_hash_table_iter_next(&iter, NULL, &file)) {
        g_ptr_array_add(files, vj_file_ref(file));
    }
    vj_mutex_unlock(&v->table_lock);
    return files;
}

int vj_volume_write_back(VjVolume *v)
{
    g_autoptr(GPtrArray) files = vj_volume_files(v);
    int r = 0;

    for (guint i = 0; i < files->len; i += VJ_WRITE_BACK_BATCH) {
        int one = vj_file_write_back_many(v, (VjFile *const *)files->pdata + i,
                                          MIN(files->len - i, VJ_WRITE_BACK_BATCH));

        r = r == 0 ? one : r;
    }
    for (guint i = 0; i < files->len; i++) { /* those that were in other hands */
        int one = vj_file_write_back(files->pdata[i]);

        r = r == 0 ? one : r;
    }
    return r;
}

int vj_volume_sync(VjVolume *v)
{
    int r = vj_volume_write_back(v), flushed = vj_meta_flush(v->meta);

    return r < 0 ? r : flushed;
}

int vj_volume_settle(VjVolume *v)
{
    if (v->dropper == NULL) {
        return -EROFS;
    }
    vj_dropper_drain(v->dropper);
    return vj_objects_reap_now(v->objects);
}

int vj_volume_space(VjVolume *v, VjStoreSpace *out, uint64_t *reserved_bytes)
{
    int r = vj_store_space(v->store, out);

    *reserved_bytes = vj_space_reserved(&v->space);
    if (r == 0) {
        out->available_bytes -= MIN(out->available_bytes, VJ_SPACE_MARGIN);
    }
    return r;
}

/* What is only known by walking all records. */
static int walk_usage(VjVolume *v, VjUsageSums *out)
{
    VJ_AUTO_READ_TXN *txn = NULL;
    int r = vj_meta_begin_read(v->meta, &txn);
    VjScan scan;

    *out = (VjUsageSums){0};
    if (r == 0) {
        r = vj_objects_sum(txn, &out->objects, &out->plain_bytes, &out->stored_bytes);
    }
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

/*
 * Anybody may ask, as often as he likes: so a walk that took long is good for many times as
 * long, and only one is under way.  On a small volume the figures are always fresh.
 */
static bool last_usage_is_good(VjVolume *v, VjUsageSums *out)
{
    int64_t age_us;
    bool good;

    vj_mutex_lock(&v->table_lock);
    age_us = vj_clock_mono_us() - v->usage_at_us;
    good = v->usage_cost_us > VJ_USAGE_CHEAP_US &&
           (v->usage_walking || age_us < VJ_USAGE_REST * v->usage_cost_us);
    *out = v->usage;
    v->usage_walking = v->usage_walking || !good;
    vj_mutex_unlock(&v->table_lock);
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
    vj_mutex_lock(&v->table_lock);
    v->usage_walking = false;
    if (r == 0) {
        v->usage = *out;
        v->usage_at_us = vj_clock_mono_us();
        v->usage_cost_us = v->usage_at_us - begun_us;
    }
    vj_mutex_unlock(&v->table_lock);
    return r;
}

int vj_volume_usage(VjVolume *v, VjVolumeUsage *out)
{
    VjObjectsStats objects;
    VjUsageSums sums = {0};
    int r;

    *out = (VjVolumeUsage){.dirty_bytes = vj_budget_used(&v->dirty)};
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

void vj_volume_counters(VjVolume *v, VjCounterVisit *visit, void *opaque)
{
    VjObjectsStats o;
    VjMetaStats m;
    VjStoreStats s;

    vj_objects_stats(v->objects, &o);
    vj_meta_stats(v->meta, &m);
    vj_store_stats(v->store, &s);
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"write_back_commits", __atomic_load_n(&v->commits, __ATOMIC_RELAXED)},
        {"write_back_regions", __atomic_load_n(&v->regions, __ATOMIC_RELAXED)},
        {"write_back_forced_cuts", __atomic_load_n(&v->forced_cuts, __ATOMIC_RELAXED)},
        {"write_back_errors", __atomic_load_n(&v->write_back_errors, __ATOMIC_RELAXED)},
        {"write_back_small", __atomic_load_n(&v->small_commits, __ATOMIC_RELAXED)},
        {"fragments_made", __atomic_load_n(&v->fragments_made, __ATOMIC_RELAXED)},
        {"fragments_dropped", __atomic_load_n(&v->fragments_dropped, __ATOMIC_RELAXED)},
        {"remap_steps", __atomic_load_n(&v->remap_steps, __ATOMIC_RELAXED)},
        {"bytes_in", __atomic_load_n(&v->bytes_in, __ATOMIC_RELAXED)},
        {"shifts", __atomic_load_n(&v->shifts, __ATOMIC_RELAXED)},
        {"shifted_bytes", __atomic_load_n(&v->shifted_bytes, __ATOMIC_RELAXED)},
        {"dirty_bytes", vj_budget_used(&v->dirty)},
        {"reserved_bytes", vj_space_reserved(&v->space)},
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
        {"objects_expected", o.expected},
        {"store_puts", s.puts},
        {"store_put_bytes", s.put_bytes},
        {"store_gets", s.gets},
        {"store_get_bytes", s.get_bytes},
        {"store_removes", s.removes},
        {"store_flushes", s.flushes},
        {"store_failures", s.failures},
        {"meta_commits", m.commits},
        {"meta_conflicts", m.conflicts},
        {"meta_flushes", m.flushes},
        {"meta_moves", m.log.moves},
        {"meta_log_records", m.log.records},
        {"meta_log_bytes", m.log.bytes},
        {"meta_log_failures", m.log.failures},
        {"meta_log_replayed", m.log.replayed},
        {"map_nodes_read", m.gets[VJ_SPACE_NODE]},
        {"map_nodes_written", m.puts[VJ_SPACE_NODE]},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(counters); i++) {
        visit(opaque, counters[i].name, counters[i].value);
    }
}

/* ---- directories and the superblock ---------------------------------------------------------- */

int vj_source_open(const char *path, GError **error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        if (errno == ENOTDIR) {
            vj_error_set(error, ENOTDIR,
                         "%s is not a directory; volume files come with later versions",
                         path);
        } else {
            vj_error_set_errno(error, errno, "%s", path);
        }
    }
    return fd;
}

static int open_same(const VjVolumeOpen *how, GError **error)
{
    int fd = openat(how->source_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        vj_error_set_errno(error, errno, "%s", how->source);
    }
    return fd;
}

int vj_volume_open_sub_dir(int dir_fd, const char *source, const char *name, bool create,
                           GError **error)
{
    int fd;

    if (create && mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST) {
        vj_error_set_errno(error, errno, "%s/%s", source, name);
        return -1;
    }
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        vj_error_set_errno(error, errno, "%s/%s", source, name);
    }
    return fd;
}

bool vj_volume_read_superblock(int dir_fd, const char *source, VjSuperblock *out,
                               GError **error)
{
    g_autoptr(GError) local = NULL;
    g_autofree char *text = NULL;

    if (vj_superblock_read(dir_fd, &text, out, &local)) {
        return true;
    }
    if (vj_superblock_is_lost(dir_fd, local)) {
        return vj_error_set(error, EBADMSG,
                            "%s/%s; fsck.varjfs -y looks for a copy of it", source,
                            local->message);
    }
    if (local->code == ENOENT) {
        return vj_error_set(error, ENOENT,
                            "%s holds no varjfs file system (no " VJ_SUPERBLOCK_NAME ")",
                            source);
    }
    return vj_error_set(error, local->code, "%s/%s", source, local->message);
}

/* ---- engines ----------------------------------------------------------------------------------- */

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

static int open_meta_dir(int dir_fd, const char *source, GError **error)
{
    int fd = openat(dir_fd, "meta", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 && errno == ENOENT) {
        vj_error_set(error, EBADMSG,
                     "%s/meta is missing: fsck.varjfs --restore puts the newest "
                     "checkpoint in its place",
                     source);
    } else if (fd < 0) {
        vj_error_set_errno(error, errno, "%s/meta", source);
    }
    return fd;
}

static bool update_copy(VjVolume *v, const VjVolumeOpen *how)
{
    if (!only_reads(how)) {
        vj_superblock_record_update(v);
    }
    return true;
}

static bool open_engines(VjVolume *v, const VjVolumeOpen *how, int dir_fd, GError **error)
{
    g_autofree char *meta_path = g_build_filename(how->source, "meta", NULL);
    g_autofree char *store_path = g_build_filename(how->source, "objects", NULL);
    VJ_AUTO_FD meta_fd = open_meta_dir(dir_fd, how->source, error);
    VJ_AUTO_FD store_fd = -1;
    VjMetaPlace meta_place = {.dir_fd = meta_fd,
                              .path = meta_path,
                              .read_only = only_reads(how),
                              .salvage = how->repair};
    VjStorePlace store_place = {
        .path = store_path, .volume = v->super.uuid, .read_only = only_reads(how)};

    if (meta_fd < 0 ||
        !vj_in_use_examine(&v->super, how->examine, dir_fd, how->source, &meta_place,
                           error) ||
        (!only_reads(how) && !vj_in_use_begin(v, dir_fd, how->source, error))) {
        return false;
    }
    store_fd = vj_volume_open_sub_dir(dir_fd, how->source, "objects", false, error);
    if (store_fd < 0) {
        return false;
    }
    store_place.dir_fd = store_fd;
    /* A repair believes the store where the metadata say nothing. */
    return vj_meta_open(v->super.meta, &meta_place, &v->meta, error) &&
           (how->repair ||
            vj_volume_record_check(v->meta, v->super.uuid, meta_path, error)) &&
           vj_store_open(v->super.store, &store_place, &v->store, error) &&
           (!how->repair ||
            (vj_volume_record_mend(v->meta, v->super.uuid, &v->record_mended, error) &&
             vj_volume_record_check(v->meta, v->super.uuid, meta_path, error))) &&
           update_copy(v, how) && wrap_all(v, how, error);
}

static void on_pressure(void *opaque)
{
    VjVolume *v = opaque;

    if (v->flusher != NULL) {
        vj_flusher_pressure(v->flusher);
    }
}

static unsigned worker_count(unsigned wanted)
{
    unsigned cpus = g_get_num_processors();

    return wanted != 0 ? MIN(wanted, WORKERS_MOST) : CLAMP(cpus, 2, 16);
}

static bool start(VjVolume *v, const VjVolumeOpen *how, GError **error)
{
    VjObjectsConfig config = {
        .meta = v->meta,
        .store = v->store,
        .digest = v->super.digest,
        .cache_bytes = how->cache_bytes != 0 ? how->cache_bytes : VJ_CACHE_DEFAULT,
        .read_only = how->read_only || how->check,
    };
    unsigned seconds =
        how->commit_seconds != 0 ? how->commit_seconds : VJ_COMMIT_SECONDS_DEFAULT;
    uint64_t fragment_bytes = how->no_fragments          ? 0
                              : how->fragment_bytes != 0 ? how->fragment_bytes
                                                         : VJ_FRAGMENTS_DEFAULT;
    int r = vj_space_init(&v->space, v->store);

    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s: cannot tell its free space",
                                  how->source);
    }
    r = vj_meta_count(v->meta, VJ_SPACE_INODE, &v->inodes_at_open);
    if (r < 0) {
        return vj_error_set_errno(error, -r, "%s: cannot count its inodes", how->source);
    }
    if (!vj_objects_open(&config, &v->objects, error)) {
        return false;
    }
    v->worker_count = worker_count(how->workers);
    v->workers = g_thread_pool_new(vj_put_worker, v, (gint)v->worker_count, FALSE, NULL);
    v->read_ahead = vj_read_ahead_open(v, config.cache_bytes);
    v->flusher = vj_flusher_open(v, (int64_t)seconds * G_USEC_PER_SEC);
    if (!config.read_only &&
        (!vj_dropper_open(v, &v->dropper, error) ||
         !vj_remapper_open(v, fragment_bytes, &v->remapper, error))) {
        return false;
    }
    if (!config.read_only) {
        vj_dropper_start(v->dropper);
        vj_remapper_start(v->remapper);
    }
    if (!config.read_only && v->dir_fd >= 0) {
        v->checkpointer = vj_checkpointer_open(v, how->checkpoint_seconds);
    }
    return true;
}

static VjVolume *volume_new(const VjVolumeOpen *how)
{
    VjVolume *v = g_new0(VjVolume, 1);
    uint64_t dirty = how->dirty_bytes != 0 ? how->dirty_bytes : VJ_DIRTY_DEFAULT;

    v->lock_fd = v->dir_fd = -1;
    v->check = how->check;
    v->bytes_found = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    v->close_retry_us = how->close_retry_us;
    v->drop_retry_us = VJ_DROP_RETRY_US;
    v->recode_step_bytes = VJ_RECODE_STEP_BYTES;
    v->read_only = only_reads(how);
    vj_budget_init(&v->dirty, MAX(dirty, VJ_DIRTY_LEAST), on_pressure, v);
    vj_mutex_init(&v->table_lock, VJ_RANK_FILE_TABLE, "file.table");
    vj_cond_init(&v->opened);
    v->files = g_hash_table_new(g_int64_hash, g_int64_equal);
    v->opening = g_hash_table_new(g_int64_hash, g_int64_equal);
    return v;
}

/*
 * Everything is durable or has been reported (@r); frees whatever start() got to.  Where
 * something failed the mark stays: the next mount looks closer.
 */
static int teardown(VjVolume *v, int r)
{
    int one;

    vj_read_ahead_close(v->read_ahead);
    vj_remapper_stop(v->remapper);
    vj_checkpointer_stop(v->checkpointer);
    if (r == 0) {
        vj_checkpointer_last(v->checkpointer);
    }
    vj_checkpointer_free(v->checkpointer);
    vj_flusher_close(v->flusher); /* its threads add to the dropper */
    vj_dropper_close(v->dropper);
    vj_remapper_free(v->remapper);
    if (v->workers != NULL) {
        g_thread_pool_free(v->workers, FALSE, TRUE);
    }
    if (v->objects != NULL) {
        one = vj_objects_close(v->objects);
        r = r < 0 ? r : one;
    }
    if (v->meta != NULL) {
        one = vj_meta_close(v->meta);
        r = r < 0 ? r : one;
    }
    if (v->store != NULL) {
        vj_space_clear(&v->space);
        vj_store_close(v->store);
    }
    if (r == 0) {
        r = vj_in_use_end(v);
    }
    g_assert(g_hash_table_size(v->files) == 0);
    g_hash_table_unref(v->files);
    g_hash_table_unref(v->opening);
    vj_cond_clear(&v->opened);
    g_hash_table_unref(v->bytes_found);
    vj_mutex_clear(&v->table_lock);
    vj_budget_clear(&v->dirty);
    vj_superblock_clear(&v->super);
    vj_fd_close(&v->dir_fd);
    vj_fd_close(&v->lock_fd);
    g_free(v);
    return r;
}

bool vj_volume_examine(const char *source, int64_t lock_wait_us, VjMetaFlaw *say,
                       void *opaque, VjMetaExam *out, GError **error)
{
    g_autofree char *meta_path = g_build_filename(source, "meta", NULL);
    VJ_AUTO_FD dir_fd = vj_source_open(source, error);
    VJ_AUTO_FD lock_fd = -1;
    VJ_AUTO_FD meta_fd = -1;
    VjSuperblock super;
    int r = 0;

    *out = (VjMetaExam){0};
    if (dir_fd < 0 || !vj_volume_read_superblock(dir_fd, source, &super, error)) {
        return false;
    }
    if (!vj_source_lock(dir_fd, source, lock_wait_us, &lock_fd, error)) {
        vj_superblock_clear(&super);
        return false;
    }
    meta_fd = openat(dir_fd, "meta", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    r = meta_fd < 0 ? -errno : 0;
    if (r == 0) {
        VjMetaPlace place = {.dir_fd = meta_fd, .path = meta_path, .read_only = true};

        r = vj_meta_examine(super.meta, &place, -1, say, opaque, out);
    }
    if (r == -ENOENT) {
        out->flaws = 1;
        say(opaque,
            meta_fd < 0 ? "the directory that it was in is missing" : "it is missing");
        r = 0;
    }
    vj_superblock_clear(&super);
    return r == 0 || r == -EOPNOTSUPP || vj_error_set_errno(error, -r, "%s", meta_path);
}

bool vj_volume_open(const VjVolumeOpen *how, VjVolume **out, GError **error)
{
    VJ_AUTO_FD dir_fd =
        how->has_source_fd ? open_same(how, error) : vj_source_open(how->source, error);
    VjVolume *v;

    *out = NULL;
    if (dir_fd < 0) {
        return false;
    }
    v = volume_new(how);
    if (how->transform != NULL) {
        v->new_is_set = true;
        if (!vj_transform_parse(how->transform, &v->new_transform, error)) {
            (void)!teardown(v, -EINVAL);
            return false;
        }
    }
    if (!vj_volume_read_superblock(dir_fd, how->source, &v->super, error) ||
        !vj_source_lock(dir_fd, how->source, how->lock_wait_us, &v->lock_fd, error) ||
        !vj_in_use_check_restore(how, dir_fd, error) ||
        !open_engines(v, how, dir_fd, error) || !start(v, how, error)) {
        (void)!teardown(v, -EIO); /* the first error is the one to tell */
        return false;
    }
    if (!v->read_only) {
        vj_source_close_to_others(dir_fd, how->source);
    }
    *out = v;
    return true;
}

/*
 * The last chance of what is in memory: when the device is full from outside, or fails, it
 * may come back.  Waits between attempts with nothing to be woken by but the time.
 */
static int last_sync(VjVolume *v)
{
    int64_t until_us = vj_clock_mono_us() + v->close_retry_us;
    int r = vj_volume_sync(v);
    VjMutex lock;
    VjCond never;

    if (r == -ENOSPC) {
        g_atomic_int_set(&v->last_chance, 1);
        r = vj_volume_sync(v);
    }
    if (r == 0) {
        return 0;
    }
    vj_log_error("what is in memory cannot be written back: %s; trying again for %d s",
                 g_strerror(-r), (int)(v->close_retry_us / G_USEC_PER_SEC));
    vj_mutex_init(&lock, VJ_RANK_FILE_FLUSHER, "file.close");
    vj_cond_init(&never);
    while (r < 0 && r != -EBADMSG && vj_clock_mono_us() < until_us) {
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
    return teardown(v, last_sync(v));
}
