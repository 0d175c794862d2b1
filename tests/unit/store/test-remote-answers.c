/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * What the driver remote makes of a node's answers, whatever they are: each status where
 * it belongs and where not, and garbage in the place of a message and a bulk.  No answer
 * of a node ends the process, and none becomes a result that a store must not have
 * (store.h, whose callers assert it).
 */
#include "../../lib/test.h"

#include <unistd.h>

#include "rpc/messages.h"
#include "rpc/rpc.h"
#include "store/store-private.h"

/* The statuses after which another node, or the same one later, would be asked. */
#define IS_BUSY(status_)                                                                 \
    ((status_) == VJ_WIRE_BUSY || (status_) == VJ_WIRE_LEAVING ||                        \
     (status_) == VJ_WIRE_LATE)

static struct {
    char *dir, *spec;
    VjRpcServer *server;
    VjCredentials *credentials;
    VjStore *store;
    gint status; /* atomic; of each answer */
    gint
        is_garbage; /* atomic; with OK: so many bytes of it in message and bulk, less 1 */
} t;

static void answer(VjRpcRequest *r)
{
    uint32_t status = (uint32_t)g_atomic_int_get(&t.status);
    gint garbage = g_atomic_int_get(&t.is_garbage);
    uint8_t bytes[256];
    g_autoptr(VjBuf) bulk = NULL;

    memset(bytes, 0x5a, sizeof bytes);
    if (garbage > 1) {
        bulk = vj_buf_new_copy(bytes, (size_t)garbage - 1);
    }
    vj_rpc_reply(r, vj_wire_errno(status),
                 vj_slice(bytes, garbage > 0 ? (size_t)garbage - 1 : 0), bulk,
                 garbage > 1 ? (uint32_t)garbage - 1 : 0);
}

#define ROW(op_)                                                                         \
    {                                                                                    \
        .op = (op_), .role = VJ_ROLE_OBJECT, .name = #op_, .message_max = 70000,         \
        .bulk_max = 1 << 20, .run = answer                                               \
    }

static const VjRpcHandler handlers[] = {
    ROW(VJ_OP_PUT),       ROW(VJ_OP_GET),           ROW(VJ_OP_REMOVE),
    ROW(VJ_OP_FLUSH),     ROW(VJ_OP_FLUSH_REMOVES), ROW(VJ_OP_HAVE),
    ROW(VJ_OP_LIST),      ROW(VJ_OP_SPACE),         ROW(VJ_OP_DIGEST),
    ROW(VJ_OP_PUT_PLAIN), ROW(VJ_OP_GET_PLAIN),     {.op = 0},
};

static int say_hello(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                     void **peer, GByteArray *reply)
{
    VjHelloReply m = {.version = 1, .node = {1}, .instance = {2}};
    VjHello hello;

    (void)opaque, (void)identity;
    *role = VJ_ROLE_OBJECT;
    *peer = NULL;
    vj_hello_reply_encode(reply, &m);
    return vj_hello_decode(message, &hello);
}

