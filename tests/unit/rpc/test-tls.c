/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-tls.c - two peers that believe each other or do not, and what then goes through
 *
 * Both ends of a connection are in one thread, which lets them go on one after the other.
 */
#include "credentials-test.h"

#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "rpc/stream-private.h"

#define STEPS_MAX 1000 /* of a handshake; then it does not end */

/* ---- two ends ---------------------------------------------------------------------- */

typedef struct Ends {
    int fds[2]; /* client, server */
    VjCredentials *credentials[2];
    VjStream *streams[2];
    int rcs[2]; /* of the handshakes */
} Ends;

enum { CLIENT, SERVER };

static void make_sockets(Ends *e)
{
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, e->fds), 0);
}

/* Over loopback, so that there are addresses. */
static void make_tcp(Ends *e)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    e->fds[CLIENT] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(e->fds[CLIENT], (struct sockaddr *)&at, sizeof at), 0);
    e->fds[SERVER] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(e->fds[SERVER] >= 0);
    assert_int_equal(fcntl(e->fds[CLIENT], F_SETFL, O_NONBLOCK), 0);
    close(listener);
}

static void make_stream(Ends *e, int side, const char *host)
{
    int rc;

    e->streams[side] =
        vj_tls_stream_new(e->fds[side], side == SERVER, e->credentials[side], host, &rc);
    assert_non_null(e->streams[side]);
    assert_int_equal(rc, 0);
}

static void free_stream(Ends *e, int side)
{
    vj_stream_free(e->streams[side]);
    e->streams[side] = NULL;
}

static void clear_ends(Ends *e)
{
    for (int side = 0; side < 2; side++) {
        free_stream(e, side);
        vj_credentials_unref(e->credentials[side]);
        vj_fd_close(&e->fds[side]);
    }
}

static VjCredentials *load_client(const VjCredentialsTest *t,
                                  const VjCredentialsFiles *files)
{
    g_autoptr(GError) error = NULL;
    VjCredentials *c;

    if (!vj_credentials_load(t->dir_fd, files, &c, &error)) {
        fail_msg("%s", error->message);
    }
    return c;
}

static bool find_in_dir(void *opaque, const char *identity, VjKey256 *out)
{
    const VjCredentialsTest *t = opaque;
    g_autofree char *name = g_strconcat(identity, ".key", NULL);

    return strchr(identity, '/') == NULL && vj_key_load(t->dir_fd, name, out, NULL);
}

static VjCredentials *load_server(VjCredentialsTest *t, const VjCredentialsFiles *files,
                                  bool has_keys)
{
    g_autoptr(GError) error = NULL;
    VjCredentials *c;

    if (!vj_credentials_load_server(t->dir_fd, files, has_keys ? find_in_dir : NULL, t,
                                    &c, &error)) {
        fail_msg("%s", error->message);
    }
    return c;
}

static const VjCredentialsFiles none = {0};
static const VjCredentialsFiles home = {.key = "home.key", .identity = "home"};
static const VjCredentialsFiles alice = {
    .certificate = "alice.pem", .certificate_key = "alice-key.pem", .ca = "ca.pem"};
static const VjCredentialsFiles node = {
    .certificate = "node.pem", .certificate_key = "node-key.pem", .ca = "ca.pem"};

/* One side goes on as far as it can. */
static void step(Ends *e, int side)
{
    VjStream *s = e->streams[side];

    if (e->rcs[side] == -EAGAIN) {
        e->rcs[side] = s->ops->handshake(s);
        if (e->rcs[side] == -EAGAIN) {
            assert_true(s->handshake_wants == POLLIN || s->handshake_wants == POLLOUT);
        } else if (e->rcs[side] < 0) {
            /* As its user does. */
            assert_int_equal(s->ops->handshake(s), e->rcs[side]);
            assert_string_equal(s->identity, "");
            free_stream(e, side);
            shutdown(e->fds[side], SHUT_RDWR);
        }
    }
}

static void shake_hands(Ends *e)
{
    e->rcs[CLIENT] = e->rcs[SERVER] = -EAGAIN;
    for (int i = 0; e->rcs[CLIENT] == -EAGAIN || e->rcs[SERVER] == -EAGAIN; i++) {
        assert_true(i < STEPS_MAX);
        step(e, CLIENT);
        step(e, SERVER);
    }
}

/* Both are ready; a client hears of a refusal by what comes next. */
static int client_hears(Ends *e)
{
    char byte;

    return e->rcs[CLIENT] != 0
               ? e->rcs[CLIENT]
               : (int)e->streams[CLIENT]->ops->recv(e->streams[CLIENT], &byte, 1);
}

