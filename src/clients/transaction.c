/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * transaction.c - operations of a batch that are one transaction of the metadata
 *
 * Those on names of objects, on attributes and on keys that follow one another, or all of
 * an atomic batch.  Namespaces and numbers of inodes are found before the transaction.
 * Its body may run again: it begins with the state of the run before it each time, and
 * what it brings about in memory is done when it has been committed.
 *
 * A namespace may be deleted meanwhile (empty.c).  What is put into one reads the record
 * of its directory in the transaction, and where that is not as it was found, all begins
 * again with the namespaces looked for anew.
 */
#include "clients/clients-private.h"

#include "fs/records.h"

/* Of one transaction, unless they are atomic. */
#define RUN_OPS_MAX 512u
#define RUN_BYTES_MAX ((size_t)4 << 20)
/* How often a namespace may be deleted while something is put into it. */
#define STALE_TRIES 16u

bool vj_client_is_in_transaction(uint8_t kind)
{
    return vj_client_is_key(kind) || kind == VARJFS_WIRE_OBJECT_CREATE ||
           kind == VARJFS_WIRE_OBJECT_DELETE || kind >= VARJFS_WIRE_ATTRIBUTE_PUT;
}

static bool writes(uint8_t kind)
{
    return kind != VARJFS_WIRE_KEY_GET && kind != VARJFS_WIRE_ATTRIBUTE_GET;
}

/* It gives space back, and takes none. */
static bool is_delete(uint8_t kind)
{
    return kind == VARJFS_WIRE_KEY_DELETE || kind == VARJFS_WIRE_ATTRIBUTE_DELETE ||
           kind == VARJFS_WIRE_OBJECT_DELETE;
}

/* It puts something into a namespace, which is made if need be. */
static bool makes(uint8_t kind)
{
    return kind == VARJFS_WIRE_KEY_PUT || kind == VARJFS_WIRE_OBJECT_CREATE;
}

/* ---- in the transaction ------------------------------------------------------------ */

/* The directory that @step was found to be in is still there and may be filled. */
static int check_dir(VjTxn *txn, VjClientTxn *t, uint64_t dir, bool keys)
{
    VjInode inode;
    int rc;

    if (dir == t->checked_dir) {
        return 0;
    }
    rc = vj_inode_get(txn, dir, &inode);
    if (rc == -ENOENT || (rc == 0 && (inode.nlink == 0 ||
                                      (keys && !(inode.flags & VJ_INODE_IMMUTABLE))))) {
        t->is_stale = true;
        return -ENOENT;
    }
    t->checked_dir = rc == 0 ? dir : 0;
    return rc;
}

static int do_one(VjTxn *txn, VjClientTxn *t, const VjClientOp *op, VjClientStep *step,
                  VjClientResult *result)
{
    bool is_key = vj_client_is_key(op->kind);
    int rc = step->refused;

    if (rc == 0 && makes(op->kind)) {
        rc = check_dir(txn, t, step->dir, is_key);
    }
    if (rc < 0) {
        return rc;
    }
    return is_key ? vj_client_key(txn, t, step, op, result)
                  : vj_client_item(txn, t, step, op, result);
}

/* What an operation may fail with while others of its transaction go on: then it has
 * changed nothing. */
static bool is_own_result(const VjClientOp *op, int rc)
{
    switch (rc) {
    case 0:
    case -ENOENT:
    case -EEXIST:
    case -ERANGE:
    case -EINVAL:
    case -EDOM:
    case -ENODATA:
    case -EISDIR:
    case -ENOTDIR:
    case -EPERM:
    case -EOPNOTSUPP:
    case VJ_CLIENT_RESERVED:
        return true;
    default: /* of what is damaged something may have gone already */
        return rc == -EBADMSG && (vj_client_is_key(op->kind) || !writes(op->kind));
    }
}

