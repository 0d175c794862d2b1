/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* messages.c - the fields of each operation, to bytes and back */
#include "rpc/messages.h"

/* ---- bytes ------------------------------------------------------------------------- */

static void add_u8(GByteArray *to, uint8_t v)
{
    g_byte_array_append(to, &v, 1);
}

static void add_u16(GByteArray *to, uint16_t v)
{
    v = GUINT16_TO_LE(v);
    g_byte_array_append(to, (const guint8 *)&v, sizeof v);
}

static void add_u32(GByteArray *to, uint32_t v)
{
    v = GUINT32_TO_LE(v);
    g_byte_array_append(to, (const guint8 *)&v, sizeof v);
}

static void add_u64(GByteArray *to, uint64_t v)
{
    v = GUINT64_TO_LE(v);
    g_byte_array_append(to, (const guint8 *)&v, sizeof v);
}

static void add_slice(GByteArray *to, VjSlice bytes)
{
    if (bytes.len > 0) {
        g_byte_array_append(to, bytes.data, (guint)bytes.len);
    }
}

/* With its length, u32, before it. */
static void add_counted(GByteArray *to, VjSlice bytes)
{
    add_u32(to, (uint32_t)bytes.len);
    add_slice(to, bytes);
}

static VjSlice read_counted(VjReader *r, uint32_t most)
{
    uint32_t len = vj_read_u32(r);

    if (len > most) {
        r->bad = true;
        return vj_slice(NULL, 0);
    }
    return vj_read_bytes(r, len);
}

/* 0 or 1 */
static uint8_t read_bool(VjReader *r)
{
    uint8_t v = vj_read_u8(r);

    r->bad = r->bad || v > 1;
    return v;
}

static void read_uuid(VjReader *r, uint8_t dst[VJ_WIRE_UUID_BYTES])
{
    VjSlice bytes = vj_read_bytes(r, VJ_WIRE_UUID_BYTES);

    if (bytes.len == VJ_WIRE_UUID_BYTES) {
        memcpy(dst, bytes.data, VJ_WIRE_UUID_BYTES);
    }
}

static int done(const VjReader *r)
{
    return vj_reader_done(r) ? 0 : -EPROTO;
}

/* Of a message that may grow. */
static int done_or_more(const VjReader *r)
{
    return r->bad ? -EPROTO : 0;
}

/* UTF-8 of characters that a terminal or a log shows and does not obey. */
static bool is_printable(VjSlice text)
{
    const char *at = text.len > 0 ? text.data : "", *end = at + text.len;

    if (!g_utf8_validate(at, (gssize)text.len, NULL)) {
        return false;
    }
    for (; at < end; at = g_utf8_next_char(at)) {
        if (!g_unichar_isprint(g_utf8_get_char(at))) {
            return false;
        }
    }
    return true;
}

char *vj_wire_text(VjSlice message)
{
    if (message.len == 0 || message.len > VJ_WIRE_TEXT_MAX || !is_printable(message)) {
        return NULL;
    }
    return g_strndup(message.data, message.len);
}

/* ---- hello ------------------------------------------------------------------------- */

/* Where a hello has its client and connection. */
#define HELLO_FEATURES_OFFSET 4u
#define HELLO_CLIENT_OFFSET 30u
#define HELLO_REPLY_FEATURES_OFFSET 2u
#define HELLO_REPLY_BYTES_OFFSET 47u

bool vj_wire_is_volume_name(VjSlice name)
{
    const char *at = name.data;

    if (name.len == 0 || name.len > VJ_WIRE_VOLUME_NAME_MAX || !g_ascii_isalnum(at[0])) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        if (!g_ascii_isalnum(at[i]) && at[i] != '.' && at[i] != '_' && at[i] != '-') {
            return false;
        }
    }
    return true;
}

