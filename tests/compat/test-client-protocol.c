/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The role client of varjfs-protocol(7) as it is on the wire, for ever: client-*.hex has
 * what the library sends for one call of each kind, and what a daemon answers.  Both
 * sides run here: bytes that one of them writes otherwise are a difference, and so is
 * what the library makes of an answer.
 *
 * Numbers that no request shows are those of the day the role was frozen.
 */
#include "../unit/client/fake-daemon.h"
#include "../unit/clients/request.h"

#include "../lib/golden.h"

/* ---- numbers ----------------------------------------------------------------------- */

static void test_numbers(void **state)
{
    (void)state;
    assert_int_equal(VARJFS_WIRE_ROLE_CLIENT, 3);
    assert_int_equal(VARJFS_WIRE_SHARE, 0x0304);
    assert_int_equal(VARJFS_WIRE_MAILBOX, 0x0305);
    assert_int_equal(VARJFS_WIRE_BELL, 0x0306);
    assert_int_equal(VARJFS_WIRE_STATISTICS, 0x0004);
    assert_int_equal(VJ_FEATURE_BARE_BATCH, 1 << 9);
    assert_int_equal(VJ_FEATURE_SHARE, 1 << 10);
    assert_int_equal(VJ_FEATURE_MAILBOX, 1 << 11);
    assert_int_equal(VARJFS_WIRE_OPS_MAX, 4096);
    assert_int_equal(VARJFS_WIRE_BATCH_MESSAGE_MAX, 4194304);
    assert_int_equal(VARJFS_WIRE_BATCH_BULK_MAX, 67108864);
    assert_int_equal(VARJFS_WIRE_BATCH_RETURN_MAX, 16777216);
    assert_int_equal(VARJFS_WIRE_ATOMIC_BULK_MAX, 33554432);
    assert_int_equal(VARJFS_WIRE_ATOMIC_WRITE_MAX, 4096);
    assert_int_equal(VARJFS_WIRE_NAMESPACE_MAX, 64);
    assert_int_equal(VARJFS_WIRE_NAME_MAX, 254);
    assert_int_equal(VARJFS_WIRE_VALUE_MAX, 65536);
    assert_int_equal(VARJFS_WIRE_SETTINGS_MAX, 1024);
    assert_int_equal(VARJFS_WIRE_ATTRIBUTE_NAME_MAX, 250);
    assert_int_equal(VARJFS_WIRE_CREATE_MAX, 1048576);
    assert_int_equal(VARJFS_WIRE_CREATE_ATTRIBUTES_MAX, 64);
    assert_int_equal(VARJFS_WIRE_WRITE_MAX, 8388608);
    assert_int_equal(VARJFS_WIRE_STATUS_MAX, 128);
    assert_int_equal(VARJFS_WIRE_ENTRIES_MAX, 4096);
    assert_int_equal(VARJFS_WIRE_ITERATE_BULK_MIN, 131072);
    assert_int_equal(VARJFS_WIRE_ITERATE_BULK_MAX, 8388608);
    assert_int_equal(VARJFS_WIRE_ITERATE_MESSAGE_MAX, 8192);
    assert_int_equal(VARJFS_WIRE_ITERATE_ATTRIBUTES_MAX, 16);
    assert_int_equal(VARJFS_WIRE_ITERATE_VALUE_MAX, 4096);
    assert_int_equal(VARJFS_WIRE_EMPTY_MAX, 1024);
    assert_int_equal(VARJFS_WIRE_EMPTY_GONE, 0);
    assert_int_equal(VARJFS_WIRE_EMPTY_MORE, 1);
    assert_int_equal(VARJFS_WIRE_EMPTY_STAYS, 2);
}

