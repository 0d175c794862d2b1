/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * bench-rpc.c - what does a call to another process cost?
 *
 * A server in a process of its own, over a unix socket and over tcp of the loopback
 * device: an empty call that the loop thread answers, one that a worker answers, and
 * bulks of 256 KiB there (put) and back (get), one call after the other and eight in
 * flight.  Beside them what the sockets themselves take: a byte there and back between
 * two threads that block in read(2), and bulks copied by write(2) and read(2) likewise.
 *
 * usage: bench-rpc [PART]: only what has PART in its name
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "figure.h"
#include "rpc/messages.h"
#include "rpc/rpc.h"

#define BULK_BYTES ((uint32_t)256 << 10)
#define ROUNDS 7
#define CALLS 4000u
#define BULKS 1000u
#define DEPTH 8u

enum { OP_QUICK = VJ_OP_GET, OP_WORKER = VJ_OP_PUT, OP_FILL = VJ_OP_LIST };

static const char *part = "";

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench-rpc: %s: %s\n", what, g_strerror(errno));
        exit(1);
    }
}

/* ---- server ------------------------------------------------------------------------ */

static VjBuf *filled;

static void run_empty(VjRpcRequest *r)
{
    vj_rpc_reply(r, 0, vj_slice(NULL, 0), NULL, 0);
}

static void run_fill(VjRpcRequest *r)
{
    vj_rpc_reply(r, 0, vj_slice(NULL, 0), filled, BULK_BYTES);
}

static const VjRpcHandler handlers[] = {
    {.op = OP_QUICK, .name = "quick", .run = run_empty, .is_quick = true},
    {.op = OP_WORKER, .name = "worker", .bulk_max = BULK_BYTES, .run = run_empty},
    {.op = OP_FILL, .name = "fill", .run = run_fill},
    {.op = 0},
};

static int greet(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                 void **peer, GByteArray *reply)
{
    VjHelloReply fields = {.version = VJ_WIRE_VERSION};

    (void)identity;
    (void)message;
    vj_hello_reply_encode(reply, &fields);
    *role = VJ_ROLE_OBJECT;
    *peer = opaque;
    return 0;
}

static VjCredentials *insecure(void)
{
    VjCredentialsFiles files = {.insecure = true};
    VjCredentials *credentials = NULL;

    check(vj_credentials_load(-1, &files, &credentials, NULL), "credentials");
    return credentials;
}

/* In a process of its own; says its tcp port over @ready, and ends with the parent. */
static void serve(const char *unix_address, int ready)
{
    VjRpcServerConfig config = {.handlers = handlers, .hello = greet, .workers = 4};
    VjRpcServer *s = vj_rpc_server_new(&config);
    VjCredentials *credentials = insecure();
    unsigned port;
    char byte;

    vj_memory_init((size_t)4 << 20); /* as programs that serve do */
    filled = vj_buf_new(BULK_BYTES);
    memset(filled->data, 'f', BULK_BYTES);
    check(vj_rpc_server_listen(s, unix_address, credentials, NULL) &&
              vj_rpc_server_listen(s, "127.0.0.1:0", credentials, NULL) &&
              vj_rpc_server_start(s, NULL),
          "server");
    port = vj_rpc_server_port(s, 1);
    check(write(ready, &port, sizeof port) == sizeof port, "write");
    check(read(ready, &byte, 1) == 0, "end");
    vj_rpc_server_free(s);
    vj_credentials_unref(credentials);
    exit(0);
}

/* ---- client ------------------------------------------------------------------------ */

typedef struct Flight {
    VjRpcClient *client;
    uint16_t op;
    VjBuf *bulk;
    VjBuf *into[DEPTH];
    VjMutex lock;
    VjCond done;
    /* guarded by lock: */
    unsigned left, in_flight;
} Flight;

