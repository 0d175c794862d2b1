/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* test-batch.c - batches of libvarjfs beside a daemon that answers as it should */
#include "fake-daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#define MANY 10000u

static void serve(FakeDaemon *d)
{
    fake_hello(d, 0);
    fake_serve(d);
}

static void test_each_operation(void **state)
{
    struct varjfs_object_status status = {.size = sizeof status};
    struct varjfs_object_options options = {.size = sizeof options, .transform = "lz4"};
    char read[10], value[10] = "";
    size_t got = 0, len = 0, long_len = 0;
    int results[10];
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    memset(results, 1, sizeof results);
    assert_int_equal(varjfs_object_create(b, "s", "o", &options, &results[0]), 0);
    assert_int_equal(varjfs_object_write(b, "s", "o", "abc", 3, 5, 0, &results[1]), 0);
    assert_int_equal(varjfs_object_rwrite(b, "s", "o", "abc", 3, 5, 7, 0, &results[2]),
                     0);
    assert_int_equal(varjfs_object_read(b, "s", "o", read, 10, 3, &got, &results[3]), 0);
    assert_int_equal(varjfs_object_status(b, "s", "o", &status, &results[4]), 0);
    assert_int_equal(varjfs_object_delete(b, "s", "o", &results[5]), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "k\0k", 3, "v", 1, 0, &results[6]), 0);
    assert_int_equal(varjfs_kv_get(b, "s", "k", 1, value, 10, &len, &results[7]), 0);
    assert_int_equal(varjfs_kv_get(b, "s", "k", 1, read, 4, &long_len, &results[8]), 0);
    assert_int_equal(varjfs_kv_delete(b, "s", "!\1", 2, &results[9]), 0);
    assert_int_equal(varjfs_batch_execute(b), -ERANGE);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(results[i], 0);
    }
    assert_int_equal(got, 10);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal((uint8_t)read[i], fake_byte(3 + i));
    }
    assert_int_equal(status.bytes, 1000);
    assert_int_equal(status.stored_bytes, 500);
    assert_int_equal(status.modified_us, 2);
    assert_int_equal(status.created_us, 1);
    assert_string_equal(status.transform, "lz4");
    assert_string_equal(value, FAKE_VALUE);
    assert_int_equal(len, strlen(FAKE_VALUE));
    assert_int_equal(results[8], -ERANGE);
    assert_int_equal(long_len, strlen(FAKE_VALUE));
    assert_int_equal(results[9], -ENOENT);
    assert_int_equal(varjfs_batch_execute(b), 0); /* it is empty */
    assert_int_equal(varjfs_sync(v), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* ---- what is refused at once ------------------------------------------------------- */

static void test_refused_names(void **state)
{
    static const char *const names[] = {"", ".", "..", "a/b", "/"};
    char longest[VARJFS_NAME_MAX + 2], space[VARJFS_NAMESPACE_MAX + 2];
    varjfs_iterator *i;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    memset(space, 'a', sizeof space);
    space[sizeof space - 1] = '\0';
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    for (size_t n = 0; n < G_N_ELEMENTS(names); n++) {
        assert_int_equal(varjfs_object_delete(b, "s", names[n], NULL), -EINVAL);
        assert_int_equal(varjfs_object_delete(b, names[n], "o", NULL), -EINVAL);
        assert_int_equal(varjfs_kv_delete(b, names[n], "k", 1, NULL), -EINVAL);
        assert_int_equal(varjfs_kv_iterate(v, names[n], NULL, 0, &i), -EINVAL);
    }
    assert_int_equal(varjfs_object_delete(b, "s", NULL, NULL), -EINVAL);
    assert_int_equal(varjfs_object_delete(b, NULL, "o", NULL), -EINVAL);
    assert_int_equal(varjfs_object_delete(b, "s", longest, NULL), -EINVAL);
    assert_int_equal(varjfs_object_delete(b, space, "o", NULL), -EINVAL);
    assert_int_equal(varjfs_kv_delete(b, "s", longest, 0, NULL), -EINVAL);
    assert_int_equal(varjfs_kv_delete(b, "s", longest, VARJFS_NAME_MAX + 1, NULL),
                     -EINVAL);
    assert_int_equal(
        varjfs_kv_put(b, "s", "k", 1, longest, VARJFS_VALUE_MAX + 1, 0, NULL), -EFBIG);
    assert_int_equal(varjfs_object_write(b, "s", "o", "a", 1, INT64_MAX, 0, NULL),
                     -EFBIG);
    assert_int_equal(varjfs_object_rwrite(b, "s", "o", "a", 1, UINT64_MAX, 0, 0, NULL),
                     -EFBIG);
    assert_int_equal(varjfs_object_write(b, "s", "o", NULL, 1, 0, 0, NULL), -EINVAL);
    assert_int_equal(varjfs_batch_execute(b), 0); /* nothing was added */
    /* The longest ones are well. */
    longest[VARJFS_NAME_MAX] = '\0';
    space[VARJFS_NAMESPACE_MAX] = '\0';
    assert_int_equal(varjfs_object_delete(b, space, longest, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

static void test_refused_settings(void **state)
{
    struct {
        struct varjfs_object_options options;
        const char *later;
    } o = {{.size = sizeof o}, NULL};
    g_autofree char *word = g_strnfill(2000, 'a');
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), 0);
    o.later = word;
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -EINVAL);
    o.options.size = 8;
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -EINVAL);
    o.options.size = sizeof o.options;
    o.options.size = offsetof(struct varjfs_object_options, distribution);
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), 0);
    o.options.size = sizeof o.options;
    o.options.distribution = "round-robin";
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -ENOTSUP);
    o.options.distribution = "single:node1";
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -ENOTSUP);
    o.options.distribution = "single:";
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -EINVAL);
    o.options.distribution = "Content";
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -EINVAL);
    o.options.distribution = "weighted";
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), 0);
    o.options.distribution = "content";
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), 0);
    o.options.mode = "client\nobjects=1";
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -EINVAL);
    o.options.mode = "";
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -EINVAL);
    o.options.mode = word;
    assert_int_equal(varjfs_object_create(b, "s", "o", &o.options, NULL), -EINVAL);
    assert_int_equal(varjfs_close(v), 0); /* with an operation that was not executed */
    fake_stop(&d);
}

