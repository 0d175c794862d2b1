/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-items.c - libvarjfs beside a daemon of the test: items, lengths and names of
 * objects, namespaces that go, and batches that are polled
 */
#include "fake-daemon.h"

#include <poll.h>

static void serve(FakeDaemon *d)
{
    fake_hello(d, 0);
    fake_serve(d);
}

/* ---- what goes over the wire ------------------------------------------------------- */

static void expect_op(const FakeOp *op, uint8_t kind, uint8_t flags, const char *second,
                      const char *bytes, size_t len)
{
    g_assert(op->kind == kind && op->flags == flags);
    g_assert(op->space_bytes == 1 && op->space[0] == 's');
    g_assert(op->name_bytes == 1 && op->name[0] == 'o');
    g_assert(op->second_bytes == strlen(second));
    g_assert(memcmp(op->second, second, op->second_bytes) == 0);
    g_assert(op->brings == len && memcmp(op->bytes, bytes, len) == 0);
}

#define GIVEN                                                                            \
    "mode=client\n"                                                                      \
    "\1\0\2\0\0\0a12"                                                                    \
    "\5\0\0\0\0\0empty"

static void look(FakeDaemon *d)
{
    g_autofree FakeOp *ops = NULL;
    FakeRequest r;
    uint32_t count;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    ops = fake_ops(&r, &count);
    g_assert(count == 6);
    expect_op(&ops[0], VARJFS_WIRE_OBJECT_CREATE, VARJFS_WIRE_EXCLUSIVE, "", GIVEN,
              sizeof GIVEN - 1);
    g_assert(ops[0].old_len == strlen("mode=client\n") && ops[0].offset == 0);
    expect_op(&ops[1], VARJFS_WIRE_ATTRIBUTE_PUT, VARJFS_WIRE_EXCLUSIVE, "colour", "red",
              3);
    expect_op(&ops[2], VARJFS_WIRE_ATTRIBUTE_GET, 0, "colour", "", 0);
    g_assert(ops[2].returns == 10);
    expect_op(&ops[3], VARJFS_WIRE_ATTRIBUTE_DELETE, 0, "colour", "", 0);
    expect_op(&ops[4], VARJFS_WIRE_OBJECT_RESIZE, 0, "", "", 0);
    g_assert(ops[4].offset == 77);
    expect_op(&ops[5], VARJFS_WIRE_OBJECT_RENAME, VARJFS_WIRE_EXCLUSIVE, "p", "", 0);
    fake_answer(d, &r);
    fake_request_clear(&r);
    fake_wait_end(d);
}

static void test_operations(void **state)
{
    struct varjfs_object_options options = {.size = sizeof options, .mode = "client"};
    char value[] = "12";
    struct varjfs_attribute given[] = {{"a", value, 2}, {"empty", NULL, 0}};
    int results[6];
    char bytes[10];
    size_t len = 0;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    memset(results, 1, sizeof results);
    fake_start(&d, look);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_item_create(b, "s", "o", &options, given, 2, &results[0]), 0);
    memset(value, 'x', 2); /* it was copied */
    assert_int_equal(varjfs_attribute_put(b, "s", "o", "colour", "red", 3,
                                          VARJFS_EXCLUSIVE, &results[1]),
                     0);
    assert_int_equal(
        varjfs_attribute_get(b, "s", "o", "colour", bytes, 10, &len, &results[2]), 0);
    assert_int_equal(varjfs_attribute_delete(b, "s", "o", "colour", &results[3]), 0);
    assert_int_equal(varjfs_object_resize(b, "s", "o", 77, &results[4]), 0);
    assert_int_equal(
        varjfs_object_rename(b, "s", "o", "p", VARJFS_EXCLUSIVE, &results[5]), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(results[i], 0);
    }
    assert_int_equal(len, strlen(FAKE_VALUE));
    assert_memory_equal(bytes, FAKE_VALUE, len);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* ---- what is refused --------------------------------------------------------------- */