static void test_memory(void **state)
{
    (void)state;
    assert_int_equal(VARJFS_WIRE_AREA_SLOTS, 4);
    assert_int_equal(VARJFS_WIRE_AREA_SLOT_BYTES, 1048576);
    assert_int_equal(VARJFS_WIRE_MAILBOX_STATE_AT, 0);
    assert_int_equal(VARJFS_WIRE_MAILBOX_LISTENS_AT, 64);
    assert_int_equal(VARJFS_WIRE_MAILBOX_WAITS_AT, 128);
    assert_int_equal(VARJFS_WIRE_MAILBOX_CPU_AT, 192);
    assert_int_equal(VARJFS_WIRE_MAILBOX_SLEEPS_AT, 256);
    assert_int_equal(VARJFS_WIRE_MAILBOX_REQUEST_AT, 4096);
    assert_int_equal(VARJFS_WIRE_MAILBOX_REPLY_AT, 20480);
    assert_int_equal(VARJFS_WIRE_MAILBOX_FRAME_MAX, 16384);
    assert_int_equal(VARJFS_WIRE_MAILBOX_BYTES, 36864);
    assert_int_equal(VARJFS_WIRE_MAILBOX_FREE, 0);
    assert_int_equal(VARJFS_WIRE_MAILBOX_CALLED, 1);
    assert_int_equal(VARJFS_WIRE_MAILBOX_TAKEN, 2);
    assert_int_equal(VARJFS_WIRE_MAILBOX_ANSWERED, 3);
    assert_int_equal(VARJFS_WIRE_MAILBOX_BY_SOCKET, 4);
}

/* ---- the conversation -------------------------------------------------------------- */

/* What goes over the wire, in this order. */
static const char *const names[] = {
    "batch-changes",      "batch-reads",     "batch-atomic",     "iterate-objects",
    "iterate-namespaces", "iterate-keys",    "iterate-prefix",   "iterate-attributes",
    "iterate-items",      "batch-deletions", "batch-with-stop",  "sync",
    "empty-objects",      "empty-keys",      "empty-what-is-not"};
#define COUNT G_N_ELEMENTS(names)

typedef struct Talk {
    Fixture *volume;
    GByteArray *requests[COUNT], *replies[COUNT];
    unsigned count;
} Talk;

/* The frame that was received. */
static GByteArray *frame_of(const FakeRequest *r)
{
    GByteArray *bytes = g_byte_array_new();
    uint8_t head[VJ_FRAME_HEAD_BYTES];

    vj_frame_encode(&r->frame, head);
    g_byte_array_append(bytes, head, sizeof head);
    if (r->message->len > 0) {
        g_byte_array_append(bytes, r->message->data, r->message->len);
    }
    if (r->bulk->len > 0) {
        g_byte_array_append(bytes, r->bulk->data, r->bulk->len);
    }
    return bytes;
}

static int ask_volume(const Talk *t, const FakeRequest *r, VjClientsReply *reply)
{
    VjClients *c = t->volume->c;
    VjSlice message = fake_slice(r->message);

    switch (r->frame.op) {
    case VARJFS_WIRE_BATCH:
        return vj_clients_batch(c, message, fake_slice(r->bulk), false, NULL,
                                (VjClientsArea){.data = NULL}, reply);
    case VARJFS_WIRE_ITERATE:
        return vj_clients_iterate(c, message, reply);
    case VARJFS_WIRE_EMPTY:
        return vj_clients_empty(c, message, false, NULL, reply);
    default:
        g_assert(r->frame.op == VARJFS_WIRE_SYNC);
        return vj_clients_sync(c);
    }
}

/* Its times are those of the run: "batch-reads" begins with a status. */
static void set_times(GByteArray *bulk)
{
    static const uint8_t modified_and_made[16] = {2, 0, 0, 0, 0, 0, 0, 0, 1};

    g_assert(bulk->len >= VARJFS_WIRE_STATUS_BYTES);
    memcpy(bulk->data + 16, modified_and_made, sizeof modified_and_made);
}

static void answer(FakeDaemon *d, Talk *t, const FakeRequest *r)
{
    g_autoptr(GByteArray) bulk = g_byte_array_new();
    VjClientsReply reply = {.message = NULL};
    int rc = ask_volume(t, r, &reply);

    g_assert(t->count < COUNT && (rc == 0 || rc == -ENOENT));
    if (reply.bulk_bytes > 0) {
        g_byte_array_append(bulk, reply.bulk->data, reply.bulk_bytes);
    }
    if (g_str_equal(names[t->count], "batch-reads")) {
        set_times(bulk);
    }
    t->requests[t->count] = frame_of(r);
    t->replies[t->count] = fake_reply_frame(d, r, rc == 0 ? VJ_WIRE_OK : VJ_WIRE_ABSENT,
                                            reply.message, bulk);
    fake_send(d, t->replies[t->count]->data, t->replies[t->count]->len);
    t->count++;
    vj_clients_reply_clear(&reply);
}

static void serve_talk(FakeDaemon *d)
{
    FakeRequest r;

    fake_hello(d, 0);
    while (fake_next(d, &r)) {
        answer(d, (Talk *)(uintptr_t)d->data, &r);
        fake_request_clear(&r);
    }
}