/* ---- several requests -------------------------------------------------------------- */

static void semantics(struct varjfs_semantics *s, const char *name)
{
    s->size = sizeof *s;
    assert_int_equal(varjfs_semantics_template(name, s), 0);
}

/* Counts operations, and obeys "!": see fake_answer(). */
static void serve_and_count(FakeDaemon *d)
{
    FakeRequest r;

    fake_hello(d, 0);
    while (fake_next(d, &r)) {
        g_autofree FakeOp *ops = NULL;
        uint32_t count;

        ops = fake_ops(&r, &count);
        d->number += count;
        fake_answer(d, &r);
        fake_request_clear(&r);
    }
}

static void test_long_batch(void **state)
{
    g_autofree int *results = g_new(int, MANY);
    g_autofree uint32_t *keys = g_new(uint32_t, MANY);
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_and_count);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        keys[i] = i << 8 | 'k';
        results[i] = 1;
        assert_int_equal(varjfs_kv_put(b, "s", i == 5000 ? (const void *)"!\4" : &keys[i],
                                       i == 5000 ? 2 : 4, "v", 1, 0, &results[i]),
                         0);
    }
    assert_int_equal(varjfs_batch_execute(b), -ENOSPC);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(results[i], i == 5000 ? -ENOSPC : 0);
    }
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(d.number, MANY);
}

/* None behind one that failed, also not in a later request. */
static void test_strict_order(void **state)
{
    g_autofree int *results = g_new(int, MANY);
    struct varjfs_semantics s;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    semantics(&s, "posix");
    fake_start(&d, serve_and_count);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(
            varjfs_kv_put(b, "s", i == 5000 ? "!\4" : "kk", 2, "v", 1, 0, &results[i]),
            0);
    }
    assert_int_equal(varjfs_batch_execute(b), -ENOSPC);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(results[i], i < 5000 ? 0 : i == 5000 ? -ENOSPC : -ECANCELED);
    }
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(d.number, 2 * VARJFS_WIRE_OPS_MAX);
}

