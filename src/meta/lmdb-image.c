/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-image.c - a file of the lmdb driver from outside: examined, copied, put back
 *
 * A copy (save) is an LMDB file: the pages that one commit reaches, at their places, and
 * holes where the others were.  The pages are found by the walk that examines a file too,
 * so what is copied is known to be readable.  While it runs a read transaction keeps LMDB
 * from using those pages again; what is freed meanwhile does not count as free
 * (first_kept in lmdb-space.c), so that the file grows by what is written meanwhile.  A
 * writer that runs out of space stops the copy before it gives up.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/lmdb-private.h"
#include "meta/lmdb-walk.h"

/* Pages are copied in pieces of so many bytes, and synced after some of them, so that a
 * sync by another process does not have to write all of it. */
#define PIECE_BYTES VJ_MIB
#define SYNC_BYTES (16 * VJ_MIB)
/* The commit that a reader got is not in the file any more when two others came at
 * once. */
#define SNAPSHOT_TRIES 100u

/* ---- examine ----------------------------------------------------------------------- */

static void exam_of(const VjLmdbWalk *w, VjMetaExam *out)
{
    *out = (VjMetaExam){
        .flaws = w->flaws,
        .commit = w->meta.commit,
        .entries = w->entries,
        .used_bytes = w->used_pages * w->page_bytes,
        .total_bytes = w->end_page * w->page_bytes,
    };
}

/* The file below @place; -EOPNOTSUPP: what stands there is none, which opening it
 * reports. */
static int open_own(const VjMetaPlace *place)
{
    int fd = openat(place->dir_fd, VJ_LMDB_FILE,
                    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0) {
        return errno == ELOOP || errno == ENXIO ? -EOPNOTSUPP : -errno;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -EOPNOTSUPP;
    }
    return fd;
}

typedef struct OfFile {
    VjMetaFlaw *say;
    void *opaque;
} OfFile;

static void say_of_file(void *opaque, const char *text)
{
    const OfFile *of = opaque;
    g_autofree char *line = g_strdup_printf(VJ_LMDB_FILE ": %s", text);

    of->say(of->opaque, line);
}

/* The walk reads here and there: all of it is on its way. */
static void read_ahead(int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && vj_lmdb_fits_memory((uint64_t)st.st_size)) {
        vj_fd_read_ahead(fd, 0, (uint64_t)st.st_size);
    }
}

int vj_lmdb_examine(const VjMetaPlace *place, int fd, VjMetaFlaw *say, void *opaque,
                    VjMetaExam *out)
{
    OfFile of = {say, opaque};
    VJ_AUTO_FD own = -1;
    VjLmdbWalk w;
    int rc;

    if (fd < 0) {
        fd = open_own(place);
        if (fd < 0) {
            return fd;
        }
        own = fd;
        vj_fd_drop_pages(own);
    }
    read_ahead(fd);
    rc = own >= 0 && say != NULL
             ? vj_lmdb_walk(fd, UINT64_MAX, say_of_file, NULL, &of, &w)
             : vj_lmdb_walk(fd, UINT64_MAX, say, NULL, opaque, &w);
    exam_of(&w, out);
    vj_lmdb_walk_clear(&w);
    return rc == 0 && own >= 0 && out->flaws == 0
               ? vj_lmdb_log_examine(place, say, opaque, out)
               : rc;
}

/* ---- save -------------------------------------------------------------------------- */

/* Of a save. */
static int must_end(void *opaque)
{
    VjLmdb *d = opaque;
    int rc;

    vj_mutex_lock(&d->lock);
    rc = d->save_yields ? -ENOSPC : 0;
    vj_mutex_unlock(&d->lock);
    return rc;
}

/* Of the examination before the file is written anew. */
static int check_must_end(void *opaque)
{
    int rc = vj_lmdb_rewrite_must_end(opaque);

    return rc < 0 ? rc : must_end(opaque) < 0 ? -ECANCELED : 0;
}

/* Pages from now on stay until save_end.  @is_check: before the file is written anew. */
static int save_begin(VjLmdb *d, bool is_check)
{
    MDB_envinfo info;
    int rc = 0;

    vj_mutex_lock(&d->lock);
    while ((!is_check || (rc = vj_lmdb_rewrite_may_go_on(d)) == 0) &&
           (d->saving || d->exchanging)) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    if (rc == 0 &&
        (g_atomic_int_get(&d->broken) != 0 || g_atomic_int_get(&d->reopening) != 0)) {
        rc = -EIO;
    }
    if (rc == 0 && mdb_env_info(d->env, &info) != 0) {
        rc = -EIO;
    }
    if (rc == 0) {
        d->saving = true;
        d->save_yields = false;
        d->pin = MAX(info.me_last_txnid, 1);
    }
    vj_mutex_unlock(&d->lock);
    return rc;
}

