/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-copy.c - the keys of the file in another one, while the first is written to
 *
 * The copy is a second environment of LMDB, filled in the order of the keys, a step at a
 * time: a step takes a snapshot, goes on where the last one ended, and is one synchronous
 * commit.  So no page of the file is kept from being used again for longer than a step
 * reads, and the copy can be given up at any of them.
 *
 * What is applied meanwhile is noted, the keys alone, after the commit and before apply
 * ends.  A step takes the notes that there are and then its snapshot, which sees at least
 * what they are of.  A noted key that the copy has passed is read again, and put or
 * deleted; one that it has not passed is left out, as it is read when the copy comes
 * there.  So when the copy is at its end, no apply runs, and no note is left, both files
 * have the same keys and values.
 *
 * After an apply that failed it is not known which state a snapshot sees: the notes are
 * void then, and the copy with them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "meta/lmdb-copy-private.h"
#include "meta/lmdb-walk.h"

/* Keys and values of a step, at least; LMDB has as much in memory until the commit. */
#define STEP_BYTES (2 * VJ_MIB)
/* Notes of a step, at most: LMDB may have a page in memory for each of them. */
#define STEP_NOTES_BYTES (256 * VJ_KIB)
G_STATIC_ASSERT(STEP_NOTES_BYTES >= VJ_LMDB_NOTES_LAST);
/* A note is the space, the length of the key in two bytes, and the key. */
#define NOTE_HEAD_BYTES 3u

/* ---- Notes ------------------------------------------------------------------------- */

static void notes_begin(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    g_assert(d->notes == NULL);
    d->notes = g_byte_array_new();
    d->notes_error = 0;
    vj_mutex_unlock(&d->lock);
}

static void notes_end(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    g_clear_pointer(&d->notes, g_byte_array_unref);
    vj_mutex_unlock(&d->lock);
}

/* The note at *@at of @notes; false behind the last one. */
static bool next_note(const GByteArray *notes, guint *at, VjSpace *space, VjSlice *key)
{
    const uint8_t *head = notes->data + *at;

    if (*at == notes->len) {
        return false;
    }
    *space = (VjSpace)head[0];
    *key = vj_slice(head + NOTE_HEAD_BYTES, head[1] | (size_t)head[2] << 8);
    *at += NOTE_HEAD_BYTES + (guint)key->len;
    g_assert(*at <= notes->len);
    return true;
}

/* Bytes of the first notes, @most at most. */
static guint whole_notes(const GByteArray *notes, guint most)
{
    VjSpace space;
    VjSlice key;
    guint at = 0, end = 0;

    while (next_note(notes, &at, &space, &key) && at <= most) {
        end = at;
    }
    return end;
}

/* 0 and the first of those that there are; the others, and what is noted from now on, are
 * for later steps. */
static int take_notes(VjLmdb *d, GByteArray **out)
{
    guint len;
    int rc;

    vj_mutex_lock(&d->lock);
    rc = d->notes_error;
    *out = NULL;
    if (rc == 0) {
        *out = d->notes;
        d->notes = g_byte_array_new();
        if ((*out)->len > STEP_NOTES_BYTES) {
            len = whole_notes(*out, STEP_NOTES_BYTES);
            g_byte_array_append(d->notes, (*out)->data + len, (*out)->len - len);
            g_byte_array_set_size(*out, len);
        }
    }
    vj_mutex_unlock(&d->lock);
    return rc;
}

void vj_lmdb_notes_spoil(VjLmdb *d)
{
    vj_mutex_assert_held(&d->lock);
    d->notes_error = -ECANCELED;
}

static void add_note(GByteArray *notes, const VjChange *change)
{
    const uint8_t head[NOTE_HEAD_BYTES] = {(uint8_t)change->space,
                                           (uint8_t)(change->key.len & 0xff),
                                           (uint8_t)(change->key.len >> 8)};

    g_byte_array_append(notes, head, sizeof head);
    g_byte_array_append(notes, change->key.data, (guint)change->key.len);
}

static bool notes_are_wanted(VjLmdb *d)
{
    bool wanted;

    vj_mutex_lock(&d->lock);
    wanted = d->notes != NULL && d->notes_error == 0;
    vj_mutex_unlock(&d->lock);
    return wanted;
}