static void body_begin(VjClientTxn *t)
{
    t->batch = t->run->batch;
    t->out_len = t->run->out_len;
    t->is_stale = false;
    t->checked_dir = 0;
    vj_fs_after_begin(t->after);
}

static int body(VjTxn *txn, void *opaque)
{
    VjClientTxn *t = opaque;
    VjClientRun *run = t->run;
    bool stops = t->atomic || (run->batch.flags & VARJFS_WIRE_STOP) != 0;

    body_begin(t);
    for (t->done = 0; t->done < t->count; t->done++) {
        VjClientResult *result = &run->results[run->at + t->done];
        VjClientStep *step = &t->steps[t->done];
        VjClientOp op;
        int rc = vj_client_op_decode(&t->batch, &op);

        g_assert(rc == 0); /* all of them were decoded once */
        *result = (VjClientResult){0};
        rc = do_one(txn, t, &op, step, result);
        if (t->is_stale || (step->refused == 0 && !is_own_result(&op, rc))) {
            return rc;
        }
        result->rc = rc;
        if (rc < 0 && stops) {
            t->done++;
            return t->atomic ? -ECANCELED : 0;
        }
    }
    return 0;
}

/* ---- before it --------------------------------------------------------------------- */

static int check_name(const VjClientOp *op)
{
    char name[VARJFS_WIRE_NAME_MAX + 1];

    if (vj_client_is_key(op->kind)) {
        return op->name.len == 0 || op->name.len > VARJFS_WIRE_NAME_MAX ? -EINVAL : 0;
    }
    return vj_client_name(op->name, name);
}

/* A write that may be the first one to what the batch creates. */
static bool is_small_write(const VjClientOp *op)
{
    return op->kind == VARJFS_WIRE_OBJECT_WRITE && op->flags == 0 && op->offset == 0 &&
           op->brings.len <= VARJFS_WIRE_ATOMIC_WRITE_MAX;
}

/* What is known of one before the transaction: 0, or its own result. */
static int prepare_one(VjClientTxn *t, const VjClientOp *op, VjClientStep *step)
{
    VjClientRun *run = t->run;
    bool is_key = vj_client_is_key(op->kind);
    bool belongs = vj_client_is_in_transaction(op->kind) || is_small_write(op);
    int rc = !belongs                             ? -EOPNOTSUPP
             : writes(op->kind) && run->read_only ? -EROFS
                                                  : check_name(op);

    if (rc == 0 && !is_key) {
        rc = vj_client_item_prepare(run, op, step);
    }
    if (rc < 0) {
        return rc;
    }
    rc = vj_client_space(run->clients, is_key ? VJ_CLIENT_KEYS : VJ_CLIENT_OBJECTS,
                         op->space, makes(op->kind), &step->dir);
    return rc == -ENOENT ? 0 : rc;
}

/* Takes operations into @t as long as they belong there. */
static int prepare(VjClientTxn *t)
{
    VjClientRun *run = t->run;
    VjClientBatch at = run->batch;
    uint32_t left = run->batch.count - run->at;
    uint32_t most = t->atomic                     ? left
                    : run->at < run->singly_until ? 1
                                                  : MIN(left, RUN_OPS_MAX);
    size_t bytes = 0;

    t->steps = g_try_new0(VjClientStep, most);
    t->is_only_deletes = true;
    if (t->steps == NULL) {
        return -ENOMEM;
    }
    while (t->count < most && bytes < RUN_BYTES_MAX) {
        VjClientOp op;
        int rc;

        if (!t->atomic && !vj_client_is_in_transaction(at.ops.at[0])) {
            break;
        }
        rc = vj_client_op_decode(&at, &op);
        g_assert(rc == 0);
        t->steps[t->count].refused = prepare_one(t, &op, &t->steps[t->count]);
        t->count++;
        t->writes = t->writes || writes(op.kind);
        t->is_only_deletes = t->is_only_deletes && is_delete(op.kind);
        bytes += t->atomic ? 0 : op.brings.len;
    }
    return 0;
}