void vj_hello_encode(GByteArray *to, const VjHello *m)
{
    g_assert(m->name.len <= VJ_WIRE_VOLUME_NAME_MAX);
    add_u16(to, m->version_min);
    add_u16(to, m->version_max);
    add_u64(to, m->features);
    add_u8(to, m->role);
    add_u8(to, m->flags);
    add_slice(to, vj_slice(m->uuid, VJ_WIRE_UUID_BYTES));
    add_slice(to, vj_slice(m->client, VJ_WIRE_UUID_BYTES));
    add_u64(to, m->connection);
    add_counted(to, m->volume);
    add_counted(to, m->name);
}

static void add_features(GByteArray *message, size_t offset, uint64_t features)
{
    VjWriter w;

    g_assert(message->len >= offset + sizeof features);
    features |= vj_le64_get(message->data + offset);
    w = vj_writer(message->data + offset, sizeof features);
    vj_write_u64(&w, features);
    g_assert(!w.bad);
}

void vj_hello_add_features(GByteArray *hello, uint64_t features)
{
    add_features(hello, HELLO_FEATURES_OFFSET, features);
}

void vj_hello_reply_add_features(GByteArray *reply, uint64_t features)
{
    VjHelloReply m;

    /* One that its reader would refuse stays as it is. */
    if (vj_hello_reply_decode(vj_slice(reply->data, reply->len), &m) == 0) {
        add_features(reply, HELLO_REPLY_FEATURES_OFFSET, features);
    }
}

void vj_hello_set_client(GByteArray *hello, const uint8_t client[VJ_WIRE_UUID_BYTES],
                         uint64_t connection)
{
    VjWriter w;

    g_assert(hello->len > HELLO_CLIENT_OFFSET + VJ_WIRE_UUID_BYTES + 8);
    w = vj_writer(hello->data + HELLO_CLIENT_OFFSET, VJ_WIRE_UUID_BYTES + 8);
    vj_write_bytes(&w, client, VJ_WIRE_UUID_BYTES);
    vj_write_u64(&w, connection);
    g_assert(!w.bad);
}

void vj_hello_reply_set_bytes_max(GByteArray *reply, uint64_t bytes_max)
{
    VjHelloReply m;
    VjWriter w;

    if (vj_hello_reply_decode(vj_slice(reply->data, reply->len), &m) == 0 &&
        m.bytes_max == 0) {
        w = vj_writer(reply->data + HELLO_REPLY_BYTES_OFFSET, sizeof m.bytes_max);
        vj_write_u64(&w, bytes_max);
        g_assert(!w.bad);
    }
}

/* Each flag has a meaning, and no two deny each other. */
static bool are_hello_flags(uint8_t flags)
{
    bool creates = (flags & VJ_HELLO_CREATE) != 0, adopts = (flags & VJ_HELLO_ADOPT) != 0;
    bool destroys = (flags & VJ_HELLO_DESTROY) != 0;

    if ((flags & ~VJ_HELLO_FLAGS) != 0 || (creates && adopts) || (destroys && !creates)) {
        return false;
    }
    return (flags & VJ_HELLO_READ_ONLY) == 0 || !(creates || adopts);
}

int vj_hello_decode(VjSlice message, VjHello *out)
{
    VjReader r = vj_reader(message);

    *out = (VjHello){.version_min = vj_read_u16(&r)};
    out->version_max = vj_read_u16(&r);
    out->features = vj_read_u64(&r);
    out->role = vj_read_u8(&r);
    out->flags = vj_read_u8(&r);
    read_uuid(&r, out->uuid);
    read_uuid(&r, out->client);
    out->connection = vj_read_u64(&r);
    out->volume = read_counted(&r, VJ_WIRE_VOLUME_NAME_MAX);
    out->name = read_counted(&r, VJ_WIRE_VOLUME_NAME_MAX);
    if (done_or_more(&r) < 0 || out->version_min == 0 ||
        out->version_min > out->version_max || !are_hello_flags(out->flags) ||
        !vj_wire_is_volume_name(out->volume) || !is_printable(out->name)) {
        return -EPROTO;
    }
    return 0;
}