static void refuse_names(varjfs_batch *b)
{
    static char longest[VARJFS_ATTRIBUTE_NAME_MAX + 1]; /* until the batch is executed */
    g_autofree char *longer = g_strnfill(VARJFS_ATTRIBUTE_NAME_MAX + 1, 'a');

    memset(longest, 'a', VARJFS_ATTRIBUTE_NAME_MAX);
    assert_int_equal(varjfs_attribute_put(b, "s", "o", longest, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_attribute_put(b, "s", "o", longer, "v", 1, 0, NULL), -EINVAL);
    assert_int_equal(varjfs_attribute_put(b, "s", "o", "", "v", 1, 0, NULL), -EINVAL);
    assert_int_equal(varjfs_attribute_put(b, "s", "o", NULL, "v", 1, 0, NULL), -EINVAL);
    assert_int_equal(varjfs_attribute_put(b, "s", "o", "a", NULL, 1, 0, NULL), -EINVAL);
    assert_int_equal(varjfs_attribute_put(b, "s", "o", "a", "v", 1, 2, NULL), -EINVAL);
    assert_int_equal(varjfs_attribute_put(b, "s", "..", "a", "v", 1, 0, NULL), -EINVAL);
    assert_int_equal(
        varjfs_attribute_put(b, "s", "o", "a", longer, VARJFS_VALUE_MAX + 1, 0, NULL),
        -EFBIG);
    assert_int_equal(varjfs_attribute_put(b, "s", "o", "varjfs.x", "v", 1, 0, NULL),
                     -EPERM);
    assert_int_equal(varjfs_attribute_get(b, "s", "o", "varjfs.x", NULL, 0, NULL, NULL),
                     -EPERM);
    assert_int_equal(varjfs_attribute_delete(b, "s", "o", "varjfs.", NULL), -EPERM);
    assert_int_equal(varjfs_object_resize(b, "s", "o", (uint64_t)INT64_MAX + 1, NULL),
                     -EFBIG);
    assert_int_equal(varjfs_object_rename(b, "s", "o", "a/b", 0, NULL), -EINVAL);
    assert_int_equal(varjfs_object_rename(b, "s", "o", NULL, 0, NULL), -EINVAL);
    assert_int_equal(varjfs_object_rename(b, "s", "o", "p", VARJFS_CREATE, NULL),
                     -EINVAL);
}

static void refuse_creations(varjfs_batch *b)
{
    struct varjfs_attribute many[VARJFS_CREATE_ATTRIBUTES_MAX + 1];
    g_autofree char *value = g_strnfill(VARJFS_VALUE_MAX + 1, 'v');
    char names[VARJFS_CREATE_ATTRIBUTES_MAX + 1][8];

    for (size_t i = 0; i < G_N_ELEMENTS(many); i++) {
        g_snprintf(names[i], sizeof names[i], "n%zu", i);
        many[i] = (struct varjfs_attribute){names[i], "v", 1};
    }
    assert_int_equal(
        varjfs_item_create(b, "s", "o", NULL, many, VARJFS_CREATE_ATTRIBUTES_MAX, NULL),
        0);
    assert_int_equal(
        varjfs_item_create(b, "s", "o", NULL, many, G_N_ELEMENTS(many), NULL), -EFBIG);
    assert_int_equal(varjfs_item_create(b, "s", "o", NULL, NULL, 1, NULL), -EINVAL);
    many[1].name = "n0";
    assert_int_equal(varjfs_item_create(b, "s", "o", NULL, many, 2, NULL), -EINVAL);
    many[1].name = "varjfs.mode";
    assert_int_equal(varjfs_item_create(b, "s", "o", NULL, many, 2, NULL), -EPERM);
    many[0] = (struct varjfs_attribute){"a", value, VARJFS_VALUE_MAX + 1};
    assert_int_equal(varjfs_item_create(b, "s", "o", NULL, many, 1, NULL), -EFBIG);
    for (size_t i = 0; i < 16; i++) {
        many[i] = (struct varjfs_attribute){names[i], value, VARJFS_VALUE_MAX};
    }
    assert_int_equal(varjfs_item_create(b, "s", "o", NULL, many, 16, NULL), -EFBIG);
    assert_int_equal(varjfs_item_create(b, "s", "o", NULL, many, 14, NULL), 0);
}

static void test_refused(void **state)
{
    const char *const many[VARJFS_ITERATE_ATTRIBUTES_MAX + 1] = {"a"};
    const char *const reserved[] = {"a", "varjfs.x"};
    varjfs_iterator *i;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    refuse_names(b);
    refuse_creations(b);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_item_iterate(v, "s", NULL, many, G_N_ELEMENTS(many), &i),
                     -EINVAL);
    assert_int_equal(varjfs_item_iterate(v, "s", NULL, many, 2, &i), -EINVAL);
    assert_int_equal(varjfs_item_iterate(v, "s", NULL, reserved, 2, &i), -EPERM);
    assert_int_equal(varjfs_item_iterate(v, NULL, NULL, NULL, 0, &i), -EINVAL);
    assert_int_equal(varjfs_attribute_iterate(v, "s", "", NULL, &i), -EINVAL);
    assert_int_equal(varjfs_attribute_iterate(v, NULL, "o", NULL, &i), -EINVAL);
    assert_null(i);
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_KEYS, "a/b", NULL, NULL), -EINVAL);
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_KEYS, NULL, NULL, NULL), -EINVAL);
    assert_int_equal(varjfs_namespace_delete(v, (enum varjfs_kind)2, "s", NULL, NULL),
                     -EINVAL);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* ---- iteration --------------------------------------------------------------------- */

