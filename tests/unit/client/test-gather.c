/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Operations that nobody waits for and that others need not see yet: in how few requests
 * they go out, in which order, and what makes them go
 */
#include "fake-daemon.h"

/* Requests that the daemon got. */
typedef struct Heard {
    unsigned requests, operations, syncs, pages;
    unsigned last;  /* operations of the last request */
    bool is_slow;   /* another request behind one that was not answered ends the test */
    char order[64]; /* the last byte of the name of each operation */
} Heard;

/* What is sent too early ends this at once; otherwise it is what the test takes. */
#define EARLY_MS 50

static void hear(Heard *h, const FakeRequest *r)
{
    uint32_t count;
    g_autofree FakeOp *ops = fake_ops(r, &count);

    h->requests++;
    h->last = count;
    for (uint32_t i = 0; i < count; i++) {
        if (h->operations + i + 1 < sizeof h->order) {
            h->order[h->operations + i] = (char)ops[i].name[ops[i].name_bytes - 1];
        }
        if (ops[i].kind == VARJFS_WIRE_OBJECT_WRITE) {
            for (uint32_t n = 0; n < ops[i].brings; n++) {
                g_assert(ops[i].bytes[n] == fake_byte(ops[i].offset + n));
            }
        }
    }
    h->operations += count;
}

static void serve_heard(FakeDaemon *d)
{
    Heard *h = (Heard *)(uintptr_t)d->data;
    FakeRequest r;

    fake_hello(d, 0);
    while (fake_next(d, &r)) {
        struct pollfd next = {.fd = d->fd, .events = POLLIN};

        g_assert(!h->is_slow || r.frame.op != VARJFS_WIRE_BATCH ||
                 poll(&next, 1, EARLY_MS) == 0);
        if (r.frame.op == VARJFS_WIRE_BATCH) {
            hear(h, &r);
            fake_answer(d, &r);
        } else if (r.frame.op == VARJFS_WIRE_SYNC) {
            h->syncs++;
            fake_reply(d, &r, 0, NULL, NULL);
        } else {
            h->pages++;
            fake_page(d, &r);
        }
        fake_request_clear(&r);
    }
}

typedef struct Fixture {
    Heard heard;
    FakeDaemon d;
    varjfs *v;
    struct varjfs_semantics semantics;
    varjfs_batch *b;
} Fixture;

static void begin(Fixture *f)
{
    *f = (Fixture){.semantics = {.size = sizeof f->semantics}};
    f->d.data = &f->heard;
    fake_start(&f->d, serve_heard);
    assert_int_equal(fake_open(&f->d, 0, &f->v), 0);
    assert_int_equal(varjfs_semantics_template("temporary", &f->semantics), 0);
    assert_int_equal(varjfs_batch_new(f->v, &f->semantics, &f->b), 0);
}

static void end(Fixture *f, int error)
{
    assert_int_equal(varjfs_close(f->v), error);
    fake_stop(&f->d);
}

/* One key, in a batch of its own. */
static void put(Fixture *f, unsigned number)
{
    char name[16];
    int result = 1;

    snprintf(name, sizeof name, "k%05u", number);
    assert_int_equal(varjfs_kv_put(f->b, "s", name, strlen(name), "value", 5, 0, &result),
                     0);
    assert_int_equal(varjfs_batch_execute(f->b), 0);
    assert_int_equal(result, 0);
}

