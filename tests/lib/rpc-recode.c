/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* rpc-recode.c - bodies of frames decoded and encoded again */
#include "rpc-recode.h"

typedef int Recode(VjSlice message, VjSlice bulk, GByteArray *again);

static void copy(GByteArray *again, VjSlice bytes)
{
    if (bytes.len > 0) {
        g_byte_array_append(again, bytes.data, (guint)bytes.len);
    }
}

static int no_body(VjSlice message, VjSlice bulk, GByteArray *again)
{
    (void)again;
    return message.len > 0 || bulk.len > 0 ? -EPROTO : 0;
}

/* A bulk of any bytes, and no message. */
static int bulk_alone(VjSlice message, VjSlice bulk, GByteArray *again)
{
    copy(again, bulk);
    return message.len > 0 ? -EPROTO : 0;
}

static int failure(VjSlice message, VjSlice bulk, GByteArray *again)
{
    g_autofree char *text = vj_wire_text(message);

    g_assert(text == NULL || (strlen(text) == message.len && message.len > 0));
    g_assert(text == NULL ||
             (strchr(text, '\n') == NULL && strchr(text, '\033') == NULL));
    copy(again, message);
    return bulk.len > 0 ? -EPROTO : 0;
}

static int hello(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjHello m;

    if (bulk.len > 0 || vj_hello_decode(message, &m) < 0) {
        return -EPROTO;
    }
    g_assert(m.version_min > 0 && m.version_min <= m.version_max);
    g_assert(vj_wire_is_volume_name(m.volume));
    g_assert(m.volume.len <= VJ_WIRE_VOLUME_NAME_MAX);
    g_assert(m.name.len <= VJ_WIRE_VOLUME_NAME_MAX);
    vj_hello_encode(again, &m);
    return 0;
}

static int hello_reply(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjHelloReply m;

    if (bulk.len > 0 || vj_hello_reply_decode(message, &m) < 0) {
        return -EPROTO;
    }
    g_assert(m.was_empty <= 1);
    vj_hello_reply_encode(again, &m);
    return 0;
}

static int number(VjSlice message, VjSlice bulk, GByteArray *again)
{
    uint64_t m;

    if (bulk.len > 0 || vj_wire_u64_decode(message, &m) < 0) {
        return -EPROTO;
    }
    vj_wire_u64_encode(again, m);
    return 0;
}

static int small_number(VjSlice message, VjSlice bulk, GByteArray *again)
{
    uint8_t m;

    if (bulk.len > 0 || vj_wire_u8_decode(message, &m) < 0) {
        return -EPROTO;
    }
    vj_wire_u8_encode(again, m);
    return 0;
}

/* JSON, or a format by number. */
static int stats(VjSlice message, VjSlice bulk, GByteArray *again)
{
    return message.len == 0 ? no_body(message, bulk, again)
                            : small_number(message, bulk, again);
}

static int put(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWirePut m;

    if (vj_wire_put_decode(message, &m) < 0) {
        return -EPROTO;
    }
    g_assert((m.flags & ~VJ_WIRE_PUT_FLAGS) == 0);
    vj_wire_put_encode(again, &m);
    copy(again, bulk);
    return 0;
}

static int get(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWireGet m;

    if (bulk.len > 0 || vj_wire_get_decode(message, &m) < 0) {
        return -EPROTO;
    }
    g_assert(m.len > 0 && m.offset + m.len <= VJ_WIRE_OBJECT_MAX);
    vj_wire_get_encode(again, &m);
    return 0;
}

static int objects(VjSlice message, VjSlice bulk, GByteArray *again)
{
    g_autoptr(GArray) m = NULL;

    if (bulk.len > 0 || vj_wire_objects_decode(message, &m) < 0) {
        g_assert(m == NULL);
        return -EPROTO;
    }
    g_assert(m->len <= VJ_WIRE_OBJECTS_MAX);
    vj_wire_objects_encode(again, (const VjWireObject *)(void *)m->data, m->len);
    return 0;
}

static int statuses(VjSlice message, VjSlice bulk, GByteArray *again)
{
    static uint32_t m[VJ_WIRE_OBJECTS_MAX];
    uint32_t count = (uint32_t)MIN(message.len / 4, VJ_WIRE_OBJECTS_MAX);

    if (bulk.len > 0 || vj_wire_statuses_decode(message, m, count) < 0) {
        return -EPROTO;
    }
    vj_wire_statuses_encode(again, m, count);
    return 0;
}

static int lengths(VjSlice message, VjSlice bulk, GByteArray *again)
{
    static uint64_t m[VJ_WIRE_OBJECTS_MAX];
    uint32_t count = (uint32_t)MIN(message.len / 8, VJ_WIRE_OBJECTS_MAX);

    if (bulk.len > 0 || vj_wire_lengths_decode(message, m, count) < 0) {
        return -EPROTO;
    }
    vj_wire_lengths_encode(again, m, count);
    return 0;
}