static void save_end(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    d->saving = false;
    d->pin = 0;
    vj_cond_broadcast(&d->changed);
    vj_mutex_unlock(&d->lock);
}

void vj_lmdb_save_yield(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    while (d->saving) {
        d->save_yields = true;
        vj_cond_wait(&d->changed, &d->lock);
    }
    vj_mutex_unlock(&d->lock);
}

static void log_flaw(void *opaque, const char *text)
{
    const VjLmdb *d = opaque;

    vj_log_error("meta lmdb: %s/" VJ_LMDB_FILE ": %s", d->path, text);
}

/* Every page that the save's transaction sees, once it has been renewed. */
static int snapshot(VjLmdb *d, VjLmdbWalkAsk *ask, VjLmdbWalk *w)
{
    int rc = -ESTALE;

    *w = (VjLmdbWalk){0};
    for (unsigned tries = 0; rc == -ESTALE && tries < SNAPSHOT_TRIES; tries++) {
        vj_lmdb_walk_clear(w);
        mdb_txn_reset(d->save_txn);
        rc = mdb_txn_renew(d->save_txn);
        if (rc != 0) {
            return vj_lmdb_errno(d, rc, "mdb_txn_renew");
        }
        rc = vj_lmdb_walk(d->fd, mdb_txn_id(d->save_txn), log_flaw, ask, d, w);
    }
    if (rc == 0 && w->flaws > 0) {
        rc = -EBADMSG;
    }
    return rc == -ESTALE ? -EIO : rc;
}

/* Both meta pages say the same; LMDB takes the one with the larger number. */
void vj_lmdb_metas_encode(const VjLmdbWalk *w, uint8_t *pages)
{
    uint64_t commit = w->meta.commit;

    for (uint64_t i = 0; i < VJ_LMDB_META_PAGES; i++) {
        VjLmdbPageHead head = {.number = i, .flags = VJ_LMDB_META};
        VjLmdbMetaRecord record = w->meta;

        record.commit = commit == 0 || commit % 2 == i ? commit : commit - 1;
        memcpy(pages + i * w->page_bytes, &head, sizeof head);
        memcpy(pages + i * w->page_bytes + sizeof head, &record, sizeof record);
    }
}

static int write_metas(const VjLmdbWalk *w, int fd)
{
    size_t len = (size_t)VJ_LMDB_META_PAGES * w->page_bytes;
    g_autofree uint8_t *pages = g_malloc0(len);
    struct iovec iov = {.iov_base = pages, .iov_len = len};

    vj_lmdb_metas_encode(w, pages);
    return vj_fd_pwritev_all(fd, &iov, 1, 0);
}

/* The next run of used pages from @page on, not longer than a piece.  0: there is
 * none. */
static uint64_t next_run(const VjLmdbWalk *w, uint64_t *page)
{
    uint64_t most = MAX(PIECE_BYTES / w->page_bytes, 1), count = 0;

    while (*page < w->end_page && !vj_lmdb_bit(w->used, *page)) {
        (*page)++;
    }
    while (*page + count < w->end_page && count < most &&
           vj_lmdb_bit(w->used, *page + count)) {
        count++;
    }
    return count;
}

static int copy_pages(VjLmdb *d, const VjLmdbWalk *w, int fd)
{
    g_autofree uint8_t *piece = g_try_malloc(MAX(PIECE_BYTES, w->page_bytes));
    uint64_t page = VJ_LMDB_META_PAGES, count, unsynced = 0;
    int rc = piece == NULL ? -ENOMEM : 0;

    while (rc == 0 && (count = next_run(w, &page)) > 0) {
        struct iovec iov = {.iov_base = piece, .iov_len = count * w->page_bytes};

        rc = must_end(d);
        if (rc == 0) {
            rc = vj_fd_pread_all(d->fd, piece, iov.iov_len, page * w->page_bytes);
        }
        if (rc == 0) {
            rc = vj_fd_pwritev_all(fd, &iov, 1, page * w->page_bytes);
        }
        page += count;
        unsynced += iov.iov_len;
        if (rc == 0 && unsynced >= SYNC_BYTES) {
            unsynced = 0;
            rc = fdatasync(fd) == 0 ? 0 : -errno;
        }
    }
    return rc;
}

int vj_lmdb_check(VjLmdb *d)
{
    VjLmdbWalk w = {0};
    int rc = save_begin(d, true);

    if (rc < 0) {
        return rc;
    }
    rc = snapshot(d, check_must_end, &w);
    mdb_txn_reset(d->save_txn);
    vj_lmdb_walk_clear(&w);
    save_end(d);
    return rc;
}

