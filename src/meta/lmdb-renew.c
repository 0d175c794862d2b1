/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-renew.c - a new file after a write or a sync of the old one failed
 *
 * The kernel takes a page for clean when writing it back has failed.  The same bytes
 * written to the same place again, and synced without an error, may then never reach the
 * device: ext4 forgets that such a block of a fallocated file still counts as unwritten,
 * and it reads as zeroes after the next mount.  So after any failure nothing is written
 * to that file any more (it is suspect), and the last commit that succeeded, which no
 * failed write has touched (LMDB never writes over the pages of its last commit), is
 * brought into a new file:
 *
 * 1. the pages of that commit, found and checked by the walk, at their places; every
 *    other byte is written as zero, so that no block of the file is left unwritten;
 * 2. fsync; what is read back, past the page cache, is compared with what was written;
 * 3. rename over the old name, fsync of the directory: only now the old file is given up;
 * 4. LMDB opens the new file.  What was to be moved is moved again, from memory.
 *
 * A power cut finds one of the two files under the name, whole, with the same commit (the
 * old one may have the one that failed besides, where that reached the device after all),
 * and the log that goes with it: no round of the log is used again before a move into the
 * new file has succeeded.  A step that fails is no reason to go on from there: the next
 * try makes another file.  Until then no flush reports anything as durable but what the
 * log has taken, and readers go on with the old file, whose pages are in memory or on the
 * device as they were.
 *
 * The driver has a descriptor of its own on the file, opened apart from LMDB's: the
 * kernel reports a failed write-back once to each of them, so that neither takes the
 * report from the other.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "meta/lmdb-private.h"
#include "meta/lmdb-walk.h"

#define PIECE_BYTES VJ_MIB
/* What O_DIRECT may ask of a buffer. */
#define BUFFER_ALIGN 4096u

typedef struct Renewal {
    VjLmdb *d;
    VjLmdbWalk walk;
    uint64_t bytes; /* of the new file */
    uint8_t *piece; /* owned */
    uint64_t *sums; /* of each piece, as it was written; owned */
} Renewal;

static void log_flaw(void *opaque, const char *text)
{
    const VjLmdb *d = opaque;

    vj_log_error("meta lmdb: %s/" VJ_LMDB_FILE ": %s", d->path, text);
}

void vj_lmdb_suspect(VjLmdb *d, int rc)
{
    vj_mutex_assert_held(&d->lock);
    if (!d->suspect) {
        d->suspect = true;
        d->renew_us = vj_clock_mono_us() + VJ_LMDB_RENEW_PAUSE_US;
        vj_log_error(
            "meta lmdb: %s/" VJ_LMDB_FILE
            ": a write failed: %s; it is not written to any more, a new file takes"
            " its place",
            d->path, g_strerror(-rc));
    }
}

bool vj_lmdb_write_was_lost(VjLmdb *d, int rc)
{
    if (rc == -ENOMEM) {
        return false;
    }
    /* Without space LMDB may have been refused before anything was lost. */
    return rc != -ENOSPC || fdatasync(d->fd) != 0;
}

/* ---- The new file ------------------------------------------------------------------ */

static size_t piece_bytes(const Renewal *r, uint64_t at)
{
    return (size_t)MIN(PIECE_BYTES, r->bytes - at);
}

/* The pages of the commit that lie in the piece; zeroes around them. */
static int fill_piece(Renewal *r, uint64_t at)
{
    uint64_t page_bytes = r->walk.page_bytes, page = at / page_bytes;
    uint64_t end = MIN(page + piece_bytes(r, at) / page_bytes, r->walk.end_page);
    int rc = 0;

    memset(r->piece, 0, PIECE_BYTES);
    while (rc == 0 && page < end) {
        uint64_t count = 0;

        while (page + count < end && page >= VJ_LMDB_META_PAGES &&
               vj_lmdb_bit(r->walk.used, page + count)) {
            count++;
        }
        if (count > 0) {
            rc = vj_fd_pread_all(r->d->fd, r->piece + (page * page_bytes - at),
                                 count * page_bytes, page * page_bytes);
        }
        page += MAX(count, 1);
    }
    if (rc == 0 && at == 0) {
        vj_lmdb_metas_encode(&r->walk, r->piece);
    }
    return rc;
}

static int write_pieces(Renewal *r, int fd)
{
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < r->bytes; at += PIECE_BYTES) {
        struct iovec iov = {.iov_base = r->piece, .iov_len = piece_bytes(r, at)};

        rc = fill_piece(r, at);
        if (rc == 0) {
            r->sums[at / PIECE_BYTES] = vj_checksum64(r->piece, iov.iov_len);
            rc = vj_fd_pwritev_all(fd, &iov, 1, at);
        }
    }
    return rc == 0 && fsync(fd) != 0 ? -errno : rc;
}

