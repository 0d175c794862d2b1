/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-reopen.c - when LMDB has given its environment up
 *
 * After a failed write of its own meta page LMDB refuses every transaction, also those that
 * only read, until the file is opened anew.  That is one bad moment of a device, and a mount
 * goes on for months: so the mover opens it anew.  The file is what the last good commit left
 * (or the one whose end failed, if it reached the device after all); the generation that was
 * to be moved is still in memory and is moved again, whichever of the two it was.
 *
 * LMDB must not have one file open twice in a process.  So the old environment is closed
 * first, and for that no transaction may be open: those that there are end soon, new ones are
 * refused, as LMDB itself refuses them.
 */
#include "meta/lmdb-page-format.h"
#include "meta/lmdb-private.h"

#include <unistd.h>

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
    vj_lmdb_views_clear(d);
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

static int open_again(VjLmdb *d)
{
    int rc;

    close_all(d);
    rc = vj_lmdb_env_open(d, d->map_bytes);
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

static bool is_in_use(const VjLmdb *d)
{
    return d->old_views + d->views + d->making > 0 || d->saving;
}

int vj_lmdb_mend(VjLmdb *d)
{
    int64_t until_us = vj_clock_mono_us() + VJ_LMDB_VIEWS_WAIT_US;
    int rc;

    g_assert(g_atomic_int_get(&d->broken) != 0);
    d->save_yields = d->saving;
    while (is_in_use(d) && !d->stopping) {
        if (!vj_cond_wait_until(&d->mover_wake, &d->state, until_us)) {
            return -EIO;
        }
    }
    if (is_in_use(d)) {
        return -EIO;
    }
    vj_mutex_unlock(&d->state);
    rc = open_again(d);
    vj_mutex_lock(&d->state);
    if (rc == 0) {
        d->metas_unsettled = true;
        g_atomic_int_set(&d->broken, 0);
        vj_log_warn("meta lmdb: %s: was opened again after LMDB gave it up", d->path);
    }
    return rc;
}

/*
 * LMDB puts an old meta page back where the write of the new one failed, and does not sync it.  So
 * the device may hold the new one, whose pages the next commit uses again: a power cut in that
 * commit would leave a meta page that leads to them.  What we read is made durable first, and
 * written for that: a page may count as clean after a failed sync.
 */
int vj_lmdb_settle_metas(VjLmdb *d)
{
    size_t len = (size_t)VJ_LMDB_META_PAGES * d->page_bytes;
    g_autofree uint8_t *pages = NULL;
    struct iovec iov;
    int rc;

    if (!d->metas_unsettled) {
        return 0;
    }
    pages = g_malloc(len);
    iov = (struct iovec){.iov_base = pages, .iov_len = len};
    rc = vj_fd_pread_all(d->fd, pages, len, 0);
    if (rc == 0) {
        rc = vj_fd_pwritev_all(d->fd, &iov, 1, 0);
    }
    if (rc == 0 && fdatasync(d->fd) != 0) {
        rc = -errno;
    }
    d->metas_unsettled = rc < 0;
    return rc == 0 ? 0 : vj_lmdb_errno(d, -rc, "writing the meta pages again");
}
