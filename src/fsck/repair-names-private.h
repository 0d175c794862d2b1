/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * repair-private.h - what repair.c and repair-names.c share
 */
#ifndef VJ_FSCK_REPAIR_NAMES_PRIVATE_H
#define VJ_FSCK_REPAIR_NAMES_PRIVATE_H

#include "fs/records.h"
#include "fsck/repair-private.h"

static inline VjSlice vj_repair_ino_key(uint64_t ino, uint8_t key[8])
{
    vj_be64_set(key, ino);
    return vj_slice(key, 8);
}

/* The first number of a key: the directory of a name, the inode of an attribute. */
static inline uint64_t vj_repair_dir_of(VjSlice key)
{
    return vj_be64_get(key.data);
}

/* The name behind it; and escaped, owned, for messages. */
static inline VjSlice vj_repair_name_slice(VjSlice key)
{
    return vj_slice((const uint8_t *)key.data + 8, key.len - 8);
}

static inline char *vj_repair_name_of(VjSlice key)
{
    g_autofree char *raw = g_strndup((const char *)key.data + 8, key.len - 8);

    return g_strescape(raw, NULL);
}

/* Queue one of the two records of a name. */
void vj_repair_put_dentry(VjRepair *r, uint64_t dir, VjSlice name, const VjDentry *d);
void vj_repair_put_cookie(VjRepair *r, uint64_t dir, VjSlice name, const VjDentry *d);

/* Names against inodes: links, counts, parents, types, rings, lost+found, attributes. */
int vj_repair_names(VjRepair *r) G_GNUC_WARN_UNUSED_RESULT;

#endif
