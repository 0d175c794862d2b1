/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fs-format.c - names and attributes to bytes and back
 */
#include "fs/fs-format.h"

#include <dirent.h>

/* Of the key, the head up to its checksum, and what follows the head. */
static uint64_t record_checksum(VjSlice key, const void *head, size_t head_len,
                                const void *rest, size_t rest_len)
{
    uint64_t parts[3] = {
        GUINT64_TO_LE(vj_checksum64(key.data, key.len)),
        GUINT64_TO_LE(vj_checksum64(head, head_len)),
        GUINT64_TO_LE(vj_checksum64(rest, rest_len)),
    };

    return vj_checksum64(parts, sizeof parts);
}

/* What a name can say: cookies 1 and 2 are "." and "..", and offsets are signed. */
static bool is_sane(const VjDentry *d)
{
    static const uint8_t types[] = {DT_REG, DT_DIR,  DT_LNK, DT_CHR,
                                    DT_BLK, DT_FIFO, DT_SOCK};

    return d->ino != 0 && d->cookie >= 3 && d->cookie <= INT64_MAX &&
           memchr(types, d->type, sizeof types) != NULL;
}

static bool are_zero(const uint8_t *bytes, size_t len)
{
    while (len > 0 && bytes[len - 1] == 0) {
        len--;
    }
    return len == 0;
}

void vj_fs_key_name(VjFsKey *k, uint64_t ino, const char *name, size_t len)
{
    g_assert(len <= VJ_NAME_MAX);
    vj_be64_set(k->bytes, ino);
    memcpy(k->bytes + 8, name, len);
    k->len = 8 + len;
}

void vj_fs_key_number(VjFsKey *k, uint64_t ino, uint64_t cookie)
{
    vj_be64_set(k->bytes, ino);
    vj_be64_set(k->bytes + 8, cookie);
    k->len = 16;
}

void vj_fs_key_record(VjFsKey *k, uint64_t ino, VjSlice name)
{
    g_assert(name.len <= VJ_FS_RECORD_NAME_MAX);
    vj_be64_set(k->bytes, ino);
    k->bytes[8] = VJ_FS_KEY_RECORD;
    if (name.len > 0) {
        memcpy(k->bytes + 9, name.data, name.len);
    }
    k->len = 9 + name.len;
}

void vj_fs_key_last_record(VjFsKey *k, uint64_t ino)
{
    vj_be64_set(k->bytes, ino);
    memset(k->bytes + 8, 0xff, VJ_NAME_MAX);
    k->bytes[8] = VJ_FS_KEY_RECORD;
    k->len = 8 + VJ_NAME_MAX;
}

void vj_dentry_encode(const VjFsKey *key, const VjDentry *d, VjDentryDisk *out)
{
    *out = (VjDentryDisk){
        .magic = GUINT32_TO_LE(VJ_DENTRY_MAGIC),
        .type = d->type,
        .ino = GUINT64_TO_LE(d->ino),
        .cookie = GUINT64_TO_LE(d->cookie),
    };
    out->checksum = GUINT64_TO_LE(record_checksum(
        vj_fs_key_slice(key), out, offsetof(VjDentryDisk, checksum), "", 0));
}

int vj_dentry_decode(VjSlice key, VjSlice value, VjDentry *out)
{
    VjDentryDisk d;

    if (value.len != sizeof d) {
        return -EBADMSG;
    }
    memcpy(&d, value.data, sizeof d);
    if (GUINT32_FROM_LE(d.magic) != VJ_DENTRY_MAGIC ||
        GUINT64_FROM_LE(d.checksum) !=
            record_checksum(key, &d, offsetof(VjDentryDisk, checksum), "", 0) ||
        !are_zero(d.reserved, sizeof d.reserved)) {
        return -EBADMSG;
    }
    *out = (VjDentry){
        .ino = GUINT64_FROM_LE(d.ino),
        .cookie = GUINT64_FROM_LE(d.cookie),
        .type = d.type,
    };
    return is_sane(out) ? 0 : -EBADMSG;
}

size_t vj_cookie_encode(const VjFsKey *key, const VjDentry *d, const char *name,
                        size_t len, uint8_t *out)
{
    VjCookieDisk c = {
        .magic = GUINT32_TO_LE(VJ_COOKIE_MAGIC),
        .type = d->type,
        .name_len = (uint8_t)len,
        .ino = GUINT64_TO_LE(d->ino),
    };

    g_assert(len > 0 && len <= VJ_NAME_MAX);
    c.checksum = GUINT64_TO_LE(record_checksum(
        vj_fs_key_slice(key), &c, offsetof(VjCookieDisk, checksum), name, len));
    memcpy(out, &c, sizeof c);
    memcpy(out + sizeof c, name, len);
    return sizeof c + len;
}