void vj_hello_reply_encode(GByteArray *to, const VjHelloReply *m)
{
    add_u16(to, m->version);
    add_u64(to, m->features);
    add_slice(to, vj_slice(m->node, VJ_WIRE_UUID_BYTES));
    add_slice(to, vj_slice(m->instance, VJ_WIRE_UUID_BYTES));
    add_u8(to, m->was_empty);
    add_u32(to, m->requests_max);
    add_u64(to, m->bytes_max);
}

int vj_hello_reply_decode(VjSlice message, VjHelloReply *out)
{
    VjReader r = vj_reader(message);

    *out = (VjHelloReply){.version = vj_read_u16(&r)};
    out->features = vj_read_u64(&r);
    read_uuid(&r, out->node);
    read_uuid(&r, out->instance);
    out->was_empty = read_bool(&r);
    out->requests_max = vj_read_u32(&r);
    out->bytes_max = vj_read_u64(&r);
    return done_or_more(&r);
}

/* ---- objects ----------------------------------------------------------------------- */

static void add_object(GByteArray *to, VjWireObject object)
{
    add_u64(to, object.id);
    add_u64(to, object.nonce);
}

static VjWireObject read_object(VjReader *r)
{
    VjWireObject object = {.id = vj_read_u64(r)};

    object.nonce = vj_read_u64(r);
    return object;
}

void vj_wire_put_encode(GByteArray *to, const VjWirePut *m)
{
    add_object(to, m->object);
    add_u8(to, m->flags);
}

int vj_wire_put_decode(VjSlice message, VjWirePut *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWirePut){.object = read_object(&r)};
    out->flags = vj_read_u8(&r);
    return (out->flags & ~VJ_WIRE_PUT_FLAGS) != 0 ? -EPROTO : done(&r);
}

void vj_wire_get_encode(GByteArray *to, const VjWireGet *m)
{
    add_object(to, m->object);
    add_u64(to, m->offset);
    add_u32(to, m->len);
}

int vj_wire_get_decode(VjSlice message, VjWireGet *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWireGet){.object = read_object(&r)};
    out->offset = vj_read_u64(&r);
    out->len = vj_read_u32(&r);
    if (out->len == 0 || out->len > VJ_WIRE_OBJECT_MAX ||
        out->offset > VJ_WIRE_OBJECT_MAX - out->len) {
        return -EPROTO;
    }
    return done(&r);
}

void vj_wire_objects_encode(GByteArray *to, const VjWireObject *at, uint32_t count)
{
    g_assert(count <= VJ_WIRE_OBJECTS_MAX);
    add_u32(to, count);
    for (uint32_t i = 0; i < count; i++) {
        add_object(to, at[i]);
    }
}

int vj_wire_objects_decode(VjSlice message, GArray **out)
{
    VjReader r = vj_reader(message);
    uint32_t count = vj_read_u32(&r);

    *out = NULL;
    if (r.bad || count > VJ_WIRE_OBJECTS_MAX || r.left != (size_t)count * 16) {
        return -EPROTO;
    }
    *out = g_array_sized_new(FALSE, FALSE, sizeof(VjWireObject), count);
    for (uint32_t i = 0; i < count; i++) {
        VjWireObject object = read_object(&r);

        g_array_append_val(*out, object);
    }
    return 0;
}

void vj_wire_statuses_encode(GByteArray *to, const uint32_t *at, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        add_u32(to, at[i]);
    }
}

int vj_wire_statuses_decode(VjSlice message, uint32_t *out, uint32_t count)
{
    VjReader r = vj_reader(message);

    for (uint32_t i = 0; i < count; i++) {
        out[i] = vj_read_u32(&r);
    }
    return done(&r);
}

void vj_wire_lengths_encode(GByteArray *to, const uint64_t *at, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        add_u64(to, at[i]);
    }
}