static VjRpcCall *call_new(Flight *f, unsigned number)
{
    VjRpcCall *call = vj_rpc_call_new(f->op);

    call->waits_for_connection = true;
    call->deadline_us = vj_clock_mono_us() + INT64_C(60000000);
    if (f->bulk != NULL) {
        call->bulk = vj_buf_ref(f->bulk);
        call->bulk_bytes = BULK_BYTES;
    }
    if (f->op == OP_FILL) {
        call->into = vj_buf_ref(f->into[number % DEPTH]);
        call->bulk_max = BULK_BYTES;
    }
    return call;
}

static void flight_init(Flight *f, VjRpcClient *c, uint16_t op, bool has_bulk)
{
    *f = (Flight){.client = c, .op = op};
    if (has_bulk) {
        f->bulk = vj_buf_new(BULK_BYTES);
        memset(f->bulk->data, 'b', BULK_BYTES);
    }
    for (unsigned i = 0; i < DEPTH; i++) {
        f->into[i] = vj_buf_new(BULK_BYTES);
    }
    vj_mutex_init(&f->lock, VJ_RANK_FRONT, "flight");
    vj_cond_init(&f->done);
}

static void flight_clear(Flight *f)
{
    vj_buf_unref(f->bulk);
    for (unsigned i = 0; i < DEPTH; i++) {
        vj_buf_unref(f->into[i]);
    }
    vj_cond_clear(&f->done);
    vj_mutex_clear(&f->lock);
}

static double one_by_one(Flight *f, unsigned count)
{
    int64_t begin_us = vj_clock_mono_us();

    for (unsigned i = 0; i < count; i++) {
        VjRpcCall *call = call_new(f, i);

        check(vj_rpc_run(f->client, call) == 0, "call");
        vj_rpc_call_unref(call);
    }
    return (double)(vj_clock_mono_us() - begin_us) / count;
}

static void flown(VjRpcCall *call)
{
    Flight *f = call->opaque;

    check(call->rc == 0, "call");
    vj_mutex_lock(&f->lock);
    f->left--;
    f->in_flight--;
    vj_cond_signal(&f->done);
    vj_mutex_unlock(&f->lock);
}

static double many_in_flight(Flight *f, unsigned count)
{
    int64_t begin_us = vj_clock_mono_us();

    f->left = count;
    for (unsigned i = 0; i < count; i++) {
        VjRpcCall *call = call_new(f, i);

        call->done = flown;
        call->opaque = f;
        vj_mutex_lock(&f->lock);
        while (f->in_flight >= DEPTH) {
            vj_cond_wait(&f->done, &f->lock);
        }
        f->in_flight++;
        vj_mutex_unlock(&f->lock);
        vj_rpc_submit(f->client, call);
        vj_rpc_call_unref(call);
    }
    vj_mutex_lock(&f->lock);
    while (f->left > 0) {
        vj_cond_wait(&f->done, &f->lock);
    }
    vj_mutex_unlock(&f->lock);
    return (double)(vj_clock_mono_us() - begin_us) / count;
}

static void measure(VjRpcClient *c, const char *transport, const char *name, uint16_t op,
                    bool has_bulk, bool is_deep, const char *aim)
{
    g_autofree char *whole = g_strdup_printf("%s %s", transport, name);
    bool is_bulk = has_bulk || op == OP_FILL;
    double values[ROUNDS];
    Flight f;

    if (strstr(whole, part) == NULL) {
        return;
    }
    flight_init(&f, c, op, has_bulk);
    (void)one_by_one(&f, 100);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned count = is_bulk ? BULKS : CALLS;
        double us = is_deep ? many_in_flight(&f, count) : one_by_one(&f, count);

        values[i] = is_bulk ? BULK_BYTES / us : us;
    }
    figure_against(whole, is_bulk ? "MB/s" : "us", values, ROUNDS,
                   is_bulk ? "higher" : "lower", NULL, aim);
    flight_clear(&f);
}

