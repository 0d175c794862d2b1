/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-hostile.c - peers that break the protocol, on either side
 *
 * Whatever one peer does, others are served meanwhile, memory is bounded, and nothing is
 * held when it is gone.
 */
#include "raw-peer.h"

#include <sys/ioctl.h>

static const VjSlice empty;

/* Another peer is served. */
static void others_are_served(RpcTest *t)
{
    VjRpcClient *c = test_client(t);
    g_autoptr(VjRpcCall) call = test_call(OP_ECHO, "well behaved");

    assert_int_equal(vj_rpc_run(c, call), 0);
    expect_reply(call, "well behaved");
    vj_rpc_client_free(c);
}

/* All are gone, nothing is held; so many broke the protocol. */
static void expect_clean(RpcTest *t, unsigned gone, uint64_t protocol_errors)
{
    VjRpcServerStats stats;

    test_wait(t, &t->gone, gone);
    do {
        g_thread_yield();
        vj_rpc_server_stats(t->server, &stats);
    } while (stats.connections > 0);
    assert_int_equal(stats.protocol_errors, protocol_errors);
    assert_int_equal(stats.held_bytes, 0);
    expect_count(t, &t->gone, gone);
}

static void begin(RpcTest *t)
{
    test_begin(t, NULL);
    test_start_server(t);
}

/* ---- clients that are hostile ------------------------------------------------------ */

static void garbage(void **state)
{
    RpcTest t;
    VjRng rng;
    unsigned rounds = 0;

    (void)state;
    begin(&t);
    vj_rng_init(&rng, 1);
    for (size_t len = VJ_FRAME_HEAD_BYTES; len < 100000; len *= 3, rounds += 2) {
        g_autofree uint8_t *bytes = g_malloc(len);
        int before = raw_connect(&t), after = raw_connect_and_hello(&t);

        vj_rng_bytes(&rng, bytes, len);
        raw_send(before, bytes, len);
        raw_send(after, bytes, len);
        raw_expect_end(before);
        raw_expect_end(after);
    }
    others_are_served(&t);
    expect_clean(&t, rounds / 2 + 1, rounds);
    test_end(&t);
}

/* Each bit of the head of a request, and of its body. */
static void flipped_bits(void **state)
{
    RpcTest t;
    VjFrame frame = {.op = OP_QUICK, .tag = 1};
    g_autoptr(GByteArray) bytes =
        raw_frame(&frame, vj_slice("message", 7), vj_slice("bulk", 4));
    unsigned bits = bytes->len * 8;

    (void)state;
    begin(&t);
    for (unsigned bit = 0; bit < bits; bit++) {
        int fd = raw_connect_and_hello(&t);

        bytes->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        raw_send(fd, bytes->data, bytes->len);
        raw_expect_end(fd);
        bytes->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    others_are_served(&t);
    expect_clean(&t, bits + 1, bits);
    test_end(&t);
}

/* What is whole, but not in its place. */
static void out_of_place(void **state)
{
    static const struct {
        VjFrame frame;
        bool before_hello;
        unsigned message_bytes, bulk_bytes;
    } cases[] = {
        {{.op = OP_QUICK, .tag = 1}, true, 0, 0},
        {{.op = VJ_OP_PING, .tag = 1}, true, 0, 0},
        {{.op = VJ_OP_CANCEL, .tag = 1}, true, 8, 0},
        {{.op = VJ_OP_HELLO, .tag = 1}, true, 4097, 0},
        {{.op = VJ_OP_HELLO, .tag = 1}, true, 100, 1},
        {{.op = VJ_OP_HELLO, .tag = 1, .flags = VJ_FRAME_REPLY}, true, 0, 0},
        {{.op = VJ_OP_HELLO, .tag = 1}, false, 100, 0},
        {{.op = OP_QUICK, .tag = 1, .flags = VJ_FRAME_REPLY}, false, 0, 0},
        {{.op = OP_QUICK, .tag = 0}, false, 0, 0},
        {{.op = VJ_OP_PING, .tag = 1}, false, 1, 0},
        {{.op = VJ_OP_PING, .tag = 1}, false, 0, 1},
        {{.op = VJ_OP_CANCEL, .tag = 1}, false, 7, 0},
        {{.op = VJ_OP_CANCEL, .tag = 1}, false, 8, 1},
        {{.op = OP_QUICK, .tag = 1, .body_checksum = 1}, false, 5, 0},
        {{.op = OP_QUICK, .tag = 1, .body_checksum = 1}, false, 0, 5},
        {{.op = OP_QUICK, .tag = 1, .body_checksum = 1}, false, 5, 100000},
    };
    static uint8_t body[100000];
    RpcTest t;
    unsigned hellos = 0;

    (void)state;
    begin(&t);
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        int fd = cases[i].before_hello ? raw_connect(&t) : raw_connect_and_hello(&t);

        hellos += !cases[i].before_hello;
        raw_send_frame(fd, &cases[i].frame, vj_slice(body, cases[i].message_bytes),
                       vj_slice(body, cases[i].bulk_bytes));
        raw_expect_end(fd);
    }
    others_are_served(&t);
    expect_clean(&t, hellos + 1, G_N_ELEMENTS(cases));
    test_end(&t);
}