static void test_iterate(void **state)
{
    const char *const names[] = {"a", "b"};
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_item_iterate(v, "s", "name", names, 2, &i), 0);
    for (unsigned n = 0; n < 3; n++) {
        assert_int_equal(varjfs_iterator_next(i, &entry), 1);
        assert_int_equal(entry.attribute_count, 2);
        assert_null(entry.value);
        for (unsigned j = 0; j < 2; j++) {
            assert_string_equal(entry.attributes[j].name, names[j]);
            assert_int_equal(entry.attributes[j].len, strlen(FAKE_VALUE));
            assert_memory_equal(entry.attributes[j].value, FAKE_VALUE,
                                strlen(FAKE_VALUE));
        }
    }
    assert_int_equal(varjfs_iterator_next(i, &entry), 0);
    assert_int_equal(varjfs_attribute_iterate(v, "s", "o", NULL, &i), 0);
    assert_int_equal(varjfs_iterator_next(i, &entry), 1);
    assert_string_equal(entry.name, "name0");
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

typedef struct Value {
    const char *bytes;
    size_t len;
    int rc;
} Value;

#define VALUE(bytes, rc)                                                                 \
    {                                                                                    \
        (bytes), sizeof(bytes) - 1, (rc)                                                 \
    }

/* An entry of one item whose value is that. */
static void send_item(FakeDaemon *d)
{
    const Value *value = d->data;
    g_autoptr(GByteArray) message = g_byte_array_new(), bulk = g_byte_array_new();
    const uint8_t head[] = {1, 0, (uint8_t)value->len, 0, 0, 0, 'n'};
    FakeRequest r;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    g_byte_array_append(message, (const guint8 *)"\0\1\0\0\0", 5);
    g_byte_array_append(bulk, head, sizeof head);
    g_byte_array_append(bulk, (const guint8 *)value->bytes, (guint)value->len);
    fake_reply(d, &r, 0, message, bulk);
    fake_request_clear(&r);
    fake_wait_end(d);
}

