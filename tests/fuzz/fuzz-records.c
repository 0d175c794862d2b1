/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Inode, orphan, name and attribute records from any bytes.  The first byte says which,
 * the next how long its key is; then come key and value.  Each is tried as it is and with
 * its checksum put right.  What is accepted holds what the rooms above rely on, and a
 * name, a cookie, an attribute or an access list is encoded as it was.
 */
#include "fuzz.h"

#include "file/inode-format.h"
#include "fs/fs-format.h"
#include "volume/volume-private.h"

#include <sys/stat.h>

enum { INODE, ORPHAN, DENTRY, COOKIE, XATTR, KINDS };

/* What is a list has the classes that a mode has, and is encoded as it was. */
static void try_acl(VjSlice value)
{
    uint8_t bytes[VJ_ACL_MAX_BYTES];
    unsigned seen = 0;
    VjAcl acl, again;

    if (vj_acl_decode(value, &acl) < 0) {
        return;
    }
    for (size_t i = 0; i < acl.count; i++) {
        seen |= acl.entries[i].tag;
    }
    g_assert((seen & (VJ_ACL_OWNER | VJ_ACL_OWNING_GROUP | VJ_ACL_OTHER)) ==
             (VJ_ACL_OWNER | VJ_ACL_OWNING_GROUP | VJ_ACL_OTHER));
    g_assert(vj_acl_encode(&acl, bytes) == value.len);
    /* But for the ids of entries that name nobody. */
    g_assert(vj_acl_decode(vj_slice(bytes, value.len), &again) == 0);
    g_assert(acl.count == again.count);
    g_assert(memcmp(acl.entries, again.entries, acl.count * sizeof *acl.entries) == 0);
}

static void try_inode(VjSlice value)
{
    uint64_t ino =
        value.len >= 16 ? vj_le64_get((const uint8_t *)value.data + 8) : VJ_INO_ROOT;
    VjInode inode;

    if (vj_inode_decode(value, ino, &inode) == 0) {
        g_assert(inode.ino == ino && ino != 0 && inode.size <= VJ_MAP_BYTES_MAX);
        g_assert(inode.mtime.tv_nsec >= 0 && inode.mtime.tv_nsec < 1000000000);
        g_assert(!S_ISDIR(inode.mode) || (inode.parent != 0 && inode.next_cookie >= 3));
        g_assert((inode.content == VJ_CONTENT_MAP) == (inode.root.node != 0));
        g_assert(inode.content != VJ_CONTENT_MAP || inode.root.bytes == inode.size);
        g_assert(vj_inode_decode(value, ino + 1, &inode) == -EBADMSG);
    }
}

static void try_orphan(VjSlice key, VjSlice value)
{
    uint8_t again[VJ_ORPHAN_BYTES];
    VjOrphan orphan;

    if (vj_orphan_decode(key, value, &orphan) == 0) {
        g_assert((orphan.root.node == 0) == (orphan.root.height == 0));
        g_assert(orphan.root.bytes <= VJ_MAP_BYTES_MAX);
        vj_orphan_encode(&orphan, again);
        g_assert(value.len == sizeof again &&
                 memcmp(value.data, again, sizeof again) == 0);
    }
}

static void expect_sound(const VjDentry *d)
{
    g_assert(d->ino != 0 && d->cookie >= 3 && d->cookie <= INT64_MAX && d->type != 0);
}

static void try_decode(unsigned kind, VjSlice key, VjSlice value)
{
    uint8_t again[sizeof(VjXattrDisk) + VJ_XATTR_VALUE_MAX];
    VjFsKey again_key = {.len = MIN(key.len, sizeof again_key.bytes)};
    VjDentry d;
    VjSlice rest;

    memcpy(again_key.bytes, key.data, again_key.len);
    switch (kind) {
    case INODE:
        try_inode(value);
        break;
    case ORPHAN:
        try_orphan(key, value);
        break;
    case DENTRY:
        if (vj_dentry_decode(key, value, &d) == 0) {
            VjDentryDisk disk;

            expect_sound(&d);
            g_assert(key.len == again_key.len && value.len == sizeof disk);
            vj_dentry_encode(&again_key, &d, &disk);
            g_assert(memcmp(&disk, value.data, sizeof disk) == 0);
        }
        break;
    case COOKIE:
        if (vj_cookie_decode(key, value, &d, &rest) == 0) {
            expect_sound(&d);
            g_assert(rest.len > 0 && rest.len <= VJ_NAME_MAX);
            g_assert(vj_cookie_encode(&again_key, &d, rest.data, rest.len, again) ==
                     value.len);
            g_assert(memcmp(again, value.data, value.len) == 0);
        }
        break;
    default:
        if (vj_xattr_decode(key, value, &rest) == 0) {
            g_assert(rest.len <= VJ_XATTR_VALUE_MAX);
            vj_xattr_encode(&again_key, rest.data, rest.len, again);
            g_assert(memcmp(again, value.data, value.len) == 0);
            try_acl(rest);
        }
    }
}

/* Where the checksum of a record is. */
static size_t sum_offset(unsigned kind, size_t len)
{
    switch (kind) {
    case DENTRY:
        return offsetof(VjDentryDisk, checksum);
    case COOKIE:
        return offsetof(VjCookieDisk, checksum);
    case XATTR:
        return offsetof(VjXattrDisk, checksum);
    default:
        return len >= 8 ? len - 8 : len;
    }
}

static void make_right(unsigned kind, VjSlice key, uint8_t *bytes, size_t len)
{
    size_t at = sum_offset(kind, len);
    uint64_t sum;

    if (at + 8 > len) {
        return;
    }
    if (kind == INODE || kind == ORPHAN) {
        sum = vj_checksum64(bytes, at);
    } else {
        uint64_t parts[3] = {GUINT64_TO_LE(vj_checksum64(key.data, key.len)),
                             GUINT64_TO_LE(vj_checksum64(bytes, at)),
                             GUINT64_TO_LE(vj_checksum64(bytes + at + 8, len - at - 8))};

        sum = vj_checksum64(parts, sizeof parts);
    }
    sum = GUINT64_TO_LE(sum);
    memcpy(bytes + at, &sum, sizeof sum);
}

FUZZ_MUTATIONS(400);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    g_autofree uint8_t *forged = NULL;
    unsigned kind;
    VjSlice key, value;

    if (len < 2 || len - 2 < data[1]) {
        return 0;
    }
    kind = data[0] % KINDS;
    key = vj_slice(data + 2, data[1]);
    value = vj_slice(data + 2 + data[1], len - 2 - data[1]);
    try_decode(kind, key, value);
    forged = g_memdup2(value.data, value.len);
    make_right(kind, key, forged, value.len);
    try_decode(kind, key, vj_slice(forged != NULL ? forged : value.data, value.len));
    return 0;
}