static int begin(void **state)
{
    VjCredentialsFiles files = {.insecure = true};
    VjRpcServerConfig config = {.handlers = handlers, .hello = say_hello, .workers = 2};
    VjStorePlace place = {.dir_fd = -1,
                          .path = "nodes",
                          .credentials_dir_fd = -1,
                          .volume = "30313233-3435-3637-3839-3a3b3c3d3e3f"};
    g_autofree char *address = NULL;
    g_autoptr(GError) error = NULL;

    (void)state;
    t.dir = g_dir_make_tmp("varjfs-answers-XXXXXX", NULL);
    assert_non_null(t.dir);
    address = g_strdup_printf("unix:%s/socket", t.dir);
    t.spec = g_strdup_printf("remote:%s:insecure,timeout=1", address);
    assert_true(vj_credentials_load(-1, &files, &t.credentials, NULL));
    t.server = vj_rpc_server_new(&config);
    assert_true(vj_rpc_server_listen(t.server, address, t.credentials, NULL));
    assert_true(vj_rpc_server_start(t.server, NULL));
    if (!vj_store_open(t.spec, &place, &t.store, &error)) {
        fail_msg("%s", error->message);
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    g_atomic_int_set(&t.status, VJ_WIRE_OK);
    g_atomic_int_set(&t.is_garbage, 0);
    vj_store_close(t.store);
    vj_rpc_server_free(t.server);
    vj_credentials_unref(t.credentials);
    assert_int_equal(rmdir(t.dir), 0);
    g_free(t.dir);
    g_free(t.spec);
    return 0;
}

/* ---- calls of the store ------------------------------------------------------------ */

static char content[100];
static VjPut put; /* of an object that the node took */

static VjStoreForm some_form(void)
{
    return (VjStoreForm){.plain_bytes = sizeof content, .stored_bytes = 200};
}

static int call_put(void)
{
    struct iovec iov = {.iov_base = content, .iov_len = sizeof content};
    VjPut out;

    return vj_store_put(t.store, 7, &iov, 1, &out);
}

static int call_get(void)
{
    char dst[sizeof content];

    return vj_store_get(t.store, put.id, put.loc, 0, dst, sizeof dst);
}

static int call_remove(void)
{
    return vj_store_remove(t.store, put.id, put.loc);
}

static int call_flush(void)
{
    return vj_store_flush(t.store);
}

static int call_flush_removes(void)
{
    return vj_store_flush_removes(t.store);
}

static bool visit(void *opaque, const VjPut *object, int64_t mtime_us)
{
    (void)opaque, (void)object, (void)mtime_us;
    return true;
}

static int call_each(void)
{
    return vj_store_each(t.store, 0, UINT64_MAX, visit, NULL);
}

static int call_space(void)
{
    VjStoreSpace space;

    return t.store->ops->space(t.store, &space);
}

static int call_digest(void)
{
    VjStoreForm form = some_form();
    VjDigest digest;

    return vj_store_digest(t.store, put.id, put.loc, &form, 3, &digest);
}

static int call_put_plain(void)
{
    VjStoreWant want = {.plain_bytes = sizeof content};
    VjStoreForm form;
    VjPut out;

    return vj_store_put_plain(t.store, 8, &want, content, sizeof content, &out, &form);
}

static int call_get_plain(void)
{
    VjStoreForm form = some_form();
    g_autoptr(VjBuf) bytes = NULL;
    bool is_encoded;

    return vj_store_get_plain(t.store, put.id, put.loc, &form, 0, 10, NULL, &bytes,
                              &is_encoded);
}

static int (*const calls[])(void) = {
    call_put,  call_get,   call_remove, call_flush,     call_flush_removes,
    call_each, call_space, call_digest, call_put_plain, call_get_plain,
};

/* The callers in store.c have asserted each result; here is what none of them may be. */
static void expect_sound(int rc)
{
    assert_true(rc <= 0 && rc != -EAGAIN && rc != -EINTR && rc != -ESTALE);
}

/* Waits for the node to be there again, which an answer may have cost. */
static void put_one(void)
{
    struct iovec iov = {.iov_base = content, .iov_len = sizeof content};

    g_atomic_int_set(&t.status, VJ_WIRE_OK);
    g_atomic_int_set(&t.is_garbage, 0);
    assert_int_equal(vj_store_put(t.store, 1, &iov, 1, &put), 0);
}

/* After an answer that says nothing of the object these wait for a better one, to their
 * deadline: so they get few. */
static bool is_patient(int (*call)(void))
{
    return call == call_put || call == call_get || call == call_flush;
}

/* What says something of the object, or of the device. */
static bool says_something(int status)
{
    return (status <= VJ_WIRE_READ_ONLY && status != VJ_WIRE_OK) ||
           status == VJ_WIRE_TOO_LARGE;
}

static void any_status(void **state)
{
    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(calls); i++) {
        for (int status = 1; status < VJ_WIRE_STATUS_COUNT; status++) {
            if (IS_BUSY(status) || (is_patient(calls[i]) && !says_something(status) &&
                                    status != VJ_WIRE_CONFLICT)) {
                continue;
            }
            put_one();
            g_atomic_int_set(&t.status, status);
            expect_sound(calls[i]());
        }
    }
}

static void any_bytes(void **state)
{
    static const gint lengths[] = {1, 2, 5, 9, 23, 33, 201};

    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(lengths); i++) {
        for (unsigned n = 0; n < G_N_ELEMENTS(calls); n++) {
            if (is_patient(calls[n]) && (calls[n] != call_flush || i != 1)) {
                continue;
            }
            put_one();
            g_atomic_int_set(&t.is_garbage, lengths[i]);
            expect_sound(calls[n]());
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_status),
        cmocka_unit_test(any_bytes),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
