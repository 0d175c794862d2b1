/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * lmdb-apply.c - one batch into the file, in one synchronous LMDB transaction
 *
 * A batch that failed leaves LMDB's file as it was.  Where LMDB gives up, the file is
 * opened anew (lmdb-reopen.c); where a write of it failed, the next try writes into a new
 * file (lmdb-renew.c), as the pages of the old one cannot be relied upon any more.
 */
#include "meta/lmdb-format.h"
#include "meta/lmdb-private.h"

/* ---- The batch ------------------------------------------------------------------- */

static int write_change(VjLmdb *d, MDB_txn *txn, const VjChange *change)
{
    MDB_dbi dbi = d->dbi[change->space];
    MDB_val key = {.mv_size = change->key.len, .mv_data = (void *)change->key.data};
    MDB_val value = {.mv_size = change->value.len, .mv_data = (void *)change->value.data};
    int rc;

    if (!change->is_delete) {
        rc = mdb_put(txn, dbi, &key, &value, 0);
        return rc == 0 ? 0 : vj_lmdb_errno(d, rc, "mdb_put");
    }
    rc = mdb_del(txn, dbi, &key, NULL);
    return rc == 0 || rc == MDB_NOTFOUND ? 0 : vj_lmdb_errno(d, rc, "mdb_del");
}

/* LMDB commits nothing where nothing was written. */
static int write_number(VjLmdb *d, MDB_txn *txn, uint64_t number)
{
    MDB_val key = {.mv_size = strlen(VJ_LMDB_NUMBER_KEY), .mv_data = VJ_LMDB_NUMBER_KEY};
    MDB_val value = {.mv_size = sizeof number, .mv_data = &number};
    int rc = mdb_put(txn, d->unnamed, &key, &value, 0);

    return rc == 0 ? 0 : vj_lmdb_errno(d, rc, "mdb_put");
}

static int write_changes(VjLmdb *d, MDB_txn *txn, const VjBatch *batch)
{
    int rc = batch->count > 0 ? 0 : write_number(d, txn, batch->number);
    const void *at = NULL;
    VjChange change;

    while (rc == 0 && batch->next(batch, &at, &change)) {
        rc = write_change(d, txn, &change);
    }
    if (rc < 0) {
        return rc;
    }
    rc = vj_lmdb_log_note(d, txn, batch->log);
    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_put");
    }
    return d->hook == NULL ? 0 : d->hook(d->hook_opaque);
}

/* ---- Checks ---------------------------------------------------------------------- */

/* What is there now of @key, borrowed from @txn; version 0: nothing. */
static int look(VjLmdb *d, MDB_txn *txn, const VjKey *key, VjItem *out)
{
    MDB_val file_key = {.mv_size = key->key.len, .mv_data = (void *)key->key.data};
    MDB_val value;
    int rc = mdb_get(txn, d->dbi[key->space], &file_key, &value);

    *out = (VjItem){.space = key->space, .key = key->key};
    if (rc != 0) {
        return rc == MDB_NOTFOUND ? 0 : vj_lmdb_errno(d, rc, "mdb_get");
    }
    if (value.mv_size > VJ_META_VALUE_MAX) {
        return -EBADMSG;
    }
    out->value = vj_slice(value.mv_data, value.mv_size);
    out->version = vj_lmdb_version(out->value);
    return 0;
}

static int add_fresh(VjLmdb *d, MDB_txn *txn, const VjBatch *batch, VjItems *fresh)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < batch->check_count; i++) {
        VjItem item;

        rc = look(d, txn, &batch->checks[i].key, &item);
        if (rc == 0) {
            rc = vj_items_add(fresh, &item);
        }
    }
    return rc == 0 ? -EAGAIN : rc;
}

/* 0, or why nothing is to be written. */
static int check(VjLmdb *d, MDB_txn *txn, const VjBatch *batch, VjItems *fresh)
{
    VjItem item;
    int rc = 0;

    if (batch->fence != NULL) {
        rc = look(d, txn, &batch->fence->key, &item);
        if (rc == 0 && item.version != batch->fence->version) {
            rc = -ESTALE;
        }
    }
    for (size_t i = 0; rc == 0 && i < batch->check_count; i++) {
        rc = look(d, txn, &batch->checks[i].key, &item);
        if (rc == 0 && item.version != batch->checks[i].version) {
            return add_fresh(d, txn, batch, fresh);
        }
    }
    return rc;
}

/* ---- Writing --------------------------------------------------------------------- */

static int commit(VjLmdb *d, MDB_txn *txn, const VjBatch *batch)
{
    uint64_t number = mdb_txn_id(txn);
    int rc = mdb_txn_commit(txn);

    if (rc == 0) {
        /* Blocks that are written for the first time need the journal of the file
         * system. */
        rc = -vj_fd_check_alive(d->dir_fd);
    }
    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_txn_commit");
    }
    d->claimed = batch->log != NULL;
    d->good_commit = number;
    return 0;
}

