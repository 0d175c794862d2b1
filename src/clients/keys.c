/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * keys.c - operations on keys
 *
 * A key is a record of VJ_SPACE_XATTR under its namespace's directory; its name there
 * begins with VJ_FS_KEY_RECORD, as no extended attribute's does, so programs of a mount
 * do not see it.  A run of operations is one transaction, which may run again: its body
 * begins with the state of the run before it each time.
 */
#include "clients/clients-private.h"

#include "fs/fs-format.h"

/* Of one transaction, unless they are atomic. */
#define RUN_OPS_MAX 512u
#define RUN_BYTES_MAX ((size_t)4 << 20)

typedef struct KeysRun {
    VjClientRun *run;
    bool atomic;
    uint32_t count;   /* operations of it, from run->at on */
    uint64_t *spaces; /* their directories; 0: not there */
    int *refused;     /* 0, or why one is not begun: its own result */
    uint8_t *record;  /* room for an encoded value */
    bool writes;
    /* out: */
    uint32_t done;
    VjClientBatch batch; /* behind them */
    size_t out_len;
} KeysRun;

static bool writes(uint8_t kind)
{
    return kind != VARJFS_WIRE_KEY_GET;
}

/* ---- in the transaction ------------------------------------------------------------ */

static int key_get(VjTxn *txn, KeysRun *k, const VjFsKey *key, uint32_t most,
                   VjClientResult *result)
{
    VjBuf *out = k->run->out;
    VjSlice record, value;
    int rc = vj_txn_get(txn, VJ_SPACE_XATTR, vj_fs_key_slice(key), &record);

    rc = rc == 0 ? vj_xattr_decode(vj_fs_key_slice(key), record, &value) : rc;
    if (rc < 0) {
        return rc;
    }
    result->value = value.len;
    if (value.len > most) {
        return -ERANGE;
    }
    if (value.len > 0) {
        memcpy(out->data + k->out_len, value.data, value.len);
    }
    k->out_len += value.len;
    return 0;
}

static int key_put(VjTxn *txn, const KeysRun *k, const VjFsKey *key, const VjClientOp *op)
{
    VjSlice old;
    int rc = (op->flags & VARJFS_WIRE_EXCLUSIVE) == 0
                 ? -ENOENT
                 : vj_txn_get(txn, VJ_SPACE_XATTR, vj_fs_key_slice(key), &old);

    if (rc != -ENOENT) {
        return rc == 0 ? -EEXIST : rc;
    }
    vj_xattr_encode(key, op->brings.data, op->brings.len, k->record);
    return vj_txn_put(txn, VJ_SPACE_XATTR, vj_fs_key_slice(key),
                      vj_slice(k->record, sizeof(VjXattrDisk) + op->brings.len));
}

static int do_one(VjTxn *txn, KeysRun *k, const VjClientOp *op, uint64_t space,
                  VjClientResult *result)
{
    VjFsKey key;

    if (space == 0) {
        return -ENOENT;
    }
    vj_fs_key_record(&key, space, op->name);
    switch (op->kind) {
    case VARJFS_WIRE_KEY_PUT:
        return key_put(txn, k, &key, op);
    case VARJFS_WIRE_KEY_GET:
        return key_get(txn, k, &key, op->most, result);
    default:
        return vj_txn_del(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key));
    }
}

/* What an operation may fail with while others of its transaction go on. */
static bool is_own_result(int rc)
{
    return rc == 0 || rc == -ENOENT || rc == -EEXIST || rc == -ERANGE || rc == -EINVAL ||
           rc == -EBADMSG;
}

static int keys_body(VjTxn *txn, void *opaque)
{
    KeysRun *k = opaque;
    VjClientRun *run = k->run;
    bool stops = k->atomic || (run->batch.flags & VARJFS_WIRE_STOP) != 0;

    k->batch = run->batch;
    k->out_len = run->out != NULL ? run->out->len : 0;
    for (k->done = 0; k->done < k->count; k->done++) {
        VjClientResult *result = &run->results[run->at + k->done];
        VjClientOp op;
        int rc = vj_client_op_decode(&k->batch, &op);

        g_assert(rc == 0); /* all of them were decoded once */
        *result = (VjClientResult){0};
        rc = k->refused[k->done];
        if (rc == 0) {
            rc = do_one(txn, k, &op, k->spaces[k->done], result);
            if (!is_own_result(rc)) {
                return rc;
            }
        }
        result->rc = rc;
        if (rc < 0 && stops) {
            k->done++;
            return k->atomic ? -ECANCELED : 0;
        }
    }
    return 0;
}

