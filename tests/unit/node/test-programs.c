/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* The role client over a socket: whose a volume is, and each of its operations */
#include "node-fixture.h"

#include "varjfs/client-protocol.h"
#include "volume/volume.h"

static int setup(void **state)
{
    TestNode *t = test_node_new();
    g_autofree char *source = g_build_filename(t->dir, "whole", NULL);
    VjVolumeMake how = {.source = source};
    g_autoptr(GError) error = NULL;

    assert_true(vj_volume_make(&how, &error));
    t->conf = test_node_conf(t,
                             "[volume whole]\ndirectory = whole\nroles = client\n"
                             "[volume parts]\ndirectory = parts\n"
                             "[volume none]\ndirectory = none\nroles = client\n",
                             false);
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

static TestPeer *peer_of(TestNode *t, uint8_t flags)
{
    TestPeer *p = test_peer_new(t, NULL, NULL, "whole", VJ_ROLE_CLIENT, 0, flags);

    assert_int_equal(p->status, 0);
    return p;
}

/* A batch of one operation on a key, which returns at most 100 bytes. */
static GByteArray *key_message(uint8_t kind, const char *name, size_t brings)
{
    GByteArray *m = g_byte_array_new();
    uint8_t head[VARJFS_WIRE_BATCH_HEAD_BYTES + VARJFS_WIRE_OP_HEAD_BYTES] = {
        0, VARJFS_WIRE_SAFETY_STORAGE, [4] = 1};
    VjWriter w =
        vj_writer(head + VARJFS_WIRE_BATCH_HEAD_BYTES, VARJFS_WIRE_OP_HEAD_BYTES);

    vj_write_u8(&w, kind);
    vj_write_u8(&w, 0);
    vj_write_u16(&w, 1);
    vj_write_u16(&w, (uint16_t)strlen(name));
    vj_write_u16(&w, 0);
    vj_write_u64(&w, 0);
    vj_write_u64(&w, 0);
    vj_write_u32(&w, (uint32_t)brings);
    vj_write_u32(&w, kind == VARJFS_WIRE_KEY_GET ? 100 : 0);
    assert_false(w.bad);
    g_byte_array_append(m, head, sizeof head);
    g_byte_array_append(m, (const guint8 *)"s", 1);
    g_byte_array_append(m, (const guint8 *)name, (guint)strlen(name));
    return m;
}

static void expect_status(const VjRpcCall *call, uint32_t status)
{
    VjReader r;

    assert_int_equal(call->rc, 0);
    assert_int_equal(call->reply->len, VARJFS_WIRE_RESULT_BYTES);
    r = vj_reader(vj_slice(call->reply->data, call->reply->len));
    assert_int_equal(vj_read_u32(&r), status);
}

static void test_operations(void **state)
{
    TestPeer *p = peer_of(*state, 0);
    g_autoptr(VjRpcCall) put = NULL;
    g_autoptr(VjRpcCall) get = NULL;
    g_autoptr(VjRpcCall) walk = NULL;
    uint8_t bytes[] = "value";
    uint8_t iterate[VARJFS_WIRE_ITERATE_HEAD_BYTES + 1] = {
        VARJFS_WIRE_ITERATE_KEYS, [2] = 1, [8] = 10, [14] = 2, [20] = 's'};
    uint8_t empty[VARJFS_WIRE_EMPTY_HEAD_BYTES + 1] = {
        VARJFS_WIRE_ITERATE_KEYS, [2] = 1, [4] = 10, [8] = 's'};
    g_autoptr(VjRpcCall) gone = NULL;
    GByteArray *m = g_byte_array_new();

    put = test_call(p, VJ_OP_BATCH, key_message(VARJFS_WIRE_KEY_PUT, "k", 5), bytes, 5);
    expect_status(put, VJ_WIRE_OK);
    get = test_call(p, VJ_OP_BATCH, key_message(VARJFS_WIRE_KEY_GET, "k", 0), NULL, 0);
    expect_status(get, VJ_WIRE_OK);
    assert_int_equal(get->reply_bulk_bytes, 5);
    assert_memory_equal(get->reply_bulk->data, "value", 5);
    g_byte_array_append(m, iterate, sizeof iterate);
    walk = test_call(p, VJ_OP_ITERATE, m, NULL, 0);
    assert_int_equal(walk->rc, 0);
    assert_int_equal(walk->reply_bulk_bytes, VARJFS_WIRE_ENTRY_HEAD_BYTES + 1 + 5);
    assert_int_equal(test_rc(p, VJ_OP_SYNC, NULL, NULL, 0), 0);
    m = g_byte_array_new();
    g_byte_array_append(m, empty, sizeof empty);
    gone = test_call(p, VJ_OP_EMPTY, m, NULL, 0);
    assert_int_equal(gone->rc, 0);
    assert_int_equal(test_rc(p, VJ_OP_EMPTY, NULL, NULL, 0), -EPROTO);
    assert_int_equal(test_rc(p, VJ_OP_BATCH, NULL, NULL, 0), -EPROTO);
    assert_int_equal(test_rc(p, VJ_OP_ITERATE, NULL, NULL, 0), -EPROTO);
    assert_int_equal(
        test_rc(p, VJ_OP_BATCH, key_message(VARJFS_WIRE_KEY_PUT, "k", 6), bytes, 5),
        -EPROTO);
    test_peer_free(p);
}

static void test_read_only(void **state)
{
    TestPeer *p = peer_of(*state, VJ_HELLO_READ_ONLY);
    g_autoptr(VjRpcCall) put = NULL;
    uint8_t bytes[] = "value";

    put = test_call(p, VJ_OP_BATCH, key_message(VARJFS_WIRE_KEY_PUT, "k", 5), bytes, 5);
    expect_status(put, VJ_WIRE_READ_ONLY);
    test_peer_free(p);
}

/* Each role is for its volumes, and its operations for its peers. */
static void test_whose(void **state)
{
    TestNode *t = *state;
    TestPeer *p;

    expect_hello(t, "whole", VJ_ROLE_OBJECT, 1, 0, -EOPNOTSUPP);
    expect_hello(t, "parts", VJ_ROLE_CLIENT, 0, 0, -EOPNOTSUPP);
    expect_hello(t, "whole", VJ_ROLE_CLIENT, 7, 0, -ENXIO);
    expect_hello(t, "none", VJ_ROLE_CLIENT, 0, 0, -ENOENT);
    expect_hello(t, "whole", VJ_ROLE_CLIENT + 1, 0, 0, -EOPNOTSUPP);
    p = peer_of(t, 0);
    expect_hello(t, "whole", VJ_ROLE_CLIENT, 7, 0, -ENXIO);
    /* Who makes volumes does not destroy one that is whole. */
    expect_hello(t, "whole", VJ_ROLE_CLIENT, 7, VJ_HELLO_CREATE | VJ_HELLO_DESTROY,
                 -ENXIO);
    assert_int_equal(test_rc(p, VJ_OP_FLUSH, NULL, NULL, 0), -EOPNOTSUPP);
    assert_int_equal(test_rc(p, VJ_OP_SYNC, NULL, NULL, 0), 0);
    test_peer_free(p);
}

/* A node has so many areas, each for one connection, and has them back when that ends. */
static void test_areas(void **state)
{
    TestPeer *peers[64], *more;

    for (size_t i = 0; i < G_N_ELEMENTS(peers); i++) {
        peers[i] = peer_of(*state, 0);
        assert_int_equal(test_rc(peers[i], VJ_OP_SHARE, NULL, NULL, 0), 0);
        assert_int_equal(test_rc(peers[i], VJ_OP_SHARE, NULL, NULL, 0), -EBUSY);
    }
    more = peer_of(*state, 0);
    assert_int_equal(test_rc(more, VJ_OP_SHARE, NULL, NULL, 0), -EBUSY);
    test_peer_free(peers[0]);
    /* The node hears of the end when it comes to that. */
    while (test_rc(more, VJ_OP_SHARE, NULL, NULL, 0) != 0) {
        g_thread_yield();
    }
    test_peer_free(more);
    for (size_t i = 1; i < G_N_ELEMENTS(peers); i++) {
        test_peer_free(peers[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_operations),
    TEST(test_read_only),
    TEST(test_whose),
    TEST(test_areas),
};

VJ_TEST_MAIN(tests)
