/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb.c - the embedded metadata engine: memory in front of an LMDB file
 *
 * Durability: commits are visible at once and durable after flush() or the commit
 * interval; what the file holds is always a prefix of the commits.  Every LMDB commit is
 * synchronous: MDB_NOSYNC, MDB_NOMETASYNC, MDB_MAPASYNC and MDB_WRITEMAP are never set,
 * as each of them lets a power cut damage the file.
 *
 * Limits: one process opens a directory at a time (the caller holds the lock of SOURCE).
 * Keys and values as meta.h says.
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/lmdb-format.h"
#include "meta/lmdb-private.h"

/* Less address space than this is of no use. */
#define MAP_MIN_BYTES (64 * VJ_MIB)
/* A file of more than this part of memory is not read ahead. */
#define MEMORY_SHARE_DIVISOR 4u

static const VjOptSpec lmdb_options[] = {
    {.name = "overlay",
     .type = VJ_OPT_SIZE,
     .fallback = "32M",
     .min = 1 * VJ_MIB,
     .max = 64 * VJ_GIB,
     .help = "bytes of memory for changes that are visible but not yet durable"},
    {.name = "commit",
     .type = VJ_OPT_NUMBER,
     .fallback = "1",
     .min = 1,
     .max = 3600,
     .help = "seconds after which a visible change is made durable unasked"},
    {.name = "map",
     .type = VJ_OPT_SIZE,
     .fallback = "256G",
     .min = MAP_MIN_BYTES,
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
    {.name = NULL},
};

/* ---- Errors ---------------------------------------------------------------------- */

/*
 * To a write that is cut short LMDB says EIO.  The file's space is set aside, so that a limit of
 * the size of files is what does this, and one that the file has outgrown does it to all of them.
 */
static bool is_cut_short(const VjLmdb *d)
{
    struct rlimit limit;
    struct stat st;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           fstat(d->fd, &st) == 0 && limit.rlim_cur < (rlim_t)st.st_size;
}

int vj_lmdb_errno(VjLmdb *d, int rc, const char *call)
{
    g_assert(rc != 0 && rc != MDB_NOTFOUND);
    if (rc == EIO && is_cut_short(d)) {
        return -ENOSPC;
    }
    if (rc == MDB_MAP_FULL || rc == EDQUOT || rc == EFBIG) {
        return -ENOSPC;
    }
    if (rc == ENOSPC || rc == ENOMEM || rc == EIO) {
        return -rc;
    }
    if (rc == MDB_PANIC) {
        g_atomic_int_set(&d->broken, 1);
    }
    vj_log_error("meta lmdb: %s: %s: %s", d->path, call, mdb_strerror(rc));
    return -EIO;
}

static bool refuse(VjLmdb *d, GError **error, int rc, const char *call)
{
    return vj_error_set(error, rc > 0 ? rc : EIO, "%s: %s: %s", d->path, call,
                        mdb_strerror(rc));
}

/* ---- Open ------------------------------------------------------------------------ */

int vj_lmdb_open_own(const VjLmdb *d)
{
    int fd = openat(d->dir_fd, VJ_LMDB_FILE,
                    (d->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW);

    return fd < 0 ? -errno : fd;
}

/* The first environment says what all have. */
static int describe_env(VjLmdb *d)
{
    MDB_stat st;
    int rc = 0;

    if (d->fd < 0) {
        rc = mdb_env_stat(d->env, &st);
    }
    if (rc == 0 && d->fd < 0) {
        d->page_bytes = st.ms_psize;
        d->reserve_pages = (d->reserve_bytes + st.ms_psize - 1) / st.ms_psize;
        d->fd = vj_lmdb_open_own(d);
        rc = d->fd < 0 ? -d->fd : 0;
    }
    return rc;
}

/*
 * The kernel reads 128 KiB around each page that is not in memory.  A file that memory has room
 * for is there all the sooner; of a larger one a look at a random digest throws out more than it
 * brings (figures in README.md).  Asked when a file is opened: it may grow meanwhile.
 */
static bool memory_has_room(const VjLmdb *d)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    struct stat st;

    if (fstatat(d->dir_fd, VJ_LMDB_FILE, &st, 0) < 0 || pages <= 0 || page_bytes <= 0) {
        return true;
    }
    return (uint64_t)st.st_size <=
           (uint64_t)pages * (uint64_t)page_bytes / MEMORY_SHARE_DIVISOR;
}

/* One try to map @map_bytes; a failed environment cannot be used again, hence the
 * freeing. */
int vj_lmdb_env_open(VjLmdb *d, uint64_t map_bytes)
{
    unsigned flags = MDB_NOTLS | (d->read_only ? MDB_RDONLY | MDB_NOLOCK : 0);
    /* The directory that was looked at, whatever stands under its name by now. */
    g_autofree char *place = g_strdup_printf("/proc/self/fd/%d", vj_lmdb_env_fd(d));
    int rc = mdb_env_create(&d->env);

    if (rc != 0) {
        d->env = NULL;
        return rc;
    }
    flags |= memory_has_room(d) ? 0 : MDB_NORDAHEAD;
    rc = mdb_env_set_mapsize(d->env, map_bytes);
    if (rc == 0) {
        rc = mdb_env_set_maxdbs(d->env, VJ_SPACE_COUNT);
    }
    if (rc == 0) {
        rc = mdb_env_set_maxreaders(d->env, VJ_LMDB_READERS_MAX + 2);
    }
    if (rc == 0) {
        rc = mdb_env_open(d->env, place, flags, 0600);
    }
    if (rc != 0) {
        mdb_env_close(d->env);
        d->env = NULL;
        return rc;
    }
    rc = describe_env(d);
    if (rc != 0) {
        mdb_env_close(d->env);
        d->env = NULL;
        return rc;
    }
    if (d->map_bytes != map_bytes) {
        d->map_bytes = map_bytes;
    }
    return 0;
}

/* mmap has both for more than there can be (EINVAL: valgrind's). */
static bool is_too_much(int rc)
{
    return rc == ENOMEM || rc == EINVAL;
}

/* Threads and what they allocate need address space too: a quarter of what is allowed. */
static uint64_t share_of_limit(uint64_t map_bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) {
        return map_bytes;
    }
    return MIN(map_bytes, MAX(limit.rlim_cur / 4 / VJ_MIB * VJ_MIB, MAP_MIN_BYTES));
}