static void bench_transport(const char *transport, const char *address)
{
    g_autoptr(GByteArray) hello = g_byte_array_new();
    VjHello fields = {.version_min = VJ_WIRE_VERSION,
                      .version_max = VJ_WIRE_VERSION,
                      .role = VJ_ROLE_OBJECT,
                      .volume = vj_slice("bench", 5)};
    VjCredentials *credentials = insecure();
    VjRpcClientConfig config = {.address = address, .credentials = credentials};
    VjRpcClient *c;

    vj_hello_encode(hello, &fields);
    config.hello = vj_slice(hello->data, hello->len);
    c = vj_rpc_client_new(&config, NULL);
    check(c != NULL, address);
    measure(c, transport, "empty call, loop thread", OP_QUICK, false, false, "<= 60");
    measure(c, transport, "empty call, worker", OP_WORKER, false, false, NULL);
    measure(c, transport, "empty call, worker, 8 in flight", OP_WORKER, false, true,
            NULL);
    measure(c, transport, "put 256 KiB", OP_WORKER, true, false, NULL);
    measure(c, transport, "put 256 KiB, 8 in flight", OP_WORKER, true, true, ">= 1000");
    measure(c, transport, "get 256 KiB", OP_FILL, false, false, NULL);
    measure(c, transport, "get 256 KiB, 8 in flight", OP_FILL, false, true, ">= 1000");
    vj_rpc_client_free(c);
    vj_credentials_unref(credentials);
}

/* ---- the sockets themselves -------------------------------------------------------- */

static bool read_all(int fd, void *dst, size_t len)
{
    return recv(fd, dst, len, MSG_WAITALL) == (ssize_t)len;
}

/* Reads @len bytes and answers with one, until the other side closes. */
static void echo(int fd, size_t len)
{
    g_autofree char *bytes = g_malloc(len);

    while (read_all(fd, bytes, len) && write(fd, bytes, 1) == 1) {
    }
    exit(0);
}

static void bench_socket(const char *name, size_t len)
{
    unsigned count = len > 1 ? BULKS : CALLS;
    g_autofree char *bytes = g_malloc0(len);
    double values[ROUNDS];
    int fds[2];
    pid_t child;

    if (strstr(name, part) == NULL) {
        return;
    }
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
    child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        close(fds[0]);
        echo(fds[1], len);
    }
    close(fds[1]);
    for (unsigned round = 0; round < ROUNDS; round++) {
        int64_t begin_us = vj_clock_mono_us();

        for (unsigned i = 0; i < count; i++) {
            char byte;

            check(send(fds[0], bytes, len, 0) == (ssize_t)len, "send");
            check(read_all(fds[0], &byte, 1), "recv");
        }
        values[round] = (double)(vj_clock_mono_us() - begin_us) / count;
        values[round] = len > 1 ? (double)len / values[round] : values[round];
    }
    close(fds[0]);
    check(waitpid(child, NULL, 0) == child, "waitpid");
    figure_print(name, len > 1 ? "MB/s" : "us", values, ROUNDS);
}

int main(int argc, char **argv)
{
    g_autofree char *directory = g_dir_make_tmp("varjfs-bench-rpc-XXXXXX", NULL);
    g_autofree char *unix_address = NULL, *tcp_address = NULL;
    unsigned port;
    int ready[2];
    pid_t child;

    if (argc > 2) {
        fprintf(stderr, "usage: bench-rpc [PART]\n");
        return 2;
    }
    part = argc == 2 ? argv[1] : "";
    check(directory != NULL, "directory");
    unix_address = g_strdup_printf("unix:%s/socket", directory);
    bench_socket("socket, a byte there and back", 1);
    bench_socket("socket, 256 KiB there, a byte back", BULK_BYTES);
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ready) == 0, "socketpair");
    child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        close(ready[0]);
        serve(unix_address, ready[1]);
    }
    close(ready[1]);
    check(read(ready[0], &port, sizeof port) == sizeof port, "server");
    tcp_address = g_strdup_printf("127.0.0.1:%u", port);
    bench_transport("unix", unix_address);
    bench_transport("tcp", tcp_address);
    close(ready[0]);
    check(waitpid(child, NULL, 0) == child && rmdir(directory) == 0, "end");
    return 0;
}
