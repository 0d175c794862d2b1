/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * checkpoint.c - copies of the metadata while the volume is in use
 *
 * A thread makes one when the last is as old as the mount wants it; so does the end of
 * the mount, and a caller that asks for one.  The engine copies beside all other work
 * (vj_meta_save); a file gets its name when all of it is durable, and then the oldest go.
 * Where the device has little room left none is made: a copy is worth less than what
 * users want to write.
 */
#include "volume/checkpoint-private.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NEW_NAME "new"
/* After a copy so much of the device stays free: this, and a share. */
#define ROOM_BYTES (64 * VJ_MIB)
#define ROOM_SHARE 20u
/* After one that was not made. */
#define RETRY_US ((int64_t)600 * G_USEC_PER_SEC)

struct VjCheckpointer {
    VjVolume *volume;
    int64_t interval_s;
    GThread *thread;
    VjMutex lock; /* VJ_RANK_VOLUME */
    VjCond changed;
    /* guarded by lock: */
    bool making, stop;
    bool is_first;  /* there was none when the volume was opened, nor is there now */
    int64_t last_s; /* when the last one was made; 0: there is none */
    int64_t retry_us;
};

static int64_t now_s(void)
{
    return (int64_t)vj_clock_real().tv_sec;
}

/* ---- one copy ---------------------------------------------------------------------- */

/* The copy is not larger than the file that it is of. */
static uint64_t most_bytes(const VjVolume *v)
{
    const char *engine = v->super.meta;
    g_auto(VjPlaceDir) dir = VJ_PLACE_DIR_NONE;
    VjMetaPlace place = {.read_only = true};
    uint64_t bytes;

    if (!vj_place_dir_open(v->place, VJ_META_DIR, vj_meta_needs(engine), false, &dir,
                           NULL)) {
        return 0;
    }
    vj_place_meta_at(v->place, &dir, &place);
    return vj_meta_file_bytes(engine, &place, &bytes) == 0 ? bytes : 0;
}

static int check_room(const VjVolume *v)
{
    struct statvfs st;
    uint64_t needed = most_bytes(v), left;

    if (fstatvfs(v->place->dir_fd, &st) != 0) {
        return -errno;
    }
    left = MAX(ROOM_BYTES, (uint64_t)st.f_blocks * st.f_frsize / ROOM_SHARE);
    return (uint64_t)st.f_bavail * st.f_frsize >= needed + left ? 0 : -ENOSPC;
}

static int write_file(VjVolume *v, int fd, int64_t made_s, VjMetaSaved *saved)
{
    VjCheckpointEnd end = {.made_s = made_s};
    VjCheckpointDisk disk;
    g_autofree char *conf = vj_volume_conf(v);
    struct iovec iov[] = {
        {.iov_base = conf, .iov_len = strlen(conf)},
        {.iov_base = &disk, .iov_len = sizeof disk},
    };
    int r = vj_meta_save(v->meta, fd, saved);

    if (r == 0) {
        r = vj_checkpoint_sum(fd, saved->bytes, &end.image_checksum);
    }
    if (r < 0) {
        return r;
    }
    if (!vj_uuid_parse(v->super.uuid, end.uuid)) {
        return -EINVAL;
    }
    end.commit = saved->commit;
    end.image_bytes = saved->bytes;
    end.conf_bytes = (uint32_t)iov[0].iov_len;
    vj_checkpoint_encode(&end, &disk);
    r = vj_fd_pwritev_all(fd, iov, G_N_ELEMENTS(iov), saved->bytes);
    return r < 0 ? r : fsync(fd) == 0 ? 0 : -errno;
}

/* The time is that of the last one plus a second if the clock went back. */
static int64_t time_for_name(int dir, char name[VJ_CHECKPOINT_NAME_BYTES])
{
    g_autoptr(GArray) list = NULL;
    int64_t made_s = now_s();
    g_autoptr(GDateTime) date = NULL;
    g_autofree char *text = NULL;

    if (vj_checkpoint_list(dir, &list) == 0 && list->len > 0) {
        made_s = MAX(made_s, g_array_index(list, VjCheckpoint, 0).made_s + 1);
    }
    date = g_date_time_new_from_unix_utc(made_s);
    text = date == NULL ? NULL : g_date_time_format(date, "%Y%m%dT%H%M%SZ");
    g_strlcpy(name, text != NULL ? text : "", VJ_CHECKPOINT_NAME_BYTES);
    return made_s;
}

static void remove_oldest(int dir)
{
    g_autoptr(GArray) list = NULL;

    if (vj_checkpoint_list(dir, &list) < 0) {
        return;
    }
    for (guint i = VJ_CHECKPOINTS_KEPT; i < list->len; i++) {
        const char *name = g_array_index(list, VjCheckpoint, i).name;

        if (unlinkat(dir, name, 0) != 0) {
            vj_log_warn("checkpoint %s: cannot be removed: %s", name, g_strerror(errno));
        }
    }
}

/* A file of its own each time: what a failed write left in another one is not relied
 * upon. */