int vj_wire_lengths_decode(VjSlice message, uint64_t *out, uint32_t count)
{
    VjReader r = vj_reader(message);

    for (uint32_t i = 0; i < count; i++) {
        out[i] = vj_read_u64(&r);
    }
    return done(&r);
}

void vj_wire_list_encode(GByteArray *to, const VjWireList *m)
{
    add_u64(to, m->first);
    add_u64(to, m->last);
    add_object(to, m->after);
    add_u32(to, m->limit);
}

int vj_wire_list_decode(VjSlice message, VjWireList *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWireList){.first = vj_read_u64(&r)};
    out->last = vj_read_u64(&r);
    out->after = read_object(&r);
    out->limit = vj_read_u32(&r);
    if (out->first > out->last || out->limit == 0 || out->limit > VJ_WIRE_LISTED_MAX) {
        return -EPROTO;
    }
    return done(&r);
}

void vj_wire_list_reply_encode(GByteArray *to, const VjWireListReply *m)
{
    add_u8(to, m->more);
    add_u32(to, m->count);
}

int vj_wire_list_reply_decode(VjSlice message, size_t bulk_bytes, VjWireListReply *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWireListReply){.more = read_bool(&r)};
    out->count = vj_read_u32(&r);
    if (out->count > VJ_WIRE_LISTED_MAX ||
        bulk_bytes != (size_t)out->count * VJ_WIRE_LISTED_BYTES ||
        (out->more && out->count == 0)) {
        return -EPROTO;
    }
    return done(&r);
}

void vj_wire_listed_encode(const VjWireListed *m, uint8_t dst[VJ_WIRE_LISTED_BYTES])
{
    VjWriter w = vj_writer(dst, VJ_WIRE_LISTED_BYTES);

    vj_write_u64(&w, m->object.id);
    vj_write_u64(&w, m->object.nonce);
    vj_write_u64(&w, m->bytes);
    vj_write_u64(&w, (uint64_t)m->mtime_us);
    g_assert(!w.bad && w.used == VJ_WIRE_LISTED_BYTES);
}

void vj_wire_listed_decode(const uint8_t src[VJ_WIRE_LISTED_BYTES], VjWireListed *out)
{
    VjReader r = vj_reader(vj_slice(src, VJ_WIRE_LISTED_BYTES));

    *out = (VjWireListed){.object = read_object(&r)};
    out->bytes = vj_read_u64(&r);
    out->mtime_us = (int64_t)vj_read_u64(&r);
}

static void add_form(GByteArray *to, const VjWireForm *m)
{
    add_u8(to, m->codec);
    add_u8(to, m->param);
    add_u32(to, m->key_id);
    add_u32(to, m->plain_bytes);
    add_u32(to, m->stored_bytes);
    add_u64(to, m->trailer_checksum);
}

static VjWireForm read_form(VjReader *r)
{
    VjWireForm form = {.codec = vj_read_u8(r)};

    form.param = vj_read_u8(r);
    form.key_id = vj_read_u32(r);
    form.plain_bytes = vj_read_u32(r);
    form.stored_bytes = vj_read_u32(r);
    form.trailer_checksum = vj_read_u64(r);
    r->bad = r->bad || form.plain_bytes == 0 || form.plain_bytes > VJ_WIRE_PLAIN_MAX ||
             form.stored_bytes > VJ_WIRE_STORED_MAX;
    return form;
}

void vj_wire_form_encode(GByteArray *to, const VjWireForm *m)
{
    add_form(to, m);
}

int vj_wire_form_decode(VjSlice message, VjWireForm *out)
{
    VjReader r = vj_reader(message);

    *out = read_form(&r);
    return done(&r);
}

void vj_wire_digest_encode(GByteArray *to, const VjWireDigest *m)
{
    add_object(to, m->object);
    add_form(to, &m->form);
    add_u8(to, m->digest);
}

int vj_wire_digest_decode(VjSlice message, VjWireDigest *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWireDigest){.object = read_object(&r)};
    out->form = read_form(&r);
    out->digest = vj_read_u8(&r);
    return done(&r);
}

