/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * keys.c - operations on keys in a transaction
 *
 * A key is a record of VJ_SPACE_XATTR under its namespace's directory; its name there
 * begins with VJ_FS_KEY_RECORD, as no extended attribute's does, so programs of a mount
 * do not see it.
 */
#include "clients/clients-private.h"

#include "fs/fs-format.h"

int vj_client_value_get(VjTxn *txn, VjClientTxn *t, const VjFsKey *key, uint32_t most,
                        VjClientResult *result)
{
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
        memcpy(t->run->out + t->out_len, value.data, value.len);
    }
    t->out_len += value.len;
    return 0;
}

static int key_put(VjTxn *txn, VjClientTxn *t, const VjFsKey *key, const VjClientOp *op)
{
    VjSlice old;
    int rc = (op->flags & VARJFS_WIRE_EXCLUSIVE) == 0
                 ? -ENOENT
                 : vj_txn_get(txn, VJ_SPACE_XATTR, vj_fs_key_slice(key), &old);

    if (rc != -ENOENT) {
        return rc == 0 ? -EEXIST : rc;
    }
    if (t->record == NULL) {
        t->record = g_try_malloc(sizeof(VjXattrDisk) + VARJFS_WIRE_VALUE_MAX);
    }
    if (t->record == NULL) {
        return -ENOMEM;
    }
    vj_xattr_encode(key, op->brings.data, op->brings.len, t->record);
    return vj_txn_put(txn, VJ_SPACE_XATTR, vj_fs_key_slice(key),
                      vj_slice(t->record, sizeof(VjXattrDisk) + op->brings.len));
}

int vj_client_key(VjTxn *txn, VjClientTxn *t, const VjClientStep *step,
                  const VjClientOp *op, VjClientResult *result)
{
    VjFsKey key;

    if (step->dir == 0) {
        return -ENOENT;
    }
    vj_fs_key_record(&key, step->dir, op->name);
    switch (op->kind) {
    case VARJFS_WIRE_KEY_PUT:
        return key_put(txn, t, &key, op);
    case VARJFS_WIRE_KEY_GET:
        return vj_client_value_get(txn, t, &key, op->most, result);
    default:
        return vj_txn_del(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key));
    }
}