static int open_new(int dir)
{
    int fd;

    if (unlinkat(dir, NEW_NAME, 0) != 0 && errno != ENOENT) {
        return -errno;
    }
    fd = openat(dir, NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

static int make_in(VjVolume *v, int dir, VjMetaSaved *saved)
{
    VJ_AUTO_FD fd = open_new(dir);
    char name[VJ_CHECKPOINT_NAME_BYTES];
    int r = fd < 0 ? fd : 0;
    int64_t made_s = time_for_name(dir, name);

    if (r == 0) {
        r = write_file(v, fd, made_s, saved);
    }
    if (r == 0 && (renameat(dir, NEW_NAME, dir, name) != 0 || fsync(dir) != 0)) {
        r = -errno;
    }
    if (r == 0) {
        remove_oldest(dir);
        vj_log_info("checkpoint %s: %" G_GUINT64_FORMAT " KiB of metadata", name,
                    saved->used_bytes / 1024);
    } else {
        (void)!unlinkat(dir, NEW_NAME, 0); /* the next one does it again */
    }
    return r;
}

static int make_copy(VjVolume *v, VjMetaSaved *saved)
{
    VJ_AUTO_FD dir = -1;
    int r = check_room(v);

    if (r == 0) {
        dir = vj_checkpoint_open_dir(v->place, true);
        r = dir < 0 ? dir : vj_meta_flush(v->meta);
    }
    if (r == 0) {
        r = make_in(v, dir, saved);
    }
    if (r < 0 && r != -EOPNOTSUPP) {
        vj_log_warn("no checkpoint of the metadata was made: %s",
                    r == -ENOSPC ? "the device has not enough room" : g_strerror(-r));
    }
    return r;
}

/* One at a time: a second thread waits for the first, then makes its own copy. */
static int make_now(VjCheckpointer *c, VjMetaSaved *saved)
{
    int r;

    vj_mutex_lock(&c->lock);
    while (c->making) {
        vj_cond_wait(&c->changed, &c->lock);
    }
    c->making = true;
    vj_mutex_unlock(&c->lock);
    r = make_copy(c->volume, saved);
    vj_mutex_lock(&c->lock);
    c->making = false;
    if (r == 0) {
        c->is_first = false;
        c->last_s = now_s();
        c->retry_us = 0;
    } else {
        c->retry_us = vj_clock_mono_us() + RETRY_US;
    }
    vj_cond_broadcast(&c->changed);
    vj_mutex_unlock(&c->lock);
    return r;
}

int vj_volume_checkpoint(VjVolume *v, uint64_t *stored_bytes)
{
    VjMetaSaved saved = {0};
    int r;

    if (!vj_volume_read_only(v) && vj_meta_file(v->super.meta) == NULL) {
        return -EOPNOTSUPP;
    }
    if (vj_volume_read_only(v) || v->checkpointer == NULL) {
        return -EROFS;
    }
    r = vj_volume_sync(v);
    r = r < 0 ? r : make_now(v->checkpointer, &saved);
    *stored_bytes = saved.used_bytes;
    return r;
}

/* ---- when they are due ------------------------------------------------------------- */

/* Microseconds until the next one is due, by clocks of which the one may jump. */
static int64_t due_in_us(const VjCheckpointer *c)
{
    int64_t age_s = now_s() - c->last_s, now_us = vj_clock_mono_us();
    int64_t left_us = 0;

    /* Times may lie a little ahead (time_for_name); far ahead, the clock was wrong. */
    if (c->last_s != 0 && age_s > -c->interval_s && age_s < c->interval_s) {
        left_us = MIN(c->interval_s - age_s, c->interval_s) * G_USEC_PER_SEC;
    }
    return MAX(left_us, c->retry_us - now_us);
}

static gpointer checkpoint_thread(gpointer opaque)
{
    VjCheckpointer *c = opaque;

    vj_mutex_lock(&c->lock);
    while (!c->stop) {
        int64_t left_us = due_in_us(c);

        if (left_us > 0) {
            (void)vj_cond_wait_until(&c->changed, &c->lock, vj_clock_mono_us() + left_us);
        } else if (c->last_s == 0) {
            /* A new volume has little to lose yet: its first one is made at the end. */
            c->last_s = now_s();
        } else {
            VjMetaSaved saved;

            vj_mutex_unlock(&c->lock);
            (void)!make_now(c, &saved); /* it was logged, and is tried again */
            vj_mutex_lock(&c->lock);
        }
    }
    vj_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- open and close ---------------------------------------------------------------- */

static int64_t last_made(const VjVolume *v)
{
    VJ_AUTO_FD dir = vj_checkpoint_open_dir(v->place, false);
    g_autoptr(GArray) list = NULL;

    if (dir < 0 || vj_checkpoint_list(dir, &list) < 0 || list->len == 0) {
        return 0;
    }
    return g_array_index(list, VjCheckpoint, 0).made_s;
}

VjCheckpointer *vj_checkpointer_open(VjVolume *v, unsigned interval_s)
{
    VjCheckpointer *c = g_new0(VjCheckpointer, 1);

    g_assert(v->place->is_marked);
    c->volume = v;
    c->interval_s = interval_s;
    c->last_s = last_made(v);
    c->is_first = c->last_s == 0;
    vj_mutex_init(&c->lock, VJ_RANK_VOLUME, "volume.checkpoint");
    vj_cond_init(&c->changed);
    if (interval_s > 0) {
        c->thread = g_thread_new("vj-checkpoint", checkpoint_thread, c);
    }
    return c;
}

void vj_checkpointer_stop(VjCheckpointer *c)
{
    if (c == NULL) {
        return;
    }
    vj_mutex_lock(&c->lock);
    c->stop = true;
    vj_cond_broadcast(&c->changed);
    vj_mutex_unlock(&c->lock);
    if (c->thread != NULL) {
        g_thread_join(c->thread);
        c->thread = NULL;
    }
}

void vj_checkpointer_last(VjCheckpointer *c)
{
    VjMetaSaved saved;

    if (c != NULL && c->interval_s > 0 && (c->is_first || due_in_us(c) <= 0)) {
        (void)!make_now(c, &saved); /* it was logged; the next mount makes one */
    }
}

void vj_checkpointer_free(VjCheckpointer *c)
{
    if (c == NULL) {
        return;
    }
    g_assert(c->thread == NULL);
    vj_cond_clear(&c->changed);
    vj_mutex_clear(&c->lock);
    g_free(c);
}
