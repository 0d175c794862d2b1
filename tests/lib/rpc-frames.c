/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* rpc-frames.c - one frame of each operation and of its reply */
#include "rpc-frames.h"

static const VjWireObject objects[] = {
    {.id = UINT64_C(0x1716151413121110), .nonce = UINT64_C(0x1f1e1d1c1b1a1918)},
    {.id = UINT64_C(0x2726252423222120), .nonce = UINT64_C(0x2f2e2d2c2b2a2928)},
};
static const char content[] = "The content of an object.";

static VjSlice text(const char *s)
{
    return vj_slice(s, strlen(s));
}

static void fill_uuid(uint8_t *uuid, uint8_t first)
{
    for (unsigned i = 0; i < VJ_WIRE_UUID_BYTES; i++) {
        uuid[i] = (uint8_t)(first + i);
    }
}

static void fill_nothing(GByteArray *message, GByteArray *bulk)
{
    (void)message;
    (void)bulk;
}

static void fill_hello(GByteArray *message, GByteArray *bulk)
{
    VjHello m = {.version_min = 1,
                 .version_max = 1,
                 .role = VJ_ROLE_OBJECT,
                 .flags = VJ_HELLO_ADOPT,
                 .connection = 1,
                 .volume = text("home"),
                 .name = text("mount")};

    (void)bulk;
    fill_uuid(m.uuid, 0x30);
    fill_uuid(m.client, 0x40);
    vj_hello_encode(message, &m);
}

static void fill_hello_reply(GByteArray *message, GByteArray *bulk)
{
    VjHelloReply m = {.version = 1,
                      .was_empty = 1,
                      .requests_max = 1024,
                      .bytes_max = (uint64_t)128 << 20};

    (void)bulk;
    fill_uuid(m.node, 0x50);
    fill_uuid(m.instance, 0x60);
    vj_hello_reply_encode(message, &m);
}

static void fill_hello_features(GByteArray *message, GByteArray *bulk)
{
    fill_hello(message, bulk);
    vj_hello_add_features(message, VJ_FEATURE_BARE);
}

static void fill_hello_reply_features(GByteArray *message, GByteArray *bulk)
{
    fill_hello_reply(message, bulk);
    vj_hello_reply_add_features(message, VJ_FEATURE_BARE);
}

static void fill_text(GByteArray *message, GByteArray *bulk)
{
    VjSlice why = text("no version in common: this node speaks 1 to 1");

    (void)bulk;
    g_byte_array_append(message, why.data, (guint)why.len);
}

static void fill_tag(GByteArray *message, GByteArray *bulk)
{
    (void)bulk;
    vj_wire_u64_encode(message, RPC_EXAMPLE_TAG - 1);
}

static void fill_stats(GByteArray *message, GByteArray *bulk)
{
    VjSlice json = text("{\"version\":1}");

    (void)message;
    g_byte_array_append(bulk, json.data, (guint)json.len);
}

static void fill_content(GByteArray *message, GByteArray *bulk)
{
    (void)message;
    g_byte_array_append(bulk, (const guint8 *)content, sizeof content - 1);
}

static void fill_put(GByteArray *message, GByteArray *bulk)
{
    VjWirePut m = {.object = objects[0], .flags = VJ_WIRE_PUT_DURABLE};

    vj_wire_put_encode(message, &m);
    fill_content(message, bulk);
}

static void fill_get(GByteArray *message, GByteArray *bulk)
{
    VjWireGet m = {.object = objects[0], .offset = 0, .len = sizeof content - 1};

    (void)bulk;
    vj_wire_get_encode(message, &m);
}

static void fill_objects(GByteArray *message, GByteArray *bulk)
{
    (void)bulk;
    vj_wire_objects_encode(message, objects, G_N_ELEMENTS(objects));
}

static void fill_statuses(GByteArray *message, GByteArray *bulk)
{
    static const uint32_t statuses[] = {VJ_WIRE_OK, VJ_WIRE_DEVICE};

    (void)bulk;
    vj_wire_statuses_encode(message, statuses, G_N_ELEMENTS(statuses));
}

static void fill_lengths(GByteArray *message, GByteArray *bulk)
{
    static const uint64_t lengths[] = {sizeof content - 1, VJ_WIRE_HAS_NOT};

    (void)bulk;
    vj_wire_lengths_encode(message, lengths, G_N_ELEMENTS(lengths));
}

static void fill_list(GByteArray *message, GByteArray *bulk)
{
    VjWireList m = {
        .first = 0x1000, .last = UINT64_MAX, .after = objects[0], .limit = 100};

    (void)bulk;
    vj_wire_list_encode(message, &m);
}

