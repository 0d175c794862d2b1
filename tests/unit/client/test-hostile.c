/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-hostile.c - libvarjfs beside a daemon that sends what it must not, in pieces, too
 * late, or not at all
 *
 * What breaks the protocol is -EPROTO, of this call and of each one after it.
 */
#include "../../../lib/client/client-private.h"
#include "fake-daemon.h"

#include <poll.h>

#define SHORT_MS 50

/* ---- hello ------------------------------------------------------------------------- */

static void refuse(FakeDaemon *d)
{
    fake_hello(d, (uint32_t)d->number);
    fake_wait_end(d);
}

static void test_refused(void **state)
{
    static const struct {
        uint32_t status;
        int error;
    } refusals[] = {
        {VJ_WIRE_REFUSED, -EACCES},   {VJ_WIRE_UNSUPPORTED, -EPROTO},
        {VJ_WIRE_EMPTY, -ENOENT},     {VJ_WIRE_BUSY, -EBUSY},
        {VJ_WIRE_NO_MEMORY, -ENOMEM}, {VJ_WIRE_LEAVING, -ECONNREFUSED},
        {VJ_WIRE_PROTOCOL, -EPROTO},  {99, -EIO},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(refusals); i++) {
        FakeDaemon d = {.number = refusals[i].status};
        varjfs *v = (varjfs *)&d;

        fake_start(&d, refuse);
        assert_int_equal(fake_open(&d, 0, &v), refusals[i].error);
        assert_null(v);
        assert_non_null(strstr(varjfs_open_error(), "because"));
        assert_null(strchr(varjfs_open_error(), '\n'));
        fake_stop(&d);
    }
}

/* Sends d->data, d->number bytes, instead of a reply to hello. */
static void hello_bytes(FakeDaemon *d)
{
    FakeRequest r;

    g_assert(fake_next(d, &r));
    fake_request_clear(&r);
    fake_send(d, d->data, (size_t)d->number);
    shutdown(d->fd, SHUT_WR);
    fake_wait_end(d);
}

static void expect_hello(const void *bytes, size_t len, int error)
{
    FakeDaemon d = {.data = bytes, .number = (int64_t)len};
    varjfs *v;

    fake_start(&d, hello_bytes);
    assert_int_equal(fake_open(&d, 0, &v), error);
    assert_null(v);
    assert_true(strlen(varjfs_open_error()) > 0);
    fake_stop(&d);
}

static void test_no_hello(void **state)
{
    static const uint8_t zero[200], version2[55] = {2}, version1[55] = {1};
    g_autoptr(GByteArray) other = NULL, shorter = NULL, with_bulk = NULL;

    (void)state;
    expect_hello(zero, 0, -ECONNRESET);
    expect_hello(zero, 20, -ECONNRESET);
    expect_hello(zero, sizeof zero, -EPROTO);
    expect_hello("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n    ", 50,
                 -EPROTO);
    other = fake_frame(VJ_OP_HELLO, 1, 0, vj_slice(version2, 55), vj_slice(NULL, 0));
    expect_hello(other->data, other->len, -EPROTO);
    shorter = fake_frame(VJ_OP_HELLO, 1, 0, vj_slice(version1, 54), vj_slice(NULL, 0));
    expect_hello(shorter->data, shorter->len, -EPROTO);
    with_bulk = fake_frame(VJ_OP_HELLO, 1, 0, vj_slice(version1, 55), vj_slice(zero, 1));
    expect_hello(with_bulk->data, with_bulk->len, -EPROTO);
}

static void silent(FakeDaemon *d)
{
    fake_wait_end(d);
}

static void test_silent_hello(void **state)
{
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, silent);
    assert_int_equal(fake_open(&d, SHORT_MS, &v), -ETIMEDOUT);
    fake_stop(&d);
}

