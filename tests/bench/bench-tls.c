/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-tls.c - what does TLS cost a connection over loopback?
 *
 * One thread sends in calls of 256 KiB, another receives; then both send 4 KiB in turns;
 * then they shake hands.  Against the same through the sockets without anything.  Says
 * whether the kernel encrypts (kTLS), which is no choice of this program: compare with a
 * machine, or a time, with the module tls.
 *
 * usage: bench-tls [MEBIBYTES]
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "figure.h"
#include "rpc/stream-private.h"

#define CALL_BYTES ((size_t)256 << 10)
#define SMALL_BYTES ((size_t)4096)
#define ROUNDS 5
#define TURNS 5000u
#define HANDSHAKES 300u
#define MEBIBYTES_MAX 100000u

typedef enum Way { BY_SOCKET, BY_TLS, WAY_COUNT } Way;

typedef struct End {
    int fd;
    VjStream *s; /* NULL: the socket alone */
} End;

static VjCredentials *client_credentials, *server_credentials;

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench-tls: %s: %s\n", what, g_strerror(errno));
        exit(1);
    }
}

static void wait_for(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};

    check(poll(&p, 1, -1) == 1, "poll");
}

static void send_all(const End *e, const uint8_t *src, size_t len)
{
    while (len > 0) {
        struct iovec iov = {.iov_base = (void *)src, .iov_len = len};
        ssize_t done;

        if (e->s != NULL) {
            done = e->s->ops->send(e->s, &iov, 1);
            check(done > 0 || done == -EAGAIN, "send");
        } else {
            done = send(e->fd, src, len, MSG_NOSIGNAL);
            check(done > 0 || errno == EAGAIN, "send");
        }
        if (done <= 0) {
            wait_for(e->fd, e->s != NULL ? e->s->send_wants : POLLOUT);
            continue;
        }
        src += done;
        len -= (size_t)done;
    }
}

static void recv_all(const End *e, uint8_t *dst, size_t len)
{
    while (len > 0) {
        ssize_t done;

        if (e->s != NULL) {
            done = e->s->ops->recv(e->s, dst, len);
            check(done > 0 || done == -EAGAIN, "recv");
        } else {
            done = recv(e->fd, dst, len, 0);
            check(done > 0 || errno == EAGAIN, "recv");
        }
        if (done <= 0) {
            wait_for(e->fd, e->s != NULL ? e->s->recv_wants : POLLIN);
            continue;
        }
        dst += done;
        len -= (size_t)done;
    }
}

/* ---- connections ------------------------------------------------------------------- */

