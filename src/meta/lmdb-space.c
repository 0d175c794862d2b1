/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-space.c - room in the file for what was acknowledged
 *
 * A commit is acknowledged when it is visible; moving it into the file comes later and
 * must not fail for want of space.  So the data file is kept longer than LMDB uses it, by
 * the most pages that moving both generations can take, and the device has set them aside
 * (fallocate).  LMDB does not mind: it looks at its own last page, not at the file's end.
 * A commit that the bound has no room for sets more aside first, or fails with -ENOSPC.
 *
 * On top of that comes the reserve, into which only release transactions may eat, so that
 * a full device can be emptied.
 *
 * The bound follows from how LMDB works: it copies each page that it changes once in a
 * transaction, splits a full leaf in two, and files away the numbers of what it freed.
 * Free pages inside the file count as room for single pages, except those that the last
 * move freed.  Old readers pin more of them: the applier waits for those when it matters.
 *
 * A file system that copies on write takes new blocks for each write, also into space
 * that was set aside.  Where it can be told not to (NOCOW of btrfs), the directory is,
 * and its files inherit that when they are made.  A file of before is written anew when
 * it is closed (lmdb-compact.c).
 *
 * Where fallocate is not known, free space of the file system is asked for instead, which
 * holds only as long as no other process fills it.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "meta/lmdb-private.h"

/* Set aside beyond what is needed, so that few commits pay for a call: */
#define CHUNK_BYTES (4 * VJ_MIB)
/* But only where so much is free: of a device that is almost full, data was promised the
 * rest. */
#define PLENTY_BYTES (8 * CHUNK_BYTES)
/* A branch page holds at least seven of the longest keys; a half of one, three. */
#define BRANCH_HALF_MIN 3u
/* A page is a quarter full at worst when a split has made it, before it is split again.
 */
#define LEAF_FILL_DIVISOR 4u
/* Records of the freelist that are looked at; free pages in later ones are not counted.
 */
#define FREELIST_LOOK_MAX 4096u
/* Numbers of pages in a record of the freelist that stays within a leaf page, about. */
#define FREELIST_SHORT 200u
/* For the levels that the freelist's tree may grow by. */
#define FREELIST_SLACK_PAGES 16u
/* What one touched key may free of its old value, in pages. */
#define RUN_MAX_PAGES (VJ_META_VALUE_MAX / 4096u + 1)

/* ---- The bound ------------------------------------------------------------------- */

typedef struct Need {
    uint64_t singles; /* pages that may come from the freelist */
    uint64_t runs;    /* pages that must stand in rows: from the end of the file */
    uint64_t freed;   /* pages whose numbers go into the freelist */
} Need;

static uint64_t log2_ceil(uint64_t n)
{
    return n <= 1 ? 0 : 64 - (uint64_t)__builtin_clzll(n - 1);
}

/* Adds what @t may need of a tree, and makes @tree the largest that it may become. */
static void add_space(Need *need, VjLmdbTree *tree, const VjTally *t)
{
    /* A deletion may rebalance with a neighbour on each level. */
    uint64_t touched = t->puts + 2 * t->dels;
    uint64_t inner = tree->depth > 1 ? tree->depth - 1 : 0;
    uint64_t leaves = MIN(touched, tree->leaf_pages);
    uint64_t branches = MIN(touched * inner, tree->branch_pages);
    uint64_t new_leaves = 0, new_branches, growth = 0;

    if (touched == 0) {
        return;
    }
    if (t->puts > 0) {
        uint64_t by_bytes = t->bytes * LEAF_FILL_DIVISOR / 4096 + 1;

        new_leaves = MIN(t->puts, leaves + by_bytes);
        growth = 1 + log2_ceil(new_leaves);
    }
    new_branches = MIN(new_leaves, branches) + new_leaves / BRANCH_HALF_MIN + growth +
                   MIN(t->dels * inner, tree->branch_pages);
    need->singles += leaves + branches + new_leaves + new_branches + t->pages;
    need->runs += t->run_pages;
    need->freed +=
        leaves + branches + MIN((t->puts + t->dels) * RUN_MAX_PAGES, tree->run_pages);
    tree->depth += growth;
    tree->leaf_pages += new_leaves;
    tree->branch_pages += new_branches;
    tree->run_pages += t->pages + t->run_pages;
}

