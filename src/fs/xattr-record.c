/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * xattr-record.c - one extended attribute in a transaction
 */
#include "fs/fs-private.h"

int vj_xattr_exists(VjTxn *txn, uint64_t ino, const char *name, bool *out)
{
    VjFsKey key;
    VjSlice value;
    int r;

    vj_fs_key_name(&key, ino, name, strlen(name));
    vj_fs_expect_near(txn, VJ_SPACE_XATTR, &key, VJ_XATTRS_AHEAD);
    r = vj_txn_get(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key), &value);
    *out = r == 0;
    return r == -ENOENT ? 0 : r;
}

int vj_xattr_drop(VjTxn *txn, uint64_t ino, const char *name)
{
    VjFsKey key;
    int r;

    vj_fs_key_name(&key, ino, name, strlen(name));
    r = vj_txn_del(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key));
    return r == -ENOENT ? 0 : r;
}
