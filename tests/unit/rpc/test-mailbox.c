/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-mailbox.c - requests that stand in memory that their sender writes
 *
 * A raw peer asks a server of the test for a mailbox.  The server looks at it for a while
 * behind each request: what it is to find there is put there until it does.
 */
#include "raw-peer.h"

#include "rpc/server-private.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { OP_MAILBOX = VJ_OP_MAILBOX, OP_BELL = VJ_OP_BELL };

/* Rounds in which the server is expected to look in time once. */
#define TRIES 100000u
/* Looks until the server has taken a frame, or did not look in time. */
#define LOOKS 2000u
#define NOISY_ROUNDS 3000u
#define BACK_ROUNDS 20000u
/* More than a server has. */
#define MAILBOXES 300u
/* What a connection may have in flight. */
#define CONNECTION_BYTES ((uint32_t)1 << 20)
/* A reply that no socket has room for. */
#define FILL_BYTES ((uint32_t)16 << 20)

static VjRpcHandler handlers[G_N_ELEMENTS(test_handlers) + 2];

typedef struct Box {
    int fd;
    uint8_t *memory;
    uint8_t *again; /* the same, elsewhere: for who writes there beside the test */
    uint64_t tag;
} Box;

static uint32_t *word(const Box *b, size_t at)
{
    return (uint32_t *)(void *)(b->memory + at);
}

static uint32_t state_of(const Box *b)
{
    return __atomic_load_n(word(b, VJ_MAILBOX_STATE_AT), __ATOMIC_SEQ_CST);
}

static void set_state(const Box *b, uint32_t state)
{
    __atomic_store_n(word(b, VJ_MAILBOX_STATE_AT), state, __ATOMIC_SEQ_CST);
}

