/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* What a node answers, over a socket: each operation, and what it refuses */
#include "node-fixture.h"

#define CREATE VJ_HELLO_CREATE
#define OBJECT VJ_ROLE_OBJECT
#define META VJ_ROLE_META

#define TWO_VOLUMES                                                                      \
    "[volume a]\ndirectory = a\n[volume b]\ndirectory = b\nstore = memory\n"             \
    "meta = memory\n"

static int setup(void **state)
{
    TestNode *t = test_node_new();

    t->conf = test_node_conf(t, TWO_VOLUMES, false);
    test_node_start(t, NULL);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    TestNode *t = *state;

    test_node_stop(t);
    test_node_free(t);
    return 0;
}

static TestPeer *peer_of(TestNode *t, uint8_t role)
{
    TestPeer *p = test_peer_new(t, NULL, NULL, "a", role, 1, CREATE);

    assert_int_equal(p->status, 0);
    return p;
}

/* ---- objects ----------------------------------------------------------------------- */

static GByteArray *put_message(uint64_t id, uint64_t nonce, uint8_t flags)
{
    GByteArray *m = g_byte_array_new();

    vj_wire_put_encode(
        m, &(VjWirePut){.object = {.id = id, .nonce = nonce}, .flags = flags});
    return m;
}

static GByteArray *get_message(uint64_t id, uint64_t nonce, uint64_t offset, uint32_t len)
{
    GByteArray *m = g_byte_array_new();

    vj_wire_get_encode(
        m,
        &(VjWireGet){.object = {.id = id, .nonce = nonce}, .offset = offset, .len = len});
    return m;
}

static GByteArray *objects_message(const VjWireObject *at, uint32_t count)
{
    GByteArray *m = g_byte_array_new();

    vj_wire_objects_encode(m, at, count);
    return m;
}

static void put(TestPeer *p, uint64_t id, uint64_t nonce, uint32_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len);

    vj_test_fill_pattern(bytes, len);
    assert_int_equal(test_rc(p, VJ_OP_PUT, put_message(id, nonce, 0), bytes, len), 0);
}

static void test_put_and_get(void **state)
{
    TestPeer *p = peer_of(*state, OBJECT);
    uint8_t bytes[10000];
    g_autoptr(VjRpcCall) whole = NULL;
    g_autoptr(VjRpcCall) part = NULL;

    vj_test_fill_pattern(bytes, sizeof bytes);
    assert_int_equal(test_rc(p, VJ_OP_PUT, put_message(7, 8, VJ_WIRE_PUT_DURABLE), bytes,
                             sizeof bytes),
                     0);
    whole = test_call(p, VJ_OP_GET, get_message(7, 8, 0, sizeof bytes), NULL, 0);
    assert_int_equal(whole->rc, 0);
    assert_int_equal(whole->reply_bulk_bytes, sizeof bytes);
    assert_memory_equal(whole->reply_bulk->data, bytes, sizeof bytes);
    part = test_call(p, VJ_OP_GET, get_message(7, 8, 4097, 3), NULL, 0);
    assert_int_equal(part->reply_bulk_bytes, 3);
    assert_memory_equal(part->reply_bulk->data, bytes + 4097, 3);
    assert_int_equal(test_rc(p, VJ_OP_GET, get_message(7, 8, 1, sizeof bytes), NULL, 0),
                     -EBADMSG);
    assert_int_equal(test_rc(p, VJ_OP_GET, get_message(7, 9, 0, 1), NULL, 0), -ENOENT);
    assert_int_equal(test_rc(p, VJ_OP_GET, get_message(8, 8, 0, 1), NULL, 0), -ENOENT);
    assert_int_equal(test_rc(p, VJ_OP_FLUSH, NULL, NULL, 0), 0);
    /* once more, as after a loss */
    assert_int_equal(test_rc(p, VJ_OP_PUT, put_message(7, 8, VJ_WIRE_PUT_DURABLE), bytes,
                             sizeof bytes),
                     0);
    test_peer_free(p);
}