/* ---- before and behind it ---------------------------------------------------------- */

static int refuse(const VjClientRun *run, const VjClientOp *op)
{
    if (op->kind < VARJFS_WIRE_KEY_PUT) {
        return -EOPNOTSUPP; /* of an atomic batch */
    }
    if (op->name.len == 0 || op->name.len > VARJFS_WIRE_NAME_MAX) {
        return -EINVAL;
    }
    return writes(op->kind) && run->read_only ? -EROFS : 0;
}

/* Takes operations into @k as long as they belong there, and finds their namespaces,
 * which no transaction does. */
static int prepare(KeysRun *k)
{
    VjClientRun *run = k->run;
    VjClientBatch at = run->batch;
    uint32_t left = run->batch.count - run->at;
    uint32_t most = k->atomic ? left : MIN(left, RUN_OPS_MAX);
    size_t bytes = 0;

    k->spaces = g_try_new0(uint64_t, most);
    k->refused = g_try_new0(int, most);
    k->record = g_try_malloc(sizeof(VjXattrDisk) + VARJFS_WIRE_VALUE_MAX);
    if (k->spaces == NULL || k->refused == NULL || k->record == NULL) {
        return -ENOMEM;
    }
    while (k->count < most && bytes < RUN_BYTES_MAX) {
        VjClientOp op;
        int rc;

        if (!k->atomic && at.ops.at[0] < VARJFS_WIRE_KEY_PUT) {
            break;
        }
        rc = vj_client_op_decode(&at, &op);
        if (rc < 0) {
            return rc;
        }
        rc = refuse(run, &op);
        rc = rc == 0
                 ? vj_client_space(run->clients, VJ_CLIENT_KEYS, op.space,
                                   op.kind == VARJFS_WIRE_KEY_PUT, &k->spaces[k->count])
                 : rc;
        k->refused[k->count++] = rc == -ENOENT ? 0 : rc;
        k->writes = k->writes || writes(op.kind);
        bytes += k->atomic ? 0 : op.brings.len;
    }
    return 0;
}

static int run_body(KeysRun *k)
{
    VjClients *c = k->run->clients;
    int rc;

    if (!k->writes) {
        return vj_meta_view(c->meta, keys_body, k);
    }
    rc = vj_meta_run(c->meta, VJ_RUN_DEFAULT, keys_body, k);
    /* What was deleted a moment ago is removed in the background. */
    if (rc == -ENOSPC && vj_volume_purge(c->volume) == 0) {
        rc = vj_meta_run(c->meta, VJ_RUN_DEFAULT, keys_body, k);
    }
    return rc;
}

static void keys_clear(KeysRun *k)
{
    g_free(k->spaces);
    g_free(k->refused);
    g_free(k->record);
}

static int go(KeysRun *k)
{
    VjClientRun *run = k->run;
    int rc = prepare(k);

    rc = rc == 0 ? run_body(k) : rc;
    if (rc == 0) {
        run->batch = k->batch;
        run->at += k->done;
        run->changes_meta = run->changes_meta || k->writes;
        if (run->out != NULL) {
            run->out->len = k->out_len;
        }
    }
    return rc;
}

void vj_client_keys(VjClientRun *run)
{
    KeysRun k = {.run = run};
    uint32_t from = run->at;
    int rc = go(&k);

    if (rc < 0) { /* nothing of it was done */
        VjClientOp op;

        for (uint32_t i = 0; i < MAX(k.count, 1); i++) {
            int decoded = vj_client_op_decode(&run->batch, &op);

            g_assert(decoded == 0);
            run->results[from + i] = (VjClientResult){.rc = rc};
        }
        run->at = from + MAX(k.count, 1);
    }
    keys_clear(&k);
}

int vj_client_keys_atomic(VjClientRun *run)
{
    KeysRun k = {.run = run, .atomic = true};
    int rc = run->batch.bulk.len > VARJFS_WIRE_ATOMIC_BULK_MAX ? -EFBIG : go(&k);

    /* One of them failed: its result stands, and none was done. */
    if (rc == -ECANCELED && k.done > 0 && run->results[k.done - 1].rc < 0) {
        for (uint32_t i = 0; i < run->batch.count; i++) {
            if (i != k.done - 1) {
                run->results[i] = (VjClientResult){.rc = -ECANCELED};
            }
        }
        rc = 0;
    }
    keys_clear(&k);
    return rc;
}
