/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-tls.c - whom libvarjfs believes, who believes it, and what becomes of a TLS
 * connection that ends in the wrong way
 *
 * SIGPIPE keeps its default, so a single one would end the test.
 */
#include "fake-daemon.h"

#include "rpc/certificates.h"

#include <openssl/crypto.h>
#include <signal.h>
#include <stdlib.h>

#define DAY_S ((int64_t)24 * 3600)

static char *top; /* directories "lab" and "other", each with a CA */

static char *file_of(const char *lab, const char *name)
{
    return g_build_filename(top, lab, name, NULL);
}

static void make(int dir_fd, VjCertificateKind kind, const char *first,
                 const char *second, int64_t begins_s, int64_t ends_s)
{
    int64_t now_s = vj_clock_real().tv_sec;
    const VjCertificateTimes times = {now_s + begins_s, now_s + ends_s};
    const char *names[] = {first, second, NULL};

    assert_true(vj_certificate_make(dir_fd, kind, names, &times, NULL));
}

static int set_up(void **state)
{
    static const char *const labs[] = {"lab", "other"};

    (void)state;
    top = vj_test_make_dir();
    for (size_t i = 0; i < G_N_ELEMENTS(labs); i++) {
        g_autofree char *path = g_build_filename(top, labs[i], NULL);
        int64_t now_s = vj_clock_real().tv_sec;
        const VjCertificateTimes times = {now_s - DAY_S, now_s + 9 * DAY_S};
        VJ_AUTO_FD fd = -1;

        assert_int_equal(mkdir(path, 0700), 0);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_true(vj_certificate_make_ca(fd, labs[i], &times, NULL));
        make(fd, VJ_CERTIFICATE_NODE, "node", "127.0.0.1", -DAY_S, DAY_S);
        make(fd, VJ_CERTIFICATE_NODE, "elsewhere", "127.0.0.2", -DAY_S, DAY_S);
        make(fd, VJ_CERTIFICATE_NODE, "expired", "127.0.0.1", -3 * DAY_S, -DAY_S);
        make(fd, VJ_CERTIFICATE_NODE, "future", "127.0.0.1", DAY_S, 2 * DAY_S);
        make(fd, VJ_CERTIFICATE_CLIENT, "alice", NULL, -DAY_S, DAY_S);
        make(fd, VJ_CERTIFICATE_CLIENT, "late", NULL, -3 * DAY_S, -DAY_S);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vj_test_remove_dir(top);
    return 0;
}

/* ---- who believes whom ------------------------------------------------------------- */

static void serve(FakeDaemon *d)
{
    uint8_t byte;

    if (recv(d->fd, &byte, 1, MSG_PEEK) > 0) { /* else one side has refused */
        fake_hello(d, 0);
        fake_serve(d);
    }
}

/* A daemon whose certificate is @node of the lab. */
static void start_daemon(FakeDaemon *d, const char *node, FakeScript *script)
{
    g_autofree char *pem = g_strconcat(node, ".pem", NULL);
    g_autofree char *key_pem = g_strconcat(node, "-key.pem", NULL);
    g_autofree char *certificate = file_of("lab", pem), *key = file_of("lab", key_pem);
    g_autofree char *ca = file_of("lab", "ca.pem");
    const VjCredentialsFiles files = {
        .certificate = certificate, .certificate_key = key, .ca = ca};
    unsigned port;

    d->directory = vj_test_make_dir();
    assert_true(
        vj_credentials_load_server(AT_FDCWD, &files, NULL, NULL, &d->credentials, NULL));
    d->listener = fake_tls_listen(&port);
    d->address = g_strdup_printf("tls:127.0.0.1:%u", port);
    d->script = script;
    d->thread = g_thread_new("fake-daemon", fake_run, d);
}

static int open_as(const FakeDaemon *d, const char *ca_of, const char *client_of,
                   const char *client, varjfs **out)
{
    g_autofree char *pem = g_strconcat(client, ".pem", NULL);
    g_autofree char *key_pem = g_strconcat(client, "-key.pem", NULL);
    g_autofree char *certificate = file_of(client_of, pem);
    g_autofree char *key = file_of(client_of, key_pem), *ca = file_of(ca_of, "ca.pem");
    const struct varjfs_options o = {.size = sizeof o,
                                     .volume = "volume",
                                     .certificate = certificate,
                                     .certificate_key = key,
                                     .ca = ca};

    return varjfs_open(d->address, &o, out);
}

static void test_certificates(void **state)
{
    static const struct {
        const char *node, *ca_of, *client_of, *client, *said;
        int rc;
    } cases[] = {
        {"node", "lab", "lab", "alice", NULL, 0},
        {"node", "other", "lab", "alice", "certificate", -EACCES},
        {"elsewhere", "lab", "lab", "alice", "mismatch", -EACCES},
        {"expired", "lab", "lab", "alice", "expired", -EACCES},
        {"future", "lab", "lab", "alice", "not yet valid", -EACCES},
        {"node", "lab", "other", "alice", "unknown CA", -EACCES},
        {"node", "lab", "lab", "late", "expired", -EACCES},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        FakeDaemon d = {0};
        varjfs *v = (varjfs *)&d;

        start_daemon(&d, cases[i].node, serve);
        assert_int_equal(
            open_as(&d, cases[i].ca_of, cases[i].client_of, cases[i].client, &v),
            cases[i].rc);
        if (cases[i].rc == 0) {
            assert_int_equal(varjfs_sync(v), 0);
            assert_int_equal(varjfs_close(v), 0);
        } else {
            assert_null(v);
            if (strstr(varjfs_open_error(), cases[i].said) == NULL) {
                fail_msg("case %zu: %s", i, varjfs_open_error());
            }
        }
        fake_stop(&d);
    }
}

/* A daemon with keys alone, or with certificates, beside clients with the other. */
static void test_keys(void **state)
{
    g_autofree char *wrong = g_build_filename(top, "wrong.key", NULL);

    (void)state;
    assert_true(vj_key_write_new(AT_FDCWD, wrong, NULL));
    for (int i = 0; i < 5; i++) {
        struct varjfs_options o = {.size = sizeof o, .volume = "volume", .key = wrong};
        FakeDaemon d = {0};
        varjfs *v = (varjfs *)&d;
        int rc;

        if (i < 4) {
            fake_listen_tls(&d, top);
            g_free(d.directory); /* the key of top stays */
            d.directory = vj_test_make_dir();
            d.script = serve;
            d.thread = g_thread_new("fake-daemon", fake_run, &d);
        } else {
            start_daemon(&d, "node", serve);
        }
        o.key = i == 0 || i == 2 ? d.key : wrong;
        o.identity = i == 2 ? "nobody" : NULL;
        rc = i == 3 ? open_as(&d, "lab", "lab", "alice", &v)
                    : varjfs_open(d.address, &o, &v);
        if (i == 0) {
            assert_int_equal(rc, 0);
            assert_int_equal(varjfs_close(v), 0);
        } else {
            assert_int_equal(rc, -EACCES);
            assert_null(v);
            assert_non_null(strstr(varjfs_open_error(), "TLS"));
        }
        if (d.key != NULL) {
            unlink(d.key);
        }
        fake_stop(&d);
    }
}

/* ---- what is given ----------------------------------------------------------------- */

static void expect_open(const char *address, const struct varjfs_options *o, int rc,
                        const char *said)
{
    varjfs *v = (varjfs *)&rc;
    int got = varjfs_open(address, o, &v);

    if (got != rc || v != NULL || strstr(varjfs_open_error(), said) == NULL) {
        fail_msg("%s: %d, \"%s\" is not %d with \"%s\"", address, got,
                 varjfs_open_error(), rc, said);
    }
}

static void test_options(void **state)
{
    static const char *const no_addresses[] = {
        "tls:",     "tls:host:",  "tls:host:0",  "tls:host:65536", "tls:host:1x",
        "tls:[::1", "tls:[::1]7", "tls:[host]",  "tls:a b",        "tls:[::1]:",
        "tls:::1",  "tls:h:-1",   "tls:host:+1", "tls:unix:path",  "tls:[]",
    };
    g_autofree char *alice = file_of("lab", "alice.pem"), *ca = file_of("lab", "ca.pem");
    g_autofree char *alice_key = file_of("lab", "alice-key.pem");
    g_autofree char *late_key = file_of("lab", "late-key.pem");
    g_autofree char *open_key = file_of("lab", "open.key");
    g_autofree char *empty = file_of("lab", "empty"), *none = file_of("lab", "none");
    struct varjfs_options o = {.size = sizeof o, .volume = "v"};

    (void)state;
    assert_true(g_file_set_contents(empty, "", -1, NULL));
    assert_int_equal(chmod(empty, 0600), 0);
    assert_true(vj_key_write_new(AT_FDCWD, open_key, NULL));
    expect_open("tls:localhost", &o, -EINVAL, "no credentials");
    o.identity = "v";
    expect_open("tls:localhost", &o, -EINVAL, "no credentials");
    o.key = open_key;
    for (size_t i = 0; i < G_N_ELEMENTS(no_addresses); i++) {
        expect_open(no_addresses[i], &o, -EINVAL, "no address");
    }
    expect_open("tcp:localhost", &o, -EPROTONOSUPPORT, "tls:");
    expect_open("unix:/none", &o, -EINVAL, "credentials");
    expect_open(top, &o, -EINVAL, "credentials");
    o.ca = ca;
    expect_open("tls:localhost", &o, -EINVAL, "one of them");
    o.ca = NULL;
    assert_int_equal(chmod(open_key, 0640), 0);
    expect_open("tls:localhost", &o, -EACCES, "chmod 600");
    o.key = none;
    expect_open("tls:localhost", &o, -EINVAL, none);
    o.key = top;
    expect_open("tls:localhost", &o, -EINVAL, "no regular file");
    o.key = empty;
    expect_open("tls:localhost", &o, -EINVAL, "no key");
    o.key = NULL;
    o.certificate = alice;
    expect_open("tls:localhost", &o, -EINVAL, "go together");
    o.certificate_key = alice_key;
    o.ca = ca;
    expect_open("tls:localhost", &o, -EINVAL, "identity");
    o.identity = NULL;
    o.certificate_key = late_key;
    expect_open("tls:localhost", &o, -EINVAL, "not the key of the certificate");
    o.certificate_key = alice;
    expect_open("tls:localhost", &o, -EACCES, "chmod 600");
    o.certificate_key = empty;
    expect_open("tls:localhost", &o, -EINVAL, "no private key");
    o.certificate_key = alice_key;
    o.certificate = empty;
    expect_open("tls:localhost", &o, -EINVAL, "no certificate");
    o.certificate = alice;
    o.ca = empty;
    expect_open("tls:localhost", &o, -EINVAL, "no certificate");
    o.ca = ca;
    o.volume = NULL;
    expect_open("tls:localhost", &o, -EINVAL, "volume");
    o.volume = "v";
    expect_open("tls:no.such.host.invalid", &o, -EHOSTUNREACH, "host");
    /* Nothing listens on the port of a socket that was closed. */
    {
        unsigned port;
        int fd = fake_tls_listen(&port);
        g_autofree char *address = g_strdup_printf("tls:127.0.0.1:%u", port);

        close(fd);
        expect_open(address, &o, -ECONNREFUSED, "no daemon");
    }
    /* What was compiled before there was TLS goes on as it did. */
    o = (struct varjfs_options){
        .size = offsetof(struct varjfs_options, key), .volume = "v", .key = open_key};
    expect_open("tls:localhost", &o, -EINVAL, "no credentials");
}

/* ---- connections that end in the wrong way ----------------------------------------- */

typedef enum End {
    END_GOODBYE,
    END_WITHOUT, /* of the stream, without close_notify */
    END_IN_RECORD,
    END_RESET,
    END_GARBAGE,
    END_PLAIN, /* a frame without TLS */
    ENDS,
} End;

static void end_badly(FakeDaemon *d)
{
    static const uint8_t begin_of_record[] = {0x17, 3, 3, 1, 0, 1, 2, 3};
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    int fd = d->tls.outer;
    FakeRequest r;

    fake_hello(d, 0);
    g_assert(fake_next(d, &r));
    switch ((End)d->number) {
    case END_GOODBYE:
        break;
    case END_WITHOUT:
        shutdown(fd, SHUT_WR);
        break;
    case END_IN_RECORD:
        g_assert(send(fd, begin_of_record, sizeof begin_of_record, MSG_NOSIGNAL) > 0);
        shutdown(fd, SHUT_WR);
        break;
    case END_RESET:
        g_assert(connect(fd, &none, sizeof none) == 0);
        break;
    case END_GARBAGE:
        g_assert(send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL) > 0);
        break;
    case END_PLAIN: {
        g_autoptr(GByteArray) frame =
            fake_frame(r.frame.op, r.frame.tag, 0, vj_slice(NULL, 0), vj_slice(NULL, 0));

        g_assert(send(fd, frame->data, frame->len, MSG_NOSIGNAL) > 0);
        break;
    }
    default:
        g_assert_not_reached();
    }
    if (d->number != END_GOODBYE) {
        fake_wait_end(d);
    }
    fake_request_clear(&r);
}