/* Takes the credentials. */
static void connect_ends(Ends *e, VjCredentials *client, VjCredentials *server,
                         const char *host)
{
    *e = (Ends){.credentials = {client, server}};
    make_sockets(e);
    make_stream(e, CLIENT, host);
    make_stream(e, SERVER, NULL);
    shake_hands(e);
}

static void send_text(Ends *e, int side, const char *text)
{
    struct iovec iov = {.iov_base = (void *)text, .iov_len = strlen(text)};

    assert_int_equal(e->streams[side]->ops->send(e->streams[side], &iov, 1),
                     strlen(text));
}

static void expect_text(Ends *e, int side, const char *text)
{
    char got[64];
    ssize_t len = e->streams[side]->ops->recv(e->streams[side], got, sizeof got);

    assert_int_equal(len, strlen(text));
    assert_memory_equal(got, text, strlen(text));
    assert_int_equal(e->streams[side]->ops->recv(e->streams[side], got, 1), -EAGAIN);
    assert_int_equal(e->streams[side]->recv_wants, POLLIN);
    assert_false(e->streams[side]->ops->has_more(e->streams[side]));
}

static void expect_both_ways(Ends *e)
{
    send_text(e, CLIENT, "from the client");
    send_text(e, SERVER, "from the server");
    expect_text(e, SERVER, "from the client");
    expect_text(e, CLIENT, "from the server");
}

/* ---- keys -------------------------------------------------------------------------- */

static void test_key(void **state)
{
    VjCredentialsTest *t = *state;
    Ends e;
    char byte;

    connect_ends(&e, load_client(t, &home), load_server(t, &none, true), NULL);
    assert_int_equal(e.rcs[CLIENT], 0);
    assert_int_equal(e.rcs[SERVER], 0);
    assert_string_equal(e.streams[SERVER]->identity, "key:home");
    assert_string_equal(e.streams[CLIENT]->identity, "key:home");
    assert_string_equal(e.streams[CLIENT]->ops->name, "tls");
    /* No ticket comes behind the handshake. */
    assert_int_equal(recv(e.fds[CLIENT], &byte, 1, MSG_PEEK), -1);
    assert_int_equal(errno, EAGAIN);
    expect_both_ways(&e);
    clear_ends(&e);
}

/* What a server answers to the hello of a client with @files; it refuses. */
static GByteArray *answer_to(VjCredentialsTest *t, const VjCredentialsFiles *files)
{
    Ends e = {.credentials = {load_client(t, files), load_server(t, &none, true)}};
    GByteArray *answer = g_byte_array_new();
    uint8_t bytes[4096];
    ssize_t len;

    make_sockets(&e);
    make_stream(&e, CLIENT, NULL);
    make_stream(&e, SERVER, NULL);
    e.rcs[CLIENT] = e.rcs[SERVER] = -EAGAIN;
    step(&e, CLIENT);
    step(&e, SERVER);
    assert_int_equal(e.rcs[SERVER], -EACCES);
    len = recv(e.fds[CLIENT], bytes, sizeof bytes, MSG_PEEK);
    assert_true(len > 0);
    g_byte_array_append(answer, bytes, (guint)len);
    step(&e, CLIENT);
    assert_int_equal(e.rcs[CLIENT], -EACCES);
    clear_ends(&e);
    return answer;
}

static void test_wrong_key_and_no_identity(void **state)
{
    VjCredentialsTest *t = *state;
    const VjCredentialsFiles wrong = {.key = "office.key", .identity = "home"};
    const VjCredentialsFiles unknown = {.key = "home.key", .identity = "nobody"};
    g_autoptr(GByteArray) to_wrong = answer_to(t, &wrong);
    g_autoptr(GByteArray) to_unknown = NULL;

    assert_true(vj_test_logged(t, "\"home\": no such name, or another key"));
    to_unknown = answer_to(t, &unknown);
    assert_true(vj_test_logged(t, "\"nobody\": no such name, or another key"));
    /* One alert, the same, so neither is told from the other. */
    assert_int_equal(to_wrong->len, 7);
    assert_int_equal(to_wrong->data[0], 21);
    assert_int_equal(to_unknown->len, to_wrong->len);
    assert_memory_equal(to_unknown->data, to_wrong->data, to_wrong->len);
}

static void test_names_of_keys_are_any_bytes(void **state)
{
    VjCredentialsTest *t = *state;
    g_autofree char *longest = g_strnfill(VJ_RPC_KEY_IDENTITY_MAX, 'x');
    const char *const names[] = {"../home", "a\nb\x1b[31m\xff", longest};

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        const VjCredentialsFiles files = {.key = "home.key", .identity = names[i]};
        Ends e;

        connect_ends(&e, load_client(t, &files), load_server(t, &none, true), NULL);
        assert_int_equal(e.rcs[SERVER], -EACCES);
        assert_int_equal(e.rcs[CLIENT], -EACCES);
        clear_ends(&e);
    }
    assert_true(vj_test_logged(t, "a\\x0ab\\x1b[31m\\xff"));
}