/* The map is sparse; where address space is limited, half as much until it fits. */
static bool open_env(VjLmdb *d, uint64_t map_bytes, GError **error)
{
    uint64_t asked = map_bytes;
    int rc;

    map_bytes = share_of_limit(map_bytes);
    rc = vj_lmdb_env_open(d, map_bytes);
    while (is_too_much(rc) && map_bytes / 2 >= MAP_MIN_BYTES) {
        map_bytes /= 2;
        rc = vj_lmdb_env_open(d, map_bytes);
    }
    if (rc != 0) {
        return refuse(d, error, rc, "mdb_env_open");
    }
    if (map_bytes < asked) {
        vj_log_info("meta lmdb: %s: map=%" G_GUINT64_FORMAT
                    " bytes, because address space is limited",
                    d->path, map_bytes);
    }
    return true;
}

VjLmdbFormat vj_lmdb_format_encode(uint32_t version)
{
    VjLmdbFormat f = {.version = {(uint8_t)version, 0, 0, 0}};
    uint64_t checksum;

    memcpy(f.magic, VJ_LMDB_FORMAT_MAGIC, sizeof f.magic);
    checksum = GUINT64_TO_LE(vj_checksum64(&f, offsetof(VjLmdbFormat, checksum)));
    memcpy(f.checksum, &checksum, sizeof f.checksum);
    return f;
}

static bool format_check(VjLmdb *d, const MDB_val *record, GError **error)
{
    const VjLmdbFormat *f = record->mv_data;
    uint32_t version;

    if (record->mv_size != sizeof *f ||
        memcmp(f->magic, VJ_LMDB_FORMAT_MAGIC, sizeof f->magic) != 0 ||
        vj_le64_get(f->checksum) != vj_checksum64(f, offsetof(VjLmdbFormat, checksum))) {
        return vj_error_set(error, EBADMSG, "%s: these are not varjfs's metadata",
                            d->path);
    }
    version = vj_le32_get(f->version);
    if (version != VJ_LMDB_FORMAT_VERSION && version != VJ_LMDB_FORMAT_LOGGED) {
        return vj_error_set(error, EPROTONOSUPPORT,
                            "%s: metadata of version %u; this program knows version %u",
                            d->path, version, VJ_LMDB_FORMAT_LOGGED);
    }
    d->redo.claimed = version == VJ_LMDB_FORMAT_LOGGED;
    return true;
}

static bool read_point(VjLmdb *d, MDB_txn *txn, GError **error)
{
    int rc =
        d->redo.claimed ? vj_lmdb_redo_read_point(txn, d->unnamed, &d->redo.point) : 0;

    d->redo.point_is_lost = rc == -EBADMSG;
    return rc == 0 || rc == -EBADMSG ||
           vj_error_set_errno(error, -rc, "%s: which log it has", d->path);
}