static void fill_list_reply(GByteArray *message, GByteArray *bulk)
{
    VjWireListReply m = {.more = 1, .count = 1};
    VjWireListed listed = {.object = objects[1],
                           .bytes = sizeof content - 1,
                           .mtime_us = INT64_C(1800000000000000)};
    uint8_t bytes[VJ_WIRE_LISTED_BYTES];

    vj_wire_list_reply_encode(message, &m);
    vj_wire_listed_encode(&listed, bytes);
    g_byte_array_append(bulk, bytes, sizeof bytes);
}

static void fill_space(GByteArray *message, GByteArray *bulk)
{
    VjWireSpace m = {.total_bytes = (uint64_t)1 << 40,
                     .free_bytes = (uint64_t)3 << 38,
                     .available_bytes = (uint64_t)1 << 39,
                     .available_objects = UINT64_MAX};

    (void)bulk;
    vj_wire_space_encode(message, &m);
}

static const VjWireForm form = {.codec = 4,
                                .param = 1,
                                .plain_bytes = sizeof content - 1,
                                .stored_bytes = 65,
                                .trailer_checksum = UINT64_C(0x7776757473727170)};

static void fill_digest(GByteArray *message, GByteArray *bulk)
{
    VjWireDigest m = {.object = objects[0], .form = form, .digest = 3};

    (void)bulk;
    vj_wire_digest_encode(message, &m);
}

static void fill_digest_reply(GByteArray *message, GByteArray *bulk)
{
    uint8_t digest[VJ_WIRE_DIGEST_BYTES];

    (void)bulk;
    fill_uuid(digest, 0x80);
    fill_uuid(digest + VJ_WIRE_UUID_BYTES, 0x90);
    vj_wire_digest_reply_encode(message, digest);
}

static void fill_put_plain(GByteArray *message, GByteArray *bulk)
{
    VjWirePutPlain m = {.object = objects[0],
                        .flags = VJ_WIRE_PUT_DURABLE,
                        .codec = 4,
                        .param = 1,
                        .level = (uint8_t)-5,
                        .plain_bytes = sizeof content - 1};

    vj_wire_put_plain_encode(message, &m);
    fill_content(message, bulk);
}

static void fill_form(GByteArray *message, GByteArray *bulk)
{
    (void)bulk;
    vj_wire_form_encode(message, &form);
}

static void fill_get_plain(GByteArray *message, GByteArray *bulk)
{
    VjWireGetPlain m = {
        .object = objects[0], .form = form, .offset = 4, .len = 7, .wire_codec = 3};

    (void)bulk;
    vj_wire_get_plain_encode(message, &m);
}

static void fill_plain(GByteArray *message, GByteArray *bulk)
{
    vj_wire_u8_encode(message, 0);
    g_byte_array_append(bulk, (const guint8 *)content + 4, 7);
}

static VjWireKey key(uint8_t space, const char *name)
{
    return (VjWireKey){.space = space, .key = text(name)};
}

static void fill_keys(GByteArray *message, GByteArray *bulk)
{
    const VjWireKey keys[] = {key(1, "an inode"), key(15, "a claim")};

    (void)bulk;
    vj_wire_keys_encode(message, keys, G_N_ELEMENTS(keys));
}

static void fill_items(GByteArray *message, GByteArray *bulk)
{
    VjWireItemsReply m = {.count = 2};
    VjWireItem items[] = {
        {.key = key(1, "an inode"), .version = 77, .value = text("its record")},
        {.key = key(15, "a claim")},
    };

    vj_wire_items_reply_encode(message, &m);
    for (unsigned i = 0; i < G_N_ELEMENTS(items); i++) {
        vj_wire_item_encode(bulk, &items[i]);
    }
}

static void fill_scanned(GByteArray *message, GByteArray *bulk)
{
    VjWireItemsReply m = {.more = 1, .count = 1};
    VjWireItem item = {.key = key(2, "name 2"), .version = 79, .value = text("an entry")};

    vj_wire_items_reply_encode(message, &m);
    vj_wire_item_encode(bulk, &item);
}

static void fill_scan(GByteArray *message, GByteArray *bulk)
{
    VjWireScan m = {
        .space = 2, .limit = 1000, .from = text("name 1"), .to = text("name 9")};

    (void)bulk;
    vj_wire_scan_encode(message, &m);
}