static void connect_ends(End ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    check(bind(listener, (struct sockaddr *)&at, sizeof at) == 0, "bind");
    check(listen(listener, 1) == 0, "listen");
    check(getsockname(listener, (struct sockaddr *)&at, &len) == 0, "getsockname");
    ends[0].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(connect(ends[0].fd, (struct sockaddr *)&at, sizeof at) == 0, "connect");
    ends[1].fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    check(ends[1].fd >= 0, "accept");
    for (int i = 0; i < 2; i++) {
        check(fcntl(ends[i].fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
        check(setsockopt(ends[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0,
              "TCP_NODELAY");
        ends[i].s = NULL;
    }
    close(listener);
}

static void shake_hands(End ends[2])
{
    int rcs[2] = {-EAGAIN, -EAGAIN};

    for (int i = 0; i < 2; i++) {
        int rc;

        ends[i].s = vj_tls_stream_new(ends[i].fd, i == 1,
                                      i == 1 ? server_credentials : client_credentials,
                                      NULL, &rc);
        check(ends[i].s != NULL, "a stream");
    }
    while (rcs[0] == -EAGAIN || rcs[1] == -EAGAIN) {
        for (int i = 0; i < 2; i++) {
            rcs[i] = ends[i].s->ops->handshake(ends[i].s);
            check(rcs[i] == 0 || rcs[i] == -EAGAIN, "handshake");
        }
    }
}

static void close_ends(End ends[2])
{
    for (int i = 0; i < 2; i++) {
        vj_stream_free(ends[i].s);
        close(ends[i].fd);
    }
}

/* ---- what is measured -------------------------------------------------------------- */

typedef struct Receiver {
    const End *end;
    uint64_t bytes;
} Receiver;

static gpointer receive(gpointer opaque)
{
    const Receiver *r = opaque;
    g_autofree uint8_t *dst = g_malloc(CALL_BYTES);

    for (uint64_t done = 0; done < r->bytes; done += CALL_BYTES) {
        recv_all(r->end, dst, CALL_BYTES);
    }
    return NULL;
}

static int64_t processor_us(void)
{
    struct rusage u;

    check(getrusage(RUSAGE_SELF, &u) == 0, "getrusage");
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * G_USEC_PER_SEC + u.ru_utime.tv_usec +
           u.ru_stime.tv_usec;
}

/* MB/s, and of both threads together the microseconds of processors for a MiB. */
static double throughput(End ends[2], uint64_t bytes, double *busy)
{
    g_autofree uint8_t *src = g_malloc(CALL_BYTES);
    Receiver r = {.end = &ends[1], .bytes = bytes};
    int64_t begin_us;
    GThread *thread;

    vj_random_bytes(src, CALL_BYTES);
    begin_us = vj_clock_mono_us();
    *busy = -(double)processor_us();
    thread = g_thread_new("receive", receive, &r);
    for (uint64_t done = 0; done < bytes; done += CALL_BYTES) {
        send_all(&ends[0], src, CALL_BYTES);
    }
    g_thread_join(thread);
    *busy = (*busy + (double)processor_us()) / ((double)bytes / VJ_MIB);
    return (double)bytes / (double)MAX(vj_clock_mono_us() - begin_us, 1);
}

/* Microseconds of 4 KiB there and back, both ends in one thread. */
static double turn_us(End ends[2])
{
    static uint8_t bytes[SMALL_BYTES];
    int64_t begin_us = vj_clock_mono_us();

    for (unsigned i = 0; i < TURNS; i++) {
        for (int side = 0; side < 2; side++) {
            send_all(&ends[side], bytes, sizeof bytes);
            recv_all(&ends[1 - side], bytes, sizeof bytes);
        }
    }
    return (double)(vj_clock_mono_us() - begin_us) / TURNS;
}

/* Microseconds of a connection, both ends in one thread. */
static double connection_us(Way way)
{
    int64_t begin_us = vj_clock_mono_us();

    for (unsigned i = 0; i < HANDSHAKES; i++) {
        End ends[2];

        connect_ends(ends);
        if (way == BY_TLS) {
            shake_hands(ends);
        }
        close_ends(ends);
    }
    return (double)(vj_clock_mono_us() - begin_us) / HANDSHAKES;
}

static bool find_key(void *opaque, const char *identity, VjKey256 *out)
{
    (void)identity;
    *out = *(const VjKey256 *)opaque;
    return true;
}

static void load_credentials(VjKey256 *key)
{
    g_autofree char *dir = g_dir_make_tmp("varjfs-bench-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(dir, "key", NULL);
    const VjCredentialsFiles files = {.key = path, .identity = "bench"};
    const VjCredentialsFiles none = {0};

    check(vj_key_write_new(AT_FDCWD, path, NULL), path);
    check(vj_key_load(AT_FDCWD, path, key, NULL), path);
    check(vj_credentials_load(AT_FDCWD, &files, &client_credentials, NULL), path);
    check(vj_credentials_load_server(AT_FDCWD, &none, find_key, key, &server_credentials,
                                     NULL),
          path);
    check(unlink(path) == 0 && rmdir(dir) == 0, path);
}

int main(int argc, char **argv)
{
    double rate[WAY_COUNT][ROUNDS], busy[WAY_COUNT][ROUNDS];
    double turn[WAY_COUNT][ROUNDS], connection[WAY_COUNT][ROUNDS];
    guint64 mebibytes = 512;
    VjKey256 key;

    if (argc > 2 || (argc == 2 && !g_ascii_string_to_unsigned(
                                      argv[1], 10, 1, MEBIBYTES_MAX, &mebibytes, NULL))) {
        fprintf(stderr, "usage: bench-tls [MEBIBYTES]\n");
        return 2;
    }
    load_credentials(&key);
    for (int round = 0; round < ROUNDS; round++) {
        for (Way way = 0; way < WAY_COUNT; way++) {
            End ends[2];

            connect_ends(ends);
            if (way == BY_TLS) {
                shake_hands(ends);
            }
            rate[way][round] = throughput(ends, mebibytes * VJ_MIB, &busy[way][round]);
            turn[way][round] = turn_us(ends);
            close_ends(ends);
            connection[way][round] = connection_us(way);
        }
    }
    figure_print("256 KiB calls: socket", "MB/s", rate[BY_SOCKET], ROUNDS);
    figure_against("256 KiB calls: TLS", "MB/s", rate[BY_TLS], ROUNDS, "higher",
                   "256 KiB calls: socket", NULL);
    figure_print("the same, processors: socket", "us/MiB", busy[BY_SOCKET], ROUNDS);
    figure_against("the same, processors: TLS", "us/MiB", busy[BY_TLS], ROUNDS, "lower",
                   "the same, processors: socket", NULL);
    figure_print("4 KiB there and back: socket", "us", turn[BY_SOCKET], ROUNDS);
    figure_against("4 KiB there and back: TLS", "us", turn[BY_TLS], ROUNDS, "lower",
                   "4 KiB there and back: socket", NULL);
    figure_print("a connection: socket", "us", connection[BY_SOCKET], ROUNDS);
    figure_against("a connection: TLS", "us", connection[BY_TLS], ROUNDS, "lower",
                   "a connection: socket", NULL);
    vj_credentials_unref(client_credentials);
    vj_credentials_unref(server_credentials);
    vj_key_forget(&key, sizeof key);
    return 0;
}
