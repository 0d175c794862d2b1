/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* Whose a directory is, who may use a volume, and what a reload changes */
#include "node-fixture.h"

#define CREATE VJ_HELLO_CREATE
#define ADOPT VJ_HELLO_ADOPT
#define DESTROY (VJ_HELLO_CREATE | VJ_HELLO_DESTROY)
#define OBJECT VJ_ROLE_OBJECT
#define META VJ_ROLE_META

#define VOLUME_A "[volume a]\ndirectory = a\n"
#define VOLUME_B "[volume b]\ndirectory = b\n"

static TestNode *start(const char *volumes)
{
    TestNode *t = test_node_new();

    t->conf = test_node_conf(t, volumes, false);
    test_node_start(t, NULL);
    return t;
}

static void restart(TestNode *t)
{
    test_node_stop(t);
    test_node_start(t, NULL);
}

static void stop(TestNode *t)
{
    test_node_stop(t);
    test_node_free(t);
}

static void write_file(TestNode *t, const char *name)
{
    g_autofree char *path = g_build_filename(t->dir, name, NULL);
    g_autofree char *dir = g_path_get_dirname(path);

    assert_int_equal(g_mkdir_with_parents(dir, 0700), 0);
    assert_true(g_file_set_contents(path, "x", 1, NULL));
}

static bool has_file(TestNode *t, const char *name)
{
    g_autofree char *path = g_build_filename(t->dir, name, NULL);

    return g_file_test(path, G_FILE_TEST_EXISTS);
}

static void put(TestNode *t, const char *volume, uint8_t uuid, int rc)
{
    TestPeer *p = test_peer_new(t, NULL, NULL, volume, OBJECT, uuid, 0);
    GByteArray *m = g_byte_array_new();

    assert_int_equal(p->status, 0);
    vj_wire_put_encode(m, &(VjWirePut){.object = {5, 5}, .flags = VJ_WIRE_PUT_DURABLE});
    assert_int_equal(test_rc(p, VJ_OP_PUT, m, "bytes", 5), rc);
    test_peer_free(p);
}

static void expect_object(TestNode *t, const char *volume, uint8_t uuid, int rc)
{
    TestPeer *p = test_peer_new(t, NULL, NULL, volume, OBJECT, uuid, 0);
    GByteArray *m = g_byte_array_new();

    assert_int_equal(p->status, 0);
    vj_wire_get_encode(m, &(VjWireGet){.object = {5, 5}, .len = 5});
    assert_int_equal(test_rc(p, VJ_OP_GET, m, NULL, 0), rc);
    test_peer_free(p);
}

/* ---- whose it is ------------------------------------------------------------------- */

static void test_create(void **state)
{
    TestNode *t = start(VOLUME_A);
    TestPeer *p;
    uint8_t node[VJ_WIRE_UUID_BYTES], instance[VJ_WIRE_UUID_BYTES];

    (void)state;
    expect_hello(t, "a", OBJECT, 1, 0, -ENODATA);
    expect_hello(t, "a", META, 1, 0, -ENODATA);
    p = test_peer_new(t, NULL, NULL, "a", OBJECT, 1, CREATE);
    assert_int_equal(p->status, 0);
    assert_true(p->reply.was_empty);
    memcpy(node, p->reply.node, sizeof node);
    memcpy(instance, p->reply.instance, sizeof instance);
    test_peer_free(p);
    /* Once more it does nothing, and roles are made one by one. */
    p = test_peer_new(t, NULL, NULL, "a", OBJECT, 1, DESTROY);
    assert_false(p->reply.was_empty);
    assert_memory_equal(p->reply.node, node, sizeof node);
    test_peer_free(p);
    expect_hello(t, "a", META, 1, 0, -ENODATA);
    expect_hello(t, "a", META, 1, CREATE, 0);
    expect_hello(t, "a", META, 1, 0, 0);
    put(t, "a", 1, 0);
    /* It stays the same place in another process. */
    restart(t);
    p = test_peer_new(t, NULL, NULL, "a", OBJECT, 1, 0);
    assert_int_equal(p->status, 0);
    assert_memory_equal(p->reply.node, node, sizeof node);
    assert_memory_not_equal(p->reply.instance, instance, sizeof instance);
    test_peer_free(p);
    expect_object(t, "a", 1, 0);
    expect_hello(t, "a", META, 1, 0, 0);
    stop(t);
}