/* ---- certificates ------------------------------------------------------------------ */

static void test_certificates(void **state)
{
    VjCredentialsTest *t = *state;
    const char *const hosts[] = {"node", "127.0.0.1"};

    for (size_t i = 0; i < G_N_ELEMENTS(hosts); i++) {
        Ends e;

        connect_ends(&e, load_client(t, &alice), load_server(t, &node, i == 0), hosts[i]);
        assert_int_equal(e.rcs[CLIENT], 0);
        assert_int_equal(e.rcs[SERVER], 0);
        assert_string_equal(e.streams[SERVER]->identity, "cert:alice");
        assert_string_equal(e.streams[CLIENT]->identity, "cert:node");
        expect_both_ways(&e);
        clear_ends(&e);
    }
}

static void test_server_with_both(void **state)
{
    VjCredentialsTest *t = *state;
    Ends e;

    connect_ends(&e, load_client(t, &home), load_server(t, &node, true), "node");
    assert_int_equal(e.rcs[CLIENT], 0);
    assert_string_equal(e.streams[SERVER]->identity, "key:home");
    clear_ends(&e);
}

static void test_refused_by_client(void **state)
{
    VjCredentialsTest *t = *state;
    static const struct {
        VjCredentialsFiles client, server;
        const char *host, *log;
    } cases[] = {
        {{0}, {0}, "elsewhere", "ostname mismatch"},
        {{0}, {0}, "127.0.0.2", "IP address mismatch"},
        {{.ca = "other/ca.pem"}, {0}, "node", "certificate not accepted"},
        {{0},
         {.certificate = "other/node.pem", .certificate_key = "other/node-key.pem"},
         "node",
         "certificate not accepted"},
        {{0},
         {.certificate = "expired-node.pem", .certificate_key = "expired-node-key.pem"},
         "node",
         "certificate has expired"},
        /* A client's certificate, under its own name, is none of a server. */
        {{0},
         {.certificate = "alice.pem", .certificate_key = "alice-key.pem"},
         "alice",
         "certificate not accepted"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        VjCredentialsFiles client = alice, server = node;
        Ends e;

        client.ca = cases[i].client.ca != NULL ? cases[i].client.ca : client.ca;
        if (cases[i].server.certificate != NULL) {
            server.certificate = cases[i].server.certificate;
            server.certificate_key = cases[i].server.certificate_key;
        }
        connect_ends(&e, load_client(t, &client), load_server(t, &server, false),
                     cases[i].host);
        assert_int_equal(e.rcs[CLIENT], -EACCES);
        assert_int_equal(e.rcs[SERVER], -EACCES);
        assert_true(vj_test_logged(t, cases[i].log));
        clear_ends(&e);
    }
}

static void test_refused_by_server(void **state)
{
    VjCredentialsTest *t = *state;
    static const VjCredentialsFiles clients[] = {
        {.certificate = "other/alice.pem", .certificate_key = "other/alice-key.pem"},
        {.certificate = "expired-alice.pem", .certificate_key = "expired-alice-key.pem"},
        {.certificate = "node.pem", .certificate_key = "node-key.pem"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(clients); i++) {
        VjCredentialsFiles client = clients[i];
        Ends e;

        client.ca = "ca.pem";
        connect_ends(&e, load_client(t, &client), load_server(t, &node, false), "node");
        assert_int_equal(e.rcs[SERVER], -EACCES);
        assert_int_equal(client_hears(&e), -EACCES);
        assert_true(vj_test_logged(t, "certificate not accepted"));
        clear_ends(&e);
    }
}

static void test_no_common_kind(void **state)
{
    VjCredentialsTest *t = *state;
    Ends e;

    /* A client with a key believes no certificate. */
    connect_ends(&e, load_client(t, &home), load_server(t, &node, false), "node");
    assert_int_equal(e.rcs[CLIENT], -EACCES);
    assert_int_equal(e.rcs[SERVER], -EACCES);
    clear_ends(&e);
    connect_ends(&e, load_client(t, &alice), load_server(t, &none, true), "node");
    assert_int_equal(e.rcs[SERVER], -EACCES);
    assert_int_equal(e.rcs[CLIENT], -EACCES);
    clear_ends(&e);
}

static void test_certificates_need_a_host(void **state)
{
    VjCredentialsTest *t = *state;
    g_autoptr(VjCredentials) c = load_client(t, &alice);
    int rc;

    assert_null(vj_tls_stream_new(0, false, c, NULL, &rc));
    assert_int_equal(rc, -EACCES);
    assert_true(vj_test_logged(t, "needs the name of a host"));
}

/* ---- other programs ---------------------------------------------------------------- */

/* A client of OpenSSL's own, with no more than it is given here. */
typedef struct Foreign {
    SSL_CTX *context;
    SSL *ssl;
} Foreign;

static void foreign_init(Foreign *f, int fd)
{
    f->context = SSL_CTX_new(TLS_client_method());
    f->ssl = SSL_new(f->context);
    SSL_set_fd(f->ssl, fd);
}

/* What the server makes of it. */
static int foreign_against(Foreign *f, Ends *e)
{
    for (int i = 0; i < STEPS_MAX; i++) {
        SSL_do_handshake(f->ssl);
        ERR_clear_error();
        e->rcs[SERVER] = e->streams[SERVER]->ops->handshake(e->streams[SERVER]);
        if (e->rcs[SERVER] != -EAGAIN) {
            break;
        }
    }
    SSL_free(f->ssl);
    SSL_CTX_free(f->context);
    return e->rcs[SERVER];
}

static void begin_foreign(VjCredentialsTest *t, Foreign *f, Ends *e)
{
    *e = (Ends){.credentials = {NULL, load_server(t, &node, true)}};
    make_sockets(e);
    make_stream(e, SERVER, NULL);
    foreign_init(f, e->fds[CLIENT]);
    SSL_set_connect_state(f->ssl);
}

static const unsigned char protocol[] = "\x06varjfs";

static void test_no_certificate(void **state)
{
    VjCredentialsTest *t = *state;
    Foreign f;
    Ends e;

    begin_foreign(t, &f, &e);
    SSL_set_alpn_protos(f.ssl, protocol, sizeof protocol - 1);
    assert_int_equal(foreign_against(&f, &e), -EACCES);
    assert_true(vj_test_logged(t, "peer did not return a certificate"));
    clear_ends(&e);
}

static void use_alice(const VjCredentialsTest *t, Foreign *f)
{
    g_autofree char *certificate = g_build_filename(t->path, "alice.pem", NULL);
    g_autofree char *key = g_build_filename(t->path, "alice-key.pem", NULL);

    assert_int_equal(SSL_use_certificate_file(f->ssl, certificate, SSL_FILETYPE_PEM), 1);
    assert_int_equal(SSL_use_PrivateKey_file(f->ssl, key, SSL_FILETYPE_PEM), 1);
}

static void test_no_application_protocol(void **state)
{
    VjCredentialsTest *t = *state;
    static const unsigned char http[] = "\x08http/1.1\x02h2";

    for (int i = 0; i < 3; i++) {
        Foreign f;
        Ends e;

        begin_foreign(t, &f, &e);
        use_alice(t, &f);
        if (i == 0) {
            SSL_set_alpn_protos(f.ssl, http, sizeof http - 1);
        } else if (i == 1) {
            SSL_set_alpn_protos(f.ssl, protocol, sizeof protocol - 1);
        }
        assert_int_equal(foreign_against(&f, &e), i == 1 ? 0 : -EPROTO);
        clear_ends(&e);
    }
}

static void test_tls_1_2(void **state)
{
    VjCredentialsTest *t = *state;
    Foreign f;
    Ends e;

    begin_foreign(t, &f, &e);
    use_alice(t, &f);
    SSL_set_alpn_protos(f.ssl, protocol, sizeof protocol - 1);
    SSL_set_max_proto_version(f.ssl, TLS1_2_VERSION);
    assert_int_equal(foreign_against(&f, &e), -EPROTO);
    assert_true(vj_test_logged(t, "unsupported protocol"));
    clear_ends(&e);
}

/* ---- bytes ------------------------------------------------------------------------- */

#define STREAM_BYTES ((size_t)64 << 20)
#define PERIOD ((size_t)1 << 20)
#define PIECES 8
#define READ_MAX ((size_t)300000)

/* The sender's view of a long stream, whose byte at i is pattern[i % PERIOD]. */
typedef struct Flow {
    const uint8_t *pattern;
    VjRng rng;
    uint64_t sent, received;
    unsigned waits, partial;
    size_t offered; /* of the last send */
    uint8_t *copies[PIECES];
} Flow;

/* At least what is begun, in pieces and places that are others each time. */
static void flow_send(Flow *f, VjStream *s)
{
    struct iovec iov[PIECES];
    size_t offered = 0;
    int count = 1 + (int)vj_rng_below(&f->rng, PIECES);
    ssize_t done;

    for (int i = 0; i < count; i++) {
        bool is_large = vj_rng_below(&f->rng, 4) == 0;
        size_t len = vj_rng_below(&f->rng, is_large ? 100000 : 300);

        if (i == count - 1 && offered + len < s->send_pending + 1) {
            len = s->send_pending + 1 - offered;
        }
        len = MIN(len, STREAM_BYTES - f->sent - offered);
        g_free(f->copies[i]);
        f->copies[i] = g_malloc(len);
        for (size_t at = 0; at < len;) {
            size_t from = (f->sent + offered + at) % PERIOD;
            size_t run = MIN(len - at, PERIOD - from);

            memcpy(f->copies[i] + at, f->pattern + from, run);
            at += run;
        }
        iov[i] = (struct iovec){.iov_base = f->copies[i], .iov_len = len};
        offered += len;
    }
    done = s->ops->send(s, iov, count);
    assert_true(done > 0 || done == -EAGAIN);
    if (done == -EAGAIN) {
        f->waits++;
        assert_int_equal(s->send_wants, POLLOUT);
        assert_true(s->send_pending > 0 && s->send_pending <= offered);
        return;
    }
    f->partial += (size_t)done < offered;
    assert_true((size_t)done + s->send_pending <= offered);
    f->sent += (size_t)done;
}

static void flow_recv(Flow *f, VjStream *s, uint8_t *dst)
{
    size_t len = 1 + vj_rng_below(&f->rng, READ_MAX);
    ssize_t got = s->ops->recv(s, dst, len);

    assert_true(got > 0 || got == -EAGAIN);
    for (ssize_t at = 0; at < got;) {
        size_t from = (f->received + (size_t)at) % PERIOD;
        size_t run = MIN((size_t)(got - at), PERIOD - from);

        assert_memory_equal(dst + at, f->pattern + from, run);
        at += (ssize_t)run;
    }
    if (got > 0) {
        f->received += (size_t)got;
    } else {
        assert_false(s->ops->has_more(s));
    }
}

static void test_64_mib(void **state)
{
    VjCredentialsTest *t = *state;
    uint64_t seed = vj_random_u64();
    g_autofree uint8_t *pattern = g_malloc(PERIOD);
    g_autofree uint8_t *dst = g_malloc(READ_MAX);
    Flow flows[2] = {{.pattern = pattern}, {.pattern = pattern}};
    Ends e;

    print_message("seed %" G_GUINT64_FORMAT "\n", seed);
    connect_ends(&e, load_client(t, &home), load_server(t, &none, true), NULL);
    /* Little room in the kernel: sends do not get far. */
    for (int side = 0; side < 2; side++) {
        assert_int_equal(
            setsockopt(e.fds[side], SOL_SOCKET, SO_SNDBUF, &(int){30000}, sizeof(int)),
            0);
    }
    vj_rng_init(&flows[0].rng, seed);
    vj_rng_init(&flows[1].rng, seed + 1);
    vj_rng_bytes(&flows[0].rng, pattern, PERIOD);
    /* Both ways at the same time, though the client sends nearly all of it. */
    flows[SERVER].sent = flows[SERVER].received = STREAM_BYTES - PERIOD;
    while (flows[CLIENT].received < STREAM_BYTES ||
           flows[SERVER].received < STREAM_BYTES) {
        for (int side = 0; side < 2; side++) {
            if (flows[side].sent < STREAM_BYTES) {
                flow_send(&flows[side], e.streams[side]);
            }
            if (flows[side].received < flows[side].sent) {
                flow_recv(&flows[side], e.streams[1 - side], dst);
            }
        }
    }
    assert_true(flows[CLIENT].waits > 0 && flows[CLIENT].partial > 0);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < PIECES; i++) {
            g_free(flows[side].copies[i]);
        }
    }
    clear_ends(&e);
}

