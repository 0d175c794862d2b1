/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-snapshot.c - reading the LMDB file
 *
 * A snapshot is a read transaction of LMDB that keeps its slot in the table of readers,
 * so that taking it again costs neither a lock nor I/O.
 *
 * A reopening (lmdb-reopen.c) must find no snapshot in use.  Each has a flag of its own:
 * a reader that wants to use it sets the flag and then looks whether a reopening runs;
 * the thread that reopens says so and then looks at the flags.  All of this is
 * sequentially consistent, so one of the two sees the other.
 */
#include "meta/lmdb-private.h"

static VjLmdb *lmdb_of(const VjEngineSnapshot *s)
{
    return (VjLmdb *)s->engine;
}

/* ---- In use or not --------------------------------------------------------------- */

static bool is_away(const VjLmdb *d)
{
    return g_atomic_int_get(&d->broken) != 0 || g_atomic_int_get(&d->reopening) != 0;
}

static void leave(VjLmdb *d, VjLmdbSnapshot *s)
{
    g_atomic_int_set(&s->in_use, 0);
    if (g_atomic_int_get(&d->waiting) != 0) {
        vj_mutex_lock(&d->lock);
        vj_cond_broadcast(&d->changed);
        vj_mutex_unlock(&d->lock);
    }
}

/* False: LMDB's file is not to be used now. */
static bool enter(VjLmdb *d, VjLmdbSnapshot *s)
{
    g_atomic_int_set(&s->in_use, 1);
    if (is_away(d)) {
        leave(d, s);
        return false;
    }
    return true;
}

bool vj_lmdb_snapshots_in_use(const VjLmdb *d, bool any)
{
    gint moves = g_atomic_int_get(&d->moves);

    for (const VjLmdbSnapshot *s = d->newest; s != NULL; s = s->older) {
        if (g_atomic_int_get(&s->in_use) != 0 &&
            (any || __atomic_load_n(&s->move, __ATOMIC_RELAXED) != moves)) {
            return true;
        }
    }
    return false;
}

static void drop_transaction(VjLmdbSnapshot *s)
{
    for (size_t i = 0; i < VJ_SPACE_COUNT; i++) {
        if (s->cursors[i] != NULL) {
            mdb_cursor_close(s->cursors[i]);
            s->cursors[i] = NULL;
        }
    }
    if (s->lmdb != NULL) {
        mdb_txn_abort(s->lmdb);
        s->lmdb = NULL;
    }
}

void vj_lmdb_snapshots_reset(VjLmdb *d)
{
    vj_mutex_lock(&d->lock);
    for (VjLmdbSnapshot *s = d->newest; s != NULL; s = s->older) {
        drop_transaction(s);
    }
    vj_mutex_unlock(&d->lock);
}

/* ---- Made, taken, released ------------------------------------------------------- */

int vj_lmdb_snapshot_new(VjEngine *e, VjEngineSnapshot **out)
{
    VjLmdb *d = (VjLmdb *)e;
    VjLmdbSnapshot *s = g_try_new0(VjLmdbSnapshot, 1);

    *out = NULL;
    if (s == NULL) {
        return -ENOMEM;
    }
    s->base.engine = e;
    vj_mutex_lock(&d->lock);
    s->older = d->newest;
    if (s->older != NULL) {
        s->older->newer = s;
    }
    d->newest = s;
    vj_mutex_unlock(&d->lock);
    *out = &s->base;
    return 0;
}

void vj_lmdb_snapshot_free(VjEngineSnapshot *base)
{
    VjLmdbSnapshot *s = (VjLmdbSnapshot *)base;
    VjLmdb *d = lmdb_of(base);

    g_assert(g_atomic_int_get(&s->in_use) == 0);
    vj_mutex_lock(&d->lock);
    if (s->newer != NULL) {
        s->newer->older = s->older;
    } else {
        d->newest = s->older;
    }
    if (s->older != NULL) {
        s->older->newer = s->newer;
    }
    drop_transaction(s);
    vj_mutex_unlock(&d->lock);
    g_free(s);
}

/* apply() opens it again, which takes as long as the snapshots that are in use. */
static int wait_for_file(VjLmdb *d, int64_t until_us)
{
    int rc = 0;

    vj_mutex_lock(&d->lock);
    while (rc == 0 && is_away(d)) {
        rc = vj_cond_wait_until(&d->changed, &d->lock, until_us) ? 0 : -EIO;
    }
    vj_mutex_unlock(&d->lock);
    return rc;
}

/* A transaction that has its slot.  Sets nothing on failure. */
static int make_transaction(VjLmdb *d, VjLmdbSnapshot *s)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &txn);

    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_txn_begin");
    }
    mdb_txn_reset(txn);
    s->lmdb = txn;
    return 0;
}

