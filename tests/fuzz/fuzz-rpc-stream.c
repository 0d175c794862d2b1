/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * The bytes of a connection from any input: what a hostile client sends to a server, or a
 * hostile server to a client.  The input is a script: raw bytes, frames with right
 * checksums around any body, sound frames that are changed, halves, heads that announce
 * more than comes.  In all of it a second client's requests are answered, and each call
 * of the client that is attacked is answered once.  The server has handlers that read
 * each request and write it again, or those of a node with a volume in memory.
 */
#include "../lib/rpc-frames.h"
#include "../lib/rpc-recode.h"
#include "fuzz.h"

#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "node/node.h"
#include "rpc/rpc.h"

#define CALLS 4u
#define STEPS_MAX 64u
#define WAIT_MS 30000
#define BYTES_MAX ((uint64_t)8 << 20)
/* After so many attacks there is a new node, as what it was given stays in it. */
#define NODE_ATTACKS 500u

/* Bits of the first byte of an input. */
enum {
    AT_CLIENT = 1 << 0,     /* else at a server */
    WITH_HELLO = 1 << 1,    /* a sound one stands before the script */
    AT_NODE = 1 << 2,       /* of servers: the node, else the one that reads and writes */
    AS_META = 1 << 3,       /* the role in that hello; else object */
    WITH_FEATURES = 1 << 4, /* that hello has those that there are */
};

typedef struct Target {
    char *path; /* of its socket */
    VjRpcServer *server;
    VjRpcClient *honest;
    VjRpcClient *keys; /* likewise, in the role meta; NULL: none */
} Target;

static char *dir, *trap_path;
static VjCredentials *credentials;
static Target recoder, real;
static VjNode *node; /* behind real */
static unsigned node_attacks;
static int trap = -1; /* listens for the client that is attacked */
static unsigned example_count;

/* ---- the server that is attacked --------------------------------------------------- */

/* Understands the request, and answers with what it understood. */
static void run_recode(VjRpcRequest *r, uint16_t op)
{
    g_autoptr(GByteArray) again = g_byte_array_new();
    VjFrame frame = {.op = op};
    uint32_t bytes;
    VjBuf *bulk = vj_rpc_request_bulk(r, &bytes);
    int rc = rpc_recode(&frame, vj_rpc_request_message(r),
                        vj_slice(bytes > 0 ? bulk->data : NULL, bytes), again);

    again->len = MIN(again->len, VJ_WIRE_REPLY_MESSAGE_MAX);
    vj_rpc_reply(r, rc, vj_slice(again->data, rc == 0 ? again->len : 0), bulk, bytes);
}

#define HANDLER(name_, op_)                                                              \
    static void run_##name_(VjRpcRequest *r)                                             \
    {                                                                                    \
        run_recode(r, op_);                                                              \
    }
HANDLER(stats, VJ_OP_STATS)
HANDLER(put, VJ_OP_PUT)
HANDLER(get, VJ_OP_GET)
HANDLER(remove, VJ_OP_REMOVE)
HANDLER(flush, VJ_OP_FLUSH)
HANDLER(have, VJ_OP_HAVE)
HANDLER(list, VJ_OP_LIST)
HANDLER(flush_removes, VJ_OP_FLUSH_REMOVES)
HANDLER(space, VJ_OP_SPACE)
HANDLER(digest, VJ_OP_DIGEST)
HANDLER(put_plain, VJ_OP_PUT_PLAIN)
HANDLER(get_plain, VJ_OP_GET_PLAIN)
HANDLER(keys, VJ_OP_GET_MANY)
HANDLER(scan, VJ_OP_SCAN)
HANDLER(apply, VJ_OP_APPLY)
HANDLER(clock, VJ_OP_CLOCK)
HANDLER(count, VJ_OP_COUNT)