static int list(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWireList m;

    if (bulk.len > 0 || vj_wire_list_decode(message, &m) < 0) {
        return -EPROTO;
    }
    g_assert(m.first <= m.last && m.limit > 0 && m.limit <= VJ_WIRE_LISTED_MAX);
    vj_wire_list_encode(again, &m);
    return 0;
}

static int list_reply(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWireListReply m;

    if (vj_wire_list_reply_decode(message, bulk.len, &m) < 0) {
        return -EPROTO;
    }
    g_assert(bulk.len == (size_t)m.count * VJ_WIRE_LISTED_BYTES);
    g_assert(m.count > 0 || !m.more);
    vj_wire_list_reply_encode(again, &m);
    for (uint32_t i = 0; i < m.count; i++) {
        uint8_t bytes[VJ_WIRE_LISTED_BYTES];
        VjWireListed listed;

        vj_wire_listed_decode((const uint8_t *)bulk.data + (size_t)i * sizeof bytes,
                              &listed);
        vj_wire_listed_encode(&listed, bytes);
        copy(again, vj_slice(bytes, sizeof bytes));
    }
    return 0;
}

static int space(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWireSpace m;

    if (bulk.len > 0 || vj_wire_space_decode(message, &m) < 0) {
        return -EPROTO;
    }
    vj_wire_space_encode(again, &m);
    return 0;
}

static void expect_form(const VjWireForm *form)
{
    g_assert(form->plain_bytes > 0 && form->plain_bytes <= VJ_WIRE_PLAIN_MAX);
    g_assert(form->stored_bytes <= VJ_WIRE_STORED_MAX);
}

static int digest(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWireDigest m;

    if (bulk.len > 0 || vj_wire_digest_decode(message, &m) < 0) {
        return -EPROTO;
    }
    expect_form(&m.form);
    vj_wire_digest_encode(again, &m);
    return 0;
}

static int digest_reply(VjSlice message, VjSlice bulk, GByteArray *again)
{
    uint8_t m[VJ_WIRE_DIGEST_BYTES];

    if (bulk.len > 0 || vj_wire_digest_reply_decode(message, m) < 0) {
        return -EPROTO;
    }
    vj_wire_digest_reply_encode(again, m);
    return 0;
}

static int put_plain(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWirePutPlain m;

    if (vj_wire_put_plain_decode(message, &m) < 0) {
        return -EPROTO;
    }
    g_assert(m.plain_bytes > 0 && m.plain_bytes <= VJ_WIRE_PLAIN_MAX);
    g_assert((m.flags & ~VJ_WIRE_PUT_FLAGS) == 0);
    vj_wire_put_plain_encode(again, &m);
    copy(again, bulk);
    return 0;
}

static int form(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWireForm m;

    if (bulk.len > 0 || vj_wire_form_decode(message, &m) < 0) {
        return -EPROTO;
    }
    expect_form(&m);
    vj_wire_form_encode(again, &m);
    return 0;
}

static int get_plain(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWireGetPlain m;

    if (bulk.len > 0 || vj_wire_get_plain_decode(message, &m) < 0) {
        return -EPROTO;
    }
    expect_form(&m.form);
    g_assert(m.len > 0 && (uint64_t)m.offset + m.len <= m.form.plain_bytes);
    vj_wire_get_plain_encode(again, &m);
    return 0;
}

static int get_plain_reply(VjSlice message, VjSlice bulk, GByteArray *again)
{
    uint8_t m;

    if (vj_wire_u8_decode(message, &m) < 0) {
        return -EPROTO;
    }
    vj_wire_u8_encode(again, m);
    copy(again, bulk);
    return 0;
}

static void expect_key(const VjWireKey *key)
{
    g_assert(key->space < VJ_WIRE_SPACES);
    g_assert(key->key.len > 0 && key->key.len <= VJ_WIRE_KEY_MAX);
}

static int keys(VjSlice message, VjSlice bulk, GByteArray *again)
{
    g_autoptr(GArray) m = NULL;

    if (bulk.len > 0 || vj_wire_keys_decode(message, &m) < 0) {
        g_assert(m == NULL);
        return -EPROTO;
    }
    g_assert(m->len <= VJ_WIRE_KEYS_MAX);
    for (guint i = 0; i < m->len; i++) {
        expect_key(&g_array_index(m, VjWireKey, i));
    }
    vj_wire_keys_encode(again, (const VjWireKey *)(void *)m->data, m->len);
    return 0;
}

static int scan(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjWireScan m;

    if (bulk.len > 0 || vj_wire_scan_decode(message, &m) < 0) {
        return -EPROTO;
    }
    g_assert(m.space < VJ_WIRE_SPACES && m.backward <= 1);
    g_assert(m.limit > 0 && m.limit <= VJ_WIRE_ITEMS_MAX);
    g_assert(m.from.len <= VJ_WIRE_KEY_MAX && m.to.len <= VJ_WIRE_KEY_MAX);
    vj_wire_scan_encode(again, &m);
    return 0;
}

