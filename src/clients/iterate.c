/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * iterate.c - names of objects, attributes, keys and namespaces, in the order of their
 * bytes
 */
#include "clients/clients-private.h"

#include "fs/records.h"

#define USER_PREFIX "user."
#define USER_BYTES (sizeof USER_PREFIX - 1)

typedef struct Walk {
    const VjClientIterate *asked;
    uint64_t dir; /* of attributes: the object */
    enum { WALK_NAMES, WALK_KEYS, WALK_ATTRIBUTES } what;
    GByteArray *item; /* the attributes of one, as they go out */
    /* out: */
    GByteArray *entries;
    uint32_t count;
    bool more;
} Walk;

/* The inode, and of keys VJ_FS_KEY_RECORD, of attributes "user.". */
static size_t key_skip(const Walk *w)
{
    return w->what == WALK_KEYS ? 9 : w->what == WALK_ATTRIBUTES ? 8 + USER_BYTES : 8;
}

static void key_of_attribute(uint64_t ino, VjSlice name, VjFsKey *out)
{
    char text[VJ_NAME_MAX + 1];

    g_assert(name.len <= VARJFS_WIRE_ATTRIBUTE_NAME_MAX);
    memcpy(text, USER_PREFIX, USER_BYTES);
    if (name.len > 0) {
        memcpy(text + USER_BYTES, name.data, name.len);
    }
    vj_fs_key_name(out, ino, text, USER_BYTES + name.len);
}

static void key_of(const Walk *w, VjSlice name, VjFsKey *out)
{
    if (w->what == WALK_KEYS) {
        vj_fs_key_record(out, w->dir, name);
    } else if (w->what == WALK_ATTRIBUTES) {
        key_of_attribute(w->dir, name, out);
    } else {
        vj_fs_key_name(out, w->dir, name.data != NULL ? name.data : "", name.len);
    }
}

/* One attribute of an item, as the protocol has it. */
static int add_attribute(Walk *w, VjTxn *txn, uint64_t ino, VjSlice name)
{
    uint32_t len = GUINT32_TO_LE(VARJFS_WIRE_NO_VALUE);
    VjSlice record, value = {0};
    VjFsKey key;
    int rc;

    key_of_attribute(ino, name, &key);
    rc = vj_txn_get(txn, VJ_SPACE_XATTR, vj_fs_key_slice(&key), &record);
    if (rc == 0) {
        rc = vj_xattr_decode(vj_fs_key_slice(&key), record, &value);
        len = GUINT32_TO_LE((uint32_t)value.len);
    } else if (rc == -ENOENT) {
        rc = 0;
    }
    if (rc == 0) {
        g_byte_array_append(w->item, (const guint8 *)&len, sizeof len);
    }
    if (rc == 0 && value.len > 0 && value.len <= VARJFS_WIRE_ITERATE_VALUE_MAX) {
        g_byte_array_append(w->item, value.data, (guint)value.len);
    }
    return rc;
}

static int value_of_item(Walk *w, VjTxn *txn, uint64_t ino, VjSlice *value)
{
    int rc = 0;

    g_byte_array_set_size(w->item, 0);
    for (uint16_t i = 0; rc == 0 && i < w->asked->attribute_count; i++) {
        rc = add_attribute(w, txn, ino, w->asked->attributes[i]);
    }
    *value = vj_slice(w->item->data, w->item->len);
    return rc;
}

/* 1: the entry counts; 0: it is none of those that were asked for; -EBADMSG.  Programs of
 * a mount may have made files and directories whose names are too long for either. */
static int value_of(Walk *w, VjTxn *txn, VjSlice key, VjSlice record, VjSlice *value)
{
    bool spaces = w->asked->space.len == 0;
    VjDentry d;
    int rc;

    *value = vj_slice(NULL, 0);
    if (w->what != WALK_NAMES) {
        return vj_xattr_decode(key, record, value) < 0 ? -EBADMSG : 1;
    }
    if (vj_dentry_decode(key, record, &d) < 0) {
        return -EBADMSG;
    }
    if (d.type != (spaces ? DT_DIR : DT_REG) ||
        key.len - key_skip(w) >
            (spaces ? VARJFS_WIRE_NAMESPACE_MAX : VARJFS_WIRE_NAME_MAX)) {
        return 0;
    }
    rc = value_of_item(w, txn, d.ino, value);
    return rc < 0 ? rc : 1;
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
    return w->what == WALK_NAMES ? VJ_SPACE_DENTRY : VJ_SPACE_XATTR;
}

