/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * records.h - names and attributes in a transaction, for the rooms that check and repair
 * them
 */
#ifndef VJ_FS_RECORDS_H
#define VJ_FS_RECORDS_H

#include <dirent.h>
#include <sys/stat.h>

#include "file/file.h"
#include "fs/fs-format.h"

/* What a name says of the inode: DT_*. */
static inline uint8_t vj_fs_type(mode_t mode)
{
    return (uint8_t)IFTODT(mode);
}

/* One name (names.c).  @dir is changed, its caller puts it. */
int vj_name_get(VjTxn *txn, uint64_t dir, const char *name,
                VjDentry *out) G_GNUC_WARN_UNUSED_RESULT;
int vj_name_add(VjTxn *txn, VjInode *dir, const char *name, uint64_t ino,
                uint8_t type) G_GNUC_WARN_UNUSED_RESULT;
/* Access lists (acl.c).  @name is that of an attribute which has one. */
bool vj_acl_is_name(const char *name);
/* The permissions of an access list are those of @mode. */
bool vj_acl_agrees(const VjAcl *acl, mode_t mode);
/* The permissions in the mode of @inode are new. */
int vj_acl_chmod(VjTxn *txn, const VjInode *inode) G_GNUC_WARN_UNUSED_RESULT;
/* Takes the attribute away if it is there (xattr-record.c). */
int vj_xattr_drop(VjTxn *txn, uint64_t ino, const char *name) G_GNUC_WARN_UNUSED_RESULT;

#endif