/* What has been received already is seen without the socket. */
static void test_has_more(void **state)
{
    VjCredentialsTest *t = *state;
    VjStream *server;
    Ends e;
    char byte;

    connect_ends(&e, load_client(t, &home), load_server(t, &none, true), NULL);
    server = e.streams[SERVER];
    assert_false(server->ops->has_more(server));
    send_text(&e, CLIENT, "abc");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(server->ops->recv(server, &byte, 1), 1);
        assert_int_equal(byte, "abc"[i]);
        assert_true(server->ops->has_more(server) || i == 2);
    }
    assert_int_equal(server->ops->recv(server, &byte, 1), -EAGAIN);
    assert_false(server->ops->has_more(server));
    clear_ends(&e);
}

/* ---- ends -------------------------------------------------------------------------- */

static void test_close_is_heard(void **state)
{
    VjCredentialsTest *t = *state;
    VjStream *server;
    Ends e;
    char byte;

    connect_ends(&e, load_client(t, &home), load_server(t, &none, true), NULL);
    server = e.streams[SERVER];
    send_text(&e, CLIENT, "last words");
    free_stream(&e, CLIENT);
    /* The socket is open still: the alert says it. */
    for (const char *at = "last words"; *at != '\0'; at++) {
        assert_int_equal(server->ops->recv(server, &byte, 1), 1);
        assert_int_equal(byte, *at);
    }
    assert_int_equal(server->ops->recv(server, &byte, 1), -ECONNRESET);
    assert_int_equal(server->ops->recv(server, &byte, 1), -ECONNRESET);
    assert_false(server->ops->has_more(server));
    clear_ends(&e);
}