/* From the object's file to the socket. */
static void test_get_bare(void **state)
{
    enum { BYTES = 300000 };
    TestNode *t = *state;
    TestPeer *p = peer_of(t, OBJECT);
    g_autofree uint8_t *bytes = g_malloc(BYTES);
    static const struct {
        uint32_t offset, len;
        int rc;
    } gets[] = {
        {0, BYTES, 0},     {1, BYTES - 1, 0},    {123, 100000, 0},
        {BYTES - 3, 3, 0}, {1, BYTES, -EBADMSG}, {BYTES, 20000, -EBADMSG},
        {0, BYTES, 0},
    };

    vj_test_fill_pattern(bytes, BYTES);
    put(p, 7, 8, BYTES);
    for (unsigned i = 0; i < G_N_ELEMENTS(gets); i++) {
        g_autoptr(VjRpcCall) call = test_call_as(
            p, VJ_OP_GET, get_message(7, 8, gets[i].offset, gets[i].len), NULL, 0, true);

        assert_int_equal(call->rc, gets[i].rc);
        assert_true(call->is_answered);
        if (call->rc == 0) {
            assert_int_equal(call->reply_bulk_bytes, gets[i].len);
            assert_memory_equal(call->reply_bulk->data, bytes + gets[i].offset,
                                gets[i].len);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        g_autoptr(VjRpcCall) absent =
            test_call_as(p, VJ_OP_GET, get_message(7 + i, 9, 0, 20000), NULL, 0, true);

        assert_int_equal(absent->rc, -ENOENT);
    }
    test_peer_free(p);
}

static void test_have_and_remove(void **state)
{
    TestPeer *p = peer_of(*state, OBJECT);
    VjWireObject all[] = {{1, 1}, {1, 2}, {2, 1}};
    uint64_t lengths[3];
    uint32_t statuses[2];
    g_autoptr(VjRpcCall) have = NULL;
    g_autoptr(VjRpcCall) removed = NULL;
    g_autoptr(VjRpcCall) after = NULL;

    put(p, 1, 1, 100);
    put(p, 2, 1, 200);
    have = test_call(p, VJ_OP_HAVE, objects_message(all, 3), NULL, 0);
    assert_int_equal(
        vj_wire_lengths_decode(vj_slice(have->reply->data, have->reply->len), lengths, 3),
        0);
    assert_true(lengths[0] == 100 && lengths[1] == VJ_WIRE_HAS_NOT && lengths[2] == 200);
    removed = test_call(p, VJ_OP_REMOVE, objects_message(all, 2), NULL, 0);
    assert_int_equal(
        vj_wire_statuses_decode(vj_slice(removed->reply->data, removed->reply->len),
                                statuses, 2),
        0);
    assert_true(statuses[0] == VJ_WIRE_OK && statuses[1] == VJ_WIRE_OK);
    assert_int_equal(test_rc(p, VJ_OP_FLUSH_REMOVES, NULL, NULL, 0), 0);
    after = test_call(p, VJ_OP_HAVE, objects_message(all, 3), NULL, 0);
    assert_int_equal(vj_wire_lengths_decode(
                         vj_slice(after->reply->data, after->reply->len), lengths, 3),
                     0);
    assert_true(lengths[0] == VJ_WIRE_HAS_NOT && lengths[2] == 200);
    test_peer_free(p);
}

/* Pages of @limit, each behind the last one, are all objects in order and each once. */
static void expect_pages(TestPeer *p, uint64_t first, uint64_t last, uint32_t limit,
                         unsigned count)
{
    VjWireList list = {.first = first, .last = last, .limit = limit};
    unsigned seen = 0;
    bool more = true;

    while (more) {
        g_autoptr(VjRpcCall) call = NULL;
        GByteArray *m = g_byte_array_new();
        VjWireListReply reply;

        vj_wire_list_encode(m, &list);
        call = test_call(p, VJ_OP_LIST, m, NULL, 0);
        assert_int_equal(call->rc, 0);
        assert_int_equal(
            vj_wire_list_reply_decode(vj_slice(call->reply->data, call->reply->len),
                                      call->reply_bulk_bytes, &reply),
            0);
        for (uint32_t i = 0; i < reply.count; i++) {
            VjWireListed one;

            vj_wire_listed_decode(
                call->reply_bulk->data + (size_t)i * VJ_WIRE_LISTED_BYTES, &one);
            assert_true(one.object.id >= first && one.object.id <= last);
            assert_true(
                one.object.id > list.after.id ||
                (one.object.id == list.after.id && one.object.nonce > list.after.nonce));
            assert_int_equal(one.bytes, 10 + one.object.id % 7);
            assert_true(one.mtime_us > 0);
            list.after = one.object;
            seen++;
        }
        assert_true(reply.count == limit || !reply.more);
        more = reply.more;
    }
    assert_int_equal(seen, count);
}

static void test_list(void **state)
{
    TestPeer *p = peer_of(*state, OBJECT);

    for (unsigned i = 0; i < 100; i++) {
        uint64_t id = 1 + (uint64_t)i * 37 % 50 * 100; /* two of each */

        put(p, id, 1 + i, 10 + (uint32_t)(id % 7));
    }
    expect_pages(p, 0, UINT64_MAX, 1000, 100);
    expect_pages(p, 0, UINT64_MAX, 100, 100);
    expect_pages(p, 0, UINT64_MAX, 7, 100);
    expect_pages(p, 0, UINT64_MAX, 1, 100);
    expect_pages(p, 101, 1001, 3, 20);
    expect_pages(p, 2, 100, 3, 0);
    test_peer_free(p);
}

static void test_space(void **state)
{
    TestPeer *p = peer_of(*state, OBJECT);
    g_autoptr(VjRpcCall) call = test_call(p, VJ_OP_SPACE, NULL, NULL, 0);
    VjWireSpace space;

    assert_int_equal(call->rc, 0);
    assert_int_equal(
        vj_wire_space_decode(vj_slice(call->reply->data, call->reply->len), &space), 0);
    assert_true(space.total_bytes > 0 && space.available_bytes <= space.total_bytes);
    test_peer_free(p);
}

/* What no client would send. */
static void test_bad_object_messages(void **state)
{
    static const uint16_t ops[] = {VJ_OP_PUT,   VJ_OP_GET,          VJ_OP_REMOVE,
                                   VJ_OP_HAVE,  VJ_OP_LIST,         VJ_OP_SPACE,
                                   VJ_OP_FLUSH, VJ_OP_FLUSH_REMOVES};
    TestPeer *p = peer_of(*state, OBJECT);

    for (size_t i = 0; i < G_N_ELEMENTS(ops); i++) {
        GByteArray *m = g_byte_array_new();

        g_byte_array_append(m, (const guint8 *)"xyz", 3);
        assert_int_equal(test_rc(p, ops[i], m, NULL, 0), -EPROTO);
    }
    /* An empty object is one. */
    assert_int_equal(test_rc(p, VJ_OP_PUT, put_message(1, 1, 0), NULL, 0), 0);
    put(p, 1, 1, 10);
    test_peer_free(p);
}

/* ---- keys -------------------------------------------------------------------------- */

typedef struct Batch {
    GByteArray *changes;
    VjWireApply m;
} Batch;

static Batch batch_new(void)
{
    return (Batch){.changes = g_byte_array_new(),
                   .m = {.checks = g_array_new(FALSE, FALSE, sizeof(VjWireCheck))}};
}

static void change(Batch *b, uint8_t space, const char *key, const char *value)
{
    VjWireChange c = {.key = {space, vj_slice(key, strlen(key))},
                      .is_delete = value == NULL,
                      .value = vj_slice(value, value != NULL ? strlen(value) : 0)};

    vj_wire_change_encode(b->changes, &c);
    b->m.change_count++;
}

static void check(Batch *b, uint8_t space, const char *key, uint64_t version)
{
    VjWireCheck c = {{space, vj_slice(key, strlen(key))}, version};

    g_array_append_val(b->m.checks, c);
}

/* Ends @b. */
static VjRpcCall *apply(TestPeer *p, Batch *b)
{
    GByteArray *message = g_byte_array_new();
    VjRpcCall *call;

    vj_wire_apply_encode(message, &b->m);
    call = test_call(p, VJ_OP_APPLY, message, b->changes->data, b->changes->len);
    g_byte_array_unref(b->changes);
    g_array_unref(b->m.checks);
    return call;
}

static int apply_rc(TestPeer *p, Batch *b)
{
    g_autoptr(VjRpcCall) call = apply(p, b);

    return call->rc;
}

static int set(TestPeer *p, const char *key, const char *value)
{
    Batch b = batch_new();

    change(&b, 1, key, value);
    return apply_rc(p, &b);
}

/* The version of @key in space 1, whose value is @value; NULL: it is not there. */
static uint64_t value_is(TestPeer *p, const char *key, const char *value)
{
    VjWireKey wanted = {1, vj_slice(key, strlen(key))};
    GByteArray *m = g_byte_array_new();
    g_autoptr(VjRpcCall) call = NULL;
    VjWireItem item;
    VjReader r;

    vj_wire_keys_encode(m, &wanted, 1);
    call = test_call(p, VJ_OP_GET_MANY, m, NULL, 0);
    assert_int_equal(call->rc, 0);
    r = vj_reader(vj_slice(call->reply_bulk->data, call->reply_bulk_bytes));
    assert_int_equal(vj_wire_item_decode(&r, &item), 0);
    assert_int_equal(item.version != 0, value != NULL);
    if (value != NULL) {
        assert_int_equal(item.value.len, strlen(value));
        assert_memory_equal(item.value.data, value, item.value.len);
    }
    return item.version;
}

static void test_keys(void **state)
{
    TestPeer *p = peer_of(*state, META);
    Batch b = batch_new();
    uint64_t version;

    change(&b, 1, "k", "one");
    change(&b, 1, "l", "two");
    change(&b, 2, "k", "three");
    assert_int_equal(apply_rc(p, &b), 0);
    version = value_is(p, "k", "one");
    assert_int_equal(set(p, "k", "other"), 0);
    assert_true(value_is(p, "k", "other") != version);
    assert_int_equal(set(p, "k", NULL), 0);
    (void)value_is(p, "k", NULL);
    assert_int_equal(set(p, "k", NULL), 0); /* of a key that need not be there */
    (void)value_is(p, "l", "two");
    test_peer_free(p);
}

static void test_checks_and_fence(void **state)
{
    TestPeer *p = peer_of(*state, META);
    Batch b = batch_new();
    g_autoptr(VjRpcCall) call = NULL;
    VjWireItemsReply items;
    uint64_t version;

    assert_int_equal(set(p, "fence", "mine"), 0);
    assert_int_equal(set(p, "k", "one"), 0);
    version = value_is(p, "k", "one");

    check(&b, 1, "k", version + 1);
    check(&b, 1, "absent", 0);
    change(&b, 1, "k", "two");
    call = apply(p, &b);
    assert_int_equal(call->rc, -EAGAIN);
    assert_int_equal(
        vj_wire_items_reply_decode(vj_slice(call->reply->data, call->reply->len), &items),
        0);
    assert_int_equal(items.count, 2);
    (void)value_is(p, "k", "one");

    b = batch_new();
    b.m.has_fence = 1;
    b.m.fence = (VjWireCheck){{1, vj_slice("fence", 5)}, 1};
    change(&b, 1, "k", "two");
    assert_int_equal(apply_rc(p, &b), -ESTALE);
    (void)value_is(p, "k", "one");

    b = batch_new();
    b.m.has_fence = 1;
    b.m.fence = (VjWireCheck){{1, vj_slice("fence", 5)}, value_is(p, "fence", "mine")};
    check(&b, 1, "k", version);
    change(&b, 1, "k", "two");
    assert_int_equal(apply_rc(p, &b), 0);
    (void)value_is(p, "k", "two");
    test_peer_free(p);
}

static int numbered(TestPeer *p, uint64_t fence_version, uint64_t number,
                    const char *value)
{
    Batch b = batch_new();

    b.m.has_fence = 1;
    b.m.fence = (VjWireCheck){{1, vj_slice("fence", 5)}, fence_version};
    b.m.number = number;
    change(&b, 1, "k", value);
    return apply_rc(p, &b);
}

/* A batch that is older than one that was done is not done; the same one again is. */
static void test_late_batch(void **state)
{
    TestPeer *p = peer_of(*state, META);
    uint64_t fence;

    assert_int_equal(set(p, "fence", "mine"), 0);
    fence = value_is(p, "fence", "mine");
    assert_int_equal(numbered(p, fence, 5, "five"), 0);
    assert_int_equal(numbered(p, fence, 4, "four"), -ETIMEDOUT);
    (void)value_is(p, "k", "five");
    assert_int_equal(numbered(p, fence, 5, "five"), 0);
    assert_int_equal(numbered(p, fence, 6, "six"), 0);
    (void)value_is(p, "k", "six");
    assert_int_equal(set(p, "fence", "yours"), 0);
    fence = value_is(p, "fence", "yours");
    assert_int_equal(numbered(p, fence, 1, "new"), 0);
    (void)value_is(p, "k", "new");
    test_peer_free(p);
}

static int received(TestPeer *p, uint64_t fence_version, uint64_t number, uint64_t after,
                    const char *value)
{
    Batch b = batch_new();

    b.m.has_fence = 1;
    b.m.is_received = 1;
    b.m.fence = (VjWireCheck){{1, vj_slice("fence", 5)}, fence_version};
    b.m.number = number;
    b.m.after = after;
    change(&b, 1, "k", value);
    return apply_rc(p, &b);
}

/* It is seen at once; one that stands on others is done where those are, alone. */
static void test_received_batch(void **state)
{
    TestPeer *p = peer_of(*state, META);
    uint64_t fence;

    assert_int_equal(set(p, "fence", "mine"), 0);
    fence = value_is(p, "fence", "mine");
    assert_int_equal(received(p, fence, 7, 5, "seven"), -EAGAIN);
    (void)value_is(p, "k", NULL);
    assert_int_equal(received(p, fence, 5, 0, "five"), 0);
    (void)value_is(p, "k", "five");
    assert_int_equal(received(p, fence, 7, 6, "seven"), -EAGAIN);
    assert_int_equal(received(p, fence, 7, 5, "seven"), 0);
    assert_int_equal(received(p, fence, 7, 5, "seven"), 0); /* the answer was lost */
    (void)value_is(p, "k", "seven");
    assert_int_equal(received(p, fence, 6, 5, "six"), -ETIMEDOUT);
    assert_int_equal(received(p, fence + 1, 8, 0, "eight"), -ESTALE);
    /* The same numbers again, durable. */
    assert_int_equal(numbered(p, fence, 7, "seven"), 0);
    assert_int_equal(numbered(p, fence, 9, "nine"), 0);
    assert_int_equal(received(p, fence, 10, 9, "ten"), 0);
    (void)value_is(p, "k", "ten");
    test_peer_free(p);
}

/* Nothing of it is done. */
static void test_bad_batches(void **state)
{
    TestPeer *p = peer_of(*state, META);
    Batch b = batch_new();

    change(&b, 1, "b", "x");
    change(&b, 1, "a", "x");
    assert_int_equal(apply_rc(p, &b), -EPROTO);
    b = batch_new();
    change(&b, 1, "a", "x");
    change(&b, 1, "a", "y");
    assert_int_equal(apply_rc(p, &b), -EPROTO);
    b = batch_new();
    change(&b, 1, "a", "x");
    b.m.change_count = 2;
    assert_int_equal(apply_rc(p, &b), -EPROTO);
    b = batch_new();
    change(&b, 1, "a", "x");
    change(&b, 1, "b", "x");
    b.m.change_count = 1;
    assert_int_equal(apply_rc(p, &b), -EPROTO);
    b = batch_new();
    change(&b, 1, "a", "x");
    g_byte_array_append(b.changes, (const guint8 *)"", 1);
    assert_int_equal(apply_rc(p, &b), -EPROTO);
    (void)value_is(p, "a", NULL);
    (void)value_is(p, "b", NULL);
    test_peer_free(p);
}

static GByteArray *scan_message(const char *from, const char *to, bool backward,
                                uint32_t limit)
{
    GByteArray *m = g_byte_array_new();
    VjWireScan s = {.space = 1,
                    .backward = backward,
                    .limit = limit,
                    .from = vj_slice(from, strlen(from)),
                    .to = vj_slice(to, strlen(to))};

    vj_wire_scan_encode(m, &s);
    return m;
}

/* The keys, which are one letter each, are @keys. */
static void expect_scan(TestPeer *p, const char *from, const char *to, bool backward,
                        uint32_t limit, const char *keys, bool more)
{
    g_autoptr(VjRpcCall) call =
        test_call(p, VJ_OP_SCAN, scan_message(from, to, backward, limit), NULL, 0);
    g_autoptr(GString) got = g_string_new(NULL);
    VjWireItemsReply reply;
    VjReader r;

    assert_int_equal(call->rc, 0);
    assert_int_equal(
        vj_wire_items_reply_decode(vj_slice(call->reply->data, call->reply->len), &reply),
        0);
    r = vj_reader(vj_slice(call->reply_bulk != NULL ? call->reply_bulk->data : NULL,
                           call->reply_bulk_bytes));
    for (uint32_t i = 0; i < reply.count; i++) {
        VjWireItem item;

        assert_int_equal(vj_wire_item_decode(&r, &item), 0);
        g_string_append_len(got, item.key.key.data, (gssize)item.key.key.len);
    }
    assert_string_equal(got->str, keys);
    assert_int_equal(reply.more, more);
}

static void test_scan_and_count(void **state)
{
    TestPeer *p = peer_of(*state, META);
    GByteArray *space = g_byte_array_new();
    g_autoptr(VjRpcCall) count = NULL;
    uint64_t keys = 0;

    for (char c = 'a'; c <= 'f'; c++) {
        char key[2] = {c, '\0'};

        assert_int_equal(set(p, key, "value"), 0);
    }
    expect_scan(p, "", "", false, 100, "abcdef", false);
    expect_scan(p, "", "", true, 100, "fedcba", false);
    expect_scan(p, "b", "e", false, 100, "cd", false);
    expect_scan(p, "e", "b", true, 100, "dc", false);
    expect_scan(p, "", "", false, 4, "abcd", true);
    expect_scan(p, "d", "", false, 4, "ef", false);
    expect_scan(p, "f", "", false, 4, "", false);
    vj_wire_u8_encode(space, 1);
    count = test_call(p, VJ_OP_COUNT, space, NULL, 0);
    assert_int_equal(
        vj_wire_u64_decode(vj_slice(count->reply->data, count->reply->len), &keys), 0);
    assert_int_equal(keys, 6);
    test_peer_free(p);
}

/* Values beyond what one reply may have come in several. */
static void test_long_replies(void **state)
{
    TestPeer *p = peer_of(*state, META);
    g_autofree char *value = g_strnfill(VJ_WIRE_VALUE_MAX, 'v');
    g_autoptr(VjRpcCall) many = NULL;
    GByteArray *m = g_byte_array_new();
    VjWireKey keys[200];
    char names[200][8];
    VjWireItemsReply reply;

    for (unsigned i = 0; i < G_N_ELEMENTS(keys); i++) {
        g_snprintf(names[i], sizeof names[i], "k%03u", i);
        keys[i] = (VjWireKey){1, vj_slice(names[i], strlen(names[i]))};
        assert_int_equal(set(p, names[i], value), 0);
    }
    vj_wire_keys_encode(m, keys, G_N_ELEMENTS(keys));
    many = test_call(p, VJ_OP_GET_MANY, m, NULL, 0);
    assert_int_equal(many->rc, 0);
    assert_int_equal(
        vj_wire_items_reply_decode(vj_slice(many->reply->data, many->reply->len), &reply),
        0);
    assert_true(reply.more && reply.count > 1 && reply.count < G_N_ELEMENTS(keys));
    assert_true(many->reply_bulk_bytes <= VJ_WIRE_ITEMS_BYTES_MAX);
    test_peer_free(p);
}

static void test_clock(void **state)
{
    TestPeer *p = peer_of(*state, META);
    g_autoptr(VjRpcCall) call = test_call(p, VJ_OP_CLOCK, NULL, NULL, 0);
    uint64_t us = 0;

    assert_int_equal(
        vj_wire_u64_decode(vj_slice(call->reply->data, call->reply->len), &us), 0);
    assert_true(us > (uint64_t)1600 * 1000 * 1000 * 1000 * 1000);
    test_peer_free(p);
}

static void test_read_only(void **state)
{
    TestPeer *first = peer_of(*state, OBJECT), *keys = peer_of(*state, META);
    TestPeer *p = test_peer_new(*state, NULL, NULL, "a", OBJECT, 1, VJ_HELLO_READ_ONLY);
    TestPeer *q = test_peer_new(*state, NULL, NULL, "a", META, 1, VJ_HELLO_READ_ONLY);

    put(first, 1, 1, 10);
    assert_int_equal(test_rc(p, VJ_OP_GET, get_message(1, 1, 0, 10), NULL, 0), 0);
    assert_int_equal(test_rc(p, VJ_OP_PUT, put_message(2, 1, 0), "x", 1), -EROFS);
    assert_int_equal(
        test_rc(p, VJ_OP_REMOVE, objects_message(&(VjWireObject){1, 1}, 1), NULL, 0),
        -EROFS);
    assert_int_equal(set(q, "k", "v"), -EROFS);
    (void)value_is(q, "k", NULL);
    test_peer_free(q);
    test_peer_free(p);
    test_peer_free(keys);
    test_peer_free(first);
}

/* A connection has one role. */
static void test_roles(void **state)
{
    TestPeer *p = peer_of(*state, OBJECT);

    assert_int_equal(test_rc(p, VJ_OP_CLOCK, NULL, NULL, 0), -EOPNOTSUPP);
    test_peer_free(p);
}

/* ---- statistics -------------------------------------------------------------------- */

static char *stats(TestPeer *p, uint8_t format)
{
    GByteArray *m = g_byte_array_new();
    g_autoptr(VjRpcCall) call = NULL;

    vj_wire_u8_encode(m, format);
    call = test_call(p, VJ_OP_STATS, m, NULL, 0);
    assert_int_equal(call->rc, 0);
    return g_strndup((const char *)call->reply_bulk->data, call->reply_bulk_bytes);
}

static void test_stats(void **state)
{
    TestPeer *p = peer_of(*state, OBJECT);
    TestPeer *q = test_peer_new(*state, NULL, NULL, "node", VJ_ROLE_ANY, 0, 0);
    g_autofree char *json = NULL;
    g_autofree char *prometheus = NULL;
    GByteArray *wrong = g_byte_array_new();

    put(p, 1, 1, 1000);
    json = stats(q, 0);
    assert_non_null(strstr(json,
                           "{\"volume\":\"a\",\"volume_peers\":1,"
                           "\"volume_store_open\":1,\"volume_meta_open\":0,"
                           "\"volume_puts_total\":1,\"volume_put_bytes_total\":1000,"));
    assert_non_null(strstr(json, "\"put\":{\"op_requests_total\":1,"));
    prometheus = stats(q, 1);
    assert_non_null(strstr(prometheus, "\nvarjfsd_volume_puts_total{volume=\"a\"} 1\n"));
    assert_non_null(strstr(prometheus, "\nvarjfsd_volume_puts_total{volume=\"b\"} 0\n"));
    vj_wire_u8_encode(wrong, 2);
    assert_int_equal(test_rc(q, VJ_OP_STATS, wrong, NULL, 0), -EPROTO);
    assert_int_equal(test_rc(q, VJ_OP_SPACE, NULL, NULL, 0), -EOPNOTSUPP);
    test_peer_free(q);
    test_peer_free(p);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_put_and_get),
    TEST(test_get_bare),
    TEST(test_have_and_remove),
    TEST(test_list),
    TEST(test_space),
    TEST(test_bad_object_messages),
    TEST(test_keys),
    TEST(test_checks_and_fence),
    TEST(test_late_batch),
    TEST(test_received_batch),
    TEST(test_bad_batches),
    TEST(test_scan_and_count),
    TEST(test_long_replies),
    TEST(test_clock),
    TEST(test_read_only),
    TEST(test_roles),
    TEST(test_stats),
};

VJ_TEST_MAIN(tests)