static int run_body(VjClientTxn *t)
{
    VjClients *c = t->run->clients;
    VjRunFlags flags = t->is_only_deletes ? VJ_RUN_RELEASE : VJ_RUN_DEFAULT;
    int rc;

    if (!t->writes || t->run->read_only) {
        return vj_meta_view(c->meta, body, t);
    }
    rc = vj_meta_run(c->meta, flags, body, t);
    /* What was deleted a moment ago is removed in the background. */
    if (rc == -ENOSPC && vj_volume_purge(c->volume) == 0) {
        rc = vj_meta_run(c->meta, flags, body, t);
    }
    return rc;
}

static void steps_clear(VjClientTxn *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        vj_client_step_clear(&t->steps[i]);
    }
    g_clear_pointer(&t->steps, g_free);
    t->count = 0;
    t->writes = false;
}

static void clear(VjClientTxn *t)
{
    steps_clear(t);
    g_free(t->record);
    vj_fs_after_free(t->after);
}

/* ---- behind it --------------------------------------------------------------------- */

/* Objects that it has deleted are not open any more. */
static void forget_deleted(VjClientTxn *t)
{
    VjClientRun *run = t->run;

    for (uint32_t i = 0; i < t->done; i++) {
        const VjClientStep *step = &t->steps[i];

        if (!step->is_creation && step->ino != 0 && run->results[run->at + i].rc == 0) {
            vj_client_forget_open(run, step->ino);
        }
    }
}

static void committed(VjClientTxn *t)
{
    VjClientRun *run = t->run;
    int rc = t->writes && !run->read_only ? vj_fs_after_commit(t->after) : 0;

    run->unsafe = run->unsafe < 0 ? run->unsafe : rc;
    forget_deleted(t);
    run->batch = t->batch;
    run->at += t->done;
    run->changes_meta = run->changes_meta || t->writes;
    run->out_len = t->out_len;
}

static int go(VjClientTxn *t)
{
    int rc;

    t->after = vj_fs_after_new(t->run->clients->fs);
    for (unsigned i = 0; i < STALE_TRIES; i++) {
        rc = prepare(t);
        rc = rc == 0 ? run_body(t) : rc;
        if (!t->is_stale) {
            if (rc == 0) {
                committed(t);
            }
            return rc;
        }
        vj_client_forget_spaces(t->run->clients);
        steps_clear(t);
        t->is_stale = false;
    }
    return -EBUSY;
}

/* One of them may be what it cannot be done for: each is tried by itself. */
static bool may_be_for_one(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT || rc == -ENOMEM || rc == -EBADMSG;
}

void vj_client_transaction(VjClientRun *run)
{
    VjClientTxn t = {.run = run};
    uint32_t from = run->at;
    int rc = go(&t);

    if (rc < 0 && t.count > 1 && may_be_for_one(rc)) {
        run->singly_until = from + t.count;
    } else if (rc < 0) { /* nothing of it was done */
        VjClientOp op;

        for (uint32_t i = 0; i < MAX(t.count, 1); i++) {
            int decoded = vj_client_op_decode(&run->batch, &op);

            g_assert(decoded == 0);
            run->results[from + i] = (VjClientResult){.rc = rc};
        }
        run->at = from + MAX(t.count, 1);
    }
    clear(&t);
}

int vj_client_transaction_atomic(VjClientRun *run)
{
    VjClientTxn t = {.run = run, .atomic = true};
    int rc = run->batch.bulk.len > VARJFS_WIRE_ATOMIC_BULK_MAX ? -EFBIG : go(&t);

    /* One of them failed: its result stands, and none was done. */
    if (rc == -ECANCELED && t.done > 0 && run->results[t.done - 1].rc < 0) {
        for (uint32_t i = 0; i < run->batch.count; i++) {
            if (i != t.done - 1) {
                run->results[i] = (VjClientResult){.rc = -ECANCELED};
            }
        }
        rc = 0;
    }
    clear(&t);
    return rc;
}
