/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-rewrite.c - the file gives its free pages back while it is open
 *
 * LMDB's file never becomes shorter by itself.  When most of it has been free for
 * `shrink=` seconds, a thread copies its keys to another file (lmdb-copy.c) beside all
 * other work, and puts that in its place:
 *
 * 1. the pages of the file are examined, as LMDB believes what it reads;
 * 2. the copy, in steps that each end with a synchronous commit, until it has caught up
 *    with what is applied; the pages of the copy are examined too;
 * 3. applies wait.  The rest of what was applied, the file's space set aside as in the
 *    old one, fsync;
 * 4. snapshots wait, which are held for a moment each: rename over the old name, and LMDB
 *    opens the new file.  No I/O waits for a device here;
 * 5. fsync of the directory; then applies go on.
 *
 * Readers so wait for the readers of before, VJ_LMDB_HOLD_US at most, and for an open.  A
 * commit waits as they do if it needs room; a flush that the log takes waits for nothing.
 * The applier waits for 3 to 5, in which at most VJ_LMDB_NOTES_LAST of keys are copied;
 * what is committed meanwhile is in memory and in the log.
 *
 * A crash finds the old file or the new one under the name, whole, with the same keys and
 * the same log: nothing is applied between 3 and 5.  What is left of a copy the next open
 * removes.  What fails before the rename costs the copy alone; a failed fsync of the
 * directory makes the new file suspect (lmdb-renew.c).
 *
 * The copy is given up when an apply fails, when a writer finds no space (it waits until
 * the copy is gone), when the device is short of space, or when more is applied than it
 * can keep up with; it is tried again after a pause that doubles.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "meta/lmdb-copy-private.h"

/* Beyond the copy this stays free on the device. */
#define ROOM_LEFT_BYTES (64 * VJ_MIB)
/* Steps behind the last key before it is given up. */
#define STEPS_BEHIND_MAX 64u
/* How often readers are made to wait for those of before. */
#define HOLD_TRIES_MAX 64u
/* After one that was given up as long as `shrink=` says, this at least, and doubled each
 * time. */
#define PAUSE_FIRST_US ((int64_t)1 * G_USEC_PER_SEC)
#define PAUSE_MAX_US ((int64_t)3600 * G_USEC_PER_SEC)

/* ---- When -------------------------------------------------------------------------- */

/* Trees and the list of free pages tell what is used, whatever is in that list. */
static uint64_t tree_pages(const VjLmdbTree *t)
{
    return t->branch_pages + t->leaf_pages + t->run_pages;
}

uint64_t vj_lmdb_used_pages(const VjLmdbFile *file)
{
    /* The unnamed tree, of one record for each space, has a page or two. */
    uint64_t pages = VJ_LMDB_META_PAGES + 2 + tree_pages(&file->freelist);

    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        pages += tree_pages(&file->spaces[i]);
    }
    return MIN(pages, file->end_page);
}

bool vj_lmdb_is_mostly_free(const VjLmdb *d, const VjLmdbFile *file)
{
    uint64_t free_pages = file->end_page - vj_lmdb_used_pages(file);

    return free_pages > file->end_page / 2 &&
           free_pages * d->page_bytes > VJ_LMDB_COMPACT_MIN_BYTES;
}

static int64_t due_us(const VjLmdb *d)
{
    const VjLmdbRewrite *r = &d->rewrite;
    int64_t due = INT64_MAX;

    if (r->is_wanted) {
        return 0;
    }
    if (r->free_since_us != 0) {
        due = r->free_since_us + r->wait_us;
    }
    if (r->erase_us != 0 && r->changed_since_us != 0) {
        due = MIN(due, r->changed_since_us + r->erase_us);
    }
    if (due == INT64_MAX) {
        return due;
    }
    /* The old file has no other name until the one before has gone. */
    due = r->erase_tries > 0 ? MAX(due, r->erase_next_us) : due;
    return MAX(due, r->not_before_us);
}

/* The file that could not be overwritten. */
static int64_t erase_due_us(const VjLmdb *d)
{
    return d->rewrite.erase_tries > 0 ? d->rewrite.erase_next_us : INT64_MAX;
}