static void test_addresses(void **state)
{
    g_autofree char *directory = vj_test_make_dir(), *path = NULL, *address = NULL;
    struct varjfs_options o = {.size = sizeof o, .volume = "v"};
    varjfs *v;

    (void)state;
    path = g_strconcat(directory, "/no", NULL);
    address = g_strconcat("unix:", path, NULL);
    assert_int_equal(varjfs_open(address, &o, &v), -ECONNREFUSED);
    assert_int_equal(varjfs_open(path, NULL, &v), -ENOENT);
    assert_non_null(strstr(varjfs_open_error(), path));
    assert_int_equal(varjfs_open(directory, NULL, &v), -ENOENT);
    assert_non_null(strstr(varjfs_open_error(), "mkfs.varjfs"));
    assert_int_equal(varjfs_open("/dev/null", NULL, &v), -ENOTDIR);
    assert_int_equal(varjfs_open("tcp:host", NULL, &v), -EPROTONOSUPPORT);
    assert_int_equal(varjfs_open("", NULL, &v), -EINVAL);
    assert_int_equal(varjfs_open(NULL, NULL, &v), -EINVAL);
    assert_int_equal(varjfs_open("unix:", &o, &v), -EINVAL);
    assert_int_equal(varjfs_open(address, NULL, &v), -EINVAL); /* no volume */
    o.volume = "-v";
    assert_int_equal(varjfs_open(address, &o, &v), -EINVAL);
    o.volume = "v";
    o.timeout_ms = -2;
    assert_int_equal(varjfs_open(address, &o, &v), -EINVAL);
    o.timeout_ms = 0;
    o.flags = VARJFS_READ_ONLY << 1;
    assert_int_equal(varjfs_open(address, &o, &v), -EINVAL);
    o.flags = 0;
    o.size = 4;
    assert_int_equal(varjfs_open(address, &o, &v), -EINVAL);
    assert_int_equal(varjfs_close(NULL), 0);
    vj_test_remove_dir(g_steal_pointer(&directory));
}

/* A path that no address of a socket has room for. */
static void serve(FakeDaemon *d)
{
    fake_hello(d, 0);
    fake_serve(d);
}

static void test_long_path(void **state)
{
    g_autofree char *top = vj_test_make_dir(), *name = g_strnfill(200, 'd');
    g_autofree char *deep = g_strdup_printf("%s/%s", top, name), *moved = NULL;
    g_autofree char *low = g_strdup_printf("%s/low", top);
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    assert_int_equal(mkdir(low, 0700), 0);
    fake_listen(&d, low);
    assert_int_equal(rename(low, deep), 0);
    g_free(d.address);
    d.address = g_strdup_printf("unix:%s/varjfsd.sock", deep);
    d.script = serve;
    d.thread = g_thread_new("fake-daemon", fake_run, &d);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_sync(v), 0);
    assert_int_equal(varjfs_close(v), 0);
    g_free(d.directory);
    d.directory = g_steal_pointer(&top);
    fake_stop(&d);
}

/* ---- replies that must not be ------------------------------------------------------ */

/* What is changed of a reply to a read, a status and a get: 4 + 35 + 5 bytes. */
typedef enum Flaw {
    FLAW_NONE, /* so that the others are known to be what fails */
    FLAW_MAGIC,
    FLAW_VERSION,
    FLAW_REQUEST,
    FLAW_FLAG,
    FLAW_RESERVED,
    FLAW_HEAD_SUM,
    FLAW_BODY_SUM,
    FLAW_BARE, /* not agreed on */
    FLAW_SUM_OF_NOTHING,
    FLAW_OP,
    FLAW_FEWER_RESULTS,
    FLAW_MORE_RESULTS,
    FLAW_LESS_BULK,
    FLAW_MORE_BULK,
    FLAW_READ_TOO_LONG,
    FLAW_READ_ENORMOUS,
    FLAW_STATUS_TOO_LONG,
    FLAW_STATUS_TOO_SHORT,
    FLAW_STATUS_TEXT,
    FLAW_VALUE_TOO_LONG,
    FLAW_RANGE_THAT_FITS,
    FLAW_RANGE_ENORMOUS,
    FLAW_LONG_MESSAGE,
    FLAW_LONG_BULK,
    FLAW_FAILED_WITH_BULK,
    FLAW_FAILED_WITH_LONG_TEXT,
    FLAW_COUNT
} Flaw;