static const VjRpcHandler handlers[] = {
    {.op = VJ_OP_STATS, .role = VJ_ROLE_ANY, .name = "stats", .run = run_stats},
    {.op = VJ_OP_PUT,
     .role = VJ_ROLE_OBJECT,
     .name = "put",
     .message_max = 64,
     .bulk_max = 1 << 20,
     .run = run_put},
    {.op = VJ_OP_GET,
     .role = VJ_ROLE_OBJECT,
     .name = "get",
     .message_max = 64,
     .run = run_get},
    {.op = VJ_OP_REMOVE,
     .role = VJ_ROLE_OBJECT,
     .name = "remove",
     .message_max = 70000,
     .run = run_remove},
    {.op = VJ_OP_FLUSH,
     .role = VJ_ROLE_OBJECT,
     .name = "flush",
     .run = run_flush,
     .after_earlier = true},
    {.op = VJ_OP_HAVE,
     .role = VJ_ROLE_OBJECT,
     .name = "have",
     .message_max = 70000,
     .run = run_have},
    {.op = VJ_OP_LIST,
     .role = VJ_ROLE_OBJECT,
     .name = "list",
     .message_max = 64,
     .run = run_list},
    {.op = VJ_OP_FLUSH_REMOVES,
     .role = VJ_ROLE_OBJECT,
     .name = "flush-removes",
     .run = run_flush_removes,
     .after_earlier = true},
    {.op = VJ_OP_SPACE, .role = VJ_ROLE_OBJECT, .name = "space", .run = run_space},
    {.op = VJ_OP_DIGEST,
     .role = VJ_ROLE_OBJECT,
     .name = "digest",
     .message_max = 64,
     .run = run_digest},
    {.op = VJ_OP_PUT_PLAIN,
     .role = VJ_ROLE_OBJECT,
     .name = "put-plain",
     .message_max = 64,
     .bulk_max = 1 << 20,
     .run = run_put_plain},
    {.op = VJ_OP_GET_PLAIN,
     .role = VJ_ROLE_OBJECT,
     .name = "get-plain",
     .message_max = 64,
     .run = run_get_plain},
    {.op = VJ_OP_GET_MANY,
     .role = VJ_ROLE_META,
     .name = "get-many",
     .message_max = VJ_RPC_MESSAGE_MAX,
     .run = run_keys},
    {.op = VJ_OP_SCAN,
     .role = VJ_ROLE_META,
     .name = "scan",
     .message_max = 2048,
     .run = run_scan},
    {.op = VJ_OP_APPLY,
     .role = VJ_ROLE_META,
     .name = "apply",
     .message_max = VJ_RPC_MESSAGE_MAX,
     .bulk_max = VJ_RPC_BULK_MAX,
     .run = run_apply},
    {.op = VJ_OP_CLOCK, .role = VJ_ROLE_META, .name = "clock", .run = run_clock},
    {.op = VJ_OP_COUNT,
     .role = VJ_ROLE_META,
     .name = "count",
     .message_max = 1,
     .run = run_count},
    {0},
};

static int say_hello(void *opaque, const char *identity, VjSlice message, uint8_t *role,
                     void **peer, GByteArray *reply)
{
    VjHelloReply m = {.version = 1};
    VjHello hello;

    (void)opaque;
    (void)identity;
    if (vj_hello_decode(message, &hello) < 0) {
        return -EPROTO;
    }
    *role = hello.role;
    *peer = NULL;
    vj_hello_reply_encode(reply, &m);
    return hello.role == VJ_ROLE_OBJECT || hello.role == VJ_ROLE_META ? 0 : -EOPNOTSUPP;
}

/* ---- the node ---------------------------------------------------------------------- */

static VjRpcClient *client_of(const char *path, const char *volume, uint8_t role);

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static void expect_answer(VjRpcClient *c, uint16_t op)
{
    g_autoptr(VjRpcCall) call = vj_rpc_call_new(op);
    int rc;

    call->waits_for_connection = true;
    call->deadline_us = vj_clock_mono_us() + (int64_t)WAIT_MS * 1000;
    rc = vj_rpc_run(c, call);
    g_assert_cmpint(rc, ==, 0);
}

/* Its directory has what says whose it is; objects and keys are in memory.  The honest
 * clients have the volume before an attacker can make it another one's. */