static void test_foreign(void **state)
{
    TestNode *t = start(VOLUME_A);
    TestPeer *p;

    (void)state;
    expect_hello(t, "a", OBJECT, 1, CREATE, 0);
    put(t, "a", 1, 0);
    expect_hello(t, "a", OBJECT, 2, 0, -ENXIO);
    expect_hello(t, "a", OBJECT, 2, CREATE, -ENXIO);
    expect_hello(t, "a", OBJECT, 2, ADOPT, -ENXIO);
    expect_hello(t, "a", META, 2, CREATE, -ENXIO);
    expect_object(t, "a", 1, 0);
    /* Not below somebody who uses it. */
    p = test_peer_new(t, NULL, NULL, "a", OBJECT, 1, 0);
    expect_hello(t, "a", OBJECT, 2, DESTROY, -EBUSY);
    expect_object(t, "a", 1, 0);
    test_peer_free(p);
    restart(t);
    expect_hello(t, "a", OBJECT, 2, 0, -ENXIO);
    expect_hello(t, "a", OBJECT, 2, DESTROY, 0);
    expect_object(t, "a", 2, -ENOENT);
    expect_hello(t, "a", OBJECT, 1, 0, -ENXIO);
    stop(t);
}

/* A mount takes an empty directory for objects alone. */
static void test_adopt(void **state)
{
    TestNode *t = start(VOLUME_A VOLUME_B "empty = refuse\n");
    TestPeer *p;

    (void)state;
    expect_hello(t, "a", META, 1, ADOPT, -ENODATA);
    p = test_peer_new(t, NULL, NULL, "a", OBJECT, 1, ADOPT);
    assert_int_equal(p->status, 0);
    assert_true(p->reply.was_empty);
    test_peer_free(p);
    expect_hello(t, "a", META, 1, ADOPT, -ENODATA);
    expect_hello(t, "b", OBJECT, 1, ADOPT, -ENODATA);
    expect_hello(t, "b", OBJECT, 1, CREATE, 0);
    expect_hello(t, "b", OBJECT, 1, ADOPT, 0);
    stop(t);
}

/* Objects that no node.conf speaks of may be somebody's. */
static void test_not_empty(void **state)
{
    TestNode *t = start(VOLUME_A VOLUME_B);

    (void)state;
    write_file(t, "a/objects/precious");
    expect_hello(t, "a", OBJECT, 1, 0, -ENODATA);
    expect_hello(t, "a", OBJECT, 1, CREATE, -ENXIO);
    expect_hello(t, "a", OBJECT, 1, ADOPT, -ENXIO);
    assert_true(has_file(t, "a/objects/precious"));
    assert_false(has_file(t, "a/node.conf"));
    expect_hello(t, "a", OBJECT, 1, DESTROY, 0);
    assert_false(has_file(t, "a/objects/precious"));
    /* The directory of a mount is nobody's for a node. */
    write_file(t, "b/varjfs.conf");
    write_file(t, "b/objects/precious");
    expect_hello(t, "b", OBJECT, 1, DESTROY, -ENXIO);
    assert_true(has_file(t, "b/objects/precious"));
    stop(t);
}

/* What a making that was cut off has left is cleared away. */
static void test_cut_off(void **state)
{
    TestNode *t = start(VOLUME_A);

    (void)state;
    write_file(t, "a/node.making");
    write_file(t, "a/objects/half");
    expect_hello(t, "a", OBJECT, 1, 0, -ENODATA);
    expect_hello(t, "a", OBJECT, 1, CREATE, 0);
    assert_false(has_file(t, "a/objects/half"));
    assert_false(has_file(t, "a/node.making"));
    assert_true(has_file(t, "a/node.conf"));
    stop(t);
}