static void write_object(Fixture *f, const char *name, uint64_t offset, size_t len)
{
    g_autofree uint8_t *bytes = g_malloc(len);

    for (size_t i = 0; i < len; i++) {
        bytes[i] = fake_byte(offset + i);
    }
    assert_int_equal(
        varjfs_object_write(f->b, "s", name, bytes, len, (off_t)offset, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(f->b), 0);
    memset(bytes, 0xee, len); /* it has a copy */
}

static void test_few_requests(void **state)
{
    Fixture f;

    (void)state;
    begin(&f);
    for (unsigned i = 0; i < 1300; i++) {
        put(&f, i);
    }
    assert_int_equal(varjfs_sync(f.v), 0);
    assert_int_equal(f.heard.requests, 3); /* 512, 512, 276 */
    assert_int_equal(f.heard.operations, 1300);
    assert_int_equal(f.heard.last, 276);
    assert_int_equal(f.heard.syncs, 1);
    put(&f, 0);
    end(&f, 0);
    assert_int_equal(f.heard.requests, 4);
}

/* Long ones as they are, and what does not fit any more. */
static void test_bytes(void **state)
{
    Fixture f;

    (void)state;
    begin(&f);
    for (unsigned i = 0; i < 100; i++) {
        write_object(&f, "o", (uint64_t)i * 8192, 8192);
    }
    assert_int_equal(varjfs_sync(f.v), 0);
    assert_int_equal(f.heard.requests, 4); /* 256 KiB each: 32, 32, 32, 4 */
    assert_int_equal(f.heard.last, 4);
    write_object(&f, "p", 0, 64 << 10);
    write_object(&f, "q", 0, (64 << 10) + 1); /* goes by itself, before the other */
    assert_int_equal(varjfs_sync(f.v), 0);
    assert_int_equal(f.heard.requests, 6);
    end(&f, 0);
}

/* A question about a name that is used is answered behind it; about another one not. */
static void test_questions(void **state)
{
    char value[8];
    Fixture f;

    (void)state;
    begin(&f);
    put(&f, 1);
    put(&f, 2);
    assert_int_equal(varjfs_kv_get(f.b, "s", "other", 5, value, sizeof value, NULL, NULL),
                     0);
    assert_int_equal(varjfs_batch_execute(f.b), 0);
    assert_int_equal(f.heard.operations, 1);
    assert_int_equal(
        varjfs_kv_get(f.b, "s", "k00001", 6, value, sizeof value, NULL, NULL), 0);
    assert_int_equal(varjfs_batch_execute(f.b), 0);
    assert_int_equal(f.heard.requests, 3);
    assert_string_equal(f.heard.order, "r121");
    end(&f, 0);
}

/* A page of names has them all. */
static void test_pages(void **state)
{
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;
    Fixture f;

    (void)state;
    begin(&f);
    put(&f, 1);
    assert_int_equal(varjfs_kv_iterate(f.v, "s", NULL, 0, &i), 0);
    assert_int_equal(varjfs_iterator_next(i, &entry), 1);
    assert_int_equal(f.heard.operations, 1);
    assert_int_equal(f.heard.pages, 1);
    varjfs_iterator_free(i);
    end(&f, 0);
}

/* Of one object: in the order in which they came, each request behind the answer to the
 * one before. */
static void test_one_object(void **state)
{
    Fixture f;

    (void)state;
    begin(&f);
    f.heard.is_slow = true;
    assert_int_equal(varjfs_object_create(f.b, "s", "o", NULL, NULL), 0);
    assert_int_equal(varjfs_batch_execute(f.b), 0);
    for (unsigned i = 0; i < 1100; i++) {
        write_object(&f, "o", i, 1);
    }
    assert_int_equal(varjfs_object_rename(f.b, "s", "o", "p", 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(f.b), 0);
    write_object(&f, "p", 5, 5);
    assert_int_equal(varjfs_sync(f.v), 0);
    assert_int_equal(f.heard.operations, 1 + 1100 + 1 + 1);
    assert_int_equal(f.heard.requests, 3);
    end(&f, 0);
}

/* Whoever wants others to see it soon does not wait for others. */
static void test_who_does_not_gather(void **state)
{
    varjfs_batch *b;
    Fixture f;

    (void)state;
    begin(&f);
    f.semantics.consistency = VARJFS_CONSISTENCY_EVENTUAL;
    assert_int_equal(varjfs_batch_new(f.v, &f.semantics, &b), 0);
    for (unsigned i = 0; i < 3; i++) {
        char name[] = {'e', (char)('0' + i), '\0'};

        assert_int_equal(varjfs_kv_put(b, "s", name, 2, "v", 1, 0, NULL), 0);
        assert_int_equal(varjfs_batch_execute(b), 0);
    }
    f.semantics.consistency = VARJFS_CONSISTENCY_NONE;
    f.semantics.atomicity = VARJFS_ATOMICITY_BATCH;
    varjfs_batch_free(b);
    assert_int_equal(varjfs_batch_new(f.v, &f.semantics, &b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "a", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    f.semantics.atomicity = VARJFS_ATOMICITY_NONE;
    f.semantics.ordering = VARJFS_ORDERING_STRICT;
    varjfs_batch_free(b);
    assert_int_equal(varjfs_batch_new(f.v, &f.semantics, &b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "b", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "c", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_sync(f.v), 0);
    assert_int_equal(f.heard.requests, 5);
    /* One operation has no order. */
    assert_int_equal(varjfs_kv_put(b, "s", "d", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "e", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_submit(b), 0);
    assert_int_equal(varjfs_batch_test(b), 1);
    assert_int_equal(varjfs_batch_wait(b), 0);
    assert_int_equal(varjfs_sync(f.v), 0);
    assert_int_equal(f.heard.requests, 6);
    end(&f, 0);
}

static void test_errors(void **state)
{
    Fixture f;

    (void)state;
    begin(&f);
    put(&f, 1);
    assert_int_equal(varjfs_kv_delete(f.b, "s", "!\1", 2, NULL), 0);
    assert_int_equal(varjfs_batch_execute(f.b), 0);
    put(&f, 2);
    assert_int_equal(varjfs_sync(f.v), -ENOENT);
    assert_int_equal(varjfs_sync(f.v), 0);
    assert_int_equal(varjfs_kv_delete(f.b, "s", "!\4", 2, NULL), 0);
    assert_int_equal(varjfs_batch_execute(f.b), 0);
    end(&f, -ENOSPC);
}

static void hang_up(FakeDaemon *d)
{
    fake_hello(d, 0);
}

/* What was gathered for a daemon that is gone is not done, and close says so. */
static void test_lost(void **state)
{
    struct varjfs_semantics s = {.size = sizeof s};
    FakeDaemon d = {0};
    varjfs_batch *b;
    varjfs *v;

    (void)state;
    fake_start(&d, hang_up);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_semantics_template("temporary", &s), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &b), 0);
    assert_int_equal(varjfs_kv_put(b, "s", "k", 1, "v", 1, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_int_equal(varjfs_close(v), -ECONNRESET);
    fake_stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_requests), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_questions),    cmocka_unit_test(test_pages),
        cmocka_unit_test(test_one_object),   cmocka_unit_test(test_who_does_not_gather),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
