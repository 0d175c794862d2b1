/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * fake-tls.h - TLS of the room rpc in front of a socket of the test's own
 *
 * A thread takes TLS off what comes in over a TCP socket, and puts it on what goes out.
 * So scripts of fake-daemon.h run over TLS as they are.  The end of one side is passed on
 * to the other one, one direction at a time.
 */
#ifndef VJ_TESTS_UNIT_CLIENT_FAKE_TLS_H
#define VJ_TESTS_UNIT_CLIENT_FAKE_TLS_H

#include "../../lib/test.h"
#include "rpc/stream-private.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

typedef struct FakeTls {
    VjCredentials *credentials;
    int outer; /* TCP, with TLS */
    int inner; /* of a socket pair, in clear text */
    GThread *thread;
} FakeTls;

typedef struct FakeFlow {
    uint8_t bytes[16384];
    size_t begin, end;
    bool is_over; /* nothing more comes */
} FakeFlow;

static inline bool fake_flow_in(FakeFlow *f, ssize_t got)
{
    if (got > 0) {
        f->begin = 0;
        f->end = (size_t)got;
    } else if (got != -EAGAIN) {
        f->is_over = true;
    }
    return got > 0;
}

static inline ssize_t fake_result(ssize_t rc)
{
    return rc >= 0 ? rc : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

/* What stands in @f goes out; true: something did. */
static inline bool fake_flow_out(FakeFlow *f, ssize_t sent)
{
    if (sent > 0) {
        f->begin += (size_t)sent;
    } else if (sent != -EAGAIN) {
        f->begin = f->end; /* nobody takes it any more */
        f->is_over = true;
    }
    return sent > 0;
}

/* Once in both directions; true: something went. */
static inline bool fake_tls_step(const FakeTls *t, VjStream *s, FakeFlow *in,
                                 FakeFlow *out)
{
    bool moved = false;

    if (in->begin == in->end && !in->is_over) {
        moved |= fake_flow_in(in, vj_stream_recv(s, in->bytes, sizeof in->bytes));
        if (in->is_over) {
            shutdown(t->inner, SHUT_WR);
        }
    }
    if (in->begin < in->end) {
        moved |= fake_flow_out(in, fake_result(send(t->inner, in->bytes + in->begin,
                                                    in->end - in->begin, MSG_NOSIGNAL)));
    }
    if (out->begin == out->end && !out->is_over) {
        ssize_t got = fake_result(recv(t->inner, out->bytes, sizeof out->bytes, 0));

        moved |= fake_flow_in(out, got == 0 ? -ECONNRESET : got);
        if (out->is_over) {
            shutdown(t->outer, SHUT_WR);
        }
    }
    if (out->begin < out->end) {
        struct iovec iov = {out->bytes + out->begin, out->end - out->begin};

        moved |= fake_flow_out(out, vj_stream_send(s, &iov, 1));
        /* The library has closed: what it sent before is not read any more. */
        in->is_over |= out->is_over;
    }
    return moved;
}

static inline gpointer fake_tls_run(gpointer opaque)
{
    FakeTls *t = opaque;
    FakeFlow *in = g_new0(FakeFlow, 1), *out = g_new0(FakeFlow, 1);
    struct pollfd end = {.fd = t->outer, .events = POLLIN};
    int rc;
    VjStream *s = vj_tls_stream_new(t->outer, true, t->credentials, NULL, &rc);

    g_assert(s != NULL);
    while ((rc = vj_stream_handshake(s)) == -EAGAIN) {
        struct pollfd wait = {.fd = t->outer, .events = s->handshake_wants};

        g_assert(poll(&wait, 1, 30000) >= 0);
    }
    while (rc == 0 && !(in->is_over && out->is_over)) {
        struct pollfd wait[2] = {
            {.fd = in->is_over && out->begin == out->end ? -1 : t->outer,
             .events = (short)((in->begin == in->end ? s->recv_wants : 0) |
                               (out->begin < out->end ? s->send_wants : 0))},
            {.fd = in->begin == in->end && out->is_over ? -1 : t->inner,
             .events = (short)((in->begin < in->end ? POLLOUT : 0) |
                               (out->begin == out->end && !out->is_over ? POLLIN : 0))}};

        if (!fake_tls_step(t, s, in, out) && !vj_stream_has_more(s)) {
            g_assert(poll(wait, 2, 30000) >= 0);
        }
    }
    vj_stream_free(s);
    /* Closing with bytes that were not read would take back what was sent. */
    shutdown(t->outer, SHUT_WR);
    while (poll(&end, 1, 30000) > 0 &&
           recv(t->outer, in->bytes, sizeof in->bytes, 0) > 0) {
    }
    close(t->outer);
    close(t->inner);
    g_free(in);
    g_free(out);
    return NULL;
}

/* Takes @fd; the socket of the script, in clear text. */
static inline int fake_tls_start(FakeTls *t, VjCredentials *credentials, int fd)
{
    int ends[2];

    g_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    g_assert(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    g_assert(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    t->credentials = credentials;
    t->outer = fd;
    t->inner = ends[1];
    t->thread = g_thread_new("fake-tls", fake_tls_run, t);
    return ends[0];
}

/* A TCP socket that listens on the own machine; *port is its port. */
static inline int fake_tls_listen(unsigned *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    g_assert(fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0);
    g_assert(listen(fd, 16) == 0);
    g_assert(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

#endif