static void test_ends(void **state)
{
    (void)state;
    for (int end = 0; end < ENDS; end++) {
        FakeDaemon d = {.number = end};
        bool is_protocol = end == END_GARBAGE || end == END_PLAIN;
        g_autofree uint8_t *bytes = g_malloc0(VARJFS_WIRE_WRITE_MAX);
        int rc = is_protocol ? -EPROTO : -ECONNRESET;
        varjfs_batch *b;
        varjfs *v;

        start_daemon(&d, "node", end_badly);
        assert_int_equal(open_as(&d, "lab", "lab", "alice", &v), 0);
        assert_int_equal(varjfs_batch_new(v, NULL, &b), 0);
        assert_int_equal(varjfs_sync(v), rc);
        assert_int_equal(
            varjfs_object_write(b, "s", "o", bytes, VARJFS_WIRE_WRITE_MAX, 0, 0, NULL),
            0);
        assert_int_equal(varjfs_batch_execute(b), rc);
        assert_int_equal(varjfs_close(v), 0);
        fake_stop(&d);
    }
}

/* Instead of a handshake: something else, or nothing. */
static gpointer no_tls(gpointer opaque)
{
    FakeDaemon *d = opaque;
    uint8_t bytes[4096];
    int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);

    g_assert(fd >= 0 && recv(fd, bytes, sizeof bytes, 0) > 0);
    if (d->number == 0) {
        g_assert(send(fd, "220 mail.example.org ESMTP\r\n", 28, MSG_NOSIGNAL) > 0);
    }
    if (d->number == 2) {
        shutdown(fd, SHUT_WR);
    }
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    close(fd);
    return NULL;
}