static void test_atomic(void **state)
{
    struct varjfs_semantics s;
    int result = 1;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    semantics(&s, "default");
    s.atomicity = VARJFS_ATOMICITY_BATCH;
    fake_start(&d, serve_and_count);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    for (uint32_t i = 0; i <= VARJFS_ATOMIC_MAX; i++) {
        assert_int_equal(varjfs_kv_delete(b, "s", "k", 1, &result), 0);
    }
    assert_int_equal(varjfs_batch_submit(b), -E2BIG);
    assert_int_equal(varjfs_batch_execute(b), -E2BIG);
    assert_int_equal(result, -E2BIG);
    for (uint32_t i = 0; i < VARJFS_ATOMIC_MAX; i++) {
        assert_int_equal(varjfs_kv_delete(b, "s", "k", 1, &result), 0);
    }
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(d.number, VARJFS_ATOMIC_MAX); /* nothing of the first one */
}

/* ---- long operations --------------------------------------------------------------- */

#define LONG_BYTES ((size_t)(20 << 20) + 5)
#define STEP VARJFS_WIRE_WRITE_MAX

/* A replacement of 20 MiB: 8 at once, and what follows is inserted; a write of it. */
static void serve_long_writes(FakeDaemon *d)
{
    static const uint64_t at[] = {0, STEP, 2 * (uint64_t)STEP};

    fake_hello(d, 0);
    for (unsigned request = 0; request < 2; request++) {
        g_autofree FakeOp *ops = NULL;
        FakeRequest r;
        uint32_t count;

        g_assert(fake_next(d, &r));
        ops = fake_ops(&r, &count);
        g_assert(count == 3);
        g_assert((r.message->data[0] & VARJFS_WIRE_STOP) != 0);
        for (uint32_t i = 0; i < count; i++) {
            g_assert(ops[i].kind == (request == 0 ? VARJFS_WIRE_OBJECT_RWRITE
                                                  : VARJFS_WIRE_OBJECT_WRITE));
            g_assert(ops[i].offset == 100 + at[i]);
            g_assert(ops[i].old_len == (request == 0 && i == 0 ? 77 : 0));
            g_assert(ops[i].brings == (i < 2 ? STEP : LONG_BYTES - 2 * STEP));
            g_assert(ops[i].bytes[0] == fake_byte(at[i]));
        }
        fake_answer(d, &r);
        fake_request_clear(&r);
    }
    fake_wait_end(d);
}

static void test_long_writes(void **state)
{
    g_autofree uint8_t *bytes = g_malloc(LONG_BYTES);
    struct varjfs_semantics s;
    int results[2];
    varjfs_batch *b, *one;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    for (size_t i = 0; i < LONG_BYTES; i++) {
        bytes[i] = fake_byte(i);
    }
    semantics(&s, "default");
    s.atomicity = VARJFS_ATOMICITY_OPERATION;
    fake_start(&d, serve_long_writes);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(
        varjfs_object_rwrite(b, "s", "o", bytes, LONG_BYTES, 100, 77, 0, &results[0]), 0);
    assert_int_equal(
        varjfs_object_write(b, "s", "o", bytes, LONG_BYTES, 100, 0, &results[1]), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
    assert_int_equal(varjfs_batch_new(v, &s, &one), 0);
    assert_int_equal(varjfs_object_write(one, "s", "o", bytes, LONG_BYTES, 0, 0, NULL),
                     -EFBIG);
    assert_int_equal(varjfs_object_write(one, "s", "o", bytes, STEP, 0, 0, NULL), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* A part fails: the parts behind it are not done, nor is another request sent. */
static void test_long_write_fails(void **state)
{
    size_t len = (size_t)80 << 20;
    g_autofree uint8_t *bytes = g_malloc0(len);
    int results[2] = {1, 1};
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_and_count);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(
        varjfs_object_rwrite(b, "s", "!\4", bytes, len, 0, 0, 0, &results[0]), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "v", 1, 0, &results[1]), 0);
    assert_int_equal(varjfs_batch_execute(b), -ENOSPC);
    assert_int_equal(results[0], -ENOSPC);
    assert_int_equal(results[1], 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(d.number, 8 + 1);
}

static void test_long_read(void **state)
{
    size_t len = 2 * (size_t)VARJFS_WIRE_BATCH_RETURN_MAX + 3, got = 0;
    g_autofree uint8_t *bytes = g_malloc0(len);
    uint8_t small[3] = {0};
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_and_count);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", bytes, len, 11, &got, NULL), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", small, 3, 1, NULL, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(got, len);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != fake_byte(11 + i)) {
            fail_msg("byte %zu", i);
        }
    }
    assert_int_equal(small[2], fake_byte(3));
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(d.number, 32 + 1 + 1); /* parts of 1 MiB, the rest, the small one */
}