typedef struct Reply {
    uint32_t status, statuses[3];
    uint64_t bytes[3];
    size_t results, bulk;
    bool has_nul;
} Reply;

static void spoil_results(Reply *r, Flaw flaw)
{
    switch (flaw) {
    case FLAW_FEWER_RESULTS:
        r->results = 2;
        r->bulk = 4 + 35;
        break;
    case FLAW_MORE_RESULTS:
        r->results = 4;
        break;
    case FLAW_LESS_BULK:
        r->bulk--;
        break;
    case FLAW_MORE_BULK:
        r->bulk++;
        break;
    case FLAW_READ_TOO_LONG:
        r->bytes[0] = 5;
        r->bulk++;
        break;
    case FLAW_READ_ENORMOUS:
        r->bytes[0] = UINT64_MAX;
        break;
    case FLAW_STATUS_TOO_LONG:
        r->bulk += VARJFS_WIRE_STATUS_MAX + 1 - r->bytes[1];
        r->bytes[1] = VARJFS_WIRE_STATUS_MAX + 1;
        break;
    case FLAW_STATUS_TOO_SHORT:
        r->bulk -= 4;
        r->bytes[1] = VARJFS_WIRE_STATUS_BYTES - 1;
        break;
    case FLAW_STATUS_TEXT:
        r->has_nul = true;
        break;
    case FLAW_VALUE_TOO_LONG:
        r->bytes[2] = 9;
        r->bulk += 4;
        break;
    case FLAW_RANGE_THAT_FITS:
        r->statuses[2] = VARJFS_WIRE_RANGE;
        r->bulk -= 5;
        break;
    case FLAW_RANGE_ENORMOUS:
        r->statuses[2] = VARJFS_WIRE_RANGE;
        r->bytes[2] = VARJFS_WIRE_VALUE_MAX + 1;
        r->bulk -= 5;
        break;
    case FLAW_FAILED_WITH_BULK:
        r->status = VJ_WIRE_FULL;
        r->results = 0;
        break;
    case FLAW_FAILED_WITH_LONG_TEXT:
        r->status = VJ_WIRE_FULL;
        r->results = 22; /* 264 bytes */
        r->bulk = 0;
        break;
    default:
        break;
    }
}

static void resum(GByteArray *frame)
{
    fake_put(frame->data + 40, vj_checksum64(frame->data, 40), 8);
}

static void spoil_head(GByteArray *frame, Flaw flaw)
{
    switch (flaw) {
    case FLAW_MAGIC:
        frame->data[0] ^= 1;
        break;
    case FLAW_VERSION:
        frame->data[4] = 2;
        break;
    case FLAW_REQUEST:
        frame->data[5] = 0;
        break;
    case FLAW_FLAG:
        frame->data[5] = 3;
        break;
    case FLAW_OP:
        frame->data[6] ^= 1;
        break;
    case FLAW_RESERVED:
        frame->data[28] = 1;
        break;
    case FLAW_BODY_SUM: /* also of a bare reply */
        frame->data[VJ_FRAME_HEAD_BYTES - 16] ^= 1;
        break;
    case FLAW_SUM_OF_NOTHING:
        memset(frame->data + 20, 0, 8);
        break;
    case FLAW_LONG_MESSAGE:
        fake_put(frame->data + 20, UINT32_MAX, 4);
        break;
    case FLAW_LONG_BULK:
        fake_put(frame->data + 24, UINT32_MAX, 4);
        break;
    case FLAW_HEAD_SUM:
        frame->data[47] ^= 1;
        return;
    default:
        return;
    }
    resum(frame);
}