void vj_wire_put_plain_encode(GByteArray *to, const VjWirePutPlain *m)
{
    add_object(to, m->object);
    add_u8(to, m->flags);
    add_u8(to, m->codec);
    add_u8(to, m->param);
    add_u8(to, m->level);
    add_u8(to, m->wire_codec);
    add_u8(to, m->wire_param);
    add_u32(to, m->plain_bytes);
}

int vj_wire_put_plain_decode(VjSlice message, VjWirePutPlain *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWirePutPlain){.object = read_object(&r)};
    out->flags = vj_read_u8(&r);
    out->codec = vj_read_u8(&r);
    out->param = vj_read_u8(&r);
    out->level = vj_read_u8(&r);
    out->wire_codec = vj_read_u8(&r);
    out->wire_param = vj_read_u8(&r);
    out->plain_bytes = vj_read_u32(&r);
    if ((out->flags & ~VJ_WIRE_PUT_FLAGS) != 0 || out->plain_bytes == 0 ||
        out->plain_bytes > VJ_WIRE_PLAIN_MAX) {
        return -EPROTO;
    }
    return done(&r);
}

void vj_wire_get_plain_encode(GByteArray *to, const VjWireGetPlain *m)
{
    add_object(to, m->object);
    add_form(to, &m->form);
    add_u32(to, m->offset);
    add_u32(to, m->len);
    add_u8(to, m->wire_codec);
    add_u8(to, m->wire_param);
}

int vj_wire_get_plain_decode(VjSlice message, VjWireGetPlain *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWireGetPlain){.object = read_object(&r)};
    out->form = read_form(&r);
    out->offset = vj_read_u32(&r);
    out->len = vj_read_u32(&r);
    out->wire_codec = vj_read_u8(&r);
    out->wire_param = vj_read_u8(&r);
    if (out->len == 0 || out->len > out->form.plain_bytes ||
        out->offset > out->form.plain_bytes - out->len) {
        return -EPROTO;
    }
    return done(&r);
}

void vj_wire_digest_reply_encode(GByteArray *to,
                                 const uint8_t digest[VJ_WIRE_DIGEST_BYTES])
{
    add_slice(to, vj_slice(digest, VJ_WIRE_DIGEST_BYTES));
}

int vj_wire_digest_reply_decode(VjSlice message, uint8_t digest[VJ_WIRE_DIGEST_BYTES])
{
    VjReader r = vj_reader(message);
    VjSlice bytes = vj_read_bytes(&r, VJ_WIRE_DIGEST_BYTES);

    if (!vj_reader_done(&r)) {
        return -EPROTO;
    }
    memcpy(digest, bytes.data, VJ_WIRE_DIGEST_BYTES);
    return 0;
}

void vj_wire_space_encode(GByteArray *to, const VjWireSpace *m)
{
    add_u64(to, m->total_bytes);
    add_u64(to, m->free_bytes);
    add_u64(to, m->available_bytes);
    add_u64(to, m->available_objects);
}

int vj_wire_space_decode(VjSlice message, VjWireSpace *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWireSpace){.total_bytes = vj_read_u64(&r)};
    out->free_bytes = vj_read_u64(&r);
    out->available_bytes = vj_read_u64(&r);
    out->available_objects = vj_read_u64(&r);
    return done(&r);
}

/* ---- keys -------------------------------------------------------------------------- */

/* space, length (u16), key */
#define KEY_HEAD_BYTES 3u

static void add_key(GByteArray *to, const VjWireKey *key)
{
    g_assert(key->space < VJ_WIRE_SPACES && key->key.len <= VJ_WIRE_KEY_MAX);
    add_u8(to, key->space);
    add_u16(to, (uint16_t)key->key.len);
    add_slice(to, key->key);
}

/* One that may be empty is the end of a range. */
static VjSlice read_key_bytes(VjReader *r, bool may_be_empty)
{
    uint16_t len = vj_read_u16(r);

    if (len > VJ_WIRE_KEY_MAX || (len == 0 && !may_be_empty)) {
        r->bad = true;
        return vj_slice(NULL, 0);
    }
    return vj_read_bytes(r, len);
}

