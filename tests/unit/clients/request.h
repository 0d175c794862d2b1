/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * request.h - requests of programs as they come over the wire, and what came of them
 */
#ifndef VJ_TEST_CLIENTS_REQUEST_H
#define VJ_TEST_CLIENTS_REQUEST_H

#include "../../lib/test.h"

#include "clients/clients-private.h"
#include "fsck/fsck.h"

#include "rpc/frame-format.h"

typedef struct Fixture {
    char *dir;
    VjClients *c;
} Fixture;

/* A batch that is being built, and its reply. */
typedef struct Request {
    GByteArray *message, *bulk;
    uint32_t count;
    const VjClientsStop *stop; /* NULL: none */
    VjClientsArea area;        /* of the connection */
    int rc;
    VjClientsReply reply;
    size_t taken; /* of the reply's bulk */
} Request;

typedef struct Op {
    uint8_t kind, flags;
    const char *space;
    const void *name;
    size_t name_len;    /* 0: @name is a string */
    const char *second; /* NULL: empty */
    uint64_t offset, old_len;
    const void *brings;
    size_t len;
    uint32_t most;
} Op;

static inline void append_number(GByteArray *to, uint64_t v, unsigned bytes)
{
    v = GUINT64_TO_LE(v);
    g_byte_array_append(to, (const guint8 *)&v, bytes);
}

static inline Request request_new(uint8_t flags, uint8_t safety)
{
    Request q = {.message = g_byte_array_new(), .bulk = g_byte_array_new()};

    append_number(q.message, flags, 1);
    append_number(q.message, safety, 1);
    append_number(q.message, 0, 6);
    return q;
}

static inline void request_add(Request *q, Op op)
{
    size_t name_len = op.name_len > 0 ? op.name_len : strlen(op.name);
    size_t second_len = op.second != NULL ? strlen(op.second) : 0;

    append_number(q->message, op.kind, 1);
    append_number(q->message, op.flags, 1);
    append_number(q->message, strlen(op.space), 2);
    append_number(q->message, name_len, 2);
    append_number(q->message, second_len, 2);
    append_number(q->message, op.offset, 8);
    append_number(q->message, op.old_len, 8);
    append_number(q->message, op.len, 4);
    append_number(q->message, op.most, 4);
    g_byte_array_append(q->message, (const guint8 *)op.space, (guint)strlen(op.space));
    g_byte_array_append(q->message, op.name, (guint)name_len);
    g_byte_array_append(q->message, (const guint8 *)op.second, (guint)second_len);
    if (op.len > 0) {
        g_byte_array_append(q->bulk, op.brings, (guint)op.len);
    }
    q->message->data[4] = (uint8_t)++q->count;
    q->message->data[5] = (uint8_t)(q->count >> 8);
}

static inline void request_run_as(Request *q, VjClients *c, bool read_only)
{
    q->rc = vj_clients_batch(c, vj_slice(q->message->data, q->message->len),
                             vj_slice(q->bulk->data, q->bulk->len), read_only, q->stop,
                             q->area, &q->reply);
    if (q->rc == 0) {
        assert_int_equal(q->reply.message->len, q->count * VARJFS_WIRE_RESULT_BYTES);
    }
}

static inline void request_run(Request *q, VjClients *c)
{
    request_run_as(q, c, false);
}

static inline uint32_t status_of(const Request *q, uint32_t i)
{
    assert_int_equal(q->rc, 0);
    assert_true(i < q->count);
    return vj_le32_get(q->reply.message->data + i * VARJFS_WIRE_RESULT_BYTES);
}

static inline uint64_t value_of(const Request *q, uint32_t i)
{
    return vj_le64_get(q->reply.message->data + i * VARJFS_WIRE_RESULT_BYTES + 4);
}

/* The next @len bytes that operations returned; borrowed. */
static inline const void *take(Request *q, size_t len)
{
    assert_true(q->taken + len <= q->reply.bulk_bytes);
    q->taken += len;
    return len > 0 ? q->reply.bulk->data + q->taken - len : (const uint8_t *)"";
}

static inline void request_end(Request *q)
{
    if (q->rc == 0) {
        assert_int_equal(q->taken, q->reply.bulk_bytes);
    }
    g_byte_array_unref(q->message);
    g_byte_array_unref(q->bulk);
    vj_clients_reply_clear(&q->reply);
}

/* One operation that returns nothing; its status. */
static inline uint32_t run_one(VjClients *c, Op op)
{
    Request q = request_new(0, VARJFS_WIRE_SAFETY_NONE);
    uint32_t status;

    request_add(&q, op);
    request_run(&q, c);
    status = status_of(&q, 0);
    request_end(&q);
    return status;
}

/* ---- a page of names --------------------------------------------------------------- */

typedef struct Asked {
    uint8_t what;
    const char *space, *prefix, *behind, *object; /* NULL: empty */
    const char *attributes[4];
    uint32_t entries;
} Asked;

static inline void append_text(GByteArray *to, const char *text)
{
    if (text != NULL) {
        g_byte_array_append(to, (const guint8 *)text, (guint)strlen(text));
    }
}