static void node_begin(void)
{
    g_autofree char *volume = g_build_filename(dir, "volume", NULL);
    g_autofree char *address = NULL;
    g_autofree char *text = NULL;
    g_autoptr(VjNodeConf) conf = NULL;
    VjRpcServerConfig config = {.handlers = vj_node_handlers,
                                .hello = vj_node_hello,
                                .gone = vj_node_gone,
                                .workers = 2,
                                .connection_bytes_max = BYTES_MAX / 2,
                                .bytes_max = BYTES_MAX};

    g_assert(mkdir(volume, 0700) == 0);
    real.path = g_build_filename(dir, "node", NULL);
    address = g_strdup_printf("unix:%s", real.path);
    text = g_strdup_printf("[node]\nlisten_insecure = %s\n[volume home]\n"
                           "directory = %s\nstore = memory:size=64M\nmeta = memory\n",
                           address, volume);
    conf = vj_node_conf_parse("/fuzz.conf", text, strlen(text), NULL);
    g_assert(conf != NULL);
    node = vj_node_new(conf, NULL, NULL);
    config.opaque = node;
    real.server = vj_rpc_server_new(&config);
    g_assert(vj_rpc_server_listen(real.server, address, credentials, NULL));
    g_assert(vj_rpc_server_start(real.server, NULL));
    vj_node_set_server(node, real.server);
    real.honest = client_of(real.path, "home", VJ_ROLE_OBJECT);
    real.keys = client_of(real.path, "home", VJ_ROLE_META);
    expect_answer(real.honest, VJ_OP_FLUSH);
    expect_answer(real.keys, VJ_OP_CLOCK);
    node_attacks = 0;
}

static void node_end(void)
{
    g_autofree char *volume = g_build_filename(dir, "volume", NULL);
    int rc;

    if (node == NULL) {
        return;
    }
    g_clear_pointer(&real.honest, vj_rpc_client_free);
    g_clear_pointer(&real.keys, vj_rpc_client_free);
    vj_node_set_server(node, NULL);
    g_clear_pointer(&real.server, vj_rpc_server_free);
    rc = vj_node_free(node);
    g_assert(rc == 0);
    node = NULL;
    rc = nftw(volume, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    g_assert(rc == 0);
    g_clear_pointer(&real.path, g_free);
}

/* ---- what both attacks need -------------------------------------------------------- */

static void end(void)
{
    node_end();
    g_clear_pointer(&recoder.honest, vj_rpc_client_free);
    g_clear_pointer(&recoder.server, vj_rpc_server_free);
    vj_credentials_unref(credentials);
    close(trap);
    unlink(trap_path);
    rmdir(dir);
    g_free(recoder.path);
    g_free(trap_path);
    g_free(dir);
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    g_assert(strlen(path) < sizeof at.sun_path);
    g_strlcpy(at.sun_path, path, sizeof at.sun_path);
    return at;
}

/* Of the volume whose uuid the examples have. */
static VjRpcClient *client_of(const char *path, const char *volume, uint8_t role)
{
    g_autofree char *address = g_strdup_printf("unix:%s", path);
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    VjHello hello = {.version_min = 1,
                     .version_max = 1,
                     .role = role,
                     .flags = VJ_HELLO_CREATE,
                     .uuid = "0123456789:;<=>?",
                     .volume = vj_slice(volume, strlen(volume))};
    VjRpcClientConfig config = {.address = address, .credentials = credentials};
    VjRpcClient *c;

    vj_hello_encode(bytes, &hello);
    config.hello = vj_slice(bytes->data, bytes->len);
    c = vj_rpc_client_new(&config, NULL);
    g_assert(c != NULL);
    return c;
}

static void begin(void)
{
    VjCredentialsFiles files = {.insecure = true};
    VjRpcServerConfig config = {.handlers = handlers,
                                .hello = say_hello,
                                .workers = 2,
                                .connection_bytes_max = BYTES_MAX / 2,
                                .bytes_max = BYTES_MAX};
    g_autofree char *address = NULL;
    struct sockaddr_un at;

    while (rpc_examples[example_count].name != NULL) {
        example_count++;
    }
    dir = g_dir_make_tmp("varjfs-fuzz-rpc-XXXXXX", NULL);
    g_assert(dir != NULL);
    recoder.path = g_build_filename(dir, "server", NULL);
    trap_path = g_build_filename(dir, "trap", NULL);
    address = g_strdup_printf("unix:%s", recoder.path);
    g_assert(vj_credentials_load(-1, &files, &credentials, NULL));
    recoder.server = vj_rpc_server_new(&config);
    g_assert(vj_rpc_server_listen(recoder.server, address, credentials, NULL));
    g_assert(vj_rpc_server_start(recoder.server, NULL));
    at = address_of(trap_path);
    trap = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert(trap >= 0 && bind(trap, (struct sockaddr *)&at, sizeof at) == 0);
    g_assert(listen(trap, 8) == 0);
    recoder.honest = client_of(recoder.path, "fuzz", VJ_ROLE_OBJECT);
    atexit(end);
}

/* False: the other side has closed the connection. */
static bool send_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EAGAIN) {
            /* Its answers are in the way. */
            uint8_t drop[4096];

            while (recv(fd, drop, sizeof drop, MSG_DONTWAIT) > 0) {
            }
            g_assert(poll(&p, 1, WAIT_MS) > 0 || errno == EINTR);
            continue;
        }
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        sent = MAX(sent, 0);
        bytes += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* The fuzzer's own timer interrupts it. */