int vj_lmdb_snapshot_prepare(VjEngineSnapshot *base)
{
    VjLmdbSnapshot *s = (VjLmdbSnapshot *)base;
    VjLmdb *d = lmdb_of(base);
    int64_t until_us = vj_clock_mono_us() + VJ_LMDB_REOPEN_WAIT_US;
    int rc;

    do {
        rc = wait_for_file(d, until_us);
        if (rc < 0) {
            return rc;
        }
        if (enter(d, s)) {
            rc = s->lmdb != NULL ? 0 : make_transaction(d, s);
            leave(d, s);
        } else {
            rc = -EIO;
        }
        /* LMDB may have given up just now. */
    } while (rc == -EIO && is_away(d) && vj_clock_mono_us() < until_us);
    return rc;
}

int vj_lmdb_snapshot_take(VjEngineSnapshot *base)
{
    VjLmdbSnapshot *s = (VjLmdbSnapshot *)base;
    VjLmdb *d = lmdb_of(base);
    int rc;

    if (!enter(d, s)) {
        return -EAGAIN;
    }
    if (s->lmdb == NULL) {
        leave(d, s);
        return -EAGAIN;
    }
    rc = mdb_txn_renew(s->lmdb);
    if (rc != 0) {
        rc = vj_lmdb_errno(d, rc, "mdb_txn_renew");
        leave(d, s);
        return is_away(d) ? -EAGAIN : rc;
    }
    __atomic_store_n(&s->move, g_atomic_int_get(&d->moves), __ATOMIC_RELAXED);
    s->bound = s->stands = 0;
    return 0;
}

void vj_lmdb_snapshot_release(VjEngineSnapshot *base)
{
    VjLmdbSnapshot *s = (VjLmdbSnapshot *)base;

    mdb_txn_reset(s->lmdb);
    leave(lmdb_of(base), s);
}

uint64_t vj_lmdb_version(VjSlice value)
{
    uint64_t sum = vj_checksum64(value.data, value.len);

    return sum != 0 ? sum : 1;
}

/* ---- One key --------------------------------------------------------------------- */

/* LMDB has no checksums: lengths that this engine never wrote come from a damaged
 * page. */
static int check_read(const VjLmdb *d, const MDB_val *key, const MDB_val *value)
{
    if (value->mv_size <= VJ_META_VALUE_MAX && key->mv_size <= VJ_META_KEY_MAX &&
        key->mv_size > 0) {
        return 0;
    }
    vj_log_error("meta lmdb: %s: a page is damaged", d->path);
    return -EBADMSG;
}

int vj_lmdb_snapshot_get(VjEngineSnapshot *base, VjSpace space, VjSlice key,
                         VjSlice *value, uint64_t *version)
{
    VjLmdb *d = lmdb_of(base);
    MDB_val file_key = {.mv_size = key.len, .mv_data = (void *)key.data};
    MDB_val file_value;
    int rc =
        mdb_get(((VjLmdbSnapshot *)base)->lmdb, d->dbi[space], &file_key, &file_value);

    if (rc != 0) {
        return rc == MDB_NOTFOUND ? -ENOENT : vj_lmdb_errno(d, rc, "mdb_get");
    }
    rc = check_read(d, &file_key, &file_value);
    if (rc < 0) {
        return rc;
    }
    *value = vj_slice(file_value.mv_data, file_value.mv_size);
    if (version != NULL) {
        *version = vj_lmdb_version(*value);
    }
    return 0;
}

/* ---- In order -------------------------------------------------------------------- */

static int bind_cursor(VjLmdb *d, VjLmdbSnapshot *s, VjSpace space)
{
    MDB_cursor **cursor = &s->cursors[space];
    uint32_t bit = 1u << space;
    int rc = 0;

    G_STATIC_ASSERT(VJ_SPACE_COUNT <= 32);
    if (*cursor == NULL) {
        rc = mdb_cursor_open(s->lmdb, d->dbi[space], cursor);
    } else if ((s->bound & bit) == 0) {
        rc = mdb_cursor_renew(s->lmdb, *cursor);
    }
    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_cursor_open");
    }
    s->bound |= bit;
    return 0;
}

static bool is_key(const MDB_val *found, VjSlice key)
{
    return found->mv_size == key.len && memcmp(found->mv_data, key.data, key.len) == 0;
}

/* An LMDB code. */
static int seek(MDB_cursor *cursor, VjSlice from, bool forward, MDB_val *key,
                MDB_val *value)
{
    int rc;

    if (from.len == 0) {
        return mdb_cursor_get(cursor, key, value, forward ? MDB_FIRST : MDB_LAST);
    }
    *key = (MDB_val){.mv_size = from.len, .mv_data = (void *)from.data};
    rc = mdb_cursor_get(cursor, key, value, MDB_SET_RANGE);
    if (!forward) {
        return rc == MDB_NOTFOUND ? mdb_cursor_get(cursor, key, value, MDB_LAST)
               : rc == 0          ? mdb_cursor_get(cursor, key, value, MDB_PREV)
                                  : rc;
    }
    return rc == 0 && is_key(key, from) ? mdb_cursor_get(cursor, key, value, MDB_NEXT)
                                        : rc;
}