static void test_damaged_conf(void **state)
{
    TestNode *t = start(VOLUME_A);
    g_autofree char *path = g_build_filename(t->dir, "a/node.conf", NULL);
    g_autofree char *text = NULL;
    gsize len;

    (void)state;
    expect_hello(t, "a", OBJECT, 1, CREATE, 0);
    test_node_stop(t);
    assert_true(g_file_get_contents(path, &text, &len, NULL));
    for (gsize i = 0; i < len; i++) {
        text[i] ^= 1;
        assert_true(g_file_set_contents(path, text, (gssize)len, NULL));
        test_node_start(t, NULL);
        expect_hello(t, "a", OBJECT, 1, CREATE, -EBADMSG);
        test_node_stop(t);
        text[i] ^= 1;
    }
    assert_true(g_file_set_contents(path, text, (gssize)len, NULL));
    test_node_start(t, NULL);
    expect_hello(t, "a", OBJECT, 1, 0, 0);
    stop(t);
}

static void test_locked(void **state)
{
    TestNode *t = start(VOLUME_A VOLUME_B);
    g_autofree char *path = g_build_filename(t->dir, "a", NULL);
    int fd = open(path, O_RDONLY | O_DIRECTORY);

    (void)state;
    assert_int_equal(vj_fd_lock(fd, NULL, 0), 0);
    expect_hello(t, "a", OBJECT, 1, CREATE, -EBUSY);
    expect_hello(t, "b", OBJECT, 1, CREATE, 0);
    close(fd);
    expect_hello(t, "a", OBJECT, 1, CREATE, 0);
    stop(t);
}

/* Drivers that forget leave the place empty. */
static void test_memory(void **state)
{
    TestNode *t = start(VOLUME_A "store = memory\nmeta = memory\n");

    (void)state;
    expect_hello(t, "a", OBJECT, 1, CREATE, 0);
    expect_hello(t, "a", META, 1, CREATE, 0);
    put(t, "a", 1, 0);
    expect_object(t, "a", 1, 0);
    restart(t);
    expect_hello(t, "a", META, 1, 0, -ENODATA);
    expect_hello(t, "a", OBJECT, 1, 0, -ENODATA);
    expect_hello(t, "a", OBJECT, 1, ADOPT, 0);
    expect_object(t, "a", 1, -ENOENT);
    stop(t);
}

static void test_bad_hello(void **state)
{
    TestNode *t = start(VOLUME_A "roles = object\n");

    (void)state;
    expect_hello(t, "nothing", OBJECT, 1, CREATE, -EACCES);
    expect_hello(t, "a", META, 1, CREATE, -EOPNOTSUPP);
    expect_hello(t, "a", 77, 1, CREATE, -EOPNOTSUPP);
    stop(t);
}

/* The store of the only volume is closed, as the statistics show. */
static void wait_closed(TestNode *t)
{
    int64_t until_us = vj_clock_mono_us() + 30 * FIXTURE_SECOND;
    bool is_closed = false;

    while (!is_closed) {
        GString *text = vj_node_stats_text(t->node, "", false);

        is_closed = strstr(text->str, "\"volume_store_open\":0") != NULL;
        g_string_free(text, TRUE);
        assert_true(vj_clock_mono_us() < until_us);
    }
}

/* A flush that failed goes on to fail; when the last client has gone it is forgotten. */
static void test_failed_flush(void **state)
{
    TestNode *t = test_node_new();
    TestPeer *p;
    GByteArray *m = g_byte_array_new();

    (void)state;
    t->conf = test_node_conf(t, VOLUME_A, false);
    test_node_start(t, "fault:kinds=flush,fail=1");
    p = test_peer_new(t, NULL, NULL, "a", OBJECT, 1, CREATE);
    vj_wire_put_encode(m, &(VjWirePut){.object = {5, 5}});
    assert_int_equal(test_rc(p, VJ_OP_PUT, m, "bytes", 5), 0);
    assert_int_equal(test_rc(p, VJ_OP_FLUSH, NULL, NULL, 0), -EIO);
    test_peer_free(p);
    wait_closed(t);
    expect_object(t, "a", 1, 0);
    stop(t);
}

