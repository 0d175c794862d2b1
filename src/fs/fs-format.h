/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fs-format.h - bytes of names and extended attributes
 *
 * Integers are little-endian.  Numbers in keys are big-endian, so that they sort:
 *   VJ_SPACE_DENTRY  directory (8), name (1..255): VjDentryDisk
 *   VJ_SPACE_COOKIE  directory (8), cookie (8): VjCookieDisk and the name
 *   VJ_SPACE_XATTR   inode (8), name (1..255): VjXattrDisk and the value
 * Each checksum covers the key, the record before the checksum, and what follows it, so a
 * record that lies under another's key is found out.  The last byte of a magic is the
 * version of its record; what is reserved is 0, and anything else is refused.
 */
#ifndef VJ_FS_FS_FORMAT_H
#define VJ_FS_FS_FORMAT_H

#include "meta/meta.h"

#define VJ_NAME_MAX 255u               /* bytes of a name, of an attribute's name too */
#define VJ_XATTR_VALUE_MAX (64u << 10) /* bytes */

#define VJ_DENTRY_MAGIC 0x31454456u /* "VDE1" */
#define VJ_COOKIE_MAGIC 0x31434456u /* "VDC1" */
#define VJ_XATTR_MAGIC 0x31415856u  /* "VXA1" */

typedef struct VjDentryDisk {
    uint32_t magic;
    uint8_t type; /* DT_* */
    uint8_t reserved[3];
    uint64_t ino;
    uint64_t cookie;
    uint64_t checksum;
} VjDentryDisk;

_Static_assert(sizeof(VjDentryDisk) == 32, "names have a fixed size");
_Static_assert(offsetof(VjDentryDisk, checksum) == 24, "name layout");

typedef struct VjCookieDisk {
    uint32_t magic;
    uint8_t type; /* DT_* */
    uint8_t name_len;
    uint8_t reserved[2];
    uint64_t ino;
    uint64_t checksum;
} VjCookieDisk;

_Static_assert(sizeof(VjCookieDisk) == 24, "cookie heads have a fixed size");
_Static_assert(offsetof(VjCookieDisk, checksum) == 16, "cookie layout");

typedef struct VjXattrDisk {
    uint32_t magic;
    uint32_t value_len;
    uint64_t checksum;
} VjXattrDisk;

_Static_assert(sizeof(VjXattrDisk) == 16, "attribute heads have a fixed size");
_Static_assert(offsetof(VjXattrDisk, checksum) == 8, "attribute layout");

/*
 * Access control lists are attributes of these names.  Their value is what getxattr(2) of
 * them returns: VjAclHeadDisk, then a VjAclEntryDisk for each entry.
 */
#define VJ_ACL_ACCESS "system.posix_acl_access"
#define VJ_ACL_DEFAULT "system.posix_acl_default"
#define VJ_ACL_VERSION 2u
/* The kernel reads and writes at most a page. */
#define VJ_ACL_ENTRIES_MAX 511u

/* Tags, in the order in which entries stand; ids grow within users and groups or do
 * not. */
#define VJ_ACL_OWNER 0x01u
#define VJ_ACL_USER 0x02u
#define VJ_ACL_OWNING_GROUP 0x04u
#define VJ_ACL_GROUP 0x08u
#define VJ_ACL_MASK 0x10u
#define VJ_ACL_OTHER 0x20u
/* The id of entries that name no user and no group. */
#define VJ_ACL_NO_ID UINT32_MAX

typedef struct VjAclHeadDisk {
    uint32_t version;
} VjAclHeadDisk;

typedef struct VjAclEntryDisk {
    uint16_t tag;
    uint16_t perm; /* rwx as in a mode */
    uint32_t id;   /* VJ_ACL_USER, VJ_ACL_GROUP; else VJ_ACL_NO_ID */
} VjAclEntryDisk;

_Static_assert(sizeof(VjAclHeadDisk) == 4, "access list head has a fixed size");
_Static_assert(sizeof(VjAclEntryDisk) == 8, "access list entries have a fixed size");

#define VJ_ACL_MAX_BYTES                                                                 \
    (sizeof(VjAclHeadDisk) + VJ_ACL_ENTRIES_MAX * sizeof(VjAclEntryDisk))

#define VJ_FS_KEY_MAX (8u + VJ_NAME_MAX)

/* A key under construction; slice() of it is borrowed from it. */
typedef struct VjFsKey {
    uint8_t bytes[VJ_FS_KEY_MAX];
    size_t len;
} VjFsKey;

static inline VjSlice vj_fs_key_slice(const VjFsKey *k)
{
    return vj_slice(k->bytes, k->len);
}

void vj_fs_key_name(VjFsKey *k, uint64_t ino, const char *name, size_t len);
void vj_fs_key_number(VjFsKey *k, uint64_t ino, uint64_t cookie);
/*
 * Of a record of a directory that is no extended attribute, and is not shown as one: in
 * VJ_SPACE_XATTR too, under a name that begins with VJ_FS_KEY_RECORD, as no attribute's
 * does.  @name has at most VJ_FS_RECORD_NAME_MAX bytes, of any value.
 */
#define VJ_FS_KEY_RECORD 0x01
#define VJ_FS_RECORD_NAME_MAX (VJ_NAME_MAX - 1)
void vj_fs_key_record(VjFsKey *k, uint64_t ino, VjSlice name);
/* Behind all of them, before any attribute. */
void vj_fs_key_last_record(VjFsKey *k, uint64_t ino);

/* What a name says. */
typedef struct VjDentry {
    uint64_t ino;
    uint64_t cookie;
    uint8_t type; /* DT_* */
} VjDentry;

void vj_dentry_encode(const VjFsKey *key, const VjDentry *d, VjDentryDisk *out);
/* -EBADMSG */
int vj_dentry_decode(VjSlice key, VjSlice value, VjDentry *out) G_GNUC_WARN_UNUSED_RESULT;

/* @out holds sizeof(VjCookieDisk) + VJ_NAME_MAX bytes; returns the length used. */
size_t vj_cookie_encode(const VjFsKey *key, const VjDentry *d, const char *name,
                        size_t len, uint8_t *out);
/* @name is borrowed from @value.  -EBADMSG */
int vj_cookie_decode(VjSlice key, VjSlice value, VjDentry *out,
                     VjSlice *name) G_GNUC_WARN_UNUSED_RESULT;

/* @out holds sizeof(VjXattrDisk) + len bytes. */
void vj_xattr_encode(const VjFsKey *key, const void *src, size_t len, uint8_t *out);
/* @out is borrowed from @value.  -EBADMSG */
int vj_xattr_decode(VjSlice key, VjSlice value, VjSlice *out) G_GNUC_WARN_UNUSED_RESULT;

/* An access control list that is whole: see vj_acl_decode. */
typedef struct VjAclEntry {
    uint16_t tag, perm;
    uint32_t id;
} VjAclEntry;

typedef struct VjAcl {
    size_t count;
    VjAclEntry entries[VJ_ACL_ENTRIES_MAX];
} VjAcl;

/* @out holds VJ_ACL_MAX_BYTES bytes; returns the length used. */
size_t vj_acl_encode(const VjAcl *acl, uint8_t *out);
/*
 * The owner, users, the owning group, groups, the mask, the others, in this order; one
 * each of owner, owning group and others, a mask where there are users or groups.
 * Anything else is -EINVAL, more entries than fit -E2BIG.
 */
int vj_acl_decode(VjSlice value, VjAcl *out) G_GNUC_WARN_UNUSED_RESULT;

#endif