static void fill_apply(GByteArray *message, GByteArray *bulk)
{
    g_autoptr(GArray) checks = g_array_new(FALSE, FALSE, sizeof(VjWireCheck));
    VjWireCheck check = {.key = key(1, "an inode"), .version = 77};
    VjWireApply m = {.has_fence = 1,
                     .fence = {.key = key(14, "session"), .version = 5},
                     .number = 1234,
                     .change_count = 2,
                     .checks = checks};
    VjWireChange changes[] = {
        {.key = key(1, "an inode"), .value = text("another record")},
        {.key = key(2, "name 1"), .is_delete = 1},
    };

    g_array_append_val(checks, check);
    vj_wire_apply_encode(message, &m);
    for (unsigned i = 0; i < G_N_ELEMENTS(changes); i++) {
        vj_wire_change_encode(bulk, &changes[i]);
    }
}

static void fill_received(GByteArray *message, GByteArray *bulk)
{
    VjWireApply m = {.has_fence = 1,
                     .is_received = 1,
                     .fence = {.key = key(14, "session"), .version = 5},
                     .number = 1236,
                     .after = 1234,
                     .change_count = 1};
    VjWireChange change = {.key = key(1, "an inode"), .value = text("a record")};

    vj_wire_apply_encode(message, &m);
    vj_wire_change_encode(bulk, &change);
}

static void fill_clock(GByteArray *message, GByteArray *bulk)
{
    (void)bulk;
    vj_wire_u64_encode(message, UINT64_C(1800000000000000));
}

static void fill_space_number(GByteArray *message, GByteArray *bulk)
{
    (void)bulk;
    vj_wire_u8_encode(message, 8);
}

/* Of statistics: as text. */
static void fill_format(GByteArray *message, GByteArray *bulk)
{
    (void)bulk;
    vj_wire_u8_encode(message, 1);
}

static void fill_count(GByteArray *message, GByteArray *bulk)
{
    (void)bulk;
    vj_wire_u64_encode(message, 1000000);
}

#define REQUEST(op_) .op = (op_), .timeout_or_status = 5000
#define REPLY(op_) .op = (op_), .is_reply = true, .timeout_or_status = VJ_WIRE_OK
#define FAILURE(op_, status_)                                                            \
    .op = (op_), .is_reply = true, .timeout_or_status = (status_)