static void send_flawed(FakeDaemon *d)
{
    static const uint8_t zero[1000];
    g_autoptr(GByteArray) message = g_byte_array_new(), bulk = g_byte_array_new();
    g_autoptr(GByteArray) frame = NULL;
    Reply reply = {.bytes = {4, 35, 5}, .results = 3, .bulk = 4 + 35 + 5};
    FakeRequest r;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    spoil_results(&reply, *(const Flaw *)d->data);
    for (size_t i = 0; i < reply.results; i++) {
        fake_put_result(message, i < 3 ? reply.statuses[i] : 0,
                        i < 3 ? reply.bytes[i] : 0);
    }
    g_byte_array_append(bulk, zero, (guint)reply.bulk);
    if (reply.bulk >= 4 + 35) {
        memcpy(bulk->data + 4 + 32, reply.has_nul ? "l\0z" : "lz4", 3);
    }
    frame = fake_frame(r.frame.op, r.frame.tag, reply.status, fake_slice(message),
                       fake_slice(bulk));
    if (d->is_bare != (*(const Flaw *)d->data == FLAW_BARE)) {
        fake_make_bare(frame);
    }
    spoil_head(frame, *(const Flaw *)d->data);
    fake_send(d, frame->data, frame->len);
    fake_request_clear(&r);
    fake_wait_end(d);
}

static int read_status_get(varjfs_batch *b, int results[3])
{
    static char bytes[4], value[8];
    static struct varjfs_object_status status = {.size = sizeof status};

    assert_int_equal(varjfs_object_read(b, "s", "o", bytes, 4, 0, NULL, &results[0]), 0);
    assert_int_equal(varjfs_object_status(b, "s", "o", &status, &results[1]), 0);
    assert_int_equal(varjfs_kv_get(b, "s", "k", 1, value, 8, NULL, &results[2]), 0);
    return varjfs_batch_execute(b);
}

static void expect_flaws(bool is_bare)
{
    for (Flaw flaw = FLAW_NONE; flaw < FLAW_COUNT; flaw++) {
        FakeDaemon d = {.data = &flaw, .is_bare = is_bare};
        /* Who has the feature need not use it. */
        bool is_none = flaw == FLAW_NONE || (flaw == FLAW_BARE && is_bare);
        int results[3] = {1, 1, 1}, expected = is_none ? 0 : -EPROTO, rc;
        varjfs_iterator *i;
        struct varjfs_entry entry = {.size = sizeof entry};
        varjfs_batch *b;
        varjfs *v;

        fake_start(&d, send_flawed);
        assert_int_equal(fake_open(&d, 0, &v), 0);
        assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
        rc = read_status_get(b, results);
        if (rc != expected) {
            fail_msg("flaw %d: %d", (int)flaw, rc);
        }
        if (!is_none) {
            assert_int_equal(read_status_get(b, results), -EPROTO);
            for (size_t n = 0; n < 3; n++) {
                assert_int_equal(results[n], -EPROTO);
            }
            assert_int_equal(varjfs_sync(v), -EPROTO);
            assert_int_equal(varjfs_kv_iterate(v, "s", NULL, 0, &i), 0);
            assert_int_equal(varjfs_iterator_next(i, &entry), -EPROTO);
            assert_int_equal(varjfs_iterator_next(i, &entry), -EPROTO);
        }
        assert_int_equal(varjfs_close(v), 0);
        fake_stop(&d);
    }
}

static void test_flaws(void **state)
{
    (void)state;
    expect_flaws(false);
    expect_flaws(true);
}

/* ---- pages that must not be -------------------------------------------------------- */

typedef struct Page {
    const char *message, *bulk;
    size_t message_bytes, bulk_bytes;
} Page;

#define PAGE(message_, bulk_)                                                            \
    {                                                                                    \
        (message_), (bulk_), sizeof(message_) - 1, sizeof(bulk_) - 1                     \
    }