/* Fills what the kernel holds for @side. */
static void fill(Ends *e, int side)
{
    VjStream *s = e->streams[side];
    g_autofree uint8_t *bytes = g_malloc0(VJ_MIB);
    struct iovec iov = {.iov_base = bytes, .iov_len = VJ_MIB};
    ssize_t done;

    do {
        done = s->ops->send(s, &iov, 1);
    } while (done > 0);
    assert_int_equal(done, -EAGAIN);
}

static void test_close_does_not_block(void **state)
{
    VjCredentialsTest *t = *state;
    Ends e;

    connect_ends(&e, load_client(t, &home), load_server(t, &none, true), NULL);
    fill(&e, CLIENT);
    assert_int_equal(fcntl(e.fds[CLIENT], F_SETFL, 0), 0); /* would block now */
    clear_ends(&e);
}

/* Half a record, then the end; and one that was changed on its way. */
static void test_broken_records(void **state)
{
    VjCredentialsTest *t = *state;

    for (int is_changed = 0; is_changed < 2; is_changed++) {
        uint8_t record[4096];
        VjStream *server;
        ssize_t len;
        char byte;
        Ends e;

        connect_ends(&e, load_client(t, &home), load_server(t, &none, true), NULL);
        server = e.streams[SERVER];
        send_text(&e, CLIENT, "a record");
        len = recv(e.fds[SERVER], record, sizeof record, 0);
        assert_true(len > 16);
        record[len / 2] ^= (uint8_t)is_changed;
        len = is_changed ? len : len / 2;
        assert_int_equal(send(e.fds[CLIENT], record, (size_t)len, 0), len);
        assert_int_equal(shutdown(e.fds[CLIENT], SHUT_WR), 0);
        assert_int_equal(server->ops->recv(server, &byte, 1),
                         is_changed ? -EPROTO : -ECONNRESET);
        assert_false(server->ops->has_more(server));
        clear_ends(&e);
    }
}