/* Lengths alone, without what they announce: memory is not taken before they are
 * compared, and what is within the limit is given back. */
static void huge_lengths(void **state)
{
    static const struct {
        uint32_t message_bytes, bulk_bytes;
        bool ends; /* at once */
    } cases[] = {
        {UINT32_MAX, 0, true},
        {0, UINT32_MAX, true},
        {VJ_RPC_MESSAGE_MAX + 1, 0, true},
        {0, VJ_RPC_BULK_MAX + 1, true},
        {VJ_RPC_MESSAGE_MAX, VJ_RPC_BULK_MAX, false},
    };
    RpcTest t;
    unsigned gone = 0;
    uint64_t before = vj_buf_total_bytes();

    (void)state;
    begin(&t);
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        VjFrame frame = {.op = OP_ECHO,
                         .tag = 1,
                         .message_bytes = cases[i].message_bytes,
                         .bulk_bytes = cases[i].bulk_bytes,
                         .body_checksum = 1};
        uint8_t head[VJ_FRAME_HEAD_BYTES];
        int unknown = raw_connect(&t), welcome = raw_connect_and_hello(&t);

        vj_frame_encode(&frame, head);
        raw_send(unknown, head, sizeof head);
        raw_expect_end(unknown);
        raw_send(welcome, head, sizeof head);
        if (cases[i].ends) {
            raw_expect_end(welcome);
        } else {
            others_are_served(&t);
            gone++;
            close(welcome);
        }
        gone++;
    }
    expect_clean(&t, gone, 2 * G_N_ELEMENTS(cases) - 1);
    assert_true(vj_buf_total_bytes() == before);
    test_end(&t);
}

static void a_tag_twice(void **state)
{
    RpcTest t;
    VjFrame frame = {.op = OP_WAIT, .tag = 7};
    int fd;

    (void)state;
    begin(&t);
    fd = raw_connect_and_hello(&t);
    raw_send_frame(fd, &frame, empty, vj_slice("bulk", 4));
    raw_send_frame(fd, &frame, empty, vj_slice("bulk", 4));
    raw_expect_end(fd);
    expect_count(&t, &t.held.length, 1);
    while (!vj_rpc_request_is_canceled(test_held(&t, true))) {
        g_thread_yield();
    }
    expect_count(&t, &t.gone, 0); /* not before its request is answered */
    test_let_go(&t, true);
    expect_clean(&t, 1, 1);
    test_end(&t);
}

/* A tag that is free again, cancelled ones, ones that never were. */
static void odd_but_right(void **state)
{
    RpcTest t;
    VjFrame quick = {.op = OP_QUICK, .tag = 1}, wait = {.op = OP_WAIT, .tag = UINT64_MAX};
    VjFrame cancel = {.op = VJ_OP_CANCEL}, ping = {.op = VJ_OP_PING, .tag = 5}, reply;
    uint64_t tag = UINT64_MAX;
    int fd;

    (void)state;
    begin(&t);
    fd = raw_connect_and_hello(&t);
    for (unsigned i = 0; i < 3; i++) {
        raw_send_frame(fd, &cancel, vj_slice(&tag, sizeof tag), empty);
        raw_send_frame(fd, &quick, vj_slice("again", 5), empty);
        reply = raw_recv_frame(fd, NULL);
        assert_int_equal(reply.tag, 1);
        assert_int_equal(reply.message_bytes, 5);
    }
    raw_send_frame(fd, &wait, empty, empty);
    raw_send_frame(fd, &cancel, vj_slice(&tag, sizeof tag), empty);
    raw_send_frame(fd, &ping, empty, empty);
    reply = raw_recv_frame(fd, NULL);
    assert_int_equal(reply.op, VJ_OP_PING);
    assert_int_equal(reply.tag, 5);
    assert_true(vj_rpc_request_is_canceled(test_held(&t, true)));
    test_let_go(&t, true);
    reply = raw_recv_frame(fd, NULL);
    assert_true(reply.tag == UINT64_MAX);
    close(fd);
    expect_clean(&t, 1, 0);
    test_end(&t);
}