/* Checks the record, or writes it where create meets an empty file. */
static bool open_format(VjLmdb *d, MDB_txn *txn, bool create, GError **error)
{
    MDB_val key = {.mv_size = strlen(VJ_LMDB_FORMAT_KEY), .mv_data = VJ_LMDB_FORMAT_KEY};
    VjLmdbFormat fresh = vj_lmdb_format_encode(VJ_LMDB_FORMAT_VERSION);
    MDB_val record = {.mv_size = sizeof fresh, .mv_data = &fresh};
    MDB_val found;
    int rc = mdb_dbi_open(txn, NULL, 0, &d->unnamed);

    if (rc != 0) {
        return refuse(d, error, rc, "mdb_dbi_open");
    }
    rc = mdb_get(txn, d->unnamed, &key, &found);
    if (rc == 0) {
        return format_check(d, &found, error) && read_point(d, txn, error);
    }
    if (rc == MDB_NOTFOUND && !create) {
        return vj_error_set(error, EBADMSG, "%s: these are not varjfs's metadata",
                            d->path);
    }
    if (rc == MDB_NOTFOUND) {
        rc = mdb_put(txn, d->unnamed, &key, &record, 0);
    }
    return rc == 0 ? true : refuse(d, error, rc, "the format record");
}

const char *vj_lmdb_space_name(VjSpace space, char name[8])
{
    g_snprintf(name, 8, "s%02u", (unsigned)space);
    return name;
}

static bool open_spaces(VjLmdb *d, MDB_txn *txn, GError **error)
{
    for (unsigned i = 0; i < VJ_SPACE_COUNT; i++) {
        char name[8];
        int rc;

        rc = mdb_dbi_open(txn, vj_lmdb_space_name(i, name), d->read_only ? 0 : MDB_CREATE,
                          &d->dbi[i]);
        if (rc != 0) {
            return refuse(d, error, rc, name);
        }
    }
    return true;
}

static bool open_databases(VjLmdb *d, bool create, GError **error)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(d->env, NULL, d->read_only ? MDB_RDONLY : 0, &txn);

    if (rc != 0) {
        return refuse(d, error, rc, "mdb_txn_begin");
    }
    if (!open_format(d, txn, create, error) || !open_spaces(d, txn, error)) {
        mdb_txn_abort(txn);
        return false;
    }
    d->good_commit = mdb_txn_id(txn);
    rc = mdb_txn_commit(txn);
    return rc == 0 ? true : refuse(d, error, rc, "mdb_txn_commit");
}

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
 * A file that lost its end (a copy that was broken off) would end the program with SIGBUS, or
 * get pages of zeroes where its records were.  A few pages may be missing rightly where
 * space cannot be set aside: LMDB does not write those that a transaction took and gave back.
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
    if (!open_env(d, map_bytes, error) || !check_length(d, error) ||
        !open_databases(d, place->create, error)) {
        return false;
    }
    /* The names have to survive too. */
    if (place->create && (fsync(place->dir_fd) != 0 || fsync(d->env_fd) != 0)) {
        return vj_error_set_errno(error, errno, "%s: fsync", place->path);
    }
    return d->read_only || vj_lmdb_space_open(d, place->create, error);
}