/* The end in the middle of a handshake, after each number of bytes. */
static void test_half_a_handshake(void **state)
{
    VjCredentialsTest *t = *state;
    uint8_t hello[4096];
    ssize_t len = 1;

    for (ssize_t end = 0; end < len; end++) {
        Ends e = {.credentials = {load_client(t, &home), load_server(t, &none, true)}};

        make_sockets(&e);
        make_stream(&e, CLIENT, NULL);
        make_stream(&e, SERVER, NULL);
        e.rcs[CLIENT] = e.rcs[SERVER] = -EAGAIN;
        step(&e, CLIENT);
        len = recv(e.fds[SERVER], hello, sizeof hello, 0);
        assert_true(len > 100);
        assert_int_equal(send(e.fds[CLIENT], hello, (size_t)end, 0), end);
        step(&e, SERVER);
        assert_int_equal(e.rcs[SERVER], -EAGAIN);
        shutdown(e.fds[CLIENT], SHUT_WR);
        step(&e, SERVER);
        assert_int_equal(e.rcs[SERVER], -ECONNRESET);
        clear_ends(&e);
    }
}

static void test_no_sigpipe(void **state)
{
    VjCredentialsTest *t = *state;
    struct sigaction was, by_default = {.sa_handler = SIG_DFL};
    VjStream *client;
    struct iovec iov = {.iov_base = (void *)"abc", .iov_len = 3};
    ssize_t done;
    Ends e;

    /* One that is raised ends the test. */
    assert_int_equal(sigaction(SIGPIPE, &by_default, &was), 0);
    connect_ends(&e, load_client(t, &home), load_server(t, &none, true), NULL);
    client = e.streams[CLIENT];
    vj_fd_close(&e.fds[SERVER]);
    done = client->ops->send(client, &iov, 1);
    assert_int_equal(done, -ECONNRESET);
    assert_int_equal(client->ops->send(client, &iov, 1), -ECONNRESET);
    clear_ends(&e);
    assert_int_equal(sigaction(SIGPIPE, &was, NULL), 0);
}