void vj_lmdb_notes_add(VjLmdb *d, const VjBatch *batch)
{
    g_autoptr(GByteArray) more = NULL;
    const void *at = NULL;
    VjChange change;

    if (!notes_are_wanted(d)) {
        return;
    }
    more = g_byte_array_new();
    while (more->len <= VJ_LMDB_NOTES_MAX && batch->next(batch, &at, &change)) {
        add_note(more, &change);
    }
    vj_mutex_lock(&d->lock);
    if (d->notes != NULL) {
        if (d->notes->len + more->len > VJ_LMDB_NOTES_MAX) {
            d->notes_error = -EBUSY;
        } else {
            g_byte_array_append(d->notes, more->data, more->len);
        }
    }
    vj_mutex_unlock(&d->lock);
}

/* ---- The other file ---------------------------------------------------------------- */

/* A failure of it says nothing of the file that is copied. */
static int copy_errno(const VjLmdbCopy *c, int rc, const char *call)
{
    if (rc == 0) {
        return 0;
    }
    if (rc == ENOSPC || rc == EDQUOT || rc == EFBIG || rc == MDB_MAP_FULL) {
        return -ENOSPC;
    }
    if (rc != EIO && rc != ENOMEM) {
        vj_log_error("meta lmdb: %s/" VJ_LMDB_COPY_FILE ": %s: %s", c->d->path, call,
                     mdb_strerror(rc));
    }
    return rc == ENOMEM ? -ENOMEM : -EIO;
}

/* An LMDB code. */
static int make_databases(VjLmdbCopy *c)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(c->env, NULL, 0, &txn);

    if (rc != 0) {
        return rc;
    }
    rc = mdb_dbi_open(txn, NULL, 0, &c->unnamed);
    for (unsigned i = 0; rc == 0 && i < VJ_SPACE_COUNT; i++) {
        char name[8];

        rc = mdb_dbi_open(txn, vj_lmdb_space_name(i, name), MDB_CREATE, &c->dbi[i]);
    }
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    return mdb_txn_commit(txn);
}

/* In a file that it makes itself LMDB notes how it was opened, by a name of its own. */
static int write_empty(VjLmdbCopy *c, uint64_t map_bytes)
{
    uint32_t page_bytes = c->d->page_bytes;
    VjLmdbWalk w = {.page_bytes = page_bytes,
                    .meta = {.magic = VJ_LMDB_MAGIC,
                             .version = VJ_LMDB_DATA_VERSION,
                             .map_bytes = map_bytes,
                             .free = {.page_bytes = page_bytes,
                                      .flags = VJ_LMDB_INTEGER_KEYS,
                                      .root = VJ_LMDB_NO_PAGE},
                             .main = {.root = VJ_LMDB_NO_PAGE},
                             .last_page = VJ_LMDB_META_PAGES - 1}};
    size_t len = (size_t)VJ_LMDB_META_PAGES * page_bytes;
    g_autofree uint8_t *pages = g_malloc0(len);
    struct iovec iov = {.iov_base = pages, .iov_len = len};

    vj_lmdb_metas_encode(&w, pages);
    return vj_fd_pwritev_all(c->fd, &iov, 1, 0);
}

/* An LMDB code. */
static int open_env(VjLmdbCopy *c, uint64_t map_bytes)
{
    g_autofree char *path =
        g_strdup_printf("/proc/self/fd/%d/" VJ_LMDB_COPY_FILE, c->d->dir_fd);
    int rc = mdb_env_create(&c->env);

    if (rc != 0) {
        c->env = NULL;
        return rc;
    }
    rc = mdb_env_set_mapsize(c->env, map_bytes);
    if (rc == 0) {
        rc = mdb_env_set_maxdbs(c->env, VJ_SPACE_COUNT);
    }
    if (rc == 0) {
        rc = mdb_env_open(c->env, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS, 0600);
    }
    return rc == 0 ? make_databases(c) : rc;
}