/*
 * What the freelist itself needs in one move: its old pages written again, and one record
 * with the numbers of all that was freed, which takes pages in a row when it is long.
 */
static void add_freelist(Need *need, const VjLmdbFile *file, uint64_t freed)
{
    const VjLmdbTree *f = &file->freelist;

    need->singles +=
        2 * (f->branch_pages + f->leaf_pages + f->run_pages) + FREELIST_SLACK_PAGES;
    if (freed >= FREELIST_SHORT) {
        need->runs += freed / FREELIST_SHORT + 1;
    }
}

static bool tally_is_empty(const VjTally *t)
{
    return t->puts == 0 && t->dels == 0;
}

/* One batch of @tally, on trees that it changes. */
static void add_batch(Need *need, VjLmdbFile *file, const VjTally tally[VJ_SPACE_COUNT])
{
    uint64_t freed_before = need->freed;
    bool any = false;

    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        if (!tally_is_empty(&tally[i])) {
            add_space(need, &file->spaces[i], &tally[i]);
            any = true;
        }
    }
    if (any) {
        /* The roots of the spaces stand in two pages at most. */
        need->singles += 2;
        add_freelist(need, file, need->freed - freed_before);
    }
}

/*
 * Pages that a file, now as @now, must have so that all of @load can be applied.
 * @spare   set to the free pages inside the file that this leaves; may be NULL
 */
static uint64_t pages_needed(const VjLmdbFile *now, const VjLoad *load,
                             bool trust_freelist, uint64_t *spare)
{
    VjLmdbFile file = *now;
    Need need = {.singles = 0};

    add_batch(&need, &file, load->first);
    add_batch(&need, &file, load->second);
    if (spare != NULL) {
        *spare = file.free_pages - MIN(need.singles, file.free_pages);
    }
    if (trust_freelist) {
        need.singles -= MIN(need.singles, file.free_pages);
    }
    return file.end_page + need.singles + need.runs;
}

/* As add_space, without the splits that are possible but rare. */
uint64_t vj_lmdb_apply_bytes(VjEngine *e, const VjTally tally[VJ_SPACE_COUNT])
{
    VjLmdb *d = (VjLmdb *)e;
    uint64_t pages = 0;

    vj_mutex_lock(&d->lock);
    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        const VjTally *t = &tally[i];
        const VjLmdbTree *tree = &d->file.spaces[i];
        uint64_t touched = t->puts + t->dels;

        if (touched > 0) {
            pages += MIN(touched, tree->leaf_pages + t->bytes / 2048 + 1) +
                     MIN(touched, tree->branch_pages) + t->pages + t->run_pages;
        }
    }
    vj_mutex_unlock(&d->lock);
    return pages * d->page_bytes;
}

bool vj_lmdb_space_is_tight(const VjLmdb *d, const VjLoad *load)
{
    return pages_needed(&d->file, load, false, NULL) > d->file_pages;
}

/* ---- The file -------------------------------------------------------------------- */

static int measure_tree(VjLmdb *d, MDB_txn *txn, MDB_dbi dbi, VjLmdbTree *tree)
{
    MDB_stat st;
    int rc = mdb_stat(txn, dbi, &st);

    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_stat");
    }
    tree->depth = st.ms_depth;
    tree->branch_pages = st.ms_branch_pages;
    tree->leaf_pages = st.ms_leaf_pages;
    tree->run_pages = st.ms_overflow_pages;
    return 0;
}

/* The first commit whose freed pages are not to be had: the last, or what a save
 * reads. */
static uint64_t first_kept(VjLmdb *d, MDB_txn *txn)
{
    uint64_t last = mdb_txn_id(txn), pin;

    vj_mutex_lock(&d->lock);
    pin = d->pin;
    vj_mutex_unlock(&d->lock);
    return pin != 0 ? MIN(pin, last) : last;
}

/*
 * Pages that the next LMDB transaction may take are those of every record but the last
 * transaction's own.  A record's key is the transaction, its value begins with the count.
 */
