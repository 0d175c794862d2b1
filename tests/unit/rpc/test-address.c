/* SPDX-License-Identifier: LGPL-3.0-or-later */
/* test-address.c - addresses as text, what they need, and who may have plain text */
#include "raw-peer.h"

#include <arpa/inet.h>

#include "rpc/address-private.h"

static void texts(void **state)
{
    static const struct {
        const char *text, *path, *host;
        uint16_t port;
        bool is_numeric;
    } good[] = {
        {"unix:/run/varjfs", "/run/varjfs", NULL, VJ_RPC_PORT, false},
        {"unix:relative", "relative", NULL, VJ_RPC_PORT, false},
        {"node-1.example", NULL, "node-1.example", VJ_RPC_PORT, false},
        {"node_2:1", NULL, "node_2", 1, false},
        {"127.0.0.1:65535", NULL, "127.0.0.1", 65535, true},
        {"192.0.2.1", NULL, "192.0.2.1", VJ_RPC_PORT, true},
        {"[::1]", NULL, "::1", VJ_RPC_PORT, true},
        {"[2001:db8::7]:0", NULL, "2001:db8::7", 0, true},
    };
    static const char *const bad[] = {
        "",         "unix:",      ":80",      "host:",         "host:65536", "host:-1",
        "host:+1",  "host: 1",    "host:1x",  "::1",           "[::1",       "[::1]x",
        "[::1]:",   "[::1]:x",    "[host]:1", "[127.0.0.1]:1", "a b",        "a/b",
        "host:1:2", "http://host"};
    g_autofree char *long_path = g_strdup_printf("unix:/%0200d", 1);
    g_autofree char *long_text = g_strdup_printf("%0600d", 1);

    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(good); i++) {
        GError *error = NULL;
        VjAddress a;

        assert_true(vj_rpc_address_check(good[i].text, &error));
        assert_true(vj_address_parse(good[i].text, &a, &error));
        assert_int_equal(vj_rpc_address_needs(good[i].text),
                         good[i].path != NULL ? VJ_NEEDS_UNIX : VJ_NEEDS_TCP);
        if (good[i].path != NULL) {
            assert_string_equal(a.path, good[i].path);
        } else {
            assert_null(a.path);
            assert_string_equal(a.host, good[i].host);
            assert_int_equal(a.port, good[i].port);
            assert_int_equal(a.is_numeric, good[i].is_numeric);
        }
        vj_address_clear(&a);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(bad) + 2; i++) {
        const char *text = i < G_N_ELEMENTS(bad)    ? bad[i]
                           : i == G_N_ELEMENTS(bad) ? long_path
                                                    : long_text;
        GError *error = NULL;

        assert_false(vj_rpc_address_check(text, &error));
        vj_test_expect_error(&error, EINVAL, "address");
    }
}

static bool is_local(const char *ip)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, ip, &in.sin_addr) == 1) {
        return vj_socket_address_is_local((const struct sockaddr *)&in);
    }
    assert_int_equal(inet_pton(AF_INET6, ip, &in6.sin6_addr), 1);
    return vj_socket_address_is_local((const struct sockaddr *)&in6);
}

static void local_ones(void **state)
{
    (void)state;
    assert_true(is_local("127.0.0.1"));
    assert_true(is_local("127.255.0.9"));
    assert_true(is_local("::1"));
    assert_true(is_local("::ffff:127.0.0.1"));
    assert_false(is_local("128.0.0.1"));
    assert_false(is_local("0.0.0.0"));
    assert_false(is_local("::"));
    assert_false(is_local("::2"));
    assert_false(is_local("::ffff:10.0.0.1"));
    assert_false(is_local("fe80::1"));
}

/* No plain text to where others listen, and none from there. */
static void no_plain_text(void **state)
{
    VjCredentialsFiles files = {.insecure = true};
    VjRpcServerConfig config = {
        .handlers = test_handlers, .hello = test_hello, .workers = 1};
    VjRpcServer *s = vj_rpc_server_new(&config);
    VjCredentials *credentials;
    GError *error = NULL;

    (void)state;
    assert_true(vj_credentials_load(-1, &files, &credentials, &error));
    assert_false(vj_rpc_server_listen(s, "0.0.0.0:0", credentials, &error));
    vj_test_expect_error(&error, EACCES, "loopback");
    assert_true(vj_rpc_server_listen(s, "127.0.0.1:0", credentials, &error));
    assert_true(vj_rpc_server_port(s, 0) > 0);
    assert_int_equal(vj_rpc_server_port(s, 1), 0);
    vj_rpc_server_free(s);
    vj_credentials_unref(credentials);
}

/* A socket file that is left over is replaced, one that is in use is not, nor a file. */
static void socket_files(void **state)
{
    RpcTest t;
    VjRpcServer *other;
    GError *error = NULL;
    g_autofree char *path = NULL;
    int fd;

    (void)state;
    test_begin(&t, NULL);
    path = g_strdup(t.address + strlen("unix:"));
    close(raw_listen(&t)); /* its file stays */
    test_start_server(&t);
    other = vj_rpc_server_new(&t.config);
    assert_false(vj_rpc_server_listen(other, t.address, t.credentials, &error));
    vj_test_expect_error(&error, EADDRINUSE, t.address);
    test_stop_server(&t);
    assert_int_equal(access(path, F_OK), -1); /* removed at the end */
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_false(vj_rpc_server_listen(other, t.address, t.credentials, &error));
    vj_test_expect_error(&error, EADDRINUSE, t.address);
    assert_int_equal(unlink(path), 0);
    vj_rpc_server_free(other);
    test_end(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(texts),
    cmocka_unit_test(local_ones),
    cmocka_unit_test(no_plain_text),
    cmocka_unit_test(socket_files),
};

VJ_TEST_MAIN(tests)