/* One byte at a time is slow, and right. */
static void byte_by_byte(void **state)
{
    RpcTest t;
    VjFrame frame = {.op = OP_ECHO, .tag = 1};
    g_autofree uint8_t *bulk = g_malloc0(3000);
    g_autoptr(GByteArray) bytes =
        raw_frame(&frame, vj_slice("message", 7), vj_slice(bulk, 3000));
    g_autoptr(GByteArray) message = NULL;
    VjFrame reply;
    int fd;

    (void)state;
    begin(&t);
    fd = raw_connect_and_hello(&t);
    for (unsigned i = 0; i < bytes->len; i++) {
        raw_send(fd, bytes->data + i, 1);
    }
    reply = raw_recv_frame(fd, &message);
    assert_int_equal(reply.bulk_bytes, 3000);
    assert_memory_equal(message->data, "message", 7);
    close(fd);
    expect_clean(&t, 1, 0);
    test_end(&t);
}

/* Many requests in one packet, the last one in part. */
static void many_at_once(void **state)
{
    enum { COUNT = 500 };
    RpcTest t;
    g_autoptr(GByteArray) all = g_byte_array_new();
    int fd;

    (void)state;
    begin(&t);
    fd = raw_connect_and_hello(&t);
    for (unsigned i = 0; i < COUNT; i++) {
        VjFrame frame = {.op = OP_QUICK, .tag = i + 1};
        g_autofree char *text = g_strdup_printf("%u", i);
        g_autoptr(GByteArray) bytes =
            raw_frame(&frame, vj_slice(text, strlen(text)), vj_slice(text, i % 3));

        g_byte_array_append(all, bytes->data, bytes->len);
    }
    raw_send(fd, all->data, all->len - 1);
    for (unsigned i = 0; i < COUNT; i++) {
        g_autoptr(GByteArray) message = NULL;
        VjFrame reply;

        if (i == COUNT - 1) {
            raw_send(fd, all->data + all->len - 1, 1);
        }
        reply = raw_recv_frame(fd, &message);
        assert_int_equal(reply.tag, i + 1); /* quick ones in order */
        g_byte_array_append(message, (const guint8 *)"", 1);
        assert_int_equal(strtoul((const char *)message->data, NULL, 10), i);
    }
    close(fd);
    expect_clean(&t, 1, 0);
    test_end(&t);
}

/* Nobody reads the replies: what they hold is bounded, and requests wait. */
static void never_reads(void **state)
{
    enum { COUNT = 200, FILL = 1 << 20 };
    RpcTest t;
    VjRpcServerStats stats;
    int fd;
    uint32_t fill = GUINT32_TO_LE(FILL);
    uint64_t most;

    (void)state;
    test_begin(&t, NULL);
    t.config.connection_bytes_max = 4 << 20;
    test_start_server(&t);
    most =
        t.config.connection_bytes_max + (t.config.workers + 1) * (uint64_t)(FILL + 4096);
    fd = raw_connect_and_hello(&t);
    for (unsigned i = 0; i < COUNT; i++) {
        VjFrame frame = {.op = OP_FILL, .tag = i + 1};

        raw_send_frame(fd, &frame, vj_slice(&fill, sizeof fill), empty);
    }
    do { /* as many as there is room for are made */
        vj_rpc_server_stats(t.server, &stats);
        assert_true(stats.held_bytes <= most + COUNT * 1024);
    } while (stats.requests < 4);
    others_are_served(&t);
    for (unsigned i = 0; i < COUNT; i++) {
        VjFrame reply = raw_recv_frame(fd, NULL);

        assert_int_equal(reply.bulk_bytes, FILL);
        vj_rpc_server_stats(t.server, &stats);
        assert_true(stats.held_bytes <= most + COUNT * 1024);
    }
    close(fd);
    expect_clean(&t, 2, 0);
    test_end(&t);
}

