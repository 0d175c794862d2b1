/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* iterate.c - names of objects, keys and namespaces, in the order of their bytes */
#include "clients/clients-private.h"

#include "fs/fs-format.h"

#include <dirent.h>

typedef struct Walk {
    const VjClientIterate *asked;
    uint64_t dir;
    bool keys; /* else names */
    /* out: */
    GByteArray *entries;
    uint32_t count;
    bool more;
} Walk;

static size_t key_skip(const Walk *w)
{
    return w->keys ? 9 : 8; /* the inode, and of keys VJ_FS_KEY_RECORD */
}

static void key_of(const Walk *w, VjSlice name, VjFsKey *out)
{
    if (w->keys) {
        vj_fs_key_record(out, w->dir, name);
    } else {
        vj_fs_key_name(out, w->dir, name.data != NULL ? name.data : "", name.len);
    }
}

/* 1: the entry counts; 0: it is none of those that were asked for; -EBADMSG.  Programs of
 * a mount may have made files and directories whose names are too long for either. */
static int value_of(const Walk *w, VjSlice key, VjSlice record, VjSlice *value)
{
    bool spaces = w->asked->space.len == 0;
    VjDentry d;

    *value = vj_slice(NULL, 0);
    if (w->keys) {
        return vj_xattr_decode(key, record, value) < 0 ? -EBADMSG : 1;
    }
    if (vj_dentry_decode(key, record, &d) < 0) {
        return -EBADMSG;
    }
    return d.type == (spaces ? DT_DIR : DT_REG) &&
           key.len - key_skip(w) <=
               (spaces ? VARJFS_WIRE_NAMESPACE_MAX : VARJFS_WIRE_NAME_MAX);
}

static void add_entry(Walk *w, VjSlice name, VjSlice value)
{
    uint8_t head[VARJFS_WIRE_ENTRY_HEAD_BYTES];
    VjWriter out = vj_writer(head, sizeof head);

    vj_write_u16(&out, (uint16_t)name.len);
    vj_write_u32(&out, (uint32_t)value.len);
    g_assert(!out.bad && out.used == sizeof head);
    g_byte_array_append(w->entries, head, sizeof head);
    g_byte_array_append(w->entries, name.data, (guint)name.len);
    if (value.len > 0) {
        g_byte_array_append(w->entries, value.data, (guint)value.len);
    }
    w->count++;
}

/* There is room for it. */
static bool fits(const Walk *w, VjSlice name, VjSlice value)
{
    return w->count < w->asked->entries_max &&
           w->entries->len + VARJFS_WIRE_ENTRY_HEAD_BYTES + name.len + value.len <=
               w->asked->bytes_max;
}

static VjSpace space_of(const Walk *w)
{
    return w->keys ? VJ_SPACE_XATTR : VJ_SPACE_DENTRY;
}

/* One record; w->more: there was no room for it. */
static int visit(Walk *w, VjSlice key, VjSlice record)
{
    VjSlice name =
        vj_slice((const uint8_t *)key.data + key_skip(w), key.len - key_skip(w));
    VjSlice value;
    int rc = value_of(w, key, record, &value);

    if (rc <= 0) {
        return rc;
    }
    if (fits(w, name, value)) {
        add_entry(w, name, value);
    } else {
        w->more = true;
    }
    return 0;
}

/* The name that the prefix itself is, which a scan begins behind. */
static int visit_prefix(Walk *w, VjTxn *txn, const VjFsKey *key)
{
    VjSlice record;
    int rc = vj_txn_get(txn, space_of(w), vj_fs_key_slice(key), &record);

    return rc == 0 ? visit(w, vj_fs_key_slice(key), record) : rc == -ENOENT ? 0 : rc;
}

static int walk_body(VjTxn *txn, void *opaque)
{
    Walk *w = opaque;
    VjFsKey prefix, behind;
    VjScan scan;
    int rc = 0;

    g_byte_array_set_size(w->entries, 0);
    w->count = 0;
    w->more = false;
    key_of(w, w->asked->prefix, &prefix);
    vj_scan_begin(&scan, txn, space_of(w), vj_fs_key_slice(&prefix));
    if (w->asked->behind.len > 0) {
        key_of(w, w->asked->behind, &behind);
        vj_scan_behind(&scan, vj_fs_key_slice(&behind));
    } else if (w->asked->prefix.len > 0) {
        rc = visit_prefix(w, txn, &prefix);
    }
    while (rc == 0 && !w->more && vj_scan_next(&scan)) {
        rc = visit(w, scan.key, scan.value);
    }
    return rc < 0 ? rc : scan.error;
}

static bool begins_with(VjSlice name, VjSlice prefix)
{
    return name.len >= prefix.len &&
           (prefix.len == 0 || memcmp(name.data, prefix.data, prefix.len) == 0);
}

/* -ENOENT: there is nothing. */
static int find_dir(VjClients *c, const VjClientIterate *asked, uint64_t *ino)
{
    VjClientKind kind =
        asked->what == VARJFS_WIRE_ITERATE_KEYS ? VJ_CLIENT_KEYS : VJ_CLIENT_OBJECTS;

    return asked->space.len == 0 ? vj_client_root(c, kind, false, ino)
                                 : vj_client_space(c, kind, asked->space, false, ino);
}

int vj_clients_iterate(VjClients *c, VjSlice message, VjClientsReply *reply)
{
    VjClientIterate asked;
    Walk w = {.asked = &asked};
    int rc = vj_client_iterate_decode(message, &asked);

    *reply = (VjClientsReply){0};
    if (rc < 0 || (asked.behind.len > 0 && !begins_with(asked.behind, asked.prefix))) {
        return -EPROTO;
    }
    w.keys = asked.what == VARJFS_WIRE_ITERATE_KEYS && asked.space.len > 0;
    rc = find_dir(c, &asked, &w.dir);
    w.entries = g_byte_array_new();
    if (rc == 0) {
        rc = vj_meta_view(c->meta, walk_body, &w);
    }
    if (rc == 0 || rc == -ENOENT || rc == -ENOTDIR) {
        reply->message = g_byte_array_new();
        vj_client_iterate_reply_encode(reply->message, w.more, w.count);
        reply->bulk =
            w.count > 0 ? vj_buf_new_copy(w.entries->data, w.entries->len) : NULL;
        reply->bulk_bytes = w.entries->len;
        rc = w.count > 0 && reply->bulk == NULL ? -ENOMEM : 0;
    }
    g_byte_array_unref(w.entries);
    return rc == -EINVAL ? -EPROTO : rc; /* a namespace that is none */
}
