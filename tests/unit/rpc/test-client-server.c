/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * test-client-server.c - a client and a server that keep the protocol, in one process:
 * over a unix socket and over tcp
 */
#include "rpc-test.h"

static void one_call(RpcTest *t)
{
    VjRpcClient *c = test_client(t);
    g_autoptr(VjRpcCall) call = test_call(OP_ECHO, "is there anybody?");

    assert_int_equal(vj_rpc_run(c, call), 0);
    expect_reply(call, "is there anybody?");
    assert_null(call->reply_bulk);
    vj_rpc_client_free(c);
}

static void over_unix(void **state)
{
    RpcTest t;

    (void)state;
    test_begin(&t, NULL);
    test_start_server(&t);
    one_call(&t);
    test_wait(&t, &t.gone, 1);
    test_end(&t);
}

static void over_tcp(void **state)
{
    RpcTest t;

    (void)state;
    test_begin(&t, "127.0.0.1:0");
    test_start_server(&t);
    one_call(&t);
    test_wait(&t, &t.gone, 1);
    test_end(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(over_unix),
    cmocka_unit_test(over_tcp),
};

VJ_TEST_MAIN(tests)