int vj_lmdb_copy_open(VjLmdb *d, VjLmdbCopy *c)
{
    uint64_t map_bytes;
    int rc;

    *c = (VjLmdbCopy){.d = d, .fd = -1};
    notes_begin(d);
    if (unlinkat(d->dir_fd, VJ_LMDB_COPY_FILE, 0) != 0 && errno != ENOENT) {
        return -errno;
    }
    c->fd = openat(d->dir_fd, VJ_LMDB_COPY_FILE,
                   O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (c->fd < 0) {
        return -errno;
    }
    /* A copy that is as long as the file is of no use: the map needs no more. */
    vj_mutex_lock(&d->lock);
    map_bytes = MAX(d->file_pages * d->page_bytes, VJ_LMDB_MAP_MIN_BYTES);
    vj_mutex_unlock(&d->lock);
    rc = write_empty(c, map_bytes);
    if (rc == 0) {
        rc = copy_errno(c, open_env(c, map_bytes), "mdb_env_open");
    }
    return rc < 0 ? rc : vj_lmdb_snapshot_new(&d->engine, &c->snapshot);
}

void vj_lmdb_copy_close(VjLmdbCopy *c)
{
    if (c->env != NULL) {
        mdb_env_close(c->env);
        c->env = NULL;
    }
}

void vj_lmdb_copy_discard(VjLmdbCopy *c)
{
    notes_end(c->d);
    vj_lmdb_copy_close(c);
    if (c->snapshot != NULL) {
        vj_lmdb_snapshot_free(c->snapshot);
        c->snapshot = NULL;
    }
    if (c->fd >= 0) {
        if (c->d->rewrite.erase_us != 0) {
            vj_lmdb_erase_file(c->d, VJ_LMDB_COPY_FILE);
        } else {
            (void)!unlinkat(c->d->dir_fd, VJ_LMDB_COPY_FILE, 0); /* the next open does */
        }
        vj_fd_close(&c->fd);
    }
}

/* ---- A step ------------------------------------------------------------------------ */

static int put(VjLmdbCopy *c, MDB_txn *txn, VjSpace space, VjSlice key, VjSlice value,
               unsigned flags)
{
    MDB_val k = {.mv_size = key.len, .mv_data = (void *)key.data};
    MDB_val v = {.mv_size = value.len, .mv_data = (void *)value.data};

    return copy_errno(c, mdb_put(txn, c->dbi[space], &k, &v, flags), "mdb_put");
}

static int del(VjLmdbCopy *c, MDB_txn *txn, VjSpace space, VjSlice key)
{
    MDB_val k = {.mv_size = key.len, .mv_data = (void *)key.data};
    int rc = mdb_del(txn, c->dbi[space], &k, NULL);

    return rc == MDB_NOTFOUND ? 0 : copy_errno(c, rc, "mdb_del");
}

static bool is_passed(const VjLmdbCopy *c, VjSpace space, VjSlice key)
{
    if (c->at_end || space != c->space) {
        return c->at_end || space < c->space;
    }
    return vj_slice_compare(key, vj_slice(c->at, c->at_bytes)) <= 0;
}

static int follow_notes(VjLmdbCopy *c, MDB_txn *txn, const GByteArray *notes)
{
    VjSlice key, value;
    VjSpace space;
    guint at = 0;
    int rc = 0;

    while (rc == 0 && next_note(notes, &at, &space, &key)) {
        if (!is_passed(c, space, key)) {
            continue;
        }
        rc = vj_lmdb_snapshot_get(c->snapshot, space, key, &value, NULL);
        if (rc == 0) {
            rc = put(c, txn, space, key, value, 0);
        } else if (rc == -ENOENT) {
            rc = del(c, txn, space, key);
        }
    }
    return rc;
}

static int go_on(VjLmdbCopy *c, MDB_txn *txn)
{
    uint64_t bytes = 0;
    VjSlice key, value;
    int rc = 0;

    while (rc == 0 && bytes < STEP_BYTES && !c->at_end) {
        rc = vj_lmdb_snapshot_near(c->snapshot, c->space, vj_slice(c->at, c->at_bytes),
                                   true, &key, &value, NULL);
        if (rc == -ENOENT) {
            rc = 0;
            c->space++;
            c->at_bytes = 0;
            c->at_end = c->space == VJ_SPACE_COUNT;
        } else if (rc == 0) {
            memcpy(c->at, key.data, key.len);
            c->at_bytes = key.len;
            bytes += key.len + value.len;
            rc = put(c, txn, c->space, key, value, MDB_APPEND);
        }
    }
    return rc;
}

static int take_snapshot(VjLmdbCopy *c)
{
    int rc;

    do {
        rc = vj_lmdb_snapshot_prepare(c->snapshot);
        if (rc == 0) {
            rc = vj_lmdb_snapshot_take(c->snapshot);
        }
    } while (rc == -EAGAIN);
    return rc;
}

typedef int StepBody(VjLmdbCopy *c, MDB_txn *txn);

/* Notes, then @body, on one snapshot, in one commit. */
static int step(VjLmdbCopy *c, StepBody *body)
{
    g_autoptr(GByteArray) notes = NULL;
    MDB_txn *txn;
    int rc = take_notes(c->d, &notes);

    if (rc == 0) {
        rc = take_snapshot(c);
    }
    if (rc < 0) {
        return rc;
    }
    rc = copy_errno(c, mdb_txn_begin(c->env, NULL, 0, &txn), "mdb_txn_begin");
    if (rc == 0) {
        rc = follow_notes(c, txn, notes);
        if (rc == 0) {
            rc = body(c, txn);
        }
        if (rc < 0) {
            mdb_txn_abort(txn);
        }
    }
    /* What it read is in LMDB's memory now: the device is nothing to wait for with it. */
    vj_lmdb_snapshot_release(c->snapshot);
    if (rc == 0) {
        c->commit = mdb_txn_id(txn);
        rc = copy_errno(c, mdb_txn_commit(txn), "mdb_txn_commit");
    }
    return rc;
}

int vj_lmdb_copy_step(VjLmdbCopy *c)
{
    return step(c, go_on);
}

/* ---- The end ----------------------------------------------------------------------- */

/* The format, what the file says of the log, the number of an empty apply. */
static int copy_unnamed(VjLmdbCopy *c, MDB_txn *txn)
{
    static const char *const names[] = {VJ_LMDB_FORMAT_KEY, VJ_LMDB_REDO_KEY,
                                        VJ_LMDB_NUMBER_KEY};
    MDB_txn *from = ((VjLmdbSnapshot *)c->snapshot)->lmdb;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < G_N_ELEMENTS(names); i++) {
        MDB_val key = {.mv_size = strlen(names[i]), .mv_data = (void *)names[i]};
        MDB_val value;

        rc = mdb_get(from, c->d->unnamed, &key, &value);
        if (rc == 0) {
            rc = copy_errno(c, mdb_put(txn, c->unnamed, &key, &value, 0), "mdb_put");
        } else {
            rc = rc == MDB_NOTFOUND ? 0 : vj_lmdb_errno(c->d, rc, "mdb_get");
        }
    }
    return rc;
}