/* The end comes by the clock. */
static void too_slow(void **state)
{
    static const int64_t after_us[] = {VJ_RPC_HELLO_TIMEOUT_US, VJ_RPC_FRAME_TIMEOUT_US,
                                       VJ_RPC_FRAME_TIMEOUT_US};
    RpcTest t;
    VjFrame frame = {.op = OP_ECHO, .tag = 1};
    g_autoptr(GByteArray) bytes = raw_frame(&frame, vj_slice("half", 4), empty);
    struct timespec real = vj_clock_real();
    int64_t now_us = vj_clock_mono_us();
    int slow[3], idle;
    uint8_t byte;

    (void)state;
    begin(&t);
    vj_clock_set_for_test(&real, now_us);
    slow[0] = raw_connect(&t); /* says nothing */
    slow[1] = raw_connect_and_hello(&t);
    raw_send(slow[1], bytes->data, 20);
    slow[2] = raw_connect_and_hello(&t);
    raw_send(slow[2], bytes->data, bytes->len - 1);
    idle = raw_connect_and_hello(&t); /* with nothing to say, it may stay */
    for (unsigned i = 0; i < 3; i++) {
        vj_clock_set_for_test(&real, now_us + after_us[i] + 1000);
        raw_expect_end(slow[i]);
    }
    vj_clock_set_for_test(NULL, 0);
    assert_int_equal(recv(idle, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    close(idle);
    expect_clean(&t, 3, 0);
    test_end(&t);
}

/* A frame that drips in for ever ends too. */
static void drips(void **state)
{
    RpcTest t;
    VjFrame frame = {.op = OP_ECHO, .tag = 1};
    g_autofree uint8_t *bulk = g_malloc0(1 << 20);
    g_autoptr(GByteArray) bytes = raw_frame(&frame, empty, vj_slice(bulk, 1 << 20));
    struct timespec real = vj_clock_real();
    int64_t now_us = vj_clock_mono_us();
    unsigned sent = VJ_FRAME_HEAD_BYTES;
    int fd;

    (void)state;
    begin(&t);
    vj_clock_set_for_test(&real, now_us);
    fd = raw_connect_and_hello(&t);
    raw_send(fd, bytes->data, sent);
    for (unsigned i = 0; i < 100; i++) {
        VjRpcServerStats stats;

        raw_send(fd, bytes->data + sent++, 1);
        do {
            vj_rpc_server_stats(t.server, &stats);
        } while (stats.connections > 0 && stats.received_bytes < sent);
        now_us += VJ_RPC_FRAME_TIMEOUT_US / 3;
        vj_clock_set_for_test(&real, now_us);
    }
    raw_expect_end(fd);
    vj_clock_set_for_test(NULL, 0);
    expect_clean(&t, 1, 0);
    test_end(&t);
}

static void two_hundred(void **state)
{
    enum { COUNT = 200 };
    RpcTest t;
    int fds[COUNT];
    uint8_t noise[64];
    VjRng rng;

    (void)state;
    begin(&t);
    vj_rng_init(&rng, 2);
    for (unsigned i = 0; i < COUNT; i++) {
        fds[i] = raw_connect(&t);
        if (i % 4 == 0) {
            vj_rng_bytes(&rng, noise, sizeof noise);
            raw_send(fds[i], noise, sizeof noise);
        } else if (i % 4 == 1) {
            raw_send_hello(fds[i]);
        } else if (i % 4 == 2) {
            raw_send(fds[i], "VJFR", 4);
        }
    }
    others_are_served(&t);
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % 4 == 0) {
            raw_expect_end(fds[i]);
        } else {
            close(fds[i]);
        }
    }
    others_are_served(&t);
    test_wait(&t, &t.gone, 2);
    expect_clean(&t, t.hellos, COUNT / 4);
    test_end(&t);
}