static void test_no_tls(void **state)
{
    static const int errors[] = {-EPROTO, -ETIMEDOUT, -ECONNRESET};
    g_autofree char *key = file_of("lab", "no-tls.key");

    (void)state;
    assert_true(vj_key_write_new(AT_FDCWD, key, NULL));
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        FakeDaemon d = {.number = (int64_t)i, .key = g_strdup(key)};
        unsigned port;
        varjfs *v;

        d.directory = vj_test_make_dir();
        d.listener = fake_tls_listen(&port);
        d.address = g_strdup_printf("tls:127.0.0.1:%u", port);
        d.thread = g_thread_new("no-tls", no_tls, &d);
        assert_int_equal(fake_open(&d, i == 1 ? 50 : 0, &v), errors[i]);
        assert_null(v);
        fake_stop(&d);
    }
}

/* ---- memory of OpenSSL ------------------------------------------------------------- */

static _Thread_local bool is_counting;
static _Thread_local unsigned calls, failing;

static bool fails(void)
{
    return is_counting && ++calls == failing;
}

static void *take(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return fails() ? NULL : malloc(size);
}

static void *take_again(void *old, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return fails() ? NULL : realloc(old, size);
}

static void give_back(void *memory, const char *file, int line)
{
    (void)file;
    (void)line;
    free(memory);
}

