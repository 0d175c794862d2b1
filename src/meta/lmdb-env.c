/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-env.c - LMDB's environment: errors, opening it, the format record
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/lmdb-format.h"
#include "meta/lmdb-private.h"

/* More than this part of memory is not read ahead. */
#define MEMORY_SHARE_DIVISOR 4u

/* ---- Errors ---------------------------------------------------------------------- */

/*
 * To a write that is cut short LMDB says EIO.  The file's space is set aside, so that a
 * limit of the size of files is what does this, and one that the file has outgrown does
 * it to all of them.
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

/* ---- The environment -------------------------------------------------------------- */

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

bool vj_lmdb_fits_memory(uint64_t bytes)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

    return pages <= 0 || page_bytes <= 0 ||
           bytes <= (uint64_t)pages * (uint64_t)page_bytes / MEMORY_SHARE_DIVISOR;
}

/*
 * The kernel reads 128 KiB around each page that is not in memory.  A file that memory
 * has room for is there all the sooner; of a larger one a look at a random digest throws
 * out more than it brings (figures in doc/measured/meta.md).  Asked when a file is
 * opened: it may grow meanwhile.
 */
static bool memory_has_room(const VjLmdb *d)
{
    struct stat st;

    return fstatat(d->dir_fd, VJ_LMDB_FILE, &st, 0) < 0 ||
           vj_lmdb_fits_memory((uint64_t)st.st_size);
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
    return MIN(map_bytes,
               MAX(limit.rlim_cur / 4 / VJ_MIB * VJ_MIB, VJ_LMDB_MAP_MIN_BYTES));
}

/* The map is sparse; where address space is limited, half as much until it fits. */
bool vj_lmdb_env_open_first(VjLmdb *d, uint64_t map_bytes, GError **error)
{
    uint64_t asked = map_bytes;
    int rc;

    map_bytes = share_of_limit(map_bytes);
    rc = vj_lmdb_env_open(d, map_bytes);
    while (is_too_much(rc) && map_bytes / 2 >= VJ_LMDB_MAP_MIN_BYTES) {
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

/* ---- What is in it ---------------------------------------------------------------- */

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
    d->claimed = version == VJ_LMDB_FORMAT_LOGGED;
    return true;
}

static bool read_point(VjLmdb *d, MDB_txn *txn, GError **error)
{
    int rc = d->claimed ? vj_lmdb_log_read_point(txn, d->unnamed, &d->point) : 0;

    d->point_is_lost = rc == -EBADMSG;
    return rc == 0 || rc == -EBADMSG ||
           vj_error_set_errno(error, -rc, "%s: which log it has", d->path);
}

/* Checks the record, or writes it where create meets an empty file. */
static bool open_format(VjLmdb *d, MDB_txn *txn, bool create, GError **error)
{
    MDB_val key = {.mv_size = strlen(VJ_LMDB_FORMAT_KEY), .mv_data = VJ_LMDB_FORMAT_KEY};
    VjLmdbFormat format = vj_lmdb_format_encode(VJ_LMDB_FORMAT_VERSION);
    MDB_val record = {.mv_size = sizeof format, .mv_data = &format};
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

bool vj_lmdb_databases_open(VjLmdb *d, bool create, GError **error)
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