static int count_free(VjLmdb *d, MDB_txn *txn, uint64_t *free_pages,
                      uint64_t *just_freed_pages)
{
    const MDB_dbi freelist = 0;
    uint64_t last = first_kept(d, txn);
    MDB_cursor *cursor;
    MDB_val key, value;
    int rc = mdb_cursor_open(txn, freelist, &cursor);

    *free_pages = *just_freed_pages = 0;
    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_cursor_open");
    }
    for (unsigned i = 0; i < FREELIST_LOOK_MAX; i++) {
        size_t id, count;

        rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
        if (rc != 0 || key.mv_size != sizeof id || value.mv_size < sizeof count) {
            break;
        }
        memcpy(&id, key.mv_data, sizeof id);
        memcpy(&count, value.mv_data, sizeof count);
        *(id >= last ? just_freed_pages : free_pages) += count;
    }
    mdb_cursor_close(cursor);
    return rc == 0 || rc == MDB_NOTFOUND ? 0 : vj_lmdb_errno(d, rc, "the freelist");
}

int vj_lmdb_measure(VjLmdb *d, MDB_env *env, const MDB_dbi dbi[VJ_SPACE_COUNT],
                    MDB_txn *txn, VjLmdbFile *file)
{
    MDB_envinfo info;
    int rc = mdb_env_info(env, &info);

    memset(file, 0, sizeof *file);
    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_env_info");
    }
    file->end_page = info.me_last_pgno + 1;
    for (size_t i = 0; rc == 0 && i < VJ_SPACE_COUNT; i++) {
        rc = measure_tree(d, txn, dbi[i], &file->spaces[i]);
    }
    if (rc == 0) {
        rc = measure_tree(d, txn, 0, &file->freelist);
    }
    return rc < 0 ? rc : count_free(d, txn, &file->free_pages, &file->just_freed_pages);
}

int vj_lmdb_file_measure(VjLmdb *d, VjLmdbFile *file)
{
    int rc = mdb_txn_renew(d->measure_txn);

    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_txn_renew");
    }
    rc = vj_lmdb_measure(d, d->env, d->dbi, d->measure_txn, file);
    mdb_txn_reset(d->measure_txn);
    return rc;
}

void vj_lmdb_file_update(VjLmdb *d, const VjLmdbFile *file)
{
    uint64_t map_pages = d->map_bytes / d->page_bytes;

    d->file = *file;
    if (file->end_page > d->file_pages) {
        d->overruns++;
        d->file_pages = file->end_page;
        vj_log_warn("meta lmdb: %s: a move took more space than was set aside", d->path);
    }
    if (file->end_page > map_pages / 10 * 9 && !d->map_warned) {
        d->map_warned = true;
        vj_log_warn("meta lmdb: %s: 90 %% of map=%" G_GUINT64_FORMAT
                    " bytes are used; mount with a larger map",
                    d->path, d->map_bytes);
    }
}

/* ---- Setting aside --------------------------------------------------------------- */

/* Is so much free at this moment? */
static int ask_for_space(const VjLmdb *d, uint64_t bytes)
{
    struct statvfs st;

    if (fstatvfs(d->fd, &st) != 0) {
        return -errno;
    }
    return (uint64_t)st.f_bavail * st.f_frsize >= bytes ? 0 : -ENOSPC;
}

/* Makes the device set aside the pages of @fd from @from up to @to. */
static int set_aside(VjLmdb *d, int fd, uint64_t from, uint64_t to)
{
    uint64_t start = from * d->page_bytes, len = (to - from) * d->page_bytes;
    int rc;

    g_assert(from < to);
    if (d->no_fallocate) {
        return ask_for_space(d, len);
    }
    do {
        rc = fallocate(fd, 0, (off_t)start, (off_t)len) == 0 ? 0 : -errno;
    } while (rc == -EINTR);
    if (rc == -EOPNOTSUPP || rc == -ENOSYS) {
        vj_log_warn("meta lmdb: %s: this file system cannot set space aside (fallocate): "
                    "when it is full, acknowledged changes may not become durable",
                    d->path);
        d->no_fallocate = true;
        return ask_for_space(d, len);
    }
    return rc == -EDQUOT || rc == -EFBIG ? -ENOSPC : rc;
}

static bool fits_map(const VjLmdb *d, uint64_t pages)
{
    return pages <= d->map_bytes / d->page_bytes;
}