/* *refused: nothing was written, because a check said so. */
static int write_batch(VjLmdb *d, const VjBatch *batch, VjItems *fresh, bool *refused)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(d->env, NULL, 0, &txn);

    *refused = false;
    if (rc != 0) {
        return vj_lmdb_errno(d, rc, "mdb_txn_begin");
    }
    rc = check(d, txn, batch, fresh);
    *refused = rc < 0;
    if (rc == 0) {
        rc = write_changes(d, txn, batch);
    }
    if (rc < 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    return commit(d, txn, batch);
}

/* Snapshots are short; one that is not costs a batch its patience, not its life. */
static void wait_for_old_snapshots(VjLmdb *d, const VjLoad *load) VJ_REQUIRES(&d->lock)
{
    int64_t until_us = vj_clock_mono_us() + VJ_LMDB_SNAPSHOTS_WAIT_US;

    if (load == NULL || !vj_lmdb_space_is_tight(d, load)) {
        return;
    }
    g_atomic_int_set(&d->waiting, 1);
    while (vj_lmdb_snapshots_in_use(d, false) &&
           vj_cond_wait_until(&d->changed, &d->lock, until_us)) {
    }
    g_atomic_int_set(&d->waiting, 0);
}

/* A file that can be written to. */
static int make_ready(VjLmdb *d) VJ_REQUIRES(&d->lock)
{
    int rc = g_atomic_int_get(&d->broken) != 0 ? vj_lmdb_mend(d) : 0;

    if (rc < 0 || !d->suspect) {
        return rc;
    }
    while (vj_clock_mono_us() < d->renew_us &&
           vj_cond_wait_until(&d->changed, &d->lock, d->renew_us)) {
    }
    return vj_lmdb_renew(d);
}

static void after_failure(VjLmdb *d, int rc)
{
    bool lost = vj_lmdb_write_was_lost(d, rc);
    bool broken = vj_lmdb_is_broken(d);

    vj_mutex_lock(&d->lock);
    vj_lmdb_notes_spoil(d);
    if (lost) {
        vj_lmdb_suspect(d, rc);
    }
    if (broken && vj_lmdb_mend(d) < 0) {
        vj_log_error("meta lmdb: %s: cannot be read until it has been opened again",
                     d->path);
    }
    vj_mutex_unlock(&d->lock);
}

static int apply(VjLmdb *d, const VjBatch *batch, VjItems *fresh)
{
    VjLmdbFile file;
    bool refused;
    int rc;

    vj_mutex_lock(&d->lock);
    rc = make_ready(d);
    if (rc == 0) {
        wait_for_old_snapshots(d, batch->load);
    }
    vj_mutex_unlock(&d->lock);
    if (rc < 0) {
        return rc;
    }
    rc = write_batch(d, batch, fresh, &refused);
    if (refused) {
        return rc;
    }
    if (rc == 0) {
        rc = vj_lmdb_file_measure(d, &file);
    }
    if (rc < 0) {
        after_failure(d, rc);
        return rc;
    }
    vj_lmdb_notes_add(d, batch);
    vj_mutex_lock(&d->lock);
    g_atomic_int_inc(&d->moves);
    vj_lmdb_file_update(d, &file);
    vj_lmdb_rewrite_look(d, batch->count > 0);
    vj_mutex_unlock(&d->lock);
    return 0;
}

int vj_lmdb_apply(VjEngine *e, const VjBatch *batch, VjItems *fresh, int64_t deadline_us)
{
    VjLmdb *d = (VjLmdb *)e;
    int rc;

    (void)deadline_us;
    if (d->read_only) {
        return -EROFS;
    }
    vj_mutex_lock(&d->lock);
    while (d->exchanging) {
        vj_cond_wait(&d->changed, &d->lock);
    }
    d->applying = true;
    vj_mutex_unlock(&d->lock);
    rc = apply(d, batch, fresh);
    vj_mutex_lock(&d->lock);
    d->applying = false;
    if (d->rewrite.runs) {
        vj_cond_broadcast(&d->changed);
    }
    vj_mutex_unlock(&d->lock);
    return rc;
}

/* ---- Tests ----------------------------------------------------------------------- */

void vj_lmdb_set_move_hook_for_test(VjEngine *e, VjLmdbMoveHook *hook, void *opaque)
{
    VjLmdb *d = (VjLmdb *)e;

    g_assert(e->ops == &vj_engine_lmdb_ops);
    vj_mutex_lock(&d->lock);
    d->hook_opaque = opaque;
    d->hook = hook;
    vj_mutex_unlock(&d->lock);
}