int vj_lmdb_snapshot_near(VjEngineSnapshot *base, VjSpace space, VjSlice from,
                          bool forward, VjSlice *key, VjSlice *value, uint64_t *version)
{
    VjLmdbSnapshot *s = (VjLmdbSnapshot *)base;
    VjLmdb *d = lmdb_of(base);
    uint32_t bit = 1u << space;
    MDB_val file_key, file_value;
    int rc = bind_cursor(d, s, space);

    if (rc < 0) {
        return rc;
    }
    if ((s->stands & bit) != 0 && is_key(&s->at[space], from)) {
        rc = mdb_cursor_get(s->cursors[space], &file_key, &file_value,
                            forward ? MDB_NEXT : MDB_PREV);
    } else {
        rc = seek(s->cursors[space], from, forward, &file_key, &file_value);
    }
    s->stands &= ~bit;
    if (rc != 0) {
        return rc == MDB_NOTFOUND ? -ENOENT : vj_lmdb_errno(d, rc, "mdb_cursor_get");
    }
    rc = check_read(d, &file_key, &file_value);
    if (rc < 0) {
        return rc;
    }
    s->stands |= bit;
    s->at[space] = file_key;
    *key = vj_slice(file_key.mv_data, file_key.mv_size);
    *value = vj_slice(file_value.mv_data, file_value.mv_size);
    if (version != NULL) {
        *version = vj_lmdb_version(*value);
    }
    return 0;
}

/* ---- Without a snapshot of the caller's -------------------------------------------- */

/* One that is taken; vj_lmdb_snapshot_free after its release. */
static int snapshot_begin(VjEngine *e, VjEngineSnapshot **out)
{
    int rc = vj_lmdb_snapshot_new(e, out);

    if (rc < 0) {
        return rc;
    }
    rc = vj_lmdb_snapshot_prepare(*out);
    if (rc == 0) {
        rc = vj_lmdb_snapshot_take(*out);
    }
    if (rc < 0) {
        vj_lmdb_snapshot_free(*out);
        *out = NULL;
    }
    return rc == -EAGAIN ? -EIO : rc;
}

static void snapshot_end(VjEngineSnapshot *s)
{
    vj_lmdb_snapshot_release(s);
    vj_lmdb_snapshot_free(s);
}

static int add_item(VjEngineSnapshot *s, const VjKey *key, VjItems *out)
{
    VjItem item = {.space = key->space, .key = key->key};
    int rc = vj_lmdb_snapshot_get(s, key->space, key->key, &item.value, &item.version);

    return rc == 0 || rc == -ENOENT ? vj_items_add(out, &item) : rc;
}

int vj_lmdb_get_many(VjEngine *e, const VjKey *keys, size_t count, VjItems *out,
                     int64_t deadline_us)
{
    VjEngineSnapshot *s;
    int rc = snapshot_begin(e, &s);

    (void)deadline_us;
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = add_item(s, &keys[i], out);
    }
    snapshot_end(s);
    return rc;
}

int vj_lmdb_scan(VjEngine *e, const VjRange *range, size_t limit, VjItems *out,
                 bool *more, int64_t deadline_us)
{
    VjItem item = {.space = range->space, .key = range->from};
    VjEngineSnapshot *s;
    int rc = snapshot_begin(e, &s);

    (void)deadline_us;
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0; i++) {
        rc = vj_lmdb_snapshot_near(s, range->space, item.key, !range->backward, &item.key,
                                   &item.value, &item.version);
        if (rc < 0 || vj_range_ends(range, item.key)) {
            break;
        }
        if (i == limit) {
            *more = true;
            break;
        }
        rc = vj_items_add(out, &item);
    }
    snapshot_end(s);
    return rc == -ENOENT ? 0 : rc;
}

int vj_lmdb_count(VjEngine *e, VjSpace space, uint64_t *out)
{
    VjLmdb *d = (VjLmdb *)e;
    VjEngineSnapshot *s;
    MDB_stat st;
    int rc = snapshot_begin(e, &s);

    if (rc < 0) {
        return rc;
    }
    rc = mdb_stat(((VjLmdbSnapshot *)s)->lmdb, d->dbi[space], &st);
    *out = rc == 0 ? st.ms_entries : 0;
    rc = rc == 0 ? 0 : vj_lmdb_errno(d, rc, "mdb_stat");
    snapshot_end(s);
    return rc;
}