/* Extends from @have to @most pages or, if that is too much for the device, to @least. */
static int extend(VjLmdb *d, uint64_t have, uint64_t least, uint64_t most, uint64_t *got)
{
    uint64_t beyond_bytes = (most - MAX(have, least)) * d->page_bytes;
    int rc = -ENOSPC;

    if (fits_map(d, most) &&
        (beyond_bytes == 0 || ask_for_space(d, PLENTY_BYTES + beyond_bytes) == 0)) {
        *got = most;
        rc = set_aside(d, d->fd, have, most);
    }
    if (rc == -ENOSPC && least > have && fits_map(d, least)) {
        *got = least;
        rc = set_aside(d, d->fd, have, least);
    }
    return rc;
}

/*
 * Pages of the reserve that must stand at the end of the file, behind @need.  Deleting
 * takes mostly single pages, which free ones inside the file give as well: where these
 * are as many as the reserve, half of it is left for rows.  What takes nothing of the end
 * then goes on even if deleting has used that up: LMDB's file does not become shorter,
 * and a device that was full of metadata would stay so for ever.
 */
static uint64_t reserve_at_end(const VjLmdb *d, uint64_t need, uint64_t spare)
{
    if (spare < d->reserve_pages) {
        return d->reserve_pages;
    }
    return need == d->file.end_page ? 0 : d->reserve_pages / 2;
}

/* A rewrite of the file (lmdb-rewrite.c) reads what is promised, and sets it aside in the
 * new file; claims wait while that takes the old one's place. */
static void claim_begin(VjLmdb *d, const VjLoad *load) VJ_REQUIRES(&d->lock)
{
    while (d->claims_wait) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    d->promised = *load;
}

/* Extends the file, if it has to be. */
static int claim_more(VjLmdb *d, uint64_t need, uint64_t keep, uint64_t least,
                      uint64_t have, bool release, uint64_t *got)
{
    uint64_t chunk = CHUNK_BYTES / d->page_bytes;
    int rc = extend(d, have, keep, keep + chunk + need / 8, got);

    if (rc == -ENOSPC && have >= least) {
        *got = have;
        return 0;
    }
    if (rc == -ENOSPC && release) {
        *got = have;
        rc = have >= need ? 0 : extend(d, have, need, need, got);
    }
    return rc;
}

/*
 * No lock but the writer's is held over fallocate.  Meanwhile a batch may be applied,
 * which changes the sum a little: hence the loop, which ends as the load stays what it
 * is.
 */
static int claim(VjLmdb *d, const VjLoad *load, bool release)
{
    int rc = 0;
    bool done;

    vj_mutex_lock(&d->lock);
    do {
        uint64_t need, keep, least, have, got, spare, number;

        claim_begin(d, load);
        number = d->file_number;
        need = pages_needed(&d->file, load, true, &spare);
        have = d->file_pages;
        keep = need + d->reserve_pages;
        least = need + reserve_at_end(d, need, spare);
        done = have >= keep;
        if (!done) {
            d->claiming = true;
            vj_mutex_unlock(&d->lock);
            rc = claim_more(d, need, keep, least, have, release, &got);
            vj_mutex_lock(&d->lock);
            d->claiming = false;
            /* Else it was the old file's. */
            if (rc == 0 && number == d->file_number) {
                d->file_pages = MAX(d->file_pages, got);
                done = got == have;
            }
        }
    } while (rc == 0 && !done);
    vj_mutex_unlock(&d->lock);
    return rc;
}

/* When the file is being written anew: that is given up, so that the copy's space is
 * free. */
static void rewrite_yield(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    while (d->rewrite.runs) {
        d->rewrite.yields = true;
        vj_cond_broadcast(&d->changed);
        vj_cond_wait(&d->changed, &d->lock);
    }
    vj_mutex_unlock(&d->lock);
}

int vj_lmdb_reserve(VjEngine *e, const VjLoad *load, bool release)
{
    VjLmdb *d = (VjLmdb *)e;
    int rc = claim(d, load, release);

    if (rc == -ENOSPC) {
        vj_lmdb_save_yield(d);
        rewrite_yield(d);
    }
    return rc;
}

int vj_lmdb_space_carry(VjLmdb *d, const VjLmdbFile *file, int fd, uint64_t *pages)
{
    vj_mutex_lock(&d->lock);
    *pages = pages_needed(file, &d->promised, true, NULL) + d->reserve_pages +
             CHUNK_BYTES / d->page_bytes;
    vj_mutex_unlock(&d->lock);
    return set_aside(d, fd, 0, *pages);
}

