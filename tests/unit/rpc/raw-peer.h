/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * raw-peer.h - the other side of a connection, which sends what the test wants
 *
 * Blocking sockets; what does not come within 30 s is a failure.
 */
#ifndef VJ_TESTS_UNIT_RPC_RAW_PEER_H
#define VJ_TESTS_UNIT_RPC_RAW_PEER_H

#include "rpc-test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

static inline struct sockaddr_un raw_address(const RpcTest *t)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    g_strlcpy(at.sun_path, t->address + strlen("unix:"), sizeof at.sun_path);
    return at;
}

static inline void raw_set_timeout(int fd)
{
    struct timeval timeout = {.tv_sec = 30};

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout),
                     0);
}

static inline int raw_connect(const RpcTest *t)
{
    struct sockaddr_un at = raw_address(t);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    raw_set_timeout(fd);
    return fd;
}

static inline int raw_listen(const RpcTest *t)
{
    struct sockaddr_un at = raw_address(t);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static inline void raw_stop_listening(const RpcTest *t, int fd)
{
    close(fd);
    assert_int_equal(unlink(t->address + strlen("unix:")), 0);
}

static inline int raw_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    assert_true(fd >= 0);
    raw_set_timeout(fd);
    return fd;
}

/* What the peer does not take, as it has closed, is its business. */
static inline void raw_send(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    while (len > 0) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);

        if (sent < 0) {
            assert_true(errno == EPIPE || errno == ECONNRESET);
            return;
        }
        at += sent;
        len -= (size_t)sent;
    }
}

static inline void raw_recv(int fd, void *dst, size_t len)
{
    if (len > 0) {
        assert_int_equal(recv(fd, dst, len, MSG_WAITALL), (ssize_t)len);
    }
}

/* The peer closes; what it sends before does not matter. */
static inline void raw_expect_end(int fd)
{
    uint8_t bytes[4096];
    ssize_t got;

    do {
        got = recv(fd, bytes, sizeof bytes, 0);
    } while (got > 0);
    assert_true(got == 0 || errno == ECONNRESET);
    close(fd);
}

/* With lengths and checksums as they are to be, if the test does not say otherwise. */
static inline GByteArray *raw_frame(const VjFrame *frame, VjSlice message, VjSlice bulk)
{
    GByteArray *bytes = g_byte_array_new();
    VjFrame whole = *frame;
    uint8_t head[VJ_FRAME_HEAD_BYTES];

    g_byte_array_set_size(bytes, VJ_FRAME_HEAD_BYTES);
    if (message.len > 0) {
        g_byte_array_append(bytes, message.data, (guint)message.len);
    }
    if (bulk.len > 0) {
        g_byte_array_append(bytes, bulk.data, (guint)bulk.len);
    }
    whole.message_bytes = (uint32_t)message.len;
    whole.bulk_bytes = (uint32_t)bulk.len;
    if (message.len + bulk.len > 0) {
        whole.body_checksum =
            vj_checksum64(bytes->data + VJ_FRAME_HEAD_BYTES, message.len + bulk.len) +
            frame->body_checksum; /* 0, or what makes it wrong */
    }
    vj_frame_encode(&whole, head);
    memcpy(bytes->data, head, sizeof head);
    return bytes;
}

static inline void raw_send_frame(int fd, const VjFrame *frame, VjSlice message,
                                  VjSlice bulk)
{
    g_autoptr(GByteArray) bytes = raw_frame(frame, message, bulk);

    raw_send(fd, bytes->data, bytes->len);
}

/* A whole frame; its message and its bulk if these are not NULL. */
static inline VjFrame raw_recv_all(int fd, GByteArray **message, GByteArray **bulk)
{
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    g_autofree uint8_t *body = NULL;
    VjFrame frame;
    size_t len, sum_len;

    raw_recv(fd, head, sizeof head);
    assert_int_equal(vj_frame_decode(head, &frame), 0);
    len = (size_t)frame.message_bytes + frame.bulk_bytes;
    body = g_malloc(len + 1);
    raw_recv(fd, body, len);
    sum_len = vj_frame_sum_bytes(&frame);
    assert_int_equal(sum_len == 0 ? 0 : vj_checksum64(body, sum_len),
                     frame.body_checksum);
    if (message != NULL) {
        *message = g_byte_array_new();
        g_byte_array_append(*message, body, frame.message_bytes);
    }
    if (bulk != NULL) {
        *bulk = g_byte_array_new();
        g_byte_array_append(*bulk, body + frame.message_bytes, frame.bulk_bytes);
    }
    return frame;
}

static inline VjFrame raw_recv_frame(int fd, GByteArray **message)
{
    return raw_recv_all(fd, message, NULL);
}

/* On a slow machine a peer may ask for a sign of life, or give one, before. */
static inline VjFrame raw_recv_but_ping(int fd)
{
    VjFrame frame;

    do {
        frame = raw_recv_frame(fd, NULL);
    } while (frame.op == VJ_OP_PING);
    return frame;
}

/* ---- hello ------------------------------------------------------------------------- */

static inline void raw_send_hello_with(int fd, uint64_t features)
{
    g_autoptr(GByteArray) hello = test_hello_message();
    VjFrame frame = {.op = VJ_OP_HELLO, .tag = 99};

    vj_hello_add_features(hello, features);
    raw_send_frame(fd, &frame, vj_slice(hello->data, hello->len), vj_slice(NULL, 0));
}

static inline void raw_send_hello(int fd)
{
    raw_send_hello_with(fd, 0);
}

static inline int raw_connect_with(const RpcTest *t, uint64_t features)
{
    int fd = raw_connect(t);
    VjFrame reply;

    raw_send_hello_with(fd, features);
    reply = raw_recv_but_ping(fd);
    assert_int_equal(reply.op, VJ_OP_HELLO);
    assert_int_equal(reply.tag, 99);
    assert_int_equal(reply.flags, VJ_FRAME_REPLY);
    assert_int_equal(reply.status, VJ_WIRE_OK);
    return fd;
}

static inline int raw_connect_and_hello(const RpcTest *t)
{
    return raw_connect_with(t, 0);
}

static inline void raw_answer(int fd, const VjFrame *request, uint32_t status,
                              VjSlice message, VjSlice bulk)
{
    VjFrame frame = {.flags = VJ_FRAME_REPLY,
                     .op = request->op,
                     .tag = request->tag,
                     .status = status};

    raw_send_frame(fd, &frame, message, bulk);
}

/* As a server: takes a client and answers its hello. */
static inline int raw_accept_and_hello(RpcTest *t, int listener)
{
    g_autoptr(GByteArray) reply = g_byte_array_new();
    int fd = raw_accept(listener);
    VjFrame hello = raw_recv_frame(fd, NULL);

    assert_int_equal(hello.op, VJ_OP_HELLO);
    vj_hello_reply_encode(reply, &t->hello_reply);
    raw_answer(fd, &hello, VJ_WIRE_OK, vj_slice(reply->data, reply->len),
               vj_slice(NULL, 0));
    return fd;
}

#endif