/* ---- who may use it ---------------------------------------------------------------- */

static char *write_key(const TestNode *t, const char *name)
{
    g_autofree char *text = vj_key_new_text();
    char *path = g_build_filename(t->dir, name, NULL);

    assert_true(g_file_set_contents(path, text, -1, NULL));
    assert_int_equal(chmod(path, 0600), 0);
    return path;
}

static void expect_by_key(TestNode *t, const char *key, const char *identity,
                          const char *volume, int status)
{
    TestPeer *p = test_peer_new(t, key, identity, volume, OBJECT, 1, CREATE);

    if (p->status != status) {
        fail_msg("%s as %s at %s: %d, not %d", key, identity, volume, p->status, status);
    }
    test_peer_free(p);
}

static void test_keys(void **state)
{
    TestNode *t = test_node_new();
    g_autofree char *key_a = write_key(t, "a.key");
    g_autofree char *key_b = write_key(t, "b.key");

    (void)state;
    t->conf = test_node_conf(t,
                             VOLUME_A "key = a.key\n" VOLUME_B "key = b.key\n"
                                      "[volume c]\ndirectory = c\n",
                             true);
    test_node_start(t, NULL);
    expect_by_key(t, key_a, "a", "a", 0);
    expect_by_key(t, key_b, "b", "b", 0);
    /* The key of one is none of another, nor of a volume without. */
    expect_by_key(t, key_a, "a", "b", -EACCES);
    expect_by_key(t, key_b, "b", "a", -EACCES);
    expect_by_key(t, key_a, "a", "c", -EACCES);
    /* Nor are those without credentials let in. */
    expect_hello(t, "a", OBJECT, 1, CREATE, -EACCES);
    expect_hello(t, "b", OBJECT, 1, 0, -EACCES);
    test_node_stop(t);
    test_node_free(t);
}

/* ---- reload ------------------------------------------------------------------------ */

static void reload(TestNode *t, const char *volumes)
{
    VjNodeConf *now = test_node_conf(t, volumes, false);

    vj_node_reload(t->node, now);
    vj_node_conf_free(t->conf);
    t->conf = now;
}

static void test_reload(void **state)
{
    TestNode *t = start(VOLUME_A);
    TestPeer *p;

    (void)state;
    expect_hello(t, "b", OBJECT, 2, CREATE, -EACCES);
    p = test_peer_new(t, NULL, NULL, "a", OBJECT, 1, CREATE);
    assert_int_equal(test_rc(p, VJ_OP_SPACE, NULL, NULL, 0), 0);
    reload(t, VOLUME_A VOLUME_B);
    expect_hello(t, "b", OBJECT, 2, CREATE, 0);
    assert_int_equal(test_rc(p, VJ_OP_SPACE, NULL, NULL, 0), 0);
    /* One that is not there any more is refused to whoever has it. */
    reload(t, VOLUME_B);
    assert_int_equal(test_rc(p, VJ_OP_SPACE, NULL, NULL, 0), -EACCES);
    expect_hello(t, "a", OBJECT, 1, 0, -EACCES);
    test_peer_free(p);
    reload(t, VOLUME_A VOLUME_B);
    expect_hello(t, "a", OBJECT, 1, 0, 0);
    stop(t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_create),    cmocka_unit_test(test_foreign),
    cmocka_unit_test(test_adopt),     cmocka_unit_test(test_not_empty),
    cmocka_unit_test(test_cut_off),   cmocka_unit_test(test_damaged_conf),
    cmocka_unit_test(test_locked),    cmocka_unit_test(test_memory),
    cmocka_unit_test(test_bad_hello), cmocka_unit_test(test_failed_flush),
    cmocka_unit_test(test_keys),      cmocka_unit_test(test_reload),
};

VJ_TEST_MAIN(tests)