/* The connection that is open now is the last one. */
static gint is_last;

static void serve_again(FakeDaemon *d)
{
    while (true) {
        uint8_t byte;

        if (recv(d->fd, &byte, 1, MSG_PEEK) > 0) {
            fake_hello(d, 0);
            fake_serve(d);
        }
        if (g_atomic_int_get(&is_last)) {
            return;
        }
        fake_close(d);
        fake_accept(d);
    }
}

static int open_any(const FakeDaemon *d, bool by_key, varjfs **out)
{
    const struct varjfs_options o = {.size = sizeof o, .volume = "volume", .key = d->key};

    return by_key ? varjfs_open(d->address, &o, out)
                  : open_as(d, "lab", "lab", "alice", out);
}

static unsigned others;

/* -ENOMEM before a request is sent; later nobody knows what was done.  But OpenSSL does
 * not always say that memory was missing: then it could not read a file, or not check
 * what the daemon sent. */
static void expect_error(int rc)
{
    others += rc != -ENOMEM && rc != -ECONNRESET ? 1 : 0;
    if (rc != -ENOMEM && rc != -ECONNRESET && rc != -EINVAL && rc != -EACCES &&
        rc != -EPROTO) {
        fail_msg("allocation %u: %d, %s", failing, rc, varjfs_open_error());
    }
    if (rc != -ENOMEM && g_getenv("VARJFS_TEST_ALL") != NULL) {
        print_message("# allocation %u: %d, %s\n", failing, rc, varjfs_open_error());
    }
}

