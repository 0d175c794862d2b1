/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* raw.c - connections to a node that send what a hostile peer likes to */
#include "raw.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../lib/rpc-frames.h"

static struct sockaddr_storage where;
static socklen_t where_len;

static void G_GNUC_NORETURN give_up(const char *what)
{
    printf("Bail out! %s: %s\n", what, g_strerror(errno));
    exit(1);
}

void raw_set_address(const char *address)
{
    struct sockaddr_un *local = (struct sockaddr_un *)&where;
    struct sockaddr_in *inet = (struct sockaddr_in *)&where;
    const char *port = strrchr(address, ':');

    if (g_str_has_prefix(address, "unix:")) {
        local->sun_family = AF_UNIX;
        g_assert(strlen(address) - 5 < sizeof local->sun_path);
        g_strlcpy(local->sun_path, address + 5, sizeof local->sun_path);
        where_len = sizeof *local;
        return;
    }
    g_assert(port != NULL && g_str_has_prefix(address, "127.0.0.1:"));
    inet->sin_family = AF_INET;
    inet->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    inet->sin_port = htons((uint16_t)atoi(port + 1));
    where_len = sizeof *inet;
}

int raw_connect(void)
{
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&where, where_len) != 0) {
        give_up("cannot connect");
    }
    return fd;
}

/* What was sent of it, or -1: closed. */
static ssize_t send_some(int fd, const uint8_t *bytes, size_t len)
{
    ssize_t sent;

    do {
        sent = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0 ? sent : errno == EAGAIN ? 0 : -1;
}

RawSent raw_offer(int fd, const void *bytes, size_t len)
{
    ssize_t sent = send_some(fd, bytes, len);

    return sent < 0 ? RAW_CLOSED : (size_t)sent == len ? RAW_SENT : RAW_FULL;
}

static void wait_for(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};

    if (poll(&p, 1, RAW_WAIT_MS) <= 0) {
        errno = ETIMEDOUT;
        give_up("the node has stalled");
    }
}

RawSent raw_send(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    while (len > 0) {
        ssize_t sent = send_some(fd, at, len);

        if (sent < 0) {
            return RAW_CLOSED;
        }
        if (sent == 0) {
            wait_for(fd, POLLOUT);
        }
        at += sent;
        len -= (size_t)sent;
    }
    return RAW_SENT;
}

size_t raw_receive(int fd, void *dst, size_t len)
{
    uint8_t *at = dst;
    size_t used = 0;

    while (used < len) {
        ssize_t got;

        wait_for(fd, POLLIN);
        got = recv(fd, at + used, len - used, 0);
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    return used;
}

void raw_wait_for_end(int fd)
{
    uint8_t bytes[4096];

    while (raw_receive(fd, bytes, sizeof bytes) == sizeof bytes) {
    }
    close(fd);
}

GByteArray *raw_request(uint16_t op, uint64_t tag, VjSlice message, VjSlice bulk)
{
    return rpc_frame((VjFrame){.op = op, .tag = tag}, message, bulk);
}

void raw_announce(uint16_t op, uint32_t message_bytes, uint32_t bulk_bytes,
                  uint8_t head[VJ_FRAME_HEAD_BYTES])
{
    VjFrame frame = {.op = op,
                     .tag = 1,
                     .message_bytes = message_bytes,
                     .bulk_bytes = bulk_bytes,
                     .body_checksum = 1};

    vj_frame_encode(&frame, head);
}

VjHello raw_hello(uint8_t role)
{
    VjHello m = {.version_min = 1,
                 .version_max = 1,
                 .role = role,
                 .volume = vj_slice("home", 4),
                 .name = vj_slice("hostile", 7)};

    for (unsigned i = 0; i < VJ_WIRE_UUID_BYTES; i++) {
        m.uuid[i] = (uint8_t)(0x30 + i); /* as rpc-frames.c has it */
    }
    return m;
}

GByteArray *raw_hello_frame(const VjHello *m)
{
    g_autoptr(GByteArray) message = g_byte_array_new();

    vj_hello_encode(message, m);
    return raw_request(VJ_OP_HELLO, 1, vj_slice(message->data, message->len),
                       vj_slice(NULL, 0));
}

int64_t raw_reply(int fd, VjFrame *frame)
{
    uint8_t head[VJ_FRAME_HEAD_BYTES], bytes[4096];
    uint64_t left;

    if (raw_receive(fd, head, sizeof head) < sizeof head) {
        return -1;
    }
    if (vj_frame_decode(head, frame) < 0) {
        errno = EPROTO;
        give_up("the node has sent no frame");
    }
    left = (uint64_t)frame->message_bytes + frame->bulk_bytes;
    while (left > 0) {
        size_t part = (size_t)MIN(left, sizeof bytes);

        if (raw_receive(fd, bytes, part) < part) {
            return -1;
        }
        left -= part;
    }
    return frame->status;
}

int64_t raw_say_hello(int fd, const VjHello *m)
{
    g_autoptr(GByteArray) frame = raw_hello_frame(m);
    VjFrame reply;

    (void)raw_send(fd, frame->data, frame->len);
    return raw_reply(fd, &reply);
}

int raw_welcome(uint8_t role)
{
    VjHello m = raw_hello(role);
    int fd = raw_connect();
    int64_t status = raw_say_hello(fd, &m);

    if (status != VJ_WIRE_OK) {
        printf("# hello: status %" G_GINT64_FORMAT "\n", status);
        errno = EACCES;
        give_up("the node refuses a sound hello");
    }
    return fd;
}