static uint64_t offset_of(const FakeRequest *r)
{
    uint32_t count;
    g_autofree FakeOp *ops = fake_ops(r, &count);

    return count > 0 ? ops[0].offset : 0;
}

/* Four parts of a read are on their way before one is answered; then the last one first,
 * of which the third is short, and the fourth fails.  The fifth is not asked for. */
static void serve_parts_backwards(FakeDaemon *d)
{
    FakeRequest r[4];

    fake_hello(d, 0);
    for (size_t i = 0; i < 4; i++) {
        g_assert(fake_next(d, &r[i]));
        g_assert(offset_of(&r[i]) == i << 20);
    }
    for (size_t i = 4; i > 0; i--) {
        if (i == 3 || i == 4) {
            g_autoptr(GByteArray) message = g_byte_array_new();
            g_autoptr(GByteArray) bulk = g_byte_array_new();

            g_byte_array_append(bulk, (const guint8 *)"end", i == 3 ? 3 : 0);
            fake_put_result(message, i == 3 ? 0 : VJ_WIRE_DEVICE, bulk->len);
            fake_reply(d, &r[i - 1], 0, message, bulk);
        } else {
            fake_answer(d, &r[i - 1]);
        }
        fake_request_clear(&r[i - 1]);
    }
    fake_serve(d);
}

static void test_long_read_ends(void **state)
{
    size_t len = 5u << 20, got = 0;
    g_autofree uint8_t *bytes = g_malloc0(len);
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_parts_backwards);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", bytes, len, 0, &got, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(got, (2u << 20) + 3);
    assert_int_equal(bytes[(2u << 20) - 1], fake_byte((2u << 20) - 1));
    assert_memory_equal(bytes + (2u << 20), "end", 3);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* What changes something waits for what was asked before, and what is asked behind it for
 * it; so does all where the order is strict. */
static void serve_in_turn(FakeDaemon *d)
{
    static const size_t at_once[] = {2, 1, 1};
    static const size_t strictly[] = {1, 1, 1};
    const size_t *turns = d->number == 0 ? at_once : strictly;

    fake_hello(d, 0);
    for (size_t i = 0; i < 3; i++) {
        FakeRequest r[2];
        struct pollfd poll_fd = {.fd = d->fd, .events = POLLIN};

        for (size_t k = 0; k < turns[i]; k++) {
            g_assert(fake_next(d, &r[k]));
        }
        /* What must not come would be there in most runs. */
        g_assert(poll(&poll_fd, 1, 20) == 0);
        for (size_t k = 0; k < turns[i]; k++) {
            fake_answer(d, &r[k]);
            fake_request_clear(&r[k]);
        }
    }
    fake_serve(d);
}