static void send_page(FakeDaemon *d)
{
    const Page *page = d->data;
    FakeRequest r;

    fake_hello(d, 0);
    while (fake_next(d, &r)) {
        g_autoptr(GByteArray) frame =
            fake_frame(r.frame.op, r.frame.tag, 0,
                       vj_slice((const uint8_t *)page->message, page->message_bytes),
                       vj_slice((const uint8_t *)page->bulk, page->bulk_bytes));

        fake_send(d, frame->data, frame->len);
        fake_request_clear(&r);
    }
}

static int walk(const Page *page, bool keys, const char *space, const char *prefix)
{
    FakeDaemon d = {.data = page};
    struct varjfs_entry entry = {.size = sizeof entry};
    varjfs_iterator *i;
    varjfs *v;
    int rc;

    fake_start(&d, send_page);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    if (keys) {
        rc = varjfs_kv_iterate(v, space, prefix, prefix == NULL ? 0 : strlen(prefix), &i);
    } else {
        rc = varjfs_object_iterate(v, space, prefix, &i);
    }
    assert_int_equal(rc, 0);
    do {
        rc = varjfs_iterator_next(i, &entry);
    } while (rc == 1);
    assert_int_equal(varjfs_iterator_next(i, &entry), rc);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
    return rc;
}

static void test_pages(void **state)
{
    static const Page two = PAGE("\0\2\0\0\0", "\1\0\0\0\0\0a\1\0\0\0\0\0b");
    static const Page none = PAGE("\0\0\0\0\0", "");
    static const Page with_value = PAGE("\0\1\0\0\0", "\1\0\2\0\0\0avv");
    static const Page wrong[] = {
        PAGE("\0\2\0\0\0", "\1\0\0\0\0\0b\1\0\0\0\0\0a"), /* out of order */
        PAGE("\0\2\0\0\0", "\1\0\0\0\0\0a\1\0\0\0\0\0a"), /* twice */
        PAGE("\1\2\0\0\0", "\1\0\0\0\0\0a\1\0\0\0\0\0b"), /* the same page for ever */
        PAGE("\1\0\0\0\0", ""),                           /* more, and no entry */
        PAGE("\2\1\0\0\0", "\1\0\0\0\0\0a"),
        PAGE("\0\1\0\0", "\1\0\0\0\0\0a"),
        PAGE("\0\1\0\0\0\0", "\1\0\0\0\0\0a"),
        PAGE("\0\1\0\0\0", "\0\0\0\0\0\0"), /* no name */
        PAGE("\0\1\0\0\0", "\1\0\0\0\0\0/"),
        PAGE("\0\1\0\0\0", "\2\0\0\0\0\0.."),
        PAGE("\0\1\0\0\0", "\2\0\0\0\0\0a"), /* behind the end */
        PAGE("\0\1\0\0\0", "\1\0\377\377\377\377a"),
        PAGE("\0\1\0\0\0", "\1\0\0\0\0"),
        PAGE("\0\1\0\0\0", "\1\0\0\0\0\0ab"), /* more than the entries */
        PAGE("\0\0\0\0\0", "\1\0\0\0\0\0a"),
        PAGE("\0\2\0\0\0", "\1\0\0\0\0\0a"),
        PAGE("\0\377\377\377\377", "\1\0\0\0\0\0a"),
        PAGE("\0\1\0\0\0", "\1\0\1\0\0\0av"), /* an object has no value */
    };

    (void)state;
    assert_int_equal(walk(&two, false, "s", NULL), 0);
    assert_int_equal(walk(&two, true, "s", NULL), 0);
    assert_int_equal(walk(&two, false, NULL, NULL), 0);
    assert_int_equal(walk(&none, false, "s", "x"), 0);
    assert_int_equal(walk(&with_value, true, "s", "a"), 0);
    assert_int_equal(walk(&with_value, true, NULL, NULL), -EPROTO); /* a namespace */
    assert_int_equal(walk(&two, false, "s", "b"), -EPROTO);         /* another prefix */
    assert_int_equal(walk(&two, true, "s", "ab"), -EPROTO);
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        int rc = walk(&wrong[i], false, "s", NULL);

        if (rc != -EPROTO) {
            fail_msg("page %zu: %d", i, rc);
        }
    }
}