static inline int iterate_run(VjClients *c, const Asked *a, VjClientsReply *reply)
{
    const char *texts[] = {a->space, a->prefix, a->behind, a->object};
    g_autoptr(GByteArray) message = g_byte_array_new();
    unsigned count = 0;

    while (count < G_N_ELEMENTS(a->attributes) && a->attributes[count] != NULL) {
        count++;
    }
    append_number(message, a->what, 2);
    for (unsigned i = 0; i < 3; i++) {
        append_number(message, texts[i] != NULL ? strlen(texts[i]) : 0, 2);
    }
    append_number(message, a->entries, 4);
    append_number(message, VARJFS_WIRE_ITERATE_BULK_MIN, 4);
    append_number(message, a->object != NULL ? strlen(a->object) : 0, 2);
    append_number(message, count, 2);
    for (unsigned i = 0; i < G_N_ELEMENTS(texts); i++) {
        append_text(message, texts[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        append_number(message, strlen(a->attributes[i]), 2);
        append_text(message, a->attributes[i]);
    }
    return vj_clients_iterate(c, vj_slice(message->data, message->len), reply);
}

/* Attributes of an item: "[red - <5000>]" */
static inline void text_of_item(GString *text, const uint8_t *at, uint32_t len)
{
    const char *before = "[";

    while (len > 0) {
        uint32_t bytes = vj_le32_get(at);

        g_string_append(text, before);
        at += 4;
        len -= 4;
        before = " ";
        if (bytes == VARJFS_WIRE_NO_VALUE) {
            g_string_append(text, "-");
        } else if (bytes > VARJFS_WIRE_ITERATE_VALUE_MAX) {
            g_string_append_printf(text, "<%u>", bytes);
        } else {
            g_string_append_len(text, (const char *)at, bytes);
            at += bytes;
            len -= bytes;
        }
    }
    g_string_append(text, "]");
}

/* "a b=value c", and " …" where there are more. */
static inline char *iterate_as_text(VjClients *c, const Asked *a)
{
    GString *text = g_string_new(NULL);
    VjClientsReply reply;
    const uint8_t *at;

    assert_int_equal(iterate_run(c, a, &reply), 0);
    at = reply.bulk != NULL ? reply.bulk->data : NULL;
    for (uint32_t i = 0; i < vj_le32_get(reply.message->data + 1); i++) {
        uint16_t name_len = (uint16_t)(at[0] | at[1] << 8);
        uint32_t len = vj_le32_get(at + 2);

        g_string_append_printf(text, "%s%.*s", text->len > 0 ? " " : "", (int)name_len,
                               at + 6);
        if (a->what == VARJFS_WIRE_ITERATE_ITEMS) {
            text_of_item(text, at + 6 + name_len, len);
        } else if (len > 0) {
            g_string_append_printf(text, "=%.*s", (int)len, at + 6 + name_len);
        }
        at += VARJFS_WIRE_ENTRY_HEAD_BYTES + name_len + len;
    }
    if (reply.message->data[0] != 0) {
        g_string_append(text, " …");
    }
    vj_clients_reply_clear(&reply);
    return g_string_free(text, FALSE);
}

/* ---- a volume ---------------------------------------------------------------------- */

static inline void fixture_open(Fixture *x)
{
    VjClientsOpen how = {.source = x->dir, .name = "test"};
    g_autoptr(GError) error = NULL;

    if (!vj_clients_open(&how, &x->c, &error)) {
        fail_msg("%s", error->message);
    }
}

static inline int fixture_setup(void **state)
{
    Fixture *x = g_new0(Fixture, 1);
    g_autoptr(GError) error = NULL;
    VjVolumeMake how = {0};

    x->dir = vj_test_make_dir();
    how.source = x->dir;
    if (!vj_volume_make(&how, &error)) {
        fail_msg("%s", error->message);
    }
    fixture_open(x);
    *state = x;
    return 0;
}

static inline void fixture_say(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "# %s\n", text);
}

/* fsck finds nothing. */
static inline void expect_sound(Fixture *x)
{
    VjVolumeOpen how = {.source = x->dir, .check = true, .session_name = "check"};
    g_autoptr(GError) error = NULL;
    VjCheckReport report = {0};
    VjVolume *v;

    if (!vj_volume_open(&how, &v, &error)) {
        fail_msg("%s", error->message);
    }
    assert_int_equal(vj_fsck_contents(v, true, fixture_say, NULL, &report), 0);
    assert_int_equal(vj_fsck_names(v, fixture_say, NULL, &report), 0);
    assert_int_equal(report.problems, 0);
    assert_int_equal(vj_volume_close(v), 0);
}

static inline int fixture_teardown(void **state)
{
    Fixture *x = *state;

    assert_int_equal(vj_clients_close(x->c), 0);
    expect_sound(x);
    vj_test_remove_dir(x->dir);
    g_free(x);
    return 0;
}

/* What a process that is killed now leaves behind. */
static inline void fixture_copy(const Fixture *x, Fixture *copy)
{
    g_autofree char *from = g_strconcat(x->dir, "/.", NULL);
    const char *argv[] = {"cp", "-R", from, NULL, NULL};
    g_autoptr(GError) error = NULL;
    int status;

    copy->dir = vj_test_make_dir();
    argv[3] = copy->dir;
    if (!g_spawn_sync(NULL, (char **)(uintptr_t)argv, NULL, G_SPAWN_SEARCH_PATH, NULL,
                      NULL, NULL, NULL, &status, &error)) {
        fail_msg("%s", error->message);
    }
    assert_int_equal(status, 0);
    fixture_open(copy);
}

static inline void copy_end(Fixture *copy)
{
    assert_int_equal(vj_clients_close(copy->c), 0);
    expect_sound(copy);
    vj_test_remove_dir(copy->dir);
}

#endif