static void read_write_read(unsigned number, int ordering, size_t first_len)
{
    size_t len = 1u << 20;
    g_autofree uint8_t *bytes = g_malloc0(2 * len);
    struct varjfs_semantics s = {.size = sizeof s};
    varjfs_batch *b;
    FakeDaemon d = {.number = number};
    varjfs *v;

    fake_start(&d, serve_in_turn);
    assert_int_equal(varjfs_semantics_template("default", &s), 0);
    s.ordering = (uint8_t)ordering;
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", bytes, first_len, 0, NULL, NULL), 0);
    /* With the read that follows it is more than a request may return. */
    assert_int_equal(varjfs_object_write(b, "s", "o", "x", 1, 0, 0, NULL), 0);
    for (int i = 0; i < 17; i++) {
        assert_int_equal(varjfs_object_read(b, "s", "o", bytes, len, 0, NULL, NULL), 0);
    }
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* Both sides have the feature; fake_next looks at the flag. */
static void test_bare(void **state)
{
    size_t len = 3u << 20;
    g_autofree uint8_t *bytes = g_malloc0(len);
    varjfs_batch *b;
    FakeDaemon d = {.is_bare = true};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_write(b, "s", "o", bytes, len, 0, 0, NULL), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", bytes, len, 5, NULL, NULL), 0);
    assert_int_equal(varjfs_kv_delete(b, "s", "k", 1, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(bytes[len - 1], fake_byte(5 + len - 1));
    assert_int_equal(varjfs_sync(v), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

static void test_in_turn(void **state)
{
    (void)state;
    read_write_read(0, VARJFS_ORDERING_SEMI, 2u << 20);
    read_write_read(1, VARJFS_ORDERING_STRICT, 1u << 20);
}

/* ---- several at once --------------------------------------------------------------- */

/* Answers three requests, the last one first. */
static void serve_backwards(FakeDaemon *d)
{
    FakeRequest r[3];

    fake_hello(d, 0);
    for (size_t i = 0; i < 3; i++) {
        g_assert(fake_next(d, &r[i]));
    }
    for (size_t i = 3; i > 0; i--) {
        fake_answer(d, &r[i - 1]);
        fake_request_clear(&r[i - 1]);
    }
    fake_wait_end(d);
}

static void test_out_of_order(void **state)
{
    static const char *const names[] = {"o", "!\1", "!\4"};
    static const int expected[] = {0, -ENOENT, -ENOSPC};
    varjfs_batch *b[3];
    uint8_t read[3][4];
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_backwards);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(varjfs_batch_new(v, NULL, &b[i]), 0);
        assert_int_equal(varjfs_batch_wait(b[i]), -EINVAL);
        assert_int_equal(
            varjfs_object_read(b[i], "s", names[i], read[i], 4, i, NULL, NULL), 0);
        assert_int_equal(varjfs_batch_submit(b[i]), 0);
        assert_int_equal(varjfs_batch_submit(b[i]), -EBUSY);
        assert_int_equal(varjfs_batch_execute(b[i]), -EBUSY);
        assert_int_equal(varjfs_kv_delete(b[i], "s", "k", 1, NULL), -EBUSY);
        assert_int_equal(varjfs_object_delete(b[i], "s", "k", NULL), -EBUSY);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(varjfs_batch_wait(b[i]), expected[i]);
    }
    assert_int_equal(read[0][3], fake_byte(3));
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

static void test_in_flight_limit(void **state)
{
    varjfs_batch *b[VARJFS_IN_FLIGHT_MAX + 1];
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    for (size_t i = 0; i <= VARJFS_IN_FLIGHT_MAX; i++) {
        assert_int_equal(varjfs_batch_new(v, NULL, &b[i]), 0);
        assert_int_equal(varjfs_kv_delete(b[i], "s", "k", 1, NULL), 0);
        assert_int_equal(varjfs_batch_submit(b[i]),
                         i < VARJFS_IN_FLIGHT_MAX ? 0 : -EBUSY);
    }
    varjfs_batch_free(b[7]);
    assert_int_equal(varjfs_batch_submit(b[VARJFS_IN_FLIGHT_MAX]), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* Takes CANCEL for a request and obeys it. */
static void serve_cancel(FakeDaemon *d)
{
    FakeRequest r, cancel;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    g_assert(fake_next(d, &cancel));
    g_assert(cancel.frame.op == VJ_OP_CANCEL && cancel.message->len == 8);
    g_assert(cancel.frame.tag == 0);
    g_assert(vj_le64_get(cancel.message->data) == r.frame.tag);
    fake_reply(d, &r, VJ_WIRE_CANCELED, NULL, NULL);
    fake_request_clear(&r);
    fake_request_clear(&cancel);
    fake_wait_end(d); /* the rest of the batch is not sent */
}

static void test_cancel(void **state)
{
    g_autofree int *results = g_new(int, MANY);
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_cancel);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_batch_cancel(b), -EINVAL);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(varjfs_kv_delete(b, "s", "k", 1, &results[i]), 0);
    }
    assert_int_equal(varjfs_batch_submit(b), 0);
    assert_int_equal(varjfs_batch_cancel(b), 0);
    assert_int_equal(varjfs_batch_wait(b), -ECANCELED);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(results[i], -ECANCELED);
    }
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* ---- safety none ------------------------------------------------------------------- */

/* Answers a request when another one, of another key, has come: so nobody has waited. */
static void serve_late(FakeDaemon *d)
{
    FakeRequest first, second, sync;

    fake_hello(d, 0);
    g_assert(fake_next(d, &first));
    g_assert(fake_next(d, &second));
    fake_answer(d, &second);
    fake_answer(d, &first);
    g_assert(fake_next(d, &sync));
    g_assert(sync.frame.op == VARJFS_WIRE_SYNC);
    fake_reply(d, &sync, 0, NULL, NULL);
    fake_request_clear(&first);
    fake_request_clear(&second);
    fake_request_clear(&sync);
    fake_serve(d);
}

static void test_deferred(void **state)
{
    struct varjfs_semantics s;
    char value[8];
    int result = 1;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    semantics(&s, "temporary");
    s.consistency = VARJFS_CONSISTENCY_EVENTUAL;
    fake_start(&d, serve_late);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "!\4", 2, "v", 1, 0, &result), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(result, 0);
    assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_sync(v), -ENOSPC); /* of the first one */
    assert_int_equal(varjfs_sync(v), 0);
    /* What returns something is waited for, with its own error. */
    assert_int_equal(varjfs_kv_get(b, "s", "!\1", 2, value, 8, NULL, &result), 0);
    assert_int_equal(varjfs_batch_execute(b), -ENOENT);
    assert_int_equal(result, -ENOENT);
    assert_int_equal(varjfs_kv_put(b, "s", "!\5", 2, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_close(v), -EDQUOT);
    fake_stop(&d);
}

#define EARLY_MS 20

/* A request that names what an earlier one names is not sent before that is answered. */
static void serve_one_by_one(FakeDaemon *d)
{
    FakeRequest r;

    fake_hello(d, 0);
    while (fake_next(d, &r)) {
        struct pollfd next = {.fd = d->fd, .events = POLLIN};

        /* Time to be wrong in: what is sent too early ends this at once. */
        g_assert(poll(&next, 1, EARLY_MS) == 0);
        fake_answer(d, &r);
        fake_request_clear(&r);
    }
}

static void test_deferred_same_name(void **state)
{
    struct varjfs_semantics s;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    semantics(&s, "temporary");
    s.consistency = VARJFS_CONSISTENCY_EVENTUAL;
    fake_start(&d, serve_one_by_one);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(varjfs_object_write(b, "s", "o", "v", 1, i, 0, NULL), 0);
        assert_int_equal(varjfs_batch_execute(b), 0);
    }
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* Sends all of a long answer before it reads on: the library has to take it meanwhile. */
static void test_both_write(void **state)
{
    size_t len = VARJFS_WIRE_BATCH_RETURN_MAX;
    g_autofree uint8_t *in = g_malloc0(len), *out = g_malloc0(len);
    varjfs_batch *reads, *writes;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve_and_count);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &reads), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &writes), 0);
    assert_int_equal(varjfs_object_read(reads, "s", "o", in, len, 0, NULL, NULL), 0);
    assert_int_equal(varjfs_batch_submit(reads), 0);
    assert_int_equal(varjfs_object_write(writes, "s", "o", out, len, 0, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(writes), 0);
    assert_int_equal(varjfs_batch_wait(reads), 0);
    assert_int_equal(in[len - 1], fake_byte(len - 1));
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* ---- iteration --------------------------------------------------------------------- */

static void test_iterate(void **state)
{
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_object_iterate(v, "s", "name", &i), 0);
    for (char n = '0'; n < '3'; n++) {
        char expected[] = {'n', 'a', 'm', 'e', n, '\0'};

        assert_int_equal(varjfs_iterator_next(i, &entry), 1);
        assert_string_equal(entry.name, expected);
        assert_int_equal(entry.name_len, 5);
        assert_int_equal(entry.len, 0);
    }
    assert_int_equal(varjfs_iterator_next(i, &entry), 0);
    assert_int_equal(varjfs_iterator_next(i, &entry), 0);
    varjfs_iterator_free(i);
    varjfs_iterator_free(NULL);
    assert_int_equal(varjfs_kv_iterate(v, NULL, NULL, 0, &i), 0);
    assert_int_equal(varjfs_iterator_next(i, &entry), 1);
    assert_int_equal(varjfs_close(v), 0); /* frees it */
    fake_stop(&d);
}