static size_t receive_all(int fd, uint8_t *bytes, size_t len)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = recv(fd, bytes + got, len - got, 0);

        if (n == 0 || (n < 0 && errno != EINTR)) {
            break;
        }
        got += n > 0 ? (size_t)n : 0;
    }
    return got;
}

#define HELLO_ROLE_OFFSET 12u

/* A hello of no client in particular: the connection before it may still be there. */
static GByteArray *hello_frame(uint8_t role, uint64_t features)
{
    static const uint8_t nobody[VJ_WIRE_UUID_BYTES];
    g_autoptr(GByteArray) sound = rpc_example_frame(&rpc_examples[0]);
    g_autoptr(GByteArray) message = g_byte_array_new();
    VjFrame frame;

    g_assert(vj_frame_decode(sound->data, &frame) == 0 && frame.op == VJ_OP_HELLO);
    g_byte_array_append(message, sound->data + VJ_FRAME_HEAD_BYTES, frame.message_bytes);
    vj_hello_set_client(message, nobody, 0);
    message->data[HELLO_ROLE_OFFSET] = role;
    vj_hello_add_features(message, features);
    return rpc_frame(frame, vj_slice(message->data, message->len), vj_slice(NULL, 0));
}

/* ---- the script -------------------------------------------------------------------- */

static const uint16_t ops[] = {
    VJ_OP_HELLO,  VJ_OP_PING,      VJ_OP_CANCEL,    VJ_OP_STATS,         VJ_OP_PUT,
    VJ_OP_GET,    VJ_OP_REMOVE,    VJ_OP_FLUSH,     VJ_OP_FLUSH_REMOVES, VJ_OP_HAVE,
    VJ_OP_LIST,   VJ_OP_SPACE,     VJ_OP_SCAN,      VJ_OP_APPLY,         0xffff,
    VJ_OP_DIGEST, VJ_OP_PUT_PLAIN, VJ_OP_GET_PLAIN, VJ_OP_GET_MANY,      VJ_OP_CLOCK,
    VJ_OP_COUNT,
};

static VjSlice some_bytes(VjReader *in, size_t most)
{
    return vj_read_bytes(in, MIN(most, in->left));
}

/* Around any body; lengths and checksums are right. */
static GByteArray *any_frame(VjReader *in)
{
    VjFrame frame = {.op = ops[vj_read_u8(in) % G_N_ELEMENTS(ops)]};
    uint8_t flags = vj_read_u8(in);
    VjSlice message, bulk;

    frame.flags = flags & VJ_FRAME_FLAGS;
    frame.tag = vj_read_u8(in);
    frame.timeout_ms = frame.status = vj_read_u8(in);
    message = some_bytes(in, vj_read_u8(in));
    bulk = some_bytes(in, vj_read_u16(in) % 32768u);
    return rpc_frame(frame, message, bulk);
}