bool vj_lmdb_space_suffices(const VjLmdb *d, const VjLmdbFile *file, uint64_t pages)
{
    return pages_needed(file, &d->promised, true, NULL) <= pages;
}

int vj_lmdb_space_follow(VjLmdb *d, uint64_t pages, uint64_t want)
{
    return set_aside(d, d->fd, pages, want);
}

bool vj_lmdb_empty_apply_helps(VjEngine *e)
{
    VjLmdb *d = (VjLmdb *)e;
    Need need = {.singles = 2};
    bool helps;

    vj_mutex_lock(&d->lock);
    add_freelist(&need, &d->file, need.singles);
    helps =
        d->file.just_freed_pages > 0 && d->file.end_page + need.singles <= d->file_pages;
    vj_mutex_unlock(&d->lock);
    return helps;
}

/* ---- Open and close -------------------------------------------------------------- */

/*
 * What an earlier mount had set aside is still there, unless the file was copied with
 * holes: asking again for all of it costs nothing in the first case and fills the second.
 */
/* XFS wants as much free space as it is asked for, also where all of it is there
 * already. */
static bool is_set_aside(const VjLmdb *d, const struct stat *st)
{
    uint64_t pages = (uint64_t)st->st_size / d->page_bytes;

    return (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size &&
           pages >= d->file.end_page;
}

bool vj_lmdb_space_open(VjLmdb *d, bool create, GError **error)
{
    uint64_t want, have;
    struct stat st;
    int rc = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &d->measure_txn);

    if (rc != 0) {
        d->measure_txn = NULL;
    } else {
        mdb_txn_reset(d->measure_txn);
        rc = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &d->save_txn);
    }
    if (rc != 0) {
        d->save_txn = NULL;
        return vj_error_set(error, EIO, "%s: mdb_txn_begin: %s", d->path,
                            mdb_strerror(rc));
    }
    mdb_txn_reset(d->save_txn);
    rc = vj_lmdb_file_measure(d, &d->file);
    if (rc < 0 || fstat(d->fd, &st) != 0) {
        return vj_error_set_errno(error, rc < 0 ? -rc : errno, "%s", d->path);
    }
    have = (uint64_t)st.st_size / d->page_bytes;
    want = MAX(have, d->file.end_page + d->reserve_pages + CHUNK_BYTES / d->page_bytes);
    rc = set_aside(d, d->fd, 0, want);
    if (rc == -ENOSPC && !create) {
        vj_log_warn("meta lmdb: %s: the device is full, its reserve for deleting is not "
                    "complete",
                    d->path);
        want = MAX(have, d->file.end_page);
        rc = set_aside(d, d->fd, 0, want);
        if (rc == -ENOSPC) {
            want = is_set_aside(d, &st) ? want : d->file.end_page;
            rc = 0;
        }
    }
    if (rc < 0) {
        return vj_error_set_errno(error, -rc, "%s: setting space aside", d->path);
    }
    d->file_pages = want;
    return true;
}

void vj_lmdb_space_close(VjLmdb *d)
{
    VjLmdbFile file;
    uint64_t keep;

    if (d->no_fallocate || vj_lmdb_file_measure(d, &file) < 0) {
        return;
    }
    keep = file.end_page + d->reserve_pages + CHUNK_BYTES / d->page_bytes;
    if (keep < d->file_pages && ftruncate(d->fd, (off_t)(keep * d->page_bytes)) != 0) {
        vj_log_warn("meta lmdb: %s: giving space back: %s", d->path, g_strerror(errno));
    }
}

/* ---- Tests ----------------------------------------------------------------------- */

void vj_lmdb_pages_for_test(VjEngine *e, const VjLoad *load, uint64_t *needed,
                            uint64_t *used)
{
    VjLmdb *d = (VjLmdb *)e;

    g_assert(e->ops == &vj_engine_lmdb_ops);
    vj_mutex_lock(&d->lock);
    *needed = pages_needed(&d->file, load, true, NULL);
    *used = d->file.end_page;
    vj_mutex_unlock(&d->lock);
}

uint64_t vj_lmdb_overruns_for_test(VjEngine *e)
{
    VjLmdb *d = (VjLmdb *)e;
    uint64_t overruns;

    g_assert(e->ops == &vj_engine_lmdb_ops);
    vj_mutex_lock(&d->lock);
    overruns = d->overruns;
    vj_mutex_unlock(&d->lock);
    return overruns;
}