static void test_hostile_items(void **state)
{
    static const Value values[] = {
        VALUE("\377\377\377\377\0\0\0\0", 1), /* none, and an empty one */
        VALUE("\1\0\0\0v\1\20\0\0", 1),       /* the second is too long to come */
        VALUE("", -EPROTO),
        VALUE("\0\0\0\0", -EPROTO),
        VALUE("\0\0\0\0\0\0\0\0\0", -EPROTO),
        VALUE("\0\0\0\0\1\0\0\0", -EPROTO),
        VALUE("\0\0\0\0\376\377\377\377", -EPROTO),
        VALUE("\1\0\1\0\0\0\0\0", -EPROTO), /* more than a value may have */
    };
    const char *const names[] = {"a", "b"};

    (void)state;
    for (size_t n = 0; n < G_N_ELEMENTS(values); n++) {
        struct varjfs_entry entry = {.size = sizeof entry};
        FakeDaemon d = {.data = &values[n]};
        varjfs_iterator *i;
        varjfs *v;
        int rc;

        fake_start(&d, send_item);
        assert_int_equal(fake_open(&d, 0, &v), 0);
        assert_int_equal(varjfs_item_iterate(v, "s", NULL, names, 2, &i), 0);
        rc = varjfs_iterator_next(i, &entry);
        if (rc != values[n].rc) {
            fail_msg("value %zu: %d", n, rc);
        }
        if (n == 0) {
            assert_null(entry.attributes[0].value);
            assert_int_equal(entry.attributes[0].len, 0);
            assert_non_null(entry.attributes[1].value);
            assert_int_equal(entry.attributes[1].len, 0);
        } else if (n == 1) {
            assert_memory_equal(entry.attributes[0].value, "v", 1);
            assert_null(entry.attributes[1].value);
            assert_int_equal(entry.attributes[1].len, VARJFS_ITERATE_VALUE_MAX + 1);
        }
        varjfs_close(v);
        fake_stop(&d);
    }
}

/* ---- namespaces -------------------------------------------------------------------- */

static int count_steps(void *opaque, uint64_t gone)
{
    unsigned *steps = opaque;

    assert_int_equal(gone, 10 * ++*steps);
    return *steps == 2;
}

static void test_namespace_delete(void **state)
{
    unsigned steps = 0;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_OBJECTS, "s", NULL, NULL), 0);
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_OBJECTS, "s", count_steps, &steps),
                     -ECANCELED);
    assert_int_equal(steps, 2);
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_OBJECTS, "s", NULL, NULL), 0);
    assert_int_equal(varjfs_close(v), 0);
    assert_int_equal(d.steps, 8);
    fake_stop(&d);
}

/* Of each 16 steps the first says that something went; others put it there again. */
static void serve_in_vain(FakeDaemon *d)
{
    FakeRequest r;

    fake_hello(d, 0);
    while (fake_next(d, &r)) {
        g_autoptr(GByteArray) message = g_byte_array_new();
        uint8_t reply[VARJFS_WIRE_EMPTY_REPLY_BYTES] = {VARJFS_WIRE_EMPTY_MORE};

        g_assert(r.frame.op == VARJFS_WIRE_EMPTY);
        reply[1] = d->steps % 16 == 0 && d->steps < 32;
        d->steps++;
        g_byte_array_append(message, reply, sizeof reply);
        fake_reply(d, &r, 0, message, NULL);
        fake_request_clear(&r);
    }
}

static void test_delete_in_vain(void **state)
{
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_in_vain);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_KEYS, "s", NULL, NULL), -EBUSY);
    assert_int_equal(varjfs_close(v), 0);
    assert_int_equal(d.steps, 16 + 1 + 16);
    fake_stop(&d);
}

static void send_value(FakeDaemon *d)
{
    const Value *value = d->data;
    g_autoptr(GByteArray) message = g_byte_array_new();
    FakeRequest r;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    g_byte_array_append(message, (const guint8 *)value->bytes, (guint)value->len);
    fake_reply(d, &r, value->rc == -ENOENT ? VJ_WIRE_ABSENT : 0, message, NULL);
    fake_request_clear(&r);
    fake_wait_end(d);
}