/* ---- garbage ----------------------------------------------------------------------- */

/* Rounds of a test; VARJFS_TEST_CALLS asks for more. */
static uint64_t rounds(uint64_t few)
{
    const char *text = getenv("VARJFS_TEST_CALLS");

    return text != NULL ? g_ascii_strtoull(text, NULL, 10) : few;
}

static void pump(VjStream *s)
{
    int rc;

    for (int i = 0; (rc = s->ops->handshake(s)) == -EAGAIN; i++) {
        /* Nothing more comes. */
        assert_true(i < STEPS_MAX);
    }
    assert_true(rc == -EPROTO || rc == -ECONNRESET || rc == -EACCES);
}

/* A hello of ours with some bytes changed, or bytes by chance, in parts. */
static void test_garbage(void **state)
{
    VjCredentialsTest *t = *state;
    g_autoptr(VjCredentials) client = load_client(t, &home);
    g_autoptr(VjCredentials) server = load_server(t, &node, true);
    uint64_t seed = vj_random_u64();
    uint8_t bytes[20000], hello[4096];
    VjRng rng;

    print_message("seed %" G_GUINT64_FORMAT "\n", seed);
    vj_rng_init(&rng, seed);
    for (uint64_t i = rounds(500); i > 0; i--) {
        Ends e = {
            .credentials = {vj_credentials_ref(client), vj_credentials_ref(server)}};
        size_t len = vj_rng_below(&rng, vj_rng_below(&rng, 4) == 0 ? sizeof bytes : 600);
        int side = vj_rng_below(&rng, 4) == 0 ? CLIENT : SERVER;

        make_sockets(&e);
        vj_rng_bytes(&rng, bytes, len);
        make_stream(&e, side, NULL);
        if (side == SERVER && vj_rng_below(&rng, 2) == 0) {
            make_stream(&e, CLIENT, NULL);
            assert_int_equal(e.streams[CLIENT]->ops->handshake(e.streams[CLIENT]),
                             -EAGAIN);
            len = (size_t)recv(e.fds[SERVER], hello, sizeof hello, 0);
            assert_true(len <= sizeof hello);
            memcpy(bytes, hello, len);
            for (uint64_t n = 1 + vj_rng_below(&rng, 4); n > 0; n--) {
                bytes[vj_rng_below(&rng, len)] ^= (uint8_t)(1 + vj_rng_below(&rng, 255));
            }
        }
        assert_int_equal(send(e.fds[1 - side], bytes, len, 0), len);
        shutdown(e.fds[1 - side], SHUT_WR);
        pump(e.streams[side]);
        clear_ends(&e);
    }
}

/* A hello with thousands of identities asks for few keys. */
static unsigned asked;

static bool count_and_find_none(void *opaque, const char *identity, VjKey256 *out)
{
    (void)opaque;
    (void)identity;
    (void)out;
    asked++;
    return false;
}

static void add_u16(GByteArray *to, size_t value)
{
    uint8_t bytes[2] = {(uint8_t)(value >> 8), (uint8_t)value};

    g_byte_array_append(to, bytes, sizeof bytes);
}

/* An extension of a hello, its number before it. */
static void add_extension(GByteArray *to, size_t number, const void *src, size_t len)
{
    add_u16(to, number);
    add_u16(to, len);
    g_byte_array_append(to, src, (guint)len);
}

/* Of one that offers TLS 1.3 with AES-128 alone, for which no key is good. */
static GByteArray *hello_with_identities(unsigned count)
{
    static const uint8_t versions[] = {2, 3, 4}, modes[] = {1, 1};
    static const uint8_t groups[] = {0, 2, 0, 0x1d}, algorithms[] = {0, 2, 4, 3};
    g_autoptr(GByteArray) keys = g_byte_array_new();
    g_autoptr(GByteArray) extensions = g_byte_array_new();
    g_autoptr(GByteArray) body = g_byte_array_new();
    GByteArray *out = g_byte_array_new();
    uint8_t share[38] = {0, 36, 0, 0x1d, 0, 32, 9}, zeroes[64] = {0};

    add_u16(keys, count * 7u);
    for (unsigned i = 0; i < count; i++) {
        add_u16(keys, 1);
        g_byte_array_append(keys, (const uint8_t *)"x\0\0\0", 5);
    }
    add_u16(keys, count * 33u);
    for (unsigned i = 0; i < count; i++) {
        g_byte_array_append(keys, (const uint8_t[]){32}, 1);
        g_byte_array_append(keys, zeroes, 32);
    }
    add_extension(extensions, 43, versions, sizeof versions);
    add_extension(extensions, 10, groups, sizeof groups);
    add_extension(extensions, 13, algorithms, sizeof algorithms);
    add_extension(extensions, 51, share, sizeof share);
    add_extension(extensions, 45, modes, sizeof modes);
    add_extension(extensions, 41, keys->data, keys->len);
    add_u16(body, 0x0303);
    g_byte_array_append(body, zeroes, 33); /* random, no session */
    add_u16(body, 2);
    add_u16(body, 0x1301);
    g_byte_array_append(body, (const uint8_t[]){1, 0}, 2);
    add_u16(body, extensions->len);
    g_byte_array_append(body, extensions->data, extensions->len);
    g_byte_array_append(out, (const uint8_t[]){22, 3, 1}, 3);
    add_u16(out, body->len + 4);
    g_byte_array_append(out, (const uint8_t[]){1, 0}, 2);
    add_u16(out, body->len);
    g_byte_array_append(out, body->data, body->len);
    return out;
}