static bool change_state(const Box *b, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(word(b, VJ_MAILBOX_STATE_AT), &from, to, false,
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void put32(uint8_t *at, uint32_t number)
{
    for (unsigned i = 0; i < 4; i++) {
        at[i] = (uint8_t)(number >> 8 * i);
    }
}

/* The reply to @op: its status, and the descriptor or -1. */
static uint32_t recv_fd(int socket, uint16_t op, int *fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    struct iovec iov = {.iov_base = head, .iov_len = sizeof head};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control};
    struct cmsghdr *c;
    VjFrame frame;

    assert_int_equal(recvmsg(socket, &m, MSG_WAITALL | MSG_CMSG_CLOEXEC), sizeof head);
    assert_int_equal(vj_frame_decode(head, &frame), 0);
    assert_int_equal(frame.op, op);
    assert_int_equal(frame.message_bytes + frame.bulk_bytes, 0);
    c = CMSG_FIRSTHDR(&m);
    *fd = -1;
    if (c != NULL) {
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    }
    return frame.status;
}

static uint32_t ask(int socket, int *fd)
{
    VjFrame frame = {.op = OP_MAILBOX, .tag = 7};

    raw_send_frame(socket, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
    return recv_fd(socket, OP_MAILBOX, fd);
}

static Box box_open(const RpcTest *t)
{
    Box b = {.tag = 100};
    int fd;

    b.fd = raw_connect_with(t, VJ_FEATURE_MAILBOX);
    assert_int_equal(ask(b.fd, &fd), VJ_WIRE_OK);
    assert_true(fd >= 0);
    /* Nobody can make it shorter under the server's hands. */
    assert_int_equal(ftruncate(fd, 0), -1);
    b.memory = mmap(NULL, VJ_MAILBOX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    b.again = mmap(NULL, VJ_MAILBOX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(b.memory != MAP_FAILED && b.again != MAP_FAILED);
    close(fd);
    *word(&b, VJ_MAILBOX_WAITS_AT) = 1;
    return b;
}

static void box_close(Box *b)
{
    munmap(b->memory, VJ_MAILBOX_BYTES);
    munmap(b->again, VJ_MAILBOX_BYTES);
    if (b->fd >= 0) {
        close(b->fd);
    }
}

/* By the socket; behind it the server looks at the mailbox. */
static void echo_by_socket(Box *b)
{
    VjFrame frame = {.op = OP_QUICK, .tag = ++b->tag}, reply;
    GByteArray *message;

    raw_send_frame(b->fd, &frame, vj_slice("socket", 6), vj_slice(NULL, 0));
    do {
        reply = raw_recv_frame(b->fd, &message);
        if (reply.op == VJ_OP_PING) {
            g_byte_array_unref(message);
        }
    } while (reply.op == VJ_OP_PING);
    assert_int_equal(reply.tag, frame.tag);
    assert_int_equal(message->len, 6);
    g_byte_array_unref(message);
}

/* The server has taken what stands there. */
static bool is_taken(const Box *b)
{
    for (unsigned i = 0; i < LOOKS; i++) {
        if (state_of(b) != VJ_MAILBOX_CALLED) {
            return true;
        }
        sched_yield();
    }
    return !change_state(b, VJ_MAILBOX_CALLED, VJ_MAILBOX_FREE);
}

/* Until the server has taken it. */
static void call_bytes(Box *b, const uint8_t *bytes, size_t len)
{
    for (unsigned i = 0; i < TRIES; i++) {
        echo_by_socket(b);
        memcpy(b->memory + VJ_MAILBOX_REQUEST_AT, bytes, len);
        set_state(b, VJ_MAILBOX_CALLED);
        if (is_taken(b)) {
            return;
        }
    }
    fail_msg("the server did not look");
}

static uint64_t call(Box *b, uint16_t op, VjSlice message, VjSlice bulk)
{
    VjFrame frame = {.op = op, .tag = ++b->tag + 1000000};
    g_autoptr(GByteArray) bytes = raw_frame(&frame, message, bulk);

    call_bytes(b, bytes->data, bytes->len);
    return frame.tag;
}

static void wait_for_state(const Box *b, uint32_t state)
{
    int64_t until_us = vj_clock_mono_us() + 30 * TEST_SECOND;

    while (state_of(b) != state) {
        assert_true(vj_clock_mono_us() < until_us);
        sched_yield();
    }
}

/* The reply that stands there: echo of @message and @bulk. */
static void expect_echo(const Box *b, uint64_t tag, VjSlice message, VjSlice bulk)
{
    const uint8_t *at = b->memory + VJ_MAILBOX_REPLY_AT;
    VjFrame frame;

    wait_for_state(b, VJ_MAILBOX_ANSWERED);
    assert_int_equal(vj_frame_decode(at, &frame), 0);
    at += VJ_FRAME_HEAD_BYTES;
    assert_int_equal(frame.tag, tag);
    assert_int_equal(frame.flags, VJ_FRAME_REPLY);
    assert_int_equal(frame.status, VJ_WIRE_OK);
    assert_int_equal(frame.message_bytes, message.len);
    assert_int_equal(frame.bulk_bytes, bulk.len);
    assert_int_equal(
        frame.body_checksum,
        message.len + bulk.len == 0 ? 0 : vj_checksum64(at, message.len + bulk.len));
    assert_memory_equal(at, message.data, message.len);
    assert_memory_equal(at + message.len, bulk.data, bulk.len);
    set_state(b, VJ_MAILBOX_FREE);
}

static void begin_at(RpcTest *t, const char *address)
{
    static const VjRpcHandler mailbox = {.op = OP_MAILBOX,
                                         .role = VJ_ROLE_ANY,
                                         .name = "mailbox",
                                         .message_max = 1,
                                         .run = vj_rpc_reply_mailbox,
                                         .is_quick = true};
    static const VjRpcHandler bell = {.op = OP_BELL,
                                      .role = VJ_ROLE_ANY,
                                      .name = "bell",
                                      .run = vj_rpc_reply_bell,
                                      .is_quick = true};

    test_begin(t, address);
    handlers[0] = mailbox;
    handlers[1] = bell;
    memcpy(handlers + 2, test_handlers, sizeof test_handlers);
    t->config.handlers = handlers;
    t->config.connection_bytes_max = CONNECTION_BYTES;
    test_start_server(t);
}

static void begin(RpcTest *t)
{
    begin_at(t, NULL);
}

static void test_echo(void **state)
{
    g_autofree char *text = g_strnfill(8000, 'b');
    RpcTest t;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    for (unsigned i = 0; i < 20; i++) {
        VjSlice message = vj_slice(text, i % 2 == 0 ? 0 : 100),
                bulk = vj_slice(text, i % 3 == 0 ? 0 : 8000);
        uint16_t op = i % 4 < 2 ? OP_ECHO : OP_QUICK;
        uint64_t tag = call(&b, op, message, bulk);

        expect_echo(&b, tag, message, bulk);
    }
    box_close(&b);
    test_end(&t);
}

/* What does not fit there comes by the socket. */
static void test_long_reply(void **state)
{
    uint8_t bytes[4];
    GByteArray *bulk;
    VjFrame reply;
    uint64_t tag;
    RpcTest t;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    put32(bytes, VJ_MAILBOX_FRAME_MAX);
    tag = call(&b, OP_FILL, vj_slice(bytes, 4), vj_slice(NULL, 0));
    reply = raw_recv_all(b.fd, NULL, &bulk);
    assert_int_equal(reply.tag, tag);
    assert_int_equal(bulk->len, VJ_MAILBOX_FRAME_MAX);
    g_byte_array_unref(bulk);
    assert_int_equal(state_of(&b), VJ_MAILBOX_BY_SOCKET);
    set_state(&b, VJ_MAILBOX_FREE);
    put32(bytes, VJ_MAILBOX_FRAME_MAX - VJ_FRAME_HEAD_BYTES);
    (void)call(&b, OP_FILL, vj_slice(bytes, 4), vj_slice(NULL, 0));
    wait_for_state(&b, VJ_MAILBOX_ANSWERED);
    box_close(&b);
    test_end(&t);
}

/* A reply comes where it is waited for when it is there. */
static void test_long_wait(void **state)
{
    VjSlice text = vj_slice("text", 4);
    uint64_t tag;
    RpcTest t;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    tag = call(&b, OP_WAIT, text, vj_slice(NULL, 0));
    wait_for_state(&b, VJ_MAILBOX_TAKEN);
    echo_by_socket(&b); /* others go on beside it */
    test_let_go(&t, true);
    expect_echo(&b, tag, text, vj_slice(NULL, 0));
    tag = call(&b, OP_WAIT, text, vj_slice(NULL, 0));
    assert_true(change_state(&b, VJ_MAILBOX_TAKEN, VJ_MAILBOX_BY_SOCKET));
    while (test_held(&t, true) == NULL) {
        sched_yield();
    }
    test_let_go(&t, true);
    assert_int_equal(raw_recv_but_ping(b.fd).tag, tag);
    assert_int_equal(state_of(&b), VJ_MAILBOX_BY_SOCKET);
    box_close(&b);
    test_end(&t);
}

/* No frame, a longer one than can stand there, or one that has no reply: the end of the
 * connection. */
static void test_garbage(void **state)
{
    (void)state;
    for (unsigned what = 0; what < 5; what++) {
        VjFrame frame = {.op = what < 4 ? OP_ECHO : VJ_OP_CANCEL, .tag = 5};
        g_autoptr(GByteArray) bytes =
            raw_frame(&frame, vj_slice("texttext", what < 4 ? 4 : 8), vj_slice(NULL, 0));
        RpcTest t;
        Box b;

        begin(&t);
        b = box_open(&t);
        if (what == 0) {
            bytes->data[0] ^= 1;
        } else if (what == 1) {
            bytes->data[VJ_FRAME_HEAD_BYTES] ^= 1;
        } else if (what < 4) {
            frame.message_bytes = what == 2 ? UINT32_MAX : 4;
            frame.bulk_bytes = what == 2 ? UINT32_MAX : VJ_MAILBOX_FRAME_MAX;
            vj_frame_encode(&frame, bytes->data);
        }
        call_bytes(&b, bytes->data, bytes->len);
        raw_expect_end(b.fd);
        b.fd = -1;
        test_wait(&t, &t.gone, 1);
        box_close(&b);
        test_end(&t);
    }
}

/* Who has not said that it knows what that is gets none. */
static void test_no_feature(void **state)
{
    RpcTest t;
    int socket, fd;

    (void)state;
    begin(&t);
    socket = raw_connect_and_hello(&t);
    assert_int_equal(ask(socket, &fd), VJ_WIRE_UNSUPPORTED);
    assert_int_equal(fd, -1);
    close(socket);
    test_end(&t);
}

/* One for a connection, and for so many connections; who gets none loses nothing. */
static void test_limits(void **state)
{
    Box *boxes[MAILBOXES] = {0};
    unsigned refused = 0;
    RpcTest t;
    int fd;

    (void)state;
    begin(&t);
    for (unsigned i = 0; i < MAILBOXES && refused == 0; i++) {
        int socket = raw_connect_with(&t, VJ_FEATURE_MAILBOX);
        uint32_t status = ask(socket, &fd);

        boxes[i] = g_new0(Box, 1);
        boxes[i]->fd = socket;
        if (status == VJ_WIRE_OK) {
            close(fd);
            assert_int_equal(ask(socket, &fd), VJ_WIRE_BUSY);
        } else {
            assert_int_equal(status, VJ_WIRE_BUSY);
            refused++;
            assert_true(i >= 64);
        }
        assert_int_equal(fd, status == VJ_WIRE_OK ? fd : -1);
        echo_by_socket(boxes[i]);
    }
    assert_int_equal(refused, 1);
    for (unsigned i = 0; i < MAILBOXES && boxes[i] != NULL; i++) {
        close(boxes[i]->fd);
        g_free(boxes[i]);
    }
    test_end(&t);
}

/* The peer is gone before the reply, which has nowhere to go. */
static void test_peer_is_gone(void **state)
{
    RpcTest t;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    (void)call(&b, OP_WAIT, vj_slice("text", 4), vj_slice(NULL, 0));
    while (test_held(&t, true) == NULL) {
        sched_yield();
    }
    box_close(&b);
    while (!vj_rpc_request_is_canceled(test_held(&t, true))) {
        sched_yield();
    }
    test_let_go(&t, true);
    test_wait(&t, &t.gone, 1);
    test_end(&t);
}

typedef struct Noise {
    Box box;
    gint stop;
} Noise;

/* Writes numbers where states are, and bytes where frames are. */
static gpointer make_noise(gpointer opaque)
{
    Noise *n = opaque;
    VjRng rng;

    vj_rng_init(&rng, 20261127);
    while (g_atomic_int_get(&n->stop) == 0) {
        uint64_t number = vj_rng_u64(&rng);
        size_t at = number >> 8 & 7;

        if (at < 7) {
            __atomic_store_n((uint32_t *)(void *)(n->box.again + at * 64),
                             (uint32_t)(number >> 16 & 7), __ATOMIC_RELAXED);
        } else {
            n->box.again[VJ_MAILBOX_REQUEST_AT + (number >> 16 & 127)] =
                (uint8_t)(number >> 32);
        }
    }
    return NULL;
}

/* A peer that breaks all rules: its own connection suffers at the most. */
static void test_noise(void **state)
{
    unsigned ended = 0;
    RpcTest t;
    Box other;

    (void)state;
    begin(&t);
    other = box_open(&t);
    for (unsigned round = 0; round < 20; round++) {
        Noise n = {.box = box_open(&t)};
        VjFrame frame = {.op = OP_QUICK, .tag = 1};
        g_autoptr(GByteArray) bytes =
            raw_frame(&frame, vj_slice("noise", 5), vj_slice(NULL, 0));
        GThread *thread = g_thread_new("noise", make_noise, &n);
        ssize_t sent = 1;

        for (unsigned i = 0; i < NOISY_ROUNDS / 20 && sent > 0; i++) {
            struct pollfd wait = {.fd = n.box.fd, .events = POLLIN};
            uint8_t replies[4096];

            memcpy(n.box.memory + VJ_MAILBOX_REQUEST_AT, bytes->data, bytes->len);
            set_state(&n.box, VJ_MAILBOX_CALLED);
            frame.tag = i + 2;
            frame.message_bytes = 5;
            frame.body_checksum = vj_checksum64(bytes->data + VJ_FRAME_HEAD_BYTES, 5);
            vj_frame_encode(&frame, bytes->data);
            sent = send(n.box.fd, bytes->data, bytes->len, MSG_NOSIGNAL);
            /* The reply may stand in the mailbox, or never come. */
            (void)poll(&wait, 1, 1);
            (void)recv(n.box.fd, replies, sizeof replies, MSG_DONTWAIT);
        }
        ended += sent <= 0;
        g_atomic_int_set(&n.stop, 1);
        g_thread_join(thread);
        box_close(&n.box);
        echo_by_socket(&other);
        expect_echo(&other, call(&other, OP_ECHO, vj_slice("x", 1), vj_slice(NULL, 0)),
                    vj_slice("x", 1), vj_slice(NULL, 0));
    }
    assert_true(ended > 0); /* it has looked at some of that */
    box_close(&other);
    test_end(&t);
}

/* Until the server has read @bytes in all, and has done what they say. */
static void wait_for_bytes(const RpcTest *t, uint64_t bytes)
{
    int64_t until_us = vj_clock_mono_us() + 30 * TEST_SECOND;
    VjRpcServerStats stats;

    do {
        assert_true(vj_clock_mono_us() < until_us);
        sched_yield();
        vj_rpc_server_stats(t->server, &stats);
    } while (stats.received_bytes < bytes);
    for (unsigned i = 0; i < 2 * VJ_SERVER_LOOPS_MAX; i++) { /* by each of its loops */
        int fd = raw_connect_and_hello(t);
        VjFrame frame = {.op = OP_QUICK, .tag = 1};

        raw_send_frame(fd, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
        assert_int_equal(raw_recv_but_ping(fd).tag, 1);
        close(fd);
    }
}

/* A reply of @bytes to the oldest WAIT. */
static void fill_held(RpcTest *t, uint32_t bytes)
{
    VjBuf *bulk = vj_buf_new(bytes);
    VjRpcRequest *r;

    assert_non_null(bulk);
    memset(bulk->data, 'f', bytes);
    vj_mutex_lock(&t->lock);
    r = g_queue_pop_head(&t->held);
    vj_mutex_unlock(&t->lock);
    assert_non_null(r);
    vj_rpc_reply(r, 0, vj_slice(NULL, 0), bulk, bytes);
    vj_buf_unref(bulk);
}

/* Who does not take replies is kept waiting by others than these: they run where a
 * mailbox is made, as they do else. */
static void test_replies_not_taken(void **state)
{
    VjFrame wait = {.op = OP_WAIT, .tag = 1}, frame = {.op = OP_MAILBOX, .tag = 2};
    g_autoptr(GByteArray) bytes = raw_frame(&frame, vj_slice("m", 1), vj_slice(NULL, 0));
    VjRpcServerStats stats;
    RpcTest t;
    int fd, passed;

    (void)state;
    begin(&t);
    fd = raw_connect_with(&t, VJ_FEATURE_MAILBOX);
    raw_send_frame(fd, &wait, vj_slice(NULL, 0), vj_slice(NULL, 0));
    while (test_held(&t, true) == NULL) {
        sched_yield();
    }
    vj_rpc_server_stats(t.server, &stats);
    raw_send(fd, bytes->data, bytes->len - 1);
    wait_for_bytes(&t, stats.received_bytes + bytes->len - 1);
    fill_held(&t, FILL_BYTES);
    vj_rpc_server_stats(t.server, &stats);
    raw_send(fd, bytes->data + bytes->len - 1, 1);
    wait_for_bytes(&t, stats.received_bytes + 1);
    assert_int_equal(raw_recv_but_ping(fd).tag, wait.tag);
    assert_int_equal(recv_fd(fd, OP_MAILBOX, &passed), VJ_WIRE_OK);
    assert_true(passed >= 0);
    close(passed);
    close(fd);
    test_end(&t);
}

static int ask_bell(Box *b)
{
    VjFrame frame = {.op = OP_BELL, .tag = ++b->tag};
    int bell;

    raw_send_frame(b->fd, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
    assert_int_equal(recv_fd(b->fd, OP_BELL, &bell), VJ_WIRE_OK);
    assert_true(bell >= 0);
    return bell;
}

/* Who rings is heard at once, whether the server looked or not. */
static void test_bell(void **state)
{
    static const uint64_t one = 1;
    VjFrame frame = {.op = OP_BELL, .tag = 7};
    RpcTest t;
    Box b;
    int fd, bell;

    (void)state;
    begin(&t);
    fd = raw_connect_with(&t, VJ_FEATURE_MAILBOX);
    raw_send_frame(fd, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
    assert_int_equal(recv_fd(fd, OP_BELL, &bell), VJ_WIRE_UNSUPPORTED);
    close(fd);
    b = box_open(&t);
    bell = ask_bell(&b);
    assert_int_equal(*word(&b, VJ_MAILBOX_LISTENS_AT), 1);
    for (unsigned i = 0; i < 1000; i++) {
        VjFrame echo = {.op = i % 2 == 0 ? OP_ECHO : OP_QUICK, .tag = 1000 + i};
        g_autoptr(GByteArray) bytes =
            raw_frame(&echo, vj_slice("ring", 4), vj_slice(NULL, 0));

        memcpy(b.memory + VJ_MAILBOX_REQUEST_AT, bytes->data, bytes->len);
        set_state(&b, VJ_MAILBOX_CALLED);
        assert_int_equal(write(bell, &one, sizeof one), sizeof one);
        expect_echo(&b, echo.tag, vj_slice("ring", 4), vj_slice(NULL, 0));
    }
    raw_send_frame(b.fd, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
    assert_int_equal(recv_fd(b.fd, OP_BELL, &fd), VJ_WIRE_BUSY);
    close(bell);
    box_close(&b);
    test_end(&t);
}

/* What is taken back while the server looks at it, and what stands there then, are not
 * mixed up. */
static void test_taken_back(void **state)
{
    static const uint64_t one = 1;
    g_autofree char *text = g_strnfill(15000, 't');
    VjSlice bulk = vj_slice(text, strlen(text));
    GByteArray *frames[2];
    unsigned taken_back = 0;
    RpcTest t;
    int bell;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    bell = ask_bell(&b);
    for (unsigned i = 0; i < 2; i++) {
        VjFrame frame = {.op = OP_QUICK, .tag = 1000 + i};

        frames[i] = raw_frame(&frame, vj_slice(NULL, 0), bulk);
    }
    memcpy(b.memory + VJ_MAILBOX_REQUEST_AT, frames[0]->data, frames[0]->len);
    for (unsigned i = 0; i < BACK_ROUNDS; i++) {
        unsigned now = i % 2;

        memcpy(b.memory + VJ_MAILBOX_REQUEST_AT, frames[now]->data, VJ_FRAME_HEAD_BYTES);
        set_state(&b, VJ_MAILBOX_CALLED);
        assert_int_equal(write(bell, &one, sizeof one), sizeof one);
        for (unsigned j = 0; j < i % 500; j++) {
            (void)state_of(&b);
        }
        if (change_state(&b, VJ_MAILBOX_CALLED, VJ_MAILBOX_FREE)) {
            now = 1 - now;
            taken_back++;
            memcpy(b.memory + VJ_MAILBOX_REQUEST_AT, frames[now]->data,
                   VJ_FRAME_HEAD_BYTES);
            set_state(&b, VJ_MAILBOX_CALLED);
            assert_int_equal(write(bell, &one, sizeof one), sizeof one);
        }
        expect_echo(&b, 1000 + now, vj_slice(NULL, 0), bulk);
    }
    assert_true(taken_back > 0);
    g_byte_array_unref(frames[0]);
    g_byte_array_unref(frames[1]);
    close(bell);
    box_close(&b);
    test_end(&t);
}

/* A request that is taken when there is no room for it.  Returns its tag. */
static uint64_t call_without_room(RpcTest *t, Box *b, uint32_t timeout_ms)
{
    static const uint64_t one = 1;
    VjFrame wait = {.op = OP_WAIT, .tag = 1};
    VjFrame frame = {.op = OP_ECHO, .tag = 2, .timeout_ms = timeout_ms};
    VjSlice text = vj_slice("text", 4), nothing = vj_slice(NULL, 0);
    g_autoptr(GByteArray) bytes = raw_frame(&frame, text, nothing);
    int bell = ask_bell(b);

    raw_send_frame(b->fd, &wait, nothing, nothing);
    while (test_held(t, true) == NULL) {
        sched_yield();
    }
    fill_held(t, FILL_BYTES);
    memcpy(b->memory + VJ_MAILBOX_REQUEST_AT, bytes->data, bytes->len);
    set_state(b, VJ_MAILBOX_CALLED);
    assert_int_equal(write(bell, &one, sizeof one), sizeof one);
    wait_for_state(b, VJ_MAILBOX_TAKEN);
    close(bell);
    return frame.tag;
}

/* Its reply comes where it is waited for, too. */
static void test_no_room(void **state)
{
    RpcTest t;
    uint64_t tag;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    tag = call_without_room(&t, &b, 0);
    assert_int_equal(raw_recv_but_ping(b.fd).tag, 1);
    expect_echo(&b, tag, vj_slice("text", 4), vj_slice(NULL, 0));
    box_close(&b);
    test_end(&t);
}

/* What it has waited for room is a part of the time that it has. */
static void test_late_without_room(void **state)
{
    int64_t until_us;
    VjFrame reply;
    RpcTest t;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    (void)call_without_room(&t, &b, 1);
    until_us = vj_clock_mono_us() + 2000;
    while (vj_clock_mono_us() < until_us) {
        sched_yield();
    }
    assert_int_equal(raw_recv_but_ping(b.fd).tag, 1);
    wait_for_state(&b, VJ_MAILBOX_ANSWERED);
    assert_int_equal(vj_frame_decode(b.memory + VJ_MAILBOX_REPLY_AT, &reply), 0);
    assert_int_equal(reply.status, VJ_WIRE_LATE);
    box_close(&b);
    test_end(&t);
}
/* Who rings while the server is in the middle of a frame is heard behind it. */
static void test_bell_in_frame(void **state)
{
    static const uint64_t one = 1;
    VjSlice text = vj_slice("text", 4), nothing = vj_slice(NULL, 0);
    VjFrame first = {.op = OP_QUICK, .tag = 1}, second = {.op = OP_QUICK, .tag = 2};
    g_autoptr(GByteArray) socket = raw_frame(&first, text, nothing);
    g_autoptr(GByteArray) memory = raw_frame(&second, text, nothing);
    VjRpcServerStats stats;
    RpcTest t;
    int bell;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    bell = ask_bell(&b);
    vj_rpc_server_stats(t.server, &stats);
    raw_send(b.fd, socket->data, socket->len - 1);
    wait_for_bytes(&t, stats.received_bytes + socket->len - 1);
    memcpy(b.memory + VJ_MAILBOX_REQUEST_AT, memory->data, memory->len);
    set_state(&b, VJ_MAILBOX_CALLED);
    assert_int_equal(write(bell, &one, sizeof one), sizeof one);
    wait_for_bytes(&t, 0);
    raw_send(b.fd, socket->data + socket->len - 1, 1);
    assert_int_equal(raw_recv_but_ping(b.fd).tag, first.tag);
    expect_echo(&b, second.tag, text, nothing);
    close(bell);
    box_close(&b);
    test_end(&t);
}

/* There is one descriptor more, and a bell needs two: it is refused, the mailbox is
 * looked at as before, and later there is a bell. */
static void test_no_bell(void **state)
{
    VjFrame frame = {.op = OP_BELL, .tag = 7};
    struct rlimit limit, few;
    RpcTest t;
    int bell, next;
    Box b;

    (void)state;
    begin(&t);
    b = box_open(&t);
    echo_by_socket(&b); /* the server has closed what it has passed on */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    next = dup(b.fd);
    assert_true(next >= 0);
    close(next);
    few = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    raw_send_frame(b.fd, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
    assert_int_not_equal(recv_fd(b.fd, OP_BELL, &bell), VJ_WIRE_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    expect_echo(&b, call(&b, OP_ECHO, vj_slice("x", 1), vj_slice(NULL, 0)),
                vj_slice("x", 1), vj_slice(NULL, 0));
    raw_send_frame(b.fd, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
    assert_int_equal(recv_fd(b.fd, OP_BELL, &bell), VJ_WIRE_OK);
    close(bell);
    box_close(&b);
    test_end(&t);
}

/* No descriptor goes over TCP, whatever the peer asks for. */
static void test_tcp(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const uint16_t ops[] = {OP_MAILBOX, OP_BELL};
    RpcTest t;
    int fd;

    (void)state;
    begin_at(&t, TEST_TCP);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_port = htons((uint16_t)t.port);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    raw_set_timeout(fd);
    raw_send_hello_with(fd, VJ_FEATURE_MAILBOX);
    assert_int_equal(raw_recv_but_ping(fd).status, VJ_WIRE_OK);
    for (unsigned i = 0; i < G_N_ELEMENTS(ops); i++) {
        VjFrame frame = {.op = ops[i], .tag = i + 1};

        raw_send_frame(fd, &frame, vj_slice(NULL, 0), vj_slice(NULL, 0));
        assert_int_equal(raw_recv_but_ping(fd).status, VJ_WIRE_UNSUPPORTED);
    }
    close(fd);
    test_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_long_reply),
        cmocka_unit_test(test_long_wait),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_peer_is_gone),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_bell),
        cmocka_unit_test(test_no_bell),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_replies_not_taken),
        cmocka_unit_test(test_taken_back),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_late_without_room),
        cmocka_unit_test(test_bell_in_frame),
        cmocka_unit_test(test_no_feature),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