/* ---- pieces, and what nobody waits for --------------------------------------------- */

static void send_pieces(FakeDaemon *d)
{
    FakeRequest r;
    const uint8_t *at;
    g_autoptr(GByteArray) all = g_byte_array_new(), message = g_byte_array_new();
    g_autofree uint8_t *zero = g_malloc0(200000);

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    for (unsigned i = 0; i < 3; i++) {
        /* Signs of life, and a reply that nobody asked for. */
        g_autoptr(GByteArray) ping =
            fake_frame(VJ_OP_PING, 0, 0, vj_slice(NULL, 0), vj_slice(NULL, 0));
        g_autoptr(GByteArray) other =
            fake_frame(VJ_OP_GET, 77, i, vj_slice(zero, 30000), vj_slice(zero, 200000));

        g_byte_array_append(all, ping->data, ping->len);
        if (i == 2) {
            g_byte_array_append(all, other->data, other->len);
        }
    }
    fake_put_result(message, 0, 4);
    {
        g_autoptr(GByteArray) frame =
            fake_frame(r.frame.op, r.frame.tag, 0, fake_slice(message),
                       vj_slice((const uint8_t *)"abcd", 4));

        g_byte_array_append(all, frame->data, frame->len);
        g_byte_array_append(all, frame->data, frame->len); /* twice: nobody waits now */
    }
    at = all->data;
    for (size_t left = all->len, step; left > 0; left -= step, at += step) {
        step = left > 400 && left < all->len - 400 ? MIN(left - 400, 4000) : 1;
        fake_send(d, at, step);
    }
    fake_request_clear(&r);
    fake_serve(d);
}

static void test_pieces(void **state)
{
    FakeDaemon d = {0};
    char bytes[4];
    varjfs_batch *b;
    varjfs *v;

    (void)state;
    fake_start(&d, send_pieces);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", bytes, 4, 0, NULL, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), 0);
    assert_memory_equal(bytes, "abcd", 4);
    assert_int_equal(varjfs_sync(v), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* Answers when it was asked whether it lives. */
static void answer_after_ping(FakeDaemon *d)
{
    FakeRequest r, ping;

    fake_hello(d, 0);
    d->gives_ping = true;
    g_assert(fake_next(d, &r));
    g_assert(fake_next(d, &ping));
    g_assert(ping.frame.op == VJ_OP_PING && ping.frame.tag != 0);
    fake_reply(d, &ping, 0, NULL, NULL);
    fake_reply(d, &r, 0, NULL, NULL);
    fake_request_clear(&r);
    fake_request_clear(&ping);
    fake_wait_end(d);
}

static void test_ping(void **state)
{
    FakeDaemon d = {0};
    varjfs *v;

    (void)state;
    fake_start(&d, answer_after_ping);
    assert_int_equal(fake_open(&d, -1, &v), 0);
    assert_int_equal(varjfs_sync(v), 0);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

/* ---- connections that end, and daemons that say nothing ---------------------------- */

/* Sends so many bytes of a reply of 48 + 12 + 4, and ends, or (below 0) says no more. */
static void send_part(FakeDaemon *d)
{
    g_autoptr(GByteArray) message = g_byte_array_new(), frame = NULL;
    int64_t part = d->number;
    FakeRequest r;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    fake_put_result(message, 0, 4);
    frame = fake_frame(r.frame.op, r.frame.tag, 0, fake_slice(message),
                       vj_slice((const uint8_t *)"abcd", 4));
    fake_send(d, frame->data, (size_t)ABS(part) - 1);
    fake_request_clear(&r);
    if (part < 0) {
        fake_wait_end(d);
    }
}

static void expect_part(int64_t part, int error)
{
    FakeDaemon d = {.number = part};
    struct varjfs_semantics s = {.size = sizeof s};
    varjfs_batch *b, *other, *deferred;
    char bytes[4];
    int result = 1;
    varjfs *v;

    fake_start(&d, send_part);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    v->timeout_ms = part < 0 ? SHORT_MS : v->timeout_ms;
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &other), 0);
    assert_int_equal(varjfs_semantics_template("temporary", &s), 0);
    assert_int_equal(varjfs_batch_new(v, &s, &deferred), 0);
    assert_int_equal(varjfs_object_read(b, "s", "o", bytes, 4, 0, NULL, &result), 0);
    assert_int_equal(varjfs_batch_submit(b), 0);
    assert_int_equal(varjfs_batch_wait(b), error);
    assert_int_equal(result, error);
    assert_int_equal(varjfs_kv_delete(other, "s", "k", 1, &result), 0);
    assert_int_equal(varjfs_batch_submit(other), error);
    varjfs_batch_free(other);
    assert_int_equal(varjfs_kv_delete(deferred, "s", "k", 1, &result), 0);
    assert_int_equal(varjfs_batch_execute(deferred), error);
    assert_int_equal(result, error);
    assert_int_equal(varjfs_sync(v), error);
    assert_int_equal(varjfs_close(v), 0); /* all was said */
    fake_stop(&d);
}

static void test_lost(void **state)
{
    static const int64_t parts[] = {0, 1, 47, 48, 50, 60, 63};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++) {
        expect_part(parts[i] + 1, -ECONNRESET);
    }
}