/* The other file has as many keys, in each tree. */
static int compare_tree(VjLmdbCopy *c, MDB_txn *txn, MDB_dbi there, MDB_dbi here)
{
    MDB_txn *from = ((VjLmdbSnapshot *)c->snapshot)->lmdb;
    MDB_stat a, b;
    int rc = mdb_stat(from, there, &a);

    if (rc == 0) {
        rc = mdb_stat(txn, here, &b);
    }
    if (rc != 0) {
        return copy_errno(c, rc, "mdb_stat");
    }
    if (a.ms_entries != b.ms_entries) {
        vj_log_error("meta lmdb: %s/" VJ_LMDB_COPY_FILE ": %zu keys in the place of %zu",
                     c->d->path, b.ms_entries, a.ms_entries);
        return -EBADMSG;
    }
    return 0;
}

static int last_step(VjLmdbCopy *c, MDB_txn *txn)
{
    int rc = copy_unnamed(c, txn);

    if (rc == 0) {
        rc = compare_tree(c, txn, c->d->unnamed, c->unnamed);
    }
    for (size_t i = 0; rc == 0 && i < VJ_SPACE_COUNT; i++) {
        rc = compare_tree(c, txn, c->d->dbi[i], c->dbi[i]);
    }
    return rc;
}

int vj_lmdb_copy_finish(VjLmdbCopy *c)
{
    MDB_txn *txn;
    int rc;

    g_assert(c->at_end);
    rc = step(c, last_step);
    if (rc < 0) {
        return rc;
    }
    rc = mdb_txn_begin(c->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0) {
        return copy_errno(c, rc, "mdb_txn_begin");
    }
    rc = vj_lmdb_measure(c->d, c->env, c->dbi, txn, &c->file);
    mdb_txn_abort(txn);
    return rc;
}

static int must_end(void *opaque)
{
    return vj_lmdb_rewrite_must_end(opaque);
}

static void log_flaw(void *opaque, const char *text)
{
    const VjLmdb *d = opaque;

    vj_log_error("meta lmdb: %s/" VJ_LMDB_COPY_FILE ": %s", d->path, text);
}

int vj_lmdb_copy_examine(VjLmdbCopy *c)
{
    VjLmdbWalk w;
    int rc = vj_lmdb_walk(c->fd, UINT64_MAX, log_flaw, must_end, c->d, &w);

    if (rc == 0 && w.flaws > 0) {
        rc = -EBADMSG;
    }
    vj_lmdb_walk_clear(&w);
    return rc;
}
