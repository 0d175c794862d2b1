/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * acl.c - access control lists: inheritance, and their agreement with the mode
 *
 * Permissions are checked by the kernel, which asks for a list by getxattr.  What is
 * kept here is the invariant that check.c verifies: the owner's, the mask's (without a
 * mask: the owning group's) and the others' permissions of an access list are those of
 * the mode.  So setting a list changes the mode, chmod changes the list, and a list that
 * says no more than the mode is not kept.
 */
#include "fs/fs-private.h"

static int list_get(VjTxn *txn, uint64_t ino, const char *name, VjAcl *out)
{
    VjFsKey key;
    VjSlice value, plain;
    int r;

    vj_fs_key_name(&key, ino, name, strlen(name));
    vj_fs_expect_near(txn, VJ_SPACE_XATTR, &key, VJ_XATTRS_AHEAD);
    r = vj_txn_get(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key), &value);
    if (r < 0) {
        return r == -ENOENT ? -ENODATA : r;
    }
    r = vj_xattr_decode(vj_fs_key_slice(&key), value, &plain);
    if (r == 0) {
        r = vj_acl_decode(plain, out);
    }
    if (r < 0) {
        vj_log_error("inode %" G_GUINT64_FORMAT ": its access control list is damaged",
                     ino);
        return -EBADMSG;
    }
    return 0;
}

static int list_put(VjTxn *txn, uint64_t ino, const char *name, const VjAcl *acl)
{
    uint8_t plain[VJ_ACL_MAX_BYTES], record[sizeof(VjXattrDisk) + VJ_ACL_MAX_BYTES];
    size_t len = vj_acl_encode(acl, plain);
    VjFsKey key;

    vj_fs_key_name(&key, ino, name, strlen(name));
    vj_xattr_encode(&key, plain, len, record);
    return vj_txn_put(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key),
                      vj_slice(record, sizeof(VjXattrDisk) + len));
}

static int list_del(VjTxn *txn, uint64_t ino, const char *name)
{
    VjFsKey key;
    int r;

    vj_fs_key_name(&key, ino, name, strlen(name));
    r = vj_txn_del(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key));
    return r == -ENOENT ? -ENODATA : r;
}

/* The entries that stand for the three classes of a mode.  @class: the mask counts for
 * the group where there is one. */
typedef struct Classes {
    VjAclEntry *owner, *group, *other;
    bool extended; /* there is more than a mode says */
} Classes;

static Classes classes_of(VjAcl *acl)
{
    Classes c = {.owner = NULL};

    for (size_t i = 0; i < acl->count; i++) {
        VjAclEntry *e = &acl->entries[i];

        switch (e->tag) {
        case VJ_ACL_OWNER:
            c.owner = e;
            break;
        case VJ_ACL_OWNING_GROUP: /* a mask comes later and takes its place */
        case VJ_ACL_MASK:
            c.group = e;
            break;
        case VJ_ACL_OTHER:
            c.other = e;
            break;
        default:
            break;
        }
        c.extended |= (e->tag & (VJ_ACL_USER | VJ_ACL_GROUP | VJ_ACL_MASK)) != 0;
    }
    g_assert(c.owner != NULL && c.group != NULL && c.other != NULL);
    return c;
}

static mode_t classes_mode(const Classes *c)
{
    return (mode_t)(c->owner->perm << 6 | c->group->perm << 3 | c->other->perm);
}

bool vj_acl_agrees(const VjAcl *acl, mode_t mode)
{
    VjAcl copy = *acl;
    Classes c = classes_of(&copy);

    return classes_mode(&c) == (mode & 0777);
}

int vj_acl_inherit(VjTxn *txn, const VjInode *dir, mode_t umask, VjInode *inode)
{
    VjAcl acl;
    Classes c;
    int r;

    if (S_ISLNK(inode->mode)) {
        return 0;
    }
    r = list_get(txn, dir->ino, VJ_ACL_DEFAULT, &acl);
    if (r < 0) {
        inode->mode &= ~(umask & 0777);
        return r == -ENODATA ? 0 : r;
    }
    if (S_ISDIR(inode->mode)) {
        r = list_put(txn, inode->ino, VJ_ACL_DEFAULT, &acl);
        if (r < 0) {
            return r;
        }
    }
    /* What the caller asked for limits the classes; named users and groups are limited by
     * the mask alone. */
    c = classes_of(&acl);
    c.owner->perm &= inode->mode >> 6 & 7;
    c.group->perm &= inode->mode >> 3 & 7;
    c.other->perm &= inode->mode & 7;
    inode->mode = (inode->mode & ~(mode_t)0777) | classes_mode(&c);
    return c.extended ? list_put(txn, inode->ino, VJ_ACL_ACCESS, &acl) : 0;
}

int vj_acl_chmod(VjTxn *txn, const VjInode *inode)
{
    VjAcl acl;
    Classes c;
    int r = list_get(txn, inode->ino, VJ_ACL_ACCESS, &acl);

    if (r < 0) {
        return r == -ENODATA ? 0 : r;
    }
    c = classes_of(&acl);
    c.owner->perm = inode->mode >> 6 & 7;
    c.group->perm = inode->mode >> 3 & 7;
    c.other->perm = inode->mode & 7;
    return list_put(txn, inode->ino, VJ_ACL_ACCESS, &acl);
}

bool vj_acl_is_name(const char *name)
{
    return strcmp(name, VJ_ACL_ACCESS) == 0 || strcmp(name, VJ_ACL_DEFAULT) == 0;
}

int vj_acl_set(VjTxn *txn, VjInode *inode, const char *name, VjSlice value,
               bool keep_set_gid)
{
    bool access = strcmp(name, VJ_ACL_ACCESS) == 0;
    VjAcl acl;
    Classes c;
    int r;

    if (S_ISLNK(inode->mode)) {
        return -EOPNOTSUPP;
    }
    if (!access && !S_ISDIR(inode->mode)) {
        return -EACCES;
    }
    r = vj_acl_decode(value, &acl);
    if (r < 0) {
        return r;
    }
    if (!access) {
        return list_put(txn, inode->ino, name, &acl);
    }
    c = classes_of(&acl);
    inode->mode = (inode->mode & ~(mode_t)0777) | classes_mode(&c);
    if (!keep_set_gid) {
        inode->mode &= ~(mode_t)S_ISGID;
    }
    if (c.extended) {
        return list_put(txn, inode->ino, name, &acl);
    }
    r = list_del(txn, inode->ino, name);
    return r == -ENODATA ? 0 : r;
}

int vj_acl_remove(VjTxn *txn, const VjInode *inode, const char *name)
{
    return S_ISLNK(inode->mode) ? -EOPNOTSUPP : list_del(txn, inode->ino, name);
}