static void test_late(void **state)
{
    static const int64_t parts[] = {0, 1, 48, 60, 63};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++) {
        expect_part(-parts[i] - 1, -ETIMEDOUT);
    }
}

/* Reads nothing of a long request; or ends in the midst of it. */
static void read_nothing(FakeDaemon *d)
{
    uint8_t byte;

    fake_hello(d, 0);
    if (d->number == 0) {
        g_assert(fake_recv(d, &byte, 1));
        return;
    }
    while (recv(d->fd, &byte, 1, MSG_PEEK) > 0) {
        struct pollfd end = {.fd = d->fd, .events = POLLRDHUP};

        if (poll(&end, 1, 30000) > 0) {
            break;
        }
    }
}

static void test_long_request(void **state)
{
    size_t len = VARJFS_WIRE_WRITE_MAX;
    g_autofree uint8_t *bytes = g_malloc0(len);

    (void)state;
    for (int silent_peer = 0; silent_peer <= 1; silent_peer++) {
        FakeDaemon d = {.number = silent_peer};
        struct varjfs_semantics s = {.size = sizeof s};
        int error = silent_peer ? -ETIMEDOUT : -ECONNRESET, result = 1;
        varjfs_batch *b;
        varjfs *v;

        fake_start(&d, read_nothing);
        assert_int_equal(fake_open(&d, 0, &v), 0);
        v->timeout_ms = silent_peer ? SHORT_MS : v->timeout_ms;
        assert_int_equal(varjfs_semantics_template("temporary", &s), 0);
        assert_int_equal(varjfs_batch_new(v, silent_peer ? &s : NULL, &b), 0);
        assert_int_equal(varjfs_object_write(b, "s", "o", bytes, len, 0, 0, &result), 0);
        assert_int_equal(varjfs_batch_execute(b), error);
        assert_int_equal(result, error);
        varjfs_close(v);
#ifdef FAKE_TLS
        /* The end stands behind what nobody reads, so the script does not see it. */
        shutdown(d.fd, SHUT_RDWR);
#endif
        fake_stop(&d);
    }
}