/* Never an abort; calls that allocations were asked for in are left in *to_open. */
static void try_memory(bool by_key, unsigned *to_open)
{
    FakeDaemon d = {0};
    varjfs *v = NULL;
    int rc;

    if (by_key) {
        fake_listen_tls(&d, top);
        g_free(d.directory);
        d.directory = vj_test_make_dir();
        d.script = serve_again;
        d.thread = g_thread_new("fake-daemon", fake_run, &d);
    } else {
        start_daemon(&d, "node", serve_again);
    }
    g_atomic_int_set(&is_last, 0);
    calls = 0;
    is_counting = true;
    rc = open_any(&d, by_key, &v);
    *to_open = calls;
    if (rc == 0) {
        rc = varjfs_sync(v);
    }
    is_counting = false;
    if (rc != 0) {
        expect_error(rc);
        varjfs_close(v);
        assert_int_equal(open_any(&d, by_key, &v), 0);
        assert_int_equal(varjfs_sync(v), 0);
    }
    g_atomic_int_set(&is_last, 1);
    assert_int_equal(varjfs_close(v), 0);
    if (by_key) {
        unlink(d.key);
    }
    fake_stop(&d);
}

/* Each of the first and the last allocations; those between, which are thousands, by
 * chance, unless VARJFS_TEST_ALL is set. */
static void test_memory(void **state)
{
    GRand *chance = g_rand_new_with_seed(20261126);
    unsigned step = g_getenv("VARJFS_TEST_ALL") != NULL ? 1 : 300;

    (void)state;
    for (int by_key = 0; by_key <= 1; by_key++) {
        unsigned to_open, all, tried = 0;

        failing = 0;
        try_memory(by_key, &to_open); /* what OpenSSL keeps for good */
        try_memory(by_key, &to_open);
        all = calls;
        print_message("# by a %s: %u allocations, %u of them to open\n",
                      by_key ? "key" : "certificate", all, to_open);
        assert_true(to_open > 100);
        others = 0;
        for (failing = 1; failing <= all;) {
            unsigned ignored;

            try_memory(by_key, &ignored);
            failing += failing < 20 || failing + 20 > all
                           ? 1
                           : (unsigned)g_rand_int_range(chance, 1, (gint)(2 * step));
            tried++;
        }
        assert_true(others < tried / 4);
    }
    g_rand_free(chance);
}

static const struct CMUnitTest tests[] = {
    {"/tls/certificates", test_certificates, NULL, NULL, NULL},
    {"/tls/keys", test_keys, NULL, NULL, NULL},
    {"/tls/options", test_options, NULL, NULL, NULL},
    {"/tls/ends", test_ends, NULL, NULL, NULL},
    {"/tls/none", test_no_tls, NULL, NULL, NULL},
    {"/tls/memory", test_memory, NULL, NULL, NULL},
};

int main(void)
{
    /* Before OpenSSL takes any memory. */
    if (CRYPTO_set_mem_functions(take, take_again, give_back) != 1) {
        return 1;
    }
    signal(SIGPIPE, SIG_DFL);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tls", tests, set_up, tear_down);
}
