/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-reopen.c - when LMDB has given its environment up
 *
 * After a failed write of its own meta page LMDB refuses every transaction, also those
 * that only read, until the file is opened anew.  That is one bad moment of a device, and
 * a mount goes on for months: so apply opens it anew.  The file is what the last good
 * commit left (or the one whose end failed, if it reached the device after all); the
 * generation that was to be moved is still in memory and is moved again, whichever of the
 * two it was.
 *
 * After that the file is read; it is not written to any more (lmdb-renew.c): the write
 * that failed may have reached the device or not, and LMDB puts an old meta page back
 * without a sync.
 *
 * LMDB must not have one file open twice in a process.  So the old environment is closed
 * first, and for that no transaction may be open: those that there are end soon, new ones
 * wait.
 */
#include <fcntl.h>
#include <unistd.h>

#include "meta/lmdb-private.h"

bool vj_lmdb_is_broken(VjLmdb *d)
{
    int rc;

    if (g_atomic_int_get(&d->broken) == 0) {
        g_assert(d->measure_txn != NULL);
        rc = mdb_txn_renew(d->measure_txn);
        if (rc == 0) {
            mdb_txn_reset(d->measure_txn);
        } else if (rc == MDB_PANIC) {
            g_atomic_int_set(&d->broken, 1);
        }
    }
    return g_atomic_int_get(&d->broken) != 0;
}

static int open_spaces(VjLmdb *d, MDB_txn *txn)
{
    int rc = mdb_dbi_open(txn, NULL, 0, &d->unnamed);

    for (unsigned i = 0; rc == 0 && i < VJ_SPACE_COUNT; i++) {
        char name[8];

        rc = mdb_dbi_open(txn, vj_lmdb_space_name(i, name), 0, &d->dbi[i]);
    }
    return rc;
}

static int open_databases(VjLmdb *d)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &txn);

    if (rc != 0) {
        return rc;
    }
    rc = open_spaces(d, txn);
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    return mdb_txn_commit(txn); /* keeps them open */
}

static void close_all(VjLmdb *d)
{
    vj_lmdb_snapshots_reset(d);
    if (d->measure_txn != NULL) {
        mdb_txn_abort(d->measure_txn);
        d->measure_txn = NULL;
    }
    if (d->save_txn != NULL) {
        mdb_txn_abort(d->save_txn);
        d->save_txn = NULL;
    }
    if (d->env != NULL) {
        mdb_env_close(d->env);
        d->env = NULL;
    }
}

/* A descriptor that others may be using gets another file. */
static int follow_file(VjLmdb *d)
{
    VJ_AUTO_FD fd = vj_lmdb_open_own(d);

    if (fd < 0) {
        return -vj_fd_steal(&fd);
    }
    return dup3(fd, d->fd, O_CLOEXEC) < 0 ? errno : 0;
}

int vj_lmdb_open_again(VjLmdb *d)
{
    int rc;

    close_all(d);
    rc = vj_lmdb_env_open(d, d->map_bytes);
    if (rc == 0) {
        rc = follow_file(d);
    }
    if (rc == 0) {
        rc = open_databases(d);
    }
    if (rc == 0) {
        rc = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &d->measure_txn);
    }
    if (rc == 0) {
        mdb_txn_reset(d->measure_txn);
        rc = mdb_txn_begin(d->env, NULL, MDB_RDONLY, &d->save_txn);
    }
    if (rc != 0) {
        close_all(d);
        return vj_lmdb_errno(d, rc, "opening it again");
    }
    mdb_txn_reset(d->save_txn);
    return 0;
}

static bool is_in_use(const VjLmdb *d) VJ_REQUIRES(&d->lock)
{
    return vj_lmdb_snapshots_in_use(d, true) || d->saving;
}

/* A transaction that is open may need another one before it ends: then there is no
 * waiting. */
static bool wait_for_snapshots(VjLmdb *d, int64_t wait_us) VJ_REQUIRES(&d->lock)
{
    int64_t until_us = vj_clock_mono_us() + wait_us;

    d->save_yields = d->saving;
    g_atomic_int_set(&d->waiting, 1);
    while (is_in_use(d) && vj_cond_wait_until(&d->changed, &d->lock, until_us)) {
    }
    g_atomic_int_set(&d->waiting, 0);
    return !is_in_use(d);
}

void vj_lmdb_let_go(VjLmdb *d)
{
    vj_mutex_assert_held(&d->lock);
    g_atomic_int_set(&d->reopening, 0);
    vj_cond_broadcast(&d->changed);
}

bool vj_lmdb_hold(VjLmdb *d, int64_t wait_us)
{
    g_atomic_int_set(&d->reopening, 1);
    if (wait_for_snapshots(d, wait_us)) {
        return true;
    }
    vj_lmdb_let_go(d);
    return false;
}

int vj_lmdb_reopen(VjLmdb *d)
{
    int rc = -EIO;

    if (vj_lmdb_hold(d, VJ_LMDB_SNAPSHOTS_WAIT_US)) {
        vj_mutex_unlock(&d->lock);
        rc = vj_lmdb_open_again(d);
        vj_mutex_lock(&d->lock);
        g_atomic_int_set(&d->broken, rc != 0);
        vj_lmdb_let_go(d);
    }
    return rc;
}

int vj_lmdb_mend(VjLmdb *d)
{
    int rc;

    g_assert(g_atomic_int_get(&d->broken) != 0);
    rc = vj_lmdb_reopen(d);
    if (rc == 0) {
        vj_log_warn("meta lmdb: %s: was opened again after LMDB gave it up", d->path);
    }
    return rc;
}