static gpointer rewrite_main(gpointer opaque);

static bool start_thread(VjLmdb *d) VJ_REQUIRES(&d->lock)
{
    if (d->rewrite.thread == NULL) {
        d->rewrite.thread = g_thread_try_new("vj-meta-shrink", rewrite_main, d, NULL);
    }
    return d->rewrite.thread != NULL;
}

/* Without a thread the next apply tries again. */
static void look_at_changes(VjLmdb *d, bool changed) VJ_REQUIRES(&d->lock)
{
    VjLmdbRewrite *r = &d->rewrite;

    if (changed && r->erase_us != 0 && r->changed_since_us == 0) {
        r->changed_since_us = vj_clock_mono_us();
        if (start_thread(d)) {
            vj_cond_broadcast(&d->changed);
        }
    }
    if (r->erase_tries > 0) { /* what the open could not overwrite */
        (void)start_thread(d);
    }
}

void vj_lmdb_rewrite_look(VjLmdb *d, bool changed)
{
    VjLmdbRewrite *r = &d->rewrite;

    vj_mutex_assert_held(&d->lock);
    look_at_changes(d, changed);
    if (r->wait_us == 0 || !vj_lmdb_is_mostly_free(d, &d->file)) {
        r->free_since_us = 0;
        return;
    }
    if (r->free_since_us != 0) {
        return;
    }
    /* Without a thread the next apply tries again. */
    r->free_since_us = start_thread(d) ? vj_clock_mono_us() : 0;
    vj_cond_broadcast(&d->changed);
}

/* For @bytes more, and for others. */
static int check_room(const VjLmdb *d, uint64_t bytes)
{
    struct statvfs st;

    if (fstatvfs(d->dir_fd, &st) != 0) {
        return -errno;
    }
    return (uint64_t)st.f_bavail * st.f_frsize >= bytes + ROOM_LEFT_BYTES ? 0 : -ENOSPC;
}

/* ---- The copy ---------------------------------------------------------------------- */

static uint64_t notes_bytes(VjLmdb *d)
{
    uint64_t bytes;

    vj_mutex_lock(&d->lock);
    bytes = d->notes->len;
    vj_mutex_unlock(&d->lock);
    return bytes;
}

static int next_step(VjLmdb *d, VjLmdbCopy *c)
{
    int rc = vj_lmdb_rewrite_must_end(d);

    if (rc == 0) {
        rc = check_room(d, 0);
    }
    return rc == 0 ? vj_lmdb_copy_step(c) : rc;
}

/* Until few notes are left. */
static int catch_up(VjLmdb *d, VjLmdbCopy *c)
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && notes_bytes(d) > VJ_LMDB_NOTES_LAST; i++) {
        rc = i < STEPS_BEHIND_MAX ? next_step(d, c) : -EBUSY;
    }
    return rc;
}

static int copy_all(VjLmdb *d, VjLmdbCopy *c)
{
    int rc = vj_lmdb_copy_open(d, c);

    while (rc == 0 && !c->at_end) {
        rc = next_step(d, c);
    }
    if (rc == 0) {
        rc = catch_up(d, c);
    }
    return rc == 0 ? vj_lmdb_copy_examine(c) : rc;
}

/* ---- The exchange ------------------------------------------------------------------ */

/* While a save runs, which may take as long as all of the file does, the copy follows
 * what is applied: else more would be noted than is kept, and the copy lost. */
static int follow_through_save(VjLmdb *d, VjLmdbCopy *c)
{
    bool is_saving = true;
    int rc = 0;

    while (rc == 0 && is_saving) {
        rc = catch_up(d, c);
        vj_mutex_lock(&d->lock);
        while (rc == 0 && d->saving && d->notes->len <= VJ_LMDB_NOTES_LAST) {
            vj_cond_wait(&d->changed, &d->lock); /* an apply, the save, … ended */
            rc = vj_lmdb_rewrite_may_go_on(d);
        }
        is_saving = d->saving;
        vj_mutex_unlock(&d->lock);
    }
    return rc;
}