static void test_thousands_of_identities(void **state)
{
    VjCredentialsTest *t = *state;
    g_autoptr(GByteArray) hello = hello_with_identities(400);
    g_autoptr(GError) error = NULL;
    Ends e = {.credentials = {NULL, NULL}};

    assert_true(hello->len < 16384 + 5);
    asked = 0;
    assert_true(vj_credentials_load_server(t->dir_fd, &none, count_and_find_none, NULL,
                                           &e.credentials[SERVER], &error));
    make_sockets(&e);
    make_stream(&e, SERVER, NULL);
    assert_int_equal(send(e.fds[CLIENT], hello->data, hello->len, 0), hello->len);
    shutdown(e.fds[CLIENT], SHUT_WR);
    pump(e.streams[SERVER]);
    assert_true(asked > 0 && asked < 10);
    clear_ends(&e);
}

/* ---- the log ----------------------------------------------------------------------- */

static void test_log_has_the_address(void **state)
{
    VjCredentialsTest *t = *state;
    Ends e = {.credentials = {NULL, load_server(t, &none, true)}};

    make_tcp(&e);
    make_stream(&e, SERVER, NULL);
    assert_int_equal(send(e.fds[CLIENT], "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    pump(e.streams[SERVER]);
    assert_true(vj_test_logged(t, "rpc: 127.0.0.1:"));
    clear_ends(&e);
}

static void test_over_tcp(void **state)
{
    VjCredentialsTest *t = *state;
    Ends e = {.credentials = {load_client(t, &alice), load_server(t, &node, false)}};

    make_tcp(&e);
    make_stream(&e, CLIENT, "127.0.0.1");
    make_stream(&e, SERVER, NULL);
    shake_hands(&e);
    assert_int_equal(e.rcs[CLIENT], 0);
    assert_int_equal(e.rcs[SERVER], 0);
    clear_ends(&e);
}

static const struct CMUnitTest tests[] = {
    VJ_CREDENTIALS_TEST(test_key),
    VJ_CREDENTIALS_TEST(test_wrong_key_and_no_identity),
    VJ_CREDENTIALS_TEST(test_names_of_keys_are_any_bytes),
    VJ_CREDENTIALS_TEST(test_certificates),
    VJ_CREDENTIALS_TEST(test_server_with_both),
    VJ_CREDENTIALS_TEST(test_refused_by_client),
    VJ_CREDENTIALS_TEST(test_refused_by_server),
    VJ_CREDENTIALS_TEST(test_no_common_kind),
    VJ_CREDENTIALS_TEST(test_certificates_need_a_host),
    VJ_CREDENTIALS_TEST(test_no_certificate),
    VJ_CREDENTIALS_TEST(test_no_application_protocol),
    VJ_CREDENTIALS_TEST(test_tls_1_2),
    VJ_CREDENTIALS_TEST(test_64_mib),
    VJ_CREDENTIALS_TEST(test_has_more),
    VJ_CREDENTIALS_TEST(test_close_is_heard),
    VJ_CREDENTIALS_TEST(test_close_does_not_block),
    VJ_CREDENTIALS_TEST(test_broken_records),
    VJ_CREDENTIALS_TEST(test_half_a_handshake),
    VJ_CREDENTIALS_TEST(test_no_sigpipe),
    VJ_CREDENTIALS_TEST(test_garbage),
    VJ_CREDENTIALS_TEST(test_thousands_of_identities),
    VJ_CREDENTIALS_TEST(test_log_has_the_address),
    VJ_CREDENTIALS_TEST(test_over_tcp),
};

VJ_TEST_MAIN(tests)