#define TEXT "three two one"

static void say_changes(varjfs *v)
{
    static const struct varjfs_attribute attributes[] = {{"color", "red", 3},
                                                         {"empty", NULL, 0}};
    struct varjfs_object_options options = {
        .size = sizeof options, .transform = "rle", .mode = "client"};
    int results[11];
    varjfs_batch *b;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    varjfs_object_create(b, "space", "object", &options, &results[0]);
    varjfs_object_write(b, "space", "object", "one two three", 13, 0, 0, &results[1]);
    varjfs_object_rwrite(b, "space", "object", "three two one two", 17, 0, 13, 0,
                         &results[2]);
    varjfs_object_resize(b, "space", "object", 13, &results[3]);
    varjfs_object_write(b, "space", "made", "xyz", 3, 0, VARJFS_CREATE | VARJFS_APPEND,
                        &results[4]);
    varjfs_item_create(b, "space", "item", NULL, attributes, 2, &results[5]);
    varjfs_attribute_put(b, "space", "item", "size", "5", 1, VARJFS_EXCLUSIVE,
                         &results[6]);
    varjfs_object_rename(b, "space", "made", "renamed", VARJFS_EXCLUSIVE, &results[7]);
    varjfs_kv_put(b, "keys", "a\0b", 3, "value", 5, 0, &results[8]);
    varjfs_kv_put(b, "keys", "b", 1, "", 0, VARJFS_EXCLUSIVE, &results[9]);
    varjfs_kv_put(b, "keys", "b", 1, "", 0, VARJFS_EXCLUSIVE, &results[10]);
    assert_int_equal(varjfs_batch_execute(b), -EEXIST);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(results[i], 0);
    }
    assert_int_equal(results[10], -EEXIST);
    varjfs_batch_free(b);
}

static void say_reads(varjfs *v)
{
    struct varjfs_object_status status = {.size = sizeof status};
    char read[20], value[5], color[3];
    size_t got = 0, len = 0, long_len = 0, color_len = 0;
    int results[6];
    varjfs_batch *b;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    varjfs_object_status(b, "space", "object", &status, &results[0]);
    varjfs_object_read(b, "space", "object", read, 20, 0, &got, &results[1]);
    varjfs_kv_get(b, "keys", "a\0b", 3, value, 5, &len, &results[2]);
    varjfs_kv_get(b, "keys", "a\0b", 3, value, 4, &long_len, &results[3]);
    varjfs_attribute_get(b, "space", "item", "color", color, 3, &color_len, &results[4]);
    varjfs_attribute_get(b, "space", "item", "shape", color, 3, NULL, &results[5]);
    assert_int_equal(varjfs_batch_execute(b), -ERANGE);
    assert_int_equal(results[0], 0);
    assert_int_equal(status.bytes, strlen(TEXT));
    assert_int_equal(status.modified_us, 2);
    assert_int_equal(status.created_us, 1);
    assert_string_equal(status.transform, "rle");
    assert_int_equal(results[1], 0);
    assert_int_equal(got, strlen(TEXT));
    assert_memory_equal(read, TEXT, got);
    assert_int_equal(results[2], 0);
    assert_int_equal(len, 5);
    assert_memory_equal(value, "value", 5);
    assert_int_equal(results[3], -ERANGE);
    assert_int_equal(long_len, 5);
    assert_int_equal(results[4], 0);
    assert_memory_equal(color, "red", color_len);
    assert_int_equal(results[5], -ENODATA);
    varjfs_batch_free(b);
}

static void say_atomic(varjfs *v)
{
    struct varjfs_semantics s = {.size = sizeof s};
    varjfs_batch *b;

    assert_int_equal(varjfs_semantics_template("default", &s), 0);
    s.atomicity = VARJFS_ATOMICITY_BATCH;
    s.safety = VARJFS_SAFETY_STORAGE;
    s.persistency = VARJFS_PERSISTENCY_IMMEDIATE;
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    varjfs_object_create(b, "space", "together", NULL, NULL);
    varjfs_object_write(b, "space", "together", "abc", 3, 0, 0, NULL);
    varjfs_attribute_put(b, "space", "together", "color", "blue", 4, 0, NULL);
    varjfs_attribute_delete(b, "space", "item", "size", NULL);
    varjfs_kv_put(b, "keys", "c", 1, "d", 1, 0, NULL);
    assert_int_equal(varjfs_batch_execute(b), 0);
    varjfs_batch_free(b);
}