/* From the device: what the page cache has says nothing. */
static int compare_pieces(Renewal *r, int fd)
{
    int flags = fcntl(fd, F_GETFL), rc = 0;

    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)!fcntl(fd, F_SETFL, flags | O_DIRECT);
    for (uint64_t at = 0; rc == 0 && at < r->bytes; at += PIECE_BYTES) {
        size_t len = piece_bytes(r, at);

        rc = vj_fd_pread_all(fd, r->piece, len, at);
        if (rc == -EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
            /* The device wants larger blocks, or there is nothing of the kind. */
            (void)!fcntl(fd, F_SETFL, flags);
            rc = vj_fd_pread_all(fd, r->piece, len, at);
        }
        if (rc == 0 && vj_checksum64(r->piece, len) != r->sums[at / PIECE_BYTES]) {
            rc = -EIO;
        }
    }
    return rc;
}

static int make_file(Renewal *r)
{
    VJ_AUTO_FD fd = -1;
    int dir = r->d->dir_fd, rc;

    if (unlinkat(dir, VJ_LMDB_NEW_FILE, 0) != 0 && errno != ENOENT) {
        return -errno;
    }
    fd = openat(dir, VJ_LMDB_NEW_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                0600);
    if (fd < 0) {
        return -errno;
    }
    rc = write_pieces(r, fd);
    if (rc == 0) {
        rc = compare_pieces(r, fd);
    }
    if (rc == 0 &&
        (renameat(dir, VJ_LMDB_NEW_FILE, dir, VJ_LMDB_FILE) != 0 || fsync(dir) != 0)) {
        rc = -errno;
    }
    if (rc == 0) {
        rc = vj_fd_check_alive(dir);
    }
    if (rc < 0) {
        (void)!unlinkat(dir, VJ_LMDB_NEW_FILE, 0); /* the next try does it again */
    }
    return rc;
}

/* The good commit in a file of @pages pages, under the name, durable. */
static int renew_file(VjLmdb *d, uint64_t pages)
{
    Renewal r = {.d = d};
    void *room = NULL;
    int rc = vj_lmdb_walk(d->fd, d->good_commit, log_flaw, NULL, d, &r.walk);

    if (rc == 0 && r.walk.flaws > 0) {
        rc = -EBADMSG;
    }
    if (rc == 0) {
        r.bytes = MAX(pages, r.walk.end_page) * d->page_bytes;
        r.sums = g_try_new(uint64_t, r.bytes / PIECE_BYTES + 1);
        r.piece = posix_memalign(&room, BUFFER_ALIGN, PIECE_BYTES) == 0 ? room : NULL;
        rc = r.sums == NULL || r.piece == NULL ? -ENOMEM : make_file(&r);
    }
    free(r.piece);
    g_free(r.sums);
    vj_lmdb_walk_clear(&r.walk);
    return rc;
}

/* ---- When -------------------------------------------------------------------------- */

static void renewed(VjLmdb *d, uint64_t pages, const VjLmdbFile *file)
    VJ_REQUIRES(&d->lock)
{
    d->suspect = false;
    d->file_number++;
    d->file_pages = MAX(pages, file->end_page);
    vj_lmdb_file_update(d, file);
    vj_log_warn(
        "meta lmdb: %s/" VJ_LMDB_FILE
        ": a new file has taken its place; what was not durable yet is written to it",
        d->path);
}

/* What was set aside in the old file while the new one was made. */
static void follow_space(VjLmdb *d, uint64_t before) VJ_REQUIRES(&d->lock)
{
    uint64_t pages = d->file_pages;
    int rc;

    if (before <= pages) {
        return;
    }
    vj_mutex_unlock(&d->lock);
    rc = vj_lmdb_space_follow(d, pages, before);
    vj_mutex_lock(&d->lock);
    if (rc == 0) {
        d->file_pages = MAX(d->file_pages, before);
    }
}

int vj_lmdb_renew(VjLmdb *d)
{
    int64_t begun_us = vj_clock_mono_us(), now_us;
    uint64_t pages = d->file_pages, before;
    VjLmdbFile file;
    int rc;

    g_assert(d->suspect);
    vj_mutex_unlock(&d->lock);
    rc = renew_file(d, pages);
    vj_mutex_lock(&d->lock);
    if (rc == 0) {
        rc = vj_lmdb_reopen(d);
    }
    if (rc == 0) {
        vj_mutex_unlock(&d->lock);
        rc = vj_lmdb_file_measure(d, &file);
        vj_mutex_lock(&d->lock);
    }
    if (rc == 0) {
        before = d->file_pages;
        renewed(d, pages, &file);
        follow_space(d, before);
        return 0;
    }
    /* At most as much time is spent on this as is left in peace. */
    now_us = vj_clock_mono_us();
    d->renew_us = now_us + MAX(VJ_LMDB_RENEW_PAUSE_US, now_us - begun_us);
    vj_log_error("meta lmdb: %s/" VJ_LMDB_NEW_FILE
                 ": %s; nothing is durable until it can be "
                 "made",
                 d->path, g_strerror(-rc));
    return rc == -ENOSPC || rc == -EDQUOT ? -ENOSPC : rc == -ENOMEM ? rc : -EIO;
}