/* One record; w->more: there was no room for it. */
static int visit(Walk *w, VjTxn *txn, VjSlice key, VjSlice record)
{
    VjSlice name =
        vj_slice((const uint8_t *)key.data + key_skip(w), key.len - key_skip(w));
    VjSlice value;
    int rc = value_of(w, txn, key, record, &value);

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

    return rc == 0 ? visit(w, txn, vj_fs_key_slice(key), record) : rc == -ENOENT ? 0 : rc;
}

static int walk(Walk *w, VjTxn *txn)
{
    VjFsKey prefix, behind;
    VjScan scan;
    int rc = 0;

    key_of(w, w->asked->prefix, &prefix);
    vj_scan_begin(&scan, txn, space_of(w), vj_fs_key_slice(&prefix));
    if (w->asked->behind.len > 0) {
        key_of(w, w->asked->behind, &behind);
        vj_scan_behind(&scan, vj_fs_key_slice(&behind));
    } else if (w->asked->prefix.len > 0) {
        rc = visit_prefix(w, txn, &prefix);
    }
    while (rc == 0 && !w->more && vj_scan_next(&scan)) {
        rc = visit(w, txn, scan.key, scan.value);
    }
    return rc < 0 ? rc : scan.error;
}

static int walk_body(VjTxn *txn, void *opaque)
{
    Walk *w = opaque;

    g_byte_array_set_size(w->entries, 0);
    w->count = 0;
    w->more = false;
    return walk(w, txn);
}

typedef struct ObjectWalk {
    Walk *walk;
    uint64_t dir;
    char name[VARJFS_WIRE_NAME_MAX + 1];
} ObjectWalk;

/* The attributes of the object that has the name now. */
static int object_body(VjTxn *txn, void *opaque)
{
    ObjectWalk *o = opaque;
    VjDentry d;
    int rc = vj_name_get(txn, o->dir, o->name, &d);

    if (rc < 0 || d.type != DT_REG) {
        return rc < 0 ? rc : -ENOENT;
    }
    o->walk->dir = d.ino;
    return walk_body(txn, o->walk);
}

static int run_walk(VjClients *c, Walk *w)
{
    ObjectWalk o = {.walk = w, .dir = w->dir};
    int rc;

    if (w->what != WALK_ATTRIBUTES) {
        return vj_meta_view(c->meta, walk_body, w);
    }
    rc = vj_client_name(w->asked->object, o.name);
    return rc < 0 ? rc : vj_meta_view(c->meta, object_body, &o);
}

/* Names of attributes are shorter than others. */
static bool is_possible(const VjClientIterate *asked)
{
    return asked->what != VARJFS_WIRE_ITERATE_ATTRIBUTES ||
           (asked->prefix.len <= VARJFS_WIRE_ATTRIBUTE_NAME_MAX &&
            asked->behind.len <= VARJFS_WIRE_ATTRIBUTE_NAME_MAX);
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
    if (rc < 0 || !is_possible(&asked) ||
        (asked.behind.len > 0 && !begins_with(asked.behind, asked.prefix))) {
        return -EPROTO;
    }
    w.what = asked.space.len == 0                           ? WALK_NAMES
             : asked.what == VARJFS_WIRE_ITERATE_KEYS       ? WALK_KEYS
             : asked.what == VARJFS_WIRE_ITERATE_ATTRIBUTES ? WALK_ATTRIBUTES
                                                            : WALK_NAMES;
    rc = find_dir(c, &asked, &w.dir);
    w.entries = g_byte_array_new();
    w.item = g_byte_array_new();
    if (rc == 0) {
        rc = run_walk(c, &w);
    }
    if (rc == 0 || (w.what != WALK_ATTRIBUTES && (rc == -ENOENT || rc == -ENOTDIR))) {
        reply->message = g_byte_array_new();
        vj_client_iterate_reply_encode(reply->message, w.more, w.count);
        reply->bulk =
            w.count > 0 ? vj_buf_new_copy(w.entries->data, w.entries->len) : NULL;
        reply->bulk_bytes = w.entries->len;
        rc = w.count > 0 && reply->bulk == NULL ? -ENOMEM : 0;
    }
    g_byte_array_unref(w.entries);
    g_byte_array_unref(w.item);
    return rc == -EINVAL ? -EPROTO : rc; /* a namespace that is none */
}