/* An example with one byte of its body and its tag changed, checksums right. */
static GByteArray *changed_example(VjReader *in)
{
    const RpcExample *e = &rpc_examples[vj_read_u8(in) % example_count];
    g_autoptr(GByteArray) bytes = rpc_example_frame(e);
    uint8_t tag = vj_read_u8(in), offset = vj_read_u8(in), value = vj_read_u8(in);
    VjFrame frame;

    g_assert(vj_frame_decode(bytes->data, &frame) == 0);
    if (VJ_FRAME_HEAD_BYTES + (guint)offset < bytes->len) {
        bytes->data[VJ_FRAME_HEAD_BYTES + offset] ^= value;
    }
    frame.tag = tag;
    return rpc_frame(frame,
                     vj_slice(bytes->data + VJ_FRAME_HEAD_BYTES, frame.message_bytes),
                     vj_slice(bytes->data + VJ_FRAME_HEAD_BYTES + frame.message_bytes,
                              frame.bulk_bytes));
}

/* A right head that announces whatever it likes, and part of that. */
static GByteArray *announcing_head(VjReader *in)
{
    GByteArray *bytes = g_byte_array_new();
    uint8_t head[VJ_FRAME_HEAD_BYTES];
    VjFrame frame = {.op = ops[vj_read_u8(in) % G_N_ELEMENTS(ops)]};
    VjSlice part;

    frame.flags = vj_read_u8(in) & VJ_FRAME_FLAGS;
    frame.tag = vj_read_u8(in);
    frame.message_bytes = vj_read_u32(in);
    frame.bulk_bytes = vj_read_u32(in);
    frame.body_checksum = vj_frame_sum_bytes(&frame) > 0;
    vj_frame_encode(&frame, head);
    g_byte_array_append(bytes, head, sizeof head);
    part = some_bytes(in, vj_read_u8(in));
    if (part.len > 0) {
        g_byte_array_append(bytes, part.data, (guint)part.len);
    }
    return bytes;
}

static GByteArray *raw_bytes(VjReader *in)
{
    VjSlice part = some_bytes(in, vj_read_u8(in));
    GByteArray *bytes = g_byte_array_new();

    if (part.len > 0) {
        g_byte_array_append(bytes, part.data, (guint)part.len);
    }
    return bytes;
}

/* False: there is nothing more, or the other side has closed. */
static bool step(VjReader *in, int fd)
{
    g_autoptr(GByteArray) bytes = NULL;
    uint8_t what = vj_read_u8(in);

    if (in->bad) {
        return false;
    }
    switch (what % 8) {
    case 0:
        bytes = raw_bytes(in);
        break;
    case 1:
    case 2:
    case 3:
        bytes = any_frame(in);
        break;
    case 4:
        bytes = announcing_head(in);
        break;
    default:
        bytes = changed_example(in);
        if (what % 8 == 7) {
            g_byte_array_set_size(bytes, MIN(bytes->len, vj_read_u8(in)));
        }
        break;
    }
    return send_all(fd, bytes->data, bytes->len);
}

static void play(VjReader *in, int fd)
{
    for (unsigned n = 0; n < STEPS_MAX && step(in, fd); n++) {
    }
}

/* ---- attacks ----------------------------------------------------------------------- */