static uint8_t read_space(VjReader *r)
{
    uint8_t space = vj_read_u8(r);

    r->bad = r->bad || space >= VJ_WIRE_SPACES;
    return space;
}

static VjWireKey read_key(VjReader *r)
{
    VjWireKey key = {.space = read_space(r)};

    key.key = read_key_bytes(r, false);
    return key;
}

void vj_wire_keys_encode(GByteArray *to, const VjWireKey *at, uint32_t count)
{
    g_assert(count <= VJ_WIRE_KEYS_MAX);
    add_u32(to, count);
    for (uint32_t i = 0; i < count; i++) {
        add_key(to, &at[i]);
    }
}

int vj_wire_keys_decode(VjSlice message, GArray **out)
{
    VjReader r = vj_reader(message);
    uint32_t count = vj_read_u32(&r);

    *out = NULL;
    if (r.bad || count > VJ_WIRE_KEYS_MAX || count > r.left / KEY_HEAD_BYTES) {
        return -EPROTO;
    }
    *out = g_array_sized_new(FALSE, FALSE, sizeof(VjWireKey), count);
    for (uint32_t i = 0; i < count; i++) {
        VjWireKey key = read_key(&r);

        g_array_append_val(*out, key);
    }
    if (done(&r) < 0) {
        g_clear_pointer(out, g_array_unref);
        return -EPROTO;
    }
    return 0;
}

void vj_wire_scan_encode(GByteArray *to, const VjWireScan *m)
{
    g_assert(m->from.len <= VJ_WIRE_KEY_MAX && m->to.len <= VJ_WIRE_KEY_MAX);
    add_u8(to, m->space);
    add_u8(to, m->backward);
    add_u32(to, m->limit);
    add_u16(to, (uint16_t)m->from.len);
    add_slice(to, m->from);
    add_u16(to, (uint16_t)m->to.len);
    add_slice(to, m->to);
}

int vj_wire_scan_decode(VjSlice message, VjWireScan *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWireScan){.space = read_space(&r)};
    out->backward = read_bool(&r);
    out->limit = vj_read_u32(&r);
    out->from = read_key_bytes(&r, true);
    out->to = read_key_bytes(&r, true);
    if (out->limit == 0 || out->limit > VJ_WIRE_ITEMS_MAX) {
        return -EPROTO;
    }
    return done(&r);
}

void vj_wire_items_reply_encode(GByteArray *to, const VjWireItemsReply *m)
{
    add_u8(to, m->more);
    add_u32(to, m->count);
}

int vj_wire_items_reply_decode(VjSlice message, VjWireItemsReply *out)
{
    VjReader r = vj_reader(message);

    *out = (VjWireItemsReply){.more = read_bool(&r)};
    out->count = vj_read_u32(&r);
    if (out->count > VJ_WIRE_KEYS_MAX || (out->more && out->count == 0)) {
        return -EPROTO;
    }
    return done(&r);
}

size_t vj_wire_item_bytes(const VjWireItem *item)
{
    return KEY_HEAD_BYTES + item->key.key.len + 8 + 4 + item->value.len;
}

void vj_wire_item_encode(GByteArray *to, const VjWireItem *item)
{
    add_key(to, &item->key);
    add_u64(to, item->version);
    add_counted(to, item->value);
}

int vj_wire_item_decode(VjReader *r, VjWireItem *out)
{
    *out = (VjWireItem){.key = read_key(r)};
    out->version = vj_read_u64(r);
    out->value = read_counted(r, VJ_WIRE_VALUE_MAX);
    if (out->version == 0 && out->value.len > 0) {
        r->bad = true;
    }
    return r->bad ? -EPROTO : 0;
}

/* The first byte of an APPLY. */
#define APPLY_FENCE 1u
#define APPLY_RECEIVED 2u