/* Applies and saves wait from now on.  -EAGAIN: there are too many notes again, or a
 * save. */
static int shut_out_applies(VjLmdb *d)
{
    int rc;

    vj_mutex_lock(&d->lock);
    while ((rc = vj_lmdb_rewrite_may_go_on(d)) == 0 && d->applying) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    if (rc == 0 && d->saving) {
        rc = -EAGAIN;
    } else if (rc == 0) {
        rc = d->notes->len > VJ_LMDB_NOTES_LAST ? -EAGAIN : 0;
        d->exchanging = rc == 0;
    }
    vj_mutex_unlock(&d->lock);
    return rc;
}

static void let_applies_in(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    d->exchanging = false;
    vj_cond_broadcast(&d->changed);
    vj_mutex_unlock(&d->lock);
}

/* Nobody reads, applies, or sets space aside. */
static int put_in_place(VjLmdb *d, VjLmdbCopy *c, uint64_t pages)
{
    int rc, got;

    vj_lmdb_copy_close(c);
    /* The name by which it is found until it has been overwritten. */
    if (d->rewrite.erase_us != 0 &&
        linkat(d->dir_fd, VJ_LMDB_FILE, d->dir_fd, VJ_LMDB_OLD_FILE, 0) != 0) {
        return -errno;
    }
    if (renameat(d->dir_fd, VJ_LMDB_COPY_FILE, d->dir_fd, VJ_LMDB_FILE) != 0) {
        rc = -errno;
        (void)!unlinkat(d->dir_fd, VJ_LMDB_OLD_FILE, 0); /* the next one does */
        return rc;
    }
    do {
        got = dup3(c->fd, d->fd, O_CLOEXEC);
    } while (got < 0 && (errno == EINTR || errno == EBUSY));
    g_assert(got == d->fd);
    rc = vj_lmdb_open_again(d);
    vj_mutex_lock(&d->lock);
    g_atomic_int_set(&d->broken, rc != 0); /* then the next apply opens it */
    d->good_commit = c->commit;
    d->file = c->file;
    d->file_pages = pages;
    d->file_number++;
    vj_mutex_unlock(&d->lock);
    return 0;
}

/* -EAGAIN: a reader was in the way, or a claim of room, which may wait for the device: no
 * reader is to wait for that. */
static int exchange(VjLmdb *d, VjLmdbCopy *c, uint64_t pages)
{
    int rc = -EAGAIN;

    vj_mutex_lock(&d->lock);
    if (vj_lmdb_hold(d, d->rewrite.hold_us)) {
        if (!d->claiming && vj_lmdb_space_suffices(d, &c->file, pages)) {
            d->claims_wait = true;
            vj_mutex_unlock(&d->lock);
            rc = put_in_place(d, c, pages);
            vj_mutex_lock(&d->lock);
            d->claims_wait = false;
        }
        vj_lmdb_let_go(d);
    }
    vj_mutex_unlock(&d->lock);
    return rc;
}

/* What happened before it is not undone by its failure: but nothing is durable until
 * another file has taken the place of this one, and a crash may find the old one. */
static void sync_name(VjLmdb *d)
{
    int rc = fsync(d->dir_fd) != 0 ? -errno : vj_fd_check_alive(d->dir_fd);

    if (rc < 0) {
        vj_mutex_lock(&d->lock);
        vj_lmdb_suspect(d, rc);
        vj_mutex_unlock(&d->lock);
    }
}

/* One try.  -EAGAIN: another one is worth it. */
static int finish(VjLmdb *d, VjLmdbCopy *c)
{
    uint64_t pages = 0;
    int rc = follow_through_save(d, c);

    if (rc == 0) {
        rc = shut_out_applies(d);
    }
    if (rc < 0) {
        return rc;
    }
    rc = vj_lmdb_copy_finish(c);
    if (rc == 0) {
        rc = vj_lmdb_space_carry(d, &c->file, c->fd, &pages);
    }
    if (rc == 0 && fsync(c->fd) != 0) {
        rc = -errno;
    }
    if (rc == 0) {
        rc = exchange(d, c, pages);
    }
    if (rc == 0) {
        sync_name(d);
    }
    let_applies_in(d);
    return rc;
}