static void attack_server(VjReader *in, uint8_t kind)
{
    const Target *t = (kind & AT_NODE) != 0 ? &real : &recoder;
    struct sockaddr_un at = address_of(t->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    VjRpcServerStats stats;
    uint8_t reply[VJ_FRAME_HEAD_BYTES];

    g_assert(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    if ((kind & WITH_HELLO) != 0) {
        g_autoptr(GByteArray) hello =
            hello_frame((kind & AS_META) != 0 ? VJ_ROLE_META : VJ_ROLE_OBJECT,
                        (kind & WITH_FEATURES) != 0 ? VJ_WIRE_FEATURES : 0);

        g_assert(send_all(fd, hello->data, hello->len));
        g_assert(receive_all(fd, reply, sizeof reply) == sizeof reply);
    }
    play(in, fd);
    expect_answer(t->honest, VJ_OP_FLUSH);
    if (t->keys != NULL) {
        expect_answer(t->keys, VJ_OP_CLOCK);
    }
    vj_rpc_server_stats(t->server, &stats);
    g_assert(stats.held_bytes <= 2 * BYTES_MAX);
    close(fd);
}

/* Of the client that is attacked. */
typedef struct Answers {
    VjMutex lock; /* outermost */
    VjCond changed;
    unsigned count; /* guarded by lock */
} Answers;

static void answered(VjRpcCall *call)
{
    Answers *a = call->opaque;

    g_assert(call->rc <= 0);
    g_assert(!call->is_answered || call->reply != NULL);
    g_assert(call->reply_bulk_bytes <= call->bulk_max);
    vj_mutex_lock(&a->lock);
    a->count++;
    vj_cond_signal(&a->changed);
    vj_mutex_unlock(&a->lock);
}

static VjRpcCall *submit(VjRpcClient *c, Answers *a, unsigned n)
{
    static const uint16_t asked[CALLS] = {VJ_OP_GET, VJ_OP_STATS, VJ_OP_HAVE, VJ_OP_GET};
    VjRpcCall *call = vj_rpc_call_new(asked[n]);

    call->waits_for_connection = true;
    call->deadline_us = vj_clock_mono_us() + (int64_t)WAIT_MS * 1000;
    call->bulk_max = n == 0 ? 64 : 4096;
    if (n == 3) {
        call->into = vj_buf_new(4096);
        g_assert(call->into != NULL);
    }
    call->done = answered;
    call->opaque = a;
    vj_rpc_submit(c, call);
    return call;
}

static void attack_client(VjReader *in, bool with_hello)
{
    struct pollfd p = {.fd = trap, .events = POLLIN};
    Answers answers = {0};
    VjRpcCall *calls[CALLS];
    VjRpcClient *c = client_of(trap_path, "fuzz", VJ_ROLE_OBJECT);
    int fd;

    vj_mutex_init(&answers.lock, VJ_RANK_FRONT, "fuzz");
    vj_cond_init(&answers.changed);
    for (unsigned i = 0; i < CALLS; i++) {
        calls[i] = submit(c, &answers, i);
    }
    while (poll(&p, 1, WAIT_MS) < 0) {
        g_assert(errno == EINTR);
    }
    fd = accept4(trap, NULL, NULL, SOCK_CLOEXEC);
    g_assert(fd >= 0);
    if (with_hello) {
        g_autoptr(GByteArray) reply = rpc_example_frame(&rpc_examples[1]);
        VjFrame frame;

        g_assert(vj_frame_decode(reply->data, &frame) == 0 && frame.op == VJ_OP_HELLO);
        frame.tag = 1;
        vj_frame_encode(&frame, reply->data);
        (void)send_all(fd, reply->data, reply->len);
    }
    play(in, fd);
    close(fd);
    vj_rpc_client_free(c); /* what is not answered yet is answered by that */
    vj_mutex_lock(&answers.lock);
    g_assert_cmpuint(answers.count, ==, CALLS);
    vj_mutex_unlock(&answers.lock);
    for (unsigned i = 0; i < CALLS; i++) {
        vj_rpc_call_unref(calls[i]);
    }
    vj_cond_clear(&answers.changed);
    vj_mutex_clear(&answers.lock);
    /* A second connection of it that nobody has taken. */
    while (poll(&p, 1, 0) == 1) {
        fd = accept4(trap, NULL, NULL, SOCK_CLOEXEC);
        g_assert(fd >= 0);
        close(fd);
    }
}

FUZZ_MUTATIONS(20);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    VjReader in = vj_reader(vj_slice(data, len));
    uint8_t kind = vj_read_u8(&in);

    if (len == 0) {
        return 0;
    }
    fuzz_quiet();
    if (dir == NULL) {
        begin();
    }
    if ((kind & AT_CLIENT) != 0) {
        attack_client(&in, (kind & WITH_HELLO) != 0);
        return 0;
    }
    if ((kind & AT_NODE) != 0) {
        if (node_attacks++ == NODE_ATTACKS) {
            node_end();
        }
        if (node == NULL) {
            node_begin();
        }
    }
    attack_server(&in, kind);
    return 0;
}