static void driver_free(VjLmdb *d)
{
    vj_lmdb_redo_close(d);
    if (d->env != NULL) {
        vj_lmdb_views_clear(d);
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
    g_assert(d->frozen == NULL || d->frozen->refs == 1);
    for (VjGeneration *g = d->dropped; g != NULL;) {
        VjGeneration *next = g->next_dropped;

        vj_generation_free(g);
        g = next;
    }
    if (d->frozen != NULL) {
        d->frozen->refs = 0;
        vj_generation_free(d->frozen);
    }
    g_assert(d->active->refs == 1);
    d->active->refs = 0;
    vj_generation_free(d->active);
    vj_overlay_clear(&d->changes);
    vj_cond_clear(&d->moved);
    vj_cond_clear(&d->mover_wake);
    vj_mutex_clear(&d->state);
    vj_mutex_clear(&d->writer);
    g_free(d->path);
}

/* What a crash left of a new file that was not in its place yet. */
static bool clear_rest(VjLmdb *d, GError **error)
{
    return d->read_only || unlinkat(d->dir_fd, VJ_LMDB_NEW_FILE, 0) == 0 ||
           errno == ENOENT ||
           vj_error_set_errno(error, errno, "%s/" VJ_LMDB_NEW_FILE, d->path);
}

static bool lmdb_open(VjMeta *m, const VjMetaPlace *place, const VjOpts *opts,
                      GError **error)
{
    VjLmdb *d = (VjLmdb *)m;

    if (!check_place(place, error)) {
        return false;
    }
    d->path = g_strdup(place->path);
    d->fd = d->env_fd = d->lock_fd = -1;
    d->dir_fd = place->dir_fd < 0 ? -1 : fcntl(place->dir_fd, F_DUPFD_CLOEXEC, 0);
    d->read_only = place->read_only;
    d->generation_max_bytes = vj_opts_number(opts, "overlay") / 2;
    d->commit_interval_us = (int64_t)vj_opts_number(opts, "commit") * 1000 * 1000;
    d->active = vj_generation_new();
    vj_overlay_init(&d->changes);
    vj_mutex_init(&d->writer, VJ_RANK_META_RUN, "meta lmdb writer");
    vj_mutex_init(&d->state, VJ_RANK_META_STATE, "meta lmdb state");
    vj_cond_init(&d->mover_wake);
    vj_cond_init(&d->moved);
    d->reserve_bytes = vj_opts_number(opts, "reserve");
    if (!d->read_only) {
        vj_fd_ask_in_place(d->dir_fd);
    }
    if (!clear_rest(d, error) || !vj_lmdb_lock_open(d, error) ||
        !open_file(d, place, vj_opts_number(opts, "map"), error)) {
        driver_free(d);
        return false;
    }
    if (!d->read_only) {
        vj_lmdb_mover_start(d);
    }
    if (!vj_lmdb_redo_open(d, place, vj_opts_number(opts, "redo"), error)) {
        vj_lmdb_mover_stop(d);
        driver_free(d);
        return false;
    }
    return true;
}

static int lmdb_close(VjMeta *m)
{
    VjLmdb *d = (VjLmdb *)m;
    VJ_AUTO_FD dir_fd = -1;
    g_autofree char *path = NULL;
    bool compacted = false;
    int flushed = vj_lmdb_flush(m);
    /* What was flushed may be in the log alone; and what was not the last move may
     * take. */
    int rc = d->read_only ? flushed : vj_lmdb_redo_retire(d);

    vj_lmdb_mover_stop(d);
    g_assert(d->snapshots.newest == NULL && d->views == 0 && d->old_views == 0);
    g_assert(!d->saving && d->joined == NULL);
    if (rc == 0 && !d->read_only) {
        rc = vj_lmdb_compact(d, &compacted);
        vj_lmdb_space_close(d);
    }
    dir_fd = vj_fd_steal(&d->dir_fd);
    path = g_strdup(d->path);
    driver_free(d);
    if (compacted) {
        rc = vj_lmdb_compact_finish(dir_fd, path);
    }
    return rc;
}

/* @e hides what the file has.  An LMDB code. */
static int count_entry(const VjLmdb *d, MDB_txn *txn, VjSpace space,
                       const VjOverlayEntry *e, uint64_t *count)
{
    VjSlice slice = vj_entry_key(e);
    MDB_val key = {.mv_size = slice.len, .mv_data = (void *)slice.data}, value;
    int rc = mdb_get(txn, d->dbi[space], &key, &value);

    if (rc == 0 && e->newest->tombstone) {
        (*count)--;
    } else if (rc == MDB_NOTFOUND && !e->newest->tombstone) {
        (*count)++;
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* What is in memory is what was replayed. */
static int lmdb_count(VjMeta *m, VjSpace space, uint64_t *out)
{
    VjLmdb *d = (VjLmdb *)m;
    MDB_txn *txn;
    MDB_stat st;
    int rc = vj_lmdb_hold(d);

    if (rc < 0) {
        return rc;
    }
    rc = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0) {
        vj_lmdb_release(d);
        return vj_lmdb_errno(d, rc, "mdb_txn_begin");
    }
    rc = mdb_stat(txn, d->dbi[space], &st);
    *out = rc == 0 ? st.ms_entries : 0;
    for (const VjOverlayEntry *e = vj_overlay_first(&d->active->overlay, space);
         rc == 0 && e != NULL; e = e->forward[0]) {
        rc = count_entry(d, txn, space, e, out);
    }
    mdb_txn_abort(txn);
    vj_lmdb_release(d);
    return rc == 0 ? 0 : vj_lmdb_errno(d, rc, "mdb_stat");
}

static void lmdb_log_stats(VjMeta *m, VjMetaLogStats *out)
{
    VjLmdb *d = (VjLmdb *)m;

    vj_mutex_lock(&d->state);
    *out = d->redo.stats;
    vj_mutex_unlock(&d->state);
}

const VjMetaOps vj_meta_lmdb_ops = {
    .name = "lmdb",
    .options = lmdb_options,
    .instance_size = sizeof(VjLmdb),
    .txn_size = sizeof(VjLmdbTxn),
    .open = lmdb_open,
    .close = lmdb_close,
    .begin = vj_lmdb_begin,
    .commit = vj_lmdb_commit,
    .abort = vj_lmdb_abort,
    .count = lmdb_count,
    .flush = vj_lmdb_flush,
    .flush_join = vj_lmdb_flush_join,
    .log_stats = lmdb_log_stats,
    .get = vj_lmdb_get,
    .put = vj_lmdb_put,
    .del = vj_lmdb_del,
    .next = vj_lmdb_next,
    .prev = vj_lmdb_prev,
    .examine = vj_lmdb_examine,
    .save = vj_lmdb_save,
    .restore = vj_lmdb_restore,
};
