/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb.c - the embedded engine: an LMDB file
 *
 * Every LMDB commit is synchronous: MDB_NOSYNC, MDB_NOMETASYNC, MDB_MAPASYNC and
 * MDB_WRITEMAP are never set, as each of them lets a power cut damage the file.
 *
 * Limits: one process opens a directory at a time (the caller holds the lock of SOURCE).
 * Keys and values as meta.h says.  No other session can use it, so watch is NULL.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/lmdb-format.h"
#include "meta/lmdb-private.h"

static const VjOptSpec lmdb_options[] = {
    VJ_SESSION_OPTIONS,
    {.name = "map",
     .type = VJ_OPT_SIZE,
     .fallback = "256G",
     .min = VJ_LMDB_MAP_MIN_BYTES,
     .max = 64 * VJ_TIB,
     .help = "bytes of address space, hence of metadata at most"},
    {.name = "redo",
     .type = VJ_OPT_SIZE,
     .fallback = "16M",
     .max = VJ_REDO_BYTES_MAX,
     .help = "bytes of the log that makes fsync cheap, at most; 0: no log"},
    {.name = "reserve",
     .type = VJ_OPT_SIZE,
     .fallback = "8M",
     .max = 64 * VJ_GIB,
     .help = "bytes of the device kept back so that deleting works when it is full"},
    {.name = "erase",
     .type = VJ_OPT_NUMBER,
     .fallback = "0",
     .max = 31622400,
     .help = "seconds after which what was removed is overwritten in the file; 0: not"},
    {.name = "shrink",
     .type = VJ_OPT_NUMBER,
     .fallback = "60",
     .max = 86400,
     .help = "seconds that most of the file has been free before it is written anew;"
             " 0: at umount alone"},
    {.name = NULL},
};

/* ---- Open ------------------------------------------------------------------------ */