static void pause_between_tries(VjLmdb *d)
{
    int64_t until_us = vj_clock_mono_us() + d->rewrite.hold_pause_us;

    vj_mutex_lock(&d->lock);
    while (vj_lmdb_rewrite_may_go_on(d) == 0 &&
           vj_cond_wait_until(&d->changed, &d->lock, until_us)) {
    }
    vj_mutex_unlock(&d->lock);
}

static int finish_some_time(VjLmdb *d, VjLmdbCopy *c)
{
    int rc = -EAGAIN;

    for (unsigned i = 0; rc == -EAGAIN && i < HOLD_TRIES_MAX; i++) {
        if (i > 0) {
            pause_between_tries(d);
        }
        rc = finish(d, c);
    }
    return rc == -EAGAIN ? -EBUSY : rc;
}

/* ---- The thread -------------------------------------------------------------------- */

static uint64_t file_bytes(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

/* False: a crash may find the old file under the engine's name. */
static bool is_name_durable(VjLmdb *d)
{
    bool suspect;

    vj_mutex_lock(&d->lock);
    suspect = d->suspect;
    if (suspect) {
        d->rewrite.changed_since_us = vj_clock_mono_us(); /* the next one erases it */
    }
    vj_mutex_unlock(&d->lock);
    return !suspect;
}

/* Bytes that the device got back are in *freed. */
static int rewrite(VjLmdb *d, uint64_t used_bytes, uint64_t *freed)
{
    VJ_AUTO_FD old = fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
    VjLmdbCopy c = {.d = d, .fd = -1};
    uint64_t before, after;
    int rc;

    if (old < 0) {
        return -errno;
    }
    before = file_bytes(d->fd);
    rc = check_room(d, used_bytes + d->reserve_bytes);
    if (rc == 0 && !is_name_durable(d)) {
        rc = -ECANCELED;
    }
    if (rc < 0) {
        return rc;
    }
    if (d->rewrite.erase_us != 0) {
        vj_lmdb_erase_file(d, VJ_LMDB_OLD_FILE); /* of a failure */
        if (vj_lmdb_erase_is_left(d)) {
            return -EEXIST;
        }
    }
    rc = vj_lmdb_check(d);
    if (rc < 0) {
        return rc;
    }
    rc = copy_all(d, &c);
    if (rc == 0) {
        rc = finish_some_time(d, &c);
    }
    if (rc == 0) {
        vj_fd_close(&c.fd);
        after = file_bytes(d->fd);
        *freed = before - MIN(before, after);
    }
    vj_lmdb_copy_discard(&c);
    if (rc == 0 && d->rewrite.erase_us != 0 && is_name_durable(d)) {
        vj_lmdb_erase_file(d, VJ_LMDB_OLD_FILE);
    }
    return rc; /* only now the blocks of the old file go, while nobody waits */
}

static void rewritten(VjLmdb *d, uint64_t freed) VJ_REQUIRES(&d->lock)
{
    VjLmdbRewrite *r = &d->rewrite;

    r->times++;
    r->freed_bytes += freed;
    r->pause_us = 0;
    r->last_error = 0;
    r->free_since_us = 0;
    vj_log_info("meta lmdb: %s: written anew without its free pages, while mounted: "
                "%" G_GUINT64_FORMAT " KiB given back",
                d->path, freed / 1024);
}

static const char *reason(int rc)
{
    return rc == -EBUSY    ? "too much is changed or read meanwhile"
           : rc == -EEXIST ? VJ_LMDB_OLD_FILE " is there still"
                           : g_strerror(-rc);
}

static void given_up(VjLmdb *d, int rc) VJ_REQUIRES(&d->lock)
{
    VjLmdbRewrite *r = &d->rewrite;

    r->pause_us =
        MIN(MAX(r->pause_us * 2, MAX(r->wait_us, PAUSE_FIRST_US)), PAUSE_MAX_US);
    r->not_before_us = vj_clock_mono_us() + r->pause_us;
    if (rc != r->last_error && rc != -ECANCELED) {
        r->last_error = rc;
        vj_log_warn("meta lmdb: %s: the file keeps its size%s: %s", d->path,
                    rc == -EBADMSG ? " until fsck.varjfs has repaired it"
                                   : ", and is written anew later",
                    reason(rc));
    }
    if (rc == -EBADMSG) {
        r->wait_us = 0; /* fsck.varjfs is needed first */
        r->free_since_us = 0;
    }
}

static void rewrite_now(VjLmdb *d) VJ_REQUIRES(&d->lock)
{
    VjLmdbRewrite *r = &d->rewrite;
    uint64_t used_bytes = vj_lmdb_used_pages(&d->file) * d->page_bytes, freed = 0;
    int64_t since_us = r->changed_since_us;
    int rc;

    r->runs = true;
    r->is_wanted = r->yields = false;
    r->changed_since_us = 0; /* what is changed from now on is for the next one */
    vj_mutex_unlock(&d->lock);
    rc = rewrite(d, used_bytes, &freed);
    vj_mutex_lock(&d->lock);
    r->runs = false;
    if (rc == 0) {
        rewritten(d, freed);
    } else {
        given_up(d, rc);
        r->changed_since_us = since_us != 0 ? since_us : r->changed_since_us;
    }
    vj_cond_broadcast(&d->changed);
}

static gpointer rewrite_main(gpointer opaque)
{
    VjLmdb *d = opaque;

    vj_mutex_lock(&d->lock);
    while (!d->rewrite.stopping) {
        int64_t until_us = MIN(due_us(d), erase_due_us(d));

        if (due_us(d) <= vj_clock_mono_us()) {
            rewrite_now(d);
        } else if (until_us <= vj_clock_mono_us()) {
            vj_mutex_unlock(&d->lock);
            vj_lmdb_erase_file(d, VJ_LMDB_OLD_FILE);
            vj_mutex_lock(&d->lock);
        } else if (until_us < INT64_MAX) {
            (void)vj_cond_wait_until(&d->changed, &d->lock, until_us);
        } else {
            vj_cond_wait(&d->changed, &d->lock);
        }
    }
    vj_mutex_unlock(&d->lock);
    return NULL;
}

void vj_lmdb_rewrite_stop(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    d->rewrite.stopping = true;
    vj_cond_broadcast(&d->changed);
    vj_mutex_unlock(&d->lock);
    if (d->rewrite.thread != NULL) {
        g_thread_join(d->rewrite.thread);
        d->rewrite.thread = NULL;
    }
}

void vj_lmdb_rewrite_last(VjLmdb *d)
{
    VjLmdbRewrite *r = &d->rewrite;

    g_assert(r->thread == NULL);
    vj_mutex_lock(&d->lock);
    r->stopping = false;
    if (r->erase_us != 0 && r->changed_since_us != 0 && !d->suspect) {
        rewrite_now(d);
    }
    vj_mutex_unlock(&d->lock);
}

void vj_lmdb_rewritten(VjEngine *e, VjEngineRewrites *out)
{
    VjLmdb *d = (VjLmdb *)e;

    vj_mutex_lock(&d->lock);
    *out = (VjEngineRewrites){.times = d->rewrite.times,
                              .freed_bytes = d->rewrite.freed_bytes,
                              .erasures_waiting = d->rewrite.erase_tries > 0,
                              .erasures_given_up = d->rewrite.erasures_given_up};
    vj_mutex_unlock(&d->lock);
}

/* ---- Tests ----------------------------------------------------------------------- */

void vj_lmdb_rewrite_for_test(VjEngine *e)
{
    VjLmdb *d = (VjLmdb *)e;

    g_assert(e->ops == &vj_engine_lmdb_ops);
    vj_mutex_lock(&d->lock);
    d->rewrite.runs = start_thread(d);
    g_assert(d->rewrite.runs);
    d->rewrite.is_wanted = true;
    vj_cond_broadcast(&d->changed);
    while (d->rewrite.runs) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    vj_mutex_unlock(&d->lock);
}