void vj_wire_apply_encode(GByteArray *to, const VjWireApply *m)
{
    guint count = m->checks != NULL ? m->checks->len : 0;

    g_assert(count <= VJ_WIRE_KEYS_MAX);
    g_assert(!m->is_received || (m->has_fence && count == 0));
    add_u8(to, (m->has_fence ? APPLY_FENCE : 0) | (m->is_received ? APPLY_RECEIVED : 0));
    if (m->has_fence) {
        add_key(to, &m->fence.key);
        add_u64(to, m->fence.version);
    }
    add_u64(to, m->number);
    if (m->is_received) {
        add_u64(to, m->after);
    }
    add_u64(to, m->change_count);
    add_u32(to, count);
    for (guint i = 0; i < count; i++) {
        const VjWireCheck *check = &g_array_index(m->checks, VjWireCheck, i);

        add_key(to, &check->key);
        add_u64(to, check->version);
    }
}

static VjWireCheck read_check(VjReader *r)
{
    VjWireCheck check = {.key = read_key(r)};

    check.version = vj_read_u64(r);
    return check;
}

int vj_wire_apply_decode(VjSlice message, VjWireApply *out)
{
    VjReader r = vj_reader(message);
    uint8_t flags = vj_read_u8(&r);
    uint32_t count;

    *out = (VjWireApply){.has_fence = (flags & APPLY_FENCE) != 0,
                         .is_received = (flags & APPLY_RECEIVED) != 0};
    if (out->has_fence) {
        out->fence = read_check(&r);
    }
    out->number = vj_read_u64(&r);
    out->after = out->is_received ? vj_read_u64(&r) : 0;
    out->change_count = vj_read_u64(&r);
    count = vj_read_u32(&r);
    if ((flags & ~(APPLY_FENCE | APPLY_RECEIVED)) != 0 || out->after > out->number ||
        (out->is_received && (!out->has_fence || out->number == 0 || count > 0))) {
        return -EPROTO;
    }
    if (r.bad || count > VJ_WIRE_KEYS_MAX || count > r.left / (KEY_HEAD_BYTES + 8)) {
        return -EPROTO;
    }
    out->checks = g_array_sized_new(FALSE, FALSE, sizeof(VjWireCheck), count);
    for (uint32_t i = 0; i < count; i++) {
        VjWireCheck check = read_check(&r);

        g_array_append_val(out->checks, check);
    }
    if (done(&r) < 0) {
        g_clear_pointer(&out->checks, g_array_unref);
        return -EPROTO;
    }
    return 0;
}

size_t vj_wire_change_bytes(const VjWireChange *m)
{
    return KEY_HEAD_BYTES + m->key.key.len + 1 + 4 + m->value.len;
}

void vj_wire_change_encode(GByteArray *to, const VjWireChange *m)
{
    add_key(to, &m->key);
    add_u8(to, m->is_delete);
    add_counted(to, m->value);
}

int vj_wire_change_decode(VjReader *r, VjWireChange *out)
{
    *out = (VjWireChange){.key = read_key(r)};
    out->is_delete = read_bool(r);
    out->value = read_counted(r, VJ_WIRE_VALUE_MAX);
    if (out->is_delete && out->value.len > 0) {
        r->bad = true;
    }
    return r->bad ? -EPROTO : 0;
}

/* ---- single numbers ---------------------------------------------------------------- */

void vj_wire_u64_encode(GByteArray *to, uint64_t value)
{
    add_u64(to, value);
}

int vj_wire_u64_decode(VjSlice message, uint64_t *out)
{
    VjReader r = vj_reader(message);

    *out = vj_read_u64(&r);
    return done(&r);
}

void vj_wire_u8_encode(GByteArray *to, uint8_t value)
{
    add_u8(to, value);
}

int vj_wire_u8_decode(VjSlice message, uint8_t *out)
{
    VjReader r = vj_reader(message);

    *out = vj_read_u8(&r);
    return done(&r);
}