/* LMDB follows links, and writes what it finds: it gets files of this directory alone. */
static bool check_file(const VjMetaPlace *place, GError **error)
{
    struct stat st;

    if (fstatat(place->dir_fd, VJ_LMDB_FILE, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ||
               vj_error_set_errno(error, errno, "%s/" VJ_LMDB_FILE, place->path);
    }
    return S_ISREG(st.st_mode) ||
           vj_error_set(error, EBADMSG, "%s/" VJ_LMDB_FILE ": not a regular file",
                        place->path);
}

/* LMDB would make a new file where the right one is missing, or empty. */
static bool check_place(const VjMetaPlace *place, GError **error)
{
    struct stat st;

    if (place->path == NULL || place->dir_fd < 0) {
        return vj_error_set(error, EINVAL, "it needs a directory");
    }
    if (place->create && place->read_only) {
        return vj_error_set(error, EINVAL, "%s: cannot create read-only", place->path);
    }
    if (!place->create) {
        if (fstatat(place->dir_fd, VJ_LMDB_FILE, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            return vj_error_set_errno(error, errno, "%s/%s", place->path, VJ_LMDB_FILE);
        }
        if (st.st_size == 0) {
            return vj_error_set(error, EBADMSG, "%s/%s: it is empty", place->path,
                                VJ_LMDB_FILE);
        }
    }
    return check_file(place, error);
}

/*
 * A file that lost its end (a copy that was broken off) would end the program with
 * SIGBUS, or get pages of zeroes where its records were.  A few pages may be missing
 * rightly where space cannot be set aside: LMDB does not write those that a transaction
 * took and gave back.
 */
static bool check_length(VjLmdb *d, GError **error)
{
    MDB_envinfo info;
    struct stat st;
    uint64_t pages, need;
    int rc = mdb_env_info(d->env, &info);

    if (rc != 0 || fstat(d->fd, &st) != 0) {
        return vj_error_set_errno(error, rc != 0 ? EIO : errno, "%s/%s", d->path,
                                  VJ_LMDB_FILE);
    }
    pages = (uint64_t)st.st_size / d->page_bytes;
    need = (uint64_t)info.me_last_pgno + 1;
    return pages >= need - need / 8 ||
           vj_error_set(error, EBADMSG,
                        "%s/%s: its end is missing: it has %" G_GUINT64_FORMAT
                        " pages of %" G_GUINT64_FORMAT,
                        d->path, VJ_LMDB_FILE, pages, need);
}

/* An empty file, which LMDB takes for a new one. */
static bool make_file(const VjLmdb *d, GError **error)
{
    VJ_AUTO_FD fd =
        openat(d->dir_fd, VJ_LMDB_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    return fd >= 0 || vj_error_set_errno(error, errno, "%s/" VJ_LMDB_FILE, d->path);
}

static bool open_file(VjLmdb *d, const VjMetaPlace *place, uint64_t map_bytes,
                      GError **error)
{
    if (place->create && !make_file(d, error)) {
        return false;
    }
    if (!vj_lmdb_env_open_first(d, map_bytes, error) || !check_length(d, error) ||
        !vj_lmdb_databases_open(d, place->create, error)) {
        return false;
    }
    /* The names have to survive too. */
    if (place->create && (fsync(place->dir_fd) != 0 || fsync(d->env_fd) != 0)) {
        return vj_error_set_errno(error, errno, "%s: fsync", place->path);
    }
    if (!place->create) {
        /* A store that has keys of its own reads them when it is opened. */
        (void)vj_lmdb_expect(d, VJ_SPACE_STORE);
    }
    return d->read_only || vj_lmdb_space_open(d, place->create, error);
}

static void lmdb_free(VjLmdb *d)
{
    if (d->env != NULL) {
        g_assert(d->newest == NULL);
        if (d->measure_txn != NULL) {
            mdb_txn_abort(d->measure_txn);
        }
        if (d->save_txn != NULL) {
            mdb_txn_abort(d->save_txn);
        }
        mdb_env_close(d->env);
    }
    vj_fd_close(&d->fd);
    vj_fd_close(&d->lock_fd);
    vj_fd_close(&d->env_fd);
    vj_fd_close(&d->dir_fd);
    vj_cond_clear(&d->changed);
    vj_mutex_clear(&d->lock);
    g_free(d->path);
}

/* What a crash left of a new file that was not in its place yet. */
static bool clear_rest(VjLmdb *d, GError **error)
{
    static const char *const names[] = {VJ_LMDB_NEW_FILE, VJ_LMDB_COPY_FILE};

    for (size_t i = 0; !d->read_only && i < G_N_ELEMENTS(names); i++) {
        if (d->rewrite.erase_us != 0) {
            vj_lmdb_erase_file(d, names[i]);
        } else if (unlinkat(d->dir_fd, names[i], 0) != 0 && errno != ENOENT) {
            return vj_error_set_errno(error, errno, "%s/%s", d->path, names[i]);
        }
    }
    if (!d->read_only) {
        vj_lmdb_erase_file(d, VJ_LMDB_OLD_FILE); /* that was asked for when it was left */
    }
    return true;
}

static bool lmdb_open(VjEngine *e, const VjMetaPlace *place, const VjOpts *opts,
                      GError **error)
{
    VjLmdb *d = (VjLmdb *)e;

    if (!check_place(place, error)) {
        return false;
    }
    d->path = g_strdup(place->path);
    d->fd = d->env_fd = d->lock_fd = -1;
    d->dir_fd = fcntl(place->dir_fd, F_DUPFD_CLOEXEC, 0);
    d->read_only = place->read_only;
    d->redo_bytes = vj_opts_number(opts, "redo");
    d->reserve_bytes = vj_opts_number(opts, "reserve");
    d->rewrite.erase_us = (int64_t)vj_opts_number(opts, "erase") * G_USEC_PER_SEC;
    d->rewrite.hold_us = VJ_LMDB_HOLD_US;
    d->rewrite.hold_pause_us = VJ_LMDB_HOLD_PAUSE_US;
    d->rewrite.wait_us = (int64_t)vj_opts_number(opts, "shrink") * G_USEC_PER_SEC;
    vj_mutex_init(&d->lock, VJ_RANK_META_ENGINE, "meta lmdb");
    vj_cond_init(&d->changed);
    if (!d->read_only) {
        vj_fd_ask_in_place(d->dir_fd);
    }
    if (!clear_rest(d, error) || !vj_lmdb_lock_open(d, error) ||
        !open_file(d, place, vj_opts_number(opts, "map"), error)) {
        lmdb_free(d);
        return false;
    }
    return true;
}

/* What was removed goes with the file in which it was, and with the log, which the next
 * open makes anew. */
static void close_erased(VjLmdb *d)
{
    vj_lmdb_rewrite_last(d);
    if (!d->claimed) {
        vj_lmdb_erase_file(d, VJ_REDO_FILE);
    }
}

static int lmdb_close(VjEngine *e, bool in_order)
{
    VjLmdb *d = (VjLmdb *)e;
    VJ_AUTO_FD dir_fd = -1;
    g_autofree char *path = g_strdup(d->path);
    bool compacted = false;
    int rc = 0;

    vj_lmdb_rewrite_stop(d);
    g_assert(!d->saving);
    if (in_order && !d->read_only) {
        if (d->rewrite.erase_us != 0) {
            close_erased(d);
        } else {
            rc = vj_lmdb_compact(d, &compacted);
        }
        vj_lmdb_space_close(d);
    }
    dir_fd = vj_fd_steal(&d->dir_fd);
    lmdb_free(d);
    return compacted ? vj_lmdb_compact_finish(dir_fd, path) : rc;
}

/* ---- Members ---------------------------------------------------------------------- */

static int64_t lmdb_clock_us(VjEngine *e, int64_t deadline_us)
{
    struct timespec now = vj_clock_real();

    (void)e;
    (void)deadline_us;
    return (int64_t)now.tv_sec * 1000 * 1000 + now.tv_nsec / 1000;
}

static void lmdb_log(VjEngine *e, VjEngineLog *out, VjRedoPoint *point)
{
    VjLmdb *d = (VjLmdb *)e;

    *out = (VjEngineLog){.dir_fd = d->dir_fd,
                         .wanted_bytes = d->redo_bytes,
                         .claimed = d->claimed,
                         .point_is_lost = d->point_is_lost};
    *point = d->point;
}

const VjEngineOps vj_engine_lmdb_ops = {
    .name = "lmdb",
    .options = lmdb_options,
    .needs = VJ_NEEDS_FILES,
    .file = VJ_LMDB_FILE,
    .instance_size = sizeof(VjLmdb),
    .open = lmdb_open,
    .close = lmdb_close,
    .get_many = vj_lmdb_get_many,
    .scan = vj_lmdb_scan,
    .apply = vj_lmdb_apply,
    .clock_us = lmdb_clock_us,
    .count = vj_lmdb_count,
    .snapshot_new = vj_lmdb_snapshot_new,
    .snapshot_prepare = vj_lmdb_snapshot_prepare,
    .snapshot_take = vj_lmdb_snapshot_take,
    .snapshot_release = vj_lmdb_snapshot_release,
    .snapshot_free = vj_lmdb_snapshot_free,
    .snapshot_get = vj_lmdb_snapshot_get,
    .snapshot_near = vj_lmdb_snapshot_near,
    .reserve = vj_lmdb_reserve,
    .empty_apply_helps = vj_lmdb_empty_apply_helps,
    .apply_bytes = vj_lmdb_apply_bytes,
    .log = lmdb_log,
    .rewritten = vj_lmdb_rewritten,
    .examine = vj_lmdb_examine,
    .save = vj_lmdb_save,
    .restore = vj_lmdb_restore,
};