/* All entries, "name=value ...", of one page. */
static void expect_entries(varjfs_iterator *i, const char *text)
{
    struct varjfs_entry entry = {.size = sizeof entry};
    g_autoptr(GString) all = g_string_new(NULL);
    int rc;

    while ((rc = varjfs_iterator_next(i, &entry)) == 1) {
        for (size_t n = 0; n < entry.name_len; n++) {
            char c = ((const char *)entry.name)[n];

            g_string_append_c(all, c != '\0' ? c : '0');
        }
        if (entry.len > 0) {
            g_string_append_printf(all, "=%.*s", (int)entry.len,
                                   (const char *)entry.value);
        }
        for (size_t n = 0; n < entry.attribute_count; n++) {
            const struct varjfs_attribute *a = &entry.attributes[n];

            g_string_append_printf(all, "[%.*s]", (int)a->len,
                                   a->value != NULL ? (const char *)a->value : "");
        }
        g_string_append_c(all, ' ');
    }
    assert_int_equal(rc, 0);
    assert_string_equal(all->str, text);
    varjfs_iterator_free(i);
}

static void say_iterate(varjfs *v)
{
    static const char *const attributes[] = {"color", "shape"};
    varjfs_iterator *i;

    assert_int_equal(varjfs_object_iterate(v, "space", NULL, &i), 0);
    expect_entries(i, "item object renamed together ");
    assert_int_equal(varjfs_object_iterate(v, NULL, NULL, &i), 0);
    expect_entries(i, "space ");
    assert_int_equal(varjfs_kv_iterate(v, "keys", NULL, 0, &i), 0);
    expect_entries(i, "a0b=value b c=d ");
    assert_int_equal(varjfs_kv_iterate(v, "keys", "a", 1, &i), 0);
    expect_entries(i, "a0b=value ");
    assert_int_equal(varjfs_attribute_iterate(v, "space", "item", "c", &i), 0);
    expect_entries(i, "color=red ");
    assert_int_equal(varjfs_item_iterate(v, "space", "item", attributes, 2, &i), 0);
    expect_entries(i, "item[red][] ");
}

static void say_deletions(varjfs *v)
{
    struct varjfs_semantics s = {.size = sizeof s};
    int results[3];
    varjfs_batch *b;

    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    varjfs_object_delete(b, "space", "renamed", &results[0]);
    varjfs_kv_delete(b, "keys", "b", 1, &results[1]);
    varjfs_kv_delete(b, "keys", "b", 1, &results[2]);
    assert_int_equal(varjfs_batch_execute(b), -ENOENT);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
    assert_int_equal(results[2], -ENOENT);
    varjfs_batch_free(b);

    assert_int_equal(varjfs_semantics_template("posix", &s), 0);
    s.ordering = VARJFS_ORDERING_STRICT;
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    varjfs_object_delete(b, "space", "renamed", &results[0]);
    varjfs_kv_delete(b, "keys", "c", 1, &results[1]);
    assert_int_equal(varjfs_batch_execute(b), -ENOENT);
    assert_int_equal(results[0], -ENOENT);
    assert_int_equal(results[1], -ECANCELED);
    varjfs_batch_free(b);
}

static void say_empty(varjfs *v)
{
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_OBJECTS, "space", NULL, NULL), 0);
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_KEYS, "keys", NULL, NULL), 0);
    assert_int_equal(varjfs_namespace_delete(v, VARJFS_KEYS, "keys", NULL, NULL),
                     -ENOENT);
}

static void expect_frame(const char *name, const char *kind, GByteArray *frame)
{
    g_autofree char *file = g_strdup_printf("client-%s%s-v1.hex", name, kind);

    golden_expect(file, fake_slice(frame));
    g_byte_array_unref(frame);
}

static void test_frames_are_as_ever(void **state)
{
    Talk t = {.volume = *state};
    FakeDaemon d = {.is_bare = true, .data = &t};
    varjfs *v;

    fake_start(&d, serve_talk);
    assert_int_equal(fake_open(&d, 30000, &v), 0);
    say_changes(v);
    say_reads(v);
    say_atomic(v);
    say_iterate(v);
    say_deletions(v);
    assert_int_equal(varjfs_sync(v), 0);
    say_empty(v);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(t.count, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        expect_frame(names[i], "", t.requests[i]);
        expect_frame(names[i], "-reply", t.replies[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_memory),
        cmocka_unit_test_setup_teardown(test_frames_are_as_ever, fixture_setup,
                                        fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