/* A question is waited for, also where it returns no byte. */
static void test_deferred_question(void **state)
{
    struct varjfs_semantics s;
    int result = 1, results[2] = {1, 1};
    size_t len = 0;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    semantics(&s, "temporary");
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    assert_int_equal(varjfs_kv_get(b, "s", "k", 1, NULL, 0, &len, &result), 0);
    assert_int_equal(varjfs_batch_execute(b), -ERANGE);
    assert_int_equal(result, -ERANGE);
    assert_int_equal(len, strlen(FAKE_VALUE));
    assert_int_equal(varjfs_object_read(b, "s", "o", NULL, 0, 0, &len, &results[0]), 0);
    assert_int_equal(varjfs_object_read(b, "s", "!\1", NULL, 0, 0, NULL, &results[1]), 0);
    assert_int_equal(varjfs_batch_execute(b), -ENOENT);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -ENOENT);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* Flags that an operation does not have, and offsets of what goes to the end. */
static void test_refused_flags(void **state)
{
    struct varjfs_object_status status = {.size = sizeof status - 1};
    struct varjfs_entry entry = {.size = sizeof entry - 1};
    varjfs_iterator *i;
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    for (unsigned flags = 1; flags < 16; flags++) {
        bool write = flags == VARJFS_APPEND || flags == VARJFS_CREATE ||
                     flags == (VARJFS_APPEND | VARJFS_CREATE);

        assert_int_equal(varjfs_object_write(b, "s", "o", "a", 1, 0, flags, NULL),
                         write ? 0 : -EINVAL);
        assert_int_equal(varjfs_object_rwrite(b, "s", "o", "a", 1, 0, 0, flags, NULL),
                         flags == VARJFS_APPEND ? 0 : -EINVAL);
        assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "a", 1, flags, NULL),
                         flags == VARJFS_EXCLUSIVE ? 0 : -EINVAL);
    }
    assert_int_equal(varjfs_object_write(b, "s", "o", "a", 1, 1, VARJFS_APPEND, NULL),
                     -EINVAL);
    assert_int_equal(varjfs_object_rwrite(b, "s", "o", "a", 1, 0, 1, VARJFS_APPEND, NULL),
                     -EINVAL);
    assert_int_equal(varjfs_object_status(b, "s", "o", &status, NULL), -EINVAL);
    assert_int_equal(varjfs_kv_iterate(v, "s", NULL, 0, &i), 0);
    assert_int_equal(varjfs_iterator_next(i, &entry), -EINVAL);
    entry.size = sizeof entry;
    assert_int_equal(varjfs_iterator_next(i, &entry), 1);
    assert_int_equal(entry.size, sizeof entry);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* A program of a later version: what it has more is zero. */
