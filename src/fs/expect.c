/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * expect.c - keys that end with a name, and what stands beside them
 */
#include "fs/fs-private.h"

void vj_fs_expect_near(VjTxn *txn, VjSpace space, const VjFsKey *key, size_t count)
{
    uint8_t before[VJ_FS_KEY_MAX + 1];
    VjSlice slice = vj_fs_key_slice(key);

    if (!vj_txn_is_far(txn, (VjKey){.space = space, .key = slice})) {
        return;
    }
    /* Below the name, and hardly another name between: no name ends with a zero. */
    memcpy(before, slice.data, slice.len);
    before[slice.len - 1]--;
    before[slice.len] = UINT8_MAX;
    vj_txn_expect_run(txn, space, vj_slice(before, slice.len + 1), count);
}