int vj_lmdb_save(VjEngine *e, int fd, VjMetaSaved *out)
{
    VjLmdb *d = (VjLmdb *)e;
    VjLmdbWalk w = {0};
    int rc = save_begin(d, false);

    *out = (VjMetaSaved){0};
    if (rc < 0) {
        return rc;
    }
    rc = snapshot(d, must_end, &w);
    if (rc == 0) {
        out->bytes = w.end_page * w.page_bytes;
        out->used_bytes = w.used_pages * w.page_bytes;
        out->commit = w.meta.commit;
        rc = copy_pages(d, &w, fd);
    }
    if (rc == 0) {
        rc = write_metas(&w, fd);
    }
    if (rc == 0 && ftruncate(fd, (off_t)out->bytes) != 0) {
        rc = -errno;
    }
    mdb_txn_reset(d->save_txn);
    vj_lmdb_walk_clear(&w);
    save_end(d);
    return rc == -EDQUOT || rc == -EFBIG ? -ENOSPC : rc;
}

/* ---- restore ----------------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

/* Holes stay holes. */
static int copy_file(int from, int to, uint64_t bytes)
{
    g_autofree uint8_t *piece = g_malloc(PIECE_BYTES);
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < bytes; at += PIECE_BYTES) {
        size_t len = (size_t)MIN(PIECE_BYTES, bytes - at);
        struct iovec iov = {.iov_base = piece, .iov_len = len};

        rc = vj_fd_pread_all(from, piece, len, at);
        if (rc == 0 && !is_zero(piece, len)) {
            rc = vj_fd_pwritev_all(to, &iov, 1, at);
        }
    }
    if (rc == 0 && (ftruncate(to, (off_t)bytes) != 0 || fsync(to) != 0)) {
        rc = -errno;
    }
    return rc;
}

static bool make_new(const VjMetaPlace *place, int fd, uint64_t bytes, GError **error)
{
    VJ_AUTO_FD new_fd = openat(place->dir_fd, VJ_LMDB_NEW_FILE,
                               O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    VjMetaExam exam;
    int rc;

    if (new_fd < 0) {
        return vj_error_set_errno(error, errno, "%s/" VJ_LMDB_NEW_FILE, place->path);
    }
    rc = copy_file(fd, new_fd, bytes);
    if (rc == 0) {
        rc = vj_lmdb_examine(place, new_fd, NULL, NULL, &exam);
    }
    if (rc == 0 && exam.flaws > 0) {
        rc = -EBADMSG;
    }
    if (rc == 0) {
        rc = vj_lmdb_log_forget(place->dir_fd, VJ_LMDB_NEW_FILE, bytes);
    }
    return rc == 0 || vj_error_set_errno(error, -rc, "%s/" VJ_LMDB_NEW_FILE, place->path);
}

/* "data.mdb.damaged-1" and "redo.log.damaged-1". */
static bool keep_log(int dir, const char *keep)
{
    const char *end =
        g_str_has_prefix(keep, VJ_LMDB_FILE) ? keep + strlen(VJ_LMDB_FILE) : keep;
    g_autofree char *name =
        g_strdup_printf(VJ_REDO_FILE "%s%s", end == keep ? "." : "", end);

    return renameat(dir, VJ_REDO_FILE, dir, name) == 0 || errno == ENOENT;
}

static bool swap_in(const VjMetaPlace *place, const char *keep, bool *replaced,
                    GError **error)
{
    int dir = place->dir_fd;

    if (linkat(dir, VJ_LMDB_FILE, dir, keep, 0) != 0 && errno != ENOENT) {
        return vj_error_set_errno(error, errno, "%s/%s", place->path, keep);
    }
    *replaced =
        fsync(dir) == 0 && renameat(dir, VJ_LMDB_NEW_FILE, dir, VJ_LMDB_FILE) == 0;
    /* The log goes with the file that it belongs to; the new one needs none. */
    return (*replaced && keep_log(dir, keep) && fsync(dir) == 0) ||
           vj_error_set_errno(error, errno, "%s/" VJ_LMDB_FILE, place->path);
}

bool vj_lmdb_restore(const VjMetaPlace *place, int fd, uint64_t bytes, const char *keep,
                     bool *replaced, GError **error)
{
    if (make_new(place, fd, bytes, error) && swap_in(place, keep, replaced, error)) {
        return true;
    }
    (void)!unlinkat(place->dir_fd, VJ_LMDB_NEW_FILE, 0); /* the next mount tries again */
    return false;
}