static void test_later_structures(void **state)
{
    struct {
        struct varjfs_object_status status;
        uint64_t later;
    } s = {.status = {.size = sizeof s}, .later = 5};
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, serve);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_status(b, "s", "o", &s.status, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(s.status.size, sizeof s);
    assert_int_equal(s.status.bytes, 1000);
    assert_int_equal(s.later, 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* Parts of a long write to the end go there one by one. */
static void serve_long_append(FakeDaemon *d)
{
    g_autofree FakeOp *ops = NULL;
    FakeRequest r;
    uint32_t count;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    ops = fake_ops(&r, &count);
    g_assert(count == 3);
    for (uint32_t i = 0; i < count; i++) {
        g_assert(ops[i].flags == (VARJFS_WIRE_APPEND | VARJFS_WIRE_MAKE));
        g_assert(ops[i].offset == 0 && ops[i].bytes[0] == fake_byte(i * (uint64_t)STEP));
    }
    fake_answer(d, &r);
    fake_request_clear(&r);
    fake_wait_end(d);
}

static void test_long_append(void **state)
{
    g_autofree uint8_t *bytes = g_malloc(LONG_BYTES);
    varjfs_batch *b;
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    for (size_t i = 0; i < LONG_BYTES; i++) {
        bytes[i] = fake_byte(i);
    }
    fake_start(&d, serve_long_append);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_write(b, "s", "o", bytes, LONG_BYTES, 0,
                                         VARJFS_APPEND | VARJFS_CREATE, NULL),
                     0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

static void expect_end(FakeDaemon *d)
{
    uint8_t byte;

    fake_hello(d, 0);
    g_assert(recv(d->fd, &byte, 1, 0) == 0);
}

/* What a program's child has of the connection does not keep it open. */
static void test_close_beside_child(void **state)
{
    FakeDaemon d = {0};
    int ends[2], status;
    pid_t child;
    varjfs *v;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fake_start(&d, expect_end);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char byte;

        close(ends[1]);
        close(d.fd);                                 /* the daemon's */
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1); /* until its parent says so */
    }
    close(ends[0]);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* One batch, and SYNC behind it. */
static void serve_gathered(FakeDaemon *d)
{
    FakeRequest r;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r) && r.frame.op == VARJFS_WIRE_BATCH);
    fake_answer(d, &r);
    fake_request_clear(&r);
    g_assert(fake_next(d, &r) && r.frame.op == VARJFS_WIRE_SYNC);
    fake_reply(d, &r, 0, NULL, NULL);
    fake_request_clear(&r);
    g_assert(!fake_next(d, &r));
}