/* Those that say nothing keep out nobody: of too many the oldest ones are closed. */
static void too_many_unknown(void **state)
{
    enum { COUNT = 1024 + 10 }; /* the limit, and some */
    RpcTest t;
    int *fds = g_new0(int, COUNT);
    struct rlimit files, more;
    VjRpcServerStats stats;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    more = files;
    more.rlim_cur = MIN(files.rlim_max, 4096);
    if (more.rlim_cur < 2 * COUNT + 100) {
        g_free(fds);
        skip();
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
    begin(&t);
    for (unsigned i = 0; i < COUNT; i++) {
        fds[i] = raw_connect(&t);
    }
    others_are_served(&t);
    for (unsigned i = 0; i < 10; i++) {
        raw_expect_end(fds[i]);
    }
    vj_rpc_server_stats(t.server, &stats);
    assert_true(stats.refused >= 10);
    for (unsigned i = 10; i < COUNT; i++) {
        close(fds[i]);
    }
    expect_clean(&t, 1, 0);
    test_end(&t);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    g_free(fds);
}

/* Those that announce what fills the server, and do not send it, or ask for it and do not
 * take it, are given up long before their time when others wait for room. */
static void others_get_room(bool announces)
{
    /* Of the announced ones there is no room for the beginning of one more. */
    unsigned count = announces ? 3 : 1;
    RpcTest t;
    VjFrame put = {.op = OP_ECHO, .tag = 1, .bulk_bytes = 900 << 10, .body_checksum = 1};
    VjFrame fill = {.op = OP_FILL, .tag = 1};
    uint32_t fill_bytes = GUINT32_TO_LE((uint32_t)16 << 20);
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    struct timespec real = vj_clock_real();
    int64_t begin_us = vj_clock_mono_us(), now_us = begin_us;
    VjRpcServerStats stats;
    VjRpcClient *c;
    VjRpcCall *call = test_call(OP_ECHO, NULL);
    int fds[3];

    test_begin(&t, NULL);
    t.config.bytes_max = 1 << 20;
    test_start_server(&t);
    vj_clock_set_for_test(&real, now_us);
    vj_frame_encode(&put, head);
    for (unsigned i = 0; i < count; i++) {
        fds[i] = raw_connect_and_hello(&t);
        if (announces) {
            raw_send(fds[i], head, sizeof head);
        } else {
            raw_send_frame(fds[i], &fill, vj_slice(&fill_bytes, sizeof fill_bytes),
                           empty);
        }
    }
    do { /* what they have sent counts, and the beginning of what they have not */
        g_thread_yield();
        vj_rpc_server_stats(t.server, &stats);
        assert_true(!announces || stats.held_bytes < (1 << 20) + 10000);
    } while (stats.held_bytes < 700 << 10);
    c = test_client(&t);
    call->deadline_us = INT64_MAX;
    call->bulk = vj_buf_new(300 << 10);
    memset(call->bulk->data, 'b', 300 << 10);
    call->bulk_bytes = call->bulk_max = 300 << 10;
    test_submit(&t, c, call);
    while (test_counted(&t, &t.done) == 0) { /* the clock goes ten times as fast */
        g_usleep(10000);
        now_us += 100 * 1000;
        vj_clock_set_for_test(&real, now_us);
        assert_true(now_us - begin_us < VJ_RPC_FRAME_TIMEOUT_US);
    }
    assert_int_equal(call->rc, 0);
    for (unsigned i = 0; i < count; i++) {
        raw_expect_end(fds[i]);
    }
    vj_clock_set_for_test(NULL, 0);
    vj_rpc_call_unref(call);
    vj_rpc_client_free(c);
    expect_clean(&t, count + 1, 0);
    test_end(&t);
}

static void announces_much(void **state)
{
    (void)state;
    others_get_room(true);
}

static void takes_nothing(void **state)
{
    (void)state;
    others_get_room(false);
}

/* A peer with many requests does not hold up one with few. */
static void takes_turns(void **state)
{
    enum { COUNT = 1000 };
    RpcTest t;
    VjFrame block = {.op = OP_BLOCK, .tag = 1}, ping = {.op = VJ_OP_PING, .tag = 5000};
    g_autoptr(VjRpcCall) hello = test_call(OP_QUICK, NULL);
    g_autoptr(VjRpcCall) behind = test_call(OP_QUICK, NULL);
    VjRpcClient *c;
    VjRpcCall *call;
    int fd;

    (void)state;
    test_begin(&t, NULL);
    t.config.workers = 1;
    test_start_server(&t);
    c = test_client(&t);
    assert_int_equal(vj_rpc_run(c, hello), 0);
    fd = raw_connect_and_hello(&t);
    raw_send_frame(fd, &block, empty, empty);
    test_wait(&t, &t.blocked, 1); /* it has the worker, or runs beside the loop */
    block.tag = 2;
    raw_send_frame(fd, &block, empty, empty); /* then this one has the worker */
    for (unsigned i = 0; i < COUNT; i++) {
        VjFrame frame = {.op = OP_ECHO, .tag = 3 + i};

        raw_send_frame(fd, &frame, empty, empty);
    }
    raw_send_frame(fd, &ping, empty, empty);
    assert_int_equal(raw_recv_frame(fd, NULL).op, VJ_OP_PING); /* all are there */
    call = test_submit(&t, c, test_call(OP_ECHO, "one"));
    assert_int_equal(vj_rpc_run(c, behind), 0); /* so is this one */
    test_unblock(&t);
    test_wait(&t, &t.done, 1);
    /* Behind two quick ones, those which blocked, and one of the others. */
    assert_true(t.one_at > 0 && t.one_at <= 6);
    vj_rpc_call_unref(call);
    vj_rpc_client_free(c);
    close(fd);
    expect_clean(&t, 2, 0);
    test_end(&t);
}

/* ---- servers that are hostile ------------------------------------------------------ */

typedef enum Crime {
    CRIME_GARBAGE,
    CRIME_UNKNOWN_TAG,
    CRIME_OTHER_OP,
    CRIME_REQUEST,
    CRIME_CHECKSUM,
    CRIME_LONG_BULK,
    CRIME_PING_WITH_BODY,
    CRIME_END,
    CRIME_COUNT,
} Crime;

/* Instead of the answer to @request; returns what the call is answered with. */
static int commit(Crime crime, int fd, const VjFrame *request)
{
    static uint8_t noise[VJ_FRAME_HEAD_BYTES];
    VjFrame frame = {.flags = VJ_FRAME_REPLY, .op = request->op, .tag = request->tag};
    VjSlice bulk = vj_slice("1234567890", 10);

    switch (crime) {
    case CRIME_GARBAGE:
        raw_send(fd, noise, sizeof noise);
        return -ECONNRESET;
    case CRIME_UNKNOWN_TAG:
        frame.tag += 1 << 10;
        raw_send_frame(fd, &frame, empty, empty);
        return -ECONNRESET;
    case CRIME_OTHER_OP:
        frame.op = OP_FAIL;
        raw_send_frame(fd, &frame, empty, empty);
        return -ECONNRESET;
    case CRIME_REQUEST:
        frame.flags = 0;
        raw_send_frame(fd, &frame, empty, empty);
        return -ECONNRESET;
    case CRIME_CHECKSUM:
        frame.body_checksum = 1;
        raw_send_frame(fd, &frame, empty, bulk);
        return -EPROTO;
    case CRIME_LONG_BULK:
        raw_send_frame(fd, &frame, empty, vj_slice("12345678901", 11));
        return -EPROTO;
    case CRIME_PING_WITH_BODY:
        frame.op = VJ_OP_PING;
        frame.tag = 0;
        raw_send_frame(fd, &frame, empty, bulk);
        return -ECONNRESET;
    case CRIME_END:
    default:
        return -ECONNRESET;
    }
}

/* The call fails, the connection ends, the client comes again. */
static void hostile_servers(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    int listener;

    (void)state;
    test_begin(&t, NULL);
    listener = raw_listen(&t);
    c = test_client(&t);
    for (Crime crime = 0; crime < CRIME_COUNT; crime++) {
        VjRpcCall *call = test_call(OP_ECHO, "hello?");
        VjFrame request;
        int fd, rc;

        call->bulk_max = 10;
        test_submit(&t, c, call);
        fd = raw_accept_and_hello(&t, listener);
        request = raw_recv_but_ping(fd);
        rc = commit(crime, fd, &request);
        if (crime == CRIME_END) {
            close(fd);
        } else {
            raw_expect_end(fd);
        }
        test_wait(&t, &t.done, crime + 1);
        assert_int_equal(call->rc, rc);
        assert_false(call->is_answered);
        test_wait(&t, &t.lost, crime + 1);
        vj_rpc_call_unref(call);
    }
    vj_rpc_client_free(c);
    raw_stop_listening(&t, listener);
    test_end(&t);
}

/* Instead of an answer to hello. */
static void hostile_hellos(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *call;
    int listener, fd;

    (void)state;
    test_begin(&t, NULL);
    listener = raw_listen(&t);
    c = test_client(&t);
    call = test_submit(&t, c, test_call(OP_ECHO, NULL));
    for (unsigned i = 0; i < 6; i++) {
        VjFrame hello, frame = {.flags = VJ_FRAME_REPLY, .op = VJ_OP_HELLO};
        g_autoptr(GByteArray) long_one = g_byte_array_new();

        fd = raw_accept(listener);
        hello = raw_recv_but_ping(fd);
        frame.tag = hello.tag;
        g_byte_array_set_size(long_one, 5000);
        memset(long_one->data, 0, 5000);
        switch (i) {
        case 0:
            close(fd);
            continue;
        case 1:
            frame.tag++;
            break;
        case 2:
            frame.op = OP_ECHO;
            break;
        case 3:
            raw_send_frame(fd, &frame, vj_slice(long_one->data, 5000), empty);
            raw_expect_end(fd);
            continue;
        case 4:
            frame.status = VJ_WIRE_STATUS_COUNT; /* of a later version */
            break;
        default:
            break; /* no fields */
        }
        raw_send_frame(fd, &frame, empty, empty);
        raw_expect_end(fd);
    }
    fd = raw_accept_and_hello(&t, listener);
    close(fd);
    test_wait(&t, &t.done, 1);
    assert_true(call->rc == -ECONNRESET);
    vj_rpc_call_unref(call);
    vj_rpc_client_free(c);
    raw_stop_listening(&t, listener);
    test_end(&t);
}

/* A reply whose bulk comes in while its call is cancelled: its buffer is the caller's. */
static void canceled_while_it_comes(void **state)
{
    enum { BYTES = 1 << 20 };
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *call, *next;
    g_autofree uint8_t *bulk = g_malloc(BYTES);
    g_autoptr(GByteArray) reply = NULL;
    VjRpcTraffic traffic_of;
    VjFrame frame, again;
    int listener, fd;

    (void)state;
    test_begin(&t, NULL);
    listener = raw_listen(&t);
    c = test_client(&t);
    call = test_call(OP_ECHO, NULL);
    call->into = vj_buf_new(BYTES);
    call->bulk_max = BYTES;
    test_submit(&t, c, call);
    fd = raw_accept_and_hello(&t, listener);
    frame = raw_recv_but_ping(fd);
    memset(bulk, 'x', BYTES);
    frame.flags = VJ_FRAME_REPLY;
    frame.timeout_ms = 0;
    reply = raw_frame(&frame, empty, vj_slice(bulk, BYTES));
    raw_send(fd, reply->data, BYTES / 2);
    do { /* it is being received */
        g_thread_yield();
        vj_rpc_client_traffic(c, &traffic_of);
    } while (traffic_of.received_bytes < BYTES / 2);
    vj_rpc_cancel(c, call);
    assert_int_equal(call->rc, -ECANCELED);
    memset(call->into->data, 'y', BYTES);
    next = test_submit(&t, c, test_call(OP_ECHO, NULL));
    raw_send(fd, reply->data + BYTES / 2, reply->len - BYTES / 2);
    again = raw_recv_but_ping(fd);
    assert_int_equal(again.op, VJ_OP_CANCEL);
    again = raw_recv_but_ping(fd);
    raw_send(fd, reply->data, reply->len); /* and once more: it is late, no crime */
    raw_answer(fd, &again, VJ_WIRE_OK, vj_slice("next", 4), empty);
    test_wait(&t, &t.done, 2);
    expect_reply(next, "next");
    for (unsigned i = 0; i < BYTES; i++) {
        assert_int_equal(call->into->data[i], 'y');
    }
    expect_count(&t, &t.lost, 0);
    vj_rpc_call_unref(call);
    vj_rpc_call_unref(next);
    vj_rpc_client_free(c);
    close(fd);
    raw_stop_listening(&t, listener);
    test_end(&t);
}

static VjRpcClient *client_of_silence(RpcTest *t, int64_t silence_us)
{
    g_autoptr(GByteArray) hello = test_hello_message();
    VjRpcClientConfig config = {.address = t->address,
                                .credentials = t->credentials,
                                .hello = vj_slice(hello->data, hello->len),
                                .silence_us = silence_us,
                                .connected = test_connected,
                                .lost = test_lost,
                                .opaque = t};
    VjRpcClient *c = vj_rpc_client_new(&config, NULL);

    assert_non_null(c);
    return c;
}

/* A peer that is asked for a sign of life and gives none is lost; one that does is not.
 */
static void silence(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *call;
    VjFrame frame, life = {.flags = VJ_FRAME_REPLY, .op = VJ_OP_PING};
    int listener, fd;

    (void)state;
    test_begin(&t, NULL);
    listener = raw_listen(&t);
    c = client_of_silence(&t, 100 * 1000);
    call = test_submit(&t, c, test_call(OP_WAIT, NULL));
    fd = raw_accept_and_hello(&t, listener);
    frame = raw_recv_frame(fd, NULL);
    assert_int_equal(frame.op, OP_WAIT);
    for (unsigned i = 0; i < 10; i++) { /* longer than it would wait otherwise */
        frame = raw_recv_frame(fd, NULL);
        assert_int_equal(frame.op, VJ_OP_PING);
        if (i % 2 == 0) {
            raw_answer(fd, &frame, VJ_WIRE_OK, empty, empty);
        } else {
            raw_send_frame(fd, &life, empty, empty); /* unasked, as one that is busy */
        }
    }
    expect_count(&t, &t.done, 0);
    raw_expect_end(fd);
    test_wait(&t, &t.done, 1);
    assert_int_equal(call->rc, -ECONNRESET);
    test_wait(&t, &t.lost, 1);
    vj_rpc_call_unref(call);
    vj_rpc_client_free(c);
    raw_stop_listening(&t, listener);
    test_end(&t);
}

/* One that takes the connection and says nothing is given up too. */
static void silent_hello(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *call;
    int listener, fd;

    (void)state;
    test_begin(&t, NULL);
    listener = raw_listen(&t);
    c = client_of_silence(&t, 50 * 1000);
    call = test_submit(&t, c, test_call(OP_ECHO, NULL));
    for (unsigned i = 0; i < 2; i++) {
        fd = raw_accept(listener);
        (void)raw_recv_frame(fd, NULL);
        raw_expect_end(fd);
    }
    fd = raw_accept_and_hello(&t, listener);
    close(fd);
    test_wait(&t, &t.done, 1);
    vj_rpc_call_unref(call);
    vj_rpc_client_free(c);
    raw_stop_listening(&t, listener);
    test_end(&t);
}

/* A peer without room, whose requests are not read, says that it is alive. */
static void life_of_a_full_server(void **state)
{
    RpcTest t;
    VjRpcClient *c;
    VjRpcCall *calls[3];
    VjRpcTraffic before, after;
    struct timespec real = vj_clock_real();
    int64_t now_us = vj_clock_mono_us();

    (void)state;
    test_begin(&t, NULL);
    t.config.connection_bytes_max = 1000;
    test_start_server(&t);
    c = client_of_silence(&t, 20 * TEST_SECOND);
    for (unsigned i = 0; i < 3; i++) {
        calls[i] = test_call(OP_WAIT, NULL);
        calls[i]->deadline_us = INT64_MAX;
        calls[i]->bulk = vj_buf_new_copy("bulk", 4);
        calls[i]->bulk_bytes = calls[i]->bulk_max = 4;
        test_submit(&t, c, calls[i]);
    }
    test_wait(&t, &t.held.length, 1);
    vj_rpc_client_traffic(c, &before);
    do { /* the clock goes ten times as fast */
        g_usleep(10000);
        now_us += 100 * 1000;
        vj_clock_set_for_test(&real, now_us);
        vj_rpc_client_traffic(c, &after);
    } while (after.received_bytes < before.received_bytes + 2 * VJ_FRAME_HEAD_BYTES);
    vj_clock_set_for_test(NULL, 0);
    assert_int_equal(after.received_bytes % VJ_FRAME_HEAD_BYTES,
                     before.received_bytes % VJ_FRAME_HEAD_BYTES);
    expect_count(&t, &t.held.length, 1);
    for (unsigned i = 0; i < 3; i++) {
        test_wait(&t, &t.held.length, 1);
        test_let_go(&t, true);
    }
    test_wait(&t, &t.done, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(calls[i]->rc, 0);
        vj_rpc_call_unref(calls[i]);
    }
    expect_count(&t, &t.lost, 0);
    vj_rpc_client_free(c);
    test_end(&t);
}

/* ---- hello again ------------------------------------------------------------------- */

static void send_hello_to(int fd, const char *volume, uint8_t client, uint64_t connection)
{
    g_autoptr(GByteArray) hello = test_hello_to(volume);
    uint8_t id[VJ_WIRE_UUID_BYTES] = {client};
    VjFrame frame = {.op = VJ_OP_HELLO, .tag = 99};

    vj_hello_set_client(hello, id, connection);
    raw_send_frame(fd, &frame, vj_slice(hello->data, hello->len), empty);
}

static void send_hello_of(int fd, uint8_t client, uint64_t connection)
{
    send_hello_to(fd, "test", client, connection);
}

/* What the user of a server says is no way to leave a request without an answer. */
static void odd_answer_to_hello(void **state)
{
    RpcTest t;
    int fd;

    (void)state;
    begin(&t);
    t.hello_rc = -EAGAIN;
    fd = raw_connect(&t);
    raw_send_hello(fd);
    assert_int_equal(raw_recv_frame(fd, NULL).status, VJ_WIRE_DEVICE);
    raw_expect_end(fd);
    expect_clean(&t, 0, 0);
    test_end(&t);
}

static void replayed_hello(void **state)
{
    RpcTest t;
    int first, second, third;

    (void)state;
    begin(&t);
    first = raw_connect(&t);
    send_hello_of(first, 1, 5);
    assert_int_equal(raw_recv_frame(first, NULL).status, VJ_WIRE_OK);
    second = raw_connect(&t);
    send_hello_of(second, 1, 5);
    assert_int_equal(raw_recv_frame(second, NULL).status, VJ_WIRE_FENCED);
    raw_expect_end(second);
    second = raw_connect(&t);
    send_hello_of(second, 1, 6);
    raw_expect_end(first); /* is over before the next one is answered */
    assert_int_equal(raw_recv_frame(second, NULL).status, VJ_WIRE_OK);
    close(second);
    test_wait(&t, &t.gone, 2);
    third = raw_connect(&t); /* it is remembered */
    send_hello_of(third, 1, 6);
    assert_int_equal(raw_recv_frame(third, NULL).status, VJ_WIRE_FENCED);
    raw_expect_end(third);
    third = raw_connect(&t);
    send_hello_of(third, 2, 1);
    assert_int_equal(raw_recv_frame(third, NULL).status, VJ_WIRE_OK);
    second = raw_connect(&t); /* of another volume: another client */
    send_hello_to(second, "other", 2, 1);
    assert_int_equal(raw_recv_frame(second, NULL).status, VJ_WIRE_OK);
    expect_count(&t, &t.gone, 2);
    close(second);
    close(third);
    expect_clean(&t, 4, 0);
    test_end(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(garbage),
    cmocka_unit_test(flipped_bits),
    cmocka_unit_test(out_of_place),
    cmocka_unit_test(huge_lengths),
    cmocka_unit_test(a_tag_twice),
    cmocka_unit_test(odd_but_right),
    cmocka_unit_test(byte_by_byte),
    cmocka_unit_test(many_at_once),
    cmocka_unit_test(never_reads),
    cmocka_unit_test(too_slow),
    cmocka_unit_test(drips),
    cmocka_unit_test(two_hundred),
    cmocka_unit_test(too_many_unknown),
    cmocka_unit_test(announces_much),
    cmocka_unit_test(takes_nothing),
    cmocka_unit_test(takes_turns),
    cmocka_unit_test(hostile_servers),
    cmocka_unit_test(hostile_hellos),
    cmocka_unit_test(canceled_while_it_comes),
    cmocka_unit_test(silence),
    cmocka_unit_test(silent_hello),
    cmocka_unit_test(life_of_a_full_server),
    cmocka_unit_test(odd_answer_to_hello),
    cmocka_unit_test(replayed_hello),
};

VJ_TEST_MAIN(tests)