/* Reads nothing, or takes nothing any more, and sends for ever what nobody waits for. */
static void flood(FakeDaemon *d)
{
    g_autofree uint8_t *zero = g_malloc0(60000);
    g_autoptr(GByteArray) frame =
        fake_frame(VJ_OP_GET, 77, 0, vj_slice(zero, 60000), vj_slice(NULL, 0));
    ssize_t sent;

    fake_hello(d, 0);
    if (d->number == 1) {
        shutdown(d->fd, SHUT_RD);
    }
    do {
        sent = send(d->fd, frame->data, frame->len, MSG_NOSIGNAL);
    } while (sent == (ssize_t)frame->len);
}

#ifdef FAKE_TLS
#define SHUT_MAX 0 /* TCP does not tell that nobody reads */
#else
#define SHUT_MAX 1
#endif

static void test_flood(void **state)
{
    size_t len = VARJFS_WIRE_WRITE_MAX;
    g_autofree uint8_t *bytes = g_malloc0(len);

    (void)state;
    for (int shut = 0; shut <= SHUT_MAX; shut++) {
        FakeDaemon d = {.number = shut};
        varjfs_batch *b;
        varjfs *v;

        fake_start(&d, flood);
        assert_int_equal(fake_open(&d, 0, &v), 0);
        v->timeout_ms = shut ? v->timeout_ms : SHORT_MS;
        assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
        assert_int_equal(varjfs_object_write(b, "s", "o", bytes, len, 0, 0, NULL), 0);
        assert_int_equal(varjfs_batch_execute(b), shut ? -ECONNRESET : -ETIMEDOUT);
        assert_int_equal(varjfs_close(v), 0);
        fake_stop(&d);
    }
}

/* The daemon says why before it closes, and has not read all. */
static void answer_early(FakeDaemon *d)
{
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    FakeRequest r;

    fake_hello(d, 0);
    g_assert(fake_recv(d, head, sizeof head));
    g_assert(vj_frame_decode(head, &r.frame) == 0);
    fake_reply(d, &r, VJ_WIRE_TOO_LARGE, NULL, NULL);
    shutdown(d->fd, SHUT_RD);
}

static void test_early_answer(void **state)
{
    size_t len = VARJFS_WIRE_WRITE_MAX;
    g_autofree uint8_t *bytes = g_malloc0(len);
    FakeDaemon d = {0};
    varjfs_batch *b;
    varjfs *v;

    (void)state;
    fake_start(&d, answer_early);
    assert_int_equal(fake_open(&d, 0, &v), 0);
    assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
    assert_int_equal(varjfs_object_write(b, "s", "o", bytes, len, 0, 0, NULL), 0);
    assert_int_equal(varjfs_batch_execute(b), -EFBIG);
    assert_int_equal(varjfs_sync(v), -ECONNRESET);
    assert_int_equal(varjfs_close(v), 0);
    fake_stop(&d);
}

static const struct CMUnitTest tests[] = {
    {"/hello/refused", test_refused, NULL, NULL, NULL},
    {"/hello/none", test_no_hello, NULL, NULL, NULL},
    {"/hello/silent", test_silent_hello, NULL, NULL, NULL},
    {"/hello/addresses", test_addresses, NULL, NULL, NULL},
    {"/hello/long-path", test_long_path, NULL, NULL, NULL},
    {"/hostile/flaws", test_flaws, NULL, NULL, NULL},
    {"/hostile/pages", test_pages, NULL, NULL, NULL},
    {"/hostile/pieces", test_pieces, NULL, NULL, NULL},
    {"/hostile/ping", test_ping, NULL, NULL, NULL},
    {"/hostile/lost", test_lost, NULL, NULL, NULL},
    {"/hostile/late", test_late, NULL, NULL, NULL},
    {"/hostile/long-request", test_long_request, NULL, NULL, NULL},
    {"/hostile/flood", test_flood, NULL, NULL, NULL},
    {"/hostile/early-answer", test_early_answer, NULL, NULL, NULL},
};

VJ_TEST_MAIN(tests)