int vj_cookie_decode(VjSlice key, VjSlice value, VjDentry *out, VjSlice *name)
{
    VjCookieDisk c;

    if (key.len != 16 || value.len <= sizeof c) {
        return -EBADMSG;
    }
    memcpy(&c, value.data, sizeof c);
    *name = vj_slice((const uint8_t *)value.data + sizeof c, value.len - sizeof c);
    if (GUINT32_FROM_LE(c.magic) != VJ_COOKIE_MAGIC || c.name_len != name->len ||
        GUINT64_FROM_LE(c.checksum) != record_checksum(key, &c,
                                                       offsetof(VjCookieDisk, checksum),
                                                       name->data, name->len)) {
        return -EBADMSG;
    }
    *out = (VjDentry){
        .ino = GUINT64_FROM_LE(c.ino),
        .cookie = vj_be64_get((const uint8_t *)key.data + 8),
        .type = c.type,
    };
    return is_sane(out) && are_zero(c.reserved, sizeof c.reserved) ? 0 : -EBADMSG;
}

void vj_xattr_encode(const VjFsKey *key, const void *src, size_t len, uint8_t *out)
{
    VjXattrDisk x = {
        .magic = GUINT32_TO_LE(VJ_XATTR_MAGIC),
        .value_len = GUINT32_TO_LE((uint32_t)len),
    };

    g_assert(len <= VJ_XATTR_VALUE_MAX);
    x.checksum = GUINT64_TO_LE(record_checksum(
        vj_fs_key_slice(key), &x, offsetof(VjXattrDisk, checksum), src, len));
    memcpy(out, &x, sizeof x);
    if (len > 0) {
        memcpy(out + sizeof x, src, len);
    }
}

int vj_xattr_decode(VjSlice key, VjSlice value, VjSlice *out)
{
    VjXattrDisk x;

    if (value.len < sizeof x) {
        return -EBADMSG;
    }
    memcpy(&x, value.data, sizeof x);
    *out = vj_slice((const uint8_t *)value.data + sizeof x, value.len - sizeof x);
    if (GUINT32_FROM_LE(x.magic) != VJ_XATTR_MAGIC || out->len > VJ_XATTR_VALUE_MAX ||
        GUINT32_FROM_LE(x.value_len) != out->len ||
        GUINT64_FROM_LE(x.checksum) != record_checksum(key, &x,
                                                       offsetof(VjXattrDisk, checksum),
                                                       out->data, out->len)) {
        return -EBADMSG;
    }
    return 0;
}

/* ---- access control lists ---------------------------------------------------------- */

size_t vj_acl_encode(const VjAcl *acl, uint8_t *out)
{
    VjAclHeadDisk head = {.version = GUINT32_TO_LE(VJ_ACL_VERSION)};
    uint8_t *at = out + sizeof head;

    g_assert(acl->count <= VJ_ACL_ENTRIES_MAX);
    memcpy(out, &head, sizeof head);
    for (size_t i = 0; i < acl->count; i++) {
        const VjAclEntry *e = &acl->entries[i];
        VjAclEntryDisk d = {
            .tag = GUINT16_TO_LE(e->tag),
            .perm = GUINT16_TO_LE(e->perm),
            .id = GUINT32_TO_LE(e->id),
        };

        memcpy(at, &d, sizeof d);
        at += sizeof d;
    }
    return (size_t)(at - out);
}

static bool names_somebody(const VjAclEntry *e)
{
    return e->tag == VJ_ACL_USER || e->tag == VJ_ACL_GROUP;
}

/* Tags are single bits that grow from entry to entry; only users and groups may
 * repeat. */
static int acl_check(const VjAcl *acl)
{
    const unsigned needed = VJ_ACL_OWNER | VJ_ACL_OWNING_GROUP | VJ_ACL_OTHER;
    unsigned seen = 0, last = 0;

    for (size_t i = 0; i < acl->count; i++) {
        const VjAclEntry *e = &acl->entries[i];
        bool single = e->tag != 0 && (e->tag & (e->tag - 1)) == 0;

        if (!single || e->tag > VJ_ACL_OTHER || e->tag < last || (e->perm & ~7u) != 0 ||
            (e->tag == last && !names_somebody(e)) ||
            (names_somebody(e) && e->id == VJ_ACL_NO_ID)) {
            return -EINVAL;
        }
        last = e->tag;
        seen |= e->tag;
    }
    if ((seen & needed) != needed ||
        ((seen & (VJ_ACL_USER | VJ_ACL_GROUP)) != 0 && (seen & VJ_ACL_MASK) == 0)) {
        return -EINVAL;
    }
    return 0;
}

int vj_acl_decode(VjSlice value, VjAcl *out)
{
    VjReader r = vj_reader(value);
    uint32_t version = vj_read_u32(&r);

    out->count = 0;
    if (r.bad || version != VJ_ACL_VERSION || r.left % sizeof(VjAclEntryDisk) != 0) {
        return -EINVAL;
    }
    if (r.left / sizeof(VjAclEntryDisk) > VJ_ACL_ENTRIES_MAX) {
        return -E2BIG;
    }
    while (r.left > 0) {
        VjAclEntry *e = &out->entries[out->count++];

        e->tag = vj_read_u16(&r);
        e->perm = vj_read_u16(&r);
        e->id = vj_read_u32(&r);
        if (!names_somebody(e)) {
            e->id = VJ_ACL_NO_ID;
        }
    }
    return acl_check(out);
}