/* A child that closes what it has of a connection changes nothing for its parent. */
static void test_close_in_child(void **state)
{
    struct varjfs_semantics s;
    FakeDaemon d = {0};
    varjfs_batch *b;
    int status;
    pid_t child;
    varjfs *v;

    (void)state;
    fake_start(&d, serve_gathered);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    semantics(&s, "temporary");
    s.consistency = VARJFS_CONSISTENCY_SESSION;
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(varjfs_close(v) == -EPERM ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(varjfs_sync(v), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* What a program without a standard output prints does not go to the daemon. */
static void test_no_standard_descriptors(void **state)
{
    FakeDaemon d = {0};
    int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    varjfs *v;

    (void)state;
    assert_true(kept >= 0);
    fake_start(&d, expect_end);
    close(STDIN_FILENO);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_true(varjfs_descriptor(v) > STDERR_FILENO);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
}

static const struct CMUnitTest tests[] = {
    {"/batch/each-operation", test_each_operation, NULL, NULL, NULL},
    {"/batch/refused-names", test_refused_names, NULL, NULL, NULL},
    {"/batch/refused-settings", test_refused_settings, NULL, NULL, NULL},
    {"/batch/long", test_long_batch, NULL, NULL, NULL},
    {"/batch/strict-order", test_strict_order, NULL, NULL, NULL},
    {"/batch/atomic", test_atomic, NULL, NULL, NULL},
    {"/batch/long-writes", test_long_writes, NULL, NULL, NULL},
    {"/batch/long-write-fails", test_long_write_fails, NULL, NULL, NULL},
    {"/batch/long-read", test_long_read, NULL, NULL, NULL},
    {"/batch/long-read-ends", test_long_read_ends, NULL, NULL, NULL},
    {"/batch/bare", test_bare, NULL, NULL, NULL},
    {"/batch/in-turn", test_in_turn, NULL, NULL, NULL},
    {"/batch/out-of-order", test_out_of_order, NULL, NULL, NULL},
    {"/batch/in-flight-limit", test_in_flight_limit, NULL, NULL, NULL},
    {"/batch/cancel", test_cancel, NULL, NULL, NULL},
    {"/batch/deferred", test_deferred, NULL, NULL, NULL},
    {"/batch/deferred-same-name", test_deferred_same_name, NULL, NULL, NULL},
    {"/batch/deferred-question", test_deferred_question, NULL, NULL, NULL},
    {"/batch/refused-flags", test_refused_flags, NULL, NULL, NULL},
    {"/batch/later-structures", test_later_structures, NULL, NULL, NULL},
    {"/batch/long-append", test_long_append, NULL, NULL, NULL},
    {"/batch/both-write", test_both_write, NULL, NULL, NULL},
    {"/batch/iterate", test_iterate, NULL, NULL, NULL},
    {"/batch/no-standard-descriptors", test_no_standard_descriptors, NULL, NULL, NULL},
    {"/batch/close-beside-child", test_close_beside_child, NULL, NULL, NULL},
    {"/batch/close-in-child", test_close_in_child, NULL, NULL, NULL},
};

VJ_TEST_MAIN(tests)