static int items(VjSlice message, VjSlice bulk, GByteArray *again)
{
    VjReader r = vj_reader(bulk);
    VjWireItemsReply m;

    if (vj_wire_items_reply_decode(message, &m) < 0) {
        return -EPROTO;
    }
    g_assert(m.count <= VJ_WIRE_KEYS_MAX && (m.count > 0 || !m.more));
    vj_wire_items_reply_encode(again, &m);
    for (uint32_t i = 0; i < m.count; i++) {
        size_t left = r.left;
        VjWireItem item;

        if (vj_wire_item_decode(&r, &item) < 0) {
            return -EPROTO;
        }
        expect_key(&item.key);
        g_assert(item.value.len <= VJ_WIRE_VALUE_MAX);
        g_assert(item.version > 0 || item.value.len == 0);
        g_assert(left - r.left == vj_wire_item_bytes(&item));
        vj_wire_item_encode(again, &item);
    }
    return vj_reader_done(&r) ? 0 : -EPROTO;
}

static int changes(const VjWireApply *m, VjSlice bulk, GByteArray *again)
{
    VjReader r = vj_reader(bulk);

    for (uint64_t i = 0; i < m->change_count; i++) {
        size_t left = r.left;
        VjWireChange change;

        if (vj_wire_change_decode(&r, &change) < 0) {
            return -EPROTO;
        }
        expect_key(&change.key);
        g_assert(change.value.len <= VJ_WIRE_VALUE_MAX);
        g_assert(!change.is_delete || change.value.len == 0);
        g_assert(left - r.left == vj_wire_change_bytes(&change));
        vj_wire_change_encode(again, &change);
    }
    return vj_reader_done(&r) ? 0 : -EPROTO;
}

static int apply(VjSlice message, VjSlice bulk, GByteArray *again)
{
    g_autoptr(GArray) checks = NULL;
    VjWireApply m;

    if (vj_wire_apply_decode(message, &m) < 0) {
        g_assert(m.checks == NULL);
        return -EPROTO;
    }
    checks = m.checks;
    g_assert(m.has_fence <= 1 && checks->len <= VJ_WIRE_KEYS_MAX);
    g_assert(!m.is_received || (m.has_fence && m.number > 0 && checks->len == 0));
    g_assert(m.after <= m.number && (m.is_received || m.after == 0));
    if (m.has_fence) {
        expect_key(&m.fence.key);
    }
    for (guint i = 0; i < checks->len; i++) {
        expect_key(&g_array_index(checks, VjWireCheck, i).key);
    }
    vj_wire_apply_encode(again, &m);
    return changes(&m, bulk, again);
}

static const struct {
    uint16_t op;
    Recode *request, *reply; /* reply NULL: it has none */
} recodes[] = {
    {VJ_OP_HELLO, hello, hello_reply},
    {VJ_OP_PING, no_body, no_body},
    {VJ_OP_CANCEL, number, NULL},
    {VJ_OP_STATS, stats, bulk_alone},
    {VJ_OP_PUT, put, no_body},
    {VJ_OP_GET, get, bulk_alone},
    {VJ_OP_REMOVE, objects, statuses},
    {VJ_OP_FLUSH, no_body, no_body},
    {VJ_OP_FLUSH_REMOVES, no_body, no_body},
    {VJ_OP_HAVE, objects, lengths},
    {VJ_OP_LIST, list, list_reply},
    {VJ_OP_SPACE, no_body, space},
    {VJ_OP_DIGEST, digest, digest_reply},
    {VJ_OP_PUT_PLAIN, put_plain, form},
    {VJ_OP_GET_PLAIN, get_plain, get_plain_reply},
    {VJ_OP_GET_MANY, keys, items},
    {VJ_OP_SCAN, scan, items},
    {VJ_OP_APPLY, apply, no_body},
    {VJ_OP_CLOCK, no_body, number},
    {VJ_OP_COUNT, small_number, number},
};

bool rpc_has_items(const VjFrame *frame)
{
    bool is_reply = (frame->flags & VJ_FRAME_REPLY) != 0;

    switch (frame->op) {
    case VJ_OP_GET_MANY:
    case VJ_OP_SCAN:
        return is_reply && frame->status == VJ_WIRE_OK;
    case VJ_OP_APPLY:
        return is_reply && frame->status == VJ_WIRE_CONFLICT;
    default:
        return false;
    }
}

int rpc_recode(const VjFrame *frame, VjSlice message, VjSlice bulk, GByteArray *again)
{
    bool is_reply = (frame->flags & VJ_FRAME_REPLY) != 0;

    if (rpc_has_items(frame)) {
        return items(message, bulk, again);
    }
    if (is_reply && frame->status != VJ_WIRE_OK) {
        return failure(message, bulk, again);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(recodes); i++) {
        Recode *recode = is_reply ? recodes[i].reply : recodes[i].request;

        if (recodes[i].op == frame->op && recode != NULL) {
            return recode(message, bulk, again);
        }
    }
    return -EPROTO;
}