const RpcExample rpc_examples[] = {
    {"hello", "A hello", REQUEST(VJ_OP_HELLO), .fill = fill_hello},
    {"hello-reply", "Its reply", REPLY(VJ_OP_HELLO), .fill = fill_hello_reply},
    {"hello-refused", NULL, FAILURE(VJ_OP_HELLO, VJ_WIRE_UNSUPPORTED), .fill = fill_text},
    {"ping", NULL, REQUEST(VJ_OP_PING), .fill = fill_nothing},
    {"ping-reply", NULL, REPLY(VJ_OP_PING), .fill = fill_nothing},
    {"cancel", NULL, REQUEST(VJ_OP_CANCEL), .fill = fill_tag},
    {"stats", NULL, REQUEST(VJ_OP_STATS), .fill = fill_nothing},
    {"stats-reply", NULL, REPLY(VJ_OP_STATS), .fill = fill_stats},
    {"put", "A PUT with DURABLE", REQUEST(VJ_OP_PUT), .fill = fill_put},
    {"put-reply", "OK", REPLY(VJ_OP_PUT), .fill = fill_nothing},
    {"put-full", NULL, FAILURE(VJ_OP_PUT, VJ_WIRE_FULL), .fill = fill_nothing},
    {"get", NULL, REQUEST(VJ_OP_GET), .fill = fill_get},
    {"get-reply", NULL, REPLY(VJ_OP_GET), .fill = fill_content},
    {"remove", NULL, REQUEST(VJ_OP_REMOVE), .fill = fill_objects},
    {"remove-reply", NULL, REPLY(VJ_OP_REMOVE), .fill = fill_statuses},
    {"flush", NULL, REQUEST(VJ_OP_FLUSH), .fill = fill_nothing},
    {"flush-reply", NULL, REPLY(VJ_OP_FLUSH), .fill = fill_nothing},
    {"flush-removes", NULL, REQUEST(VJ_OP_FLUSH_REMOVES), .fill = fill_nothing},
    {"flush-removes-reply", NULL, REPLY(VJ_OP_FLUSH_REMOVES), .fill = fill_nothing},
    {"have", NULL, REQUEST(VJ_OP_HAVE), .fill = fill_objects},
    {"have-reply", NULL, REPLY(VJ_OP_HAVE), .fill = fill_lengths},
    {"list", NULL, REQUEST(VJ_OP_LIST), .fill = fill_list},
    {"list-reply", NULL, REPLY(VJ_OP_LIST), .fill = fill_list_reply},
    {"space", NULL, REQUEST(VJ_OP_SPACE), .fill = fill_nothing},
    {"space-reply", NULL, REPLY(VJ_OP_SPACE), .fill = fill_space},
    {"digest", NULL, REQUEST(VJ_OP_DIGEST), .fill = fill_digest},
    {"digest-reply", NULL, REPLY(VJ_OP_DIGEST), .fill = fill_digest_reply},
    {"put-plain", NULL, REQUEST(VJ_OP_PUT_PLAIN), .fill = fill_put_plain},
    {"put-plain-reply", NULL, REPLY(VJ_OP_PUT_PLAIN), .fill = fill_form},
    {"get-plain", NULL, REQUEST(VJ_OP_GET_PLAIN), .fill = fill_get_plain},
    {"get-plain-reply", NULL, REPLY(VJ_OP_GET_PLAIN), .fill = fill_plain},
    {"get-many", NULL, REQUEST(VJ_OP_GET_MANY), .fill = fill_keys},
    {"get-many-reply", NULL, REPLY(VJ_OP_GET_MANY), .fill = fill_items},
    {"scan", NULL, REQUEST(VJ_OP_SCAN), .fill = fill_scan},
    {"scan-reply", NULL, REPLY(VJ_OP_SCAN), .fill = fill_scanned},
    {"apply", "An APPLY", REQUEST(VJ_OP_APPLY), .fill = fill_apply},
    {"apply-received", NULL, REQUEST(VJ_OP_APPLY), .fill = fill_received},
    {"apply-reply", NULL, REPLY(VJ_OP_APPLY), .fill = fill_nothing},
    {"apply-conflict", NULL, FAILURE(VJ_OP_APPLY, VJ_WIRE_CONFLICT), .fill = fill_items},
    {"clock", NULL, REQUEST(VJ_OP_CLOCK), .fill = fill_nothing},
    {"clock-reply", NULL, REPLY(VJ_OP_CLOCK), .fill = fill_clock},
    {"count", NULL, REQUEST(VJ_OP_COUNT), .fill = fill_space_number},
    {"count-reply", NULL, REPLY(VJ_OP_COUNT), .fill = fill_count},
    {"stats-text", NULL, REQUEST(VJ_OP_STATS), .fill = fill_format},
    {"hello-features", NULL, REQUEST(VJ_OP_HELLO), .fill = fill_hello_features},
    {"hello-features-reply", NULL, REPLY(VJ_OP_HELLO), .fill = fill_hello_reply_features},
    {"get-bare", NULL, REQUEST(VJ_OP_GET), .flags = VJ_FRAME_BARE, .fill = fill_get},
    {"get-bare-reply", NULL, REPLY(VJ_OP_GET), .flags = VJ_FRAME_BARE,
     .fill = fill_content},
    {0},
};

GByteArray *rpc_frame(VjFrame frame, VjSlice message, VjSlice bulk)
{
    GByteArray *out = g_byte_array_sized_new(VJ_FRAME_HEAD_BYTES);
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    size_t sum_bytes;

    g_byte_array_set_size(out, VJ_FRAME_HEAD_BYTES);
    if (message.len > 0) {
        g_byte_array_append(out, message.data, (guint)message.len);
    }
    if (bulk.len > 0) {
        g_byte_array_append(out, bulk.data, (guint)bulk.len);
    }
    frame.message_bytes = (uint32_t)message.len;
    frame.bulk_bytes = (uint32_t)bulk.len;
    sum_bytes = vj_frame_sum_bytes(&frame);
    frame.body_checksum =
        sum_bytes == 0 ? 0 : vj_checksum64(out->data + VJ_FRAME_HEAD_BYTES, sum_bytes);
    vj_frame_encode(&frame, head);
    memcpy(out->data, head, sizeof head);
    return out;
}

GByteArray *rpc_example_frame(const RpcExample *e)
{
    g_autoptr(GByteArray) message = g_byte_array_new();
    g_autoptr(GByteArray) bulk = g_byte_array_new();
    VjFrame frame = {.flags = (e->is_reply ? VJ_FRAME_REPLY : 0) | e->flags,
                     .op = e->op,
                     .tag = RPC_EXAMPLE_TAG,
                     .timeout_ms = e->timeout_or_status,
                     .status = e->timeout_or_status};

    e->fill(message, bulk);
    return rpc_frame(frame, vj_slice(message->data, message->len),
                     vj_slice(bulk->data, bulk->len));
}