static void test_hostile_deletes(void **state)
{
    static const Value values[] = {
        VALUE("\0\0\0\0\0", 0),         VALUE("\2\0\0\0\0", -ENOTEMPTY),
        VALUE("\3\0\0\0\0", -EPROTO),   VALUE("\0\0\0\0", -EPROTO),
        VALUE("\0\0\0\0\0\0", -EPROTO), VALUE("\0\1\4\0\0", -EPROTO),
        VALUE("\1\0\0\0\377", -EPROTO), VALUE("", -ENOENT),
    };

    (void)state;
    for (size_t n = 0; n < G_N_ELEMENTS(values); n++) {
        FakeDaemon d = {.data = &values[n]};
        varjfs *v;
        int rc;

        fake_start(&d, send_value);
        assert_int_equal(fake_open(&d, 0, &v), 0);
        rc = varjfs_namespace_delete(v, VARJFS_KEYS, "s", NULL, NULL);
        if (rc != values[n].rc) {
            fail_msg("reply %zu: %d", n, rc);
        }
        varjfs_close(v);
        fake_stop(&d);
    }
}

/* ---- polling ----------------------------------------------------------------------- */

/* Answers when the test has written a byte into the pipe. */
static void serve_when_asked(FakeDaemon *d)
{
    FakeRequest r;
    char byte;

    fake_hello(d, 0);
    while (fake_next(d, &r)) {
        g_assert(read((int)d->number, &byte, 1) == 1);
        fake_answer(d, &r);
        fake_request_clear(&r);
    }
}

static void wait_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&p, 1, 30000), 1);
}

/* A batch of two requests: each answer makes the descriptor readable. */
static void test_poll(void **state)
{
    varjfs_batch *b, *other;
    FakeDaemon d = {0};
    int ends[2], rc;
    varjfs *v;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    d.number = ends[0];
    fake_start(&d, serve_when_asked);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &other), 0);
    assert_int_equal(varjfs_batch_test(b), -EINVAL);
    for (unsigned i = 0; i <= VARJFS_WIRE_OPS_MAX; i++) {
        assert_int_equal(varjfs_kv_delete(b, "s", "k", 1, NULL), 0);
    }
    assert_int_equal(varjfs_batch_submit(b), 0);
    assert_int_equal(varjfs_batch_test(b), 0);
    assert_int_equal(write(ends[1], "\0\0", 2), 2);
    while ((rc = varjfs_batch_test(b)) == 0) { /* answers may come in pieces */
        wait_readable(varjfs_descriptor(v));
    }
    assert_int_equal(rc, 1);
    assert_int_equal(varjfs_batch_wait(b), 0);
    assert_int_equal(varjfs_batch_submit(other), 0); /* of nothing */
    assert_int_equal(varjfs_batch_test(other), 1);
    assert_int_equal(varjfs_batch_wait(other), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    close(ends[0]);
    close(ends[1]);
}

static void go_away(FakeDaemon *d)
{
    FakeRequest r;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    fake_request_clear(&r);
}

static void test_poll_of_what_is_lost(void **state)
{
    FakeDaemon d = {0};
    varjfs_batch *b;
    varjfs *v;

    (void)state;
    fake_start(&d, go_away);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_delete(b, "s", "o", NULL), 0);
    assert_int_equal(varjfs_batch_submit(b), 0);
    while (varjfs_batch_test(b) == 0) {
        wait_readable(varjfs_descriptor(v));
    }
    assert_int_equal(varjfs_batch_test(b), 1);
    assert_int_equal(varjfs_batch_wait(b), -ECONNRESET);
    assert_int_equal(varjfs_descriptor(v), -ECONNRESET);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

static const struct CMUnitTest tests[] = {
    {"/items/operations", test_operations, NULL, NULL, NULL},
    {"/items/refused", test_refused, NULL, NULL, NULL},
    {"/items/iterate", test_iterate, NULL, NULL, NULL},
    {"/items/hostile", test_hostile_items, NULL, NULL, NULL},
    {"/namespace/delete", test_namespace_delete, NULL, NULL, NULL},
    {"/namespace/in-vain", test_delete_in_vain, NULL, NULL, NULL},
    {"/namespace/hostile", test_hostile_deletes, NULL, NULL, NULL},
    {"/poll/batches", test_poll, NULL, NULL, NULL},
    {"/poll/lost", test_poll_of_what_is_lost, NULL, NULL, NULL},
};

VJ_TEST_MAIN(tests)
